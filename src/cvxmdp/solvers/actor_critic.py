"""A learner that needs no settings: a critic, clipped steps, multipliers that answer to noise as they should.

For simulators whose states cannot be counted, any concave objective and any number of concave constraints.
``algorithms.actor_iteration`` has the iteration. The last policy is the answer, unless fresh episodes find
another candidate better (``actor_critic_answer``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from cvxmdp.base.errors import SettingsError
from cvxmdp.base.settings import number, whole
from cvxmdp.policies.families import PolicyFamily, require_family
from cvxmdp.solvers.actor_critic_work import ActorCriticWork
from cvxmdp.solvers.contract import Task, Work

COUNTS = ("batch", "epochs", "minibatch", "memory", "check")
POSITIVE = ("learning_rate", "clip", "kl", "std")
SHARES = ("gae", "critic_discount", "ramp")


@dataclass(frozen=True)
class ActorCritic:
    """Learn from steps of a simulator, whatever its observations; nothing has to be set but how long.

    Where a setting is None, what the problem suggests is taken; ``stats["settings"]`` says what it was.

    Attributes:
        steps: of the environment, in all.
        policy: a network, ``MLP(64, 64)``; for continuous actions ``Gaussian(64, 64)``.
        batch: steps between two updates: 2048, fewer where ``steps`` are few.
        epochs, minibatch: how often a batch is gone through, and in parts of how many steps: 4, up to 8 where
            updates are fewer than 200, and an eighth of a batch; continuous actions 10 and 64.
        learning_rate: of Adam at first; it falls linearly to zero: 1e-3, continuous 3e-4.
        clip: how far the chance of an action may move for its gain to count.
        kl: the divergence from the policy that played, at which its step ends. Without a limit a rare surprise,
            large beside what little is left to gain, undoes a sure policy in one batch.
        std: of the default Gaussian policy at first, in half widths of the box of actions: 0.6.
        gae: lambda of generalised advantages: 0.9; 0.95 for continuous actions without a discount.
        critic_discount: of the critic: the problem's, or 1 - 1 / min(horizon, 200) where that is 1.
        entropy: the weight of the policy's entropy at first, which falls linearly to zero: 0.03, continuous 0.
        integral, proportional: k_I and k_P of the multipliers, in units of what pulls equally; k_I is 5 by
            the number of updates, between 0.002 and 0.03.
        memory: iterations over which objective and slacks are averaged.
        ramp: the part of the run over which the first policies' violation is allowed less and less.
        check: fresh episodes that judge the answer, at most.
    """

    steps: int
    policy: PolicyFamily | None = None
    batch: int | None = None
    epochs: int | None = None
    minibatch: int | None = None
    learning_rate: float | None = None
    clip: float = 0.2
    kl: float = 0.1
    std: float | None = None
    gae: float | None = None
    critic_discount: float | None = None
    entropy: float | None = None
    integral: float | None = None
    proportional: float = 0.3
    memory: int = 4
    ramp: float = 0.5
    check: int = 2_000
    needs_seed: ClassVar[bool] = True
    has_lanes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        if self.policy is not None:
            require_family(self.policy)
            if self.std is not None:
                raise SettingsError(
                    f"std={self.std!r} is of the default policy, and policy={self.policy!r} is given: write "
                    "Gaussian(64, 64, std=...)"
                )
        for name in COUNTS:
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        for name in (*POSITIVE, *SHARES, "entropy", "integral", "proportional"):
            value, most = getattr(self, name), 1.0 if name in SHARES else math.inf
            if value is not None or name in ("clip", "kl", "ramp", "proportional"):
                number(name, value, positive=name in POSITIVE, most=most)

    def prepare(self, task: Task) -> Work[Any]:
        """See ``Solver``. ``start=`` is a solution of this learner, or a policy of its family."""
        return ActorCriticWork(self, task)
