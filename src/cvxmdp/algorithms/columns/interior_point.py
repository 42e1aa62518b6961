r"""The master for concave problems: a primal-dual interior point over the weights of a mixture.

    maximise f(sum w_k x_k)   subject to   g_i(sum w_k x_k) >= margin_i,   sum w = 1,   w >= 0

for concave f and g_i in the form of ``curves``: a few hundred variables at most, so a Newton step is cheap and
the work is in the K x K Hessians. The multipliers of g_i >= 0 and the tangents at the solution are what the
oracle is asked at. Slacks have variables of their own, g_i(w) = s_i > 0, so that a start may violate the
constraints, and iterates do not creep along a curved border.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cvxmdp.atoms.shapes import Local

MOST_STEPS = 80
CENTRING = 10.0  # the barrier falls by this factor with every full step
BACK = 0.5  # of a step that does not help enough
STAY_INSIDE = 0.99  # of the way to the border
TINY = 1e-300
FIRST_SLACK = 0.05  # of the units: the least slack variable to start with
FIRST_PUSH = 0.1  # of the objective's differences between columns: first multipliers
FEASIBLE = 1e-9  # in units: what slack variables may differ from slacks
MOST_HALVINGS = 25
REGULARISED = 1e-12  # of the Hessian's size, against columns that are the same


class Solved(NamedTuple):
    """Where the interior point ended.

    Attributes:
        weights: (K,).
        multipliers: of the constraints, (n,).
        gap: what is left of the duality gap.
        shortfall: what the slack variables differ from the slacks, in units.
    """

    weights: np.ndarray
    multipliers: np.ndarray
    gap: float
    shortfall: float

    @property
    def score(self) -> float:
        return self.gap + 1e3 * self.shortfall


# All functions at weights: objective first, then slacks. With derivatives, or values only.
Evaluate = Callable[[np.ndarray], list[Local]]
Values = Callable[[np.ndarray], np.ndarray]


def interior_point(
    evaluate: Evaluate,
    values: Values,
    start: np.ndarray,
    fixed: np.ndarray,
    bounded: np.ndarray,
    accuracy: float,
    units: np.ndarray,
) -> Solved:
    """Maximise a concave function of w with concave slacks, fixed @ w = fixed @ start, w[bounded] >= 0.

    Args:
        evaluate: objective and slacks with derivatives at w.
        values: their values.
        start: w[bounded] > 0, all functions finite; slacks may be negative.
        fixed: coefficients of the one equation.
        bounded: which variables must not be negative, boolean.
        accuracy: duality gap at which to stop, in the units of the objective.
        units: sizes of the slacks, (n,).
    """
    places = np.flatnonzero(bounded)
    here = evaluate(start)
    n = len(here) - 1
    s = np.maximum([one.value for one in here[1:]], FIRST_SLACK * units)
    spread = float(np.ptp(here[0].gradient[places])) or float(np.abs(here[0].gradient).max())
    push = FIRST_PUSH * max(spread, TINY)
    now = Iterate(start.copy(), s, push / s, push / (places.size * start[places]), 0.0)
    best: Solved | None = None
    for _ in range(MOST_STEPS):
        gap = float(now.s @ now.duals + now.w[places] @ now.lower)
        missed = np.array([one.value for one in here[1:]]) - now.s
        residual = _dual_residual(here, now, fixed, places)
        stray = float(np.abs(residual).max()) * float(np.abs(now.w).sum())
        shortfall = float((np.abs(missed) / units).max(initial=0.0))
        solved = Solved(now.w, now.duals, gap + stray, shortfall)
        best = solved if best is None or solved.score < best.score else best
        if gap <= accuracy and stray <= accuracy and shortfall <= FEASIBLE:
            return solved
        barrier = gap / (CENTRING * (n + places.size))
        direction = _newton(here, now, missed, barrier, fixed, places)
        found = _line_search(evaluate, values, now, direction, barrier, fixed, places, here, units)
        if found is None:
            return best
        now, here = found
    assert best is not None
    return best


class Iterate(NamedTuple):
    """Weights, slack variables (g_i(w) = s_i at the solution) and all multipliers."""

    w: np.ndarray
    s: np.ndarray
    duals: np.ndarray  # of the slacks
    lower: np.ndarray  # of w >= 0
    price: float  # of the equation


def _moved(now: Iterate, direction: Iterate, length: float) -> Iterate:
    return Iterate(
        now.w + length * direction.w,
        now.s + length * direction.s,
        now.duals + length * direction.duals,
        now.lower + length * direction.lower,
        now.price + length * direction.price,
    )


def _dual_residual(
    here: list[Local], now: Iterate, fixed: np.ndarray, places: np.ndarray
) -> np.ndarray:
    """Gradient of the Lagrangian of the maximisation."""
    residual = here[0].gradient + now.price * fixed
    for dual, one in zip(now.duals, here[1:], strict=True):
        residual = residual + dual * one.gradient
    residual = np.array(residual)
    residual[places] += now.lower
    return residual


def _newton(
    here: list[Local],
    now: Iterate,
    missed: np.ndarray,
    barrier: float,
    fixed: np.ndarray,
    places: np.ndarray,
) -> Iterate:
    hessian = -here[0].hessian.copy()
    right = here[0].gradient + now.price * fixed
    for k, one in enumerate(here[1:]):
        hessian -= now.duals[k] * one.hessian
        stiff = now.duals[k] / now.s[k]
        hessian += stiff * np.outer(one.gradient, one.gradient)
        right = right + (barrier / now.s[k] - stiff * missed[k]) * one.gradient
    size = float(np.abs(np.diag(hessian)).max())
    right = np.array(right)
    right[places] += barrier / now.w[places]
    diagonal = np.full(now.w.size, REGULARISED * size + TINY)
    diagonal[places] += now.lower / now.w[places]
    hessian[np.diag_indices(now.w.size)] += diagonal
    system = np.block([[hessian, -fixed[:, None]], [fixed[None, :], np.zeros((1, 1))]])
    solved = _solved(system, np.append(right, 0.0))
    dw = solved[:-1]
    slopes = np.array([one.gradient for one in here[1:]]).reshape(len(here) - 1, dw.size)
    ds = slopes @ dw + missed
    return Iterate(
        dw,
        ds,
        (barrier - now.duals * ds) / now.s - now.duals,
        (barrier - now.lower * dw[places]) / now.w[places] - now.lower,
        float(solved[-1]),
    )


def _solved(system: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The solution, or the nearest there is; NaN, which no line search takes, where numbers are no numbers."""
    if not (np.isfinite(system).all() and np.isfinite(right).all()):
        return np.full(right.size, np.nan)  # LAPACK would print its complaints
    try:
        return np.linalg.solve(system, right)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(system, right, rcond=None)[0])


