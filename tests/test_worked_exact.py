"""The worked examples that need no learning: each meets the figure that its page states, and the page is true.

They run in their short form: fewer episodes, seeds and budgets. What is exact is as in full.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import cvxmdp as cm
from test_console import NUMBER, same

ROOT = Path(__file__).parent.parent
LIST = re.search(r"^EXAMPLES := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
EXAMPLES = LIST.group(1).split() if LIST else []


class Run:
    """An example, run once for all tests: what it returns, prints and draws."""

    def __init__(self, name: str, folder: Path, capture: Any) -> None:
        sys.path.insert(0, str(ROOT / "examples"))
        try:
            self.module = importlib.import_module(name)
        finally:
            sys.path.remove(str(ROOT / "examples"))
        self.picture = folder / f"{name}.png"
        capture.readouterr()
        self.found = self.module.main(short=True, picture=self.picture)
        self.printed = capture.readouterr().out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    runs: dict[str, Run] = {}

    def of(name: str, capture: Any) -> Run:
        if name not in runs:
            runs[name] = Run(name, tmp_path_factory.mktemp(name), capture)
        return runs[name]

    return of


def assert_proven(certificate: cm.Certificate, gap: float) -> None:
    """A policy, surely within its budgets, and surely this near to the best."""
    assert certificate.policy is not None
    assert all(slack >= 0 for slack in certificate.slack.values())
    assert 0 <= certificate.relative_gap <= gap
    assert all("end episodes" in promise for promise in certificate.assumes)


def text_blocks(name: str) -> list[str]:
    page = (ROOT / "docs" / "examples" / f"{name}.md").read_text("utf-8")
    return re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def says(printed: str, shown: str) -> bool:
    """The same words, and the same numbers; what is below 1e-5 is a solver's noise."""
    printed, shown = printed.strip(), shown.strip()
    if not same(shown, printed):
        return False
    numbers = [
        [float(number.replace(",", "")) for number in NUMBER.findall(text)]
        for text in (shown, printed)
    ]
    return all(
        math.isclose(*pair, rel_tol=5e-3, abs_tol=1e-5) for pair in zip(*numbers, strict=True)
    )


def test_the_comparison_itself():
    assert says("service 0.7694, gap 3e-12", "service 0.7695, gap 9e-11")
    assert not says("service 0.7694", "service 0.78")
    assert not says("service 0.7694", "cost 0.7694")


@pytest.mark.parametrize("name", ["cliff_walking", "taxi", "inventory"])
def test_the_page_shows_what_the_example_prints(run, capsys, name):
    ran = run(name, capsys)
    assert ran.picture.stat().st_size > 10_000
    paragraphs = ran.printed.split("\n\n")
    headers = {" ".join(part.strip().split("\n")[0].split()) for part in paragraphs}
    for block in text_blocks(name):
        lines = block.splitlines()
        if lines[0].startswith(
            ("seed", "budget")
        ):  # as many rows as seeds or budgets: in full only
            assert " ".join(lines[0].split()) in headers, lines[0]
            assert len(lines) >= 6
        else:
            assert any(says(part, block) for part in paragraphs), block


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_a_script_a_page_a_picture_and_a_line_in_the_index(name):
    index = (ROOT / "docs" / "examples" / "index.md").read_text("utf-8")
    assert (ROOT / "examples" / f"{name}.py").is_file()
    assert (ROOT / "docs" / "figures" / f"example-{name}.png").is_file()
    assert f"]({name}.md)" in index
    assert f"../figures/example-{name}.png" in index
    page = (ROOT / "docs" / "examples" / f"{name}.md").read_text("utf-8")
    assert f"](../figures/example-{name}.png)" in page
    assert f"python examples/{name}.py" in page


def test_the_list_of_examples_is_found():
    assert {"cliff_walking", "taxi", "inventory"} <= set(EXAMPLES)


