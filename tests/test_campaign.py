"""How many certificates about the true model are wrong: none of some dozens; with too small a radius, some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adaptive_data import campaign, scaled_radius


@pytest.fixture
def a_tenth_of_the_radius() -> Iterator[None]:
    with scaled_radius(0.1):
        yield


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
