"""Sets of models from counts: coverage by exact dynamic programming, largest expectations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from cvxmdp.checker.checked_confidence import ConfidenceRows, RelativeRows, mean_bounds
from cvxmdp.experience.confidence import (
    Balls,
    RelativeErrors,
    confidence_balls,
    confidence_level,
)

CHANCES = (0.5, 0.3, 0.1, 0.03, 0.01)
DELTAS = (0.5, 0.2, 0.05)
Inside = Callable[[np.ndarray, float], np.ndarray]  # counts (k, 2) and p -> boolean (k,)


def every_count(steps: int) -> np.ndarray:
    """(heads, tails) after n = 1, ..., steps draws, one after the other."""
    pairs = [np.column_stack([np.arange(n + 1), n - np.arange(n + 1)]) for n in range(1, steps + 1)]
    return np.concatenate(pairs)


def ever_left(inside: np.ndarray, p: float, steps: int) -> float:
    """The probability that p is outside its interval at some time, exactly."""
    alive, lost, place = np.ones(1), 0.0, 0
    for n in range(1, steps + 1):
        alive = np.append(alive * (1 - p), 0.0) + np.append(0.0, alive * p)
        kept = inside[place : place + n + 1]
        lost += float(alive[~kept].sum())
        alive, place = np.where(kept, alive, 0.0), place + n + 1
    return lost


def divergence(q: np.ndarray, p: float) -> np.ndarray:
    """KL(q || p) of coins with q heads."""
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = np.where(q > 0, q * np.log(q / p), 0.0)
        return heads + np.where(q < 1, (1 - q) * np.log((1 - q) / (1 - p)), 0.0)


def coverage(steps: int, delta: float, factor: int = 1) -> list[float]:
    """Of the balls of counts times a factor, for every chance."""
    counts = every_count(steps)
    balls = confidence_balls(sp.csr_array(factor * counts), confidence_level(1 - delta, 1))
    heads = balls.centres.toarray()[:, 0]
    known = np.isfinite(balls.radius)
    return [ever_left(~known | (divergence(heads, p) <= balls.radius), p, steps) for p in CHANCES]


def coverage_of_fixed_times(steps: int, delta: float) -> list[float]:
    """Of Chernoff's intervals, which hold at every time but not at all times."""
    counts = every_count(steps)
    n = counts.sum(axis=1)
    found = []
    for p in CHANCES:
        inside = n * divergence(counts[:, 0] / n, p) <= math.log(2 / delta)
        found.append(ever_left(inside, p, steps))
    return found


@pytest.mark.parametrize("delta", DELTAS)
def test_one_coin_is_covered_at_all_times(delta: float) -> None:
    found = coverage(300, delta)
    assert 0 < max(found) <= delta
    assert max(coverage(300, delta, factor=2)) > delta  # the test can fail


@pytest.mark.long
@pytest.mark.parametrize("delta", DELTAS)
def test_one_coin_is_covered_for_two_thousand_draws(delta: float) -> None:
    found, doubled = coverage(2_000, delta), coverage(2_000, delta, factor=2)
    fixed = coverage_of_fixed_times(2_000, delta)
    print(
        f"delta {delta}: left {max(found):.3f}; doubled {min(doubled):.3f}; fixed {max(fixed):.3f}"
    )
    assert max(found) <= delta
    assert min(doubled) > delta
    assert max(fixed) > delta


def some_counts(seed: int, rows: int = 30, outcomes: int = 9) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 400, (rows, outcomes)) * (rng.random((rows, outcomes)) < 0.5)
    counts[0] = 0
    counts[1] = np.eye(outcomes, dtype=int)[2]  # one draw
    counts[2] = 5_000 * np.eye(outcomes, dtype=int)[2]  # always the same
    counts[3] = np.arange(outcomes) < 3  # nothing twice
    return sp.csr_array(counts)


def test_the_two_implementations_agree() -> None:
    counts, level = some_counts(0), confidence_level(0.95, 30)
    mine = confidence_balls(counts, level)
    checked = ConfidenceRows(counts, np.ones(9, dtype=bool), None, level)
    assert np.array_equal(np.isinf(mine.radius), np.isinf(checked.radius))
    known = np.isfinite(mine.radius)
    np.testing.assert_allclose(mine.radius[known], checked.radius[known], rtol=1e-8)
    assert (checked.radius >= mine.radius)[known].all()
    assert not known[[0, 1, 3]].any()
    assert known[2]
    values = np.random.default_rng(1).normal(size=(9, 4)) * [1.0, 1e-6, 1e6, 0.0] + [0, 1, 0, 3]
    found = mine.largest(values)
    bounds = checked.largest(values, np.ones(30, dtype=bool))
    sizes = np.abs(values).max(axis=0)
    assert (bounds >= found.bound - 1e-13 * sizes).all()
    np.testing.assert_allclose(bounds / sizes, found.bound / sizes, atol=1e-9)


