"""A mixture of policies: one of them is drawn afresh for each episode and kept until it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.errors import PolicyError
from cvxmdp.files import write_arrays
from cvxmdp.policies.tabular import TabularPolicy


class MixturePolicy(TabularPolicy):
    """What the theorems on sampling speak of: an iterate drawn uniformly at random.

    ``draw(random)`` gives the policy of one episode. ``probabilities()`` are those of the single policy with
    the same occupancy, so that everything that is a function of the occupancy can be computed from them.

    Args:
        probabilities: of the policy of the averaged occupancies, (S, A).
        components: the policies drawn from, (K, S, A).
    """

    kind = "mixture"

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

    def save(self, path: str | Path) -> None:
        """Write the policy to one file; ``load_policy`` reads it again."""
        arrays = {"probabilities": self._matrix, "components": self.components}
        write_arrays(path, "policy", arrays, {"kind": self.kind})

    def __repr__(self) -> str:
        return f"MixturePolicy({len(self.components):,} policies; {self.n_states:,} states)"
