"""The order of the rooms: every import of the source is read, none is run (CONTRIBUTING has the picture)."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "cvxmdp"
# From the ground up: a module imports from its own room and from rooms before it in this list.
ROOMS = (
    "checker",
    "base",
    "models",
    "policies",
    "atoms",
    "problems",
    "experience",
    "algorithms",
    "certificates",
    "theory",
    "solvers",
    "runs",
    "reports",
    "paper",
    "cli",
)
CLAIMANTS = {
    "certificates",
    "runs",
    "cli",
}  # who claims, saves and loads, and so may ask the checker
CORE = {"numpy", "scipy", "jax", "safetensors"}  # always there: nothing is gained by hiding them
FRONT = "__init__"
# What still points the wrong way or hides. This list only shrinks.
OFFENDERS: set[str] = set()


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """The source, read once."""
    return {path: ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}


def _statements(node: ast.AST, lazy: bool = False) -> Iterator[tuple[ast.stmt, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, lazy
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _statements(child, lazy or inside)


def _named(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        assert statement.level == 0, "imports are written out"
        for alias in statement.names:
            inner = f"{statement.module}.{alias.name}"
            path = ROOT.parent / inner.replace(".", "/")
            is_module = path.with_suffix(".py").exists() or path.is_dir()
            yield inner if is_module else str(statement.module)


def _wrong(room: str, module: str, lazy: bool) -> bool:
    top, _, rest = module.partition(".")
    if top != "cvxmdp":
        return lazy and top in CORE and room != "cli"
    target = rest.partition(".")[0] or FRONT
    if room == "cli":
        return target == FRONT
    if lazy or target == FRONT:
        return True
    if target == "checker" and room not in CLAIMANTS | {"checker"}:
        return True
    return ROOMS.index(target) > ROOMS.index(room)


@functools.cache
def offenders() -> set[str]:
    """``file module`` of every import that breaks the rule."""
    found = set()
    for path, tree in trees().items():
        file = path.relative_to(ROOT)
        if len(file.parts) == 1:  # the front door may name every room
            continue
        for statement, lazy in _statements(tree):
            for module in _named(statement):
                if _wrong(file.parts[0], module, lazy):
                    found.add(f"{file.as_posix()} {module}")
    return found


def test_rooms_are_the_ones_in_the_list() -> None:
    assert {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()} == set(ROOMS)


def test_no_new_import_points_the_wrong_way() -> None:
    assert offenders() - OFFENDERS == set()


def test_the_list_of_offenders_only_shrinks() -> None:
    assert OFFENDERS - offenders() == set(), "mended: take it off the list"


def test_module_names_occur_once() -> None:
    names = [path.stem for path in ROOT.rglob("*.py") if not path.stem.startswith("__")]
    assert sorted({name for name in names if names.count(name) > 1}) == []


# Public classes that still share their name with another. This list only shrinks.
NAMESAKES: set[str] = set()


def test_class_names_occur_once() -> None:
    names = [
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    twice = {name for name in names if names.count(name) > 1}
    assert twice - NAMESAKES == set(), "a class has a name of its own"
    assert NAMESAKES - twice == set(), "mended: take it off the list"


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """``file:line`` and every function and method of the source."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield f"{path.relative_to(ROOT).as_posix()}:{node.lineno}", node


def body_of(function: ast.FunctionDef) -> list[ast.stmt]:
    has_words = ast.get_docstring(function, clean=False) is not None
    return function.body[has_words:]


def test_no_function_stands_twice() -> None:
    """Of three lines or more; names inside count, so that it is the same code and no mere likeness."""
    places: dict[str, list[str]] = {}
    for place, function in functions():
        text = "\n".join(ast.unparse(statement) for statement in body_of(function))
        if text.count("\n") >= 2:
            places.setdefault(text, []).append(place)
    assert [where for where in places.values() if len(where) > 1] == []


# Called by others: notebooks, Typer, pickle, users (``docs/command-line.md``).
CALLED_ELSEWHERE = {"_repr_html_", "_repr_png_", "introduction", "occupancy_by_time"} | {
    "persistent_id",
    "persistent_load",
    "save_run",
}


