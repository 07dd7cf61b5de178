"""Windows that are not there, slow or closed, and errors that come late: nothing waits for ever, and words say why."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer, Session
from started import Started
from wavefield import _show

TESTS = Path(__file__).parent
IMAGE = np.random.default_rng(12).random((4, 6), np.float32)


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.005)


def send(renderer: FakeRenderer, **message: Any) -> None:
    assert renderer.session is not None
    renderer.session.send({"type": "error", **message})


def close_window(renderer: FakeRenderer) -> None:
    send(renderer, code="ended", reason="the window was closed")


# Is there a window?


def test_a_display_that_does_not_answer_is_said_once(
    started: list[Started], renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISPLAY", ":4321")
    renderer.window = False
    field = wavefield.show(IMAGE, memory="host")
    wavefield.show(IMAGE[:2], memory="host", window=True)
    assert not field.window
    assert len(started) == 1, "the renderer stays"
    assert capsys.readouterr().err.count("no window opens, because the display of DISPLAY") == 1
    _show._before_the_end()
    assert "what was shown was not seen" in capsys.readouterr().err


SCRIPT = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import numpy as np, wavefield
from wavefield import _show
import started
started.Started.fake = type("Fake", (), {{"path": __import__("pathlib").Path(sys.argv[1])}})
_show.Renderer = started.Started
_show.UNSEEN_SECONDS = 0.1
%s
field = wavefield.show(np.ones((4, 6), np.float32), memory="host", window=True)
"""


