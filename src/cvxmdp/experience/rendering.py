"""An episode to look at: frames of an environment that renders, or a GIF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import ExperienceError, require
from cvxmdp.base.gymnasium_ids import make_environment
from cvxmdp.base.storage import whole_file
from cvxmdp.experience.environments.gymnasium_env import GymnasiumEnv
from cvxmdp.experience.environments.simulated import actor_in
from cvxmdp.policies.features import Features

FRAMES_PER_SECOND = 10


def record_episode(
    policy: Any,
    env_or_id: Any,
    path: str | Path | None = None,
    *,
    seed: int,
    horizon: int = 1_000,
    features: Features | None = None,
    deterministic: bool = False,
    **make_arguments: Any,
) -> list[np.ndarray]:
    """Play one episode and keep its pictures, the last state included.

    Args:
        policy: whatever ``evaluate`` takes.
        env_or_id: a single environment with ``render_mode="rgb_array"``, or an id.
        path: write a GIF there.
        seed: of the environment and the policy.
        horizon: stop after so many steps.
        features: for a table on observations that are not states, if it does not know its bins itself.
        deterministic: passed to ``predict``.
        **make_arguments: passed to ``gymnasium.make`` with an id.

    Returns:
        The frames, each (height, width, 3) of bytes.
    """
    made_here = isinstance(env_or_id, str)
    env = env_or_id
    if made_here:
        env = make_environment(env_or_id, render_mode="rgb_array", **make_arguments)
    try:
        source = GymnasiumEnv(env, 0.0, features=features)
        if not source.idles or getattr(env, "render_mode", None) != "rgb_array":
            raise ExperienceError(
                f"{source.name} has render_mode={getattr(env, 'render_mode', None)!r}; an episode is recorded "
                'of a single environment made with render_mode="rgb_array"'
            )
        acting = actor_in(source, policy, seed, deterministic)
        frames: list[np.ndarray] = []

        def act(observations: Any, inputs: np.ndarray, begins: np.ndarray) -> np.ndarray:
            frames.append(_frame(env, source.name))
            return acting(observations, inputs, begins)

        source.episodes(act, horizon, signals=(), seed=seed)
        frames.append(_frame(env, source.name))
    finally:
        if made_here:
            env.close()
    if path is not None:
        _write(frames, Path(path))
    return frames


def _frame(env: Any, name: str) -> np.ndarray:
    picture = env.render()
    frame: np.ndarray = np.asarray([] if picture is None else picture)
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise ExperienceError(
            f"{name} rendered shape {frame.shape} of type {frame.dtype}; expected (height, width, 3) bytes"
        )
    return frame.copy()


def _write(frames: list[np.ndarray], path: Path) -> None:
    image = require("PIL.Image", "report")
    pictures = [image.fromarray(frame) for frame in frames]
    with whole_file(path) as temporary:
        pictures[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=pictures[1:],
            duration=1_000 // FRAMES_PER_SECOND,
            loop=0,
        )
