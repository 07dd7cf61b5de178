"""The example with several ranks, on the CPU: what is drawn, and what happens if a rank fails.

With PyTorch installed the ranks use it. Otherwise they use the stand-in of `fake_torch.py`.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fake_renderer import FakeRenderer

EXAMPLES = Path(__file__).parent.parent / "examples"
RANK = """
import os, signal, sys, time
from datetime import timedelta
try:
    import torch
except ImportError:
    import fake_torch
    fake_torch.install()
import torch_distributed as example

limit, fails, calls, exchange = {limit}, {fails!r}, 0, example.exchange

def failing(*arguments):
    global calls
    calls += 1
    # Frame 4, step 2: each frame has an exchange for each step, and one for the strips.
    if calls == 4 * (example.STEPS + 1) + 2:
        eval(fails)
    return exchange(*arguments)

example.LIMIT, example.exchange = timedelta(seconds=limit), failing
print("ready", flush=True)
sys.stdin.readline()
example.main()
"""
FRAMES = 45
ports = itertools.count(20_000 + os.getpid() % 20_000)


@contextmanager
def ranks(
    count: int, *options: str, fails: tuple[int, str] = (-1, ""), limit: int = 60
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the ranks, all at once. One of them evaluates the code of `fails` in the middle of a frame."""
    shared = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(EXAMPLES.parent / "tests"), str(EXAMPLES.parent / "src")]),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(next(ports)),
        "OMP_NUM_THREADS": "1",
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK.format(limit=limit, fails=fails[1] if rank == fails[0] else "None"), *options],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def draw(renderer: FakeRenderer, count: int, **how: object) -> tuple[list[np.ndarray], dict[int, tuple[int, str]]]:
    """Return the frames that the renderer was shown, and what each rank but a stopped one answered."""
    renderer.rows, renderer.cols = 22, 20
    drawn = len(renderer.frames)
    options = ["--socket", str(renderer.path), "--host", "--frames", str(FRAMES)]
    with ranks(count, *options, **how) as started:  # type: ignore[arg-type]
        ended = {}
        stopped = how["fails"][0] if "SIGSTOP" in str(how.get("fails")) else -1  # type: ignore[index]
        for rank, process in enumerate(started):
            if rank != stopped:
                _, said = process.communicate()
                ended[rank] = process.returncode, said
    return renderer.frames[drawn:], ended


@pytest.mark.parametrize("count", [2, 4])
def test_several_ranks_draw_what_one_draws(renderer: FakeRenderer, count: int) -> None:
    alone, ended = draw(renderer, 1)
    assert ended == {0: (0, "")}
    assert len(alone) == FRAMES
    assert np.ptp(alone[-1][..., 1]) > 0.01
    together, ended = draw(renderer, count)
    assert {code for code, _ in ended.values()} == {0}, ended
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize(
    ("fails", "limit", "who"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 60, 1),  # both neighbours notice it at once
        ("os.kill(os.getpid(), signal.SIGKILL)", 3, 2),
        ("os.kill(os.getpid(), signal.SIGSTOP)", 3, 2),
        ("time.sleep(1.5 * limit)", 3, 2),
    ],
    ids=["killed", "killed, not a neighbour", "stopped", "late"],
)
def test_a_rank_that_fails_is_named(renderer: FakeRenderer, fails: str, limit: int, who: int) -> None:
    alone, _ = draw(renderer, 1)
    frames, ended = draw(renderer, 2 * who if who > 1 else 3, fails=(who, fails), limit=limit)
    # The frame in which it failed is not shown.
    np.testing.assert_array_equal(frames, alone[:4])
    code, said = ended[0]
    assert code == 1
    assert f"error: rank 0: no answer from rank {who}\n" in said
    assert all(ended[rank][0] == 1 for rank in ended if rank != who), ended
    if "sleep" in fails:
        assert ended[who] == (1, f"error: rank {who} was late: the others wait for only {limit} s\n")


def test_a_rank_that_is_a_little_late(renderer: FakeRenderer) -> None:
    alone, _ = draw(renderer, 1)
    frames, ended = draw(renderer, 3, fails=(1, "time.sleep(0.3)"))
    assert {code for code, _ in ended.values()} == {0}, ended
    np.testing.assert_array_equal(frames, alone)


@pytest.mark.skipif("WAVEFIELD_BIN" not in os.environ, reason="needs WAVEFIELD_BIN")
def test_the_real_renderers_picture_is_the_same(tmp_path: Path) -> None:
    pictures = []
    for count in (1, 2, 4):
        picture = tmp_path / f"{count}.png"
        options = ["--headless", "--host", "--grid", "64x48", "--frames", "12", "--output", str(picture)]
        with ranks(count, *options) as started:
            for process in started:
                _, said = process.communicate()
                assert process.returncode == 0, said
        pictures.append(picture.read_bytes())
    assert pictures[0] == pictures[1] == pictures[2]
