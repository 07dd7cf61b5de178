"""Which slot a frame uses, and which values the two timelines then have. Pure arithmetic.

`ready` is signalled by the client alone, `free` by the renderer alone; both only grow. Frame numbers start at 0.
"""

from __future__ import annotations


def slot(frame: int, ring: int) -> int:
    """Return the slot that frame `frame` is written into."""
    return frame % ring


def free_before(frame: int, ring: int) -> int:
    """Return the value of `free` that must be there before the slot may be written; 0 means that nothing is waited for.

    The slot was used by frame `frame - ring`, and the renderer signals n + 1 when it has let go of frame n.
    """
    return max(0, frame - ring + 1)


def ready_after(frame: int) -> int:
    """Return the value of `ready` that says that frame `frame` is written."""
    return frame + 1
