r"""The functions of a problem in exact arithmetic: bounds of their values, and tangents without rounding.

Each kind of ``closed_forms`` has its counterpart here, made of the same checked fields, with

- ``bound(x)``: a ball that a concave phi is surely not below, and a convex one not above, for every occupancy
  within the balls of x. The occupancy of a policy is known to some forty digits here (``exact_flow``), so no
  separate bound on drifts is needed;
- ``tangent(parameters)``: the affine bound of Fenchel's inequality for these parameters, (S, A) and a constant.

(Where one side is all that is known, as of the distance to a polytope, it is given as it is: a ball of the size
of the number itself would lose digits, for radii have thirty bits.)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.checker.affine_maps import AffineMap
from cvxmdp.checker.arithmetic import (
    EPS,
    LARGEST_FACTOR,
    CertificateError,
    ErrorBound,
    NotVerifiableError,
    Parameters,
    numbers,
    parts_of,
)
from cvxmdp.checker.closed_forms import (
    ClosedForm,
    CustomForm,
    EntropyForm,
    LinearForm,
    RelativeEntropyForm,
)
from cvxmdp.checker.composite_forms import LogForm, MinimumForm, PowerForm, SumForm
from cvxmdp.checker.convex_forms import (
    ConvexOuterForm,
    ExponentialForm,
    HingePowerForm,
    HuberForm,
)
from cvxmdp.checker.exact_numbers import (
    Ball,
    ExactMatrix,
    add_up,
    at_most,
    ball,
    balls,
    greatest,
    refuse_unless,
)
from cvxmdp.checker.norm_form import NormForm
from cvxmdp.checker.target_sets import BallSet, BoxSet, PointSet, PolytopeSet

ROUNDED = 16 * EPS  # of the numbers behind a float, what a user's own function may have lost


class ExactTangent(NamedTuple):
    """<reward, y> + constant, rewards by pair, (S * A,)."""

    reward: np.ndarray
    constant: Ball


class ExactForm:
    """A concave or convex function of the occupancy, (S * A,)."""

    def bound(self, x: np.ndarray) -> Ball:
        raise NotImplementedError

    def tangent(self, parameters: Parameters) -> ExactTangent:
        raise NotImplementedError


class ExactLinear(ExactForm):
    """<r, x>."""

    def __init__(self, form: LinearForm) -> None:
        self.reward = balls(form.reward.ravel())

    def bound(self, x: np.ndarray) -> Ball:
        return add_up(self.reward * x)

    def tangent(self, parameters: Parameters) -> ExactTangent:
        return ExactTangent(self.reward, ball(0.0))


class ExactMap:
    """u = M x + b."""

    def __init__(self, inner: AffineMap) -> None:
        self.matrix, self.offset = ExactMatrix(inner.matrix), balls(inner.offset)
        self.live = inner.live

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.matrix.times(x) + self.offset)


def _entropy(u: Ball) -> Ball:
    """-u log u is not below this, for u >= 0: where the ball of u holds zero, it is not below zero."""
    if u > 0:
        return -u * u.log()
    refuse_unless(bool(u < 1), "an argument of a logarithm is not known well enough")
    return ball(0.0)


class ExactEntropy(ExactForm):
    """-sum u log u."""

    def __init__(self, form: EntropyForm) -> None:
        self.map = ExactMap(form.inner)

    def bound(self, x: np.ndarray) -> Ball:
        return add_up(_entropy(u) for u in self.map(x))

    def tangent(self, parameters: Parameters) -> ExactTangent:
        """Slope -(log q + 1), constant sum q."""
        log_q = balls(numbers(parameters, "log_q", self.map.live.shape))
        slope = np.where(self.map.live, -log_q - 1, ball(0.0))
        constant = add_up(one.exp() for one in log_q[self.map.live])
        return ExactTangent(self.map.matrix.transposed_times(slope), constant)


class ExactRelativeEntropy(ExactForm):
    """sum p log(p/q) - p + q, which where q may be zero and p <= C q is at most q max(1, C log C + 1)."""

    def __init__(self, form: RelativeEntropyForm) -> None:
        self.p, self.q, self.live = ExactMap(form.p), ExactMap(form.q), form.live
        self.moving, self.ratio = form.moving, form.ratio

    def bound(self, x: np.ndarray) -> Ball:
        rows = zip(self.p(x), self.q(x), self.moving, strict=True)
        return add_up(self._row(p, q, bool(moves)) for p, q, moves in rows)

    def _row(self, p: Ball, q: Ball, moves: bool) -> Ball:
        if q > 0:
            return -_entropy(p) - p * q.log() - p + q
        if not moves:
            refuse_unless(bool(p.upper() <= 0), "the target of a kl distance is zero")
            return q
        refuse_unless(
            math.isfinite(self.ratio), "a kl distance has no bound where its base is zero"
        )
        ratio = ball(self.ratio)
        most = ball(1.0).max(ratio * ratio.log() + 1)
        return q.nonnegative_part() * most

    def tangent(self, parameters: Parameters) -> ExactTangent:
        """Slope a for p and -(e^a - 1) for q; rows that are constant stay as they are."""
        a = balls(np.where(self.live, numbers(parameters, "log_ratio", self.live.shape), 0.0))
        growth = np.array([one.expm1() for one in a], dtype=object)
        still = np.flatnonzero(~self.live)
        constant = add_up(a * self.p.offset - growth * self.q.offset)
        constant += add_up(self._row(self.p.offset[i], self.q.offset[i], False) for i in still)
        down = np.where(self.moving, growth, ball(0.0))
        reward = self.p.matrix.transposed_times(a) - self.q.matrix.transposed_times(down)
        return ExactTangent(np.asarray(reward), constant)


class ExactNorm(ExactForm):
    """The distance of u = M x + b to a set, or its square."""

    def __init__(self, form: NormForm) -> None:
        self.form, self.map, self.norm = form, ExactMap(form.inner), form.norm
        self.target: ExactSet = SETS[type(form.target)](form.target)

    def bound(self, x: np.ndarray) -> Ball:
        return self.target.distance(self.map(x), self.norm)

    def tangent(self, parameters: Parameters) -> ExactTangent:
        """<v, u> - support(v), with v scaled into the dual unit ball; or 2 (...) - |v|^2."""
        v, support = self.target.supported(parameters, self.map.live.size)
        # The scale that floats take: values in the certificate were made for it. Below it is made sure.
        scale = ball(self.form.scale(*self.form.target.direction(parameters, self.map.live.size)))
        v, support = v * scale, support * scale
        if self.norm != "l2-squared":
            size = greatest(map(abs, v)) if self.norm == "l1" else _length(v)
            v, support = v / size.max(ball(1.0)), support / size.max(ball(1.0))
        refuse_unless(support.is_finite(), "a direction in the certificate has an infinite support")
        reward = self.map.matrix.transposed_times(v)
        constant = add_up(v * self.map.offset) - support
        if self.norm == "l2-squared":
            return ExactTangent(reward * 2, constant * 2 - add_up(v * v))
        return ExactTangent(reward, constant)


def _length(v: np.ndarray) -> Ball:
    """|v|, Euclidean."""
    return add_up(v * v).nonnegative_part().sqrt()


def _measured(away: np.ndarray, norm: str) -> Ball:
    if norm == "l1":
        return add_up(abs(one) for one in away)
    return add_up(away * away) if norm == "l2-squared" else _length(away)


class ExactSet:
    """A single point. The base of the others."""

    def __init__(self, target: PointSet) -> None:
        self.point = balls(target.point)

    def distance(self, u: np.ndarray, norm: str) -> Ball:
        """Of u to the set, in the norm."""
        return _measured(u - self.point, norm)

    def supported(self, parameters: Parameters, rows: int) -> tuple[np.ndarray, Ball]:
        """The direction that the parameters stand for, and max <v, z> over the set or more."""
        v = balls(numbers(parameters, "v", (rows,)))
        return v, add_up(v * self.point)


class ExactBall(ExactSet):
    """A Euclidean ball."""

    def __init__(self, target: BallSet) -> None:
        super().__init__(target)
        self.radius = ball(target.radius)

    def distance(self, u: np.ndarray, norm: str) -> Ball:
        beyond = (_length(u - self.point) - self.radius).nonnegative_part()
        return beyond * beyond if norm == "l2-squared" else beyond

    def supported(self, parameters: Parameters, rows: int) -> tuple[np.ndarray, Ball]:
        v, inner = super().supported(parameters, rows)
        return v, inner + self.radius * _length(v)


class ExactBox(ExactSet):
    """lower <= z <= upper; sides may be infinite."""

    def __init__(self, target: BoxSet) -> None:
        self.lower, self.upper = target.lower, target.upper

    def distance(self, u: np.ndarray, norm: str) -> Ball:
        below = self._outside(u, self.lower, -1)
        return _measured(below + self._outside(u, self.upper, 1), norm)

    @staticmethod
    def _outside(u: np.ndarray, side: np.ndarray, sign: int) -> np.ndarray:
        """How far u is beyond a side, zero where it is not."""
        ends = np.isfinite(side)
        found = np.full(side.shape, ball(0.0), dtype=object)
        found[ends] = [(sign * away).nonnegative_part() for away in u[ends] - balls(side[ends])]
        return found

    def supported(self, parameters: Parameters, rows: int) -> tuple[np.ndarray, Ball]:
        """Each coordinate on its own; v is zero along which the box does not end."""
        v = numbers(parameters, "v", (rows,))
        corner = np.where(v > 0, self.upper, self.lower)
        used = (v != 0) & np.isfinite(corner)
        v, corner = np.where(used, v, 0.0), np.where(used, corner, 0.0)
        return balls(v), add_up(balls(v) * balls(corner))


class ExactPolytope(ExactSet):
    """matrix @ z <= bounds."""

    def __init__(self, target: PolytopeSet) -> None:
        self.target = target
        self.matrix, self.bounds = balls(target.matrix), balls(target.bounds)

    def distance(self, u: np.ndarray, norm: str) -> Ball:
        """At most the distance to a point that is surely in the set, near the projection.

        From the computed projection z, which may be outside by e_i > 0 at face i, towards a point inside by
        -s_i > 0, the share e_i / (e_i - s_i) of the way is enough.
        """
        z = balls(self.target.nearest(np.array([float(one.mid()) for one in u])))
        inside = balls(self.target.inside)
        share = ball(0.0)
        for out, deep in zip(self._excess(z), self._excess(inside), strict=True):
            if not deep < 0:
                raise NotVerifiableError("a polytope has no interior: no point is surely in it")
            share = share.max(out.nonnegative_part() / (out.nonnegative_part() - deep))
        return _measured(u - z - share * (inside - z), norm)

    def _excess(self, z: np.ndarray) -> list[Ball]:
        """matrix @ z - bounds."""
        faces = zip(self.matrix, self.bounds, strict=True)
        return [add_up(row * z) - bound for row, bound in faces]

    def supported(self, parameters: Parameters, rows: int) -> tuple[np.ndarray, Ball]:
        weights = balls(np.maximum(numbers(parameters, "w", self.bounds.shape), 0.0))
        v = np.array([add_up(column * weights) for column in self.matrix.T], dtype=object)
        return v, add_up(weights * self.bounds)


class ExactSum(ExactForm):
    """sum_k weight_k phi_k + offset."""

    def __init__(self, form: SumForm) -> None:
        self.weights, self.offset = balls(form.weights), ball(form.offset)
        self.forms = [exact_form(one) for one in form.forms]

    def bound(self, x: np.ndarray) -> Ball:
        pairs = zip(self.weights, self.forms, strict=True)
        return add_up(weight * form.bound(x) for weight, form in pairs) + self.offset

    def tangent(self, parameters: Parameters) -> ExactTangent:
        parts = parts_of(parameters, len(self.forms))
        return _mixed(self.weights, self.forms, parts, self.offset)


def _mixed(
    weights: np.ndarray, forms: list[ExactForm], parts: list[Parameters], offset: Ball
) -> ExactTangent:
    """The weighted sum of tangents."""
    tangents = [form.tangent(part) for form, part in zip(forms, parts, strict=True)]
    pairs = list(zip(weights, tangents, strict=True))
    reward = sum(tangent.reward * weight for weight, tangent in pairs)
    return ExactTangent(
        np.asarray(reward), add_up(weight * tangent.constant for weight, tangent in pairs) + offset
    )


class ExactLog(ExactForm):
    """log of a concave function."""

    def __init__(self, form: LogForm) -> None:
        self.inner = exact_form(form.inner)

    def bound(self, x: np.ndarray) -> Ball:
        inside = self.inner.bound(x)
        return inside.log() if inside > 0 else _nothing()

    def tangent(self, parameters: Parameters) -> ExactTangent:
        """log t - 1 + inner / t."""
        t, inner = _point(parameters, self.inner)
        return ExactTangent(inner.reward / t, t.log() - 1 + inner.constant / t)


class ExactPower(ExactForm):
    """A concave function to a power between 0 and 1, or minus one to a power below 0."""

    def __init__(self, form: PowerForm) -> None:
        self.inner, self.exponent = exact_form(form.inner), ball(form.exponent)
        self.sign = 1 if form.exponent > 0 else -1

    def bound(self, x: np.ndarray) -> Ball:
        inside = self.inner.bound(x)
        if inside > 0:
            return self.sign * inside**self.exponent
        return ball(0.0) if inside >= 0 and self.sign > 0 else _nothing()

    def tangent(self, parameters: Parameters) -> ExactTangent:
        """sign(p) (1 - p) t^p + |p| t^(p-1) inner."""
        t, inner = _point(parameters, self.inner)
        p = self.exponent
        slope, height = self.sign * p * t ** (p - 1), self.sign * (1 - p) * t**p
        return ExactTangent(inner.reward * slope, height + slope * inner.constant)


class ExactConvexOuter(ExactForm):
    """An increasing convex function of a convex one."""

    def __init__(self, form: ConvexOuterForm) -> None:
        self.form, self.inner = form, exact_form(form.inner)

    def outer(self, t: Ball) -> Ball:
        """h(t), or where t is a ball that holds zero something that is not below."""
        raise NotImplementedError

    def slope(self, t: Ball) -> Ball:
        """h'(t) of a number."""
        raise NotImplementedError

    def bound(self, x: np.ndarray) -> Ball:
        return self.outer(self.inner.bound(x))

    def tangent(self, parameters: Parameters) -> ExactTangent:
        """h(t) + h'(t) (inner - t)."""
        point, part = self.form.point(parameters)
        t, inner = ball(point), self.inner.tangent(part)
        slope = self.slope(t)
        return ExactTangent(inner.reward * slope, self.outer(t) + slope * (inner.constant - t))


