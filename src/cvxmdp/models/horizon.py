r"""How far ahead a problem looks, and all numbers that follow from that alone.

A horizon is a few numbers, ``mdp.horizon``. What depends on it and on the model is its *flow*, ``mdp.flow``:
the equations of occupancies, their unit, the longest stay, the bound on the best return, the occupancy of a
policy and the oracle. A kind of horizon is a class here, a flow beside it, and a flow of the same name in
``checker``; no other code asks which kind it is.

| kind       | occupancies x >= 0, out(x)(s) = sum_a x(s,a) | unit u          |
|------------|----------------------------------------------|-----------------|
| discounted | out(x) = rho + gamma P'x                     | 1 / (1 - gamma) |

``state_distribution`` is out(x) / u, and atoms that speak of distributions read x / u.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from cvxmdp.models.episode_flow import DiscountedFlow
from cvxmdp.models.flow import Flow
from cvxmdp.models.validation import read_discount

UNITS = ("total", "step")  # that sums of signals are given in


class Horizon(ABC):
    """What is common to all kinds. Frozen.

    Attributes:
        kind: its name.
        discount: gamma.
    """

    kind: ClassVar[str]
    discount: float

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """What a model's constructor is given for it."""

    @abstractmethod
    def flow(self, transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray) -> Flow:
        """The flow of a model with this horizon, whose rows that do not end sum to one."""

    @property
    @abstractmethod
    def longest(self) -> float:
        """No occupancy of any model has more mass."""

    def tail(self, steps: Any) -> Any:
        """No more mass than this follows after so many steps, a number or an array of them."""
        return self.discount ** np.asarray(steps, dtype=np.float64) * self.longest

    @property
    @abstractmethod
    def scale(self) -> float:
        """1 / u: occupancies times this are distributions, where no model has to be known for it."""

    def factor(self, per: str, scale: Callable[[], float]) -> float:
        """What <c, x> is multiplied with to be a sum "per" something; ``scale`` gives that of the space."""
        return scale() if per == "step" else 1.0

    @abstractmethod
    def __str__(self) -> str:
        """In words, as models print it."""


@dataclass(frozen=True)
class Discounted(Horizon):
    """Step k counts gamma^k; gamma is at least 0 and less than 1."""

    discount: float
    kind: ClassVar[str] = "discounted"

    def arguments(self) -> dict[str, Any]:
        return {"discount": self.discount}

    def flow(self, transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray) -> Flow:
        return DiscountedFlow(transition, initial, actions, self.discount)

    @property
    def longest(self) -> float:
        return 1.0 / (1.0 - self.discount)

    @property
    def scale(self) -> float:
        return 1.0 - self.discount

    def __str__(self) -> str:
        return f"discount {self.discount:g}"


def horizon_of(discount: Any) -> Horizon:
    """The horizon that a user gave."""
    return Discounted(read_discount(discount))
