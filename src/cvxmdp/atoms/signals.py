"""The signals that a utility speaks of by name."""

from __future__ import annotations

from cvxmdp.atoms.utility import Utility
from cvxmdp.atoms.walks import walk


def signal_names(utility: Utility) -> set[str]:
    """The signals a utility names."""
    return {name for step in walk(utility) for name in step.node.signals()}
