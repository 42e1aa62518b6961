"""Counts that an estimated model carries, what is declared beside them, and rows that cannot be used."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpWarning, ModelError

LOG = {
    "state": ["home", "work", "home", "work", "home"],
    "action": ["walk", "rest", "ride", "rest", "walk"],
    "next_state": ["work", "", "work", "home", "home"],
    "terminated": [False, True, False, False, False],
    "cost": [1.0, 0.0, 3.0, 2.0, 1.0],
    "episode": [0, 0, 1, 1, 1],
}


def test_a_model_carries_visits_of_pairs_and_successors() -> None:
    mdp = cm.from_transitions(LOG, 0.9, bounds={"cost": (0, 5)})
    counts = mdp.counts
    assert counts.total == 5
    # home: walk 2, rest 0, ride 1; work: rest 2, of which one ended
    np.testing.assert_array_equal(counts.visits, [[2, 0, 1], [0, 2, 0]])
    np.testing.assert_array_equal(counts.outcomes.toarray()[0], [1, 1, 0])
    np.testing.assert_array_equal(counts.outcomes.toarray()[4], [1, 0, 1])
    assert counts.outcomes.dtype == np.int64
    assert counts.available.all()
    np.testing.assert_array_equal(mdp.actions, counts.visits > 0)
    np.testing.assert_array_equal(counts.initial, [2, 0])
    assert counts.signals["cost"].bounds == (0.0, 5.0)
    np.testing.assert_array_equal(counts.signals["cost"].sums, [[2, 0, 3], [0, 2, 0]])
    text = repr(mdp)
    assert (
        "visits per pair 0, 0, 0, 2, 2 (least, quartiles, most); 3 of 6 pairs never tried" in text
    )
    with pytest.raises(ValueError, match="read-only"):
        counts.outcomes.data[0] = 7


def test_counts_survive_files_copies_and_changes_that_do_not_contradict_them(tmp_path) -> None:
    mdp = cm.from_transitions(LOG, 0.9, supports=np.ones((2, 3, 3), dtype=bool))
    mdp.save(tmp_path / "model")
    problem = cm.Problem(mdp, minimize=cm.linear("cost"))
    problem.save(tmp_path / "problem")
    for other in (
        cm.TabularMDP.load(tmp_path / "model"),
        cm.load_problem(tmp_path / "problem").mdp,
        pickle.loads(pickle.dumps(mdp)),
        copy.deepcopy(mdp),
    ):
        assert repr(other) == repr(mdp)
        assert (other.counts.outcomes != mdp.counts.outcomes).nnz == 0
        assert other.counts.supports.toarray().all()
        np.testing.assert_array_equal(other.counts.initial, [2, 0])
        np.testing.assert_array_equal(
            other.counts.signals["cost"].sums, mdp.counts.signals["cost"].sums
        )
        assert other.counts.treatment == mdp.counts.treatment
    more = mdp.with_signals(distance=np.ones((2, 3)))
    assert set(more.counts.signals) == {"cost"}  # the new one is known
    assert not mdp.with_signals(cost=np.zeros((2, 3))).counts.signals
    assert mdp.replace(initial=1).counts.initial is None  # declared now
    assert mdp.replace(transition=mdp.transition).counts is None
    assert mdp.unroll(3).counts is None
    narrow = mdp.replace(actions=mdp.actions & [[True, True, False], [True] * 3])
    assert narrow.counts.total == 4


def test_what_is_declared_is_kept_and_held_against_the_rows() -> None:
    mdp = cm.from_transitions(
        LOG,
        0.9,
        known={"price": lambda state, action: {"walk": 1.0, "ride": 3.0}.get(action, 7.0)},
        signals=(),
        actions=lambda state: ["walk", "ride"] if state == "home" else ["rest"],
        supports=lambda state, action: ["home", "work", None],
    )
    assert not mdp.counts.signals
    assert mdp.signal("price")[0, 2] == 3.0
    np.testing.assert_array_equal(mdp.counts.available, [[True, False, True], [False, True, False]])
    assert mdp.counts.supports.nnz == 9
    exact = cm.from_transitions({**LOG, "cost": [1, 4, 3, 4, 1]}, 0.9, known=["cost"])
    assert exact.counts.signals["cost"].exact
    with pytest.raises(ModelError, match=r"row 3: cost is 2 .*'work'.*'rest', but known= says 0"):
        cm.from_transitions(LOG, 0.9, known=["cost"])
    with pytest.raises(ModelError, match=r"(?s)row 1: cost is 0 .*row 3: cost is 2 .* says 1"):
        cm.from_transitions(LOG, 0.9, known={"cost": lambda s, a: 3.0 if a == "ride" else 1.0})
    with pytest.raises(ModelError, match=r"row 2: cost is 3, outside bounds 0 to 2"):
        cm.from_transitions(LOG, 0.9, bounds={"cost": (0, 2)})
    with pytest.raises(ModelError, match=r"row 2: action 'ride' is not available in state 'home'"):
        cm.from_transitions(LOG, 0.9, actions=lambda s: ["walk"] if s == "home" else ["rest"])
    with pytest.raises(
        ModelError, match=r"row 1: state 'work', action 'rest' ended, which supports"
    ):
        cm.from_transitions(LOG, 0.9, supports=lambda state, action: ["home", "work"])
    with pytest.raises(ModelError, match=r"bounds\['cost'\] must be \(least, largest\)"):
        cm.from_transitions(LOG, 0.9, bounds={"cost": 3})
    with pytest.raises(ModelError, match=r"no column 'costs'. Did you mean 'cost'"):
        cm.from_transitions(LOG, 0.9, bounds={"costs": (0, 3)})


def test_dirty_rows_come_together_with_their_lines(tmp_path) -> None:
    lines = [f"{row % 2},0,{(row + 1) % 2},false,1.0" for row in range(40)]
    for row in range(5, 30, 2):
        lines[row] = "1,0,0,false,n/a?"
    lines[3], lines[4] = "1,zero,0,false,1.0", "0,0"
    path = tmp_path / "log.csv"
    path.write_text("state,action,next_state,terminated,cost\n" + "\n".join(lines) + "\n")
    with pytest.raises(ModelError) as caught:
        cm.from_transitions(path, 0.9)
    told = str(caught.value).splitlines()
    assert told[0] == "log.csv, 15 lines cannot be used:"
    assert told[1].startswith("  line 5: action is 'zero'; expected a number; 38 other rows")
    assert told[1].endswith("If names are meant, give all of them names: 's1' for 1")
    assert told[2].startswith("  line 6: 2 values for the 5 columns")
    assert told[3].startswith("  line 7: cost is 'n/a?'; expected a number")
    assert len(told) == 12
    assert told[-1] == "  and 5 more"


def test_an_action_that_looks_misspelled_is_asked_about() -> None:
    table = {**LOG, "action": ["walk", "rest", "Walk", "rest", "walk"]}
    with pytest.raises(ModelError, match=r"row 2: action 'Walk' appears only .* 'walk' \(2 rows\)"):
        cm.from_transitions(table, 0.9)
    both = cm.from_transitions(table, 0.9, actions=["walk", "Walk", "rest"])
    assert both.action_names == ("walk", "Walk", "rest")
    with pytest.raises(ModelError, match=r"row 2: action 'Walk' is not one of actions=\['walk'"):
        cm.from_transitions(table, 0.9, actions=["walk", "rest"])
    letters = {**LOG, "action": ["up1", "up2", "up1", "up1", "east"]}  # nobody misspells a number
    assert cm.from_transitions(letters, 0.9).n_actions == 3


def test_other_slips_of_the_pen_are_asked_about(tmp_path) -> None:
    head = "state,action,next_state,terminated,cost\n"
    body = "".join(f"s{row % 2},stay,s{(row + 1) % 2},false,1\n" for row in range(20))
    path = tmp_path / "log.csv"
    path.write_text(head + body + "s1,stya,s0,false,1\n")
    with pytest.raises(ModelError, match=r"line 22: action 'stya' appears only .* 'stay'"):
        cm.from_transitions(path, 0.9)
    path.write_text(head + body + "s1,stay,S0,false,1\n")
    with pytest.raises(ModelError, match=r"line 22: state 'S0' appears only here .* 's0' \("):
        cm.from_transitions(path, 0.9)
    path.write_text((head + body).replace(",", ";").replace(";1\n", ";0,5\n"))
    with pytest.raises(ModelError, match=r"line 2: cost is '0,5'; write numbers with a decimal"):
        cm.from_transitions(path, 0.9)
    path.write_bytes((head + body).encode("utf-16"))
    with pytest.raises(ModelError, match=r"log.csv is not text in UTF-8; save it"):
        cm.from_transitions(path, 0.9)


def test_a_table_of_probabilities_is_no_log() -> None:
    table = {**LOG, "probability": [0.5] * 5}
    told = r"table of a known model.*kind = \"probabilities\".*from_table.*signals="
    with pytest.raises(ModelError, match=told):
        cm.from_transitions(table, 0.9)
    assert cm.from_transitions(table, 0.9, signals=["cost"]).counts.total == 5


def test_small_and_strange_logs_have_defined_answers() -> None:
    nothing = {name: np.array([]) for name in ("state", "action", "next_state", "terminated")}
    with pytest.raises(ModelError, match="has no rows"):
        cm.from_transitions(nothing, 0.9)
    known = {"reward": np.array([[1.0, 2.0], [3.0, 4.0]])}
    empty = cm.from_transitions(nothing, 0.9, n_states=2, n_actions=2, initial=0, known=known)
    assert empty.counts.total == 0
    assert empty.counts.unknown.all()
    solution = cm.solve(cm.Problem(empty, maximize=cm.linear("reward")))
    assert solution.objective == pytest.approx(
        10.0
    )  # nothing is known but that no reward is below 1
    one = cm.from_transitions(
        {"state": [0], "action": [0], "next_state": [0], "terminated": [False], "reward": [2.0]},
        0.5,
    )
    assert cm.solve(cm.Problem(one, maximize=cm.linear("reward"))).objective == pytest.approx(4.0)
    contradicting = {
        "state": [0, 0, 0],
        "action": [0, 0, 0],
        "next_state": [0, 0, 0],
        "terminated": [True, False, True],
        "truncated": [True, False, False],  # a row that ended is no cut
    }
    mixed = cm.from_transitions(contradicting, 0.9)
    np.testing.assert_array_equal(mixed.counts.outcomes.toarray(), [[1, 2]])
    assert mixed.ending[0, 0] == pytest.approx(2 / 3)
    rare = np.zeros(2_000_001, dtype=int)  # one end in two million steps is an end, not rounding
    seldom = cm.from_transitions(
        {
            "state": rare,
            "action": rare,
            "next_state": rare,
            "terminated": np.arange(rare.size) == 9,
        },
        0.9,
    )
    assert 0 < seldom.ending[0, 0] < 1e-6


def test_a_policy_of_one_estimate_is_used_on_another_by_name(tmp_path) -> None:
    first = cm.from_transitions(LOG, 0.9)
    policy = cm.solve(cm.Problem(first, minimize=cm.linear("cost"))).policy
    assert policy.state_names == ("home", "work")
    assert policy.action_names == ("walk", "rest", "ride")
    policy.save(tmp_path / "policy")
    again = cm.load_policy(tmp_path / "policy")
    assert again.state_names == policy.state_names
    # the same states in another order, and one more
    other = {name: values[::-1] for name, values in LOG.items() if name != "episode"}
    other = {**other, "state": ["pub", *other["state"][1:]]}
    second = cm.from_transitions(other, 0.9)
    assert second.state_names[0] == "pub"
    with pytest.warns(
        cm.CvxmdpWarning, match=r"does not know 1 of 3 states \('pub'\); there .* unif"
    ):
        x = cm.occupancy_of(second, again)
    home, work = (second.state_names.index(name) for name in ("home", "work"))
    chosen = {name: second.action_names.index(name) for name in ("walk", "rest", "ride")}
    row = policy.probabilities()[0]
    share = x[home] / x[home].sum()
    assert share[chosen["walk"]] == pytest.approx(row[0])
    assert share[chosen["ride"]] == pytest.approx(row[2])
    assert x[work, chosen["rest"]] == pytest.approx(x[work].sum())
    strange = {**LOG, "action": ["go", "rest", "go", "rest", "go"]}
    with pytest.raises(
        cm.PolicyError, match=r"in state 'home' the policy takes .*; the model knows"
    ):
        cm.occupancy_of(cm.from_transitions(strange, 0.9), policy)


def test_no_estimate_is_called_known() -> None:
    """Not after a change that its counts do not survive, and not where a model is known up to an error."""
    rows = {"state": [0, 1, 0], "action": [0, 0, 1], "next_state": [1, 0, 0]}
    rows |= {"reward": [1.0, 0.0, 0.0], "terminated": [False] * 3, "episode": [0] * 3}
    estimate = cm.from_transitions(rows, 0.9)
    exact = cm.TabularMDP(
        np.full((2, 1, 2), 0.5),
        discount=0.9,
        initial=[1.0, 0.0],
        signals={"reward": np.ones((2, 1))},
    )
    for mdp, words in {
        estimate: "the model is an estimate",
        estimate.ending_at([1]): "the model is an estimate",
        exact.uncertain(0.05): "the model is known up to 0.05",
        exact: "the model is known, ",
    }.items():
        solution = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward")))
        assert solution.stats["chosen"].startswith(words)


def test_a_log_that_was_appended_to_itself_is_asked_about() -> None:
    random = np.random.default_rng(0)
    log = {name: random.integers(0, 3, 60) for name in ("state", "action", "next_state")}
    log |= {"terminated": np.zeros(60, bool), "cost": random.random(60), "hit": np.arange(60) % 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cm.from_transitions(log, 0.9, initial=0)
        # What only names things repeats itself, and so does a function of what is named.
        named = {n: np.tile(v, 2) for n, v in log.items() if n != "cost"}
        cm.from_transitions(named, 0.9, initial=0)
        chain = {"state": range(60), "action": [0] * 60, "next_state": [*range(1, 60), 0]}
        chain |= {"terminated": [False] * 60, "height": np.sqrt(np.arange(60))}
        cm.from_transitions({name: np.tile(one, 2) for name, one in chain.items()}, 0.9)
    with pytest.warns(CvxmdpWarning, match="60 of 120 rows repeat another .* digit of cost"):
        cm.from_transitions({name: np.tile(one, 2) for name, one in log.items()}, 0.9, initial=0)


def walked(shuffled: bool = False) -> dict[str, np.ndarray]:
    """Episodes of sixty steps that begin on a ramp, which is left for a yard."""
    random, rows = np.random.default_rng(0), []
    for _ in range(100):
        place = "ramp"
        for step in range(60):
            stays = random.random() < (0.8 if place == "ramp" else 0.95)
            after = place if stays else {"ramp": "yard", "yard": "ramp"}[place]
            rows.append((place, "go", after, False, step == 59, float(place == "ramp"), step))
            place = after
    order = random.permutation(len(rows)) if shuffled else np.arange(len(rows))
    names = ("state", "action", "next_state", "terminated", "truncated", "cost", "time")
    return {
        name: np.array(column)[order]
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }


@pytest.mark.parametrize("without", ["truncated", "cost"])
def test_shuffled_rows_tell_no_first_states(without) -> None:
    rows, mixed = ({n: c for n, c in walked(s).items() if n != without} for s in (False, True))
    np.testing.assert_array_equal(cm.from_transitions(rows, 0.9).initial, [1, 0])
    with pytest.raises(ModelError, match=r"in no order.*give initial="):
        cm.from_transitions(mixed, 0.9)


def test_a_clock_is_no_signal_and_a_duration_is_one() -> None:
    rows = walked()
    assert set(cm.from_transitions(rows, 0.9).signals) == {"cost"}
    lasted = {**rows, "time": rows["cost"] + 1.0}
    assert set(cm.from_transitions(lasted, 0.9).signals) == {"cost", "time"}


def test_ids_with_zeros_in_front_are_names(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("state,action,next_state,terminated\n01,a,1,0\n1,a,01,0\n01,a,1,0\n")
    assert cm.from_transitions(path, 0.9).state_names == ("01", "1")


GAPS = {
    "state": [0, 1, 3] * 20,
    "action": [0] * 60,
    "next_state": [0] * 60,
    "terminated": [False] * 60,
    "truncated": [True] * 60,
}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"supports": lambda s, a: [0, 2], "initial": 0}, r"state 2 may follow.*give n_states=4"),
        ({"initial": 2}, "begins in state 2, which no row names: the log's states are 0 to 3"),
        ({"supports": lambda s, a: None, "initial": 0}, "supports= gave None for 0, 0"),
        ({"actions": lambda s: 3, "initial": 0}, "actions= gave 3 for 0"),
        ({"known": {"k": lambda s: 1.0}, "initial": 0}, "could not be called with 0, 0"),
        (
            {"known": {"k": lambda s, a: "x"}, "initial": 0},
            "gave 'x' for .0, 0.; expected a number",
        ),
        ({"known": {"k": {0: 1.0}}, "initial": 0}, r"known\['k'\].*an array of real numbers"),
    ],
)
def test_what_is_declared_is_read_or_refused(declared, message) -> None:
    with pytest.raises(ModelError, match=message):
        cm.from_transitions(GAPS, 0.9, **declared)


def test_numbers_that_are_promised_are_states() -> None:
    mdp = cm.from_transitions(
        GAPS, 0.9, initial=0, n_states=4, supports=lambda s, a: [0, 2], known={"k": lambda s, a: s}
    )
    np.testing.assert_array_equal(mdp.signal("k").ravel(), [0, 1, 2, 3])


def test_supports_of_a_model_go_by_name() -> None:
    """The log numbers states in the order it saw them, the model in its own."""
    true = cm.TabularMDP(
        [[[0.9, 0.1], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]],
        "a",
        0.9,
        state_names=["a", "b"],
        action_names=["x", "y"],
    )
    rows = [("b", "y", "a"), ("b", "x", "b"), ("a", "x", "b"), ("a", "y", "a")]
    table = dict(
        zip(("state", "action", "next_state"), map(list, zip(*rows, strict=True)), strict=True)
    )
    table |= {"terminated": [False] * 4, "truncated": [True] * 4}
    supports = cm.from_transitions(table, 0.9, initial="a", supports=true).counts.supports
    assert supports.toarray().sum(axis=1).tolist() == [2, 1, 2, 2]  # (b, y), (b, x), (a, y), (a, x)
    wrong = {**table, "next_state": ["a", "a", "b", "a"]}
    with pytest.raises(
        ModelError, match="state 'b', action 'x' led to 'a', which supports= rules out"
    ):
        cm.from_transitions(wrong, 0.9, initial="a", supports=true)


def test_an_end_that_was_declared_is_a_promise_and_an_unknown_state_is_named() -> None:
    rows = {
        "state": ["a"] * 40,
        "action": ["x"] * 40,
        "next_state": ["a"] * 30 + ["gone"] * 10,
        "terminated": [False] * 40,
        "truncated": [True] * 40,
        "cost": [1.0] * 40,
    }
    ended = cm.from_transitions(rows, 0.9, initial="a", unknown="end", bounds={"cost": (0, 1)})
    problem = cm.Problem(ended, minimize=cm.linear("cost"))
    assert any("'gone'" in one for one in cm.certify(problem, cm.solve(problem)).assumes)
    known = cm.from_transitions(rows, 0.9, initial="a", known=["cost"])
    asked = cm.Problem(
        known, minimize=cm.linear("cost"), subject_to={"cost": cm.linear("cost") <= 100.0}
    )
    said = cm.solve(asked, cautious=0.95).message
    assert "Nobody left the state 'gone'" in said
    assert "bounds={'cost': (least, largest)}" in said
    assert "times" not in said
