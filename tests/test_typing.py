"""A user's code under ``mypy --strict``: what the README shows passes without a cast and without ``Any``.

``assert_type`` in those files pins what must not become ``Any``, which would pass everything.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USER_CODE = sorted((ROOT / "tests" / "typing_user_code").glob("*.py"))
ALLOWED = "[mypy]\nstrict = true\n"  # no exceptions: not even for packages without types


@pytest.mark.parametrize("path", USER_CODE, ids=lambda path: path.stem)
def test_user_code_takes_no_way_round_the_checker(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "type: ignore" not in text
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    assert not names & {"cast", "Any"}


def test_user_code_passes_strict_type_checking(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(ALLOWED, "utf-8")
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            f"--config-file={tmp_path / 'mypy.ini'}",
            f"--cache-dir={ROOT / '.mypy_cache' / 'user_code'}",
            *map(str, USER_CODE),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert f"no issues found in {len(USER_CODE)} source files" in finished.stdout
