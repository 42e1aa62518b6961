"""Tabular models: three forms of one model, endings, masks, signals, and every bad input."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpError, ModelError

# Two states, two actions. Action 1 of state 0 ends the episode with probability 1/2.
DENSE = np.array([[[0.25, 0.75], [0.5, 0.0]], [[0.0, 1.0], [0.4, 0.6]]])
INDICES = np.array([[[1, 0], [0, -1]], [[1, 1], [0, 1]]])  # -1 pads, 1 comes twice
CHANCES = np.array([[[0.75, 0.25], [0.5, 0.0]], [[0.5, 0.5], [0.4, 0.6]]])
INITIAL = np.array([1.0, 0.0])
WHOLE = np.array([[[0.25, 0.75], [0.5, 0.5]], [[0.0, 1.0], [0.4, 0.6]]])  # no endings


def rows_of(dense: np.ndarray) -> np.ndarray:
    return dense.reshape(-1, dense.shape[2])


FORMS = {
    "dense": lambda: DENSE,
    "nested lists": lambda: DENSE.tolist(),
    "csr": lambda: sp.csr_array(rows_of(DENSE)),
    "csr matrix": lambda: sp.csr_matrix(rows_of(DENSE)),
    "coo": lambda: sp.coo_array(rows_of(DENSE)),
    "csc": lambda: sp.csc_array(rows_of(DENSE)),
    "lil": lambda: sp.lil_array(rows_of(DENSE)),
    "successor lists": lambda: (INDICES, CHANCES),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_model(form: str) -> None:
    mdp = cm.TabularMDP(FORMS[form](), INITIAL, 0.9)
    np.testing.assert_array_equal(mdp.dense_transition(), DENSE)
    np.testing.assert_array_equal(mdp.ending, [[0.0, 0.5], [0.0, 0.0]])
    assert mdp.transition.has_canonical_format
    assert mdp.transition.nnz == np.count_nonzero(DENSE)
    assert (mdp.n_states, mdp.n_actions, mdp.discount) == (2, 2, 0.9)
    assert mdp.max_mass == pytest.approx(10.0)


def test_initial_may_be_the_index_of_a_state() -> None:
    np.testing.assert_array_equal(cm.TabularMDP(DENSE, 1, 0.9).initial, [0.0, 1.0])


def test_duplicate_sparse_entries_are_summed() -> None:
    rows, columns = [0, 0, 1], [0, 0, 1]
    transition = sp.coo_array(([0.5, 0.5, 1.0], (rows, columns)), shape=(2, 2))
    mdp = cm.TabularMDP(transition, 0, 0.9)
    np.testing.assert_array_equal(mdp.transition.toarray(), np.eye(2))


# Immutability


@pytest.mark.parametrize("form", ["dense", "csr", "successor lists"])
def test_a_model_does_not_share_memory_with_what_it_was_given(form: str) -> None:
    given = copy.deepcopy(FORMS[form]())
    initial, reward = INITIAL.copy(), np.ones((2, 2))
    mask = np.ones((2, 2), dtype=bool)
    mdp = cm.TabularMDP(given, initial, 0.9, signals={"reward": reward}, actions=mask)
    numbers = given.data if sp.issparse(given) else given[1] if isinstance(given, tuple) else given
    numbers[...] = 0.125
    initial[:] = 0.5
    reward[:] = 7.0
    mask[:] = False
    np.testing.assert_array_equal(mdp.dense_transition(), DENSE)
    np.testing.assert_array_equal(mdp.initial, INITIAL)
    np.testing.assert_array_equal(mdp.signal("reward"), np.ones((2, 2)))
    assert mdp.actions.all()


def arrays_of(mdp: cm.TabularMDP) -> dict[str, np.ndarray]:
    return {
        "data": mdp.transition.data,
        "indices": mdp.transition.indices,
        "indptr": mdp.transition.indptr,
        "initial": mdp.initial,
        "actions": mdp.actions,
        "ending": mdp.ending,
        "signal": mdp.signal("reward"),
        "reachable": mdp.reachable,
    }


@pytest.mark.parametrize(
    "part",
    ["data", "indices", "indptr", "initial", "actions", "ending", "signal", "reachable"],
)
def test_arrays_of_a_model_are_read_only(part: str) -> None:
    mdp = cm.TabularMDP(DENSE, INITIAL, 0.9, signals={"reward": np.ones(2)})
    with pytest.raises(ValueError, match="read-only"):
        arrays_of(mdp)[part].flat[0] = 1


def test_attributes_and_signals_cannot_be_changed() -> None:
    mdp = cm.TabularMDP(DENSE, INITIAL, 0.9, signals={"reward": np.ones(2)})
    with pytest.raises(AttributeError, match=r"cannot be changed.*mdp\.replace\(discount=\.\.\.\)"):
        mdp.discount = 0.5
    with pytest.raises(AttributeError, match="cannot be changed"):
        del mdp.initial
    with pytest.raises(TypeError):
        mdp.signals["cost"] = np.zeros((2, 2))  # type: ignore[index]
    with pytest.raises(ValueError, match="read-only"):
        mdp.transition[0, 0] = 1.0
    with pytest.raises(AttributeError, match=r"mdp\.replace\(transition=\.\.\.\)"):
        mdp.transition.data = 2.0 * mdp.transition.data
    with pytest.raises(AttributeError, match="tried to set"):
        mdp.transition.resize((2, 2))
    assert mdp.transition.shape == (4, 2)
    doubled = 2.0 * mdp.transition
    doubled.data = mdp.transition.data.copy()  # what is computed from it is one's own
    assert (doubled != mdp.transition).nnz == 0


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda mdp: pickle.loads(pickle.dumps(mdp))]
)
def test_models_can_be_copied_and_sent_to_other_processes(duplicate) -> None:
    mdp = cm.gridworld(3, goal=8, hazards=[4])
    other = duplicate(mdp)
    np.testing.assert_array_equal(other.dense_transition(), mdp.dense_transition())
    np.testing.assert_array_equal(other.signal("hazard"), mdp.signal("hazard"))
    assert other.layout == mdp.layout
    assert other.action_names == mdp.action_names


def test_replace_makes_another_model() -> None:
    mdp = cm.TabularMDP(DENSE, INITIAL, 0.9, signals={"reward": [1.0, 2.0]}, state_names="ab")
    other = mdp.replace(discount=0.5).with_signals(cost=[3.0, 4.0])
    assert (mdp.discount, other.discount) == (0.9, 0.5)
    assert list(mdp.signals) == ["reward"]
    assert list(other.signals) == ["reward", "cost"]
    assert other.state_names == ("a", "b")


def test_replace_with_an_unknown_argument() -> None:
    with pytest.raises(ModelError, match="Did you mean 'discount'"):
        cm.TabularMDP(DENSE, INITIAL, 0.9).replace(discout=0.5)


# Endings and masks


def test_a_masked_action_is_not_an_ending() -> None:
    masked = cm.TabularMDP(WHOLE, INITIAL, 0.9, actions=[[True, False], [True, True]])
    assert masked.ending.sum() == 0.0
    assert masked.transition[[1]].nnz == 0
    zeros = WHOLE.copy()
    zeros[0, 1] = 0.0
    assert cm.TabularMDP(zeros, INITIAL, 0.9).ending[0, 1] == 1.0


def test_what_a_masked_row_holds_is_not_read() -> None:
    mask = np.array([[True, False], [True, True]])
    garbage = WHOLE.copy()
    garbage[0, 1] = [np.nan, -3.0]
    reward = np.array([[1.0, np.inf], [2.0, 3.0]])
    mdp = cm.TabularMDP(garbage, INITIAL, 0.9, actions=mask, signals={"reward": reward})
    np.testing.assert_array_equal(mdp.signal("reward"), [[1.0, 0.0], [2.0, 3.0]])
    assert np.isfinite(mdp.transition.data).all()


def test_reachable_follows_available_actions_and_endings() -> None:
    # 0 -> 1 by action 0, 0 -> 2 by action 1; 2 is absorbing; 3 leads to 0 but nothing leads to 3.
    targets = np.array([[1, 2], [1, 1], [2, 2], [0, 0]])[..., None]
    lists = (targets, np.ones(targets.shape))
    np.testing.assert_array_equal(cm.TabularMDP(lists, 0, 0.9).reachable, [True, True, True, False])
    mask = np.ones((4, 2), dtype=bool)
    mask[0, 1] = False
    masked = cm.TabularMDP(lists, 0, 0.9, actions=mask)
    np.testing.assert_array_equal(masked.reachable, [True, True, False, False])
    np.testing.assert_array_equal(masked.reachable_pairs[0], [True, False])


def test_a_model_that_ends_at_once() -> None:
    mdp = cm.TabularMDP(np.zeros((2, 1, 2)), 0, 0.9, signals={"reward": np.full((2, 1, 3), 4.0)})
    np.testing.assert_array_equal(mdp.signal("reward"), [[4.0], [4.0]])
    np.testing.assert_array_equal(mdp.reachable, [True, False])


@pytest.mark.parametrize("deficit", [0.0, 1e-13, -1e-13])
def test_rounding_is_not_an_ending(deficit: float) -> None:
    assert cm.TabularMDP(np.array([[[1.0 - deficit]]]), 0, 0.9).ending[0, 0] == 0.0


def test_a_small_deficit_above_rounding_is_an_ending() -> None:
    ending = cm.TabularMDP(np.array([[[1.0 - 2e-6]]]), 0, 0.9).ending[0, 0]
    assert ending == pytest.approx(2e-6, rel=1e-9)


def test_a_long_row_that_sums_to_one_is_not_a_deficit() -> None:
    # Adding 1e-5 a hundred thousand times, one after the other, misses one by 2e-12.
    size = 100_000
    pointers = np.concatenate([[0], np.full(size, size)])
    row = sp.csr_array((np.full(size, 1e-5), np.arange(size), pointers), shape=(size, size))
    assert cm.TabularMDP(row, 0, 0.9).ending[0, 0] == 0.0


# Signals


def test_signals_per_state_and_per_pair() -> None:
    mdp = cm.TabularMDP(DENSE, INITIAL, 0.9, signals={"s": [1.0, 2.0], "p": [[1, 2], [3, 4]]})
    np.testing.assert_array_equal(mdp.signal("s"), [[1.0, 1.0], [2.0, 2.0]])
    np.testing.assert_array_equal(mdp.signal("p"), [[1.0, 2.0], [3.0, 4.0]])
    assert mdp.signal("p").dtype == np.float64


# The value of each successor, and of the ending step in the last column; nan where it cannot happen.
VALUES = np.array(
    [[[10.0, 20.0, np.nan], [30.0, np.nan, 50.0]], [[np.inf, 60.0, np.nan], [70.0, 80.0, np.nan]]]
)
EXPECTED = [[2.5 + 15.0, 15.0 + 25.0], [60.0, 28.0 + 48.0]]


def values_in_lists() -> np.ndarray:
    values = np.take_along_axis(VALUES, np.maximum(INDICES, 0), axis=2)
    return np.concatenate([values, VALUES[..., 2:]], axis=2)


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("dense", VALUES),
        ("csr", VALUES),
        ("csr", sp.csr_array(rows_of(VALUES))),
        ("csr", sp.csc_matrix(rows_of(VALUES))),
        ("dense", sp.coo_array(rows_of(VALUES))),
        ("successor lists", values_in_lists()),
    ],
)
def test_signals_per_successor_are_averaged_with_the_ending_step(form: str, values) -> None:
    mdp = cm.TabularMDP(FORMS[form](), INITIAL, 0.9, signals={"reward": values})
    np.testing.assert_allclose(mdp.signal("reward"), EXPECTED, rtol=1e-15)


@pytest.mark.parametrize("columns", [2, 3])
def test_without_endings_the_ending_column_may_be_left_out(columns: int) -> None:
    values = np.arange(12.0).reshape(2, 2, 3)[..., :columns]
    mdp = cm.TabularMDP(WHOLE, INITIAL, 0.9, signals={"reward": values})
    expected = (WHOLE * values[..., :2]).sum(axis=2)
    np.testing.assert_allclose(mdp.signal("reward"), expected, rtol=1e-15)


def test_a_signal_per_successor_without_the_ending_step_is_refused() -> None:
    with pytest.raises(ModelError, match=r"\(S, A, S \+ 1\) = \(2, 2, 3\).*ending step"):
        cm.TabularMDP(DENSE, INITIAL, 0.9, signals={"reward": np.ones((2, 2, 2))})


@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 2), (2, 2, 4), (1, 2, 2), ()])
def test_a_signal_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match=r"signal 'reward' has shape.*expected \(S,\) = \(2,\)"):
        cm.TabularMDP(WHOLE, INITIAL, 0.9, signals={"reward": np.ones(shape)})


def test_a_signal_that_is_not_finite_names_the_place() -> None:
    with pytest.raises(ModelError, match=r"signal 'reward' is nan at state 1 \('b'\), action 0"):
        cm.TabularMDP(
            DENSE, INITIAL, 0.9, signals={"reward": [[1, 2], [np.nan, 4]]}, state_names=["a", "b"]
        )


@pytest.mark.parametrize("signal", ["text", [["a", "b"], ["c", "d"]], np.ones((2, 2)) * 1j])
def test_a_signal_that_is_not_made_of_real_numbers(signal) -> None:
    with pytest.raises(ModelError, match="signal 'reward' must be an array of real numbers"):
        cm.TabularMDP(DENSE, INITIAL, 0.9, signals={"reward": signal})


@pytest.mark.parametrize("name", ["", 3])
def test_signals_have_names(name) -> None:
    with pytest.raises(ModelError, match="signals have names"):
        cm.TabularMDP(DENSE, INITIAL, 0.9, signals={name: np.ones(2)})


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([np.ones(2), np.ones(2)], "a list of length 2"),
        (np.ones((2, 2)), r"an array of shape \(2, 2\)"),
        ("reward", "a str of length 6"),
        (1.0, "a float$"),
        ([], "a list of length 0"),
    ],
)
def test_signals_are_given_by_name(given, shown: str) -> None:
    message = f'signals must be a dictionary, such as signals={{"reward": array}}; got {shown}'
    with pytest.raises(ModelError, match=message):
        cm.TabularMDP(DENSE, INITIAL, 0.9, signals=given)


def test_unknown_signals() -> None:
    mdp = cm.TabularMDP(DENSE, INITIAL, 0.9, signals={"reward": np.ones(2), "cost": np.ones(2)})
    with pytest.raises(ModelError, match=r"no signal 'rewrad'. Did you mean 'reward'\?"):
        mdp.signal("rewrad")
    with pytest.raises(ModelError, match="Known: 'reward', 'cost'"):
        mdp.signal("zzz")
    with pytest.raises(ModelError, match="None are defined"):
        cm.TabularMDP(DENSE, INITIAL, 0.9).signal("reward")


# What it prints


def test_repr_tells_sizes_sparsity_and_endings() -> None:
    mdp = cm.TabularMDP(DENSE, INITIAL, 0.9, signals={"reward": np.ones(2)})
    for part in ("2 states", "2 actions", "0.9", "1.5 successors per row", "0.75 of the dense"):
        assert part in repr(mdp)
    assert "rows ends episodes" in repr(mdp)
    assert "reward" in repr(mdp)


def test_repr_of_a_masked_model_without_endings() -> None:
    mdp = cm.TabularMDP(WHOLE, INITIAL, 0.9, actions=[[True, False], [True, True]])
    assert "(3 pairs)" in repr(mdp)
    assert "no row ends an episode" in repr(mdp)
    assert "signals: none" in repr(mdp)


# Size: a dense table of this many states would take 640 GB


def test_a_large_model_is_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    to_dense = sp.csr_array.toarray

    def only_small(matrix: sp.csr_array, *arguments, **options) -> np.ndarray:
        assert np.prod(matrix.shape) < 10_000_000
        return to_dense(matrix, *arguments, **options)

    monkeypatch.setattr(sp.csr_array, "toarray", only_small)
    size = 200_000
    states = np.arange(size)
    targets = np.stack([np.minimum(states + 1, size - 1), np.maximum(states - 1, 0)], axis=1)
    lists = (targets[..., None], np.ones((size, 2, 1)))
    by_lists = cm.TabularMDP(lists, 0, 0.9, signals={"reward": np.ones((size, 2, 1))})
    rows = sp.csr_array((np.ones(2 * size), (np.arange(2 * size), targets.ravel())))
    by_rows = cm.TabularMDP(rows, 0, 0.9, signals={"reward": rows})
    assert by_lists.transition.nnz == 2 * size
    assert (by_lists.transition != by_rows.transition).nnz == 0
    np.testing.assert_array_equal(by_lists.signal("reward"), by_rows.signal("reward"))
    assert "200,000 states" in repr(by_lists)


# Bad input: each a ModelError that says what and where


def changed(entry: tuple[int, int, int], value: float) -> np.ndarray:
    dense = WHOLE.copy()
    dense[entry] = value
    return dense


BAD_TRANSITIONS = {
    "more than one": (changed((1, 0, 0), 0.5), "state 1, action 0 sum to 1.5, more than one"),
    "just more than one": (changed((1, 0, 1), 1 + 1e-9), "more than one"),
    "negative": (changed((0, 1, 0), -0.5), "state 0, action 1 to state 0 is -0.5.*negative"),
    "nan": (changed((1, 1, 0), np.nan), "state 1, action 1 to state 0 is nan.*not finite"),
    "inf": (changed((1, 1, 1), np.inf), "to state 1 is inf.*not finite"),
    "rounding": (changed((1, 0, 1), 1 - 1e-9), "rest of 1.0e-09 looks like rounding"),
    "rounding, larger": (changed((1, 0, 1), 1 - 9e-7), "looks like rounding"),
    "two dimensions": (np.eye(2), r"transition has shape \(2, 2\)"),
    "not square": (np.ones((2, 2, 3)) / 3, r"shape \(2, 2, 3\)"),
    "empty": (np.ones((0, 2, 0)), r"shape \(0, 2, 0\)"),
    "no actions": (np.ones((2, 0, 2)), r"shape \(2, 0, 2\)"),
    "ragged": ([[[1.0], [0.5, 0.5]]], "must be an array of real numbers"),
    "ragged pair": (([[1], [1, 2]], [[1], [1, 2]]), "must be an array of real numbers"),
    "text": ("transition", "must be an array of real numbers"),
    "complex": (WHOLE + 0.5j, "real numbers"),
    "sparse, rows": (sp.csr_array(np.ones((3, 2)) / 2), r"expected \(S\*A, S\)"),
    "sparse, empty": (sp.csr_array((0, 0)), r"expected \(S\*A, S\)"),
    "sparse, one dimension": (sp.coo_array(np.array([1.0, 0.0])), r"expected \(S\*A, S\)"),
    "sparse, complex": (sp.csr_array(rows_of(WHOLE) * 1j), "real numbers"),
    "sparse, nan": (sp.csr_array(rows_of(changed((0, 0, 0), np.nan))), "not finite"),
    "lists, shapes": ((INDICES, CHANCES[..., :1]), "of one shape"),
    "lists, float": ((INDICES.astype(float), CHANCES), "integer indices"),
    "lists, no entries": ((INDICES[..., :0], CHANCES[..., :0]), "describe no transition"),
    "lists, too large": ((INDICES + 2, CHANCES), "successor 3 of state 0, action 0 is not a state"),
    "lists, negative": ((INDICES - 2, CHANCES), "successor -1 of state 0, action 0"),
    "lists, cancelling": (
        (np.zeros((1, 1, 2), dtype=int), np.array([[[1.5, -0.5]]])),
        "-0.5, which is negative",
    ),
    "lists, text": ((INDICES, [*CHANCES.astype(str).tolist()[:1], ["a"]]), "real numbers"),
}


@pytest.mark.parametrize("case", BAD_TRANSITIONS)
def test_bad_transitions(case: str) -> None:
    transition, message = BAD_TRANSITIONS[case]
    with pytest.raises(ModelError, match=message):
        cm.TabularMDP(transition, 0, 0.9)


def malformed(kind: type, **parts: np.ndarray) -> sp.sparray:
    matrix = kind(rows_of(WHOLE))
    for name, part in parts.items():
        setattr(matrix, name, part)
    return matrix


@pytest.mark.parametrize(
    "matrix",
    [
        malformed(sp.csr_array, indices=np.full(7, 100_000_000, dtype=np.int32)),
        malformed(sp.csr_array, indices=np.full(7, -1, dtype=np.int32)),
        malformed(sp.csc_array, indices=np.full(7, 100_000_000, dtype=np.int32)),
        malformed(sp.csr_array, indptr=np.array([0, -2, -4, -5, -7], dtype=np.int32)),
        malformed(sp.csr_array, indptr=np.array([0, 4, 2, 5, 7], dtype=np.int32)),
    ],
)
def test_malformed_sparse_matrices_are_an_error_and_not_a_crash(matrix) -> None:
    with pytest.raises(ModelError, match="malformed"):
        cm.TabularMDP(matrix, 0, 0.9)


@pytest.mark.parametrize(
    ("discount", "message"),
    [
        (1.5, "at most 1; got 1.5"),
        (-0.1, "at least 0"),
        (np.nan, "got nan"),
        (np.inf, "got inf"),
        ("x", "must be a number.*got 'x'"),
        (None, "how far ahead to look is missing"),
        (10**400, "must be a number"),
        ([0.9], "must be a number"),
    ],
)
def test_bad_discounts(discount, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        cm.TabularMDP(WHOLE, 0, discount)


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        ([0.5, 0.4], "sums to 0.9, not to one"),
        ([0.5, 0.6], "sums to 1.1, not to one"),
        ([1.5, -0.5], "initial probability of state 1 is -0.5"),
        ([np.nan, 1.0], "state 0 is nan"),
        ([1.0, 0.0, 0.0], r"shape \(3,\)"),
        ([[1.0, 0.0]], r"shape \(1, 2\)"),
        (2, "initial: there is no state 2: states are 0 to 1"),
        (-1, "initial: there is no state -1"),
        (True, "initial: there is no state True"),
        (["a", "b"], "real numbers"),
    ],
)
def test_bad_initial_distributions(initial, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        cm.TabularMDP(WHOLE, initial, 0.9)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.ones((2, 3), dtype=bool), r"boolean array of shape \(2, 2\)"),
        (np.ones((2, 2)), "of type float64"),
        ([[True, True], [False, False]], "state 1 has no available action"),
    ],
)
def test_bad_masks(actions, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        cm.TabularMDP(WHOLE, 0, 0.9, actions=actions)


@pytest.mark.parametrize("what", ["state_names", "action_names"])
@pytest.mark.parametrize(
    ("names", "message"),
    [(["a", "a"], "'a' occurs twice"), (["a"], "has 1 names for 2"), ("abc", "has 3 names for 2")],
)
def test_bad_names(what: str, names, message: str) -> None:
    with pytest.raises(ModelError, match=f"{what}.*{message}"):
        cm.TabularMDP(WHOLE, 0, 0.9, **{what: names})


def test_messages_use_names() -> None:
    with pytest.raises(ModelError, match=r"state 1 \('full'\), action 0 \('serve'\) sum to 1.5"):
        cm.TabularMDP(
            changed((1, 0, 0), 0.5),
            0,
            0.9,
            state_names=["empty", "full"],
            action_names=["serve", "wait"],
        )


def test_a_layout_must_fit() -> None:
    with pytest.raises(ModelError, match="3 x 3 layout does not fit 2 states"):
        cm.TabularMDP(WHOLE, 0, 0.9, layout=cm.GridLayout(3, 3))
    with pytest.raises(ModelError, match="the walls of a layout"):
        cm.GridLayout(2, 1, walls=(2,))
    with pytest.raises(ModelError, match="at least one row"):
        cm.GridLayout(-2, -1)


def test_model_errors_are_value_errors_of_cvxmdp() -> None:
    assert issubclass(ModelError, CvxmdpError)
    assert issubclass(ModelError, ValueError)
