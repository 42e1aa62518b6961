"""A problem about every model that may be the true one: its functions there, and what is known of the rows.

The estimate masks pairs that nobody tried, and gives states that nobody left the worst coefficient there
is. Of the true model neither holds: there all available pairs can be taken, and every signal is what it is.
So utilities are lowered once more, on the *opened* estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.atoms import Shape, Utility, walk
from cvxmdp.atoms.shapes.shape import measured
from cvxmdp.base.errors import ProblemError
from cvxmdp.models.counts import Counts
from cvxmdp.models.table import TabularMDP

if TYPE_CHECKING:
    from cvxmdp.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """A problem in every model of a set.

    Attributes:
        model: the estimate with all pairs that are available.
        objective: f there, concave, to be maximised.
        slacks: g_i there, by name.
        known: what is known of the rows, as plain data.
    """

    model: TabularMDP
    objective: Shape
    slacks: dict[str, Shape]
    known: dict[str, Any]

    def plain(self) -> dict[str, Any]:
        """All of it as plain data, for the checker and for files."""
        slacks = [slack.plain() for slack in self.slacks.values()]
        return {**self.known, "objective": self.objective.plain(), "slacks": slacks}


def uncertainty_of(problem: Problem) -> Uncertainty | None:
    """The problem in every model that may be the true one; None where the model is known."""
    mdp = problem.mdp
    if mdp.counts is None and not mdp.relative_error:
        return None
    if not mdp.horizon.episodic:
        raise ProblemError(
            f"{mdp.horizon}: of the long-run average in a true model nothing is proven from counts or within "
            "stated errors, which do not show that every such model comes back to one state. Give a discount "
            "near one (mdp.replace(average=False, discount=0.999)) or a horizon=."
        )
    model = mdp if mdp.counts is None else opened(mdp, mdp.counts)
    utility = problem.utility if problem.sense == "maximize" else -problem.utility
    slacks = {name: _lowered(one.slack, model) for name, one in problem.constraints.items()}
    if mdp.counts is None:
        known: dict[str, Any] = {"kind": "relative", "share": float(mdp.relative_error)}
        units = _unit_promises(problem)
        known |= {"promises": units} if units else {}
    else:
        known = _plain_counts(mdp, mdp.counts, problem)
    return Uncertainty(model, _lowered(utility, model), slacks, known)


def opened(mdp: TabularMDP, counts: Counts) -> TabularMDP:
    """The estimate with all pairs that are available; those that nobody tried end at once."""
    actions = counts.available.copy()
    actions[~counts.listed, 0] = True
    signals = {**mdp.signals, **counts.known}
    return mdp.replace(actions=actions, signals=signals, counts=counts)


def _lowered(utility: Utility, model: TabularMDP) -> Shape:
    """The function of occupancies; an error where an estimated signal stands in something not linear."""
    function = utility.lower(model)
    estimated = set(model.estimated)
    written = [name for step in walk(utility) for name in step.node.signals()]
    named = sorted(name for name in written if name in estimated)
    marked = sorted(step.node.signal for step in walk(function) if step.node.signal)
    if named != marked:
        raise ProblemError(
            f"{utility!r}: nothing can be said of the true model where an estimated signal "
            f"({', '.join(sorted(set(named)))}) stands in more than sums, minima and logarithms of returns. "
            "Declare it as a known function of state and action: from_transitions(..., known=...)."
        )
    return measured(function, model)


def _plain_counts(mdp: TabularMDP, counts: Counts, problem: Problem) -> dict[str, Any]:
    signals = {
        name: {
            "sums": one.sums,
            "bounds": None if one.bounds is None else np.array(one.bounds, dtype=np.float64),
            "exact": one.exact,
        }
        for name, one in counts.signals.items()
    }
    for name in mdp.estimated:
        if name not in signals:  # given per successor, or only where pairs were tried
            sums = mdp.signals[name] * counts.visits
            signals[name] = {"sums": sums, "bounds": None, "exact": True}
    return {
        "kind": "counts",
        "outcomes": counts.outcomes,
        "available": counts.available,
        "initial": counts.initial,
        "supports": counts.supports,
        "signals": [{"name": name, **said} for name, said in signals.items()],
        "promises": _promises(counts, problem),
    }


def _promises(counts: Counts, problem: Problem) -> list[str]:
    """What was declared, and the statement rests on."""
    bounded = [name for name, one in counts.signals.items() if one.bounds is not None]
    exact = [name for name, one in counts.signals.items() if one.exact]
    made = []
    if counts.known or exact:
        names = ", ".join(sorted({*counts.known, *exact}))
        made.append(f"the signals that were declared known ({names}) are functions of the pair")
    if bounded:
        made.append(f"signals keep the bounds that were promised of them ({', '.join(bounded)})")
    if counts.supports is not None:
        made.append("nothing happens outside the supports that were declared")
    if counts.initial is None:
        made.append("episodes begin as was declared")
    else:
        made.append("episodes begin independently, with the rows that were read as their first")
    made += counts.promises
    if not counts.available[counts.listed].all():
        made.append("actions that are masked are not available")
    targets = [step.node.target() for function in problem.functions for step in walk(function)]
    if any(target is not None for target in targets):
        made.append(
            "distances are to the occupancies as they are written, or as the estimate has them"
        )
    return [*made, *_unit_promises(problem)]


def _unit_promises(problem: Problem) -> list[str]:
    """Undiscounted, distributions have a unit of their own in every model; here it is the estimate's."""
    flat = all(function.affine() is not None for function in problem.functions)
    horizon = problem.mdp.horizon
    if flat or not horizon.plain_sums or horizon.steps is not None:
        return []
    return ["distributions are in units of the estimate's longest stay, or of the unit= given"]
