"""Any object as a text that is the same in every process: what it is made of, never where it lies.

``repr`` will not do: it shows the address of a function, and not what the function closes over. Two objects
with one text here behave alike as far as Python can tell; where it cannot (objects of compiled code), they are
known by their type and their ``repr`` without addresses.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import sysconfig
import threading
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
DEEPEST = 30
PARSING = threading.Lock()  # Python 3.11 counts the depth of all its parsers together
PLAIN = (bool, int, float, complex, str, bytes, type(None))


def described(value: Any) -> str:
    """A text of an object, with the values that its functions close over."""
    return "".join(_parts(value, (), 0))


def behind(function: Any) -> str:
    """What a function depends on besides its text: closed-over values, defaults, globals; empty if nothing."""
    return "".join(_behind(function, (id(function),), 0))


def _parts(value: Any, above: tuple[int, ...], depth: int) -> Iterator[str]:
    if isinstance(value, PLAIN):
        yield f"{type(value).__name__}:{value!r};"
        return
    if id(value) in above or depth > DEEPEST:
        yield "again;"
        return
    above, depth = (*above, id(value)), depth + 1
    yield f"{type(value).__module__}.{type(value).__qualname__}("
    if isinstance(value, types.ModuleType | type):
        yield f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
    elif isinstance(value, types.FunctionType):
        yield text_of(value)
        yield from _behind(value, above, depth)
    else:
        for name, part in _pieces(value):
            yield f"{name}="
            yield from _parts(part, above, depth)
    yield ");"


def _pieces(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object consists of, by name."""
    if sp.issparse(value):
        matrix = sp.csr_array(value)
        yield "shape", matrix.shape
        yield from ((name, getattr(matrix, name)) for name in ("data", "indices", "indptr"))
    elif hasattr(value, "__array__"):
        array = np.ascontiguousarray(value)
        yield "array", f"{array.dtype}{array.shape}"
        plain = described(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        yield "bytes", hashlib.sha256(plain).hexdigest()
    elif isinstance(value, Mapping):
        yield from sorted((f"[{described(key)}]", part) for key, part in value.items())
    elif isinstance(value, set | frozenset):
        yield from ((text, None) for text in sorted(map(described, value)))
    elif isinstance(value, list | tuple):
        yield from ((str(k), part) for k, part in enumerate(value))
    elif isinstance(value, types.MethodType):
        yield from (("self", value.__self__), ("function", value.__func__))
    elif isinstance(value, functools.partial):
        yield from (("function", value.func), ("given", value.args), ("named", value.keywords))
    elif is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif callable(getattr(value, "__wrapped__", None)):  # compiled by JAX, cached, decorated
        yield "wrapped", value.__wrapped__
    # Objects of multiprocessing are of one process.
    elif not type(value).__module__.startswith("multiprocessing"):
        yield "class", text_of(type(value)) if _is_users(type(value)) else ""
        yield "repr", without_address(value)
        yield from sorted(getattr(value, "__dict__", {}).items())


def without_address(value: Any) -> str:
    """``repr`` as it is in every process."""
    return ADDRESS.sub("", repr(value))


def text_of(thing: Any) -> str:
    """The text of a function or class; of a function whose text is not to be had, its code.

    The text of a lambda is that of its lines: where these hold another one, its code tells them apart.
    """
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    code = getattr(thing, "__code__", None)
    try:
        with PARSING:
            text = inspect.getsource(thing)
    except (OSError, TypeError):
        return f"{name} {_digest(code)}".strip()
    several = name.endswith("<lambda>") and text.count("lambda") > 1
    return text + _digest(code) if several else text


def _digest(code: types.CodeType | None) -> str:
    """Of what a function does, with its constants and the functions inside it; of one version of Python."""
    if code is None:
        return ""
    inside = [
        _digest(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts
    ]
    return hashlib.sha256(repr((code.co_code, code.co_names, inside)).encode()).hexdigest()


def _behind(function: Any, above: tuple[int, ...], depth: int) -> Iterator[str]:
    if not isinstance(function, types.FunctionType):
        yield from _parts(function, (), depth) if not inspect.isbuiltin(function) else ()
        return
    try:
        seen = inspect.getclosurevars(function)
    except ValueError:  # a cell that is not filled yet
        return
    given = {**(function.__kwdefaults__ or {})}
    given |= {str(k): default for k, default in enumerate(function.__defaults__ or ())}
    for kind, known in (("closed", seen.nonlocals), ("default", given), ("global", seen.globals)):
        for name, value in sorted(known.items()):
            if kind == "global" and not _may_vary(value):
                continue
            yield f"{kind} {name}="
            yield from _parts(value, above, depth)


def _may_vary(value: Any) -> bool:
    """Whether a global is a number or function of the user's: modules and classes are what they are."""
    if isinstance(value, types.ModuleType | type):
        return False
    if isinstance(value, types.FunctionType):
        return _is_users(value)
    return isinstance(value, (*PLAIN, list, tuple, dict)) or hasattr(value, "__array__")


def _is_users(thing: Any) -> bool:
    """Whether a class or function was written by the user, not in a library."""
    place = getattr(inspect.getmodule(thing), "__file__", None) or ""
    return "site-packages" not in place and not place.startswith(sysconfig.get_path("stdlib"))
