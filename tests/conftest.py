"""Shared fixtures and settings of the tests."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis
import numpy as np
import pytest

import cvxmdp as cm

REFERENCE = Path(__file__).parent / "reference"

# Deterministic: the same examples on every machine, so that a failure can be looked at.
hypothesis.settings.register_profile("cvxmdp", deadline=None, derandomize=True)
hypothesis.settings.load_profile("cvxmdp")


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
