"""The runs of a sweep as records, for a store or a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from cvxmdp.runs.record import RunRecord, record_of

if TYPE_CHECKING:
    from cvxmdp.certificates.certificate import Certificate
    from cvxmdp.runs.sweep_results import Sweep, SweepRun


def label_of(settings: Mapping[str, Any]) -> str:
    """What is different about a run, in words."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def sweep_record(
    sweep: Sweep,
    run: SweepRun,
    *,
    title: str = "",
    certificate: Certificate | None = None,
    rerun: str = "",
) -> RunRecord:
    """The record of one run of a sweep."""
    known = {field.name for field in fields(sweep.solver)}
    varied = {name: value for name, value in run.settings.items() if name in known}
    return record_of(
        run.solution,
        title=title,
        label=label_of(run.settings),
        seed=run.seed,
        solver=replace(sweep.solver, **varied),
        certificate=certificate,
        rerun=rerun,
    )


def sweep_records(sweep: Sweep) -> list[RunRecord]:
    """The records of all runs."""
    return [sweep_record(sweep, run) for run in sweep]
