"""The widget in a real JupyterLab, in headless Chromium, with real mouse events. Run it by hand:

    pip install jupyterlab jupyter_rfb ipykernel pillow numpy cuda-bindings   # in a virtual environment
    WAVEFIELD_BIN=target/debug/wavefield python3 python/tests/jupyterlab_check.py --out target/jupyterlab-check

It runs the example notebook up to its widget, and checks what a drag, the wheel and a double click do to the picture on
the page. Then it drags while another cell runs, and runs the rest of the notebook, which closes the field. All this
with JupyterLab's usual setting, and with one that sends no events to other threads. --out gets screenshots.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

HERE = Path(__file__).resolve().parent
PATIENCE = 120.0
BUSY = """
import time
first, until = field.camera, time.monotonic() + 5
print("busy")
while time.monotonic() < until:
    with field.frame() as frame:
        write(frame)
print("not turned yet" if field.camera == first else "turned by another thread")
"""


class Browser:
    """A page in Chromium, driven over its debugging protocol."""

    def __init__(self, port: str) -> None:
        import websocket

        with urlopen(f"http://127.0.0.1:{port}/json") as answer:
            page = next(page for page in json.load(answer) if page["type"] == "page")
        self.socket = websocket.create_connection(page["webSocketDebuggerUrl"], timeout=PATIENCE)
        self.numbers = itertools.count(1)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call("Emulation.setDeviceMetricsOverride", width=1100, height=900, deviceScaleFactor=1, mobile=False)

    def call(self, method: str, **parameters: Any) -> Any:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv())).get("id") != number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def js(self, expression: str) -> Any:
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def shot(self, path: Path | None = None, **clip: Any) -> np.ndarray:
        """Return the page's picture, or a part of it; with `path`, save it too."""
        from PIL import Image

        png = base64.b64decode(self.call("Page.captureScreenshot", **clip)["data"])
        if path is not None:
            path.write_bytes(png)
        return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)


def _first_line(path: Path) -> str:
    return path.read_text().partition("\n")[0] if path.exists() else ""


def wait(what: str, found: Callable[[], Any], patience: float = PATIENCE) -> Any:
    end = time.monotonic() + patience
    while not (value := found()):
        assert time.monotonic() < end, f"{what}: not within {patience:g} s"
        time.sleep(0.2)
    return value


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Run Chromium with an empty page."""
    options = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    options += " --disable-component-update --disable-sync --hide-scrollbars --remote-debugging-port=0"
    command = ["chromium", *options.split(), "--remote-allow-origins=*", f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield Browser(wait("Chromium", lambda: _first_line(profile / "DevToolsActivePort")))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def jupyterlab(folder: Path, over_subshells: str) -> Iterator[str]:
    """Run JupyterLab on a folder. Yields its address."""
    settings = {
        "apputils-extension/kernels-settings": {"commsOverSubshells": over_subshells},
        "apputils-extension/notification": {"fetchNews": "false"},
        "notebook-extension/tracker": {"windowingMode": "none"},
    }
    for name, value in settings.items():
        path = folder / f"settings/@jupyterlab/{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [f"--ServerApp.port={port}", "--IdentityProvider.token=check", f"--ServerApp.root_dir={folder}"]
    options += ["--no-browser", "--allow-root", "--expose-app-in-browser"]
    places = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    environment = {**os.environ, **places, "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(HERE.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    with open(folder / "log", "wb") as log:
        command = [sys.executable, "-m", "jupyterlab", *options]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}/lab/tree/notebook.ipynb?token=check"
    except BaseException:
        print((folder / "log").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait(30)


IMAGE = "document.querySelector('.jp-OutputArea img.renderview-view')"


class Notebook:
    """A notebook in the page."""

    def __init__(self, browser: Browser, url: str, out: Path) -> None:
        self.browser, self.out = browser, out
        wait("JupyterLab", lambda: self._open(url))
        wait(
            "the kernel",
            lambda: browser.js("!!window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"),
        )

    def _open(self, url: str) -> bool:
        return "errorText" not in self.browser.call("Page.navigate", url=url)

    def run(self, first: int, last: int, done: bool = True) -> None:
        """Run the cells from `first` up to `last`, without that one."""
        self.browser.js(
            "(() => { const book = jupyterapp.shell.currentWidget.content; book.deselectAll();"
            f"book.activeCellIndex = {first}; if ({last} > {first} + 1) book.extendContiguousSelectionTo({last - 1});"
            "window.ran = false; jupyterapp.commands.execute('notebook:run-cell').then(() => window.ran = true) })()"
        )
        if done:
            self.ran()

    def ran(self) -> None:
        wait("the cells", lambda: self.browser.js("window.ran"))

    def text(self) -> str:
        """Return what the cells have put out."""
        return str(
            self.browser.js("[...document.querySelectorAll('.jp-RenderedText')].map(e => e.innerText).join('\\n')")
        )

    def place(self) -> tuple[float, float, float, float]:
        """Scroll to the widget, and return its place on the page."""
        self.browser.js(f"{IMAGE}.scrollIntoView({{block: 'center'}})")
        x, y, width, height = self.browser.js(f"(r => [r.x, r.y, r.width, r.height])({IMAGE}.getBoundingClientRect())")
        return x, y, width, height

    def picture(self) -> np.ndarray:
        """Return the widget's picture, as the page shows it, once it is steady: the last one comes without loss."""
        # It draws only while it is in sight.
        wait(
            "the widget",
            lambda: self.browser.js(f"{IMAGE}?.scrollIntoView({{block: 'center'}}), {IMAGE}?.naturalWidth > 1"),
        )
        last = None
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            x, y, width, height = self.place()
            clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
            now = self.browser.shot(clip=clip)
            if last is not None and np.array_equal(last, now):
                return now
            last = now
            time.sleep(1)
        raise AssertionError("the picture does not become steady")

    def drag(self, right: float, down: float, button: str = "left") -> None:
        left, top, width, height = self.place()
        x, y = left + width / 2, top + height / 2
        buttons = {"left": 1, "right": 2}[button]
        self.browser.mouse("mouseMoved", x, y)
        self.browser.mouse("mousePressed", x, y, button=button, buttons=buttons, clickCount=1)
        for step in range(1, 13):
            self.browser.mouse(
                "mouseMoved", x + right * step / 12, y + down * step / 12, button=button, buttons=buttons
            )
            time.sleep(0.03)
        self.browser.mouse("mouseReleased", x + right, y + down, button=button, clickCount=1)

    def double_click(self) -> None:
        x, y, width, height = self.place()
        for count in (1, 2):
            for kind, buttons in (("mousePressed", 1), ("mouseReleased", 0)):
                where = x + width / 2, y + height / 2
                self.browser.mouse(kind, *where, button="left", buttons=buttons, clickCount=count)

    def wheel(self, down: float) -> None:
        x, y, width, height = self.place()
        self.browser.mouse("mouseWheel", x + width / 2, y + height / 2, deltaX=0, deltaY=down)

    def save(self, name: str) -> None:
        self.browser.shot(self.out / f"{name}.png")


