r"""Natural policy gradient on the Lagrangian, for functions of which only the gradient is known.

Each step multiplies pi(a|s) by exp(step * advantage) of the shadow reward and lowers the multipliers along the
slack; both steps are relative to the largest value seen, so no units have to be known. By the convexity of
conjugates the averaged tangent is at least as good as the average of the tangents.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import softmax

from cvxmdp.problems.lowered import Evidence, Lowered

UNIFORM = 0.01  # share of the uniform policy in the first one: no probability is zero
PRIMAL, DUAL = 2.0, 0.1  # first steps: of logits, and of multipliers as a share of their bound


class LagrangianAscent:
    """A search for multipliers and tangents whose bound is tight.

    Args:
        lowered: the problem.
        start: a policy (S, A) to start from; the uniform one where none is given.
        dual_bound: the largest multiplier.
    """

    def __init__(self, lowered: Lowered, start: np.ndarray | None, dual_bound: float) -> None:
        self.lowered, self.dual_bound = lowered, dual_bound
        flow = lowered.flow
        mixed = (1 - UNIFORM) * (flow.uniform if start is None else start) + UNIFORM * flow.uniform
        self.logits = np.log(np.where(flow.actions, mixed, 1.0))
        self.multipliers = np.zeros(len(lowered.slacks))
        self.largest_slack = np.full(len(lowered.slacks), 1e-300)
        self.values: np.ndarray | None = None
        self.visited = np.zeros(flow.shape)
        self.kept: list[tuple[dict[str, Any], np.ndarray]] = []  # tangents and multipliers
        self.steps = 0

    def step(self, keep: bool) -> bool:
        """One step, which counts in the averages if ``keep``; False where there is no finite gradient."""
        lowered, flow = self.lowered, self.lowered.flow
        policy = softmax(np.where(flow.actions, self.logits, -np.inf), axis=1)
        x = flow.occupancy(policy)
        tangents = lowered.tangents_at(x)
        reward, _ = lowered.lagrangian_tangent(lowered.named(self.multipliers), tangents)
        if not np.isfinite(reward).all():
            return False
        self.values = flow.values(policy, reward, guess=self.values)
        choices = reward + flow.following(self.values)
        # Of the policy's own mean: values may be known up to a constant only.
        own = np.einsum("sa,sa->s", policy, choices)
        advantage = np.where(flow.actions, choices - own[:, None], 0.0)
        if keep:
            self.kept.append((tangents, self.multipliers))
            self.visited += x
        self.steps += 1
        self._move(x, advantage)
        return True

    def _move(self, x: np.ndarray, advantage: np.ndarray) -> None:
        rate = 1.0 / math.sqrt(self.steps)
        size = float(np.abs(advantage[self.lowered.flow.reached]).max())
        if size > 0:
            self.logits = self.logits + PRIMAL * rate * advantage / size
        slack = np.array([g.value(x) for g in self.lowered.slacks.values()])
        self.largest_slack = np.maximum(self.largest_slack, np.abs(slack))
        down = DUAL * self.dual_bound * rate * slack / self.largest_slack
        self.multipliers = np.clip(self.multipliers - down, 0.0, self.dual_bound)

    def evidence(self) -> list[Evidence]:
        """With the averaged tangents, and with those at the averaged occupancy."""
        lowered, policy = self.lowered, self.lowered.flow.policy(self.visited)
        weights = np.array([mu for _, mu in self.kept]).reshape(len(self.kept), -1)
        averaged = {
            "objective": lowered.objective.mean(
                [one["objective"] for one, _ in self.kept], np.ones(len(self.kept))
            ),
            "slacks": {
                name: g.mean([one["slacks"][name] for one, _ in self.kept], weights[:, k])
                for k, (name, g) in enumerate(lowered.slacks.items())
            },
        }
        named = lowered.named(weights.mean(axis=0))
        at_mean = lowered.tangents_at(lowered.flow.occupancy(policy))
        return [Evidence(named, one, policy=policy) for one in (averaged, at_mean)]
