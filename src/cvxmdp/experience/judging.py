r"""Whether a learned policy satisfies its constraints, by fresh episodes: as many as a decision needs.

Episodes give independent measures X_k, whose mean is m; a slack is g(m), g concave. Its interval is

    g(m) - z se - rare  <=  slack  <=  g(m) + z se + rare + bias,   se^2 = Var <grad g(m), X_k> / n,

- ``z``: Student's t. The level 0.05 is shared by the constraints and, for each, by the looks at 100, 200, 400,
  ... episodes: a tenth by those before the last, which decide what is clear, and the rest by the last one;
- ``rare``: what n episodes cannot show. An event whose probability exceeds log(1/a)/n happens among them but
  with probability a, so slack may be lower by that times the size of the largest deviation known. Known are
  the deviations of these episodes and, where g is affine, those that were learned from (``worst``: of late
  episodes, of counted steps where the policy goes, of batches). So no mean of zeros is sure of a zero;
- ``bias``: E g(m) <= g(E m), by Jensen. Where g is smooth the difference falls as 1/n, at the tip of a norm as
  1/sqrt(n): of half as many episodes it is sqrt(2) times as large at least. So by halves of the episodes, it is
  at most (g(m) - (g(m_1) + g(m_2)) / 2) / (sqrt(2) - 1), up to noise.

Where episodes were cut, what follows is taken to be like what was seen, X_k (1 + tail_k / mass_k), give or
take as much again. All this is an approximation for many episodes and no proof: ``evaluate`` has proofs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from cvxmdp.atoms.shapes import Shape
from cvxmdp.base.interval import Interval
from cvxmdp.experience.episodes import Sample, joined
from cvxmdp.problems.findings import OPEN, status_of
from cvxmdp.problems.findings import unjudged as unjudged
from cvxmdp.problems.problem import Problem

CHECK = 2_000  # episodes, at most
FIRST = 100  # episodes before the first look
LEAST, FEWEST = 8, 2  # episodes that say anything of a constraint; that are played in any case
LEVEL = 0.05
EARLY = 0.1  # of the level, shared by the looks before the last
Play = Callable[[int], Sample]  # so many further episodes, or a few more


def in_rounds(block: Callable[[int], Sample], lanes: int) -> Play:
    """Whole rounds of fresh episodes; ``block`` plays that of a number, one episode in each lane."""
    numbers = itertools.count()
    return lambda count: joined([block(next(numbers)) for _ in range(-(-count // lanes))])


class Judged(NamedTuple):
    """What fresh episodes say.

    Attributes:
        sample: the episodes.
        slack: of each constraint.
    """

    sample: Sample
    slack: dict[str, Interval]


def judge_by_episodes(
    problem: Problem,
    play: Play,
    *,
    check: int = CHECK,
    learned: float = math.inf,
    most_steps: float = math.inf,
    worst: Mapping[str, float] | None = None,
) -> Judged:
    """Play episodes until every constraint is decided, or the limit is reached.

    Args:
        problem: whose constraints are looked at.
        play: gives further episodes that nothing was learned from.
        check: how many episodes at most, but 100.
        learned: steps that were learned from: the first look takes no more, but two episodes.
        most_steps: after so many steps there is one more look and no more.
        worst: the smallest slack that was learned from, by constraint: of an episode, or of a batch of them.
    """
    sample = first_look(play, FIRST, learned)
    looks = max(1, math.ceil(math.log2(max(check, FIRST) / FIRST)) + 1)
    for look in range(looks):
        steps = int(sample.lengths.sum())
        last = look == looks - 1 or steps >= most_steps
        share = (1.0 - EARLY) if last else EARLY / (looks - 1)
        level = LEVEL * share / max(len(problem.constraints), 1)
        found = slack_intervals(problem, sample, level, worst or {})
        if last or all(status_of(one) != OPEN for one in found.values()):
            break
        wanted = min(check, FIRST * 2 ** (look + 1))
        sample = joined([sample, play(wanted - sample.n)]) if wanted > sample.n else sample
    return Judged(sample, found)


def first_look(play: Play, wanted: int, steps: float) -> Sample:
    """So many episodes, or as many as these steps are enough for, but two."""
    if math.isinf(steps):
        return play(wanted)
    sample = play(FEWEST)
    more = min(wanted, int(steps / max(float(sample.lengths.mean()), 1.0))) - sample.n
    return joined([sample, play(more)]) if more > 0 else sample


def slack_intervals(
    problem: Problem, sample: Sample, level: float, worst: Mapping[str, float]
) -> dict[str, Interval]:
    """The interval of every slack; each misses with probability ``level``."""
    method = f"{sample.n:,} fresh episodes"
    return {
        name: _interval(function, problem, sample, level, worst.get(name, math.inf), method)
        for name, function in problem.slack_functions.items()
    }


def measured_mean(
    problem: Problem, sample: Sample, weights: np.ndarray | None = None
) -> np.ndarray:
    """The mean of what a problem measures, features above signals; with weights, (n,), the weighted one."""
    shares = np.full(sample.n, 1.0 / sample.n) if weights is None else weights
    mean = np.zeros(problem.shape)
    mean[: sample.shape[0]] = sample.mean(shares)
    for row, name in enumerate(problem.space.signal_names, start=sample.shape[0]):
        mean[row, 0] = float(sample.returns[name] @ shares)  # utilities read the sum of the row
    return mean


def _interval(
    function: Shape, problem: Problem, sample: Sample, level: float, worst: float, method: str
) -> Interval:
    n, mean = sample.n, measured_mean(problem, sample)
    value = float(function.value(mean))
    filled = (1.0 + sample.tails / np.maximum(_masses(problem, sample), 1e-300)) / n
    hidden = 2.0 * (float(function.value(measured_mean(problem, sample, filled))) - value)
    slope = np.asarray(function.gradient(mean), dtype=np.float64)
    parts = sample.inner(slope[: sample.shape[0]])
    for row, name in enumerate(problem.space.signal_names, start=sample.shape[0]):
        parts = parts + slope[row, 0] * sample.returns[name]
    parts = parts - parts.mean()
    halves = [measured_mean(problem, sample, _half(n, one)) for one in (0, 1)]
    fallen = value - float(np.mean([function.value(half) for half in halves]))
    bias = max(0.0, fallen) / (math.sqrt(2.0) - 1.0)
    if n < LEAST or not np.isfinite([value, hidden, bias, *parts]).all():
        return Interval(value, -math.inf, math.inf, method, False)
    deep = value - worst if function.affine() is not None and math.isfinite(worst) else 0.0
    unseen = math.log(2.0 / level) / n
    below, above = max(-float(parts.min()), deep) * unseen, float(parts.max()) * unseen
    radius = float(stdtrit(n - 1, 1.0 - level / 2.0)) * float(parts.std(ddof=1)) / math.sqrt(n)
    lower = value + min(hidden, 0.0) - radius - below
    return Interval(value, lower, value + max(hidden, 0.0) + radius + above + bias, method, False)


def _masses(problem: Problem, sample: Sample) -> np.ndarray:
    """The discounted number of steps of each episode, (n,)."""
    weights = problem.space.discount ** np.arange(int(sample.lengths.max()))
    return np.concatenate([[0.0], np.cumsum(weights)])[sample.lengths]


def _half(n: int, which: int) -> np.ndarray:
    chosen = np.arange(n) % 2 == which
    return chosen / chosen.sum()
