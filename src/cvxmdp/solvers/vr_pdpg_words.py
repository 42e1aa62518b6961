"""What a run of VR-PDPG says of its own estimates: slacks of the wrong sign, borders nearer than the noise."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cvxmdp.algorithms.learning_state import LearningState
from cvxmdp.algorithms.recursion import Learning
from cvxmdp.algorithms.safe_steps import noise_of
from cvxmdp.base.errors import CvxmdpWarning
from cvxmdp.solvers.vr_pdpg_settings import UNSEEN

LEAST_LATE = 50  # records of the last half, before anything is said of their mean
SURE = 3.0  # standard errors
# Standard deviations of its estimate: so near the border noise keeps a policy away from it.
BESIDE = 4.0
MORE_EPISODES = 4  # times the batch: half the noise


def border_note(learning: Learning, state: LearningState, momentum: float, batch: int) -> str:
    """Where arguments of logarithms are kept inside by the noise of their estimates, not by their price."""
    departures = learning.departures
    if not departures.logs or not int(state.step):
        return ""
    x = departures.whole * state.occupancy
    inside = np.array([float(log.parts[0].value(x)) for log in departures.logs])
    noise = np.asarray(noise_of(state.changes, momentum))
    worst = int(np.argmin(inside - BESIDE * noise))
    if inside[worst] > BESIDE * noise[worst]:
        return ""
    return (
        f" The argument of a logarithm is {inside[worst]:.2g}, by an estimate with a standard deviation of "
        f"{noise[worst]:.2g}, and steps stay two of them inside: with batch_size={MORE_EPISODES * batch} that "
        "costs half as much."
    )


def warn_of_lies(
    history: Mapping[str, Any], names: Sequence[str], momentum: float, unseen: float = 0.0
) -> None:
    """Say where the dual steps saw a slack of the wrong sign, on average over the last half of a run.

    There are two causes. What lies beyond the horizon, the share gamma^H of every discounted sum, is not seen
    where the horizon was given: costs look that much smaller. And the recursive estimate of a slack has the
    variance (a^2 Var x + (1-a)^2 Var(w) E x^2) / (a (2-a)) for the momentum a, returns x and importance weights
    w. Where Var(w) is large, its typical value is not its mean either: most weights are below 1, and the
    recursion, which adds x and takes w x away, is too large.

    Args:
        history: of the run.
        names: of the constraints.
        momentum: a.
        unseen: the share of discounted sums that is not seen.
    """
    recorded, at = history["recorded"], history.get("played", np.zeros(0))
    half = recorded.max(initial=0) // 2
    for name in names:
        played = history.get("played_slack", {}).get(name, np.zeros(0))[at >= half]
        said = history["recursive_slack"][name][recorded > half]
        if min(played.size, said.size) < LEAST_LATE:
            continue
        true, believed = float(played.mean()), float(said.mean())
        # Estimates are alike for about 2/a iterations: so many fewer of them are independent.
        blurs = [one.std() * np.sqrt(2.0 / momentum / one.size) for one in (played, said)]
        if true * believed < 0 and abs(true) > SURE * blurs[0] and abs(believed) > SURE * blurs[1]:
            advice = (
                "Take a smaller primal_step, a larger momentum or batch_size, or a longer horizon."
            )
            if unseen > UNSEEN:
                advice = (
                    f"{unseen:.0%} of every discounted sum lies beyond the horizon that was given: take a "
                    "longer one, or leave horizon out, which allows for it."
                )
            warnings.warn(
                f"the recursive estimate of the slack of {name!r} was {believed:+.2g} on average over the "
                f"last half, that of the policies {true:+.2g}: the multiplier moved the wrong way. {advice}",
                CvxmdpWarning,
                stacklevel=3,
            )
