"""docs/figures/report.png: the report of a problem that was learned from samples, as Chromium shows it.

Run by ``make screenshot``; it needs the Chromium that ``make test`` installs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import cvxmdp as cm
from cvxmdp.reports.html_page import write_report
from cvxmdp.runs.record import record_of
from cvxmdp.runs.specs.problem_specs import read_problem
from hardware import hardware

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from chromium import Chromium, find_chromium  # noqa: E402

FIGURE = ROOT / "docs" / "figures" / "report.png"
SEEDS = 4


def records() -> list:
    spec = read_problem(ROOT / "examples" / "problems" / "tracking.toml")
    found = []
    for momentum in (0.1, 1.0):
        for seed in range(SEEDS):
            solver = read_problem(spec.path, settings={"momentum": momentum}).solver
            solution = cm.solve(spec.problem, solver, seed=seed)
            certificate = cm.certify(spec.problem, solution)
            rerun = f"cvxmdp solve tracking.toml --set momentum={momentum} --seed {seed}"
            found.append(
                record_of(
                    solution,
                    title=spec.title,
                    seed=seed,
                    solver=solver,
                    certificate=certificate,
                    rerun=rerun,
                )
            )
    return found


def main() -> None:
    if find_chromium() is None:
        sys.exit("there is no Chromium here: make browser")
    print(hardware())
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(records(), Path(folder) / "report.html")
        browser = Chromium(Path(folder) / "profile")
        browser.open(page, 1280, 1830)
        browser.screenshot(FIGURE)
        browser.close()
        print(f"{FIGURE.relative_to(ROOT)}: {FIGURE.stat().st_size / 1024:.0f} kB; ", end="")
        print(f"the page itself has {page.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()
