"""Measurements that outlive a run: a line of JSON for each, so that seeds accumulate from one run to the next.

A measurement is known by what was measured: a study, a problem, a seed, a number of steps. Lines are added at
the end as soon as they are known, with date and commit; the last line of a key counts. What changes a figure
(another learner, another budget) is measured again with ``again=True``, or by taking the old lines out.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Key = tuple[str | int, ...]


class Kept:
    """Measurements in a file.

    Args:
        path: of the file; it need not exist. None keeps nothing.
        minutes: of processor time after which nothing more is measured.
        again: measure anew what the file has.
    """

    def __init__(
        self, path: Path | None, minutes: float = float("inf"), again: bool = False
    ) -> None:
        self.path, self.seconds = path, 60.0 * minutes
        self.known: dict[Key, dict[str, Any]] = {}
        self.fresh: set[Key] = set()
        self.again = again
        if path is not None and path.exists():
            for line in path.read_text("utf-8").splitlines():
                one = json.loads(line)
                self.known[tuple(one["key"])] = one
        self.commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()

    def measure(self, key: Key, call: Callable[[], Mapping[str, Any]]) -> None:
        """Unless it is known, or the time is over; ``seconds`` are of the processor."""
        known = key in self.fresh if self.again else key in self.known
        if known or time.process_time() > self.seconds:
            return
        began = time.process_time()
        found = dict(call())
        took = round(time.process_time() - began, 2)
        day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        one = {"key": list(key), **found, "seconds": took, "date": day, "commit": self.commit}
        self.known[key] = one
        self.fresh.add(key)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")

    def of(self, *start: str | int) -> list[dict[str, Any]]:
        """Everything whose key begins so."""
        return [one for key, one in self.known.items() if key[: len(start)] == start]
