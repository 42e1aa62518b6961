"""The paper's experiment from one command: what it runs, what it leaves, and that it goes on where it was."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from command_line import Done
from cvxmdp.base.errors import ProblemError
from cvxmdp.paper import reproduce
from cvxmdp.paper import studies as paper_studies
from cvxmdp.paper import study_runs as paper_runs
from cvxmdp.paper.learning_curves import Curves, protocols
from cvxmdp.paper.published import published_curves
from cvxmdp.paper.studies import BUDGET, COMPARED, OURS, PAPER, studies_of
from cvxmdp.paper.tracking import INSTANCES
from cvxmdp.policies.families import Table
from cvxmdp.runs.run_folder import find_runs, read_run

FILES = {
    "8x8-half-squared-grid.png",
    "8x8-half-squared-recommended.png",
    "8x8-authors.png",
    "report-8x8-half-squared.html",
    "report-8x8-half-squared-others.html",
    "table.md",
}


@pytest.fixture
def tiny(monkeypatch):
    """The quick form with two runs of 60 iterations per method, of tables: nothing learned, all of it run."""
    monkeypatch.setattr(paper_studies, "QUICK_ITERATIONS", 60)
    monkeypatch.setattr(paper_studies, "QUICK_BATCHES", 20)
    monkeypatch.setattr(paper_studies, "QUICK_RUNS", 2)
    monkeypatch.setattr(paper_studies, "MLP", lambda hidden: Table())
    monkeypatch.setattr("cvxmdp.paper.study_tables.AT", (20, 60))
    monkeypatch.setattr("cvxmdp.paper.authors_study.QUICK_EPISODES", 350)
    monkeypatch.setattr("cvxmdp.paper.reproduce.theorem_claims", list)


def test_the_command_leaves_figures_a_table_and_a_report(tiny, tmp_path, monkeypatch):
    done = Done("reproduce", "8x8", "--quick", "-o", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    (found,) = done.json["experiments"]
    assert {path.name for path in (tmp_path / "out" / "8x8").iterdir()} == FILES | {
        "runs",
        "authors",
        ".lock",
    }
    assert found["runs"] == len(find_runs([tmp_path / "out"])) == 2 * 4 * 2
    methods = [row["method"] for row in found["table"] if row["instance"] == "8x8-traj2"]
    assert methods == [
        "published: VR-PDPG",
        "published: momentum 1",
        "grid: VR-PDPG",
        "grid: momentum 1",
        "grid: Avg (100 trajectories)",
        "ours: VR-PDPG, table, step 0.05",
    ]
    # An iteration of Avg takes as many samples as a hundred of the others; all here have full length episodes.
    samples = {row["method"]: row["samples"] for row in found["table"]}
    assert samples["grid: VR-PDPG"] == "1 k"
    assert samples["grid: Avg (100 trajectories)"] == "28 k"
    page = (tmp_path / "out" / "8x8" / "report-8x8-half-squared.html").read_text()
    told = json.loads(re.search(r'type="application/json">(.*?)</script>', page, re.S)[1])
    assert [group["label"][:9] for group in told["groups"]] == ["8x8-traj1", "8x8-traj2"]
    assert {one["settings"]["momentum"] for one in told["settings"]} == {"0.3"}
    assert "of 4 runs end at the best possible return, 97.4" in told["title"]
    finding, verdicts = told["findings"]
    assert finding["title"] == "A finding: the settings that the paper prints"
    assert "grid: VR-PDPG" in {row[1] for row in finding["rows"]}
    assert [row[0] for row in verdicts["rows"]] == [claim["claim"] for claim in found["claims"]]
    claims = {claim["claim"]: claim["verdict"] for claim in found["claims"]}
    assert claims['"it consumes 100 times more samples than our VR-PDPG algorithm"'] == "confirmed"
    assert any("the authors' program" in claim for claim in claims)
    page = (tmp_path / "out" / "8x8" / "table.md").read_text()
    assert "## Claims, measurements, verdicts" in page
    assert "| 8x8-traj1 | grid: VR-PDPG | half squared | 2 |" in page
    # A second call finds everything, and says the same as text.
    monkeypatch.setattr(paper_runs, "sweep", _never)
    monkeypatch.setattr("cvxmdp.paper.authors_study.play_authors_program", _never)
    again = Done("reproduce", "8x8", "--quick", "-o", tmp_path / "out")
    assert again.code == 0, again.err
    assert "return / tracking error" in again.out
    assert str(tmp_path / "out" / "8x8" / "report-8x8-half-squared.html") in again.out
    assert "verdict:" in again.out
    cells = {cell for row in found["table"] for cell in row.values() if not cell.endswith(" s")}
    assert [cell for cell in cells if cell not in again.out] == []


def test_interrupted_it_goes_on_with_the_same_numbers(tiny, tmp_path, monkeypatch):
    whole = reproduce.reproduce("8x8", tmp_path / "whole", quick=True, workers=1)
    calls = []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    original = paper_runs.sweep
    with monkeypatch.context() as patch:
        patch.setattr(paper_runs, "sweep", interrupted)
        done = Done("reproduce", "8x8", "--quick", "-o", tmp_path / "cut", "--workers", "1")
    assert done.code == 130
    assert "the same command goes on from there" in done.err
    kept = find_runs([tmp_path / "cut"])
    assert len(kept) == 5
    # A run that is damaged, and one of other settings, are made anew; the others are not touched.
    (kept[0] / "run.json").write_text("{")
    shutil.rmtree(kept[1])
    dates = {run: (run / "run.json").stat().st_mtime_ns for run in kept[2:]}
    resumed = reproduce.reproduce("8x8", tmp_path / "cut" / "8x8", quick=True)
    assert {run: (run / "run.json").stat().st_mtime_ns for run in kept[2:]} == dates
    header, rows = resumed.table
    assert [row[: header.index("time")] for row in rows] == [
        row[: header.index("time")] for row in whole.table[1]
    ]


def test_a_run_of_other_settings_is_not_taken_for_this_one(tiny, tmp_path):
    study = studies_of("8x8", quick=True)[0]
    paper_runs.run_studies([study], tmp_path, workers=1)
    task = paper_runs.StudyRun(study, 0, tmp_path)
    assert task.is_there
    other = replace(study, solver=replace(study.solver, momentum=0.5))
    assert not paper_runs.StudyRun(other, 0, tmp_path).is_there
    record = read_run(task.place)
    assert record.settings["momentum"] == "0.1"
    assert record.constraints[0].budget == study.settings[0][BUDGET] == 0.001


def test_an_unknown_grid_and_a_folder_that_cannot_be_written(tmp_path):
    done = Done("reproduce", "8x9")
    assert done.code == 2
    assert "Did you mean '8x8'?" in done.err
    with pytest.raises(ProblemError, match="unknown grid"):
        studies_of("9x9")
    (tmp_path / "file").write_text("")
    assert Done("reproduce", "8x8", "--quick", "-o", tmp_path / "file").code == 2


def test_the_grids_are_those_of_the_appendix():
    small = studies_of("8x8")
    large = studies_of("20x20")
    for studies, count, plain in ((small, 12, 12), (large, 60, 15)):
        grid = [study for study in studies if study.part == PAPER]
        assert len(grid) == 2 * 2 * 3  # trajectories, norms, methods
        assert [len(study.settings) for study in grid] == [count, plain, plain] * 4
        assert {study.norm for study in grid} == {"half-squared", "l2"}
        assert [s.solver.momentum == 1 for s in grid] == [False, True, True] * 4
        assert [s.solver.batch_size for s in grid] == [1, 1, 100] * 4
        assert all(s.solver.iterations == 10_000 and s.solver.dual_bound == 10 for s in grid)
    assert {s.solver.horizon for s in small} == {14}
    assert {s.solver.horizon for s in large} == {38}
    first = next(study for study in large if study.part == PAPER)
    assert first.solver.primal_step == 0.22
    assert {s["momentum"] for s in first.settings} == {0.03, 0.05, 0.07, 0.09}
    assert first.kept == 12
    names = [study.name for study in small + large]
    assert len(set(names)) == len(names)
    assert {study.part for study in small} == {PAPER, OURS, COMPARED}


def test_the_best_of_many_are_chosen_by_return_and_then_by_error():
    returns = np.array([[5.0], [9.0], [9.0], [1.0]])
    errors = np.array([[0.1], [0.3], [0.2], [0.0]])
    counted = np.arange(4.0)
    curves = Curves("x", np.array([10]), returns, errors, counted, counted)
    assert curves.best(1, "best").samples.tolist() == [2.0]
    assert curves.best(3, "best").samples.tolist() == [0.0, 1.0, 2.0]
    study = replace(studies_of("8x8", quick=True)[0], kept=2)
    kept, every = protocols(study, curves)
    assert (len(kept), len(every)) == (2, 4)
    assert kept.label.endswith("best 2 of 4")
    assert curves.after(10)[0].tolist() == [5.0, 9.0, 9.0, 1.0]
    assert np.isnan(curves.after(5)[0]).all()


@pytest.mark.parametrize("instance", INSTANCES)
def test_published_curves_are_whole(instance):
    found = published_curves(instance)
    assert "vr-pdpg" in found
    assert ("alpha=1" in found) == (instance != "20x20-traj1")
    for curve in found.values():
        assert curve.episode.shape == curve.returns.shape == curve.errors_std.shape == (100,)
        assert (np.diff(curve.episode) > 0).all()
        assert (curve.returns <= 97.4).all()
        assert (curve.errors >= 0).all()
    assert published_curves("8x8-traj1")["vr-pdpg"].at(250) == (-2.8, 5.0469)


def test_published_curves_of_an_unknown_instance():
    with pytest.raises(ProblemError, match="unknown instance"):
        published_curves("8x8-traj3")


def _never(*arguments, **options):
    raise AssertionError("a run that is there was made again")
