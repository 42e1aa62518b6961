"""Headless Chromium over its debugging pipe: what the browser tests need of it, and nothing to install.

Chromium reads commands from file descriptor 3 and writes answers and events to 4, JSON ended by a zero byte
(``--remote-debugging-pipe``), so that neither a driver nor a library for websockets is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 60.0  # seconds for an answer, on a busy machine

# Becomes the browser, with the pipes at the numbers it expects. (Code between fork and exec in this process
# could deadlock: JAX has threads.) Out of the way first: one of the two may itself be number 3 or 4.
HAND_OVER = """
import os, sys
read, write = os.dup2(int(sys.argv[1]), 30), os.dup2(int(sys.argv[2]), 31)
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """The browser of this machine, or None."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One browser with one page.

    Args:
        folder: for its profile.
    """

    def __init__(self, folder: Path) -> None:
        browser = find_chromium()
        assert browser is not None
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        arguments = [
            browser,
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",  # the tests may run as root in a container
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",  # no network: the page must not need one
            f"--user-data-dir={folder}",
            "about:blank",
        ]

        self._process = subprocess.Popen(
            [
                sys.executable,
                "-S",
                "-E",
                "-c",
                HAND_OVER,
                f"{to_browser}",
                f"{from_browser}",
                *arguments,
            ],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._waiting = b""
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        self._loaded = False
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command, and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        ends = time.monotonic() + PATIENCE
        while b"\0" not in self._waiting:
            ready, _, _ = select.select([self._read], [], [], max(0.0, ends - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("Chromium ended")
            self._waiting += part
        text, _, self._waiting = self._waiting.partition(b"\0")
        message = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        """Keep what a person would see in the console."""
        method, said = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(said["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.problems.append(json.dumps(said["args"])[:2000])
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.problems.append(json.dumps(said["entry"])[:2000])
        elif method == "Network.requestWillBeSent":
            url = said["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.problems.append(f"asked the network for {url}")

    def open(self, page: Path, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Show a page at a size, as a phone would below 600 pixels."""
        self.problems.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=features)
        self._loaded = False
        self.send("Page.navigate", url=page.resolve().as_uri())
        while not self._loaded:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """The value of JavaScript in the page."""
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse."""
        x, y = self._middle(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        """Move the mouse onto the middle of an element."""
        x, y = self._middle(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _middle(self, selector: str) -> tuple[float, float]:
        box = self.evaluate(
            f"(async () => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'});"
            " for (let k = 0; k < 2; k += 1) await new Promise(requestAnimationFrame);"
            " const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return box[0], box[1]

    def press(self, selector: str, key: str, code: int) -> None:
        """Press a key in an element."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Write what is seen (or the whole page) as PNG."""
        taken = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))

    def close(self) -> None:
        """End the browser."""
        self._session = None
        try:
            self.send("Browser.close")
        except (OSError, RuntimeError, TimeoutError):
            self._process.kill()
        self._process.wait(timeout=30)
        os.close(self._write)
        os.close(self._read)
