"""Tests against the real renderer, in host memory. WAVEFIELD_BIN names the program. Needs Vulkan, but no CUDA."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import notebooks
import readmes
import wavefield
from wavefield import _show

BIN = os.environ.get("WAVEFIELD_BIN")
EXAMPLES = Path(__file__).parent.parent / "examples"


def why_not() -> str | None:
    if not BIN:
        return "WAVEFIELD_BIN names no renderer"
    found = subprocess.run([BIN, "serve", "--help"], capture_output=True)
    return None if found.returncode == 0 else f"{BIN} has no `serve`"


WHY_NOT = why_not()
if WHY_NOT and os.environ.get("WAVEFIELD_REQUIRE_TOOLS") == "1" and BIN:
    raise RuntimeError(WHY_NOT)
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

SMALL = ["--size", "160x90", "--pace", "0"]


@pytest.fixture
def real() -> Iterator[wavefield.Field]:
    with wavefield.launch(grid=(48, 32), memory="host", arguments=SMALL) as field:
        yield field


def flat(v: np.ndarray, height: float, colour: float) -> None:
    rows, cols, _ = v.shape
    v[..., 0] = np.linspace(-1, 1, cols)[None, :]
    v[..., 1] = height
    v[..., 2] = np.linspace(-1, 1, rows)[:, None]
    v[..., 3] = colour


def test_what_is_written_is_drawn(real: wavefield.Field) -> None:
    assert real.shape == (32, 48, 4)
    pictures = []
    for colour in (0.0, 1.0, 0.0):
        for frame in real.frames(4):
            flat(np.asarray(frame), 0.0, colour)
        pictures.append(real.snapshot())
    dark, bright, again = pictures
    assert dark.shape == (90, 160, 4)
    assert bright[45, 80, :3].sum() > dark[45, 80, :3].sum() + 100, "yellow is brighter than violet"
    np.testing.assert_array_equal(dark, again)
    status = real.status()
    assert status.frame_shown == 11
    assert "client" in status.producer


def test_a_picture_that_is_there_is_not_drawn_again() -> None:
    """Nor does it wait for a redraw, which would be one more draw."""
    image = np.linspace(0, 1, 40 * 60, dtype=np.float32).reshape(40, 60)
    slowly = ["--size", "160x90", "--pace", "1"]
    with wavefield.launch(kind="image", shape=image.shape, memory="host", arguments=slowly) as field:
        field.show(image)
        first, drawn = field.snapshot(), field.status().frames_drawn
        for _ in range(3):
            np.testing.assert_array_equal(field.snapshot(), first)
            np.testing.assert_array_equal(np.asarray(field.picture()), first)
        field.parameters["limits"] = (0, 2)
        changed = field.snapshot()
        assert changed[45, 115].tolist() != first[45, 115].tolist(), "it has the new limits"
        field.show(image)
        np.testing.assert_array_equal(field.snapshot(), changed)
        assert field.status().frames_drawn == drawn + 1, "one for the new array"


def test_the_benchmark_prints_its_table() -> None:
    program = [sys.executable, "-m", "wavefield.bench"]
    ran = subprocess.run(
        [*program, "--library", "numpy", "--frames", "2", "--side", "16"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    for words in ("points 16x16", "image 16x16", "16 views", "behind: pictures(…)"):
        assert words in ran.stdout
    ran = subprocess.run([*program, "--frames", "0"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, "")


def test_the_pictures_of_arrays_come_in_order() -> None:
    def images() -> Iterator[np.ndarray]:
        for level in range(12):
            yield np.full((9, 16), 0.08 * level, np.float32)

    with wavefield.launch(kind="image", shape=(9, 16), memory="host", arguments=SMALL) as field:
        field.parameters["limits"] = (0, 1)
        singly = []
        for image in images():
            field.show(image)
            singly.append(field.snapshot())
        for behind in (0, 2, 6):
            np.testing.assert_array_equal(list(field.pictures(images(), behind=behind)), singly)
        np.testing.assert_array_equal(list(field.pictures(images(), "index"))[3][..., 0] < 0, False)
        with pytest.raises(ValueError, match="behind must be from 0 to 6, not 7"):
            next(field.pictures(images(), behind=7))
    assert len({picture.tobytes() for picture in singly}) == 12


def test_shown_without_a_copy_and_with_one(real: wavefield.Field) -> None:
    pictures = []
    arrays = [np.asarray(real.empty()), np.asarray(real.empty())]
    for index in range(6):
        flat(arrays[index % 2], 0.0, index % 2)
        assert real.show(arrays[index % 2]) == wavefield.Shown.WITHOUT_COPY
        pictures.append(real.snapshot())
    plain = np.zeros(real.shape, np.float32)
    flat(plain, 0.0, 0.0)
    assert real.show(plain) == wavefield.Shown.COPIED
    pictures.append(real.snapshot())
    for index, picture in enumerate(pictures):
        np.testing.assert_array_equal(picture, pictures[index % 2], str(index))
    assert (pictures[0] != pictures[1]).any()


def test_each_kind_is_drawn_as_what_it_is() -> None:
    """Checks the colours at places that follow from how each kind is drawn."""
    ramp = np.linspace(0, 1, 64, dtype=np.float32)
    colours = np.zeros((9, 16, 3), np.uint8)
    colours[:, :8, 0], colours[:, 8:, 2] = 255, 255
    dots = np.array([[0, 0, 0, 1], [0, 0, 0, 1]], np.float32)
    with contextlib.closing(_show._Shower(None, False)) as shower:
        patched, _show._shower = _show._shower, shower
        try:
            image = wavefield.show(np.tile(ramp, (36, 1)), memory="host").snapshot()
            assert image[360, 100, :3].sum() + 100 < image[360, 1180, :3].sum(), "violet to yellow"
            rgb = wavefield.show(colours, memory="host").snapshot()
            assert rgb[360, 320].tolist() == [255, 0, 0, 255]
            assert rgb[360, 960].tolist() == [0, 0, 255, 255]
            points = wavefield.show(dots, memory="host", size=40, limits=(0, 1)).snapshot()
            seen = np.ptp(points[..., :3].astype(int), axis=2) > 100
            assert 800 < seen.sum() < 1700, "one round dot of 40 pixels"
            heights = np.tile(ramp, (36, 1))
            surface = wavefield.show(heights, kind="surface", memory="host").snapshot()
            assert readmes.shows_something(surface)
            field = wavefield.show(heights, kind="surface", memory="host", camera=wavefield.Camera(0.0, 1.5, 4.0))
            assert field.camera == wavefield.Camera(0.0, 1.5, 4.0)
            assert (field.snapshot() != surface).any(), "from above"
        finally:
            _show._shower = patched


def test_a_picture_of_the_second_frame_is_not_of_the_first(real: wavefield.Field) -> None:
    for frame in real.frames(2):
        flat(np.asarray(frame), 0, frame.index)
    second = real.snapshot()
    flat_again = real.snapshot(after=0)
    np.testing.assert_array_equal(second, flat_again, "a later frame will do")


def test_the_renderer_refuses_an_array_that_is_too_large(real: wavefield.Field) -> None:
    with pytest.raises(wavefield.Refused) as caught:
        wavefield.launch(memory="host", shape=(30_000, 30_000, 2)[:2], dtype="float32", arguments=SMALL)
    assert caught.value.code in ("array", "memory")
    assert len(str(caught.value)) > 20


def test_memory_comes_back_to_the_renderer(real: wavefield.Field) -> None:
    for index in range(100):  # more than the renderer gives at once
        array = np.asarray(real.empty())
        flat(array, 0, index % 2)
        assert real.show(array) == wavefield.Shown.WITHOUT_COPY
        del array


def test_parameters(real: wavefield.Field) -> None:
    real.parameters.update(speed=2.0, colormap="magma")
    assert real.parameters["speed"] == 2.0
    assert real.parameters["colormap"] == "magma"
    with pytest.raises(wavefield.Refused, match="no such map"):
        real.parameters["colormap"] = "no such map"
    assert real.parameters["colormap"] == "magma"


def test_a_second_client_is_told_that_one_draws(real: wavefield.Field) -> None:
    with pytest.raises(wavefield.Busy, match=str(os.getpid())):
        wavefield.connect(real.socket, memory="host")
    for frame in real.frames(3):
        flat(np.asarray(frame), 0, 0)
    real.close()


def test_a_client_that_is_killed_leaves_the_renderer_to_the_next(real: wavefield.Field) -> None:
    other = wavefield.launch(grid=(48, 32), memory="host", arguments=SMALL)
    path = other.socket
    other._connection.close()  # the renderer stays
    code = (
        "import sys, wavefield\n"
        "with wavefield.connect(sys.argv[1], memory='host') as field:\n"
        "    for frame in field: print(frame.index, flush=True)\n"
    )
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            while client.stdout.readline().strip() != b"5":
                assert client.poll() is None
            client.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while True:
        try:
            field = wavefield.connect(path, memory="host")
            break
        except wavefield.Busy:
            assert time.monotonic() < end
            time.sleep(0.01)
    with field:
        for frame in field.frames(3):
            flat(np.asarray(frame), 0, 0)
        field.snapshot()  # waits for the last one
        assert field.status().frame_shown == 2
    other._ring.close(False)
    other.close()


def test_the_renderer_ends_with_its_field(real: wavefield.Field) -> None:
    path = real.socket
    assert path.exists()
    real.close()
    assert not path.parent.exists()
    with pytest.raises(wavefield.NoRenderer):
        wavefield.connect(path, memory="host")


def test_a_renderer_that_ends_is_gone(real: wavefield.Field) -> None:
    pid, _, _ = struct.unpack("iII", real._connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    for frame in real.frames(3):
        flat(np.asarray(frame), 0, 0)
    os.kill(pid, signal.SIGTERM)
    with pytest.raises(wavefield.RendererGone, match="restart the renderer"):
        for frame in real.frames(10_000):
            flat(np.asarray(frame), 0, 0)


LAUNCHES = f"""
import os, signal, time, wavefield
field = wavefield.launch(grid=(48, 32), memory="host", arguments={SMALL!r})
for frame in field.frames(2): pass
if os.fork() == 0: time.sleep(100)
os.kill(os.getpid(), signal.%s)
"""


@pytest.mark.parametrize("end", ["SIGKILL", "SIGTERM"])
def test_a_renderer_ends_with_a_program_that_is_killed_and_so_does_its_folder(end: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.Popen(
            [sys.executable, "-c", LAUNCHES % end], env={**os.environ, "TMPDIR": folder}, start_new_session=True
        )
        try:
            assert program.wait(60) == -signal.Signals[end]
            until = time.monotonic() + 60
            while processes_with(folder):
                assert time.monotonic() < until
                time.sleep(0.05)
            assert os.listdir(folder) == []
        finally:
            os.killpg(program.pid, signal.SIGKILL)  # its child still sleeps
            for process in processes_with(folder):
                os.kill(process, signal.SIGKILL)


def processes_with(word: str) -> list[int]:
    """Return the processes with the word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("where", readmes.first_examples())
