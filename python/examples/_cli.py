"""Shared by the examples: the options, the field, and the picture at the end."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import wavefield


@contextmanager
def show(description: str | None) -> Iterator[tuple[wavefield.Field, argparse.Namespace]]:
    """Give the field that the command line asks for, and write its picture at the end."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, metavar="N", help="stop after N frames; by default, Ctrl-C stops")
    parser.add_argument("--output", metavar="FILE.png", help="write the picture of the last frame to this file")
    parser.add_argument("--socket", metavar="PATH", help="the renderer's socket, if not the default one")
    parser.add_argument("--headless", action="store_true", help="start a renderer without a window")
    parser.add_argument("--grid", default="1024x1024", metavar="CxR", help="the vertices of that renderer [1024x1024]")
    parser.add_argument("--host", action="store_true", help="frames in host memory, without CUDA")
    options = parser.parse_args()
    memory = "host" if options.host else "cuda"
    try:
        if options.headless:
            cols, rows = (int(side) for side in options.grid.split("x"))
            field = wavefield.launch(grid=(cols, rows), memory=memory)  # type: ignore[arg-type]
        else:
            field = wavefield.connect(options.socket, memory=memory)  # type: ignore[arg-type]
    except wavefield.WavefieldError as error:
        raise SystemExit(f"error: {error}") from None
    with field:
        try:
            yield field, options
        except KeyboardInterrupt:
            print()
        if options.output:
            field.save(options.output)
            print(f"{options.output}: {field.status().producer}, {field.grid[0]}x{field.grid[1]} vertices", flush=True)
