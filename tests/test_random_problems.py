"""Random problems: every certificate is true in exact arithmetic, every status too; no errors but ours."""

from __future__ import annotations

from pathlib import Path

import pytest

import cvxmdp as cm
from random_problems import Case, again, campaign, drawn, judged, saved

pytest.importorskip("flint")


@pytest.mark.filterwarnings("ignore:overflow")
def test_eighty_random_problems(tmp_path: Path) -> None:
    found = campaign(range(85), tmp_path, quick=True)
    print(found)
    assert found.cases >= 77
    assert found.wrong == []
    accepted = sum(count for said, count in found.counts.items() if "Accepted" in said)
    assert accepted >= 144


@pytest.mark.parametrize("seed", [274, 773, 1706])
@pytest.mark.filterwarnings("ignore")
def test_what_campaigns_found_once_holds(seed: int) -> None:
    """Each by its number.

    274: a size that cancellation makes uncertain. 773: tangents without a finite constant. 1706: an answer that
    misses a constraint by rounding, and a proof that every policy misses it.
    """
    assert judged(drawn(seed, quick=True)).wrong == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_random_problems(part: int) -> None:
    """What fails is kept in out/campaign: ``python tests/random_problems.py --again FOLDER``."""
    found = campaign(range(1_000 * part, 1_000 * (part + 1)), Path("out") / "campaign")
    print(found)
    assert found.wrong == []


def test_a_case_that_failed_is_kept_as_a_folder_that_reproduces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = cm.certify

    def forged(*given: object, **more: object) -> cm.Certificate:
        found = honest(*given, **more)  # type: ignore[arg-type]
        object.__setattr__(found, "upper", found.lower - 1.0)
        return found

    monkeypatch.setattr(cm, "certify", forged)
    case = drawn(5, quick=True)
    found = judged(case)
    assert any("Rejected" in said for said in found.wrong)
    read = again(saved(case, found, tmp_path))
    assert isinstance(read, Case)
    assert judged(read).wrong == found.wrong
