r"""ColumnGeneration: a certified answer for models that conic solvers cannot hold.

The method (docs/large-models.md; ``generation`` has the loop, ``models.planning`` the oracle, ``linear_master``
and ``concave_master`` the small problems): keep occupancies of policies, mix them as well as possible, ask for
the policy that is best for the mixture's shadow reward, add its occupancy. The oracle's value is an upper bound
on what any policy can achieve and the mixture's objective a lower one, at every step; the run stops when they
are as close as was asked, and the bounds of the certificate it returns are computed by the checker's own
code, errors of every iterative solve included.

The answer is one policy: that of the mixed occupancy, which is an occupancy again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cvxmdp.base.errors import SettingsError
from cvxmdp.base.removed import refusing_removed
from cvxmdp.base.settings import whole
from cvxmdp.solvers.column_work import ColumnWork
from cvxmdp.solvers.contract import Task, Work
from cvxmdp.solvers.never import without_forbidden


@refusing_removed
@dataclass(frozen=True)
class ColumnGeneration:
    """Solve by column generation: certified, for models with up to millions of states.

    Attributes:
        tolerance: certified relative gap at which to stop.
        iterations: calls of the oracle, at most.
        columns: how many occupancies are kept; the least used are forgotten beyond that. By default 200 for
            linear problems, whose columns are cheap, 12 for entropies and kl, 40 for others.
        mixture: whether ``stats["mixture"]`` holds the weights and policies whose occupancies are mixed.
    """

    tolerance: float = 1e-6
    iterations: int = 1_000
    columns: int | None = None
    mixture: bool = False
    needs_seed: ClassVar[bool] = False
    has_lanes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not (isinstance(self.tolerance, int | float) and 0.0 < self.tolerance < 1.0):
            raise SettingsError(
                f"tolerance is a relative gap between 0 and 1; got {self.tolerance!r}. A usual value is 1e-6."
            )
        whole("iterations", self.iterations)
        if self.columns is not None:
            whole("columns", self.columns, 5)

    def prepare(self, task: Task) -> Work[Any]:
        """See ``Solver``. Nothing here is random, and a seed is not needed.

        The occupancy of the start (a policy, a solution of any solver, ``slater(problem)``) is the first
        column, and multipliers it has are where the oracle is asked first.
        """
        task.problem.require_model("ColumnGeneration")
        return without_forbidden(task, lambda asked: ColumnWork(self, asked))
