"""pessimism="auto": a policy that is certified feasible, and what that costs.

Theorem zero asks for g_i(x) >= delta_i, so that what the iterations miss of it is not missed of the constraint
itself. Its delta needs constants that are rarely known. But where the model is known, feasibility can be proven
afterwards, and so delta can be found: from zero up while it is too little, then down while half is enough.
Every try is the same run from the same start, so ``PDPG(pessimism=...)`` with the value found gives the same
answer, and with half of it one that is not proven feasible.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import Certifier
from cvxmdp.problems.problem import Problem
from cvxmdp.problems.solution import Solution, Status

MOST_HALVINGS = 20  # to a millionth of what was enough at first


class Repeatable(Protocol):
    """A solver on a problem, ready to run from the same start with any pessimism."""

    problem: Problem
    n: int

    @property
    def certifier(self) -> Certifier:
        """Of the problem's model."""
        ...

    def go(self, pessimism: np.ndarray) -> Solution:
        """A run with this pessimism."""
        ...

    def timed(self, solution: Solution) -> Solution:
        """With the time that all runs took."""
        ...


def zero_violation(run: Repeatable) -> Solution:
    """The answer with the smallest pessimism, up to a factor of 2, that is surely feasible; and its price.

    Where even the largest pessimism that leaves a policy is not enough, the answer is mixed with the Slater
    point, as ``certify`` does it.
    """
    solution = _feasible(run)
    if not solution.has_policy:
        return solution
    if solution.status is Status.INTERRUPTED:  # no long proofs after Ctrl-C
        proven = not _shortfall(run, solution).any()
        return replace(solution, stats={**solution.stats, "violation_proven_zero": proven})
    certificate = run.certifier.certify(solution, None)
    if certificate.repaired and certificate.policy is not None:
        solution = _take_repaired(solution, certificate)
    bound = certificate.upper if run.problem.sign > 0 else certificate.lower
    price = run.problem.sign * (bound - solution.objective)
    proven = certificate.policy is not None
    stats = {**solution.stats, "violation_proven_zero": proven, "price": price}
    message = f"{solution.message} {_note(proven, stats['pessimism'], price, bound)}"
    return run.timed(replace(solution, stats=stats, message=message))


def _feasible(run: Repeatable) -> Solution:
    """Raise the pessimism until the answer is surely feasible, then halve it while it still is."""
    names = list(run.problem.constraints)
    margins = run.certifier.slater().margins if names else {}
    limit = 0.9 * np.array([max(margins[name], 0.0) for name in names])
    too_little = pessimism = np.zeros(run.n)
    solution = run.go(pessimism)
    while (short := _shortfall(run, solution)).any():
        # Violated constraints ask for at least what they missed, and for twice as much as last time.
        wanted = np.where(short > 0, np.maximum(2.0 * pessimism, short), pessimism)
        wanted = np.minimum(wanted, limit)
        if solution.status is Status.INTERRUPTED or (wanted <= pessimism).all():
            return solution
        too_little, pessimism = pessimism, wanted
        solution = _another(run, pessimism, solution)
    for _ in range(MOST_HALVINGS):
        pessimism = 0.5 * pessimism
        if solution.status is Status.INTERRUPTED or (pessimism <= too_little).all():
            break
        less = _another(run, pessimism, solution)
        if less.status is Status.INTERRUPTED:
            return _interrupted(solution)
        if _shortfall(run, less).any():
            break
        solution = less
    return solution


def _another(run: Repeatable, pessimism: np.ndarray, solution: Solution) -> Solution:
    """A run with this pessimism; where it is interrupted at once, the solution there was."""
    try:
        return run.go(pessimism)
    except KeyboardInterrupt:
        return _interrupted(solution)


def _interrupted(solution: Solution) -> Solution:
    return replace(solution, status=Status.INTERRUPTED, message=Status.INTERRUPTED.value)


def _shortfall(run: Repeatable, solution: Solution) -> np.ndarray:
    """What each constraint surely misses at most, (n,); zeros for a surely feasible policy."""
    if not solution.has_policy:
        return np.zeros(run.n)
    sure = run.certifier.claims.achieved(solution.policy.probabilities())
    return np.array([max(0.0, -sure.slack[name]) for name in run.problem.constraints])


def _take_repaired(solution: Solution, certificate: Certificate) -> Solution:
    """Where pessimism alone was not enough: the mixture with the Slater point that surely is."""
    note = f" Made feasible by a share of {certificate.repair_share:.1e} of the Slater point."
    assert certificate.policy is not None
    return Solution.of_policy(
        solution.problem,
        certificate.policy,
        solution.status,
        solution.multipliers,
        history=solution.history,
        stats={**solution.stats, "repair_share": certificate.repair_share},
        message=solution.message + note,
    )


def _note(proven: bool, pessimism: dict[str, float], price: float, bound: float) -> str:
    if not proven:
        return "That it violates nothing could not be proven."
    largest = max(pessimism.values(), default=0.0)
    return (
        f"Proven: it violates no constraint. With a pessimism of at most {largest:.2g} its objective is at "
        f"most {price:.2g} from the best possible, which is at best {bound:.8g} (proven)."
    )