class ExactExponential(ExactConvexOuter):
    """exp."""

    def outer(self, t: Ball) -> Ball:
        return t.exp()

    def slope(self, t: Ball) -> Ball:
        return t.exp()


class ExactHingePower(ExactConvexOuter):
    """max(t, 0)^p; powers of balls around zero are those of their upper end."""

    form: HingePowerForm

    def outer(self, t: Ball) -> Ball:
        return self._power(t, ball(self.form.exponent))

    def slope(self, t: Ball) -> Ball:
        return self.form.exponent * self._power(t, ball(self.form.exponent) - 1)

    @staticmethod
    def _power(t: Ball, p: Ball) -> Ball:
        top = t if t > 0 else t.upper()
        return top**p if top > 0 else ball(0.0)


class ExactHuber(ExactConvexOuter):
    """min(t, M)^2 + 2 M max(t - M, 0) of max(t, 0)."""

    form: HuberForm

    def outer(self, t: Ball) -> Ball:
        width = ball(self.form.width)
        near = self.slope(t) / 2
        return near * near + 2 * width * (t - width).nonnegative_part()

    def slope(self, t: Ball) -> Ball:
        return 2 * t.nonnegative_part().min(ball(self.form.width))


def _nothing() -> Ball:
    """The value outside a domain: a ball that holds everything, of which nothing is sure."""
    return ball(0.0, math.inf)


