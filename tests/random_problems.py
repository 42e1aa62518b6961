"""Random small problems: every atom, horizon and solver, natural and extreme units; and what must hold of them.

``drawn(seed)`` makes a case of one number; ``judged(case)`` solves it and lists everything that was said and is
not true. ``python tests/random_problems.py 0 1000`` judges a thousand, prints the counts and saves what failed;
``python tests/random_problems.py --again FOLDER`` judges a saved case once more.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
from strategies import (
    AFFINE,
    CONCAVE,
    CONVEX,
    CUSTOM_CONCAVE,
    CUSTOM_CONVEX,
    Maker,
    coverage,
    random_deterministic_policy,
    random_policy,
    smooth_maximum,
)

OWN = {"coverage": coverage, "smooth_maximum": smooth_maximum}
HORIZONS = ("discounted", "near one", "total", "finite", "average")
SCALES = (1.0, 1.0, 1.0, 1e-9, 1e-4, 1e3, 1e7)  # of the signals
ROOMS = (0.3, 0.3, 0.01, 0.0, -0.1, -2.0)  # of a policy in a constraint, relative to its size
SOLVERS: dict[str, Any] = {
    "auto": None,
    "ConvexProgram": cm.ConvexProgram(),
    "ColumnGeneration": cm.ColumnGeneration(tolerance=1e-4, iterations=100),
}
LEARNERS: dict[str, Any] = {
    "PDPG": cm.PDPG(iterations=40),
    "VRPDPG": cm.VRPDPG(
        iterations=20, primal_step=0.1, dual_step=0.1, momentum=0.3, horizon=5, batch_size=2
    ),
    "ModelBased": cm.ModelBased(steps=200),
}
BRIEF = {"brief columns": cm.ColumnGeneration(tolerance=1e-4, iterations=20)}  # of quick cases
EVERY = 40  # one case in so many is for a learner, whose programs are compiled for its shape
MOST_SECONDS = 60.0  # of processor time for one case


@dataclass(frozen=True)
class Case:
    """A problem and who solves it.

    Attributes:
        name: of its folder.
        problem: the problem.
        solvers: by name.
        feasible: some policy satisfies all constraints with room to spare.
    """

    name: str
    problem: cm.Problem
    solvers: tuple[str, ...]
    feasible: bool


@dataclass
class Judged:
    """What cases left behind.

    Attributes:
        cases: how many there were.
        wrong: what was said and is not true, in words.
        counts: of statuses, certificates and errors of ours.
        failed: folders of the cases in which something was wrong.
    """

    cases: int = 0
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[Path] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.cases:,} problems, {len(self.failed)} with something wrong"]
        lines += [f"{count:8,}  {what}" for what, count in sorted(self.counts.items())]
        return "\n".join([*lines, *self.wrong, *(f"  saved: {path}" for path in self.failed)])


def drawn(seed: int, quick: bool = False) -> Case:
    """The case of a number; a quick one has one solver, and no learner."""
    random = np.random.default_rng(seed)
    mdp = _model(random, HORIZONS[seed % len(HORIZONS)], float(random.choice(SCALES)))
    draw = random_policy if random.random() < 0.7 else random_deterministic_policy
    policy, custom = draw(mdp, random), bool(random.random() < 0.05)
    sense, utility = _utility(mdp, random, custom)
    rooms = random.choice(ROOMS, size=int(random.choice([0, 1, 1, 2, 3])))
    limits = {
        f"limit {index}": _constraint(mdp, random, policy, float(room), custom)
        for index, room in enumerate(rooms)
    }
    problem = cm.Problem(mdp, **{sense: utility}, subject_to=limits)  # type: ignore[arg-type]
    names = [*random.permutation(list(SOLVERS))[:2], random.choice(list(LEARNERS))]
    learns = seed % EVERY == EVERY // 2
    solvers = tuple(map(str, names[:1] if quick else names[1:] if learns else names[:2]))
    if quick:  # columns that creep take a second, and are judged like any others after a few
        solvers = tuple("brief columns" if one == "ColumnGeneration" else one for one in solvers)
    return Case(f"seed-{seed}", problem, solvers, bool((rooms > 0).all()))


def _model(random: np.random.Generator, horizon: str, scale: float) -> cm.TabularMDP:
    states, actions = int(random.integers(1, 7)), int(random.integers(1, 4))
    available = random.random((states, actions)) < 0.8
    available[np.arange(states), random.integers(actions, size=states)] = True
    rows = random.dirichlet(np.full(states, random.choice([0.1, 1.0])), size=(states, actions))
    rows[rows < 10.0 ** random.integers(-12, -1)] = 0.0
    rows /= rows.sum(axis=2, keepdims=True)
    if random.random() < 0.3:  # nothing but certain steps
        rows = np.eye(states)[rows.argmax(axis=2)]
    if horizon == "total" or (horizon != "average" and random.random() < 0.4):
        leaves = random.choice([1e-4, 0.01, 0.1, 0.5], size=(states, actions))
        if horizon != "total":
            leaves *= random.random((states, actions)) < 0.5
        rows = rows * (1.0 - leaves)[:, :, None]
    initial = random.dirichlet(np.full(states, 0.5))
    initial[initial < 1e-9] = 0.0
    spread = float(random.choice([0.0, 3.0], p=[0.8, 0.2]))  # orders of magnitude within a signal
    size = (states, actions)
    signals = {
        name: scale * (0.1 + random.random(size)) * 10.0 ** random.uniform(-spread, spread, size)
        for name in ("reward", "cost")
    }
    times: dict[str, dict[str, Any]] = {
        "discounted": {"discount": float(random.choice([0.0, 0.5, 0.9, 0.99]))},
        "near one": {"discount": 1.0 - 10.0 ** -float(random.integers(4, 10))},
        "total": {"discount": 1.0},
        "finite": {"horizon": int(random.integers(1, 7)), "discount": random.choice([1.0, 0.9])},
        "average": {"average": True},
    }
    return cm.TabularMDP(
        rows, initial / initial.sum(), signals=signals, actions=available, **times[horizon]
    )


def _utility(
    mdp: cm.TabularMDP, random: np.random.Generator, custom: bool
) -> tuple[str, cm.Utility]:
    """A sense and a utility of a random kind for it, sometimes in odd units or with a linear term."""
    sense = "maximize" if random.random() < 0.5 else "minimize"
    curved = {"maximize": (CONCAVE, CUSTOM_CONCAVE), "minimize": (CONVEX, CUSTOM_CONVEX)}[sense]
    makers: dict[str, Maker] = {**AFFINE, **curved[0], **(curved[1] if custom else {})}
    utility = makers[str(random.choice(list(makers)))](mdp, random)
    utility = float(random.choice([1.0, 1e-6, 1e5], p=[0.85, 0.075, 0.075])) * utility
    return sense, utility + cm.linear("reward") if random.random() < 0.3 else utility


def _constraint(
    mdp: cm.TabularMDP,
    random: np.random.Generator,
    policy: cm.TabularPolicy,
    room: float,
    custom: bool,
) -> cm.Constraint:
    """One that the policy meets with this much room, relative to its size."""
    sense, utility = _utility(mdp, random, custom)
    problem = cm.Problem(mdp, **{sense: utility})  # type: ignore[arg-type]
    value = float(problem.evaluate(policy).objective)
    if not math.isfinite(value):
        value, room = 0.0, -1.0
    margin = room * max(abs(value), 1e-12)
    return utility <= value + margin if sense == "minimize" else utility >= value - margin


@contextmanager
def hurried() -> Iterator[None]:
    """A TimeoutError after so many seconds of the processor."""

    def late(*_: object) -> None:
        raise TimeoutError(f"it took more than {MOST_SECONDS:.0f} s of processor time")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def judged(case: Case) -> Judged:
    """Solve a case with its solvers, prove it, and list what does not hold."""
    found = Judged(1)
    certificates: dict[str, cm.Certificate] = {}
    for name in case.solvers:
        try:
            with warnings.catch_warnings(), hurried():
                warnings.simplefilter("ignore")
                solver = {**SOLVERS, **LEARNERS, **BRIEF}[name]
                solution = cm.solve(case.problem, solver, seed=0, progress=False)
                certificates[name] = cm.certify(case.problem, solution, confidence=None)
                _judge_one(case, name, solution, certificates[name], found)
        except cm.CvxmdpError as error:
            found.counts[f"refused: {type(error).__name__}: {str(error)[:60]}"] += 1
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            found.wrong.append(f"{case.name}, {name}: {error!r} at {where}")
    bounds = [(one.lower, one.upper) for one in certificates.values() if not one.infeasible]
    promised = any(_promised(one) for one in certificates.values())
    if bounds and not promised and max(low for low, _ in bounds) > min(high for _, high in bounds):
        found.wrong.append(f"{case.name}: certificates contradict each other: {bounds}")
    return found


def _judge_one(
    case: Case, name: str, solution: cm.Solution, certificate: cm.Certificate, found: Judged
) -> None:
    """What one solver said, and the proof of it."""
    who = f"{case.name}, {name}"
    found.counts[f"{name}: {solution.status.name}"] += 1
    for exact in (False, True):
        check = cm.check(certificate, case.problem, exact=exact, progress=False)
        found.counts[f"checked in {check.level}: {str(check).split(':', maxsplit=1)[0]}"] += 1
        if not check:
            found.wrong.append(f"{who}: {str(check)[:400]}")
    if certificate.infeasible:
        found.counts["infeasible, proven"] += 1
        if case.feasible or solution.status is cm.Status.OPTIMAL:
            found.wrong.append(f"{who}: infeasibility is proven of a problem with an answer")
        return
    if certificate.contradicts and not _promised(certificate):
        found.wrong.append(f"{who}: lower {certificate.lower}, upper {certificate.upper}")
    if solution.status is cm.Status.INFEASIBLE and certificate.policy is not None:
        found.wrong.append(f"{who}: called infeasible, and a policy is proven feasible")
    if solution.status is cm.Status.OPTIMAL:
        gap = certificate.relative_gap
        width = "1e-6" if gap <= 1e-6 else "1e-3" if gap <= 1e-3 else "less"
        found.counts[f"optimal, proven to {width}"] += 1


def _promised(certificate: cm.Certificate) -> bool:
    """Whether something may be false that the case did not make: not so where episodes end."""
    return any("episodes" not in promise for promise in certificate.assumes)


def saved(case: Case, found: Judged, folder: Path) -> Path:
    """A folder from which ``again`` reads the case."""
    where = folder / case.name
    case.problem.save(where / "problem")
    said = {"solvers": case.solvers, "feasible": case.feasible, "wrong": found.wrong}
    (where / "case.json").write_text(json.dumps(said, indent=1))
    return where


def again(folder: Path) -> Case:
    """A case that was saved."""
    said = json.loads((folder / "case.json").read_text())
    problem = cm.load_problem(folder / "problem", functions=OWN)
    return Case(folder.name, problem, tuple(said["solvers"]), said["feasible"])


def campaign(numbers: range, folder: Path, quick: bool = False) -> Judged:
    """Judge the cases of these numbers; what fails is saved in the folder."""
    found = Judged()
    for seed in numbers:
        try:
            case = drawn(seed, quick)
        except cm.CvxmdpError as error:  # a constraint that makes no sense in its horizon, mostly
            found.counts[f"not drawn: {str(error)[:60]}"] += 1
            continue
        one = judged(case)
        found.cases += 1
        found.counts += one.counts
        found.wrong += one.wrong
        if one.wrong:
            found.failed.append(saved(case, one, folder))
            print(repr(case.problem), *one.wrong, sep="\n", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("begin", type=int, nargs="?", default=0)
    parser.add_argument("end", type=int, nargs="?", default=1_000)
    parser.add_argument("--quick", action="store_true", help="one solver each, and no learner")
    parser.add_argument("--again", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("out/campaign"))
    given = parser.parse_args()
    if given.again:
        found = judged(again(given.again))
    else:
        found = campaign(range(given.begin, given.end), given.folder, given.quick)
    print(found)
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
