"""The window in a real JupyterLab, in headless Chromium, with real mouse events. Run it by hand:

    pip install jupyterlab anywidget ipykernel pillow numpy websocket-client   # in a virtual environment
    WAVEFIELD_BIN=target/release/wavefield python3 python/tests/jupyterlab_window_check.py --out target/jupyterlab-check

It shows an image with a slider in the notebook. It moves the slider while no cell runs and, if events reach the kernel
meanwhile, while one does. It clicks on a pixel, presses a key, turns the wheel and closes the field.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from jupyterlab_check import Notebook, check_both, code_cell, options, wait

CELLS = (
    """
import numpy as np, wavefield
image = np.arange(12 * 16, dtype="float32").reshape(12, 16)
got = []
field = wavefield.show(image, kind="image", memory="host", window="notebook")
speed = field.slider("x", 0, 1, 0.25)
field.on_click(lambda *found: got.append(found))
field.on_key(lambda key: got.append(key), "q")
""",
    "field",
    'print("value", speed.value)',
    """
import time
until = time.monotonic() + 20
print("busy")
while speed.value > 0 and time.monotonic() < until:
    image = image[::-1].copy()
    wavefield.show(image, kind="image", memory="host")
wavefield.show(np.arange(12 * 16, dtype="float32").reshape(12, 16), kind="image", memory="host")
print("moved" if speed.value == 0 else "not moved")
""",
    """
until = time.monotonic() + 20
while len(got) < 2 and time.monotonic() < until:
    wavefield.show(np.arange(12 * 16, dtype="float32").reshape(12, 16), kind="image", memory="host")
print("heard", got)
""",
    "field.close()",
)
FRAME = "document.querySelector('.jp-OutputArea iframe')"
INSIDE = f"{FRAME}.contentDocument"


class Window(Notebook):
    """A notebook with the window."""

    def page(self, expression: str) -> Any:
        """Return what an expression is in the window's page."""
        return self.browser.js(f"{FRAME}?.contentWindow?.eval({json.dumps(expression)})")

    def corner(self) -> tuple[float, float]:
        self.browser.js(f"{FRAME}.scrollIntoView({{block: 'center'}})")
        left, top = self.browser.js(f"(r => [r.x, r.y])({FRAME}.getBoundingClientRect())")
        return left, top

    def move(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drag in the window, in its pixels."""
        left, top = self.corner()
        (x, y), (to_x, to_y) = start, end
        button: dict[str, Any] = {"button": "left", "buttons": 1, "clickCount": 1}
        self.browser.mouse("mouseMoved", left + x, top + y)
        self.browser.mouse("mousePressed", left + x, top + y, **button)
        for part in (0.3, 0.6, 1.0):
            self.browser.mouse("mouseMoved", left + x + part * (to_x - x), top + y + part * (to_y - y), **button)
            time.sleep(0.1)
        self.browser.mouse("mouseReleased", left + to_x, top + to_y, button="left", clickCount=1)


def check(book: Window, over_subshells: bool) -> str:
    book.run(0, 2)
    wait("the window", lambda: book.page("typeof drawn === 'number' && drawn > 0"))
    wait("its size", lambda: book.page("canvas.width") == book.browser.js(f"{FRAME}.clientWidth"))
    focus = book.browser.js("document.activeElement.tagName")
    assert focus != "IFRAME", "the window takes the focus from the notebook"
    time.sleep(1)
    book.save("window-1")
    book.move((70, 19), (400, 19))

    def has_moved() -> bool:
        book.run(2, 3)
        return "value 1.0" in book.text()

    wait("the slider's value", has_moved)
    # While a cell runs.
    book.run(3, 4, done=False)
    wait("the busy cell", lambda: "busy" in book.text())
    before = book.page("drawn")
    wait("pictures of a cell that runs", lambda: book.page("drawn") > before + 5)
    book.move((150, 19), (1, 19))
    wait("the cell's end", lambda: "moved" in book.text())
    words = "moved" if "not moved" not in book.text() else "not moved"
    assert words == ("moved" if over_subshells else "not moved"), book.text()
    book.ran()
    time.sleep(1)  # the notebook scrolls to the cell
    # A click and a key.
    width, height = book.page("[canvas.width, canvas.height]")
    unit = min(width / 16, height / 12)
    x, y = width / 2 + (5.5 - 8) * unit, height / 2 + (7.5 - 6) * unit
    book.move((x, y), (x, y))
    for kind in ("keyDown", "keyUp"):
        book.browser.call("Input.dispatchKeyEvent", type=kind, key="q")
    time.sleep(1)  # no cell runs: they reach the kernel with either setting
    book.run(4, 5)
    wait("the click and the key", lambda: "heard" in book.text())
    assert "(7, 5, 117.0)" in book.text() and "'q'" in book.text(), book.text()
    pixels = book.browser.shot()
    left, top = book.corner()
    np.testing.assert_allclose(pixels[int(top + y), int(left + x)], pixels[int(top + y) + 3, int(left + x)], atol=8)
    book.save("window-2")
    book.run(5, 6)
    wait("the end", lambda: book.page("by('lost').textContent.includes('has ended')"))
    book.save("window-3")
    return f"{book.page('drawn')} pictures, {width}x{height}, slider while a cell runs: {words}"


def main() -> None:
    out = options()
    cells = [code_cell(f"cell-{n}", source.strip()) for n, source in enumerate(CELLS)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    check_both(out, notebook, lambda browser, url, out, live: check(Window(browser, url, out), live))


if __name__ == "__main__":
    main()
