"""Ready-made models: gridworlds, Garnets, Gymnasium's tables, successor functions."""

from __future__ import annotations

import enum
import warnings

import gymnasium
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import CvxmdpWarning, ModelError
from cvxmdp.policies.occupancies import episode_visits

LEFT, DOWN, RIGHT, UP = range(4)


# Gridworlds


def row_of(mdp: cm.TabularMDP, state: int, action: int) -> dict[int, float]:
    """The successors of a pair and their probabilities."""
    row = mdp.transition[[state * mdp.n_actions + action]].tocoo()
    return dict(zip(row.col.tolist(), row.data.tolist(), strict=True))


def test_moves_and_borders() -> None:
    mdp = cm.gridworld((2, 3))
    assert (mdp.n_states, mdp.n_actions) == (6, 4)
    assert mdp.action_names == ("left", "down", "right", "up")
    leads = [[next(iter(row_of(mdp, s, a))) for a in range(4)] for s in range(6)]
    assert leads == [
        [0, 3, 1, 0],
        [0, 4, 2, 1],
        [1, 5, 2, 2],
        [3, 3, 4, 0],
        [3, 4, 5, 1],
        [4, 5, 5, 2],
    ]


def test_slip_goes_in_the_other_three_directions() -> None:
    mdp = cm.gridworld(3, slip=0.3)
    assert row_of(mdp, 4, RIGHT) == pytest.approx({5: 0.7, 1: 0.1, 3: 0.1, 7: 0.1})
    assert row_of(mdp, 0, RIGHT) == pytest.approx({1: 0.7, 3: 0.1, 0: 0.2})
    np.testing.assert_allclose(mdp.transition.sum(axis=1), 1.0, rtol=1e-14)


def test_one_cannot_walk_into_walls() -> None:
    mdp = cm.gridworld(3, walls=[(1, 1)])
    assert row_of(mdp, 1, DOWN) == {1: 1.0}
    assert row_of(mdp, 3, RIGHT) == {3: 1.0}
    assert not mdp.reachable[4]
    assert mdp.reachable.sum() == 8


def test_a_goal_pays_instead_of_the_step_and_ends() -> None:
    mdp = cm.gridworld((1, 3), slip=0.3, goal=2, goal_reward=10.0, step_reward=-1.0)
    assert mdp.ending[1, RIGHT] == pytest.approx(0.7)
    assert mdp.ending[1, UP] == pytest.approx(0.1)
    assert mdp.signal("reward")[1, RIGHT] == pytest.approx(0.7 * 10 - 0.3)
    assert mdp.signal("reward")[0, RIGHT] == pytest.approx(-1.0)
    assert row_of(mdp, 1, RIGHT) == pytest.approx({0: 0.1, 1: 0.2})
    assert not mdp.reachable[2]
    np.testing.assert_array_equal(mdp.signal("reward")[2], 0.0)


def test_rewards_hazards_and_starts() -> None:
    mdp = cm.gridworld(
        2, rewards={3: 5.0, (0, 1): 2.0}, step_reward=-1.0, hazards=[(1, 0)], start=[0, (1, 1)]
    )
    np.testing.assert_array_equal(mdp.signal("reward")[:, LEFT], [-1.0, 1.0, -1.0, 4.0])
    np.testing.assert_array_equal(mdp.signal("hazard")[:, UP], [0.0, 0.0, 1.0, 0.0])
    np.testing.assert_array_equal(mdp.initial, [0.5, 0.0, 0.0, 0.5])


def test_cells_are_numbers_or_pairs() -> None:
    by_number = cm.gridworld((2, 3), start=5, goal=[0, 4], hazards=[2], walls=[1])
    by_pair = cm.gridworld((2, 3), start=(1, 2), goal=[(0, 0), (1, 1)], hazards={(0, 2)}, walls=[1])
    assert by_number.layout == by_pair.layout
    assert (by_number.transition != by_pair.transition).nnz == 0


