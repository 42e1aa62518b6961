"""What ``evaluate`` returns: intervals, a verdict in a sentence, a table, a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from cvxmdp.base.errors import reading
from cvxmdp.base.interval import Interval
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.base.storage import require_file, whole_file
from cvxmdp.base.text_tables import number, text_table

FORMAT = "cvxmdp evaluation 1"


@dataclass(frozen=True)
class PolicyEvaluation(InNotebooks):
    """What episodes say about a policy. All bounds hold at once with probability ``confidence``.

    Attributes:
        objective: in the user's sign.
        slack: of each constraint; at least zero where it holds.
        confidence: the probability that every interval here contains the truth, where its method proves
            that (``Interval.proven``).
        episodes, steps: how many were played.
        horizon: where episodes are cut at the latest.
        truncated: how many episodes were cut, by the horizon or by the environment.
        longest_cut: steps of the longest of them.
        truncation: a bound on the discounted mass that this hid, on average; it is inside the bounds that are
            proven, a bootstrap knows nothing of it.
        written: the objective and the constraints as they were written.
        source: the environment.
        assumes: promises of the user's that the bounds rest on.
        occupancy: the estimate, (S, A) or (F, A); not kept in files.
    """

    objective: Interval
    slack: Mapping[str, Interval]
    confidence: float
    episodes: int
    steps: int
    horizon: int
    truncated: int
    truncation: float
    written: Mapping[str, str]
    source: str
    assumes: tuple[str, ...] = ()
    occupancy: np.ndarray | None = field(default=None, repr=False)
    longest_cut: int = 0

    @property
    def feasible(self) -> str:
        """ "proven", "disproven" or "open", at ``confidence``."""
        if any(interval.proven and interval.upper < 0 for interval in self.slack.values()):
            return "disproven"
        if all(interval.proven and interval.lower >= 0 for interval in self.slack.values()):
            return "proven"
        return "open"

    @property
    def statement(self) -> str:
        """Whether feasibility is proven, in a sentence."""
        sure = f"with confidence {self.confidence:.4g}"
        if not self.slack:
            return "There are no constraints to satisfy."
        if self.feasible == "proven":
            return f"Proven {sure}: the policy satisfies every constraint."
        if self.feasible == "disproven":
            broken = [n for n, i in self.slack.items() if i.proven and i.upper < 0]
            return f"Proven {sure}: the policy violates {', '.join(map(repr, broken))}."
        open_ones = [
            f"{name!r} (slack at least {interval.lower:.4g}"
            + (")" if interval.proven else ", and that is a bootstrap, not a proof)")
            for name, interval in self.slack.items()
            if not (interval.proven and interval.lower >= 0)
        ]
        return (
            f"Feasibility is neither proven nor disproven {sure}: {'; '.join(open_ones)}. More episodes "
            "narrow the bounds."
        )

    def __str__(self) -> str:
        rows = [
            (name, self.written[name], *(number(x) for x in (i.value, i.lower, i.upper)), i.method)
            for name, i in (("objective", self.objective), *self.slack.items())
        ]
        header = ("", "written", "value", "at least", "at most", "method")
        played = f"{self.episodes:,} episodes, {self.steps:,} steps"
        lines = [f"{self.source}: {played}. Constraints are shown by their slack.", ""]
        lines += [*text_table(header, rows), "", self._cuts(), self.statement]
        if self.assumes:
            lines.append(f"This rests on these promises: {'; '.join(self.assumes)}.")
        return "\n".join(lines)

    def _cuts(self) -> str:
        """What cutting episodes hid, and whether the intervals know."""
        if not self.truncated:
            return "No episode was cut."
        proven = {interval.proven for interval in (self.objective, *self.slack.values())}
        known = {
            (True,): "which the bounds allow for",
            (False,): "which a bootstrap does not see: the truth may lie outside these intervals",
            (False, True): "which the proven bounds allow for and a bootstrap does not see",
        }[tuple(sorted(proven))]
        return (
            f"{self.truncated:,} of the episodes were cut, after at most {self.longest_cut:,} steps; that hid "
            f"at most {number(self.truncation)} of discounted mass, {known}."
        )

    def save(self, path: str | Path) -> None:
        """Write everything but the occupancy to a JSON file."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["objective"] = asdict(self.objective)
        fields["slack"] = {name: asdict(interval) for name, interval in self.slack.items()}
        fields["written"] = dict(self.written)
        del fields["occupancy"]
        with whole_file(path) as temporary:
            temporary.write_text(json.dumps({"format": FORMAT, **fields}, indent=1), "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> PolicyEvaluation:
        """Read what ``save`` wrote."""
        with reading(f"{path} does not hold an evaluation"):
            fields = json.loads(require_file(path).read_text("utf-8"))
            if fields.pop("format") != FORMAT:
                raise ValueError("another format")
            fields["objective"] = Interval(**fields["objective"])
            fields["slack"] = {name: Interval(**i) for name, i in fields["slack"].items()}
            fields["assumes"] = tuple(str(promise) for promise in fields["assumes"])
            return cls(**fields)
