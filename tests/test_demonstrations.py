"""Expert occupancies from recordings, and how sure they are."""

from __future__ import annotations

import os
import zipfile

import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import ExperienceError
from cvxmdp.experience.environments.simulated import ModelSimulator, actor_of

EPISODES = [[(0, 1), (2, 0), (0, 1)], [(1, 1)]]
EXPECTED = np.array([[0, 1 + 0.81], [0, 1], [0.9, 0]]) / 2
SIZES = {"discount": 0.9, "n_states": 3, "n_actions": 2}


def rows(episodes, ended) -> dict[str, list]:
    """The same episodes as a table."""
    table: dict[str, list] = {"episode": [], "state": [], "action": [], "terminated": []}
    for number, (episode, end) in enumerate(zip(episodes, ended, strict=True)):
        for step, (state, action) in enumerate(episode):
            table["episode"].append(number)
            table["state"].append(state)
            table["action"].append(action)
            table["terminated"].append(end and step == len(episode) - 1)
    return table


def test_in_memory() -> None:
    demos = cm.demonstrations(EPISODES, **SIZES)
    np.testing.assert_allclose(demos.occupancy, EXPECTED)
    assert (demos.episodes, demos.truncated) == (2, 2)
    np.testing.assert_allclose(demos.tails, [0.729 / 0.1, 0.9 / 0.1])
    ended = [
        {"states": [0, 2, 0], "actions": [1, 0, 1], "terminated": True},
        {"observations": [1, 2], "actions": [1], "terminations": [True]},  # and where it led
    ]
    demos = cm.demonstrations(ended, **SIZES)
    np.testing.assert_allclose(demos.occupancy, EXPECTED)
    assert demos.truncated == 0


def test_csv_and_npz(tmp_path) -> None:
    table = rows(EPISODES, [True, False])
    lines = [",".join(map(str, row)) for row in zip(*table.values(), strict=True)]
    (tmp_path / "d.csv").write_text("\n".join(["episode,state,action,terminated", *lines]))
    demos = cm.demonstrations(tmp_path / "d.csv", **SIZES)
    np.testing.assert_allclose(demos.occupancy, EXPECTED)
    assert demos.truncated == 1
    flat = {
        "observations": table["state"],
        "actions": table["action"],
        "terminations": table["terminated"],
        "truncations": [False, False, False, True],
    }
    np.savez(tmp_path / "d.npz", **flat)
    again = cm.demonstrations(str(tmp_path / "d.npz"), **SIZES)
    np.testing.assert_allclose(again.occupancy, EXPECTED)
    assert (again.episodes, again.truncated) == (2, 1)
    np.testing.assert_allclose(cm.demonstrations(table, **SIZES).occupancy, EXPECTED)
    np.savez(tmp_path / "bad.npz", state=np.array([{}], dtype=object), action=[0], terminated=[0])
    with pytest.raises(ExperienceError, match=r"bad\.npz cannot be read as plain arrays"):
        cm.demonstrations(tmp_path / "bad.npz", **SIZES)


@pytest.mark.parametrize("shape", [None, "(-4,)", "(1000000000000,)"])
def test_arrays_that_are_none(shape, tmp_path) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}" if shape else "[1, 2]"
    text = header.encode().ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        archive.writestr("state.npy", content)
    with pytest.raises(ExperienceError, match=r"bad\.npz cannot be read as plain arrays"):
        cm.demonstrations(tmp_path / "bad.npz", **SIZES)


