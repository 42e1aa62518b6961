"""Kills at random points of a solve and a sweep: what goes on has the same bits. Two processes never mix."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.runs.run_folder import locked
from environments import ModelEnv
from strategies import small_problem
from test_runs import SOLVERS, driver, flat, same_bits

# Processes that have imported everything and compiled nothing: a kill costs what the work costs.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["cvxmdp", "test_runs", "environments"])
PLAYED = cm.VRPDPG(12, 0.1, 0.3, 0.3, 10, dual_bound=2.0, evaluate_every=4)
SWEPT = cm.VRPDPG(60, 0.1, 0.3, 0.3, 10, dual_bound=2.0, evaluate_every=20)


def played() -> cm.Problem:
    mdp = cm.garnet(4, 2, 2, discount=0.8, seed=1)
    env = cm.GymnasiumEnv(lambda: ModelEnv(mdp), 0.8, n_envs=2)
    limits = {"cost": cm.linear("cost") <= 3.0}
    return cm.Problem(env, maximize=cm.linear("reward"), subject_to=limits)


def solving(name: str, folder: str) -> cm.Solution:
    driver.CHECKPOINT_SECONDS, driver.WRITING_SHARE, driver.PIECE_SECONDS = 0.0, 1.0, 0.01
    return cm.solve(small_problem(), SOLVERS[name], seed=3, folder=folder or None, progress=False)


def sweeping(kind: str, folder: str) -> cm.Sweep:
    asked: dict[str, Any] = {"folder": folder or None, "checkpoint_seconds": 0.0, "progress": False}
    over = {"momentum": [0.3, 0.5]}
    if kind == "simulator":
        return cm.sweep(played(), PLAYED, over, seeds=(0, 1), **asked)
    return cm.sweep(small_problem(), SWEPT, over, seeds=(0, 1), **asked)


def same(first: Any, second: Any) -> None:
    if isinstance(first, cm.Solution):
        same_bits(first, second)
        return
    for one, other in zip(first, second, strict=True):
        assert one.settings == other.settings
        assert one.solution.has_policy
        assert one.solution.status is other.solution.status
        assert one.solution.multipliers == other.solution.multipliers
        assert set(one.solution.history) == set(other.solution.history)
        for name, curves in one.solution.history.items():
            pairs = zip(flat(curves), flat(other.solution.history[name]), strict=True)
            for (_, mine), (_, theirs) in pairs:
                np.testing.assert_array_equal(mine, theirs, err_msg=name)


def killed(times: int, work: Callable[[str, str], Any], kind: str, folder: Path) -> None:
    """Kill the work so many times, each somewhere in the time it takes; finished, it begins anew."""
    whole, random = work(kind, ""), np.random.default_rng(5)
    began = time.monotonic()
    whole_run = PROCESSES.Process(target=work, args=(kind, str(folder)))
    whole_run.start()
    whole_run.join(300)
    seconds, kills = time.monotonic() - began, 0
    while kills < times or not folder.exists():
        process = PROCESSES.Process(target=work, args=(kind, str(folder)))
        process.start()
        process.join(seconds * random.random() if kills < times else 300)
        if process.exitcode is None:
            process.kill()
            process.join()
            kills += 1
            continue
        assert process.exitcode == 0, "nothing else ends it"
        same(work(kind, str(folder)), whole)
        if kills < times:
            shutil.rmtree(folder)
    same(work(kind, str(folder)), whole)


def test_a_sweep_that_was_killed_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    killed(2, sweeping, "simulator", tmp_path / "swept")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["model", "simulator"])
def test_a_sweep_that_was_killed_fifty_times(kind: str, tmp_path: Path) -> None:
    killed(50, sweeping, kind, tmp_path / "swept")


@pytest.mark.long
@pytest.mark.parametrize("name", SOLVERS)
def test_a_solve_that_was_killed_fifty_times(name: str, tmp_path: Path) -> None:
    killed(50, solving, name, tmp_path / "run")


@pytest.mark.parametrize("kind", ["model", "simulator"])
def test_two_processes_on_one_folder_are_refused(kind: str, tmp_path: Path) -> None:
    with locked(tmp_path / "swept"), pytest.raises(cm.CvxmdpError, match="another process"):
        sweeping(kind, str(tmp_path / "swept"))
