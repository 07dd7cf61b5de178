"""The user's own arrays in CUDA memory, drawn in place: the renderer imports the memory that they lie in.

CUDA can share memory of `cuMemCreate` with an exportable handle type, such as PyTorch's expandable segments and
`wavefield.allocator()`. Each chunk of such memory has a handle and an address range. An array lies in one chunk or
spans several.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._memory import cuda as _cuda
from .._renderer import protocol as _protocol
from .._renderer.connection import close_all
from ..errors import CudaError, Refused
from .allocations import Allocation

if TYPE_CHECKING:
    from .._renderer.connection import Connection

MOST_CHUNKS = 64
"""The most chunks of one import."""

MOST_IMPORTS = 32
"""The most imports that are kept. The least recently used one makes room."""

MOST_FOUND = 64
"""The most arrays whose chunks are remembered."""

FABRIC = (
    "its memory has fabric handles (CU_MEM_HANDLE_TYPE_FABRIC) and no file descriptors, so Vulkan cannot import it. "
    "PyTorch's expandable segments have these where CUDA offers them, and no setting changes that: write into an array "
    "of field.empty() instead"
)
"""Why memory of this kind is copied."""


@dataclass(frozen=True)
class Chunk:
    """Memory with a handle of its own. While anybody holds the handle, it names no other memory."""

    address: int
    bytes: int
    handle: int


class Imports:
    """The memory of this process that the renderer has imported."""

    def __init__(self, connection: Connection, context: _cuda.Context) -> None:
        self._connection = connection
        self._context = context
        # Each entry holds its chunks' handles, so CUDA cannot reuse them for other chunks.
        self._known: OrderedDict[tuple[Chunk, ...], Allocation] = OrderedDict()
        self._refused: dict[tuple[Chunk, ...], str] = {}
        # The chunk and the offset of each array that was found before, by address and size.
        self._found: dict[tuple[int, int], tuple[Chunk, int]] = {}

    def find(self, array: Any, pointer: int, size: int, alignment: int) -> tuple[Allocation, int] | str:
        """Return the import that an array lies in and its offset there, or the reason why there is none."""
        if _library(array) == "jaxlib":
            # JAX reuses the memory of a dropped array at once, on streams that do not wait for the renderer.
            return "JAX may reuse its memory while the renderer reads it, so one copy is needed"
        chunks = self._retain(pointer, size)
        if chunks is None:
            return f"CUDA cannot share its memory; {_cure(array)}"
        keep = False
        try:
            offset = pointer - chunks[0].address
            if offset % alignment:
                return f"its offset in its memory, {offset} bytes, is not a multiple of {alignment}: show a copy of it"
            if len(chunks) > MOST_CHUNKS:
                return f"it lies in {len(chunks)} pieces of memory, and at most {MOST_CHUNKS} can be shared"
            if chunks in self._refused:
                return self._refused[chunks]
            if chunks in self._known:
                self._known.move_to_end(chunks)
                if len(chunks) == 1:
                    self._found[pointer, size] = chunks[0], offset
                    if len(self._found) > MOST_FOUND:
                        del self._found[next(iter(self._found))]
                return self._known[chunks], offset
            self._forget_stale()
            while len(self._known) >= MOST_IMPORTS:
                self._forget(next(iter(self._known)))
            try:
                allocation = self._import(chunks)
            except (Refused, CudaError) as error:
                fabric = isinstance(error, CudaError) and self._is_fabric(chunks)
                self._refused[chunks] = FABRIC if fabric else f"the renderer cannot import its memory: {error}"
                keep = True
                return self._refused[chunks]
            self._known[chunks] = allocation
            keep = True
            return allocation, offset
        finally:
            if not keep:
                self._release(chunks)

    def again(self, pointer: int, size: int) -> tuple[Allocation, int] | None:
        """Return what was found for this address and size before, if the same chunk is still there."""
        if (found := self._found.get((pointer, size))) is None:
            return None
        chunk, offset = found
        with self._context.current(), suppress(CudaError):
            handle = int(self._context.call("cuMemRetainAllocationHandle", pointer))
            self._context.call("cuMemRelease", handle)
            if handle == chunk.handle and (allocation := self._known.get((chunk,))) is not None:
                self._known.move_to_end((chunk,))
                return allocation, offset
        self._found.pop((pointer, size), None)
        return None

    def close(self) -> None:
        """Release every handle. The end of the connection releases the imports."""
        for chunks in (*self._known, *self._refused):
            self._release(chunks)
        self._known.clear()
        self._refused.clear()

    def _import(self, chunks: tuple[Chunk, ...]) -> Allocation:
        kind = self._context.driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        files: list[int] = []
        # The renderer tries one import at a time, and the wait for an earlier one may have been interrupted.
        self._connection.catch_up("import")
        try:
            for chunk in chunks:
                files.append(int(self._context.call("cuMemExportToShareableHandle", chunk.handle, kind, 0)))
            message, more = self._connection.request(
                {"type": "import", "chunks": [chunk.bytes for chunk in chunks]}, "imported", files
            )
        finally:
            close_all(files)
        close_all(more)
        return Allocation(_protocol.integer(message, "id"), chunks[0].address, sum(chunk.bytes for chunk in chunks))

    def _is_fabric(self, chunks: tuple[Chunk, ...]) -> bool:
        """Return whether a chunk can be shared by a fabric handle only."""
        types = self._context.driver.CUmemAllocationHandleType
        # A ValueError is a combination of types that cuda.bindings has no name for.
        with suppress(CudaError, ValueError):
            found = [self._context.call("cuMemGetAllocationPropertiesFromHandle", chunk.handle) for chunk in chunks]
            return types.CU_MEM_HANDLE_TYPE_FABRIC in [prop.requestedHandleTypes for prop in found]
        return False

    def _retain(self, pointer: int, size: int) -> tuple[Chunk, ...] | None:
        """Return the chunks that an array lies in, with their handles held; None if CUDA cannot share them."""
        chunks: list[Chunk] = []
        at = pointer
        try:
            with self._context.current():
                while at < pointer + size:
                    handle = int(self._context.call("cuMemRetainAllocationHandle", at))
                    chunks.append(Chunk(at, 0, handle))
                    base, length = self._context.call("cuMemGetAddressRange", at)
                    chunks[-1] = Chunk(int(base), int(length), handle)
                    at = int(base) + int(length)
        except CudaError:
            self._release(chunks)
            return None
        return tuple(chunks)

    def _forget_stale(self) -> None:
        """Release the chunks that are no longer at their addresses: their library has freed them."""
        for remembered in (self._known, self._refused):
            for chunks in list(remembered):
                now = self._retain(chunks[0].address, sum(chunk.bytes for chunk in chunks))
                if now is not None:
                    self._release(now)
                if now != chunks:
                    self._forget(chunks)

    def _forget(self, chunks: tuple[Chunk, ...]) -> None:
        allocation = self._known.pop(chunks, None)
        self._found = {key: found for key, found in self._found.items() if (found[0],) != chunks}
        self._refused.pop(chunks, None)
        if allocation is not None:
            self._connection.send_later({"type": "release", "id": allocation.number})
        self._release(chunks)

    def _release(self, chunks: tuple[Chunk, ...] | list[Chunk]) -> None:
        for chunk in chunks:
            _cuda._destroy(self._context, "cuMemRelease", chunk.handle)


def _cure(array: Any) -> str:
    """Return how arrays of the same library can be shown without a copy."""
    cures = {
        "torch": "before PyTorch starts, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        "cupy": "make it inside `with wavefield.allocator():`",
        "numba": "call numba.cuda.set_memory_manager(wavefield.NumbaMemoryManager) before Numba uses the GPU",
    }
    return cures.get(_library(array), "write into an array of field.empty() instead")


def _library(array: Any) -> str:
    """Return the name of an array's package."""
    return type(array).__module__.partition(".")[0]
