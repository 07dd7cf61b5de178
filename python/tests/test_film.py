"""Films: one picture for each frame that is shown, in a file that is whole or not there."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer, Session
from started import Started
from test_cuda import DeviceArray
from test_end_to_end import WHY_NOT
from test_limits import show_late
from test_panel import until

IMAGE = np.random.default_rng(3).random((4, 6), np.float32)
SIZE = 2 * 2 * 4
"""The bytes of a picture of the fake renderer, 3 by 2, in a film of MP4, whose sides are even."""

ENCODER = """#!/bin/sh
for last; do :; done
echo started >&2
cat >"${last#file:}"
echo "$@" >"$0.arguments"
%s
"""


@pytest.fixture
def encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the films of MP4 be the raw pictures."""
    return write_encoder(tmp_path, monkeypatch)


def write_encoder(folder: Path, monkeypatch: pytest.MonkeyPatch, end: str = "", whole: str = ENCODER) -> Path:
    (folder / "bin").mkdir()
    program = folder / "bin" / "ffmpeg"
    program.write_text(whole % end if "%s" in whole else whole)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    return program


def numbers(path: Path) -> list[int]:
    """Return what the pictures of the fake renderer tell: 10 times the frame, plus the camera, plus 1."""
    pictures = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, SIZE)
    assert (pictures == pictures[:, :1]).all()
    return [int(number) for number in pictures[:, 0]]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix not in (".sock", "") or path.name[0] == ".")


@pytest.mark.parametrize("how", ["show", "frame", "loop"])
def test_each_frame_is_one_picture(host: wavefield.Field, encoder: Path, tmp_path: Path, how: str) -> None:
    path, zeros = tmp_path / "film.mp4", np.zeros(host.shape, np.float32)
    host.show(zeros)  # before the film
    with host.record(path, fps=12.5):
        if how == "show":
            for _ in range(7):
                host.show(zeros)
        elif how == "frame":
            for _ in range(7):
                with host.frame():
                    pass
        else:
            for _ in host.frames(7):
                pass
        assert not path.exists()
    host.show(zeros)  # after it
    assert numbers(path) == [10 * frame + 1 for frame in range(1, 8)]
    words = (tmp_path / "bin" / "ffmpeg.arguments").read_text()
    assert "-s 2x2 -r 12.5 -i -" in words
    assert files(tmp_path) == ["film.mp4"]


def test_a_film_waits_for_a_busy_renderer(
    host: wavefield.Field, renderer: FakeRenderer, encoder: Path, tmp_path: Path
) -> None:
    renderer.frees = False

    def free() -> None:
        renderer.frees = True
        for frame in range(3):
            assert renderer.session is not None
            renderer.session.send({"type": "free", "frame": frame})

    with host.record(tmp_path / "film.mp4"):
        for count in range(6):
            if count == 3:
                threading.Timer(0.2, free).start()
            host.show(np.zeros(host.shape, np.float32), wait=False)
    assert len(numbers(tmp_path / "film.mp4")) == 6


def draw(renderer: FakeRenderer, driver: FakeDriver, pictures: int) -> None:
    """Draw, once so many pictures are asked for."""
    until(lambda: [message["type"] for message in renderer.received].count("render") >= pictures)
    renderer.draw(driver)


@pytest.mark.usefixtures("quick")
def test_a_film_in_cuda_memory(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, encoder: Path, tmp_path: Path
) -> None:
    with field.record(tmp_path / "film.mp4"):
        for count in range(5):
            with field.frame():
                pass
            draw(renderer, driver, count + 1)
    assert numbers(tmp_path / "film.mp4") == [1, 11, 21, 31, 41]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("marks", [False, True])
def test_each_picture_has_the_limits_of_its_array(
    renderer: FakeRenderer, driver: FakeDriver, encoder: Path, tmp_path: Path, marks: bool
) -> None:
    """Also if the array is written late."""
    renderer.parameters["colorbar"] = marks
    with wavefield.connect(renderer.path, kind="image", shape=(4, 6)) as field:
        field.show(DeviceArray(IMAGE))
        field.status()
        renderer.draw(driver)
        with field.record(tmp_path / "film.mp4"):
            show_late(field, driver, IMAGE * np.float32(1000))
            assert renderer.parameters["limits"][1] == 1000 * IMAGE.max()
            field.status()
            renderer.draw(driver)