def ended(renderer: FakeRenderer, first: str = "", **environment: str) -> str:
    """Run a script without a terminal. Return what it says; it must end by itself."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT % first, str(renderer.path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent / "src"), **environment},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_script_without_its_window_ends(renderer: FakeRenderer) -> None:
    renderer.window = False
    assert "no window opens" in ended(renderer, DISPLAY=":4321")


def test_a_window_that_is_never_on_the_screen_is_not_waited_for_without_a_terminal(renderer: FakeRenderer) -> None:
    renderer.screen = [0, 0]
    assert "Ctrl-C" in ended(renderer)


def test_nothing_waits_under_pytest(renderer: FakeRenderer) -> None:
    assert "Ctrl-C" not in ended(renderer, "import pytest", PYTEST_CURRENT_TEST="test_it (call)")


# wait=False


def values(renderer: FakeRenderer) -> list[float]:
    return [float(frame.flat[0]) for frame in renderer.frames]


def test_the_newest_array_wins_and_no_call_waits(started: list[Started], renderer: FakeRenderer) -> None:
    renderer.frees = False
    array = np.zeros((4, 6), np.float32)
    for value in range(20):
        array[...] = value
        field = wavefield.show(array, memory="host", limits=(0, 1), wait=False)
    array[...] = -1
    assert field.shown is not None and field.shown.copied
    assert "shown later" in field.shown.reason
    session = renderer.session
    assert session is not None
    until(lambda: len(renderer.frames) == 3)  # those that the ring takes
    assert values(renderer) == [0, 1, 2]
    renderer.frees = True
    for frame in range(3):
        session.send({"type": "free", "frame": frame})
    until(lambda: len(renderer.frames) == 4)  # without another call
    assert values(renderer) == [0, 1, 2, 19]
    wavefield.show(array, memory="host", limits=(0, 1), wait=False).snapshot()
    assert values(renderer) == [0, 1, 2, 19, -1]


def test_a_picture_shows_the_newest_array(started: list[Started], renderer: FakeRenderer) -> None:
    renderer.frees = False
    for value in range(5):
        field = wavefield.show(np.full((4, 6), value, np.float32), memory="host", limits=(0, 1), wait=False)
    field.status()
    threading.Timer(0.05, lambda: [renderer.session.send({"type": "free", "frame": n}) for n in range(3)]).start()  # type: ignore[union-attr]
    assert field.snapshot().shape == (2, 3, 4)
    assert values(renderer) == [0, 1, 2, 4]


def test_what_waits_gives_way_to_what_is_shown(started: list[Started], renderer: FakeRenderer) -> None:
    renderer.frees = False
    for value in range(5):
        field = wavefield.show(np.full((4, 6), value, np.float32), memory="host", limits=(0, 1), wait=False)
    field.status()
    threading.Timer(0.05, lambda: [renderer.session.send({"type": "free", "frame": n}) for n in range(3)]).start()  # type: ignore[union-attr]
    wavefield.show(np.full((4, 6), 9, np.float32), memory="host", limits=(0, 1))
    field.status()
    assert values(renderer)[-1] == 9
    assert field._later is None


def test_in_place_and_without_a_wait_is_a_contradiction(host: wavefield.Field) -> None:
    with pytest.raises(ValueError, match="leave out copy=False"):
        host.show(np.zeros(host.shape, np.float32), copy=False, wait=False)


@pytest.mark.usefixtures("quick")
def test_the_newest_wins_in_cuda_memory(field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver) -> None:
    array = np.zeros(field.shape, np.float32)
    for value in range(8):
        array[...] = value
        field.show(array, wait=False)
    until(lambda: renderer.draw(driver) == 0 and values(renderer)[-1:] == [7])
    assert values(renderer) == [0, 1, 2, 7]


# Closed by the user


def test_a_closed_window_is_seen(started: list[Started], renderer: FakeRenderer) -> None:
    field = wavefield.show(IMAGE, memory="host", window=True)
    assert field.open and not field.closed
    close_window(renderer)
    until(lambda: field.closed)
    assert not field.open
    with pytest.raises(wavefield.FieldClosed):
        field.status()


@pytest.mark.parametrize("call", ["wavefield.show", "field.show"])
def test_a_loop_ends_when_the_window_is_closed_within_it(
    started: list[Started], renderer: FakeRenderer, call: str
) -> None:
    field = wavefield.show(IMAGE, memory="host", window=True)
    rounds = 0
    while field.open:
        rounds += 1
        if rounds == 3:
            close_window(renderer)
        wavefield.show(IMAGE, memory="host", window=True) if call == "wavefield.show" else field.show(IMAGE)
        assert rounds < 1000
    assert len(started) == 1, "no other window has opened"
    assert not wavefield.show(IMAGE, memory="host", window=True).closed
    assert len(started) == 2


def test_a_loop_goes_on_with_arrays_of_other_shapes(started: list[Started], renderer: FakeRenderer) -> None:
    first = wavefield.show(IMAGE, memory="host", window=True)
    rounds = 0
    while first.open:
        rounds += 1
        assert rounds <= 5
        wavefield.show(IMAGE[: rounds % 3 + 1], memory="host", window=True)
        if rounds == 5:
            close_window(renderer)
            until(lambda: first.closed)
    assert (rounds, len(started)) == (5, 1)


def test_an_earlier_result_closes_the_window(started: list[Started], renderer: FakeRenderer) -> None:
    first = wavefield.show(IMAGE, memory="host", window=True)
    last = wavefield.show(IMAGE[:2], memory="host", window=True)
    assert first.open and last.open
    first.close()
    assert first.closed and last.closed and started[0].ended == 1
    assert wavefield.show(IMAGE, memory="host", window=True).open
    assert len(started) == 2


def test_a_renderer_that_crashes_ends_the_loop_with_words(
    started: list[Started], renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]
) -> None:
    field = wavefield.show(IMAGE, memory="host", window=True)
    renderer.hang_up()
    until(lambda: field.closed)
    assert "the renderer is gone" in capsys.readouterr().err


# Errors that come late


def refuse(renderer: FakeRenderer) -> None:
    send(renderer, code="stuck", reason="8000000 points take longer than 10 s to draw: show fewer")
    assert renderer.session is not None
    renderer.session.socket.shutdown(2)


@pytest.mark.parametrize("shape", [(4, 6), (3, 6)])
@pytest.mark.parametrize("raised", [False, True], ids=["unheard", "raised"])
def test_a_late_error_belongs_to_its_own_array(
    started: list[Started],
    renderer: FakeRenderer,
    capsys: pytest.CaptureFixture[str],
    shape: tuple[int, ...],
    raised: bool,
) -> None:
    field = wavefield.show(IMAGE, memory="host")
    field.status()
    refuse(renderer)
    if raised:
        with pytest.raises(wavefield.Refused, match="show fewer"):
            field.status()
    renderer.farewell.wait(5)
    other = wavefield.show(np.full(shape, 5, np.float32), memory="host")
    other.status()
    assert values(renderer)[-1] == 5
    said = capsys.readouterr().err
    assert said.count("what was shown before could not be drawn: 8000000 points") == (not raised), said
    assert (len(started), started[0].ended) == (1, 0), "the renderer stays"


def test_a_late_error_is_said_at_the_end(
    started: list[Started], renderer: FakeRenderer, capsys: pytest.CaptureFixture[str]
) -> None:
    wavefield.show(IMAGE, memory="host").status()
    refuse(renderer)
    until(lambda: renderer.farewell.wait(5))
    _show._before_the_end()
    assert "could not be drawn: 8000000 points" in capsys.readouterr().err


def test_an_error_of_the_first_frame_is_raised(started: list[Started], renderer: FakeRenderer) -> None:
    def answer(session: Session, *_: Any) -> None:
        session.send({"type": "error", "code": "value", "reason": "these limits cannot be"})

    renderer.answers["set"] = answer
    with pytest.raises(wavefield.Refused, match="these limits cannot be"):
        wavefield.show(IMAGE, memory="host", limits=(0, 2))
    del renderer.answers["set"]
    assert wavefield.show(IMAGE, memory="host").open


# Threads and files


def test_threads_take_turns(started: list[Started], renderer: FakeRenderer) -> None:
    failures: list[BaseException] = []

    def work(rows: int) -> None:
        try:
            for value in range(10):
                wavefield.show(np.full((rows, 6), 10 * rows + value / 10, np.float32), memory="host", limits=(0, 1))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[rows], daemon=True) for rows in (4, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not failures
    assert _show._shower is not None and _show._shower.field is not None
    _show._shower.field.status()
    assert len(renderer.frames) == 30
    assert all((frame == frame.flat[0]).all() and frame.flat[0] // 10 == len(frame) for frame in renderer.frames)


def test_a_window_that_ends_while_a_file_is_made_leaves_the_old_file(
    started: list[Started], renderer: FakeRenderer, tmp_path: Path
) -> None:
    field = wavefield.show(IMAGE, memory="host", window=True)
    field.save(tmp_path / "picture.png")
    before = (tmp_path / "picture.png").read_bytes()

    def close(session: Session, *_: Any) -> None:
        close_window(renderer)
        session.socket.shutdown(2)

    renderer.answers["snapshot"] = close
    for name in ("picture.png", "new.png"):
        with pytest.raises(wavefield.RendererGone):
            field.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["picture.png"]
    assert (tmp_path / "picture.png").read_bytes() == before


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    until(lambda: threading.active_count() < 5)
