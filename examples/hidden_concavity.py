"""Hidden concavity, drawn: the way between two policies, in the space of policies and in that of occupancies.

A corridor with a prize at either end; one policy goes left, the other right. Half of each, state by state, is a
random walk that gets nowhere; half of each, occupancy by occupancy, is a policy that gets there either way.

    python examples/hidden_concavity.py      # draws docs/figures/hidden-concavity.png
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import cvxmdp as cm

CELLS, START = 9, 4
SHARES = np.linspace(0.0, 1.0, 101)
PICTURE = Path(__file__).parents[1] / "docs" / "figures" / "hidden-concavity.png"


def corridor() -> cm.TabularMDP:
    """Two actions, left and right; the ends pay 1 and 0.8 a step, and hold whoever is there."""
    transition = np.zeros((CELLS, 2, CELLS))
    for cell in range(CELLS):
        for action, move in enumerate((-1, 1)):
            to = cell if cell in (0, CELLS - 1) else cell + move
            transition[cell, action, to] = 1.0
    reward = np.zeros(CELLS)
    reward[0], reward[-1] = 1.0, 0.8
    return cm.TabularMDP(transition, START, 0.9, signals={"reward": reward})


@dataclass(frozen=True)
class Way:
    """From one policy to the other.

    Attributes:
        occupancies: (n, S, A), at each share of the second policy.
        returns, nearness: (n,), objectives along the way: a linear one, and a concave one, minus the distance
            to an expert who goes left in half of the episodes and right in the others.
    """

    occupancies: np.ndarray
    returns: np.ndarray
    nearness: np.ndarray

    def dent(self, values: np.ndarray) -> float:
        """How far the values lie below a straight line between two others: zero where they are concave."""
        deepest = 0.0
        for first in range(len(SHARES)):
            for last in range(first + 2, len(SHARES)):
                chord = np.linspace(values[first], values[last], last - first + 1)
                deepest = max(deepest, float((chord - values[first : last + 1]).max()))
        return deepest


def ways() -> tuple[Way, Way]:
    """Through mixtures of the two policies, and through policies of mixtures of their occupancies."""
    mdp = corridor()
    left, right = np.tile([1.0, 0.0], (CELLS, 1)), np.tile([0.0, 1.0], (CELLS, 1))
    ends = [cm.occupancy_of(mdp, policy) for policy in (left, right)]
    in_policies = [cm.occupancy_of(mdp, (1 - b) * left + b * right) for b in SHARES]
    # The mixture is itself the occupancy of a policy, and of no other: that is the hidden part.
    mixtures = [(1 - b) * ends[0] + b * ends[1] for b in SHARES]
    in_occupancies = [cm.occupancy_of(mdp, cm.policy_of(mdp, x)) for x in mixtures]
    expert = -cm.distance(0.5 * (ends[0] + ends[1]), norm="l2")
    return _along(mdp, expert, in_policies), _along(mdp, expert, in_occupancies)


def _along(mdp: cm.TabularMDP, expert: cm.Utility, occupancies: list[np.ndarray]) -> Way:
    values = [
        [cm.Problem(mdp, maximize=u).evaluate_occupancy(x).objective for x in occupancies]
        for u in (cm.linear("reward"), expert)
    ]
    return Way(np.array(occupancies), np.array(values[0]), np.array(values[1]))


def draw(path: Path, policies: Way, occupancies: Way) -> Path:
    """Three panels: where the two ways lie, and the two objectives along them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    axes = figure.subplots(1, 3)
    looks = (
        (policies, "#c8553d", "mixing policies"),
        (occupancies, "#1f6f8b", "mixing occupancies"),
    )
    for way, colour, label in looks:
        visits = way.occupancies.sum(axis=2)
        axes[0].plot(visits[:, 0], visits[:, -1], color=colour, label=label)
        axes[0].plot(visits[50, 0], visits[50, -1], "o", color=colour)
        for axis, values in ((axes[1], way.returns), (axes[2], way.nearness)):
            axis.plot(SHARES, values, color=colour, label=label)
    axes[0].set(
        xlabel="visits of the left end", ylabel="visits of the right end", title="occupancies"
    )
    axes[1].set(xlabel="share of the second policy", title='linear("reward")')
    axes[2].set(xlabel="share of the second policy", title="-distance(expert)")
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path


def main(path: Path = PICTURE) -> tuple[Way, Way]:
    policies, occupancies = ways()
    for name, way in (("policies", policies), ("occupancies", occupancies)):
        halfway = way.returns[50], way.nearness[50]
        dents = way.dent(way.returns), way.dent(way.nearness)
        print(
            f"mixing {name + ',':12} halfway: return {halfway[0]:.3f}, -distance {halfway[1]:.3f}; "
            f"dents of {dents[0]:.3f} and {dents[1]:.3f}"
        )
    print(f"drawn: {draw(path, policies, occupancies)}")
    return policies, occupancies


if __name__ == "__main__":
    main()
