"""Errors: each says what to do, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import FakeDriver
from fake_renderer import FakeRenderer, Session, memfd, message_of
from started import Started
from wavefield._renderer.connection import close_all, default_socket


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_renderer(tmp_path: Path) -> None:
    with pytest.raises(wavefield.NoRenderer, match="wavefield serve"):
        wavefield.connect(tmp_path / "none", memory="host")


def test_the_default_socket_is_the_renderers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(wavefield.NoRenderer, match=str(tmp_path / "wavefield.sock")):
        wavefield.connect(memory="host")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert default_socket() == Path(f"/tmp/wavefield-{os.getuid()}/wavefield.sock")


def test_a_runtime_folder_that_is_not_ones_own_is_passed_over(
    shared_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `su`, cron and containers leave the variable. The renderer passes over the same folders."""
    (tmp_path / "file").touch()
    for folder in (str(tmp_path / "missing"), str(tmp_path / "file"), "."):
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        with pytest.raises(
            wavefield.NoRenderer, match=r"no socket .*wavefield-user/wavefield\.sock \(XDG_RUNTIME_DIR is"
        ):
            wavefield.connect(memory="host")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(wavefield.NoRenderer, match="which is no folder of yours"):
        wavefield.connect(memory="host")


def test_a_runtime_folder_that_cannot_be_reached_is_passed_over(
    shared_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    (closed / "run").mkdir(parents=True)
    closed.chmod(0)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(closed / "run"))
    user = os.geteuid()
    try:
        if user == 0:  # to whom no folder is closed
            try:
                os.seteuid(65534)
            except OSError as error:
                pytest.skip(f"root cannot become another user here: {error}")
        assert default_socket() == shared_folder / "wavefield.sock"
    finally:
        os.seteuid(user)
        closed.chmod(0o700)


def test_a_socket_that_was_left(tmp_path: Path) -> None:
    path = tmp_path / "left"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
    with pytest.raises(wavefield.NoRenderer, match=r"has ended\. Start another"):
        wavefield.connect(path, memory="host")


def test_a_path_that_is_no_socket(tmp_path: Path) -> None:
    with pytest.raises(wavefield.NoRenderer, match="is not a socket"):
        wavefield.connect(tmp_path, memory="host")


def test_a_path_that_is_no_such_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "stream"))
        listener.listen()
        with pytest.raises(wavefield.NoRenderer, match="cannot connect"):
            wavefield.connect(tmp_path / "stream", memory="host")
    with pytest.raises(wavefield.NoRenderer, match="cannot connect"):
        wavefield.connect(tmp_path / ("long" * 50), memory="host")


def test_another_users_socket(renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    # The kernel's answer for a socket of mode 0600. Simulated, because root never gets it.
    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "connect", denied)
        with pytest.raises(wavefield.WrongUser, match="another user"):
            wavefield.connect(renderer.path, memory="host")


