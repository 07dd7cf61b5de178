#!/usr/bin/env python3
"""Draws what each hand-off costs, for the README.

handoff_chart.py          docs/measurements/h200-handoff.svg, from h200-bench.json beside it
handoff_chart.py check    exit code 1 if the picture is not what this makes of the measurement
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs/measurements"
SOURCE, PICTURE = FOLDER / "h200-bench.json", FOLDER / "h200-handoff.svg"

GRIDS = [256, 1024]
# The label, its explanation, and the cell: strategy, ring (None: chosen by the run) and batch.
ROWS = [
    ("host-copy", "through the CPU's memory", "host-copy", 1, 1),
    ("cpu-sync", "the CPU waits for each side", "cpu-sync", 1, 1),
    ("binary", "one buffer, binary semaphores", "binary", 1, 1),
    ("timeline, ring 1", "one buffer, timelines", "timeline", 1, 1),
    ("timeline, ring 3", "three buffers", "timeline", 3, 1),
    ("timeline, ring 3, batch 3", "filled three at a time", "timeline", 3, 3),
    ("timeline, ring 8, batch 8", "filled eight at a time", "timeline", 8, 8),
    ("the default", "chooses ring and batch", "auto", None, None),
    ("inline", "CUDA in Vulkan's commands", "inline", None, None),
]
STYLE = (
    ".paper{fill:#fff}.ink{fill:#222}.soft{fill:#6b6b6b}.cost{fill:#4c78a8}.delay{fill:#e4572e}.row{fill:#f1f2f4}"
    "@media(prefers-color-scheme:dark){.paper{fill:#16181d}.ink{fill:#e8e8e8}.soft{fill:#a0a0a0}.row{fill:#23262d}"
    ".cost{fill:#5b8ec4}.delay{fill:#ff7a50}}"
)
WIDTH, LABELS, ROW, TOP = 960, 196, 38, 66
# A panel: the left edges of the two bars, their lengths, and the value that fills each.
COST_X, COST, COST_FULL = 8, 150, 400.0
DELAY_X, DELAY, DELAY_FULL = 226, 90, 24.0
PANEL = (WIDTH - LABELS) / len(GRIDS)


def cell(cells, grid, strategy, ring, batch):
    """Find the one cell that was measured for this."""
    found = [
        c
        for c in cells
        if c["grid"] == [grid, grid]
        and c["strategy"] == strategy
        and ring in (None, c["ring"])
        and batch in (None, c["batch"])
    ]
    assert len(found) == 1, (grid, strategy, ring, batch, len(found))
    return found[0]


def alone(cells, grid, ring):
    """The frame of the draw alone, with this ring or the nearest, in µs."""
    found = [c for c in cells if c["grid"] == [grid, grid] and c["strategy"] == "render-only"]
    return min(found, key=lambda c: abs(c["ring"] - ring))["frame_us"]["mean"]


def bar(style, x, y, full, length, value, unit):
    """Draw a bar with its number; one that is too long ends in an arrow."""
    width = length * max(min(value / full, 1), 0)
    number = f"{value:.0f}" if value >= 9.95 or unit == "µs" else f"{value:.1f}"
    shape = f'<rect class="{style}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="16"/>'
    if value > full:
        shape += f'<path class="{style}" d="M{x + width + 3:.1f},{y} l8,8 l-8,8 z"/>'
        width += 13
    return f'{shape}<text class="ink" x="{x + width + 5:.1f}" y="{y + 13}">{number}</text>'


def draw(record):
    """Make the picture of a saved run."""
    cells, machine = record["cells"], record["machine"]
    height = TOP + ROW * len(ROWS) + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13">',
        f"<title>What a hand-off costs, and its latency</title><style>{STYLE}</style>",
        '<rect class="paper" width="100%" height="100%"/>',
    ]
    for panel, grid in enumerate(GRIDS):
        left = LABELS + panel * PANEL
        title = f"{grid}x{grid} vertices: the draw alone takes {alone(cells, grid, 3) / 1000:.1f} ms"
        out.append(f'<text class="ink" x="{left + COST_X:.0f}" y="24" font-weight="600">{title}</text>')
        out.append(f'<text class="soft" x="{left + COST_X:.0f}" y="48">hand-off, µs a frame</text>')
        out.append(f'<text class="soft" x="{left + DELAY_X:.0f}" y="48">latency, ms</text>')
    for number, (label, meaning, *which) in enumerate(ROWS):
        y = TOP + number * ROW
        if number % 2 == 0:
            out.append(f'<rect class="row" x="0" y="{y - 4}" width="{WIDTH}" height="{ROW}"/>')
        out.append(f'<text class="ink" x="10" y="{y + 12}">{label}</text>')
        out.append(f'<text class="soft" x="10" y="{y + 27}" font-size="11">{meaning}</text>')
        for panel, grid in enumerate(GRIDS):
            left = LABELS + panel * PANEL
            found = cell(cells, grid, *which)
            frame = found["frame_us"]["mean"]
            latency = found["latency_frames"] * frame / 1000
            # As in docs/bench-schema.md: files of the first schema have another overhead.
            slots = 1 if found["strategy"] == "inline" else found["ring"]
            overhead = frame - found["kernel_us"] - alone(cells, grid, slots)
            out.append(bar("cost", left + COST_X, y + 7, COST_FULL, COST, overhead, "µs"))
            out.append(bar("delay", left + DELAY_X, y + 7, DELAY_FULL, DELAY, latency, "ms"))
    foot = f"{machine['gpu']}, driver {machine['driver'].split()[-1]}, CUDA {machine['cuda']}, Linux. Without the kernel and the draw."
    out += [f'<text class="soft" x="10" y="{height - 12}" font-size="11">{foot}</text>', "</svg>"]
    return "\n".join(out) + "\n"


def main():
    """Do what the command line says."""
    if sys.argv[1:] not in ([], ["check"]):
        print(__doc__, file=sys.stderr)
        return 2
    picture = draw(json.loads(SOURCE.read_text(encoding="utf-8")))
    if not sys.argv[1:]:
        PICTURE.write_text(picture, encoding="utf-8")
    elif not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != picture:
        print(f"{PICTURE.name} is not what its measurement gives: run scripts/handoff_chart.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
