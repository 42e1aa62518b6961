r"""A problem as algorithms take it: arrays of the model, and functions that are concave and maximised.

    max f(x)   such that   g_i(x) >= 0,   x in the polytope of occupancies,

with an affine bound of every function for any admissible parameters: the *tangents*. Multipliers, tangents and
values together are ``Evidence`` of an upper bound. What is found with them here is in plain float64; what is
*claimed* the checker computes anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.atoms import walk
from cvxmdp.atoms.shapes import MinimumShape, Shape
from cvxmdp.atoms.walks import positive_in
from cvxmdp.base.errors import ModelError, ProblemError
from cvxmdp.models.table import TabularMDP
from cvxmdp.problems.uncertainty import Uncertainty, uncertainty_of

if TYPE_CHECKING:
    from cvxmdp.problems.problem import Problem

RAISED = (1.0, 1.0 + 1e-11, 1.0 + 1e-9, 1.0 + 1e-7, 1.0 + 1e-5)  # multipliers
BLURRED = 2.0**-40  # of the steepest slope of a curved function, that others may lack
PROBLEM_FORMAT = "cvxmdp problem 2"


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a solver knows about the best objective of a problem: all that an upper bound needs.

    Attributes:
        multipliers: mu_i >= 0 per constraint.
        tangents: "objective" and, by constraint, "slacks": parameters of each function's tangent.
        values: V, (S,), of the tangents' reward; None where they are still to be found.
        remainder: E, (S,), that covers what the values leave open; None where it is to be found, or not needed.
        policy: a policy that is good for it, (S, A) probabilities, or None.
        infeasible: it is of ``Lowered.smallest_slack``, and shows that no policy satisfies all constraints.
    """

    multipliers: dict[str, float]
    tangents: dict[str, Any]
    values: np.ndarray | None = None
    policy: np.ndarray | None = None
    infeasible: bool = False
    remainder: np.ndarray | None = None


