"""Programs that end without closing their field. Each is a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


def run(program: str, folder: Path, **environment: str) -> str:
    """Run a program, and return what it prints. Its exit code must be 0, and its stderr empty."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(folder)],
        env={**os.environ, "PYTHONPATH": str(TESTS), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


CUDA = """
import atexit, sys
from pathlib import Path
from types import ModuleType
from fake_driver import FakeDriver
from fake_renderer import UUID, FakeRenderer

driver, renderer = FakeDriver(UUID), FakeRenderer(Path(sys.argv[1]))
sys.modules["cuda.bindings"] = bindings = ModuleType("cuda.bindings")
sys.modules["cuda.bindings.driver"] = bindings.driver = driver

@atexit.register  # the hook registered first is called last
def last():
    renderer.farewell.wait(5)
    print(driver.calls.index("cuDestroyExternalSemaphore") > at_exit, renderer.received[-1], driver.contexts)

import wavefield
"""


@pytest.mark.parametrize("held", ["", "array = field.empty()", "frames = iter(field); frame = next(frames)"])
def test_the_field_is_closed_before_its_handles_go(tmp_path: Path, held: str) -> None:
    program = f"""{CUDA}
field = wavefield.connect(renderer.path)
{held}
for _ in field.frames(2):
    pass
at_exit = len(driver.calls)
"""
    assert run(program, tmp_path) == "True {'type': 'bye'} []\n"


def test_a_stream_that_waits_for_a_renderer_that_is_gone_is_let_go(tmp_path: Path) -> None:
    program = f"""{CUDA}
field = wavefield.connect(renderer.path)
array = field.empty()
for _ in field.frames(4):
    pass
assert driver.streams[int(field.stream)], "it waits for free"
renderer.hang_up()
at_exit = len(driver.calls)
"""
    assert run(program, tmp_path).startswith("True ")


RENDERER = f"""#!{sys.executable}
import os, signal, sys
from pathlib import Path
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # before NumPy starts threads, which would take it
sys.path.insert(0, {str(TESTS)!r})
from fake_renderer import FakeRenderer

renderer = FakeRenderer(Path(sys.argv[sys.argv.index("--socket") + 1]).parent)
signal.sigwait([signal.SIGTERM])
renderer.farewell.wait(2)  # until everything is read
Path(os.environ["LOG"]).write_text(repr([message["type"] for message in renderer.received]))
"""


def test_the_field_is_closed_before_its_renderer_ends(tmp_path: Path) -> None:
    log, binary = tmp_path / "log", tmp_path / "wavefield"
    binary.write_text(RENDERER)
    binary.chmod(0o755)
    program = """
import wavefield
field = wavefield.launch(memory="host")
for _ in field.frames(2):
    pass
"""
    run(program, tmp_path, WAVEFIELD_BIN=str(binary), LOG=str(log))
    assert log.read_text() == "['hello', 'ready', 'ready', 'bye']"


def test_a_forked_child_leaves_the_field_to_its_parent(tmp_path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from fake_renderer import FakeRenderer
import wavefield

renderer = FakeRenderer(Path(sys.argv[1]))
field = wavefield.connect(renderer.path, memory="host")
if (child := os.fork()) == 0:
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
with field.frame():
    pass
print(field.status().frame_shown)
"""
    assert run(program, tmp_path) == "0\n"


def test_a_forked_child_leaves_the_launched_renderer_to_its_parent(tmp_path: Path) -> None:
    log, binary = tmp_path / "log", tmp_path / "wavefield"
    binary.write_text(RENDERER)
    binary.chmod(0o755)
    program = """
import os, sys
import wavefield

field = wavefield.launch(memory="host")
if (child := os.fork()) == 0:
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
print(sorted(path.name for path in field.socket.parent.iterdir()))
with field.frame():
    pass
field.close()
print(field.socket.parent.exists())
"""
    said = run(program, tmp_path, WAVEFIELD_BIN=str(binary), LOG=str(log))
    assert said == "['wavefield.sock']\nFalse\n"
    assert log.read_text() == "['hello', 'ready', 'bye']"


UNTIL_CLOSED = f"""#!{sys.executable}
import os, sys
from pathlib import Path
sys.path.insert(0, {str(TESTS)!r})
from fake_renderer import FakeRenderer

renderer = FakeRenderer(Path(sys.argv[sys.argv.index("--socket") + 1]).parent)
assert os.read(int(sys.argv[sys.argv.index("--until-closed") + 1]), 1) == b""
Path(os.environ["LOG"]).touch()
"""

LAUNCHES = """
import multiprocessing, os, signal, subprocess, sys, time
import wavefield

field = wavefield.launch(memory="host")
%s
%s
"""


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os._exit(0)",
        "os.execv('/bin/true', ['true'])",
    ],
    ids=["SIGKILL", "SIGTERM", "_exit", "exec"],
)
@pytest.mark.parametrize(
    "also",
    [
        "",
        "os.fork() or time.sleep(100)",
        "multiprocessing.get_context('fork').Process(target=time.sleep, args=[100]).start()",
        "multiprocessing.get_context('spawn').Process(target=time.sleep, args=[100]).start()",
        "subprocess.Popen(['sleep', '100'], close_fds=False)",
    ],
    ids=["alone", "fork", "multiprocessing-fork", "multiprocessing-spawn", "subprocess"],
)
def test_a_launched_renderer_notices_that_its_program_is_gone(tmp_path: Path, end: str, also: str) -> None:
    """However the program ends, and even if processes that it has started still run."""
    log, binary = tmp_path / "log", tmp_path / "wavefield"
    binary.write_text(UNTIL_CLOSED)
    binary.chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.Popen(
            [sys.executable, "-c", LAUNCHES % (also, end)],
            env={**os.environ, "WAVEFIELD_BIN": str(binary), "LOG": str(log), "TMPDIR": folder},
            start_new_session=True,  # so the test can end what it started
        )
        try:
            until(log.exists)
        finally:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
