"""A coverage set as an answer: points with policies, bounds that hold for every policy, words and files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog

from cvxmdp.atoms import Utility
from cvxmdp.base.errors import ProblemError
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.text_tables import number, text_table
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.policies import TabularPolicy
from cvxmdp.policies.occupancies import measured_occupancy, measured_policy
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution
from cvxmdp.problems.solution_text import said_of_model
from cvxmdp.runs.frontier_figures import plot_front

SAME = 1e-9  # of the ranges: targets that are reached
ROUNDING = 1e-12  # of the largest term of a sum
NO_RANGE = 1e-9  # of an objective: ranges below it are those of its proof


@dataclass(frozen=True)
class FrontPoint:
    """Weights that were solved and certified.

    Attributes:
        weights: of the objectives.
        solution: of the weighted problem.
        certificate: of it; its bound holds for every policy.
        values: of each objective, which the certificate's policy surely reaches; minus infinity where there is
            no such policy.
    """

    weights: np.ndarray
    solution: Solution
    certificate: Certificate
    values: np.ndarray


@dataclass(frozen=True)
class Front(InNotebooks):
    """All trade-offs of several objectives, every one maximised, between an inner and an outer envelope.

    Proven: mixtures of ``points`` can be reached, and every v that any feasible policy reaches satisfies
    <weights_j, v> <= bounds_j for all j. Every such v has a mixture of points at or above
    v - distance * ranges.

    Attributes:
        problem: whose model and constraints they are.
        objectives: by name.
        solved: the weights that were solved, in this order.
        ranges: of each objective, from the worst to the best among the policies that are best for one of them:
            the unit of ``distance``.
        distance: between the envelopes, in units of the ranges.
        tolerance: that was asked.
    """

    problem: Problem
    objectives: Mapping[str, Utility]
    solved: tuple[FrontPoint, ...]
    ranges: np.ndarray
    distance: float
    tolerance: float

    @cached_property
    def _efficient(self) -> list[FrontPoint]:
        """The points that no other one is above, ordered by the first objective."""
        kept: list[FrontPoint] = []
        rounding = ROUNDING * np.abs(self.bounds).max()
        for point in sorted(self.solved, key=lambda one: tuple(-one.values)):
            above = any((other.values >= point.values - rounding).all() for other in kept)
            if np.isfinite(point.values).all() and not above:
                kept.append(point)
        return kept

    @property
    def points(self) -> np.ndarray:
        """(n, k): what the policies surely reach, without those that others dominate."""
        return np.array([point.values for point in self._efficient])

    @property
    def policies(self) -> tuple[TabularPolicy, ...]:
        """The policies of the points, which surely satisfy every constraint."""
        found = (point.certificate.policy for point in self._efficient)
        return tuple(policy for policy in found if policy is not None)

    @property
    def weights(self) -> np.ndarray:
        """(m, k): the weights that were solved."""
        return np.array([point.weights for point in self.solved])

    @property
    def bounds(self) -> np.ndarray:
        """(m,): no feasible policy's weighted objectives exceed these."""
        return np.array([point.certificate.upper for point in self.solved])

    def lower(self, weights: Sequence[float] | np.ndarray) -> float:
        """Proven: some policy's objectives, weighed with any weights, are at least this."""
        return float((self.points @ self._read_weights(weights)).max())

    def upper(self, weights: Sequence[float] | np.ndarray) -> float:
        """Proven: no feasible policy's objectives, weighed with any weights, exceed this.

        With shares a_j >= 0 such that sum a_j w_j <= w, <w, v> is at most sum a_j u_j and what is left of the
        weights times the best of each objective.
        """
        wanted = self._read_weights(weights)
        solved, bounds = self.weights, self.bounds
        positive = wanted > 0
        # What gives weight where none is wanted cannot take part.
        allowed = np.flatnonzero((solved[:, ~positive] == 0).all(axis=1))
        found = linprog(
            bounds[allowed],
            A_eq=(solved[allowed][:, positive] / wanted[positive]).T,
            b_eq=np.ones(int(positive.sum())),
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        shares = np.zeros(bounds.size)
        shares[allowed] = np.maximum(found.x, 0.0) if found.success else 0.0
        over = (shares @ solved)[positive] / wanted[positive]
        shares = shares / max(1.0, float(over.max()) * (1 + ROUNDING))
        alone = np.diag(solved[: wanted.size])  # the first solves are of one objective each
        left = np.maximum(wanted - shares @ solved, 0.0) / alone
        terms = np.concatenate([shares * bounds, left * bounds[: wanted.size]])
        return math.fsum(terms) + ROUNDING * float(np.abs(terms).max())

    def _read_weights(self, given: Any) -> np.ndarray:
        weights = np.asarray(given, dtype=np.float64)
        right = weights.shape == (len(self.objectives),) and bool((weights >= 0).all())
        if not (right and weights.any()):
            raise ProblemError(
                f"weights are one number for each of {', '.join(self.objectives)}, not negative and not all "
                f"zero; got {given!r}"
            )
        return weights

    def reaching(self, target: Sequence[float] | np.ndarray) -> TabularPolicy:
        """A policy that reaches at least ``target`` in every objective: the mixture of points that does."""
        wanted, points = np.asarray(target, dtype=np.float64), self.points
        if wanted.shape != (len(self.objectives),):
            raise ProblemError(f"a target is {len(self.objectives)} numbers; got {target!r}")
        # The largest excess t, in units of the ranges, with sum b_j p_j >= target + t ranges.
        costs = np.append(np.zeros(len(points)), -1.0)
        found = linprog(
            costs,
            A_ub=np.column_stack([-(points / self.ranges).T, np.ones(wanted.size)]),
            b_ub=-wanted / self.ranges,
            A_eq=np.append(np.ones(len(points)), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0.0, 1.0)] * len(points) + [(None, None)],
        )
        if not found.success or found.x[-1] < -SAME:
            raise ProblemError(
                f"no mixture of the points reaches {wanted.tolist()}: it lies beyond the inner envelope"
            )
        mdp = self.problem.mdp
        used = [(share, self.policies[j]) for j, share in enumerate(found.x[:-1]) if share > 0]
        mixed = sum(share * measured_occupancy(mdp, policy) for share, policy in used)
        return measured_policy(mdp, np.asarray(mixed))

    def rows(self) -> list[tuple[str, ...]]:
        """The points as cells: its number, the objectives, and their weights in units of the ranges."""
        return [
            (
                str(place),
                *(number(value) for value in point.values),
                " ".join(f"{share:.3f}" for share in self._shares(point)),
            )
            for place, point in enumerate(self._efficient)
        ]

    def _shares(self, point: FrontPoint) -> np.ndarray:
        weights = point.weights * self.ranges
        return np.asarray(weights / weights.sum())

    def __str__(self) -> str:
        lines = [f"maximize   {name}: {utility!r}" for name, utility in self.objectives.items()]
        lines += repr(self.problem).splitlines()[1:]
        header = ("", *self.objectives, "weights, by range")
        lines += ["", *text_table(header, self.rows()), ""]
        spans = ", ".join(
            f"{name} {number(span)}"
            for name, span in zip(self.objectives, self.ranges, strict=True)
        )
        best = np.abs(self.points).max(axis=0)
        if len(self.points) == 1 and (self.ranges <= NO_RANGE * best).all():
            lines.append(
                "Proven: one policy is best for every objective, up to what proofs resolve "
                f"({spans}). {len(self.solved)} solves."
            )
            return said_of_model("\n".join(lines), self.problem.mdp.note)
        lines.append(
            f"Proven: whatever a policy reaches, a mixture of these misses by at most {self.distance:.2g} of "
            f"the ranges ({spans}) in every objective. {len(self.solved)} solves."
        )
        if self.distance > self.tolerance:
            lines.append(f"That is more than the tolerance of {self.tolerance:g} that was asked.")
        return said_of_model("\n".join(lines), self.problem.mdp.note)

    def __repr__(self) -> str:
        names = ", ".join(self.objectives)
        return f"Front({names}: {len(self.points)} points, distance {self.distance:.2g})"

    def plot(self, path: str | Path | None = None) -> Any:
        """The envelopes of two objectives, or of more the points for every two, as a Matplotlib figure."""
        return plot_front(self, path)

    def save(self, folder: str | Path) -> None:
        """A folder for every solve, with its problem, certificate and policy.

        ``python -m cvxmdp.checker FOLDER/00/certificate.json FOLDER/00`` computes anew what is claimed.
        """
        for place, point in enumerate(self.solved):
            where = Path(folder) / f"{place:02d}"
            point.solution.problem.save(where)
            point.certificate.save(where / "certificate.json")
            if point.certificate.policy is not None:
                point.certificate.policy.save(where / "policy.safetensors")
