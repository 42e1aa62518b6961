"""Walking through a utility, or through the shape it lowers to: the one way to look for something in a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

Kind = TypeVar("Kind")


class Tree(Generic[Kind]):
    """What utilities and shapes have in common: they may be made of others of their kind."""

    def children(self) -> tuple[Kind, ...]:
        """What this one is made of."""
        return ()

    def factors(self) -> tuple[float, ...]:
        """What stands before each of them."""
        return (1.0,) * len(self.children())

    def with_children(self, children: Sequence[Kind]) -> Kind:
        """The same made of others."""
        return self  # type: ignore[return-value]

    def positive(self) -> tuple[Kind, ...]:
        """Those that must be positive where this one, not a child, is to be finite."""
        return ()


Node = TypeVar("Node", bound=Tree[Any])


class Visit(NamedTuple, Generic[Node]):
    """Where a walk is.

    Attributes:
        path: indices of children that lead here.
        factor: the product of the weights of the sums on the way; logarithms and minima count as one.
        node: what is here.
    """

    path: tuple[int, ...]
    factor: float
    node: Node


def walk(node: Node) -> Iterator[Visit[Node]]:
    """Every node of a tree with its path and factor, each before its children."""
    yield from _walk(Visit((), 1.0, node))


def positive_in(nodes: Iterable[Tree[Any]]) -> list[Any]:
    """What must be positive where all of these are to be finite: arguments of logarithms."""
    return [inner for node in nodes for step in walk(node) for inner in step.node.positive()]


def _walk(here: Visit[Node]) -> Iterator[Visit[Node]]:
    yield here
    pairs = zip(here.node.factors(), here.node.children(), strict=True)
    for place, (factor, child) in enumerate(pairs):
        yield from _walk(Visit((*here.path, place), here.factor * factor, child))


def depth(node: Tree[Any]) -> int:
    """How many functions stand within each other, counted without calling itself."""
    levels, layer = 0, [node]
    while layer:
        levels += 1
        # A part that occurs many times is looked at once: towers of shared parts grow without bound.
        layer = list({id(child): child for one in layer for child in one.children()}.values())
    return levels
