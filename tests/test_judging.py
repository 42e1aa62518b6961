"""Answers that know themselves: what fresh episodes say of constraints, and a history of its end."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.base.interval import Interval
from cvxmdp.experience.episodes import Sample
from cvxmdp.experience.judging import CHECK, FIRST, LEAST, judge_by_episodes
from cvxmdp.problems.findings import (
    AT_BOUND,
    COLLAPSED,
    FLAT,
    IMPROVING,
    Course,
    Timeline,
    findings_of,
    status_of,
)
from cvxmdp.runs.record import record_facts, record_from, record_of
from cvxmdp.runs.record_text import record_json, record_text, status_words
from environments import JaxModel, ModelEnv

DISCOUNT = 0.9


@lru_cache
def model(seed: int) -> cm.TabularMDP:
    """A random model whose dear actions also pay."""
    random = np.random.default_rng(seed)
    reward = random.random((8, 3))
    signals = {"reward": reward, "cost": (random.random((8, 3)) < 0.3) * reward}
    return cm.garnet(8, 3, 3, discount=DISCOUNT, seed=seed).replace(signals=signals)


@lru_cache
def environment(seed: int) -> cm.JaxEnv:
    return cm.JaxEnv(JaxModel(model(seed)), DISCOUNT)


def sums(returns: np.ndarray, name: str = "cost") -> Sample:
    """Episodes of three steps that ended, with these sums of a signal."""
    n = len(returns)
    occupancies = sp.csr_array((np.ones(n), (np.arange(n), np.zeros(n, int))), shape=(n, 24))
    lengths, ended = np.full(n, 3), np.ones(n, dtype=bool)
    told = {"reward": np.zeros(n), name: np.asarray(returns, dtype=float)}
    ranges = dict.fromkeys(told, (0.0, 1.0))
    return Sample(occupancies, told, np.zeros(n), lengths, ended, ranges, (8, 3))


def budget(most: float) -> cm.Problem:
    limit = {"cost": cm.linear("cost") <= most}
    return cm.Problem(environment(1), maximize=cm.linear("reward"), subject_to=limit)


class TestEpisodes:
    """As many as a decision needs."""

    def test_clear_cases_need_one_look(self) -> None:
        random = np.random.default_rng(0)
        for most, word in ((2.0, "satisfied"), (0.5, "violated")):
            judged = judge_by_episodes(budget(most), lambda n: sums(random.exponential(1.0, n)))
            assert judged.sample.n == FIRST
            assert status_of(judged.slack["cost"]) == word

    def test_a_close_case_takes_all_and_stays_open(self) -> None:
        random = np.random.default_rng(1)
        judged = judge_by_episodes(budget(1.0), lambda n: sums(random.exponential(1.0, n)))
        assert judged.sample.n == CHECK
        assert status_of(judged.slack["cost"]) == "open"
        assert str(CHECK)[0] in judged.slack["cost"].method

    def test_steps_are_limited(self) -> None:
        random = np.random.default_rng(1)
        judged = judge_by_episodes(
            budget(1.0), lambda n: sums(random.exponential(1.0, n)), most_steps=3 * FIRST + 1
        )
        assert judged.sample.n == 2 * FIRST

    def test_the_first_look_takes_no_more_steps_than_learning_did(self) -> None:
        """Of long episodes there are a few then, of which nothing is said but what they measured."""
        random = np.random.default_rng(1)

        def long(n: int) -> Sample:
            return replace(sums(random.exponential(1.0, n)), lengths=np.full(n, 100))

        for learned, episodes in ((50, 2), (500, 5), (2_000, 20)):
            judged = judge_by_episodes(budget(1e3), long, learned=learned, most_steps=learned)
            assert judged.sample.n == episodes
            word = "satisfied" if episodes >= LEAST else "open"
            assert status_of(judged.slack["cost"]) == word

    def test_zeros_are_not_sure_of_a_zero(self) -> None:
        """What was seen while learning may happen again, though a hundred episodes did not show it."""
        seen = judge_by_episodes(budget(0.01), lambda n: sums(np.zeros(n)), worst={"cost": -0.99})
        assert seen.sample.n > FIRST
        never = judge_by_episodes(budget(0.0), lambda n: sums(np.zeros(n)), worst={"cost": -1.0})
        assert status_of(never.slack["cost"]) == "open"

    @pytest.mark.parametrize("chance", [0.02, 0.3])
    def test_says_satisfied_wrongly_as_seldom_as_it_says(self, chance) -> None:
        """Of rare events and frequent ones, at a budget just missed: at most 2.5% of four hundred answers."""
        random, wrong = np.random.default_rng(3), 0
        problem = budget(0.97 * chance)
        for _ in range(400):
            judged = judge_by_episodes(
                problem, lambda n: sums(random.random(n) < chance), check=400, worst={"cost": -1.0}
            )
            wrong += status_of(judged.slack["cost"]) == "satisfied"
        assert wrong <= 10

    def test_bias_of_concave_functions_is_no_violation(self) -> None:
        """The distance of a mean to a point is too large, by noise in many directions."""
        random, center = np.random.default_rng(4), np.full((8, 3), 1.0 / 24)
        limit = {"near": cm.distance(center, norm="l2") <= 0.02}
        problem = cm.Problem(environment(1), maximize=cm.linear("reward"), subject_to=limit)

        def play(n: int) -> Sample:
            places = random.integers(0, 24, n)
            found = sums(np.zeros(n))
            table = sp.csr_array((np.ones(n), (np.arange(n), places)), shape=(n, 24))
            return replace(found, occupancies=table)

        assert status_of(judge_by_episodes(problem, play, check=100).slack["near"]) != "violated"


def rising(n: int = 200, to: float = 1.0) -> np.ndarray:
    return np.linspace(0.0, to, n)


def line(values) -> Timeline:
    return Timeline(np.arange(1, len(values) + 1), np.asarray(values, dtype=float))


class TestFindings:
    """What a history says."""

    noise = np.random.default_rng(0).normal(size=200)

    def words(self, course: Course, **status: str) -> list[str]:
        return [finding.what for finding in findings_of(course, status)]

    def test_what_was_learned_and_lost(self) -> None:
        lost = np.concatenate([np.linspace(0, 1, 60), np.ones(60), np.full(80, 0.3)])
        curve = line(lost + 0.02 * self.noise)
        (found,) = findings_of(Course(curve, {"cost": line(np.ones(200))}), {"cost": "satisfied"})
        assert found.what == "worse than before"
        assert 60 < found.since < 130
        broken = line(np.where(np.arange(200) < 130, -1.0, 1.0))  # what was better was forbidden
        assert findings_of(Course(curve, {"cost": broken}), {"cost": "satisfied"}) == ()

    def test_still_improving_and_since_when(self) -> None:
        course = Course(line(rising() + 0.02 * self.noise))
        (found,) = findings_of(course, {})
        assert found.what == IMPROVING
        assert 100 < found.since <= 161
        assert "start=" in found.what_to_do

    def test_converged_is_nothing_to_say(self) -> None:
        curve = np.minimum(rising(to=4.0), 1.0) + 0.05 * self.noise
        assert self.words(Course(line(curve))) == []

    def test_flat_where_nothing_holds_it_back(self) -> None:
        flat = line(0.05 * self.noise)
        slack, nothing = line(np.full(200, 0.5) + 0.01 * self.noise), line(np.zeros(200))
        course = Course(flat, {"cost": slack}, {"cost": nothing}, {"cost": 10.0})
        (found,) = findings_of(course, {"cost": "satisfied"})
        assert found.what == FLAT
        assert "standing still" in found.detail

    def test_flat_where_nothing_makes_a_difference(self) -> None:
        never = line(0.0 * self.noise)  # as where nobody ever reaches the flag
        (found,) = findings_of(Course(never), {})
        assert found.what == "objective is flat"
        costly = Course(never, {"cost": line(self.noise)})
        assert findings_of(costly, {"cost": "satisfied"}) == (), (
            "a problem may ask for nothing else"
        )
        assert self.words(replace(costly, asks=True), cost="satisfied") == ["objective is flat"]

    def test_a_tight_constraint_holds_it_back(self) -> None:
        """The objective falls to where a constraint is met that the first policy violated: no word of it."""
        falling = line(1.0 - np.minimum(rising(to=4.0), 0.5))
        slack = line(np.minimum(rising(to=4.0), 0.5) - 0.5)
        price = line(np.full(200, 2.0))
        course = Course(falling, {"cost": slack}, {"cost": price}, {"cost": 10.0})
        assert self.words(course, cost="open") == []

    @pytest.mark.parametrize("violated", [False, True])
    def test_collapsed_since(self, violated) -> None:
        falling = line(1.0 - np.minimum(rising(to=4.0), 0.5))
        slack = line(np.full(200, -0.1 if violated else 0.3))
        narrow = line((np.arange(200) >= 60).astype(float))
        course = Course(falling, {"cost": slack}, {"cost": line(np.ones(200))}, {}, narrow)
        (found,) = findings_of(course, {"cost": "violated" if violated else "satisfied"})
        assert (found.what, found.since) == (COLLAPSED, 61)
        assert ("'cost' is violated" in found.detail) == violated

    def test_sure_of_itself_and_good_is_no_collapse(self) -> None:
        curve = line(np.minimum(rising(to=4.0), 1.0))
        course = Course(curve, narrow=line((np.arange(200) >= 60).astype(float)))
        assert self.words(course) == []

    def test_multiplier_at_its_bound(self) -> None:
        price = line(np.minimum(rising(to=20.0), 10.0))
        curve = line(np.minimum(rising(to=4.0), 1.0))
        course = Course(curve, {"cost": line(-np.ones(200))}, {"cost": price}, {"cost": 10.0})
        (found,) = findings_of(course, {"cost": "violated"})
        assert found.what == AT_BOUND
        assert found.since == pytest.approx(100, abs=2)
        assert "slater" in found.what_to_do

    def test_a_budget_that_no_multiplier_helps_is_out_of_reach(self) -> None:
        curve, price = line(np.minimum(rising(to=4.0), 1.0)), line(rising(to=9.0))
        course = Course(curve, {"cost": line(0.1 * self.noise - 1.0)}, {"cost": price})
        (found,) = findings_of(course, {"cost": "violated"})
        assert (found.what, found.since) == ("out of reach", 101)
        assert "slater" in found.what_to_do
        around = Course(curve, {"cost": line(0.1 * self.noise)}, {"cost": price})
        assert findings_of(around, {"cost": "violated"}) == ()
        short = [
            Timeline(one.at[:50], one.values[:50]) for one in (curve, course.slack["cost"], price)
        ]
        early = Course(short[0], {"cost": short[1]}, {"cost": short[2]})
        assert "out of reach" not in self.words(early, cost="violated")
        better = Course(curve, {"cost": line(rising() - 1.1)}, {"cost": price})
        assert self.words(better, cost="violated") == [IMPROVING]

    def test_an_objective_that_is_continued_by_its_tangent(self) -> None:
        curve = line(np.minimum(rising(to=4.0), 1.0))
        assert self.words(Course(curve, believed=0.5)) == ["objective at its border"]
        assert self.words(Course(curve, believed=1e-7)) == []

    def test_the_first_policy_as_the_answer_is_no_gain(self) -> None:
        curve = line(np.minimum(rising(to=4.0), 1.0))
        assert self.words(Course(curve, began=True)) == [FLAT]

    def test_nothing_is_said_of_no_history(self) -> None:
        assert findings_of(Course(line([])), {}) == ()
        assert findings_of(Course(line([1.0, 2.0, 3.0])), {}) == ()
        assert findings_of(Course(line(np.full(50, np.nan))), {}) == ()


BASE = {
    "momentum": 0.3,
    "horizon": 40,
    "batch_size": 10,
    "baseline": True,
    "evaluate_every": 50,
    "dual_step": 10.0,
}
FALLING = {"primal_decay": 0.25, "dual_decay": 0.25}
KINDS = {
    "good": cm.VRPDPG(1_500, primal_step=0.3, **FALLING, **BASE),
    "violating": cm.VRPDPG(600, primal_step=0.3, dual_bound=0.05, **FALLING, **BASE),
    "collapsed": cm.VRPDPG(400, primal_step=40.0, **{**BASE, "momentum": 1.0}),
    "early": cm.VRPDPG(100, primal_step=0.03, **BASE),
}


@lru_cache
def questions(seed: int, share: float) -> tuple[cm.Problem, cm.Problem, cm.Solution, float]:
    """The problem in the model and in the environment, the exact answer, and the uniform policy's objective."""
    mdp, cost = model(seed), cm.linear("cost", per="step")
    least = cm.solve(cm.Problem(mdp, minimize=cost)).objective
    free = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"cost": cost <= 1.0}))
    most = least + share * (1.0 - free.slack["cost"] - least)
    goal = {"maximize": cm.linear("reward"), "subject_to": {"cost": cost <= most}}
    known = cm.Problem(mdp, **goal)
    uniform = known.evaluate(cm.uniform_policy(mdp)).objective
    return known, cm.Problem(environment(seed), **goal), cm.solve(known), uniform


