"""Solutions as tables: plain text for terminals, HTML for notebooks, from the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from cvxmdp.atoms import Curvature, Utility
from cvxmdp.base.text_tables import number, several, text_table
from cvxmdp.models.table import endings_in
from cvxmdp.policies.occupancies import episode_visits
from cvxmdp.problems.findings import verdict_in_short, verdict_words
from cvxmdp.problems.while_learning import learning_words

if TYPE_CHECKING:
    from cvxmdp.problems.solution import Solution

HEADER = ("constraint", "requires", "value", "slack", "multiplier")


ESTIMATED = "estimated model"  # begins the notes of models that are estimates
MOST_INSIDE = 12  # lines; of more the smallest are shown


def said_of_model(text: str, note: str) -> str:
    """A text as it stands; of an estimate nothing is called proven."""
    if not note.startswith(ESTIMATED):
        return text
    return text.replace("Proven: ", "Of the estimate: ").replace("(proven)", "(of the estimate)")


@dataclass(frozen=True)
class ConstraintRow:
    """One constraint: the cells of its row, its units where it is linear, and what is inside where not."""

    cells: tuple[str, ...]
    units: str
    inside: Sequence[str]


def constraint_rows(solution: Solution) -> list[ConstraintRow]:
    """A row per constraint."""
    rows = []
    for name, constraint in solution.problem.constraints.items():
        slack = solution.slack[name]
        # Not budget minus slack: beside a budget of 1e20 nothing would be left of the value.
        value = math.nan
        if solution.has_policy:
            value = constraint.utility.measured(solution.problem.bind, solution.measured)
        cells: tuple[str, ...] = (name, repr(constraint), number(value), number(slack))
        cells = (*cells, number(solution.multipliers[name]))
        inside = individual_lines(solution, constraint.utility)
        rows.append(ConstraintRow(cells, _units(solution, constraint), inside))
    return rows


def _units(solution: Solution, constraint: Any) -> str:
    """A linear constraint in all units that the horizon knows and, where episodes end, per episode."""
    terms = constraint.utility.terms()
    if not solution.has_policy or constraint.utility.offset:
        return ""
    linear = [term for _, term in terms if term.curvature is Curvature.AFFINE]
    per = {term.factor(solution.problem.space) for term in linear}
    if len(linear) != len(terms) or len(per) != 1:
        return ""
    problem = solution.problem
    unit = 1.0 / per.pop()
    affine = problem.bind(constraint.utility).affine()
    assert affine is not None
    reward = unit * affine.reward
    total = float(np.vdot(reward, solution.measured))
    budget = constraint.budget * unit
    horizon = problem.space.horizon
    if problem.environment is not None:
        return "; ".join(horizon.sums(total, budget, problem.space.max_mass))
    parts = horizon.sums(total, budget, float(solution.occupancy.sum()))
    ends = horizon.discount < 1 and (problem.mdp.ending > 0).any()
    visits = episode_visits(problem.mdp, solution.policy) if ends else None
    if visits is not None:
        parts.append(f"undiscounted per episode {number(float(np.vdot(reward, visits)))}")
    return "; ".join(parts)


def run_line(stats: Mapping[str, Any]) -> str:
    """Which solver, how many iterations and samples, how long, and why it was chosen."""
    parts = [str(stats.get("solver", "unknown solver"))]
    for name in ("iteration", "sample"):
        if stats.get(f"{name}s") is not None:
            parts.append(several(stats[f"{name}s"], name))
    if "seconds" in stats:
        parts.append(f"{stats['seconds']:.2g} s")
    line = ", ".join(parts)
    return f"{line}; chosen because {stats['chosen']}" if "chosen" in stats else line


def _about(solution: Solution) -> list[str]:
    """What whoever reads a result should know of the model, and of how the policy moves in it."""
    problem = solution.problem
    note, endings = problem.space.note, endings_in(repr(problem.source))
    lines = [f"Of the {note}." if note else "", f"{endings}." if endings else ""]
    if problem.environment is None and solution.has_policy:
        lines.append(problem.mdp.flow.remark(solution.measured, problem.mdp.state_label))
    return [line for line in lines if line]


def solution_text(solution: Solution) -> str:
    """The solution as text."""
    problem = solution.problem
    message = said_of_model(solution.message, str(solution.problem.space.note))
    lines = [f"{status_words(solution)}: {message}", ""]
    lines.append(f"{problem.sense} {problem.utility!r} = {number(solution.objective)}")
    lines += individual_lines(solution, problem.utility)
    lines += _about(solution)
    lines += constraint_lines(constraint_rows(solution))
    return "\n".join([*lines, "", *_of_learning(solution), run_line(solution.stats)])


def constraint_lines(rows: Sequence[ConstraintRow]) -> list[str]:
    """The rows as text, each with its units and what is inside; nothing where there are none."""
    if not rows:
        return []
    head, *table = text_table(HEADER, [row.cells for row in rows])
    lines = ["", head]
    for row, line in zip(rows, table, strict=True):
        lines += [line, *([f"  {row.units}"] if row.units else []), *row.inside]
    return lines


def status_words(solution: Solution) -> str:
    """The status as a person writes it, with the verdict on a learner's answer."""
    short = verdict_in_short(solution.constraint_status, solution.slack_interval, solution.findings)
    return solution.status.name.capitalize().replace("_", " ") + short


