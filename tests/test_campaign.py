"""How many certificates about the true model are wrong: none of some dozens; with too small a radius, some."""

from __future__ import annotations

import numpy as np
import pytest

from adaptive_data import campaign
from cvxmdp.certificates import true_claims
from cvxmdp.checker.checked_confidence import ConfidenceRows
from cvxmdp.experience.confidence import Balls


@pytest.fixture
def a_tenth_of_the_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both implementations, wrong in the same way."""
    balls, searched = ConfidenceRows._balls, true_claims.confidence_balls

    def smaller(self: ConfidenceRows, *given: object) -> tuple[np.ndarray, np.ndarray]:
        centre, radius = balls(self, *given)  # type: ignore[arg-type]
        return centre, 0.1 * radius

    def searched_smaller(*given: object, **more: object) -> Balls:
        found = searched(*given, **more)  # type: ignore[arg-type]
        return Balls(found.centres, 0.1 * found.radius, found.possible, found.supports)

    monkeypatch.setattr(ConfidenceRows, "_balls", smaller)
    monkeypatch.setattr(true_claims, "confidence_balls", searched_smaller)


def test_no_certificate_of_some_dozens_is_wrong() -> None:
    found = campaign(range(16), confidence=0.5, linear=True)
    assert found.certificates >= 30
    assert found.wrong == 0
    assert campaign(range(3), confidence=0.5).wrong == 0


@pytest.mark.usefixtures("a_tenth_of_the_radius")
def test_a_tenth_of_the_radius_is_found_out() -> None:
    assert campaign(range(2, 10), confidence=0.5, linear=True).wrong > 0


@pytest.mark.long
def test_a_thousand_problems() -> None:
    found = campaign(range(1_000))
    print(
        f"{found.wrong} of {found.certificates:,} certificates wrong, on {found.problems_wrong} problems"
    )
    assert found.problems_wrong <= 50


@pytest.mark.long
@pytest.mark.usefixtures("a_tenth_of_the_radius")
def test_a_thousand_problems_with_a_tenth_of_the_radius() -> None:
    found = campaign(range(1_000))
    print(
        f"{found.wrong} of {found.certificates:,} certificates wrong, on {found.problems_wrong} problems"
    )
    assert found.problems_wrong > 5
