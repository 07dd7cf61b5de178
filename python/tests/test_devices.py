"""Several GPUs, with the stand-in driver: which one the renderer uses, and arrays on another one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import wavefield
from fake_driver import DEVICE_0, FakeDriver
from fake_renderer import UUID, FakeRenderer
from started import Started
from test_imports import CHUNK, Tensor, mapped
from wavefield import _launch
from wavefield._memory import dlpack as _dlpack

UUID_0 = "11" * 16
"""Of device 0. The renderer draws on device 1."""
SHAPE = (3, 5, 4)


@pytest.fixture
def launched(started: list[Started], monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    monkeypatch.setattr(_launch, "Renderer", Started)
    monkeypatch.setattr("wavefield._say.said", set())
    return started


def chosen(renderer: Started) -> list[str]:
    """Return the UUIDs after each `--device`."""
    arguments = renderer.arguments
    return [arguments[at + 1] for at, argument in enumerate(arguments) if argument == "--device"]


def elsewhere(driver: FakeDriver, shape: tuple[int, ...] = SHAPE, stream: int | None = None) -> Tensor:
    """Return an array on device 0."""
    memory = np.zeros(shape, np.float32)
    driver.ordinals[memory.ctypes.data] = 0
    tensor = Tensor(memory.ctypes.data, shape)
    tensor.__cuda_array_interface__["stream"] = stream
    tensor.memory = memory  # type: ignore[attr-defined]
    return tensor


class ByDlpack:
    """An array that has DLPack only. Like PyTorch's, it is exported only while its device is the current one."""

    def __init__(self, driver: FakeDriver, ordinal: int) -> None:
        self.array = np.random.default_rng(3).random(SHAPE, np.float32)
        self.shape, self.dtype = SHAPE, self.array.dtype
        self.driver, self.ordinal = driver, ordinal
        self.streams: list[int | None] = []
        if ordinal == 0:
            driver.ordinals[self.array.ctypes.data] = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_dlpack.CUDA, self.ordinal)

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None) -> Any:
        if stream != -1:
            assert self.driver.contexts[-1:] == [DEVICE_0 + self.ordinal], "a stream of its own device"
        self.streams.append(stream)
        strides = (SHAPE[1] * SHAPE[2], SHAPE[2], 1)
        device = self.__dlpack_device__()
        return _dlpack.make(self.array.ctypes.data, device, SHAPE, strides, "float32", self.array, False)


# Choosing the renderer's GPU.


@pytest.mark.parametrize(("device", "uuid"), [(0, UUID_0), (1, UUID), (np.int64(1), UUID)])
def test_launch_on_a_device(launched: list[Started], driver: FakeDriver, device: int, uuid: str) -> None:
    wavefield.launch(device=device, like=elsewhere(driver)).close()
    assert chosen(launched[0]) == [uuid]


def test_launch_like_an_array(launched: list[Started], driver: FakeDriver) -> None:
    like: Any
    for like in (elsewhere(driver), ByDlpack(driver, 0)):
        wavefield.launch(like=like).close()
        assert chosen(launched[-1]) == [UUID_0]
        wavefield.launch(like=like, arguments=["--device", "1"]).close()
        assert chosen(launched[-1]) == ["1"]
        wavefield.launch(like=like, arguments=["--device=1"]).close()
        assert chosen(launched[-1]) == []
    wavefield.launch(like=ByDlpack(driver, 1)).close()
    assert chosen(launched[-1]) == [UUID]
    for like in (np.zeros(SHAPE), [1.0], None):
        wavefield.launch(like=like).close()
        assert chosen(launched[-1]) == []
    driver.devices = 1
    wavefield.launch(like=elsewhere(driver), memory="host").close()
    assert chosen(launched[-1]) == [], "there is no other"


