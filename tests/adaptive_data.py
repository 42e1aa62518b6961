"""Random problems, data collected by whoever looks at them, and how many certificates are wrong.

    python tests/adaptive_data.py 0 1000               # the campaign, with a confidence of 0.95
    python tests/adaptive_data.py 0 1000 --radius 0.1  # with a tenth of the radius, which must find wrong ones

A line of JSON for every problem is added to benchmarks/results/adaptive_data.jsonl; another run goes on from
there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp

import cvxmdp as cm
from cvxmdp.atoms import Utility
from cvxmdp.certificates import true_claims
from cvxmdp.checker.checked_confidence import ConfidenceRows
from cvxmdp.experience.confidence import Balls
from cvxmdp.models.counts import Counts
from cvxmdp.models.estimate import estimated_model

ROUNDED = 1e-7  # relative: what exact solvers leave open
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "adaptive_data.jsonl"


class Tally(NamedTuple):
    """Of a campaign: certificates that were made, those that were wrong, and in how many problems."""

    certificates: int
    wrong: int
    problems_wrong: int


def campaign(seeds: range, confidence: float = 0.95, looks: int = 3, linear: bool = False) -> Tally:
    """Certificates of plans on the estimate, at several times of each problem; of all kinds, or linear ones."""
    return tally([verdicts(seed, confidence, looks, linear) for seed in seeds])


def tally(problems: list[list[bool]]) -> Tally:
    """Of what was wrong, by problem."""
    made, wrong = sum(map(len, problems)), sum(map(sum, problems))
    return Tally(made, wrong, sum(map(any, problems)))


def verdicts(seed: int, confidence: float, looks: int = 3, linear: bool = False) -> list[bool]:
    """Whether each certificate of one problem is wrong."""
    return [judged(problem, truth, confidence) for problem, truth in looked_at(seed, looks, linear)]


@contextmanager
def scaled_radius(share: float) -> Iterator[None]:
    """Both implementations with radii that are this share of what they should be: wrong in the same way."""
    balls, searched = ConfidenceRows._balls, true_claims.confidence_balls

    def smaller(self: ConfidenceRows, *given: Any) -> Any:
        centre, radius, *more = balls(self, *given)
        return centre, share * radius, *more

    def searched_smaller(*given: Any, **more: Any) -> Balls:
        found = searched(*given, **more)
        return Balls(found.centres, share * found.radius, found.possible, found.supports)

    with (
        patch.object(ConfidenceRows, "_balls", smaller),
        patch.object(true_claims, "confidence_balls", searched_smaller),
    ):
        yield


def judged(problem: cm.Problem, truth: cm.Problem, confidence: float) -> bool:
    """Whether the certificate of the plan on the estimate says anything wrong about the truth."""
    plan, best = cm.solve(problem), cm.solve(truth)
    certificate = cm.certify(problem, plan, confidence=confidence)
    if certificate.infeasible:
        return bool(best.has_policy)
    room = ROUNDED * (1.0 + abs(best.objective)) if best.has_policy else 0.0
    above = best.has_policy and certificate.upper < best.objective - room
    if certificate.policy is None:
        return bool(above)
    there = truth.evaluate(certificate.policy)
    over = certificate.reaches > there.objective + ROUNDED * (1.0 + abs(there.objective))
    slacks = (certificate.slack[name] > there.slack[name] + ROUNDED for name in there.slack)
    return bool(above or over or any(slacks))


def looked_at(seed: int, looks: int, linear: bool) -> list[tuple[cm.Problem, cm.Problem]]:
    """The problem on the estimate and on the truth, each time somebody looked; who plays next depends on it."""
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(2, 6)), int(rng.integers(2, 4))
    world = cm.garnet(
        states, actions, min(states, 3), seed=seed, discount=float(rng.choice([0.5, 0.8]))
    )
    world = world.replace(transition=world.transition * rng.choice([1.0, 0.9]))
    budget = float(rng.uniform(0.3, 0.8)) * world.max_mass
    utility, constraints = _utility(rng, linear), {"cost": cm.linear("cost") <= budget}
    truth = cm.Problem(world, maximize=utility, subject_to=constraints)
    outcomes = np.zeros((states * actions, states + 1), dtype=np.int64)
    begun = np.zeros(states, dtype=np.int64)
    policy, found = world.flow.uniform, []
    for steps in np.cumsum(rng.integers(60, 900, looks)):
        _play(world, policy, int(steps), outcomes, begun, rng)
        counts = Counts(
            sp.csr_array(outcomes.copy()), np.ones((states, actions), bool), begun.copy()
        )
        model = estimated_model(counts, world.discount, known=dict(world.signals))
        problem = cm.Problem(model, maximize=utility, subject_to=constraints)
        found.append((problem, truth))
        plan = cm.solve(problem)
        greedy = np.asarray(plan.policy.probabilities()) if plan.has_policy else world.flow.uniform
        policy = 0.8 * greedy + 0.2 * world.flow.uniform
        if rng.random() < 0.3 and plan.has_policy and plan.objective > 0:
            break  # somebody likes what is seen, and stops
    return found


def _utility(rng: np.random.Generator, linear: bool) -> Utility:
    reward, cost = cm.linear("reward"), cm.linear("cost")
    if linear:
        return reward
    choices = (reward, reward, cm.entropy(), cm.minimum(reward, cost), reward + 0.3 * cm.entropy())
    return choices[int(rng.integers(len(choices)))]


def _play(
    world: cm.TabularMDP,
    policy: np.ndarray,
    steps: int,
    outcomes: np.ndarray,
    begun: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Episodes of twenty steps at most; outcomes are counted, a cut is none."""
    rows = world.transition.toarray()
    rows = np.column_stack([rows, np.maximum(1.0 - rows.sum(axis=1), 0.0)])
    bounds, chosen, starts = rows.cumsum(axis=1), policy.cumsum(axis=1), world.initial.cumsum()
    end, state, age = world.n_states, world.n_states, 0
    for draw in rng.random((steps, 3)):
        if state == end or age == 20:
            state, age = min(int(np.searchsorted(starts, draw[0])), end - 1), 0
            begun[state] += 1
        action = min(int(np.searchsorted(chosen[state], draw[1])), world.n_actions - 1)
        row = state * world.n_actions + action
        state = min(int(np.searchsorted(bounds[row], draw[2])), end)
        outcomes[row, state] += 1
        age += 1


def main() -> None:
    """The campaign, from where the file ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=int)
    parser.add_argument("behind", type=int)
    parser.add_argument("--radius", type=float, default=1.0, help="share of the radius")
    parser.add_argument("--confidence", type=float, default=0.95)
    asked = parser.parse_args()
    settings = {"radius": asked.radius, "confidence": asked.confidence}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    lines = RESULTS.read_text("utf-8").splitlines() if RESULTS.exists() else []
    known = [one for one in map(json.loads, lines) if settings.items() <= one.items()]
    found = {one["seed"]: one["wrong"] for one in known}
    with scaled_radius(asked.radius), RESULTS.open("a", encoding="utf-8") as file:
        for seed in range(asked.first, asked.behind):
            if seed not in found:
                found[seed] = verdicts(seed, asked.confidence)
                print(json.dumps({"seed": seed, **settings, "wrong": found[seed]}), file=file)
                file.flush()
    total = tally(list(found.values()))
    print(
        f"{total.wrong} of {total.certificates:,} certificates wrong, on {total.problems_wrong} of "
        f"{len(found):,} problems ({settings})"
    )


if __name__ == "__main__":
    main()