@pytest.mark.parametrize("what", ["start", "goal", "hazards", "walls"])
def test_a_tuple_of_two_numbers_is_one_cell(what: str) -> None:
    first = cm.gridworld(8, **{"start": 0, what: (1, 2)}).layout
    assert first == cm.gridworld(8, **{"start": 0, what: [(1, 2)]}).layout
    assert first == cm.gridworld(8, **{"start": 0, what: [10]}).layout
    both = cm.gridworld(8, **{"start": 0, what: [10, 11]}).layout
    assert both == cm.gridworld(8, **{"start": 0, what: [(1, 2), (1, 3)]}).layout
    assert both != first


def test_rewards_by_pair() -> None:
    by_pair = cm.gridworld(8, rewards={(1, 2): 0.5, 3: 1.0}).signal("reward")
    assert {(state, by_pair[state, LEFT]) for state in by_pair[:, LEFT].nonzero()[0]} == {
        (3, 1.0),
        (10, 0.5),
    }


def test_a_grid_of_one_cell() -> None:
    mdp = cm.gridworld(1)
    np.testing.assert_array_equal(mdp.transition.toarray(), np.ones((4, 1)))


def test_render() -> None:
    mdp = cm.gridworld((2, 3), goal=5, hazards=[2], walls=[4])
    assert mdp.render() == "S . !\n. # G"


def test_render_a_policy() -> None:
    mdp = cm.gridworld((2, 3), goal=5, hazards=[2], walls=[4])
    rows = np.zeros((6, 4))
    rows[np.arange(6), [RIGHT, LEFT, DOWN, UP, UP, UP]] = 1.0
    rows[1] = 0.25
    drawing = "→ o ↓!\n↑ # G"
    assert mdp.render(cm.TabularPolicy(rows)) == drawing
    assert mdp.render(rows) == drawing


def test_render_what_cannot_be_rendered() -> None:
    with pytest.raises(ModelError, match="models of grids"):
        cm.garnet(4, 4, 1, seed=0).render()
    with pytest.raises(ModelError, match=r"shape \(3, 4\); expected \(S, A\) = \(4, 4\)"):
        cm.gridworld(2).render(np.full((3, 4), 0.25))


# The first instance of the paper: along the upper row, then down the last column.
PAPER_EXPERT = [(state, RIGHT) for state in range(7)] + [(state, DOWN) for state in range(7, 63, 8)]


@pytest.fixture(scope="module")
def paper() -> cm.TabularMDP:
    return cm.gridworld(8, discount=0.9, goal=63, goal_reward=100.0, step_reward=-0.2)


def test_the_expert_of_the_paper_gets_97_4(paper: cm.TabularMDP) -> None:
    rows = np.full((64, 4), 0.25)
    for state, action in PAPER_EXPERT:
        rows[state] = np.eye(4)[action]
    visits = episode_visits(paper, rows)
    assert visits is not None
    expected = np.zeros((64, 4))
    expected[tuple(np.array(PAPER_EXPERT).T)] = 1.0
    np.testing.assert_allclose(visits, expected, atol=1e-12)
    assert (visits * paper.signal("reward")).sum() == pytest.approx(97.4, abs=1e-10)
    discounted = 100 * 0.9**13 - 0.2 * sum(0.9**k for k in range(13))
    occupancy = cm.occupancy_of(paper, rows)
    assert (occupancy * paper.signal("reward")).sum() == pytest.approx(discounted, abs=1e-10)


def test_no_policy_gets_more_than_the_expert_of_the_paper(paper: cm.TabularMDP) -> None:
    value = np.zeros(64)
    for _ in range(64):
        following = (paper.transition @ value).reshape(64, 4)
        value = (paper.signal("reward") + following).max(axis=1)
    assert value[0] == pytest.approx(97.4, abs=1e-10)


