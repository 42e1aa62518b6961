"""What holds in the true model where sums are not discounted: total, and over so many steps."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.models.counts import Counts
from cvxmdp.models.estimate import estimated_model

BASE = cm.garnet(5, 2, 3, seed=3, discount=0.9)
WORLD = BASE.replace(transition=BASE.transition * 0.85)  # every step may be the last
HORIZONS: list[dict[str, Any]] = [
    {"discount": 1.0, "horizon": 6},
    {"discount": 0.9, "horizon": 4},
    {"discount": 1.0},
]
UTILITIES = {
    "linear": cm.linear("reward"),
    "entropy": cm.linear("reward") + 0.2 * cm.entropy(),
    "minimum": cm.minimum(cm.linear("reward"), cm.linear("cost")),
}


def estimate(draws: int, seed: int, start: bool = False, **horizon: Any) -> cm.TabularMDP:
    """From so many draws of every pair; the first state is known, or estimated as well."""
    random = np.random.default_rng(seed)
    chances = WORLD.transition.toarray()
    chances = np.column_stack([chances, np.maximum(1.0 - chances.sum(axis=1), 0.0)])
    outcomes = np.array([random.multinomial(draws, p / p.sum()) for p in chances])
    begun = random.multinomial(draws, WORLD.initial) if start else None
    counts = Counts(sp.csr_array(outcomes), WORLD.actions.copy(), begun)
    initial = None if start else WORLD.initial
    known = dict(WORLD.signals)
    return estimated_model(counts, 0.9, initial=initial, known=known).replace(**horizon)


def asked(model: cm.TabularMDP, utility: cm.Utility, budget: float) -> cm.Problem:
    return cm.Problem(model, maximize=utility, subject_to={"cost": cm.linear("cost") <= budget})


def binding(world: cm.TabularMDP, utility: cm.Utility) -> float:
    """Half of the way from the least cost to that of the best."""
    best = cm.solve(cm.Problem(world, maximize=utility))
    least = cm.solve(cm.Problem(world, minimize=cm.linear("cost")))
    paid = cm.Problem(world, minimize=cm.linear("cost")).evaluate(best.policy).objective
    return 0.5 * (least.objective + paid)


@pytest.mark.parametrize(
    ("horizon", "name"),
    [
        (HORIZONS[0], "linear"),
        (HORIZONS[0], "entropy"),
        (HORIZONS[1], "minimum"),
        (HORIZONS[2], "linear"),
        (HORIZONS[2], "entropy"),
    ],
    ids=str,
)
def test_bounds_hold_and_meet_as_the_data_grow(
    horizon: dict[str, Any], name: str, tmp_path: Path
) -> None:
    world, utility = WORLD.replace(**horizon), UTILITIES[name]
    truth = asked(world, utility, binding(world, utility))
    best, gaps = cm.solve(truth).objective, []
    for draws in (400, 100_000_000):
        problem = asked(
            estimate(draws, 0, start=name == "linear", **horizon),
            utility,
            truth.budgets["cost"],
        )
        certificate = cm.certify(problem, cm.solve(problem, cautious=0.95))
        assert certificate.upper >= best - 1e-7
        assert certificate.policy is not None
        there = truth.evaluate(certificate.policy)
        assert certificate.reaches <= there.objective + 1e-7
        assert certificate.slack["cost"] <= there.slack["cost"] + 1e-7
        certificate.save(tmp_path / "certificate.json")
        assert cm.check(tmp_path / "certificate.json", problem).accepted
        gaps.append(certificate.gap)
    assert gaps[1] < 0.02 * best  # proven, and close
    assert gaps[0] > 3 * gaps[1]


def test_an_adversary_of_every_step_is_the_worst_of_all_corners() -> None:
    transition = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.4], [1.0, 0.0]]])
    reward, share, steps = np.array([[1.0, 0.2], [-0.5, 0.7]]), 0.2, 3
    model = cm.TabularMDP(transition, 0, 1.0, horizon=steps, signals={"reward": reward})
    problem = cm.Problem(model.uncertain(relative=share), maximize=cm.linear("reward"))
    policy = np.array([[0.3, 0.7], [0.6, 0.4]])
    certificate = cm.certify(problem, policy)
    whole = np.concatenate([transition, 1.0 - transition.sum(axis=2, keepdims=True)], axis=2)
    rows = [corners(row, share) for row in whole.reshape(-1, 3)]
    models = [np.array(one).reshape(2, 2, 3)[:, :, :2] for one in itertools.product(*rows)]
    worst, best = np.zeros(2), np.zeros(2)
    for _ in range(
        steps
    ):  # values of the steps that are left: worse or better is so state by state
        worst = np.min([(policy * (reward + p @ worst)).sum(axis=1) for p in models], axis=0)
        best = np.max([(reward + p @ best).max(axis=1) for p in models], axis=0)
    assert certificate.reaches == pytest.approx(worst[0], abs=1e-9)
    assert certificate.upper == pytest.approx(best[0], abs=1e-9)


def corners(row: np.ndarray, share: float) -> list[np.ndarray]:
    """Extreme distributions with every probability within a share of itself."""
    found = []
    for free in range(row.size):
        for signs in itertools.product((-1.0, 1.0), repeat=row.size):
            moved = row * (1.0 + share * np.array(signs))
            moved[free] += 1.0 - moved.sum()
            if abs(moved[free] - row[free]) <= share * row[free] + 1e-12:
                found.append(moved)
    return found


def test_total_sums_need_that_every_model_ends() -> None:
    model = estimate(200, 0, discount=1.0)
    counts = model.counts
    assert counts is not None
    fewer = counts.outcomes.toarray()
    fewer[3] = 0  # a pair that nobody tried may lead back for ever
    opened = Counts(sp.csr_array(fewer), counts.available)
    known = dict(WORLD.signals)
    problem = cm.Problem(
        estimated_model(opened, 1.0, initial=WORLD.initial, known=known),
        maximize=cm.linear("reward"),
    )
    with pytest.raises(cm.ProblemError, match=r"may stay for ever. Mask them"):
        cm.certify(problem, cm.solve(problem))


def test_long_run_averages_are_refused_in_words() -> None:
    model = BASE.replace(average=True).uncertain(relative=0.05)
    problem = cm.Problem(model, maximize=cm.linear("reward"))
    with pytest.raises(cm.ProblemError, match=r"comes back to one state\. Give a discount"):
        cm.certify(problem, model.flow.uniform)


def test_a_log_is_read_for_so_many_steps() -> None:
    log = {"state": [0, 1, 0, 1], "action": [0, 0, 0, 0], "next_state": [1, 0, 1, 0]}
    table = {**log, "terminated": [0, 1, 0, 1], "gain": [1.0, 2.0, 1.0, 2.0]}
    model = cm.from_transitions(table, 1.0, horizon=2, known=["gain"])
    found = cm.certify(cm.Problem(model, maximize=cm.linear("gain")), np.ones((2, 1)))
    assert 1.0 <= found.reaches < 3.0 <= found.upper
    assert "Of the true model" in str(found)
