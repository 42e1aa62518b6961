"""The worked examples that learn from samples, in their short form: fewer iterations, seeds and episodes.

What is asserted is robust: learning has gone most of the way, truth lies in its intervals, the two ways of
playing agree. The figures of the pages are those of the full runs.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import cvxmdp as cm
from test_worked_exact import assert_proven, run, text_blocks

__all__ = ["run"]  # the fixture
pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["frozen_lake", "cart_pole", "mountain_car"])
def test_the_tables_of_the_page_are_those_of_the_example(run, capsys, name):
    ran = run(name, capsys)
    assert ran.picture.stat().st_size > 10_000
    printed = [" ".join(line.split()) for line in ran.printed.splitlines()]
    blocks = text_blocks(name)
    assert blocks
    for block in blocks:
        assert " ".join(block.splitlines()[0].split()) in printed


def test_frozen_lake(run, capsys):
    lake = run("frozen_lake", capsys).found
    assert_proven(lake.certificate, 1e-6)
    assert lake.certificate.upper == pytest.approx(0.4074, abs=1e-3)
    assert lake.worth["reward only"][1] > 2 * 0.1  # the budget is not idle
    for solution, trial in zip(lake.solutions, lake.trials, strict=True):
        assert trial.all_hold
        assert trial.truth["objective"] > 20 * lake.worth["uniform"][0]
        assert trial.truth["fall"] > -0.05
        assert 0.5 < solution.multipliers["fall"] < 2.0
        model = run("frozen_lake", capsys).module.model()
        reached = np.vdot(model.signal("reward"), cm.occupancy_of(model, solution.policy))
        assert reached == pytest.approx(trial.truth["objective"], abs=1e-9)


def test_frozen_lake_signals_mean_the_same_in_table_and_environment(run, capsys):
    module = run("frozen_lake", capsys).module
    fall = module.SIGNALS["fall"]
    assert fall(0, 0, 5, 0.0, True) == 1.0
    assert fall(14, 2, 15, 1.0, True) == 0.0
    assert fall(0, 0, 1, 0.0, False) == 0.0


def test_the_two_cart_poles_are_one(run, capsys):
    import jax

    from_jax = run("cart_pole", capsys).module.CartPole()
    step = jax.jit(from_jax.step)
    random = np.random.default_rng(0)
    with gymnasium.make("CartPole-v1") as env:
        for episode in range(5):
            seen, _ = env.reset(seed=episode)
            _, state = from_jax.reset(jax.random.key(0))
            state, over = state._replace(numbers=np.asarray(seen)), False
            while not over:
                action = int(random.integers(2))
                seen, reward, over, _, _ = env.step(action)
                found, state, same_reward, done, info = step(jax.random.key(0), state, action)
                np.testing.assert_allclose(found, seen, rtol=1e-4, atol=1e-5)
                assert (same_reward, bool(done), bool(info["truncated"])) == (reward, over, False)


def test_a_cart_pole_in_jax_is_cut_at_its_limit(run, capsys):
    import jax

    cart = run("cart_pole", capsys).module.CartPole(time_limit=1)
    _, state = cart.reset(jax.random.key(0))
    _, _, _, done, info = cart.step(jax.random.key(1), state, 0)
    assert bool(done)
    assert bool(info["truncated"])


def test_cart_pole(run, capsys):
    cart = run("cart_pole", capsys)
    found, budget = cart.found, cart.module.BUDGET
    uniform = found.others["uniform"]
    for source in cart.module.SOURCES:
        for judged in found.judged[source]:
            assert judged.objective.value > uniform.objective.value + 0.5
            assert judged.slack["tilted"].value > budget - 0.05  # uniform: 0.05 of the steps
            assert judged.steps > 3 * uniform.steps
        assert all(one.multipliers["tilted"] > 1 for one in found.solutions[source])
    one, other = (found.both[source] for source in cart.module.SOURCES)
    assert one.objective.value == pytest.approx(other.objective.value, abs=0.15)
    lower = max(one.slack["tilted"].lower, other.slack["tilted"].lower)
    upper = min(one.slack["tilted"].upper, other.slack["tilted"].upper)
    assert one.slack["tilted"].proven
    assert lower <= upper


def test_the_policy_of_the_cart_is_saved_loaded_and_recorded(run, capsys):
    cart = run("cart_pole", capsys)
    assert cart.found.same_after_loading
    assert cart.found.recorded > 10
    gif = cart.module.showing.picture_path("cart_pole", docs=False).with_suffix(".gif")
    assert 1_000 < gif.stat().st_size < 300_000


def test_mountain_car(run, capsys):
    car = run("mountain_car", capsys).found
    assert car.expert[0] > 0.25
    assert car.recordings.truncated == 0
    for alone in car.alone:  # nobody ever sees the flag
        assert alone.objective.value == 0.0
        assert alone.slack["near"].value < -15.0
    for learned, alone in zip(car.judged, car.alone, strict=True):
        assert learned.slack["near"].value > alone.slack["near"].value + 5.0
        assert learned.objective.value > 0.01
