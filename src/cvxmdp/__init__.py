"""cvxmdp: concave constrained Markov decision processes.

Maximise a concave function of a policy's occupancy measure under concave constraints on the same
measure. ``import cvxmdp as cm`` costs nothing: parts are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from cvxmdp.base.version import __version__ as __version__


def _listed() -> dict[str, str]:
    """Where each public name lives, from the lines ``from MODULE import NAME as NAME`` of ``__init__.pyi``."""
    text = Path(__file__).with_suffix(".pyi").read_text("utf-8")
    lines = (line.split() for line in text.splitlines() if line.startswith("from "))
    return {name: module for _, module, _, name, *_ in lines}


_MODULE_OF = _listed()
__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        # Only close names: an error that lists the whole library helps nobody.
        from difflib import get_close_matches

        close = get_close_matches(name, _MODULE_OF, n=3)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise AttributeError(f"module 'cvxmdp' has no attribute {name!r}.{hint}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
