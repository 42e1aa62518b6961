"""One protocol for each kind of thing: every solver, atom, family, policy, model and environment passes it.

What is public and belongs to a kind must be in its table here; a test finds what was forgotten. Each thing has
tests of its own besides; these say what a user may assume of all of them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.experience.environments.environment import Environment
from cvxmdp.policies.families import PolicyFamily
from cvxmdp.policies.mixtures import MixturePolicy
from cvxmdp.policies.parametric import ParametricPolicy
from cvxmdp.runs.specs.array_specs import ArrayFolder
from cvxmdp.runs.specs.expressions import ATOMS as WRITTEN
from cvxmdp.runs.specs.expressions import Reader
from cvxmdp.solvers.registry import SOLVERS as KNOWN_SOLVERS
from environments import JaxModel, ModelEnv
from strategies import endings_promised, generator, grid_problem, random_model, random_policy

public = {name: getattr(cm, name) for name in cm.__all__}


def model() -> cm.TabularMDP:
    """Five states, three actions, some missing; episodes end."""
    return random_model(
        generator(3), n_states=5, n_actions=3, discount=0.8, endings=True, mask=True
    )


# Solvers.


@dataclass(frozen=True)
class Promise:
    """A solver, and how near it comes to the best on the small grid."""

    solver: Any
    gap: float  # relative, certified
    samples: bool = False


SOLVERS = {
    "ConvexProgram": Promise(cm.ConvexProgram(), 1e-6),
    "ColumnGeneration": Promise(cm.ColumnGeneration(tolerance=1e-4), 2e-4),
    "PDPG": Promise(cm.PDPG(iterations=600, tolerance=1e-3), 2e-3),
    "VRPDPG": Promise(
        cm.VRPDPG(
            iterations=300,
            primal_step=0.3,
            dual_step=3.0,
            momentum=0.3,
            horizon=20,
            batch_size=5,
            baseline=True,
            primal_decay=0.25,
            dual_decay=0.25,
            evaluate_every=100,
        ),
        0.2,
        samples=True,
    ),
    "ModelBased": Promise(cm.ModelBased(steps=5_000), 0.2, samples=True),
    "ActorCritic": Promise(cm.ActorCritic(steps=60_000), 0.2, samples=True),
}
every_solver = pytest.mark.parametrize(
    "name",  # the one that compiles longest is left out of ``make check``
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "ActorCritic")) for name in SOLVERS],
)


@pytest.fixture(scope="module")
def problem() -> cm.Problem:
    return grid_problem()


@pytest.fixture(scope="module")
def answers(problem) -> Callable[[str], cm.Solution]:
    known: dict[str, cm.Solution] = {}

    def of(name: str) -> cm.Solution:
        if name not in known:
            known[name] = solved(problem, name)
        return known[name]

    return of


def solved(problem: cm.Problem, name: str, **arguments: Any) -> cm.Solution:
    promise = SOLVERS[name]
    return cm.solve(problem, promise.solver, seed=0 if promise.samples else None, **arguments)


def test_no_solver_is_forgotten():
    assert set(SOLVERS) == set(KNOWN_SOLVERS)
    assert {name for name, thing in public.items() if hasattr(thing, "prepare")} == set(SOLVERS)


@every_solver
def test_a_solver_is_a_frozen_record_of_settings(name):
    solver = SOLVERS[name].solver
    assert replace(solver) == solver
    described = inspect.getdoc(type(solver)) or ""
    parameters = inspect.signature(type(solver)).parameters
    for setting in fields(solver):
        assert setting.name in described, "every setting is explained"
        assert setting.name in parameters, "help() shows it"
    with pytest.raises(FrozenInstanceError):
        solver.iterations = 3
    with pytest.raises(TypeError, match="itertions"):
        type(solver)(itertions=3)


@every_solver
def test_counts_are_whole_numbers_of_any_kind(name):
    solver = SOLVERS[name].solver
    counts = [one for one in ("iterations", "steps") if hasattr(solver, one)]
    for count in counts:
        assert getattr(replace(solver, **{count: np.int64(7)}), count) == 7
        for wrong in (0, -1, True, 2.0, "7", None, [7]):
            with pytest.raises(cm.SettingsError, match=f"{count} .*at least 1; got"):
                replace(solver, **{count: wrong})
    assert counts or name == "ConvexProgram"


@every_solver
def test_an_answer_is_plain_numbers_of_its_policy(name, problem, answers):
    found = answers(name)
    assert isinstance(found.status, cm.Status)
    assert found.has_policy
    assert found.message
    assert type(found.objective) is float
    assert type(found.occupancy) is np.ndarray
    assert found.occupancy.shape == problem.shape
    assert found.occupancy.dtype == np.float64
    exact = problem.evaluate(found.policy)
    assert found.objective == pytest.approx(exact.objective, abs=1e-9)
    assert found.slack == pytest.approx(exact.slack, abs=1e-9)
    np.testing.assert_allclose(found.occupancy, exact.occupancy, atol=1e-9)
    assert set(found.multipliers) == set(problem.constraints)
    for numbers in (found.slack, found.multipliers):
        assert all(isinstance(value, float) for value in numbers.values())
    for array in jax.tree.leaves(dict(found.history)):
        assert type(array) is np.ndarray
    assert {"solver", "seconds"} <= set(found.stats)
    assert name.lower() in str(found).lower().replace(" ", "").replace("-", "")


@every_solver
def test_an_answer_is_certified_as_near_to_the_best_as_promised(name, problem, answers, tmp_path):
    found = answers(name)
    certificate = cm.certify(problem, found)
    assert certificate.lower <= certificate.upper
    assert certificate.relative_gap <= SOLVERS[name].gap
    assert certificate.assumes == endings_promised(problem.mdp)
    certificate.save(tmp_path / "certificate.json")
    assert cm.check(tmp_path / "certificate.json", problem)


@every_solver
def test_multipliers_are_prices(name, problem, answers):
    """Signs, complementarity, and the price of the exact answer, as near as the gap allows."""
    found, scale = answers(name), abs(answers("ConvexProgram").objective)
    (mu,), (slack,) = found.multipliers.values(), found.slack.values()
    assert mu >= 0
    assert slack >= -0.05 * max(1.0, 100 * SOLVERS[name].gap)
    if not SOLVERS[name].samples:
        assert abs(mu * slack) <= 2 * SOLVERS[name].gap * scale
        (price,) = answers("ConvexProgram").multipliers.values()
        assert mu == pytest.approx(price, rel=0.05)


@every_solver
def test_another_answer_is_a_start(name, problem, answers):
    first = answers("ConvexProgram")
    again = solved(problem, name, start=first)
    assert again.has_policy
    assert cm.certify(problem, again).relative_gap <= max(2 * SOLVERS[name].gap, 1e-6)


@every_solver
def test_seeds_are_asked_for_where_numbers_are_random(name, problem, answers):
    if SOLVERS[name].samples:
        with pytest.raises(cm.SolverError, match="seed"):
            cm.solve(problem, SOLVERS[name].solver)
    again = solved(problem, name)
    np.testing.assert_array_equal(again.occupancy, answers(name).occupancy)


@every_solver
def test_a_run_that_was_stopped_goes_on_with_the_same_bits(name, problem, answers, tmp_path):
    """From its folder; a finished one is read again."""
    whole, folder = answers(name), tmp_path / "run"
    early = solved(problem, name, folder=folder, time_limit=1e-6)
    assert early.status is not cm.Status.FAILED
    resumed = solved(problem, name, folder=folder)
    assert resumed.status is whole.status
    np.testing.assert_array_equal(resumed.occupancy, whole.occupancy)
    assert resumed.multipliers == whole.multipliers
    mine, theirs = (jax.tree.leaves(dict(one.history)) for one in (resumed, whole))
    assert all(map(np.array_equal, mine, theirs))
    read = solved(problem, name, folder=folder)
    np.testing.assert_array_equal(read.occupancy, whole.occupancy)


@every_solver
def test_solving_changes_neither_problem_nor_solver(name, problem):
    from cvxmdp.certificates.checking import fingerprint

    before, solver = fingerprint(problem), replace(SOLVERS[name].solver)
    solved(problem, name)
    assert fingerprint(problem) == before
    assert SOLVERS[name].solver == solver
    with pytest.raises(AttributeError, match="cannot be changed"):
        problem.sense = "minimize"


@every_solver
def test_an_impossible_problem_is_not_answered_as_if_it_were(name, problem):
    impossible = problem.with_budget("hazard", -1.0)
    found = solved(impossible, name)
    assert found.status is cm.Status.INFEASIBLE or min(found.slack.values()) < 0
    assert found.status is not cm.Status.OPTIMAL
    assert cm.certify(impossible, found).infeasible


# Atoms and sets: written, read back, solved, proven, checked.


@cm.concave(lipschitz=1.0)
def own_concave(occupancy):
    return jnp.log(occupancy.sum(axis=1) + 0.1).sum()


@cm.convex
def own_convex(occupancy):
    return (occupancy**2).sum()


def atoms(mdp: cm.TabularMDP) -> dict[str, cm.Utility]:
    """At least one utility for every atom and set; a set stands in a distance."""
    random = generator(5)
    policy, array = random_policy(mdp, random), random.normal(size=mdp.actions.shape)
    visits = cm.occupancy_of(mdp, policy)
    return {
        "linear": cm.linear("reward"),
        "entropy": cm.entropy(),
        "entropy of pairs": cm.entropy(of="state-action"),
        "distance l1": cm.distance(policy, norm="l1"),
        "distance l2": cm.distance(policy, norm="l2"),
        "distance l2-squared": cm.distance(visits, norm="l2-squared"),
        "distance kl": cm.distance(policy, norm="kl"),
        "distance l1 of actions": cm.distance(policy, norm="l1", of="actions"),
        "distance kl of actions": cm.distance(policy, norm="kl", of="actions"),
        "quadratic": cm.quadratic(weights=np.abs(array)),
        "log_barrier": cm.log_barrier(cm.linear("cost") <= 100.0),
        "log_sum": cm.log_sum("reward", "cost"),
        "power": cm.power("reward", 0.3) + cm.power(cm.linear("cost") + 1.0, 0.7),
        "sqrt": cm.sqrt(cm.linear("reward") + cm.entropy()),
        "power below zero": cm.power("reward", -1.0),
        "power above one": cm.power("reward", 3.0),
        "log": cm.log(cm.linear("reward") + 1.0),
        "square": cm.square(cm.linear("reward") - 3.0),
        "exp": cm.exp(cm.maximum(cm.linear("reward") - 3.0, 0.2)),
        "huber": cm.huber(cm.linear("reward") - 3.0, 0.5),
        "norm": cm.norm(cm.returns("reward", "cost")),
        "norm linf": cm.norm(cm.returns("reward", "cost"), "linf"),
        "minimum": cm.minimum(cm.linear("reward"), cm.linear("cost")),
        "maximum": cm.maximum("reward", cm.linear("cost") + 1.0),
        "spread": cm.spread("reward", "cost"),
        "entropy of actions": cm.entropy(of="actions"),
        "distance chi2": cm.distance(policy, norm="chi2"),
        "ball": cm.distance(cm.ball(policy, 0.1), norm="l2"),
        "box": cm.distance(cm.box(0.5 * visits, 1.5 * visits), norm="l2-squared"),
        "polytope": cm.distance(cm.polytope(array[None], [1.0]), norm="l2"),
        "returns": cm.distance(cm.returns("reward", array), [9.0, 1.0], norm="l2-squared"),
        "returns in a box": cm.distance(cm.returns("reward", "cost"), cm.box(1.0, [9.0, 1.1])),
        "share": (cm.share("cost") <= 0.5).slack,
        "concave": own_concave,
        "convex": own_convex,
    }


every_atom = pytest.mark.parametrize("kind", atoms(model()))


def sense_of(utility: cm.Utility) -> str:
    return "minimize" if utility.curvature is cm.Curvature.CONVEX else "maximize"


def problem_of(kind: str) -> cm.Problem:
    mdp = model()
    utility = atoms(mdp)[kind]
    return cm.Problem(
        mdp, **{sense_of(utility): utility}, subject_to={"some": cm.linear("cost") >= 0.0}
    )


def test_no_atom_is_forgotten():
    kinds = {kind.split()[0] for kind in atoms(model())}
    returned = {
        name
        for name, thing in public.items()
        if inspect.isfunction(thing) and get_hints(thing).get("return") in (cm.Utility, "ConvexSet")
    }
    # Tails are of models with a budget state (test_tail_risk).
    kinds |= {"chance", "excess", "cvar"}
    assert returned | set(WRITTEN) | {"concave", "convex"} <= kinds


def get_hints(function: Any) -> Mapping[str, Any]:
    try:
        return get_type_hints(function)
    except NameError:  # a name that only type checkers import
        return dict(function.__annotations__)


@every_atom
def test_an_atom_lies_below_its_tangents(kind):
    """f(y) <= f(x) + <r, y - x> for the shadow reward r at x: concavity and gradient in one line."""
    problem, random = problem_of(kind), generator(7)
    for _ in range(10):
        x, y = (
            cm.occupancy_of(problem.mdp, random_policy(problem.mdp, random, concentration=1.0))
            for _ in range(2)
        )
        reward = problem.shadow_reward(x, {"some": 0.0})
        assert reward.dtype == np.float64
        assert np.isfinite(reward).all()
        there, here = (problem.lagrangian(point, {"some": 0.0}) for point in (y, x))
        assert there <= here + np.vdot(reward, y - x) + 1e-9


@every_atom
def test_an_atom_is_solved_proven_and_checked(kind, tmp_path):
    problem = problem_of(kind)
    found = cm.solve(problem)
    certificate = cm.certify(problem, found)
    scale = max(1.0, abs(certificate.upper))
    assert certificate.gap <= 1e-4 * scale
    own = set(certificate.assumes) - set(endings_promised(problem.mdp))
    assert bool(own) == (kind in ("concave", "convex"))
    certificate.save(tmp_path / "certificate.json")
    assert cm.check(tmp_path / "certificate.json", problem)
    forged = json.loads((tmp_path / "certificate.json").read_text("utf-8"))
    better = {"maximize": ("lower", 0.1 * scale), "minimize": ("upper", -0.1 * scale)}
    side, change = better[problem.sense]
    forged["claims"][side] += change
    (tmp_path / "forged.json").write_text(json.dumps(forged), "utf-8")
    assert not cm.check(tmp_path / "forged.json", problem)


@pytest.mark.parametrize(
    "text",
    [
        'linear("reward", per="step")',
        "entropy()",
        "entropy(unit=20)",
        'entropy(of="state-action")',
        'log_barrier(linear("cost") <= 100)',
        'log_sum("reward", "cost")',
        'power("reward", 0.3) + sqrt("cost")',
        'log("reward") - power("cost", -0.5) - power("reward", 3)',
        '-square(linear("reward") - 3) - square(norm(returns("reward", "cost")))',
        '-exp(maximum("reward", linear("cost") + 1, 0.5)) - huber(linear("reward") - 3, 0.5)',
        '-spread("reward", "cost") - norm(returns("reward", "cost"), "linf") - norm("cost")',
        'entropy(of="actions")',
        'minimum(linear("reward"), 3 - 2 * linear("cost"))',
        '-distance(returns("reward", linear("cost", per="step")), [2, 0.1], norm="l1")',
        '-distance(returns("reward", "cost"), box([2, -inf], [3, 1.5]), norm="l1")',
        '-distance(returns("reward", "cost"), ball([2, 1], 0.5))',
        '-distance(returns("reward", "cost"), polytope([[1, -1], [0, 1]], [0, 0.3]))',
    ],
)
def test_what_an_atom_prints_is_what_a_problem_file_takes(text, tmp_path):
    reader = Reader(ArrayFolder(tmp_path))
    utility = reader.utility(text)
    assert repr(reader.utility(repr(utility))) == repr(utility)
    mdp, policy = model(), random_policy(model(), generator(2))
    values = [
        cm.Problem(mdp, maximize=reader.utility(written)).evaluate(policy).objective
        for written in (text, repr(utility))
    ]
    assert values[0] == values[1]


# Families of policies, and policies.


def network() -> Any:
    equinox = pytest.importorskip("equinox")
    return equinox.nn.MLP(5, 3, 4, 1, key=jax.random.key(0))


FAMILIES: dict[str, Callable[[], Any]] = {
    "Table": cm.Table,
    "Direct": cm.Direct,
    "LinearSoftmax": lambda: cm.LinearSoftmax(generator(1).normal(size=(5, 3, 4))),
    "MLP": lambda: cm.MLP(4),
    "EquinoxModule": lambda: cm.EquinoxModule(network(), np.eye(5)),
}
every_family = pytest.mark.parametrize("name", FAMILIES)


def test_no_family_is_forgotten():
    families = {
        name
        for name, thing in public.items()
        if isinstance(thing, type)
        and issubclass(thing, PolicyFamily)
        and not issubclass(thing, cm.Problem | cm.Utility)
    }
    assert families == {*FAMILIES, "Gaussian"}, (
        "which is for vectors of numbers: tests/test_gaussian.py"
    )


@every_family
def test_a_family_gives_policies_that_respect_the_model(name):
    mdp, family = model(), FAMILIES[name]()
    assert isinstance(family, PolicyFamily)
    bound = family.bind(mdp)
    params = bound.init(jax.random.key(0))
    chances = np.exp(np.asarray(bound.log_probabilities(params, jnp.arange(mdp.n_states))))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-5)
    assert (chances[~mdp.actions] == 0).all()
    assert name.startswith(bound.name) or bound.name.startswith(name[:3])
    policy = bound.deploy(params)
    assert isinstance(policy, cm.Policy)
    np.testing.assert_allclose(policy.probabilities(), chances, atol=1e-6)
    again = bound.init(jax.random.key(0))
    assert all(map(np.array_equal, jax.tree.leaves(params), jax.tree.leaves(again)))


@every_family
def test_a_family_moves_towards_what_pays(name):
    """A few steps of PDPG improve on the first policy."""
    problem = cm.Problem(model(), maximize=cm.linear("reward"))
    direction = "vanilla" if name == "Direct" else "natural"  # it has no scores
    few = cm.PDPG(40, policy=FAMILIES[name](), direction=direction, iterate="last", tolerance=None)
    found = cm.solve(problem, few, seed=0)
    uniform = problem.evaluate(cm.uniform_policy(problem.mdp)).objective
    assert found.objective > uniform + 1e-3


def policies() -> dict[str, cm.Policy]:
    mdp = model()
    one, other = (random_policy(mdp, generator(seed)) for seed in (1, 2))
    both = [one.probabilities(), other.probabilities()]
    mean = sum(cm.occupancy_of(mdp, policy) for policy in both) / 2
    bound = cm.MLP(4).bind(mdp)
    return {
        "TabularPolicy": one,
        "SoftmaxTable": cm.SoftmaxTable(np.zeros(mdp.actions.shape), mdp.actions),
        "ParametricPolicy": bound.deploy(bound.init(jax.random.key(0))),
        "MixturePolicy": MixturePolicy(cm.policy_of(mdp, mean).probabilities(), both),
    }


every_policy = pytest.mark.parametrize("name", policies())


def test_no_policy_is_forgotten():
    known = policies()
    assert {type(policy) for policy in known.values()} >= {ParametricPolicy, MixturePolicy}
    named = {
        name
        for name, thing in public.items()
        if isinstance(thing, type) and issubclass(thing, cm.TabularPolicy)
    }
    # What depends on time needs a model with a horizon: tests/test_finite_horizon.py.
    assert named - {"TimedPolicy"} <= set(known)


@every_policy
def test_a_policy_acts_prints_and_can_be_kept(name, tmp_path):
    mdp, policy = model(), policies()[name]
    chances = policy.probabilities()
    assert type(chances) is np.ndarray
    assert chances.dtype == np.float64
    assert chances.shape == mdp.actions.shape
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_array_equal(policy.probabilities(3), chances[3])
    drawn = [policy.sample(3, generator(0)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert chances[3, drawn[0]] > 0
    policy.save(tmp_path / "policy.safetensors")
    loaded = cm.load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(loaded.probabilities(), chances)
    np.testing.assert_allclose(cm.occupancy_of(mdp, policy), cm.occupancy_of(mdp, chances))


# Models.


def walk(state: int, action: int) -> list[tuple[float, int]]:
    return [(0.5, state), (0.5, min(state + action, 3))]


def prism_folder(folder: Path) -> Path:
    cm.to_prism(cm.gridworld(2, slip=0.1), folder / "model")
    return folder / "model"


def umb_file(folder: Path) -> Path:
    cm.garnet(4, 2, 2, seed=0).to_umb(folder / "model.umb")
    return folder / "model.umb"


LOG = {
    "state": [0, 1, 0, 1],
    "action": [0, 1, 1, 0],
    "reward": [1.0, 0.0, 0.5, 2.0],
    "next_state": [1, 0, 0, 1],
    "terminated": [False, False, True, False],
}
MODELS: dict[str, Callable[[Path], cm.TabularMDP]] = {
    "TabularMDP": lambda folder: model(),
    "gridworld": lambda folder: cm.gridworld(3, slip=0.1, hazards=[4], goal=8),
    "garnet": lambda folder: cm.garnet(5, 2, 2, seed=0),
    "from_function": lambda folder: cm.from_function(
        walk, initial=0, actions=[1, 2], discount=0.9, signals={"reward": lambda s, a: float(s)}
    ),
    "from_gymnasium_table": lambda folder: cm.from_gymnasium_table("FrozenLake-v1", 0.9),
    "from_prism": lambda folder: cm.from_prism(prism_folder(folder), 0.9),
    "from_umb": lambda folder: cm.from_umb(umb_file(folder), discount=0.9),
    "from_transitions": lambda folder: cm.from_transitions(LOG, 0.9),
    "from_table": lambda folder: cm.from_table(
        {**LOG, "probability": [1.0, 1.0, 1.0, 1.0]}, 0.9, initial=0
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)


def test_no_model_is_forgotten():
    makers = {
        name
        for name, thing in public.items()
        if inspect.isfunction(thing) and get_hints(thing).get("return") is cm.TabularMDP
    }
    assert makers | {"TabularMDP"} == set(MODELS)


@every_model
def test_a_model_is_a_decision_process(name, tmp_path):
    mdp = MODELS[name](tmp_path)
    states, actions = mdp.n_states, mdp.n_actions
    assert mdp.transition.shape == (states * actions, states)
    left = np.asarray(mdp.transition.sum(axis=1)).reshape(states, actions) + mdp.ending
    np.testing.assert_allclose(left[mdp.actions], 1.0, atol=1e-12)
    assert mdp.initial.sum() == pytest.approx(1.0, abs=1e-12)
    assert mdp.actions.any(axis=1).all()
    for array in (mdp.initial, mdp.actions, *mdp.signals.values()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert str(states) in repr(mdp)


@every_model
def test_the_occupancies_of_a_model_satisfy_its_flow_equations(name, tmp_path):
    """sum_a x(s, a) = initial(s) + discount * sum P(s | s', a') x(s', a'), and back to the policy."""
    mdp = MODELS[name](tmp_path)
    policy = random_policy(mdp, generator(0))
    x = cm.occupancy_of(mdp, policy)
    arriving = mdp.initial + mdp.discount * (mdp.transition.T @ x.ravel())
    np.testing.assert_allclose(x.sum(axis=1), arriving, atol=1e-10)
    visited = x.sum(axis=1) > 1e-9
    back = cm.policy_of(mdp, x).probabilities()
    np.testing.assert_allclose(back[visited], policy.probabilities()[visited], atol=1e-9)


@every_model
def test_a_model_is_the_same_after_it_was_kept(name, tmp_path):
    mdp = MODELS[name](tmp_path)
    mdp.save(tmp_path / "model.safetensors")
    again = cm.TabularMDP.load(tmp_path / "model.safetensors")
    assert repr(again) == repr(mdp)
    x = cm.occupancy_of(mdp, cm.uniform_policy(mdp))
    np.testing.assert_array_equal(cm.occupancy_of(again, cm.uniform_policy(again)), x)
    assert set(again.signals) == set(mdp.signals)


# Environments.


def played_model() -> cm.TabularMDP:
    return random_model(
        generator(8), n_states=4, n_actions=2, discount=0.8, endings=True, mask=False
    )


ENVIRONMENTS: dict[str, Callable[[], Environment]] = {
    "GymnasiumEnv": lambda: cm.GymnasiumEnv(
        gymnasium.vector.SyncVectorEnv([lambda: ModelEnv(played_model())] * 8), 0.8
    ),
    "JaxEnv": lambda: cm.JaxEnv(JaxModel(played_model()), 0.8, n_envs=8),
}
every_environment = pytest.mark.parametrize("name", ENVIRONMENTS)


def test_no_environment_is_forgotten():
    kinds = {
        name
        for name, thing in public.items()
        if isinstance(thing, type) and issubclass(thing, Environment)
    }
    assert kinds == set(ENVIRONMENTS)


@every_environment
def test_episodes_are_those_of_the_model_and_of_the_seed(name):
    with ENVIRONMENTS[name]() as env:
        act = lambda seen, states, begins: np.zeros(env.n_lanes, dtype=int)  # noqa: E731
        first, again = (env.episodes(act, 6, signals=("reward",), seed=3) for _ in range(2))
        other = env.episodes(act, 6, signals=("reward",), seed=4)
    for field in fields(first):
        one, two = (jax.tree.leaves(getattr(played, field.name)) for played in (first, again))
        assert all(map(np.array_equal, one, two)), field.name
    assert not np.array_equal(first.inputs, other.inputs)


@pytest.mark.slow
@every_environment
def test_an_environment_takes_the_place_of_a_model(name):
    mdp = played_model()
    with ENVIRONMENTS[name]() as env:
        problem = cm.Problem(env, maximize=cm.linear("reward"))
        learner = cm.VRPDPG(20, 0.3, 0.1, 0.5, 15, batch_size=8, evaluate_every=10)
        first, again = (cm.solve(problem, learner, seed=1) for _ in range(2))
        seen = cm.evaluate(first, env, 400, problem=problem, seed=2)
        with pytest.raises(cm.CvxmdpError, match="environment"):
            cm.certify(problem, first)
    np.testing.assert_array_equal(first.policy.probabilities(), again.policy.probabilities())
    exact = cm.Problem(mdp, maximize=cm.linear("reward")).evaluate(first.policy.probabilities())
    assert seen.objective.lower <= exact.objective <= seen.objective.upper