def test_the_first_example_shows_a_picture(real: wavefield.Field, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    pictures: list[np.ndarray] = []

    def four(field: wavefield.Field) -> Iterator[wavefield.Frame]:
        yield from field.frames(4)
        pictures.append(field.snapshot())

    monkeypatch.setattr(wavefield.Field, "__iter__", four)
    monkeypatch.setattr(wavefield, "connect", lambda: real)
    monkeypatch.setitem(sys.modules, "cupy", np)
    exec(readmes.first_examples()[where], {})
    (picture,) = pictures
    assert readmes.shows_something(picture)


@pytest.mark.parametrize("where", readmes.one_lines())
def test_the_one_line_shows_a_picture(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_show, "_shower", None)
    try:
        exec(readmes.one_lines()[where], {})
        assert _show._shower is not None
        picture = _show._shower.field.snapshot()  # type: ignore[union-attr]
    finally:
        if _show._shower is not None:
            _show._shower.close()
    assert np.ptp(picture[..., 0].astype(int)) > 200, "violet to yellow; the background is dark"


def test_cuda_memory_is_refused_with_words_where_there_is_none(real: wavefield.Field) -> None:
    with pytest.raises((wavefield.CudaMissing, wavefield.Refused)) as caught:
        wavefield.connect(real.socket)
    assert len(str(caught.value)) > 20


def test_the_ocean_with_numpy_in_cupys_place(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "cupy.py").write_text("from numpy import *\nfrom numpy import fft, random\n")
    picture = tmp_path / "ocean.png"
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "cupy_ocean.py"), "--output", str(picture)]
        + ["--headless", "--host", "--grid", "64x48", "--frames", "2"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert picture.stat().st_size > 1000


def test_the_notebook_from_top_to_bottom(tmp_path: Path) -> None:
    """Like `jupyter nbconvert --execute`, with NumPy."""
    (tmp_path / "cupy.py").write_text("raise ImportError('not here')\n")
    search = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    executed = notebooks.execute(EXAMPLES / "notebook.ipynb", tmp_path, {**os.environ, "PYTHONPATH": search})
    assert len(notebooks.save_pictures(executed)) == 7
    said = notebooks.printed(executed)
    assert "Shown.WITHOUT_COPY" in said
    assert "Shown.COPIED" in said
