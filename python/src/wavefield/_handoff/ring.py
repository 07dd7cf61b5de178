"""The slot of a frame, and the values of the two timelines. Pure arithmetic.

Only the client signals `ready`, and only the renderer signals `free`. Both only grow. Frame numbers start at 0.
"""

from __future__ import annotations


def slot(frame: int, ring: int) -> int:
    """Return the slot of frame `frame`."""
    return frame % ring


def free_before(frame: int, ring: int) -> int:
    """Return the value that `free` must reach before the slot may be written; 0 means: do not wait.

    Frame `frame - ring` used the slot, and the renderer signals n + 1 when it has finished with frame n.
    """
    return max(0, frame - ring + 1)


def ready_after(frame: int) -> int:
    """Return the value of `ready` once frame `frame` is written."""
    return frame + 1
