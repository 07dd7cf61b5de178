#!/usr/bin/env python3
"""commands.py LIST [--kind run|window|build]: runs the commands that README.md and the guide show, and writes a list.

tool/wavefield/tests/program/guide.rs demands that each command is in one of the lists in docs/measurements. `run` takes those that need nothing but
the programs (without a display), `window` those that open a window, which is closed after a while, and `build` those that build
in a clone. A command whose program this machine lacks is left out.

Where there is no cargo, programs that were built elsewhere must be on PATH: `wavefield`, the examples by their names, and
`wavefield-levels`, which is `wavefield` built with docs/guide/breaks/levels.patch.
"""

import argparse
import contextlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide/src").glob("*.md"))]
TIMEOUT = 1800
"""Seconds that a command may take."""
SHOWN = 15
"""Seconds that a window is left open."""
WANTED = {
    "EXERCISES=yours cargo test -p vulkan-cuda --test library exercises::": 101,
    "cargo run --release -p wavefield -- verify --scene texture --producer cuda --frames 100": 1,
}
"""Commands that must fail: the exercises are unsolved, and the number of levels is wrong."""


def commands() -> list[str]:
    """Return what stands in the pages' shell blocks, in order, each line once, without its comment."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            found += [line.split(" #")[0].strip() for line in block.splitlines()]
    # CI runs the tests.
    return [line for line in dict.fromkeys(found) if line and line != "scripts/test.sh"]


def kind(line: str) -> str:
    """Say which kind of machine runs the command: `build`, `window` or `run`."""
    if line.startswith(("git apply", "cargo run")):
        return "run"
    if not line.startswith("wavefield"):
        return "build"
    words = shlex.split(line)
    # Without a subcommand the program opens a window, unless --headless says otherwise.
    draws = len(words) == 1 or words[1].startswith("--")
    return "window" if "--window" in words or (draws and "--headless" not in words) else "run"


def lacks(line: str) -> str | None:
    """Return the program that the command needs and this machine does not have."""
    missing = [program for program in re.findall(r"\| (\w+)", line) if shutil.which(program) is None]
    return missing[0] if missing else None


def here(line: str) -> str:
    """Return the command as this machine runs it: without cargo, by programs that were built elsewhere."""
    if shutil.which("cargo"):
        return line
    if line.startswith("git apply"):
        return "command -v wavefield-levels"
    line = line.replace("cargo run --release -p wavefield -- verify", "wavefield-levels verify")
    return re.sub(r"cargo run .*--example (\S+)( --)?", r"\1", line)


def run(line: str, folder: Path, log: Path, beside: contextlib.ExitStack) -> int:
    """Run the command in the folder. A window is closed after a while; what runs in the background, at the end."""
    shown = kind(line) == "window" and "--window" not in line
    with log.open("wb") as out:
        words = ["bash", "-c", line.removesuffix("&")]
        process = subprocess.Popen(words, cwd=folder, stdout=out, stderr=out, start_new_session=True)
    if line.endswith("&"):
        beside.callback(process.terminate)
        end = time.monotonic() + 60
        while b"listening" not in log.read_bytes() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        return process.poll() or 0
    try:
        return process.wait(SHOWN if shown else TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
    try:
        status = process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        status = 137
    return status if shown else 124


def prepare(place: Path, what: str) -> None:
    """Make the folder in which the commands run, with the files that they name."""
    if what == "build":
        subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True)
        return
    place.mkdir()
    shutil.copy(ROOT / "tool/handoff/kernels/pond.cu", place / "mine.cu")
    for name in ("old", "new"):
        shutil.copy(ROOT / "docs/measurements/h200-bench.json", place / f"{name}.json")


def machine() -> list[str]:
    """Return what this machine is: the renderer's device, as the program itself names it."""
    text = subprocess.run(["wavefield", "devices"], capture_output=True, text=True, check=False).stdout
    system = f"{platform.system()} {platform.release()}, {os.cpu_count()} threads"
    return [*text.strip().splitlines(), system, time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())]


def main() -> int:
    """Run what can run here, and write the list."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("--kind", choices=("run", "window", "build"), default="run")
    arguments = parser.parse_args()
    if arguments.kind != "window":
        os.environ.pop("DISPLAY", None)
        os.environ.pop("WAYLAND_DISPLAY", None)
    lines, failed = [f"# {line}" for line in machine()], False
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as beside:
        place, log = Path(folder) / "place", Path(folder) / "log"
        prepare(place, arguments.kind)
        for line in commands():
            if kind(line) != arguments.kind:
                continue
            if (program := lacks(line)) is not None:
                print(f"left out: {line} (no {program})", file=sys.stderr)
                continue
            began = time.monotonic()
            status = run(here(line), place, log, beside)
            verdict = "ok" if status == WANTED.get(line, 0) else f"FAILED ({status})"
            lines.append(f"{verdict:<12} {time.monotonic() - began:6.1f} s  {line}")
            arguments.list.write_text("\n".join(lines) + "\n")
            print(lines[-1], flush=True)
            if verdict != "ok":
                failed = True
                print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
