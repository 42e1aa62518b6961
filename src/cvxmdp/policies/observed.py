"""What a network sees of an observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cvxmdp.base.pytrees import Record
from cvxmdp.models.space import FeatureSpace

Array = Any


@dataclass(frozen=True, eq=False)
class Observed(Record):
    """Observations (n, ...) as inputs of a network: shifted and scaled, or features of them.

    NumPy in, NumPy out, where its own arrays are NumPy's: step by step, that is what is fastest.

    Attributes:
        middle, scale: of the observations' box; zeros and ones where it has no bounds.
        features: what the network sees instead of the numbers themselves, or None.
    """

    middle: Array
    scale: Array
    features: Any
    static: ClassVar[tuple[str, ...]] = ("features",)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what the network sees."""
        return np.shape(self.middle) if self.features is None else (self.features.size,)

    def __call__(self, observations: Array) -> Array:
        """Inputs (n, ...)."""
        if self.features is not None:
            return self.features(observations)
        return (observations - self.middle) / self.scale


def observed(space: Any, features: Any) -> Observed | None:
    """How a network sees the observations of a space; None where it sees states by their number.

    Args:
        space: what a family is bound to: a model, or the ``FeatureSpace`` of an environment.
        features: of observations, asked for by the user, or None.
    """
    environment = space.environment if isinstance(space, FeatureSpace) else None
    if environment is None or (environment.numbered and features is None):
        return None
    reader = environment.reader
    middle, scale = reader.box if features is None else (np.zeros(()), np.ones(()))
    return Observed(middle, scale, features)
