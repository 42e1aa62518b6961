"""What a gap between two bounds is compared with: the objective itself, wherever it is one.

A gap of 1.4 between 3.7 and 5.1 is 27% of the objective, however terrible the uniform policy is. But an optimum
of zero, as in imitation, has no size of its own; there, what separates it from the uniform policy stands in its
place, and a small share of that is the least everywhere: the numbers that were added up are as large, and so is
their rounding.
"""

from __future__ import annotations

import math

# Of what separates the uniform policy from the bound: bounds around zero that are closer to it are nothing, and
# an objective that is surely not zero counts for no less than the second.
NEAR_ZERO, ROUNDING_SHARE = 2e-2, 1e-4


def largest_of(*numbers: float) -> float:
    """The largest size of the finite ones, zero if there is none."""
    return max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)


def size_of(upper: float, lower: float, span: float) -> float:
    """What a gap between these bounds is compared with.

    Args:
        upper, lower: the bounds.
        span: |bound - objective of the uniform policy|; zero where that is not known.
    """
    size = largest_of(upper, lower)
    if lower <= 0 <= upper:
        return span if size <= NEAR_ZERO * span else size
    return max(size, ROUNDING_SHARE * span)
