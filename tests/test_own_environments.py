"""The command line in a user's own environment, cvxmdp evaluate, and curves for TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import cvxmdp as cm
from command_line import PROBLEM, SAMPLING, Done
from cvxmdp.runs.run_folder import read_run
from environments import ModelEnv

MODULE = """
import gymnasium

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, chance=0.8):
        self.chance = chance

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        moved = int(action) * (self.np_random.random() < self.chance)
        self.place = min(self.place + moved, 3)
        ends = self.place == 3
        return self.place, float(ends), ends, False, {"effort spent": float(action)}

def shortcut(chance):
    return Walk(chance)
"""
WALK = """
maximize = 'linear("reward")'

[subject_to]
effort = 'linear("effort") <= 4.0'

[model]
kind = "environment"
id = "{name}:Walk"
discount = 0.9
n_envs = 4
info = {{ effort = "effort spent" }}
arguments = {{ chance = 0.7 }}

[solver]
steps = 400
"""


@pytest.fixture
def walk(tmp_path, monkeypatch) -> Path:
    """A module and a problem file that names what is in it, in the folder one is in."""
    name = f"walks_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "walk.toml").write_text(WALK.format(name=name))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / name


def test_a_file_alone_runs_no_code(walk) -> None:
    done = Done("solve", "walk.toml", "--seed", 0)
    assert done.code == 2
    assert f"--import {walk.name}" in done.err
    assert walk.name not in sys.modules


def test_what_is_wrong_with_an_import_is_said(walk) -> None:
    assert "--import no_such_module" in Done("solve", "walk.toml", "--import", "no_such_module").err
    other = Path("walk.toml").read_text().replace(":Walk", ":Wlak")
    Path("other.toml").write_text(other)
    done = Done("solve", "other.toml", "--import", walk.name)
    assert done.code == 2
    assert "Did you mean 'Walk'" in done.err


def test_learned_and_evaluated_in_an_environment_of_ones_own(walk) -> None:
    done = Done("solve", "walk.toml", "--import", walk.name, "--seed", 0, "-o", "run", "--json")
    assert done.code == 4, done.err
    assert set(done.json["constraint_status"]) == {"effort"}
    assert f"--import {walk.name}" in read_run("run").rerun
    words = ("evaluate", "walk.toml", "run", "--episodes", 100, "--import", walk.name)
    judged = Done(*words, "--json", "-o", "judged.json")
    assert judged.code == 0, judged.err
    assert judged.json["episodes"] == 100
    assert judged.json["slack"]["effort"]["value"] == pytest.approx(
        cm.PolicyEvaluation.load("judged.json").slack["effort"].value
    )
    assert "Constraints are shown by their slack" in Done(*words).out


def test_evaluate_in_a_model(tmp_path) -> None:
    (tmp_path / "grid.toml").write_text(PROBLEM)
    assert Done("solve", tmp_path / "grid.toml", "-o", tmp_path / "run", "--no-certify").code == 0
    judged = Done("evaluate", tmp_path / "grid.toml", tmp_path / "run", "--episodes", 400, "--json")
    assert judged.code == 0, judged.err
    assert judged.json["feasible"] in ("proven", "open")
    strict = PROBLEM.replace("<= 0.05", "<= 0.0001")
    (tmp_path / "strict.toml").write_text(strict)
    worse = Done("evaluate", tmp_path / "strict.toml", tmp_path / "run", "--episodes", 4000)
    assert worse.code == 4
    assert "violates" in worse.out


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars that TensorBoard would show, by name."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.glob("events*")):
        data = path.read_bytes()
        while data:
            size = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + size])
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
            data = data[12 + size + 4 :]
    return found


def test_curves_for_tensorboard(tmp_path) -> None:
    """Every iterative solver, through the one loop; also where a simulator is stepped."""
    mdp = cm.gridworld(3, slip=0.2, discount=0.8, goal=8, goal_reward=1.0, hazards=[4])
    mdp = mdp.with_signals(cost=mdp.signal("hazard"))
    limit = {"cost": cm.linear("cost", per="step") <= 0.05}
    solver = cm.VRPDPG(20, 0.1, 0.5, 0.5, 10, 4, evaluate_every=10)
    for k, source in enumerate((mdp, cm.GymnasiumEnv(ModelEnv(mdp), 0.8))):
        problem = cm.Problem(source, minimize=-cm.linear("reward"), subject_to=limit)
        found = cm.solve(problem, solver, seed=0, progress=False, tensorboard=tmp_path / str(k))
        told = events(tmp_path / str(k))
        assert [step for step, _ in told["multipliers/cost"]] == list(range(1, 21))
        shown = [value for _, value in told["episode_objective"]]
        assert shown == pytest.approx(found.history["episode_objective"].tolist(), abs=1e-6)
        assert told["answer/slack/cost"][0][1] == pytest.approx(found.slack["cost"], abs=1e-6)
    exact = cm.solve(
        cm.Problem(mdp, maximize=cm.linear("reward"), subject_to=limit),
        cm.PDPG(iterations=20),
        progress=False,
        tensorboard=tmp_path / "pdpg",
    )
    assert events(tmp_path / "pdpg")["answer/objective"][0][1] == pytest.approx(exact.objective)


def test_curves_from_the_command_line(tmp_path) -> None:
    (tmp_path / "grid.toml").write_text(PROBLEM + SAMPLING)
    words = ("--seed", 0, "--no-certify", "--tensorboard", tmp_path / "curves")
    assert Done("solve", tmp_path / "grid.toml", *words).code == 4
    assert "multipliers/hazard" in events(tmp_path / "curves")


def test_what_was_learned_in_an_environment_is_kept_with_its_model_and_its_proof(tmp_path) -> None:
    """The states of an environment that does not count from zero have names."""

    env = cm.GymnasiumEnv("Blackjack-v1", discount=0.9, bounds={"reward": (-1, 1)})
    problem = cm.Problem(env, maximize=cm.linear("reward"))
    learned = cm.solve(problem, cm.ModelBased(600), seed=0, folder=tmp_path / "run")
    learned.save(tmp_path / "saved")
    for folder in (tmp_path / "run", tmp_path / "saved"):
        with pytest.raises(cm.FileFormatError, match=r"load_solution\(folder, problem=problem\)"):
            cm.load_solution(folder)
        read = cm.load_solution(folder, problem=problem)
        assert read.objective == learned.objective
        model = read.stats["model"]
        assert model.counts.total == learned.stats["model"].counts.total
        assert "(12, 3, 0)" in model.state_names
        estimate = problem.with_model(model)
        assert cm.solve(estimate).policy.predict((12, 3, 0))[0] in (0, 1)
        assert cm.certify(estimate, read).upper >= learned.objective - 2.0
        proof = folder / "estimate" / "certificate.json"
        assert cm.check(proof, folder / "estimate").accepted
    exported = tmp_path / "policy.csv"
    assert Done("export", tmp_path / "run", "-o", exported).code == 0
    assert "(12, 3, 0)" in exported.read_text()