def test_two_rows_of_the_paper_s_grid_end_episodes(paper: cm.TabularMDP) -> None:
    enters = [(55, DOWN), (62, RIGHT)]
    assert sorted(zip(*np.nonzero(paper.ending[:63]), strict=True)) == enters
    assert [paper.signal("reward")[pair] for pair in enters] == [100.0, 100.0]
    assert paper.signal("reward")[54, DOWN] == -0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be n or"),
        ({"size": (2, 3, 4)}, "size must be n or"),
        ({"size": 8.0}, "size must be n or.*got 8.0"),
        ({"size": "8"}, "size must be n or"),
        ({"slip": 1.1}, "slip must be a probability; got 1.1"),
        ({"slip": -0.1}, "slip must be a probability"),
        ({"slip": np.nan}, "slip must be a probability"),
        ({"start": 64}, "start: 64 lies outside the 8 x 8 grid"),
        ({"start": -1}, "start: -1 lies outside"),
        ({"start": (0, 8)}, r"start: \(0, 8\) lies outside"),
        ({"walls": (10, 11)}, r"outside the 8 x 8 grid. .* one cell .*; two cells are \[10, 11\]"),
        ({"start": []}, "start names no cell"),
        ({"start": 1.5}, "a cell is a number or a pair.*got 1.5"),
        ({"start": 5, "walls": [5]}, r"cell \(0, 5\) is both in start and in walls"),
        ({"goal": 5, "walls": [5]}, "both in goal and in walls"),
        ({"hazards": [5], "walls": [5]}, "both in hazards and in walls"),
        ({"goal": 0}, "both in start and in goal"),
        ({"hazards": ["a"]}, "hazards: a cell is a number or a pair"),
        ({"hazards": [(1, 2, 3)]}, "hazards: a cell is"),
        ({"hazards": [[1, 2]]}, r"written as a tuple such as \(1, 2\); got \[1, 2\]"),
        ({"rewards": [(1, 2)]}, r"rewards must be a dictionary, such as rewards={\(1, 2\): 0.5}"),
        ({"rewards": {99: 1.0}}, "rewards: 99 lies outside"),
        ({"rewards": {3: np.nan}}, "signal 'reward' is nan at state 3"),
        ({"discount": 1.5}, "at most 1"),
    ],
)
def test_bad_gridworlds(arguments: dict, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        cm.gridworld(**arguments)


# Garnets


def test_garnets_are_determined_by_their_seed() -> None:
    first, second = (cm.garnet(30, 3, 4, seed=7, ending=0.1) for _ in range(2))
    np.testing.assert_array_equal(first.dense_transition(), second.dense_transition())
    np.testing.assert_array_equal(first.signal("cost"), second.signal("cost"))
    other = cm.garnet(30, 3, 4, seed=8, ending=0.1)
    assert (first.dense_transition() != other.dense_transition()).any()


@pytest.mark.parametrize(
    ("n_states", "branching"), [(1, 1), (5, 5), (50, 1), (50, 25), (50, 26), (300, 140)]
)
def test_garnets_have_distinct_successors(n_states: int, branching: int) -> None:
    mdp = cm.garnet(n_states, 2, branching, seed=0)
    np.testing.assert_array_equal(np.diff(mdp.transition.indptr), branching)
    np.testing.assert_allclose(mdp.transition.sum(axis=1), 1.0, rtol=1e-14)
    assert "no row ends an episode" in repr(mdp)


@pytest.mark.parametrize("branching", [3, 8])
def test_successors_of_garnets_are_uniform(branching: int) -> None:
    rows, n_states = 4_000, 10
    mdp = cm.garnet(n_states, rows // n_states, branching, seed=1)
    counts = np.bincount(mdp.transition.indices, minlength=n_states)
    chance = branching / n_states
    error = np.sqrt(rows * chance * (1 - chance))
    assert (np.abs(counts - rows * chance) <= 4 * error).all()
    # Each probability is uniform on the simplex: its mean is 1 / branching.
    assert mdp.transition.data.mean() == pytest.approx(1 / branching, rel=1e-12)
    weights = np.bincount(mdp.transition.indices, mdp.transition.data, minlength=n_states)
    assert (np.abs(weights - rows / n_states) <= 4 * np.sqrt(rows / n_states)).all()


def test_garnets_that_end() -> None:
    mdp = cm.garnet(20, 2, 3, seed=0, ending=0.25, signals=["income"])
    np.testing.assert_allclose(mdp.ending, 0.25, rtol=1e-12)
    assert list(mdp.signals) == ["income"]
    assert cm.garnet(20, 2, 3, seed=0, ending=1.0).transition.nnz == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"branching": 6}, "branching <= n_states.*branching=6"),
        ({"branching": 0}, "branching=0"),
        ({"n_actions": 0}, "n_actions=0"),
        ({"ending": 1.5}, "ending must be a probability; got 1.5"),
        ({"ending": np.nan}, "ending must be a probability"),
        ({"ending": 1e-9}, "looks like rounding"),
        ({"discount": 2}, "at most 1"),
    ],
)
def test_bad_garnets(arguments: dict, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        cm.garnet(**{"n_states": 5, "n_actions": 2, "branching": 2, "seed": 0, **arguments})


# Gymnasium's tables

TABLES = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False}),
    ("CliffWalking-v1", {}),
    ("CliffWalking-v1", {"is_slippery": True}),
    ("Taxi-v4", {}),
    ("Taxi-v4", {"is_rainy": True}),
]


