"""`Field.run`: what is sent, and how the answers are handled."""

from __future__ import annotations

import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

import compilers
import wavefield
from fake_renderer import FakeRenderer, Session
from wavefield import _kernel

PTX = """//
.version 6.0
.target sm_50
.address_size 64
// .entry commented_out(
.visible .entry wave(
    .param .u64 p0, .param .u32 p1, .param .u32 p2, .param .u64 p3, .param .f64 p4
)
{ ret; }
"""
TWO = PTX + PTX.replace("wave", "other")


def test_ptx_is_sent_as_it_is(host: wavefield.Field, renderer: FakeRenderer) -> None:
    assert host.run(PTX) == "cuda, wave"
    assert renderer.kernels == [("wave", PTX)]
    assert host.run(TWO.encode(), entry="other") == "cuda, other"
    with pytest.raises(wavefield.WavefieldError, match=r"runs other.*connect again"):
        next(iter(host))
    host.watch(0.01)


@pytest.mark.parametrize(
    ("text", "entry", "words"),
    [
        ("kernels/wave.ptx", None, r"has no \.entry.*read_text"),
        (TWO, None, "several entries.*wave, other"),
        (TWO, "wav", "no entry 'wav'; it has: wave, other"),
        (TWO, "", "no entry ''; it has: wave, other"),
        ("".join(f".entry k{index}() {{}}\n" for index in range(100_000)), None, r"k7, … \(100000 in all\)$"),
    ],
)
def test_ptx_that_is_none(host: wavefield.Field, text: str, entry: str | None, words: str) -> None:
    with pytest.raises(wavefield.KernelError, match=words):
        host.run(text, entry)
    with host.frame():
        pass  # nothing was sent, so the ring is still there


@pytest.mark.parametrize(
    "parameters",
    [
        # NVRTC, clang and Numba; newer LLVMs; Triton; a structure around the pointer; by hand.
        "\n\t.param .u64 k_param_0,\n\t.param .u32 k_param_1,\n\t.param .u32 c,\n\t.param .u64 d,\n\t.param .f64 e\n",
        ".param .u64 .ptr .align 1 a, .param .b32 b, .param .b32 c, .param .b64 d, .param .b64 e",
        ".param .u64 .ptr .global .align 16 a, .param .s32 b, .param .s32 c, .param .s64 d, .param .f64 e",
        ".param .align 8 .b8 a[8], .param .u32 b, .param .u32 c, .param .u64 d, .param .f64 e",
        ".param.u64 a,.param.u32 b,.param.u32 c/*, .param .u32 no*/,.param.u64 d,// .param .u32 no)\n.param.f64 e",
    ],
)
def test_every_form_of_the_signature_is_sent(host: wavefield.Field, renderer: FakeRenderer, parameters: str) -> None:
    ptx = f".visible .entry k({parameters})\n.maxntid 64, 1, 1\n{{ ret; }}"
    host.run(ptx)
    assert renderer.kernels == [("k", ptx)]


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ("", "found ()"),
        (".param .u64 a, .param .u32 b", "found (.u64, .u32)"),
        (".param .u64 a, .param .u64 b, .param .u32 c, .param .u64 d, .param .f64 e", "found (.u64, .u64, .u32,"),
        (".param .u64 a, .param .u32 b, .param .u32 c, .param .f64 e, .param .u64 d", ".u32, .f64, .u64)"),
        (".param .u64 a, .param .u32 b, .param .u32 c, .param .u64 .ptr .align 1 d, .param .f64 e", ".u64 .ptr, .f64)"),
        (".param .align 8 .b8 a[32], .param .u32 b, .param .u32 c, .param .u64 d, .param .f64 e", "found (.b8[32],"),
        (", ".join([".param .u64 a"] * 1000), "(1000 in all)"),
    ],
)
def test_another_signature_is_not_sent(
    host: wavefield.Field, renderer: FakeRenderer, parameters: str, found: str
) -> None:
    words = (
        r"entry `k` are wrong: expected \(.u64, .u32, .u32, .u64, .f64\), which is \(float4 \*vertices, .*"
        + re.escape(found)
    )
    with pytest.raises(wavefield.KernelError, match=words):
        host.run(f".entry k({parameters}) {{ ret; }}")
    assert renderer.kernels == []
    with host.frame():
        pass  # the ring is still there


