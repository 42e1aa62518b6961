"""ActorCritic with no settings, and a PPO-Lagrangian beside it: every run is kept, one table of all.

    python benchmarks/learners.py [--kind listed tight concave worked paper velocity] [--only WORDS ...]
        [--methods ours theirs best] [--seeds 2] [--first 0] [--steps N] [--settings proportional=0] [--again]
    python benchmarks/learners.py --table

Runs are kept in ``benchmarks/results/learners.jsonl``, a line each with date and commit; what is there is not
run again, so that a table grows with every call. Ours is ``ActorCritic(steps)`` alone; ``theirs`` is the
PPO-Lagrangian of ``learner_rivals`` with each of three steps of its multiplier, ``best`` the same with the one
that did best so far: over the budget by the least, then with the most return. ``--settings`` tries ours with
others than its own, under their name. Answers of both are judged by a hundred fresh episodes of the same seeds,
drawn as the policy draws; where there is a table, exactly.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp.runs.sweep_results import interval
from hardware import hardware
from kept_measurements import Kept, Key
from learner_rivals import ppo_lagrangian
from learner_tasks import CONCAVE, LISTED, PAPER, TIGHT, VELOCITY, WORKED, ConcaveTask, SafeTask

RESULTS = Path(__file__).parent / "results" / "learners.jsonl"
EPISODES = 100
FRESH = 10_000_000  # seeds of what judges
OURS, THEIRS = "ActorCritic", "PPO-Lagrangian"
MULTIPLIER_STEPS = (0.01, 0.1, 1.0)
KINDS: dict[str, tuple[SafeTask | ConcaveTask, ...]] = {
    "listed": LISTED,
    "tight": TIGHT,
    "concave": CONCAVE,
    "worked": WORKED,
    "paper": PAPER,
    "velocity": VELOCITY,
}
Row = dict[str, Any]


def played(task: SafeTask, act: Callable[[Any], Any], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns and costs of fresh episodes."""
    env, found = task.make(), np.zeros((2, EPISODES))
    for episode in range(EPISODES):
        seen, _ = env.reset(seed=FRESH + EPISODES * seed + episode)
        for _ in range(task.limit):
            seen, reward, ended, cut, info = env.step(act(seen))
            found[:, episode] += float(reward), info["cost"]
            if ended or cut:
                break
    env.close()
    return found[0], found[1]


def learner(method: str, steps: int) -> cm.ActorCritic:
    """Ours, with the settings that its name has."""
    settings = dict(word.split("=") for word in method.split()[1:])
    return cm.ActorCritic(steps, **{name: float(value) for name, value in settings.items()})


def safe_row(task: SafeTask, method: str, seed: int, steps: int) -> Row:
    """Learn once, and look at what came of it."""
    said = {}
    if method.startswith(OURS):
        solution = cm.solve(task.problem(), learner(method, steps), seed=seed, progress=False)
        policy, said = solution.policy, words(solution)
        policy.seed(seed)
        act: Callable[[Any], Any] = lambda seen: policy.predict(seen)[0]  # noqa: E731
    else:
        act = ppo_lagrangian(task, float(method.split()[-1]), steps, seed)
    returns, costs = played(task, act, seed)
    found = {"return": float(returns.mean()), "cost": float(costs.mean()), "budget": task.budget}
    root = EPISODES**0.5
    errors = {"return_error": float(returns.std()) / root, "cost_error": float(costs.std()) / root}
    return {**found, **errors, **said}


def concave_row(task: ConcaveTask, method: str, seed: int, steps: int) -> Row:
    """Learn once; gaps are in % of the range from a policy, mostly the uniform one, to the optimum."""
    problem = task.problem()
    found = cm.solve(problem, learner(method, steps), seed=seed, progress=False)
    excess = [max(0.0, -found.slack[name]) / abs(most) for name, most in problem.budgets.items()]
    told = {"objective": found.objective, "over": 100 * max(excess, default=0.0)}
    if problem.environment is None:
        best = cm.solve(problem).objective
        origin = cm.uniform_policy(problem.mdp) if task.origin is None else task.origin
        span = abs(best - problem.evaluate(origin).objective)  # it may break budgets and do better
        told["gap"] = 100 * problem.sign * (best - found.objective) / span
    return {**told, **words(found)}


def words(found: cm.Solution) -> Row:
    """What an answer says of itself."""
    said = {name: str(word) for name, word in found.constraint_status.items()}
    return {
        "said": said,
        "findings": [finding.what for finding in found.findings],
        "answer": found.stats["answer"],
    }


