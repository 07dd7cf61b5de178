"""The renderer: the connection to it, the protocol, its state, and the panel and the page of its window.

It imports `_memory`.
"""
