"""Two queues, one server: fair throughput under budgets on power, waiting and lost jobs.

A server works for one of two queues at a time, slowly or at full speed, or rests. The throughputs of both are
to be fair, the sum of their logarithms as large as possible; power, the number of jobs that wait, and jobs
turned away at a full queue have budgets per step. The same system is a table, which is solved exactly, and a
simulator that shows only queue lengths, from which ``cm.solve(problem, seed=0, steps=...)`` learns.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

import cvxmdp as cm

CAPACITY = 6
ARRIVALS = (0.4, 0.3)
ACTIONS = ((None, 0.0, 0.0), (0, 0.45, 0.3), (0, 0.8, 1.0), (1, 0.45, 0.3), (1, 0.8, 1.0))
DISCOUNT = 0.98
BUDGETS = {"power": 0.62, "waiting": 3.9, "lost": 0.032}
SIGNALS = ("served0", "served1", *BUDGETS)


def outcomes(
    lengths: tuple[int, int], action: int
) -> list[tuple[float, tuple[int, int], dict[str, float]]]:
    """What may happen in a step: probability, lengths after it, and signals."""
    queue, chance, power = ACTIONS[action]
    found = []
    for served in (0, 1):
        works = chance if queue is not None and lengths[queue] else 0.0
        of_service = works if served else 1.0 - works
        for first in (0, 1):
            for second in (0, 1):
                arrived = (first, second)
                chances = [p if came else 1 - p for p, came in zip(ARRIVALS, arrived, strict=True)]
                probability = of_service * chances[0] * chances[1]
                if probability == 0.0:
                    continue
                left = [n - (served and k == queue) for k, n in enumerate(lengths)]
                after = tuple(min(n + a, CAPACITY) for n, a in zip(left, arrived, strict=True))
                signals = {
                    "served0": float(served and queue == 0),
                    "served1": float(served and queue == 1),
                    "power": power,
                    "waiting": float(sum(lengths)),
                    "lost": float(sum(left) + sum(arrived) - sum(after)),
                }
                found.append((probability, after, signals))
    return found


def table() -> cm.TabularMDP:
    """The system as a table, its state the pair of lengths."""
    size = CAPACITY + 1
    transition = np.zeros((size * size, len(ACTIONS), size * size))
    signals = {name: np.zeros((size * size, len(ACTIONS))) for name in SIGNALS}
    for state in range(size * size):
        for action in range(len(ACTIONS)):
            for probability, after, told in outcomes(divmod(state, size), action):
                transition[state, action, after[0] * size + after[1]] += probability
                for name, value in told.items():
                    signals[name][state, action] += probability * value
    initial = np.zeros(size * size)
    initial[0] = 1.0
    return cm.TabularMDP(transition, initial, discount=DISCOUNT, signals=signals)


class TwoQueues(gymnasium.Env[np.ndarray, int]):
    """The system as a simulator; what it tells beside the lengths is in ``info``."""

    observation_space = gymnasium.spaces.Box(0.0, CAPACITY, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(len(ACTIONS))

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Both queues are empty."""
        super().reset(seed=seed)
        self.lengths = (0, 0)
        return np.array(self.lengths, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One of the outcomes."""
        possible = outcomes(self.lengths, int(action))
        chosen = self.np_random.choice(len(possible), p=[chance for chance, _, _ in possible])
        _, self.lengths, told = possible[chosen]
        return np.array(self.lengths, np.float32), 0.0, False, False, dict(told)


def problem(source: Any) -> cm.Problem:
    """Fair throughput under three budgets."""
    return cm.Problem(
        source,
        maximize=cm.log_sum(*(cm.linear(name, per="step") for name in SIGNALS[:2])),
        subject_to={name: cm.linear(name, per="step") <= most for name, most in BUDGETS.items()},
    )


def main() -> None:
    """Solve the table exactly, learn from the simulator, and evaluate what was learned exactly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    known = problem(table())
    print(cm.solve(known))
    simulator = cm.GymnasiumEnv(TwoQueues(), discount=DISCOUNT)
    learned = cm.solve(problem(simulator), seed=arguments.seed, steps=arguments.steps)
    print(learned)
    seen = np.array(
        [divmod(state, CAPACITY + 1) for state in range((CAPACITY + 1) ** 2)], np.float32
    )
    exact = known.evaluate(learned.policy.probabilities(seen))
    print(f"exactly: objective {exact.objective:.5f}, slack {exact.slack}")


if __name__ == "__main__":
    main()
