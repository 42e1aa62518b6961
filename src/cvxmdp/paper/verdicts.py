"""Each claim of the paper's section on experiments, what was measured, and the verdict: all from the runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cvxmdp.base.interval import Interval
from cvxmdp.paper.authors_study import AuthorsCurves
from cvxmdp.paper.learning_curves import Curves, Found, after
from cvxmdp.paper.published import VARIANCE_REDUCED, published_curves
from cvxmdp.paper.studies import AVERAGE, COMPARED, MEMORY, NORMS, OURS, PAPER, WITHOUT, Study
from cvxmdp.runs.sweep_results import interval

FASTER = (
    '"VR-PDPG guarantees a faster convergence and higher returns within a fixed number of episodes"'
)


@dataclass(frozen=True)
class Claim:
    """A claim and what became of it."""

    claim: str
    measured: str
    verdict: str


def claims_of(found: Found, authors: Sequence[AuthorsCurves]) -> list[Claim]:
    """Of the runs with the published constraint, half the squared distance; none is selected."""
    runs = {study: many[-1] for study, many in found.items() if study.norm == NORMS[0]}
    return [
        *_faster_as_printed(runs),
        *_faster_at_equal_steps(runs),
        *_faster_at_own_steps(runs),
        *_reaches_the_optimum(runs),
        *_averaging(runs),
        *_published_by_algorithm_1(runs),
        *_published_by_the_program(authors),
    ]


def claims_table(claims: Sequence[Claim]) -> tuple[list[str], list[list[str]]]:
    """For a page."""
    rows = [[one.claim, one.measured, one.verdict] for one in claims]
    return ["claim", "measured", "verdict"], rows


def _above(one: Interval, other: Interval) -> bool:
    """Whether the 95% intervals say so."""
    return one.lower > other.upper


def _end(curves: Curves) -> Interval:
    """Return of the last 250 episodes."""
    return after(curves, curves.end)[0]


def _whole(curves: Curves) -> Interval:
    """Return over all episodes: how fast."""
    return interval(curves.returns.mean(axis=1))


def _pairs(
    runs: Mapping[Study, Curves], part: str, first: str, second: str
) -> Iterator[tuple[str, Curves, Curves]]:
    """Two methods on each instance."""
    for instance in dict.fromkeys(study.instance for study in runs):
        mine = {
            name: [
                curves
                for study, curves in runs.items()
                if (study.part, study.instance) == (part, instance)
                and study.method.startswith(name)
            ]
            for name in (first, second)
        }
        if mine[first] and mine[second]:
            yield instance, mine[first][0], mine[second][0]


def _verdict(better: int, worse: int, of: int) -> str:
    """By 95% intervals that do not overlap."""
    if better == of:
        return "confirmed"
    if worse == of:
        return "the other way round"
    if better and not worse:
        return f"confirmed in {better} of {of}, open in the others"
    if worse and not better:
        return f"the other way round in {worse} of {of}, open in the others"
    return "not seen: intervals overlap" if not better else f"mixed: {better} for, {worse} against"


def _faster_as_printed(runs: Mapping[Study, Curves]) -> Iterator[Claim]:
    pairs = list(_pairs(runs, PAPER, MEMORY, WITHOUT))
    ends = [(name, _end(one), _end(other)) for name, one, other in pairs]
    if ends:
        words = [f"{name}: {one.words(1)} against {other.words(1)}" for name, one, other in ends]
        better = sum(_above(one, other) for _, one, other in ends)
        worse = sum(_above(other, one) for _, one, other in ends)
        claim = f"{FASTER} than momentum 1, at the settings it prints"
        measured = f"return at the end, {'; '.join(words)}"
        yield Claim(claim, measured, _verdict(better, worse, len(ends)))


def _compared(runs: Mapping[Study, Curves]) -> dict[tuple[str, float], dict[float, Interval]]:
    """Return over all episodes by momentum, for each instance and step."""
    found: dict[tuple[str, float], dict[float, Interval]] = {}
    for study, curves in runs.items():
        if study.part == COMPARED:
            place = (study.instance, float(study.solver.primal_step))
            found.setdefault(place, {})[float(study.solver.momentum or 0)] = _whole(curves)
    return found


def _faster_at_equal_steps(runs: Mapping[Study, Curves]) -> Iterator[Claim]:
    table = _compared(runs)
    for momentum in sorted({m for row in table.values() for m in row} - {1.0}):
        better = [place for place, row in table.items() if _above(row[momentum], row[1.0])]
        worse = [place for place, row in table.items() if _above(row[1.0], row[momentum])]
        steps = {
            name: [f"{step:g}" for step in sorted({step for _, step in places})]
            for name, places in (("better", better), ("worse", worse))
        }
        measured = (
            f"return over all episodes better in {len(better)} of {len(table)} pairs of instance and step "
            f"(steps {', '.join(steps['better']) or 'none'}), worse in {len(worse)} "
            f"(steps {', '.join(steps['worse']) or 'none'})"
        )
        claim = f"the same at equal steps, momentum {momentum:g}"
        yield Claim(claim, measured, _verdict(len(better), len(worse), len(table)))


def _faster_at_own_steps(runs: Mapping[Study, Curves]) -> Iterator[Claim]:
    table = _compared(runs)
    words, better, worse = [], 0, 0
    instances = list(dict.fromkeys(instance for instance, _ in table))
    for instance in instances:
        best: dict[bool, Interval] = {}
        for (name, _), row in table.items():
            for momentum, mean in row.items() if name == instance else ():
                kept = best.setdefault(momentum < 1, mean)
                best[momentum < 1] = max(kept, mean, key=lambda one: one.value)
        with_memory, without = best[True], best[False]
        words.append(f"{instance}: {with_memory.words(1)} against {without.words(1)}")
        better, worse = better + _above(with_memory, without), worse + _above(without, with_memory)
    if words:
        measured = f"best return over all episodes of five steps, {'; '.join(words)}"
        yield Claim(
            "the same with the best step of each", measured, _verdict(better, worse, len(instances))
        )


def _reaches_the_optimum(runs: Mapping[Study, Curves]) -> Iterator[Claim]:
    """What the algorithm can do; the paper shows less of it than there is."""
    words, missed = [], 0
    for study, curves in runs.items():
        if study.part == OURS and study.method.startswith(MEMORY):
            ends = curves.after(curves.end)[0]
            best = float(curves.returns.max())
            missed += int((ends < best - 0.05).sum())
            what = f"{study.instance}, {study.method.partition(', ')[2]}"
            words.append(f"{what}: {interval(ends).words(1)} of {best:.1f}")
    if words:
        verdict = "confirmed in every run" if not missed else f"missed in {missed} runs"
        yield Claim(
            "Algorithm 1 converges to the optimum, at recommended settings",
            "; ".join(words),
            verdict,
        )


def _averaging(runs: Mapping[Study, Curves]) -> Iterator[Claim]:
    pairs = list(_pairs(runs, PAPER, AVERAGE, MEMORY))
    if not pairs:
        return
    ends = [(name, _end(one), _end(other)) for name, one, other in pairs]
    words = [f"{name}: {one.words(1)} against {other.words(1)}" for name, one, other in ends]
    gains = [one.value - other.value for _, one, other in ends]
    marginal = all(abs(gain) < 5.0 for gain in gains)
    yield Claim(
        '"averaging multiple trajectories does help ...; however, the extent of this improvement is marginal"',
        f"return at the end at the printed settings, Avg against VR-PDPG, {'; '.join(words)}",
        "confirmed"
        if marginal and min(gains) > 0
        else f"not marginal: {min(gains):+.0f} to {max(gains):+.0f}",
    )
    ratios = [_samples(one) / _samples(other) for _, one, other in pairs]
    yield Claim(
        '"it consumes 100 times more samples than our VR-PDPG algorithm"',
        f"{min(ratios):.0f} to {max(ratios):.0f} times the samples per iteration",
        "confirmed" if min(ratios) > 99 else "less",
    )


def _samples(curves: Curves) -> float:
    """Per iteration."""
    return float(curves.samples.mean()) / curves.end


def _published_by_algorithm_1(runs: Mapping[Study, Curves]) -> Iterator[Claim]:
    words, inside = [], 0
    mine = [(s, c) for s, c in runs.items() if s.part == PAPER and s.method == MEMORY]
    for study, curves in mine:
        theirs = published_curves(study.instance)[VARIANCE_REDUCED]
        row = theirs.row(curves.end)
        ours, mean, band = _end(curves), theirs.returns[row], theirs.returns_std[row]
        inside += abs(ours.value - mean) <= band
        words.append(f"{study.instance}: {ours.words(1)} against {mean:.1f} ± {band:.1f}")
    if words:
        verdict = f"in the published band on {inside} of {len(words)} instances"
        yield Claim(
            "the published curves are those of Algorithm 1 as printed", "; ".join(words), verdict
        )


def _published_by_the_program(authors: Sequence[AuthorsCurves]) -> Iterator[Claim]:
    if not authors:
        return
    found = [curves.agreement() for curves in authors]
    words = [
        f"{one.curves.study.instance}, {one.curves.study.method}: {one.returns.median:.1f} "
        f"[{one.returns.lowest:.1f}, {one.returns.highest:.1f}] against {one.returns.published:.1f} ± "
        f"{one.returns.band:.1f}, in the band in {one.returns.inside:.0%} of the windows"
        for one in found
    ]
    count = sum(one.reproduced for one in found)
    yield Claim(
        "the published curves are those of the authors' program, which is not Algorithm 1",
        "; ".join(words),
        f"reproduced within the published band: {count} of {len(found)} curves",
    )
