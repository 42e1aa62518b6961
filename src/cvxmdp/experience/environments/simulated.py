"""Episodes of a tabular model, many at a time, and the policies that act in them."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from cvxmdp.base.errors import CvxmdpWarning, ExperienceError, PolicyError
from cvxmdp.experience.environments.environment import Actor, Environment
from cvxmdp.experience.episodes import Episodes
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies import TabularPolicy
from cvxmdp.policies.observers import ObservedPolicy
from cvxmdp.policies.timed_policy import table_policy


def actor_of(
    policy: Any,
    n_actions: int,
    seed: int,
    *,
    n_states: int | None = None,
    states: Callable[[np.ndarray], Any] = np.asarray,
    deterministic: bool = False,
    masks: Callable[[], np.ndarray | None] = lambda: None,
) -> Actor:
    """A policy at work, with its own random numbers; what was given is not changed where it is ours.

    Args:
        policy: one of ours, a solution, an (S, A) array, anything with ``predict``, or a function of one
            observation.
        n_actions: A.
        seed: of its random numbers; one trained elsewhere is seeded through its ``set_random_seed``.
        n_states: S, where observations are states.
        states: of what was read, for a table.
        deterministic: passed to ``predict``.
        masks: tells which actions are available now, (lanes, A); passed to a ``predict`` with ``action_masks``.
    """
    if hasattr(policy, "problem") and hasattr(policy, "policy"):
        policy = policy.policy
    if not hasattr(policy, "predict"):
        if callable(policy):
            return _function(policy, n_actions)
        policy = table_policy(policy)
    if isinstance(policy, TabularPolicy):
        if policy.n_actions != n_actions or n_states not in (None, policy.n_states):
            raise PolicyError(
                f"the policy is for {policy.n_states} states and {policy.n_actions} actions; there are "
                f"{n_states} and {n_actions} here"
            )
        ours = copy.copy(policy).seed(seed)

        def act(observations: Any, inputs: np.ndarray, begins: np.ndarray) -> np.ndarray:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CvxmdpWarning)  # here the greedy policy is meant
                chosen, _ = ours.predict(
                    states(inputs), episode_start=begins, deterministic=deterministic
                )
                return np.asarray(chosen)

        return act
    if isinstance(policy, ObservedPolicy):
        policy = copy.copy(policy)
    if callable(getattr(policy, "set_random_seed", None)):
        policy.set_random_seed(seed)
    return _foreign(policy, n_actions, deterministic, masks)


def actor_in(env: Environment, policy: Any, seed: int, deterministic: bool) -> Actor:
    """A policy at work in an environment: on its states, on bins of its observations, or on those."""
    if env.action_box is not None:
        return _in_box(getattr(policy, "policy", policy), env, seed, deterministic)
    given: dict[str, Any] = {
        "n_states": env.n_states,
        "states": env.states,
        "masks": lambda: env.masks,
    }
    return actor_of(policy, env.n_actions, seed, **given, deterministic=deterministic)


def _function(decide: Callable[[Any], Any], n_actions: int) -> Actor:
    """A function from one observation to its action, asked for every lane on its own."""

    def act(observations: Any, inputs: np.ndarray, begins: np.ndarray) -> np.ndarray:
        chosen = [decide(one) for one in _each(observations, len(inputs))]
        actions = np.asarray(chosen)
        if actions.shape != (len(inputs),) or actions.dtype.kind not in "iu":
            raise PolicyError(f"the policy gave {chosen[0]!r}; expected a whole number, the action")
        if ((actions < 0) | (actions >= n_actions)).any():
            raise PolicyError(f"the policy gave {chosen!r}; actions are 0 to {n_actions - 1}")
        return actions

    return act


def _in_box(policy: Any, env: Environment, seed: int, deterministic: bool) -> Actor:
    """A policy whose actions are vectors of numbers."""
    if isinstance(policy, ObservedPolicy):
        policy = copy.copy(policy)
    if callable(getattr(policy, "set_random_seed", None)):
        policy.set_random_seed(seed)
    assert env.action_box is not None
    shape = env.action_box[0].shape

    def act(observations: Any, inputs: np.ndarray, begins: np.ndarray) -> np.ndarray:
        answer = policy.predict(observations, deterministic=deterministic)
        actions = np.asarray(answer[0] if isinstance(answer, tuple) else answer)
        if actions.dtype.kind not in "fiu" or actions.size != len(inputs) * int(np.prod(shape)):
            raise PolicyError(
                f"predict gave {actions!r} for {len(inputs)} observations; expected for each a vector of the "
                f"shape {shape}"
            )
        return actions.reshape(len(inputs), *shape)

    return act


def _foreign(
    policy: Any, n_actions: int, deterministic: bool, masks: Callable[[], np.ndarray | None]
) -> Actor:
    known = inspect.signature(policy.predict).parameters
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
    extra: dict[str, Any] = {"deterministic": deterministic}
    extra = {name: value for name, value in extra.items() if name in known or open_ended}
    memory: dict[str, Any] = {"state": None}

    def act(observations: Any, inputs: np.ndarray, begins: np.ndarray) -> np.ndarray:
        lanes = len(inputs)
        single = _each(observations, lanes)[0] if lanes == 1 else None
        arguments, available = dict(extra), masks()
        if available is not None and "action_masks" in known:
            arguments["action_masks"] = available if single is None else available[0]
        if "episode_start" in known and "state" in known:
            arguments.update(state=memory["state"], episode_start=begins)
        try:
            answer = policy.predict(observations if single is None else single, **arguments)
            chosen, memory["state"] = answer if isinstance(answer, tuple) else (answer, None)
        except Exception:
            if single is not None:
                raise
            chosen = None  # one that only knows single observations
        actions = np.asarray(chosen)
        if lanes > 1 and actions.shape != (lanes,):
            actions = np.array([_single(policy, one, extra) for one in _each(observations, lanes)])
        elif actions.size == lanes:
            actions = actions.reshape(lanes)
        if actions.shape != (lanes,) or actions.dtype.kind not in "iu":
            raise PolicyError(
                f"predict gave {chosen!r} for {lanes} observations; expected one whole number "
                "for each, the action"
            )
        if ((actions < 0) | (actions >= n_actions)).any():
            raise PolicyError(f"predict gave {chosen!r}; actions are 0 to {n_actions - 1}")
        return actions

    return act


def _single(policy: Any, observation: Any, extra: dict[str, Any]) -> int:
    answer = policy.predict(observation, **extra)
    return int(np.asarray(answer[0] if isinstance(answer, tuple) else answer).reshape(()))


def _each(observations: Any, count: int) -> list[Any]:
    if isinstance(observations, tuple):
        return [tuple(part[lane] for part in observations) for lane in range(count)]
    return [observations[lane] for lane in range(count)]


class ModelSimulator:
    """Draws episodes of a model: successors by one search in the cumulated entries of all rows."""

    def __init__(self, mdp: TabularMDP) -> None:
        self.mdp = mdp
        self.cumulative = np.concatenate([[0.0], np.cumsum(mdp.transition.data)])

    def step(
        self, states: np.ndarray, actions: np.ndarray, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Next states, and where the episode ended."""
        mdp = self.mdp
        rows = states * mdp.n_actions + actions
        first, behind = mdp.transition.indptr[rows], mdp.transition.indptr[rows + 1]
        threshold = self.cumulative[first] + random.random(states.shape)
        entry = np.searchsorted(self.cumulative, threshold, side="right") - 1
        may_end = mdp.ending[states, actions] > 0
        ended = may_end & ((entry >= behind) | (first == behind))
        entry = np.clip(entry, first, np.maximum(behind - 1, first))
        entry = np.minimum(entry, max(mdp.transition.nnz - 1, 0))
        following = mdp.transition.indices[entry] if mdp.transition.nnz else states
        return np.where(ended, states, following), ended

    def episodes(
        self, act: Actor, count: int, horizon: int, random: np.random.Generator
    ) -> Episodes:
        """``count`` episodes of at most ``horizon`` steps."""
        mdp = self.mdp
        starts = np.cumsum(mdp.initial)
        states = np.searchsorted(starts, random.random(count) * starts[-1], side="right")
        inputs = np.zeros((count, horizon), dtype=np.int64)
        actions = np.zeros((count, horizon), dtype=np.int64)
        lengths = np.full(count, horizon)
        terminated = np.zeros(count, dtype=bool)
        begins = np.ones(count, dtype=bool)
        for step in range(horizon):
            chosen = act(states, states, begins)
            alive = ~terminated
            refused = alive & ~mdp.actions[states, chosen]
            if refused.any():
                lane = int(np.argmax(refused))
                raise ExperienceError(
                    f"the policy takes action {mdp.action_label(int(chosen[lane]))} in state "
                    f"{mdp.state_label(int(states[lane]))}, where it is not available"
                )
            inputs[:, step], actions[:, step] = states, chosen
            safe = np.where(alive, chosen, mdp.actions[states].argmax(axis=1))
            states, ended = self.step(states, safe, random)
            ended &= alive
            lengths[ended] = step + 1
            terminated |= ended
            begins = np.zeros(count, dtype=bool)
            if terminated.all():
                inputs, actions = inputs[:, : step + 1], actions[:, : step + 1]
                break
        return Episodes(inputs, actions, {}, lengths, terminated, states)
