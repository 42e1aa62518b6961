"""Sums and minima of functions, concave functions of one, and how any function is read from plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.affine_maps import AffineMap
from cvxmdp.checker.arithmetic import (
    LARGEST_FACTOR,
    AffineBound,
    CertificateError,
    ErrorBound,
    NotKnownError,
    Number,
    Parameters,
    largest,
    numbers,
    parts_of,
    tangent_through,
)
from cvxmdp.checker.chords import chords_above
from cvxmdp.checker.closed_forms import (
    AFFINE,
    CONCAVE,
    CONVEX,
    Anywhere,
    ClosedForm,
    CustomForm,
    EntropyForm,
    FlowMiss,
    LinearForm,
    RelativeEntropyForm,
)
from cvxmdp.checker.convex_forms import ExponentialForm, HingePowerForm, HuberForm
from cvxmdp.checker.norm_form import NormForm
from cvxmdp.checker.scalars import FLOATS, ScalarKind
from cvxmdp.checker.target_sets import read_set

MOST_PARTS = 100_000  # of one function in a problem


def _joined(forms: Sequence[ClosedForm]) -> tuple[str, ...]:
    return tuple(promise for form in forms for promise in form.promises)


class SumForm(ClosedForm):
    """sum_k weight_k phi_k + offset."""

    def __init__(
        self, weights: Sequence[Number], forms: Sequence[ClosedForm], offset: float
    ) -> None:
        self.weights, self.forms, self.offset = list(weights), list(forms), offset
        if not self.forms:
            raise CertificateError("a sum in the problem is of nothing")
        self.promises, self.drifts = _joined(forms), all(form.drifts for form in forms)
        self.scalars = forms[0].scalars
        for weight, form in self.weighted():
            if weight < 0:
                form.turn()
        bends = {_times(w, f.curvature) for w, f in self.weighted()} - {AFFINE}
        if len(bends) > 1:
            raise CertificateError("a sum in the problem is neither concave nor convex")
        self.curvature = bends.pop() if bends else AFFINE

    def turn(self) -> None:
        for form in self.forms:
            form.turn()

    def weighted(self) -> list[tuple[Number, ClosedForm]]:
        """The terms with their weights."""
        return list(zip(self.weights, self.forms, strict=True))

    def value(self, x: np.ndarray) -> Number:
        terms = (w * form.value(x) for w, form in self.weighted())
        return self.scalars.added([*terms, self.offset])

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """The weighted sum of the drifts, and rounding."""
        drift = sum(abs(w) * form.drift(x, error) for w, form in self.weighted())
        if self.scalars.exact:
            return drift
        size = sum(abs(w * form.value(x)) for w, form in self.weighted())
        return drift + 4 * self.scalars.eps * (size + abs(self.offset))

    def tangent(self, parameters: Parameters) -> AffineBound:
        """The weighted sum of tangents."""
        parts = parts_of(parameters, len(self.forms))
        return self._summed([f.tangent(part) for f, part in zip(self.forms, parts, strict=True)])

    def _summed(self, bounds: Sequence[AffineBound]) -> AffineBound:
        pairs = [(w, one) for w, one in zip(self.weights, bounds, strict=True) if w != 0]
        none = np.zeros(bounds[0].reward.shape)
        reward = sum((weight * tangent.reward for weight, tangent in pairs), none)
        constants = (w * tangent.constant for w, tangent in pairs)
        constant = self.scalars.added([*constants, self.offset])
        size = sum(abs(w) * t.size for w, t in pairs) + abs(self.offset)
        steep = sum((abs(w) * t.steep for w, t in pairs), none)
        terms = 1 + len(pairs) / 8  # each further term, and weights that sum to one, round again
        return AffineBound(np.asarray(reward), constant, terms * size, np.asarray(terms * steep))

    @property
    def flat_parameters(self) -> Parameters | None:
        parts = [form.flat_parameters for form in self.forms]
        return None if None in parts else {"parts": parts}

    def chord(self, anywhere: Anywhere) -> AffineBound:
        """The weighted sum of chords."""
        return self._summed([form.chord(anywhere) for form in self.forms])


def _times(weight: Number, curvature: int) -> int:
    return curvature * (int(weight > 0) - int(weight < 0))


class OuterForm(ClosedForm):
    """An increasing concave function of a concave function."""

    curvature = CONCAVE

    def __init__(self, inner: ClosedForm, what: str) -> None:
        self.inner, self.promises = _concave(inner, what), inner.promises
        self.drifts, self.scalars = inner.drifts, inner.scalars

    def turn(self) -> None:
        self.inner.turn()

    def outer(self, inside: Number) -> Number:
        """The function itself, of a positive number."""
        raise NotImplementedError

    def chord(self, anywhere: Anywhere) -> AffineBound:
        """Between what the inside is at least and at most; just the least where nobody knows the most."""
        low, high = anywhere.at_least(self.inner), anywhere.at_most(self.inner)
        if not low > 0:
            raise NotKnownError("what must be positive may not be")
        of = self.scalars
        if not high < math.inf:
            least = self.outer(of.number(low))
            none = np.zeros(anywhere.visited.x.shape)
            return AffineBound(none, least, 2.0 * abs(least), none)
        ends = of.array([low]), of.array([max(low, high)])
        found = chords_above(lambda t: -of.array([self.outer(t[0])]), *ends, of)
        slope, constant = -found.slope[0], -found.constant[0]
        inner = self.inner.chord(anywhere)
        size = found.size[0] + abs(slope) * (inner.size + abs(inner.constant))
        constant += slope * inner.constant
        return AffineBound(slope * inner.reward, constant, size, abs(slope) * inner.steep)


class LogForm(OuterForm):
    """log of a concave function."""

    def __init__(self, inner: ClosedForm) -> None:
        super().__init__(inner, "a logarithm")

    def outer(self, inside: Number) -> Number:
        return self.scalars.log(inside)

    def value(self, x: np.ndarray) -> Number:
        """Minus infinity outside the domain."""
        inside = self.inner.value(x)
        return self.outer(inside) if inside > 0 else -math.inf

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """-log(1 - drift / value), if the inside is surely positive."""
        of, inside = self.scalars, self.inner.value(x)
        drift = self.inner.drift(x, error) + of.tiny
        if not inside > drift:
            return math.inf
        return -of.log1p(-drift / inside) + 4 * of.eps * (1 + abs(of.log(inside)))

    def tangent(self, parameters: Parameters) -> AffineBound:
        """log t - 1 + inner / t."""
        t, inner = _point(parameters, self.inner)
        constant = self.outer(t) - 1.0 + inner.constant / t
        size = inner.size / t + abs(self.outer(t)) + 1.0
        return AffineBound(inner.reward / t, constant, size, inner.steep / t)


class PowerForm(OuterForm):
    """A concave function to a power p between 0 and 1, or minus one to a power below 0: sign(p) phi^p."""

    def __init__(self, inner: ClosedForm, exponent: float) -> None:
        super().__init__(inner, "a power")
        self.exponent, self.sign = self.scalars.number(exponent), math.copysign(1.0, exponent)
        if not (exponent < 0 or 0 < exponent < 1) or not math.isfinite(exponent):
            raise CertificateError(f"a power of {exponent} in the problem is not between 0 and 1")

    def outer(self, inside: Number) -> Number:
        return self.sign * inside**self.exponent

    def value(self, x: np.ndarray) -> Number:
        """Minus infinity outside the domain."""
        inside = self.inner.value(x)
        if inside > 0:
            return self.outer(inside)
        return self.scalars.number(0.0) if inside >= 0 and self.exponent > 0 else -math.inf

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """At most |p| (a - |a - b|)^(p-1) |a - b|, for p > 0 also |a - b|^p, if the inside is surely there."""
        of, inside, drift = self.scalars, self.inner.value(x), self.inner.drift(x, error)
        p = self.exponent
        if not inside >= drift or (p < 0 and not inside > drift):
            return math.inf
        bounds = [of.power(drift, p)] if p > 0 else []
        if inside > drift:
            bounds.append(abs(p) * (inside - drift) ** (p - 1.0) * drift)
        rounding = 8 * of.eps * abs(self.value(x))
        return of.least(bounds) * (1 + 16 * of.eps) + rounding + of.tiny

    def tangent(self, parameters: Parameters) -> AffineBound:
        """sign(p) (1 - p) t^p + |p| t^(p-1) inner."""
        t, inner = _point(parameters, self.inner)
        p = self.exponent
        try:
            slope, height = abs(p) * t ** (p - 1.0), self.sign * (1.0 - p) * t**p
        except OverflowError as error:
            raise CertificateError(
                f"'t' in the certificate is too small for a power: {t}"
            ) from error
        # Powers are good to a few units in the last place; three more roundings each.
        return tangent_through(slope, height, inner)


def _concave(form: ClosedForm, what: str) -> ClosedForm:
    if form.curvature == CONVEX:
        raise CertificateError(f"{what} in the problem is of a function that is not concave")
    return form


def _point(parameters: Parameters, inner: ClosedForm) -> tuple[Number, AffineBound]:
    """Where an outer function is linearised, and the tangent of the inner one."""
    t = float(numbers(parameters, "t", ()))
    if not 1.0 / LARGEST_FACTOR <= t <= LARGEST_FACTOR:
        raise CertificateError(f"'t' in the certificate must be positive; it is {t}")
    (part,) = parts_of(parameters, 1)
    return inner.scalars.number(t), inner.tangent(part)


class MinimumForm(ClosedForm):
    """The smallest of several concave functions."""

    curvature = CONCAVE

    def __init__(self, forms: Sequence[ClosedForm]) -> None:
        self.forms = [_concave(form, "a minimum") for form in forms]
        if not self.forms:
            raise CertificateError("a minimum in the problem is of nothing")
        self.promises, self.drifts = _joined(forms), all(form.drifts for form in forms)
        self.scalars = self.forms[0].scalars

    def value(self, x: np.ndarray) -> Number:
        return self.scalars.least(form.value(x) for form in self.forms)

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """How far the smallest falls or rises when each part moves by its own: those far above do not count."""
        of, least = self.scalars, self.value(x)
        parts = [(form.value(x), form.drift(x, error)) for form in self.forms]
        if not of.finite([number for part in parts for number in part]):
            return math.inf
        lowest = of.least(v - off for v, off in parts)
        highest = of.least(v + off for v, off in parts)
        moved = of.greatest([least - lowest, highest - least])
        return moved + 4 * of.eps * (abs(least) + moved)

    def tangent(self, parameters: Parameters) -> AffineBound:
        """A convex combination of tangents."""
        weights = np.maximum(numbers(parameters, "weights", (len(self.forms),)), 0.0)
        if not largest(weights) > 0:
            raise CertificateError("the weights of a minimum in the certificate are all zero")
        weights = weights / largest(weights)  # or their sum could overflow, and all become zero
        shares = self.scalars.array(weights)
        shares = shares / self.scalars.added(shares)
        parts = parts_of(parameters, len(self.forms))
        return SumForm(list(shares), self.forms, 0.0).tangent({"parts": parts})

    def turn(self) -> None:
        for form in self.forms:
            form.turn()

    def chord(self, anywhere: Anywhere) -> AffineBound:
        """The smallest of what the parts surely reach."""
        least = min(anywhere.at_least(form) for form in self.forms)
        if not math.isfinite(least):
            raise NotKnownError("of a part of a minimum no bound is known")
        none = np.zeros(anywhere.visited.x.shape)
        return AffineBound(none, least, abs(least), none)


class FormSetting(NamedTuple):
    """What the forms of a problem have in common.

    Attributes:
        usable: boolean (S, A), the pairs that some policy can take.
        flow_miss: what the flow equations miss at an (S, A) array, to see that it is an occupancy.
        boxes: the least and the largest value of signals that are estimated, by name.
        scalars: what functions are computed in.
    """

    usable: np.ndarray
    flow_miss: FlowMiss
    boxes: Mapping[str, tuple[np.ndarray, np.ndarray]] = MappingProxyType({})
    scalars: ScalarKind = FLOATS


def read_form(plain: Any, setting: FormSetting) -> ClosedForm:
    """The closed form of a function, from plain data: its kind and its fields."""
    if not isinstance(plain, dict) or not isinstance(plain.get("kind"), str):
        raise CertificateError("a function of the problem is not a table of fields with its kind")
    kind = plain["kind"]
    shape = (int(setting.usable.shape[0]), int(setting.usable.shape[1]))
    if kind == "linear":
        return LinearForm(numbers(plain, "reward", shape), _box(plain, setting), setting.scalars)
    if kind == "entropy":
        return EntropyForm(_read_map(plain, "map", None, setting))
    if kind == "relative_entropy":
        p = _read_map(plain, "map", "offset", setting)
        return RelativeEntropyForm(p, _read_map(plain, "base_map", "base_offset", setting, p.rows))
    if kind == "norm":
        inner = _read_map(plain, "map", "offset", setting)
        target = read_set(plain.get("set"), inner.rows, setting.scalars)
        return NormForm(inner, target, str(plain.get("norm")))
    if kind == "custom":
        return CustomForm(plain, shape, setting.flow_miss, setting.scalars)
    parts = plain.get("parts")
    if not isinstance(parts, list) or len(parts) > MOST_PARTS:
        raise CertificateError(f"there is no closed form to certify a function of kind {kind!r}")
    forms = [read_form(part, setting) for part in parts]
    if kind == "sum":
        weights = numbers(plain, "weights", (len(forms),))
        return SumForm(weights.tolist(), forms, float(numbers(plain, "offset", ())))
    if kind == "log" and len(forms) == 1:
        return LogForm(forms[0])
    if kind == "power" and len(forms) == 1:
        return PowerForm(forms[0], float(numbers(plain, "exponent", ())))
    if kind == "minimum":
        return MinimumForm(forms)
    if kind == "exponential" and len(forms) == 1:
        return ExponentialForm(forms[0])
    if kind == "hinge_power" and len(forms) == 1:
        return HingePowerForm(forms[0], float(numbers(plain, "exponent", ())))
    if kind == "huber" and len(forms) == 1:
        return HuberForm(forms[0], float(numbers(plain, "width", ())))
    raise CertificateError(f"there is no closed form to certify a function of kind {kind!r}")


def _box(plain: dict[str, Any], setting: FormSetting) -> tuple[np.ndarray, np.ndarray] | None:
    """Where a reward lies that is a multiple of an estimated signal."""
    box = setting.boxes.get(str(plain.get("signal", "")))
    if box is None:
        return None
    factor = float(numbers(plain, "factor", ()))
    if factor == 0:
        return None
    of, nothing = setting.scalars, setting.scalars.number(0.0)
    ends = [np.where(setting.usable, factor * end, nothing) for end in box]
    low, high = ends if factor > 0 else ends[::-1]
    off = 4 * of.eps
    return (low - off * np.abs(low), high + off * np.abs(high)) if off else (low, high)


def _read_map(
    plain: dict[str, Any],
    name: str,
    offset: str | None,
    setting: FormSetting,
    rows: int | None = None,
) -> AffineMap:
    matrix = plain.get(name)
    if matrix is None or not sp.issparse(matrix) or matrix.shape[1] != setting.usable.size:
        raise CertificateError(f"{name!r} of a function in the problem is not a matrix that fits")
    if rows is not None and matrix.shape[0] != rows:
        raise CertificateError(f"{name!r} of a function in the problem has another number of rows")
    height = int(matrix.shape[0])
    added = np.zeros(height) if offset is None else numbers(plain, offset, (height,))
    return AffineMap(matrix, added, setting.usable, setting.scalars)