def test_a_device_that_is_not_there(
    launched: list[Started], driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    words = r"no CUDA device (2|-1): this process sees 2, numbered from 0 \(CUDA_VISIBLE_DEVICES is '1,0'\)"
    for device in (2, -1):
        with pytest.raises(wavefield.DeviceMismatch, match=words):
            wavefield.launch(device=device)
        with pytest.raises(wavefield.DeviceMismatch, match=words):
            wavefield.show(np.zeros((4, 6), np.float32), device=device)
    with pytest.raises(TypeError):
        wavefield.launch(device="cuda:0")  # type: ignore[arg-type]
    assert launched == []


@pytest.mark.usefixtures("without_cuda")
def test_a_device_without_cuda(launched: list[Started]) -> None:
    with pytest.raises(wavefield.CudaMissing):
        wavefield.launch(memory="host", device=0)
    assert launched == []


def test_show_on_a_device(launched: list[Started], driver: FakeDriver) -> None:
    image = np.ones((4, 6), np.float32)
    field = wavefield.show(image, memory="host", device=1)
    assert chosen(launched[0]) == [UUID]
    assert wavefield.show(image, memory="host", device=1)._field is field._field
    assert wavefield.show(image, memory="host")._field is field._field
    words = f"device=0 is the GPU with UUID {UUID_0}, but the renderer already runs on a fake, with UUID {UUID}"
    for array in (image, image[:2]):
        with pytest.raises(wavefield.DeviceMismatch, match=words):
            wavefield.show(array, memory="host", device=0)
    assert wavefield.show(image, memory="host")._field is field._field, "nothing has changed"
    field.close()
    wavefield.show(image, memory="host", device=0)
    assert chosen(launched[1]) == [UUID_0]


def test_the_first_array_chooses_the_gpu(launched: list[Started], driver: FakeDriver) -> None:
    wavefield.show(ByDlpack(driver, 0), limits=(0, 1)).close()
    wavefield.show(ByDlpack(driver, 0), limits=(0, 1), device=1).close()
    assert [chosen(renderer) for renderer in launched] == [[UUID_0], [UUID]]


# Arrays on another GPU.


@pytest.fixture(autouse=True)
def warnings_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wavefield._say.said", set())


PEER = r"copied from GPU 0 to GPU 1 \(cuMemcpyPeerAsync\), the renderer's; launch\(like=x\) or device=0"


@pytest.mark.parametrize("reaches", [True, False])
def test_an_array_on_another_gpu(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer, reaches: bool
) -> None:
    if not reaches:
        driver.fail["cuCtxEnablePeerAccess"] = driver.CUresult.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
    tensor = elsewhere(driver)
    with pytest.warns(wavefield.CopyWarning, match=PEER):
        assert field.show(tensor) == wavefield.Shown.COPIED
    for value in range(1, 6):
        tensor.numpy[...] = value
        field.show(tensor)  # a second warning would be an error
        renderer.draw(driver)
    assert [shown[0, 0, 0] for shown in renderer.frames] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=PEER):
        field.show(tensor, copy=False)
    assert driver.calls.count("cuMemcpyPeerAsync") == 6
    assert driver.calls.count("cuCtxEnablePeerAccess") == 1, "over NVLink, if there is one"
    assert "cuMemExportToShareableHandle" not in driver.calls, "another GPU's memory is not imported"
    with field.frame() as frame:
        frame.copy_from(tensor)
    assert driver.calls.count("cuMemcpyPeerAsync") == 7


@pytest.mark.filterwarnings("ignore:the array is copied")
def test_memory_of_no_gpu_is_not_another_gpus(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer
) -> None:
    tensor = elsewhere(driver)
    driver.ordinals = dict.fromkeys(driver.ordinals, -2)  # such as pinned memory of the CPU
    assert "GPU 1" not in field.show(tensor).reason
    renderer.draw(driver)
    assert "cuMemcpyPeerAsync" not in driver.calls
    interface = tensor.__cuda_array_interface__
    interface |= {"shape": (0, 5, 4), "data": (0, False)}
    driver.fail["cuPointerGetAttribute"] = driver.CUresult.CUDA_ERROR_INVALID_VALUE
    with field.frame() as frame, pytest.raises(wavefield.ArrayMismatch):
        frame.copy_from(tensor)


