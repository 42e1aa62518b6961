"""Imitate a demonstrator without his trips near the cliff (Gymnasium's CliffWalking).

He walks from S to G. Six times out of ten he sets out along the edge, and one step in ten goes anywhere: now
and then he falls. His trips are recorded. The student is to spend the time as the demonstrator does, as
nearly as possible, but at most 0.3 discounted steps on the edge, where the demonstrator spends 4.3, and is to
fall at most 0.01 times instead of 0.14.

    python examples/cliff_walking.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import cvxmdp as cm
import showing

NAME, DISCOUNT, TRIPS = "CliffWalking-v1", 0.95, 1_000
START, EDGE = 36, range(25, 35)  # the edge: the ten states above the cliff
SIGNALS: dict[str, showing.Outcome] = {
    "edge": lambda state, action, after, reward, end: float(state in EDGE),
    "fall": lambda state, action, after, reward, end: float(reward == -100),
}
BUDGETS = {"edge": cm.linear("edge") <= 0.3, "fall": cm.linear("fall") <= 0.01}
NORMS: dict[str, dict[str, Any]] = {"l2": {"norm": "l2"}, "kl": {"norm": "kl", "smoothing": 0.01}}


def demonstrator() -> np.ndarray:
    """His policy, (48, 4), for making recordings and for checking afterwards; the student never sees it."""
    up, right, down, _ = np.eye(4)
    heading = np.tile(right, (48, 1))
    heading[START] = up
    heading[24] = 0.6 * right + 0.4 * up  # above the start: along the edge, or one row further up
    heading[[11, 23, 35]] = down
    return 0.9 * heading + 0.1 / 4


def record(seed: int) -> list[dict[str, Any]]:
    """Trips of the demonstrator in the real environment, each until he reaches the goal."""
    policy = cm.TabularPolicy(demonstrator()).seed(seed)

    def steps(env: gymnasium.Env) -> Iterator[tuple[int, int]]:
        state, over = env.reset()[0], False
        while not over:
            action = int(policy.predict(state)[0])
            yield state, action
            state, _, over, _, _ = env.step(action)

    with gymnasium.make(NAME) as env:
        env.reset(seed=seed)
        recorded = [list(zip(*steps(env), strict=True)) for _ in range(TRIPS)]
    return [{"states": s, "actions": a, "terminated": True} for s, a in recorded]


@dataclass(frozen=True)
class Student:
    """One norm, one set of recordings.

    Attributes:
        certificate: of the imitation problem.
        distance: l2 distance of the student to the true demonstrator.
        trial: how the student does in the real environment.
    """

    certificate: cm.Certificate
    distance: float
    trial: showing.Trial


@dataclass(frozen=True)
class Found:
    """What comes out of one seed.

    Attributes:
        error: l2 distance of the recordings to the true demonstrator.
        radius: how large it can be with confidence 0.95, as far as the recordings show.
        students: by norm.
    """

    error: float
    radius: float
    students: Mapping[str, Student]


def learn(mdp: cm.TabularMDP, seed: int, episodes: int) -> Found:
    """Record, imitate, prove and play."""
    truth = cm.occupancy_of(mdp, demonstrator())
    recordings = cm.demonstrations(record(seed), mdp)
    students = {}
    for norm in NORMS:
        problem, certificate = imitate(mdp, recordings, norm)
        with showing.real(NAME, DISCOUNT, SIGNALS) as env:
            trial = showing.play(
                problem,
                certificate.policy,
                env,
                episodes,
                seed,
                bounds=dict.fromkeys(SIGNALS, (0, 1)),
            )
        reached = cm.occupancy_of(mdp, certificate.policy)
        students[norm] = Student(certificate, float(np.linalg.norm(reached - truth)), trial)
    error = float(np.linalg.norm(recordings.occupancy - truth))
    return Found(error, recordings.radius("l2"), students)


def imitate(mdp: cm.TabularMDP, target: Any, norm: str) -> tuple[cm.Problem, cm.Certificate]:
    """The nearest occupancy within the budgets, and the proof that it is."""
    problem = cm.Problem(mdp, minimize=cm.distance(target, **NORMS[norm]), subject_to=BUDGETS)
    return problem, cm.certify(problem, cm.solve(problem))


def main(short: bool = False, picture: Path | None = None) -> list[Found]:
    """Everything for each seed, which draws its own recordings and its own episodes."""
    episodes, seeds = (200, 2) if short else (5_000, showing.SEEDS)
    mdp = cm.from_gymnasium_table(NAME, DISCOUNT, signals=SIGNALS)
    found = [learn(mdp, seed, episodes) for seed in range(seeds)]
    policies = {"demonstrator": demonstrator()}
    policies |= {f"{norm} student": found[0].students[norm].certificate.policy for norm in NORMS}
    show_policies(mdp, policies)
    show_recordings(found, imitate(mdp, cm.occupancy_of(mdp, demonstrator()), "l2")[1])
    for norm in NORMS:
        showing.heading(f"The {norm} student: proven (seed 0)")
        print(found[0].students[norm].certificate)
        showing.show_trials([one.students[norm].trial for one in found], NAME)
    draw(mdp, policies, picture)
    return found


def show_policies(mdp: cm.TabularMDP, policies: Mapping[str, Any]) -> None:
    """What each policy does, exactly."""
    showing.heading("Discounted sums per episode, exact (students of seed 0)")
    signals = ("edge", "fall", "reward")
    rows = (
        (name, *(f"{showing.total(mdp, policy, signal):.4f}" for signal in signals))
        for name, policy in policies.items()
    )
    showing.table(("policy", *signals), rows)


def show_recordings(found: list[Found], best: cm.Certificate) -> None:
    """How good the recordings are, and what their error costs the students."""
    showing.heading("l2 distances: recordings and students to the true demonstrator")
    print(f"No student within the budgets comes nearer to him than {best.lower:.4f} (proven).\n")
    rows = (
        (
            str(seed),
            f"{one.error:.4f}",
            f"{one.radius:.4f}",
            *(f"{one.students[norm].distance:.4f}" for norm in NORMS),
        )
        for seed, one in enumerate(found)
    )
    students = (f"{norm} student" for norm in NORMS)
    showing.table(("seed", "recordings", "at most (0.95)", *students), rows)


def draw(mdp: cm.TabularMDP, policies: Mapping[str, Any], picture: Path | None) -> None:
    """Where each policy spends its time."""
    figure, axes = showing.figure_of(len(policies), 1, width=7.0, height=2.3)
    for one, (name, policy) in zip(axes, policies.items(), strict=True):
        edge = showing.total(mdp, policy, "edge")
        showing.draw_visits(figure, one, mdp, policy, f"{name}: {edge:.2g} steps on the edge")
    showing.save(figure, picture)


if __name__ == "__main__":
    showing.script(main, "cliff_walking")