@pytest.mark.parametrize(("name", "options"), TABLES)
def test_gymnasium_tables_are_read_entry_by_entry(name: str, options: dict) -> None:
    mdp = cm.from_gymnasium_table(name, 0.9, **options)
    env = gymnasium.make(name, **options).unwrapped
    transition = np.zeros((mdp.n_states, mdp.n_actions, mdp.n_states))
    reward, ending = np.zeros((2, mdp.n_states, mdp.n_actions))
    for state, actions in env.P.items():
        for action, outcomes in actions.items():
            for chance, successor, value, terminated in outcomes:
                reward[state, action] += chance * value
                if terminated:
                    ending[state, action] += chance
                else:
                    transition[state, action, successor] += chance
    np.testing.assert_allclose(mdp.dense_transition(), transition, atol=1e-15)
    np.testing.assert_allclose(mdp.signal("reward"), reward, atol=1e-14)
    np.testing.assert_allclose(mdp.ending, ending, atol=1e-14)
    np.testing.assert_allclose(mdp.initial, env.initial_state_distrib, atol=1e-15)
    assert mdp.action_names is not None


def uniform_episode(env: gymnasium.Env, random: np.random.Generator, horizon: int) -> np.ndarray:
    """Total reward, number of steps and whether it ended, of the first steps of an episode."""
    env.reset(seed=int(random.integers(2**31)))
    total = 0.0
    for step in range(1, horizon + 1):
        _, reward, terminated, _, _ = env.step(int(random.integers(env.action_space.n)))
        total += float(reward)
        if terminated:
            return np.array([total, step, 1.0])
    return np.array([total, horizon, 0.0])


def expected_episode(mdp: cm.TabularMDP, horizon: int) -> np.ndarray:
    """The means of the same numbers, by the model."""
    here, totals = mdp.initial, np.zeros(3)
    for _ in range(horizon):
        pairs = np.repeat(here[:, None] / mdp.n_actions, mdp.n_actions, axis=1)
        totals += [(pairs * signal).sum() for signal in (mdp.signal("reward"), 1.0, mdp.ending)]
        here = mdp.transition.T @ pairs.ravel()
    return totals


@pytest.mark.parametrize(
    ("name", "episodes", "horizon"),
    [("FrozenLake-v1", 4_000, 30), ("CliffWalking-v1", 200, 800), ("Taxi-v4", 300, 400)],
)
def test_gymnasium_tables_agree_with_stepping(name: str, episodes: int, horizon: int) -> None:
    env, random = gymnasium.make(name).unwrapped, np.random.default_rng(3)
    seen = np.array([uniform_episode(env, random, horizon) for _ in range(episodes)])
    errors = seen.std(axis=0, ddof=1) / np.sqrt(episodes)
    expected = expected_episode(cm.from_gymnasium_table(name, 0.9), horizon)
    assert (np.abs(seen.mean(axis=0) - expected) <= 4 * errors + 1e-12).all()
    assert errors[0] < 0.2 * abs(expected[0])


