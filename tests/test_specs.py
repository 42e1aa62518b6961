"""Problem and sweep files: what they can say, and what they say when they are wrong."""

from __future__ import annotations

import io
import math
import os
import zipfile
from dataclasses import is_dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.base.errors import FileFormatError
from cvxmdp.certificates.checking import fingerprint
from cvxmdp.runs.record import record_of
from cvxmdp.runs.record_text import record_text
from cvxmdp.runs.specs.array_specs import ArrayFolder, read_npz
from cvxmdp.runs.specs.places import line_of
from cvxmdp.runs.specs.problem_specs import SOLVERS, SpecError, read_problem, read_sweep

GRID = """
[model]
kind = "gridworld"
size = 4
slip = 0.1
discount = 0.9
hazards = [5, [1, 2]]
rewards = {"15" = 1.0, "3, 0" = 0.5}
"""


def written(folder: Path, head: str, rest: str = GRID, name: str = "problem.toml") -> Path:
    path = folder / name
    path.write_text(head + "\n" + rest)
    return path


def message(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        read_problem(path)
    return str(caught.value)


def grid() -> cm.TabularMDP:
    return cm.gridworld(
        4, slip=0.1, discount=0.9, hazards=[5, (1, 2)], rewards={15: 1.0, (3, 0): 0.5}
    )


def test_a_problem_file_is_the_problem_one_would_write(tmp_path):
    text = 'maximize = "entropy()"\n[subject_to]\nhazard = \'linear("hazard", per="step") <= 0.2\''
    spec = read_problem(written(tmp_path, text))
    by_hand = cm.Problem(
        grid(),
        maximize=cm.entropy(),
        subject_to={"hazard": cm.linear("hazard", per="step") <= 0.2},
    )
    assert fingerprint(spec.problem) == fingerprint(by_hand)
    assert spec.solver is None
    assert spec.title == "problem"


EXPERT = np.tile([0.1, 0.4, 0.4, 0.1], (16, 1))


def atoms() -> dict[str, cm.Utility]:
    """Expressions and the utilities they stand for."""
    at = cm.occupancy_of(grid(), EXPERT)
    weights = np.arange(64.0).reshape(16, 4)
    return {
        'linear("reward")': cm.linear("reward"),
        'linear("hazard", per="step")': cm.linear("hazard", per="step"),
        "linear(file('weights.csv'))": cm.linear(weights),
        "entropy()": cm.entropy(),
        'entropy(of="state-action")': cm.entropy(of="state-action"),
        '-distance(file("arrays.npz#occupancy"), norm="l2")': -cm.distance(at, norm="l2"),
        '-0.5 * distance(file("arrays.npz#occupancy"), norm="l2-squared")': -0.5
        * cm.distance(at, norm="l2-squared"),
        '-distance(policy("expert.safetensors"), norm="kl", smoothing=0.01)': -cm.distance(
            cm.TabularPolicy(EXPERT), norm="kl", smoothing=0.01
        ),
        '-distance(policy("arrays.npz#policy"), norm="l1")': -cm.distance(
            cm.TabularPolicy(EXPERT), norm="l1"
        ),
        '-distance(ball(file("arrays.npz#occupancy"), 0.5))': -cm.distance(cm.ball(at, 0.5)),
        '-distance(box(-inf, 0.2), norm="l1")': -cm.distance(cm.box(-np.inf, 0.2), norm="l1"),
        '-distance(polytope(file("arrays.npz#rows"), [1.0, 2.0]))': -cm.distance(
            cm.polytope(np.arange(128.0).reshape(2, 16, 4), [1.0, 2.0])
        ),
        '-quadratic(weights=file("weights.csv"))': -cm.quadratic(weights=weights),
        'log_sum("reward", "hazard")': cm.log_sum("reward", "hazard"),
        'minimum(linear("reward"), 2 * linear("hazard") + 1)': cm.minimum(
            cm.linear("reward"), 2 * cm.linear("hazard") + 1
        ),
        'linear("reward") + 0.1 * log_barrier(linear("hazard") <= 1.5)': cm.linear("reward")
        + 0.1 * cm.log_barrier(cm.linear("hazard") <= 1.5),
        '(linear("reward") - 1) / 4 - -entropy()': (cm.linear("reward") - 1) / 4 + cm.entropy(),
    }


@pytest.mark.parametrize("text", atoms())
def test_every_atom(tmp_path, text):
    np.savez(
        tmp_path / "arrays.npz",
        occupancy=cm.occupancy_of(grid(), EXPERT),
        policy=EXPERT,
        rows=np.arange(128.0).reshape(2, 16, 4),
    )
    np.savetxt(tmp_path / "weights.csv", np.arange(64.0).reshape(16, 4), delimiter=",")
    cm.TabularPolicy(EXPERT).save(tmp_path / "expert.safetensors")
    spec = read_problem(written(tmp_path, f"maximize = '''{text}'''"))
    by_hand = cm.Problem(grid(), maximize=atoms()[text])
    assert fingerprint(spec.problem) == fingerprint(by_hand)
    assert set(spec.files) <= {"arrays.npz", "weights.csv", "expert.safetensors"}
    assert bool(spec.files) == ("file(" in text or "policy(" in text)


def test_what_a_utility_prints_can_be_read_again(tmp_path):
    utility = 2 * cm.entropy() - 0.5 * cm.linear("hazard", per="step") + 3
    spec = read_problem(written(tmp_path, f"maximize = '{utility!r}'"))
    assert repr(spec.problem.utility) == repr(utility)


def test_the_examples():
    from cvxmdp.paper import tracking_problem

    examples = Path(__file__).parent.parent / "examples" / "problems"
    tracking = read_problem(examples / "tracking.toml")
    assert fingerprint(tracking.problem) == fingerprint(tracking_problem("8x8-traj1", budget=0.1))
    assert set(tracking.files) == {"expert.csv"}
    varied = read_sweep(examples / "sweep.toml").over
    assert math.prod(len(values) for values in varied.values()) == 4
    for path in examples.glob("*.toml"):
        (read_sweep if path.name == "sweep.toml" else read_problem)(path)


def model_of(tmp_path: Path, table: str) -> cm.TabularMDP:
    return read_problem(written(tmp_path, 'maximize = "entropy()"', table)).problem.mdp


def assert_same(found: cm.TabularMDP, expected: cm.TabularMDP) -> None:
    assert (found.transition != expected.transition).nnz == 0
    assert np.array_equal(found.initial, expected.initial)
    assert found.discount == expected.discount
    assert {name: signal.tolist() for name, signal in found.signals.items()} == {
        name: signal.tolist() for name, signal in expected.signals.items()
    }


def test_garnets(tmp_path):
    table = '[model]\nkind = "garnet"\nn_states = 9\nn_actions = 2\nbranching = 3\nseed = 4'
    assert_same(model_of(tmp_path, table), cm.garnet(9, 2, 3, seed=4))


def test_saved_models(tmp_path):
    grid().save(tmp_path / "grid.safetensors")
    found = model_of(tmp_path, '[model]\nkind = "file"\npath = "grid.safetensors"')
    assert_same(found, grid())
    assert found.layout == grid().layout


def test_gymnasium_tables(tmp_path):
    table = """
[model]
kind = "gymnasium"
id = "FrozenLake-v1"
discount = 0.9
arguments = {is_slippery = false}
failure = "fall"
"""
    outcome = {"fall": lambda s, a, t, reward, end: float(end and reward <= 0)}
    by_hand = cm.from_gymnasium_table("FrozenLake-v1", 0.9, signals=outcome, is_slippery=False)
    assert_same(model_of(tmp_path, table), by_hand)


@pytest.mark.parametrize("form", ["dense.npz", "sparse.npz", "dense.npy", "lines.csv", "dense.csv"])
def test_tables_from_files(tmp_path, form):
    mdp = cm.garnet(6, 3, 2, seed=1)
    dense = mdp.dense_transition()
    if form == "dense.npz":
        np.savez_compressed(tmp_path / form, transition=dense)
    elif form == "sparse.npz":
        sp.save_npz(tmp_path / form, sp.csr_matrix(mdp.transition))
    elif form == "dense.npy":
        np.save(tmp_path / form, np.asfortranarray(dense))
    elif form == "dense.csv":
        np.savetxt(tmp_path / form, mdp.transition.toarray(), delimiter=",", fmt="%.17g")
    else:
        lines = ["state,action,next_state,probability"]
        coordinates = mdp.transition.tocoo()
        for row, column, chance in zip(*coordinates.coords, coordinates.data, strict=True):
            lines.append(f"{row // 3},{row % 3},{column},{chance:.17g}")
        (tmp_path / form).write_text("\n".join(lines))
    np.savez(tmp_path / "signals.npz", reward=mdp.signals["reward"], cost=mdp.signals["cost"])
    initial = [1 / 6] * 6
    table = f"""
[model]
kind = "table"
transition = "{form}"
initial = {initial}
discount = 0.95
signals = {{reward = "signals.npz#reward", cost = "signals.npz#cost"}}
action_names = ["a", "b", "c"]
"""
    found = model_of(tmp_path, table)
    assert_same(found, mdp)
    assert found.action_names == ("a", "b", "c")


def test_numbers_in_the_file_itself(tmp_path):
    table = """
[model]
kind = "table"
transition = [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]]
initial = 0
discount = 0.5
signals.reward = [0.0, 1.0]
actions = [[true, true], [true, false]]
[model.layout]
rows = 1
columns = 2
goals = [1]
"""
    found = model_of(tmp_path, table)
    assert found.actions.tolist() == [[True, True], [True, False]]
    assert found.layout == cm.GridLayout(1, 2, goals=(1,))


def test_a_row_that_lost_a_line_is_no_ending_unless_that_is_said(tmp_path):
    """One line of a file is gone: episodes do not silently end there."""
    table = """
[model]
kind = "table"
transition = [[[0.5, 0.5]], [[0.68, 0.0]]]
initial = 0
discount = 0.5
signals.reward = [0.0, 1.0]
"""
    with pytest.raises(
        SpecError, match=r"state 1, action 0 sum to 0\.68; 1 of 2 rows ends episodes"
    ):
        model_of(tmp_path, table)
    found = model_of(tmp_path, table + 'endings = "implicit"\n')
    problem = cm.Problem(found, maximize=cm.linear("reward"))
    solution = cm.solve(problem)
    assert "1 of 2 rows ends episodes (0.32)." in str(solution).splitlines()
    certificate = cm.certify(problem, solution)
    assert certificate.assumes == ("1 of 2 rows ends episodes (0.32)",)
    assert "Rests on these promises: 1 of 2 rows ends episodes (0.32)." in str(certificate)
    assert "rows ends episodes (0.32)" in record_text(record_of(solution))


def test_numbers_that_are_printed_are_the_same_when_they_are_read(tmp_path):
    """A third is not 0.333333."""
    limit = cm.linear("hazard") / 3 <= 2 / 7
    by_hand = cm.Problem(
        grid(),
        maximize=0.1 * cm.entropy() - cm.linear("reward") / 0.3 + 1 / 7,
        subject_to={"hazard": limit},
    )
    assert repr(limit.utility) == 'linear("hazard") / 3'
    assert '0.1 * entropy() - linear("reward") / 0.3 + 0.14' in repr(by_hand.utility)
    text = f"maximize = '{by_hand.utility!r}'\n[subject_to]\nhazard = '{limit!r}'"
    assert fingerprint(read_problem(written(tmp_path, text)).problem) == fingerprint(by_hand)


def test_what_never_ends_is_not_read(tmp_path):
    """Pipes, devices and link loops in the place of files, and more seeds than anybody has time for."""
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    os.mkfifo(tmp_path / "pipe.csv")
    table = '[model]\nkind = "table"\ntransition = "pipe.csv"\ninitial = 0\ndiscount = 0.5'
    with pytest.raises(FileFormatError, match="not a plain file"):
        read_problem(tmp_path / "zero.toml")
    with pytest.raises(SpecError, match="cannot read"):
        read_problem(tmp_path / "loop.toml")
    assert "not a" in message(written(tmp_path, 'maximize = "entropy()"', table))
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    loop = table.replace("pipe.csv", "loop.csv")
    assert "leads nowhere" in message(written(tmp_path, 'maximize = "entropy()"', loop))
    garnet = (
        '[model]\nkind = "garnet"\nn_states = 1000000\nn_actions = 100\nbranching = 1\nseed = 0'
    )
    assert "40,000,000 transitions" in message(written(tmp_path, 'maximize = "entropy()"', garnet))
    with pytest.raises(FileFormatError, match="not a plain file"):
        cm.PolicyEvaluation.load("/dev/zero")
    sampling = "[solver]\nname = 'PDPG'\niterations = 5\n"
    written(tmp_path, 'maximize = "entropy()"\n' + sampling)
    sweep = tmp_path / "sweep.toml"
    sweep.write_text('problem = "problem.toml"\nseeds = 999999999\n')
    with pytest.raises(SpecError, match="999,999,999 runs; a sweep has at most 1,000,000"):
        read_sweep(sweep)


def test_solvers_with_their_settings(tmp_path):
    settings = """
[solver]
name = "VRPDPG"
iterations = 10
primal_step = 0.1
dual_step = {hazard = 0.2}
momentum = "square root"
horizon = 5
policy = "MLP(8, 4)"
seed = 3
"""
    head = 'maximize = "entropy()"\nsubject_to.hazard = \'linear("hazard") <= 1\''
    spec = read_problem(written(tmp_path, head, GRID + settings))
    assert repr(spec.solver.policy) == "MLP(8, 4)"
    assert spec.solver.dual_step == {"hazard": 0.2}
    assert spec.seed == 3
    assert read_problem(spec.path, settings={"iterations": 12}).solver.iterations == 12
    other = read_problem(spec.path, solver="PDPG")
    assert other.solver == cm.PDPG()  # the settings of another solver are not carried over
    assert other.seed == 3


def test_normalised_steps(tmp_path):
    settings = '[solver]\nname = "PDPG"\nprimal_step = "Normalised(0.1)"\ndual_step = 0.1'
    spec = read_problem(written(tmp_path, 'maximize = "entropy()"', GRID + settings))
    assert spec.solver.primal_step == cm.Normalised(0.1)


def test_every_named_solver_is_a_dataclass_of_settings():
    assert {"ConvexProgram", "PDPG", "VRPDPG", "ColumnGeneration"} <= set(SOLVERS)
    for name, solver in SOLVERS.items():
        assert is_dataclass(solver)
        assert getattr(cm, name) is solver


def wrong() -> dict[str, tuple[str, str, list[str]]]:
    """By name: the head, the rest, and what the message must say."""
    head = 'maximize = "entropy()"'
    return {
        "key": (
            head,
            GRID.replace("discount", "discont"),
            ["line 7", "model.discont", "'discount'"],
        ),
        "table": (head, GRID.replace("[model]", "[modl]"), ["'modl'", "Did you mean 'model'"]),
        "no model": (head, "", ["'model' is missing"]),
        "kind": (head, GRID.replace("gridworld", "gridwrld"), ["line", "Did you mean 'gridworld'"]),
        "no kind": (head, "[model]\nsize = 3", ["kind is missing", "'garnet'"]),
        "type": (head, GRID.replace("0.1", '"a"'), ["model.slip", "number", "'a'"]),
        "cells": (head, GRID.replace("[5, [1, 2]]", "[[1, 2, 3]]"), ["hazards", "[row, column]"]),
        "cell": (head, GRID.replace("[5, [1, 2]]", "[50]"), ["hazards: 50 lies outside"]),
        "reward": (head, GRID.replace('"15"', '"corner"'), ['"7, 7"', "'corner'"]),
        "huge": (head, GRID.replace("size = 4", "size = 100000"), ["4,000,000"]),
        "missing": (head, '[model]\nkind = "garnet"\nn_states = 3', ["'n_actions' is missing"]),
        "layout": (
            head,
            '[model]\nkind = "table"\ntransition = [[[1.0]]]\ninitial = 0\ndiscount = 0.5\n'
            "[model.layout]\nrows = 1\ncolumns = 1\ngaols = [0]",
            ["line 10", "Did you mean 'goals'"],
        ),
        "ragged": (
            head,
            '[model]\nkind = "table"\ntransition = [[[1.0], [1.0]], [[0.0]]]\ninitial = 0\ndiscount = 0.5',
            ["model", "different lengths"],
        ),
        "atom": ('maximize = "entrpy()"', GRID, ["line 1", "maximize", "Did you mean 'entropy'"]),
        "unquoted": ("maximize = entropy()", GRID, ["line 1", "in quotes"]),
        "curvature": ('minimize = "entropy()"', GRID, ["line 1", "minimize", "concave"]),
        "both": ('maximize = "entropy()"\nminimize = "-entropy()"', GRID, ["exactly one"]),
        "neither": ("", GRID, ["exactly one"]),
        "signal": ("maximize = 'linear(\"rewrd\")'", GRID, ["line 1", "Did you mean 'reward'"]),
        "argument": ('maximize = "entropy(off=1)"', GRID, ["entropy(off=1)", "unexpected keyword"]),
        "number": ('maximize = "1 + 2"', GRID, ["is a number"]),
        "comparison": ("maximize = 'entropy() >= 1'", GRID, ["[subject_to]"]),
        "two-sided": (
            head + "\n[subject_to]\na = '0 <= linear(\"hazard\") <= 1'",
            GRID,
            ["subject_to.a", "two constraints"],
        ),
        "no budget": (head + "\n[subject_to]\na = 'entropy()'", GRID, ["not compared"]),
        "constraint": (
            head + '\n[subject_to]\n"near it" = \'linear("hazrd") <= 1\'',
            GRID,
            ["line 3", 'subject_to."near it"', "Did you mean 'hazard'"],
        ),
        "syntax": ("maximize = 'entropy( + '", GRID, ["line 1", "^"]),
        "solver": (
            head,
            GRID + '[solver]\nname = "convexprogram"',
            ["Did you mean 'ConvexProgram'"],
        ),
        "setting": (
            head,
            GRID + '[solver]\nname = "PDPG"\nitertions = 3',
            ["line 12", "solver.itertions", "Did you mean 'iterations'"],
        ),
        "removed": (
            head,
            GRID + '[solver]\nname = "VRPDPG"\nweight_cap = 3.0',
            ["line", "solver", "weight_cap was an option of cvxmdp 0.1", "remove it"],
        ),
        "value": (head, GRID + '[solver]\nname = "PDPG"\niterations = -3', ["line", "got -3"]),
        "required": (head, GRID + '[solver]\nname = "VRPDPG"\nseed = 1', ["'iterations'"]),
        "nameless": (head, GRID + "[solver]\niterations = 3", ["'iterations'", "add name"]),
        "seed": (head, GRID + '[solver]\nname = "PDPG"\nseed = 0.5', ["seed", "0.5"]),
        "policy": (
            head,
            GRID + '[solver]\nname = "PDPG"\npolicy = "MPL(3)"',
            ["Did you mean 'MLP'"],
        ),
        "file": ("maximize = \"linear(file('absent.csv'))\"", GRID, ["no file 'absent.csv'"]),
        "gymnasium": (
            head,
            '[model]\nkind = "gymnasium"\nid = "NoSuchLake-v1"\ndiscount = 0.9',
            ["NoSuchLake"],
        ),
    }


@pytest.mark.parametrize("name", wrong())
def test_wrong_files_say_which_where_and_what_was_meant(tmp_path, name):
    head, rest, expected = wrong()[name]
    found = message(written(tmp_path, head, rest))
    assert "problem.toml" in found
    for part in expected:
        assert part in found


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "entropy.__class__",
        "entropy().bind",
        "[entropy() for x in [1]]",
        "(lambda: entropy())()",
        "entropy() if 1 else 2",
        "'a' * 1000000000000",
        "[0] * 1000000000000",
        "2 ** 100000000",
        "entropy(*[1])",
        "entropy(**{'of': 'state'})",
        "f'{entropy()}'",
        "open('problem.toml')",
        "(" * 5000 + "entropy()" + ")" * 5000,
        "-" * 15_000 + "entropy()",
    ],
)
def test_expressions_run_nothing(tmp_path, text):
    path = written(tmp_path, f"maximize = '''{text}'''")
    assert "maximize" in message(path)


