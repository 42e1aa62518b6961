"""Few programs, shared by problems of one shape, let go when they are many, and kept on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base import compiling, program_cache

COMPILED = "/jax/core/compile/backend_compile_duration"  # also of a program that was read from disk
_seen: list[str] = []


def _listen(event: str, _: float, **details: Any) -> None:
    if event == COMPILED:
        _seen.append(str(details["fun_name"]))


jax.monitoring.register_event_duration_secs_listener(_listen)


def compiled(action: Callable[[], object]) -> list[str]:
    """The names of the programs that an action compiles."""
    _seen.clear()
    action()
    return sorted(name.removeprefix("jit(").removesuffix(")") for name in _seen)


def problem(states: int, budget: float = 0.3, shift: float = 0.0, **objective: Any) -> cm.Problem:
    """A chain on which one may stay or go on; numbers differ with ``shift``, shapes do not."""
    stay, go = np.eye(states), np.roll(np.eye(states), 1, axis=1)
    transition = np.stack(
        [0.9 * stay + 0.1 * go, (0.2 + shift) * stay + (0.8 - shift) * go], axis=1
    )
    cost = np.zeros(states)
    cost[-1] = 1.0
    mdp = cm.TabularMDP(transition, initial=0, discount=0.9 - shift, signals={"cost": cost})
    limit = {"cost": cm.linear("cost", per="step") <= budget}
    return cm.Problem(mdp, **(objective or {"maximize": cm.entropy()}), subject_to=limit)


def pdpg(**settings: Any) -> cm.PDPG:
    return cm.PDPG(iterations=40, tolerance=None, **settings)


def learner(**settings: Any) -> cm.VRPDPG:
    usual = {"primal_step": 0.03, "dual_step": 0.1, "momentum": 0.1, "horizon": 5}
    return cm.VRPDPG(iterations=20, **(usual | settings))


# What a run compiles. More than this is a cold start that takes longer: mend the code, not the number.
FIRST = {
    "PDPG": (pdpg, ["first_params", "first_state", "run_piece"]),
    "PDPG with steps": (
        lambda **settings: pdpg(**({"primal_step": 0.1, "dual_step": 0.1} | settings)),
        ["first_params", "first_state", "run_piece"],
    ),
    "VRPDPG": (learner, ["begin", "run_chunk"]),
    "ConvexProgram": (cm.ConvexProgram, []),
    "ColumnGeneration": (cm.ColumnGeneration, []),
}
STATES = {name: 11 + place for place, name in enumerate(FIRST)}  # shapes that no other test has


@pytest.fixture(scope="module", autouse=True)
def _fresh() -> None:
    compiling.known_options()  # asks XLA once
    compiling.let_go(0)


@pytest.mark.parametrize("name", FIRST)
def test_what_the_first_run_compiles_and_nothing_afterwards(name: str) -> None:
    (solver, expected), states = FIRST[name], STATES[name]
    assert compiled(lambda: cm.solve(problem(states), solver(), seed=0)) == expected
    for again in (
        lambda: cm.solve(problem(states), solver(), seed=1),
        lambda: cm.solve(problem(states, budget=0.2), solver(), seed=0),
        lambda: cm.solve(problem(states, shift=0.05), solver(), seed=0),
    ):
        assert compiled(again) == []


def test_targets_and_steps_are_numbers() -> None:
    def to(share: float) -> cm.Problem:
        target = cm.TabularPolicy(np.tile([share, 1.0 - share], (17, 1)))
        return problem(17, minimize=cm.distance(target, norm="l2"))

    assert len(compiled(lambda: cm.solve(to(0.3), pdpg()))) == 3
    assert compiled(lambda: cm.solve(to(0.6), pdpg())) == []
    assert len(compiled(lambda: cm.solve(to(0.3), learner(), seed=0))) == 2
    steps = {"primal_step": 0.01, "dual_step": 0.2, "momentum": 0.5}
    assert compiled(lambda: cm.solve(to(0.6), learner(**steps), seed=0)) == []


def test_the_length_of_a_run_is_a_number() -> None:
    def run(iterations: int) -> None:
        cm.solve(problem(17), cm.PDPG(iterations, tolerance=None))
        steps = {"iterations": iterations, "evaluate_every": iterations // 3, "record_every": 2}
        cm.solve(problem(17), replace(learner(), **steps), seed=0)

    run(300)
    assert compiled(lambda: run(420)) == []


def test_a_sweep_is_two_programs() -> None:
    over = {"primal_step": [0.01, 0.03], "budget/cost": [0.2, 0.3]}
    action = lambda: cm.sweep(problem(18), learner(), over=over, seeds=range(2), lanes=2)  # noqa: E731
    assert compiled(action) == ["begin_lanes", "run_lanes"]
    assert compiled(action) == []


# Letting go.


def live_programs() -> int:
    return len(jax.devices()[0].client.live_executables())


def simple(problem: cm.Problem) -> cm.Solution:
    """A run whose programs are small."""
    steps = {"primal_step": 0.1, "dual_step": 0.1, "dual_bound": 1.0, "direction": "vanilla"}
    return cm.solve(problem, cm.PDPG(iterations=4, tolerance=None, **steps))


@pytest.mark.parametrize(("models", "most"), [(3, 5), pytest.param(100, 8, marks=pytest.mark.long)])
def test_programs_of_many_models_are_let_go(
    models: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling.let_go, "__defaults__", (most,))
    compiling.let_go(0)
    before, counts = live_programs(), []
    for states in range(30, 30 + models):
        simple(problem(states, minimize=cm.linear("cost")))
        counts.append(live_programs() - before)
    assert most < max(counts) <= most + 3
    assert counts[-1] < max(counts)


def test_functions_of_ones_own_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    most, count = 2, 3
    monkeypatch.setattr(compiling.let_go, "__defaults__", (most,))
    compiling.let_go(0)
    before = live_programs()
    for number in range(count):
        own = cm.concave(lambda x, number=number: -((x - number) ** 2).sum())
        simple(problem(7, maximize=own))
    # What is left of each is its value and its gradient, of a bounded number of functions.
    assert live_programs() - before <= most + 3 + 2 * count


def test_the_same_answer_after_letting_go() -> None:
    first = cm.solve(problem(6), pdpg())
    compiling.let_go(0)
    assert np.array_equal(cm.solve(problem(6), pdpg()).occupancy, first.occupancy)


# On disk.

SCRIPT = """
import sys, jax
found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
import cvxmdp as cm
folder = cm.compilation_cache(sys.argv[1]) if sys.argv[1:] else cm.compilation_cache()
import numpy as np
mdp = cm.TabularMDP(np.full((3, 2, 3), 1 / 3), initial=0, discount=0.9, signals={"r": [1.0, 0.0, 2.0]})
problem = cm.Problem(mdp, maximize=cm.entropy())
cm.solve(problem, cm.PDPG(iterations=8, tolerance=None))
print(folder, sum("cache_hits" in event for event in found), sum("cache_misses" in event for event in found))
"""


def run_script(*arguments: str, **variables: str) -> list[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env=kept | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_a_second_process_reads_what_the_first_compiled(tmp_path: Path) -> None:
    place = str(tmp_path / "programs")
    # Three programs, and the question which options the compiler understands.
    assert run_script(place) == [place, "0", "4"]
    assert run_script(place) == [place, "4", "0"]
    assert len(list(Path(place).glob("*-cache"))) == 4


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"JAX_COMPILATION_CACHE_DIR": "theirs"}, "theirs"),
        ({"XDG_CACHE_HOME": "cache"}, "cache/cvxmdp/programs"),
        ({"HOME": "home"}, "home/.cache/cvxmdp/programs"),
    ],
)
def test_where_programs_are_kept(
    variables: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith(("JAX_", "XDG_")):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    told: dict[str, object] = {}
    monkeypatch.setattr(program_cache, "_tell_jax", told.update)
    assert cm.compilation_cache() == tmp_path / expected
    assert told["jax_compilation_cache_dir"] == str(tmp_path / expected)
    assert told["jax_persistent_cache_min_compile_time_secs"] == 0.0


def test_a_folder_that_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(program_cache, "_tell_jax", told.append)
    (tmp_path / "file").write_text("in the way")
    assert cm.compilation_cache(tmp_path / "file" / "programs") is None
    assert told == []


def test_the_folder_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    for age in range(5):
        path = tmp_path / f"{age}-cache"
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 - age, 1e9 - age))
    program_cache._shrink(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-cache", "1-cache"]
