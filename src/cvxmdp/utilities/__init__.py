"""Utilities: concave and convex functions of the occupancy, their algebra and constraints."""

from cvxmdp.utilities.check import UtilityCheck, check_utility
from cvxmdp.utilities.constraint import Constraint
from cvxmdp.utilities.curvature import Curvature
from cvxmdp.utilities.custom import concave, convex
from cvxmdp.utilities.distance import distance
from cvxmdp.utilities.entropy import entropy
from cvxmdp.utilities.function import Constants, OccupancyFunction, Space
from cvxmdp.utilities.linear import linear
from cvxmdp.utilities.logarithm import log_barrier, log_sum
from cvxmdp.utilities.minimum import minimum
from cvxmdp.utilities.quadratic import quadratic
from cvxmdp.utilities.sets import ball, box, polytope
from cvxmdp.utilities.utility import Utility

__all__ = [
    "Constants",
    "Constraint",
    "Curvature",
    "OccupancyFunction",
    "Space",
    "Utility",
    "UtilityCheck",
    "ball",
    "box",
    "check_utility",
    "concave",
    "convex",
    "distance",
    "entropy",
    "linear",
    "log_barrier",
    "log_sum",
    "minimum",
    "polytope",
    "quadratic",
]