def entropy_share(mdp: cm.TabularMDP, policy) -> float:
    """Of the actions along the way, as a share of log A."""
    rows, visits = policy.probabilities(), cm.occupancy_of(mdp, policy).sum(axis=1)
    entropies = -(rows * np.log(np.maximum(rows, 1e-300))).sum(axis=1)
    return float(visits @ entropies / visits.sum() / np.log(rows.shape[1]))


def wrong_words(place: int, share: float, kind: str, seed: int) -> list[str]:
    """What a run says of its answer that exact evaluation says otherwise."""
    known, played, best, uniform = questions(place, share)
    found = cm.solve(played, KINDS[kind], seed=seed, progress=False)
    truth = known.evaluate(found.policy)
    gap = (best.objective - truth.objective) / (best.objective - uniform)
    slack, size = truth.slack["cost"], known.budgets["cost"]
    spread = entropy_share(known.mdp, found.policy)
    said, told = found.constraint_status["cost"], {one.what for one in found.findings}
    wrong = [said] if said == ("violated" if slack >= 0 else "satisfied") else []
    wrong += ["open"] if said == "open" and abs(slack) > 0.2 * size else []
    # Labels where exact values are clear: no gain at all, or violating without ever trying anything else.
    collapsed = (spread < 0.03 and gap >= 1) or (spread < 1e-3 and slack < 0)
    alive = spread > 0.1 or (slack >= 0 and gap < 0.5)
    if (COLLAPSED in told and alive) or (collapsed and COLLAPSED not in told):
        wrong.append(f"collapsed: {COLLAPSED in told}")
    early, done = spread > 0.5 and gap > 0.2, gap < 0.15 and slack >= 0
    if (early and IMPROVING not in told) or (done and told & {IMPROVING, FLAT}):
        wrong.append(f"improving: {IMPROVING in told}")
    return [f"{kind} {place} {share} {seed}: {word}" for word in wrong]


