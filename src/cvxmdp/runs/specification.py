"""What a run depends on, by name: a folder is continued only where all of it is the same."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cvxmdp.base.described import described, without_address
from cvxmdp.base.machine import processor
from cvxmdp.base.saved_trees import to_arrays
from cvxmdp.certificates.checking import fingerprint
from cvxmdp.problems.problem import Problem
from cvxmdp.solvers.contract import Solver

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")  # the first that is set counts


def specification_of_run(
    problem: Problem, solver: Solver, start: Any, seed: int | None
) -> dict[str, Any]:
    """Problem, solver, start and seed, and the machine, on which bits depend."""
    return {
        "problem": fingerprint(problem),
        "solver": type(solver).__name__,
        "settings": settings_text(solver),
        "start": start_text(start),
        "seed": seed,
        **machine_text(),
    }


def settings_text(solver: Any) -> dict[str, str]:
    """A solver's settings."""
    if not is_dataclass(solver):
        return {}
    return {field.name: setting_text(getattr(solver, field.name)) for field in fields(solver)}


def setting_text(value: Any) -> str:
    """A setting, the same in every process; of an object that is no number or word, with a checksum of it."""
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    return f"{without_address(value)} {hashlib.sha256(described(value).encode()).hexdigest()[:16]}"


def machine_text() -> dict[str, str]:
    """What the bits of a run depend on besides."""
    return {
        "device": f"{jax.default_backend()} {platform.machine()}",
        "jax": jax.__version__,
        "numpy": np.__version__,
    }


def this_machine() -> str:
    """The kind of machine, in words: runs of machines that differ in it agree to rounding alone."""
    facts = machine_text()
    threads = next((os.environ[name] for name in THREADS if name in os.environ), "all")
    versions = f"JAX {facts['jax']}, NumPy {facts['numpy']}"
    return f"{processor()}, {facts['device']}, {versions}, {threads} threads of BLAS"


def start_text(start: Any) -> str | None:
    """A checksum of where a run starts, or None where it is the solver's own start."""
    if start is None:
        return None
    if isinstance(start, str | Path):
        path, digest = Path(start), hashlib.sha256(b"path")
        places = [path] if path.is_file() else sorted(path.rglob("*.safetensors"))
        parts = [np.frombuffer(place.read_bytes(), np.uint8) for place in places]
    else:
        digest = hashlib.sha256(type(start).__name__.encode())
        policy = getattr(start, "policy", start)
        params = getattr(policy, "params", None)
        numbers = list((getattr(start, "multipliers", None) or {}).values())
        table = policy.probabilities() if hasattr(policy, "probabilities") else policy
        parts = [*to_arrays((table if params is None else params, numbers)).values()]
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
