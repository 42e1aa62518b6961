"""The command line, end to end: every command, its exit codes, and what it says about bad input."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm
from command_line import PROBLEM, SAMPLING, Done
from cvxmdp.cli.outcome import Exit, say_json
from cvxmdp.cli.overrides import read_settings, written_setting
from cvxmdp.cli.policy_arguments import read_policy
from cvxmdp.runs.run_folder import RunState, find_runs, read_run, state_of
from cvxmdp.runs.specs.problem_specs import read_problem
from cvxmdp.solvers.registry import SOLVERS


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.toml"
    path.write_text(PROBLEM)
    return path


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a problem, a solved run and a learned one; not to be changed."""
    folder = tmp_path_factory.mktemp("solved")
    (folder / "problem.toml").write_text(PROBLEM)
    (folder / "learn.toml").write_text(PROBLEM + SAMPLING)
    assert Done("solve", folder / "problem.toml", "-o", folder / "runs" / "exact").code == Exit.OK
    learned = Done("solve", folder / "learn.toml", "--seed", 3, "-o", folder / "runs" / "learned")
    assert learned.code == Exit.NOT_CONVERGED
    return folder


# --- solve ----------------------------------------------------------------------------------------------


def test_solve_says_what_the_library_says(problem):
    done = Done("solve", problem)
    assert done.code == Exit.OK
    by_hand = cm.solve(
        cm.Problem(
            cm.gridworld(4, slip=0.1, discount=0.9, hazards=[5, (1, 2)]),
            maximize=cm.entropy(),
            subject_to={"hazard": cm.linear("hazard", per="step") <= 0.05},
        )
    )
    assert f"maximize entropy() = {by_hand.objective:.7g}" in done.out
    assert "Proven: no feasible policy gets above" in done.out
    assert "chosen because the model is known" in done.out


def test_solve_for_machines(problem):
    done = Done("solve", problem, "--json")
    assert done.json["status"] == "optimal"
    assert done.json["exit_code"] == 0
    assert done.json["certificate"]["relative_gap"] < 1e-6
    assert done.json["violation"]["hazard"] == pytest.approx(0, abs=1e-9)
    assert done.json["settings"]["solver"] == "ConvexProgram"


def test_other_solvers_and_settings(problem):
    done = Done("solve", problem, "--solver", "PDPG", "--set", "iterations=100", "--json")
    assert done.json["settings"]["iterations"] == "100"
    assert done.json["stats"]["iterations"] <= 100
    assert done.json["seed"] is None


def test_a_run_is_kept_and_found_again(solved):
    exact = solved / "runs" / "exact"
    assert state_of(exact) is RunState.COMPLETE
    record = read_run(exact)
    assert record.rerun == "cvxmdp solve problem.toml"
    again = Done("solve", solved / "problem.toml", "-o", exact, "--tensorboard", solved / "board")
    assert again.code == Exit.OK
    assert "finished already" in again.err
    assert "nothing to write to" in again.err
    assert f"= {record.objective:.7g}" in again.out
    # the folder itself holds the problem: it can be run from there
    assert Done("solve", exact / "problem" / "problem.toml", "--json").json["status"] == "optimal"


def test_a_certificate_can_be_asked_for_later(problem, tmp_path):
    run = tmp_path / "run"
    assert Done("solve", problem, "-o", run, "--no-certify").code == Exit.OK
    assert read_run(run).certificate is None
    assert Done("solve", problem, "-o", run, "--gap", 1e-6).code == Exit.OK
    assert Done("check", run / "certificate.json", problem).code == Exit.OK


