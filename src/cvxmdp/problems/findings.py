"""What a learner's history says of its answer: collapsed, flat, improving, fallen, a budget out of reach.

A learner ends when its steps are used up, whatever came of them. Each finding says what is the matter, since
which iteration, and what to do about it. Trends are judged on the means of a few blocks of a curve, which noise
that is alike over neighbouring iterations does not deceive: Student's t of the slope through them, at 95%.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from cvxmdp.base.interval import Interval

SATISFIED, VIOLATED, OPEN = "satisfied", "violated", "open"
COLLAPSED, FLAT, IMPROVING, FALLEN, AT_BORDER, AT_BOUND, OUT_OF_REACH = (
    "collapsed",
    "objective is flat",
    "still improving",
    "worse than before",
    "objective at its border",
    "multiplier at its bound",
    "out of reach",
)
COMPUTED = "computed"  # the method of an interval of no width
BLOCKS, LEAST_BLOCKS = 10, 5
SURE = 0.95
WORTH = 0.01  # of the range seen, below which an improvement is none
NEAR = 0.1  # of the range seen: a slack so small may hold the objective back
# Of the range seen, by which an answer that is worse than earlier policies has lost them.
FALL = 0.2
ROUNDED = 1e-5  # of the objective: what single precision may make of it
LATE = 0.1  # of a run, that a multiplier is at its bound
ENOUGH = 100  # iterations, before which nobody knows that a budget is out of reach
ROOM = "The budget may be out of reach; where there is a model, cm.slater(problem) says whether there is room."
LAST, LONGER, HALF = 0.2, 0.4, 0.5  # of a run, over which trends are looked at


class Timeline(NamedTuple):
    """Values, (n,), at iterations, (n,)."""

    at: np.ndarray
    values: np.ndarray

    def last(self, share: float) -> Timeline:
        """Its last part."""
        return (
            self.since(self.at[-1] - share * (self.at[-1] - self.at[0])) if len(self.at) else self
        )

    def since(self, iteration: float) -> Timeline:
        """From an iteration on."""
        return Timeline(self.at[self.at >= iteration], self.values[self.at >= iteration])

    @property
    def blocks(self) -> np.ndarray:
        """Means of neighbouring values, at most ``BLOCKS`` of them."""
        count = min(BLOCKS, len(self.values))
        return np.array(
            [part.mean() for part in np.array_split(self.values, count)] if count else []
        )

    @property
    def span(self) -> float:
        """The range that block means cover over the run."""
        parts = (
            np.array_split(self.values, min(len(self.values), 5 * BLOCKS)) if len(self.at) else []
        )
        means = np.array([part.mean() for part in parts])
        return float(np.ptp(means)) if means.size else 0.0


NOTHING = Timeline(np.zeros(0), np.zeros(0))


class Trend(NamedTuple):
    """The slope through the blocks of a curve, and its standard error, per length of the curve."""

    gain: float
    error: float
    degrees: int

    def resolves(self, gain: float, tests: int = 1) -> bool:
        """Whether so large a gain is above zero at 95%, a level that so many tests share."""
        sure = 1.0 - (1.0 - SURE) / tests
        return self.degrees > 0 and gain > float(stdtrit(self.degrees, sure)) * self.error


def trend_of(curve: Timeline) -> Trend:
    """Least squares through the means of blocks; of fewer than five nothing is said."""
    means = curve.blocks
    if means.size < LEAST_BLOCKS or not np.isfinite(means).all():
        return Trend(0.0, np.inf, 0)
    time = np.linspace(-0.5, 0.5, means.size)
    spread = float(time @ time)
    slope = float(time @ means) / spread
    left = means - means.mean() - slope * time
    degrees = means.size - 2
    error = float(np.sqrt(left @ left / degrees / spread))
    # Rounding gives a constant curve a slope as well.
    rounding = means.size * float(np.finfo(np.float64).eps * np.abs(means).max())
    return Trend(slope, max(error, rounding), degrees)


@dataclass(frozen=True)
class Finding:
    """Something that whoever uses the answer should know.

    Attributes:
        what: "collapsed", "objective is flat", "still improving", "worse than before", "objective at its
            border", "multiplier at its bound" or "out of reach".
        since: the iteration from which on it is so.
        what_to_do: in a sentence.
        detail: of what, and why it is said.
    """

    what: str
    since: int
    what_to_do: str
    detail: str = ""

    def __str__(self) -> str:
        what = f"{self.what[:1].upper()}{self.what[1:]} since iteration {self.since:,}"
        return f"{what}{': ' if self.detail else ''}{self.detail}. {self.what_to_do}"


@dataclass(frozen=True)
class Course:
    """How a run went.

    Attributes:
        objective: of the policies played, larger is better (so the negative of what is minimised).
        slack: of each constraint.
        multipliers: of each constraint.
        bounds: the largest value that each multiplier can take.
        narrow: 1 where the policy hardly varies what it does: its mean entropy is under 5% of log A, or every
            standard deviation of a Gaussian under 0.02; 0 elsewhere.
        asks: whether the objective is known to depend on what is done.
        began: whether the answer is the policy that the run began with.
        believed: by how much learning takes the answer for better than it is, where logarithms go on along
            their tangents.
    """

    objective: Timeline
    slack: Mapping[str, Timeline] = field(default_factory=dict)
    multipliers: Mapping[str, Timeline] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)
    narrow: Timeline = NOTHING
    asks: bool = False
    began: bool = False
    believed: float = 0.0

    @property
    def lagrangian(self) -> Timeline | None:
        """Objective and slacks weighed by the last multipliers; None without, or where times differ."""
        prices = {
            name: price.values[-1] for name, price in self.multipliers.items() if len(price.at)
        }
        at, total = self.objective.at, np.array(self.objective.values, dtype=float)
        same = all(np.array_equal(slack.at, at) for slack in self.slack.values())
        if not same or not any(prices.get(name, 0.0) > 0 for name in self.slack):
            return None
        for name, slack in self.slack.items():
            total = total + prices.get(name, 0.0) * slack.values
        return Timeline(at, total)


def computed(slack: Mapping[str, float]) -> dict[str, Interval]:
    """Intervals of slacks that are computed, not measured: of no width."""
    return {name: Interval(s, s, s, COMPUTED, False) for name, s in slack.items()}


def unjudged(slack: Mapping[str, float]) -> dict[str, Interval]:
    """Of estimates that no fresh episodes were asked about, as after a run that was stopped: without bounds."""
    return {name: Interval(s, -np.inf, np.inf, "not checked", False) for name, s in slack.items()}


def status_of(interval: Interval) -> str:
    """Whether a slack with this interval is satisfied, violated or open; a computed one has no width."""
    if interval.lower > 0 or interval.lower == interval.upper >= 0:
        return SATISFIED
    return VIOLATED if interval.upper < 0 else OPEN


def findings_of(course: Course, status: Mapping[str, str]) -> tuple[Finding, ...]:
    """What a run's course and the status of its constraints say."""
    held = _at_bound(course)
    flat_since = _flat(course)
    collapsed = _collapsed(course, status, flat_since is not None)
    found = [collapsed] if collapsed else []
    if flat_since is not None and not collapsed:
        found.append(_standing_still(course, status, flat_since))
    if not found:
        found += _improving(course, status) or _fallen(course)
    if not held and not collapsed:
        held = _out_of_reach(course, status)
    return (*found, *_at_border(course), *held)


