"""What VR-PDPG learns, measured: the numbers of docs/vr-pdpg.md, as Markdown.

    python benchmarks/learning.py                    # everything, about ten minutes on two cores
    python benchmarks/learning.py momentum rate      # parts of it
    python benchmarks/learning.py --seeds 4          # quicker, wider intervals

Parts: tracking (the paper's four instances), momentum (each at its own best step), corners (what departures
from the paper do), multipliers (problems whose constraints bind, against exact answers), rate (the gap
against T).
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import learning_optima as optima
import learning_tracking as tracking
from cvxmdp.errors import CvxmdpWarning
from hardware import hardware

FEW = 5  # seeds of the problems that are compared one by one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("tracking", "momentum", "corners", "multipliers", "rate")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(parts)}")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--figure", type=Path, default=tracking.FIGURE)
    options = parser.parse_args()
    unknown = set(options.parts) - set(parts)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]!r}; there are {', '.join(parts)}")
    seeds = options.seeds
    # Large steps are part of what is shown; each run would say so.
    warnings.simplefilter("ignore", CvxmdpWarning)
    print(f"{hardware()}; load {os.getloadavg()[0]:.1f} at the start")
    for part in options.parts or parts:
        started = time.perf_counter()
        print(f"\n## {part}\n")
        if part == "tracking":
            tracking.reached(seeds, figure=options.figure)
        elif part == "momentum":
            tracking.momenta(seeds)
        elif part == "corners":
            tracking.corners(seeds)
        elif part == "multipliers":
            optima.multipliers(min(FEW, seeds))
        else:
            optima.rate(seeds)
        print(f"\n({part}: {time.perf_counter() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
