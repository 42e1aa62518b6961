"""A mixture of policies: one of them is drawn afresh for each episode and kept until it ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxmdp.base.errors import PolicyError
from cvxmdp.policies.policy import Arrays, draw_actions, drawn_members, read_states
from cvxmdp.policies.tables import TabularPolicy


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
        members.flags.writeable = False
        self.components = members
        super().__init__(probabilities)

    def draw(self, random: np.random.Generator) -> TabularPolicy:
        """The policy for one episode."""
        chosen = self.components[random.integers(len(self.components))].astype(np.float64)
        return TabularPolicy(chosen / chosen.sum(axis=1, keepdims=True))

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one state or an array of them: (action, None).

        Args:
            observation: a state, or an array of states, one per environment.
            state: not used; which policy acts where is remembered here.
            episode_start: where true, an episode begins and another policy is drawn for it. Without it
                the single policy with the same occupancy acts, which needs no memory.
            deterministic: take the likeliest action, with a warning, as ``TabularPolicy.predict``.
        """
        if episode_start is None or deterministic:
            return super().predict(observation, deterministic=deterministic)
        states = read_states(observation, self.n_states)
        begins = np.broadcast_to(np.asarray(episode_start, dtype=bool), states.shape)
        acting = drawn_members(self._acting, begins, len(self.components), self.random)
        object.__setattr__(self, "_acting", acting)
        actions = draw_actions(self.components[acting, states].astype(np.float64), self.random)
        return (actions if states.ndim else actions[()]), None

    def contents(self) -> tuple[Arrays, dict[str, Any]]:
        """Its own probabilities and those of the policies drawn from."""
        arrays = {"probabilities": self._matrix, "components": self.components}
        return arrays, {"kind": self.kind}

    @classmethod
    def read(cls, arrays: Arrays, description: dict[str, Any]) -> MixturePolicy:
        """The policy of a file's contents."""
        return cls(arrays["probabilities"], arrays["components"])

    def __repr__(self) -> str:
        return f"MixturePolicy({len(self.components):,} policies; {self.n_states:,} states)"
