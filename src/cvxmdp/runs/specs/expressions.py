"""Utilities, constraints and policies in problem files: written as in Python, read without running it.

    entropy() + 0.1 * log_barrier(linear("hazard", per="step") <= 0.05)
    distance(file("expert.csv"), norm="l2") <= 0.5

Python's own parser makes a tree of the text, and ``Reader`` walks it: calls of the functions in its table,
numbers, strings, lists, + - * / and one comparison. Anything else is refused with its place. What a utility
prints (``repr``) is what a problem file takes.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from cvxmdp import atoms
from cvxmdp.atoms import Constraint, Utility
from cvxmdp.base.errors import CvxmdpError, FileFormatError, did_you_mean
from cvxmdp.experience.demonstrations import Demonstrations, demonstrations
from cvxmdp.policies import TabularPolicy, load_policy
from cvxmdp.policies.families import Direct, LinearSoftmax, Table
from cvxmdp.policies.networks import MLP
from cvxmdp.runs.specs.array_specs import ArrayFolder
from cvxmdp.solvers.pdpg import Normalised

LONGEST = 20_000  # characters of one expression
OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,  # refused by utilities, with the fix in the message
    ast.Gt: operator.gt,
}
NUMBERS = {"inf": math.inf}
WRITTEN = ("Utility", "ConvexSet", "ReturnVector")
ATOMS = {  # every atom, set and argument of an atom that its room exports
    name: getattr(atoms, name)
    for name in atoms.__all__
    if getattr(atoms, name).__annotations__.get("return") in WRITTEN
}
FAMILIES = {family.__name__: family for family in (Table, Direct, MLP, LinearSoftmax)}


class ExpressionError(FileFormatError):
    """An expression that cannot be read."""


class Reader:
    """Reads expressions of a problem file; ``file``, ``policy`` and ``demonstrations`` look in its folder.

    Args:
        folder: of the problem file.
        model: the model or environment that it describes; demonstrations are counted in its states.
    """

    def __init__(self, folder: ArrayFolder, model: Any = None) -> None:
        self.folder, self.model = folder, model

    def utility(self, text: str) -> Utility:
        """A utility such as ``entropy()``."""
        value = self._read(text, ATOMS)
        if isinstance(value, int | float):
            raise ExpressionError(f"{text!r} is a number; expected a utility such as entropy()")
        return self._expect(value, Utility, text, "a utility such as entropy()")

    def constraint(self, text: str) -> Constraint:
        """A constraint such as ``linear("cost") <= 1``."""
        value = self._read(text, ATOMS)
        return self._expect(value, Constraint, text, 'a constraint such as linear("cost") <= 1')

    def family(self, text: str) -> Any:
        """A family of policies such as ``MLP(32)``."""
        value = self._read(text, FAMILIES)
        if not hasattr(value, "bind"):
            raise ExpressionError(f"{text!r}: expected a family of policies such as MLP(32)")
        return value

    def step(self, text: str) -> Any:
        """``"auto"``, or ``Normalised(0.1)``."""
        return text if text == "auto" else self._read(text, {"Normalised": Normalised})

    @staticmethod
    def _expect(value: Any, kind: type, text: str, what: str) -> Any:
        if not isinstance(value, kind):
            hint = ""
            if isinstance(value, Constraint):
                hint = "; a comparison belongs under [subject_to]"
            elif isinstance(value, Utility):
                hint = "; it is not compared with a number"
            raise ExpressionError(f"{text!r}: expected {what}{hint}")
        return value

    def _read(self, text: str, functions: Mapping[str, Callable[..., Any]]) -> Any:
        if len(text) > LONGEST:
            raise ExpressionError(f"an expression has more than {LONGEST:,} characters")
        known: dict[str, Callable[..., Any]] = {**functions, "file": self.folder.array}
        known |= {"policy": self._policy, "demonstrations": self._demonstrations}
        try:
            tree = ast.parse(text.strip(), mode="eval")
            return _Walk(text, known).value(tree.body)
        except SyntaxError as error:
            place = " " * max((error.offset or 1) - 1, 0) + "^"
            raise ExpressionError(
                f"cannot read this ({error.msg}):\n  {text}\n  {place}"
            ) from error
        except (RecursionError, MemoryError) as error:
            raise ExpressionError("an expression is nested too deeply") from error

    def _policy(self, reference: str) -> Any:
        """A policy as cvxmdp saves it, or its (S, A) probabilities in any file of arrays."""
        relative, _, name = reference.partition("#")
        path = self.folder.path(relative)
        if path.suffix == ".safetensors" and not name:
            return load_policy(path)
        return TabularPolicy(self.folder.array(reference))

    def _demonstrations(self, relative: str, episode_limit: int | None = None) -> Demonstrations:
        """The occupancy that a log shows: CSV, Parquet, NPZ, or the HDF5 file of a Minari dataset."""
        if self.model is None:
            raise ExpressionError("demonstrations are for utilities and constraints")
        path = self.folder.path(relative)
        return demonstrations(path, self.model, episode_limit=episode_limit)


class _Walk:
    """One pass over the tree of an expression."""

    def __init__(self, text: str, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.text, self.functions = text, functions

    def value(self, node: ast.AST) -> Any:
        """The value of a node."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.List | ast.Tuple):
            return [self.value(part) for part in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            inside = self.value(node.operand)
            return self._apply(operator.neg, inside) if isinstance(node.op, ast.USub) else inside
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return self._apply(
                OPERATORS[type(node.op)], self.value(node.left), self.value(node.right)
            )
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise self._refuse(node, "only calls, numbers, strings, lists, + - * / and <= >= are read")

    def _name(self, node: ast.Name) -> Any:
        if node.id in NUMBERS:
            return NUMBERS[node.id]
        if node.id in self.functions:
            raise self._refuse(node, f"{node.id} is a function: write {node.id}(...)")
        raise self._refuse(node, did_you_mean(node.id, self.functions))

    def _comparison(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1:
            raise self._refuse(
                node, "a two-sided chain is two constraints, each under its own name"
            )
        compare = COMPARISONS.get(type(node.ops[0]))
        if compare is None:
            raise self._refuse(node, "a constraint is written with <= or >=")
        left, right = self.value(node.left), self.value(node.comparators[0])
        if not isinstance(left, Utility) and not isinstance(right, Utility):
            raise self._refuse(node, "a constraint compares a utility with a number")
        return self._apply(compare, left, right)

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name):
            raise self._refuse(node.func, "only plain functions such as entropy() are known")
        function = self.functions.get(node.func.id)
        if function is None:
            raise self._refuse(node.func, did_you_mean(node.func.id, self.functions))
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self._refuse(node, "arguments are written one by one")
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self._refuse(node, "arguments are written one by one")
            named[keyword.arg] = self.value(keyword.value)
        given = [self.value(argument) for argument in node.args]
        try:
            return function(*given, **named)
        except TypeError as error:
            raise self._refuse(node, str(error)) from error

    def _apply(self, function: Callable[..., Any], *values: Any) -> Any:
        # Strings and lists have an algebra of their own in Python, and one that can fill the memory.
        if not all(isinstance(value, int | float | Utility) for value in values):
            raise ExpressionError(
                f"{self.text!r}: only numbers and utilities are added or multiplied"
            )
        try:
            return function(*values)
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise ExpressionError(f"{self.text!r}: {error}") from error

    def _refuse(self, node: ast.AST, reason: str) -> CvxmdpError:
        part = ast.get_source_segment(self.text.strip(), node) or "this"
        return ExpressionError(f"{part!r} in {self.text!r} is not understood: {reason}")
