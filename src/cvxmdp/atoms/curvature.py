"""Curvature: decided when a utility is written down, checked when it is used."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Curvature(Enum):
    """How a utility bends as a function of the occupancy."""

    AFFINE = "affine"
    CONCAVE = "concave"
    CONVEX = "convex"
    UNKNOWN = "neither concave nor convex by the rules"

    def __neg__(self) -> Curvature:
        flipped = {Curvature.CONCAVE: Curvature.CONVEX, Curvature.CONVEX: Curvature.CONCAVE}
        return flipped.get(self, self)

    def times(self, weight: float) -> Curvature:
        """The curvature of a multiple by a number."""
        if weight == 0:
            return Curvature.AFFINE
        return self if weight > 0 else -self

    @property
    def is_concave(self) -> bool:
        """True for concave and for affine."""
        return self in (Curvature.CONCAVE, Curvature.AFFINE)

    @property
    def is_convex(self) -> bool:
        """True for convex and for affine."""
        return self in (Curvature.CONVEX, Curvature.AFFINE)


def curvature_of_sum(parts: Iterable[Curvature]) -> Curvature:
    """A sum bends like its parts when they all bend the same way."""
    bent = {part for part in parts if part is not Curvature.AFFINE}
    if not bent:
        return Curvature.AFFINE
    return bent.pop() if len(bent) == 1 else Curvature.UNKNOWN
