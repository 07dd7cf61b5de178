"""What comes back from the renderer: pictures, films, and what the user does in the window.

It imports `_look` and what is below that.
"""