def test_a_socket_that_another_user_listens_on(renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other user has made a folder and a socket that everybody may open, at this user's path."""
    before = descriptors()
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(
        wavefield.WrongUser, match=r"another user.s program.* runs as user \d+, and you are user 4711"
    ) as caught:
        wavefield.connect(renderer.path, memory="host")
    assert caught.value.code == "user"
    settle(renderer)
    assert [message["type"] for message in renderer.received] == ["bye"], "nothing was said to it"
    assert descriptors() == before


@pytest.fixture
def shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path that stands for the folder in /tmp. The folder does not exist yet."""
    folder = tmp_path / "wavefield-user"
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("wavefield._renderer.connection.shared_folder", lambda: folder)
    return folder


def a_link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


def open_to_the_group(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o710)


def no_folder(folder: Path) -> None:
    folder.touch()


@pytest.mark.parametrize("make", [a_link, open_to_the_group, no_folder])
def test_a_folder_that_others_may_change_is_not_looked_into(shared_folder: Path, make: Callable[[Path], None]) -> None:
    make(shared_folder)
    with pytest.raises(
        wavefield.WrongUser, match=r"wavefield-user must be a folder that only you can open.*XDG_RUNTIME_DIR"
    ):
        wavefield.connect(memory="host")


def test_another_users_folder(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_folder.mkdir(mode=0o700)
    FakeRenderer(shared_folder).close()
    with pytest.raises(wavefield.NoRenderer, match=r"has ended\. Start another"):
        wavefield.connect(memory="host")
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(wavefield.WrongUser, match="must be a folder that only you can open"):
        wavefield.connect(memory="host")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("busy", wavefield.Busy),
        ("version", wavefield.VersionMismatch),
        ("user", wavefield.WrongUser),
        ("memory", wavefield.Refused),
        ("something new", wavefield.Refused),
    ],
)
def test_a_refusal_has_the_renderers_words(renderer: FakeRenderer, code: str, kind: type[Exception]) -> None:
    renderer.answers["hello"] = lambda session, *_: session.send(
        {"type": "refused", "code": code, "reason": "another draws (process 7); wait for it"}
    )
    with pytest.raises(kind, match=r"another draws \(process 7\); wait for it") as caught:
        wavefield.connect(renderer.path, memory="host")
    assert caught.value.code == code  # type: ignore[attr-defined]


def rubbish(session: Session, *_: Any) -> None:
    session.socket.send(b"\x00\x01rubbish")


def too_long(session: Session, *_: Any) -> None:
    session.socket.send(b" " * 66000)


def not_asked(session: Session, *_: Any) -> None:
    session.send({"type": "dance"})


def too_many_files(session: Session, *_: Any) -> None:
    files = [memfd(1) for _ in range(40)]
    session.send({"type": "welcome"}, files)
    for file in files:
        os.close(file)


def closes(session: Session, *_: Any) -> None:
    session.socket.shutdown(socket.SHUT_RDWR)


def other_version(session: Session, message: dict[str, Any], _files: list[int]) -> None:
    text, files = session.welcome(message)
    session.send({**text, "protocol": 1}, files)


def instead(session: Session, message: dict[str, Any], file: int) -> None:
    """Answer a hello with this file instead of the slots'."""
    text, _ = session.welcome(message)
    session.send(text, [file])
    os.close(file)


def short_file(session: Session, message: dict[str, Any], _files: list[int]) -> None:
    instead(session, message, memfd(16))


def no_files(session: Session, message: dict[str, Any], _files: list[int]) -> None:
    text, _ = session.welcome(message)
    session.send(text)


@pytest.mark.parametrize("memory", ["host", "cuda"])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (rubbish, wavefield.ProtocolError),
        (too_long, wavefield.ProtocolError),
        (too_many_files, wavefield.ProtocolError),
        (closes, wavefield.RendererGone),
        (other_version, wavefield.VersionMismatch),
        (no_files, wavefield.ProtocolError),
    ],
)
def test_a_wrong_answer_to_hello_leaves_no_descriptor(
    renderer: FakeRenderer, driver: FakeDriver, memory: Any, answer: Any, error: type[Exception]
) -> None:
    renderer.answers["hello"] = answer
    before = None
    for _ in range(3):
        with pytest.raises(error):
            wavefield.connect(renderer.path, memory=memory)
        # Wait until the renderer's thread has closed its side and can take the next client.
        renderer.answers["status"] = closes
        settle(renderer)
        before = before or descriptors()
    assert descriptors() == before