def _line_search(
    evaluate: Evaluate,
    values: Values,
    now: Iterate,
    direction: Iterate,
    barrier: float,
    fixed: np.ndarray,
    places: np.ndarray,
    here: list[Local],
    units: np.ndarray,
) -> tuple[Iterate, list[Local]] | None:
    """The longest step that keeps signs and shrinks the residuals; None where there is none."""
    length = 1.0
    positive = ((now.s, direction.s), (now.duals, direction.duals), (now.lower, direction.lower))
    for value, change in (*positive, (now.w[places], direction.w[places])):
        falling = change < 0
        if falling.any():
            length = min(length, STAY_INSIDE * float((-value[falling] / change[falling]).min()))

    scale = max(float(np.abs(here[0].gradient).max()), TINY)

    def size(at: Iterate, there: list[Local]) -> float:
        missed = (np.array([one.value for one in there[1:]]) - at.s) / units
        residual = _dual_residual(there, at, fixed, places) / scale
        centre = np.append(at.duals * at.s, at.lower * at.w[places]) / scale - barrier / scale
        with np.errstate(over="ignore"):  # a step that leads that far is halved
            return math.sqrt(sum(float(part @ part) for part in (missed, residual, centre)))

    before = size(now, here)
    for _ in range(MOST_HALVINGS):
        trial = _moved(now, direction, length)
        if np.isfinite(values(trial.w)).all():
            there = evaluate(trial.w)
            if size(trial, there) <= (1.0 - 0.01 * length) * before:
                return trial, there
        length *= BACK
    return None
