"""pessimism="auto": a policy that is certified feasible, and what that costs.

Theorem zero asks for g_i(x) >= delta_i, so that what the iterations miss of it is not missed of the constraint
itself. Its delta needs constants that are rarely known. But where the model is known, feasibility can be proven
afterwards, and so delta can be found: from zero up while it is too little, then down while half is enough.
Every try is the same run from the same start, so ``PDPG(pessimism=...)`` with the value found gives the same
answer, and with half of it one that is not proven feasible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import Certifier
from cvxmdp.problems.solution import Solution
from cvxmdp.solvers.contract import Work
from cvxmdp.solvers.repeated import STATUSES, Repeated, Tries

MOST_HALVINGS = 20  # to a millionth of what was enough at first


class ZeroViolation(Repeated):
    """The smallest pessimism, up to a factor of 2, with which the answer is surely feasible; and its price.

    Where even the largest pessimism that leaves a policy is not enough, the answer is mixed with the Slater
    point, as ``certify`` does it. So is that of the run without pessimism, and the better of the two is
    returned: where that run misses a constraint by little, mixing costs little.
    """

    def __init__(self, certifier: Certifier, make: Callable[[np.ndarray], Work[Any]]) -> None:
        self.certifier = certifier
        self.names = list(certifier.problem.constraints)
        super().__init__(make, len(self.names))

    @cached_property
    def limit(self) -> np.ndarray:
        """The largest pessimism that is tried, (n,)."""
        margins = self.certifier.slater().margins if self.names else {}
        return 0.9 * np.array([max(margins[name], 0.0) for name in self.names])

    def concluded(self, state: Tries, solution: Solution) -> Tries:
        """Raise the pessimism until the answer is surely feasible, then halve it while it still is."""
        short, pessimism = self._shortfall(solution), state.current.pessimism
        if state.halvings >= 0 and short.any():
            return state._replace(over=np.array(True))
        state = state._replace(kept=state.current)
        if short.any():
            # Violated constraints ask for at least what they missed, and for twice as much as last time.
            wanted = np.where(short > 0, np.maximum(2.0 * pessimism, short), pessimism)
            wanted = np.minimum(wanted, self.limit)
            if (wanted <= pessimism).all():
                return state._replace(over=np.array(True))
            return self.following(state, wanted, too_little=pessimism)
        halvings = np.array(max(int(state.halvings), 0) + 1)
        if halvings > MOST_HALVINGS or (0.5 * pessimism <= state.too_little).all():
            return state._replace(over=np.array(True))
        return self.following(state, 0.5 * pessimism, halvings=halvings)

    def searched(self, state: Tries, solution: Solution) -> Solution:
        """With the proof, and what feasibility costs."""
        if not solution.has_policy:
            return solution
        sign = self.problem.sign
        solution, certificate = self._repaired(solution)
        bound = certificate.upper if sign > 0 else certificate.lower
        if state.number and state.kept.state is not state.plain.state:
            status = STATUSES[int(state.plain.status)]
            plain, other = self._repaired(self.answer(state.plain, status))
            bound = (
                min(certificate.upper, other.upper)
                if sign > 0
                else max(certificate.lower, other.lower)
            )
            better = sign * (plain.objective - solution.objective) > 0
            if other.policy is not None and (better or certificate.policy is None):
                solution, certificate = plain, other
        price = sign * (bound - solution.objective)
        proven = certificate.policy is not None
        stats = {**solution.stats, "violation_proven_zero": proven, "price": price}
        message = f"{solution.message} {_note(proven, stats['pessimism'], price, bound)}"
        return replace(solution, stats=stats, message=message)

    def _repaired(self, solution: Solution) -> tuple[Solution, Certificate]:
        """The answer, mixed with the Slater point as far as it takes, and what is proven of it."""
        certificate = self.certifier.certify(solution, None)
        if certificate.repaired and certificate.policy is not None:
            solution = _take_repaired(solution, certificate)
        return solution, certificate

    def stopped(self, solution: Solution) -> Solution:
        proven = solution.has_policy and not self._shortfall(solution).any()
        return replace(solution, stats={**solution.stats, "violation_proven_zero": proven})

    def _shortfall(self, solution: Solution) -> np.ndarray:
        """What each constraint surely misses at most, (n,); zeros for a surely feasible policy."""
        if not solution.has_policy:
            return np.zeros(self.n)
        sure = self.certifier.claims.achieved(solution.policy.probabilities())
        return np.array([max(0.0, -sure.slack[name]) for name in self.names])


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
