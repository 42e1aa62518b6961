"""Build and validate a sparse model with a million states, and say what it takes.

The successor lists are made beforehand; measured are the constructor (which validates) and the
search for reachable states. Peak memory is that of the whole process, the given lists included.
"""

from __future__ import annotations

import argparse

import numpy as np

import cvxmdp as cm
from hardware import hardware, peak, timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=10**6)
    parser.add_argument("--actions", type=int, default=4)
    parser.add_argument("--successors", type=int, default=4)
    sizes = parser.parse_args()

    random = np.random.default_rng(0)
    shape = (sizes.states, sizes.actions, sizes.successors)
    indices = random.integers(sizes.states, size=shape, dtype=np.int32)
    probabilities = random.random(shape)
    probabilities /= probabilities.sum(axis=2, keepdims=True)

    signals = {"reward": random.random(shape[:2])}
    built, mdp = timed(lambda: cm.TabularMDP((indices, probabilities), 0, 0.95, signals=signals))
    searched, reached = timed(lambda: int(mdp.reachable.sum()))
    print(hardware())
    print(mdp)
    print(
        f"built and validated in {built:.1f} s; {reached:,} reachable states found in {searched:.1f} s; peak "
        f"memory {peak():.2f} GB"
    )


if __name__ == "__main__":
    main()
