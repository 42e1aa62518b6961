"""Utilities: concave and convex functions of the occupancy, their algebra and constraints."""

from cvxmdp.atoms.curvature import Curvature
from cvxmdp.atoms.custom import concave, convex
from cvxmdp.atoms.distance import distance
from cvxmdp.atoms.entropy import entropy
from cvxmdp.atoms.growth import exp, huber
from cvxmdp.atoms.linear import linear
from cvxmdp.atoms.logarithm import log, log_barrier, log_sum
from cvxmdp.atoms.minimum import maximum, minimum, spread
from cvxmdp.atoms.powers import power, sqrt, square
from cvxmdp.atoms.probing import UtilityCheck, check_utility
from cvxmdp.atoms.quadratic import quadratic
from cvxmdp.atoms.returns import norm, returns
from cvxmdp.atoms.sets import ball, box, polytope
from cvxmdp.atoms.shapes import Constants, Shape
from cvxmdp.atoms.share import share
from cvxmdp.atoms.tails import chance, cvar, excess
from cvxmdp.atoms.utility import Constraint, Utility
from cvxmdp.atoms.walks import walk

__all__ = [
    "Constants",
    "Constraint",
    "Curvature",
    "Shape",
    "Utility",
    "UtilityCheck",
    "ball",
    "box",
    "chance",
    "check_utility",
    "concave",
    "convex",
    "cvar",
    "distance",
    "entropy",
    "excess",
    "exp",
    "huber",
    "linear",
    "log",
    "log_barrier",
    "log_sum",
    "maximum",
    "minimum",
    "norm",
    "polytope",
    "power",
    "quadratic",
    "returns",
    "share",
    "spread",
    "sqrt",
    "square",
    "walk",
]
