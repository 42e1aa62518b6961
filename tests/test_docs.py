"""Every Python block in the README and the docs runs, page by page, top to bottom."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

import cvxmdp as cm
from cvxmdp.base import errors
from cvxmdp.solvers.registry import SOLVERS

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text("utf-8")
    names: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 2
        code = compile("\n" * (line - 1) + block.group(1), str(page), "exec")
        exec(code, names)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(
            r"\]\(([^)#]+?\.(?:md|png|svg))(?:#[^)]*)?\)", page.read_text("utf-8")
        ):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_site_builds(tmp_path):
    """Strictly: a page, a link or a docstring that the site cannot read is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path / "site"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "api" / "solvers.html").exists()
    loaded = re.compile(
        r'<script[^>]* src="https?:|<link[^>]* href="https?:[^"]*\.css|import\("https?:'
    )
    for page in (tmp_path / "site").rglob("*.html"):
        assert not loaded.search(page.read_text("utf-8")), f"{page.name} is not readable offline"


def test_the_reference_has_every_status_solver_and_error():
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    names = [status.name for status in cm.Status]
    names += [f"{name}(" for name in SOLVERS]
    names += [name for name in dir(errors) if name.endswith("Error")]
    assert [name for name in names if f"`{name}" not in text] == []


def test_notebooks_are_kept_without_their_outputs():
    assert len(NOTEBOOKS) == 4
    for notebook in NOTEBOOKS:
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.parametrize(
    "page",
    ["convex-program", "large-models", "model-based", "actor-critic", "pdpg", "vr-pdpg"],
)
def test_the_page_of_an_algorithm_has_the_heads_of_the_others(page):
    lines = (ROOT / "docs" / f"{page}.md").read_text("utf-8").splitlines()
    heads = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert heads[:5] == [
        "When to use it",
        "Settings",
        "What is logged",
        "Details against the paper",
        "Results",
    ]


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs(notebook):
    nbclient.NotebookClient(nbformat.read(notebook, 4), timeout=300).execute()
