"""Problems in folders: ``Problem.save`` and ``load_problem``.

    problem.json           the problem in words; its functions as plain data, which the checker reads, and as
                           the user wrote them, which are read back
    problem.safetensors    the model and every array of the functions

Reading executes nothing. What is read back is lowered again and compared with the plain data, so that what is
solved is what a checker checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from cvxmdp.atoms.utility import Utility
from cvxmdp.atoms.written import WrittenReader, written, written_constraint
from cvxmdp.base.errors import CvxmdpError, FileFormatError, reading
from cvxmdp.base.storage import read_arrays, read_document, write_arrays, write_document
from cvxmdp.models.horizon import HORIZON_ARGUMENTS
from cvxmdp.models.model_file import model_from_parts, model_parts
from cvxmdp.models.table import TabularMDP
from cvxmdp.problems.lowered import PROBLEM_FORMAT, Lowered

if TYPE_CHECKING:
    from cvxmdp.problems.problem import Problem

DOCUMENT, ARRAYS = "problem.json", "problem.safetensors"
SAME = 1e-9  # relative: what another machine's rounding may change in a target's occupancy
FUNCTION = "function/"  # begins the names of arrays of functions

Arrays = dict[str, np.ndarray]


def write_problem(folder: str | Path, problem: Problem) -> None:
    """Write a problem into a folder, which is made if it is not there."""
    problem.require_model("saving a problem")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    plain = Lowered(problem).plain()
    arrays, model = model_parts(problem.mdp.arguments())
    # Names of constraints are a user's own words: they never pass for the words of ``pack``.
    constraints = {
        name: pack(written_constraint(constraint), arrays)
        for name, constraint in problem.constraints.items()
    }
    said = ("sense", "statement", "note", *HORIZON_ARGUMENTS)
    kept = {name: plain[name] for name in said if name in plain}
    document = {
        "format": PROBLEM_FORMAT,
        **kept,
        "model": model,
        "objective": pack(plain["objective"], arrays),
        "slacks": {name: pack(tree, arrays) for name, tree in plain["slacks"].items()},
        "written": {"utility": pack(written(problem.utility), arrays), "constraints": constraints},
    }
    if "uncertainty" in plain:
        document["uncertainty"] = pack(plain["uncertainty"], arrays)
    write_arrays(place / ARRAYS, "problem", arrays, {})
    write_document(place / DOCUMENT, document)


def read_problem(
    folder: str | Path, make: Callable[..., Problem], functions: Mapping[str, Utility]
) -> Problem:
    """The problem that ``write_problem`` wrote, made by its constructor."""
    place = Path(folder)
    document = read_document(place / DOCUMENT, PROBLEM_FORMAT, "Problem.save")
    arrays, _ = read_arrays(place / ARRAYS, "problem")
    with reading(f"{place} does not hold a whole problem", ours=CvxmdpError):
        model = model_from_parts(arrays, document["model"], TabularMDP)
        asked, reader = document["written"], WrittenReader(functions)
        utility = reader.utility(unpack(asked["utility"], arrays))
        constraints = {
            name: reader.constraint(unpack(tree, arrays))
            for name, tree in asked["constraints"].items()
        }
        problem = make(model, **{document["sense"]: utility}, subject_to=constraints)
        plain = Lowered(problem).plain()
        same = _same_functions(document, arrays, plain)
    if not same:
        raise FileFormatError(
            f"{place}: the functions as written and their numbers differ; somebody changed one of them"
        )
    return problem


def _same_functions(document: dict[str, Any], arrays: Arrays, plain: Mapping[str, Any]) -> bool:
    saved, slacks = document["slacks"], plain["slacks"]
    return (
        list(saved) == list(slacks)
        and alike(unpack(document["objective"], arrays), plain["objective"])
        and all(alike(unpack(saved[name], arrays), slacks[name]) for name in slacks)
    )


def _kept(tree: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared and written of a table: all but the function itself that a custom shape holds."""
    own = tree.get("kind") == "custom"
    return {name: value for name, value in tree.items() if not (own and name == "function")}


def pack(tree: Any, arrays: Arrays) -> Any:
    """Plain data with its arrays put aside: each leaves its name."""
    if isinstance(tree, Mapping):
        return {name: pack(value, arrays) for name, value in _kept(tree).items()}
    if isinstance(tree, list | tuple):
        return [pack(value, arrays) for value in tree]
    if sp.issparse(tree):
        matrix = sp.csr_array(tree)
        name = f"{FUNCTION}{len(arrays)}"
        for part in ("data", "indices", "indptr"):
            arrays[f"{name}/{part}"] = getattr(matrix, part)
        return {"sparse": name, "shape": list(matrix.shape)}
    if isinstance(tree, np.ndarray):
        name = f"{FUNCTION}{len(arrays)}"
        arrays[name] = tree
        return {"array": name}
    return tree


def unpack(tree: Any, arrays: Arrays) -> Any:
    """The inverse of ``pack``."""
    if isinstance(tree, dict) and set(tree) == {"array"}:
        return arrays[tree["array"]]
    if isinstance(tree, dict) and set(tree) == {"sparse", "shape"}:
        parts = tuple(arrays[f"{tree['sparse']}/{part}"] for part in ("data", "indices", "indptr"))
        matrix = sp.csr_array(parts, shape=tuple(tree["shape"]))
        matrix.check_format(full_check=True)
        return matrix
    if isinstance(tree, dict):
        return {name: unpack(value, arrays) for name, value in tree.items()}
    return [unpack(value, arrays) for value in tree] if isinstance(tree, list) else tree


def alike(first: Any, second: Any) -> bool:
    """Whether two trees of plain data say the same, up to rounding."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        one, other = _kept(first), _kept(second)
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(alike, first, second))
    if sp.issparse(first) and sp.issparse(second):
        if first.shape != second.shape:
            return False
        most = SAME * float(abs(second).max()) if second.nnz else 0.0
        difference = abs(first - second)
        return difference.nnz == 0 or float(difference.max()) <= most
    if isinstance(first, np.ndarray | float | int) and isinstance(second, np.ndarray | float | int):
        a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
        if a.shape != b.shape:
            return False
        finite = b[np.isfinite(b)]
        size = float(np.abs(finite).max(initial=0.0))
        return bool(np.allclose(a, b, rtol=0.0, atol=SAME * size))
    return isinstance(first, str | None) and isinstance(second, str | None) and first == second
