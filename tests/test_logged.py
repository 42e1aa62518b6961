"""Models estimated from logged transitions."""

from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import ModelError

TWO_EPISODES = {
    "state": [0, 1, 0, 1, 1],
    "action": [0, 1, 0, 0, 1],
    "next_state": [1, 2, 1, 1, 2],
    "terminated": [False, True, False, False, True],
    "cost": [1.0, 0.0, 3.0, 2.0, 4.0],
}


def log_of(mdp: cm.TabularMDP, steps: int, seed: int, cut: int = 10_000) -> dict[str, list]:
    """Rows of the uniform policy in a model, episodes cut after ``cut`` steps."""
    random = np.random.default_rng(seed)
    table: dict[str, list] = {name: [] for name in (*TWO_EPISODES, "truncated")}
    table["reward"] = []
    state, age = -1, 0
    starts, chances = np.cumsum(mdp.initial), np.cumsum(mdp.dense_transition(), axis=2)
    for _ in range(steps):
        if state < 0:
            state, age = int(np.searchsorted(starts[:-1], random.random(), side="right")), 0
        action = int(random.integers(mdp.n_actions))
        following = int(np.searchsorted(chances[state, action], random.random(), side="right"))
        end = following == mdp.n_states
        following = state if end else following
        age += 1
        table["state"].append(state)
        table["action"].append(action)
        table["next_state"].append(following)
        table["terminated"].append(end)
        table["truncated"].append(not end and age >= cut)
        for name in ("reward", "cost"):
            table[name].append(mdp.signal(name)[state, action])
        state = -1 if end or age >= cut else following
    return table


def test_shares_means_and_masks() -> None:
    mdp = cm.from_transitions(TWO_EPISODES, 0.9)
    assert (mdp.n_states, mdp.n_actions) == (3, 2)
    np.testing.assert_array_equal(mdp.dense_transition()[0, 0], [0, 1, 0])
    np.testing.assert_array_equal(mdp.dense_transition()[1, 0], [0, 1, 0])
    assert mdp.ending[1, 1] == 1.0
    assert mdp.signal("cost")[0, 0] == 2.0  # the mean of 1 and 3
    np.testing.assert_array_equal(mdp.actions[:2], [[True, False], [True, True]])
    np.testing.assert_array_equal(mdp.initial, [1, 0, 0])
    assert not mdp.reachable[2]  # where terminated rows lead is not visited


def test_the_estimate_converges_to_the_model_and_says_what_it_is(tmp_path) -> None:
    truth = cm.garnet(4, 2, 3, seed=3, discount=0.9)
    truth = truth.replace(
        transition=truth.transition * 0.9,
        signals={"reward": np.arange(8.0).reshape(4, 2), "cost": np.ones(4)},
    )
    mdp = cm.from_transitions(log_of(truth, 20_000, seed=0, cut=7), 0.9)
    # every share is a mean of some 2,500 draws: four standard errors are 0.04
    np.testing.assert_allclose(mdp.dense_transition(), truth.dense_transition(), atol=0.04)
    np.testing.assert_allclose(mdp.ending, 0.1, atol=0.04)
    np.testing.assert_allclose(mdp.signal("reward"), truth.signal("reward"))
    assert "estimated model (20,000 transitions" in repr(mdp)
    assert "truncated, which is not counted as an end" in mdp.note
    solution = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")))
    assert "Of the estimated model (20,000 transitions" in str(solution)
    assert "Of the estimated model (20,000 transitions" in solution._repr_html_()
    assert "Of the true model" in str(cm.certify(solution.problem, solution))
    certificate = cm.certify(solution.problem, solution, confidence=None)
    assert "it speaks of the estimated model (20,000 transitions" in str(certificate)
    certificate.save(tmp_path / "certificate.json")
    assert cm.check(tmp_path / "certificate.json", solution.problem)


def test_truncation_is_not_termination() -> None:
    """A cycle that is only ever cut, never ended."""
    rows = {"state": [0, 1, 0, 1], "action": [0] * 4, "next_state": [1, 0, 1, 0]}
    table = {**rows, "terminated": [0] * 4, "truncated": [0, 1, 0, 1]}
    mdp = cm.from_transitions(table, 0.9)
    np.testing.assert_array_equal(mdp.ending, 0.0)
    assert "2 episodes; 2 of them truncated" in mdp.note
    np.testing.assert_array_equal(mdp.initial, [1.0, 0.0])