AMPLITUDE = {"name": "amplitude", "min": 0.0, "max": 2.0, "default": 1.0, "unit": "x"}
HEIGHT = {"name": "height", "min": -0.5, "max": 0.5, "default": 0.25}
DECLARED = '//!PARAM amplitude float 0 2 1 "x"\n  //!PARAM height float -0.5 0.5 0.25\n'
WITH_STRUCTURE = DECLARED + PTX.replace("p4\n", "p4, .param .align 4 .b8 p5[8]\n")


def test_a_kernel_s_parameters_are_set_by_name(host: wavefield.Field, renderer: FakeRenderer) -> None:
    parameters = host.parameters
    assert parameters.describe() == {}
    renderer.kernel_parameters = [AMPLITUDE, HEIGHT]
    host.run(WITH_STRUCTURE)
    assert list(parameters) == ["speed", "colormap", "paused", "limits", "size", "amplitude", "height"]
    assert (len(parameters), parameters["amplitude"], parameters["height"]) == (7, 1.0, 0.25)
    assert parameters.describe() == {
        "amplitude": wavefield.KernelParameter(0.0, 2.0, 1.0, "x"),
        "height": wavefield.KernelParameter(-0.5, 0.5, 0.25),
    }
    parameters["amplitude"] = 1.5
    assert renderer.received[-1] == {"type": "set", "parameters": {}, "kernel": {"amplitude": 1.5}}
    assert (parameters["amplitude"], parameters["height"], parameters["speed"]) == (1.5, 0.25, 1.0)
    parameters.update(height=0, speed=2)
    assert renderer.received[-1] == {"type": "set", "parameters": {"speed": 2.0}, "kernel": {"height": 0.0}}
    for value in ("high", True):
        with pytest.raises(TypeError, match="amplitude must be a number"):
            parameters["amplitude"] = value
    with pytest.raises(KeyError, match=r"unknown parameter width; the renderer has speed, .*, amplitude, height"):
        parameters["width"] = 1.0
    renderer.answers["set"] = lambda session, *_: session.send(
        {"type": "failed", "request": "set", "reason": "amplitude cannot be 3"}
    )
    with pytest.raises(wavefield.Refused, match="amplitude cannot be 3"):
        parameters["amplitude"] = 3
    assert parameters["amplitude"] == 1.5
    # The user changes one. In the end another kernel runs, which has none.
    session = renderer.session
    assert session is not None
    session.send({"type": "parameters", "parameters": {"speed": 2.0}, "kernel": {"amplitude": 0.5}})
    host.status()
    assert dict(parameters) == {"speed": 2.0, "amplitude": 0.5}
    renderer.kernel_parameters = []
    host.run(PTX)
    assert (dict(parameters), parameters.describe()) == ({"speed": 2.0}, {})


def test_the_renderer_s_own_parameter_comes_first(host: wavefield.Field, renderer: FakeRenderer) -> None:
    renderer.kernel_parameters = [{**AMPLITUDE, "name": "speed"}]
    host.run(WITH_STRUCTURE)
    host.parameters["speed"] = 3.0
    assert renderer.received[-1] == {"type": "set", "parameters": {"speed": 3.0}}
    assert len(host.parameters) == len(list(host.parameters)) == 5


@pytest.mark.parametrize(
    "listed", [7, [7], [{}], [{**HEIGHT, "min": "low"}], [{**HEIGHT, "max": True}], [{**HEIGHT, "name": 1}]]
)
def test_parameters_that_are_none(host: wavefield.Field, renderer: FakeRenderer, listed: object) -> None:
    renderer.answers["kernel"] = lambda session, *_: session.send(
        {"type": "running", "producer": "x", "parameters": listed}
    )
    with pytest.raises(wavefield.ProtocolError, match="the renderer sent"):
        host.run(WITH_STRUCTURE)


@pytest.mark.parametrize(
    ("ptx", "words"),
    [
        (DECLARED + PTX, r"\.f64, \.b8\[8\]\), which is .* for its lines of //!PARAM \(2\); found \(.*\.f64\); see"),
        (WITH_STRUCTURE.replace(DECLARED, ""), r"expected \([^[]*\.f64\), which is .*; found \(.*\.b8\[8\]\)"),
        (WITH_STRUCTURE.replace("[8]", "[12]"), r"\.b8\[8\]\), which is .*\.b8\[12\]\)"),
    ],
)
def test_a_structure_goes_with_its_lines(host: wavefield.Field, renderer: FakeRenderer, ptx: str, words: str) -> None:
    with pytest.raises(wavefield.KernelError, match=words):
        host.run(ptx)
    assert renderer.kernels == []


