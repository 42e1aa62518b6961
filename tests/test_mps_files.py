"""Linear certificates as other programs read them: HiGHS and QSopt_ex solve them, fractions verify the dual."""

from __future__ import annotations

import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import cvxmdp as cm

pytest.importorskip("flint")
highspy = pytest.importorskip("highspy")


def linear_problem(horizon: str, seed: int) -> cm.Problem:
    random = np.random.default_rng(seed)
    rows = random.dirichlet(np.ones(4), size=(4, 3))
    time: dict[str, object] = {
        "discounted": {"discount": 0.9},
        "endings": {"discount": 0.95},
        "total": {"discount": 1.0},
        "finite": {"horizon": 3, "discount": 0.9},
        "average": {"average": True},
    }[horizon]
    if horizon in ("endings", "total"):
        rows *= random.uniform(0.5, 0.95, (4, 3, 1))
    signals = {name: random.random((4, 3)) for name in ("reward", "cost")}
    mdp = cm.TabularMDP(rows, [0.5, 0.5, 0, 0], signals=signals, **time)  # type: ignore[arg-type]
    used = cm.Problem(mdp, minimize=cm.linear("cost")).evaluate(cm.uniform_policy(mdp)).objective
    limits = {"cost": 2 * cm.linear("cost") <= 1.9 * used}
    if seed % 2:
        return cm.Problem(
            mdp, minimize=cm.linear("reward") - 1.0, subject_to={"cost": cm.linear("cost") >= used}
        )
    return cm.Problem(mdp, maximize=cm.linear("reward") + 0.25, subject_to=limits)


def read_mps(
    text: str,
) -> tuple[dict[str, str], dict[str, dict[str, Fraction]], dict[str, Fraction]]:
    """Kinds of rows, columns and right-hand sides, in fractions: nothing of ours reads it."""
    kinds, columns, right, section = {}, {}, {}, ""
    for line in text.splitlines():
        words = line.split()
        if not line.startswith(" "):
            section = words[0]
        elif section == "ROWS":
            kinds[words[1]] = words[0]
        elif section == "COLUMNS":
            columns.setdefault(words[0], {})[words[1]] = Fraction(words[2])
        elif section == "RHS":
            right[words[1]] = Fraction(words[2])
    return kinds, columns, right


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("horizon", ["discounted", "endings", "total", "finite", "average"])
def test_a_stranger_finds_the_optimum_and_verifies_the_bound(
    horizon: str, seed: int, tmp_path: Path
) -> None:
    problem = linear_problem(horizon, seed)
    certificate = cm.certify(problem, cm.solve(problem))
    cm.write_mps(certificate, problem, tmp_path / "proof.mps")
    kinds, columns, right = read_mps((tmp_path / "proof.mps").read_text())
    dual = {
        name: Fraction(number)
        for name, number in map(str.split, (tmp_path / "proof.dual").read_text().splitlines())
    }
    bound = dual.pop("bound")
    # Weak duality, with nothing but the two files: maximise f = constant - minus_f.
    assert all(dual[row] <= 0 for row, kind in kinds.items() if kind == "G")
    for entries in columns.values():
        gained = sum(dual[row] * one for row, one in entries.items() if row != "minus_f")
        assert gained >= -entries["minus_f"]
    shown = sum(dual[row] * one for row, one in right.items() if row != "minus_f")
    assert bound == shown + right.get("minus_f", 0)
    claimed = certificate.upper if problem.sense == "maximize" else -certificate.lower
    assert bound <= Fraction(claimed)

    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    assert highs.readModel(str(tmp_path / "proof.mps")) == highspy.HighsStatus.kOk
    highs.run()
    best = -highs.getInfo().objective_function_value
    assert best <= float(bound) + 1e-7
    assert best == pytest.approx(float(bound), rel=1e-5, abs=1e-6)


@pytest.mark.skipif(shutil.which("esolver") is None, reason="needs QSopt_ex (Debian: qsopt-ex)")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("horizon", ["discounted", "endings", "total", "finite", "average"])
def test_the_exact_optimum_of_a_stranger_is_between_the_bounds(
    horizon: str, seed: int, tmp_path: Path
) -> None:
    """QSopt_ex solves in rational numbers, so its optimum is compared as the fraction it is."""
    problem = linear_problem(horizon, seed)
    certificate = cm.certify(problem, cm.solve(problem))
    cm.write_mps(certificate, problem, tmp_path / "proof.mps")
    command = ["esolver", "-O", "exact.sol", "proof.mps"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    text = (tmp_path / "exact.sol").read_text()
    assert text.startswith("status OPTIMAL") or "status = OPTIMAL" in text
    (value,) = re.findall(r"Value = (\S+)", text)
    _, _, right = read_mps((tmp_path / "proof.mps").read_text())
    best = right.get("minus_f", Fraction(0)) - Fraction(value)  # it leaves the constant out
    if problem.sense == "minimize":
        best = -best
    assert Fraction(certificate.lower) <= best <= Fraction(certificate.upper)


def test_what_is_no_linear_program_is_refused(tmp_path: Path) -> None:
    problem = cm.Problem(cm.gridworld(2, discount=0.9), maximize=cm.entropy())
    certificate = cm.certify(problem, cm.solve(problem))
    with pytest.raises(cm.ProblemError, match="not linear"):
        cm.write_mps(certificate, problem, tmp_path / "proof.mps")
    with pytest.raises(cm.ProblemError, match=r"ends with \.mps"):
        cm.write_mps(certificate, problem, tmp_path / "proof")
    other = cm.Problem(cm.gridworld(3, discount=0.9), maximize=cm.entropy())
    with pytest.raises(cm.ProblemError, match="another problem"):
        cm.write_mps(certificate, other, tmp_path / "proof.mps")
