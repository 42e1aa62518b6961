"""Models from tables of known probabilities: in memory, files and problem files; endings and lost rows."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.runs.specs.problem_specs import read_problem

ROWS = """state,action,next_state,probability,cost,note
good,run,good,0.8,0,
good,run,worn,0.2,0,
worn,run,worn,0.6,1,as it is
worn,run,broken,0.4,5,
worn,repair,good,1.0,2,
"""


def columns() -> dict[str, list]:
    lines = [line.split(",")[:5] for line in ROWS.strip().splitlines()]
    names = lines[0]
    cells = {name: [line[k] for line in lines[1:]] for k, name in enumerate(names)}
    return {**cells, **{n: [float(v) for v in cells[n]] for n in ("probability", "cost")}}


def test_names_endings_and_signals_are_as_written():
    mdp = cm.from_table(columns(), 0.9, initial="good", ends=["broken"])
    assert mdp.state_names == ("good", "worn")
    assert mdp.action_names == ("run", "repair")
    assert mdp.actions.tolist() == [[True, False], [True, True]]
    np.testing.assert_allclose(mdp.ending, [[0.0, 0.0], [0.4, 0.0]], atol=1e-15)
    np.testing.assert_allclose(mdp.signal("cost"), [[0.0, 0.0], [0.6 + 2.0, 2.0]])
    by_hand = cm.TabularMDP(
        [[[0.8, 0.2], [0.0, 0.0]], [[0.0, 0.6], [1.0, 0.0]]],
        [1.0, 0.0],
        0.9,
        signals={"cost": [[0.0, 0.0], [2.6, 2.0]]},
        actions=[[True, False], [True, True]],
    )
    problems = [cm.Problem(one, minimize=cm.linear("cost")) for one in (mdp, by_hand)]
    assert cm.solve(problems[0]).objective == pytest.approx(cm.solve(problems[1]).objective)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "frame"])
def test_files_and_frames_say_the_same(suffix, tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / f"table.{suffix}"
    if suffix == "csv":
        path.write_text(ROWS, "utf-8")
        given = path
    else:
        given = frame = pandas.DataFrame(columns())
        if suffix == "parquet":
            pytest.importorskip("pyarrow")
            frame.to_parquet(path)
            given = path
    mdp = cm.from_table(given, 0.9, initial={"good": 1.0}, ends="broken")
    known = cm.from_table(columns(), 0.9, initial="good", ends=["broken"])
    assert (mdp.transition != known.transition).nnz == 0
    assert mdp.state_names == known.state_names


def test_a_problem_file_takes_the_table(tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS, "utf-8")
    (tmp_path / "problem.toml").write_text(
        """
        minimize = 'linear("cost")'
        [subject_to]
        dear = 'chance("cost", above=6) <= 0.6'
        [model]
        kind = "probabilities"
        path = "rows.csv"
        discount = 1.0
        initial = "good"
        ends = ["broken"]
        budget_state = {cost = [0, 1, 2, 3, 4, 5, 6, 7, 8]}
        """,
        "utf-8",
    )
    problem = read_problem(tmp_path / "problem.toml").problem
    assert "cost so far" in problem.mdp.signal_names


def test_what_is_missing_is_never_guessed():
    lost = {name: column[:-2] for name, column in columns().items()}
    with pytest.raises(cm.ModelError, match=r"sum to 0\.6 in state 'worn'"):
        cm.from_table(lost, 0.9, initial="good")
    ended = cm.from_table(lost, 0.9, initial="good", missing="ends")
    assert ended.ending[1, 0] == pytest.approx(0.4)
    with pytest.raises(cm.ModelError, match="none leaves"):
        cm.from_table(columns(), 0.9, initial="good")
    with pytest.raises(cm.ModelError, match="no row leads to 'brokn'"):
        cm.from_table(columns(), 0.9, initial="good", ends=["brokn"])
    wrong = {**columns(), "probability": [0.8, 0.3, 0.6, 0.4, 1.0]}
    with pytest.raises(cm.ModelError, match=r"sum to 1\.1"):
        cm.from_table(wrong, 0.9, initial="good", ends=["broken"], missing="ends")
    with pytest.raises(cm.ModelError, match="from 0 to 1"):
        cm.from_table({**wrong, "probability": [-0.8, 1.8, 0.6, 0.4, 1.0]}, 0.9, initial="good")
    with pytest.raises(cm.ModelError, match="no column 'probability'"):
        cm.from_table({k: v for k, v in wrong.items() if k != "probability"}, 0.9, initial="good")


def test_numbers_that_do_not_count_from_zero_are_names():
    table = {
        "state": [10, 20, 30, 10],
        "action": ["on", "on", "on", "off"],
        "next_state": [20, 30, 10, 10],
        "probability": [1.0] * 4,
        "pay": [1.0, 2.0, 3.0, 0.0],
    }
    mdp = cm.from_table(table, 0.9, initial=20)
    assert mdp.state_names == ("10", "20", "30")
    np.testing.assert_array_equal(mdp.initial, [0, 1, 0])
    np.testing.assert_array_equal(mdp.signal("pay")[:, 0], [1, 2, 3])
    mixed = cm.from_table(table, 0.9, initial={10: 0.5, 30: 0.5})
    np.testing.assert_array_equal(mixed.initial, [0.5, 0, 0.5])
    # A number at which episodes only end is no state.
    over = {**table, "state": [0, 1, 2, 0], "next_state": [1, 2, 3, 0]}
    ended = cm.from_table(over, 0.9, initial=0, ends=[3])
    assert (ended.n_states, ended.state_names) == (3, None)
    np.testing.assert_array_equal(ended.ending[2], [1, 0])


def test_numbers_rounding_and_repeated_rows():
    third = [1 / 3, 1 / 3, 1 / 3]
    table = {"state": [0, 0, 0, 1], "action": [0] * 4, "next_state": [0, 1, 1, 1]}
    mdp = cm.from_table(
        {**table, "probability": [*third, 1.0], "pay": [3.0, 0.0, 3.0, 1.0]}, 0.5, initial=0
    )
    np.testing.assert_allclose(mdp.transition.toarray(), [[1 / 3, 2 / 3], [0.0, 1.0]])
    np.testing.assert_allclose(mdp.signal("pay"), [[2.0], [1.0]])
    assert not mdp.ending.any()
    average = cm.from_table({**table, "probability": [*third, 1.0]}, initial=0, average=True)
    assert "average" in str(average.horizon)