def test_frozen_lake_ends_in_holes_and_at_the_goal() -> None:
    mdp = cm.from_gymnasium_table(
        "FrozenLake-v1",
        0.95,
        signals={"fall": lambda s, a, t, reward, end: float(end and reward == 0)},
        is_slippery=False,
    )
    assert mdp.ending[4, RIGHT] == 1.0  # a hole on the right of state 4
    assert mdp.signal("fall")[4, RIGHT] == 1.0
    assert mdp.ending[14, RIGHT] == mdp.signal("reward")[14, RIGHT] == 1.0
    assert mdp.signal("fall")[14, RIGHT] == 0.0
    assert not mdp.reachable[[5, 7, 11, 12, 15]].any()
    assert mdp.render() == "S . . .\n. ! . !\n. . . !\n! . . G"


def test_cliff_walking_goes_back_and_does_not_end() -> None:
    mdp = cm.from_gymnasium_table("CliffWalking-v1", 0.95)
    assert mdp.action_names == ("up", "right", "down", "left")
    assert row_of(mdp, 36, 1) == {36: 1.0}
    assert mdp.signal("reward")[36, 1] == -100.0
    assert mdp.ending[35, 2] == 1.0
    assert mdp.render().splitlines()[3] == "S ! ! ! ! ! ! ! ! ! ! G"


def test_taxi_ends_by_dropping_off() -> None:
    mdp = cm.from_gymnasium_table("Taxi-v4", 0.95)
    drops = np.argwhere(mdp.ending[mdp.reachable] > 0)
    assert drops.shape == (4, 2)
    assert set(drops[:, 1]) == {5}


def test_an_environment_may_be_given_itself_and_stays_open() -> None:
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    mdp = cm.from_gymnasium_table(env, 0.9)
    assert row_of(mdp, 0, RIGHT) == {1: 1.0}
    env.reset(seed=0)
    env.step(RIGHT)


def test_wrappers_that_the_table_does_not_know_are_named() -> None:
    wrappers = gymnasium.wrappers
    env = wrappers.TransformReward(gymnasium.make("FrozenLake-v1"), lambda reward: 10 * reward)
    env = wrappers.RecordEpisodeStatistics(wrappers.StickyAction(env, 0.25))
    with pytest.warns(
        CvxmdpWarning, match="of FrozenLakeEnv, .*: StickyAction, TransformReward[.]"
    ) as caught:
        mdp = cm.from_gymnasium_table(env, 0.9)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert mdp.signal("reward").max() <= 1.0


