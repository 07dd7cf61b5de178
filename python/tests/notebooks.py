"""Runs a notebook like `jupyter nbconvert --execute`, and checks its output."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def execute(notebook: Path, out: Path, environment: Mapping[str, str] | None = None) -> Path:
    """Run `notebook` from top to bottom, and return the executed copy in `out`. Raises if a cell fails."""
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir", str(out)]
    done = subprocess.run([*command, str(notebook)], env=environment, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"nbconvert:\n{done.stderr}"
    return out / notebook.name


def outputs(executed: Path) -> list[dict[str, Any]]:
    """Return the cells' outputs. Checks that all cells ran and none failed."""
    found = []
    for cell in json.loads(executed.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["execution_count"] is not None, f"not run: {''.join(cell['source'])}"
        found += cell["outputs"]
    for output in found:
        assert output["output_type"] != "error", "\n".join(output["traceback"])
    return found


def printed(executed: Path) -> str:
    """Return the text that the cells printed."""
    return "".join("".join(output["text"]) for output in outputs(executed) if output["output_type"] == "stream")


def save_pictures(executed: Path) -> list[Path]:
    """Write the inline pictures beside the executed notebook, in order. Checks that each shows something."""
    from PIL import Image

    paths: list[Path] = []
    for output in outputs(executed):
        png = output.get("data", {}).get("image/png")
        if png is None:
            continue
        content = base64.b64decode("".join(png))
        with Image.open(io.BytesIO(content)) as picture:
            colours = picture.convert("RGB").getcolors(maxcolors=2**24)
        paths.append(executed.with_name(f"{executed.stem}-{len(paths) + 1}.png"))
        paths[-1].write_bytes(content)
        assert colours is None or len(colours) > 1, f"{paths[-1]} has one colour only"
    assert paths, "no cell has shown a picture"
    return paths