def test_a_certificate_that_is_asked_for_later_is_the_same(problem, tmp_path):
    """With the solver's evidence and confidence."""
    rows = "0,0,1,1,0\n1,0,0,0,0\n0,1,0,0,0\n1,1,1,0,0\n" * 200
    (tmp_path / "log.csv").write_text("state,action,next_state,reward,terminated\n" + rows)
    problem.write_text(
        'maximize = \'linear("reward")\'\n[model]\nkind = "log"\npath = "log.csv"\ndiscount = 0.5\n'
        'known = ["reward"]\ninitial = 0\n[solver]\ncautious = 0.5\n'
    )
    words = ("solve", problem, "-o")
    Done(*words, tmp_path / "once")
    Done(*words, tmp_path / "later", "--no-certify")
    Done(*words, tmp_path / "later")
    once, later = (
        json.loads((tmp_path / run / "certificate.json").read_text()) for run in ("once", "later")
    )
    assert once["claims"] == later["claims"]


def test_a_run_over_so_many_steps_is_kept_and_looked_at(problem, tmp_path):
    """Its policy has a table for every step."""
    problem.write_text(PROBLEM.replace("discount = 0.9", "horizon = 4"))
    run = tmp_path / "run"
    first = Done("solve", problem, "-o", run)
    again = Done("solve", problem, "-o", run)
    assert first.code == again.code == Exit.OK
    assert again.out == first.out
    assert "maximize entropy()" in Done("show", run).out
    assert Done("report", run, "-o", tmp_path / "report.html").code == Exit.OK
    assert Done("export", run, "-o", tmp_path / "policy.csv").code == Exit.OK
    assert Done("check", run).code == Exit.OK


def test_the_files_a_problem_refers_to_are_kept_with_it(tmp_path):
    expert = np.tile([0.1, 0.4, 0.4, 0.1], (16, 1))
    (tmp_path / "data").mkdir()
    np.savetxt(tmp_path / "data" / "expert.csv", expert, delimiter=",")
    near = 'distance(policy(\\"data/expert.csv\\"), norm=\\"l2\\")'
    text = PROBLEM.replace('maximize = "entropy()"', f'minimize = "{near}"')
    (tmp_path / "problem.toml").write_text(text)
    assert Done("solve", tmp_path / "problem.toml", "-o", tmp_path / "run").code == Exit.OK
    kept = tmp_path / "run" / "problem"
    assert (kept / "data" / "expert.csv").read_bytes() == (
        tmp_path / "data/expert.csv"
    ).read_bytes()
    assert "objective" in read_run(tmp_path / "run").targets
    assert Done("check", tmp_path / "run/certificate.json", kept / "problem.toml").code == Exit.OK


def test_a_different_run_is_not_overwritten_by_accident(problem, tmp_path):
    run = tmp_path / "run"
    assert Done("solve", problem, "-o", run).code == Exit.OK
    problem.write_text(PROBLEM.replace("0.05", "0.1"))
    refused = Done("solve", problem, "-o", run)
    assert refused.code == Exit.BAD_INPUT
    assert "--overwrite" in refused.err
    assert Done("solve", problem, "-o", run, "--overwrite").code == Exit.OK
    assert read_run(run).constraints[0].budget == 0.1


def test_other_folders_are_left_alone(problem, tmp_path):
    done = Done("solve", problem, "-o", tmp_path)
    assert done.code == Exit.BAD_INPUT
    assert "other things in it" in done.err


def test_infeasible(problem):
    problem.write_text(PROBLEM.replace("<= 0.05", "<= -1"))
    done = Done("solve", problem)
    assert done.code == Exit.INFEASIBLE
    assert "Infeasible" in done.out
    assert Done("solve", problem, "--json").json["certificate"]["infeasible"] is True


def test_not_converged_and_gaps(problem):
    few = ("solve", problem, "--solver", "PDPG", "--set", "iterations=3", "--set", "tolerance=1e-9")
    done = Done(*few, "--json")
    assert done.code == Exit.NOT_CONVERGED
    assert done.json["status"] == "iteration_limit"
    columns = ("solve", problem, "--solver", "ColumnGeneration", "--set", "iterations=3")
    done = Done(*columns, "--json")
    assert done.code == Exit.NOT_CONVERGED
    gap = done.json["certificate"]["relative_gap"]
    assert Done(*columns, "--gap", 1.01 * gap).code == Exit.OK
    assert Done(*columns, "--gap", 0.5 * gap).code == Exit.NOT_CONVERGED
    assert "leave out --no-certify" in Done(*few, "--gap", 1, "--no-certify").err


