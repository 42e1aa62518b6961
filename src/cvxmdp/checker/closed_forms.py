r"""The checker's own closed forms: values with error bounds, and affine bounds with their proofs.

This room shares no code with the utilities and solvers: it reads plain data (kinds and arrays) and does its own
arithmetic, in floats or in balls (``scalars``). Every function phi of the occupancy becomes a ``ClosedForm``:

- ``value(x)``, and ``drift(x, error)``, a bound on how much phi can differ from the computed value when
  the true occupancy lies within an error of x in the sum of absolute values (rounding included). Balls of x
  give a ball that a concave phi is surely not below, and a convex one not above;
- ``tangent(parameters)``: an affine function <reward, y> + constant that is nowhere below a concave
  phi (nowhere above a convex one) *whatever the parameters are*. Parameters outside their domain
  are brought into it or refused, so a forged certificate can make a bound worse, never wrong;
- ``chord(anywhere)``: an affine function on the other side, nowhere above a concave phi (nowhere below a convex
  one), for the occupancies of one policy in every model of a set;
- ``promises``: what nobody can verify and the proof rests on.

With u = M x + b, the tangents for any admissible parameter (this is Fenchel's inequality for each kind):

    -u log u            <= -u log q - u + q                        q > 0           entropy
    p log(p/q) - p + q  >=  a p - (e^a - 1) q                      any a           relative_entropy
    |u - C|             >=  <v, u> - max_{z in C} <v, z>           |v| <= 1        norm  (l1: |v|_inf <= 1)
    |u - C|^2           >=  2 <v, u> - 2 max_{z in C} <v, z> - |v|^2               norm
    log u               <=  log t + (u - t) / t                    t > 0           log
    u^p                 <=  t^p + p t^(p-1) (u - t)                t > 0           power (-u^p where p < 0)
    h(u)                >=  h(t) + h'(t) (u - t)                   any t           the convex_forms
    min_k u_k           <=  sum_k w_k u_k                          w in the simplex
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from cvxmdp.checker.affine_maps import AffineMap
from cvxmdp.checker.arithmetic import (
    EPS,
    AffineBound,
    CertificateError,
    ErrorBound,
    NotKnownError,
    NotVerifiableError,
    Number,
    Parameters,
    largest,
    numbers,
    total,
)
from cvxmdp.checker.chords import chords_above
from cvxmdp.checker.scalars import FLOATS, ScalarKind

FLOW_ROUNDING = 1e-8  # what the flow equations may miss at a point that passes for an occupancy
FlowMiss = Callable[[np.ndarray], float]
CONCAVE, AFFINE, CONVEX = 1, 0, -1


class PerState(NamedTuple):
    """A matrix (rows, S): where it has entries (ones there), and the entries in order."""

    pattern: sp.csr_array
    entries: np.ndarray


class Anywhere(Protocol):
    """One policy in every model of a set: ``policy_anywhere.PolicyAnywhere``."""

    visited: Any  # its occupancy in the estimate
    played: np.ndarray  # its probabilities, (S * A,)

    def at_least(self, form: ClosedForm) -> float:
        """What a concave function surely reaches."""

    def at_most(self, form: ClosedForm) -> float:
        """What an affine function surely does not exceed."""

    def affine_at_least(self, bound: AffineBound) -> float:
        """The same for <reward, y> + constant."""

    def enclosure(self, inner: AffineMap) -> tuple[np.ndarray, np.ndarray]:
        """Bounds on u = M x + b, (rows,) each."""

    def per_state(self, inner: AffineMap) -> PerState:
        """M as a function of the visits of states."""


class ClosedForm:
    """A concave or convex function of an (S, A) occupancy.

    Attributes:
        scalars: what it is computed in.
    """

    scalars: ScalarKind
    promises: tuple[str, ...] = ()
    curvature = AFFINE
    drifts = True  # ``drift`` holds for errors that are not small, too

    def value(self, x: np.ndarray) -> Number:
        raise NotImplementedError

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """A bound on |phi(x') - computed phi(x)| for x' as near to x as ``error`` says."""
        raise NotImplementedError

    def tangent(self, parameters: Parameters) -> AffineBound:
        """The affine bound of these parameters."""
        raise NotImplementedError

    @property
    def flat_parameters(self) -> Parameters | None:
        """Of the only tangent of an affine function; None for all others."""
        return None

    def chord(self, anywhere: Anywhere) -> AffineBound:
        """The affine bound on the other side, for one policy in every model of a set."""
        raise NotKnownError("of this function no bound over a set of models is known")

    def turn(self) -> None:
        """Stand behind a negative factor from now on."""


class LinearForm(ClosedForm):
    """<r, x>: its own tangent.

    Args:
        reward: r.
        box: the least and the largest r where it is estimated; None where it is known.
        scalars: what it is computed in.
    """

    def __init__(
        self,
        reward: np.ndarray,
        box: tuple[np.ndarray, np.ndarray] | None = None,
        scalars: ScalarKind = FLOATS,
    ) -> None:
        self.reward, self.scalars = scalars.array(reward), scalars
        self.below, self.above = (self.reward, self.reward) if box is None else box

    def turn(self) -> None:
        self.below, self.above = self.above, self.below

    def value(self, x: np.ndarray) -> Number:
        return self.scalars.total(self.reward * x)[0]

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """max |r| times the error, and what an estimated r may be off."""
        # Where the policy never goes, nothing can be off: a cost it surely avoids is exactly zero.
        of = self.scalars
        ends = list({id(end): end for end in (self.reward, self.below, self.above)}.values())
        taken = [end[error.support] for end in ends]
        if not all(of.finite(end) for end in taken):
            return math.inf
        steepest = of.greatest(of.largest(end) for end in taken)
        if steepest == 0.0:
            return of.number(0.0)
        own = of.number(0.0)
        if len(ends) > 1:
            off = of.maximum(np.abs(self.above - self.reward), np.abs(self.below - self.reward))
            own = of.total((x * off)[error.support])[0] * (1 + 8 * of.eps)
        rounding = 4 * of.eps * of.total(self.reward * x)[1] + of.tiny
        return steepest * error.size + own + rounding

    def tangent(self, parameters: Parameters) -> AffineBound:
        return AffineBound(self.above, 0.0, 0.0, np.abs(self.above))

    @property
    def flat_parameters(self) -> Parameters | None:
        return {}

    def chord(self, anywhere: Anywhere) -> AffineBound:
        return AffineBound(self.below, 0.0, 0.0, np.abs(self.below))


def entropy_drift(cells: int, moved: Number, most: Number, of: ScalarKind) -> Number:
    """A bound on sum |eta(p) - eta(p')|, eta(t) = -t log t, for |p - p'|_1 <= moved, p, p' in [0, most].

    eta is concave: over a step d it rises by at most eta(d) and falls by at most d (1 + log(most)), which is
    at most eta(d) + d log(most) for d <= 1/e; the sum of eta(d) over n cells is at most e log(n / e).
    """
    if moved <= 0:
        return 0.0
    if not moved < 0.3:
        return math.inf
    return moved * (of.log(cells / moved) + of.log(of.greatest([of.number(1.0), most + moved])))


class EntropyForm(ClosedForm):
    """-sum u log u with u = M x, M not negative."""

    curvature = CONCAVE

    def __init__(self, inner: AffineMap) -> None:
        self.inner, self.scalars = inner, inner.scalars
        if not inner.nonnegative or (inner.offset != 0).any():
            raise CertificateError("an entropy in the problem is of numbers that may be negative")

    def value(self, x: np.ndarray) -> Number:
        u = self.inner(x)
        return -math.inf if (u < 0).any() else -self.scalars.total(self.scalars.times_log(u))[0]

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """See ``entropy_drift``; rounding is relative in u and absolute in its logarithm."""
        u, of = self.inner(x), self.scalars
        moved = self.inner.column_norm(error.support, 1) * error.size
        off = entropy_drift(int(self.inner.live.sum()), moved, of.largest(u), of)
        if of.exact:
            return off
        positive = u[u > 0]
        size = total(positive * (np.abs(np.log(positive)) + 2.0))[1]
        return off + (8 + self.inner.terms) * of.eps * size + of.tiny

    def tangent(self, parameters: Parameters) -> AffineBound:
        """Slope -(log q + 1), constant sum q; rows that no policy reaches have u = 0 and need none."""
        of, live = self.scalars, self.inner.live
        log_q = of.array(numbers(parameters, "log_q", (self.inner.rows,)))
        constant, size = of.total(np.exp(log_q[live]))
        if not of.finite(constant):
            raise CertificateError("'log_q' in the certificate is too large: its bound is infinite")
        sizes = np.where(live, np.abs(log_q) + 1.0, 0.0)
        slope = np.where(live, -log_q - 1.0, of.number(0.0))
        reward, steep = self.inner.pull_back(slope, sizes)
        return AffineBound(reward, constant, size, steep)

    def chord(self, anywhere: Anywhere) -> AffineBound:
        of = self.scalars
        found = chords_above(of.times_log, *anywhere.enclosure(self.inner), of)
        reward, steep = self.inner.pull_back(-found.slope)
        return AffineBound(reward, -of.total(found.constant)[0], of.total(found.size)[0], steep)


class RelativeEntropyForm(ClosedForm):
    """sum p log(p/q) - p + q with p = M x + b and q = N x + c, none of them negative. Convex.

    Rows are of three kinds: constant ones; those with a fixed q, which must be positive; and those where q
    moves with the occupancy. For these p <= C q must follow from the matrices alone, entry by entry: then
    q k(p/q) with k(r) = r log r - r + 1 is bounded and continuous up to q = 0.
    """

    curvature = CONVEX

    def __init__(self, p: AffineMap, q: AffineMap) -> None:
        self.p, self.q, self.scalars = p, q, p.scalars
        if not (p.nonnegative and q.nonnegative):
            raise CertificateError("a relative entropy in the problem is of negative numbers")
        self.live = p.live | q.live
        self.fixed = p.live & ~q.live
        if (q.offset[self.fixed] <= 0).any():
            raise CertificateError("the target of a kl distance must be positive where policies go")
        self.logs = np.log(np.where(q.offset > 0, q.offset, self.scalars.number(1.0)))
        self.moving = q.live
        self.ratio = self._ratio()
        still = ~self.live
        bounded = np.zeros(int(still.sum()), dtype=bool)
        self.constant = self._divergence(p.offset[still], q.offset[still], bounded)
        if not self.scalars.finite(self.constant):
            raise CertificateError("a relative entropy in the problem is infinite for every policy")

    def _ratio(self) -> float:
        """C: p <= C q in the rows where q moves; infinite where the matrices do not say so."""
        above, below = self.p.matrix[self.moving], self.q.matrix[self.moving]
        b, c = (self.scalars.rough(one.offset[self.moving]) for one in (self.p, self.q))
        inverse = below.copy()
        inverse.data = 1.0 / inverse.data
        ratios = above.multiply(inverse).tocsr()
        if ratios.nnz < above.nnz or (b[c == 0] > 0).any():
            return math.inf
        fixed = largest(b[c > 0] / c[c > 0])
        return max(1.0, largest(ratios.data), fixed) * (1 + 1e-12)

    def value(self, x: np.ndarray) -> Number:
        return self._divergence(self.p(x), self.q(x), self.moving & math.isfinite(self.ratio))

    def _divergence(self, p: np.ndarray, q: np.ndarray, bounded: np.ndarray) -> Number:
        """sum p log(p/q) - p + q; where q may be zero and p <= C q, at most q max(1, C log C + 1)."""
        of, sure = self.scalars, q > 0
        if (p < 0).any() or (q < 0).any() or (~(p <= 0) & ~sure & ~bounded).any():
            return math.inf
        logs = np.log(np.where(sure, q, of.number(1.0)))
        rows = of.times_log(p) - p * logs - p + q
        if bounded.any():
            most = max(1.0, self.ratio * math.log(self.ratio) + 1.0) * (1 + 1e-12)
            rows = np.where(sure | ~bounded, rows, of.nonnegative(q) * most)
        return of.total(rows)[0]

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        """Of rows with a fixed q as for the entropy, plus the linear part; else see ``_moving_drift``."""
        p, q, of = self.p(x), self.q(x), self.scalars
        moved = self.p.column_norm(error.support, 1) * error.size
        off = of.number(0.0)
        if self.fixed.any():
            spread = of.largest(self.logs[self.fixed]) + 1.0
            off += entropy_drift(int(self.fixed.sum()), moved, of.largest(p), of) + spread * moved
        if self.moving.any():
            shifted = self.q.column_norm(error.support, 1) * error.size
            off += self._moving_drift(of.total(q[self.moving])[0], moved, shifted)
        if of.exact:
            return off
        logs = np.abs(np.log(np.where(p > 0, p, 1.0))) + np.abs(np.log(np.where(q > 0, q, 1.0)))
        size = total(p * (logs + 4.0) + q)[1]
        return off + (8 + self.p.terms + self.q.terms) * of.eps * size + of.tiny

    def _moving_drift(self, mass: Number, moved: Number, shifted: Number) -> Number:
        """With h = q k(r), r = p/q in [0, C]: |h' - h| <= |q' - q| max k + q |k(r') - k(r)|.

        q |r' - r| <= |p' - p| + C |q' - q|, and |k(r') - k(r)| <= w(|r' - r|), w(d) = d (1 + 2 log C - log d),
        since k falls by at most d (1 - log d) from r = 0 on and rises by at most d log C. w is concave, so the
        sum over rows is at most mass * w(sum of the steps / mass) as long as w rises, up to d = C^2.
        """
        if not math.isfinite(self.ratio):
            return math.inf
        of, ratio = self.scalars, self.scalars.number(self.ratio)
        bend = of.log(ratio)
        highest = of.greatest([of.number(1.0), ratio * bend - ratio + 1.0])
        step = moved + ratio * shifted
        if step <= 0:
            return 0.0
        if not (mass > 0 and step / mass < ratio * ratio):
            return math.inf
        off = highest * shifted + step * (1.0 + 2.0 * bend - of.log(step / mass))
        return off * (1 + 1e-12)  # the mass itself is rounded

    def tangent(self, parameters: Parameters) -> AffineBound:
        """Slope a for p and -(e^a - 1) for q."""
        of = self.scalars
        given = numbers(parameters, "log_ratio", (self.p.rows,))
        a = of.array(np.where(self.live, given, 0.0))
        growth = np.expm1(a)
        constant, size = of.total(np.concatenate([a * self.p.offset, -growth * self.q.offset]))
        if not (of.finite(constant) and of.finite(growth[self.moving])):
            raise CertificateError(
                "'log_ratio' in the certificate is too large: its bound is infinite"
            )
        reward, steep = self.p.pull_back(a)
        if self.moving.any():
            less, steeper = self.q.pull_back(np.where(self.moving, growth, of.number(0.0)))
            reward, steep = reward - less, 2.0 * (steep + steeper)
        return AffineBound(reward, constant + self.constant, size + self.constant, steep)

    def chord(self, anywhere: Anywhere) -> AffineBound:
        """Of rows with a fixed q chords in p; where q moves, ``_moving_chord``."""
        of, nothing = self.scalars, self.scalars.number(0.0)
        low, high = anywhere.enclosure(self.p)
        q, logs = self.q.offset, self.logs
        fixed = chords_above(lambda p: of.times_log(p) - p * logs - p + q, low, high, of)
        slope = np.where(self.fixed, fixed.slope, nothing)
        inner = np.where(self.fixed, fixed.constant + slope * self.p.offset, nothing)
        constant, size = of.total(inner)
        size += of.total(fixed.size[self.fixed])[0]
        reward, steep = self.p.pull_back(slope)
        if self.moving.any():
            more, steeper = self._moving_chord(anywhere)
            reward, steep = reward + more, steep + steeper
        return AffineBound(reward, constant + self.constant, size + self.constant, steep)

    def _moving_chord(self, anywhere: Anywhere) -> tuple[np.ndarray, np.ndarray]:
        """Where p and q look at one state, their ratio is the policy's own: its tangent is exact."""
        patterns = [anywhere.per_state(one).pattern for one in (self.p, self.q)]
        for one in patterns:
            if (np.diff(one.indptr)[self.moving] > 1).any():
                raise NotKnownError("a relative entropy mixes states")
        if (self.p.offset != 0)[self.moving].any() or (self.q.offset != 0)[self.moving].any():
            raise NotKnownError("a relative entropy has offsets")
        p, q = (one.numbers.times(anywhere.played) for one in (self.p, self.q))
        same = np.asarray(patterns[0].multiply(patterns[1]).sum(axis=1)).ravel() > 0
        if (self.moving & (p > 0) & ~same).any():
            raise NotKnownError("a relative entropy may be infinite")
        known = self.moving & same & (p > 0)
        one, nothing = self.scalars.number(1.0), self.scalars.number(0.0)
        logs = np.log(np.where(known, p, one)) - np.log(np.where(known, q, one))
        growth = np.where(known, np.expm1(logs), np.where(self.moving, -one, nothing))
        reward, steep = self.p.pull_back(np.where(known, logs, nothing))
        less, steeper = self.q.pull_back(growth)
        return reward - less, 2.0 * (steep + steeper)


class CustomForm(ClosedForm):
    """A user's function. Its concavity (convexity), value and gradient are taken on trust, in floats."""

    def __init__(
        self,
        plain: dict[str, Any],
        shape: tuple[int, int],
        flow_miss: FlowMiss,
        scalars: ScalarKind = FLOATS,
    ) -> None:
        self.name, self.shape, self.flow_miss = str(plain["name"]), shape, flow_miss
        self.scalars = scalars
        self.curvature = {"concave": CONCAVE, "convex": CONVEX}[str(plain["curvature"])]
        self.function = plain.get("function")
        constant = plain.get("lipschitz")
        self.lipschitz = None if constant is None else float(constant)
        self.drifts = self.lipschitz is not None
        self.promises = (
            f"{self.name} has the curvature it was declared with on the model's occupancies, and "
            "JAX computes its value and gradient to rounding",
        )
        if self.lipschitz is not None:
            if not 0 <= self.lipschitz < math.inf:
                raise CertificateError(f"the Lipschitz constant of {self.name} is no number")
            self.promises += (
                f"{self.name} has the Lipschitz constant it was declared with, {self.lipschitz:g}",
            )

    def _own(self) -> Any:
        if self.function is None:
            raise NotVerifiableError(
                f"{self.name} is a function of the user's own, which no file can hold"
            )
        return self.function

    def value(self, x: np.ndarray) -> Number:
        of, near = self.scalars, self.scalars.rough(x)
        value = float(self._own().value(near))
        away = of.at_most(of.total(np.abs(x - of.array(near)))[0])
        return of.about(value, self._slope(near) * away + 64 * EPS * abs(value))

    def _slope(self, x: np.ndarray) -> float:
        """The declared Lipschitz constant; otherwise to first order, which the promise covers."""
        if self.lipschitz is not None:
            return self.lipschitz
        return float(np.abs(self._own().gradient(x)).max())

    def drift(self, x: np.ndarray, error: ErrorBound) -> Number:
        near = self.scalars.rough(x)
        rounding = 64 * EPS * abs(float(self._own().value(near)))
        return self._slope(near) * error.size + rounding

    def tangent(self, parameters: Parameters) -> AffineBound:
        """The gradient at any occupancy z: elsewhere nobody promised concavity (-x^3)."""
        of, z = self.scalars, numbers(parameters, "z", self.shape)
        if (z < 0).any() or not self.flow_miss(z) <= FLOW_ROUNDING * (1.0 + float(z.sum())):
            raise CertificateError(
                f"'z' in the certificate, where {self.name} is linearised, is no occupancy"
            )
        gradient = np.asarray(self._own().gradient(z), dtype=np.float64)
        value = float(self._own().value(z))
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            raise CertificateError(f"{self.name} has no finite gradient at the point given")
        inner, size = total(gradient * z)
        size, steep = size + abs(value), np.full(self.shape, largest(gradient))
        constant = of.about(value - inner, 16 * EPS * size)
        return AffineBound(of.about(gradient, 16 * EPS * steep), constant, size, steep)