def test_files_stay_in_the_folder(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "cost.csv").write_text("\n".join(["1"] * 16))
    (inside / "link.csv").symlink_to(outside / "cost.csv")
    for reference in ("../outside/cost.csv", str(outside / "cost.csv"), "link.csv", "C:\\\\a.csv"):
        path = written(inside, f"maximize = \"linear(file('{reference}'))\"")
        found = message(path)
        assert "leads out of" in found or "no file" in found


def test_gymnasium_never_imports_a_module_for_a_file(tmp_path):
    table = '[model]\nkind = "gymnasium"\nid = "os.path:FrozenLake-v1"\ndiscount = 0.9'
    assert "already registered" in message(written(tmp_path, 'maximize = "entropy()"', table))


def test_pickles_and_bombs_are_refused(tmp_path):
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    with pytest.raises(FileFormatError, match="not numbers"):
        read_npz(tmp_path / "objects.npz")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"shape": (10**12,), "fortran_order": False, "descr": "<f8"}
    )
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        archive.writestr("a.npy", header.getvalue())
    with pytest.raises(FileFormatError, match="shorter"):
        read_npz(tmp_path / "bomb.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "bomb.npz").read_bytes()[:-30])
    with pytest.raises(FileFormatError, match="not an npz file"):
        read_npz(tmp_path / "cut.npz")


def test_arrays_are_named_where_there_are_several(tmp_path):
    np.savez(tmp_path / "two.npz", first=np.ones(3), second=np.zeros(3))
    folder = ArrayFolder(tmp_path)
    assert folder.array("two.npz#first").tolist() == [1, 1, 1]
    with pytest.raises(FileFormatError, match=r"two\.npz#NAME with one of first, second"):
        folder.array("two.npz")
    with pytest.raises(FileFormatError, match="Did you mean 'first'"):
        folder.array("two.npz#frst")
    (tmp_path / "words.csv").write_text("a,b\n1,x\n")
    with pytest.raises(FileFormatError, match="not a table of numbers"):
        folder.array("words.csv")
    (tmp_path / "letter.txt").write_text("1")
    with pytest.raises(FileFormatError, match=r"end in \.csv"):
        folder.array("letter.txt")


def test_not_toml_not_text_not_there(tmp_path):
    assert "there is no file" in message(tmp_path / "absent.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert "UTF-8" in message(tmp_path / "bytes.toml")
    assert "not TOML" in message(written(tmp_path, "maximize ="))


def test_lines_of_keys():
    text = 'a = 1\n[b]\nc = 2\n"d e" = 3\nf.g = 4\n[b.h]\ni = 5\n'
    assert line_of(text, ("a",)) == 1
    assert line_of(text, ("b", "c")) == 3
    assert line_of(text, ("b", "d e")) == 4
    assert line_of(text, ("b", "f", "g")) == 5
    assert line_of(text, ("b", "h", "i")) == 7
    assert line_of(text, ("b", "h", "unknown")) == 6
    assert line_of(text, ("z",)) is None


SWEEP = """
problem = "problem.toml"
seeds = 3
[solver]
name = "VRPDPG"
iterations = 10
primal_step = 0.1
dual_step = 0.1
momentum = 0.5
horizon = 5
[over]
primal_step = [0.1, 0.2]
"budget/hazard" = [0.1, 0.2, 0.3]
"""


def test_sweep_files(tmp_path):
    written(tmp_path, 'maximize = "entropy()"\nsubject_to.hazard = \'linear("hazard") <= 1\'')
    spec = read_sweep(written(tmp_path, SWEEP, "", "sweep.toml"))
    assert spec.seeds == (0, 1, 2)
    assert spec.over == {"primal_step": (0.1, 0.2), "budget/hazard": (0.1, 0.2, 0.3)}
    assert spec.base.solver.momentum == 0.5


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("budget/hazard", "budget/hazrd", "Did you mean 'hazard'"),
        ("\nprimal_step = [", "\nprimalstep = [", "Did you mean 'primal_step'"),
        ("\nprimal_step = [", "\nentropy_bonus = [", "entropy_bonus was an option of cvxmdp 0.1"),
        ("[0.1, 0.2]\n", "[0.1, -0.2]\n", "primal_step must be positive"),
        ("[0.1, 0.2]\n", "[]\n", "at least one value"),
        (
            "\nprimal_step = [",
            '\niterations = ["many", ',
            "over.iterations: the setting 'iterations'",
        ),
        ("seeds = 3", "seeds = 0", "how many seeds"),
        ("seeds = 3", "seds = 3", "Did you mean 'seeds'"),
        ('"problem.toml"', '"../problem.toml"', "leads out of"),
    ],
)
def test_wrong_sweep_files(tmp_path, old, new, expected):
    written(tmp_path, 'maximize = "entropy()"\nsubject_to.hazard = \'linear("hazard") <= 1\'')
    path = written(tmp_path, SWEEP.replace(old, new), "", "sweep.toml")
    with pytest.raises(SpecError, match=expected) as caught:
        read_sweep(path)
    assert "sweep.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("solver", "expected"),
    [
        ("", "a sweep needs a solver: add .solver. with a name"),
        (
            "solver = {cautious = 0.9}\n",
            "where .solver. says cautious, a sweep varies budgets alone",
        ),
    ],
)
def test_sweeps_without_a_solver_of_their_own(tmp_path, solver, expected):
    written(tmp_path, 'maximize = "entropy()"')
    text = f'problem = "problem.toml"\n{solver}over.tolerance = [1e-6, 1e-8]\n'
    with pytest.raises(SpecError, match=expected):
        read_sweep(written(tmp_path, text, "", "sweep.toml"))
