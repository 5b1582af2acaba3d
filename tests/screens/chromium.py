"""A real Chromium, driven as its own tools do: the DevTools protocol over a pair of pipes."""

import contextlib
import json
import os
import select
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.project import Patience
from tests.screens.browser import headless

PATIENCE_S = 120
DRAGS, HEARD_S = 5, 5


@dataclass
class Tab:
    to: int
    come: int
    session: str = ""
    # What the page wrote to its console, and what the browser reported about it.
    console: list[str] = field(default_factory=list)
    _number: int = 0
    _read: bytes = b""

    def do(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        patience = Patience(PATIENCE_S)  # of all that comes until the answer does
        while True:
            found = self._next(patience)
            if found.get("id") == self._number:
                assert "error" not in found, found["error"]
                return found["result"]
            self._take(found)

    def _next(self, patience: Patience) -> Any:
        while not patience.is_over():
            if b"\0" in self._read:
                message, _, self._read = self._read.partition(b"\0")
                return json.loads(message)
            if select.select([self.come], [], [], 1)[0]:
                come = os.read(self.come, 1 << 20)
                assert come, "Chromium has ended"
                self._read += come
        raise AssertionError("Chromium does not answer")

    def _take(self, event: Any) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled":
                self.console.append(f"{parameters['type']}: {parameters['args']}")
            case "Runtime.exceptionThrown":
                self.console.append(str(parameters["exceptionDetails"]))
            case "Log.entryAdded":
                self.console.append(
                    f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}"
                )

    def run(self, script: str) -> Any:
        """The value of an expression in the page; of a promise, what it becomes."""
        found = self.do(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, seconds: float = PATIENCE_S) -> Any:
        """The expression's value, once it has one that is true."""
        patience = Patience(seconds)
        while not patience.is_over():
            if value := self.run(script):
                return value
            time.sleep(0.05)  # between two looks
        text = self.run("document.body.innerText")
        raise AssertionError(f"waited in vain for {script}; the page says:\n{text}")

    def open(self, url: str) -> None:
        self.do("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href.startsWith('{url}')")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def drop(self, *files: Path) -> None:
        """As if the files were dragged from a folder onto the page. Now and then Chromium ends a
        drag without a drop: then the page hears of none, and they are dragged again."""
        data = {"items": [], "files": [str(path) for path in files], "dragOperationsMask": 1}
        self.run("addEventListener('drop', () => { window.heard = true }, {capture: true})")
        for _ in range(DRAGS):
            self.run("window.heard = false")
            for kind in ("dragEnter", "dragOver", "drop"):
                self.do("Input.dispatchDragEvent", type=kind, x=300, y=300, data=data)
            patience = Patience(HEARD_S)
            while not patience.is_over():
                if self.run("window.heard"):
                    return
                time.sleep(0.05)  # between two looks
        raise AssertionError("no drop reaches the page")

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.do("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                    windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "")  # fmt: skip

    def look(self, width: int = 1100, height: int = 1000, dark: bool = False) -> None:
        """As on a screen of this size, in the user's light or dark colours."""
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height,
                deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path, whole: bool = True) -> None:
        shot = self.do("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(b64decode(shot["data"]))


@contextlib.contextmanager
def browser(scratch: Path, *options: str) -> Iterator[Tab]:
    come, of_it = os.pipe()
    to_it, to = os.pipe()
    command = [*headless(scratch), "--remote-debugging-pipe", *options, "about:blank"]
    # It reads from descriptor 3 and writes to 4.
    os.set_inheritable(to_it, True)
    os.set_inheritable(of_it, True)
    script = f'exec "$@" 3<&{to_it} 4>&{of_it}'
    process = subprocess.Popen(
        ["bash", "-c", script, "chromium", *command],
        pass_fds=(to_it, of_it),
        stderr=subprocess.DEVNULL,
    )
    os.close(to_it)
    os.close(of_it)
    try:
        tab = Tab(to, come)
        targets = tab.do("Target.getTargets")["targetInfos"]
        page = next(each for each in targets if each["type"] == "page")
        attached = tab.do("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        tab.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            tab.do(f"{domain}.enable")
        # A page that counts as hidden does not look at its server.
        tab.do("Emulation.setFocusEmulationEnabled", enabled=True)
        yield tab
    finally:
        process.kill()
        process.wait()
        os.close(to)
        os.close(come)
