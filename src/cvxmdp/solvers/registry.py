"""Every solver by its name, as files and the command line call it: adding one is one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cvxmdp.solvers.actor_critic import ActorCritic
from cvxmdp.solvers.column_generation import ColumnGeneration
from cvxmdp.solvers.convex_program import ConvexProgram
from cvxmdp.solvers.model_based import ModelBased
from cvxmdp.solvers.pdpg import PDPG
from cvxmdp.solvers.vr_pdpg import VRPDPG

SOLVERS: Mapping[str, type[Any]] = {
    solver.__name__: solver
    for solver in (ConvexProgram, PDPG, VRPDPG, ColumnGeneration, ModelBased, ActorCritic)
}
