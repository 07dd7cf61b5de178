"""The renderer's window in a notebook: the page of `wavefield serve --web` in a widget. Imports anywidget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import traitlets

from .. import _libraries
from ..errors import WavefieldError

if TYPE_CHECKING:
    from .._renderer.viewer import Viewer

# The page is in a frame of its own: its keys, its style and its size do not mix with the notebook's.
ESM = """
export default {
  render({ model, el }) {
    const frame = document.createElement('iframe')
    frame.allow = 'fullscreen; clipboard-write'
    frame.style.cssText = `width: 100%; height: ${model.get('height')}; border: 0; display: block`
    frame.srcdoc = model.get('page')
    const said = ({ source, data }) => { if (source === frame.contentWindow) model.send({ said: data }) }
    const told = (content, buffers) => {
      const part = buffers?.[0], bytes = part?.buffer ?? part
      const from = part?.byteOffset ?? 0
      frame.contentWindow?.postMessage(part ? bytes.slice(from, from + part.byteLength) : content.told, '*')
    }
    addEventListener('message', said)
    model.on('msg:custom', told)
    el.append(frame)
    return () => {
      removeEventListener('message', said)
      model.off('msg:custom', told)
    }
  },
}
"""


class Viewed(Protocol):
    """What may have a window in a notebook: a field."""

    _viewer: Viewer | None


class Window(_libraries.need("anywidget", 'window="notebook"').AnyWidget):  # type: ignore[misc]
    """The window of a field in a notebook, with its panel, its keys and its buttons."""

    _esm = ESM
    page = traitlets.Unicode().tag(sync=True)
    height = traitlets.Unicode("480px").tag(sync=True)

    def __init__(self, field: Viewed, write: None = None, **options: Any) -> None:
        self._viewer = viewer = field._viewer
        if viewer is None:
            raise WavefieldError(
                'this field has no window in the notebook; show(x, window="notebook") or launch(notebook=True) has'
            )
        if write is not None:
            raise TypeError("this window draws by itself: write frames in a loop over field.until_closed()")
        super().__init__(page=viewer.wait(), **options)
        self._hear_beside()
        self.on_msg(self._said)
        viewer.listeners.append(self._told)

    def _send(self, *message: Any, **options: Any) -> None:
        super()._send(*message, **options)
        self._hear_beside()

    def _hear_beside(self) -> None:
        """Let what the page says come while a cell runs, as JupyterLab sends it.

        ipykernel 7.4 would keep it for the thread that has sent something, which runs the cell.
        """
        if self.comm is not None:
            self.comm.__dict__.pop("_reply_subshell_id", None)

    def _told(self, told: str | bytes) -> None:
        if isinstance(told, bytes):
            self.send({}, buffers=[told])
        else:
            self.send({"told": told})

    def _said(self, _widget: object, content: Any, _buffers: object) -> None:
        said = content.get("said") if isinstance(content, dict) else None
        if isinstance(said, str) and self._viewer is not None:
            self._viewer.say(said)

    def close(self) -> None:
        """Close the widget, and not the field."""
        if self._viewer is not None and self._told in self._viewer.listeners:
            self._viewer.listeners.remove(self._told)
        super().close()
