r"""Policies that find out: optimistic about what was seen seldom, or after it for its own sake.

A model of counts n(s, a) and shares p^ is one of many that the same counts allow. Three questions are asked of
them:

- the *optimist*: what is best for a reward r if every row may be the best one within KL(p^ || p) <= 1.5 / n,

      V(s) = max_a r(s, a) + gamma max_p p.V,

  over the successors that were seen, and over all states where a pair was tried fewer than ten times;
- the *explorer*: what is best for the reward 1 / (1 + n), a pair that was never tried being worth 1 / (1 -
gamma); - what is the largest probability, discounted, of *meeting* a pair that was tried fewer than ten times.

This is practice, not proof: radii that hold with a stated confidence explore far too much.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.experience.confidence import Balls, Extreme
from cvxmdp.models.counts import Counts
from cvxmdp.models.systems import solve_discounted
from cvxmdp.models.table import TabularMDP

FEW = 10  # visits below which a pair counts as hardly known
RADIUS = 1.5  # over visits: of the optimist's ball
TIE = 1e-9  # relative difference below which two actions are as good
ROUNDS = 12  # of policy iteration, at most
SETTLED = 1e-3  # of the reward's range: what a better policy must gain per step


class Optimist(NamedTuple):
    """What an optimist does.

    Attributes:
        values: V, (S,), to begin the next search with.
        actions: greedy, (S,).
    """

    values: np.ndarray
    actions: np.ndarray


def optimist(
    counts: Counts, reward: np.ndarray, discount: float, guess: np.ndarray | None = None
) -> Optimist:
    """Policy iteration: the best rows for the values, the best actions for the rows, their values.

    Args:
        counts: what was seen.
        reward: r, (S, A), read where a pair was tried; any other is worth the largest of those.
        discount: gamma.
        guess: values of an earlier search.
    """
    n_states, n_actions = counts.available.shape
    tried = counts.tried
    seen = reward[tried]
    if not seen.size:
        return Optimist(np.zeros(n_states), counts.available.argmax(axis=1))
    hopeful = np.where(tried, reward, seen.max())
    balls = hopeful_balls(counts)
    unavailable = ~counts.available
    values = np.zeros(n_states) if guess is None else guess
    enough = SETTLED * max(float(np.ptp(seen)), 1e-12)
    actions = counts.available.argmax(axis=1)
    for _ in range(ROUNDS):
        best = balls.largest(np.append(values, 0.0)[:, None])
        choices = hopeful + discount * best.bound.reshape(hopeful.shape)
        choices[unavailable] = -np.inf
        choices[~counts.listed] = 0.0
        actions = choices.argmax(axis=1)
        gained = choices.max(axis=1)
        if np.abs(gained - values).max() <= enough:
            return Optimist(gained, actions)
        rows = np.arange(n_states) * n_actions + actions
        chain = _rows_of(balls, best, rows)
        values = solve_discounted(chain[:, :n_states], hopeful.ravel()[rows], discount)
    return Optimist(values, actions)


def hopeful_balls(counts: Counts) -> Balls:
    """KL(p^ || p) <= 1.5 / n; over the successors seen, or over all of them where a pair was seldom tried."""
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


def _rows_of(balls: Balls, best: Extreme, rows: np.ndarray) -> sp.csr_array:
    """The distributions that reach the bounds, of some rows: (len(rows), outcomes)."""
    shape = balls.centres.shape
    parts = (best.chances[:, 0], balls.centres.indices, balls.centres.indptr)
    known = sp.csr_array(parts, shape=shape)[rows]
    place = (np.arange(len(rows)), best.top[rows, 0])
    return known + sp.csr_array((best.rest[rows, 0], place), shape=(len(rows), shape[1]))


def explorer(model: TabularMDP, counts: Counts, steps: int) -> np.ndarray:
    """The policy, (S, A), that gathers the most of 1 / (1 + n); actions that are as good are as likely.

    Args:
        model: the estimate.
        counts: what it rests on.
        steps: of an episode, beyond which nobody looks.
    """
    reward = np.where(counts.tried, 1.0 / (1.0 + counts.visits), model.horizon.longest)
    choices = _gathered(model, counts, counts.tried, reward, steps)
    best = choices.max(axis=1, keepdims=True)
    ties = choices >= best - TIE * (1.0 + np.abs(best))
    return np.asarray(ties / ties.sum(axis=1, keepdims=True))


def meeting(model: TabularMDP, counts: Counts, steps: int) -> float:
    """The largest discounted probability of meeting a pair that was tried fewer than ten times."""
    known = counts.visits >= FEW
    choices = _gathered(model, counts, known, np.where(known, 0.0, 1.0), steps)
    return float(np.clip(model.initial @ choices.max(axis=1), 0.0, 1.0))


def _gathered(
    model: TabularMDP, counts: Counts, known: np.ndarray, reward: np.ndarray, steps: int
) -> np.ndarray:
    """What can be gathered within so many steps where every pair that is not known ends the episode, (S, A)."""
    stays = sp.diags_array(known.ravel().astype(np.float64))
    transition = sp.csr_array(stays @ model.transition) * model.discount
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


def standard_errors(
    model: TabularMDP, counts: Counts, policy: np.ndarray, slopes: np.ndarray
) -> np.ndarray:
    """How far the counts' own noise moves <r_i, x> of a policy, (n,).

    To first order x moves by its visits times what one more draw of a row is worth, so that the variance is
    the sum over rows of x(s,a)^2 gamma^2 Var_p^(V_i) / n(s,a), V_i the values of r_i, and Var_rho(V_i) /
    episodes.

    Args:
        model: the estimate.
        counts: what it rests on.
        policy: (S, A).
        slopes: r_i, (n, S, A).
    """
    flow, discount = model.flow, model.discount
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
