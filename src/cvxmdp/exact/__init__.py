"""Solvers for models whose transitions are known."""

from cvxmdp.exact.convex_program import ConvexProgram

__all__ = ["ConvexProgram"]