def run(
    kept: Kept,
    tasks: Iterable[SafeTask | ConcaveTask],
    seeds: range,
    steps: int | None,
    methods: list[str],
    settings: list[str],
) -> None:
    """Everything that is not kept yet."""
    ours = " ".join([OURS, *settings])
    every = [f"{THEIRS} {step:g}" for step in MULTIPLIER_STEPS]
    for seed in seeds:
        for task in tasks:
            safe, count = isinstance(task, SafeTask), steps or task.steps
            known = {"ours": [ours], "theirs": every, "best": best_of(kept, (task.name, count))}
            for method in [one for name in methods for one in known[name] if safe or one == ours]:
                make = safe_row if safe else concave_row
                kept.measure(
                    (task.name, count, method, seed), partial(make, task, method, seed, count)
                )


def best_of(kept: Kept, which: tuple[str, int]) -> list[str]:
    """Their method with the best runs of a task so far; none where there are none."""

    def rank(method: str) -> tuple[float, float]:
        rows = kept.of(*which, method)
        over = np.mean([max(0.0, row["cost"] - row["budget"]) for row in rows])
        return -float(over), float(np.mean([row["return"] for row in rows]))

    found = {
        str(key[2]) for key in kept.known if key[:2] == which and str(key[2]).startswith(THEIRS)
    }
    return [max(sorted(found), key=rank)] if found else []


def table(kept: Kept) -> None:
    """All runs, a line for each task, number of steps and method."""
    groups: dict[Key, list[Row]] = {}
    for key, row in sorted(kept.known.items()):
        groups.setdefault(key[:3], []).append(row)
    print(
        "| task | steps | method | seeds | return, objective, gap | cost (budget), or over in % | said | CPU |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for (task, steps, method), rows in groups.items():
        safe = "return" in rows[0]
        kind = "return" if safe else "gap" if "gap" in rows[0] else "objective"
        first = spread([row[kind] for row in rows]) + (" %" if kind == "gap" else "")
        second = spread([row["cost" if safe else "over"] for row in rows])
        second += f" ({rows[0]['budget']:g})" if safe else ""
        said = Counter(word for row in rows for word in row.get("said", {}).values())
        told = ", ".join(f"{count} {word}" for word, count in sorted(said.items()))
        seconds = f"{np.mean([row['seconds'] for row in rows]):.0f}"
        cells = [str(task), f"{steps:,}", str(method), str(len(rows)), first, second, told, seconds]
        print(f"| {' | '.join(cells)} |")


def spread(values: list[float]) -> str:
    """Mean with its 95% interval over the seeds, the least and the largest."""
    if len(values) < 2:
        return f"{values[0]:.4g}"
    return f"{interval(np.array(values))} [{min(values):.4g}, {max(values):.4g}]"


def comparison(kept: Kept) -> None:
    """Ours less the best of theirs, by seeds that both have."""
    print(
        "\n| task | steps | seeds | ours: return at cost | theirs | step | return, ours less theirs | cost |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for task, steps in sorted({key[:2] for key in kept.known if str(key[2]).startswith(THEIRS)}):
        rival = best_of(kept, (task, steps))[0]
        mine, theirs = (
            {row["key"][3]: row for row in kept.of(task, steps, method)} for method in (OURS, rival)
        )
        seeds = sorted(set(mine) & set(theirs))
        if not seeds:
            continue
        found = {
            name: np.array([[rows[seed][name] for seed in seeds] for rows in (mine, theirs)])
            for name in ("return", "cost")
        }
        each = [f"{found['return'][k].mean():.4g} at {found['cost'][k].mean():.3g}" for k in (0, 1)]
        apart = [str(interval(both[0] - both[1])) for both in found.values()]
        step = rival.removeprefix(THEIRS).strip()
        cells = [task, f"{steps:,}", str(len(seeds)), *each, step, *apart]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Run what is asked for, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", nargs="*", default=["listed", "concave"], choices=list(KINDS))
    parser.add_argument(
        "--only", nargs="*", default=[], help="tasks whose name has one of these words"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--steps", type=int, help="instead of the task's own")
    parser.add_argument(
        "--methods", nargs="*", default=["ours"], choices=["ours", "theirs", "best"]
    )
    parser.add_argument("--settings", nargs="*", default=[], help="of ours, name=number")
    parser.add_argument("--again", action="store_true", help="run what is kept already")
    parser.add_argument("--table", action="store_true", help="only print what is kept")
    given = parser.parse_args()
    print(hardware())
    chosen = [
        task
        for kind in given.kind
        for task in KINDS[kind]
        if not given.only or any(word in task.name for word in given.only)
    ]
    kept = Kept(RESULTS, again=given.again)
    if not given.table:
        seeds = range(given.first, given.first + given.seeds)
        run(kept, chosen, seeds, given.steps, given.methods, given.settings)
    table(kept)
    comparison(kept)


if __name__ == "__main__":
    main()