def test_a_minari_dataset_on_disk(tmp_path) -> None:
    h5py = pytest.importorskip("h5py")
    folder = tmp_path / "dataset" / "data"
    folder.mkdir(parents=True)
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for number, episode in enumerate(EPISODES):
            group = file.create_group(f"episode_{number}")
            group["observations"] = np.array([*(state for state, _ in episode), 0])
            group["actions"] = np.array([action for _, action in episode])
            group["rewards"] = np.zeros(len(episode))
            group["terminations"] = np.arange(len(episode)) == len(episode) - 1
            group["truncations"] = np.zeros(len(episode), dtype=bool)
    demos = cm.demonstrations(tmp_path / "dataset", **SIZES)
    np.testing.assert_allclose(demos.occupancy, EXPECTED)
    assert demos.truncated == 0
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_1/actions"]
    with pytest.raises(ExperienceError, match=r"main_data\.hdf5, episode_1: there is no 'actions'"):
        cm.demonstrations(tmp_path / "dataset", **SIZES)
    with h5py.File(folder / "main_data.hdf5", "a") as file:  # a small file that promises 8 TB
        file["episode_1/actions"] = np.zeros(1, dtype=int)
        del file["episode_1/observations"]
        file["episode_1"].create_dataset("observations", (10**12,), "f8", chunks=(1000,))
    with pytest.raises(ExperienceError, match=r"episode_1: more than .* bytes of numbers"):
        cm.demonstrations(tmp_path / "dataset", **SIZES)
    os.mkfifo(tmp_path / "pipe.hdf5")
    for name, link in {
        "SoftLink": h5py.SoftLink("/episode_1/observations"),  # to itself
        "ExternalLink": h5py.ExternalLink(str(tmp_path / "pipe.hdf5"), "/data"),  # never ends
    }.items():
        with h5py.File(folder / "main_data.hdf5", "a") as file:
            del file["episode_1/observations"]
            file["episode_1/observations"] = link
        with pytest.raises(ExperienceError, match=rf"'observations' is a link \({name}\)"):
            cm.demonstrations(tmp_path / "dataset", **SIZES)
    with h5py.File(folder / "main_data.hdf5", "a") as file:  # rows of any length tell no size
        del file["episode_1/observations"]
        ragged = h5py.vlen_dtype(np.float64)
        file["episode_1"].create_dataset("observations", (2,), ragged)
    with pytest.raises(ExperienceError, match=r"'observations' holds object, not numbers"):
        cm.demonstrations(tmp_path / "dataset", **SIZES)
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_1/observations"]
        elsewhere = [("/dev/zero", 0, 80)]
        file["episode_1"].create_dataset("observations", (10,), "f8", external=elsewhere)
    with pytest.raises(ExperienceError, match="lies in another file"):
        cm.demonstrations(tmp_path / "dataset", **SIZES)
    with pytest.raises(ExperienceError, match="not a plain file"):
        cm.demonstrations(tmp_path / "pipe.hdf5", **SIZES)
    (folder / "main_data.hdf5").write_bytes(b"not HDF5")
    with pytest.raises(ExperienceError, match=r"main_data\.hdf5 is not an HDF5 file"):
        cm.demonstrations(tmp_path / "dataset", **SIZES)
    with pytest.raises(ExperienceError, match="is not a Minari dataset"):
        cm.demonstrations(tmp_path, **SIZES)


def test_a_loaded_dataset_by_its_interface() -> None:
    class Episode:
        def __init__(self, number: int) -> None:
            self.id = number
            self.observations = np.array([state for state, _ in EPISODES[number]])
            self.actions = np.array([action for _, action in EPISODES[number]])
            self.terminations = np.zeros(len(self.actions), dtype=bool)

    class Dataset:
        def iterate_episodes(self):
            return iter([Episode(0), Episode(1)])

    np.testing.assert_allclose(cm.demonstrations(Dataset(), **SIZES).occupancy, EXPECTED)


def test_a_policy_is_exact(grid, expert) -> None:
    demos = cm.demonstrations(expert, grid)
    np.testing.assert_array_equal(demos.occupancy, cm.occupancy_of(grid, expert))
    assert demos.radius("l1") == 0.0
    assert "exact" in repr(demos)


def test_per_feature() -> None:
    bins = cm.UniformBins([0.0], [1.0], 3)
    episode = {"observations": [[0.1], [0.9], [0.2]], "actions": [1, 0, 1]}
    other = {"observations": [[0.5]], "actions": [1]}
    demos = cm.demonstrations([episode, other], discount=0.9, n_actions=2, features=bins)
    np.testing.assert_allclose(demos.occupancy, EXPECTED)
    waves = cm.RandomFourier(1, 6, seed=0)
    dense = cm.demonstrations([episode, other], discount=0.9, n_actions=2, features=waves)
    found = waves(np.array(episode["observations"]))
    np.testing.assert_allclose(dense.occupancy[:, 0], 0.9 * found[1] / 2)
    assert np.isfinite(dense.radius())
    unknown = cm.FeatureFunction(lambda o: o, 1)
    demos = cm.demonstrations([other], discount=0.9, n_actions=2, features=unknown)
    with pytest.raises(ExperienceError, match="nobody knows how large these features are"):
        demos.radius()


def simulated(mdp, policy, episodes: int, horizon: int, seed: int) -> list[dict]:
    act = actor_of(policy, mdp.n_actions, seed)
    batch = ModelSimulator(mdp).episodes(act, episodes, horizon, np.random.default_rng(seed))
    return [
        {
            "states": batch.inputs[i, : batch.lengths[i]],
            "actions": batch.actions[i, : batch.lengths[i]],
            "terminated": batch.terminated[i],
        }
        for i in range(episodes)
    ]


