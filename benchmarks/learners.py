"""ActorCritic with no settings, and a PPO-Lagrangian beside it: every run is kept, one table of all.

    python benchmarks/learners.py [--kind listed tight concave worked paper velocity] [--only WORDS ...]
        [--methods ours theirs] [--seeds 2] [--steps N] [--again]
    python benchmarks/learners.py --table

Runs are kept in ``benchmarks/learners.jsonl``, a line each with its date; what is there is not run again, so
that a table grows with every call. Ours is ``ActorCritic(steps)`` alone; ``theirs`` is the PPO-Lagrangian
of ``learner_rivals`` with each of three steps of its multiplier. Answers of both are judged by a hundred fresh
episodes of the same seeds, drawn as the policy draws; where there is a table, by exact evaluation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
from hardware import hardware
from learner_rivals import ppo_lagrangian
from learner_tasks import CONCAVE, LISTED, PAPER, TIGHT, VELOCITY, WORKED, ConcaveTask, SafeTask

KEPT = Path(__file__).with_name("learners.jsonl")
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


def kept() -> list[Row]:
    """All runs so far."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def keep(row: Row) -> None:
    """One more."""
    with KEPT.open("a") as file:
        file.write(json.dumps(row) + "\n")


def key(row: Row) -> tuple[Any, ...]:
    """What a run is known by."""
    return row["task"], row["method"], row["seed"], row["steps"]


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


def safe_row(task: SafeTask, method: str, seed: int, steps: int) -> Row:
    """Learn once, and look at what came of it."""
    started, said = time.process_time(), {}
    if method == OURS:
        solution = cm.solve(task.problem(), cm.ActorCritic(steps), seed=seed, progress=False)
        policy, said = solution.policy, words(solution)
        policy.seed(seed)
        act: Callable[[Any], Any] = lambda seen: policy.predict(seen)[0]  # noqa: E731
    else:
        act = ppo_lagrangian(task, float(method.split()[-1]), steps, seed)
    seconds = time.process_time() - started
    returns, costs = played(task, act, seed)
    found = {"return": float(returns.mean()), "cost": float(costs.mean()), "budget": task.budget}
    errors = {"return_error": float(returns.std()) / 10.0, "cost_error": float(costs.std()) / 10.0}
    return {**found, **errors, **said, "seconds": round(seconds, 1)}


def concave_row(task: ConcaveTask, method: str, seed: int, steps: int) -> Row:
    """Learn once; gaps are in % of the range from a policy, mostly the uniform one, to the optimum."""
    problem, started = task.problem(), time.process_time()
    found = cm.solve(problem, cm.ActorCritic(steps), seed=seed, progress=False)
    seconds = time.process_time() - started
    excess = [max(0.0, -found.slack[name]) / abs(most) for name, most in problem.budgets.items()]
    told = {"objective": found.objective, "over": 100 * max(excess, default=0.0)}
    if problem.environment is None:
        best = cm.solve(problem).objective
        origin = cm.uniform_policy(problem.mdp) if task.origin is None else task.origin
        span = abs(best - problem.evaluate(origin).objective)  # it may break budgets and do better
        told["gap"] = 100 * problem.sign * (best - found.objective) / span
    return {**told, **words(found), "seconds": round(seconds, 1)}


def words(found: cm.Solution) -> Row:
    """What an answer says of itself."""
    said = {name: str(word) for name, word in found.constraint_status.items()}
    return {
        "said": said,
        "findings": [finding.what for finding in found.findings],
        "answer": found.stats["answer"],
    }


def run(
    tasks: Iterable[SafeTask | ConcaveTask],
    seeds: int,
    steps: int | None,
    methods: list[str],
    again: bool,
) -> None:
    """Everything that is not kept yet."""
    known = {"ours": [OURS], "theirs": [f"{THEIRS} {step:g}" for step in MULTIPLIER_STEPS]}
    done = set() if again else {key(row) for row in kept()}
    for seed in range(seeds):
        for task in tasks:
            for method in [one for name in methods for one in known[name]]:
                if isinstance(task, ConcaveTask) and method != OURS:
                    continue
                count = steps or task.steps
                which: Row = {"task": task.name, "method": method, "seed": seed, "steps": count}
                if key(which) in done:
                    continue
                make = safe_row if isinstance(task, SafeTask) else concave_row
                found = make(task, method, seed, count)  # type: ignore[operator]
                date = datetime.now(UTC).date().isoformat()
                row = {**which, "date": date, **found}
                keep(row)
                print(json.dumps(row), flush=True)


def table() -> None:
    """All runs, a line for each task, method and number of steps; the newest of runs that were repeated."""
    newest = {key(row): row for row in kept()}
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in newest.values():
        groups.setdefault((row["task"], row["steps"], row["method"]), []).append(row)
    print(
        "| task | steps | method | seeds | return, objective, gap | cost (budget), or over in % | said | CPU |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for (task, steps, method), rows in sorted(groups.items()):
        safe = "return" in rows[0]
        kind = "return" if safe else "gap" if "gap" in rows[0] else "objective"
        first = interval([row[kind] for row in rows]) + (" %" if kind == "gap" else "")
        second = interval([row["cost" if safe else "over"] for row in rows])
        second += f" ({rows[0]['budget']:g})" if safe else ""
        said = Counter(word for row in rows for word in row.get("said", {}).values())
        told = ", ".join(f"{count} {word}" for word, count in sorted(said.items()))
        seconds = f"{np.mean([row['seconds'] for row in rows]):.0f}"
        cells = [task, f"{steps:,}", method, str(len(rows)), first, second, told, seconds]
        print(f"| {' | '.join(cells)} |")


def interval(values: list[float]) -> str:
    """Mean and half width of its 95% interval over the seeds; with few of them, the worst and the best, too."""
    numbers = np.array(values)
    if numbers.size < 2:
        return f"{numbers[0]:.4g}"
    half = 1.96 * numbers.std(ddof=1) / np.sqrt(numbers.size)
    return f"{numbers.mean():.4g} ± {half:.2g} [{numbers.min():.4g}, {numbers.max():.4g}]"


def main() -> None:
    """Run what is asked for, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", nargs="*", default=["listed", "concave"], choices=list(KINDS))
    parser.add_argument(
        "--only", nargs="*", default=[], help="tasks whose name has one of these words"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="instead of the task's own")
    parser.add_argument("--methods", nargs="*", default=["ours"], choices=["ours", "theirs"])
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
    if not given.table:
        run(chosen, given.seeds, given.steps, given.methods, given.again)
    table()


if __name__ == "__main__":
    main()
