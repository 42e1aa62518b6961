"""Utilities as plain data, and back: how problem folders keep what a user wrote.

Every atom is a frozen record of its arguments. In plain form it is its word and these arguments, arrays as they
are; a policy is its table of probabilities. Functions of the user's own are code, which no file holds: they are
kept by name, and given again when the problem is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np

from cvxmdp.atoms.sets import ConvexSet
from cvxmdp.atoms.utility import Constraint, Utility
from cvxmdp.base.errors import UtilityError
from cvxmdp.models.names import name_of
from cvxmdp.policies import Policy, TabularPolicy

OWN = "custom"  # the word of functions of the user's own
Plain = dict[str, Any]


def atoms_by_word(of: type[Utility] = Utility) -> dict[str, type[Utility]]:
    """Every atom there is, by the word that files know it by."""
    found = {of.word: of} if of.word else {}
    for kind in of.__subclasses__():
        found |= atoms_by_word(kind)
    return found


def written(utility: Utility) -> Plain:
    """A utility as plain data."""
    if utility.word == OWN:
        return {"atom": OWN, "name": repr(utility)}
    arguments = {field.name: _plain(getattr(utility, field.name)) for field in fields(utility)}  # type: ignore[arg-type]
    return {"atom": utility.word, **arguments}


def _plain(value: Any) -> Any:
    if isinstance(value, Utility):
        return written(value)
    if isinstance(value, ConvexSet):
        return {"set": value.kind, "arguments": [_plain(item) for item in value.arguments]}
    if isinstance(value, Policy):
        return {"policy": value.probabilities()}
    if isinstance(value, Mapping):
        return {"decisions": [[_named(state), _said(said)] for state, said in value.items()]}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _said(decision: Any) -> Any:
    """What a policy is said to do in a state: an action, or the chances of several."""
    if isinstance(decision, Mapping):
        return {str(_named(action)): float(chance) for action, chance in decision.items()}
    chances = isinstance(decision, list | np.ndarray)
    return [float(chance) for chance in decision] if chances else _named(decision)


def _named(thing: Any) -> int | str:
    return int(thing) if isinstance(thing, int | np.integer) else name_of(thing)


def written_constraint(constraint: Constraint) -> Plain:
    """A constraint as plain data."""
    kept = {"sense": constraint.sense, "budget": constraint.budget}
    return {"utility": written(constraint.utility), **kept}


@dataclass(frozen=True)
class WrittenReader:
    """Reads what ``written`` made.

    Attributes:
        own: functions of the user's own by name.
    """

    own: Mapping[str, Utility]

    def utility(self, plain: Any) -> Utility:
        """The utility; errors are ValueError, KeyError or TypeError, as data may be anything."""
        given = dict(plain)
        word = given.pop("atom")
        if word == OWN:
            return self._own(str(given["name"]))
        kind = atoms_by_word()[word]
        names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        needed = {field.name for field in fields(kind) if field.default is MISSING}  # type: ignore[arg-type]
        if not needed <= set(given) <= set(names):
            raise ValueError(f"{word!r} has the arguments {names}; got {sorted(given)}")
        return kind(**{name: self._value(value) for name, value in given.items()})

    def constraint(self, plain: Any) -> Constraint:
        utility = self.utility(plain["utility"])
        return Constraint(utility, str(plain["sense"]), float(plain["budget"]))

    def _own(self, name: str) -> Utility:
        if name not in self.own:
            raise UtilityError(
                f"the problem uses {name}, a function of the user's own, which no file can hold. Give it: "
                f'load_problem(folder, functions={{"{name}": {name}}}), with @concave or @convex as before.'
            )
        return self.own[name]

    def _value(self, plain: Any) -> Any:
        if isinstance(plain, dict) and "atom" in plain:
            return self.utility(plain)
        if isinstance(plain, dict) and "set" in plain:
            arguments = tuple(self._value(item) for item in plain["arguments"])
            return ConvexSet(str(plain["set"]), arguments)
        if isinstance(plain, dict) and "policy" in plain:
            return TabularPolicy(plain["policy"])
        if isinstance(plain, dict) and "decisions" in plain:
            return dict(plain["decisions"])
        if isinstance(plain, list):
            return tuple(self._value(item) for item in plain)
        if plain is None or isinstance(plain, np.ndarray | str | int | float):
            return plain
        raise TypeError(f"{plain!r:.80} is no argument of an atom")
