r"""Policies that find out: optimistic about what was seen seldom, or after it for its own sake.

A model of counts n(s, a) and shares p^ is one of many that the same counts allow. Three questions are asked of
them:

- the *optimist*: what looks best for a reward r to who goes on as planned, with values V, if each row may be
  the best one within KL(p^ || p) <= 6 / n: the actions that are largest in

      r(s, a) + gamma max_p p.V,

  over the successors that were seen, and over all states where a pair was tried fewer than ten times;
- the *explorer*: what is best for the reward 1 / (1 + n), a pair that was never tried being worth
  1 / (1 - gamma);
- what is the largest probability, discounted, of *meeting* a pair that was tried fewer than ten times.

This is practice, not proof: radii that hold with a stated confidence explore far too much. Who hopes in all
rows at once is drawn to long ways on which everything goes well, and leaves alone a single pair in the middle
of the best way that was unlucky in its first tries (18 tries of one pair of a frozen lake cost 15% that way).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from cvxmdp.experience.confidence import Balls
from cvxmdp.models.counts import Counts
from cvxmdp.models.table import TabularMDP

FEW = 10  # visits below which a pair counts as hardly known
RADIUS = 6.0  # over visits: of the optimist's ball
TIE = 1e-9  # relative difference below which two actions are as good
SETTLED = 1e-3  # of the reward's range: what a better policy must gain per step


def counts_of(model: TabularMDP) -> Counts:
    """What an estimate rests on."""
    assert model.counts is not None
    return model.counts


def optimist(model: TabularMDP, reward: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """The actions, (S,), of who hopes in one place, and goes on as planned.

    Args:
        model: the estimate.
        reward: r, (S, A), read where a pair was tried; any other is worth the largest of those.
        policy: the plan, (S, A).
    """
    counts = counts_of(model)
    seen = reward[counts.tried]
    if not seen.size:
        return np.asarray(counts.available.argmax(axis=1))
    values = model.flow.values(policy, np.where(counts.tried, reward, 0.0))
    best = hopeful_balls(counts).largest(np.append(values, 0.0)[:, None])
    choices = np.where(counts.tried, reward, seen.max())
    choices += model.discount * best.bound.reshape(choices.shape)
    choices[~counts.available] = -np.inf
    return np.asarray(choices.argmax(axis=1))


def hopeful_balls(counts: Counts) -> Balls:
    """KL(p^ || p) <= 6 / n; over the successors seen, or over all of them where a pair was seldom tried."""
    visits = counts.visits.ravel()
    shares = counts.outcomes.astype(np.float64)
    shares.data /= np.repeat(np.maximum(visits, 1), np.diff(shares.indptr))
    radius = np.where(visits > 0, RADIUS / np.maximum(visits, 1), np.inf)
    seen = counts.outcomes.astype(bool)
    often = np.repeat(visits >= FEW, np.diff(seen.indptr))
    lengths = np.where(visits >= FEW, np.diff(seen.indptr), 0)
    pointers = np.concatenate([[0], np.cumsum(lengths)])
    supports = sp.csr_array((seen.data[often], seen.indices[often], pointers), shape=seen.shape)
    ends = bool(counts.outcomes[:, [-1]].sum())  # where nothing ever ended, nobody hopes for it
    return Balls(shares, radius, np.append(counts.listed, ends), supports)


def explorer(model: TabularMDP, steps: int) -> np.ndarray:
    """The policy, (S, A), that gathers the most of 1 / (1 + n); actions that are as good are as likely.

    Args:
        model: the estimate.
        steps: of an episode, beyond which nobody looks.
    """
    counts = counts_of(model)
    reward = np.where(counts.tried, 1.0 / (1.0 + counts.visits), model.horizon.longest)
    choices = _gathered(model, counts.tried, reward, steps)
    best = choices.max(axis=1, keepdims=True)
    ties = choices >= best - TIE * (1.0 + np.abs(best))
    return np.asarray(ties / ties.sum(axis=1, keepdims=True))


def meeting(model: TabularMDP, steps: int) -> float:
    """The largest discounted probability of meeting a pair that was tried fewer than ten times."""
    known = counts_of(model).visits >= FEW
    choices = _gathered(model, known, np.where(known, 0.0, 1.0), steps)
    return float(np.clip(model.initial @ choices.max(axis=1), 0.0, 1.0))


def _gathered(model: TabularMDP, known: np.ndarray, reward: np.ndarray, steps: int) -> np.ndarray:
    """What can be gathered within so many steps where every pair that is not known ends the episode, (S, A)."""
    stays = sp.diags_array(known.ravel().astype(np.float64))
    transition = sp.csr_array(stays @ model.transition) * model.discount
    counts = counts_of(model)
    available = counts.available.copy()
    available[~counts.listed, 0] = True
    reward = np.where(available, reward, -np.inf)
    enough = SETTLED * float(reward.max())
    values = np.zeros(model.n_states)
    for _ in range(steps):
        choices = reward + (transition @ values).reshape(reward.shape)
        before, values = values, choices.max(axis=1)
        if np.abs(values - before).max() <= enough:
            break
    return np.asarray(choices)


def standard_errors(model: TabularMDP, policy: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """How far the counts' own noise moves <r_i, x> of a policy, (n,).

    To first order x moves by its visits times what one more draw of a row is worth, so that the variance is
    the sum over rows of x(s,a)^2 gamma^2 Var_p^(V_i) / n(s,a), V_i the values of r_i, and Var_rho(V_i) /
    episodes.

    Args:
        model: the estimate.
        policy: (S, A).
        slopes: r_i, (n, S, A).
    """
    flow, discount, counts = model.flow, model.discount, counts_of(model)
    x = flow.occupancy(policy)
    weight = np.where(counts.tried, (discount * x) ** 2 / np.maximum(counts.visits, 1), 0.0).ravel()
    found = []
    for slope in slopes:
        values = flow.values(policy, slope)
        mean, square = model.transition @ values, model.transition @ values**2
        variance = float(weight @ np.maximum(square - mean**2, 0.0))
        if counts.initial is not None and counts.initial.sum():
            start = model.initial @ values**2 - (model.initial @ values) ** 2
            variance += max(float(start), 0.0) / float(counts.initial.sum())
        found.append(np.sqrt(variance))
    return np.array(found)
