r"""Queries in Storm's language as problems: probabilities, rewards and long-run averages are sums of signals.

P [F a], P [a U b], P [G a], P [G F a], R [F a], R [C], with or without step bounds, P within a bound on a
reward, and multi(...) of these are signals of a product with a little memory
(``models.importers.memory_product``), under total reward; where all steps are bounded by one number, under that
finite horizon. LRA [a] and R [LRA] are average reward. P [G a] is 1 - P [F !a]. Rewards until a goal are
infinite where it may be missed: minimising, policies have to reach it; maximising, all of them must. Bounds are
taken as closed ones: > as >=.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.atoms import Constraint, Utility
from cvxmdp.atoms.linear import linear
from cvxmdp.base.errors import ProblemError
from cvxmdp.models.importers.choice_graphs import ChoiceGraph
from cvxmdp.models.importers.memory_product import OpenGoal, Payment, product
from cvxmdp.models.importers.storm import Constants, StormModel
from cvxmdp.models.table import TabularMDP
from cvxmdp.problems.problem import Problem

STEPS = re.compile(r"\b(?:C|U)(?:steps)?(<=|<)(\d+)(?:\s|$)")
REWARDS = re.compile(r'\bU(?:rew)?\{"([^"]+)"\}(<=|<)(\d+)(?:\s|$)')
LARGEST, MOST_STEPS = 20_000_000, 20_000  # steps times choices of a finite horizon, and steps
# Expressions have spaces there.
NESTED = re.compile(r"\b(P|R|T|LRA)(\{\})?(max|min)?(=\?|[<>]=?[\d./]+) \[")
OUTSIDE = (
    "from_storm takes P of F, U, G and G F, R of F and C, within steps, P within a reward, LRA, and multi(...) "
    "of these"
)
Objectives = dict[str, Utility]


def from_storm(
    path: str | Path,
    properties: str | Sequence[str] | None = None,
    constants: Constants | None = None,
) -> TabularMDP | Problem | tuple[Problem, Objectives] | list[Any]:
    """A model that Storm builds, or the problems that properties of it ask for (extra ``storm``).

    Args:
        path: a PRISM program, a JANI model, a DRN file or a UMB archive.
        properties: one in Storm's language (or the name of one in a JANI file), or several. Without any the
            model is given, for total reward, with its rewards and labels as signals:
            ``mdp.replace(discount=0.95)`` for another horizon.
        constants: of the program, ``{"N": 3}`` or "N=3,p=0.5".

    Returns:
        The model; the problem of one property; a list for several. A property that asks for several numbers,
        ``multi(Pmax=? [...], Rmin=? [...])``, gives a problem and its objectives: ``pareto(*from_storm(...))``.
    """
    if properties is None:
        return StormModel(path, (), constants).explicit().table(discount=1.0)
    texts = [properties] if isinstance(properties, str) else list(properties)
    # One at a time: Storm leaves out what a single property does not need.
    found = [_Query(StormModel(path, [text], constants)).answer() for text in texts]
    return found[0] if isinstance(properties, str) else found


@dataclass(frozen=True, eq=False)
class Asked:
    """One number that a query speaks of.

    Attributes:
        text: of the query, for names.
        reward: of every choice, of which the number is the sum.
        memory: while which it is paid; None where for ever.
        recurring: instead, states that have to be met for ever.
        offset, sign: the number is offset + sign * sum.
        average: it is a mean per step, not a sum.
        largest: whether it is to be large; small otherwise.
        bound: on it; None where it is asked for.
    """

    text: str
    reward: np.ndarray
    memory: OpenGoal | None = None
    recurring: np.ndarray | None = None
    offset: float = 0.0
    sign: float = 1.0
    average: bool = False
    largest: bool = True
    bound: float | None = None

    def utility(self) -> Utility:
        total = linear(self.text)
        signed = total if self.sign > 0 else -total
        return signed + self.offset if self.offset else signed

    def constraint(self) -> Constraint:
        assert self.bound is not None
        return self.utility() >= self.bound if self.largest else self.utility() <= self.bound


class _Query:
    """One property of one model."""

    def __init__(self, storm: StormModel) -> None:
        self.storm, self.model = storm, storm.explicit()
        formula = storm.formulas[0]
        self.formula = getattr(formula, "raw_formula", None) or formula.get_raw_formula()
        self.graph = ChoiceGraph(self.model.state_of, self.model.matrix)

    def answer(self) -> Problem | tuple[Problem, Objectives]:
        parts = getattr(self.formula, "subformulas", [self.formula])
        asked = [self._operator(part) for part in parts]
        names = [one.text for one in asked]
        asked = [
            one if names.count(one.text) == 1 else replace(one, text=f"{one.text} #{place}")
            for place, one in enumerate(asked, start=1)
        ]
        mdp = self._table(asked)
        bounded = {one.text: one.constraint() for one in asked if one.bound is not None}
        wanted = [one for one in asked if one.bound is None]
        if not wanted and not hasattr(self.formula, "subformulas"):
            raise ProblemError(
                f"{self.formula} asks about every policy; ask for a number, as in Pmin=? [...], or whether "
                f"some policy does it, multi({self.formula})"
            )
        if len(wanted) < 2:
            main = wanted[0] if wanted else asked[0]
            sense = "maximize" if main.largest else "minimize"
            return Problem(mdp, **{sense: main.utility()}, subject_to=bounded)
        objectives = {one.text: one.utility() if one.largest else -one.utility() for one in wanted}
        first = next(iter(objectives.values()))
        return Problem(mdp, maximize=first, subject_to=bounded), objectives

    def _table(self, asked: Sequence[Asked]) -> TabularMDP:
        """The model in which all that is asked for are sums of signals."""
        if any(one.average for one in asked):
            if not all(one.average for one in asked):
                raise self._refused("long-run averages beside sums")
            rewards = {one.text: one.reward for one in asked}
            return replace(self.model, rewards=rewards, labels={}).table(average=True)
        lengths = {None if one.memory is None else one.memory.steps for one in asked}
        steps = lengths.pop() if len(lengths) == 1 else None
        memories: dict[tuple[Any, ...], OpenGoal] = {}
        payments = {}
        recurring = {one.text: one.recurring for one in asked if one.recurring is not None}
        for one in asked:
            if one.recurring is not None:
                continue
            place = None
            if one.memory is not None:
                # Where all agree on the steps, the horizon counts them.
                memory = one.memory if steps is None else replace(one.memory, budget=None)
                price = None if memory.price is None else memory.price.tobytes()
                key = (memory.stay.tobytes(), memory.budget, price, memory.closing)
                memories.setdefault(key, memory)
                place = list(memories).index(key)
            payments[one.text] = Payment(one.reward, place)
        found = list(memories.values())
        if steps:
            timed = product(self.model, found, payments, timed=True)
            if steps > MOST_STEPS or steps * timed.state_of.size > LARGEST:
                raise self._refused(
                    f"a horizon of {steps:,} steps with {timed.state_of.size:,} choices"
                )
            return timed.table(horizon=steps)
        return product(self.model, found, payments, recurring).table(discount=1.0)

    def _refused(self, what: str) -> ProblemError:
        return ProblemError(f"{self.formula}: {what} is outside. {OUTSIDE}.")

    # --- one operator, P, R or LRA ------------------------------------------------------------------------

    def _operator(self, formula: Any) -> Asked:
        kind = type(formula).__name__
        readers: Mapping[str, Callable[[Any, bool], Asked]] = {
            "ProbabilityOperatorFormula": self._probability,
            "RewardOperatorFormula": self._reward,
            "TimeOperatorFormula": self._time,
            "LongRunAverageOperatorFormula": self._share,
        }
        if kind not in readers:
            raise self._refused(f"{formula} ({kind})")
        largest, bound = self._direction(formula)
        return replace(readers[kind](formula, largest), largest=largest, bound=bound)

    def _direction(self, formula: Any) -> tuple[bool, float | None]:
        if formula.has_bound:
            comparison = str(formula.comparison_type).upper()
            return "GREATER" in comparison or "GEQ" in comparison, float(formula.threshold)
        if not formula.has_optimality_type:
            if self.storm.built.is_nondeterministic_model:
                raise ProblemError(
                    f"{formula}: say whether the largest or the smallest is asked for"
                )
            return True, None
        return "MAX" in str(formula.optimality_type).upper(), None

    def _probability(self, formula: Any, largest: bool) -> Asked:
        path = formula.subformula
        kind, text = type(path).__name__, f"P [{path}]"
        everywhere = np.ones(self.model.n_states, dtype=bool)
        if kind == "EventuallyFormula":
            return self._until(text, everywhere, self._states(path.subformula))
        if kind in ("UntilFormula", "BoundedUntilFormula"):
            left, right = self._states(path.left_subformula), self._states(path.right_subformula)
            limits = (None, None) if kind == "UntilFormula" else self._limits(path)
            return self._until(text, left, right, *limits)
        if kind == "GloballyFormula" and type(path.subformula).__name__ == "EventuallyFormula":
            nothing = np.zeros(self.model.state_of.size)
            return Asked(text, nothing, recurring=self._states(path.subformula.subformula))
        if kind == "GloballyFormula":
            never = self._until(text, everywhere, ~self._states(path.subformula))
            return replace(never, offset=1.0 - never.offset, sign=-1.0)
        if kind in ("BooleanLiteralFormula", "AtomicLabelFormula", "AtomicExpressionFormula"):
            now = float(self.model.initial @ self._states(path))
            return Asked(text, np.zeros(self.model.state_of.size), offset=now)
        raise self._refused(f"P of {path} ({kind})")

    def _until(
        self,
        text: str,
        left: np.ndarray,
        right: np.ndarray,
        budget: int | None = None,
        price: np.ndarray | None = None,
    ) -> Asked:
        entering = np.asarray(self.model.matrix @ right.astype(np.float64))
        won = float(self.model.initial @ right)
        return Asked(text, entering, OpenGoal(left & ~right, budget, price), offset=won)

    def _reward(self, formula: Any, largest: bool) -> Asked:
        path = formula.subformula
        name = formula.reward_name if formula.has_reward_model_name() else None
        reward = self.storm.reward(name)
        kind, text = type(path).__name__, f"R{{{name}}} [{path}]" if name else f"R [{path}]"
        if kind == "EventuallyFormula":
            return self._until_goal(text, reward, ~self._states(path.subformula), largest)
        if kind == "LongRunAverageRewardFormula":
            return Asked(text, reward, average=True)
        if str(path) == "C":
            return Asked(text, reward)
        if kind == "CumulativeRewardFormula":
            everywhere = np.ones(self.model.n_states, dtype=bool)
            return Asked(text, reward, OpenGoal(everywhere, self._steps(path)))
        raise self._refused(f"R of {path} ({kind})")

    def _until_goal(self, text: str, reward: np.ndarray, away: np.ndarray, largest: bool) -> Asked:
        if largest:
            # Whoever can stay away for ever makes the reward until then infinite.
            graph, everything = self.graph, np.ones(reward.size, dtype=bool)
            number, _ = graph.end_components(away[self.model.state_of] & ~graph.leads(~away))
            met = graph.reached(self.model.initial > 0, everything & away[self.model.state_of])
            if (met & (number >= 0) & away).any():
                raise ProblemError(
                    f"{text} is infinite: some policy never reaches the goal. Ask for R [C], which counts what "
                    "is earned for ever, or for steps, R [C<=k]."
                )
        return Asked(text, reward, OpenGoal(away, closing=not largest))

    def _time(self, formula: Any, largest: bool) -> Asked:
        path = formula.subformula
        if type(path).__name__ != "EventuallyFormula":
            raise self._refused(f"T of {path}")
        away = ~self._states(path.subformula)
        return self._until_goal(f"T [{path}]", np.ones(self.model.state_of.size), away, largest)

    def _share(self, formula: Any, largest: bool) -> Asked:
        inside = self._states(formula.subformula)[self.model.state_of]
        return Asked(f"LRA [{formula.subformula}]", inside.astype(np.float64), average=True)

    def _limits(self, path: Any) -> tuple[int, np.ndarray | None]:
        """The bound of a path, and what every choice takes of it; None where it is one on steps."""
        found = REWARDS.search(str(path))
        if found is None or getattr(path, "has_lower_bound", False):
            return self._steps(path), None
        price = self.storm.reward(found[1])
        if (price < 0).any() or (price != np.rint(price)).any():
            raise self._refused(
                f"a bound on {found[1]!r}, which has rewards that are not 0, 1, 2, ...,"
            )
        return int(found[3]) - (found[2] == "<"), price.astype(np.int64)

    def _steps(self, path: Any) -> int:
        found = STEPS.search(str(path))
        if found is None or getattr(path, "has_lower_bound", False):
            raise self._refused(f"the bound of {path}")
        return int(found[2]) - (found[1] == "<")

    def _states(self, formula: Any) -> np.ndarray:
        """Where a formula holds that speaks of single states."""
        if NESTED.search(re.sub(r'"[^"]*"', "", str(formula))):
            raise self._refused(f"{formula} inside another operator")
        return self.storm.states(formula)