def test_the_gap_of_a_repaired_policy_is_not_that_of_the_one_that_is_kept(tmp_path):
    place = tmp_path / "problem.toml"
    place.write_text(
        """
maximize = 'linear("reward")'
subject_to.cost = 'linear("cost") <= 4.4'
model = {kind = "garnet", n_states = 8, n_actions = 3, branching = 3, seed = 2, discount = 0.9}
"""
    )
    few = ("solve", place, "--solver", "PDPG", "--set", "iterations=30", "--gap", 0.3, "--json")
    done = Done(*few)
    assert done.json["violation"]["cost"] > 0.1
    assert done.json["certificate"]["relative_gap"] < 0.3
    assert done.code == Exit.NOT_CONVERGED


def test_a_wrong_option_is_json_where_json_was_asked_for(problem):
    for words in (("solve", problem, "--nonsense"), ("solve",), ("solve", problem, "--gap", "x")):
        done = Done(*words, "--json")
        assert done.code == Exit.BAD_INPUT
        assert done.json["exit_code"] == 2
        assert done.json["error"]
    assert Done("solve", problem, "--nonsense").code == Exit.BAD_INPUT


HOSTILE = "\x1b]0;owned\x07 \u202etxt.exe"


def test_titles_and_names_send_no_codes_to_the_terminal(problem, tmp_path):
    text = PROBLEM.replace('"Safe exploration"', '"\\u001b]0;owned\\u0007 \\u202etxt.exe"')
    problem.write_text(text.replace("hazard = 'linear", '"ha\\u001b[2Jz" = \'linear'))
    run = tmp_path / "run"
    done = [Done("solve", problem, "-o", run), Done("show", run)]
    shutil.copytree(run, tmp_path / "again")
    done.append(Done("show", run, tmp_path / "again"))
    done.append(Done("solve", problem, "--set", f"{HOSTILE}=1"))
    assert [one.code for one in done] == [Exit.OK, Exit.OK, Exit.OK, Exit.BAD_INPUT]
    for one in done:
        assert not set("\x1b\x07\u202e") & set(one.out + one.err)
    assert "\\x1b]0;owned" in done[1].out


