"""What the worked examples share: arguments, tables, pictures, and playing a policy for several seeds.

An example has a function ``main(short=..., picture=...)``, which prints what it finds and returns it, and ends:

    if __name__ == "__main__":
        showing.script(main, "name")
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cvxmdp as cm
from cvxmdp.base.interval import half_width
from cvxmdp.base.text_tables import text_table
from cvxmdp.problems.solution_figures import draw_arrows, draw_grid

ROOT = Path(__file__).parent.parent
SEEDS = 5
LANES = 100  # copies of an environment that are stepped together

DARK, TEAL, RED, GREY = "#1d3557", "#2a9d8f", "#d62828", "#6c757d"

# (state, action, next_state, reward, terminated) -> number, as ``from_gymnasium_table`` takes them
Outcome = Callable[[int, int, int, float, bool], float]


def script(main: Callable[..., Any], name: str) -> None:
    """Run an example from the command line."""
    parser = argparse.ArgumentParser(description=f"The worked example docs/examples/{name}.md")
    parser.add_argument("--short", action="store_true", help="as short as in the tests")
    parser.add_argument("--figure", action="store_true", help="renew the picture of the docs")
    given = parser.parse_args()
    main(short=given.short, picture=picture_path(name, docs=given.figure))


def picture_path(name: str, *, docs: bool) -> Path:
    """Where the picture of an example goes; its folder is made."""
    path = (
        ROOT / "docs" / "figures" / f"example-{name}.png"
        if docs
        else Path("out") / "examples" / f"{name}.png"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def heading(text: str) -> None:
    """A line with a rule under it, and room around both."""
    print(f"\n{text}\n{'-' * len(text)}\n")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table of text."""
    print("\n".join(text_table(header, list(rows))))


def figure_of(rows: int, columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """A Matplotlib figure and its axes, each of that size in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def save(figure: Any, path: Path | None) -> None:
    """Write a picture and say where it is."""
    if path is not None:
        figure.savefig(path, dpi=120)
        print(f"\nPicture: {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


def draw_map(figure: Any, axes: Any, visits: np.ndarray, title: str, **options: Any) -> None:
    """Numbers on bins of two quantities, the second upwards.

    Args:
        figure, axes: to draw on.
        visits: one per bin, the second quantity counting fastest.
        title: over the map.
        **options: of ``imshow``, and ``labels`` of the two quantities.
    """
    across, upwards = options.pop("labels")
    image = axes.imshow(visits.T, origin="lower", aspect="auto", **options)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(upwards, fontsize=9)
    figure.colorbar(image, ax=axes)


def draw_visits(figure: Any, axes: Any, mdp: cm.TabularMDP, policy: Any, title: str) -> None:
    """Where a policy spends its time on the grid of the model, and which way it goes there."""
    policy = policy if hasattr(policy, "probabilities") else cm.TabularPolicy(policy)
    share = cm.state_distribution(mdp, cm.occupancy_of(mdp, policy))
    draw_grid(axes, figure, mdp.layout, share)
    draw_arrows(axes, mdp.layout, share, policy.probabilities(), mdp.action_names)
    axes.set_title(title, fontsize=10)


def draw_curves(
    axes: Any,
    histories: Sequence[Mapping[str, Any]],
    of: Callable[[Any], Any],
    title: str,
    colour: str = TEAL,
    label: str = "seeds",
) -> None:
    """What was seen while learning: a line per seed, of the histories of their solutions."""
    for seed, history in enumerate(histories):
        (line,) = axes.plot(history["iteration"], of(history), color=colour, alpha=0.6, linewidth=1)
        line.set_label(label if seed == 0 else "_")
    axes.set_xlabel("iteration", fontsize=9)
    axes.set_title(title, fontsize=10)


def mean_interval(values: Sequence[float]) -> str:
    """The mean over seeds and its 95% interval (Student's t), in words."""
    array = np.asarray(values, dtype=float)
    known = f" ± {half_width(array):.4f}" if array.size > 1 else ""
    return f"{array.mean():.4f}{known}"


def real(name: str, discount: float, signals: Mapping[str, Outcome]) -> cm.GymnasiumEnv:
    """Gymnasium's environment of that name, as a source for ``cm.evaluate``.

    Its signals are the functions that made those of its model, so both mean the same by a name; but here they
    are given what really happened.
    """
    return cm.GymnasiumEnv(name, discount, signals=signals, n_envs=LANES)


@dataclass(frozen=True)
class Trial:
    """A policy that was played with one seed, beside what is true of it.

    Attributes:
        seed: of everything random.
        truth: the exact objective, and the exact slack of every constraint by its name.
        seen: what the episodes say.
    """

    seed: int
    truth: Mapping[str, float]
    seen: cm.PolicyEvaluation

    def interval(self, name: str) -> Any:
        """Of the objective or of a slack."""
        return self.seen.objective if name == "objective" else self.seen.slack[name]

    def holds(self, name: str) -> bool:
        """Whether the truth lies in the interval, and the interval is a proven one."""
        found = self.interval(name)
        return found.proven and found.lower <= self.truth[name] <= found.upper

    @property
    def all_hold(self) -> bool:
        """Whether that is so of everything."""
        return all(self.holds(name) for name in self.truth)


def play(
    problem: cm.Problem, policy: Any, source: Any, episodes: int, seed: int, **options: Any
) -> Trial:
    """Play a policy in a source whose model is the problem's; ``options`` are those of ``cm.evaluate``."""
    exact = problem.evaluate(policy)
    seen = cm.evaluate(policy, source, episodes, seed=seed, problem=problem, **options)
    return Trial(seed, {"objective": exact.objective, **exact.slack}, seen)


def show_trials(trials: Sequence[Trial], where: str) -> None:
    """A row per seed, a column per quantity."""
    seen, names = trials[0].seen, list(trials[0].truth)
    print(
        f"\nPlayed in {where}: {seen.episodes:,} episodes per seed. True value, mean seen, and the interval; "
        f"those of a row\nhold together with confidence {seen.confidence:g}. Constraints by their slack.\n"
    )

    def cell(trial: Trial, name: str) -> str:
        found = trial.interval(name)
        return f"{trial.truth[name]:.4f}: {found.value:.4f} [{found.lower:.4f}, {found.upper:.4f}]"

    rows = [(str(trial.seed), *(cell(trial, name) for name in names)) for trial in trials]
    counts = (sum(trial.holds(name) for trial in trials) for name in names)
    rows.append(("inside", *(f"{count} of {len(trials)}" for count in counts)))
    table(("seed", *names), rows)


def total(mdp: cm.TabularMDP, policy: Any, signal: str) -> float:
    """The expected discounted sum of a signal under a policy."""
    return float(np.vdot(mdp.signal(signal), cm.occupancy_of(mdp, policy)))