def test_what_is_no_kernel(host: wavefield.Field) -> None:
    with pytest.raises(TypeError, match="PTX text"):
        host.run(7)


def test_the_drivers_words(host: wavefield.Field, renderer: FakeRenderer) -> None:
    words = "cuModuleLoadDataEx: the PTX has an unsupported toolchain (CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)"
    renderer.answers["kernel"] = lambda session, *_: session.send(
        {"type": "failed", "request": "kernel", "reason": words}
    )
    with pytest.raises(wavefield.KernelError, match=re.escape(words) + ".*newer than the renderer's driver"):
        host.run(PTX)
    assert host.status().frames_drawn == 10
    for _ in host.frames(2):  # the ring is still there
        pass


def test_a_trial_may_take_as_long_as_the_renderer_gives_it(
    host: wavefield.Field, renderer: FakeRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.monotonic]

    def an_hour_later(session: Session, *_: object) -> None:
        clock[0] = lambda: now() + 3600
        session.send({"type": "parameters", "parameters": {"speed": 1.0}})  # the client checks its time limit
        time.sleep(0.1)
        session.send({"type": "failed", "request": "kernel", "reason": "it has not ended"})

    now = time.monotonic
    monkeypatch.setattr("wavefield._connection.time", SimpleNamespace(monotonic=lambda: clock[0]()))
    renderer.answers["kernel"] = an_hour_later
    with pytest.raises(wavefield.KernelError, match="it has not ended"):
        host.run(PTX)
    renderer.answers["kernel"] = lambda *_: renderer.hang_up()
    with pytest.raises(wavefield.RendererGone, match="restart the renderer"):
        host.run(PTX)


def test_a_fault_later_on_is_raised_by_whatever_comes_next(host: wavefield.Field, renderer: FakeRenderer) -> None:
    host.run(PTX)
    session = renderer.session
    assert session is not None
    fault = {"type": "failed", "request": "kernel", "reason": "CUDA_ERROR_ILLEGAL_ADDRESS"}
    session.send(fault)
    with pytest.raises(wavefield.KernelError, match="wave has failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        host.watch(5)
    session.send(fault)
    host.status()
    with pytest.raises(wavefield.KernelError):
        host.snapshot()
    assert host.snapshot().shape == (2, 3, 4)


def test_watch_watches(host: wavefield.Field) -> None:
    start = time.monotonic()
    host.watch(0.05)
    assert time.monotonic() - start >= 0.05


def test_without_numba(host: wavefield.Field, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(wavefield.KernelError, match="pip install"):
        host.run(lambda vertices, cols, rows, frame, time: None)


# Tests with Numba's compiler, if it is installed. They need no GPU.


def test_numba_compiles_the_documented_signature(host: wavefield.Field, renderer: FakeRenderer) -> None:
    numba_cuda = compilers.numba_cuda()

    def wave(vertices: Any, cols: Any, rows: Any, frame: Any, time: Any) -> None:
        i = numba_cuda.grid(1)
        if i < cols * rows:
            vertices[4 * i + 1] = time
            vertices[4 * i + 2] = frame

    for kernel in (wave, numba_cuda.jit(wave), numba_cuda.jit(device=True)(wave)):
        assert host.run(kernel) == "cuda, field_wave"
    entry, ptx = renderer.kernels[-1]
    assert list(_kernel.entries(ptx)) == [entry] == ["field_wave"]
    head = ptx[ptx.index(".entry field_wave") :].split(")")[0]
    assert re.findall(r"\.param \.(\w+)", head) == ["u64", "u32", "u32", "u64", "f64"]
    assert re.search(r"^\.target sm_75", ptx, re.MULTILINE)
    assert "_ZN" not in head
    ptx, _ = _kernel.ptx_of(wave, "other", (9, 0))
    assert ".entry other(" in ptx
    assert re.search(r"^\.target sm_90", ptx, re.MULTILINE)


def test_numba_says_what_it_does_not_compile(host: wavefield.Field) -> None:
    compilers.numba_cuda()

    def too_few(vertices: Any, cols: Any) -> None:
        pass

    def not_known(vertices: Any, cols: Any, rows: Any, frame: Any, time: Any) -> None:
        vertices.nothing = cols

    with pytest.raises(wavefield.KernelError, match=r"too_few with the signature \(float4 \*vertices.*") as caught:
        host.run(too_few)
    assert "5 argument types" in str(caught.value)
    with pytest.raises(wavefield.KernelError, match="nothing"):
        host.run(not_known)
