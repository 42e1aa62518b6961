"""Policies and solutions as tables: names, values, what is never visited; and the files they are kept in."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import FileFormatError, PolicyError
from cvxmdp.policies.observers import on_observations
from cvxmdp.problems.solution import Solution

HORIZONS = [{"discount": 0.9}, {"average": True}, {"horizon": 4}]


def machines(**horizon: object) -> cm.TabularMDP:
    """Three machines: their number of broken ones is the state; repairing before two are broken is enough."""

    def successors(broken: int, action: str):
        left = 0 if action == "repair all" else broken
        cost = 3.0 * (action == "repair all")
        worse = min(left + 1, 3)
        signals = {"reward": 3.0 - broken, "cost": cost}
        return [(0.5, left, signals), (0.5, worse, signals)]

    return cm.from_function(
        successors,
        initial=0,
        actions=["wait", "repair all"],
        **(horizon or {"discount": 0.9}),  # type: ignore[arg-type]
    )


def solved(mdp: cm.TabularMDP) -> Solution:
    reward = cm.linear("reward") - 0.5 * cm.linear("cost")
    return cm.solve(cm.Problem(mdp, maximize=reward))


@pytest.mark.parametrize("horizon", HORIZONS, ids=str)
def test_what_is_never_visited_gets_a_best_response(horizon: dict[str, object]) -> None:
    solution = solved(machines(**horizon))
    policy = solution.policy
    visited = solution.measured.sum(axis=1) > 0
    assert policy.fallback is not None
    np.testing.assert_array_equal(policy.fallback, ~visited)
    assert ((policy.rows == 0) | (policy.rows == 1)).all()
    table = solution.to_pandas()
    never = table[table.fallback]
    assert len(never)
    if "average" in horizon:  # all machines broken: it leads back to where the policy stays
        chain = solution.problem.mdp.flow.chain(policy.rows).toarray()
        reached = np.linalg.matrix_power(chain + np.eye(len(chain)), len(chain)) > 0
        assert reached[:, visited].any(axis=1).all()
    else:  # and nothing would be better once
        assert never.advantage.max() <= 1e-9
    assert cm.certify(solution.problem, solution).relative_gap <= 1e-8


def test_five_broken_machines_are_not_waited_for() -> None:
    policy = solved(machines()).policy
    assert policy.predict("3")[0] == 1
    assert "1 never visited" in repr(policy) or "2 never visited" in repr(policy)


@pytest.mark.parametrize("horizon", HORIZONS, ids=str)
def test_values_advantages_and_what_the_second_best_costs(horizon: dict[str, object]) -> None:
    solution = solved(machines(**horizon))
    mdp, table = solution.problem.mdp, solution.to_pandas()
    columns = ["time"] if "horizon" in horizon else []
    columns += ["state", "action", "probability", "randomises", "fallback", "share", "occupancy"]
    assert list(table.columns) == [*columns, "value", "advantage", "second_best_cost"]
    assert table.occupancy.sum() == pytest.approx(solution.occupancy.sum())
    taken = table[(table.probability > 0) & ~table.fallback]
    assert taken.advantage.abs().max() <= 1e-9
    # Taking the second best action once, in the first step of the start, costs what the table says.
    reward = mdp.signal("reward") - 0.5 * mdp.signal("cost")
    if "average" in horizon:
        return
    start = table[table.state.astype(str) == "0"].iloc[0]
    assert start.value == pytest.approx(solution.objective)
    later = table[table.time == 1] if "horizon" in horizon else table
    values = later.drop_duplicates("state").value.to_numpy()
    following = mdp.discount * mdp.dense_transition() @ values
    choices = np.sort((reward + following)[0])
    assert start.second_best_cost == pytest.approx(choices[-1] - choices[-2])


@pytest.mark.parametrize("horizon", HORIZONS, ids=str)
def test_states_out_of_reach_have_no_values_in_the_long_run(horizon: dict[str, object]) -> None:
    rows = np.random.default_rng(4).dirichlet(np.ones(5), (5, 2))
    rows[:3, :, 3:] = 0.0
    rows /= rows.sum(axis=2, keepdims=True)
    signals = {"reward": np.random.default_rng(5).random((5, 2))}
    mdp = cm.TabularMDP(rows, [1.0, 0, 0, 0, 0], signals=signals, **horizon)  # type: ignore[arg-type]
    table = cm.solve(cm.Problem(mdp, maximize=cm.linear("reward"))).to_pandas()
    names = ["value", "advantage", "second_best_cost"]
    far = table.state >= 3
    assert table[~far][names].notna().all().all()
    assert (table[far][names].isna() == ("average" in horizon)).all().all()


def test_a_minimised_cost_has_the_sign_of_the_user() -> None:
    mdp = machines()
    solution = cm.solve(cm.Problem(mdp, minimize=cm.linear("cost") - cm.linear("reward")))
    table = solution.to_pandas()
    assert table[table.state == "0"].value.iloc[0] == pytest.approx(solution.objective)
    assert table.advantage.max() <= 1e-9
    assert (table.second_best_cost >= 0).all()


@pytest.mark.parametrize("ending", [".csv", ".json", ".parquet", ".npz", ".safetensors", ""])
@pytest.mark.parametrize("horizon", [{"discount": 0.9}, {"horizon": 3}], ids=str)
def test_files_are_what_their_endings_say(tmp_path: Path, ending: str, horizon) -> None:
    policy = solved(machines(**horizon)).policy
    path = tmp_path / f"policy{ending}"
    policy.save(path)
    found = cm.load_policy(path)
    np.testing.assert_array_equal(found.probabilities(), policy.probabilities())
    if ending != ".npz":
        np.testing.assert_array_equal(found.fallback, policy.fallback)
        assert found.action_names == ("wait", "repair all")
    else:
        np.testing.assert_array_equal(np.load(path)["probabilities"], policy.probabilities())
    if ending == ".csv":
        first = path.read_text().splitlines()[0]
        assert first.endswith("state,action,probability,randomises,fallback")


def test_other_endings_are_refused_and_the_right_one_named(tmp_path: Path) -> None:
    policy = cm.TabularPolicy(np.eye(2))
    with pytest.raises(PolicyError, match=r"'x.h5'.*policy.save\(.*x.safetensors"):
        policy.save(tmp_path / "x.h5")
    with pytest.raises(PolicyError, match="is no network"):
        policy.to_onnx(tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("state,action\n0,0\n", "no column 'probability'"),
        ("state,action,probability\n0,0,0.5\n", "sum to 0.5"),
        ("state,action,probability\n0,0,much\n", "much"),
        ("state,action,probability\n0,0,0.5\n0,0,0.5\n", "two rows"),
        ("state,action,probability\n", "has no rows"),
    ],
)
def test_tables_that_are_no_policies(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "policy.csv"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message):
        cm.load_policy(path)


def test_a_table_by_hand_is_read_by_name(tmp_path: Path) -> None:
    mdp = machines()
    path = tmp_path / "today.csv"
    path.write_text(
        "state,action,probability\n3,repair all,1\n2,wait,0.5\n2,repair all,0.5\n1,wait,1\n0,wait,1\n"
    )
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    found = problem.evaluate(cm.load_policy(path)).objective
    rows = {"0": [1, 0], "1": [1, 0], "2": [0.5, 0.5], "3": [0, 1]}
    expected = problem.evaluate(np.array([rows[name] for name in mdp.state_names])).objective
    assert found == pytest.approx(expected, rel=1e-12)


def test_numbers_in_a_file_are_numbers_where_the_model_has_names(tmp_path: Path) -> None:
    mdp = machines().replace(state_names=("none", "one", "two", "all"))
    path = tmp_path / "today.csv"
    path.write_text("state,action,probability\n3,1,1\n2,1,1\n1,0,1\n0,0,1\n")
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))
    found = problem.evaluate(cm.load_policy(path)).objective
    said = {"none": "wait", "one": "wait", "two": "repair all", "all": "repair all"}
    assert found == pytest.approx(problem.evaluate(said).objective, rel=1e-12)


def network(**arguments: object):
    """An untrained network on CartPole's observations, and eight observations."""
    pytest.importorskip("gymnasium")
    env = cm.GymnasiumEnv(
        "CartPole-v1", 0.9, features=cm.UniformBins([-2.0] * 4, [2.0] * 4, 2), n_envs=1
    )
    bound = cm.MLP(8, 5, **arguments).bind(env.space(()))
    params = jax.tree.map(lambda leaf: leaf + 0.1, bound.init(jax.random.key(0)))
    seen = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    return on_observations(bound.deploy(params), env), seen