def settle(renderer: FakeRenderer) -> None:
    """Wait until the renderer has finished with the last client."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.connect(str(renderer.path))
        probe.send(b'{"type":"bye"}')
        assert renderer.farewell.wait(5)
        probe.settimeout(5)
        assert probe.recv(10) == b""
    renderer.farewell.clear()


def test_shared_memory_that_is_too_small_is_not_mapped(renderer: FakeRenderer) -> None:
    renderer.answers["hello"] = short_file
    with pytest.raises(wavefield.ProtocolError, match="a file of 16 bytes; 720 were expected"):
        wavefield.connect(renderer.path, memory="host")


def not_sealed_at_all(size: int) -> int:
    return memfd(size, seals=0)


def may_yet_shrink(size: int) -> int:
    return memfd(size, seals=fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def a_file_on_a_disk(size: int) -> int:
    with tempfile.TemporaryFile() as file:
        file.truncate(size)
        return os.dup(file.fileno())


@pytest.mark.parametrize("make", [not_sealed_at_all, may_yet_shrink, a_file_on_a_disk])
def test_memory_that_could_be_cut_short_is_not_mapped(renderer: FakeRenderer, make: Callable[[int], int]) -> None:
    """Access to the part that was cut off would end the program with SIGBUS."""
    renderer.answers["hello"] = lambda session, message, _files: instead(session, message, make(3 * 3 * 5 * 16))
    with pytest.raises(wavefield.ProtocolError, match="not sealed"):
        wavefield.connect(renderer.path, memory="host")
    del renderer.answers["hello"]

    def picture(session: Session, *_: Any) -> None:
        file = make(24)
        session.send({"type": "picture", "width": 3, "height": 2, "format": "rgba8-srgb", "bytes": 24}, [file])
        os.close(file)

    def allocated(session: Session, message: dict[str, Any], _files: list[int]) -> None:
        file, size = make(message["bytes"]), message["bytes"]
        session.send({"type": "allocated", "id": 7, "bytes": size, "allocation_bytes": size}, [file])
        os.close(file)

    renderer.answers |= {"snapshot": picture, "allocate": allocated}
    with wavefield.connect(renderer.path, memory="host") as field:
        before = descriptors()
        for use in (field.snapshot, field.empty):
            with pytest.raises(wavefield.ProtocolError, match="not sealed"):
                use()
        field.status()
        assert renderer.released == [7]
        assert descriptors() == before


def test_a_renderer_that_does_not_answer(renderer: FakeRenderer) -> None:
    renderer.answers["hello"] = lambda *_: None
    with pytest.raises(wavefield.RendererGone, match=r"has not answered 'hello' for 0\.1 s"):
        wavefield.connect(renderer.path, memory="host", timeout=0.1)


@pytest.mark.parametrize("answer", [rubbish, too_long, not_asked])
def test_rubbish_in_the_middle(host: wavefield.Field, renderer: FakeRenderer, answer: Any) -> None:
    renderer.answers["status"] = answer
    with pytest.raises(wavefield.ProtocolError):
        host.status()


@pytest.mark.parametrize(
    ("picture", "size"),
    [
        ({"width": 3, "height": 0}, 24),
        ({"width": 3, "height": 2, "format": "bgr"}, 24),
        ({"width": 3, "height": 3, "format": "rgba8-srgb"}, 24),
        ({"width": 2**40, "height": 2}, 24),
        ({"height": 2}, 24),
    ],
)
def test_a_picture_that_cannot_be(
    host: wavefield.Field, renderer: FakeRenderer, picture: dict[str, Any], size: int
) -> None:
    def answer(session: Session, *_: Any) -> None:
        file = memfd(size)
        session.send({"type": "picture", **picture}, [file])
        os.close(file)

    renderer.answers["snapshot"] = answer
    with pytest.raises(wavefield.ProtocolError):
        host.snapshot()


def test_free_out_of_order(host: wavefield.Field, renderer: FakeRenderer) -> None:
    renderer.answers["ready"] = lambda session, *_: session.send({"type": "free", "frame": 7})
    with pytest.raises(wavefield.ProtocolError, match="frame 0 was expected"):
        for _ in host.frames(5):
            pass


def test_the_renderers_last_words(host: wavefield.Field, renderer: FakeRenderer) -> None:
    def last(session: Session, *_: Any) -> None:
        session.send({"type": "error", "code": "stuck", "reason": "the array takes too long"})
        session.socket.shutdown(socket.SHUT_RDWR)

    renderer.answers["status"] = last
    with pytest.raises(wavefield.Refused, match="the array takes too long") as caught:
        host.status()
    assert caught.value.code == "stuck"
    # Later calls say the same.
    with pytest.raises(wavefield.RendererGone, match="the array takes too long"):
        host.status()


def test_a_renderer_that_ends_says_so_and_is_gone(host: wavefield.Field, renderer: FakeRenderer) -> None:
    def last(session: Session, *_: Any) -> None:
        session.send({"type": "error", "code": "ended", "reason": "the renderer was stopped"})
        session.socket.shutdown(socket.SHUT_RDWR)

    renderer.answers["status"] = last
    for _ in range(2):
        with pytest.raises(wavefield.RendererGone, match=r"gone: the renderer was stopped.*restart the renderer"):
            host.status()


def test_the_last_words_are_read_behind_a_reset(host: wavefield.Field, renderer: FakeRenderer) -> None:
    """A renderer that closes with a message unread resets the connection. Its own last message still counts."""

    def drop(session: Session, *_: Any) -> None:
        host._connection._socket.send(b'{"type":"nobody reads this"}')
        session.send({"type": "error", "code": "slow", "reason": "read what is sent"})
        session.socket.close()

    renderer.answers["status"] = drop
    with pytest.raises(wavefield.Refused, match="read what is sent"):
        host.status()


def test_a_renderer_that_goes_away(host: wavefield.Field, renderer: FakeRenderer) -> None:
    with host.frame() as frame:
        np.asarray(frame)[...] = 0
    renderer.hang_up()
    with pytest.raises(wavefield.RendererGone, match="restart the renderer, and connect again"):
        for _ in host.frames(100):
            pass
    with pytest.raises(wavefield.RendererGone, match="restart the renderer, and connect again"):
        host.status()


def test_a_closed_field_says_so(renderer: FakeRenderer) -> None:
    field = wavefield.connect(renderer.path, memory="host")
    frame = next(iter(field))
    field.close()
    field.close()
    assert field.closed
    assert "closed" in repr(field)
    assert frame.handed_over
    for use in (
        lambda: next(iter(field)),
        field.status,
        field.snapshot,
        field.empty,
        lambda: field.show(np.zeros((3, 5, 4), np.float32)),
        lambda: field.parameters.update(speed=2.0),
    ):
        with pytest.raises(wavefield.FieldClosed, match="connect again"):
            use()


def test_no_descriptor_is_left_after_many_fields(renderer: FakeRenderer) -> None:
    before = None
    for _ in range(20):
        with wavefield.connect(renderer.path, memory="host") as field:
            for frame in field.frames(4):
                np.asarray(frame)[...] = 1
            field.snapshot()
            field.show(np.asarray(field.empty()))
            del frame
        del field
        settle(renderer)
        before = before or descriptors()
    assert descriptors() == before


def test_memory_of_another_kind_is_no_memory(renderer: FakeRenderer) -> None:
    with pytest.raises(ValueError, match="not 'gpu'"):
        wavefield.connect(renderer.path, memory="gpu")  # type: ignore[arg-type]


def test_launch_without_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WAVEFIELD_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(wavefield.NoRenderer, match="cargo install"):
        wavefield.launch()
    monkeypatch.setenv("WAVEFIELD_BIN", str(tmp_path / "none"))
    with pytest.raises(wavefield.NoRenderer, match="WAVEFIELD_BIN names"):
        wavefield.launch()


def test_launch_wants_two_numbers_for_a_grid() -> None:
    grids: list[Any] = [64, (64,), (64, 64, 4), "64x64", (64.0, 64.0)]
    for grid in grids:
        with pytest.raises(ValueError, match=r"\(cols, rows\)"):
            wavefield.launch(grid=grid)


def test_launch_passes_on_what_the_program_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "wavefield"
    program.write_text('#!/bin/sh\necho "no Vulkan here: $*" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("WAVEFIELD_BIN", str(program))
    with pytest.raises(wavefield.NoRenderer, match=r"exit code 1.*\n*no Vulkan here: serve .*--grid 64x32 --headless"):
        wavefield.launch(grid=(64, 32), memory="host")


def test_launch_passes_on_what_the_program_says_after_it_listens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It opens the socket first, then looks for a device, and may find none."""
    program = tmp_path / "wavefield"
    program.write_text(f"""#!{sys.executable}
import socket, sys, time
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[sys.argv.index("--socket") + 1])
listener.listen()
listener.accept()[0].recv(1000)
listener.close()
time.sleep(0.1)
sys.exit("no device here")
""")
    program.chmod(0o755)
    monkeypatch.setenv("WAVEFIELD_BIN", str(program))
    with pytest.raises(wavefield.NoRenderer, match=r"exit code 1.*\n*no device here"):
        wavefield.launch(memory="host")


