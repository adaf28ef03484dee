"""Each analysis, on traces small enough to compute by hand. Traces are in microseconds, results in nanoseconds."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from traces_made import DTOH, GEMM, GPU, HTOD, KERNEL, MAIN, NCCL, Made, two_ranks

from profiler.errors import ProfilerError
from profiler.importers.analysis import analyze
from profiler.importers.collectives import Collectives, Key, collectives, exchanges
from profiler.importers.critical_path import critical_path
from profiler.importers.gpu_time import breakdown, parts_of
from profiler.importers.kineto import read
from profiler.importers.launches import costs, launches, length, queue
from profiler.importers.steps import steps_of
from profiler.importers.work import FETCH, host_of, work_of

US = 1000


@pytest.fixture
def parsed(tmp_path):
    """Return a function that writes and reads a trace; it returns the trace, its GPU work, and what the host did."""

    def write(made: Made):
        trace = read(made.write(tmp_path / "t.json"))
        work = work_of(trace)
        return trace, work, host_of(trace, work)

    return write


def shared(made: Made, parsed, begin=0, end=100):
    """Return the result of `breakdown`, with the parts in nanoseconds."""
    _, work, host = parsed(made)
    parts = parts_of(work, host, begin * US, end * US)
    found = breakdown(work, parts, begin * US, end * US)
    assert found["parts"] == {name: pytest.approx(spans.total * 1e-9) for name, spans in parts.items()}
    return {**found, "parts": {name: spans.total for name, spans in parts.items()}}


def test_each_instant_counts_for_exactly_one_part(parsed):
    made = Made()
    made.host("begin", 0, 1)
    made.gpu(GEMM, 0, 40, (0, 1))
    made.gpu(NCCL, 30, 60, (2, 3), stream=20)  # 10 of it hidden
    made.gpu(HTOD, 50, 70, (4, 5), stream=8)  # 10 of it hidden
    found = shared(made, parsed)

    parts = found["parts"]
    assert (parts["compute"], parts["communication_exposed"], parts["memory_exposed"]) == (40 * US, 20 * US, 10 * US)
    assert found["overlap"] == pytest.approx(10 / 30)
    assert sum(parts.values()) == 100 * US


def test_gpu_idle_time_is_split_by_cause(parsed):
    made = Made()
    made.gpu(KERNEL, 0, 10, (0, 1))
    made.gpu(KERNEL, 14, 20, (2, 3))  # launched before the GPU ran out of work: queued, 4
    made.gpu(KERNEL, 30, 40, (26, 28))  # launched too late: launch, 10
    made.wait(35, 45)
    made.gpu(KERNEL, 52, 60, (50, 51))  # the host had waited for the last kernel: sync, 12
    made.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 60, 75, "user_annotation")
    made.gpu(KERNEL, 80, 100, (78, 79))  # 15 in the loader: data; then late: launch, 5
    parts = shared(made, parsed)["parts"]

    assert [parts[f"idle_{why}"] for why in ("queued", "launch", "sync", "data")] == [4 * US, 15 * US, 12 * US, 15 * US]


def test_copy_that_blocks_the_host_is_a_sync(parsed):
    made = Made()
    made.gpu(KERNEL, 0, 10, (0, 1))
    made.gpu(DTOH, 10, 12, (2, 13), api="cudaMemcpyAsync")
    made.gpu(KERNEL, 20, 100, (18, 19))

    assert shared(made, parsed)["parts"]["idle_sync"] == 8 * US


def test_idle_time_before_unknown_launch_is_queued(parsed):
    made = Made()
    made.gpu(KERNEL, 0, 10, (0, 1))
    made.gpu(KERNEL, 60, 100)

    assert shared(made, parsed)["parts"]["idle_queued"] == 50 * US


def test_queue_length_of_a_stream(parsed):
    made = Made()
    made.gpu(KERNEL, 10, 20, (0, 1))
    made.gpu(KERNEL, 20, 30, (2, 3))
    made.gpu(KERNEL, 30, 40, (4, 5))
    made.gpu(KERNEL, 35, 40, (34, 35), stream=8)
    _, work, _ = parsed(made)

    times, lengths = length(work.where(work.stream == 0))
    assert (times.tolist(), lengths.tolist()) == ([0, 2 * US, 4 * US, 10 * US, 20 * US, 30 * US], [1, 2, 3, 2, 1, 0])

    busiest = queue(work, 0, 40 * US)
    # 2 x 1 + 2 x 2 + 6 x 3 + 10 x 2 + 10 x 1 = 54 over 40
    assert (busiest.most, busiest.mean, busiest.empty) == (3, 54 / 40, 0.25)
    other = queue(work.where(work.stream == 1), 0, 40 * US)
    assert (other.most, other.mean) == (1, 1 / 40)


def test_queue_includes_work_launched_before_the_interval(parsed):
    made = Made()
    made.gpu(KERNEL, 0, 10, (0, 1))
    made.gpu(KERNEL, 30, 40, (2, 3))
    _, work, _ = parsed(made)

    found = queue(work, 10 * US, 30 * US)
    assert (found.mean, found.most, found.empty) == (1.0, 1, 0.0)


def test_launch_costs(parsed):
    made = Made()
    made.gpu(KERNEL, 10, 12, (0, 4))  # shorter than its call; 6 later
    made.gpu(KERNEL, 20, 30, (5, 8))  # 12 later
    made.gpu(KERNEL, 90, 99, (20, 80))  # slow; 10 later
    made.gpu(KERNEL, 99, 100)
    _, work, _ = parsed(made)
    found = launches(work)

    assert (found.calls, found.slow, found.shorter) == (3, 1, 2 / 3)
    assert (found.median, found.delay) == (pytest.approx(4e-6), pytest.approx(10e-6))
    assert [each.sum() for each in costs(work)] == [67 * US, 28 * US, 21 * US]


def test_a_replayed_graph_is_one_launch(parsed):
    made = Made()
    made.gpu(KERNEL, 10, 12, (0, 4), api="cudaGraphLaunch")
    for at in (12, 14):
        made.gpu(KERNEL, at, at + 2)
        made.events[-1]["args"]["correlation"] = 1
    _, work, _ = parsed(made)

    assert launches(work).calls == 1
    assert [each.tolist() for each in costs(work)] == [[4 * US], [6 * US], [2 * US]]


def test_only_work_of_one_gpu_is_analyzed(parsed):
    made = Made()
    for at in (0, 10):
        made.gpu(KERNEL, at, at + 5, (at, at + 1))
    made.gpu(KERNEL, 0, 50)
    made.events[-1]["pid"] = 1

    _, work, _ = parsed(made)
    assert work.end.tolist() == [5 * US, 15 * US]


def path(made: Made, parsed, begin, end):
    _, work, host = parsed(made)
    return [(link.part, link.start // US, link.end // US) for link in critical_path(work, host, begin * US, end * US)]


def test_critical_path_follows_gpu_while_work_is_queued(parsed):
    made = Made()
    made.gpu(KERNEL, 2, 10, (0, 1))
    made.gpu(GEMM, 10, 40, (1, 2))
    made.gpu(NCCL, 41, 60, (2, 3), stream=20)

    assert path(made, parsed, 0, 60) == [
        ("launch", 0, 2),
        ("compute", 2, 10),
        ("compute", 10, 40),
        ("gpu_gap", 40, 41),
        ("communication", 41, 60),
    ]


def test_critical_path_follows_host_on_late_launch_sync_and_data_wait(parsed):
    made = Made()
    made.gpu(GEMM, 2, 30, (0, 1))
    made.wait(5, 33)
    made.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 35, 45, "user_annotation")
    made.gpu(KERNEL, 54, 60, (50, 51))

    assert path(made, parsed, 0, 60) == [
        ("launch", 0, 2),
        ("compute", 2, 30),
        ("sync", 30, 33),
        ("host", 33, 35),
        ("data", 35, 45),
        ("host", 45, 50),
        ("launch", 50, 54),
        ("compute", 54, 60),
    ]


def test_critical_path_has_no_gaps(parsed):
    chance = np.random.default_rng(1)
    made = Made()
    at = 0.0
    for _ in range(60):
        at += float(chance.integers(1, 9))
        begin = at + float(chance.integers(0, 30))
        made.gpu(GEMM, begin, begin + float(chance.integers(0, 20)), (at, at + 1), stream=int(chance.integers(3)))
        if chance.random() < 0.2:
            made.wait(at + 1, at + 1 + float(chance.integers(1, 25)))
            at += 20
    links = path(made, parsed, 10, 400)

    assert (links[0][1], links[-1][2]) == (10, 400)
    assert all(one[2] == other[1] for one, other in pairwise(links))


def test_collectives_by_group_with_bytes_and_bandwidth(tmp_path):
    one, other = (collectives(trace, work_of(trace)) for trace in (read(path) for path in two_ranks(tmp_path)))

    (first,), (second,) = exchanges([one, other])
    assert (first.name, first.group, first.ranks, first.dtype) == ("allreduce", "default_pg", 2, "Float")
    assert one[0].durations == (40 * US,) * 3
    assert first.bytes == 3 * 4000
    assert first.exposed == pytest.approx(3 * 40e-6)
    # It ends on both ranks at once; rank 1 came last, so its 30 us are the transfer.
    assert (first.waited, second.waited) == (pytest.approx(3 * 10e-6), 0)
    assert first.bandwidth == second.bandwidth == pytest.approx(12000 / 90e-6)


def test_collective_bandwidth_excludes_waiting():
    made = Collectives(Key("allreduce", "", 4, "Float"), durations=(100 * US,), exposed=0, bytes=1_000_000)
    found = made.exchange(shortest=80 * US)

    assert found.algorithm == pytest.approx(1e6 / 80e-6)
    assert found.bandwidth == pytest.approx(2 * 3 / 4 * found.algorithm)


def test_collective_waiting_is_unknown_without_all_ranks(tmp_path):
    found = collectives(trace := read(two_ranks(tmp_path)[0]), work_of(trace))

    assert exchanges([found])[0][0].waited is None


def test_collective_without_details_is_named_by_its_kernel(parsed):
    made = Made()
    made.gpu("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)", 0, 10)
    trace, work, _ = parsed(made)
    ((found,),) = exchanges([collectives(trace, work)])

    assert (found.name, found.ranks, found.bytes, found.bandwidth) == ("reducescatter", None, None, None)


def test_steps_are_cut_where_gpu_reaches_them_and_first_is_lead_in(parsed):
    made = Made()
    for number in range(3):
        made.step(number, 100 * number, 100 * number + 100)
        made.gpu(KERNEL, 100 * number + 50, 100 * number + 120, (100 * number + 10, 100 * number + 12))
    trace, work, _ = parsed(made)
    found = steps_of(trace, work)

    assert (found.number, found.host.tolist()) == (2, [100 * US, 200 * US, 300 * US])
    assert found.reached.tolist() == [120 * US, 220 * US, 320 * US]
    assert found.asked_in(work).tolist() == [False, True, True]


def test_step_begins_after_work_launched_before_the_trace(parsed):
    made = Made()
    made.step(0, 10, 100)
    made.gpu(KERNEL, 0, 30)
    made.gpu(KERNEL, 30, 60)
    made.gpu(KERNEL, 60, 110, (20, 22))
    made.gpu(KERNEL, 110, 130, (50, 52))
    trace, work, _ = parsed(made)
    found = steps_of(trace, work)

    assert found.reached.tolist() == [60 * US, 130 * US]
    assert found.asked_in(work).tolist() == [False, False, True, True]


def test_work_of_unknown_launch_counts_for_a_preceding_call(parsed):
    made = Made()
    made.step(0, 0, 100)
    made.gpu(KERNEL, 30, 60)
    made.gpu(KERNEL, 60, 110, (20, 22))
    trace, work, _ = parsed(made)

    assert steps_of(trace, work).asked_in(work).all()


@pytest.mark.parametrize("category", ["user_annotation", "Operator"], ids=["today", "torch 1.8"])
def test_batch_fetches_delimit_unmarked_steps(parsed, category):
    made = Made()
    for number in range(5):
        made.host(f"{FETCH}_SingleProcessDataLoaderIter.__next__", 100 * number, 100 * number + 30, category)
        made.gpu(KERNEL, 100 * number + 50, 100 * number + 60, (100 * number + 40, 100 * number + 42))
    trace, work, host = parsed(made)
    found = steps_of(trace, work)

    assert found.host.tolist() == [100 * US, 200 * US, 300 * US, 400 * US]
    assert host.fetches.total == 150 * US


@pytest.mark.parametrize(
    ("fetches", "updates", "loaders"), [(3, 0, 1), (8, 2, 1), (8, 0, 2)], ids=["few", "accumulation", "two loaders"]
)
def test_ambiguous_fetches_do_not_delimit_steps(parsed, fetches, updates, loaders):
    made = Made()
    for number in range(fetches):
        kind = "Single" if number % loaders else "Multi"
        made.host(
            f"{FETCH}_{kind}ProcessingDataLoaderIter.__next__", 100 * number, 100 * number + 30, "user_annotation"
        )
        made.gpu(KERNEL, 100 * number + 50, 100 * number + 60, (100 * number + 40, 100 * number + 42))
    for number in range(updates):
        made.host("Optimizer.step#SGD.step", 100 * number + 70, 100 * number + 75, "user_annotation")
    trace, work, _ = parsed(made)

    assert not steps_of(trace, work).marked


def test_delaying_count_excludes_events_off_the_host(parsed):
    made = Made()
    made.host("aten::add", 0, 20)
    made.host("train.py(3): step", 0, 30, "python_function")
    made.gpu(KERNEL, 5, 9, (1, 2))
    trace, _, _ = parsed(made)

    assert (trace.events, trace.delaying) == (4, 3)


def test_step_cut_off_by_profiler_stop_is_dropped(parsed):
    made = Made()
    for number in range(2):
        made.step(number, 100 * number, 100 * number + 100)
        made.gpu(KERNEL, 100 * number + 50, 100 * number + 60, (100 * number + 10, 100 * number + 12))
    made.step(2, 200, 203)
    trace, work, _ = parsed(made)

    assert steps_of(trace, work).host.tolist() == [100 * US, 200 * US]


def trained() -> Made:
    """Return a trace with steps of 100 us: a batch for 10, forward, backward in another thread, an update."""
    made = Made(deviceProperties=[GPU])
    for number in range(3):
        at = 100 * number
        made.step(number, at, at + 100)
        made.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 10, "user_annotation")
        made.gpu(HTOD, at + 11, at + 15, (at + 10, at + 11), api="cudaMemcpyAsync")
        made.host("aten::mm", at + 11, at + 13, **{"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]})
        made.gpu(GEMM, at + 15, at + 35, (at + 11, at + 12))
        made.host("autograd::engine::evaluate_function: MmBackward0", at + 20, at + 25, thread=200)
        made.gpu(GEMM, at + 35, at + 75, (at + 21, at + 22), thread=200)
        made.host("Optimizer.step#AdamW.step", at + 70, at + 80, "user_annotation")
        made.gpu(KERNEL, at + 75, at + 95, (at + 71, at + 72))
    return made


def test_the_phases_of_a_step_add_up(tmp_path):
    found = analyze(trained().write(tmp_path / "t.json"))

    assert [step.index for step in found.steps] == [1, 2]
    for step in found.steps:
        assert step.data_wait == pytest.approx(10e-6)
        assert step.h2d == pytest.approx(4e-6)
        assert step.forward == pytest.approx(21e-6)  # including 1 us until the copy
        assert step.backward == pytest.approx(40e-6)
        assert step.optimizer == pytest.approx(20e-6)
        assert step.other == pytest.approx(5e-6)
        assert step.communication == step.sync == 0.0
        assert step.batches == 1
        parts = ("data_wait", "h2d", "forward", "backward", "optimizer", "communication", "sync", "other")
        assert sum(getattr(step, part) for part in parts) == pytest.approx(step.duration)


def test_zero_length_fetch_counts_as_a_fetch(tmp_path):
    """Kineto versions that write whole microseconds give such a fetch the length 0."""
    made = Made()
    made.step(0, 0, 100)
    made.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 5, "user_annotation")
    made.gpu(KERNEL, 20, 100, (10, 12))

    assert [step.data_wait for step in analyze(made.write(tmp_path / "t.json")).steps] == [0.0]


def test_kernels_report_fraction_of_multiprocessors_reached(tmp_path):
    made = Made(deviceProperties=[GPU])
    made.step(0, 0, 100)
    for start, end, blocks in ((10, 20, 0.25), (20, 50, 4.5), (50, 60, "inf"), (60, 70, None)):
        made.gpu(GEMM, start, end, (start - 5, start - 4), **({} if blocks is None else {"blocks per SM": blocks}))
    made.gpu(KERNEL, 70, 80, (68, 69))

    reached = {kernel.name: kernel.reached for kernel in analyze(made.write(tmp_path / "t.json")).kernels}

    assert reached == {GEMM: pytest.approx((10 * 0.25 + 30 * 1) / 40), KERNEL: None}


TEMPLATE = "triton_tem_fused_mm_3"


@pytest.mark.parametrize(
    ("operators", "dtype"),
    [
        ([(TEMPLATE, "c10::BFloat16")], "bf16"),
        ([("aten::mm", "c10::Float8_e4m3fn")], "fp8"),
        ([(TEMPLATE, "float")], None),  # it may be computed in TF32
        ([(TEMPLATE, "c10::BFloat16"), (TEMPLATE, "c10::Half")], None),
        ([("CompiledFunction", "c10::BFloat16")], None),  # its contents may be cast
        ([], None),
    ],
)
def test_inductor_template_dtype_comes_from_launching_operator(tmp_path, operators, dtype):
    made = Made(deviceProperties=[GPU])
    made.step(0, 0, 200)
    for number, (name, kind) in enumerate(operators or [(None, None)]):
        at = 20 * number
        if name:
            made.host(name, at + 1, at + 6, **{"Input Dims": [[8, 16], [16, 4]], "Input type": [kind, kind]})
        made.gpu(TEMPLATE, at + 10, at + 18, (at + 3, at + 5), api="cuLaunchKernel")

    (kernel,) = analyze(made.write(tmp_path / "t.json")).kernels

    assert (kernel.kind, kernel.dtype) == ("matmul", dtype)


def test_host_launch_time_excludes_data_waits_and_slow_calls(tmp_path):
    made = Made()
    for number in range(3):
        at = 1000 * number
        made.step(number, at, at + 1000)
        made.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 100, "user_annotation")
        made.gpu(KERNEL, at + 150, at + 200, (at + 110, at + 120))
        made.wait(at + 130, at + 230)
        made.gpu(KERNEL, at + 480, at + 500, (at + 240, at + 440))  # the queue was full
        made.gpu(KERNEL, at + 500, at + 900, (at + 450, at + 460))
    (first, _) = analyze(made.write(tmp_path / "t.json")).steps

    # 460 until the last call, less 100 in the loader, 100 waiting and 200 in the slow call
    assert first.host_launch == pytest.approx(60e-6)


def test_kernels_are_sorted_by_time_with_kind_and_tensor_cores(tmp_path):
    found = analyze(trained().write(tmp_path / "t.json"))

    assert [(k.name, k.kind, k.calls, k.tensor_cores, k.dtype) for k in found.kernels] == [
        (GEMM, "matmul", 4, True, "bf16"),
        (KERNEL, "optimizer", 2, False, "fp32"),
        (HTOD, "copy", 2, False, None),
    ]
    assert [k.total for k in found.kernels] == pytest.approx([120e-6, 40e-6, 8e-6])


def test_kernels_count_for_the_operator_that_launched_them(tmp_path):
    found = next(row for row in analyze(trained().write(tmp_path / "t.json")).operators if row.inputs)

    assert (found.name, found.inputs, found.dtype, found.calls) == ("aten::mm", ((8, 16), (16, 4)), "fp32", 2)
    assert found.total == pytest.approx(40e-6)


def test_cpu_trace_uses_operator_self_time_and_host_phases(tmp_path):
    made = Made()
    for number in range(2):
        at = 100 * number
        made.step(number, at, at + 100)
        made.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 10, "user_annotation")
        made.host("aten::linear", at + 10, at + 40)
        made.host("aten::addmm", at + 15, at + 40)
        made.host("autograd::engine::evaluate_function: AddmmBackward0", at + 40, at + 80, thread=MAIN + 1)
        made.host("Optimizer.step#SGD.step", at + 80, at + 95, "user_annotation")
    found = analyze(made.write(tmp_path / "t.json"))

    assert not found.fact.parts
    assert not found.fact.critical
    assert found.fact.launches is None
    assert len(found.steps) == 2
    step = found.steps[0]
    assert step.data_wait == pytest.approx(10e-6)
    assert step.forward == pytest.approx(30e-6)
    assert step.backward == pytest.approx(40e-6)
    assert step.optimizer == pytest.approx(15e-6)
    assert step.other == pytest.approx(5e-6)
    assert step.h2d is None
    assert {k.name: round(k.total * 1e6) for k in found.kernels if k.name.startswith("aten")} == {
        "aten::addmm": 50,
        "aten::linear": 10,
    }


@pytest.mark.parametrize(
    ("kernel", "fused"),
    [
        ("void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>", True),
        ("triton_poi_fused_addcdiv_mul_0", True),
        ("void at::native::multi_tensor_apply_kernel<at::native::BinaryOpListAlphaFunctor<float>>", False),
    ],
)
def test_settings_are_inferred_from_range_and_kernel_names(tmp_path, kernel, fused):
    made = Made()
    made.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 10, "user_annotation")
    made.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 12, 14, "user_annotation")
    made.host("Optimizer.step#AdamW.step", 20, 30, "user_annotation")
    made.gpu(GEMM, 15, 18, (14, 15))
    made.gpu(kernel, 30, 40, (21, 22))
    fact = analyze(made.write(tmp_path / "t.json")).fact

    assert (fact.workers, fact.optimizer, fact.fused) == (True, "AdamW", fused)
    assert fact.longest_idle == pytest.approx(12e-6)


def test_settings_not_in_trace_are_unknown(tmp_path):
    made = Made()
    made.gpu(GEMM, 15, 18, (14, 15))
    fact = analyze(made.write(tmp_path / "t.json")).fact

    assert (fact.workers, fact.optimizer, fact.fused) == (None, "", None)


def test_the_gpu_waits_for_memory_to_be_allocated(tmp_path):
    made = Made()
    made.gpu(GEMM, 0, 10, (0, 1))
    made.host("cudaFree", 12, 20, "cuda_runtime")
    made.host("cudaHostAlloc", 21, 24, "cuda_runtime")
    made.gpu(GEMM, 30, 40, (26, 27))
    window = analyze(made.write(tmp_path / "t.json")).window

    assert window.idle_launch == pytest.approx(20e-6)
    assert window.idle_allocating == pytest.approx(8e-6)


def test_names_are_shown_without_secrets(tmp_path):
    made = Made()
    made.step(0, 0, 10)
    made.host("call with api_key=sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1, 5)

    assert "sk-aaaa" not in str(analyze(made.write(tmp_path / "t.json")).kernels)


def test_trace_that_spans_no_time_is_refused(tmp_path):
    made = Made()
    made.gpu(KERNEL, 5, 5)

    with pytest.raises(ProfilerError, match="covers no time"):
        analyze(made.write(tmp_path / "t.json"))