def test_gaps_between_the_rows(field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer) -> None:
    tensor = elsewhere(driver, (3, 9, 4))
    tensor.numpy[...] = np.arange(108).reshape(3, 9, 4)
    interface = tensor.__cuda_array_interface__
    interface |= {"shape": SHAPE, "strides": (9 * 16, 16, 4)}
    with pytest.warns(wavefield.CopyWarning, match=r"to GPU 1 \(cuMemcpy3DPeerAsync\)"):
        field.show(tensor)
    renderer.draw(driver)
    np.testing.assert_array_equal(renderer.frames[0], tensor.numpy[:, :5])


def test_what_was_converted_there_says_both(
    launched: list[Started], driver: FakeDriver, renderer: FakeRenderer
) -> None:
    class Double(Tensor):
        def astype(self, dtype: str) -> Tensor:
            return elsewhere(driver)

    double = Double(np.zeros(SHAPE).ctypes.data, SHAPE, "<f8")
    with pytest.warns(wavefield.CopyWarning):
        field = wavefield.show(double, kind="mesh", device=1)
    assert field.shown is not None
    assert field.shown.reason.startswith("it is float64 and was converted; create it as float32. And it was copied")
    assert "from GPU 0 to GPU 1" in field.shown.reason


@contextlib.contextmanager
def held_back(driver: FakeDriver, stream: int) -> Iterator[None]:
    """Make a stream wait until the end of the block."""
    held = [True]
    driver.enqueue(stream, lambda: not held[0])
    try:
        yield
    finally:
        held[0] = False
        driver.run()


def write_later(driver: FakeDriver, stream: int, tensor: Tensor, value: float) -> None:
    def step() -> bool:
        tensor.numpy[...] = value
        return True

    driver.enqueue(stream, step)


STREAMS = {"the default stream": (-1, None), "the array's": (60, 60), "PyTorch's": (61, None)}


@pytest.mark.parametrize(("stream", "named"), STREAMS.values(), ids=STREAMS)
@pytest.mark.filterwarnings("ignore:the array is copied")
def test_the_copy_comes_between_what_writes_the_array(
    field: wavefield.Field,
    driver: FakeDriver,
    renderer: FakeRenderer,
    monkeypatch: pytest.MonkeyPatch,
    stream: int,
    named: int | None,
) -> None:
    field.camera = wavefield.Camera(0, 0, 3)  # otherwise the first `show` waits for the array's range
    tensor = elsewhere(driver, stream=named)
    driver.streams |= {-1: [], 60: [], 61: []}
    driver.home |= {60: DEVICE_0, 61: DEVICE_0}
    if stream == 61:
        torch: Any = ModuleType("torch")
        current = {0: SimpleNamespace(cuda_stream=61), 1: SimpleNamespace(cuda_stream=0)}
        torch.cuda = SimpleNamespace(is_initialized=lambda: True, current_stream=current.__getitem__)
        monkeypatch.setitem(sys.modules, "torch", torch)
        # PyTorch's own export makes the consumer's stream wait for its current one.
        monkeypatch.setattr(Tensor, "__dlpack_device__", lambda _self: (_dlpack.CUDA, 0), raising=False)

        def export(_self: Tensor, *, stream: int, max_version: Any = None) -> Any:
            event = driver.cuEventCreate(0)[1]
            driver.cuEventRecord(event, 61)
            driver.cuStreamWaitEvent(stream, event, 0)
            driver.cuEventDestroy(event)
            return _dlpack.make(
                tensor.numpy.ctypes.data, (_dlpack.CUDA, 0), SHAPE, (20, 4, 1), "float32", tensor.numpy, False
            )

        monkeypatch.setattr(Tensor, "__dlpack__", export, raising=False)
    with held_back(driver, stream):
        write_later(driver, stream, tensor, 1)
        field.show(tensor)
        assert renderer.draw(driver) == 0, "the copy waits for the array"
    assert renderer.draw(driver) == 1
    # The renderer's stream has more to do before the copy than the other one before its next write.
    with held_back(driver, 1):
        field.stream = 1
        field.show(tensor)
        write_later(driver, stream, tensor, 2)
        assert tensor.numpy[0, 0, 0] == 1, "the write waits for the copy"
    assert renderer.draw(driver) == 1
    assert tensor.numpy[0, 0, 0] == 2
    assert [shown[0, 0, 0] for shown in renderer.frames] == [1, 1]