def test_a_network_as_onnx(tmp_path: Path) -> None:
    reference = pytest.importorskip("onnx.reference")
    policy, seen = network()
    policy.to_onnx(tmp_path / "policy.onnx")
    played = reference.ReferenceEvaluator(str(tmp_path / "policy.onnx"))
    chances, logits = played.run(["probabilities", "logits"], {"observation": seen})
    np.testing.assert_allclose(chances, policy.probabilities(seen), atol=1e-6)
    assert logits.shape == (8, 2)
    with pytest.raises(PolicyError, match=r"policy.save"):
        policy.save(tmp_path / "policy.npz")
    with pytest.raises(PolicyError, match="no part of it"):
        network(inputs=cm.RandomFourier(4, 3, seed=0))[0].to_onnx(tmp_path / "other.onnx")


@pytest.mark.long
def test_a_network_in_onnxruntime(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    policy, seen = network()
    policy.to_onnx(tmp_path / "policy.onnx")
    session = runtime.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    (chances,) = session.run(["probabilities"], {"observation": seen})
    np.testing.assert_allclose(chances, policy.probabilities(seen), atol=1e-6)
    for one, expected in zip(seen, chances, strict=True):
        (row,) = session.run(["probabilities"], {"observation": one[None]})
        np.testing.assert_allclose(row[0], expected, atol=1e-6)
