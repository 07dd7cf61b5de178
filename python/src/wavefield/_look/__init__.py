"""How arrays are drawn: what `show` is given is checked here, looked at, and converted.

Here are limits, colours, parts, and the fit into the view. It imports `_handoff` and what is below that.
"""