def _of_learning(solution: Solution) -> list[str]:
    """What a learner's answer knows of itself, and what its policies did while learning."""
    told = verdict_words(solution.constraint_status, solution.slack_interval, solution.findings)
    played = learning_words(solution.stats, solution.problem.environment is not None)
    return [*told, *([played] if played else [])]


def _indented(lines: Sequence[str]) -> list[str]:
    """Aligned lines as one piece of HTML, or none."""
    return [f"<pre>{escape(chr(10).join(lines))}</pre>"] if lines else []


def solution_html(solution: Solution) -> str:
    """The solution as an HTML fragment."""
    problem = solution.problem
    parts = [
        f"<p><b>{escape(status_words(solution))}</b>: "
        f"{escape(said_of_model(solution.message, str(solution.problem.space.note)))}</p>",
        f"<p>{problem.sense} <code>{escape(repr(problem.utility))}</code> = "
        f"<b>{number(solution.objective)}</b></p>",
    ]
    parts += _indented(individual_lines(solution, problem.utility))
    parts += [f"<p>{escape(line)}</p>" for line in _about(solution)]
    rows = constraint_rows(solution)
    if rows:
        head = "".join(f"<th>{escape(title)}</th>" for title in HEADER)
        body = ""
        for row in rows:
            body += "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.cells) + "</tr>"
            if row.units:
                body += f'<tr><td></td><td colspan="4"><small>{escape(row.units)}</small></td></tr>'
            for lines in _indented(row.inside):
                body += f'<tr><td></td><td colspan="4">{lines}</td></tr>'
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    parts += [f"<p>{escape(line)}</p>" for line in _of_learning(solution)]
    parts.append(f"<p><small>{escape(run_line(solution.stats))}</small></p>")
    return "<div>" + "".join(parts) + "</div>"


def _inside(utility: Utility) -> Iterator[Utility]:
    """Down to what is affine or not made of others; constants have no value of their own."""
    for _, term in utility.terms():
        if term.curvature is Curvature.AFFINE:
            continue
        for part in term.inside():
            if part.curvature is not Curvature.AFFINE and any(
                one.inside() for _, one in part.terms()
            ):
                yield from _inside(part)
            elif part.terms():
                yield part


def individual_lines(solution: Solution, utility: Utility) -> list[str]:
    """The values of what stands inside a utility, each once; the smallest marked where they are of one kind."""
    inside = {repr(part): part for part in _inside(utility)}
    if not inside or not solution.has_policy:
        return []
    bind, x = solution.problem.bind, solution.measured
    values = [(text, part.measured(bind, x)) for text, part in inside.items()]
    bent = {type(term) for _, term in utility.terms() if term.curvature is not Curvature.AFFINE}
    compared = len(values) > 1 and len(bent) == 1
    order = sorted(values, key=lambda one: one[1])
    shown = values if len(values) <= MOST_INSIDE else order[:MOST_INSIDE]
    rows = [
        (one[0], number(one[1]), "smallest" if compared and one is order[0] else "")
        for one in shown
    ]
    lines = [f"  {line}".rstrip() for line in text_table(("inside", "value", ""), rows)[1:]]
    left = len(values) - len(shown)
    return [*lines, f"  and {left} more, none smaller"] if left else lines
