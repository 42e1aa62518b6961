"""Sweeps: many runs over settings, budgets and seeds, killed and resumed with the same bits."""

from cvxmdp.sweeps.results import Sweep
from cvxmdp.sweeps.sweep import sweep

__all__ = ["Sweep", "sweep"]
