"""A problem written in CVXPY: the occupancy as a variable, and every function with the cone that it is.

    maximise f(x)   subject to   g_i(x) >= 0,   x >= 0,
                                 sum_a x(s,a) = rho(s) + gamma sum P(s | s',a') x(s',a')

Only pairs that some policy can take become variables: the others are zero anyway, and a logarithm of a variable
that cannot be positive has no interior to walk in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.atoms.maps import Map
from cvxmdp.atoms.shapes import Shape
from cvxmdp.atoms.shapes.shape import ConicForm
from cvxmdp.base.errors import require
from cvxmdp.problems.lowered import Lowered

LEAST_UNIT = 1e-290


class OccupancyProgram:
    """The occupancy as a CVXPY variable, and what shapes add to the program.

    Attributes:
        cp: the module cvxpy.
        usable: boolean (S, A), the pairs that are variables.
        typical: occupancies, (S, A) each, at which sizes are measured; without any, every size is one.
        shares: the CVXPY variable, one number per usable pair, in row-major order.
        pairs: the occupancy there: the shares in units of its mass.
        side_constraints: cones of the shapes, and on further variables that they need.
    """

    def __init__(self, usable: np.ndarray, typical: Sequence[np.ndarray] = ()) -> None:
        self.cp, self.typical = require("cvxpy", "convex"), typical
        self.usable, self.places = usable, np.flatnonzero(usable)
        self.shares = self.cp.Variable(self.places.size, nonneg=True)
        self.pairs = self.size(np.sum) * self.shares
        self.side_constraints: list[Any] = []

    def inner(self, reward: np.ndarray) -> Any:
        """<reward, x>."""
        return reward[self.usable] @ self.pairs

    def image(self, map: Map) -> Any:
        """U = M x, (rows,); rows that no policy can move are zero."""
        return map.to_sparse()[:, self.places] @ self.pairs

    def live(self, map: Map) -> np.ndarray:
        """Rows of the map that some policy can move, as indices."""
        return np.flatnonzero(map.live(self.usable))

    def size(self, function: Callable[[np.ndarray], Any]) -> float:
        """Of the function's values: the unit in which the solver is to see them."""
        with np.errstate(invalid="ignore"):  # a logarithm may be minus infinity
            return largest(*(function(point) for point in self.typical))

    def require(self, *constraints: Any) -> None:
        """Add constraints to the program."""
        self.side_constraints.extend(constraints)


class Units(NamedTuple):
    """A typical size of f and of each g_i over the occupancies."""

    objective: float
    slacks: dict[str, float]


def units_of(lowered: Lowered) -> Units:
    """Measured at two occupancies, by values and by what the gradient at the first could change.

    For f it is the difference of the values, since its constant plays no part.
    """
    points = lowered.flow.typical
    with np.errstate(invalid="ignore"):  # a logarithm may be minus infinity at both
        values = [lowered.objective.value(point) for point in points]
        difference = values[0] - values[1]
    names, slacks = lowered.slacks.keys(), list(lowered.slacks.values())
    objective = largest(difference, _change(lowered, lowered.objective, points[0]))
    return Units(objective, dict(zip(names, sizes_of(lowered, slacks, points), strict=True)))


def sizes_of(
    lowered: Lowered, functions: Sequence[Shape], points: Sequence[np.ndarray] = ()
) -> list[float]:
    """A typical size of each function over the occupancies: by values alone, one that is zero here has none."""
    points = points or lowered.flow.typical
    return [
        largest(*(function.value(point) for point in points), _change(lowered, function, points[0]))
        for function in functions
    ]


def _change(lowered: Lowered, function: Shape, point: np.ndarray) -> np.ndarray:
    model = lowered.flow
    return np.asarray(function.gradient(point)[model.usable] * model.mass)


def largest(*numbers: Any) -> float:
    """The largest finite absolute value of all arrays together; one where its inverse would not be finite."""
    sizes = np.abs(np.concatenate([np.zeros(1), *(np.ravel(part) for part in numbers)]))
    found = float(sizes[np.isfinite(sizes)].max())
    return found if found > LEAST_UNIT else 1.0


class ConicStatement:
    """A problem that CVXPY can take, with functions in units of their own size.

    Args:
        lowered: the problem; all of its functions have a conic form.
        scaled: hand functions over in units of their own size.

    Attributes:
        program: the occupancy, and what shapes added to it.
        units: of f and of each g_i.
        objective, slacks: the conic forms.
        budgets: g_i / unit >= 0, by name.
        balance: the flow equations.
    """

    def __init__(self, lowered: Lowered, scaled: bool = True) -> None:
        model = lowered.flow
        self.program = OccupancyProgram(model.usable, model.typical if scaled else ())
        cp = self.program.cp
        self.units = units_of(lowered) if scaled else Units(1.0, dict.fromkeys(lowered.slacks, 1.0))
        self.equations = model.equations()
        self.objective: ConicForm = lowered.objective.conic(self.program)
        self.slacks = {name: g.conic(self.program) for name, g in lowered.slacks.items()}
        self.budgets = {
            name: cp.Constant(0.0) <= form.expression / self.units.slacks[name]
            for name, form in self.slacks.items()
        }
        mass = self.program.pairs / model.mass
        self.balance = self.equations.matrix @ mass == self.equations.right

    @property
    def constraints(self) -> list[Any]:
        """All of them, with the cones of the shapes."""
        return [self.balance, *self.budgets.values(), *self.program.side_constraints]


class CvxpyProblem(NamedTuple):
    """A problem as CVXPY has it, to go on with: add constraints, change the objective, choose a solver.

    Attributes:
        problem: the ``cvxpy.Problem``.
        occupancy: x, an affine expression of shape (S, A); with a horizon of T steps (T * S, A).
        constraints: those of ``subject_to`` by name, as slack >= 0 in some unit.
    """

    problem: Any
    occupancy: Any
    constraints: dict[str, Any]


def to_cvxpy(lowered: Lowered, sign: float) -> CvxpyProblem:
    """The statement in the user's sign."""
    stated = ConicStatement(lowered)
    cp, program = stated.program.cp, stated.program
    objective = stated.objective.expression
    goal = cp.Maximize(objective) if sign > 0 else cp.Minimize(-objective)
    size = program.usable.size
    spread = sp.csr_array(sp.eye_array(size))[:, program.places]
    x = cp.reshape(spread @ program.pairs, program.usable.shape, order="C")
    return CvxpyProblem(cp.Problem(goal, stated.constraints), x, stated.budgets)
