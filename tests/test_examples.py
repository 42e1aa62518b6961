"""The paper's four examples and the demo run as scripts, and give the known optima."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from test_reproduce import tiny  # noqa: F401 (a fixture: learning in short, as for the command)

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def run_example(name: str):
        sys.modules.pop(name, None)
        return importlib.import_module(name).main()

    return run_example


@pytest.mark.parametrize(
    ("name", "part", "problem", "sign"),
    [
        ("safe_exploration", None, "safe exploration", 1),
        ("safe_learning", None, "safe learning", 1),
        ("apprenticeship", "l2", "apprenticeship l2", -1),
        ("apprenticeship", "kl", "apprenticeship kl", -1),
        ("feasibility", "point", "feasibility, point", 1),
        ("feasibility", "box", "feasibility, box", 1),
    ],
)
def test_example_gives_the_known_optimum(run, reference, capsys, name, part, problem, sign):
    solution = run(name)
    if part is not None:
        solution = solution[part]
    assert solution.objective * sign == pytest.approx(
        reference["problems"][problem]["optimum"], abs=1e-6
    )
    assert "Optimal" in capsys.readouterr().out


def test_demo_prints_both_solutions_and_learns(run, tiny, capsys, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    run("demo")
    printed = capsys.readouterr().out
    assert printed.count("Optimal:") == 2
    assert "23.927" in printed  # 100 * 0.9**13 - 0.2 * (1 - 0.9**13) / 0.1
    assert "4.047617" in printed
    assert "ours: VR-PDPG, table, step 0.05" in printed
    assert (tmp_path / printed.rsplit(": ", 1)[1].strip()).is_file()  # the report is the last word


def test_hidden_concavity_is_drawn(run, capsys, monkeypatch, tmp_path):
    """A valley between policies, none between occupancies, for a linear and for a concave objective."""
    sys.modules.pop("hidden_concavity", None)
    example = importlib.import_module("hidden_concavity")
    policies, occupancies = example.main(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    for values in ("returns", "nearness"):
        mixed, straight = getattr(policies, values), getattr(occupancies, values)
        assert mixed[[0, -1]] == pytest.approx(straight[[0, -1]])
        assert policies.dent(mixed) > 0.05
        assert occupancies.dent(straight) < 1e-9
    # by hand: the ends are reached after four steps, and pay 1 / (1 - 0.9) from then on
    assert policies.returns[0] == pytest.approx(0.9**4 / 0.1)
    assert policies.returns[-1] == pytest.approx(0.8 * 0.9**4 / 0.1)
    assert "dents of" in capsys.readouterr().out


@pytest.mark.slow
def test_a_plan_from_a_log_breaks_in_reality_what_a_cautious_one_keeps(run):
    found = run("courier_log")
    budget = 0.22
    assert all(slack >= -1e-9 for slack in found.plain.slack.values())  # so says the estimate
    assert sum(spent > 1.1 * budget for spent in found.plain_spent.values()) >= 2
    assert found.cautious.status.name == "CAUTIOUS"
    assert all(spent <= budget for spent in found.cautious_spent.values())
    assert found.tight.status.name != "CAUTIOUS"
    assert "these would have to be tried" in found.tight.message