def test_wrappers_that_change_nothing_are_not_warned_about() -> None:
    env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("FrozenLake-v1"))
    for given in (env, env.unwrapped, "FrozenLake-v1"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", CvxmdpWarning)
            cm.from_gymnasium_table(given, 0.9)


def test_environments_that_have_no_faithful_table() -> None:
    with pytest.raises(ModelError, match="BlackjackEnv has no transition table"):
        cm.from_gymnasium_table("Blackjack-v1", 0.9)
    with pytest.raises(ModelError, match="fickle_passenger=False"):
        cm.from_gymnasium_table("Taxi-v4", 0.9, fickle_passenger=True)
    with pytest.raises(ModelError, match=r"signals must be a dictionary.*got a function"):
        cm.from_gymnasium_table("FrozenLake-v1", 0.9, signals=lambda s, a, t, r, end: 1.0)
    with pytest.raises(ModelError, match="only go with an id"):
        cm.from_gymnasium_table(gymnasium.make("FrozenLake-v1"), 0.9, is_slippery=False)


def test_a_table_with_a_bad_initial_distribution_is_not_repaired() -> None:
    env = gymnasium.make("FrozenLake-v1").unwrapped
    env.initial_state_distrib = env.initial_state_distrib * 2
    with pytest.raises(ModelError, match="sums to 2, not to one"):
        cm.from_gymnasium_table(env, 0.9)
    env.initial_state_distrib = None
    with pytest.raises(ModelError, match="no initial_state_distrib"):
        cm.from_gymnasium_table(env, 0.9)


# Successor functions: a queue of at most three, served or refused


def queue(state: int, action: str) -> list:
    if action == "close":
        return [(0.5, None, {"income": 2.0}), (0.5, state)]
    served = max(state - 1, 0)
    return [(0.75, served, {"income": 1.0}), (0.25, min(served + 2, 3), {"income": 4.0})]


def queue_actions(state: int) -> list[str]:
    return ["serve", "close"] if state == 0 else ["serve"]


@pytest.fixture
def queue_model() -> cm.TabularMDP:
    return cm.from_function(
        queue,
        initial=0,
        actions=queue_actions,
        discount=0.9,
        signals={"length": lambda state, action: state},
    )


def test_whole_numbers_are_their_own_numbers(queue_model: cm.TabularMDP) -> None:
    assert queue_model.state_names == ("0", "1", "2", "3")
    assert queue_model.action_names == ("serve", "close")
    assert row_of(queue_model, 2, 0) == {1: 0.75, 3: 0.25}
    assert queue_model.reachable.all()
    back = cm.from_function(queue, initial={3: 0.5, 0: 0.5}, actions=queue_actions, discount=0.9)
    np.testing.assert_array_equal(back.transition.toarray(), queue_model.transition.toarray())
    np.testing.assert_array_equal(back.signal("income"), queue_model.signal("income"))
    np.testing.assert_array_equal(back.initial, [0.5, 0, 0, 0.5])


def test_other_states_are_found_breadth_first() -> None:
    mdp = cm.from_function(
        lambda s, a: [(1.0, f"state {abs(int(s[-1]) - 1)}")],
        initial="state 2",
        actions=[2, 1],
        discount=0.9,
    )
    assert mdp.state_names == ("state 2", "state 1", "state 0")
    assert mdp.action_names == ("1", "2")


def test_masks_endings_and_signals_of_a_function(queue_model: cm.TabularMDP) -> None:
    expected = [[True, True], [True, False], [True, False], [True, False]]
    np.testing.assert_array_equal(queue_model.actions, expected)
    np.testing.assert_array_equal(queue_model.ending[0], [0.0, 0.5])
    assert queue_model.ending[1:].sum() == 0.0
    np.testing.assert_array_equal(queue_model.signal("income")[0], [0.75 + 1.0, 1.0])
    np.testing.assert_array_equal(queue_model.signal("length")[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(queue_model.signal("length")[1:, 1], 0.0)


def test_several_first_states() -> None:
    mdp = cm.from_function(
        lambda s, a: [(1.0, s)], initial={"a": 0.25, "b": 0.75}, actions=["stay"], discount=0.9
    )
    np.testing.assert_array_equal(mdp.initial, [0.25, 0.75])
    assert mdp.state_names == ("a", "b")


def test_outcomes_may_repeat_a_state_and_have_no_chance() -> None:
    mdp = cm.from_function(
        lambda s, a: iter([(0.5, s), (0.5, s), (0.0, "never", {"reward": np.inf})]),
        initial="here",
        actions=["stay"],
        discount=0.9,
    )
    assert mdp.state_names == ("here",)
    assert mdp.transition[0, 0] == 1.0


class Move(enum.Enum):
    """Actions as people write them."""

    STAY = 0
    LEAVE = 1


def test_actions_may_be_an_enum() -> None:
    mdp = cm.from_function(
        lambda s, a: [(1.0, s if a is Move.STAY else None)], initial=0, actions=Move, discount=0.9
    )
    np.testing.assert_array_equal(mdp.ending, [[0.0, 1.0]])


def test_things_that_print_alike_have_no_names() -> None:
    mdp = cm.from_function(
        lambda s, a: [(1.0, "1" if s == 1 else 1)], initial=1, actions=[0], discount=0.9
    )
    assert mdp.n_states == 2
    assert mdp.state_names is None


def test_a_function_agrees_with_the_gridworld() -> None:
    grid = cm.gridworld(4, slip=0.2, goal=15)
    moves = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}

    def walk(cell: tuple[int, int], action: str) -> list:
        outcomes = []
        for name, (down, right) in moves.items():
            there = (cell[0] + down, cell[1] + right)
            there = there if min(there) >= 0 and max(there) < 4 else cell
            chance = 0.8 if name == action else 0.2 / 3
            goal = there == (3, 3)
            outcomes.append((chance, None if goal else there, {"reward": float(goal)}))
        return outcomes

    mdp = cm.from_function(walk, initial=(0, 0), actions=moves, discount=0.95)
    value, other = (
        (cm.occupancy_of(model, cm.uniform_policy(model)) * model.signal("reward")).sum()
        for model in (grid, mdp)
    )
    assert mdp.n_states == 15
    assert value == pytest.approx(other, rel=1e-12)


def ends(state, action) -> list:
    return [(1.0, None)]


BAD_FUNCTIONS = {
    "infinite": ({"successors": lambda s, a: [(1.0, s + 1)], "max_states": 50}, "max_states=50"),
    "less than one": ({"successors": lambda s, a: [(0.5, s)]}, "sum to 0.5, not to one.*None"),
    "more than one": ({"successors": lambda s, a: [(1.0, s), (0.5, s)]}, "sum to 1.5"),
    "rounding": ({"successors": lambda s, a: [(1 - 1e-10, s)]}, "looks like rounding"),
    "no outcomes": ({"successors": lambda s, a: []}, "sum to 0, not to one"),
    "negative": ({"successors": lambda s, a: [(-0.5, s), (1.5, s)]}, "has probability -0.5"),
    "nan": ({"successors": lambda s, a: [(np.nan, s)]}, "has probability nan"),
    "no return": ({"successors": lambda s, a: None}, r"successors\(0, 'a'\).*return missing"),
    "not a pair": ({"successors": lambda s, a: [s]}, "expected \\(probability, next_state\\)"),
    "too long": ({"successors": lambda s, a: [(1.0, s, {}, 1)]}, "expected \\(probability"),
    "reward, no name": ({"successors": lambda s, a: [(1.0, s, 2.0)]}, "{signal: value}"),
    "value": ({"successors": lambda s, a: [(1.0, s, {"r": "x"})]}, "{signal: value}"),
    "nan value": ({"successors": lambda s, a: [(1.0, s, {"r": np.nan})]}, "signal 'r' is nan"),
    "unhashable": ({"successors": lambda s, a: [(1.0, [s])]}, "use tuples instead of lists"),
    "initial list": ({"initial": [0]}, "use tuples instead of lists"),
    "no initial": ({"initial": {}}, "initial names no state"),
    "initial end": ({"initial": None}, "initial names no state"),
    "initial sum": ({"initial": {0: 0.5}}, "sums to 0.5"),
    "no actions": ({"actions": []}, "no state has an action"),
    "action number": ({"actions": 3}, "actions must be the actions or a function"),
    "actions None": ({"actions": lambda s: None}, r"actions\(0\) must give a list"),
    "twice": ({"actions": ["a", "a"]}, "action 'a' is given twice in state 0"),
    "both": (
        {"successors": lambda s, a: [(1.0, None, {"r": 1.0})], "signals": {"r": lambda s, a: 1.0}},
        "signal 'r' is given both",
    ),
    "list": ({"signals": [lambda s, a: 1.0]}, "signals must be a dictionary.*a list of length 1"),
    "stuck": (
        {
            "successors": lambda s, a: [(1.0, s + 1)],
            "actions": lambda s: ["a"] if s < 2 else [],
        },
        r"state 2 \('2'\) has no available action",
    ),
}


@pytest.mark.parametrize("case", BAD_FUNCTIONS)
def test_bad_functions(case: str) -> None:
    arguments, message = BAD_FUNCTIONS[case]
    given = {"successors": ends, "initial": 0, "actions": ["a"], "discount": 0.9, **arguments}
    with pytest.raises(ModelError, match=message):
        cm.from_function(given.pop("successors"), **given)


def test_an_error_of_the_user_s_function_is_passed_on() -> None:
    with pytest.raises(ZeroDivisionError):
        cm.from_function(lambda s, a: 1 / 0, initial=0, actions=["a"], discount=0.9)
