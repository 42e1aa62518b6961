"""``cvxmdp evaluate``: what a policy is worth, by episodes, with intervals."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from cvxmdp.cli.outcome import Exit, note, require_place, say, say_json, working
from cvxmdp.cli.overrides import read
from cvxmdp.cli.policy_arguments import read_policy
from cvxmdp.experience.evaluation import evaluate
from cvxmdp.runs.specs.imports import allow_imports


def evaluate_policy(
    problem: Path,
    policy: str,
    episodes: int,
    seed: int,
    confidence: float,
    horizon: int | None,
    deterministic: bool,
    out: Path | None,
    modules: list[str] | None,
    as_json: bool,
) -> Exit:
    """Evaluate a policy; see ``cvxmdp evaluate --help``."""
    allow_imports(modules or ())
    require_place(out)
    asked, given = read(problem).problem, read_policy(policy)
    with working("playing"):
        found = evaluate(
            given,
            asked.source,
            episodes,
            seed=seed,
            problem=asked,
            confidence=confidence,
            horizon=horizon,
            deterministic=deterministic,
        )
    if out is not None:
        found.save(out)
    code = Exit.NOT_CONVERGED if found.feasible == "disproven" else Exit.OK
    if as_json:
        say_json(
            {
                "objective": asdict(found.objective),
                "slack": {name: asdict(interval) for name, interval in found.slack.items()},
                "feasible": found.feasible,
                "statement": found.statement,
                "confidence": found.confidence,
                "episodes": found.episodes,
                "steps": found.steps,
                "assumes": list(found.assumes),
                "evaluation": None if out is None else str(out),
                "exit_code": int(code),
            }
        )
        return code
    say(str(found))
    if out is not None:
        note(f"\nWritten to {out}.")
    return code
