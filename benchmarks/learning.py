"""What VR-PDPG learns, measured: the numbers of docs/results/learning.md, as Markdown.

    python benchmarks/learning.py                    # everything, half an hour beside other work
    python benchmarks/learning.py momentum rate      # parts of it
    python benchmarks/learning.py --seeds 4          # quicker, wider intervals
    python benchmarks/learning.py corners --page docs/results/learning.md  # put it into the page

Parts: chosen (settings from the problem), barrier (the paper's first example), natural (steps), tracking (the
paper's four instances), momentum (each at its own best step), corners (what departures from the paper do),
multipliers (problems whose constraints bind, against exact answers), rate (the gap against T).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
import warnings
from pathlib import Path

# Before NumPy is loaded: threads inside small solves would only fight with the runs'.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import learning_chosen
import learning_optima as optima
import learning_tracking as tracking
from cvxmdp.base.errors import CvxmdpWarning
from hardware import hardware

FEW = 5  # seeds of the problems that are compared one by one


PARTS = ("chosen", "barrier", "natural", "tracking", "momentum", "corners", "multipliers", "rate")


def run(part: str, seeds: int, figure: Path) -> None:
    """Measure one part and print it."""
    if part == "tracking":
        tracking.reached(seeds, figure=figure)
    elif part == "momentum":
        tracking.momenta(seeds)
    elif part == "corners":
        tracking.corners(seeds)
    elif part == "chosen":
        learning_chosen.chosen(min(8, seeds))
    elif part == "barrier":
        learning_chosen.barriers(max(20, seeds))
        print()
        learning_chosen.tight_barriers(max(20, seeds))
    elif part == "natural":
        learning_chosen.natural(min(4, seeds))
    elif part == "multipliers":
        optima.multipliers(min(FEW, seeds))
    else:
        optima.rate(seeds)


def put(page: Path, part: str, text: str) -> None:
    """Replace what stands between the marks of a part in a page."""
    begin, end = f"<!-- {part}: measured -->\n", f"<!-- {part}: end -->"
    before, rest = page.read_text("utf-8").split(begin)
    page.write_text(
        before + begin + "\n" + text.strip() + "\n\n" + end + rest.split(end)[1], "utf-8"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--figure", type=Path, default=tracking.FIGURE)
    parser.add_argument("--page", type=Path, help="put the tables between the marks of this page")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {sorted(unknown)[0]!r}; there are {', '.join(PARTS)}")
    # Large steps are part of what is shown; each run would say so.
    warnings.simplefilter("ignore", CvxmdpWarning)
    print(f"{hardware()}; load {os.getloadavg()[0]:.1f} at the start")
    for part in options.parts or PARTS:
        started, printed = time.perf_counter(), io.StringIO()
        print(f"\n## {part}\n", flush=True)
        with contextlib.redirect_stdout(printed if options.page else sys.stdout):
            run(part, options.seeds, options.figure)
        if options.page:
            put(options.page, part, printed.getvalue())
            print(printed.getvalue())
        print(f"\n({part}: {time.perf_counter() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
