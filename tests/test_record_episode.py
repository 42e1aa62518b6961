"""An episode as frames and as a GIF."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import cvxmdp as cm
from cvxmdp.base.errors import ExperienceError
from environments import Counter, Point


class Painted(Counter):
    """Shows its age as a shade of grey."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, shape=(8, 6, 3)) -> None:
        self.render_mode, self.shape = render_mode, shape

    def render(self):
        return np.full(self.shape, 20 * self.age, dtype=np.uint8)


POLICY = np.full((10, 2), 0.5)


def test_every_state_is_a_frame_and_the_gif_holds_them(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image")
    env = Painted("rgb_array")
    frames = cm.record_episode(POLICY, env, tmp_path / "episode.gif", seed=0)
    assert len(frames) == env.length + 1
    assert [int(frame[0, 0, 0]) // 20 for frame in frames] == list(range(env.length + 1))
    with image.open(tmp_path / "episode.gif") as gif:
        assert gif.format == "GIF"
        assert gif.n_frames == len(frames)


class PaintedPoint(Point):
    """A point on a line, as a shade of grey."""

    render_mode = "rgb_array"

    def render(self):
        return np.full((8, 6, 3), int(127 * (1 + self.place[0])), dtype=np.uint8)


def test_a_policy_on_observations_needs_no_features_to_be_shown() -> None:
    bins = cm.UniformBins(-1, 1, 4)
    for policy in (cm.Table(), cm.MLP(3)):
        problem = cm.Problem(
            cm.GymnasiumEnv(Point(), 0.9, features=bins), maximize=cm.linear("reward")
        )
        solver = cm.VRPDPG(2, 0.1, 0.1, 0.5, 10, policy=policy)
        found = cm.solve(problem, solver, seed=0)
        frames = cm.record_episode(found, PaintedPoint(), seed=0, horizon=7)
        assert 2 <= len(frames) <= 8


def test_by_id_and_cut() -> None:
    gymnasium.register("cvxmdp/Painted-v0", Painted, disable_env_checker=True)
    try:
        frames = cm.record_episode(POLICY, "cvxmdp/Painted-v0", seed=1, horizon=1)
    finally:
        del gymnasium.registry["cvxmdp/Painted-v0"]
    assert len(frames) == 2


def test_environments_that_do_not_render() -> None:
    with pytest.raises(ExperienceError, match=r"has render_mode=None.*render_mode=\"rgb_array\""):
        cm.record_episode(POLICY, Painted(), seed=0)
    with pytest.raises(ExperienceError, match=r"rendered shape \(8, 6\) of type uint8"):
        cm.record_episode(POLICY, Painted("rgb_array", (8, 6)), seed=0)
