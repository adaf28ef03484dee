"""The stand-in refuses what CUDA refuses; a recorded program gets no more refusals than a plain one."""

import pytest

PRELUDE = """
import ctypes, torch
from torch.cuda import Event, Stream, CUDAGraph, graph
def refused(what):
    try:
        what()
    except (RuntimeError, torch.AcceleratorError) as error:
        return str(error).partition("\\n")[0]
    return "allowed"
machine = ctypes.CDLL("libcuda.so.1")
"""
CAPTURING = "operation not permitted when stream is capturing"
INVALIDATED = "operation failed due to a previous error during capture"
INVALID = "invalid resource handle"

IN_CAPTURE = """
event = Event(enable_timing=True); event.record(); torch.cuda.synchronize()
x = torch.zeros(8, device="cuda"); other = Stream()
g, s = CUDAGraph(), Stream()
torch.cuda.synchronize()
with torch.cuda.stream(s):
    g.capture_begin(capture_error_mode={mode!r})
    x.add_(1)
    print(refused(lambda: {call}))
    print(refused(g.capture_end))
"""
UNSAFE = {
    "event query": "event.query()",
    "event synchronize": "event.synchronize()",
    "device synchronize": "torch.cuda.synchronize()",
    "stream synchronize": "s.synchronize()",
    "stream query": "other.query()",
    "item": "x.sum().item()",
}


@pytest.fixture
def said(fake_gpu, script):
    """Return a function that returns the lines a program prints on simulated GPUs; with `recorded`, under
    profile-train."""

    def run(text, *words, devices="H100:80", recorded=False, **how):
        gpu = fake_gpu(devices, **how)
        ran = (gpu.record if recorded else gpu.run)(script(PRELUDE + text), *words)
        assert ran.status == 0, ran.err.decode()
        return ran.out.decode().splitlines()

    return run


def test_unsafe_calls_are_refused_while_capturing_and_invalidate_it(said):
    modes = ("global", "thread_local", "relaxed")
    lines = said("".join(IN_CAPTURE.format(mode=mode, call=call) for mode in modes for call in UNSAFE.values()))
    pairs = zip(lines[::2], lines[1::2], strict=True)
    answers = dict(zip([(mode, name) for mode in modes for name in UNSAFE], pairs, strict=True))
    for name in UNSAFE:
        for mode in ("global", "thread_local"):
            first, then = answers[mode, name]
            assert (CAPTURING in first, INVALIDATED in then) == (True, True), (mode, name, first, then)
        of_the_capture = name in ("stream synchronize", "item")
        first, then = answers["relaxed", name]
        assert (CAPTURING in first) == of_the_capture, (name, first)
        assert (then == "allowed") == (not of_the_capture), (name, then)


def test_capture_with_an_unjoined_stream_is_refused(said):
    lines = said(
        """
        x = torch.zeros(8, device="cuda"); torch.cuda.synchronize()
        def captured(join):
            g, s, side = CUDAGraph(), Stream(), Stream()
            with torch.cuda.stream(s):
                g.capture_begin()
                x.add_(1)
                side.wait_stream(s)
                with torch.cuda.stream(side): x.add_(1)
                if join: s.wait_stream(side)
                g.capture_end()
        print(refused(lambda: captured(True)))
        print(refused(lambda: captured(False)))
        """.replace("\n        ", "\n")
    )
    assert lines[0] == "allowed"
    assert "unjoined" in lines[1]


def test_events_and_streams_belong_to_a_device(said):
    lines = said(
        """
a, b = Event(enable_timing=True), Event(enable_timing=True)
a.record(Stream("cuda:0")); b.record(Stream("cuda:1"))
torch.cuda.synchronize(0); torch.cuda.synchronize(1)
print(refused(lambda: a.elapsed_time(b)))
print(refused(lambda: a.record(Stream("cuda:1"))))
print(refused(lambda: Stream("cuda:1").wait_event(a)))
""",
        devices="H100:80,H100:80",
    )
    assert [line == "allowed" for line in lines] == [False, False, True], lines


def test_destroyed_events_and_streams_are_invalid(said):
    lines = said("""
cuda = machine
event, stream = ctypes.c_void_p(), ctypes.c_void_p()
torch.cuda.init()
print(cuda.cudaEventCreateWithFlags(ctypes.byref(event), 0), cuda.cudaStreamCreate(ctypes.byref(stream)))
print(cuda.cudaEventDestroy(event), cuda.cudaEventQuery(event), cuda.cudaEventRecord(event, stream))
print(cuda.cudaStreamDestroy(stream), cuda.cudaStreamSynchronize(stream), cuda.cudaStreamDestroy(stream))
""")
    assert [line.split() for line in lines] == [["0", "0"], ["0", "400", "400"], ["0", "400", "400"]]


def test_device_side_assert_is_sticky(said):
    lines = said(
        """
x = torch.zeros(8, device="cuda")
for _ in range(20): message = refused(lambda: x.add_(1))
print(message); print(refused(torch.cuda.synchronize)); print(refused(lambda: torch.empty(1 << 26, device="cuda")))
""",
        breaks_after=10,
    )
    assert all("device-side assert" in line for line in lines), lines


def test_allocation_beyond_device_memory_fails(said):
    lines = said(
        """
total = torch.cuda.mem_get_info()[1] >> 20
print(total)
print("out of memory" in refused(lambda: torch.empty(total << 20, dtype=torch.uint8, device="cuda")))
held = torch.empty((total - 500 - 64) << 20, dtype=torch.uint8, device="cuda")
print("out of memory" in refused(lambda: torch.empty(65 << 20, dtype=torch.uint8, device="cuda")))
print(torch.cuda.mem_get_info()[0] >> 20)
""",
        devices="A100:4",
    )
    assert lines == ["4096", "True", "True", "64"]
