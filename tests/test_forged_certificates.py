"""Every claim, number of the evidence and note changed, in every horizon: accepted only if still true."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.jsonable import encode_array
from cvxmdp.checker.certificate_document import decode, evidence_digest

pytest.importorskip("flint")
pytestmark = pytest.mark.filterwarnings("ignore")  # a forger's numbers overflow

HORIZONS: dict[str, dict[str, Any]] = {
    "discounted": {"discount": 0.9},
    "total": {"discount": 1.0},
    "finite": {"horizon": 3},
    "average": {"average": True},
}
NUMBERS = [
    lambda x: x - 1e-3 * (1 + abs(x)),
    lambda x: x + 1e-3 * (1 + abs(x)),
    lambda x: -x,
    lambda x: 0.0,
    lambda x: 1e300,
    lambda x: "inf",
    lambda x: "-inf",
    lambda x: "nan",
    lambda x: None,
    lambda x: [x],
    lambda x: "a word",
]
ARRAYS = [
    lambda a: a + 1e-2 * (1 + np.abs(a).max(initial=0.0)),
    lambda a: a - 1e-2 * (1 + np.abs(a).max(initial=0.0)),
    lambda a: 0.0 * a,
    lambda a: -a,
    lambda a: np.roll(a, 1, axis=-1) if a.ndim else a + 1,
    lambda a: np.full(a.shape, np.nan),
    lambda a: np.full(a.shape, 1e308),
    lambda a: np.append(a.ravel(), 1.0),
]


def asked(horizon: str, feasible: bool = True) -> cm.Problem:
    random = np.random.default_rng(7)
    rows = random.dirichlet(np.ones(3), size=(3, 2)) * (0.8 if horizon == "total" else 1.0)
    signals = {name: random.random((3, 2)) for name in ("reward", "cost")}
    mdp = cm.TabularMDP(rows, [0.5, 0.5, 0.0], signals=signals, **HORIZONS[horizon])
    used = cm.Problem(mdp, minimize=cm.linear("cost")).evaluate(cm.uniform_policy(mdp)).objective
    limits = {
        "cost": cm.linear("cost") <= (0.95 if feasible else 0.1) * used,
        "near": cm.distance(cm.uniform_policy(mdp), norm="l2") <= 0.5 * used,
    }
    utility = cm.entropy() + cm.linear("reward")
    return cm.Problem(mdp, maximize=utility, subject_to=limits)


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """The paths of all numbers, words and arrays, and whether they are arrays."""
    if isinstance(tree, dict) and set(tree) == {"shape", "float64"}:
        yield path, True
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield from leaves(value, (*path, name))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from leaves(value, (*path, index))
    elif tree is not None:
        yield path, False


def forgeries(honest: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Copies of a document with one thing changed, and a fresh checksum."""
    for path, array in leaves(honest):
        for number, change in enumerate(ARRAYS if array else NUMBERS):
            other = copy.deepcopy(honest)
            holder = other
            for step in path[:-1]:
                holder = holder[step]
            old = holder[path[-1]]
            if array:
                holder[path[-1]] = encode_array(change(decode(old)))
            else:
                known = isinstance(old, int | float) and not isinstance(old, bool)
                holder[path[-1]] = change(old if known else 1.0)
            if path[0] != "evidence_sha256":
                other["evidence_sha256"] = evidence_digest(other["evidence"])
            yield f"{'/'.join(map(str, path))}, change {number}", other


def untrue(
    document: dict[str, Any], problem: cm.Problem, honest: cm.Certificate, feasible: bool
) -> str:
    """What an accepted document claims and is not so; empty where all of it is."""
    claims, evidence = document["claims"], document["evidence"]
    if claims["infeasible"]:
        least = min(problem.evaluate(cm.uniform_policy(problem.mdp)).slack.values())
        return "infeasible" if feasible or float(claims["slack_bound"]) < least else ""
    if not feasible:
        return "feasible"
    slop = 1e-9
    if float(claims["upper"]) < honest.lower - slop:
        return "upper"
    if evidence["policy"] is None:
        return "" if float(claims["lower"]) == -math.inf else "lower"
    table = decode(evidence["policy"])
    policy = cm.TabularPolicy(table) if table.ndim == 2 else cm.TimedPolicy(table)
    reached = problem.evaluate(policy)
    if float(claims["lower"]) > reached.objective + slop:
        return "lower"
    wrong = [n for n, s in claims["slack"].items() if float(s) > reached.slack[n] + slop]
    return f"slack of {wrong[0]}" if wrong else ""


@pytest.mark.parametrize("feasible", [True, False], ids=["bounds", "infeasible"])
@pytest.mark.parametrize("horizon", HORIZONS)
def test_what_is_accepted_is_true(horizon: str, feasible: bool, tmp_path: Path) -> None:
    problem = asked(horizon, feasible)
    certificate = cm.certify(problem, cm.solve(problem))
    assert certificate.infeasible is not feasible
    honest, file = json.loads(certificate.to_json()), tmp_path / "certificate.json"
    counts = {True: 0, False: 0}
    for place, (said, document) in enumerate(forgeries(honest)):
        file.write_text(json.dumps(document))
        found = cm.check(file, problem, exact=place % 5 == 0, progress=False)
        counts[bool(found)] += 1
        if found:
            assert not untrue(document, problem, certificate, feasible), said
    print(f"{horizon}: {counts[False]} forgeries refused, {counts[True]} accepted and true")
    assert counts[False] > counts[True] > 0  # notes may say anything