def test_another_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAVEFIELD_BIN", "/bin/true")
    with pytest.raises(wavefield.NoRenderer) as caught:
        wavefield.launch(memory="host")
    assert str(caught.value) == (
        "the renderer has ended with exit code 0. It says nothing: is /bin/true the program wavefield?"
    )


LAUNCHED = f"""#!{sys.executable}
import os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from fake_renderer import FakeRenderer

arguments = dict(zip(sys.argv[2::2], sys.argv[3::2]))
renderer = FakeRenderer(Path(arguments["--socket"]).parent)
renderer.window = False
assert int(arguments["--until-closed"]) >= 3
os.read(int(arguments["--until-closed"]), 1)
"""


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let `launch` start a fake renderer, in a process of its own."""
    program = tmp_path / "wavefield"
    program.write_text(LAUNCHED)
    program.chmod(0o755)
    monkeypatch.setenv("WAVEFIELD_BIN", str(program))
    monkeypatch.setattr("wavefield._say.said", set())
    return program


@pytest.mark.usefixtures("launched")
def test_a_long_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with wavefield.launch(memory="host") as field:
        assert len(os.fsencode(field.socket)) < 108
        assert field.status().producer == "client, fake"
    assert list(folder.iterdir()) == []


def test_a_display_that_does_not_answer(launched: Path, caplog: pytest.LogCaptureFixture) -> None:
    wavefield.launch(memory="host").close()
    assert caplog.text == ""
    wavefield.launch(headless=False, memory="host", arguments=["--overlay", "legend"]).close()
    assert [(record.name, record.levelname) for record in caplog.records] == [("wavefield", "WARNING")]
    assert "no window opens" in caplog.text


DAEMON = """
import os, sys
out = os.dup(1)
for stream in range(3):
    os.close(stream)
