"""Models: tables given directly, gridworlds, random Garnets, Gymnasium's tables, functions, logs, PRISM."""

from cvxmdp.models.explore import from_function
from cvxmdp.models.garnet import garnet
from cvxmdp.models.gridworld import gridworld
from cvxmdp.models.gymnasium_table import from_gymnasium_table
from cvxmdp.models.layout import GridLayout
from cvxmdp.models.logged import from_transitions
from cvxmdp.models.prism import from_prism, to_prism
from cvxmdp.models.tabular import TabularMDP

__all__ = [
    "GridLayout",
    "TabularMDP",
    "from_function",
    "from_gymnasium_table",
    "from_prism",
    "from_transitions",
    "garnet",
    "gridworld",
    "to_prism",
]
