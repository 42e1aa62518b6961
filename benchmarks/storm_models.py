"""Answers that others publish, against ours: the benchmark set QVBS, Storm's and PRISM's own tests.

    python benchmarks/storm_models.py --qvbs ../qcomp --storm ../storm --prism ../prism

Each takes a checkout of theirs (github.com/ahartmanns/qcomp, moves-rwth/storm, prismmodelchecker/prism), of
which only three small models are in this repository, in tests/qvbs. An answer is right if it is within 1e-6 of
the published one, relative, and certified if it is proven to 1e-6, too. Seconds are for solving and certifying
a built model, and those of Storm for checking it, of processor time in the same run. Questions without bounds
are one Markov decision problem, which column generation hands to policy iteration: rare events keep their
digits.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import stormpy

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpError
from cvxmdp.models.importers.storm import StormModel
from hardware import hardware

CLOSE = 1e-6
WRONG, RIGHT, CERTIFIED = "NOT", "right", "certified"
SECONDS = 120.0  # for one answer, at most
STORM_TESTS = "resources/examples/testfiles/mdp"
PRISM_TESTS = "prism-tests/functionality/verify/mdps"

GATHERING = {"GOLD_TO_COLLECT": 0, "GEM_TO_COLLECT": 0, "B": 0}

# As in Storm's SparseMdpPcaaMultiObjectiveModelCheckerTest; of resource gathering its pure long-run averages.
FROM_STORM: list[tuple[str, str, dict[str, Any], Any]] = [
    (
        "multiobj_consensus2_3_2.nm",
        'multi(Pmax=? [F "one_proc_err"], P>=0.8916673903 [G "one_coin_ok"])',
        {},
        0.10833260970000025,
    ),
    (
        "multiobj_zeroconf4.nm",
        "multi(Pmax=? [F l=4 & ip=1], P>=0.993141 [G (error=0)])",
        {},
        5 / 16256,
    ),
    (
        "multiobj_team3.nm",
        'multi(Pmax=? [F "task1_compl"], R{"w_1_total"}>=2.210204082 [C], P>=0.5 [F "task2_compl"])',
        {},
        0.7448979591841851,
    ),
    (
        "resource-gathering.nm",
        'multi(R{"rew_gold"}max=? [LRA], R{"rew_gem"}max=? [LRA])',
        GATHERING,
        [(27 / 241, 0), (0, 1 / 10), (27 / 349, 27 / 349)],
    ),
    (
        "resource-gathering.nm",
        'multi(R{"rew_gold"}min=? [LRA], R{"rew_gem"}max=? [LRA])',
        GATHERING,
        [(0, 1 / 10)],
    ),
    (
        "resource-gathering.nm",
        'multi(R{"rew_gold"}max=? [LRA], R{"rew_gem"}min=? [LRA])',
        GATHERING,
        [(27 / 241, 0)],
    ),
    (
        "resource-gathering.nm",
        'multi(R{"rew_gold"}min=? [LRA], R{"rew_gem"}min=? [LRA])',
        GATHERING,
        [(0, 0)],
    ),
    (
        "resource-gathering.nm",
        'multi(R{"rew_gold"}max=? [LRA], R{"attacks"}min=? [LRA])',
        GATHERING,
        [(27 / 241, 19 / 723), (3 / 31, 1 / 93), (1 / 12, 0)],
    ),
    (
        "multiobj_dpm100.nm",
        'multi(R{"power"}min=? [C<=100], R{"queue"}<=70 [C<=100])',
        {},
        121.6128842094743,
    ),
]


@dataclass(frozen=True)
class Case:
    """One published answer: a number, True or False (whether some policy satisfies the bounds), or points."""

    path: Path
    text: str
    constants: dict[str, Any]
    wanted: Any

    @property
    def instance(self) -> str:
        given = ",".join(f"{name}={value}" for name, value in self.constants.items())
        return f"{self.path.name} {given}".strip()

    @property
    def name(self) -> str:
        return f"{self.instance} {self.text}"[:100]


def from_qvbs(folder: Path, states: int) -> Iterator[Case]:
    """The instances with numbers, up to so many states."""
    for index in sorted(folder.glob("benchmarks/mdp/*/index.json")):
        facts = json.loads(index.read_text("utf-8"))
        for file in facts["files"]:
            for instance in file.get("open-parameter-values", []):
                sizes = [one["number"] for one in instance.get("states", [])]
                if not sizes or min(sizes) > states or not (index.parent / file["file"]).exists():
                    continue
                constants = {one["name"]: one["value"] for one in instance.get("values", [])}
                for result in instance.get("results", []):
                    value = _number(result["value"])
                    if value is not None:
                        path = index.parent / file["file"]
                        yield Case(path, result["property"], constants, value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, dict):
        exact = "num" in value
        value = float(Fraction(value["num"], value["den"])) if exact else value.get("approx")
    return float(value) if isinstance(value, int | float) else None


def from_prism(folder: Path) -> Iterator[Case]:
    """PRISM's regression tests of multi-objective queries."""
    for path in sorted((folder / PRISM_TESTS).glob("multi-*/*.props")):
        wanted = None
        for line in path.read_text("utf-8").splitlines():
            found = re.match(r"\s*//\s*RESULT:\s*(.*)", line)
            if found:
                wanted = found[1].strip()
            elif line.strip() and not line.lstrip().startswith("//") and wanted is not None:
                yield Case(path.with_suffix(""), line.strip(), {}, _result(wanted))
                wanted = None