def _collapsed(course: Course, status: Mapping[str, str], flat: bool) -> Finding | None:
    """Nothing is tried any more, and what is done is not good."""
    narrow = course.narrow
    if not len(narrow.at) or not narrow.values[-1]:
        return None
    others = np.flatnonzero(narrow.values == 0)
    since = int(narrow.at[others[-1] + 1 if others.size else 0])
    stuck = [] if _at_its_best(course.objective) else _stuck(course, status, since)
    if not flat and not stuck:
        return None
    why = f"while {', '.join(map(repr, stuck))} is violated" if stuck else "without a gain"
    return Finding(
        COLLAPSED,
        since,
        "More steps will not help. Begin anew with smaller steps, more exploration, or from a policy that "
        "does something (start=).",
        f"the policy hardly varies what it does, {why}",
    )


def _stuck(course: Course, status: Mapping[str, str], since: int) -> list[str]:
    """Violated constraints whose slack has not risen of late."""
    violated = [name for name, word in status.items() if word == VIOLATED]
    slacks = {name: course.slack[name] for name in violated if len(course.slack[name].at)}
    late = {name: curve.since(max(since, curve.last(HALF).at[0])) for name, curve in slacks.items()}
    return [name for name, curve in slacks.items() if not _rises(late[name], curve)]