def test_a_terminal_without_the_letters_shows_their_codes(problem, tmp_path):
    problem.write_text(PROBLEM.replace("Safe exploration", "Größe 安全", 1), "utf-8")
    run = tmp_path / "run"
    assert Done("solve", problem, "-o", run, "--no-certify").code == Exit.OK
    shown = subprocess.run(
        [sys.executable, "-c", "from cvxmdp.cli import app; app()", "show", str(run)],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    assert "Gr\\xf6\\xdfe" in shown.stdout


def test_what_is_no_number_is_said_in_words_in_json(capsys):
    """Policies that a sweep varies, for instance; some are dataclasses with arrays in them."""
    say_json({"policy": [cm.Table(), cm.MLP(4)], "gain": math.nan})
    said = json.loads(capsys.readouterr().out)
    assert said == {"policy": ["Table()", "MLP(4)"], "gain": None}


def test_settings_are_written_as_they_are_read():
    settings = {
        "mixture": True,
        "iterations": 40,
        "momentum": "square root",
        "dual_step": {"a b": 0.5},
    }
    words = [f"{name}={written_setting(value)}" for name, value in settings.items()]
    assert read_settings(words) == settings


def test_a_gap_of_an_environment_is_refused_before_anything_runs(tmp_path):
    pytest.importorskip("gymnasium")
    place = tmp_path / "lake.toml"
    place.write_text(
        'maximize = \'linear("reward")\'\n[model]\nkind = "environment"\nid = "FrozenLake-v1"\n'
        "discount = 0.9\n" + SAMPLING
    )
    done = Done("solve", place, "--gap", 0.1, "--seed", 0)
    assert done.code == Exit.BAD_INPUT
    assert "nothing is proven of an environment" in done.err


def test_a_run_that_diverges_is_not_converged_and_bad_settings_are_bad_input(problem):
    steps = ("--set", "dual_step=1", "--set", "direction=vanilla")
    diverged = Done("solve", problem, "--solver", "PDPG", "--set", "primal_step=1e12", *steps)
    assert diverged.code == Exit.NOT_CONVERGED
    assert "iteration" in diverged.err
    refused = Done("solve", problem, "--solver", "PDPG", "--set", "policy=Direct()")
    assert refused.code == Exit.BAD_INPUT
    assert "vanilla" in refused.err


def test_sampling_needs_a_seed_and_repeats_with_it(solved, tmp_path):
    done = Done("solve", solved / "learn.toml")
    assert done.code == Exit.BAD_INPUT
    assert "--seed 0" in done.err
    again = Done("solve", solved / "learn.toml", "--seed", 3, "-o", tmp_path / "again")
    assert again.code == Exit.NOT_CONVERGED
    first, second = read_run(solved / "runs" / "learned"), read_run(tmp_path / "again")
    assert first.objective == second.objective
    assert np.array_equal(
        first.series["episode_objective"].values, second.series["episode_objective"].values
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["solve", "absent.toml"], "there is no file"),
        (["solve", "{problem}", "--solver", "Simplex"], "unknown solver 'Simplex'"),
        (["solve", "{problem}", "--set", "tolerance"], "NAME=VALUE"),
        (["solve", "{problem}", "--solver", "PDPG", "--set", "itertions=3"], "'iterations'"),
        (
            ["solve", "{problem}", "--solver", "VRPDPG", "--set", "per_decision=true"],
            "per_decision was an option of cvxmdp 0.1",
        ),
        (["solve", "{problem}", "--solver", "PDPG", "--set", "iterations=many"], "the word 'many'"),
        (["solve", "{problem}", "-o", "{problem}/run"], "cannot write"),
        (["certify", "{problem}", "absent.csv"], "there is no file absent.csv"),
        (["check", "absent.json", "{problem}"], "there is no file"),
        (["frontier", "{problem}", "hazrd"], "Did you mean 'hazard'"),
        (["frontier", "{problem}", "--budgets", "a,b"], "numbers separated by commas"),
        (["show", "absent"], "not a folder"),
        (["report", "{folder}"], "no runs"),
        (["export", "absent.safetensors", "-o", "x.csv"], "absent.safetensors"),
        (["certify", "{problem}", "x.csv", "--repaired", "x.txt"], "a file that ends in .csv"),
        (["certify", "{problem}", "x.csv", "-o", "absent/c.json"], "there is no folder absent"),
        (["evaluate", "{problem}", "x.csv", "-o", "absent/e.json"], "there is no folder absent"),
        (["pareto", "{problem}", "a=entropy()", "--plot", "x.foo"], "a file that ends in"),
        (["pareto", "{problem}", "a=entropy()", "a=entropy()"], "a name occurs twice: a, a"),
        (["export", "{folder}", "-o", "x.csv"], "not a run"),
    ],
)
def test_bad_input(problem, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    words = [word.format(problem=problem, folder=tmp_path) for word in words]
    done = Done(*words)
    assert done.code == Exit.BAD_INPUT
    assert said in done.err
    assert "Traceback" not in done.err
    for_machines = Done(*words, "--json")
    assert for_machines.code == Exit.BAD_INPUT
    assert said in for_machines.json["error"]
    assert for_machines.json["exit_code"] == 2


def test_usage_errors_are_bad_input_too(problem):
    assert Done("solve").code == Exit.BAD_INPUT
    assert Done("slove", problem).code == Exit.BAD_INPUT
    assert Done("solve", problem, "--sead", 3).code == Exit.BAD_INPUT
    assert Done("export", "x").code == Exit.BAD_INPUT


# --- certify, check, frontier -------------------------------------------------------------------------------


def test_certify_and_check(solved, tmp_path):
    file = tmp_path / "certificate.json"
    problem = solved / "problem.toml"
    done = Done("certify", problem, solved / "runs" / "learned", "-o", file, "--json")
    assert done.code == Exit.NOT_CONVERGED  # what was learned violates a constraint
    assert done.json["given_violates"]
    assert done.json["repaired"]
    assert done.json["lower"] <= done.json["upper"]
    assert Done("certify", problem, solved / "runs" / "exact").code == Exit.OK
    assert Done("certify", problem, solved / "runs" / "exact", "--gap", 1e-30).code == 4
    accepted = Done("check", file, problem)
    assert accepted.code == Exit.OK
    assert accepted.out.startswith("Accepted")
    assert (
        Done("check", file, solved / "runs" / "learned").code == Exit.OK
    )  # the problem kept there
    document = json.loads(file.read_text())
    document["claims"]["upper"] -= 1.0
    file.write_text(json.dumps(document))
    rejected = Done("check", file, problem, "--json")
    assert rejected.code == Exit.REJECTED
    assert rejected.json["accepted"] is False
    file.write_text(file.read_text()[:100])
    assert Done("check", file, problem).code == Exit.REJECTED


def test_certificates_of_another_problem_are_rejected(solved, tmp_path):
    (tmp_path / "other.toml").write_text(PROBLEM.replace("0.05", "0.06"))
    done = Done("check", solved / "runs" / "exact" / "certificate.json", tmp_path / "other.toml")
    assert done.code == Exit.REJECTED


def test_certify_infeasible(solved, tmp_path):
    (tmp_path / "none.toml").write_text(PROBLEM.replace("<= 0.05", "<= -1"))
    done = Done("certify", tmp_path / "none.toml", solved / "runs" / "exact")
    assert done.code == Exit.INFEASIBLE


def test_certify_a_policy_that_does_not_fit(solved, tmp_path):
    np.savetxt(tmp_path / "small.csv", np.full((3, 4), 0.25), delimiter=",")
    done = Done("certify", solved / "problem.toml", tmp_path / "small.csv")
    assert done.code == Exit.BAD_INPUT


def test_frontier(solved, tmp_path):
    problem = solved / "problem.toml"
    done = Done("frontier", problem, "--budgets", "0.02,0.05", "-o", tmp_path / "f")
    assert done.code == Exit.OK
    assert "0.005 more is worth at most" in done.out
    kept = read_run(tmp_path / "f")
    assert kept.frontier is not None
    assert kept.frontier.budgets == (0.02, 0.05)
    assert kept.rerun == "cvxmdp frontier problem.toml hazard --budgets 0.02,0.05"
    assert kept.constraints[0].budget == 0.05
    assert Done("check", tmp_path / "f").code == Exit.OK
    for_machines = Done("frontier", problem, "hazard", "-n", 3, "--json").json
    assert len(for_machines["budgets"]) == 3
    assert Done("frontier", problem, "--budgets", "-1,-2").code == Exit.INFEASIBLE
    assert "--overwrite" in Done("frontier", problem, "-n", 3, "-o", tmp_path / "f").err


def test_a_frontier_leaves_other_folders_alone_and_nothing_of_an_earlier_run(problem, tmp_path):
    (tmp_path / "metrics.parquet").write_text("mine")
    trace = ("frontier", problem, "--budgets", "0.06", "-o")
    assert "other things in it (metrics.parquet)" in Done(*trace, tmp_path).err
    assert (tmp_path / "metrics.parquet").read_text() == "mine"
    run = tmp_path / "run"
    assert Done("solve", problem, "-o", run).code == Exit.OK
    text = PROBLEM.replace("size = 4", "size = 3").replace("5, [1, 2]", "4")
    problem.write_text(text + SAMPLING)
    traced = Done(*trace, run, "--overwrite")
    assert traced.code == Exit.OK
    assert "[solver] plays no part" in traced.err
    assert (
        read_run(run).constraints[0].budget == 0.05
    )  # the file's own, though it was not asked for
    assert Done("check", run).code == Exit.OK
    assert Done("export", run, "-o", tmp_path / "policy.csv").code == Exit.OK
    assert read_policy(str(tmp_path / "policy.csv")).n_states == 9


def test_pareto(solved, tmp_path):
    problem = solved / "problem.toml"
    asked = ("pareto", problem, "spread=entropy()", 'safe=-linear("hazard")', "--tolerance", 0.1)
    done = Done(*asked, "-o", tmp_path / "front", "--plot", tmp_path / "front.png")
    assert done.code == Exit.OK
    assert "a mixture of these misses by at most" in done.out
    assert (tmp_path / "front.png").stat().st_size > 1000
    of_one = (tmp_path / "front/00/certificate.json", tmp_path / "front/00")
    assert Done("check", *of_one).code == Exit.OK
    assert "not empty" in Done(*asked, "-o", tmp_path / "front").err
    found = Done(*asked, "--json").json
    assert found["objectives"] == ["spread", "safe"]
    assert found["distance"] <= 0.1
    assert len(found["points"]) >= 2
    assert "an objective has a name" in Done("pareto", problem, "entropy()", "a=entropy()").err
    assert "two or more" in Done("pareto", problem, "a=entropy()").err


# --- show, report, export -----------------------------------------------------------------------------------


def test_show_lists_runs(solved):
    shown = Done("show", solved / "runs")
    assert shown.code == Exit.OK
    assert "VRPDPG" in shown.out
    assert "ConvexProgram" in shown.out
    single = Done("show", solved / "runs" / "exact")
    assert "The likeliest moves" in single.out
    assert "Safe exploration\n================" in single.out
    listed = Done("show", solved / "runs", "--json").json["runs"]
    assert [entry["settings"]["solver"] for entry in listed] == ["ConvexProgram", "VRPDPG"]


def test_what_the_library_keeps_is_no_damaged_run_and_has_a_policy(solved, tmp_path):
    spec = read_problem(solved / "problem.toml")
    kept = cm.solve(spec.problem, folder=tmp_path / "kept")
    shown = Done("show", tmp_path)
    assert shown.code == Exit.BAD_INPUT
    assert "load_solution" in shown.err
    shutil.copytree(solved / "runs" / "exact", tmp_path / "run")
    shutil.copytree(tmp_path / "kept" / "checkpoint", tmp_path / "run" / "checkpoint")
    assert Done("show", tmp_path).code == Exit.OK
    assert find_runs([tmp_path]) == [tmp_path / "run"]
    assert Done("certify", solved / "problem.toml", tmp_path / "kept").code == Exit.OK
    assert Done("export", tmp_path / "kept", "-o", tmp_path / "policy.csv").code == Exit.OK
    found = read_policy(str(tmp_path / "policy.csv"))
    assert np.array_equal(found.probabilities(), kept.policy.probabilities())


def test_a_truncated_store_is_reported_and_never_read_as_whole(solved, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(solved / "runs", runs)
    metrics = runs / "learned" / "metrics.parquet"
    metrics.write_bytes(metrics.read_bytes()[:-100])
    shown = Done("show", runs)
    assert shown.code == Exit.BAD_INPUT
    assert "metrics.parquet" in shown.out
    assert Done("show", runs, "--json").json["runs"][1]["state"] == "damaged"
    report = Done("report", runs, "-o", tmp_path / "report.html")
    assert report.code == Exit.BAD_INPUT
    assert "left out" in report.err
    assert (tmp_path / "report.html").exists()  # of what could be read


def test_report(solved, tmp_path):
    file = tmp_path / "report.html"
    done = Done("report", solved / "runs", "-o", file, "--title", "A page")
    assert done.code == Exit.OK
    assert "<title>A page</title>" in file.read_text()
    assert Done("report", solved / "runs", "-o", file, "--json").json["report"] == str(file)
    closed = Done("report", solved / "runs", "-o", tmp_path / "absent" / "report.html")
    assert closed.code == Exit.BAD_INPUT


@pytest.mark.parametrize("ending", [".csv", ".json", ".parquet", ".npz", ".safetensors"])
def test_export(solved, tmp_path, ending):
    file = tmp_path / f"policy{ending}"
    assert Done("export", solved / "runs" / "exact", "-o", file).code == Exit.OK
    expected = read_run(solved / "runs" / "exact").policy.probabilities()
    found = read_policy(str(file))
    assert np.array_equal(found.probabilities(), expected)
    if ending != ".npz":
        assert found.action_names == ("left", "down", "right", "up")
    assert Done("certify", solved / "problem.toml", file).code == Exit.OK


def test_export_to_something_else(solved, tmp_path):
    done = Done("export", solved / "runs" / "exact", "-o", tmp_path / "policy.xlsx")
    assert done.code == Exit.BAD_INPUT
    assert ".csv" in done.err


# --- the program itself -------------------------------------------------------------------------------------


ENVIRONMENT = """
title = "Crossing the lake"
maximize = 'linear("reward")'

[subject_to]
fall = 'linear("fall") <= 0.9'

[model]
kind = "environment"
id = "FrozenLake-v1"
discount = 0.9
failure = "fall"
n_envs = 4
"""


def test_an_environment_is_learned_in_and_kept(tmp_path):
    path = tmp_path / "lake.toml"
    path.write_text(PROBLEM)
    assert Done("solve", path, "-o", tmp_path / "run").code == Exit.OK
    path.write_text(ENVIRONMENT + SAMPLING)
    replaced = ("-o", tmp_path / "run", "--overwrite", "--json")
    solved = Done("solve", path, "--seed", 0, *replaced)
    assert solved.code == Exit.NOT_CONVERGED
    assert solved.json["objective"] >= 0
    shown = Done("show", tmp_path / "run")
    assert "Crossing the lake" in shown.out
    assert Done("report", tmp_path / "run", "-o", tmp_path / "report.html").code == 0
    assert Done("export", tmp_path / "run", "-o", tmp_path / "policy.csv").code == 0
    again = Done("solve", path, "--seed", 0, "-o", tmp_path / "again", "--json")
    assert again.json["objective"] == solved.json["objective"]
    for command in (["certify", path, tmp_path / "run"], ["frontier", path, "fall"]):
        refused = Done(*command)
        assert refused.code == Exit.BAD_INPUT
        assert "only shows episodes" in refused.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('id = "CartPole-v1"', "which are no states. Give"),
        ('id = "os:system-v0"', "only environments that are already registered"),
        ('id = "Nowhere-v0"', "Gymnasium cannot make 'Nowhere-v0'"),
        ('id = "FrozenLake-v1"\nbinz = 3', "no key 'binz' here. Did you mean 'bins'"),
    ],
)
def test_an_environment_that_cannot_be(tmp_path, line, said):
    path = tmp_path / "wrong.toml"
    path.write_text(ENVIRONMENT.replace('id = "FrozenLake-v1"', line) + SAMPLING)
    refused = Done("solve", path, "--seed", 0)
    assert refused.code == Exit.BAD_INPUT
    assert said in refused.err


