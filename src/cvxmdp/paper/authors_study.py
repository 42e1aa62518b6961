"""The authors' program beside the published curves: is that where they come from?

A published curve is the mean over settings of runs that share one seed. So each of ours is, too, for several
seeds: their median is what a curve of the program looks like, their range how much that depends on luck.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cvxmdp.base.errors import FileFormatError
from cvxmdp.base.npz_files import read_npz
from cvxmdp.base.storage import whole_file
from cvxmdp.paper.authors_program import AuthorsSettings, play_authors_program
from cvxmdp.paper.learning_curves import WINDOW
from cvxmdp.paper.published import VARIANCE_REDUCED, WITHOUT_MEMORY, published_curves
from cvxmdp.paper.studies import HORIZON, MEMORY, WITHOUT, size_of

PRINTED_DIGITS = 0.05  # of a published return: plateaus have no spread at all
QUICK_EPISODES = 1_000
VERSION = 1  # of the program; kept results of another are computed anew


@dataclass(frozen=True)
class AuthorsStudy:
    """Runs of the authors' program that a published curve is compared with.

    Attributes:
        instance, method: VR-PDPG or momentum 1 on one of ``tracking.INSTANCES``.
        settings: (primal step, dual step, momentum, budget) of each run.
        seeds: how many times all of them are run.
        kept: of how many the best are averaged, by the return of the last window; all when 0.
        iterations: episodes.
    """

    instance: str
    method: str
    settings: tuple[tuple[float, float, float, float], ...]
    seeds: int
    kept: int
    iterations: int

    @property
    def size(self) -> str:
        return size_of(self.instance)

    @property
    def specification(self) -> str:
        return f"{VERSION} {self!r}"


def authors_studies(size: str, *, quick: bool = False) -> list[AuthorsStudy]:
    """The settings of the published runs: of the paper, and where it is silent or differs, of the program.

    On 20x20 the program was run with a primal step of 0.23 where the paper prints 0.22.
    """
    small = size == "8x8"
    steps = (0.23, 0.24, 0.25) if small else (0.23,)
    dual_steps = (0.1,) if small else (0.01, 0.02, 0.03, 0.04, 0.05)
    budgets = (0.001, 0.005, 0.01, 0.05) if small else (0.001, 0.005, 0.01)
    momenta = (0.1,) if small else (0.03, 0.05, 0.07, 0.09)
    seeds, kept = (8, 0) if small else (2, 12)
    found = []
    for trajectory in ("traj1", "traj2"):
        instance = f"{size}-{trajectory}"
        every = tuple(itertools.product(steps, dual_steps, momenta, budgets))
        forgetting = tuple(itertools.product(steps, dual_steps, (1.0,), budgets))
        if quick:
            found.append(AuthorsStudy(instance, MEMORY, every[:2], 2, 0, QUICK_EPISODES))
            continue
        found.append(AuthorsStudy(instance, MEMORY, every, seeds, kept, 10_000))
        if WITHOUT_MEMORY in published_curves(instance):
            found.append(AuthorsStudy(instance, WITHOUT, forgetting, 4 if small else 1, 0, 10_000))
    return found


@dataclass(frozen=True)
class AuthorsCurves:
    """What came out, at the episodes of the published curve; moving averages over 250 episodes.

    Attributes:
        study: what was run.
        at: (n,) episodes at which an average ends.
        returns, errors: (seeds, n), means over the settings.
    """

    study: AuthorsStudy
    at: np.ndarray
    returns: np.ndarray
    errors: np.ndarray

    def agreement(self) -> Agreement:
        """Beside the published curve."""
        name = VARIANCE_REDUCED if self.study.method == MEMORY else WITHOUT_MEMORY
        theirs = published_curves(self.study.instance)[name]
        n = len(self.at)
        pairs = (
            (self.returns, theirs.returns[:n], theirs.returns_std[:n], PRINTED_DIGITS),
            (self.errors, theirs.errors[:n], theirs.errors_std[:n], 0.0),
        )
        return Agreement(self, *(_compare(*pair) for pair in pairs))


@dataclass(frozen=True)
class Compared:
    """One quantity: theirs and ours at the end, and how often over all windows.

    Attributes:
        published, band: mean and standard deviation over their runs, in the last window.
        median, lowest, highest: over our seeds, there.
        inside: the share of windows in which our median lies within their band.
        covered: the share in which their mean lies between our lowest and highest seed.
        ends_inside: whether our median lies within their band in the last window.
    """

    published: float
    band: float
    median: float
    lowest: float
    highest: float
    inside: float
    covered: float
    ends_inside: bool


def _compare(ours: np.ndarray, mean: np.ndarray, std: np.ndarray, room: float) -> Compared:
    median, lowest, highest = np.median(ours, axis=0), ours.min(axis=0), ours.max(axis=0)
    inside = np.abs(median - mean) <= std + room
    covered = (lowest - room <= mean) & (mean <= highest + room)
    return Compared(
        published=float(mean[-1]),
        band=float(std[-1]),
        median=float(median[-1]),
        lowest=float(lowest[-1]),
        highest=float(highest[-1]),
        inside=float(inside.mean()),
        covered=float(covered.mean()),
        ends_inside=bool(inside[-1]),
    )


@dataclass(frozen=True)
class Agreement:
    """How far the program's curves are the published ones."""

    curves: AuthorsCurves
    returns: Compared
    errors: Compared

    @property
    def reproduced(self) -> bool:
        """The return ends within the published band, and is there in most windows."""
        return self.returns.ends_inside and self.returns.inside >= 0.5


