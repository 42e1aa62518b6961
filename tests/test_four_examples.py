"""The table of the paper's four examples: its problems, and that a row is made, kept and found again."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import cvxmdp as cm

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    sys.modules.pop("four_examples", None)
    return importlib.import_module("four_examples")


def test_every_example_has_two_instances_and_starts_inside_its_barrier(table):
    examples = table.examples()
    names = [example.name for example in examples]
    assert len(set(names)) == 4
    assert all(names.count(name) == 2 for name in names)
    for example in examples[:2]:
        assert example.problem.evaluate(example.start).objective > -10
    for example in examples[2:]:
        assert cm.slater(example.problem).margin > 0


@pytest.mark.slow
def test_rows_are_measured_kept_and_found_again(table, tmp_path, capsys, monkeypatch):
    asked = ["--only", "entropy) 5x5 VR-PDPG, recommended", "--seeds", "2", "--iterations", "5"]
    asked += ["--keep", str(tmp_path / "kept.json")]
    table.main(asked)
    first = capsys.readouterr().out.splitlines()[-1]
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[:5] == [
        "2 safe exploration (entropy)",
        "5x5",
        "3.1240",
        "VR-PDPG, recommended",
        "2",
    ]
    monkeypatch.setattr(cm, "sweep", None)
    table.main(asked)
    assert capsys.readouterr().out.splitlines()[-1] == first
