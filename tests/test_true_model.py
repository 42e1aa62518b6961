"""Certificates about the true model: sound for every atom, checked from counts, never of the estimate alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.algorithms import robust_flow
from cvxmdp.atoms import Utility
from cvxmdp.base.errors import ProblemError
from cvxmdp.certificates.true_claims import TrueClaims
from cvxmdp.models.counts import Counts, SignalCounts
from cvxmdp.models.estimate import estimated_model

WORLD = cm.garnet(6, 2, 3, seed=3).replace(discount=0.8)
PLAIN = cm.TabularPolicy(WORLD.flow.uniform)
TARGET = WORLD.flow.occupancy(WORLD.flow.uniform)


def counted(
    world: cm.TabularMDP, visits: Any, seed: int, declared: bool = True, **more: Any
) -> cm.TabularMDP:
    """An estimate from so many draws of every pair, an array (S, A) or a number."""
    rng = np.random.default_rng(seed)
    rows = world.transition.toarray()
    rows = np.column_stack([rows, np.maximum(1.0 - rows.sum(axis=1), 0.0)])
    rows /= rows.sum(axis=1, keepdims=True)
    times = np.broadcast_to(visits, world.actions.shape).ravel() * world.actions.ravel()
    drawn = [rng.multinomial(n, row) for n, row in zip(times, rows, strict=True)]
    begun = None if declared else rng.multinomial(max(int(times.max()), 1), world.initial)
    counts = Counts(sp.csr_array(np.array(drawn)), world.actions.copy(), begun, **more)
    estimated = set(counts.signals)
    known = {name: one for name, one in world.signals.items() if name not in estimated}
    initial = world.initial if declared else None
    return estimated_model(counts, world.discount, initial=initial, known=known)


def test_the_optimists_bound_holds_however_early_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = cm.Problem(counted(WORLD, 30, seed=1), maximize=cm.linear("reward"))
    flow, reward = TrueClaims.about(problem, 0.9).models, problem.mdp.signal("reward")
    settled = flow.optimum(reward)
    for rounds in (1, 2, 3):
        monkeypatch.setattr(robust_flow, "ROUNDS", rounds)
        assert flow.optimum(reward).upper >= settled.upper - 1e-9


UTILITIES: dict[str, Utility] = {
    "linear": cm.linear("reward"),
    "entropy": cm.entropy(),
    "pair entropy": cm.entropy(of="state-action"),
    "kl": -cm.distance(TARGET, norm="kl"),
    "l1": -cm.distance(TARGET, norm="l1"),
    "l2": -cm.distance(TARGET, norm="l2"),
    "l2 squared": -cm.distance(TARGET, norm="l2-squared"),
    "ball": -cm.distance(cm.ball(TARGET, 0.3), norm="l2"),
    "decisions kl": -cm.distance(PLAIN, norm="kl", of="actions"),
    "decisions l1": -cm.distance(PLAIN, norm="l1", of="actions"),
    "logarithms": cm.log_sum("reward", "cost"),
    "minimum": cm.minimum(cm.linear("reward"), cm.linear("cost")) + 0.1 * cm.linear("reward"),
    "root": cm.sqrt(cm.linear("reward")),
    "exponential": -cm.exp(0.5 * cm.linear("cost")),
    "cube": -cm.power(cm.maximum(cm.linear("cost") - 0.5, 0), 3),
    "undecided": cm.entropy(of="actions"),
    "chi2": -cm.distance(TARGET, norm="chi2"),
    "barrier": cm.linear("reward") + 0.1 * cm.log_barrier(cm.linear("cost") <= 4.0),
    "sum": cm.entropy() + 0.2 * cm.linear("reward") - 0.1 * cm.distance(TARGET, norm="l2"),
}


@pytest.mark.parametrize("name", UTILITIES)
def test_bounds_hold_in_the_true_model(name: str, tmp_path: Path) -> None:
    problem = cm.Problem(
        counted(WORLD, 3_000, seed=1, declared=False),
        maximize=UTILITIES[name],
        subject_to={"cost": cm.linear("cost") <= 3.0},
    )
    solution = cm.solve(problem)
    certificate = cm.certify(problem, solution, confidence=0.9)
    truth = problem.with_model(WORLD)
    there, best = truth.evaluate(solution.policy), cm.solve(truth)
    assert -np.inf < certificate.reaches <= there.objective
    assert -np.inf < certificate.slack["cost"] <= there.slack["cost"]
    assert np.inf > certificate.upper >= best.objective - 1e-9
    assert certificate.assumes
    text = str(certificate)
    assert text.startswith("Of the true model, with confidence 0.9 (36,000 rows, 12 pairs, 0 never")
    assert "Proven" not in text
    certificate.save(tmp_path / "certificate.json")
    checked = cm.check(tmp_path / "certificate.json", problem)
    assert checked, checked.reasons
    again = cm.Certificate.from_json((tmp_path / "certificate.json").read_text())
    assert str(again) == text


def test_a_colleague_checks_from_the_counts_without_jax(tmp_path: Path) -> None:
    problem = cm.Problem(
        counted(WORLD, 2_000, seed=2),
        minimize=cm.distance(TARGET, norm="l2"),
        subject_to={"cost": cm.linear("cost") <= 3.0},
    )
    certificate = cm.certify(problem, cm.solve(problem))
    problem.save(tmp_path / "problem")
    certificate.save(tmp_path / "certificate.json")
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "from cvxmdp.checker.__main__ import main\n"
        f"sys.exit(main([{str(tmp_path / 'certificate.json')!r}, {str(tmp_path / 'problem')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "independent draws" in done.stdout
    assert cm.check(tmp_path / "certificate.json", cm.load_problem(tmp_path / "problem"))


@pytest.mark.parametrize(
    ("claim", "value"),
    [("upper", 1.0), ("reaches", 9.0), ("confidence", 0.999), ("slack", {"cost": 0.2})],
)
def test_claims_that_were_tightened_are_refused(claim: str, value: Any, tmp_path: Path) -> None:
    problem = cm.Problem(
        counted(WORLD, 2_000, seed=2),
        maximize=cm.linear("reward"),
        subject_to={"cost": cm.linear("cost") <= 3.0},
    )
    document = json.loads(cm.certify(problem, cm.solve(problem)).to_json())
    document["claims"][claim] = value
    (tmp_path / "forged.json").write_text(json.dumps(document))
    assert not cm.check(tmp_path / "forged.json", problem)


def test_other_counts_are_another_problem(tmp_path: Path) -> None:
    asked = {"maximize": cm.linear("reward")}
    problem = cm.Problem(counted(WORLD, 2_000, seed=2), **asked)
    cm.certify(problem, cm.solve(problem)).save(tmp_path / "certificate.json")
    doubled = problem.mdp.counts
    assert doubled is not None
    more = Counts(2 * doubled.outcomes, doubled.available, None, known=doubled.known)
    assert not cm.check(
        tmp_path / "certificate.json", cm.Problem(problem.mdp.replace(counts=more), **asked)
    )


def test_pairs_never_tried_count_for_everybody_but_the_plan() -> None:
    """The best action was never tried: no bound may forget it."""
    transition = np.zeros((2, 2, 2))
    transition[0, 0, 0] = transition[0, 1, 1] = transition[1, :, 1] = 1.0
    world = cm.TabularMDP(
        transition, 0, 0.9, signals={"reward": np.array([[0.1, 0.0], [1.0, 1.0]])}
    )
    tried = counted(world, np.array([[5_000, 0], [5_000, 5_000]]), seed=0)
    problem = cm.Problem(tried, maximize=cm.linear("reward"))
    solution = cm.solve(problem)
    assert solution.objective == pytest.approx(1.0)  # of the estimate, where nobody goes on
    certificate = cm.certify(problem, solution)
    assert certificate.upper >= 9.0
    assert "1 never tried" in str(certificate)
    anything = cm.certify(problem, np.full((2, 2), 0.5))  # a policy may take what nobody tried
    assert (
        -1e-9
        <= anything.reaches
        <= problem.with_model(world).evaluate(np.full((2, 2), 0.5)).objective
    )
    masked = tried.replace(actions=np.array([[True, False], [True, True]]))
    assert cm.certify(cm.Problem(masked, maximize=cm.linear("reward")), solution).upper < 2.0


def test_declared_supports_sharpen_what_is_known(tmp_path: Path) -> None:
    inside = np.column_stack([WORLD.transition.toarray() > 0, np.zeros(12, dtype=bool)])
    asked = {"maximize": cm.linear("reward"), "subject_to": {"cost": cm.linear("cost") <= 3.0}}
    plain = cm.Problem(counted(WORLD, 300, seed=1), **asked)
    sharp = cm.Problem(counted(WORLD, 300, seed=1, supports=sp.csr_array(inside)), **asked)
    policy = cm.solve(plain).policy
    known, more = cm.certify(plain, policy), cm.certify(sharp, policy)
    there = plain.with_model(WORLD).evaluate(policy)
    assert known.reaches < more.reaches <= there.objective
    assert more.upper <= known.upper + 1e-9
    assert "supports" in str(more)
    more.save(tmp_path / "certificate.json")
    sharp.save(tmp_path / "problem")
    assert cm.check(tmp_path / "certificate.json", cm.load_problem(tmp_path / "problem"))


def test_nothing_was_tried() -> None:
    problem = cm.Problem(
        counted(WORLD, 0, seed=0),
        maximize=cm.linear("reward"),
        subject_to={"cost": cm.linear("cost") <= 3.0},
    )
    certificate = cm.certify(problem, WORLD.flow.uniform)
    most = float(WORLD.signals["reward"].max()) / (1 - WORLD.discount)
    assert certificate.upper <= most * 1.001
    assert certificate.upper >= cm.solve(problem.with_model(WORLD)).objective
    assert not certificate.feasible
    assert "not known" in str(certificate)


def test_one_state_whose_end_is_all_that_is_uncertain() -> None:
    world = cm.TabularMDP(np.full((1, 1, 1), 0.7), 0, 0.95, signals={"reward": np.ones((1, 1))})
    problem = cm.Problem(counted(world, 4_000, seed=5), maximize=cm.linear("reward"))
    certificate = cm.certify(problem, np.ones((1, 1)))
    truth = 1.0 / (1.0 - 0.95 * 0.7)
    assert certificate.lower <= truth <= certificate.upper
    assert certificate.gap < 0.6


def test_infeasibility_of_the_true_model(tmp_path: Path) -> None:
    problem = cm.Problem(
        counted(WORLD, 20_000, seed=4),
        maximize=cm.linear("reward"),
        subject_to={"cost": cm.linear("cost") <= 1.2, "reward": cm.linear("reward") >= 0.1},
    )
    certificate = cm.certify(problem, cm.solve(problem))
    assert certificate.infeasible
    assert certificate.conflict == ("cost",)
    assert "no policy satisfies 'cost'" in str(certificate)
    certificate.save(tmp_path / "certificate.json")
    checked = cm.check(tmp_path / "certificate.json", problem)
    assert checked, checked.reasons
    # Some 20 draws of a pair say nothing of the kind.
    few = cm.Problem(
        counted(WORLD, 20, seed=4), maximize=problem.utility, subject_to=problem.constraints
    )
    assert not cm.certify(few, WORLD.flow.uniform).infeasible


def estimated_signal(visits: int, seed: int, bounds: Any, exact: bool = False) -> cm.TabularMDP:
    """A reward that is only seen with noise: a coin with the true mean."""
    mean = WORLD.signals["reward"]
    heads = np.random.default_rng(seed).binomial(visits, mean).astype(np.float64)
    sums = visits * mean if exact else heads
    return counted(WORLD, visits, seed, signals={"reward": SignalCounts(sums, bounds, exact)})


def test_estimated_signals_with_promised_bounds() -> None:
    truth = cm.Problem(WORLD, maximize=cm.linear("reward"))
    best = cm.solve(truth)
    gaps = []
    for model in (
        estimated_signal(2_000, 0, (0.0, 1.0)),
        estimated_signal(2_000, 0, (-1.0, 4.0)),
        estimated_signal(2_000, 0, (0.0, 1.0), exact=True),
    ):
        problem = cm.Problem(model, maximize=cm.linear("reward", per="step"))
        solution = cm.solve(problem)
        certificate = cm.certify(problem, solution)
        reached = (1 - WORLD.discount) * truth.evaluate(solution.policy).objective
        assert certificate.lower <= reached
        assert certificate.upper >= (1 - WORLD.discount) * best.objective
        gaps.append(certificate.gap)
    assert gaps[2] < gaps[0] < gaps[1]
    # A cost that is minimised: the other end of the interval.
    problem = cm.Problem(model, minimize=cm.linear("reward"))
    solution = cm.solve(problem)
    certificate = cm.certify(problem, solution)
    assert certificate.upper >= truth.evaluate(solution.policy).objective
    assert certificate.lower <= cm.solve(cm.Problem(WORLD, minimize=cm.linear("reward"))).objective


def test_a_signal_without_bounds_is_never_proven() -> None:
    problem = cm.Problem(estimated_signal(2_000, 0, None), maximize=cm.linear("reward"))
    certificate = cm.certify(problem, cm.solve(problem))
    assert certificate.upper == np.inf
    assert certificate.lower == -np.inf
    assert "what this policy reaches is not known" in str(certificate)
    assert "nothing is proven without their ranges: bounds={name" in str(certificate)
    bent = cm.Problem(problem.mdp, maximize=cm.entropy())
    certificate = cm.certify(bent, cm.solve(bent))
    assert np.isfinite(certificate.gap)
    assert "ranges" not in str(certificate)


def test_a_function_of_ones_own() -> None:
    @cm.concave
    def spread(x: Any) -> Any:
        return -(x**2).sum()

    model = counted(WORLD, 2_000, seed=0)
    unknown = cm.certify(cm.Problem(model, maximize=spread), WORLD.flow.uniform)
    assert unknown.reaches == -np.inf
    promised = cm.concave(spread.function, lipschitz=2 * WORLD.max_mass)
    certificate = cm.certify(cm.Problem(model, maximize=promised), WORLD.flow.uniform)
    there = cm.Problem(WORLD, maximize=promised).evaluate(WORLD.flow.uniform)
    assert -np.inf < certificate.reaches <= there.objective


def test_confidence_needs_counts() -> None:
    with pytest.raises(ProblemError, match="carry their counts"):
        TrueClaims.about(cm.Problem(WORLD, maximize=cm.entropy()), 0.95)


def test_the_estimate_alone_is_never_called_proven() -> None:
    problem = cm.Problem(counted(WORLD, 2_000, seed=0), maximize=cm.linear("reward"))
    certificate = cm.certify(problem, cm.solve(problem), confidence=None)
    assert "roven" not in str(certificate)
    assert "Of the estimate alone" in str(certificate)
    tight = cm.Problem(
        problem.mdp, maximize=problem.utility, subject_to={"cost": cm.linear("cost") <= 0.5}
    )
    for text in (str(cm.solve(tight)), cm.solve(tight)._repr_html_(), str(cm.slater(tight))):
        assert "roven" not in text
        assert "(of the estimate)" in text


def test_large_sets_by_the_distance_to_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvxmdp.checker.policy_anywhere.MOST_FEATURES", 3)
    problem = cm.Problem(counted(WORLD, 200_000, seed=0), maximize=cm.entropy())
    certificate = cm.certify(problem, WORLD.flow.uniform)
    there = problem.with_model(WORLD).evaluate(WORLD.flow.uniform)
    assert -np.inf < certificate.reaches <= there.objective


def test_a_constraint_never_raises_the_bound() -> None:
    random = np.random.default_rng(1)
    log = {name: random.integers(0, size, 60) for name, size in [("state", 4), ("action", 2)]}
    log |= {"next_state": random.integers(0, 4, 60), "terminated": np.zeros(60, bool)}
    log |= {"reward": random.random(60), "cost": random.random(60)}
    promised = {"reward": (0.0, 1.0), "cost": (0.0, 1.0)}
    seen = cm.from_transitions(log, discount=0.9, initial=0, bounds=promised)
    bounds = [
        cm.certify(problem, cm.solve(problem)).upper
        for budget in ({}, {"cost": cm.linear("cost") <= 4.5})
        for problem in [cm.Problem(seen, maximize=cm.linear("reward"), subject_to=budget)]
    ]
    assert bounds[1] <= bounds[0] + 1e-9


@pytest.mark.parametrize(
    ("utility", "most"),
    [
        (cm.linear("reward"), 10.0),
        (cm.minimum(cm.linear("reward"), cm.linear("cost")), 10.0),
        (cm.log(cm.linear("reward")), np.log(10.0)),
        (2.0 - cm.linear("cost"), 2.0),
    ],
)
@pytest.mark.parametrize("rows", [1, 8, 60])
def test_no_bound_exceeds_what_any_model_could_give(
    utility: cm.Utility, most: float, rows: int
) -> None:
    """Signals are estimated: values that suit the estimate's own rewards would prove far less."""
    random = np.random.default_rng(2)
    log = {name: random.integers(0, size, rows) for name, size in [("state", 4), ("action", 2)]}
    log |= {"next_state": random.integers(0, 4, rows), "terminated": np.zeros(rows, bool)}
    log |= {"reward": random.random(rows), "cost": random.random(rows)}
    promised = {"reward": (0.0, 1.0), "cost": (0.0, 1.0)}
    seen = cm.from_transitions(log, discount=0.9, initial=0, bounds=promised)
    problem = cm.Problem(seen, maximize=utility)
    assert cm.certify(problem, cm.solve(problem)).upper <= most + 2e-3 * (1 + abs(most))