def test_the_radius_holds_and_shrinks() -> None:
    """Coverage by simulation: known truth, seeded; the bound may fail in 5% of 60 and never does."""
    mdp = cm.gridworld(2, slip=0.2, discount=0.8, goal=3)
    policy = cm.uniform_policy(mdp)
    truth = cm.occupancy_of(mdp, policy)
    inside, tightness = {"l1": 0, "l2": 0}, []
    for seed in range(60):
        demos = cm.demonstrations(simulated(mdp, policy, 100, 6, seed), mdp)
        assert demos.truncated > 0
        error = demos.occupancy - truth
        sizes = {"l1": np.abs(error).sum(), "l2": np.linalg.norm(error)}
        for norm, size in sizes.items():
            inside[norm] += size <= demos.radius(norm, 0.95)
        tightness.append(sizes["l2"] / demos.radius("l2", 0.95))
    assert inside["l1"] >= 57
    assert inside["l2"] >= 57
    assert max(tightness) > 0.05  # it is a bound of the right order, not any large number


def test_the_radius_is_the_smaller_of_two_inequalities() -> None:
    mdp = cm.gridworld(2, slip=0.2, discount=0.8, goal=3)
    policy, mass, hidden = cm.uniform_policy(mdp), 5.0, 0.8**30 / 0.2

    def closed_forms(n):
        demos = cm.demonstrations(simulated(mdp, policy, n, 30, 0), mdp, episode_limit=30)
        differences = mass * (1 + np.sqrt(np.log(4 / 0.05))) / np.sqrt(n)
        squares, log = demos.squares, np.log(2 / (0.05 / 8))
        bound = np.sqrt(2 * squares.var(ddof=1) * log / n) + 7 * mass**2 * log / (3 * (n - 1))
        second = min(squares.mean() + bound, mass**2)
        log = np.log(16 / 0.05)
        moments = 2 * mass * log / n + np.sqrt(2 * second * log / n)
        return demos, differences + hidden, moments + hidden

    few, differences, moments = closed_forms(30)
    assert differences < moments
    assert few.radius("l2") == pytest.approx(differences)
    wide = mass * (np.sqrt(16) + np.sqrt(2 * np.log(4 / 0.05))) / np.sqrt(30) + hidden
    assert few.radius("l1") == pytest.approx(wide)
    many, differences, moments = closed_forms(10_000)
    assert moments < differences / 2
    assert many.radius("l2") == pytest.approx(moments)


def test_demonstrations_are_a_target() -> None:
    mdp = cm.gridworld(2, slip=0.2, discount=0.8, goal=3)
    demos = cm.demonstrations(simulated(mdp, cm.uniform_policy(mdp), 200, 40, 0), mdp)
    problem = cm.Problem(
        mdp,
        maximize=cm.linear("reward"),
        subject_to={"near": cm.distance(demos, norm="l2") <= demos.radius("l2")},
    )
    assert cm.solve(problem).slack["near"] >= -1e-7


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        (EPISODES, {"n_states": 3, "n_actions": 2}, "give a model, or discount="),
        (EPISODES, {"discount": 0.9, "n_states": 3}, "how many actions are there"),
        (EPISODES, {**SIZES, "n_states": 2}, "episode 0, step 1: state 2 is not one of 0 to 1"),
        ([], SIZES, "there are no episodes"),
        ([[]], SIZES, "episode 0 has no steps"),
        ([[1, 2]], SIZES, r"episode 0 is not a list of \(state, action\)"),
        (3, SIZES, "a list of episodes, a table"),
        ([{"states": [0], "action": [0]}], SIZES, "episode 0 has 'action'; known are"),
        ([{"states": [0], "actions": [0, 1]}], SIZES, "1 observations for 2 actions"),
        ([{"states": [0], "actions": [0.5]}], SIZES, "actions are whole numbers"),
        ([{"states": [0.5], "actions": [0]}], SIZES, "are no states; give features="),
        (
            [{"states": [0, 0], "actions": [0, 0], "terminations": [1, 0]}],
            SIZES,
            "goes on after step 0",
        ),
        (
            [{"observations": [[np.nan]], "actions": [0]}],
            SIZES,
            "episode 0, step 0: the observation",
        ),
        (
            EPISODES,
            {**SIZES, "episode_limit": 3},
            "episode 1 was cut after 1 steps, although episode_limit=3",
        ),
        (rows(EPISODES, [1, 1]) | {"episode": [0] * 4}, SIZES, "row 3: episode 0 goes on after"),
        (cm.TabularPolicy([[1.0]]), {}, "depends on the model"),
    ],
)
def test_mistakes(source, settings, message) -> None:
    with pytest.raises(ExperienceError, match=message):
        cm.demonstrations(source, **settings)
