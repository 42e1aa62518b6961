"""Do two versions of cvxmdp give the same answers? 356 small problems of all kinds.

    python benchmarks/equal_answers.py record FOLDER    # with the old version
    python benchmarks/equal_answers.py compare FOLDER   # with the new one

``record`` writes one NPZ file per problem and skips those that are there. ``compare`` computes all of
them again and lists every number that differs by more than 1e-9 of the size of its quantity, every
status and every kind of error that is another one; then it exits with 1. Words (messages, what is
printed) that differ are only listed. Times are left out. Only public names are used, so that the file
runs on both sides of a refactoring. Set JAX_COMPILATION_CACHE_DIR to compile once only.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import io
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import numpy as np

import cvxmdp as cm
from equal_problems import all_cases

CASES = all_cases()
Facts = dict[str, np.ndarray]
RELATIVE, ABSOLUTE = 1e-9, 1e-12  # beyond the first, and not rounding of a zero: a difference
WORDS = "words of "  # begins the names of what may differ
SHOWN = 40  # characters of a value in the table
LEFT_OUT = ("seconds", "chosen")  # times, and the reason for a solver in words
ATTRIBUTES = {
    "Solution": "status objective slack multipliers policy occupancy history stats message",
    "Certificate": "upper lower gap relative_gap policy slack given_slack repaired repair_share "
    "multipliers infeasible conflict slack_bound uniform sense fingerprint contradicts message",
    "Slater": "policy margins margin margin_bound objective objective_bound dual_bound conflict "
    "weights exists infeasible message",
    "Check": "accepted upper lower message",
    "Frontier": "points infeasible_until feasible_from free_from free_gap message",
    "PolicyEvaluation": "objective slack feasible confidence episodes steps horizon truncated "
    "truncation occupancy message",
    "Demonstrations": "occupancy episodes truncated discount message",
    "TabularMDP": "n_states n_actions initial discount signals actions ending reachable message",
}
# Of what has no public class: the intervals of evaluate, the points of a frontier.
FURTHER = ("value lower upper method proven", "budget solution certificate")


def facts(answer: Any, name: str = "answer") -> Iterator[tuple[str, np.ndarray]]:
    """Every number and text of an answer, by name."""
    if name.endswith("/message"):
        yield WORDS + name, np.array(str(answer))
    elif answer is None or isinstance(answer, str | bool | int | float | np.generic):
        yield name, np.array("nothing" if answer is None else answer)
    elif isinstance(answer, np.ndarray):
        yield name, answer
    else:
        for part, value in parts_of(answer).items():
            if not any(word in str(part) for word in LEFT_OUT):
                yield from facts(value, f"{name}/{part}")


def part_of(answer: Any, part: str) -> Any:
    """An attribute, or None where there is none, as the policy of an infeasible problem."""
    return getattr(
        answer,
        f"{part}_or_none"
        if hasattr(type(answer), f"{part}_or_none")
        or f"{part}_or_none" in getattr(answer, "__dict__", {})
        else part,
        None,
    )


def parts_of(answer: Any) -> dict[Any, Any]:
    """What an answer consists of, by name."""
    if isinstance(answer, Mapping):
        return dict(answer)
    if isinstance(answer, list | tuple):
        return {"count": len(answer), **dict(enumerate(answer))}
    if isinstance(answer, cm.Status):
        return {"name": answer.name}
    if isinstance(answer, cm.Sweep):
        return {place: [run.settings, run.seed, run.solution] for place, run in enumerate(answer)}
    known = [names for kind, names in ATTRIBUTES.items() if isinstance(answer, getattr(cm, kind))]
    for names in (*known, *FURTHER):
        if known or all(hasattr(answer, part) for part in names.split()):
            found = {part: part_of(answer, part) for part in names.split()}
            if "message" in found:  # the solution's own, or what is printed
                found["message"] = found["message"] or str(answer)
            table = isinstance(answer, cm.TabularMDP)
            return {**found, "transition": answer.dense_transition()} if table else found
    if isinstance(answer, cm.Policy):
        return {"probabilities": answer.probabilities(), "type": type(answer).__name__}
    if hasattr(answer, "__array__"):
        return {"array": np.asarray(answer)}
    leaves = jax.tree.leaves(getattr(answer, "params", answer))  # of a network
    arrays = [np.asarray(leaf) for leaf in leaves if hasattr(leaf, "__array__")]
    return {"type": type(answer).__name__, "arrays": arrays}


def answer_of(name: str) -> Facts:
    """Compute a problem's answer in an empty folder; an error is an answer, too."""
    before = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as scratch,
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        os.chdir(scratch)
        try:
            return dict(facts(CASES[name]()))
        except Exception as error:
            kinds = {"kind": type(error).__name__, "message": str(error)}
            return dict(facts(kinds, "error"))
        finally:
            os.chdir(before)


