"""The program behind the published curves: that it is what its page says, and how claims are judged."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cvxmdp.paper import authors_program as program
from cvxmdp.paper.authors_study import (
    AuthorsCurves,
    agreement_table,
    authors_studies,
    run_authors_study,
)
from cvxmdp.paper.learning_curves import Curves
from cvxmdp.paper.published import published_curves
from cvxmdp.paper.studies import studies_of
from cvxmdp.paper.theorem_claims import theorem_claims
from cvxmdp.paper.tracking import expert_occupancy, expert_trajectory
from cvxmdp.paper.verdicts import claims_of
from strategies import quickly

STEPS = 16  # two more than the shortest way, so that episodes can end before


@pytest.fixture(scope="module")
def grid() -> program.Grid:
    model = program.tracking_model("8x8-traj2")
    table = model.dense_transition()
    return program.Grid(
        jnp.asarray(table.argmax(axis=2)),
        jnp.asarray(table.sum(axis=2) < 0.5),
        jnp.asarray(expert_occupancy("8x8-traj2"), jnp.float32),
        jnp.asarray(0.9 ** np.arange(STEPS), jnp.float32),
    )


@pytest.fixture(scope="module")
def played(grid):
    """Memories before and after each of four iterations."""
    setting = program.AuthorsSettings(0.5, 0.1, 0.1, 0.01)
    memories = [program._first(grid, jax.random.key(1))]
    step = quickly(program._iteration)
    for t in range(4):
        following, _ = step(grid, setting, memories[-1], t, jax.random.key(t))
        memories.append(following)
    return memories


def crossed(policy, episode, rewards):
    """The authors' loss: log chances in a column times rewards to go in a row, all entries added up."""

    def total(policy):
        logs = jnp.take_along_axis(policy.logs(episode.states), episode.actions[:, None], 1)
        discounted = 0.9 ** jnp.arange(STEPS) * rewards
        to_go = jnp.array([discounted[h:].sum() for h in range(STEPS)])
        return (logs * to_go[None, :]).sum()

    return jax.grad(total)(policy)


def assert_close(one, other):
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=1e-5)


def test_gradients_are_those_of_the_description(grid, played):
    """Line by line: what is fresh, what is stale, and along which episode, with weights of one."""
    before, now, after = played[1], played[2], played[3]
    alpha, policy = 0.1, now.policy
    fresh = crossed(policy, after.last, now.last.rewards)  # r_{f,t-1} by time step, along tau_t
    stale = crossed(policy, after.last, before.last.rewards)  # r_{f,t-2} along tau_t, same policy
    expected = jax.tree.map(
        lambda new, old, d: alpha * new + (1 - alpha) * (d + new - old), fresh, stale, now.objective
    )
    assert_close(after.objective, expected)
    fresh = crossed(policy, now.last, now.slopes[0])  # along the previous episode
    stale = crossed(policy, after.last, before.slopes[0])
    expected = jax.tree.map(
        lambda new, old, d: alpha * new + (1 - alpha) * (d + new - old),
        fresh,
        stale,
        now.constraint,
    )
    assert_close(after.constraint, expected)


def test_occupancies_are_averaged_and_the_multiplier_rises_with_half_the_squared_gap(grid, played):
    now, after = played[2], played[3]
    visits = np.zeros((64, 4))
    for h in range(STEPS):
        if after.last.alive[h]:
            visits[after.last.states[h], after.last.actions[h]] += 0.9**h
    expected = 0.1 * visits + 0.9 * np.asarray(now.occupancy)
    np.testing.assert_allclose(after.occupancy, expected, atol=1e-5)
    missed = 0.5 * ((expected - expert_occupancy("8x8-traj2")) ** 2).sum() - 0.01
    rises = min(float(now.multiplier) + 0.1 * missed, 10.0)
    assert float(after.multiplier) == pytest.approx(rises, rel=1e-4)


def test_adam_steps_by_the_rate_over_the_norm(played):
    """In the first iteration every parameter with a gradient moves by eta / |d_L|, whatever its size."""
    first, after = played[0], played[1]
    ascent = jax.tree.map(lambda f, g: np.asarray(f + 1.0 * g), after.objective, after.constraint)
    rate = 0.5 / np.sqrt(sum((leaf**2).sum() for leaf in ascent))
    for new, old, slope in zip(after.policy, first.policy, ascent, strict=True):
        moved = np.abs(slope) > 1e-4
        np.testing.assert_allclose(
            (np.asarray(new) - np.asarray(old))[moved], rate * np.sign(slope[moved]), rtol=1e-2
        )


