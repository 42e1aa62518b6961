"""A problem: a model or an environment, a concave objective, and named constraints. Immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from cvxmdp.atoms import Constraint, Curvature, Shape, Utility, walk
from cvxmdp.atoms.shapes.shape import measured
from cvxmdp.atoms.utility import require_curvature, signal_names
from cvxmdp.atoms.walks import depth
from cvxmdp.base.errors import ProblemError, did_you_mean
from cvxmdp.base.notebooks import InNotebooks
from cvxmdp.models.space import HasSpace, Space
from cvxmdp.models.table import TabularMDP
from cvxmdp.policies.feature_space import FeatureSpace
from cvxmdp.policies.occupancies import measured_occupancy
from cvxmdp.policies.readers import Observable
from cvxmdp.problems.conic_statement import CvxpyProblem, to_cvxpy
from cvxmdp.problems.lowered import Lowered
from cvxmdp.problems.problem_folder import read_problem, write_problem

DEEPEST = 40  # functions within functions: whoever looks through a utility calls itself for each


@dataclass(frozen=True)
class Evaluation(InNotebooks):
    """What a policy is worth in a problem.

    Attributes:
        objective: its objective, in the user's sign.
        slack: signed slack per constraint; at least zero where the constraint holds.
        occupancy: its occupancy, (S, A).
    """

    objective: float
    slack: dict[str, float]
    occupancy: np.ndarray = field(repr=False)

    @classmethod
    def unknown(cls, problem: Problem) -> Evaluation:
        """Of a policy that nobody has evaluated."""
        slack = dict.fromkeys(problem.constraints, np.nan)
        return cls(np.nan, slack, np.full(problem.shape, np.nan))

    @property
    def violation(self) -> dict[str, float]:
        """max(0, -slack) per constraint."""
        return {name: max(0.0, -slack) for name, slack in self.slack.items()}


def require_problem(given: Any, call: str) -> None:
    """That a problem was given where ``call`` has one, as it is to be written."""
    if not isinstance(given, Problem):
        raise ProblemError(
            f"{call.partition('(')[0]} takes a Problem; got {given!r}. Write {call}."
        )


class Problem(InNotebooks):
    """Maximise a concave (or minimise a convex) utility of the occupancy under constraints.

    The paper's eq. (main problem): max f(x) over occupancies x such that g_i(x) >= 0 for all i.

    Args:
        mdp: the model; or an environment, such as ``GymnasiumEnv``, which only shows episodes: such a problem
            is learned from samples (``VRPDPG``), and its utilities read states, features and signals.
        maximize: a concave utility; or
        minimize: a convex one. Exactly one of the two.
        subject_to: constraints by name, each a comparison of a utility with a number. None or an empty
            mapping means no constraints.
    """

    source: HasSpace  # the model or the environment
    space: Space  # what utilities are functions of
    sense: str
    utility: Utility
    constraints: Mapping[str, Constraint]

    def __init__(
        self,
        mdp: HasSpace,
        maximize: Utility | None = None,
        minimize: Utility | None = None,
        subject_to: Mapping[str, Constraint] | None = None,
    ) -> None:
        if not callable(getattr(mdp, "space", None)):
            raise ProblemError(
                f"a problem needs a model such as TabularMDP(...), or an environment such as "
                f"GymnasiumEnv(...); got {mdp!r}"
            )
        if (maximize is None) == (minimize is None):
            count = "neither" if maximize is None else "both"
            raise ProblemError(f"give exactly one of maximize= and minimize=; got {count}")
        utility, sense = (maximize, "maximize") if minimize is None else (minimize, "minimize")
        constraints = _read_constraints(subject_to)
        self._set("source", mdp)
        named = _signals_of(utility, constraints)
        self._set("space", mdp.space(["reward", *(name for name in named if name != "reward")]))
        self._set("sense", sense)
        self._set("utility", utility)
        self._set("constraints", MappingProxyType(constraints))
        # Curvature and shapes are checked now, not when a solver first looks.
        self._set("objective_function", self._bind_objective(utility))
        self._set("slack_functions", self._bind_slacks())
        if isinstance(self.space, TabularMDP):
            self.space.flow.require(self._charge, named)

    objective_function: Shape  # f, concave, to be maximised
    slack_functions: Mapping[str, Shape]  # g_i, concave, at least zero

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"a Problem cannot be changed (tried to set {name!r}); make another, for example with "
            "problem.with_budget(name, budget)"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Problem cannot be changed (tried to delete {name!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        # For copies and other processes; the default cannot copy the read-only view of constraints.
        given = (self.utility, None) if self.sense == "maximize" else (None, self.utility)
        return Problem, (self.source, *given, dict(self.constraints))

    def _bind_objective(self, utility: Any) -> Shape:
        if self.sense == "maximize":
            return self.bind(require_curvature(utility, Curvature.CONCAVE, "maximize="))
        return self.bind(-require_curvature(utility, Curvature.CONVEX, "minimize="))

    def bind(self, utility: Utility) -> Shape:
        """A utility as a function of this problem's occupancies."""
        if depth(utility) > DEEPEST:
            raise ProblemError(
                f"a utility is nested more than {DEEPEST} functions deep; write the parts of sums and minima "
                "side by side: minimum(a, b, c) for minimum(minimum(a, b), c)"
            )
        function = utility.lower(self.space)
        maps = [map for step in walk(function) for map in step.node.maps()]
        if any(map.shape[0] == 0 for map in maps):  # returns of signals have rows of their own
            raise ProblemError(
                f"{utility!r} reads states or features, and {self.environment!r} has observations that are no "
                "states. Give features=, for instance UniformBins(low, high, bins) or RandomFourier(dimension, "
                "size, seed=0)."
            )
        unknown = self.space.unknown
        if unknown is not None:
            function = function.worst_at(unknown, self.space.reachable_pairs & ~unknown[:, None])
        return measured(function, self.space)

    def _bind_slacks(self) -> Mapping[str, Shape]:
        bound = {}
        for name, constraint in self.constraints.items():
            try:
                bound[name] = self.bind(constraint.slack)
            except ValueError as error:
                raise type(error)(f"constraint {name!r}: {error}") from error
        return MappingProxyType(bound)

    def require_bounded_stays(self, who: str) -> None:
        """An error where policies can stay for ever: a solver that plays any policy would never be done."""
        if self.mdp.flow.strict:
            raise ProblemError(
                f"{who} tries policies that can stay for ever in this model (discount=1). ConvexProgram "
                "answers such problems; or give a discount, or a horizon."
            )

    def _charge(self) -> np.ndarray:
        """What a step costs at least, (S, A), in functions that are minimised or have a budget."""
        charge = np.zeros(self.shape)
        for function in self.functions:
            affine = function.affine()
            if affine is not None and (affine.reward[self.space.reachable_pairs] <= 0).all():
                charge -= np.where(self.space.reachable_pairs, affine.reward, 0.0)
        return charge

    @property
    def functions(self) -> tuple[Shape, ...]:
        """f, and every g_i."""
        return (self.objective_function, *self.slack_functions.values())

    @property
    def mdp(self) -> TabularMDP:
        """The model; an error where there is only an environment."""
        self.require_model("this")
        assert isinstance(self.space, TabularMDP)
        return self.space

    @property
    def environment(self) -> Observable | None:
        """Where experience comes from, where there is no model."""
        return self.space.environment if isinstance(self.space, FeatureSpace) else None

    @property
    def shape(self) -> tuple[int, int]:
        """Of what utilities are functions of: (S, A), or what is measured of an environment."""
        return self.space.measured

    def require_model(self, what: str) -> None:
        """An error where there is only an environment."""
        if self.environment is not None:
            raise ProblemError(
                f"{what} needs a model, and {self.environment!r} only shows episodes. Learn from them: "
                "solve(problem, seed=0, steps=100_000), or solve(problem, VRPDPG(...), seed=0); then "
                "evaluate(solution, environment, episodes). Or make a model: from_gymnasium_table "
                "where there is a table, from_transitions of logged data."
            )

    @property
    def sign(self) -> float:
        """1 when maximising, -1 when minimising: the user's objective is sign * f."""
        return 1.0 if self.sense == "maximize" else -1.0

    @property
    def budgets(self) -> dict[str, float]:
        """The budget of each constraint."""
        return {name: constraint.budget for name, constraint in self.constraints.items()}

    def with_budget(self, name: str, budget: float) -> Problem:
        """The same problem with another budget for one constraint."""
        if name not in self.constraints:
            raise ProblemError(f"no constraint {name!r}. {did_you_mean(name, self.constraints)}")
        changed = {**self.constraints, name: self.constraints[name].with_budget(budget)}
        return Problem(self.source, **{self.sense: self.utility}, subject_to=changed)

    def with_model(self, model: HasSpace) -> Problem:
        """The same objective and constraints over another model: what if?"""
        return Problem(model, **{self.sense: self.utility}, subject_to=self.constraints)

    def evaluate(self, policy: Any) -> Evaluation:
        """Objective, slack and occupancy of a policy.

        Args:
            policy: a policy, a solution, or an (S, A) array of probabilities.
        """
        self.require_model("an exact evaluation")
        if policy is None:
            raise ProblemError("there is no policy to evaluate; got None")
        return self.evaluate_occupancy(measured_occupancy(self.mdp, policy))

    def evaluate_occupancy(self, x: np.ndarray) -> Evaluation:
        """Objective and slack of an occupancy, shape (S, A)."""
        x = self._read_occupancy(x)
        slack = {name: float(g.value(x)) for name, g in self.slack_functions.items()}
        # adding zero turns a negative zero into a plain one
        objective = self.sign * float(self.objective_function.value(x)) + 0.0
        return Evaluation(objective, slack, x)

    def _read_occupancy(self, given: Any) -> np.ndarray:
        """An (S, A) array of float64: other types would be evaluated in lower precision."""
        x = np.asarray(given, dtype=np.float64)
        if x.shape != self.shape:
            raise ProblemError(
                f"an occupancy is an array of shape {self.shape}; got shape {x.shape}"
            )
        return x

    def lagrangian(self, x: np.ndarray, multipliers: Mapping[str, float]) -> float:
        """L(x, mu) = f(x) + sum_i mu_i g_i(x), f in the sign that is maximised."""
        x = self._read_occupancy(x)
        total = float(self.objective_function.value(x))
        return total + sum(
            multipliers[name] * float(g.value(x)) for name, g in self.slack_functions.items()
        )

    def shadow_reward(self, x: np.ndarray, multipliers: Mapping[str, float]) -> np.ndarray:
        """The gradient of L(., mu) at x, shape (S, A): the reward a small change of policy sees."""
        x = self._read_occupancy(x)
        reward = np.array(self.objective_function.gradient(x), dtype=np.float64)
        for name, g in self.slack_functions.items():
            reward = reward + multipliers[name] * g.gradient(x)
        return reward

    def to_cvxpy(self) -> CvxpyProblem:
        """The problem in CVXPY: the way out for what cannot be written here.

        The occupancy is an expression there, so that further variables and constraints can be added to
        ``.problem.constraints``; ``policy_of(mdp, written.occupancy.value)`` is the policy afterwards. An error
        where a function of the user's own has no conic form.
        """
        lowered = Lowered(self)
        if lowered.trusts:
            raise ProblemError(
                "a function of your own (@concave, @convex) is JAX code, which CVXPY cannot take; leave it out "
                "and add it there in CVXPY's atoms"
            )
        return to_cvxpy(lowered, self.sign)

    def save(self, folder: str | Path) -> None:
        """Write the problem into a folder; ``load_problem`` and ``python -m cvxmdp.checker`` read it."""
        write_problem(folder, self)

    def __repr__(self) -> str:
        lines = [f"{self.sense}   {self.utility!r}"]
        width = max((len(name) for name in self.constraints), default=0)
        for index, (name, constraint) in enumerate(self.constraints.items()):
            lead = "subject to" if index == 0 else " " * 10
            lines.append(f"{lead} {name + ':':<{width + 1}} {constraint!r}")
        lines.append(f"over       {self.source!r}")
        return "\n".join(lines)


def _signals_of(utility: Any, constraints: Mapping[str, Constraint]) -> list[str]:
    """The signals that these utilities name."""
    utilities = [utility, *(constraint.slack for constraint in constraints.values())]
    named = [signal_names(one) for one in utilities if isinstance(one, Utility)]
    return sorted(set().union(*named))


def load_problem(folder: str | Path, *, functions: Mapping[str, Utility] | None = None) -> Problem:
    """The problem that ``Problem.save`` wrote.

    Args:
        folder: where it is.
        functions: functions of your own by name, declared with ``@concave`` or ``@convex`` as before; no
            file can hold them.
    """
    return read_problem(folder, Problem, functions or {})


def _read_constraints(given: Any) -> dict[str, Constraint]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ProblemError(
            f"subject_to takes constraints by name, as in {{'hazard': linear('hazard') <= 1.0}}; got "
            f"{given!r}"
        )
    for name, constraint in given.items():
        if not isinstance(name, str) or not name:
            raise ProblemError(f"the name of a constraint must be a string; got {name!r}")
        if not isinstance(constraint, Constraint):
            raise ProblemError(
                f"constraint {name!r} must compare a utility with a number, as in "
                f"linear('cost') <= 1.0; got {constraint!r}"
            )
    return dict(given)
