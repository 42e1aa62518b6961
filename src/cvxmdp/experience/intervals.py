"""Confidence intervals of utilities: per atom, and through sums, logarithms and minima.

A utility is a tree of sums, logarithms and minima, all monotone in their parts, over atoms. Each atom gets an
interval by the method that fits it, and the tree carries intervals upwards. All intervals hold at once:
the probability of error is shared among the atoms (union bound).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from cvxmdp.atoms import Utility
from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.shapes import Shape
from cvxmdp.base.errors import ExperienceError
from cvxmdp.base.interval import Interval
from cvxmdp.experience.concentration import Radius, VectorBound, bernstein_radius
from cvxmdp.experience.episodes import Sample
from cvxmdp.models.table import TabularMDP

BERNSTEIN = "empirical Bernstein"
VECTORS = "bounded differences through the modulus of continuity"
BOOTSTRAP = "bootstrap"
RESAMPLES = 1_000
MOST_WORK = 10_000_000  # entries of the table looked at
CONVERGED = 1e-3  # of the first bound


@dataclass(frozen=True)
class Setting:
    """What intervals are computed from.

    Attributes:
        sample: the episodes.
        space: what utilities are bound to: a model, or what stands for it.
        model: the model that was simulated, whose signals are tables; None for an environment, whose
            signals were recorded.
        bounds: smallest and largest value per step of the recorded signals, where known.
        return_bounds: smallest and largest return of a whole episode, where known.
        vectors: concentration of the occupancies, None where their size is not known.
        one_hot: whether an occupancy is that of a table.
        tail: a bound on the expected occupancy that truncation hid.
        mass: what no episode's mass exceeds, with what may follow after it was cut.
        pairs: boolean (F, A), the entries of an occupancy that can differ from zero.
        delta: the probability of error of each one-sided bound.
        seed: of the bootstrap.
    """

    sample: Sample
    space: Any
    model: TabularMDP | None
    bounds: Mapping[str, tuple[float, float]]
    return_bounds: Mapping[str, tuple[float, float]]
    vectors: VectorBound | None
    one_hot: bool
    tail: Radius
    mass: float
    pairs: np.ndarray
    delta: float
    seed: int

    @property
    def discount(self) -> float:
        return float(self.space.discount)


def leaves(utility: Utility) -> Iterator[Utility]:
    """Parts of a utility that get an interval of their own; linear terms of a sum share one."""
    yield from (term for _, term in _linear_terms(utility)[:1])
    for _, term in _other_terms(utility):
        if not term.children():
            yield term
        for part in term.children():
            yield from leaves(part)


def _linear_terms(utility: Utility) -> list[tuple[float, Utility]]:
    return [pair for pair in utility.terms() if pair[1].curvature is Curvature.AFFINE]


def _other_terms(utility: Utility) -> list[tuple[float, Utility]]:
    return [pair for pair in utility.terms() if pair[1].curvature is not Curvature.AFFINE]


def interval_of(utility: Utility, setting: Setting) -> Interval:
    """The interval of a utility: a proven one where every atom has one, else a bootstrap."""
    found = _combine(utility, setting)
    return found if found.proven else _bootstrap(utility, setting)


def _combine(utility: Utility, setting: Setting) -> Interval:
    parts = _parts(utility, setting)
    value = lower = upper = utility.offset
    for weight, part in parts:
        value += weight * part.value
        ends = sorted((weight * part.lower, weight * part.upper))
        lower, upper = lower + ends[0], upper + ends[1]
    methods = dict.fromkeys(part.method for _, part in parts)
    proven = all(part.proven for _, part in parts)
    return Interval(value, lower, upper, " and ".join(methods) or "constant", proven)


def _parts(utility: Utility, setting: Setting) -> list[tuple[float, Interval]]:
    linear = _linear_terms(utility)
    parts = [(1.0, _linear(linear, setting))] if linear else []
    for weight, term in _other_terms(utility):
        shape = term.lower(setting.space)
        inner = [_combine(part, setting) for part in term.children()]
        parts.append((weight, _through(shape, inner) if inner else _leaf(shape, term, setting)))
    return parts


def _through(shape: Shape, parts: list[Interval]) -> Interval:
    """Of logarithms, minima and distances of returns."""
    methods = " and ".join(dict.fromkeys(part.method for part in parts))
    proven = all(part.proven for part in parts)
    value = shape.combined_value([part.value for part in parts])
    return Interval(value, *shape.combined_interval(parts), methods, proven)


class Returns(NamedTuple):
    """Returns of the episodes, (n,), and what they can be.

    Attributes:
        seen: as seen.
        worst, best: with what truncation hid at its worst and best.
        least, most: no episode has a smaller or larger one; infinite where nobody knows.
    """

    seen: np.ndarray
    worst: np.ndarray
    best: np.ndarray
    least: float
    most: float

    def times(self, weight: float) -> Returns:
        ends = [(self.worst, self.least), (self.best, self.most)]
        (worst, least), (best, most) = ends if weight >= 0 else ends[::-1]
        return Returns(
            weight * self.seen, weight * worst, weight * best, weight * least, weight * most
        )

    def plus(self, other: Returns) -> Returns:
        """The sum of the two."""
        pairs: Any = zip(self, other, strict=True)
        return Returns(*(mine + theirs for mine, theirs in pairs))


def _linear(terms: list[tuple[float, Utility]], setting: Setting) -> Interval:
    """Empirical Bernstein for the episodes' returns; the truth lies between the worst and the best."""
    found = _returns(terms, setting)
    value, width = float(found.seen.mean()), found.most - found.least
    if not math.isfinite(width):
        return Interval(value, -math.inf, math.inf, BOOTSTRAP, False)
    room = [bernstein_radius(part, width, setting.delta) for part in (found.worst, found.best)]
    return Interval(
        value,
        max(float(found.worst.mean()) - room[0], found.least),
        min(float(found.best.mean()) + room[1], found.most),
        BERNSTEIN,
        True,
    )


