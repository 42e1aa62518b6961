"""Masked arrays: NumPy drops a mask without a word. Here without JAX, which models do not need."""

from __future__ import annotations

from typing import Any

import numpy as np


def refuse_masked(given: Any) -> None:
    """A TypeError where entries of an array are masked: what stands behind a mask means nothing."""
    if np.ma.is_masked(given):
        count = int(np.ma.getmaskarray(given).sum())
        raise TypeError(
            f"{count:,} entries are masked; fill them first, with .filled(0.0) for instance"
        )