def test_version_and_help():
    ours, *parts = Done("--version").out.splitlines()
    assert ours == f"cvxmdp {cm.__version__}"
    assert f"  numpy {np.__version__}" in parts
    introduction = Done("--help")
    assert introduction.code == Exit.OK
    names = re.findall(r"^│ (\w+) ", introduction.out.partition("Commands")[2], re.MULTILINE)
    assert {"solve", "sweep", "certify", "check", "frontier", "pareto", "evaluate"} <= set(names)
    for name in names:
        taught = Done(name, "--help").out
        # Examples, each on lines of its own.
        assert re.search(rf"^ *cvxmdp {name} ", taught, re.MULTILINE)
        assert not re.search(rf"[^\s:] +cvxmdp {name} ", taught)
        assert "Exit codes" in taught


def test_the_help_names_every_solver():
    text = " ".join(Done("solve", "--help").out.replace("│", " ").split())
    assert all(name in text for name in SOLVERS)


def test_the_small_problem_of_the_help_can_be_solved(tmp_path):
    from cvxmdp.cli.commands import introduction

    text = introduction.__doc__.split("A small one:")[1].split("Every command")[0]
    (tmp_path / "problem.toml").write_text("\n".join(line.strip() for line in text.splitlines()))
    assert Done("solve", tmp_path / "problem.toml").code == Exit.OK