@pytest.mark.usefixtures("quick")
def test_pictures_with_marks_are_whole_snapshots(
    renderer: FakeRenderer, driver: FakeDriver, encoder: Path, tmp_path: Path
) -> None:
    """They come behind those without marks, which may still be on their way."""
    renderer.parameters["colorbar"] = False
    with wavefield.connect(renderer.path) as field, field.record(tmp_path / "film.mp4"):
        with field.frame():
            pass
        draw(renderer, driver, 1)
        for colorbar in (True, False):
            field.parameters["colorbar"] = colorbar
            with field.frame():
                pass
            if not colorbar:
                draw(renderer, driver, 2)
    pictures = np.frombuffer((tmp_path / "film.mp4").read_bytes(), np.uint8).reshape(-1, SIZE)
    np.testing.assert_array_equal(pictures[1], range(SIZE))
    assert (pictures[0] == 1).all() and (pictures[2] == 21).all() and len(pictures) == 3
    asked = [message for message in renderer.received if message["type"] == "snapshot"]
    assert {**asked[-1], "request_id": 0} == {"type": "snapshot", "size": [2, 2], "after": 1, "request_id": 0}


def test_a_film_goes_on_with_arrays_of_other_shapes(
    started: list[Started], renderer: FakeRenderer, encoder: Path, tmp_path: Path
) -> None:
    field = wavefield.show(IMAGE, memory="host")
    with field.record(tmp_path / "film.mp4"):
        for rows in (4, 4, 3, 2, 2, 2):
            wavefield.show(IMAGE[:rows], memory="host")
    # Each connection counts its frames from 0.
    assert numbers(tmp_path / "film.mp4") == [11, 21, 1, 1, 11, 21]


@pytest.mark.usefixtures("quick")
def test_another_shape_waits_for_the_pictures_before_it(
    started: list[Started], renderer: FakeRenderer, driver: FakeDriver, encoder: Path, tmp_path: Path
) -> None:
    field = wavefield.show(IMAGE, memory="cuda", limits=(0, 1))
    with field.record(tmp_path / "film.mp4"):
        for count, rows in enumerate((4, 3)):
            renderer.draw(driver)
            later = threading.Timer(0.2, draw, [renderer, driver, count + 1])
            later.start()
            wavefield.show(IMAGE[:rows], memory="cuda", limits=(0, 1))
        later.join()
    assert numbers(tmp_path / "film.mp4") == [11, 1]


def test_an_orbit_is_a_film(host: wavefield.Field, renderer: FakeRenderer, encoder: Path, tmp_path: Path) -> None:
    host.show(np.zeros(host.shape, np.float32))
    host.status()
    renderer.received.clear()
    with host.record(tmp_path / "film.mp4", fps=10):
        host.orbit(1.2)
    turns = [message["camera"]["azimuth"] for message in renderer.received if message["type"] == "set"]
    assert np.allclose(turns, [turns[0] + 2 * np.pi * step / 12 for step in range(12)] + turns[:1])
    assert len(numbers(tmp_path / "film.mp4")) == 12


def test_what_a_picture_shows_does_not_change_before_it_is_drawn(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, encoder: Path, tmp_path: Path
) -> None:
    """New limits wait for the pictures before them."""
    order = []

    def note(session: Session, message: dict[str, Any], files: list[int]) -> None:
        order.append(session.rendered)
        session.on_set(message, files)

    renderer.answers["set"] = note
    with field.record(tmp_path / "film.mp4"):
        with field.frame():
            pass
        before = len(order)
        later = threading.Timer(0.2, draw, [renderer, driver, 1])
        later.start()
        field.parameters["limits"] = (0, 2)
        assert order[before:] == [1]
        later.join()


def test_an_exception_keeps_the_film_up_to_there(host: wavefield.Field, encoder: Path, tmp_path: Path) -> None:
    for error in (KeyError, KeyboardInterrupt):
        with pytest.raises(error), host.record(tmp_path / "film.mp4"):
            host.show(np.zeros(host.shape, np.float32))
            raise error
    assert len(numbers(tmp_path / "film.mp4")) == 1 and files(tmp_path) == ["film.mp4"]


