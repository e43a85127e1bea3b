"""A browser for tests: Chromium without a window, spoken to over two pipes in its debugging protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60


def found() -> str | None:
    """The path of a browser, if one is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser; `with` ends it.  said: what the page's console and policy complained of."""

    def __init__(self, width: int = 1400, height: int = 900):
        path = found()
        assert path is not None
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self._out = os.pipe()
        self._in, answers = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--disable-background-networking", f"--window-size={width},{height}",
                 f"--user-data-dir={self._home.name}", "--remote-debugging-pipe", "about:blank"]  # fmt: skip
        script = f'exec "$@" 3<&{theirs} 4>&{answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", path, *flags], pass_fds=(theirs, answers),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        os.close(answers)
        os.set_blocking(self._in, False)
        self._waiting, self._number, self._session = b"", 0, None
        self.said: list[str] = []
        self.requests: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._home.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser for something, and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        end = monotonic() + SECONDS
        while b"\0" not in self._waiting:
            try:
                data = os.read(self._in, 1 << 20)
                assert data, "the browser ended"
                self._waiting += data
            except BlockingIOError:
                assert monotonic() < end, "the browser does not answer"
                sleep(0.002)
        text, _, self._waiting = self._waiting.partition(b"\0")
        message = json.loads(text)
        self._hear(message.get("method", ""), message.get("params", {}))
        return message

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            about = params["exceptionDetails"]
            self.said.append(about.get("exception", {}).get("description", about["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.said.append(str([each.get("value") for each in params["args"]]))
        elif method == "Log.entryAdded":
            self.said.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path: Path) -> None:
        """Load a file, and wait until its script has run."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = monotonic() + SECONDS
        while self.run("document.readyState") != "complete":
            assert monotonic() < end, "the page does not load"
            sleep(0.01)

    def run(self, script: str) -> Any:
        """What an expression of JavaScript comes to in the page."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key; of one letter, type it."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click the middle of an element."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.run(f"(() => {{ const b = {box}; return [b.x + b.width / 2, b.y + b.height / 2]; }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path) -> None:
        """Keep a picture of what is seen."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
