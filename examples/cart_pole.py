"""See as much as possible without tilting the pole: CartPole explored under a budget on large angles.

The objective is the entropy of where cart and pole are (8 bins of the cart's place, 6 of the pole's angle). Who
keeps the pole upright sees little of this; who explores freely tilts the pole. Here it is to lean by more than
8 degrees in at most 1 of 100 (discounted) steps. A network learns that in Gymnasium's CartPole, and again in a
CartPole written in JAX (cart_pole_jax.py), where episodes are played inside compiled code.

    python examples/cart_pole.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import cvxmdp as cm
import showing
from cart_pole_jax import CartPole

NAME, DISCOUNT, BATCH, JUDGES = "CartPole-v1", 0.98, 16, 250
# Where episodes are cut when a policy is judged: 0.2% of the discounted mass is behind it.
LIMIT = 300
PLACES, ANGLES, LARGEST = 8, 6, np.radians(12)  # the episode ends beyond 12 degrees
BINS = cm.UniformBins([-2.4, -1, -LARGEST, -1], [2.4, 1, LARGEST, 1], [PLACES, 1, ANGLES, 1])
TILTED = np.zeros((PLACES, ANGLES))
TILTED[:, [0, -1]] = 1.0  # the outermost bins: beyond 8 degrees
BUDGET = 0.01
BUDGETS = {"tilted": cm.linear(TILTED.ravel(), per="step") <= BUDGET}
SOURCES = ("Gymnasium", "JAX")


def settings(iterations: int, dual_step: float = 20.0) -> cm.VRPDPG:
    """How it is learned, the same in both."""
    return cm.VRPDPG(
        iterations=iterations,
        primal_step=0.1,
        dual_step=dual_step,
        momentum=0.3,
        horizon=200,
        batch_size=BATCH,
        dual_bound=100.0,
        pessimism=0.004,
        policy=cm.MLP(32),
        baseline=True,
        primal_decay=0.25,
        dual_decay=0.25,
        evaluate_every=max(iterations // 20, 1),
        record_every=10,
    )


def sources(lanes: int) -> dict[str, Any]:
    """The same environment twice; in Gymnasium, ``lanes`` play at a time."""
    return {
        "Gymnasium": cm.GymnasiumEnv(NAME, DISCOUNT, features=BINS, n_envs=lanes),
        "JAX": cm.JaxEnv(CartPole(), DISCOUNT, features=BINS, n_envs=lanes),
    }


def explore(env: Any, budgets: Mapping[str, Any] = BUDGETS) -> cm.Problem:
    """The problem, in either of the two."""
    return cm.Problem(env, maximize=cm.entropy(), subject_to=budgets)


@dataclass(frozen=True)
class Found:
    """What comes out.

    Attributes:
        solutions: learned, by source, one per seed.
        judged: what fresh episodes in Gymnasium say of each of them.
        others: the same of policies that were not asked to explore within the budget, by name.
        both: one policy, judged in both sources.
        same_after_loading: whether the policy that was saved and loaded again acts as before.
        recorded: frames of the episode in the GIF.
    """

    solutions: Mapping[str, list[cm.Solution]]
    judged: Mapping[str, list[cm.PolicyEvaluation]]
    others: Mapping[str, cm.PolicyEvaluation]
    both: Mapping[str, cm.PolicyEvaluation]
    same_after_loading: bool
    recorded: int

    def speed(self, source: str) -> float:
        """Steps per second of learning, all of it included but the first seed, in which code is compiled."""
        later = self.solutions[source][1:] or self.solutions[source]
        return sum(s.stats["samples"] for s in later) / sum(s.stats["seconds"] for s in later)


def judge(policy: Any, env: Any, episodes: int, seed: int) -> cm.PolicyEvaluation:
    """Entropy and tilting of any policy, from fresh episodes."""
    return cm.evaluate(policy, env, episodes, seed=seed, problem=explore(env), horizon=LIMIT)


def main(short: bool = False, picture: Path | None = None) -> Found:
    """Learn in both, judge everything in Gymnasium."""
    iterations, seeds, episodes = (80, 1, 250) if short else (250, showing.SEEDS, 2_000)
    learning, judging = sources(BATCH), sources(JUDGES)
    solutions: dict[str, list[cm.Solution]] = {
        name: [cm.solve(explore(env), settings(iterations), seed=seed) for seed in range(seeds)]
        for name, env in learning.items()
    }
    judge_in = judging["Gymnasium"]
    judged = {
        name: [judge(one.policy, judge_in, episodes, 100 + k) for k, one in enumerate(many)]
        for name, many in solutions.items()
    }
    policies: dict[str, Any] = {"uniform": np.full((BINS.size, 2), 0.5)}
    if not short:  # compiling costs more than learning
        for_reward = cm.Problem(learning["JAX"], maximize=cm.linear("reward"))
        policies["reward only"] = cm.solve(for_reward, settings(iterations), seed=0).policy
        free = cm.Problem(learning["JAX"], maximize=cm.entropy())
        policies["entropy only"] = cm.solve(free, settings(iterations), seed=0).policy
        # A multiplier that is faster than the policy: it learns to let the pole fall at once.
        for seed in range(seeds):
            hurried = cm.solve(explore(learning["JAX"]), settings(iterations, 200.0), seed=seed)
            policies[f"ten times the dual step, seed {seed}"] = hurried.policy
    others = {name: judge(policy, judge_in, episodes, 200) for name, policy in policies.items()}
    first = solutions["Gymnasium"][0].policy
    both = {name: judge(first, env, 2 * episodes, 300) for name, env in judging.items()}
    same, frames = keep(first, showing.picture_path("cart_pole", docs=False))
    found = Found(solutions, judged, others, both, same, frames)
    show(found)
    draw(found, picture)
    for env in (*learning.values(), *judging.values()):
        env.close()
    return found


class Drawn(gymnasium.Wrapper):
    """CartPole that draws itself, small and without further packages: frames for a GIF."""

    render_mode = "rgb_array"

    def render(self) -> np.ndarray:
        """Track, cart and pole."""
        from PIL import Image, ImageDraw

        place, _, angle, _ = self.unwrapped.state
        image = Image.new("RGB", (240, 90), "white")
        pen = ImageDraw.Draw(image)
        x, y = 120 + 48 * place, 75
        pen.line((0, y, 240, y), fill=showing.GREY)
        pen.rectangle((x - 10, y - 8, x + 10, y), fill=showing.DARK)
        tip = (x + 60 * np.sin(angle), y - 8 - 60 * np.cos(angle))
        pen.line((x, y - 8, *tip), fill=showing.RED, width=3)
        return np.asarray(image)


def keep(policy: Any, path: Path) -> tuple[bool, int]:
    """Save the policy, load it again, and record an episode of what was loaded."""
    policy.save(path.with_suffix(".safetensors"))
    loaded = cm.load_policy(path.with_suffix(".safetensors"))
    somewhere = np.random.default_rng(0).normal(scale=[1.0, 1.0, 0.1, 1.0], size=(100, 4))
    same = bool(np.array_equal(loaded.probabilities(somewhere), policy.probabilities(somewhere)))
    with Drawn(gymnasium.make(NAME)) as env:
        frames = cm.record_episode(
            loaded, env, path.with_suffix(".gif"), seed=0, horizon=150, features=BINS
        )
    return same, len(frames)


def tilted(found: cm.PolicyEvaluation) -> str:
    """The share of steps with a large angle, and its interval."""
    slack = found.slack["tilted"]
    return f"{BUDGET - slack.value:.4f} [{BUDGET - slack.upper:.4f}, {BUDGET - slack.lower:.4f}]"


def show(found: Found) -> None:
    """All tables."""
    showing.heading(
        f"Learned, judged in Gymnasium by {found.judged['JAX'][0].episodes:,} fresh episodes each"
    )
    rows = [
        (f"{source}, seed {seed}", f"{one.objective.value:.3f}", tilted(one), mean_length(one))
        for source in SOURCES
        for seed, one in enumerate(found.judged[source])
    ]
    header = ("policy", "entropy", f"tilted (at most {BUDGET})", "steps")
    showing.table(header, rows)
    print()
    for source in SOURCES:
        entropies = [one.objective.value for one in found.judged[source]]
        shares = [BUDGET - one.slack["tilted"].value for one in found.judged[source]]
        print(
            f"{source}: entropy {showing.mean_interval(entropies)}, tilted {showing.mean_interval(shares)} "
            "(mean over the seeds, 95%)"
        )
    showing.heading("Others")
    rows = [
        (name, f"{one.objective.value:.3f}", tilted(one), mean_length(one))
        for name, one in found.others.items()
    ]
    showing.table(header, rows)
    showing.heading("One policy in both environments")
    rows = [
        (name, f"{one.objective.value:.3f}", tilted(one), mean_length(one))
        for name, one in found.both.items()
    ]
    showing.table(header, rows)
    showing.heading("Speed")
    for source in SOURCES:
        print(f"{source}: {found.speed(source):,.0f} steps per second, learning included")
    print(
        f"\nThe policy was saved, loaded and recorded: {found.recorded} frames in out/examples/cart_pole.gif"
    )


def mean_length(found: cm.PolicyEvaluation) -> str:
    """Of an episode, in steps."""
    return f"{found.steps / found.episodes:.0f}"


def draw(found: Found, picture: Path | None) -> None:
    """Learning curves of both, and what three policies see."""
    figure, axes = showing.figure_of(2, 2, width=4.6, height=3.0)
    for source, colour in zip(SOURCES, (showing.DARK, showing.TEAL), strict=True):
        histories = [solution.history for solution in found.solutions[source]]
        showing.draw_curves(
            axes[0], histories, lambda h: h["objective"], "entropy of the episodes", colour, source
        )
        showing.draw_curves(
            axes[1],
            histories,
            lambda h: BUDGET - np.asarray(h["slack"]["tilted"]),
            "share of steps beyond 8 degrees",
            colour,
            source,
        )
    axes[1].axhline(BUDGET, color=showing.RED, label="budget")
    for one in axes[:2]:
        one.legend(fontsize=8)
    known = "reward only" if "reward only" in found.others else "uniform"
    seen = {known: found.others[known], "learned, seed 0": found.judged["Gymnasium"][0]}
    for one, (name, evaluation) in zip(axes[2:], seen.items(), strict=True):
        showing.draw_map(
            figure,
            one,
            evaluation.occupancy.sum(axis=1).reshape(PLACES, ANGLES) * (1 - DISCOUNT),
            f"{name}: entropy {evaluation.objective.value:.2f}",
            labels=("place", "angle, degrees"),
            extent=(-2.4, 2.4, -12, 12),
            vmax=0.15,
        )
    showing.save(figure, picture)


if __name__ == "__main__":
    showing.script(main, "cart_pole")
