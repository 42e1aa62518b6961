"""The few shapes that atoms lower to, each a function of a linear map of the occupancy."""

from cvxmdp.atoms.shapes.convex_increasing import (
    ExponentialShape,
    HingePowerShape,
    HuberShape,
)
from cvxmdp.atoms.shapes.custom_shape import CustomShape
from cvxmdp.atoms.shapes.entropy_shape import EntropyShape
from cvxmdp.atoms.shapes.linear_shape import LinearShape
from cvxmdp.atoms.shapes.log_shape import LogShape
from cvxmdp.atoms.shapes.minimum_shape import MinimumShape
from cvxmdp.atoms.shapes.norm_shape import NormShape
from cvxmdp.atoms.shapes.power_shape import PowerShape
from cvxmdp.atoms.shapes.relative_entropy_shape import RelativeEntropyShape
from cvxmdp.atoms.shapes.shape import (
    Affine,
    Constants,
    Local,
    Mixed,
    Modulus,
    Move,
    Parameters,
    Shape,
)
from cvxmdp.atoms.shapes.sum_shape import SumShape

__all__ = [
    "Affine",
    "Constants",
    "CustomShape",
    "EntropyShape",
    "ExponentialShape",
    "HingePowerShape",
    "HuberShape",
    "LinearShape",
    "Local",
    "LogShape",
    "MinimumShape",
    "Mixed",
    "Modulus",
    "Move",
    "NormShape",
    "Parameters",
    "PowerShape",
    "RelativeEntropyShape",
    "Shape",
    "SumShape",
]
