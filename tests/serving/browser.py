"""A real browser, by its debugging protocol over two pipes: what a page shows, and how it looks."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def found():
    """The path of a browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page.  The browser ends with the block."""

    def __init__(self, url, width=1000, height=1100):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self._out = os.pipe()
        self._in, answers = os.pipe()
        flags = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
            f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}", "about:blank",
        ]  # fmt: skip
        # Its pipes are the descriptors 3 and 4.
        script = f'exec "$0" "$@" 3<&{theirs} 4>&{answers}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, found(), *flags], pass_fds=(theirs, answers),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        os.close(answers)
        self._buffer, self._number, self._session, self.complaints = b"", 0, None, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Page.navigate", url=url)

    def send(self, method, **params):
        """The result of a command; what the page's console says meanwhile is kept in `complaints`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                piece = os.read(self._in, 1 << 20)
                assert piece, "the browser ended"
                self._buffer += piece
            text, _, self._buffer = self._buffer.partition(b"\0")
            said = json.loads(text)
            if said.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(said["params"])
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]

    def value(self, script):
        """What an expression gives in the page, once its promise is kept."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script, seconds=30.0):
        """What an expression gives as soon as that is true."""
        until = time.monotonic() + seconds
        while not (value := self.value(script)):
            assert time.monotonic() < until, (
                f"{script} did not become true: {self.value('document.body.innerText')}"
            )
            time.sleep(0.05)
        return value

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self._in)
        os.close(self._out)
        self.profile.cleanup()
