"""Solvers for models whose transitions are known."""

from cvxmdp.exact.column_generation import ColumnGeneration
from cvxmdp.exact.convex_program import ConvexProgram
from cvxmdp.exact.pdpg import PDPG, Normalised

__all__ = ["PDPG", "ColumnGeneration", "ConvexProgram", "Normalised"]