def run_authors_study(study: AuthorsStudy, folder: Path) -> AuthorsCurves:
    """The curves of a study; those that are kept in the folder are not made again."""
    words = f"{study.instance} {study.method}".replace(" ", "_")
    path = folder / f"{words}.npz"
    kept = _read(path, study)
    if kept is not None:
        return kept
    settings = AuthorsSettings(*np.tile(np.array(study.settings).T, study.seeds))
    seeds = np.repeat(np.arange(study.seeds), len(study.settings))
    returns, errors = play_authors_program(
        study.instance, settings, seeds, study.iterations, HORIZON[study.size]
    )
    (theirs, *_) = published_curves(study.instance).values()
    at = theirs.episode[theirs.episode <= study.iterations].astype(int)
    shape = (study.seeds, len(study.settings), len(at))
    smooth = [_averages(one, at).reshape(shape) for one in (returns, errors)]
    found = AuthorsCurves(study, at, *_selected(study, *smooth))
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary, temporary.open("wb") as file:
        said = np.array(study.specification)
        np.savez(file, specification=said, at=at, returns=found.returns, errors=found.errors)
    return found


def _read(path: Path, study: AuthorsStudy) -> AuthorsCurves | None:
    if not path.exists():
        return None
    try:
        arrays = read_npz(path)
        if str(arrays["specification"]) != study.specification:
            return None
        return AuthorsCurves(study, arrays["at"], arrays["returns"], arrays["errors"])
    except (FileFormatError, KeyError):
        return None  # damaged: made anew


def _averages(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Means over the window that ends at each of these episodes, (runs, n)."""
    sums = np.cumsum(np.pad(values.astype(np.float64), ((0, 0), (1, 0))), axis=1)
    return np.asarray((sums[:, at] - sums[:, at - WINDOW]) / WINDOW)


def _selected(
    study: AuthorsStudy, returns: np.ndarray, errors: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means over the settings, (seeds, n): over the best of them where the paper selects."""
    if not study.kept:
        return returns.mean(axis=1), errors.mean(axis=1)
    order = np.lexsort((errors[:, :, -1], -returns[:, :, -1]), axis=1)[:, : study.kept, None]
    chosen = [np.take_along_axis(one, order, axis=1).mean(axis=1) for one in (returns, errors)]
    return chosen[0], chosen[1]


def agreement_table(found: Sequence[AuthorsCurves]) -> tuple[list[str], list[list[str]]]:
    """Published and ours in the last window, and how often ours lies within their band."""
    header = ["instance", "method", "published", "the program again", "in their band", "covered"]
    rows = []
    for curves in found:
        both = curves.agreement()
        cells = [both.returns, both.errors]
        rows.append(
            [
                curves.study.instance,
                curves.study.method,
                " / ".join(f"{one.published:.3g} ± {one.band:.2g}" for one in cells),
                " / ".join(
                    f"{one.median:.3g} [{one.lowest:.3g}, {one.highest:.3g}]" for one in cells
                ),
                " / ".join(f"{one.inside:.0%}" for one in cells),
                " / ".join(f"{one.covered:.0%}" for one in cells),
            ]
        )
    return header, rows