def _at_its_best(objective: Timeline) -> bool:
    """Whether no policy of the run did much better: violating for the objective's sake is no collapse."""
    parts = np.array_split(objective.values, min(len(objective.values), 5 * BLOCKS))
    best = max((float(part.mean()) for part in parts), default=0.0)
    return float(objective.last(LAST).values.mean()) >= best - NEAR * objective.span


def _flat(course: Course) -> int | None:
    """Since when the objective does not rise, where it is no better than at first and nothing holds it back."""
    objective, late = course.objective, course.objective.last(HALF)
    if course.began:
        return int(objective.at[0])
    if late.blocks.size < LEAST_BLOCKS or not np.isfinite(objective.values).all():
        return None
    # Nothing that was tried made a difference; with constraints, it need not.
    if objective.span == 0:
        return None if course.slack and not course.asks else int(late.at[0])
    if _rises(late, objective) or late.values.mean() > _first(objective) + WORTH * objective.span:
        return None
    feasible = all(_first(slack) >= 0 for slack in course.slack.values() if len(slack.at))
    if not feasible and any(_holds_back(course, name) for name in course.slack):
        return None
    return int(late.at[0])


def _first(curve: Timeline) -> float:
    """Before anything was learned: of the first thousandth."""
    return float(curve.values[: max(1, len(curve.values) // 1000)].mean())


def _rises(part: Timeline, whole: Timeline, tests: int = 1) -> bool:
    """Whether part of a curve rises, by more than is worth a word."""
    trend = trend_of(part)
    return trend.resolves(trend.gain, tests) and trend.gain > WORTH * whole.span


def _holds_back(course: Course, name: str) -> bool:
    """Whether a constraint is tight and has a price, so that the objective may have to stay low for it."""
    slack, price = course.slack[name], course.multipliers.get(name)
    if not len(slack.at) or price is None or not len(price.at):
        return False
    tight = float(slack.last(LAST).values.mean()) <= NEAR * slack.span
    return tight and float(price.last(LAST).values.mean()) > 0


def _standing_still(course: Course, status: Mapping[str, str], since: int) -> Finding:
    idle = bool(status) and all(word == SATISFIED for word in status.values())
    idle = idle and not any(_holds_back(course, name) for name in course.slack)
    return Finding(
        FLAT,
        since,
        "Begin from a policy that does something, or solve a looser budget first and tighten it with start=; "
        "smaller steps and more exploration help where it never found what pays.",
        "standing still is what was learned" if idle else "it is no better than the first policy's",
    )


def _improving(course: Course, status: Mapping[str, str]) -> list[Finding]:
    """What would be better with more steps: the objective, or a constraint that is not satisfied yet.

    Or both, weighed by the last multipliers, which is what learners climb: while a constraint is about to be
    met, the objective alone may stand still.
    """
    curves = {"the objective": course.objective}
    if (lagrangian := course.lagrangian) is not None:
        curves["the Lagrangian"] = lagrangian
    curves |= {
        f"the slack of {name!r}": slack
        for name, slack in course.slack.items()
        if status.get(name) == VIOLATED
    }
    tests = 2 * len(curves)  # each in two parts
    rising = {name: part for name, curve in curves.items() if (part := _rising_part(curve, tests))}
    if not rising:
        return []
    since = min(int(part.at[0]) for part in rising.values())
    advice = "Give it more steps: solve(..., start=solution) goes on."
    return [Finding(IMPROVING, since, advice, f"{' and '.join(rising)} still rose")]


def _fallen(course: Course) -> list[Finding]:
    """Whether a tenth of the run, its constraints satisfied in the mean, was much better than the end."""
    objective = course.objective
    starts = np.array_split(np.arange(len(objective.at)), BLOCKS)
    if any(part.size == 0 for part in starts) or not np.isfinite(objective.values).all():
        return []
    if not all(np.array_equal(slack.at, objective.at) for slack in course.slack.values()):
        return []
    good = [
        part for part in starts if all(s.values[part].mean() >= 0 for s in course.slack.values())
    ]
    worth = [float(objective.values[part].mean()) for part in good]
    last = float(objective.last(LAST).values.mean())
    if not worth or max(worth) - last <= FALL * objective.span:
        return []
    best = good[int(np.argmax(worth))]
    return [
        Finding(
            FALLEN,
            int(objective.at[best[-1]]),
            "What was learned was lost again. Another seed, or smaller steps, may keep it.",
            f"{(max(worth) - last) / objective.span:.0%} of the range that the objective covered is lost since",
        )
    ]


def _rising_part(curve: Timeline, tests: int) -> Timeline | None:
    """The last fifth, where it rises; where it is too noisy to tell, the last two fifths, if those do."""
    part = curve.last(LAST)
    if not _rises(part, curve, tests) and not trend_of(part).resolves(WORTH * curve.span):
        part = curve.last(LONGER)
    return part if _rises(part, curve, tests) else None


def _at_border(course: Course) -> list[Finding]:
    """Whether what was learned is not the objective, but what it is continued by."""
    rounded = ROUNDED * float(np.abs(course.objective.values).max(initial=0.0))
    if not course.believed > max(WORTH * course.objective.span, rounded):
        return []
    return [
        Finding(
            AT_BORDER,
            int(course.objective.at[-1]),
            "Give it more steps, or begin from a policy that has some of everything (start=); returns that are "
            "small by nature are better counted in larger units, log(1000 * ...).",
            "something whose logarithm or power counts is hardly ever seen; below 0.01 learning goes on along "
            f"a tangent, and takes the answer for better than it is by {course.believed:.3g}",
        )
    ]


def _at_bound(course: Course) -> list[Finding]:
    """Multipliers that were at the end of their box for the last tenth of the run."""
    found = []
    for name, price in course.multipliers.items():
        bound = course.bounds.get(name, np.inf)
        if not len(price.at) or not 0 < bound < np.inf:
            continue
        below = np.flatnonzero(price.values < (1.0 - 1e-6) * bound)
        reached = below[-1] + 1 if below.size else 0
        if len(price.at) - reached < max(1.0, LATE * len(price.at)):
            continue
        advice = f"{ROOM} If there is, the bound is too small: dual_bound=."
        detail = f"that of {name!r} ({bound:.3g})"
        found.append(Finding(AT_BOUND, int(price.at[reached]), advice, detail))
    return found


def _out_of_reach(course: Course, status: Mapping[str, str]) -> list[Finding]:
    """Constraints that no multiplier made any better over the second half of the run, violated all along."""
    found = []
    for name in _stuck(course, status, 0):
        late, price = course.slack[name].last(HALF), course.multipliers.get(name, NOTHING)
        if late.blocks.size < LEAST_BLOCKS or late.blocks.max() >= 0 or not len(price.at):
            continue
        if late.at[-1] < ENOUGH:
            continue
        if price.last(LAST).values.min() > 0:
            detail = f"{name!r} was violated all along, and its multiplier changed nothing"
            found.append(Finding(OUT_OF_REACH, int(late.at[0]), ROOM, detail))
    return found


def verdict_in_short(
    status: Mapping[str, str], measured: Mapping[str, Interval], findings: tuple[Finding, ...]
) -> str:
    """A few words that go with a learner's status; empty where nothing was judged."""
    words = []
    for word in (VIOLATED, OPEN):
        named = [name for name in measured if status[name] == word]
        words += [f"{word}: {', '.join(named)}"] if named else []
    if measured and not words:
        words.append("every constraint satisfied")
    words += dict.fromkeys(finding.what for finding in findings)
    return f" ({'; '.join(words)})" if words else ""


def verdict_words(
    status: Mapping[str, str], intervals: Mapping[str, Interval], findings: tuple[Finding, ...]
) -> list[str]:
    """Lines for people: how constraints were judged by episodes, and what was found."""
    lines = []
    for word in (VIOLATED, OPEN, SATISFIED):
        named = [
            f"{name} (slack between {intervals[name].lower:.4g} and {intervals[name].upper:.4g})"
            for name, said in status.items()
            if said == word and name in intervals and intervals[name].method != COMPUTED
        ]
        if named:
            lines.append(f"{word.capitalize()}: {', '.join(named)}.")
    return [*lines, *map(str, findings)]
