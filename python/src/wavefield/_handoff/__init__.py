"""How frames and arrays get to the renderer: the rings of frames, and memory that both sides share.

It imports `_renderer`, `frame` and `_memory`.
"""
