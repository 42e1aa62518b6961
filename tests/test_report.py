"""The report's data: what is averaged, what is said, and that nothing gets out or in."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpError
from cvxmdp.reports.html_curves import averaged, groups_of, panel_of, panels
from cvxmdp.reports.html_data import headline, report_data, tiles
from cvxmdp.reports.html_page import report_page
from cvxmdp.runs.record import RunRecord, Series, record_of
from cvxmdp.runs.record_text import record_text
from strategies import walled_problem


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    return walled_problem()


@pytest.fixture(scope="module")
def solution(problem: cm.Problem) -> cm.Solution:
    return cm.solve(problem)


def learned(solution: cm.Solution, seed: int, **settings: float) -> RunRecord:
    random = np.random.default_rng([seed, len(settings)])
    history = {
        "iteration": np.arange(0, 1001, 100),
        "objective": np.linspace(0, 1, 11) + 0.01 * random.normal(size=11),
        "episode_objective": np.linspace(0, 1, 1000) + random.normal(size=1000),
        "slack": {"hazard": np.linspace(-1, 0.1, 11), "near expert": np.linspace(-2, 1, 11)},
        "multipliers": {"hazard": np.ones(1000), "near expert": np.zeros(1000)},
    }
    record = record_of(replace(solution, history=history), title="Learned", seed=seed)
    return replace(
        record, settings={"solver": "VRPDPG", **{k: str(v) for k, v in settings.items()}}
    )


def document(page: str) -> dict:
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page)
    return json.loads(text)


def test_the_mean_and_its_band():
    random = np.random.default_rng(0)
    values = random.normal(size=(5, 20))
    at = np.arange(20)
    curve = averaged([Series(at, row) for row in values])
    expected = stats.t.interval(0.95, 4, loc=values.mean(axis=0), scale=stats.sem(values, axis=0))
    np.testing.assert_allclose(curve["y"], values.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(curve["low"], expected[0], rtol=1e-4)
    np.testing.assert_allclose(curve["high"], expected[1], rtol=1e-4)
    assert curve["runs"] == 5
    assert curve["each"] == 1


def test_long_curves_are_thinned_without_changing_their_mean():
    values = np.random.default_rng(1).normal(size=10_000)
    curve = averaged([Series(np.arange(1, 10_001), values)])
    assert len(curve["x"]) < 400
    assert curve["x"][0] == 1  # fine at the start, for a logarithmic axis
    assert curve["x"] == sorted(curve["x"])
    steady = averaged([Series(np.arange(1, 10_001), np.full(10_000, 3.25))])
    assert set(steady["y"]) == {3.25}
    slope = averaged([Series(np.arange(1, 10_001), np.arange(1, 10_001))])
    np.testing.assert_allclose(slope["x"], slope["y"], rtol=1e-5)
    assert "low" not in curve


def test_iteration_zero_is_counted_in_long_curves():
    curve = averaged([Series(np.arange(1001), np.arange(1001.0))])
    assert curve["x"][0] == 0
    assert curve["y"][0] == 0
    np.testing.assert_allclose(curve["x"], curve["y"], rtol=1e-5)


def test_runs_of_different_lengths_and_values_that_are_not_finite():
    short = Series(np.arange(1, 501), np.full(500, 1.0))
    long = Series(np.arange(1, 1001), np.full(1000, 3.0))
    curve = averaged([short, long])
    late = [y for x, y in zip(curve["x"], curve["y"], strict=True) if x > 510]
    early = [y for x, y in zip(curve["x"], curve["y"], strict=True) if x < 490]
    assert set(early) == {2.0}
    assert set(late) == {3.0}
    broken = averaged([Series(np.arange(3), np.array([1.0, np.inf, np.nan]))])
    assert broken["y"] == [1.0, None, None]


def test_seeds_are_averaged_and_settings_told_apart(solution):
    records = [
        learned(solution, seed, momentum=m, horizon=40) for m in (0.1, 1.0) for seed in (0, 1)
    ]
    groups = groups_of(records)
    assert {name: len(runs) for name, runs in groups.items()} == {
        "momentum=0.1": 2,
        "momentum=1.0": 2,
    }
    assert list(groups_of([replace(r, label=f"run {r.seed}") for r in records])) == [
        "run 0",
        "run 1",
    ]
    exact = record_of(solution, title="Learned", solver=cm.ConvexProgram())
    names = list(groups_of([*records, exact]))
    assert names == ["VRPDPG, momentum=0.1", "VRPDPG, momentum=1.0", "ConvexProgram"]
    budgets = groups_of([records[0], replace(records[1], constraints=())])
    assert len(budgets) == 2


def test_panels(solution):
    drawn = panels({"a": [learned(solution, 0)], "b": [learned(solution, 1)]}, [("best", 1.5)])
    titles = [panel["title"] for panel in drawn]
    assert titles == ["Objective", "Slack of hazard", "Slack of near expert", "Multipliers"]
    assert drawn[0]["lines"] == [{"label": "best", "y": 1.5}]
    labels = [curve["label"] for curve in drawn[0]["curves"]]
    assert labels[:2] == ["a: exact, of the policy", "a: seen in episodes"]
    assert [curve["style"] for curve in drawn[0]["curves"]] == [0, 1, 0, 1]
    assert panel_of("something_new/x").title == "Something new"


def test_a_report_of_a_solution_in_memory(tmp_path, problem, solution):
    certificate = cm.certify(problem, solution)
    frontier = cm.frontier(problem, "hazard", budgets=[0.03, 0.1])
    path = cm.report(
        solution,
        tmp_path / "report.html",
        title="My title",
        certificate=certificate,
        frontier=frontier,
        solver=cm.ConvexProgram(),
    )
    data = document(path.read_text())
    assert data["title"] == "My title"
    assert data["proofs"][0]["upper"] == certificate.upper
    assert data["proofs"][0]["slack"][0]["name"] == "hazard"
    assert data["settings"][0]["settings"]["tolerance"] == "1e-10"
    assert data["maps"][0]["targets"][0]["name"] == "near expert"
    assert len(data["maps"][0]["final"]["share"]) == 9
    assert data["frontiers"][0]["points"][0]["x"] == 0.03
    share = sum(data["maps"][0]["final"]["share"])
    assert share == pytest.approx((1 - 0.8) * solution.occupancy.sum(), rel=1e-2)


def test_reports_of_several(tmp_path, solution):
    labelled = document(
        cm.report({"one": solution, "two": solution}, tmp_path / "r.html").read_text()
    )
    assert [group["label"] for group in labelled["groups"]] == ["one", "two"]
    several = document(cm.report([solution, solution], tmp_path / "r.html").read_text())
    assert several["groups"][0]["runs"] == 2
    with pytest.raises(CvxmdpError, match="single solution"):
        cm.report([solution, solution], tmp_path / "r.html", solver=cm.PDPG())
    with pytest.raises(CvxmdpError, match="nothing to report"):
        cm.report([], tmp_path / "r.html")
    with pytest.raises(CvxmdpError, match="made of solutions; got 3"):
        cm.report(3, tmp_path / "r.html")  # type: ignore[arg-type]
    with pytest.raises(CvxmdpError, match="got 'x'"):
        cm.report(["x"], tmp_path / "r.html")  # type: ignore[list-item]


def test_a_sweep_in_memory(tmp_path, problem):
    solver = cm.VRPDPG(
        iterations=30, primal_step=0.1, dual_step=0.1, momentum=0.5, horizon=5, evaluate_every=10
    )
    sweep = cm.sweep(problem, solver, over={"momentum": [0.5, 1.0]}, seeds=[3, 4])
    data = document(cm.report(sweep, tmp_path / "r.html", title="A sweep").read_text())
    assert data["title"] == "A sweep"
    assert [group["label"] for group in data["groups"]] == ["momentum=0.5", "momentum=1.0"]
    assert [group["runs"] for group in data["groups"]] == [2, 2]
    assert [entry["settings"]["momentum"] for entry in data["settings"]] == ["0.5", "1.0"]
    objective = data["panels"][0]["curves"][0]
    expected = np.mean(
        [run.solution.history["objective"] for run in sweep if run.settings["momentum"] == 0.5],
        axis=0,
    )
    np.testing.assert_allclose(objective["y"], expected, rtol=1e-4)


def test_thinned_histories_keep_their_iterations(solution):
    history = {
        "iteration": np.array([0, 100]),
        "objective": np.array([1.0, 2.0]),
        "recorded": np.array([50, 100]),
        "episode_objective": np.array([3.0, 4.0]),
    }
    series = record_of(replace(solution, history=history)).series
    assert series["objective"].iterations.tolist() == [0, 100]
    assert series["episode_objective"].iterations.tolist() == [50, 100]
    assert set(series) == {"objective", "episode_objective"}


def test_headlines(problem, solution):
    certificate = cm.certify(problem, solution)
    said = " ".join(headline([record_of(solution)], [certificate]))
    assert "this is proven" in said
    assert "Every constraint holds" in said
    uniform = cm.Solution.of_policy(
        problem, cm.uniform_policy(problem.mdp), cm.Status.ITERATION_LIMIT, solution.multipliers
    )
    said = " ".join(headline([record_of(uniform)], [cm.certify(problem, uniform)]))
    assert "Violated: hazard" in said
    record = record_of(solution)
    facts = replace(record.constraints[0], budget=2.5e-10, value=4.8e-10, slack=-2.3e-10)
    small = replace(record, constraints=(facts,))  # costs like failure probabilities
    assert "Violated: hazard" in " ".join(headline([small], [None]))
    nearly = replace(record, constraints=(replace(facts, value=2.5e-10, slack=-1e-20),))
    assert "Every constraint holds, up to rounding." in headline([nearly], [None])
    infeasible = problem.with_budget("hazard", -1.0)
    nothing = cm.solve(infeasible)
    said = " ".join(headline([record_of(nothing)], [cm.certify(infeasible, nothing)]))
    assert said == "No policy satisfies all constraints. This is proven, from: hazard."


def test_models_without_a_grid():
    problem = cm.Problem(cm.garnet(40, 2, 3, seed=0), maximize=cm.entropy())
    data = report_data([record_of(cm.solve(problem))])
    (drawn,) = data["maps"]
    assert "grid" not in drawn
    assert len(drawn["states"]) == drawn["count"] == 40
    shares = [entry["share"] for entry in drawn["states"]]
    assert shares == sorted(shares, reverse=True)


def test_snapshots_become_frames(solution):
    record = record_of(solution)
    visits = np.stack([solution.occupancy * k / 99 for k in range(100)])
    arrays = {"snapshot_iteration": np.arange(100) * 10, "snapshot_occupancy": visits}
    data = report_data([replace(record, arrays={**record.arrays, **arrays})])
    frames = data["maps"][0]["frames"]
    assert len(frames) == 40
    assert frames[0]["iteration"] == 0
    assert frames[-1]["iteration"] == 990
    assert frames[-1]["share"] == data["maps"][0]["final"]["share"]
    assert max(frames[0]["share"]) == 0


def test_frames_of_many_large_grids_are_few(solution, monkeypatch):
    """Twelve maps of a hundred by a hundred states would be 150 megabytes."""
    monkeypatch.setattr("cvxmdp.reports.html_data.MOST_NUMBERS", 12 * 5 * solution.occupancy.size)
    visits = np.tile(solution.occupancy, (100, 1, 1))
    snapshots = {"snapshot_iteration": np.arange(100), "snapshot_occupancy": visits}
    records = [learned(solution, 0, primal_step=step) for step in range(12)]
    records = [replace(one, arrays={**one.arrays, **snapshots}) for one in records]
    maps = report_data(records)["maps"]
    assert len(maps) == 12
    assert {len(one["frames"]) for one in maps} == {4}


def test_solvers_keep_snapshots_few_and_in_order(problem):
    from cvxmdp.problems.snapshots import KEPT, LARGEST, Snapshots

    kept = Snapshots.none((2, 2))
    for iteration in range(1000):
        kept = kept.offer(iteration, np.full((2, 2), iteration))
    history = kept.history()
    assert len(history["snapshot_iteration"]) == KEPT
    assert history["snapshot_iteration"][0] == 0
    assert history["snapshot_iteration"][-1] > 950
    assert (np.diff(history["snapshot_iteration"]) > 0).all()
    assert np.array_equal(history["snapshot_occupancy"][:, 1, 1], history["snapshot_iteration"])
    large = Snapshots.none((LARGEST, 2)).offer(0, np.zeros((LARGEST, 2)))
    assert large.history() == {}
    found = cm.solve(problem, cm.PDPG(iterations=40, check_every=10, tolerance=None))
    data = report_data([record_of(found)])
    assert [frame["iteration"] for frame in data["maps"][0]["frames"]] == [10, 20, 30, 40]
    mass = found.history["snapshot_occupancy"].sum(axis=(1, 2))
    np.testing.assert_allclose(
        mass, problem.mdp.max_mass
    )  # averages of occupancies are occupancies


def test_the_page_is_one_file_that_loads_nothing(solution):
    page = report_page([record_of(solution)])
    outside = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert outside == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=(?!\"data:,\")", page)
    assert "eval(" not in page
    assert "innerHTML" not in page
    assert len(page) < 200_000
    assert page == report_page([record_of(solution)])


def test_texts_cannot_become_markup(problem, solution):
    evil = "</script><script>alert(1)</script><!--"
    record = replace(record_of(solution), title=evil, utility=evil, message=evil)
    page = report_page([record])
    assert evil not in page
    assert document(page)["title"] == evil
    assert page.count("<script") == 2


def test_numbers_are_json_that_every_browser_reads(problem):
    infeasible = problem.with_budget("hazard", -1.0)
    nothing = cm.solve(infeasible)
    page = report_page([record_of(nothing, certificate=cm.certify(infeasible, nothing))])
    assert document(page)["proofs"][0]["infeasible"] is True
    assert "NaN" not in page.split('type="application/json">')[1].split("</script>")[0]


def test_estimates_of_a_simulator_are_not_called_exact(solution):
    record = replace(learned(solution, 0), estimated=True, stats={"samples": 100})
    drawn = panels({"a": [record]}, [])
    said = json.dumps([drawn, tiles([record], [None])])
    assert "exact" not in said
    assert "estimated, of the policy" in said
    assert "steps in the simulator" in said
    assert "share" not in panel_of("effective_sample_size").explanation


def machine() -> cm.Problem:
    """A model that is no grid, with names: waiting is cheap, repairing is not."""
    wear = [[[0.8, 0.2, 0]] * 2, [[0, 0.7, 0.3], [0.9, 0.1, 0]], [[0, 0, 1], [0.5, 0, 0.5]]]
    mdp = cm.TabularMDP(
        wear,
        "good",
        0.9,
        signals={"reward": {"good": 1.0, "worn": 0.5}, "cost": {"worn": {"repair": 1.0}}},
        state_names=("good", "worn", "broken"),
        action_names=("wait", "repair"),
    )
    cost = cm.linear("cost", per="step") <= 0.05
    return cm.Problem(mdp, maximize=cm.linear("reward"), subject_to={"cost": cost})


def test_states_by_name_and_signals_beside_their_budgets():
    solution = cm.solve(machine())
    data = report_data([record_of(solution, title="Machines")])
    states = {entry["state"]: entry for entry in data["maps"][0]["states"]}
    assert set(states) == {"good", "worn", "broken"}
    assert states["worn"]["randomises"]
    assert "repair" in states["worn"]["action"]
    assert "%" in states["worn"]["action"]
    (problem,) = data["problems"]
    assert {signal["name"] for signal in problem["signals"]} == {"reward", "cost"}
    per_step = {signal["name"]: float(signal["step"]) for signal in problem["signals"]}
    assert per_step["cost"] == pytest.approx(0.05, abs=1e-6)
    assert data["title"] == "Machines"


def test_what_is_never_visited_is_marked_in_the_page():
    never = machine().with_model(
        machine().mdp.replace(actions=[[True, True], [False, True], [True, True]])
    )
    solution = cm.solve(never.with_budget("cost", 1.0))
    states = {e["state"]: e for e in report_data([record_of(solution)])["maps"][0]["states"]}
    assert states["broken"]["never"]
    assert not states["good"]["never"]


def test_budgets_stand_side_by_side_without_means():
    problem = machine()
    tight = problem.with_budget("cost", 0.01)
    records = [record_of(cm.solve(one), title="Machines") for one in (problem, tight)]
    data = report_data(records)
    (shown,) = data["problems"]
    assert [answer["label"] for answer in shown["answers"]] == [
        "budget/cost=0.05",
        "budget/cost=0.01",
    ]
    assert shown["answers"][0]["objective"] != shown["answers"][1]["objective"]
    assert data["headline"][0] == "2 settings of one problem."
    assert not any("best" in line for line in data["headline"])  # of two budgets, the looser one
    assert "objective" not in [tile["label"].partition(",")[0] for tile in data["tiles"]]


def test_runs_are_counted_as_people_would():
    record = record_of(cm.solve(machine()), title="Machines")
    assert headline([record, record], [None, None])[0] == "2 runs."
    seeds = [replace(record, seed=seed) for seed in (0, 1, 2)]
    assert headline(seeds, [None] * 3)[0] == "3 runs that differ in their seeds alone."
    settings = [replace(one, label=label) for one in seeds for label in "ab"]
    assert headline(settings, [None] * 6)[0] == "6 runs of 2 settings of one problem."


def test_a_baseline_and_evaluations_beside_the_answer(tmp_path):
    problem = machine()
    solution = cm.solve(problem)
    today = {"good": "wait", "worn": "repair", "broken": "repair"}
    seen = cm.evaluate(solution, problem.mdp, 50, seed=0)
    page = cm.report(solution, tmp_path / "r.html", baseline=today, evaluations={"Played": seen})
    (text,) = re.findall(r'type="application/json">(.*?)</script>', page.read_text())
    beside, played = json.loads(text)["findings"]
    rows = {row[0]: row for row in beside["rows"]}
    assert float(rows["objective"][2]) == pytest.approx(problem.evaluate(today).objective, rel=1e-6)
    assert float(rows["objective"][3]) == pytest.approx(solution.objective, rel=1e-6)
    assert "violates 'cost'" in beside["sentences"][1]
    assert played["title"] == "Played"
    assert [row[0] for row in played["rows"]] == ["objective", "slack of cost"]
    with pytest.raises(cm.CvxmdpError, match="single solution"):
        cm.report([solution, solution], tmp_path / "r.html", baseline=today)


def test_groups_and_plans_are_shown():
    """Who is worst off, in a page and in the text of a run; and what a plan that depends on time does."""
    mdp = cm.garnet(6, 2, 3, seed=0, signals=("north", "south")).replace(horizon=3, discount=1)
    parts = [cm.linear(name) for name in mdp.signals]
    problem = cm.Problem(
        mdp, maximize=cm.minimum(*parts), subject_to={"gap": cm.spread(*parts) <= 0.5}
    )
    record = record_of(cm.solve(problem))
    words = record_text(record)
    assert words.count('linear("north")') == words.count('linear("south")') == 4
    data = report_data([record])
    of_objective, of_gap = data["problems"][0]["units"]
    assert re.fullmatch(
        r'objective: linear\("north"\) [\d.]+( smallest)?; linear\("south"\) [\d.]+( smallest)?',
        of_objective,
    )
    assert of_gap.startswith('gap: linear("north")')
    rows = data["maps"][0]["states"]
    assert all(row["action"] or row["never"] for row in rows)
    shared = [row["action"] for row in rows if "%" in row["action"]]
    assert shared
    assert all(words.endswith("of the visits") for words in shared)
