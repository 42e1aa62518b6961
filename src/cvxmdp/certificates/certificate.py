"""Certificates: what is proven about a problem and a policy, in words and in a file."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.storage import whole_file
from cvxmdp.checker.closed_forms import CertificateError
from cvxmdp.policies import TabularPolicy

FORMAT = "cvxmdp certificate 1"


@dataclass(frozen=True)
class Certificate:
    """What is proven. All bounds are in the user's sign, and upper is never below lower.

    When maximising, ``upper`` bounds what any feasible policy can achieve and ``lower`` is achieved by
    ``policy``. When minimising it is the other way round: no feasible policy gets below ``lower``, and
    ``policy`` is surely not above ``upper``.

    Attributes:
        upper, lower: the bounds; infinite where nothing is proven, NaN where it is proven that there is
            no feasible policy to bound.
        policy: the policy that achieves its bound and surely satisfies every constraint, or None.
        slack: its slack per constraint is at least this.
        given_slack: the slack of the policy that was given, as computed.
        repaired: whether ``policy`` is the given one mixed with the Slater point.
        repair_share: the share of the Slater point in that mixture.
        multipliers: of the upper bound: it rises by at most this per unit of budget.
        flow_residual: what the flow equations miss at the computed occupancy of ``policy``.
        flow_cost: how much objective was given up for that and for rounding.
        infeasible: proven: no policy satisfies all constraints.
        conflict: the constraints in that proof.
        slack_bound: the proven upper bound on the smallest slack of any policy in that proof.
        assumes: promises the proof rests on.
        uniform: objective of the uniform policy, which ``relative_gap`` refers to.
        sense: "maximize" or "minimize".
        statement: the problem in words.
        proof: parameters of the upper bound (or of infeasibility), for the checker.
        fingerprint: of the problem.
    """

    upper: float
    lower: float
    policy: TabularPolicy | None
    slack: Mapping[str, float]
    given_slack: Mapping[str, float]
    repaired: bool
    repair_share: float
    multipliers: Mapping[str, float]
    flow_residual: float
    flow_cost: float
    infeasible: bool
    conflict: tuple[str, ...]
    slack_bound: float
    assumes: tuple[str, ...]
    uniform: float
    sense: str
    statement: str
    proof: Mapping[str, Any]
    fingerprint: str

    @property
    def gap(self) -> float:
        """upper - lower."""
        return self.upper - self.lower if not self.infeasible else math.nan

    @property
    def size(self) -> float:
        """max(|upper|, |lower|, |bound - objective of the uniform policy|): what is large here.

        The last one gives the relative gap a meaning when the optimum is near zero (imitation).
        """
        bound = self.upper if self.sense == "maximize" else self.lower
        candidates = (self.upper, self.lower, bound - self.uniform)
        return max((abs(number) for number in candidates if math.isfinite(number)), default=0.0)

    @property
    def contradicts(self) -> bool:
        """True when a policy surely beats the bound: then a promise in ``assumes`` is false."""
        return self.gap < -1e-9 * self.size

    @property
    def relative_gap(self) -> float:
        """gap / size; infinite where the bounds contradict each other."""
        if not math.isfinite(self.gap):
            return self.gap
        if self.contradicts:
            return math.inf
        return self.gap / self.size if self.size > 0 else 0.0

    def __str__(self) -> str:
        from cvxmdp.certificates.certificate_text import certificate_text

        return certificate_text(self)

    def __repr__(self) -> str:
        if self.infeasible:
            return f"Certificate(infeasible: {', '.join(self.conflict)})"
        return f"Certificate(lower {self.lower:.8g}, upper {self.upper:.8g}, gap {self.gap:.2g})"

    def to_json(self) -> str:
        """The certificate as JSON; arrays keep every bit."""
        evidence = {
            "policy": None if self.policy is None else encode(self.policy.probabilities()),
            "proof": encode_tree(self.proof),
        }
        claims = {
            name: getattr(self, name)
            for name in ("upper", "lower", "infeasible", "slack_bound", "sense", "statement")
        }
        claims["slack"] = dict(self.slack)
        claims["multipliers"] = dict(self.multipliers)
        claims["conflict"] = list(self.conflict)
        claims["assumes"] = list(self.assumes)
        notes = {
            "given_slack": dict(self.given_slack),
            "repaired": self.repaired,
            "repair_share": self.repair_share,
            "flow_residual": self.flow_residual,
            "flow_cost": self.flow_cost,
            "uniform": self.uniform,
        }
        document = {
            "format": FORMAT,
            "problem": self.fingerprint,
            "claims": claims,
            "notes": notes,
            "evidence": evidence,
            "evidence_sha256": evidence_digest(evidence),
        }
        return json.dumps(_plain(document), indent=1)

    def save(self, path: str | Path) -> None:
        """Write the certificate to a JSON file, whole or not at all."""
        with whole_file(path) as temporary:
            temporary.write_text(self.to_json(), "utf-8")


def evidence_digest(evidence: Any) -> str:
    """A checksum of the evidence, against files damaged on the way."""
    return hashlib.sha256(json.dumps(evidence, sort_keys=True).encode()).hexdigest()


def encode(array: np.ndarray) -> dict[str, Any]:
    """An array as JSON: shape and base64 of its little-endian float64 bytes."""
    numbers = np.asarray(array, dtype="<f8")
    return {"shape": list(numbers.shape), "float64": base64.b64encode(numbers.tobytes()).decode()}


def encode_tree(tree: Any) -> Any:
    """Nested tables and lists with their arrays encoded."""
    if isinstance(tree, Mapping):
        return {name: encode_tree(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [encode_tree(value) for value in tree]
    return encode(np.asarray(tree, dtype=np.float64))


def decode_tree(tree: Any) -> Any:
    """The inverse of ``encode_tree``; anything else is refused."""
    if isinstance(tree, dict) and set(tree) == {"shape", "float64"}:
        return decode(tree)
    if isinstance(tree, dict):
        return {name: decode_tree(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [decode_tree(value) for value in tree]
    raise CertificateError(f"the evidence holds {tree!r} where an array was expected")


def decode(encoded: Any) -> np.ndarray:
    """The inverse of ``encode``; allocates no more than the text holds."""
    try:
        shape = tuple(int(size) for size in encoded["shape"])
        raw = base64.b64decode(encoded["float64"], validate=True)
        array = np.frombuffer(raw, dtype="<f8")
        if any(size < 0 for size in shape):
            raise ValueError(f"shape {shape}")
        return array.reshape(shape).astype(np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise CertificateError(f"the certificate holds a damaged array: {error}") from error


def _plain(value: Any) -> Any:
    """JSON has no infinities or NaN: they become strings that float() reads again."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, np.bool_):
        return bool(value)
    return value
