r"""How far ahead a problem looks, and all numbers that follow from that alone.

A horizon is a few numbers, ``mdp.horizon``. What depends on it and on the model is its *flow*, ``mdp.flow``:
the equations of occupancies, their unit, the longest stay, the bound on the best return, the occupancy of a
policy and the oracle. A kind of horizon is a class here, a flow beside it, and a flow of the same name in
``checker``; no other code asks which kind it is.

| kind       | occupancies x >= 0, out(x)(s) = sum_a x(s,a) | unit u          |
|------------|----------------------------------------------|-----------------|
| discounted | out(x) = rho + gamma P'x                     | 1 / (1 - gamma) |
| total      | out(x) = rho + P'x, x finite                 | longest stay    |
| finite     | out(x_0) = rho, out(x_t+1) = gamma P'x_t     | sum of gamma^t  |
| average    | out(x) = P'x, <1, x> = 1                     | 1               |

``state_distribution`` is out(x) / u, and atoms that speak of distributions read x / u.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError, PolicyError, UtilityError
from cvxmdp.base.text_tables import number
from cvxmdp.models.average_flow import AverageFlow, recurrent_parts
from cvxmdp.models.episode_flow import DiscountedFlow
from cvxmdp.models.finite_flow import FiniteFlow
from cvxmdp.models.flow import Flow, naming
from cvxmdp.models.total_flow import TotalFlow, of_reached
from cvxmdp.models.validation import read_factor, read_steps

Names = tuple[str, ...] | None
HORIZON_ARGUMENTS = ("discount", "average", "horizon")  # of a model's constructor
UNITS = ("total", "step", "episode")  # that sums of signals are given in
ENDING = 1.0 - 1e-9  # share of the steps of an unending episode, below which episodes do end
# Numbers, one for each step and pair; raise it where there is memory for several such.
LARGEST_TABLE = 2**28


class Horizon(ABC):
    """What is common to all kinds. Frozen.

    Attributes:
        kind: its name.
        discount: gamma.
        steps: T, where policies may depend on time; else None.
        limit: T, where episodes of an environment are cut and nothing counts afterwards; else None.
    """

    kind: ClassVar[str]
    discount: float
    steps: int | None = None  # T, where time is part of the state
    limit: int | None = None
    episodic: ClassVar[bool] = True  # paths can be cut into episodes that are independent

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """What a model's constructor is given for it."""

    @property
    def counted(self) -> int | None:
        """T, after which nothing counts, whether policies know the time or not; else None."""
        return self.steps or self.limit

    def restarted(self) -> dict[str, Any]:
        """The same where episodes begin again and never end."""
        return self.arguments()

    @abstractmethod
    def flow(
        self, transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray, names: Names
    ) -> Flow:
        """The flow of a model with this horizon, whose rows that do not end sum to one.

        Args:
            transition, initial, actions: see ``Flow``.
            names: of the states, for messages; None where they have none.
        """

    def rows(self, policy: np.ndarray) -> np.ndarray:
        """A policy's probabilities as the flow takes them."""
        return policy

    def collected(self, x: np.ndarray) -> np.ndarray:
        """What the flow calls an occupancy as users see it: of states and actions."""
        return x

    def require(self, model: HorizonModel) -> None:  # noqa: B027 (most ask for nothing)
        """Raise a ``ModelError`` that names states where a model does not fit."""

    @property
    def plain_sums(self) -> bool:
        """Whether occupancies count the visits of whole episodes, none weighing less than another."""
        return False

    @property
    def gradients(self) -> str:
        """Why gradient solvers and learners do not take it, in words; empty where they do."""
        return ""

    @property
    def stationary(self) -> str:
        """Why policies that do not depend on time are not enough, in words; empty where they are."""
        return self.gradients

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
        if per == "episode":
            raise UtilityError(
                f'per="episode" is an undiscounted sum, which is no function of discounted visits ({self}). '
                "Use a model with discount=1, whose episodes end."
            )
        return scale() if per == "step" else 1.0

    @abstractmethod
    def sums(self, total: float, budget: float, steps: float) -> list[str]:
        """A return and its budget in the units people mean, in words.

        Args:
            total: <c, x>.
            budget: for it.
            steps: <1, x>, those that are taken.
        """

    def _per_step(self, total: float, budget: float, steps: float) -> str:
        text = f"per step {number(self.scale * total)} (budget {number(self.scale * budget)})"
        if self.scale * steps < ENDING:
            # Whoever reads "per step" thinks of the steps that are taken, and those are fewer.
            text += f" of {number(self.longest)} steps, of which {number(steps)} are taken"
            text += f": share of the steps taken {number(total / steps)}"
        return text

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

    def flow(
        self, transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray, names: Names
    ) -> Flow:
        return DiscountedFlow(transition, initial, actions, self.discount)

    @property
    def longest(self) -> float:
        return 1.0 / (1.0 - self.discount)

    @property
    def scale(self) -> float:
        return 1.0 - self.discount

    def sums(self, total: float, budget: float, steps: float) -> list[str]:
        whole = f"discounted sum {number(total)} (budget {number(budget)})"
        return [whole, self._per_step(total, budget, steps)]

    def __str__(self) -> str:
        return f"discount {self.discount!r}"  # to the last digit: 1 - 1e-9 is not 1


