"""What the tests of the command line share: a small problem, and a way to run a command."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from cvxmdp.cli.commands import commands

PROBLEM = """
title = "Safe exploration"
maximize = "entropy()"

[subject_to]
hazard = 'linear("hazard", per="step") <= 0.05'

[model]
kind = "gridworld"
size = 4
slip = 0.1
discount = 0.9
hazards = [5, [1, 2]]
"""
SAMPLING = """
[solver]
name = "VRPDPG"
iterations = 40
primal_step = 0.1
dual_step = 0.1
momentum = 0.5
horizon = 10
evaluate_every = 10
"""


class Done:
    """A command that ended."""

    def __init__(self, *words: object) -> None:
        finished = CliRunner().invoke(commands, [str(word) for word in words])
        self.code, self.out, self.err = finished.exit_code, finished.stdout, finished.stderr

    @property
    def json(self) -> dict:
        return json.loads(self.out)