def test_everything_is_used() -> None:
    """What is defined is named somewhere else in the source, or public; tests alone are no reason to be."""
    public = (ROOT / "__init__.pyi").read_text("utf-8")
    words = re.findall(r"\w+", "\n".join(path.read_text("utf-8") for path in trees()) + public)
    times = Counter(words)
    defined = Counter(
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    )
    unused = {name for name, count in defined.items() if times[name] <= count}
    assert {name for name in unused if not name.startswith("__")} == CALLED_ELSEWHERE


def test_constants_are_used() -> None:
    """By their own module, or by one that imports them."""
    texts = {path: path.read_text("utf-8") for path in trees()}
    imported = {
        (node.module, alias.name)
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for path, tree in trees().items():
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        targets = [
            one for node in tree.body if isinstance(node, ast.Assign) for one in node.targets
        ]
        names = {n.id for one in targets for n in ast.walk(one) if isinstance(n, ast.Name)}
        for name in names - {"__all__"}:
            here = len(re.findall(rf"\b{name}\b", texts[path])) > 1
            assert here or (module, name) in imported, f"{module}.{name} is used by nobody"


def test_functions_read_their_arguments() -> None:
    """But those inside others, which have the form that is asked of them, and methods."""
    for path, tree in trees().items():
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and not function.decorator_list:
                names = {n.id for part in function.body for n in ast.walk(part) if hasattr(n, "id")}
                given = function.args.args + function.args.kwonlyargs
                idle = [a.arg for a in given if a.arg not in names and a.arg[0] != "_"]
                assert not idle, f"{path.relative_to(ROOT)}:{function.lineno}: {idle}"


CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
CHECKER = CONTRIBUTING.parent / "docs" / "checker.md"


def test_the_map_of_contributing_is_the_tree() -> None:
    """The rooms of the picture in their order, and every file that it or its table names."""
    text = CONTRIBUTING.read_text("utf-8")
    picture = re.findall(r"^  (\w+)/  ", text, re.MULTILINE)
    assert tuple(picture) == ROOMS
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text))
    places = (ROOT, ROOT.parent, ROOT.parents[1])
    missing = [
        name
        for name in named
        if "NAME" not in name and not any((p / name).exists() for p in places)
    ]
    assert missing == []


@pytest.mark.parametrize(("page", "folder"), [(CONTRIBUTING, ROOT), (CHECKER, ROOT / "checker")])
def test_pages_know_how_many_lines_there_are(page: Path, folder: Path) -> None:
    said = int(re.findall(r"has ([\d,]+) lines", page.read_text("utf-8"))[0].replace(",", ""))
    there = sum(len(path.read_text("utf-8").splitlines()) for path in folder.rglob("*.py"))
    assert said == pytest.approx(there, rel=0.04)


def test_files_that_the_docs_name_are_there() -> None:
    root = CONTRIBUTING.parent
    places = (root, ROOT, root / "docs")
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        for name in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text("utf-8")):
            assert any((place / name).is_file() for place in places), f"{page.name}: {name}"


def test_slow_tests_are_there() -> None:
    tests = Path(__file__).parent
    for name in (tests / "slow_tests.txt").read_text("utf-8").split():
        file, _, function = name.partition("::")
        found = (tests / file).is_file() and f"def {function}(" in (tests / file).read_text("utf-8")
        assert found, f"{name} is in slow_tests.txt alone"


@functools.cache
def _names_of(path: Path) -> set[str]:
    """Names that a file defines or imports, and files of its folder where it is a package."""
    found = {one.stem for one in path.parent.glob("*")} if path.name == "__init__.py" else set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {one.asname or one.name for one in node.names}
    return found


def test_what_scripts_import_is_there() -> None:
    """No test runs benchmarks: what they take from elsewhere may move away unnoticed."""
    folders = [ROOT.parents[1] / name for name in ("benchmarks", "examples")]
    known = {path.stem: path for folder in folders for path in folder.glob("*.py")}
    scripts = list(known.values())
    assert len(scripts) > 40
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        known[".".join(part for part in parts if part != "__init__")] = path
    missing = [
        f"{script.name}: {node.module}.{one.name}"
        for script in scripts
        for node in ast.walk(ast.parse(script.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        if node.module in known or node.module.startswith("cvxmdp.")
        for one in node.names
        if node.module not in known or one.name not in _names_of(known[node.module])
    ]
    assert missing == []