def differ(one: np.ndarray, other: np.ndarray) -> float:
    """Return the part of the pixels that differ clearly."""
    return float((np.abs(one - other).max(axis=2) > 24).mean())


def check(book: Notebook, at: int, end: int) -> str:
    """Use the mouse, from the first cell to the last. `at` is the widget's."""
    paused, moving, busy, then = range(at + 1, at + 5)
    book.run(0, paused + 1)
    before = book.picture()
    book.save("1-before")
    book.drag(150, 40)
    dragged = book.picture()
    book.save("2-dragged")
    book.drag(100, 0, "right")
    moved = book.picture()
    book.save("3-moved")
    book.wheel(-200)
    zoomed = book.picture()
    book.save("4-zoomed")
    book.double_click()
    again = book.picture()
    book.save("5-reset")
    parts = [differ(one, other) for one, other in itertools.pairwise((before, dragged, moved, zoomed))]
    assert all(part > 0.05 for part in parts), f"changed: {parts}"
    assert np.array_equal(before, again), f"the reset differs from the first picture in {differ(before, again):.3%}"
    book.run(moving, moving + 1)
    book.place()
    sources = set()

    def moves() -> bool:
        sources.add(book.browser.js(f"{IMAGE}.src"))
        return len(sources) > 3

    wait("more than 3 pictures", moves)
    book.run(busy, busy + 1, done=False)
    wait("the busy cell", lambda: "busy" in book.text())
    for _ in range(4):
        book.drag(120, 20)
    book.ran()
    assert "not turned yet" in book.text(), book.text()
    book.run(then, then + 1)
    assert "turned now" in book.text(), book.text()
    book.place()
    book.save("6-busy")
    book.run(then + 1, end)
    words = "the picture stays as it is: the field is closed"
    book.place()
    wait("what a closed field says", lambda: words in book.text())
    last = book.picture()
    for _ in range(3):
        book.drag(60, 10)
    assert differ(last, book.picture()) == 0
    assert (book.text().count(words), book.text().count("Traceback")) == (1, 0), book.text()
    book.save("7-closed")
    changes = ", ".join(f"{part:.0%}" for part in parts)
    return f"a drag, a move and the wheel changed {changes} of the pixels; {len(sources)} pictures in 2 s"


def options() -> Path:
    """Return the folder of `--out`."""
    parser = argparse.ArgumentParser(
        description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("target/jupyterlab-check"))
    return Path(parser.parse_args().out).resolve()


def code_cell(name: str, source: str) -> dict[str, Any]:
    """Return a cell of a notebook."""
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "id": name, "source": source}


def check_both(root: Path, notebook: dict[str, Any], check: Callable[[Browser, str, Path, bool], str]) -> None:
    """Check a notebook where events reach the kernel while a cell runs, and where they do not: the last argument."""
    for over_subshells in ("perCommTarget", "disabled"):
        out = root / over_subshells
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        with (
            tempfile.TemporaryDirectory() as folder,
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
            jupyterlab(Path(folder), over_subshells) as url,
            chromium(Path(profile)) as browser,
        ):
            (Path(folder) / "notebook.ipynb").write_text(json.dumps(notebook))
            try:
                said = check(browser, url, out, over_subshells != "disabled")
            except BaseException:
                browser.shot(out / "failed.png")
                raise
            print(f"commsOverSubshells {over_subshells}: {said}", flush=True)


def main() -> None:
    out = options()
    source = json.loads((HERE.parent / "examples/notebook.ipynb").read_text())
    cells = source["cells"]
    (at,) = (n for n, cell in enumerate(cells) if "wavefield.Widget(field, write)" in "".join(cell["source"]))
    # A paused wave stands still, so that pictures can be compared.
    more = [f'field.parameters["paused"] = {paused}' for paused in (True, False)]
    more += [BUSY, 'print("turned now" if field.camera != first else "never turned")']
    cells[at + 1 : at + 1] = [code_cell(f"check-{n}", code) for n, code in enumerate(more)]
    check_both(out, source, lambda browser, url, out, _: check(Notebook(browser, url, out), at, len(cells)))


if __name__ == "__main__":
    main()