class Lowered:
    """A problem as arrays and functions with tangents.

    Attributes:
        flow: the model.
        objective: f.
        slacks: g_i by name.
    """

    def __init__(self, problem: Problem) -> None:
        problem.require_model("a proof")
        self.flow = problem.mdp.flow
        self.sense, self.statement = problem.sense, repr(problem)
        self.note, self.horizon = str(problem.mdp.note), problem.mdp.horizon
        # As they were given: the flow's rows sum to one, and may be of every time.
        self.transition, self.initial = problem.mdp.transition, problem.mdp.initial
        self.actions = problem.mdp.actions
        self.objective: Shape = problem.objective_function
        self.slacks: dict[str, Shape] = dict(problem.slack_functions)
        self._problem = problem

    @property
    def model(self) -> TabularMDP:
        """What it is about."""
        return self._problem.mdp

    @cached_property
    def uncertainty(self) -> Uncertainty | None:
        """The problem in every model that may be the true one; None where the model is known."""
        try:
            return uncertainty_of(self._problem)
        except ProblemError:
            return None

    def with_objective(
        self, objective: Shape, slacks: Mapping[str, Shape] | None = None
    ) -> Lowered:
        """The same model with other functions; without constraints unless they are given."""
        other = copy(self)
        other.__dict__.pop("affine", None)
        other.objective, other.slacks = objective, dict(slacks or {})
        return other

    def smallest_slack(self) -> Lowered:
        """The same model with the smallest slack as the objective, and no constraints.

        A negative upper bound for it proves that no policy satisfies all constraints; a policy that
        is good at it is a Slater point.
        """
        return self.with_objective(MinimumShape(tuple(self.slacks.values())))

    @property
    def functions(self) -> list[Shape]:
        return [self.objective, *self.slacks.values()]

    def named(self, multipliers: np.ndarray) -> dict[str, float]:
        """One number for every slack, by its name."""
        return dict(zip(self.slacks, multipliers.tolist(), strict=True))

    @cached_property
    def affine(self) -> bool:
        """True when every function is its own tangent."""
        return all(function.affine() is not None for function in self.functions)

    @property
    def linear(self) -> bool:
        """True for a linear program: affine slacks, and an objective that is a minimum of affine functions."""
        known = [self.objective.pieces(), *(slack.affine() for slack in self.slacks.values())]
        return all(part is not None for part in known)

    @property
    def arguments(self) -> list[Shape]:
        """What must be positive where objective and slacks are to be finite: arguments of logarithms."""
        return positive_in(self.functions)

    @property
    def trusts(self) -> bool:
        """True where a function of the user's own is taken at its word, at occupancies only."""
        return any(step.node.trusted for one in self.functions for step in walk(one))

    def plain(self) -> dict[str, Any]:
        """The whole problem as plain data, for the checker and for files."""
        known = self.uncertainty
        found = {
            "format": PROBLEM_FORMAT,
            "sense": self.sense,
            "statement": self.statement,
            "note": self.note,
            **self.horizon.arguments(),
            "transition": self.transition,
            "initial": self.initial,
            "actions": self.actions,
            "objective": self.objective.plain(),
            "slacks": {name: g.plain() for name, g in self.slacks.items()},
        }
        return found if known is None else {**found, "uncertainty": known.plain()}

    def tangents_at(self, x: np.ndarray) -> dict[str, Any]:
        """Tangents of every function at x."""
        slacks = {name: node.at(x) for name, node in self.slacks.items()}
        return {"objective": self.objective.at(x), "slacks": slacks}

    def lagrangian_tangent(
        self, multipliers: Mapping[str, float], tangents: Mapping[str, Any]
    ) -> tuple[np.ndarray, float]:
        """Reward and constant of an affine function above the Lagrangian f + sum mu_i g_i."""
        tangent = self.objective.tangent(tangents["objective"])
        reward, constants = np.array(tangent.reward), [tangent.offset]
        for name, node in self.slacks.items():
            multiplier = float(multipliers[name])
            if multiplier > 0:
                part = node.tangent(tangents["slacks"][name])
                reward += multiplier * part.reward
                constants.append(multiplier * part.offset)
        # Tangents at pairs that no policy takes are arbitrary, and can be steep.
        known = math.fsum(constants) if np.isfinite(constants).all() else math.nan
        return np.where(self.flow.usable, reward, 0.0), known

    def proving_values(
        self,
        multipliers: dict[str, float],
        tangents: Mapping[str, Any],
        guess: np.ndarray | None = None,
    ) -> tuple[dict[str, float], np.ndarray | None]:
        """Values that prove a bound with these multipliers; None where there are none.

        At optimal multipliers staying for ever may be worth exactly nothing. Then they are raised a little,
        so that it costs something beyond rounding; that of slopes, too, which may cancel.
        """
        slopes = np.zeros(self.flow.shape)
        if self.flow.strict and not self.affine:
            slopes = np.where(
                self.flow.usable, self.objective.tangent(tangents["objective"]).reward, 0
            )
        blur = np.where(slopes != 0, BLURRED * np.abs(slopes).max(initial=0.0), 0.0)
        for raised in RAISED if self.flow.strict else RAISED[:1]:
            known = {name: raised * mu for name, mu in multipliers.items()}
            reward, _ = self.lagrangian_tangent(known, tangents)
            if not np.isfinite(reward).all() or (
                guess is not None and not np.isfinite(guess).all()
            ):
                break
            try:
                return known, self.flow.best_values(reward + blur, guess)[0]
            except ModelError:
                continue
        return multipliers, None

    def upper_bound(
        self, multipliers: Mapping[str, float], tangents: Mapping[str, Any], values: np.ndarray
    ) -> float:
        """What no feasible f exceeds, up to rounding."""
        reward, constant = self.lagrangian_tangent(multipliers, tangents)
        return self.flow.best_return(reward, values) + constant
