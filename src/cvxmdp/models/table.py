r"""Markov decision processes given by a transition table, dense or sparse.

A model is the tuple (S, A, P, rho, gamma) of the paper's section 2 with named signals:

| paper | attribute       | shape                                        |
|-------|-----------------|----------------------------------------------|
| P     | ``transition``  | (S*A, S), compressed sparse rows             |
| rho   | ``initial``     | (S,)                                         |
| gamma | ``discount``    | number in [0, 1]                             |
| r, c  | ``signals``     | name -> (S, A)                               |

Row ``s * A + a`` of ``transition`` holds P(. | s, a). It may sum to less than one: the missing mass
is the probability that the episode *ends* with this step (``ending``, shape (S, A)). An action that
is not available is masked (``actions``, boolean (S, A)), which is something else than a row of zeros.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.base.errors import ModelError, UtilityError, did_you_mean
from cvxmdp.models import validation
from cvxmdp.models.budget_states import read_levels, with_budget_state
from cvxmdp.models.collapsing import Unfolded, collapsed, unfolded
from cvxmdp.models.counts import Counts
from cvxmdp.models.flow import Flow
from cvxmdp.models.horizon import HORIZON_ARGUMENTS, changed, horizon_of
from cvxmdp.models.importers.umb_writer import write_umb
from cvxmdp.models.layout import GridLayout
from cvxmdp.models.model_file import read_model, write_model
from cvxmdp.models.names import Names
from cvxmdp.models.space import Space, StepRows
from cvxmdp.models.transforms import ending_at, restarting, unrolled


class TabularMDP(Space):
    """A finite Markov decision process with named signals. Immutable.

    Args:
        transition: P(s' | s, a) in one of three forms: a dense array (S, A, S); a SciPy sparse matrix
            (S*A, S) whose row s * A + a belongs to state s and action a; or successor lists, a pair
            ``(indices, probabilities)`` of arrays (S, A, b) (pad short lists with probability 0).
            Rows may sum to less than one: the rest is the probability that the episode ends.
        initial: the distribution rho of the first state, shape (S,) or ``{name: probability}``, or the number
            or name of a fixed one.
        discount: gamma, at least 0 and at most 1; with 1 returns are plain sums over episodes, which have to
            end.
        signals: rewards and costs by name, ``{"reward": array}``. Each is (S,), (S, A), by name (``{"broken":
            1.0}``, ``{("broken", "repair"): 5.0}``, zero elsewhere), or per successor in the form of
            ``transition``; per successor, a model that ends episodes needs one more column
            (dense and sparse: S + 1; lists: b + 1), the value received with the ending step.
        actions: boolean (S, A), which actions are available; all of them when not given.
        state_names, action_names: names for messages and pictures.
        layout: where the states lie on a grid, for pictures (``gridworld`` sets it).
        note: what kind of model this is, if whoever reads a result should know ("estimated model (900
            transitions)"); its repr, printed solutions and certificates repeat it.
        counts: of an estimated model, what it was estimated from (``from_transitions`` gives it).
        relative_error: every probability may be wrong by this share of itself (see ``uncertain``).
        average: True for the long-run mean per step, instead of a discount.
        horizon: T, for the first T steps alone; policies may then depend on time, and ``discount`` is 1 where
            it is not given.
    """

    transition: sp.csr_array
    initial: np.ndarray
    signals: Mapping[str, np.ndarray]
    ending: np.ndarray
    counts: Counts | None
    relative_error: float

    def __init__(
        self,
        transition: Any,
        initial: Any,
        discount: float | None = None,
        signals: Mapping[str, Any] | None = None,
        actions: Any = None,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        layout: GridLayout | None = None,
        note: str = "",
        counts: Counts | None = None,
        relative_error: float = 0.0,
        average: bool = False,
        horizon: int | None = None,
    ) -> None:
        rows = validation.read_transition(transition)
        n_states = rows.matrix.shape[1]
        n_actions = rows.matrix.shape[0] // n_states
        state_names = validation.read_names(state_names, n_states, "state_names")
        action_names = validation.read_names(action_names, n_actions, "action_names")
        label = validation.PairLabel(n_actions, state_names, action_names)
        mask = validation.read_actions(actions, n_states, n_actions, label)
        matrix = validation.drop_masked_rows(rows.matrix, mask)
        least = validation.ENDING if counts is None else 0.0  # counted endings are no lost digits
        ending = validation.check_rows(matrix, mask, label, least)
        named = validation.read_table(signals, "signals", '{"reward": array}')
        fields = {
            "transition": validation.FixedRows(matrix),
            "initial": validation.read_initial(initial, n_states, label),
            "horizon": horizon_of(discount, average, horizon),
            "signals": MappingProxyType(
                {
                    name: validation.read_signal(name, given, rows, ending, mask, label)
                    for name, given in named.items()
                }
            ),
            "actions": mask,
            "ending": ending,
            "state_names": state_names,
            "action_names": action_names,
            "layout": layout,
            "note": str(note),
            "counts": counts,
            "relative_error": validation.read_relative_error(relative_error, counts),
        }
        if counts is not None and counts.available.shape != mask.shape:
            raise ModelError(
                f"counts of {counts.available.shape} pairs do not fit a model of {mask.shape}"
            )
        if layout is not None and layout.rows * layout.columns != n_states:
            raise ModelError(
                f"a {layout.rows} x {layout.columns} layout does not fit {n_states} states"
            )
        for name, value in fields.items():
            validation.freeze(value)
            object.__setattr__(self, name, value)
        self.horizon.require(self)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"a TabularMDP cannot be changed (tried to set {name!r}); make another, for example "
            f"with mdp.replace({name}=...)"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a TabularMDP cannot be changed (tried to delete {name!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        # For copies and other processes; the default cannot copy the read-only view of the signals.
        arguments = {**self.arguments(), "signals": dict(self.signals)}
        return _from_arguments, (arguments,)

    @property
    def n_states(self) -> int:
        """Number of states, S."""
        return int(self.transition.shape[1])

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return int(self.actions.shape[1])

    def space(self, signals: Iterable[str] = ()) -> TabularMDP:
        """What utilities are functions of: the model itself, which knows its signals."""
        return self

    @property
    def signal_names(self) -> tuple[str, ...]:
        return tuple(self.signals)

    def signal(self, name: str) -> np.ndarray:
        """The signal of that name, shape (S, A): its expected value when a is taken in s."""
        if name not in self.signals:
            raise ModelError(
                f"the model has no signal {name!r}. {did_you_mean(name, self.signals)} "
                "Signals are given to the model: TabularMDP(..., signals={name: array}), or added "
                "with mdp.with_signals(name=array)."
            )
        return self.signals[name]

    def with_signals(self, **signals: Any) -> TabularMDP:
        """The same model with more (or other) signals, each (S,), (S, A) or per successor."""
        return self.replace(signals={**self.signals, **signals})

    def replace(self, **changes: Any) -> TabularMDP:
        """The same model with other constructor arguments, checked like a new one."""
        arguments = self.arguments()
        for name in changes:
            if name not in {*arguments, *HORIZON_ARGUMENTS}:
                raise ModelError(f"TabularMDP has no {name!r}. {did_you_mean(name, arguments)}")
        if self.counts is not None and "counts" not in changes:
            arguments["counts"] = self.counts.changed(arguments, changes)
        return TabularMDP(**{**changed(arguments, changes), **changes})

    def arguments(self) -> dict[str, Any]:
        """What the constructor would be given to make this model, in its order."""
        further = (
            "signals",
            "actions",
            "state_names",
            "action_names",
            "layout",
            "note",
            "counts",
            "relative_error",
        )
        return {
            "transition": self.transition,
            "initial": self.initial,
            **self.horizon.arguments(),
            **{name: getattr(self, name) for name in further},
        }

    @cached_property
    def flow(self) -> Flow:
        """The flow equations: what occupancies, values and reachable states are computed from."""
        rows = validation.with_sums_of_one(self.transition, self.actions & (self.ending == 0))
        return self.horizon.flow(rows, self.initial, self.actions, self.state_names)

    @property
    def scale(self) -> float:
        """Occupancies times this are distributions, of a mass of at most one."""
        return self.flow.scale

    @property
    def shown_scale(self) -> float:
        """The scale of pictures, where distributions need no unit that can be compared."""
        return self.flow.shown_scale

    @property
    def max_mass(self) -> float:
        """What no occupancy's mass exceeds: 1 / (1 - discount), or the longest stay where that is no bound."""
        longest = self.horizon.longest
        return longest if math.isfinite(longest) else self.flow.mass

    @cached_property
    def reachable(self) -> np.ndarray:
        """Boolean (S,): states that some policy visits. No policy ever visits the others."""
        found = self.flow.reached.reshape(-1, self.n_states).any(axis=0)
        validation.freeze(found)
        return np.asarray(found)

    @property
    def measured(self) -> tuple[int, int]:
        """The shape of what the flow calls an occupancy: where time counts, of every step."""
        return (self.horizon.steps or 1) * self.n_states, self.n_actions

    @property
    def deciding(self) -> Space:
        """The model, or its states at every step where policies depend on time."""
        return self if self.horizon.steps is None else StepRows(self, self.horizon.steps)

    @property
    def reachable_pairs(self) -> np.ndarray:
        """Boolean (S, A): the pairs that some policy can take."""
        return self.reachable[:, None] & self.actions

    @property
    def estimated(self) -> tuple[str, ...]:
        """Names of the signals that are not known as functions of state and action."""
        known = self.signals if self.counts is None else self.counts.known
        return tuple(name for name in self.signals if name not in known)

    @property
    def unknown(self) -> np.ndarray | None:
        """Boolean (S,): states of an estimate that nobody left; None where there are none."""
        if self.counts is None or not self.counts.unknown.any():
            return None
        return self.counts.unknown

    def dense_transition(self) -> np.ndarray:
        """P as a dense (S, A, S) array. Only for small models."""
        return self.transition.toarray().reshape(self.n_states, self.n_actions, self.n_states)

    def render(self, policy: Any = None) -> str:
        """The grid as text, with the arrows of a policy's likeliest actions when one is given."""
        if self.layout is None:
            raise ModelError("only models of grids, such as gridworld(...), can be rendered")
        if policy is None:
            return self.layout.render()
        given = policy.probabilities() if hasattr(policy, "probabilities") else policy
        probabilities = validation.numbers(given, "the policy to render")
        if probabilities.shape != self.actions.shape:
            raise ModelError(
                f"the policy to render has shape {probabilities.shape}; expected (S, A) = "
                f"{self.actions.shape}"
            )
        return self.layout.render(probabilities, self.action_names)

    def uncertain(self, relative: float) -> TabularMDP:
        """The same model where every probability may be wrong by a share of itself.

        An adversary chooses p(x) = P(x) (1 + g(x)), |g(x)| <= ``relative``, with sum one, anew at every step,
        ``end`` included; zeros stay zero. ``certify`` then speaks of every such model, and ``solve(problem,
        cautious=...)`` plans for the worst.
        """
        return self.replace(relative_error=relative)

    def unroll(self, horizon: int) -> TabularMDP:
        """The same decisions for ``horizon`` steps: states are (time, state), the last step ends."""
        arguments = {**self.arguments(), "average": False, "horizon": None}
        return TabularMDP(**unrolled({**arguments, "discount": self.discount}, horizon))

    def restarting(self, **horizon: Any) -> TabularMDP:
        """The same model where the next episode begins as soon as one ends; the signal "ending" counts them.

        Args:
            horizon: how far ahead it looks from now on, as given to a model (``discount=0.99``). Where nothing
                is given, as far as this model; instead of a total, the average per step.
        """
        arguments = {**self.arguments(), "signals": dict(self.signals)}
        for name in self.horizon.arguments():
            del arguments[name]
        looks = horizon or self.horizon.restarted()
        return TabularMDP(**{**restarting(arguments, self.ending), **looks})

    def ending_at(self, states: Iterable[Any]) -> TabularMDP:
        """The same model where the step taken in one of these states is the last: absorbing states become ends.

        Args:
            states: their numbers or names.
        """
        ends = np.zeros(self.n_states, dtype=bool)
        names = Names("state", self.n_states, self.state_names)
        for state in states:
            ends[names.number(state)] = True
        return TabularMDP(**ending_at(self.arguments(), ends))

    def collapsed(self, *signals: str) -> TabularMDP:
        """Undiscounted, the same model where episodes surely end though one could stay for ever for nothing.

        Where policies can stay for ever among pairs whose signals are all zero, those states become one, with
        the ways out of them all and the action "stay", which ends the episode. Returns are the same.
        ``unfolded`` takes a policy back.

        Args:
            signals: that count; all where none is given.
        """
        return TabularMDP(**collapsed(self._total_arguments(), self._counting(signals)))

    def unfolded(self, policy: Any, *signals: str) -> np.ndarray:
        """The probabilities (S, A) of a policy of ``collapsed(*signals)`` in this model.

        One that stays for ever with a probability is no table: ``StayingPolicy.of``.

        Args:
            policy: a policy of the collapsed model, or its probabilities.
            signals: as given to ``collapsed``.
        """
        return self.unfolding(policy, *signals).plain()

    def unfolding(self, policy: Any, *signals: str) -> Unfolded:
        """The same with the chances to stay for ever."""
        smaller = self.collapsed(*signals)
        given = policy.probabilities() if hasattr(policy, "probabilities") else policy
        rows = validation.numbers(given, "the policy to unfold")
        if rows.shape != smaller.shape:
            raise ModelError(
                f"the policy to unfold has shape {rows.shape}; expected {smaller.shape}, that of collapsed()"
            )
        arguments, x = self._total_arguments(), smaller.flow.occupancy(rows)
        return unfolded(arguments, self._counting(signals), rows, x)

    def _total_arguments(self) -> dict[str, Any]:
        if not self.horizon.plain_sums:
            raise ModelError(
                f"staying is for nothing where rewards are added up over an episode (discount=1); this model "
                f"has {self.horizon}: mdp.replace(discount=1).collapsed()"
            )
        return {**self.arguments(), "signals": dict(self.signals)}

    def _counting(self, signals: tuple[str, ...]) -> tuple[str, ...]:
        for name in signals:
            self.signal(name)
        return signals or tuple(self.signals)

    def with_budget_state(self, cost: str, levels: Any) -> TabularMDP:
        """The same model where states know what the episode has cost so far: for chances and tails of the cost.

        Exact where all sums of costs are levels; else costs are rounded up, to the safe side. The cost is that
        of the pair: of a signal that was given per successor it is the mean.

        Args:
            cost: the name of a signal.
            levels: what is told apart, increasing; or n for 0, 1, ..., n. Whatever is above the last level is
                "over" for good.
        """
        if not self.horizon.plain_sums:
            raise ModelError(
                "a budget state counts the plain cost of episodes that end: take mdp.replace(discount=1), or "
                f"mdp.unroll(T).replace(discount=1) for T steps; this model has {self.horizon}"
            )
        found = with_budget_state(self.arguments(), cost, self.signal(cost), read_levels(levels))
        return TabularMDP(**found)

    def save(self, path: str | Path) -> None:
        """Write the model to one portable file (safetensors: plain arrays, nothing executable)."""
        write_model(path, self.arguments())

    def to_umb(self, path: str | Path) -> None:
        """Write the model as a UMB archive, which model checkers read (``from_umb`` does, too).

        Every signal is a reward of choices. A model that ends episodes gets one more state, the last one,
        labelled "end": read it with ``end="end"``. The discount is not part of the format.
        """
        write_umb(path, self.arguments(), self.ending)

    @staticmethod
    def load(path: str | Path) -> TabularMDP:
        """Read a model written by ``save``. The contents are checked like a new model's."""
        return read_model(path, TabularMDP)

    @property
    def endings(self) -> str:
        """In words, how many rows end episodes, and with which probability."""
        ends = self.ending[self.ending > 0]
        if not ends.size:
            return "no row ends an episode"
        least, most = (f"{chance:.3g}" for chance in (ends.min(), ends.max()))
        rows, end = int(self.actions.sum()), "end" if ends.size > 1 else "ends"
        chance = least if least == most else f"{least} to {most}"
        return f"{ends.size:,} of {rows:,} rows {end} episodes ({chance})"

    def __repr__(self) -> str:
        rows = int(self.actions.sum())
        entries = self.transition.nnz
        density = entries / (rows * self.n_states)
        parts = [
            f"{self.n_states:,} states",
            f"{self.n_actions} actions" + ("" if self.actions.all() else f" ({rows:,} pairs)"),
            str(self.horizon),
            f"{entries / rows:.3g} successors per row ({density:.2g} of the dense table)",
            self.endings,
            "signals: " + (", ".join(self.signals) or "none"),
            *([self.note] if self.note else []),
            *([str(self.counts)] if self.counts is not None else []),
            *([f"probabilities within {self.relative_error:.6g}"] if self.relative_error else []),
        ]
        return f"TabularMDP({'; '.join(parts)})"


def _from_arguments(arguments: dict[str, Any]) -> TabularMDP:
    return TabularMDP(**arguments)


def endings_in(text: str) -> str:
    """What the ``repr`` of a model says of its endings, within any text; empty where no row ends episodes."""
    found = re.search(r"[\d,]+ of [\d,]+ rows? ends? episodes \([^)]*\)", text)
    return found[0] if found else ""


def estimate_in(text: str) -> str:
    """The note of an estimated model within any text; empty where there is none."""
    found = re.search(r"estimated model \([^)]*\)", text)
    return found[0] if found else ""


def model_of(space: Space, what: str) -> TabularMDP:
    """The model, or an error that says what is asked of it."""
    if not isinstance(space, TabularMDP):
        raise UtilityError(
            f"{what} needs a model, and an environment has none. Give an occupancy as an array, for example "
            "from demonstrations(...), or signals by name."
        )
    return space