@pytest.mark.filterwarnings("ignore:the array is copied")
def test_an_array_by_dlpack(field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer) -> None:
    array = ByDlpack(driver, 0)
    assert "from GPU 0 to GPU 1" in field.show(array).reason
    renderer.draw(driver)
    assert array.streams[0] == 1, "its own device's default stream"
    np.testing.assert_array_equal(renderer.frames[0], array.array)


class Exported(Tensor):
    """A tensor of PyTorch's expandable segments on device 1."""

    def __init__(self, driver: FakeDriver, address: int) -> None:
        super().__init__(address)
        self.driver = driver

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_dlpack.CUDA, 1)

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None) -> Any:
        if stream != -1:
            assert self.driver.contexts[-1:] == [DEVICE_0 + 1], "Can't export tensors on a different CUDA device index"
        address, strides = self.numpy.ctypes.data, (SHAPE[1] * SHAPE[2], SHAPE[2], 1)
        return _dlpack.make(address, self.__dlpack_device__(), SHAPE, strides, "float32", self.numpy, False)


def test_a_tensor_on_the_renderers_gpu_while_another_is_current(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer
) -> None:
    tensor = Exported(driver, mapped(driver, CHUNK))
    driver.contexts.append(DEVICE_0)
    assert field.show(tensor) == wavefield.Shown.WITHOUT_COPY
    driver.contexts.pop()


@pytest.mark.filterwarnings("ignore:the array is copied")
def test_pytorch_remembers_its_current_gpu(
    field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1]

    class OfTorch(ByDlpack):
        device = 0

        def __dlpack__(self, **options: Any) -> Any:
            assert options["stream"] == -1 or now[-1] == self.ordinal, (
                "Can't export tensors on a different CUDA device index"
            )
            return super().__dlpack__(**options)

    @contextlib.contextmanager
    def device(ordinal: int) -> Iterator[None]:
        now.append(ordinal)
        yield
        now.pop()

    torch: Any = ModuleType("torch")
    torch.Tensor, torch.cuda = OfTorch, SimpleNamespace(is_initialized=lambda: False, device=device)
    monkeypatch.setitem(sys.modules, "torch", torch)
    array = OfTorch(driver, 0)
    assert "from GPU 0 to GPU 1" in field.show(array).reason
    renderer.draw(driver)
    np.testing.assert_array_equal(renderer.frames[0], array.array)
    assert now == [1]


# Memory that has fabric handles.


def test_fabric_handles(field: wavefield.Field, driver: FakeDriver, renderer: FakeRenderer) -> None:
    types = driver.CUmemAllocationHandleType
    start = mapped(driver, CHUNK)
    _, _, handle = driver.chunk_at(start)  # type: ignore[misc]
    driver.handle_types[handle] = types.CU_MEM_HANDLE_TYPE_FABRIC
    tensor = Tensor(start)
    with pytest.warns(wavefield.CopyWarning, match=r"fabric handles .* write into an array of field\.empty\(\)"):
        assert field.show(tensor) == wavefield.Shown.COPIED
    renderer.draw(driver)
    driver.handle_types[handle] = types.CU_MEM_HANDLE_TYPE_NONE
    again = mapped(driver, CHUNK)
    _, _, handle = driver.chunk_at(again)  # type: ignore[misc]
    driver.handle_types[handle] = types.CU_MEM_HANDLE_TYPE_NONE
    with pytest.warns(wavefield.CopyWarning, match="cuMemExportToShareableHandle: the driver's own words"):
        field.show(Tensor(again))
    renderer.draw(driver)
    driver.fail["cuMemGetAllocationPropertiesFromHandle"] = driver.CUresult.CUDA_ERROR_INVALID_VALUE
    third = Exported(driver, mapped(driver, CHUNK))
    driver.fail["cuMemExportToShareableHandle"] = driver.CUresult.CUDA_ERROR_NOT_SUPPORTED
    with pytest.warns(wavefield.CopyWarning, match="cuMemExportToShareableHandle"):
        field.show(third)