def test_a_handful_of_labelled_runs() -> None:
    runs = [(1, 0.7, kind, 0) for kind in KINDS]
    assert [word for run in runs for word in wrong_words(*run)] == []


@pytest.mark.long
def test_fifty_labelled_runs() -> None:
    """At most two wrong words, none of them "satisfied"."""
    runs = [(m, b, k, s) for m in (1, 2, 4) for b in (0.3, 0.7) for k in KINDS for s in (0, 1)]
    runs += [(1, 0.3, "good", 2), (2, 0.7, "early", 2)]
    assert len(runs) == 50
    wrong = [word for run in runs for word in wrong_words(*run)]
    assert len(wrong) <= 2, wrong
    assert not [word for word in wrong if word.endswith("satisfied")], wrong


@pytest.fixture(scope="module")
def learned() -> cm.Solution:
    _, played, _, _ = questions(1, 0.7)
    return cm.solve(played, KINDS["early"], seed=0, progress=False)


class TestSolutions:
    """The words are in the answer, in files, in records."""

    def test_printed(self, learned) -> None:
        word, (finding,) = learned.constraint_status["cost"], learned.findings
        interval = learned.slack_interval["cost"]
        assert interval.lower <= learned.slack["cost"] <= interval.upper
        first, *rest = str(learned).splitlines()
        assert first.startswith(f"Iteration limit ({word}: cost; still improving): ")
        assert any(line.startswith(f"{word.capitalize()}: cost (slack between") for line in rest)
        assert str(finding) in rest
        assert "still improving" in learned._repr_html_()

    def test_in_records(self, learned) -> None:
        record = record_from(json.loads(json.dumps(record_facts(record_of(learned)))))
        assert record.findings == learned.findings
        assert record.constraints[0].interval == learned.slack_interval["cost"]
        assert status_words(record) in record_text(record)
        told = record_json(record)
        assert told["constraint_status"] == learned.constraint_status
        assert told["findings"][0]["what"] == IMPROVING
        assert len(told["slack_interval"]["cost"]) == 2

    def test_in_files(self, tmp_path) -> None:
        known, *_ = questions(1, 0.7)
        found = cm.solve(known, KINDS["early"], seed=0, progress=False)
        assert found.slack_interval["cost"] == Interval(
            *3 * (found.slack["cost"],), "computed", False
        )
        found.save(tmp_path)
        again = cm.load_solution(tmp_path)
        assert again.slack_interval == found.slack_interval
        assert again.findings == found.findings != ()
        assert again.constraint_status == found.constraint_status

    def test_exact_answers_have_a_status_and_no_more(self) -> None:
        known, _, best, _ = questions(1, 0.7)
        assert best.constraint_status == {"cost": "satisfied"}
        assert best.findings == ()
        assert "Satisfied" not in str(best)
        impossible = cm.solve(known.with_budget("cost", -1.0))
        assert impossible.constraint_status == {}

    def test_a_stopped_run_is_open(self) -> None:
        _, played, _, _ = questions(1, 0.7)
        found = cm.solve(played, KINDS["good"], seed=0, progress=False, time_limit=1e-3)
        assert found.constraint_status == {"cost": "open"}
        assert found.stats["evaluation_episodes"] == 0

    def test_in_gymnasium_too(self) -> None:
        """The same judge where steps are taken in Python: what it says is so in the model."""
        known, _, _, _ = questions(1, 0.7)
        limits = dict(known.constraints)
        env = cm.GymnasiumEnv(ModelEnv(model(1), limit=60), DISCOUNT)
        played = cm.Problem(env, maximize=cm.linear("reward"), subject_to=limits)
        found = cm.solve(played, cm.VRPDPG(20, primal_step=0.03, **BASE), seed=0, progress=False)
        slack = known.evaluate(found.policy).slack["cost"]
        interval = found.slack_interval["cost"]
        assert interval.lower <= slack <= interval.upper
        assert found.stats["evaluation_episodes"] >= FIRST
