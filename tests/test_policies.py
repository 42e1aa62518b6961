"""Policies: the two tables, their samples, and every bad input."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import PolicyError
from cvxmdp.policies.policy import draw_actions

ROWS = np.array([[0.2, 0.0, 0.8], [0.0, 1.0, 0.0]])
MASK = np.array([[True, False, True], [True, True, True]])


def tabular() -> cm.TabularPolicy:
    return cm.TabularPolicy(ROWS)


def softmax() -> cm.SoftmaxTable:
    return cm.SoftmaxTable([[0.0, 99.0, np.log(3.0)], [1.0, 1.0, 1.0]], MASK)


@pytest.mark.parametrize("make", [tabular, softmax])
class TestEveryPolicy:
    """What holds for any of them."""

    def test_fulfils_the_protocol(self, make) -> None:
        policy = make()
        assert isinstance(policy, cm.Policy)
        assert (policy.n_states, policy.n_actions) == (2, 3)
        assert "2 states" in repr(policy)

    def test_one_row_or_all(self, make) -> None:
        matrix = make().probabilities()
        assert matrix.shape == (2, 3)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-15)
        np.testing.assert_array_equal(make().probabilities(1), matrix[1])

    def test_is_immutable(self, make) -> None:
        policy = make()
        with pytest.raises(ValueError, match="read-only"):
            policy.probabilities()[0, 0] = 1.0
        with pytest.raises(ValueError, match="read-only"):
            policy.probabilities(0)[0] = 1.0
        with pytest.raises(AttributeError, match="cannot be changed"):
            policy.params = np.zeros((2, 3))

    def test_can_be_copied(self, make) -> None:
        for other in (copy.deepcopy(make()), pickle.loads(pickle.dumps(make()))):
            np.testing.assert_array_equal(other.probabilities(), make().probabilities())

    def test_samples_follow_the_probabilities(self, make) -> None:
        random, draws = np.random.default_rng(0), 4_000
        counts = np.bincount([make().sample(0, random) for _ in range(draws)], minlength=3)
        chances = make().probabilities(0)
        errors = np.sqrt(draws * chances * (1 - chances))
        assert (np.abs(counts - draws * chances) <= 4 * errors).all()
        assert counts[1] == 0

    def test_the_same_generator_gives_the_same_samples(self, make) -> None:
        first, second = np.random.default_rng(5), np.random.default_rng(5)
        policy = make()
        assert [policy.sample(0, first) for _ in range(50)] == [
            policy.sample(0, second) for _ in range(50)
        ]


def test_tabular_keeps_the_numbers_and_shares_no_memory() -> None:
    given = ROWS.copy()
    policy = cm.TabularPolicy(given)
    given[:] = 0.5
    np.testing.assert_array_equal(policy.probabilities(), ROWS)
    assert "deterministic in 1" in repr(policy)


def test_softmax_closed_form_with_a_mask() -> None:
    expected = [[0.25, 0.0, 0.75], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(softmax().probabilities(), expected, rtol=1e-14)


def test_softmax_survives_extreme_logits() -> None:
    matrix = cm.SoftmaxTable([[1e4, 0.0], [-1e300, -1e300]]).probabilities()
    np.testing.assert_array_equal(matrix, [[1.0, 0.0], [0.5, 0.5]])


def test_softmax_ignores_the_logits_of_masked_actions() -> None:
    policy = cm.SoftmaxTable([[0.0, np.nan, 0.0], [0.0, 0.0, 0.0]], MASK)
    np.testing.assert_array_equal(policy.probabilities(0), [0.5, 0.0, 0.5])
    assert np.isfinite(policy.params).all()


def test_uniform_softmax() -> None:
    mask = [[True, False], [True, True]]
    matrix = cm.SoftmaxTable.uniform(mask).probabilities()
    np.testing.assert_array_equal(matrix, [[1.0, 0.0], [0.5, 0.5]])


class Fixed:
    """Stands for a generator whose next number is known."""

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self, size: tuple[int, ...]) -> np.ndarray:
        return np.full(size, self.number)


@pytest.mark.parametrize("number", [0.0, 0.5, 1.0 - 2.0**-53])
def test_an_action_of_probability_zero_is_never_drawn(number: float) -> None:
    chances = np.array([0.0, 0.1, 0.2, 0.7, 0.0])
    assert chances[draw_actions(chances, Fixed(number))] > 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.4]], "state 0 sum to 0.9, not to one"),
        ([[1.0, 0.0], [0.7, 0.7]], "state 1 sum to 1.4"),
        ([[1.5, -0.5]], "action 1 in state 0 is -0.5"),
        ([[np.nan, 1.0]], "action 0 in state 0 is nan"),
        ([[np.inf, 0.0]], "is inf"),
        ([0.5, 0.5], r"\(S, A\) matrix; got shape \(2,\)"),
        (np.ones((0, 2)), r"got shape \(0, 2\)"),
        (np.ones((2, 0)), r"got shape \(2, 0\)"),
        ([[1.0], [0.5, 0.5]], "real numbers"),
        ("policy", "real numbers"),
        (np.ones((1, 1)) + 0j, "real numbers"),
    ],
)
def test_bad_probabilities(matrix, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        cm.TabularPolicy(matrix)


THIRDS = np.full((4, 3), 1.0 / 3.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (THIRDS.T, r"columns do.*\(3, 4\) looks like \(A, S\).*policy\.T"),
        (
            THIRDS.astype(np.float32) * np.float32(1.000001),
            r"float32.*astype\(float\).*policy\.sum",
        ),
        (np.array([0, 2, 1, 0]), r"np\.eye\(A\)\[indices\]"),
        ([0, 2, 1, 0], r"np\.eye\(A\)\[indices\]"),
        (THIRDS * 3.0, "Divide each row"),
    ],
    ids=["transposed", "float32", "action indices", "list of indices", "not normalised"],
)
def test_the_error_says_how_to_make_it_a_policy(given, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        cm.TabularPolicy(given)


def test_the_hints_work() -> None:
    cm.TabularPolicy(np.eye(3)[np.array([0, 2, 1, 0])])
    cm.TabularPolicy(THIRDS.T.T)
    rough = (THIRDS.astype(np.float32) * np.float32(1.000001)).astype(float)
    cm.TabularPolicy(rough / rough.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("state", [99, -1, 1.5, "goal"], ids=str)
def test_a_state_that_does_not_exist(state) -> None:
    policy = cm.TabularPolicy(THIRDS)
    with pytest.raises(PolicyError, match=r"no state .*states are 0 to 3"):
        policy.probabilities(state)
    with pytest.raises(PolicyError, match=r"no state .*states are 0 to 3"):
        policy.sample(state, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("params", "actions", "message"),
    [
        ([0.0, 1.0], None, r"are \(S, A\); got shape \(2,\)"),
        ([[0.0, np.inf]], None, "logit of action 1 in state 0 is inf.*TabularPolicy"),
        ([[0.0, -np.inf]], None, "is -inf"),
        ([[np.nan, 0.0]], None, "is nan"),
        ([[0.0, 0.0]], [[True]], r"boolean of shape \(1, 2\)"),
        ([[0.0, 0.0]], [[1, 1]], "of type int"),
        ([[0.0, 0.0]], [[False, False]], "an action in every state"),
        ([["a", "b"]], None, "real numbers"),
        ([[1j, 0.0]], None, "real numbers"),
    ],
)
def test_bad_softmax_tables(params, actions, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        cm.SoftmaxTable(params, actions)
