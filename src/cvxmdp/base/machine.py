"""What a run was made with: versions and hardware, to be kept beside its numbers."""

from __future__ import annotations

import os
import platform
import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("cvxmdp", "numpy", "scipy", "jax", "jaxlib", "cvxpy", "clarabel", "gymnasium")


@lru_cache(maxsize=1)
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": platform.system()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found["processor"] = processor()
    found["cores"] = str(os.cpu_count())
    return found


def environment() -> dict[str, str]:
    """Versions of what computes, the processor, its cores, and the devices JAX has where it is in use."""
    found = dict(_versions())
    jax = sys.modules.get("jax")
    if jax is not None:
        found["devices"] = ", ".join(sorted({device.device_kind for device in jax.devices()}))
    return found


def processor() -> str:
    """The processor's name."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if "model name" in line]
        if names:
            return names[0].split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
