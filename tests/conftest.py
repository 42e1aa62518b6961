"""Shared fixtures and settings of the tests."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import numpy as np
import pytest

import cvxmdp as cm

REFERENCE = Path(__file__).parent / "reference"
LARGEST_WORKER = 1_000_000  # kilobytes that a process may have before what it compiled is dropped

# Modules that start commands and browsers, learn, or compile much: ``make check`` leaves them out, and single
# tests of other modules whose cases take about half a second or more each, or many seconds together.
SLOW_TESTS = set((Path(__file__).parent / "slow_tests.txt").read_text("utf-8").split())
SLOW = [
    "accelerator",
    "actor_critic",
    "browser",
    "campaign",
    "cautious",
    "cli",
    "cli_resume",
    "column_generation",
    "compiling",
    "console",
    "docs",
    "environment_kinds",
    "environment_learning",
    "estimators",
    "evaluate",
    "exact_true_model",
    "examples",
    "families",
    "gaussian",
    "gradients",
    "judging",
    "kills",
    "kkt",
    "learning",
    "onefile",
    "own_environments",
    "pdpg",
    "pdpg_reaches",
    "random_problems",
    "rates",
    "ray",
    "record_episode",
    "report",
    "reproduce",
    "runs",
    "sampling",
    "sweeps",
    "typing",
    "vr_pdpg",
    "worked_exact",
    "worked_learned",
    "zero_violation",
]

# Programs are compiled once, for all workers, for the commands that tests start, and for the next time.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "programs")
)
cm.compilation_cache()

# Deterministic: the same examples on every machine, so that a failure can be looked at.
hypothesis.settings.register_profile("cvxmdp", deadline=None, derandomize=True)
hypothesis.settings.load_profile("cvxmdp")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow modules, and slow tests."""
    for item in items:
        name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
        if item.path.stem.removeprefix("test_") in SLOW or name in SLOW_TESTS:
            item.add_marker(pytest.mark.slow)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even read the modules that ``make check`` leaves out."""
    quick = "not slow" in config.option.markexpr
    return True if quick and collection_path.stem.removeprefix("test_") in SLOW else None


@pytest.fixture(scope="module", autouse=True)
def bounded_memory() -> Iterator[None]:
    """Let go of compiled programs between modules where they have become many."""
    yield
    if resident_kilobytes() > LARGEST_WORKER:
        jax.clear_caches()
        gc.collect()


def resident_kilobytes() -> int:
    """What the process has in memory now; where that cannot be asked, the most it ever had."""
    now = Path("/proc/self/statm")
    if now.exists():
        return int(now.read_text().split()[1]) * resource.getpagesize() // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture(scope="session")
def reference() -> dict:
    """The problems with known optima."""
    return json.loads((REFERENCE / "problems.json").read_text())


@pytest.fixture(scope="session")
def grid(reference: dict) -> cm.TabularMDP:
    """The 8x8 model of those problems."""
    model = reference["model"]
    return cm.gridworld(
        model["size"],
        slip=model["slip"],
        discount=model["discount"],
        start=model["start"],
        hazards=model["hazard_states"],
        rewards={63: 1.0},
    )


@pytest.fixture(scope="session")
def expert() -> cm.TabularPolicy:
    """The expert of those problems."""
    return cm.TabularPolicy(np.tile([0.05, 0.45, 0.45, 0.05], (64, 1)))


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Ctrl-C as in a terminal: a shell starts background jobs with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
