"""Policies as commands take and give them: a run's folder, a saved policy, or a table of numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cvxmdp.base.errors import FileFormatError, did_you_mean
from cvxmdp.base.storage import require_file, whole_file
from cvxmdp.policies import Policy, TabularPolicy, load_policy
from cvxmdp.policies.tables import table_of
from cvxmdp.runs.run_folder import MANIFEST, read_run
from cvxmdp.runs.specs.array_specs import ArrayFolder

FORMATS = (".csv", ".json", ".npz", ".safetensors")


def read_policy(given: str) -> tuple[Policy, tuple[str, ...] | None]:
    """The policy that is meant, and the names of its actions where they are known.

    Args:
        given: a run's folder; a file that cvxmdp wrote; or a csv, json, npy or npz file with the (S, A)
            probabilities (``file.npz#name`` where it holds several arrays).
    """
    path = Path(given.partition("#")[0])
    if (path / MANIFEST).is_file():
        record = read_run(path)
        if record.policy is None:
            raise FileFormatError(f"{path} holds no policy: {record.message}")
        return record.policy, record.action_names
    if path.is_dir():
        raise FileFormatError(f"{path} is not a run: it has no {MANIFEST}")
    if path.suffix == ".json":
        return _read_json(path)
    if path.suffix == ".safetensors" and "#" not in given:
        return load_policy(path), None
    name = Path(given).name  # the part after # stays with it
    return TabularPolicy(np.atleast_2d(ArrayFolder(path.parent).array(name))), None


def _read_json(path: Path) -> tuple[Policy, tuple[str, ...] | None]:
    try:
        document = json.loads(require_file(path).read_text("utf-8"))
        names = document["actions"]
        policy = TabularPolicy(document["probabilities"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{path} does not hold a policy: {error}") from error
    return policy, None if names is None else tuple(str(name) for name in names)


def write_policy(policy: Policy, names: tuple[str, ...] | None, path: Path) -> None:
    """Write a policy in the format of the file's ending, whole or not at all."""
    if path.suffix not in FORMATS:
        raise FileFormatError(
            f"cannot write {path.name!r}: give a file that ends in {', '.join(FORMATS)}. "
            f"{did_you_mean(path.suffix, FORMATS)}"
        )
    if path.suffix == ".safetensors":
        policy.save(path)
        return
    matrix = table_of(policy)
    if matrix is None:
        raise FileFormatError(
            f"{policy!r} acts on observations and has no table of probabilities: export it as .safetensors"
        )
    with whole_file(path) as temporary:
        if path.suffix == ".csv":
            header = ",".join(names) if names else f"{matrix.shape[1]} actions, a row per state"
            np.savetxt(temporary, matrix, delimiter=",", fmt="%.17g", header=header)
        elif path.suffix == ".npz":
            with temporary.open("wb") as file:
                np.savez_compressed(file, probabilities=matrix)
        else:
            document = {"actions": names, "probabilities": matrix.tolist()}
            temporary.write_text(json.dumps(document, indent=1), "utf-8")
