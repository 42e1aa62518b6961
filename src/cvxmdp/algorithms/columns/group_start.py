r"""Where descents of the smoothed dual begin on large, slowly mixing models: at what groups of states say.

Groups are those of ``aggregates``. A group does what its states do in the mean, has as much room in constraints
as its best state (in the mean there may be none: hazards in every group), and counts as many times as it has
states: q(s) = q(group) / size. Its dual is descended first, on groups of groups before that, and so on (a
cascade from coarse to fine). What is right over long distances is cheap there, and values of groups, evened out
over neighbours, are where the states' own descent begins: on a grid of 500 x 500 a quarter of the time. Bounds
hold for any values: nothing has to be close, and where actions of neighbours mean different things nothing is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from cvxmdp.algorithms.columns.aggregates import Aggregates
from cvxmdp.algorithms.columns.column_places import HostPlace
from cvxmdp.algorithms.columns.smoothed_dual import WARMTH, DualTerms, SmoothedDual
from cvxmdp.models.episode_flow import DiscountedFlow
from cvxmdp.models.systems import product

FEWEST = 500  # groups that are not grouped once more
TEMPERATURES = (0.25, 0.1)  # of descents on groups, each around the policy of the one before
EVALUATIONS = 150  # of each
EVENED = 2  # sweeps over neighbours


def begin(dual: SmoothedDual) -> None:
    """Put values and multipliers where descents on groups ended, if that is better than zero."""
    flow, put = dual.model, dual.place.put
    if not isinstance(flow, DiscountedFlow) or not dual.aggregates.parents:
        return
    groups = [np.asarray(part) for part in dual.aggregates.parents]
    scales = [np.asarray(part) for part in dual.aggregates.scales]
    found = _begun(flow, dual.terms, Aggregates(groups, scales))
    with dual.place.precision(), np.errstate(divide="ignore"):
        dual.prior = put(np.log(flow.uniform))
        nothing = dual.at(put(dual.values), dual.multipliers).value
        if dual.at(put(found[0]), found[1]).value < nothing:
            dual.values, dual.multipliers = found


def _begun(
    flow: DiscountedFlow, terms: DualTerms, aggregates: Aggregates
) -> tuple[np.ndarray, np.ndarray]:
    """Values (S,) and multipliers (n,); zero where there are few states, or no groups of them."""
    nothing = np.zeros(flow.shape[0]), np.zeros(len(terms.slacks))
    if not aggregates.parents or flow.shape[0] <= FEWEST:
        return nothing
    parent, scale = aggregates.parents[0], float(aggregates.scales[0].mean())
    coarse, of_groups = _grouped(flow, terms, parent)
    rest = Aggregates(aggregates.parents[1:], [one / scale for one in aggregates.scales[1:]])
    dual = SmoothedDual(of_groups, np.ones(nothing[1].size), HostPlace(coarse.oracle()), rest)
    dual.values, dual.multipliers = _begun(coarse, of_groups, rest)
    policy = coarse.uniform
    for temperature in TEMPERATURES:
        gap = temperature * dual.factor / WARMTH
        policy = dual.descend(policy, gap, EVALUATIONS).policy
    values, chain = dual.values[parent], flow.chain(flow.uniform)
    for _ in range(EVENED):
        values = product(chain, values)
    return values, dual.multipliers


def _grouped(
    flow: DiscountedFlow, terms: DualTerms, parent: np.ndarray
) -> tuple[DiscountedFlow, DualTerms]:
    """The model and the dual of groups."""
    (states, actions), groups = flow.shape, int(parent.max()) + 1
    pairs = np.flatnonzero(flow.actions)
    rows = parent[pairs // actions] * actions + pairs % actions
    counts = np.bincount(rows, minlength=groups * actions)
    shares = (1.0 / counts[rows], (rows, pairs))
    mean = sp.csr_array(shares, shape=(groups * actions, states * actions))
    entries = (flow.transition.data, parent[flow.transition.indices], flow.transition.indptr)
    arriving = sp.csr_array(entries, shape=(states * actions, groups))
    known = (counts > 0).reshape(groups, actions)

    def averaged(table: np.ndarray) -> np.ndarray:
        finite = np.where(flow.actions, np.asarray(table), 0.0)
        return np.asarray(mean @ finite.ravel()).reshape(groups, actions)

    def best(table: np.ndarray) -> np.ndarray:
        found = np.full(groups * actions, -np.inf)
        np.maximum.at(found, rows, table.ravel()[pairs])
        return np.where(known, found.reshape(groups, actions), 0.0)

    def added(numbers: np.ndarray) -> np.ndarray:
        return np.bincount(parent, numbers, minlength=groups)

    coarse = replace(
        flow,
        transition=sp.csr_array(mean @ arriving),
        initial=added(flow.initial),
        actions=known,
    )
    weights = np.exp(np.asarray(terms.logs)).reshape(states, -1)
    sizes = np.stack([added(column) for column in weights.T], axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(sizes).ravel()
    of_groups = replace(
        terms,
        map=terms.map.of_groups(groups),
        reward=np.where(known, averaged(terms.reward), -np.inf),
        slacks=[best(np.asarray(slack)) for slack in terms.slacks],
        logs=logs,
        anchor=added(np.asarray(terms.anchor)),
    )
    return coarse, of_groups