def test_cliff_walking(run, capsys):
    cliff = run("cliff_walking", capsys)
    mdp = cm.from_gymnasium_table(
        cliff.module.NAME, cliff.module.DISCOUNT, signals=cliff.module.SIGNALS
    )
    demonstrator = cliff.module.demonstrator()
    truth = cm.occupancy_of(mdp, demonstrator)
    assert (truth * mdp.signal("edge")).sum() > 4.3
    assert (truth * mdp.signal("fall")).sum() > 0.13
    best = cliff.module.imitate(mdp, truth, "l2")[1]
    for found in cliff.found:
        assert 0 < found.error <= found.radius
        assert found.students["l2"].distance <= best.upper + 2 * found.error
        assert best.lower <= found.students["l2"].distance < found.students["kl"].distance
        for student in found.students.values():
            assert_proven(student.certificate, 1e-6)
            reached = cm.occupancy_of(mdp, student.certificate.policy)
            assert (reached * mdp.signal("edge")).sum() <= 0.3
            assert (reached * mdp.signal("fall")).sum() <= 0.01
            assert student.trial.all_hold
    first, second = (found.students["l2"].certificate.lower for found in cliff.found[:2])
    assert first != second  # each seed has its own recordings


def test_taxi(run, capsys):
    taxi = run("taxi", capsys).found
    for name in ("no budget", "reward", "proportional", "worst first"):
        assert_proven(taxi.certificates[name], 1e-5)
    assert_proven(taxi.kindest, 1e-5)
    reward, fair, worst = (
        taxi.deliveries[name] for name in ("reward", "proportional", "worst first")
    )
    assert reward.index(min(reward)) == 1  # G
    assert min(fair) == fair[1] >= 1.2 * taxi.kindest.upper
    assert max(fair) / min(fair) <= 1.02
    assert max(worst) / min(worst) <= 1 + 1e-5
    assert sum(fair) >= 0.999 * sum(reward)
    mdp = run("taxi", capsys).module.model()
    earned = (
        mdp.signal("reward") * cm.occupancy_of(mdp, taxi.certificates["proportional"].policy)
    ).sum()
    assert 0 < taxi.certificates["reward"].upper - earned <= 0.01
    assert all(trial.all_hold for trial in taxi.trials)


def test_inventory(run, capsys):
    store = run("inventory", capsys).found
    for certificate in store.certificates.values():
        assert_proven(certificate, 1e-6)
    revenue, kept, fair = (
        store.service[name] for name in ("revenue", "revenue, promises", "fairness, promises")
    )
    # every policy with the best revenue breaks a promise
    assert (
        store.certificates["revenue, promises"].upper < store.certificates["revenue"].lower - 0.05
    )
    assert revenue["clinic"] < 0.65
    assert fair["clinic"] >= kept["clinic"] + 0.06
    assert min(fair.values()) > min(kept.values()) > min(revenue.values())
    module = run("inventory", capsys).module
    earned = module.per_day(
        module.model(), store.certificates["fairness, promises"].policy, "revenue"
    )
    assert earned >= (1 - 0.015) * store.certificates["revenue, promises"].upper
    for point in store.frontier.points:
        assert_proven(point.certificate, 1e-6)
    assert store.frontier.infeasible_until == pytest.approx(3.8504, abs=1e-3)
    assert store.frontier.free_from == pytest.approx(6.777, abs=1e-2)
    assert all(trial.all_hold for trial in store.trials)


def test_the_store_serves_whom_it_says_first(run, capsys):
    day = run("inventory", capsys).module.day
    by_demand = {
        first: {(chance, after): signals for chance, after, signals in day(3, (first, 2))}
        for first in ("clinic", "shops")
    }
    chance = 0.2 * 0.4  # the clinic asks for four, the shops for two
    first_clinic, first_shops = (by_demand[who][chance, 2] for who in ("clinic", "shops"))
    assert first_clinic["clinic"] == pytest.approx(3 / 1.1)
    assert first_clinic["shops"] == 0
    assert first_shops["clinic"] == pytest.approx(1 / 1.1)
    assert first_shops["shops"] == pytest.approx(2 / 2.3)
    assert first_shops["revenue"] == 2 * 1 + 3 * 2
    assert first_shops["cost"] == 2 + 2


def test_an_interval_that_misses_the_truth_is_noticed(run, capsys):
    from dataclasses import replace

    trial = run("inventory", capsys).found.trials[0]
    assert trial.all_hold
    assert not replace(trial, truth={**trial.truth, "clinic": -1.0}).all_hold
    unproven = replace(trial.seen.objective, proven=False)
    assert not replace(trial, seen=replace(trial.seen, objective=unproven)).all_hold
