"""Models: tables given directly, gridworlds, random Garnets, Gymnasium's tables, functions, PRISM."""

from cvxmdp.models.garnet import garnet
from cvxmdp.models.gridworld import gridworld
from cvxmdp.models.importers.gymnasium_table import from_gymnasium_table
from cvxmdp.models.importers.prism import from_prism
from cvxmdp.models.importers.prism_writer import to_prism
from cvxmdp.models.importers.successor_function import from_function
from cvxmdp.models.layout import GridLayout
from cvxmdp.models.table import TabularMDP

__all__ = [
    "GridLayout",
    "TabularMDP",
    "from_function",
    "from_gymnasium_table",
    "from_prism",
    "garnet",
    "gridworld",
    "to_prism",
]
