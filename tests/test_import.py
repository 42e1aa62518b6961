"""``import cvxmdp`` is cheap: heavy and optional packages wait until they are used."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cvxmdp as cm
from cvxmdp.base import errors

ROOT = Path(__file__).parents[1]

OPTIONAL = {"cvxpy", "gymnasium", "matplotlib", "plotly", "equinox", "optax", "typer", "pyarrow"}
REPORT = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"


def modules_after(code: str) -> set[str]:
    finished = subprocess.run(
        [sys.executable, "-c", code + REPORT], capture_output=True, text=True, check=True
    )
    return set(json.loads(finished.stdout.splitlines()[-1]))


LINEAR = """
import cvxmdp as cm
mdp = cm.garnet(3, 2, 2, seed=0)
limits = {"cost": cm.linear("cost", per="step") <= 0.6}
problem = cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limits)
for solver in (cm.ConvexProgram(), cm.ColumnGeneration(), cm.PDPG(iterations=4)):
    cm.certify(problem, cm.solve(problem, solver))
"""


def test_optional_packages_are_not_imported() -> None:
    """All in one interpreter: what none of these imports, each of them does not."""
    ways = """
cm.gridworld(4, slip=0.1, goal=15)
grid = cm.gridworld(4)
cm.occupancy_of(grid, cm.uniform_policy(grid))
cm.garnet(5, 2, 2, seed=0)
cm.Problem(grid, maximize=cm.entropy())
"""
    # A first answer need not wait for CVXPY's import, either.
    assert not OPTIONAL & modules_after(LINEAR + ways)


def test_import_alone_loads_no_numerical_package() -> None:
    modules = modules_after("import cvxmdp")
    ours = {module for module in modules if module.partition(".")[0] == "cvxmdp"}
    assert ours == {"cvxmdp", "cvxmdp.base", "cvxmdp.base.version"}
    assert not {"numpy", "scipy", "jax"} & modules


def test_models_do_not_need_jax() -> None:
    assert "jax" not in modules_after("import cvxmdp as cm; cm.gridworld(4)")


def test_the_optional_packages_would_be_seen() -> None:
    code = "import cvxmdp as cm; cm.from_gymnasium_table('FrozenLake-v1', 0.9)"
    assert "gymnasium" in modules_after(code)


@pytest.mark.parametrize("name", sorted(set(cm.__all__) - {"__version__"}))
def test_every_public_name_can_be_loaded(name: str) -> None:
    assert getattr(cm, name) is not None
    assert name in dir(cm)


def test_the_front_door_has_one_list() -> None:
    """What type checkers read, statement by statement, is what the package takes from it, line by line."""
    tree = ast.parse(Path(cm.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    stated = [(alias.name, alias.asname, node.module) for node in imports for alias in node.names]
    assert [name for name, _, _ in stated] == list(cm._MODULE_OF)  # none is lost or occurs twice
    assert stated == [(name, name, module) for name, module in cm._MODULE_OF.items()]
    assert dir(cm) == sorted([*cm._MODULE_OF, "__version__"])


@pytest.mark.parametrize("name", sorted(set(cm.__all__) - {"__version__"}))
def test_every_public_name_and_method_is_explained(name: str) -> None:
    thing = getattr(cm, name)
    assert inspect.getdoc(thing)
    if isinstance(thing, type):
        methods = {n for n, m in vars(thing).items() if callable(m) or isinstance(m, property)}
        for method in sorted(n for n in methods if not n.startswith("_")):
            assert inspect.getdoc(getattr(thing, method)), f"{name}.{method}"


def test_the_site_explains_every_public_name_once() -> None:
    pages = sorted((ROOT / "docs" / "api").glob("*.md"))
    shown = [
        line.removeprefix("::: cvxmdp.").strip()
        for page in pages
        for line in page.read_text("utf-8").splitlines()
        if line.startswith(":::")
    ]
    assert sorted(shown) == sorted(set(cm.__all__) - {"__version__"})


def test_every_page_of_the_site_can_be_found() -> None:
    """mkdocs.yml lists each page once; its first one is the README."""
    listed = re.findall(
        r"([\w/-]+\.md)\b", (ROOT / "mkdocs.yml").read_text("utf-8").partition("nav:")[2]
    )
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    assert sorted(listed) == sorted(pages | {"index.md"})


def test_every_error_can_be_caught_by_name() -> None:
    """What cvxmdp raises on purpose stands in one module, below one class, and at the front door."""
    kinds = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    for name, kind in kinds.items():
        assert getattr(cm, name) is kind
        assert issubclass(kind, cm.CvxmdpError | cm.CvxmdpWarning)


def test_the_version_is_the_one_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert cm.__version__ == project["version"]


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="Did you mean gridworld"):
        _ = cm.gridwrld
    with pytest.raises(AttributeError, match=r"has no attribute 'q'\.$"):
        _ = cm.q


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"pip install 'cvxmdp\[gym\]'"):
        cm.from_gymnasium_table("FrozenLake-v1", 0.9)