def _result(text: str) -> Any:
    if text in ("true", "false", "NaN"):
        return text == "true"
    if text.startswith("["):
        return [
            tuple(float(one) for one in point.split(","))
            for point in re.findall(r"\(([^()]*)\)", text)
        ]
    return float(text)


def from_storm(folder: Path) -> Iterator[Case]:
    for file, text, constants, wanted in FROM_STORM:
        yield Case(folder / STORM_TESTS / file, text, constants, wanted)


@dataclass(frozen=True)
class Found:
    """What came of a case.

    Attributes:
        case: that was asked.
        verdict: whether the answer is the published one, and proven.
        said: more of it, in words.
        gap: proven, relative to the published value; NaN where that has no meaning.
        states: of the model that was solved.
        seconds: of processor time to solve and certify; NaN where there was no answer.
        storm: of processor time that Storm takes to check the model it built; NaN where it was not asked.
    """

    case: Case
    verdict: str
    said: str
    gap: float = math.nan
    states: int = 0
    seconds: float = math.nan
    storm: float = math.nan


def by_storm(case: Case) -> float:
    """Seconds that Storm takes to check the model it built."""
    asked = StormModel(case.path, [case.text], case.constants)
    started = time.process_time()
    stormpy.model_checking(asked.built, asked.formulas[0], only_initial_states=True)
    return time.process_time() - started


def found(case: Case) -> Found:
    """Our answer beside the published one."""
    asked = cm.from_storm(case.path, case.text, case.constants)
    started = time.process_time()
    if isinstance(asked, tuple):
        return _front(case, *asked)
    by_policies = not (asked.constraints or asked.mdp.horizon.steps or asked.mdp.flow.strict)
    solution = cm.solve(
        asked, cm.ColumnGeneration() if by_policies else None, time_limit=SECONDS, progress=False
    )
    states = asked.mdp.n_states
    if isinstance(case.wanted, bool):
        proven = solution.has_policy or solution.status is cm.Status.INFEASIBLE
        verdict = CERTIFIED if proven and solution.has_policy == case.wanted else WRONG
        seconds = time.process_time() - started
        return Found(case, verdict, solution.status.name, states=states, seconds=seconds)
    certificate = cm.certify(asked, solution)
    seconds = time.process_time() - started
    ours, gap = solution.objective, certificate.gap
    if certificate.policy is None and solution.status is cm.Status.OPTIMAL:
        # Bounds that leave no room hold up to rounding; what nobody exceeds is proven all the same.
        gap = abs((certificate.upper if asked.sense == "maximize" else certificate.lower) - ours)
    size = abs(case.wanted) or 1.0
    away, gap = abs(ours - case.wanted) / size, gap / size
    verdict = WRONG if not away <= CLOSE else CERTIFIED if gap <= CLOSE else RIGHT
    return Found(case, verdict, f"{ours:.10g}, off by {away:.0e}", gap, states, seconds)


