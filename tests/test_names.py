"""States and actions by name, wherever a number is accepted."""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import ExperienceError, ModelError, PolicyError, UtilityError
from cvxmdp.policies.mixtures import MixturePolicy
from cvxmdp.policies.observers import mixture_on_observations
from cvxmdp.policies.occupancies import as_policy
from cvxmdp.runs.specs.problem_specs import read_problem

STATES, ACTIONS = ("good", "worn", "broken"), ("wait", "repair")
WEAR = np.array(
    [[[0.8, 0.2, 0], [1, 0, 0]], [[0, 0.7, 0.3], [0.9, 0.1, 0]], [[0, 0, 1], [0.5, 0, 0.5]]]
)


def machine(**changes: object) -> cm.TabularMDP:
    given: dict[str, object] = {
        "initial": "good",
        "discount": 0.9,
        "signals": {"reward": {"good": 1.0, "worn": 0.5}, "cost": {("broken", "repair"): 5.0}},
        "state_names": STATES,
        "action_names": ACTIONS,
    }
    return cm.TabularMDP(WEAR, **{**given, **changes})  # type: ignore[arg-type]


def tandem() -> cm.TabularMDP:
    """A model whose states are tuples: jobs in two queues, and a wind."""

    def successors(state, action):
        first, second, wind = state
        if action == "serve" and first:
            return [(0.5, (first - 1, min(second + 1, 2), wind)), (0.5, state, {"cost": 1.0})]
        return [(1.0, (min(first + 1, 2), max(second - 1, 0), wind), {"cost": float(first)})]

    return cm.from_function(
        successors, initial=(1, 0, "north"), actions=["serve", "idle"], discount=0.9
    )


