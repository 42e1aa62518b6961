"""A mixture of policies: one of them is drawn afresh for each episode and kept until it ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.base.errors import PolicyError
from cvxmdp.policies.policy import Arrays, draw_actions, drawn_members
from cvxmdp.policies.tables import TabularPolicy

ROUNDING = 1e-5  # components are kept in single precision


class MixturePolicy(TabularPolicy):
    """What the theorems on sampling speak of: an iterate drawn uniformly at random.

    ``draw(random)`` gives the policy of one episode. ``probabilities()`` are those of the single policy with
    the same occupancy, so that everything that is a function of the occupancy can be computed from them.

    Args:
        probabilities: of the policy of the averaged occupancies, (S, A).
        components: the policies drawn from, (K, S, A).
    """

    kind = "mixture"
    _acting: np.ndarray | None = None

    def __init__(self, probabilities: Any, components: Any) -> None:
        members = np.array(components, dtype=np.float32)
        if members.ndim != 3 or 0 in members.shape or members.shape[1:] != np.shape(probabilities):
            raise PolicyError(
                f"the components of a mixture are an array (K, S, A) with (S, A) = "
                f"{np.shape(probabilities)}; got shape {members.shape}"
            )
        sums = members.sum(axis=2, dtype=np.float64)
        wrong = ~(np.isfinite(members) & (members >= 0)).all(axis=2) | (
            np.abs(sums - 1.0) > ROUNDING
        )
        if wrong.any():
            number, state = np.argwhere(wrong)[0]
            raise PolicyError(
                f"component {number} of a mixture is {members[number, state]} in state {state}; expected "
                "probabilities that sum to one"
            )
        members.flags.writeable = False
        self.components = members
        super().__init__(probabilities)
        self._require_agreement()

    def _require_agreement(self) -> None:
        """What is certified is what acts: probabilities lie between those of the components.

        Where no component ever goes, the row is uniform.
        """
        table = self._matrix
        low, high = self.components.min(axis=0) - ROUNDING, self.components.max(axis=0) + ROUNDING
        share = table.max(axis=1, keepdims=True)
        uniform = ((table == 0) | (np.abs(table - share) <= ROUNDING)).all(axis=1)
        wrong = ((table < low) | (table > high)).any(axis=1) & ~uniform
        if wrong.any():
            state = int(np.argmax(wrong))
            raise PolicyError(
                f"the probabilities {table[state]} of a mixture in state {state} are not a mean of those of "
                "its components"
            )

    def draw(self, random: np.random.Generator) -> TabularPolicy:
        """The policy for one episode."""
        chosen = self.components[random.integers(len(self.components))].astype(np.float64)
        return TabularPolicy(chosen / chosen.sum(axis=1, keepdims=True))

    def _actions(self, observation: Any, episode_start: Any, deterministic: bool) -> Any:
        """Where nobody says that episodes begin, the single policy with the same occupancy acts."""
        if episode_start is None or deterministic:
            return super()._actions(observation, None, deterministic)
        states = self.states.numbers(observation)
        begins = np.broadcast_to(np.asarray(episode_start, dtype=bool), states.shape)
        acting = drawn_members(self._acting, begins, len(self.components), self.random)
        object.__setattr__(self, "_acting", acting)
        actions = draw_actions(self.components[acting, states].astype(np.float64), self.random)
        return actions if states.ndim else actions[()]

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        arrays = {"probabilities": self._matrix, "components": self.components}
        return arrays, {"kind": self.kind}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> MixturePolicy:
        return cls(arrays["probabilities"], arrays["components"])

    def __repr__(self) -> str:
        return f"MixturePolicy({len(self.components):,} policies; {self.n_states:,} states)"