def test_episodes_that_end_are_padded_with_the_first_state(grid):
    """A policy that follows the expert is at the goal after 14 steps; the two others count as state 0."""
    last = jnp.zeros((32, 4))
    first = jnp.zeros((64, 32))
    for state, action in expert_trajectory("8x8-traj2"):
        first = first.at[state, action].set(1e3)
        last = last.at[action, action].set(1.0)
    policy = program.Network(first, jnp.zeros(32), last, jnp.zeros(4))
    episode = program._play(grid, policy, jax.random.key(0))
    assert episode.alive.sum() == 14
    assert episode.rewards[13] == 100.0
    assert episode.rewards.sum() == pytest.approx(97.4)
    assert (episode.states[14:] == 0).all()
    assert (episode.actions[14:] == 0).all()
    scores = program._scores(policy, episode)
    assert float(jnp.abs(scores.first_bias).max()) >= 0.0
    padded = program._scores(policy, episode._replace(states=episode.states.at[14:].set(5)))
    assert not np.allclose(scores.last_bias, padded.last_bias)


def test_runs_of_one_seed_share_their_luck(tmp_path, monkeypatch):
    study = replace(authors_studies("8x8", quick=True)[1], iterations=350)
    seen = []

    def play(*arguments):
        seen.append(program.play_authors_program(*arguments))
        return seen[-1]

    monkeypatch.setattr("cvxmdp.paper.authors_study.play_authors_program", play)
    found = run_authors_study(study, tmp_path)
    again = run_authors_study(study, tmp_path)
    assert len(seen) == 1, "what is kept is not made again"
    np.testing.assert_array_equal(found.errors, again.errors)
    returns, errors = seen[0]
    assert returns.shape == errors.shape == (4, 350)
    assert errors[0, 0] == errors[1, 0]
    assert errors[2, 0] == errors[3, 0] != errors[0, 0]
    assert found.at.tolist() == [250, 350]
    theirs = published_curves("8x8-traj2")["vr-pdpg"]
    # so early nobody has learned anything, and all programs look alike
    assert found.errors[:, 0] == pytest.approx(np.full(2, theirs.errors[0]), rel=0.1)


def synthetic(shift: float) -> AuthorsCurves:
    """Three seeds around the published curve, moved by a share of its band."""
    theirs = published_curves("8x8-traj1")["vr-pdpg"]
    study = authors_studies("8x8")[0]
    moves = np.array([-0.2, 0.0, 0.2])[:, None] + shift
    returns = theirs.returns + moves * theirs.returns_std
    errors = theirs.errors + moves * theirs.errors_std
    return AuthorsCurves(study, theirs.episode, returns, errors)


def test_agreement_says_whether_curves_lie_in_the_published_band():
    near, far = synthetic(0.1).agreement(), synthetic(3.0).agreement()
    assert near.reproduced
    assert near.returns.inside == near.returns.covered == near.errors.inside == 1.0
    assert not far.reproduced
    assert far.errors.inside == 0.0
    header, rows = agreement_table([synthetic(0.0)])
    assert len(header) == len(rows[0])


def made_up(ends: dict[str, float]) -> dict:
    """Studies of the printed grid whose returns are as given, up to a little noise."""
    found = {}
    for study in studies_of("8x8", quick=True):
        values = ends[study.method.split(" (")[0].split(",")[0]] + 0.1 * np.arange(3)[:, None]
        samples = np.full(3, 100.0 if study.solver.batch_size > 1 else 1.0)
        returns = np.repeat(values, 4, axis=1)
        curves = Curves(study.method, np.arange(1, 5), returns, 0 * returns, samples, samples)
        found[study] = [curves]
    return found


@pytest.mark.parametrize(
    ("memory", "without", "verdict"),
    [(90.0, 10.0, "confirmed"), (10.0, 90.0, "the other way round"), (50.0, 50.0, "not seen")],
)
def test_verdicts_follow_the_numbers(memory, without, verdict):
    found = made_up({"VR-PDPG": memory, "momentum 1": without, "Avg": memory + 2.0})
    claims = claims_of(found, [synthetic(0.0)])
    assert claims[0].verdict.startswith(verdict)
    by_claim = {claim.claim: claim.verdict for claim in claims}
    assert (
        by_claim['"it consumes 100 times more samples than our VR-PDPG algorithm"'] == "confirmed"
    )
    averaging = next(verdict for claim, verdict in by_claim.items() if "averaging" in claim)
    assert averaging == "confirmed"
    assert claims[-1].verdict.endswith("1 of 1 curves")


@pytest.mark.slow
def test_theorems_are_measured_beside_their_bounds():
    concave, strongly, zero = theorem_claims()
    for claim in (concave, strongly):
        assert claim.verdict == "confirmed"
        assert "in 3 of 3 runs" in claim.measured
    assert zero.verdict == "reached by certificates"
    assert zero.measured.endswith("violation 0")
