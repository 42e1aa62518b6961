"""Build and validate a sparse model with a million states, and say what it takes.

The successor lists are made beforehand; measured are the constructor (which validates) and the
search for reachable states. Peak memory is that of the whole process, the given lists included.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import cvxmdp as cm
from hardware import hardware


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

    started = time.perf_counter()
    mdp = cm.TabularMDP(
        (indices, probabilities), 0, 0.95, signals={"reward": random.random(shape[:2])}
    )
    built = time.perf_counter()
    reached = int(mdp.reachable.sum())
    searched = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(hardware())
    print(mdp)
    print(
        f"built and validated in {built - started:.1f} s; {reached:,} reachable states found in "
        f"{searched - built:.1f} s; peak memory {peak:.2f} GiB"
    )


if __name__ == "__main__":
    main()
