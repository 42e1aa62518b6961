"""Fronts that MO-Gymnasium 1.3.2 publishes for tabular environments (``pareto_front(gamma)``), proven or not.

The environments are written anew: the rules of deep sea treasure are those of Vamplew et al. (2011), with the
treasures of Yang et al. (2019, "convex") and of Vamplew et al. (2018, "concave"); those of resource gathering
are those of Barrett and Narayanan (2008). ``pareto_front`` lists deterministic policies, a coverage set
is about all of them.
"""

from __future__ import annotations

import numpy as np
import pytest

import cvxmdp as cm
from strategies import generator

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
# The sea floor: the row of the treasure of each column; what lies below is rock, the last column has none.
FLOOR = [1, 2, 3, 4, 4, 4, 7, 7, 9, 10]
TREASURES = {
    "convex": [0.7, 8.2, 11.5, 14.0, 15.1, 16.1, 19.6, 20.3, 22.4, 23.7],
    "concave": [1.0, 2.0, 3.0, 5.0, 8.0, 16.0, 24.0, 50.0, 74.0, 124.0],
}
STEPS = [1, 3, 5, 7, 8, 9, 13, 14, 17, 19]


def moved(place, action, allowed):
    there = (place[0] + MOVES[action][0], place[1] + MOVES[action][1])
    return there if allowed(*there) else place


def deep_sea(values, discount):
    def in_water(row, column):
        return 0 <= row <= 10 and 0 <= column <= 10 and (column == 10 or row <= FLOOR[column])

    def successors(place, action):
        row, column = there = moved(place, action, in_water)
        found = values[column] if column < 10 and row == FLOOR[column] else 0.0
        return [(1.0, None if found else there, {"treasure": found, "time": -1.0})]

    return cm.from_function(successors, initial=(0, 0), actions=MOVES, discount=discount)


def gathering(discount):
    things = {(0, 2): "gold", (0, 3): "enemy", (1, 2): "enemy", (1, 4): "diamond", (4, 2): "home"}

    def successors(state, action):
        place, gold, diamond = state
        there = moved(place, action, lambda row, column: 0 <= row < 5 and 0 <= column < 5)
        thing = things.get(there)
        if thing == "home":
            return [(1.0, None, {"gold": float(gold), "diamond": float(diamond)})]
        after = (there, gold or thing == "gold", diamond or thing == "diamond")
        if thing == "enemy":
            return [(0.1, None, {"death": 1.0}), (0.9, after)]
        return [(1.0, after)]

    start = ((4, 2), False, False)
    return cm.from_function(successors, initial=start, actions=MOVES, discount=discount)


def coverage(mdp, objectives):
    first = next(iter(objectives.values()))
    return cm.pareto(cm.Problem(mdp, maximize=first), objectives, tolerance=1e-6)


def agrees(front, published):
    """Whether published points reach as far in every direction as is possible, up to the tolerance."""
    random = generator(5)
    for _ in range(50):
        weights = random.dirichlet(0.5 * np.ones(published.shape[1])) / front.ranges
        reach = float((published @ weights).max())
        if not front.lower(weights) - 1e-6 <= reach <= front.upper(weights) + 1e-6:
            return False
    return True


@pytest.mark.parametrize("kind", ["convex", "concave"])
@pytest.mark.parametrize("discount", [0.9, 0.99])
def test_the_front_of_deep_sea_treasure_is_right(kind, discount):
    mdp = deep_sea(TREASURES[kind], discount)
    front = coverage(mdp, {"treasure": cm.linear("treasure"), "time": cm.linear("time")})
    # As ``pareto_front`` computes it: the treasure after n steps is discounted n - 1 times.
    published = np.array(
        [
            (value * discount ** (steps - 1), -sum(discount**step for step in range(steps)))
            for value, steps in zip(TREASURES[kind], STEPS, strict=True)
        ]
    )
    assert agrees(front, published)
    assert (published @ front.weights.T <= front.bounds + 1e-9).all()
    for point in front.points:  # every corner of the coverage set is one of those published
        assert np.abs((published - point) / front.ranges).max(axis=1).min() <= 1e-5


def test_mixtures_beat_most_of_the_concave_front():
    front = coverage(
        deep_sea(TREASURES["concave"], 0.99),
        {"treasure": cm.linear("treasure"), "time": cm.linear("time")},
    )
    assert (
        len(front.points) == 2
    )  # the nearest treasure and the farthest: all others lie below the line between


def returns_of_gathering(discount, late):
    """The six returns that ``pareto_front`` lists; ``late`` is how often the first reward is discounted."""

    def worth(survives, gold, diamond, steps, *deaths):
        lost = -sum(chance * discount ** (when - 1 + late) for chance, when in deaths)
        home = survives * discount ** (steps - 1 + late)
        return (lost, home * gold, home * diamond)

    return np.array(
        [
            worth(1.0, 0, 1, 10),
            worth(0.81, 1, 1, 12, (0.1, 7), (0.09, 9)),
            worth(0.81, 1, 0, 8, (0.1, 3), (0.09, 5)),
            worth(0.9, 1, 1, 14, (0.1, 7)),
            worth(1.0, 1, 0, 12),
            worth(0.9, 1, 0, 10, (0.1, 7)),
        ]
    )


def test_the_front_of_resource_gathering_is_discounted_once_too_often():
    """Users dispute it (Farama-Foundation/MO-Gymnasium, issue 104): they are right."""
    discount = 0.9
    objectives = {
        "alive": -cm.linear("death"),
        "gold": cm.linear("gold"),
        "diamond": cm.linear("diamond"),
    }
    front = coverage(gathering(discount), objectives)
    published = returns_of_gathering(discount, late=1)
    assert not agrees(front, published)
    # Proven by policies: ten steps bring the diamond home, and nine of them discount it.
    assert front.lower([0, 0, 1]) == pytest.approx(0.9**9, abs=1e-9)
    assert published[:, 2].max() == pytest.approx(0.9**10)
    assert agrees(front, returns_of_gathering(discount, late=0))