sys.stdin = sys.stdout = sys.stderr = None
import numpy as np, wavefield
field = wavefield.show(np.ones((4, 6), np.float32), memory="host", limits=(0, 1))
os.write(out, f"{field.status().producer}".encode())
"""


@pytest.mark.parametrize("streams", ["closed", "None"])
def test_a_daemon_without_standard_streams(launched: Path, streams: str) -> None:
    program = DAEMON if streams == "closed" else DAEMON.replace("os.close(stream)", "pass")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "client, fake", "")


@pytest.mark.parametrize(
    ("name", "call"),
    [("cuda", "connect()"), ("torch", "Array.as_torch(None)"), ("jupyter_rfb", "Widget")],
)
def test_a_file_with_the_name_of_a_library_is_named(tmp_path: Path, name: str, call: str) -> None:
    """Beside the script it hides the library."""
    (tmp_path / f"{name}.py").write_text("raise ImportError('mine')" if name != "cuda" else "")
    (tmp_path / "script.py").write_text(f"import wavefield\ntry: wavefield.{call}\nexcept Exception as e: print(e)")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    done = subprocess.run([sys.executable, tmp_path / "script.py"], env=environment, capture_output=True, text=True)
    assert f"because {tmp_path / name}.py has the same name: rename that file" in done.stdout, done


# Wrong arguments: one line that says what to do.


class Sparse:
    """Like SciPy's: it has a shape and a type, and is no array."""

    shape, dtype = (4, 6), np.dtype(np.float32)
    __module__ = "scipy.sparse._csr"

    def astype(self, dtype: Any) -> Sparse:
        return self

    def toarray(self) -> None: ...


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (None, r"this NoneType .*it is no array\): show an array of numbers"),
        ({}, r"takes 1 to 16 arrays at once, not 0|this dict .*it is no array"),
        ("cat.png", r"'cat.png' is a name, not an array: read the file first"),
        (Path("cat.png"), r"is a name, not an array"),
        (b"cat.png", r"is a name, not an array"),
        (Sparse(), r"it is sparse: show x\.toarray\(\)"),
    ],
)
def test_what_is_no_array(host: wavefield.Field, array: Any, words: str) -> None:
    for call in (wavefield.show, host.show):
        with pytest.raises(wavefield.ArrayMismatch, match=words) as caught:
            call(array)
        assert "\n" not in str(caught.value)


WRONG: list[tuple[Callable[[wavefield.Field, Any], Any], type[Exception], str]] = [
    (lambda field, show: show(camera=(0, 1, 3)), TypeError, r"wavefield\.Camera\(azimuth, .* not \(0, 1, 3\)"),
    (lambda field, show: field.render(camera=(0, 1, 3)), TypeError, r"wavefield\.Camera\("),  # type: ignore[call-overload]
    (lambda field, show: field.render(cameras=["front"]), ValueError, r"cameras must be .*'front'"),
    (lambda field, show: show(title=3), TypeError, "title must be text, not 3"),
    (
        lambda field, show: show(colormap=3),
        TypeError,
        "colormap must be a name, a colour map of matplotlib, or an array",
    ),
    (lambda field, show: show(size=np.ones(99)), TypeError, "size must be one number"),
    (lambda field, show: show(size=(1920, 1080)), TypeError, "save.path, size=.w, h.. is the picture's"),
    (lambda field, show: field.parameters.update(size=np.ones(99)), TypeError, "size must be a number"),
    (lambda field, show: wavefield.connect(field.socket, memory="host", client=3), TypeError, "must be text"),  # type: ignore[arg-type]
    (lambda field, show: field.render(size=(100_000,) * 2), ValueError, r"from 1 to 65535, not \(100000, 100000\)"),
    (lambda field, show: field.render(size=5), ValueError, r"\(width, height\)"),  # type: ignore[call-overload]
    (lambda field, show: field.render(size=(1, 2, 3)), ValueError, r"\(width, height\)"),  # type: ignore[arg-type]
    (lambda field, show: field.save("none/x.png"), FileNotFoundError, "make the folder first: 'none'"),
    (lambda field, show: field.save(""), ValueError, "use the name picture.png"),
    (lambda field, show: wavefield.Widget(np.ones((4, 6))), TypeError, r"Widget\(wavefield\.show\(x\)\)"),  # type: ignore[arg-type]
    (lambda field, show: wavefield.launch(device="a"), TypeError, "device must be the number"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "kind", "words"), WRONG)
