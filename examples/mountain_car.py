"""Drive up the mountain near a driver who knows the way (Gymnasium's MountainCar).

The motor is too weak for the hill: one has to swing. Who is only paid at the flag never finds out: acting at
random does not lead there within 200 steps, and no gradient says anything. So an expert is recorded, who pushes
in the direction in which the car moves. The student is to reach the flag soon, while the distance of its
occupancy (bins of position and velocity, and actions) to the expert's is at most 8. Distance has a gradient
everywhere.

    python examples/mountain_car.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
import showing

NAME, DISCOUNT, LIMIT, BATCH, RECORDED = "MountainCar-v0", 0.99, 200, 16, 200
BINS = cm.UniformBins([-1.2, -0.07], [0.6, 0.07], [12, 8])
SIGNALS = {"flag": lambda seen, action, after, reward, end: float(end)}
ONCE = {"flag": (0.0, 1.0)}
NEAR = 8.0


def expert(seen: Any, inputs: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Push in the direction in which the car moves."""
    return np.where(inputs[:, 1] >= 0, 2, 0)


def road(lanes: int = BATCH) -> cm.GymnasiumEnv:
    """The environment; its own limit of 200 steps is long enough."""
    return cm.GymnasiumEnv(NAME, DISCOUNT, features=BINS, signals=SIGNALS, n_envs=lanes)


def record(seed: int) -> tuple[cm.Demonstrations, Any]:
    """The expert's feature occupancy from recorded episodes, and the episodes."""
    with road(RECORDED) as env:
        episodes = env.episodes(expert, LIMIT, signals=("flag",), seed=seed)
    recordings = [
        {"observations": seen[:length], "actions": actions[:length], "terminated": ended}
        for seen, actions, length, ended in zip(
            episodes.inputs, episodes.actions, episodes.lengths, episodes.terminated, strict=True
        )
    ]
    return (
        cm.demonstrations(recordings, features=BINS, n_actions=3, discount=DISCOUNT),
        episodes,
    )


def settings(iterations: int) -> cm.VRPDPG:
    """How it is learned."""
    return cm.VRPDPG(
        iterations=iterations,
        primal_step=0.1,
        dual_step=0.01,
        momentum=0.3,
        horizon=LIMIT,
        batch_size=BATCH,
        dual_bound=10.0,
        policy=cm.MLP(32),
        baseline=True,
        primal_decay=0.25,
        dual_decay=0.25,
        evaluate_every=max(iterations // 20, 1),
        record_every=10,
    )


@dataclass(frozen=True)
class Found:
    """What comes out.

    Attributes:
        recordings: the expert's occupancy.
        expert: his discounted flags per episode, and his mean number of steps.
        solutions: near the expert, one per seed.
        judged: each of them, in fresh episodes.
        alone: the same without the expert.
    """

    recordings: cm.Demonstrations
    expert: tuple[float, float]
    solutions: list[cm.Solution]
    judged: list[cm.PolicyEvaluation]
    alone: list[cm.PolicyEvaluation]


def main(short: bool = False, picture: Path | None = None) -> Found:
    """Record, learn with and without the expert, judge."""
    iterations, seeds, episodes = (60, 1, 100) if short else (300, showing.SEEDS, 1_000)
    recordings, seen = record(seed=0)
    flags = float((seen.terminated * DISCOUNT ** (seen.lengths - 1.0)).mean())
    flag, near = cm.linear("flag"), {"near": cm.distance(recordings, norm="l2") <= NEAR}

    with road() as env, road(100) as judge:
        problems = {
            "near the expert": cm.Problem(env, maximize=flag, subject_to=near),
            "reward alone": cm.Problem(env, maximize=flag),
        }

        def worth(policy: Any, seed: int) -> cm.PolicyEvaluation:
            return cm.evaluate(
                policy,
                judge,
                episodes,
                seed=seed,
                maximize=flag,
                subject_to=near,
                bounds=ONCE,
                return_bounds=ONCE,
                episode_limit=LIMIT,
            )

        solutions = [
            cm.solve(problems["near the expert"], settings(iterations), seed=seed)
            for seed in range(seeds)
        ]
        judged = [worth(one.policy, 100 + seed) for seed, one in enumerate(solutions)]
        # Nothing happens without the expert, however long; a third of the iterations shows it.
        alone = [
            worth(
                cm.solve(problems["reward alone"], settings(iterations // 3), seed=seed).policy,
                200 + seed,
            )
            for seed in range(seeds)
        ]
    found = Found(recordings, (flags, float(seen.lengths.mean())), solutions, judged, alone)
    show(found)
    draw(found, picture)
    return found


def show(found: Found) -> None:
    """All tables."""
    print(found.recordings)
    print(f"The expert: {found.expert[0]:.3f} discounted flags, {found.expert[1]:.0f} steps.")
    rows_of: Mapping[str, list[cm.PolicyEvaluation]] = {
        "near the expert": found.judged,
        "reward alone": found.alone,
    }
    showing.heading(
        f"Learned, judged by {found.judged[0].episodes:,} fresh episodes each (intervals: 0.95)"
    )
    rows = []
    for name, many in rows_of.items():
        for seed, one in enumerate(many):
            objective, slack = one.objective, one.slack["near"]
            rows.append(
                (
                    f"{name}, seed {seed}",
                    f"{objective.value:.3f} [{objective.lower:.3f}, {objective.upper:.3f}]",
                    f"{NEAR - slack.value:.2f} [{NEAR - slack.upper:.2f}, {NEAR - slack.lower:.2f}]",
                    f"{one.steps / one.episodes:.0f}",
                )
            )
    showing.table(("policy", "flags", f"distance (at most {NEAR:g})", "steps"), rows)
    print(
        f"\nNear the expert: flags {showing.mean_interval([one.objective.value for one in found.judged])}, "
        f"distance {showing.mean_interval([NEAR - one.slack['near'].value for one in found.judged])} "
        "(mean over the seeds, 95%)"
    )
    multipliers = ", ".join(f"{one.multipliers['near']:.4f}" for one in found.solutions)
    print(f"Multipliers at the end: {multipliers}")


def draw(found: Found, picture: Path | None) -> None:
    """Learning curves, and where expert and student drive."""
    figure, axes = showing.figure_of(2, 2, width=4.6, height=3.0)
    histories = [solution.history for solution in found.solutions]
    showing.draw_curves(axes[0], histories, lambda h: h["objective"], "flags of the episodes")
    axes[0].axhline(found.expert[0], color=showing.DARK, label="expert")
    showing.draw_curves(
        axes[1],
        histories,
        lambda h: NEAR - np.asarray(h["slack"]["near"]),
        "distance of the episodes to the expert",
    )
    axes[1].axhline(NEAR, color=showing.RED, label="at most")
    for one in axes[:2]:
        one.legend(fontsize=8)
    maps = {"expert": found.recordings.occupancy, "student, seed 0": found.judged[0].occupancy}
    for one, (name, occupancy) in zip(axes[2:], maps.items(), strict=True):
        showing.draw_map(
            figure,
            one,
            np.asarray(occupancy).sum(axis=1).reshape(12, 8),
            f"{name}: discounted steps",
            labels=("position", "velocity"),
            extent=(-1.2, 0.6, -0.07, 0.07),
            vmax=10,
        )
    showing.save(figure, picture)


if __name__ == "__main__":
    showing.script(main, "mountain_car")
