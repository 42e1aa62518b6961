r"""The flow of undiscounted episodes: out(x) = rho + P'x, x finite.

Where no policy can stay for ever, that is all: the longest stay W = <rho, w> is finite, the proof that episodes
surely end, and the unit of distributions. Where some can, in an *end component*, problems are taken only if
staying is *charged*: by a function that costs something there and is minimised or has a budget. Then finite
occupancies are all that matter, and a bound on their returns needs no stay: any V with r + P V <= V, rounding
included, gives <r, x> <= <rho, V>. Such a V is found for rewards raised by a little more than rounding.
Policy iteration starts from a policy that ends, and charged rewards keep it among those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError
from cvxmdp.models.collapsing import Silence
from cvxmdp.models.end_components import EndComponents, end_components
from cvxmdp.models.episode_flow import ROUNDED, EpisodeFlow
from cvxmdp.models.flow import reached_from, visited_by_some
from cvxmdp.models.planning import optimal_values
from cvxmdp.models.systems import EPS, solve_discounted

# Times the rounding of a step, that rewards are raised by: policy iteration takes little for nothing.
RAISED = (4.0, 2**8, 2**14)
PAYS = "discount=1: staying for ever pays with this reward"
NAMED = 4  # states that a message names


def of_reached(transition: sp.csr_array, initial: np.ndarray, actions: np.ndarray) -> sp.csr_array:
    """The transition with empty rows where no policy ever is: those states might never end."""
    reached = visited_by_some(transition, initial)
    if reached.all():
        return transition
    kept = sp.diags_array(np.repeat(reached, actions.shape[1]).astype(np.float64))
    rows = sp.csr_array(kept @ transition)
    rows.eliminate_zeros()
    return rows


@dataclass(frozen=True, eq=False)
class TotalFlow(EpisodeFlow):
    """The flow of a discount of one.

    Attributes:
        names: of the states, for messages; None where they have none.
    """

    names: tuple[str, ...] | None = None

    @property
    def endless(self) -> bool:
        return False

    @property
    def ceiling(self) -> float:
        return float("inf")

    @property
    def scale(self) -> float:
        """One over the longest expected stay."""
        if self.strict:
            raise ModelError(
                f"discount=1: {self._stayed(self.components)}, so that no stay is the longest and "
                "distributions have no unit. Give unit= to entropy and distance, and a budget on what staying "
                "costs; or a discount, or a horizon."
            )
        return 1.0 / self.mass

    @property
    def shown_scale(self) -> float:
        return 1.0 / self.mass

    @cached_property
    def _whole(self) -> np.ndarray:
        """Boolean (S, A): usable pairs that do not end."""
        sums = np.asarray(self.transition.sum(axis=1)).reshape(self.shape)
        return self.usable & (np.abs(sums - 1.0) < ROUNDED)

    @cached_property
    def components(self) -> EndComponents:
        """Where some policy can stay for ever."""
        return end_components(self.transition, self._whole)

    @property
    def ending_actions(self) -> np.ndarray:
        """Actions (S,) of a policy that ends from wherever that is possible: each may come nearer to an end."""
        return self._towards_ends[0]

    @cached_property
    def _towards_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Those, and boolean (S,): the states from which some policy can end."""
        known = (self.usable & ~self._whole).any(axis=1)
        actions = np.where(known, (self.usable & ~self._whole).argmax(axis=1), -1)
        actions, known = self._nearer(actions, known, self.actions)
        return np.where(actions < 0, self.actions.argmax(axis=1), actions), known

    def _nearer(
        self, actions: np.ndarray, known: np.ndarray, pairs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Actions (S,) that may come nearer to states with known ones, by these pairs (S, A), and where."""
        while True:
            near = (self.transition @ known.astype(np.float64)).reshape(self.shape) > 0
            found = ~known & (near & pairs).any(axis=1)
            if not found.any():
                return actions, known
            actions = np.where(found, (near & pairs).argmax(axis=1), actions)
            known = known | found

    def require(self, charge: Callable[[], np.ndarray], signals: Iterable[str] = ()) -> None:
        """Refuse problems whose policies can stay for ever somewhere for nothing.

        Args:
            charge: gives what staying costs at least, (S, A): not negative, minimised or under a budget.
            signals: that the problem is about, by name.
        """
        if not self.strict:
            return
        free = end_components(self.transition, self._whole & (charge() == 0))
        if free.count:
            closed = self._closed(free)
            known = 0 < closed.size <= NAMED
            ends = ", ".join(self._named(closed)) if known else "..."
            why = "which nobody leaves" if known else "with the states that are ends"
            counted = ", ".join(f'"{name}"' for name in signals)
            merged = (
                f" Where no signal of the problem pays there, mdp.collapsed({counted}) makes one state of each "
                "such part."
            )
            raise ModelError(
                f"discount=1: {self._stayed(free)}, where nothing that is minimised or has a budget charges "
                f"for it. Give a budget on a cost there, a discount, a horizon, or mdp.ending_at([{ends}]), "
                f"{why}.{merged if counted else ''}"
            )

        lost = np.flatnonzero(self.reached & ~self._towards_ends[1])
        if lost.size:
            what = "1 state" if lost.size == 1 else f"{lost.size:,} states"
            raise ModelError(
                f"discount=1: from {what} ({', '.join(self._named(lost))}) no policy ends its episode, and "
                "what staying costs there adds up for ever. Take away the actions that lead there, end "
                "episodes with mdp.ending_at([...]), or count until then: "
                "R [F a] instead of R [C] in a query of Storm."
            )

    def _closed(self, free: EndComponents) -> np.ndarray:
        """The states of end components that no action leaves."""
        inside = free.labels >= 0
        leaving = (self.usable & ~free.inside).any(axis=1) & inside
        left = np.isin(free.labels, free.labels[leaving])
        return np.flatnonzero(inside & ~left)

    def _named(self, states: np.ndarray) -> list[str]:
        named = [repr(self.names[s]) if self.names else str(s) for s in states[:NAMED]]
        return [*named, "..."] if states.size > NAMED else named

    def _stayed(self, components: EndComponents) -> str:
        states = np.flatnonzero(components.labels >= 0)
        what = "state" if states.size == 1 else "states"
        named = ", ".join(self._named(states))
        return f"policies can stay for ever in {states.size:,} {what} ({named})"

    @cached_property
    def stay(self) -> np.ndarray:
        """The longest stay; where none is the longest, that of the uniform policy, which is no bound."""
        if not self.strict:
            return super().stay
        return self.solved(self.chain(self.uniform), np.ones(self.shape[0]))

    @property
    def deterministic(self) -> np.ndarray:
        return np.asarray(np.eye(self.shape[1])[self.ending_actions])

    @property
    def strict(self) -> bool:
        return bool(self.components.count)

    def occupancy(self, policy: np.ndarray) -> np.ndarray:
        """Over the states that the policy visits; elsewhere it may stay for ever."""
        chain = self.chain(policy).copy()  # it shares the model's own indices
        chain.eliminate_zeros()
        places = np.flatnonzero(reached_from(self.initial > 0, chain.indptr, chain.indices))
        visits = np.zeros(self.shape[0])
        own = sp.csr_array(chain[places][:, places].T)
        try:
            visits[places] = solve_discounted(own, self.initial[places], self.discount)
        except np.linalg.LinAlgError as error:
            raise ModelError("discount=1: the policy never ends its episodes") from error
        return np.where(self.actions, np.maximum(visits, 0.0)[:, None] * policy, 0.0)

    def sketched(self, policy: np.ndarray) -> np.ndarray:
        """To so many digits where every policy ends; else a chain may have to be looked at first."""
        return self.occupancy(policy) if self.strict else self._sketched(policy)

    def best_values(
        self, reward: np.ndarray, guess: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        if not self.strict:
            return super().best_values(reward, guess)
        free = end_components(self.transition, self._whole & (reward == 0))
        return self._crossing(free, reward) if free.count else self._raised(reward)

    def _raised(self, reward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values that leave nothing open: no stay is there to multiply it with."""
        try:
            values, actions = optimal_values(self, reward, start=self.ending_actions)
            successors = int(np.diff(self.transition.indptr).max(initial=0))
            size = float(np.abs(reward[self.usable]).max()) + 2.0 * float(np.abs(values).max())
            for times in RAISED:
                more = times * (successors + 8) * EPS * size
                values, actions = optimal_values(self, reward + more, start=actions)
                left = reward + self.following(values) - values[:, None]
                if left[self.usable].max() <= -0.25 * more:
                    return values, actions
        except np.linalg.LinAlgError as error:
            raise ModelError(PAYS) from error
        raise ModelError(PAYS)

    def _crossing(self, free: EndComponents, reward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Best values where some parts can be crossed for nothing: the same all over such a part."""
        silence = Silence(self.transition, self.usable, free)
        source, first = silence.source, silence.stands_for
        available = source >= 0
        nowhere = ~available.any(axis=1)  # states that another one stands for
        places = np.arange(first.size)
        merge = sp.csr_array((np.ones(first.size), (places, first)), shape=(first.size,) * 2)
        rows = np.where(available, source, 0).ravel()
        kept = sp.diags_array(available.ravel().astype(np.float64))
        transition = sp.csr_array(kept @ self.transition[rows] @ merge)
        transition.eliminate_zeros()
        available[nowhere, 0] = True
        initial = np.bincount(first, self.initial, minlength=first.size)
        smaller = TotalFlow(transition, initial, available, 1.0)
        worth = np.where(source >= 0, reward.ravel()[rows].reshape(source.shape), 0.0)
        values, chosen = smaller._raised(worth)
        exits = source[places, chosen][first]  # pairs, of the same state or of its part
        nobody = self.actions.argmax(axis=1)  # where nobody comes, any action will do
        actions = np.where(exits < 0, nobody, exits % self.shape[1])
        known = exits // self.shape[1] == places
        return values[first], self._nearer(actions, known, free.inside)[0]

    def covering(self, excess: np.ndarray, size: float) -> np.ndarray | None:
        """Where policies can stay for ever, nothing covers what is left open."""
        return None if self.strict else super().covering(excess, size)