def test_without_the_extra_the_command_names_it():
    code = (
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'typer' else real(name, package)\n"
        "from cvxmdp.cli import app\n"
        "app()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'cvxmdp[cli]'" in done.stderr


def test_a_closed_pipe_is_no_error(solved):
    command = f"{sys.executable} -m cvxmdp show {solved / 'runs' / 'exact'} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout == "Safe exploration\n"
    assert done.stderr == ""


def test_completion_offers_the_commands():
    environment = {
        **os.environ,
        "_CVXMDP_COMPLETE": "complete_bash",
        "COMP_WORDS": "cvxmdp fr",
        "COMP_CWORD": "1",
    }
    command = [str(Path(sys.executable).parent / "cvxmdp")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["frontier"]


def test_help_does_not_load_the_numerical_packages():
    code = (
        "import sys\n"
        "from cvxmdp.cli.commands import commands\n"
        "print(sorted({'jax', 'scipy', 'pyarrow', 'cvxpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_policy_that_violates_is_not_called_repaired(problem, tmp_path):
    """On a log a certificate is of the policy that was given."""
    rows = "0,0,1,1,0\n1,0,0,0,0\n0,1,0,0,0\n1,1,1,0,0\n" * 200
    (tmp_path / "log.csv").write_text("state,action,next_state,cost,terminated\n" + rows)
    (tmp_path / "go.csv").write_text("state,action,probability\n0,0,1\n0,1,0\n1,0,1\n1,1,0\n")
    problem.write_text(
        "maximize = 'linear(\"cost\")'\n[subject_to]\ncost = 'linear(\"cost\") <= 0.1'\n[model]\n"
        'kind = "log"\npath = "log.csv"\ndiscount = 0.5\ninitial = 0\nknown = ["cost"]\n'
    )
    repaired = tmp_path / "repaired.csv"
    done = Done("certify", problem, tmp_path / "go.csv", "--repaired", repaired)
    assert done.code == Exit.NOT_CONVERGED
    assert "On the model as it stands, the policy given violates 'cost'" in done.out
    assert f"Nothing is written to {repaired}" in " ".join(done.err.split())
    assert not repaired.exists()


def test_a_run_begins_with_another_or_with_a_policy(solved, tmp_path):
    """Another start is another run."""
    learn, exact = solved / "learn.toml", solved / "runs" / "exact"
    policy = tmp_path / "policy.csv"
    assert Done("export", exact, "-o", policy).code == Exit.OK
    words = ("solve", learn, "--seed", 0, "-o", tmp_path / "run", "--start")
    assert Done(*words, exact).code == Exit.NOT_CONVERGED
    assert read_run(tmp_path / "run").stats["start"].startswith("probabilities and multipliers")
    assert Done(*words, policy).code == Exit.BAD_INPUT
    Done(*words, policy, "--overwrite")
    assert read_run(tmp_path / "run").stats["start"] == "probabilities of the policy"
