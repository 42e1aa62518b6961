"""Solvers for models whose transitions are known."""

from cvxmdp.exact.convex_program import ConvexProgram
from cvxmdp.exact.pdpg import PDPG, Normalised

__all__ = ["PDPG", "ConvexProgram", "Normalised"]
