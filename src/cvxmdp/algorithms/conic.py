r"""Finding a tight proof with a conic solver: the optimal tangents are dual variables.

Every atom phi(A x) is written as phi(u) with the equation u = A x. At the optimum the multiplier of
that equation is the slope of the atom that optimality needs, kinks included, times the factor that
stands before the atom in the Lagrangian. Dividing by the factor gives the tangent's parameters. The
solver's accuracy decides how tight the bound is, not whether it is true: ``bounds`` computes it anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.atoms import nodes as atoms
from cvxmdp.atoms.nodes import Node, Parameters
from cvxmdp.base.errors import MissingExtraError, require
from cvxmdp.problems.lowered import Evidence, Lowered

NEGLIGIBLE = 1e-9  # a factor below which an atom's slope cannot be read off

Read = Callable[[float, np.ndarray], Parameters]


class Form(NamedTuple):
    """A node as a CVXPY expression, and how to read its parameters once the program is solved."""

    expression: Any
    read: Read  # (factor, optimal occupancy) -> parameters


def dual_program(lowered: Lowered, tolerance: float = 1e-10) -> Evidence | None:
    """Solve the problem and read off a proof; None where no conic solver can (or it finds nothing)."""
    try:
        cp = require("cvxpy", "convex")
    except MissingExtraError:
        return None
    builder = _Builder(lowered, cp)
    try:
        objective = builder.form(lowered.objective)
        slacks = {name: builder.form(node) for name, node in lowered.slacks.items()}
    except _NoConicFormError:
        return None
    holds = {name: cp.Constant(0.0) <= form.expression for name, form in slacks.items()}
    constraints = [*builder.equations(), *holds.values()]
    program = cp.Problem(cp.Maximize(objective.expression), constraints)
    options = {f"tol_{name}": tolerance for name in ("gap_abs", "gap_rel", "feas")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.solve(solver=cp.CLARABEL, accept_unknown=True, **options)
    except cp.error.SolverError:
        return None
    if builder.pairs.value is None or (holds and any(c.dual_value is None for c in holds.values())):
        return None
    x = np.zeros(lowered.flow.shape)
    x[builder.usable] = np.maximum(builder.pairs.value, 0.0)
    multipliers = {
        name: max(0.0, float(np.ravel(held.dual_value)[0])) for name, held in holds.items()
    }
    parameters = {name: form.read(multipliers[name], x) for name, form in slacks.items()}
    tangents = {"objective": objective.read(1.0, x), "slacks": parameters}
    return Evidence(multipliers, tangents, policy=lowered.flow.policy(x))


class _NoConicFormError(Exception):
    """A function that only its gradient is known of."""


class _Builder:
    """Builds the program; keeps the equations whose multipliers are the slopes."""

    def __init__(self, lowered: Lowered, cp: Any) -> None:
        self.model, self.cp = lowered.flow, cp
        self.usable = self.model.usable
        self.places = np.flatnonzero(self.usable)
        self.pairs = cp.Variable(self.places.size, nonneg=True)
        self.extra: list[Any] = []

    def _select(self, rows: np.ndarray, height: int) -> sp.csr_array:
        entries = (np.ones(rows.size), (rows, np.arange(rows.size)))
        return sp.csr_array(entries, shape=(height, rows.size))

    def equations(self) -> list[Any]:
        """The flow equations, and those between atoms and the occupancy."""
        states = np.nonzero(self.usable)[0]
        leaving = self._select(states, self.model.shape[0])
        arriving = self.model.discount * self.model.transition[self.places].T
        flow = sp.csr_array(leaving - arriving)[self.model.reached]
        return [flow @ self.pairs == self.model.initial[self.model.reached], *self.extra]

    def _argument(self, expression: Any) -> tuple[Any, Any]:
        """A variable u with u = expression, and the equation whose multiplier is the slope."""
        u = self.cp.Variable(expression.shape)
        equation = u - expression == 0
        self.extra.append(equation)
        return u, equation

    def _flat(self) -> Any:
        size = self.model.shape[0] * self.model.shape[1]
        return self._select(self.places, size) @ self.pairs

    def _slope_reader(
        self, node: Node, equation: Any, convert: Callable[[np.ndarray], Parameters]
    ) -> Read:
        def read(factor: float, x: np.ndarray) -> Parameters:
            if abs(factor) < NEGLIGIBLE or equation.dual_value is None:
                return node.at(x)
            return convert(np.asarray(equation.dual_value, dtype=np.float64) / factor)

        return read

    def form(self, node: Node) -> Form:
        """The node in CVXPY, with a reader of its parameters."""
        for kind, build in (
            (atoms.LinearNode, self._linear),
            (atoms.SumNode, self._sum),
            (atoms.EntropyNode, self._entropy),
            (atoms.KLNode, self._kl),
            (atoms.DistanceNode, self._distance),
            (atoms.QuadraticNode, self._quadratic),
            (atoms.LogNode, self._log),
            (atoms.MinimumNode, self._minimum),
        ):
            if isinstance(node, kind):
                return build(node)  # type: ignore[arg-type]
        raise _NoConicFormError

    def _linear(self, node: atoms.LinearNode) -> Form:
        return Form(node.reward[self.usable] @ self.pairs, lambda factor, x: {})

    def _sum(self, node: atoms.SumNode) -> Form:
        forms = [self.form(part) for part in node.nodes]
        terms = [w * form.expression for w, form in zip(node.weights, forms, strict=True)]

        def read(factor: float, x: np.ndarray) -> Parameters:
            pairs = zip(node.weights, forms, strict=True)
            return {"parts": [form.read(factor * weight, x) for weight, form in pairs]}

        return Form(sum(terms) + node.offset, read)

    def _entropy(self, node: atoms.EntropyNode) -> Form:
        if node.of == "state":
            states = np.nonzero(self.usable)[0]
            _, rows = np.unique(states, return_inverse=True)
            p = node.scale * (self._select(rows, int(rows.max()) + 1) @ self.pairs)
        else:
            p = node.scale * self.pairs
        u, equation = self._argument(p)

        def convert(slope: np.ndarray) -> Parameters:
            log_q = np.zeros(node.cells.shape)
            log_q[node.cells] = -slope - 1.0
            return {"log_q": np.minimum(log_q, 1.0)}

        return Form(self.cp.sum(self.cp.entr(u)), self._slope_reader(node, equation, convert))

    def _kl(self, node: atoms.KLNode) -> Form:
        u, equation = self._argument(node.scale * self.pairs)
        outside = float(node.t[~self.usable].sum())

        def convert(slope: np.ndarray) -> Parameters:
            log_q = np.zeros(node.t.shape)
            log_q[self.usable] = slope + node.log_t[self.usable]
            return {"log_q": np.minimum(log_q, 1.0)}

        divergence = self.cp.sum(self.cp.kl_div(u, node.t[self.usable])) + outside
        return Form(divergence, self._slope_reader(node, equation, convert))

    def _distance(self, node: atoms.DistanceNode) -> Form:
        cp, target = self.cp, node.target
        flat = self._flat()
        if isinstance(target, atoms.BoxTarget | atoms.BallTarget | atoms.PolytopeTarget):
            z = cp.Variable(flat.shape[0])
            self.extra.extend(self._inside(target, z))
            residual = flat - z
        else:
            residual = flat - target.point.ravel()
        u, equation = self._argument(residual)
        norms = {"l1": cp.norm1, "l2": cp.norm2, "l2-squared": cp.sum_squares}

        def convert(slope: np.ndarray) -> Parameters:
            direction = slope / 2.0 if node.norm == "l2-squared" else slope
            return target.at(direction.reshape(node.shape))

        return Form(norms[node.norm](u), self._slope_reader(node, equation, convert))

    def _inside(self, target: atoms.PointTarget, z: Any) -> list[Any]:
        if isinstance(target, atoms.BallTarget):
            return [self.cp.norm2(z - target.point.ravel()) <= target.radius]
        if isinstance(target, atoms.PolytopeTarget):
            return [target.matrix @ z <= target.bounds]
        assert isinstance(target, atoms.BoxTarget)
        low, high = target.lower.ravel(), target.upper.ravel()
        below, above = np.isfinite(low), np.isfinite(high)
        sides = [z[below] >= low[below]] if below.any() else []
        return sides + ([z[above] <= high[above]] if above.any() else [])

    def _quadratic(self, node: atoms.QuadraticNode) -> Form:
        flat = self._flat()
        product = sp.diags_array(node.root.ravel()) @ flat if node.diagonal else node.root @ flat
        u, equation = self._argument(product)
        shape = node.shape if node.diagonal else (node.root.shape[0],)

        def convert(slope: np.ndarray) -> Parameters:
            return {"v": slope.reshape(shape) / 2.0}

        return Form(self.cp.sum_squares(u), self._slope_reader(node, equation, convert))

    def _log(self, node: atoms.LogNode) -> Form:
        inner = self.form(node.inner)
        t = self.cp.Variable()
        self.extra.append(t <= inner.expression)

        def read(factor: float, x: np.ndarray) -> Parameters:
            at = float(t.value) if t.value is not None and float(t.value) > 0 else 1.0
            return {"t": at, "parts": [inner.read(factor / at, x)]}

        return Form(self.cp.log(t), read)

    def _minimum(self, node: atoms.MinimumNode) -> Form:
        forms = [self.form(part) for part in node.nodes]
        smallest = self.cp.Variable()
        below = [smallest <= form.expression for form in forms]
        self.extra.extend(below)

        def read(factor: float, x: np.ndarray) -> Parameters:
            found = [0.0 if b.dual_value is None else b.dual_value for b in below]
            duals = np.array([float(np.ravel(dual)[0]) for dual in found])  # shapes () and (1,)
            weights = np.maximum(duals, 0.0)
            if not weights.sum() > NEGLIGIBLE:
                return node.at(x)
            weights = weights / weights.sum()
            pairs = zip(weights, forms, strict=True)
            parts = [form.read(factor * weight, x) for weight, form in pairs]
            return {"weights": weights, "parts": parts}

        return Form(smallest, read)