def _returns(terms: list[tuple[float, Utility]], setting: Setting) -> Returns:
    """The returns of a weighted sum of signals and arrays; arrays are added up first."""
    sample = setting.sample
    table = np.zeros(sample.shape)
    recorded: list[Returns] = []
    for weight, term in terms:
        if setting.model is None and term.signals():
            (name,) = term.signals()
            recorded.append(_recorded(name, setting).times(weight * term.factor(setting.space)))
            continue
        part = term.lower(setting.space).affine()
        assert part is not None
        table = np.add(*_of_one_length(table, weight * part.reward))
    if table.any() or not recorded:
        recorded.append(_of_table(table, setting))
    return reduce(Returns.plus, recorded)


def _of_one_length(*tables: np.ndarray) -> list[np.ndarray]:
    """Tables of one step as often as the longest has steps: those by time have them above each other."""
    longest = max(map(len, tables))
    return [np.tile(table, (longest // len(table), 1)) for table in tables]


def _within(seen: np.ndarray, step: tuple[float, float], whole: Any, setting: Setting) -> Returns:
    """Returns with steps in the interval ``step``, whole ones in ``whole`` where that is known, too."""
    mass = setting.mass
    low, high = min(step[0], 0.0), max(step[1], 0.0)
    least, most = (low * mass, high * mass) if whole is None else whole
    least, most = max(least, low * mass), min(most, high * mass)
    tails = setting.sample.tails
    cut = tails > 0
    # where nothing was cut, nothing is added: 0 times an unknown bound is not a number
    hidden = [np.where(cut, np.where(cut, tails, 1.0) * end, 0.0) for end in (low, high)]
    worst = np.where(cut, np.maximum(seen + hidden[0], least), seen)
    best = np.where(cut, np.minimum(seen + hidden[1], most), seen)
    return Returns(seen, worst, best, least, most)


def _recorded(name: str, setting: Setting) -> Returns:
    unknown = (-math.inf, math.inf)
    step, whole = setting.bounds.get(name, unknown), setting.return_bounds.get(name)
    return _within(setting.sample.returns[name], step, whole, setting)


def _of_table(table: np.ndarray, setting: Setting) -> Returns:
    seen = setting.sample.inner(table)
    if setting.model is not None:
        used = table[_of_one_length(setting.pairs, table)[0]]
        step = (float(used.min()), float(used.max()))
        horizon = setting.model.horizon
        bounded = math.isfinite(horizon.longest) and horizon.steps is None
        whole = return_range(setting.model, table) if bounded else None
        return _within(seen, step, whole, setting)
    if setting.one_hot:
        return _within(seen, (float(table.min()), float(table.max())), None, setting)
    if setting.vectors is None:
        reach = math.inf
    else:  # <r, psi(o) (x) e_a> is at most |r_a|_2 |psi(o)|_2
        reach = float(np.linalg.norm(table, axis=0).max()) * setting.vectors.size.l2
        reach /= setting.space.max_mass
    return _within(seen, (-reach, reach), None, setting)


def _leaf(shape: Shape, atom: Utility, setting: Setting) -> Interval:
    """By the modulus of continuity; a sum, such as a concave quadratic, by those of its parts."""
    if shape.children():
        pairs = zip(shape.factors(), shape.children(), strict=True)
        return _through(
            shape, [_leaf(part, -atom if factor < 0 else atom, setting) for factor, part in pairs]
        )
    value = float(shape.value(setting.sample.mean()))
    modulus, vectors = shape.modulus(setting.one_hot, setting.pairs), setting.vectors
    if modulus is None or vectors is None or atom.curvature is Curvature.UNKNOWN:
        return Interval(value, -math.inf, math.inf, BOOTSTRAP, False)
    deviation = math.sqrt(vectors.n * math.log(1.0 / setting.delta) / 2.0)
    near = modulus.omega(vectors.swap) * deviation + modulus.omega(setting.tail)
    far = modulus.omega(vectors.radius(setting.delta) + setting.tail)
    if modulus.squared:  # |F x| and distances are convex; the square of their interval
        inside = math.sqrt(abs(value))
        ends = (max(inside - far, 0.0) ** 2, (inside + min(near, far)) ** 2)
        return Interval(value, *ends, VECTORS, True)
    below, above = (near, far) if atom.curvature is Curvature.CONCAVE else (far, near)
    lower = max(value - min(below, far), modulus.floor)
    return Interval(value, lower, min(value + min(above, far), modulus.ceiling), VECTORS, True)


def plug_in(utility: Utility, setting: Setting) -> Callable[[np.ndarray], float]:
    """The utility of weighted episodes, as a function of the weights."""
    linear = _linear_terms(utility)
    returns = _returns(linear, setting).seen if linear else np.zeros(setting.sample.n)
    parts: list[tuple[float, Callable[[np.ndarray], float]]] = []
    for weight, term in _other_terms(utility):
        shape = term.lower(setting.space)
        inner = [plug_in(part, setting) for part in term.children()]
        part = _combined(shape, inner) if inner else _of_mean(shape, setting.sample)
        parts.append((weight, part))

    def value(weights: np.ndarray) -> float:
        total = utility.offset + float(weights @ returns)
        return total + sum(weight * part(weights) for weight, part in parts)

    return value


def _combined(
    shape: Shape, parts: list[Callable[[np.ndarray], float]]
) -> Callable[[np.ndarray], float]:
    return lambda weights: shape.combined_value([part(weights) for part in parts])


def _of_mean(function: Shape, sample: Sample) -> Callable[[np.ndarray], float]:
    return lambda weights: float(function.value(sample.mean(weights)))


def _bootstrap(utility: Utility, setting: Setting) -> Interval:
    """The percentile bootstrap over episodes: an approximation for many episodes, not a proof.

    It speaks of what was seen; what truncation hid is reported beside it.
    """
    n = setting.sample.n
    random = np.random.default_rng(setting.seed)
    value = plug_in(utility, setting)
    draws = np.array(
        [value(random.multinomial(n, np.full(n, 1.0 / n)) / n) for _ in range(RESAMPLES)]
    )
    if np.isnan(draws).any():
        raise ExperienceError(f"{utility!r} is not a number on a resample of the episodes")
    lower, upper = np.quantile(draws, [setting.delta, 1.0 - setting.delta], method="nearest")
    label = f"{BOOTSTRAP} ({RESAMPLES:,} resamples, not a proof)"
    return Interval(value(np.full(n, 1.0 / n)), float(lower), float(upper), label, False)


def return_range(mdp: TabularMDP, reward: np.ndarray) -> tuple[float, float]:
    """Smallest and largest discounted return of any trajectory, with its luck and any choice of actions."""
    return -_largest(mdp, -reward), _largest(mdp, reward)


def _largest(mdp: TabularMDP, reward: np.ndarray) -> float:
    """The best action and the luckiest successor at every step.

    V <- max_a [r + discount * max over possible successors of V, or 0 where the episode may end], from above:
    the operator is monotone, so that every iterate is an upper bound, wherever one stops.
    """
    pointers, successors = mdp.transition.indptr, mdp.transition.indices
    lengths = np.diff(pointers)
    filled = np.flatnonzero(lengths)
    may_end = (mdp.ending > 0) | (lengths == 0).reshape(mdp.actions.shape)
    top = max(float(reward[mdp.actions].max()), 0.0) * mdp.max_mass
    values = np.full(mdp.n_states, top)
    for _ in range(max(1, MOST_WORK // max(successors.size, 1))):
        lucky = np.full(lengths.size, -np.inf)
        if filled.size:
            lucky[filled] = np.maximum.reduceat(values[successors], pointers[filled])
        best = lucky.reshape(mdp.actions.shape)
        best = np.where(may_end, np.maximum(best, 0.0), best)
        choices = np.where(mdp.actions, reward + mdp.discount * best, -np.inf)
        improved = np.minimum(values, choices.max(axis=1))
        moved = float((values - improved).max())
        values = improved
        if moved <= CONVERGED * top / mdp.max_mass:
            break
    start = float(values[mdp.initial > 0].max())
    return start + 1e-9 * (top + abs(start))  # rounding
