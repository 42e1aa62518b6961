"""Individual values inside minima, logarithms, norms and the like: who is worst off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from cvxmdp.atoms import Curvature, Utility
from cvxmdp.base.text_tables import number, text_table

if TYPE_CHECKING:
    from cvxmdp.problems.solution import Solution

MOST = 12  # lines; of more the smallest are shown


class IndividualValue(NamedTuple):
    """A utility inside another one, and its value for a policy."""

    utility: str
    value: float


def individual_values(solution: Solution, utility: Utility) -> list[IndividualValue]:
    """The values of what stands inside a utility, each once; none where it is a sum of plain atoms."""
    bind, x = solution.problem.bind, solution.measured
    inside = {repr(part): part for part in _inside(utility)}
    return [IndividualValue(text, part.measured(bind, x)) for text, part in inside.items()]


def _inside(utility: Utility) -> Iterator[Utility]:
    """Down to what is affine or not made of others; constants have no value of their own."""
    for _, term in utility.terms():
        if term.curvature is Curvature.AFFINE:
            continue
        for part in term.inside():
            if part.curvature is not Curvature.AFFINE and any(
                one.inside() for _, one in part.terms()
            ):
                yield from _inside(part)
            elif part.terms():
                yield part


def individual_lines(solution: Solution, utility: Utility) -> list[str]:
    """The same as aligned lines of text; the smallest marked where they are of one kind."""
    values = individual_values(solution, utility) if solution.has_policy else []
    if not values:
        return []
    bent = {type(term) for _, term in utility.terms() if term.curvature is not Curvature.AFFINE}
    compared = len(values) > 1 and len(bent) == 1
    order = sorted(values, key=lambda one: one.value)
    shown = values if len(values) <= MOST else order[:MOST]
    rows = [
        (one.utility, number(one.value), "smallest" if compared and one is order[0] else "")
        for one in shown
    ]
    lines = [f"  {line}".rstrip() for line in text_table(("inside", "value", ""), rows)[1:]]
    left = len(values) - len(shown)
    return [*lines, f"  and {left} more, none smaller"] if left else lines
