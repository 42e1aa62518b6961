"""Where descents begin on slowly mixing models: groups of states say what is far away."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.algorithms.columns import group_start
from cvxmdp.algorithms.columns.generation import Generation
from cvxmdp.certificates.claims import Claims


def safe_grid(side: int, shuffled: bool = False, of: str = "state") -> cm.Problem:
    """Safe exploration; ``shuffled``: actions have another order in every state."""
    middle = (side // 2) * side + side // 2
    rng = np.random.default_rng(0)
    drawn = rng.permutation(side * side)[: side * side // 10]
    hazards = [int(state) for state in drawn if state != middle]
    mdp = cm.gridworld(side, slip=0.1, discount=0.99, start=middle, hazards=hazards)
    if shuffled:
        orders = np.argsort(rng.random((mdp.n_states, mdp.n_actions)), axis=1)
        rows = np.arange(mdp.n_states)[:, None] * mdp.n_actions + orders
        hazard = mdp.signals["hazard"]
        mdp = cm.TabularMDP(
            sp.csr_array(mdp.flow.transition[rows.ravel()]),
            discount=0.99,
            initial=mdp.flow.initial,
            signals={"hazard": hazard},
        )
    budget = {"hazard": cm.linear("hazard", per="step") <= 0.05}
    return cm.Problem(mdp, maximize=cm.entropy(of=of), subject_to=budget)


def generation(problem: cm.Problem) -> Generation:
    return Generation(Claims.of(problem).lowered, 1e-2, 12)


def test_groups_are_a_model_of_their_own() -> None:
    found = generation(safe_grid(30))
    dual, flow = found.dual, found.model
    assert dual is not None
    parent = dual.aggregates.parents[0]
    coarse, terms = group_start._grouped(flow, dual.terms, parent)
    sums = np.asarray(coarse.transition.sum(axis=1)).ravel()
    np.testing.assert_allclose(sums, 1.0, atol=1e-12)
    assert coarse.initial.sum() == pytest.approx(1.0)
    # As many states as before, in fewer groups; those without hazards have their best state's room.
    assert np.exp(terms.logs).sum() == pytest.approx(np.exp(dual.terms.logs).sum())
    assert terms.slacks[0].max() == pytest.approx(dual.terms.slacks[0].max())


@pytest.mark.parametrize("of", ["state", "state-action"])
def test_they_begin_below_what_nothing_is_known_of(of: str) -> None:
    dual = generation(safe_grid(40, of=of)).dual
    assert dual is not None
    nothing = dual.at(dual.values, dual.multipliers).value
    group_start.begin(dual)
    assert dual.values.any()
    assert dual.at(dual.values, dual.multipliers).value < nothing


@pytest.mark.parametrize("shuffled", [False, True])
def test_answers_are_certified_whatever_the_actions_mean(shuffled: bool) -> None:
    solution = cm.solve(safe_grid(40, shuffled), cm.ColumnGeneration(tolerance=1e-2))
    assert solution.status is cm.Status.OPTIMAL
    assert solution.stats["iterations"] <= 8
    assert solution.objective == pytest.approx(7.39, rel=0.01)