def test_largest_expectations_are_reached_inside_the_ball() -> None:
    counts = some_counts(2)
    balls = confidence_balls(counts, confidence_level(0.9, 30))
    values = np.random.default_rng(3).normal(size=(9, 3))
    found = balls.largest(values)
    dense = np.zeros((30, 9, 3))
    np.add.at(dense, (balls.row_of, balls.centres.indices), found.chances)
    for column in range(3):
        np.add.at(dense[:, :, column], (np.arange(30), found.top[:, column]), found.rest[:, column])
    np.testing.assert_allclose(dense.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.einsum("rkj,kj->rj", dense, values), found.bound, atol=1e-10)
    q = balls.centres.toarray()
    for row in np.flatnonzero(np.isfinite(balls.radius)):
        seen = q[row] > 0
        spent = (q[row, seen, None] * np.log(q[row, seen, None] / dense[row, seen])).sum(axis=0)
        assert (spent <= balls.radius[row] * (1 + 1e-8)).all()


def test_no_distribution_of_a_ball_has_a_larger_expectation() -> None:
    rng = np.random.default_rng(4)
    balls = confidence_balls(some_counts(5), confidence_level(0.9, 30))
    q, values = balls.centres.toarray(), rng.normal(size=(9, 1))
    bound = balls.largest(values).bound[:, 0]
    for row in np.flatnonzero(np.isfinite(balls.radius)):
        trials = rng.dirichlet(
            0.1 + 3 * rng.random() * 9 * q[row] + 0.3 * rng.random(9), size=3_000
        )
        trials = np.concatenate(
            [trials, 0.9 * q[row] + 0.1 * trials, 0.99 * q[row] + 0.01 * trials]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            spent = np.where(q[row] > 0, q[row] * np.log(q[row] / trials), 0.0).sum(axis=1)
        inside = trials[spent <= balls.radius[row]]
        assert len(inside)
        assert (inside @ values[:, 0]).max() <= bound[row] + 1e-12


def test_supports_restrict_what_may_happen() -> None:
    counts = sp.csr_array(np.array([[3, 2, 0, 0], [0, 0, 0, 0]]))
    level, values = confidence_level(0.95, 2), np.array([[0.0], [1.0], [5.0], [9.0]])
    supports = sp.csr_array(np.array([[True, True, True, False], [True, True, False, False]]))
    possible = np.array([True, True, True, False])
    anywhere = confidence_balls(counts, level, possible).largest(values).bound[:, 0]
    inside = confidence_balls(counts, level, possible, supports).largest(values).bound[:, 0]
    assert anywhere[1] == 5.0
    assert inside[1] == 1.0
    assert inside[0] <= 5.0
    checked = ConfidenceRows(counts, possible, supports, level)
    np.testing.assert_allclose(checked.largest(values, np.ones(2, bool))[:, 0], inside, atol=1e-9)


def test_relative_errors_against_every_corner() -> None:
    rng = np.random.default_rng(6)
    chances = rng.dirichlet(np.ones(5), size=8)
    chances[0] = np.eye(5)[1]
    values = rng.normal(size=(5, 2))
    share = 0.3
    mine = RelativeErrors(sp.csr_array(chances), share).largest(values)
    bound = RelativeRows(sp.csr_array(chances), share).largest(values, np.ones(8, dtype=bool))
    np.testing.assert_allclose(bound, mine.bound, atol=1e-12)
    for row in range(8):
        for column in range(2):
            best = _best_corner(chances[row], values[:, column], share)
            assert mine.bound[row, column] == pytest.approx(best, abs=1e-12)


def _best_corner(p: np.ndarray, values: np.ndarray, share: float) -> float:
    """The largest expectation over the polytope, whose vertices have all g but one at an end."""
    best = float(p @ values)
    seen = np.flatnonzero(p)
    for free in seen:
        others = [x for x in seen if x != free]
        for signs in np.ndindex(*(2,) * len(others)):
            moved = share * p[others] * (2 * np.array(signs) - 1)
            own = -moved.sum()
            if abs(own) <= share * p[free] + 1e-15:
                change = moved @ values[others] + own * values[free]
                best = max(best, float(p @ values + change))
    return best


def test_means_of_bounded_signals_are_covered() -> None:
    rng = np.random.default_rng(7)
    draws = np.cumsum(rng.random((400, 300)) ** 2, axis=1)  # mean 1/3
    n = np.broadcast_to(np.arange(1.0, 301.0), draws.shape)
    low, high = mean_bounds(draws, n, math.log(1 / 0.2))
    wrong = ((low > 1 / 3) | (high < 1 / 3)).any(axis=1).mean()
    assert wrong <= 0.2
    assert (high - low)[:, -1].max() < 0.25
    least, most = mean_bounds(np.zeros(1), np.zeros(1), math.log(20))
    assert (least[0], most[0]) == (0.0, 1.0)


def test_a_ball_of_radius_infinity_is_everything() -> None:
    balls = Balls(sp.csr_array((2, 3)), np.full(2, np.inf), np.array([True, True, False]))
    found = balls.largest(np.array([[1.0], [2.0], [7.0]]))
    np.testing.assert_array_equal(found.bound, 2.0)
    np.testing.assert_array_equal(found.rest, 1.0)
    np.testing.assert_array_equal(found.top, 1)