@pytest.mark.parametrize("when", ["between", "within"])
def test_a_closed_window_keeps_the_film_up_to_there(
    started: list[Started], renderer: FakeRenderer, encoder: Path, tmp_path: Path, when: str
) -> None:
    def close(session: Session, *_: Any) -> None:
        session.send({"type": "error", "code": "ended", "reason": "the window was closed"})

    field = wavefield.show(IMAGE, memory="host", window=True)
    with field.record(tmp_path / "film.mp4"):
        for count in field.until_closed():
            if count == 3 and when == "within":
                renderer.answers["render"] = close
            wavefield.show(IMAGE, memory="host", window=True)
            if count == 2 and when == "between":
                assert renderer.session is not None
                close(renderer.session)
    assert numbers(tmp_path / "film.mp4") == [11, 21, 31]


def test_a_film_without_a_picture_is_said(
    host: wavefield.Field, encoder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with host.record(tmp_path / "film.mp4"):
        pass
    assert "no frame was shown while it was recorded" in caplog.text
    assert files(tmp_path) == []


FAILING = """#!/bin/sh
echo "a warning" >&2
echo "No space left on device" >&2
%s
exit 3
"""


@pytest.mark.parametrize("when", ["at once", "at the end"])
def test_a_film_that_fails_stops_nothing(
    host: wavefield.Field, renderer: FakeRenderer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    reads = "cat >/dev/null" if when == "at the end" else "exec 0<&-; sleep 0.3"
    write_encoder(tmp_path, monkeypatch, reads, FAILING)
    path = tmp_path / "film.mp4"
    path.write_text("before")
    shown = 0
    words, size = "was not written: ffmpeg says: No space left on device", (640, 480)  # more than a pipe holds
    with pytest.raises(wavefield.WavefieldError, match=words), host.record(path, size=size):
        for _ in range(6):
            host.show(np.zeros(host.shape, np.float32))
            shown += 1
    assert shown == 6
    assert path.read_text() == "before" and files(tmp_path) == ["film.mp4"]
    host.show(np.zeros(host.shape, np.float32))


def test_a_picture_that_fails_stops_nothing(
    host: wavefield.Field, renderer: FakeRenderer, encoder: Path, tmp_path: Path
) -> None:
    renderer.refuses = "no memory is left"
    with pytest.raises(wavefield.WavefieldError, match="no memory is left"), host.record(tmp_path / "film.mp4"):
        for _ in range(3):
            host.show(np.zeros(host.shape, np.float32))
    host.status()
    assert len(renderer.frames) == 3 and files(tmp_path) == []


def test_a_mode_stays(host: wavefield.Field, encoder: Path, tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_text("before")
    path.chmod(0o640)
    (tmp_path / "link.mp4").symlink_to(path)
    with host.record(tmp_path / "link.mp4"), host.frame():
        pass
    assert path.stat().st_mode & 0o777 == 0o640 and (tmp_path / "link.mp4").is_symlink()
    assert numbers(path) == [1]


BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("film.avi", {}, ValueError, "a film is a file .mp4 or .gif"),
    ("film", {}, ValueError, "a film is a file .mp4 or .gif"),
    ("film.gif", {"fps": 60}, ValueError, "at most 50 for .gif, not 60"),
    ("film.mp4", {"fps": 0}, ValueError, "fps must be"),
    ("film.mp4", {"fps": "30"}, TypeError, "fps must be a number"),
    ("film.mp4", {"fps": float("nan")}, ValueError, "fps must be a finite number"),
    ("film.mp4", {"size": (0, 4)}, ValueError, "the size of a picture is"),
    ("no/film.mp4", {}, FileNotFoundError, "make the folder first"),
]


@pytest.mark.parametrize(("name", "options", "kind", "words"), BAD)
def test_a_wrong_argument_begins_nothing(
    host: wavefield.Field, encoder: Path, tmp_path: Path, name: str, options: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words), host.record(tmp_path / name, **options):
        pytest.fail("it is not recorded")
    assert host._panel.film is None


def test_mp4_needs_ffmpeg(host: wavefield.Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words = r"needs the program ffmpeg.* or record a \.gif"
    with pytest.raises(wavefield.WavefieldError, match=words), host.record(tmp_path / "film.mp4"):
        pytest.fail("it is not recorded")


def test_one_film_at_a_time(host: wavefield.Field, encoder: Path, tmp_path: Path) -> None:
    with host.record(tmp_path / "one.mp4"):
        words = "one.mp4 is being recorded already"
        with pytest.raises(wavefield.WavefieldError, match=words), host.record(tmp_path / "two.mp4"):
            pytest.fail("it is not recorded")
        host.show(np.zeros(host.shape, np.float32))
    assert len(numbers(tmp_path / "one.mp4")) == 1
    host.close()
    with pytest.raises(wavefield.FieldClosed), host.record(tmp_path / "two.mp4"):
        pytest.fail("it is not recorded")


# With the real renderer, decoded again


def picture(number: int) -> np.ndarray[Any, Any]:
    """Return two colours, side by side, that tell the frame."""
    image = np.empty((9, 16, 3), np.uint8)
    image[:, :8] = (250 - 9 * number, 20 + 9 * number, 120)
    image[:, 8:] = (40, 60 + 5 * number, 255 - 11 * number)
    return image


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_a_decoded_film_has_the_arrays(tmp_path: Path, suffix: str) -> None:
    if suffix == "mp4" and (shutil.which("ffmpeg") is None or shutil.which("ffprobe") is None):
        pytest.skip("ffmpeg and ffprobe are not installed")
    path, count = tmp_path / f"film.{suffix}", 20
    field = wavefield.launch(kind="image", shape=(9, 16, 3), dtype="uint8", memory="host")
    with field, field.record(path, fps=20, size=(163, 91)):
        for number in range(count):
            field.show(picture(number))
    width, height = (163, 91) if suffix == "gif" else (162, 90)
    if suffix == "gif":
        with pytest.importorskip("PIL.Image").open(path) as image:
            assert (image.n_frames, image.size) == (count, (width, height))
            frames = []
            for number in range(count):
                image.seek(number)
                assert image.info["duration"] == 50
                frames.append(np.asarray(image.convert("RGB")))
    else:
        raw = ["ffmpeg", "-v", "error", "-i", str(path), "-vf", "scale=in_color_matrix=bt709", "-f", "rawvideo"]
        pixels = subprocess.run([*raw, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True).stdout
        frames = [*np.frombuffer(pixels, np.uint8).reshape(-1, height, width, 3)]
        probe = ["ffprobe", "-v", "error", "-show_entries", "stream=r_frame_rate", "-of", "csv=p=0", str(path)]
        assert subprocess.run(probe, capture_output=True, text=True).stdout.strip() == "20/1"
    assert len(frames) == count
    for number, frame in enumerate(frames):
        shown = picture(number)
        for x, colour in ((40, shown[0, 0]), (120, shown[0, 15])):
            off = np.abs(frame[45, x].astype(int) - colour.astype(int)).max()
            assert off <= (2 if suffix == "gif" else 5), (number, x, frame[45, x], colour)


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_a_gif_needs_sides_of_16_bits_and_a_whole_picture(tmp_path: Path) -> None:
    from wavefield._renderer.program import find_renderer

    def encode(size: str, raw: bytes, rate: str = "10") -> tuple[int, str]:
        command = [find_renderer(), "encode-gif", f"--size={size}", f"--rate={rate}", str(tmp_path / "a.gif")]
        done = subprocess.run(command, input=raw, capture_output=True, timeout=60)
        return done.returncode, done.stderr.decode()

    assert encode("4x2", bytes(31)) == (0, "") and files(tmp_path) == []
    code, words = encode("70000x1", b"")
    assert code == 1 and "16 bits" in words
    for rate in ("0", "51", "nan"):
        assert encode("1x1", b"", rate)[0] == 2
    assert files(tmp_path) == []
    assert encode("4x2", bytes(33)) == (0, "") and files(tmp_path) == ["a.gif"]