def record(folder: Path, name: str) -> list[tuple[str, ...]]:
    """Write a problem's answer, whole or not at all; returns what is worth showing."""
    place = folder / f"{name}.npz"
    if not place.exists():
        found = answer_of(name)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".part", delete=False) as file:
            np.savez_compressed(file, **{key.replace("/", "|"): found[key] for key in found})
        Path(file.name).replace(place)
        if "error/kind" in found and not name.startswith("error/"):
            return [(name, str(found["error/kind"]), str(found[f"{WORDS}error/message"]))]
    return []


def compare(folder: Path, name: str) -> list[tuple[str, ...]]:
    """What differs from the recording: rows of problem, quantity, recorded, now, difference."""
    place = folder / f"{name}.npz"
    if not place.exists():
        return [(name, "everything", "not recorded", "", "")]
    with np.load(place, allow_pickle=False) as file:
        before = {key.replace("|", "/"): file[key] for key in file.files}
    now = answer_of(name)
    rows = []
    for key in (*before, *(key for key in now if key not in before)):
        missing = np.array("(missing)")
        old, new = before.get(key, missing), now.get(key, missing)
        difference = apart(old, new)
        if difference:
            rows.append((name, key, shown_value(old), shown_value(new), difference))
    return rows


def apart(old: np.ndarray, new: np.ndarray) -> str:
    """How two values differ, in words; empty where they do not."""
    if old.shape != new.shape:
        return f"shape {old.shape}, now {new.shape}"
    if old.dtype.kind in "US" or new.dtype.kind in "US":
        return "" if np.array_equal(old.astype(str), new.astype(str)) else "another text"
    if np.array_equal(old, new, equal_nan=old.dtype.kind == "f" == new.dtype.kind):
        return ""
    one, other = old.astype(np.float64), new.astype(np.float64)
    usual = np.isfinite(one) & np.isfinite(other)
    if not np.array_equal(one[~usual], other[~usual], equal_nan=True):
        return "not finite in another place"
    size = float(np.abs(np.concatenate([one[usual], other[usual]])).max())
    error = float(np.abs(one[usual] - other[usual]).max())
    return f"{error / size:.1e} relative" if error > max(RELATIVE * size, ABSOLUTE) else ""


def shown_value(value: np.ndarray) -> str:
    """A value in a cell of the table."""
    text = str(value) if value.size == 1 else f"array {value.shape}, sum {np.nansum(value):.12g}"
    return " ".join(text.split())[:SHOWN]


def run(action: Callable[[str], Any], names: list[str], jobs: int) -> Iterator[Any]:
    """Apply an action to all names, in processes if there are several, with a line for each."""
    context = multiprocessing.get_context("spawn")
    pool = context.Pool(jobs) if jobs > 1 else contextlib.nullcontext()
    with pool:
        results = pool.imap(action, names) if jobs > 1 else map(action, names)
        for number, name in enumerate(names, 1):
            started = time.perf_counter()
            rows = next(results)
            seconds = time.perf_counter() - started
            print(f"{number:>4}/{len(names)} {seconds:6.2f} s  {name}", file=sys.stderr, flush=True)
            yield rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="part of a name; * is allowed"
    )
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    names = [name for name in CASES if fnmatch.fnmatch(name, f"*{options.only}*")]
    folder, started = options.folder.resolve(), time.perf_counter()
    action = partial({"record": record, "compare": compare}[options.action], folder)
    rows: list[tuple[str, ...]] = []
    for found in run(action, names, options.jobs):
        rows += found
        for row in found:
            print("| " + " | ".join(row) + " |", flush=True)
    failing = [row for row in rows if not row[1].startswith(WORDS)]
    print(f"{len(names)} problems in {time.perf_counter() - started:.0f} s", end="")
    if options.action == "record":
        print(f", of which {len(failing)} ended in an error that is no mistake of the user's")
        return 0
    broken = {row[0] for row in failing}
    print(f", {len(broken)} with other answers; {len(rows) - len(failing)} differences in words")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