def _point(parameters: Parameters, inner: ExactForm) -> tuple[Ball, ExactTangent]:
    t = float(numbers(parameters, "t", ()))
    if not 1.0 / LARGEST_FACTOR <= t <= LARGEST_FACTOR:
        raise CertificateError(f"'t' in the certificate must be positive; it is {t}")
    (part,) = parts_of(parameters, 1)
    return ball(t), inner.tangent(part)


class ExactMinimum(ExactForm):
    """The smallest of several concave functions."""

    def __init__(self, form: MinimumForm) -> None:
        self.forms = [exact_form(one) for one in form.forms]

    def bound(self, x: np.ndarray) -> Ball:
        return -greatest(-form.bound(x) for form in self.forms)

    def tangent(self, parameters: Parameters) -> ExactTangent:
        """A convex combination of tangents."""
        weights = balls(np.maximum(numbers(parameters, "weights", (len(self.forms),)), 0.0))
        whole = add_up(weights)
        refuse_unless(bool(whole > 0), "the weights of a minimum in the certificate are all zero")
        parts = parts_of(parameters, len(self.forms))
        return _mixed(weights / whole, self.forms, parts, ball(0.0))


class ExactCustom(ExactForm):
    """A function of the user's own, in floats: what it computes is taken on trust, as its curvature is."""

    def __init__(self, form: CustomForm) -> None:
        self.form = form

    def bound(self, x: np.ndarray) -> Ball:
        near = np.array([float(one.mid()) for one in x])
        off = at_most(add_up(abs(one) for one in x - balls(near)))
        table = near.reshape(self.form.shape)
        error = ErrorBound(off, np.ones(self.form.shape, dtype=bool))
        return ball(self.form.value(table), self.form.drift(table, error))

    def tangent(self, parameters: Parameters) -> ExactTangent:
        found = self.form.tangent(parameters)
        entries = zip(found.reward.ravel(), (ROUNDED * found.steep).ravel(), strict=True)
        reward = np.array([ball(float(one), off) for one, off in entries], dtype=object)
        return ExactTangent(reward, ball(found.constant, ROUNDED * found.size))


SETS: dict[type[PointSet], Any] = {
    PointSet: ExactSet,
    BallSet: ExactBall,
    BoxSet: ExactBox,
    PolytopeSet: ExactPolytope,
}
FORMS: dict[type[ClosedForm], Any] = {
    LinearForm: ExactLinear,
    EntropyForm: ExactEntropy,
    RelativeEntropyForm: ExactRelativeEntropy,
    NormForm: ExactNorm,
    SumForm: ExactSum,
    LogForm: ExactLog,
    PowerForm: ExactPower,
    MinimumForm: ExactMinimum,
    ExponentialForm: ExactExponential,
    HingePowerForm: ExactHingePower,
    HuberForm: ExactHuber,
    CustomForm: ExactCustom,
}


def exact_form(form: ClosedForm) -> ExactForm:
    """The counterpart of a closed form."""
    found: ExactForm = FORMS[type(form)](form)
    return found
