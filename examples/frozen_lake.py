"""Cross the frozen lake without falling too often: proven from the table, learned from samples.

FrozenLake's agent slips one step in five. Who wants the goal's reward soon falls into a hole in every fourth
episode (discounted: 0.23 times). Here he is to fall at most 0.1 times. FrozenLake has a table, so the best
policy is known and proven. The same problem is then learned from episodes of the real environment alone, with
five seeds, and what is learned is judged twice: exactly, in the table, and from fresh episodes. Learning
maximises the reward and a little entropy, which keeps it trying.

    python examples/frozen_lake.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
import showing

NAME, DISCOUNT, LIMIT, BUDGET = "FrozenLake-v1", 0.95, 100, 0.1
SLIPS = {"success_rate": 0.8}
SIGNALS: dict[str, showing.Outcome] = {
    "fall": lambda state, action, after, reward, end: float(end and reward == 0)
}
OBJECTIVE = cm.linear("reward")
BUDGETS = {"fall": cm.linear("fall") <= BUDGET}
ONCE = {"reward": (0.0, 1.0), "fall": (0.0, 1.0)}  # of a step and of a whole episode: both end it
BATCH, ITERATIONS = 32, 1_000
# What keeps a table of logits out of its corners: dual steps that are slower than the policy, a multiplier that
# begins at the size of the reward, and a little entropy in the objective.
LEARNED = OBJECTIVE + 0.12 * cm.entropy(of="state-action")
CARE: dict[str, Any] = {"dual_step": 0.03, "initial_multiplier": 1.0}
CARELESS: Mapping[str, tuple[cm.Utility, dict[str, Any]]] = {
    "with all of it": (LEARNED, {}),
    "no entropy": (OBJECTIVE, {}),
    "multiplier from 0": (LEARNED, {"initial_multiplier": 0.0}),
    "ten times the dual step": (LEARNED, {"dual_step": 0.3}),
}
# None of those above: how often is a seed late, and would more iterations help?
OTHER_SEEDS = range(10, 40)
LONGER: Mapping[str, tuple[int, dict[str, Any]]] = {
    "as it is": (1, {}),
    "twice the iterations": (2, {}),
    "twice, averaged": (2, {"iterate": "half"}),
}


def settings(iterations: int, **changes: Any) -> cm.VRPDPG:
    """How it is learned."""
    chosen = {
        "iterations": iterations,
        "primal_step": 0.4,
        "momentum": 0.3,
        "horizon": LIMIT,
        "batch_size": BATCH,
        "dual_bound": 3.0,
        "baseline": True,
        "primal_decay": 0.25,
        "dual_decay": 0.25,
        "evaluate_every": max(iterations // 20, 1),
        "record_every": 10,
    }
    return cm.VRPDPG(**{**chosen, **CARE, **changes})


def model() -> cm.TabularMDP:
    """The table, for the proof and for judging."""
    return cm.from_gymnasium_table(NAME, DISCOUNT, signals=SIGNALS, **SLIPS)


def real() -> cm.GymnasiumEnv:
    """The environment that is played."""
    return cm.GymnasiumEnv(NAME, DISCOUNT, signals=SIGNALS, n_envs=BATCH, **SLIPS)


@dataclass(frozen=True)
class Found:
    """What comes out.

    Attributes:
        certificate: of the exact answer.
        soft: the exact answer with entropy in the objective, towards which learning goes.
        worth: exact reward and falls of policies that are known without learning.
        solutions: learned in the real environment, one per seed.
        trials: each of them, its exact worth beside what fresh episodes say.
        corners: exact objective and slack per seed, by what was left out of the settings.
        longer: the same of other seeds, by how long and what of it.
    """

    certificate: cm.Certificate
    soft: cm.Solution
    worth: Mapping[str, tuple[float, float]]
    solutions: list[cm.Solution]
    trials: list[showing.Trial]
    corners: Mapping[str, list[tuple[float, float]]]
    longer: Mapping[str, list[tuple[float, float]]]

    @property
    def gaps(self) -> list[float]:
        """How far each seed stays below what is proven to be the best; exact."""
        return [self.certificate.upper - trial.truth["objective"] for trial in self.trials]


def main(short: bool = False, picture: Path | None = None) -> Found:
    """Prove, learn, judge."""
    iterations, seeds, episodes = (300, 1, 400) if short else (ITERATIONS, showing.SEEDS, 4_000)
    mdp = model()
    exact = cm.Problem(mdp, maximize=OBJECTIVE, subject_to=BUDGETS)
    best = cm.solve(exact)
    certificate = cm.certify(exact, best)
    greedy = cm.solve(cm.Problem(mdp, maximize=OBJECTIVE)).policy
    soft_problem = cm.Problem(mdp, maximize=LEARNED, subject_to=BUDGETS)
    soft = cm.solve(soft_problem)
    policies = {
        "uniform": np.full((mdp.n_states, mdp.n_actions), 1 / mdp.n_actions),
        "reward only": greedy,
        "within the budget": certificate.policy,
        "the same, with entropy": soft.policy,
    }
    showing.heading("Proven from the table")
    print(certificate)
    worth = {name: worth_of(mdp, policy) for name, policy in policies.items()}
    print()
    showing.table(
        ("policy", "reward", "falls"),
        [(name, f"{reward:.4f}", f"{falls:.4f}") for name, (reward, falls) in worth.items()],
    )
    print(f"\nThe exact multiplier of the budget is {best.multipliers['fall']:.3f}.")
    solutions, trials = [], []
    with real() as env:
        problem = cm.Problem(env, maximize=LEARNED, subject_to=BUDGETS)
        for seed in range(seeds):
            solutions.append(cm.solve(problem, settings(iterations), seed=seed))
            trial = showing.play(
                exact,
                solutions[-1].policy,
                env,
                episodes,
                100 + seed,
                bounds=ONCE,
                return_bounds=ONCE,
                episode_limit=LIMIT,
            )
            trials.append(replace(trial, seed=seed))
    corners = {
        name: learned_from_table(
            cm.Problem(mdp, maximize=objective, subject_to=BUDGETS),
            settings(iterations, **change),
            range(seeds),
        )
        for name, (objective, change) in CARELESS.items()
    }
    others = OTHER_SEEDS[:2] if short else OTHER_SEEDS
    longer = {
        name: learned_from_table(soft_problem, settings(times * iterations, **change), others)
        for name, (times, change) in LONGER.items()
    }
    found = Found(certificate, soft, worth, solutions, trials, corners, longer)
    show_learned(found)
    show_corners(found)
    show_longer(found)
    draw(mdp, found, best.policy, picture)
    return found


def learned_from_table(
    problem: cm.Problem, solver: cm.VRPDPG, seeds: Iterable[int]
) -> list[tuple[float, float]]:
    """Exact reward and slack of what each seed learns from samples of the table, which is faster."""
    runs = cm.sweep(problem, solver, seeds=seeds)
    rewards = [showing.total(problem.mdp, run.solution.policy, "reward") for run in runs]
    return [(r, run.solution.slack["fall"]) for r, run in zip(rewards, runs, strict=True)]


def worth_of(mdp: cm.TabularMDP, policy: Any) -> tuple[float, float]:
    """Discounted reward and falls, exact."""
    return showing.total(mdp, policy, "reward"), showing.total(mdp, policy, "fall")


def show_learned(found: Found) -> None:
    """What each seed learned from samples."""
    showing.heading(f"Learned from samples of {NAME}")
    best = found.certificate.upper
    rows = (
        (
            str(trial.seed),
            f"{solution.stats['samples']:,}",
            f"{trial.truth['objective']:.4f}",
            f"{gap:.4f} ({gap / best:.0%})",
            f"{trial.truth['fall']:+.4f}",
            f"{solution.multipliers['fall']:.2f}",
        )
        for solution, trial, gap in zip(found.solutions, found.trials, found.gaps, strict=True)
    )
    showing.table(
        ("seed", "steps", "reward (exact)", "below the best", "slack (exact)", "multiplier"), rows
    )
    print(
        f"\nReward {showing.mean_interval([t.truth['objective'] for t in found.trials])}, slack "
        f"{showing.mean_interval([t.truth['fall'] for t in found.trials])}: mean over the seeds and its 95% "
        "interval (Student's t)."
    )
    showing.show_trials(found.trials, NAME)


def show_corners(found: Found) -> None:
    """What the settings are good for: the same with one of them left out, sampled from the table."""
    showing.heading("Less care (exact reward and slack per seed; samples drawn from the table)")
    rows = (
        (name, ", ".join(f"{reward:.3f} {slack:+.3f}" for reward, slack in seeds))
        for name, seeds in found.corners.items()
    )
    showing.table(("settings", "reward and slack of each seed"), rows)


def show_longer(found: Found) -> None:
    """What other seeds do, and what more iterations do for them, sampled from the table."""
    count = len(found.longer["as it is"])
    showing.heading(f"{count} other seeds (exact; samples drawn from the table)")
    rows = []
    for name, seeds in found.longer.items():
        rewards, slacks = (np.array(column) for column in zip(*seeds, strict=True))
        rows.append(
            (
                name,
                showing.mean_interval(rewards.tolist()),
                f"{rewards.min():.3f}",
                f"{np.count_nonzero(slacks < 0)} of {count}",
                f"{slacks.min():+.3f}",
            )
        )
    showing.table(("iterations", "reward", "least", "over the budget", "least slack"), rows)


def draw(mdp: cm.TabularMDP, found: Found, best: Any, picture: Path | None) -> None:
    """Learning curves beside the truth, and where the policies go."""
    figure, axes = showing.figure_of(2, 2, width=4.6, height=3.4)
    curves = [solution.history for solution in found.solutions]
    title = "reward and entropy of the episodes"
    showing.draw_curves(axes[0], curves, lambda h: h["objective"], title)
    axes[0].axhline(found.soft.objective, color=showing.RED, label="the best, exact")
    axes[0].legend(fontsize=8)
    showing.draw_curves(
        axes[1], curves, lambda h: BUDGET - np.asarray(h["slack"]["fall"]), "falls of the episodes"
    )
    axes[1].axhline(BUDGET, color=showing.RED, label="budget")
    axes[1].legend(fontsize=8)
    showing.draw_visits(figure, axes[2], mdp, best, "the best policy")
    learned = found.solutions[0].policy
    showing.draw_visits(figure, axes[3], mdp, learned, "learned from samples, seed 0")
    showing.save(figure, picture)


if __name__ == "__main__":
    showing.script(main, "frozen_lake")
