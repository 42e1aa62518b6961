"""The signals that a utility speaks of by name."""

from __future__ import annotations

from cvxmdp.atoms.linear import Linear
from cvxmdp.atoms.logarithm import Log
from cvxmdp.atoms.minimum import Minimum
from cvxmdp.atoms.utility import Utility


def signal_names(utility: Utility) -> set[str]:
    """The signals a utility names."""
    names: set[str] = set()
    for _, term in utility.terms():
        if isinstance(term, Linear) and isinstance(term.reward, str):
            names.add(term.reward)
        elif isinstance(term, Log):
            names |= signal_names(term.inner)
        elif isinstance(term, Minimum):
            names |= {name for part in term.utilities for name in signal_names(part)}
    return names