@dataclass(frozen=True)
class Total(Horizon):
    """Every step counts the same, and episodes surely end, or staying is charged for."""

    discount: float = 1.0
    kind: ClassVar[str] = "total"

    def arguments(self) -> dict[str, Any]:
        return {"discount": 1.0}

    @property
    def plain_sums(self) -> bool:
        return True

    def restarted(self) -> dict[str, Any]:
        """A sum over episodes that follow each other for ever has a mean per step only."""
        return {"average": True}

    def flow(
        self, transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray, names: Names
    ) -> Flow:
        return TotalFlow(of_reached(transition, initial, actions), initial, actions, 1.0, names)

    @property
    def longest(self) -> float:
        return math.inf

    @property
    def scale(self) -> float:
        raise UtilityError(
            "discount=1: without a model nobody knows how long episodes stay, and distributions have no unit. "
            "Give unit= to entropy and distance."
        )

    def factor(self, per: str, scale: Callable[[], float]) -> float:
        if per == "step":
            raise UtilityError(
                'discount=1: a sum per step has no meaning where episodes differ in length. per="episode" is '
                "the sum over an episode, share(...) the share of the steps taken."
            )
        return 1.0

    def sums(self, total: float, budget: float, steps: float) -> list[str]:
        return [
            f"per episode {number(total)} (budget {number(budget)})",
            f"share of the {number(steps)} steps taken {number(total / steps)}",
        ]

    def __str__(self) -> str:
        return "total reward (discount 1)"


@dataclass(frozen=True)
class Average(Horizon):
    """The mean over all steps of a path that never ends."""

    discount: float = 1.0
    kind: ClassVar[str] = "average"
    episodic: ClassVar[bool] = False

    def arguments(self) -> dict[str, Any]:
        return {"average": True}

    def flow(
        self, transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray, names: Names
    ) -> Flow:
        return AverageFlow.of(transition, initial, actions)

    def require(self, model: HorizonModel) -> None:
        """Nothing ends, and exactly one end component can be reached."""
        ends = np.argwhere(model.ending > 0)
        if len(ends):
            state, action = (int(place) for place in ends[0])
            pair = f"{model.state_label(state)!r}, {model.action_label(action)!r}"
            rows = "1 row ends episodes" if len(ends) == 1 else f"{len(ends):,} rows end episodes"
            raise ModelError(
                f"average=True: {rows} (first: {pair}, {model.ending[state, action]:g}); "
                "on a model with a discount, mdp.restarting(average=True) begins the next episode at once."
            )
        parts = recurrent_parts(model.transition, model.initial, model.actions)
        if len(parts) > 1:
            named = " and ".join(naming(part, model.state_label) for part in parts[:2])
            more = f" and {len(parts) - 2:,} more" if len(parts) > 2 else ""
            raise ModelError(
                f"average=True: a policy can stay for ever in {len(parts):,} separate parts, {named}{more}, so "
                "that its average depends on chance; start where only one of them can be reached, take away "
                "the actions that stay in the others, or use a discount."
            )

    @property
    def gradients(self) -> str:
        return (
            "average=True: gradient solvers and learners need episodes, and here there are none. "
            "ConvexProgram and ColumnGeneration solve it exactly."
        )

    @property
    def longest(self) -> float:
        return 1.0

    def tail(self, steps: Any) -> Any:
        """However many steps are seen, all of the mass comes later."""
        return np.ones(np.shape(steps))

    @property
    def scale(self) -> float:
        return 1.0

    def factor(self, per: str, scale: Callable[[], float]) -> float:
        if per == "episode":
            raise UtilityError(
                'average=True: there are no episodes, and per="episode" means nothing. On mdp.restarting() a '
                "budget b per episode is linear(c - b * ending) <= 0."
            )
        return 1.0

    def sums(self, total: float, budget: float, steps: float) -> list[str]:
        """There is one unit only: per step."""
        return []

    def __str__(self) -> str:
        return "average per step"


