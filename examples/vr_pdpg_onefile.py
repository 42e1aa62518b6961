r"""VR-PDPG in one plain NumPy file, to be read beside Algorithm 1 of the paper.

    maximise f(lambda(theta)) subject to g_i(lambda(theta)) >= 0,

with lambda(theta) the discounted occupancy of the policy pi_theta, here a softmax of a table or of a small
network. The function ``vr_pdpg`` is the algorithm; comments give its line numbers. Names, with the paper's
symbols:

    params         theta_t    (P,)     rewards        r_{f,t-1}, r_{g_i,t-1}   (m, S*A)
    multipliers    mu_t       (n,)     older_rewards  r_{f,t-2}, r_{g_i,t-2}   (m, S*A)
    occupancy      lambda_t   (S, A)   gradients      d_{f,t}, d_{g_i,t}       (m, P)
    weight         w(tau_t | theta_{t-1}, theta_t)

m = 1 + n counts the objective and the n constraints. An episode may end before the horizon: sums and
products then run over the steps really taken. ``cvxmdp.VRPDPG`` computes the same numbers from the same
uniform numbers (tests/test_onefile.py), for any utility and policy, on any device.

    python examples/vr_pdpg_onefile.py
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

Array = np.ndarray
# A concave function of the occupancy, shape (S, A): its value, and its gradient of the same shape.
Function = tuple[Callable[[Array], float], Callable[[Array], Array]]


class Model(NamedTuple):
    """What is sampled from: cumulative distributions as lists, for ``bisect``."""

    initial: list[float]  # of the first state
    successors: list[list[int]]  # by pair s * A + a
    cumulative: list[list[float]]  # of the successors; below one where the episode may end
    available: Array  # boolean (S, A)
    last_action: list[int]  # the last available one of each state
    discount: float  # gamma


def tables(
    transition: Array, initial: Array, discount: float, available: Array | None = None
) -> Model:
    """The model of P, (S, A, S), and rho, (S,). Rows below one end the episode with what is missing."""
    states, actions, _ = transition.shape
    available = np.ones((states, actions), dtype=bool) if available is None else available
    successors, cumulative = [], []
    for row in transition.reshape(-1, states):
        reached = np.flatnonzero(row)
        sums = np.cumsum(row[reached])
        if row.sum() > 1.0 - 1e-9:
            sums[-1] = 1.0  # rounding must not end an episode
        successors.append(reached.tolist())
        cumulative.append(sums.tolist())
    first = np.cumsum(initial)
    first[np.flatnonzero(initial)[-1] :] = 1.0
    last = actions - 1 - np.argmax(available[:, ::-1], axis=1)
    return Model(first.tolist(), successors, cumulative, available, last.tolist(), discount)


class Policy(NamedTuple):
    """pi_theta on every state, and the way back from its logits to theta."""

    logs: Array  # log pi_theta(a | s), (S, A); minus infinity where an action is not available
    chances: Array  # pi_theta(a | s)
    pull_back: Callable[[Array], Array]  # from gradients on logits, (m, S, A), to (m, P)


def softmax(logits: Array, available: Array, pull_back: Callable[[Array], Array]) -> Policy:
    """The policy of these logits, (S, A)."""
    logits = np.where(available, logits, -np.inf)
    logits = logits - logits.max(axis=1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return Policy(logs, np.exp(logs), pull_back)


def table(params: Array, available: Array) -> Policy:
    """A logit for every state and action: P = S * A."""
    return softmax(params.reshape(available.shape), available, lambda on: on.reshape(len(on), -1))


def mlp(params: Array, available: Array) -> Policy:
    """A network with one layer of tanh units on one-hot states: logits = tanh(W + b) V + c.

    Row s of W is what state s gives to the units. theta has W, b, V and c one after the other, so its length
    tells the number of units.
    """
    states, actions = available.shape
    units = (params.size - actions) // (states + 1 + actions)
    first, second, third = states * units, (states + 1) * units, params.size - actions
    hidden = np.tanh(params[:first].reshape(states, units) + params[first:second])
    outputs = params[second:third].reshape(units, actions)

    def pull_back(on_logits: Array) -> Array:
        on_inputs = (on_logits @ outputs.T) * (1.0 - hidden**2)
        parts = on_inputs, on_inputs.sum(axis=1), hidden.T @ on_logits, on_logits.sum(axis=1)
        return np.concatenate([part.reshape(len(on_logits), -1) for part in parts], axis=1)

    return softmax(hidden @ outputs + params[third:], available, pull_back)


def first_network(states: int, actions: int, units: int, random: np.random.Generator) -> Array:
    """theta_0 of a network: normal weights, those of the logits small, no biases."""
    inputs = random.normal(size=states * units)
    outputs = 0.01 / np.sqrt(units) * random.normal(size=units * actions)
    return np.concatenate([inputs, np.zeros(units), outputs, np.zeros(actions)])


def sample(model: Model, policy: Array, uniforms: Array) -> Array:
    """A trajectory of at most H steps from 1 + 2 H uniform numbers, as pairs s_k * A + a_k.

    The first number draws the first state, then each step uses one for the action and one for the
    successor: always the first index whose cumulative probability exceeds the number.
    """
    numbers = iter(uniforms.tolist())
    actions = policy.shape[1]
    choices = np.cumsum(policy, axis=1).tolist()
    state = bisect_right(model.initial, next(numbers))
    pairs = []
    for for_action, for_successor in zip(numbers, numbers, strict=True):
        action = min(bisect_right(choices[state], for_action), model.last_action[state])
        pair = state * actions + action
        pairs.append(pair)
        entry = bisect_right(model.cumulative[pair], for_successor)
        if entry == len(model.cumulative[pair]):
            break  # the episode has ended
        state = model.successors[pair][entry]
    return np.array(pairs)


def gradient_estimates(
    policy: Policy, indicator: Array, pairs: Array, rewards: Array, discounts: Array
) -> Array:
    """eq. (pg_estimator) for m rewards at once, (m, P).

    sum_h grad log pi(a_h | s_h) sum_{k >= h} gamma^k r(s_k, a_k), where for a softmax the gradient of
    log pi(a | s) on the logits is 1(s, a) - pi(. | s) in the row of s.
    """
    gained = rewards[:, pairs] * discounts
    to_go = np.cumsum(gained[:, ::-1], axis=1)[:, ::-1]  # sum over k >= h
    taken = (to_go @ indicator).reshape(-1, *policy.chances.shape)
    return policy.pull_back(taken - taken.sum(axis=2, keepdims=True) * policy.chances)


class Step(NamedTuple):
    """What iteration t has computed."""

    params: Array  # theta_{t+1}, (P,)
    multipliers: Array  # mu_{t+1}, (n,)
    occupancy: Array  # lambda_t, (S, A); not an occupancy itself: entries may be negative
    gradients: Array  # d_{f,t}, d_{g_i,t}, (m, P)
    slack: Array  # g(lambda_t), (n,)
    weight: float  # w(tau_t | theta_{t-1}, theta_t)
    episode: Array  # the pairs of tau_t


def vr_pdpg(
    model: Model,
    objective: Function,
    constraints: Sequence[Function],
    random: Array | np.random.Generator,
    *,
    iterations: int,
    horizon: int,
    primal_step: float,
    dual_step: float,
    momentum: float,
    dual_bound: float = 10.0,
    initial_multiplier: float = 0.0,
    family: Callable[[Array, Array], Policy] = table,
    start: Array | None = None,
) -> Iterator[Step]:
    """Algorithm 1, one ``Step`` per iteration.

    Args:
        model: from ``tables``.
        objective: f as (value, gradient).
        constraints: g_i as (value, gradient), at least zero where they hold.
        random: a generator, or uniform numbers of shape (iterations, 1 + 2 * horizon).
        iterations, horizon: T, H.
        primal_step, dual_step: eta_theta, eta_mu.
        momentum: alpha in (0, 1]; 1 forgets the past.
        dual_bound, initial_multiplier: C_0, mu_0.
        family, start: ``table`` or ``mlp``, and theta_0; zeros, for a table, when not given.
    """

    def uniforms(t: int) -> Array:
        return random[t] if isinstance(random, np.ndarray) else random.random(1 + 2 * horizon)

    shape = model.available.shape
    functions = [objective, *constraints]
    powers = model.discount ** np.arange(horizon)
    params = np.zeros(model.available.size) if start is None else start  # line 1
    multipliers = np.full(len(constraints), initial_multiplier)
    policy = family(params, model.available)
    rest = 1.0 - momentum
    for t in range(iterations):
        previous, policy = policy, family(params, model.available)
        pairs = sample(model, policy.chances, uniforms(t))  # lines 2 and 9
        indicator = np.zeros((pairs.size, model.available.size))  # row k is 1(s_k, a_k)
        indicator[np.arange(pairs.size), pairs] = 1.0
        discounts = powers[: pairs.size]
        visits = (discounts @ indicator).reshape(shape)  # eq. (vanilla_OM_estimator)
        if t == 0:
            weight = 1.0
            occupancy = visits  # line 3
            new_rewards = _shadow_rewards(functions, occupancy)  # line 4
            rewards = older_rewards = new_rewards  # r_{-1} = r_0
            gradients = gradient_estimates(  # line 5
                policy, indicator, pairs, rewards, discounts
            )
        else:
            log_ratios = previous.logs.ravel()[pairs] - policy.logs.ravel()[pairs]
            weight = float(np.exp(log_ratios.sum()))  # eq. (IS_def)
            occupancy = visits + rest * (occupancy - weight * visits)  # line 10
            new_rewards = _shadow_rewards(functions, occupancy)  # line 11
            fresh = gradient_estimates(policy, indicator, pairs, rewards, discounts)
            stale = gradient_estimates(previous, indicator, pairs, older_rewards, discounts)
            gradients = fresh + rest * (gradients - weight * stale)  # line 12
        ascent = gradients[0] + multipliers @ gradients[1:]  # d_{L,t}
        length = float(np.sqrt(np.vdot(ascent, ascent)))
        if length > 0:  # a zero gradient means no step
            params = params + primal_step / length * ascent  # lines 6 and 13
        slack = np.array([value(occupancy) for value, _ in constraints])
        multipliers = np.clip(multipliers - dual_step * slack, 0.0, dual_bound)  # lines 7 and 14
        yield Step(params, multipliers, occupancy, gradients, slack, weight, pairs)
        rewards, older_rewards = new_rewards, rewards


def _shadow_rewards(functions: Sequence[Function], occupancy: Array) -> Array:
    return np.stack([gradient(occupancy).ravel() for _, gradient in functions])


def linear(reward: Array) -> Function:
    """<reward, lambda>: the discounted return."""
    return (lambda occupancy: float(np.vdot(reward, occupancy))), (lambda occupancy: reward)


def near(target: Array, budget: float) -> Function:
    """budget - |lambda - target|^2 / 2, the tracking constraint of the published runs."""

    def value(occupancy: Array) -> float:
        difference = occupancy - target
        return budget - 0.5 * float(np.vdot(difference, difference))

    return value, (lambda occupancy: target - occupancy)


def main(iterations: int = 2_000, seed: int = 0) -> list[Step]:
    """Learn the paper's tracking instance 8x8-traj2 and print how it goes."""
    from cvxmdp.paper.tracking import expert_occupancy, tracking_model

    mdp = tracking_model("8x8-traj2")
    model = tables(mdp.dense_transition(), mdp.initial, mdp.discount)
    reward = mdp.signal("reward")
    steps = list(
        vr_pdpg(
            model,
            linear(reward),
            [near(expert_occupancy("8x8-traj2"), budget=0.01)],
            np.random.default_rng(seed),
            iterations=iterations,
            horizon=14,
            primal_step=0.1,
            dual_step=0.1,
            momentum=0.3,
            initial_multiplier=1.0,
        )
    )
    print("episodes      mean return  g(lambda)  multiplier  largest weight")
    for last in range(250, iterations + 1, 250):
        block = steps[last - 250 : last]
        mean = np.mean([reward.ravel()[step.episode].sum() for step in block])
        weight = max(step.weight for step in block)
        slack, multiplier = block[-1].slack[0], block[-1].multipliers[0]
        print(
            f"{last - 249:>5} - {last:<5} {mean:>11.2f} {slack:>10.4f} {multiplier:>11.3f} {weight:>15.3f}"
        )
    return steps


if __name__ == "__main__":
    main()
