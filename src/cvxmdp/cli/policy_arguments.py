"""Policies as commands take and give them: a run's folder, a saved policy, or a table of numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cvxmdp.base.errors import FileFormatError, reading
from cvxmdp.base.storage import require_file
from cvxmdp.base.table_files import WRITERS, Columns, read_columns, write_columns
from cvxmdp.cli.outcome import require_place
from cvxmdp.policies import Policy, TabularPolicy, load_policy
from cvxmdp.policies.policy import ENDING
from cvxmdp.policies.policy_file import policy_of_columns
from cvxmdp.problems.solution import load_solution
from cvxmdp.problems.solution_folder import DOCUMENT, read_solution
from cvxmdp.runs.run_folder import MANIFEST, read_run
from cvxmdp.runs.specs.array_specs import ArrayFolder

FORMATS = (*WRITERS, ".npz", ENDING, ".onnx")


def read_policy(given: str) -> Policy:
    """The policy that is meant, with the names that are known.

    Args:
        given: the folder of a run or of a solution; a file that cvxmdp wrote; a csv, json or Parquet file with
            the columns state, action and probability; or a csv, json, npy or npz file with the (S, A)
            probabilities (``file.npz#name`` where it holds several arrays).
    """
    path = Path(given.partition("#")[0])
    if (path / MANIFEST).is_file() or (path / DOCUMENT).is_file():
        return _kept_policy(path)
    if path.is_dir():
        raise FileFormatError(f"{path} is not a run: it has neither {MANIFEST} nor {DOCUMENT}")
    if path.suffix in WRITERS and not _is_array(path):
        return policy_of_columns(read_columns(path), str(path))
    if path.suffix == ".json":
        return _read_json(path)
    if path.suffix == ENDING and "#" not in given:
        found: Policy = load_policy(path)
        return found
    name = Path(given).name  # the part after # stays with it
    return TabularPolicy(np.atleast_2d(ArrayFolder(path.parent).array(name)))


def _kept_policy(folder: Path) -> Policy:
    """The policy of a run, or of what ``solve(folder=)`` and ``Solution.save`` wrote."""
    if (folder / MANIFEST).is_file():
        record = read_run(folder)
        policy, message = record.policy, record.message
    else:
        found = read_solution(folder)
        policy, message = found["policy_or_none"], found["message"]
    if policy is None:
        raise FileFormatError(f"{folder} holds no policy: {message}")
    return policy


def _is_array(path: Path) -> bool:
    """Whether a csv or json file holds the probabilities alone, a row per state."""
    if path.suffix not in (".csv", ".json"):
        return False
    with require_file(path).open(encoding="utf-8", errors="replace") as file:
        start = file.read(65536)
    if path.suffix == ".json":
        return '"probabilities"' in start
    return "probability" not in start.partition("\n")[0]


def _read_json(path: Path) -> TabularPolicy:
    with reading(f"{path} does not hold a policy"):
        document = json.loads(require_file(path).read_text("utf-8"))
        policy = TabularPolicy(document["probabilities"])
        return policy.named(None, document.get("actions"))


def write_policy(policy: Policy, path: Path, columns: Columns | None = None) -> None:
    """Write a policy in the format of the file's ending, whole or not at all.

    Args:
        policy: what acts.
        path: the file.
        columns: a table that says more of it than the policy can (``solution.columns()``).
    """
    require_place(path, FORMATS)
    table = getattr(policy, "table", policy)
    if path.suffix == ENDING:
        policy.save(path)
    elif path.suffix == ".onnx":
        policy.to_onnx(path)
    elif not isinstance(table, TabularPolicy):
        raise FileFormatError(
            f"{policy!r} acts on observations and has no table of probabilities: export it as {ENDING}, or as "
            ".onnx where it is a network"
        )
    elif path.suffix in WRITERS and columns is not None:
        write_columns(path, columns)
    else:
        table.save(path)


def known_columns(given: str) -> Columns | None:
    """All that a run's folder says of its policy, pair by pair; None where there is no model beside it."""
    if not (Path(given) / DOCUMENT).is_file() or not (Path(given) / "problem.json").is_file():
        return None
    solution = load_solution(given)
    return solution.columns() if solution.has_policy else None