class FirstSteps(Horizon):
    """The first T steps, of which step k counts gamma^k; gamma is at most 1."""

    discount: float

    @property
    @abstractmethod
    def last(self) -> int:
        """T."""

    def arguments(self) -> dict[str, Any]:
        return {"discount": self.discount, "horizon": self.last}

    @property
    def longest(self) -> float:
        return float(self.tail(0))

    def tail(self, steps: Any) -> Any:
        weights = self.discount ** np.arange(self.last)
        after = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        return after[np.minimum(np.asarray(steps, dtype=np.int64), self.last)]

    @property
    def scale(self) -> float:
        return 1.0 / self.longest

    def factor(self, per: str, scale: Callable[[], float]) -> float:
        if per == "episode" and self.discount == 1.0:
            return 1.0
        return super().factor(per, scale)


@dataclass(frozen=True)
class Finite(FirstSteps):
    """A model's first T steps. Policies may depend on time."""

    steps: int
    discount: float = 1.0
    kind: ClassVar[str] = "finite"

    @property
    def last(self) -> int:
        return self.steps

    def require(self, model: HorizonModel) -> None:
        """Everything is held for every step: a few characters must not ask for more than there is."""
        size = self.steps * math.prod(model.actions.shape)
        if size > LARGEST_TABLE:
            raise ModelError(
                f"horizon={self.steps:,} with {model.actions.size:,} pairs makes tables of {size:,} numbers; "
                f"at most {LARGEST_TABLE:,} are made (cvxmdp.models.horizon.LARGEST_TABLE). Take fewer steps, "
                "a discount, or average=True."
            )

    def flow(
        self, transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray, names: Names
    ) -> Flow:
        return FiniteFlow.of(transition, initial, actions, self.discount, self.steps)

    def rows(self, policy: np.ndarray) -> np.ndarray:
        """All tables above each other; one that does not depend on time is that of every step."""
        if policy.ndim == 3 and len(policy) != self.steps:
            raise PolicyError(
                f"the policy has tables for {len(policy):,} steps, the model's horizon is {self.steps:,}"
            )
        tables = (
            policy if policy.ndim == 3 else np.broadcast_to(policy, (self.steps, *policy.shape))
        )
        return tables.reshape(-1, policy.shape[-1])

    def collected(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.reshape(self.steps, -1, x.shape[-1]).sum(axis=0))

    @property
    def stationary(self) -> str:
        return (
            f"horizon={self.steps}: this learner's policies do not depend on time. ConvexProgram and "
            "ColumnGeneration solve it exactly, PDPG and VRPDPG follow gradients of a table for every step; to "
            "learn otherwise, unroll the model: mdp.unroll(T)."
        )

    def sums(self, total: float, budget: float, steps: float) -> list[str]:
        kind = "sum" if self.discount == 1.0 else "discounted sum"
        whole = f"{kind} over {self.steps:,} steps {number(total)} (budget {number(budget)})"
        return [whole, self._per_step(total, budget, steps)]

    def __str__(self) -> str:
        ahead = "1 step" if self.steps == 1 else f"{self.steps:,} steps"
        return ahead if self.discount == 1.0 else f"{ahead}, discount {self.discount:g}"


class HorizonModel(Protocol):
    """What a horizon may ask of a model."""

    transition: sp.csr_array
    initial: np.ndarray
    actions: np.ndarray
    ending: np.ndarray

    def state_label(self, state: int) -> str:
        """Its name or index."""

    def action_label(self, action: int) -> str:
        """Its name or index."""


def horizon_of(discount: Any = None, average: Any = False, horizon: Any = None) -> Horizon:
    """The horizon that a user gave."""
    if not isinstance(average, bool | np.bool_):
        raise ModelError(f"average is True or False; got {average!r}")
    if average and discount is not None:
        raise ModelError(f"average=True has no discount; got discount={discount!r}")
    if average and horizon is not None:
        raise ModelError(f"average=True never ends; got horizon={horizon!r}")
    if average:
        return Average()
    if horizon is not None:
        return Finite(read_steps(horizon), 1.0 if discount is None else read_factor(discount))
    if discount is None:
        raise ModelError(
            "how far ahead to look is missing: give discount=0.95, horizon=20 or average=True"
        )
    factor = read_factor(discount)
    return Total() if factor == 1.0 else Discounted(factor)


def horizon_arguments(
    discount: Any, horizon: Any, average: Any, otherwise: float | None = None
) -> dict[str, Any]:
    """What a maker of models hands on; ``otherwise`` is the discount where nothing is given."""
    if discount is None and horizon is None and average is False:
        discount = otherwise
    return {"discount": discount, "horizon": horizon, "average": average}


def changed(arguments: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A model's arguments without those of its horizon that do not go with the changes."""
    given = {name for name in HORIZON_ARGUMENTS if changes.get(name) not in (None, False)}
    drop = set(HORIZON_ARGUMENTS) if "average" in given else {"average"} if given else set()
    return {name: value for name, value in arguments.items() if name not in drop}