def _front(case: Case, problem: cm.Problem, objectives: Any) -> Found:
    started = time.process_time()
    front = cm.pareto(problem, objectives, tolerance=CLOSE)
    seconds = time.process_time() - started
    signs = [-1 if way == "min" else 1 for way in re.findall(r"(max|min)\s*=\s*\?", case.text)]
    reached = [[s * v for s, v in zip(signs, point, strict=True)] for point in front.points]
    good = all(any(_near(one, other) for other in reached) for one in case.wanted)
    said = f"{len(reached)} points"
    states = problem.mdp.n_states
    return Found(case, CERTIFIED if good else WRONG, said, states=states, seconds=seconds)


def _near(one: tuple[float, ...], other: list[float]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-5) for a, b in pairs)


def run(title: str, cases: list[Case], timed: bool) -> str:
    """All cases, said as they come; a table of instances in Markdown."""
    print(f"\n{title}: {len(cases)} published answers", flush=True)
    rows = []
    for case in cases:
        try:
            row = found(case)
            row = replace(row, storm=by_storm(case)) if timed else row
        except (CvxmdpError, RuntimeError, TypeError, ValueError) as error:
            row = Found(case, WRONG, f"{type(error).__name__}: {str(error)[:90]}")
        rows.append(row)
        print(
            f"  {row.verdict:9}  {case.name}: {row.said}, gap {row.gap:.0e}, {row.states:,} states, "
            f"{row.seconds:.2f} s, Storm {row.storm:.2f} s",
            flush=True,
        )
    verdicts = [row.verdict for row in rows]
    right = len(rows) - verdicts.count(WRONG)
    summary = f"{title}: {right} of {len(rows)} right, {verdicts.count(CERTIFIED)} certified"
    print(summary, flush=True)
    return f"## {title}\n\n{summary}.\n\n{table(rows)}"


def table(rows: list[Found]) -> str:
    """A line for every instance: how many of its values are right and proven, and the worst of them."""
    lines = [
        "| instance | states | values | right | certified | largest gap | seconds | Storm |",
        "|---|---|---|---|---|---|---|---|",
    ]
    instances: dict[str, list[Found]] = {}
    for row in rows:
        instances.setdefault(row.case.instance, []).append(row)
    for name, own in instances.items():
        verdicts = [row.verdict for row in own]
        right, proven = len(own) - verdicts.count(WRONG), verdicts.count(CERTIFIED)
        gaps = [row.gap for row in own if not math.isnan(row.gap)]
        took = [row for row in own if not math.isnan(row.seconds)]
        seconds, storm = sum(row.seconds for row in took), sum(row.storm for row in took)
        lines.append(
            f"| {name} | {max(row.states for row in own):,} | {len(own)} | {right} | {proven} | "
            f"{max(gaps, default=math.nan):.0e} | {seconds:.2f} | {storm:.2f} |"
        )
    whole = sum(all(row.verdict == CERTIFIED for row in own) for own in instances.values())
    return "\n".join([*lines, "", f"{whole} of {len(instances)} instances in every value."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    for name in ("qvbs", "storm", "prism"):
        parser.add_argument(f"--{name}", type=Path, help="folder of a checkout")
    parser.add_argument("--states", type=int, default=30_000, help="of QVBS models, at most")
    parser.add_argument("--write", type=Path, help="a file for the tables, in Markdown")
    given = parser.parse_args()
    print(hardware())
    parts = []
    if given.storm:
        parts.append(run("Storm's tests", list(from_storm(given.storm)), timed=True))
    if given.prism:
        parts.append(run("PRISM's tests", list(from_prism(given.prism)), timed=False))
    if given.qvbs:
        parts.append(run("QVBS", list(from_qvbs(given.qvbs, given.states)), timed=True))
    if given.write:
        dated = f"{datetime.date.today():%d %B %Y}, {hardware()}"
        given.write.write_text("\n\n".join([dated, *parts]) + "\n", "utf-8")


if __name__ == "__main__":
    main()
