"""Episodes of an environment that are cut after so many steps, for policies that do not depend on time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.base.text_tables import number
from cvxmdp.models.flow import Flow
from cvxmdp.models.horizon import FirstSteps, Horizon, Names, horizon_of
from cvxmdp.models.validation import read_discount, read_factor, read_steps


@dataclass(frozen=True)
class Limited(FirstSteps):
    """An environment's first T steps; later ones do not count."""

    limit: int
    discount: float = 1.0
    kind: ClassVar[str] = "limited"

    @property
    def last(self) -> int:
        return self.limit

    def flow(
        self, transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray, names: Names
    ) -> Flow:
        raise ModelError(f"{self}: this is the horizon of an environment, which has no flow")

    def sums(self, total: float, budget: float, steps: float) -> list[str]:
        kind = "sum" if self.discount == 1.0 else "discounted sum"
        return [
            f"{kind} over at most {self.limit:,} steps {number(total)} (budget {number(budget)})"
        ]

    def __str__(self) -> str:
        ahead = f"at most {self.limit:,} steps"
        return ahead if self.discount == 1.0 else f"{ahead}, discount {self.discount:g}"


def episode_horizon(discount: Any, steps: Any, own: int | None, name: str) -> Horizon:
    """The horizon of an environment.

    Args:
        discount: gamma, at most 1.
        steps: after which nothing counts any more, as the user said, or None.
        own: where the environment itself cuts its episodes, where that is known.
        name: of the environment, for messages.
    """
    if steps is not None:
        return Limited(read_steps(steps), read_factor(discount))
    if read_factor(discount) < 1.0:
        return horizon_of(read_discount(discount))
    if own is None:
        raise ModelError(
            f"discount=1 adds up whole episodes, and nothing says where those of {name} are cut: give "
            "horizon=, the number of steps, or a discount below one"
        )
    return Limited(own)