def test_rows_into_the_unknown_keep_their_probability() -> None:
    """As a state that is never left, at the worst cost, or as endings, where the user says so."""
    table = {
        "state": [0, 0, 0, 1],
        "action": [0, 0, 1, 0],
        "next_state": [0, 1, 0, 2],  # nobody left 2
        "terminated": [0, 0, 1, 0],
        "episode": ["a", "b", "c", "d"],
        "cost": [1.0, 1.0, 0.5, 3.0],
    }
    mdp = cm.from_transitions(table, 0.9, initial=0)
    assert "1 states that nobody left, taken for ever at the worst" in mdp.note
    np.testing.assert_array_equal(mdp.dense_transition()[0, 0], [0.5, 0.5, 0])
    np.testing.assert_array_equal(mdp.dense_transition()[2], [[0, 0, 1], [0, 0, 1]])
    always = cm.TabularPolicy([[1.0, 0.0]] * 3)
    costly = cm.Problem(mdp, minimize=cm.linear("cost"), subject_to={"c": cm.linear("cost") <= 9})
    paid = costly.evaluate(always)
    x = paid.occupancy.sum(axis=1)
    assert x[2] > 1.0  # one stays there
    assert paid.objective == pytest.approx(x @ [1.0, 3.0, 3.0])  # the worst cost is the largest ...
    assert paid.slack["c"] == pytest.approx(9 - paid.objective)
    earned = cm.Problem(mdp, maximize=cm.linear("cost")).evaluate(always)
    assert earned.objective == pytest.approx(
        x @ [1.0, 3.0, 0.5]
    )  # ... and the worst reward the least
    ends = cm.from_transitions(table, 0.9, unknown="end")
    assert "1 states that nobody left, taken as endings, as you said" in ends.note
    assert ends.ending[1, 0] == 1.0
    assert not ends.counts.listed[2]
    np.testing.assert_array_equal(ends.counts.outcomes.toarray()[2], [0, 0, 0, 1])
    with pytest.raises(ModelError, match='unknown must be "worst" or "end"'):
        cm.from_transitions(table, 0.9, unknown="ignore")


def test_csv_and_names(tmp_path) -> None:
    wide = {**TWO_EPISODES, "state": [0, 1, 0, 1, 900], "action": [0, 1, 0, 1, 900]}
    with pytest.raises(ModelError, match=r"901 states and 901 actions, more than max_pairs=1,000"):
        cm.from_transitions(wide, 0.9, max_pairs=1_000)
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["s", "action", "next_state", "terminated", "reward", "remark"])
        writer.writerow(["home", "walk", "work", "false", "-1", "rain"])
        writer.writerow(["work", "rest", "", "true", "5", ""])
        writer.writerow(["home", "ride", "work", "false", "-3", ""])
        writer.writerow(["work", "rest", "pub", "true", "7", ""])
    mdp = cm.from_transitions(path, 0.5, columns={"state": "s"})
    assert mdp.state_names == ("home", "work")
    assert mdp.action_names == ("walk", "rest", "ride")
    assert list(mdp.signals) == ["reward"]
    assert mdp.signal("reward")[1, 1] == 6.0
    mdp.save(tmp_path / "model")
    assert cm.TabularMDP.load(tmp_path / "model").note == mdp.note


def test_semicolons_and_tabs_separate_as_well(tmp_path) -> None:
    path, expected = tmp_path / "log.csv", cm.from_transitions(TWO_EPISODES, 0.9)
    rows = [list(TWO_EPISODES), *zip(*TWO_EPISODES.values(), strict=True)]
    for mark in (";", "\t"):
        path.write_text("\n".join(mark.join(map(str, row)) for row in rows) + "\n")
        assert repr(cm.from_transitions(path, 0.9)) == repr(expected)