def test_a_wrong_argument_is_said_in_a_line(
    started: list[Started],
    driver: FakeDriver,
    call: Callable[[wavefield.Field, Any], Any],
    kind: type[Exception],
    words: str,
) -> None:
    def show(**options: Any) -> wavefield.Field:
        return wavefield.show(np.ones((4, 6), np.float32), memory="host", limits=(0, 1), **options)

    field = show()
    with pytest.raises(kind, match=words) as caught:
        call(field, show)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
    assert not show().closed, "the next call works"


def test_a_notebook_without_cuda_shows_no_red_box(
    started: list[Started], without_cuda: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wavefield._show._in_a_notebook", lambda: True)
    assert wavefield.show(np.ones((4, 6), np.float32), limits=(0, 1)).memory == "host"
    assert capsys.readouterr().err == ""


def test_the_widget_is_listed() -> None:
    assert "Widget" in dir(wavefield) and "show" in dir(wavefield)


class Interrupted:
    """Sends SIGINT instead of answering a request. The answer comes before that to `then`, or after `go_on`."""

    def __init__(
        self, renderer: FakeRenderer, request: str, then: str | None = None, late: dict[str, Any] | None = None
    ) -> None:
        def interrupt(session: Session, message: dict[str, Any], files: list[int]) -> None:
            del renderer.answers[request]
            asked.append((message, [os.dup(file) for file in files]))
            self._number = session.request_id
            time.sleep(0.05)  # by then the client waits for the answer
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if then is None:
                assert self._go_on.wait(5)
                answer(session)

        def answer(session: Session) -> None:
            now, session.request_id = session.request_id, self._number
            if late is None:
                getattr(Session, f"on_{request}")(session, *asked[0])
            else:
                session.send(late)
            session.request_id = now
            close_all(asked[0][1])

        def answer_both(session: Session, message: dict[str, Any], files: list[int]) -> None:
            del renderer.answers[then or ""]
            answer(session)
            getattr(Session, f"on_{then}")(session, message, files)

        self._go_on = threading.Event()
        asked: list[tuple[dict[str, Any], list[int]]] = []
        renderer.answers[request] = interrupt
        if then is not None:
            renderer.answers[then] = answer_both

    def go_on(self) -> None:
        """Let the renderer answer."""
        self._go_on.set()


def test_an_interrupted_request_is_not_answered_to_the_next(host: wavefield.Field, renderer: FakeRenderer) -> None:
    before = descriptors()
    for late in (None, {"type": "failed", "request": "snapshot", "reason": "no memory"}):
        Interrupted(renderer, "snapshot", "set", late)
        with pytest.raises(KeyboardInterrupt):
            host.snapshot()
        host.parameters["speed"] = 0.5
        assert host.parameters["speed"] == 0.5
        assert host.snapshot().shape == (2, 3, 4)
    host.status()  # now the renderer has closed its own
    assert descriptors() == before


def test_an_interrupted_request_is_not_answered_to_the_next_of_its_kind(
    host: wavefield.Field, renderer: FakeRenderer
) -> None:
    interrupted = Interrupted(renderer, "status", late={"type": "state", "producer": "late"})
    with pytest.raises(KeyboardInterrupt):
        host.status()
    interrupted.go_on()
    assert host.status().producer == "client, fake"
    interrupted = Interrupted(renderer, "set")
    with pytest.raises(KeyboardInterrupt):
        host.parameters["speed"] = 0.5
    interrupted.go_on()
    host.parameters["colormap"] = "magma"
    assert (host.parameters["speed"], host.parameters["colormap"]) == (0.5, "magma")


def test_an_allocation_that_nobody_waits_for_is_given_back(host: wavefield.Field, renderer: FakeRenderer) -> None:
    interrupted = Interrupted(renderer, "allocate")
    with pytest.raises(KeyboardInterrupt):
        host.empty()
    interrupted.go_on()
    array = host.empty()
    host.status()
    assert renderer.released == [1]
    assert host.show(array) == wavefield.Shown.WITHOUT_COPY
    host.status()
    assert renderer.session is not None
    assert renderer.session.shows == {0: (2, 0)}


def kind_of(message: Any) -> str:
    return str(message_of(message)["type"] if isinstance(message, bytes) else message["type"])


def cut_short(patch: pytest.MonkeyPatch, owner: Any, name: str, only: str | None = None) -> None:
    """Raise KeyboardInterrupt at the end of a method."""

    def method(*arguments: Any) -> None:
        whole(*arguments)
        if only is None or kind_of(arguments[0]) == only:
            raise KeyboardInterrupt

    whole = getattr(owner, name)
    patch.setattr(owner, name, method)


def refuses_everything(field: wavefield.Field) -> None:
    plain = np.zeros((3, 5, 4), np.float32)
    for use in (lambda: next(iter(field)), field.status, field.snapshot, field.empty, lambda: field.show(plain)):
        with pytest.raises(wavefield.WavefieldError, match=r"hand-off of frame 1 was interrupted.*close the field"):
            use()


@pytest.mark.parametrize("cut", ["show", "ready"])
def test_showing_that_was_cut_short(
    host: wavefield.Field, renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    with host.frame():
        pass
    array = host.empty()
    with monkeypatch.context() as patch:
        cut_short(patch, host._connection, "send", cut)
        with pytest.raises(KeyboardInterrupt):
            host.show(array)
    refuses_everything(host)
    host.close()
    assert renderer.farewell.wait(5)
    sent = [message["type"] for message in renderer.received if message["type"] not in ("bye", "set")]
    assert sent == ["hello", "ready", "allocate", "show", *(["ready"] if cut == "ready" else [])]


def test_a_frame_whose_hand_over_was_cut_short_is_not_handed_over_again(
    host: wavefield.Field, renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = host.frames()
    next(frames)
    last = next(frames)
    with monkeypatch.context() as patch:
        cut_short(patch, host._connection, "send", "ready")
        with pytest.raises(KeyboardInterrupt):
            next(frames)
    with pytest.raises(wavefield.WavefieldError, match="was interrupted"):
        last.hand_over()
    refuses_everything(host)
    host.close()
    assert renderer.farewell.wait(5)
    assert [message["frame"] for message in renderer.received if message["type"] == "ready"] == [0, 1]


def test_a_value_whose_signal_was_cut_short_is_not_signalled_again(
    field: wavefield.Field, renderer: FakeRenderer, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with field.frame():
        pass
    with monkeypatch.context() as patch:
        cut_short(patch, field._ring._ready, "signal")  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt), field.frame():
            pass
    refuses_everything(field)
    assert renderer.session is not None
    assert renderer.session.ready.history == [1, 2]
    field.close()
    assert not driver.semaphores
    assert not any(driver.streams.values())


def test_ctrl_c_while_an_array_is_waited_for_loses_nothing(host: wavefield.Field, renderer: FakeRenderer) -> None:
    def interrupt(_session: Session, _message: dict[str, Any], _files: list[int]) -> None:
        time.sleep(0.05)  # by then the client waits for `free`
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    first, second = host.empty(), host.empty()
    renderer.frees = False
    host.show(first)
    host.status()  # now the renderer has it
    renderer.answers["ready"] = interrupt
    with pytest.raises(KeyboardInterrupt):
        host.show(second)
    with pytest.raises(wavefield.StillShown):
        host.show(second)
    session = renderer.session
    assert session is not None
    session.drawn += 1
    del renderer.answers["ready"]
    for frame in (0, 1):
        session.send({"type": "free", "frame": frame})
    renderer.frees = True
    assert host.show(first) == wavefield.Shown.WITHOUT_COPY
    host.status()
    assert session.shows == {0: (1, 0), 1: (2, 0), 2: (1, 0)}
