"""Results in notebooks: their text as it is printed, and pictures that show themselves or are written."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.base.errors import require
from cvxmdp.base.storage import whole_file

LONG = 8  # numbers of an array that are printed


class InNotebooks:
    """A result whose text a notebook shows in full."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class ShortTable(dict[str, Any]):
    """A table whose long arrays are printed by their shape: numbers by name, not pages of them."""

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {_short(value)}" for name, value in self.items()) + "}"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return repr(ShortTable(value))
    if isinstance(value, list | tuple) and any(np.size(part) > LONG for part in value):
        return f"<{len(value)} arrays>"
    if np.ndim(value) == 0 or np.size(value) <= LONG:
        return repr(value)
    return f"<array of shape {np.shape(value)}>"


@cache
def _picture() -> Any:
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that notebooks show without further ado."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=110)
            return buffer.getvalue()

    return Picture


def new_figure(**settings: Any) -> Any:
    """A Matplotlib figure that notebooks show; ``settings`` are those of ``Figure``."""
    require("matplotlib", "report")
    return _picture()(**settings)


def save_figure(figure: Any, path: str | Path, dpi: int = 150) -> None:
    """Write a figure, whole or not at all, in the format that the ending names; without one, as a PNG."""
    place = Path(path) if Path(path).suffix else Path(path).with_suffix(".png")
    with whole_file(place) as temporary:
        figure.savefig(temporary, dpi=dpi, format=place.suffix[1:])


def picture_endings() -> list[str]:
    """Of the files that figures are written to."""
    require("matplotlib", "report")
    from matplotlib.backend_bases import FigureCanvasBase

    return [f".{kind}" for kind in FigureCanvasBase.get_supported_filetypes()]
