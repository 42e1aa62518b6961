"""``import cvxmdp`` is cheap: heavy and optional packages wait until they are used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import cvxmdp as cm

OPTIONAL = {"cvxpy", "gymnasium", "matplotlib", "plotly", "equinox", "optax", "typer", "pyarrow"}
REPORT = "\nimport json, sys; print(json.dumps(sorted(sys.modules)))"


def modules_after(code: str) -> set[str]:
    finished = subprocess.run(
        [sys.executable, "-c", code + REPORT], capture_output=True, text=True, check=True
    )
    return set(json.loads(finished.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import cvxmdp",
        "import cvxmdp as cm; cm.gridworld(4, slip=0.1, goal=15)",
        "import cvxmdp as cm; mdp = cm.gridworld(4); cm.occupancy_of(mdp, cm.uniform_policy(mdp))",
        "import cvxmdp as cm; cm.garnet(5, 2, 2, seed=0)",
        "import cvxmdp as cm; cm.Problem(cm.gridworld(4), maximize=cm.entropy())",
    ],
)
def test_optional_packages_are_not_imported(code: str) -> None:
    assert not OPTIONAL & modules_after(code)


def test_import_alone_loads_no_numerical_package() -> None:
    modules = modules_after("import cvxmdp")
    assert "cvxmdp" in modules
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


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="Did you mean gridworld"):
        _ = cm.gridwrld


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"pip install 'cvxmdp\[gym\]'"):
        cm.from_gymnasium_table("FrozenLake-v1", 0.9)