def test_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    mdp = cm.from_transitions(pandas.DataFrame(TWO_EPISODES), 0.9)
    expected = cm.from_transitions(TWO_EPISODES, 0.9)
    np.testing.assert_array_equal(mdp.dense_transition(), expected.dense_transition())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": [0, 1, -1, 1, 1]}, r"row 2: state is .*-1.*; numbers of a state are whole"),
        ({"state": [0, 1.5, 0, 1, 1]}, r"row 1: state is .*1\.5.*; numbers of a state are whole"),
        ({"action": [0, 1, 0, np.nan, 1]}, r"row 3: action is .*nan.*; expected a finite number"),
        ({"cost": [0, 1, np.inf, 0, 1]}, r"row 2: cost is .*inf.*; expected a finite number"),
        ({"terminated": [0, 1, 0, 0, "maybe"]}, r"row 4: terminated is .*'maybe'.*; expected true"),
        ({"next_state": [1, 2, 1, 1]}, r"have one length; these have \{'state': 5"),
        ({"episode": [0, 0, 0, 1, 1]}, r"row 2: episode 0 goes on after the row that ended it"),
        (
            {"episode": [0, 0, 1, 1, 1], "next_state": [1, 2, 1, 0, 2]},
            r"row 4: episode 1 goes on in",
        ),
        ({"episode": [0, 0, 1, 0, 0]}, r"rows of episode 0 do not lie together"),
        ({"state": [0, 1, 0, 1, 10**9]}, r"row 4: number 1000000000 in a log of 5 rows"),
    ],
)
def test_bad_rows_are_named(change, message) -> None:
    with pytest.raises(ModelError, match=message):
        cm.from_transitions({**TWO_EPISODES, **change}, 0.9)


def test_rows_in_no_order_say_nothing_of_first_states() -> None:
    random = np.random.default_rng(0)
    walk = random.integers(0, 9, 101)
    log = {"state": walk[:-1], "action": np.zeros(100, int), "next_state": walk[1:]}
    log |= {"terminated": np.zeros(100, bool), "episode": np.arange(100) // 20}
    assert cm.from_transitions(log, 0.9).counts.initial.sum() == 5
    mixed = random.permutation(100)
    shuffled = {name: column[mixed] for name, column in log.items()}
    with pytest.raises(ModelError, match="do not lie together; sort the table by episode and step"):
        cm.from_transitions(shuffled, 0.9)
    del shuffled["episode"]
    with pytest.raises(ModelError, match=r"of 100 rows do not begin where .* give initial="):
        cm.from_transitions(shuffled, 0.9)
    assert cm.from_transitions(shuffled, 0.9, initial=int(walk[0])).counts.total == 100


def test_files_as_pandas_writes_them(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(",state,action,next_state,terminated,cost\n0,0,0,0,false,1\n1,0,0,0,true,2\n")
    assert cm.from_transitions(path, 0.9).signal_names == ("cost",)
    packed = tmp_path / "log.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(
        ModelError, match=r"log\.csv\.gz is compressed; unpack it, or give a data frame"
    ):
        cm.from_transitions(packed, 0.9)


def test_other_mistakes(tmp_path) -> None:
    with pytest.raises(ModelError, match=r"no column 'terminated'\. .*columns="):
        cm.from_transitions({k: v for k, v in TWO_EPISODES.items() if k != "terminated"}, 0.9)
    with pytest.raises(ModelError, match=r"no column 'costs'\. Did you mean 'cost'\?"):
        cm.from_transitions(TWO_EPISODES, 0.9, signals=["costs"])
    with pytest.raises(ModelError, match=r"a data frame, a mapping .* got list"):
        cm.from_transitions([1, 2], 0.9)
    with pytest.raises(ModelError, match=r"row 1: number 2 does not fit n_states=2"):
        cm.from_transitions(TWO_EPISODES, 0.9, n_states=2)
    path = tmp_path / "log.csv"
    path.write_text("state,action,next_state,terminated\n0,0,0,false\n0,0,0\n")
    with pytest.raises(ModelError, match=r"log\.csv, line 3: 3 values for the 4 columns"):
        cm.from_transitions(path, 0.9)
    path.write_text("state,action,next_state,terminated\n0,0,0,false\n\n0,x,0,false\n0,0,,false\n")
    with pytest.raises(
        ModelError, match=r"(?s)2 lines cannot .* line 4: action is 'x'.* line 5: next"
    ):
        cm.from_transitions(path, 0.9)