def test_initial_states_and_signals_by_name() -> None:
    mdp = machine()
    np.testing.assert_array_equal(mdp.initial, [1, 0, 0])
    np.testing.assert_array_equal(mdp.signal("reward"), [[1, 1], [0.5, 0.5], [0, 0]])
    np.testing.assert_array_equal(mdp.signal("cost"), [[0, 0], [0, 0], [0, 5]])
    np.testing.assert_array_equal(
        mdp.replace(initial={"worn": 0.25, "broken": 0.75}).initial, [0, 0.25, 0.75]
    )
    nested = mdp.with_signals(fee={"worn": {"repair": 2.0}, "broken": 1.0})
    np.testing.assert_array_equal(nested.signal("fee"), [[0, 0], [0, 2], [1, 1]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": "god"}, r"initial: there is no state 'god'.*Did you mean 'good'\?"),
        ({"initial": {"worm": 1.0}}, "initial: there is no state 'worm'.*Did you mean 'worn'"),
        (
            {"signals": {"c": {"brokn": 1.0}}},
            "signal 'c': .*no state 'brokn'.*Did you mean 'broken'",
        ),
        ({"signals": {"c": {("worn", "repar"): 1.0}}}, "signal 'c': .*no action 'repar'.*'repair'"),
        ({"signals": {"c": {"worn": "much"}}}, "signal 'c': expected a number at 'worn'"),
        ({"initial": "good", "state_names": None}, "have no names"),
    ],
)
def test_unknown_names_say_which_was_meant(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        machine(**changes)


def test_a_policy_is_asked_by_name() -> None:
    mdp = tandem()
    state = mdp.state_names.index("(0, 2, 'north')")
    rows = np.eye(2)[np.arange(mdp.n_states) % 2]
    policy = cm.TabularPolicy(rows).named(mdp.state_names, mdp.action_names)
    for given in ((0, 2, "north"), (np.int64(0), 2, np.str_("north")), "(0, 2, 'north')", state):
        assert policy.predict(given)[0] == state % 2
        np.testing.assert_array_equal(policy.probabilities(given), rows[state])
    several = [(0, 2, "north"), (1, 0, "north")]
    start = mdp.state_names.index("(1, 0, 'north')")
    np.testing.assert_array_equal(policy.predict(several)[0], [state % 2, start % 2])
    names = np.array(mdp.state_names)
    np.testing.assert_array_equal(policy.predict(names)[0], np.arange(mdp.n_states) % 2)


def test_a_tuple_is_never_several_states() -> None:
    policy = cm.TabularPolicy(np.eye(2)[[0, 1, 1]])
    with pytest.raises(PolicyError, match=r"no state \(0, 1\).*np.array\(\[0, 1\]\)"):
        policy.predict((0, 1))
    np.testing.assert_array_equal(policy.predict([0, 1])[0], [0, 1])
    named = policy.named(STATES, ACTIONS)
    with pytest.raises(PolicyError, match="Did you mean 'broken'"):
        named.predict("broke")
    with pytest.raises(PolicyError, match=r"no state \(1, 2, 'north'\)"):
        named.probabilities((1, 2, "north"))


def test_a_number_that_is_the_name_of_another_state_is_asked_about() -> None:
    mdp = cm.from_function(
        lambda s, a: [(1.0, 4 - s, {"pay": float(s)})], initial=1, actions=["go"], discount=0.9
    )
    policy = cm.solve(cm.Problem(mdp, maximize=cm.linear("pay"))).policy
    assert mdp.state_names == ("1", "3")
    for ask in (policy.predict, policy.probabilities):
        with pytest.raises(PolicyError, match="1 is the number of the state '3' and the name of"):
            ask(1)
    assert policy.predict("1")[0] == policy.predict(np.array([0]))[0][0] == 0


def test_a_misspelled_tuple_is_no_distribution() -> None:
    names = [f"({k}, {wind!r})" for k in range(1) for wind in ("dry", "wet", "hot")]
    with pytest.raises(ModelError, match=r"initial: there is no state \(0, 'dyr'\).*\(0, 'dry'\)"):
        machine(state_names=names, initial=(0, "dyr"), signals={"reward": np.ones(3)})
    assert machine(initial=(0.5, 0.5, 0.0)).initial[1] == 0.5


def test_a_name_or_numbers_by_name_are_no_utility() -> None:
    with pytest.raises(UtilityError, match=r"A signal's return is linear\('reward'\)"):
        cm.Problem(machine(), maximize="reward")
    with pytest.raises(UtilityError, match="numbers by name are a signal of the model"):
        cm.linear({"good": 1.0})


def test_a_path_is_no_policy(tmp_path) -> None:
    problem = cm.Problem(machine(), maximize=cm.linear("reward"))
    for given in ("policy.csv", tmp_path / "policy.csv"):
        with pytest.raises(PolicyError, match=r"load_policy\('.*policy.csv'\) reads one"):
            cm.certify(problem, given)
        with pytest.raises(FileNotFoundError):
            cm.load_policy(given)
        with pytest.raises(cm.CvxmdpError, match=r"load_solution\('.*policy.csv'\) reads one"):
            cm.report(given, tmp_path / "report.html")


def test_distances_to_policies_as_people_write_them(tmp_path) -> None:
    said = {"good": "wait", "worn": {"wait": 0.25, "repair": 0.75}, "broken": 1}
    table = cm.TabularPolicy([[1.0, 0.0], [0.25, 0.75], [0.0, 1.0]])
    for settings in ({"norm": "l2"}, {"norm": "l1", "of": "actions"}):
        meant, written = (
            cm.Problem(
                machine(),
                minimize=cm.distance(target, **settings),  # type: ignore[arg-type]
                subject_to={"reward": cm.linear("reward") >= 8.0},
            )
            for target in (table, said)
        )
        policy = cm.uniform_policy(machine())
        assert written.evaluate(policy).objective == meant.evaluate(policy).objective
        written.save(tmp_path / settings["norm"])
        again = cm.load_problem(tmp_path / settings["norm"])
        assert again.evaluate(policy).objective == meant.evaluate(policy).objective
    with pytest.raises(PolicyError, match="there is no state 'god'"):
        cm.Problem(machine(), minimize=cm.distance({"god": "wait"}))


def test_names_of_another_policy_are_forgotten() -> None:
    first = cm.TabularPolicy(np.eye(2)[[0, 1, 1]]).named(STATES, ACTIONS)
    assert first.predict("good")[0] == 0
    renamed = first.named(("x", "y", "good"), ACTIONS)
    assert renamed.predict("good")[0] == 1


def test_policies_as_people_write_them() -> None:
    mdp = machine()
    problem = cm.Problem(
        mdp, maximize=cm.linear("reward"), subject_to={"c": cm.linear("cost") <= 9}
    )
    table = np.array([[1, 0], [0.25, 0.75], [0, 1]])
    expected = problem.evaluate(table).objective
    said = {"good": "wait", "worn": {"wait": 0.25, "repair": 0.75}, "broken": "repair"}
    assert problem.evaluate(said).objective == expected
    assert problem.evaluate(lambda state: said[state]).objective == expected
    assert cm.certify(problem, said).lower == cm.certify(problem, table).lower
    with pytest.raises(PolicyError, match="nothing of 2 of 3 states: 'worn', 'broken'"):
        problem.evaluate({"good": "wait"})
    with pytest.raises(PolicyError, match=r"no action 'wat'.*Did you mean 'wait'"):
        problem.evaluate({**said, "good": "wat"})


def test_a_function_of_tuples_gets_tuples() -> None:
    mdp = tandem()
    problem = cm.Problem(mdp, minimize=cm.linear("cost"))
    table = np.array([[1.0, 0.0] if eval(name)[0] else [0.0, 1.0] for name in mdp.state_names])
    served = problem.evaluate(lambda state: "serve" if state[0] else "idle")
    assert served.objective == problem.evaluate(table).objective


def test_evaluate_takes_a_function() -> None:
    mdp = machine()
    problem = cm.Problem(mdp, maximize=cm.linear("reward"))

    def careful(state: str) -> str:
        return "wait" if state == "good" else "repair"

    found = cm.evaluate(careful, mdp, 200, seed=0, problem=problem)
    exact = problem.evaluate(careful).objective
    assert found.objective.lower <= exact <= found.objective.upper
    pytest.importorskip("gymnasium")
    lake = cm.evaluate(
        lambda cell: 2 if cell % 4 < 3 else 1,
        "FrozenLake-v1",
        50,
        seed=0,
        maximize=cm.linear("reward"),
        discount=0.95,
    )
    assert lake.episodes == 50
    with pytest.raises(PolicyError, match="the policy gave 'left'; expected a whole number"):
        cm.evaluate(
            lambda cell: "left",
            "FrozenLake-v1",
            5,
            seed=0,
            maximize=cm.linear("reward"),
            discount=0.9,
        )


def test_the_episode_of_so_many_steps_is_the_problem() -> None:
    gymnasium = pytest.importorskip("gymnasium")

    class Clock(gymnasium.Env):  # type: ignore[misc, name-defined]
        """Pays one per step, for ever."""

        observation_space = gymnasium.spaces.Discrete(1)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 0, 1.0, False, False, {}

    found = cm.evaluate(
        lambda _: 0, Clock(), 3, seed=0, maximize=cm.linear("reward"), discount=1.0, horizon=200
    )
    assert found.objective.value == pytest.approx(200.0)
    assert found.truncated == 0
    assert found.truncation == 0.0


def test_a_mixture_follows_the_episodes_of_an_environment() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = cm.GymnasiumEnv("FrozenLake-v1", 0.9, n_envs=1)
    always = [cm.TabularPolicy(np.tile(np.eye(4)[action], (16, 1))) for action in (0, 2)]
    both = np.full((16, 4), [0.5, 0, 0.5, 0])
    tables = np.stack([one.probabilities() for one in always])
    for mixture in (mixture_on_observations(always, env), MixturePolicy(both, tables)):
        played = mixture.seed(0).follow(gymnasium.make("FrozenLake-v1"))
        firsts = set()
        for episode in range(20):
            observation, _ = played.reset(seed=episode)
            taken, over = [], False
            while not over:
                action, _ = mixture.predict(observation)
                taken.append(int(action))
                observation, _, terminated, truncated, _ = played.step(action)
                over = terminated or truncated
            assert len(set(taken)) == 1  # one member for all of the episode
            firsts.add(taken[0])
        assert firsts == {0, 2}
    with pytest.raises(PolicyError, match="episode_start=begins"):
        mixture.follow(env.env)


def test_a_mixture_on_observations_asks_where_episodes_begin() -> None:
    pytest.importorskip("gymnasium")
    env = cm.GymnasiumEnv("FrozenLake-v1", 0.9, n_envs=1)
    always = [cm.TabularPolicy(np.tile(np.eye(4)[action], (16, 1))) for action in (0, 1)]
    mixture = mixture_on_observations(always, env).seed(0)
    with pytest.warns(cm.CvxmdpWarning, match=r"policy\.follow\(env\).*episode_start=True"):
        first = mixture.predict(3)[0]
    assert {int(mixture.predict(3)[0]) for _ in range(20)} == {int(first)}  # it goes on
    drawn = {int(mixture.predict(3, episode_start=True)[0]) for _ in range(20)}
    assert drawn == {0, 1}


def test_unknown_keys_of_bounds_are_errors() -> None:
    pytest.importorskip("gymnasium")
    for argument in ("bounds", "return_bounds"):
        with pytest.raises(
            ExperienceError, match=r"'rewrad', which no utility.*Did you mean 'reward'"
        ):
            cm.evaluate(
                lambda cell: 0,
                "FrozenLake-v1",
                5,
                seed=0,
                maximize=cm.linear("reward"),
                discount=0.9,
                **{argument: {"rewrad": (0, 1)}},
            )


def test_unknown_bounds_of_an_environment_are_seen_before_anything_is_played() -> None:
    pytest.importorskip("gymnasium")
    lake = cm.GymnasiumEnv("FrozenLake-v1", 0.9, bounds={"rewrad": (0, 1)})
    lake.episodes = None  # nothing is played
    with pytest.raises(ExperienceError, match=r"'rewrad', which no.*Did you mean 'reward'"):
        cm.Problem(lake, maximize=cm.linear("reward"))
    with pytest.raises(ExperienceError, match="'rewrad'"):
        cm.evaluate(lambda cell: 0, lake, 5, seed=0, maximize=cm.linear("reward"))
    fine = {"reward": (0, 1), "prob": (0, 1), "fuel": (0, 2)}
    declared = {"fuel": cm.from_info("prob")}
    lake = cm.GymnasiumEnv("FrozenLake-v1", 0.9, bounds=fine, signals=declared)
    cm.Problem(lake, maximize=cm.linear("reward"), subject_to={"p": cm.linear("prob") <= 9})
    with pytest.raises(ExperienceError, match="'prob', which no utility here reads"):
        cm.Problem(lake, maximize=cm.linear("reward"))


PROBLEM = """
maximize = 'linear("reward")'

[subject_to]
cost = 'linear("cost") <= 6'

[model]
kind = "table"
discount = 0.9
initial = "good"
state_names = ["good", "worn", "broken"]
action_names = ["wait", "repair"]
transition = [[[0.8, 0.2, 0], [1, 0, 0]], [[0, 0.7, 0.3], [0.9, 0.1, 0]], [[0, 0, 1], [0.5, 0, 0.5]]]

[model.signals]
reward = {good = 1.0, worn = 0.5}
cost = "cost.csv"
"""


def test_problem_files_and_csv_by_name(tmp_path) -> None:
    (tmp_path / "cost.csv").write_text("state,action,value\nbroken,repair,5\n")
    (tmp_path / "problem.toml").write_text(PROBLEM)
    mdp = read_problem(tmp_path / "problem.toml").problem.mdp
    for name in ("reward", "cost"):
        np.testing.assert_array_equal(mdp.signal(name), machine().signal(name))
    np.testing.assert_array_equal(mdp.initial, [1, 0, 0])
    (tmp_path / "cost.csv").write_text("state,action,value\nbroken,repar,5\n")
    with pytest.raises(cm.CvxmdpError, match=r"no action 'repar'.*Did you mean 'repair'"):
        read_problem(tmp_path / "problem.toml")


def turned(**changes: object) -> cm.TabularMDP:
    """The machine with its states and actions in another order."""
    states, actions = [2, 0, 1], [1, 0]
    given = {
        "state_names": [STATES[s] for s in states],
        "action_names": [ACTIONS[a] for a in actions],
    }
    mdp = machine(**changes, **given)
    return mdp.replace(transition=WEAR[np.ix_(states, actions, states)])


@pytest.mark.parametrize(
    "looks", [{}, {"discount": None, "horizon": 4}], ids=["discounted", "timed"]
)
def test_policies_of_every_kind_act_by_name_in_another_model(looks, tmp_path) -> None:
    problem = cm.Problem(
        machine(**looks),
        maximize=cm.linear("reward") - cm.linear("cost"),
        subject_to={"cost": cm.linear("cost") <= 1.0},
    )
    other = problem.with_model(turned(**looks))
    solution = cm.solve(problem)
    certificate = cm.certify(problem, solution)
    certificate.save(tmp_path / "proof.json")
    loaded = cm.Certificate.from_json((tmp_path / "proof.json").read_text())
    visits = solution.occupancy_by_time if looks else solution.occupancy
    made = {
        "solution": solution.policy,
        "certificate": certificate.policy,
        "its file": loaded.policy,
        "slater": cm.slater(problem).policy,
        "uniform": cm.uniform_policy(problem.mdp),
        "occupancy": cm.policy_of(problem.mdp, visits),
    }
    for policy in made.values():
        assert policy.state_names == STATES
        here, there = problem.evaluate(policy), other.evaluate(policy)
        assert there.objective == pytest.approx(here.objective, abs=1e-9)
    played = cm.evaluate(solution.policy, other.mdp, 400, seed=0, problem=other).objective
    assert played.lower <= solution.objective <= played.upper


def test_a_mixture_keeps_its_members_in_another_model() -> None:
    first, second = np.eye(2)[[0, 1, 1]], np.eye(2)[[1, 0, 1]]
    mixture = MixturePolicy((first + second) / 2, np.stack([first, second]))
    other = turned()
    read = as_policy(other, mixture.named(STATES, ACTIONS))
    assert isinstance(read, MixturePolicy)
    np.testing.assert_array_equal(read.components[0], first[[2, 0, 1]][:, [1, 0]])
