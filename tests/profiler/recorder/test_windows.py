import gzip
import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from profiler.agent import window as agent_window
from profiler.errors import ProfilerError
from profiler.importers import operators
from profiler.importers.kernel_kinds import kernel_kind, operator_kind
from profiler.importers.steps import MARK
from profiler.recorder.windows import parse
from profiler.schema import Fact
from profiler.store import decode_fact

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, char*>(int)"
GEMM = "ampere_sgemm_32x32_sliced1x4_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
H2D_PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
H2D_PINNED = "Memcpy HtoD (Pinned -> Device)"
D2H = "Memcpy DtoH (Device -> Pageable)"
FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


class Trace:
    """A hand-made Kineto trace; times are microseconds after the first mark."""

    def __init__(self, folder):
        self.folder = folder
        self.events = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}]
        self.launches = 0

    def host(self, name, start, end, category="user_annotation", tid=1, **args):
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 1,
                "tid": tid,
                "ts": 1e6 + start,
                "dur": end - start,
                "args": args,
            }
        )

    def marks(self, *times):
        for time in times:
            self.host(MARK, time, time + 0.5, "cpu_op")

    def op(self, name, start, end, tid=1, shapes=None, types=("float",)):
        recorded = {} if shapes is None else {"Input Dims": shapes, "Input type": list(types)}
        self.host(name, start, end, "cpu_op", tid, **recorded)

    def gpu(self, name, start, end, launch=None, call="cudaLaunchKernel", category="kernel", stream=7):
        """Add GPU work from `start` to `end`, launched by a host call with the times `launch`."""
        self.launches += 1
        if launch:
            self.host(call, *launch, "cuda_runtime", correlation=self.launches)
        self.host(name, start, end, category, stream, correlation=self.launches)

    def copy(self, name, start, end, launch=None):
        self.gpu(name, start, end, launch, "cudaMemcpyAsync", "gpu_memcpy")

    def path(self):
        path = self.folder / "window.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return path

    def parse(self, **given):
        settings = {"pid": 7, "position": 2, "start": 100.0, "steps": 1, "cost": 0.02, **given}
        window, rows, operators, syncs, fact = parse(self.path(), **settings)
        return SimpleNamespace(
            fact=fact,
            window=window,
            rows=rows,
            operators=operators,
            syncs=syncs,
            us=lambda name: pytest.approx(getattr(window, name) * 1e6, abs=1e-3),
        )


@pytest.fixture
def trace(tmp_path):
    return Trace(tmp_path)


def parts(window):
    return (
        window.busy + window.h2d + window.idle_data + window.idle_sync + window.idle_launch + window.idle_other
    ) * 1e6


def test_agent_and_recorder_use_the_same_mark():
    assert MARK == agent_window.MARK


def test_idle_time_is_attributed_to_host_activity(trace):
    trace.marks(0, 100, 1100)
    trace.gpu(GEMM, 20, 90, launch=(10, 15))  # the lead-in step
    trace.host(FETCH, 100, 300)  # no GPU work: 200 of data
    trace.copy(H2D_PAGEABLE, 320, 370, launch=(305, 375))  # 20 of late launch, 50 of copying
    trace.gpu(GEMM, 400, 600, launch=(380, 390))  # 30 sync: the copy from pageable memory blocked the host
    trace.gpu(ELEMENTWISE, 610, 700, launch=(395, 399))  # queued long before: 10 other
    trace.host("cudaStreamSynchronize", 500, 710, "cuda_runtime", correlation=99)
    trace.gpu(GEMM, 800, 900, launch=(780, 790))  # the GPU ran out of work during that wait: 100 sync
    trace.gpu(GEMM, 950, 1100, launch=(930, 940))  # 50 launch

    found = trace.parse()

    assert found.us("duration") == 1000
    assert found.us("idle_data") == 200
    assert found.us("h2d") == 50
    assert found.us("h2d_pageable") == 50
    assert found.us("idle_launch") == 20 + 50
    assert found.us("idle_sync") == 30 + 100
    assert found.us("idle_other") == 10
    assert found.us("busy") == 200 + 90 + 100 + 150
    assert parts(found.window) == pytest.approx(1000)
    assert found.window.device == "cuda"
    assert (found.window.steps, found.window.kernels) == (1, 4)
    assert found.us("median_kernel") == 125
    assert found.window.start == pytest.approx(100.0 + 100e-6)
    assert (found.window.pid, found.window.cost) == (7, 0.02)


def test_window_details_become_a_fact(trace):
    trace.marks(0, 100, 200)
    trace.gpu(GEMM, 110, 150, launch=(101, 104))
    trace.gpu("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 140, 180, launch=(105, 108))

    fact = trace.parse().fact

    assert decode_fact(Fact(pid=7, time=0.0, kind="trace", body=json.loads(json.dumps(asdict(fact))))) == fact
    assert (fact.id, fact.steps, fact.overlap) == (2, 1, pytest.approx(10 / 40))
    assert fact.parts["compute"] == pytest.approx(40e-6)
    assert fact.parts["communication_exposed"] == pytest.approx(30e-6)
    assert sum(fact.parts.values()) == pytest.approx(fact.seconds)
    assert [(each.name, each.calls) for each in fact.exchanges] == [("allreduce", 1)]
    assert fact.launches.calls == 2
    assert sum(fact.critical.values()) == pytest.approx(fact.seconds)


def test_steps_are_cut_where_the_gpu_reaches_them(trace):
    # The host is done with both steps after 40; the GPU works on them until 900.
    trace.marks(0, 20, 40)
    trace.gpu(GEMM, 10, 400, launch=(5, 8))
    trace.gpu(GEMM, 400, 900, launch=(25, 28))

    found = trace.parse()

    assert found.us("duration") == 500
    assert found.us("busy") == 500
    assert found.window.kernels == 1
    assert found.window.start == pytest.approx(100.0 + 400e-6)


def test_single_marked_step_keeps_its_whole_length(trace):
    trace.marks(0, 100)
    trace.gpu(GEMM, 50, 100, launch=(40, 45))

    found = trace.parse()

    assert found.us("duration") == 100
    assert (found.us("busy"), found.us("idle_launch")) == (50, 50)


def test_reading_a_value_back_is_a_synchronization(trace):
    trace.marks(0, 10, 500)
    trace.gpu(GEMM, 20, 100, launch=(12, 15))
    trace.copy(D2H, 110, 120, launch=(16, 125))  # the call returns after the copy: it blocked
    trace.gpu(GEMM, 200, 490, launch=(150, 155))

    found = trace.parse()

    assert found.us("idle_sync") == 10 + 10 + 80  # before the copy, the copy itself, and the empty queue behind it
    assert found.us("idle_launch") == 10 + 10  # before the first kernel, and after the last


def test_hidden_copies_and_pinned_ones_are_not_pageable_waits(trace):
    trace.marks(0, 10, 310)
    trace.gpu(GEMM, 10, 110, launch=(11, 12))
    trace.copy(H2D_PAGEABLE, 20, 60, launch=(13, 14))  # hidden behind the kernel
    trace.copy(H2D_PINNED, 110, 210, launch=(15, 16))
    trace.gpu(GEMM, 210, 310, launch=(17, 18))

    found = trace.parse()

    assert found.us("h2d") == 100
    assert found.us("h2d_pageable") == 0


def test_pageable_copies_are_unknown_if_names_omit_memory_kind(trace):
    trace.marks(0, 10, 310)
    trace.copy("Memcpy HtoD (Host -> Device)", 110, 210, launch=(15, 16))

    assert trace.parse().window.h2d_pageable is None


def test_total_and_exposed_communication_are_measured(trace):
    trace.marks(0, 10, 210)
    trace.gpu(GEMM, 10, 110, launch=(11, 12))
    trace.gpu(NCCL, 60, 210, launch=(13, 14), stream=20)

    found = trace.parse()

    assert found.us("communication") == 150
    assert found.us("communication_exposed") == 100
    assert found.us("busy") == 200


def test_idle_before_unknown_launch_is_not_a_late_launch(trace):
    trace.marks(0, 10, 110)
    trace.gpu(GEMM, 60, 110)

    found = trace.parse()

    assert found.us("idle_other") == 50
    assert found.us("idle_launch") == 0


def test_kernels_are_summed_by_name_and_kind(trace):
    trace.marks(0, 10, 1000)
    trace.gpu(GEMM, 10, 110, launch=(11, 12))
    trace.gpu(GEMM, 110, 150, launch=(13, 14))
    trace.gpu(ELEMENTWISE, 150, 180, launch=(15, 16))
    trace.host("Optimizer.step#SGD.step", 20, 40)
    trace.gpu(ELEMENTWISE, 180, 190, launch=(25, 26))  # the same kernel, for a for-loop optimizer

    rows = trace.parse().rows

    assert [(row.kind, row.calls, round(row.total * 1e6)) for row in rows] == [
        ("matmul", 2, 140),
        ("elementwise", 1, 30),
        ("optimizer", 1, 10),
    ]
    assert {(row.pid, row.window, row.device) for row in rows} == {(7, 2, "cuda")}
    assert (rows[0].name, rows[0].dtype, rows[0].tensor_cores) == (GEMM, "fp32", False)


def test_a_closure_does_not_turn_the_backward_pass_into_the_optimizer(trace):
    trace.marks(0, 10, 1000)
    trace.host("Optimizer.step#LBFGS.step", 20, 400)
    trace.op("autograd::engine::evaluate_function: ReluBackward0", 30, 50, tid=2)
    trace.gpu(ELEMENTWISE, 100, 200, launch=(40, 45))

    assert [row.kind for row in trace.parse().rows] == ["elementwise"]


def test_operators_count_with_self_time_on_their_thread(trace):
    trace.marks(0, 1000)
    trace.op("aten::linear", 100, 200)
    trace.op("aten::addmm", 110, 180)
    trace.op("aten::copy_", 120, 130)
    trace.op("aten::relu", 200, 210)
    trace.op("aten::relu", 150, 170, tid=2)  # another thread: not a child
    trace.op("aten::relu", 1100, 1200)  # after the last mark

    found = trace.parse()

    assert {(row.name, row.kind, row.calls, round(row.total * 1e6)) for row in found.rows} == {
        ("aten::addmm", "matmul", 1, 60),
        ("aten::linear", "matmul", 1, 30),
        ("aten::copy_", "copy", 1, 10),
        ("aten::relu", "elementwise", 2, 30),
    }
    assert found.rows[0].name == "aten::addmm"
    assert (found.window.device, found.window.steps) == ("cpu", 1)
    assert found.window.busy is None
    assert found.window.kernels is None
    assert all(row.tensor_cores is None for row in found.rows)


def test_operators_inside_optimizer_step_count_as_optimizer(trace):
    trace.marks(0, 1000)
    trace.op("aten::add_", 10, 20)
    trace.host("Optimizer.step#SGD.step", 100, 200)
    trace.op("aten::add_", 110, 130)

    assert {(row.kind, round(row.total * 1e6)) for row in trace.parse().rows} == {
        ("elementwise", 10),
        ("optimizer", 20),
    }


def test_kernels_count_for_the_innermost_operator_that_launched_them(trace):
    heads = [[8, 64, 16], [8, 16, 64]]
    trace.marks(0, 10, 1000)
    trace.op("aten::matmul", 10, 30, shapes=[[2, 4, 64, 16], [2, 4, 16, 64]])
    trace.op("aten::bmm", 12, 20, shapes=heads, types=["c10::Half", "c10::Half"])
    trace.gpu(GEMM, 20, 120, launch=(13, 15))
    trace.gpu(GEMM, 120, 150, launch=(16, 18))
    trace.op("aten::_softmax", 31, 40, shapes=[[2, 4, 64, 64], [], []], types=["c10::Half", "Scalar", "Scalar"])
    trace.gpu(ELEMENTWISE, 150, 160, launch=(32, 35))
    trace.op("aten::bmm", 12, 50, tid=2, shapes=heads)  # another thread's
    trace.op("aten::cat", 41, 45, shapes=[[[4, 4], [4, 4]], []], types=["TensorList", "Scalar"])
    trace.gpu(ELEMENTWISE, 160, 161, launch=(42, 44))
    trace.gpu(ELEMENTWISE, 161, 162, launch=(60, 61))  # outside any operator

    found = trace.parse()

    assert found.window.shapes
    assert [(row.name, row.inputs, row.dtype, row.calls, round(row.total * 1e6)) for row in found.operators] == [
        ("aten::bmm", ((8, 64, 16), (8, 16, 64)), "fp16", 1, 130),
        ("aten::_softmax", ((2, 4, 64, 64), (), ()), "fp16", 1, 10),
        (ELEMENTWISE, (), None, 1, 1),
        ("aten::cat", ((), ()), None, 1, 1),
    ]
    assert {(row.pid, row.window, row.device) for row in found.operators} == {(7, 2, "cuda")}


def test_cpu_operators_are_summed_by_shape(trace):
    trace.marks(0, 1000)
    for start in (0, 100):
        trace.op("aten::linear", start + 1, start + 50, shapes=[[8, 4], [2, 4]])
        trace.op("aten::mm", start + 10, start + 40, shapes=[[8, 4], [4, 2]])
    trace.op("aten::mm", 300, 310, shapes=[[8, 4], [4, 3]])
    trace.op("aten::mm", 320, 325)  # unknown shape
    trace.op("aten::mm", 1001, 1100, shapes=[[8, 4], [4, 2]])  # after the last mark

    found = trace.parse()

    assert [(row.name, row.inputs[1], row.calls, round(row.total * 1e6)) for row in found.operators] == [
        ("aten::mm", (4, 2), 2, 60),
        ("aten::linear", (2, 4), 2, 38),
        ("aten::mm", (4, 3), 1, 10),
    ]
    assert {(row.device, row.dtype) for row in found.operators} == {("cpu", "fp32")}


def test_only_most_expensive_shapes_are_kept(trace, monkeypatch):
    monkeypatch.setattr(operators, "MOST", 2)
    trace.marks(0, 1000)
    for number in range(4):
        trace.op("aten::mm", 100 * number, 100 * number + 10 + number, shapes=[[number + 1, 4], [4, 2]])

    assert [row.inputs[0][0] for row in trace.parse().operators] == [4, 3]


def test_operator_table_is_empty_without_shapes(trace):
    trace.marks(0, 10, 100)
    trace.op("aten::mm", 10, 20)
    trace.gpu(GEMM, 20, 90, launch=(12, 15))

    found = trace.parse()

    assert (found.window.shapes, found.operators) == (False, [])


@pytest.mark.parametrize("dims", ["[[1, 2]]", 7, {"a": 1}, [["1", 2]], [[1.5]], [[True]], [None]])
def test_invalid_shapes_are_skipped(trace, dims):
    trace.marks(0, 100)
    trace.op("aten::mm", 10, 20, shapes=dims, types=[None, {}])

    found = trace.parse()

    assert found.operators == []
    assert [row.name for row in found.rows] == ["aten::mm"]


def test_unfinished_ranges_are_skipped(trace):
    trace.marks(0, 1000)
    trace.op("aten::add", 10, 20)
    trace.host("aten::mul", 30, 5000, "cpu_op", finished=False)

    assert [row.name for row in trace.parse().rows] == ["aten::add"]


def test_torch_profilers_own_steps_serve_as_boundaries(trace):
    trace.host("ProfilerStep#5", 0, 100)
    trace.host("ProfilerStep#6", 100, 300)
    trace.op("aten::add", 10, 20)
    trace.op("aten::add", 110, 120)

    found = trace.parse()

    assert (found.window.steps, found.us("duration")) == (2, 300)


def test_unmarked_trace_is_used_whole(trace):
    trace.op("aten::add", 10, 20)
    trace.op("aten::mul", 30, 60)

    found = trace.parse(steps=4)

    assert (found.window.steps, found.us("duration")) == (4, 50)


def test_gzip_is_read(trace, tmp_path):
    trace.marks(0, 100)
    trace.op("aten::mm", 10, 60)
    packed = tmp_path / "window.json.gz"
    packed.write_bytes(gzip.compress(trace.path().read_bytes()))

    window, rows, *_ = parse(packed, pid=1, position=0, start=0.0, steps=1, cost=0.0)

    assert window.duration == pytest.approx(100e-6)
    assert [row.name for row in rows] == ["aten::mm"]


def test_truncated_trace_raises_error_with_remedy(trace):
    trace.marks(0, 100)
    path = trace.path()
    whole = path.read_bytes()
    for end in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:end])
        with pytest.raises(ProfilerError) as caught:
            parse(path, pid=1, position=0, start=0.0, steps=1, cost=0.0)
        assert str(path) in caught.value.message
        assert caught.value.remedy


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"7",
        b'{"a": 1}',
        b"[]",
        b'{"traceEvents": {"ph": "X"}}',
        b'{"traceEvents": [1, null, {"ph": "X"}, {"ph": "X", "name": "a", "ts": "soon"}]}',
        b'{"ph": "X", "name": "a", "ts": 1, "dur": 2}',
        b"\xff\xfe not text",
        b"[" * 100_000,
    ],
)
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "window.json"
    path.write_bytes(content)

    with pytest.raises(ProfilerError):
        parse(path, pid=1, position=0, start=0.0, steps=1, cost=0.0)


def test_broken_gzip_and_missing_files_are_refused(tmp_path):
    packed = tmp_path / "window.json.gz"
    packed.write_bytes(gzip.compress(b'{"traceEvents": []}')[:-9])
    for path in (packed, tmp_path / "missing.json"):
        with pytest.raises(ProfilerError):
            parse(path, pid=1, position=0, start=0.0, steps=1, cost=0.0)


def test_cuda_window_without_gpu_work_is_refused(trace):
    trace.marks(0, 100)

    with pytest.raises(ProfilerError, match="no GPU work"):
        trace.parse(device="cuda")


@pytest.mark.parametrize(
    ("name", "kind", "tensor_cores", "dtype"),
    [
        ("ampere_sgemm_32x32_sliced1x4_tn", "matmul", False, "fp32"),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "matmul", True, "fp16"),
        ("volta_h884gemm_256x64_ldg8_nn", "matmul", True, "fp16"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn", "matmul", True, "bf16"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(Params)", "matmul", True, "tf32"),
        (
            "void cutlass::Kernel2<cutlass_75_tensorop_f16_s1688gemm_f16_64x64_nn_align8>(Params)",
            "matmul",
            True,
            "fp16",
        ),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(Params)", "matmul", False, "fp32"),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_ffma_execute_kernel",
            "matmul",
            False,
            "fp32",
        ),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x16_tensor16x8x8_execute", "matmul", True, "tf32"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1", "matmul", True, "bf16"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", "matmul", True, "fp8"),
        ("nvjet_tst_144x128_64x6_2x1_v_bz_TNN", "matmul", True, "bf16"),
        (
            "cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xe2m1_f32_bf16",
            "matmul",
            True,
            "fp4",
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<cutlass::bfloat16_t>>>",
            "attention",
            True,
            "bf16",
        ),
        (
            "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)",
            "communication",
            False,
            "bf16",
        ),
        ("void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>(float*)", "optimizer", False, "fp32"),
        ("void kPreconditionOptimizer32bit2State<float, 0, 4096, 8>(float*)", "optimizer", False, "fp32"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN", "matmul", True, "fp16"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN", "matmul", True, "bf16"),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN", "matmul", True, "fp32"),
        ("triton_tem_fused_mm_3", "matmul", None, None),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(...)", "matmul", False, "fp32"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_tensor16x8x8", "convolution", True, "tf32"),
        ("cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "convolution", False, "fp32"),
        (
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t>>",
            "attention",
            True,
            "bf16",
        ),
        ("sage_fwd", "attention", None, None),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention", True, "fp16"),
        (NCCL, "communication", False, "fp32"),
        (ELEMENTWISE, "elementwise", False, "fp32"),
        (
            "void at::native::elementwise_kernel<128, 2, gpu_kernel_impl<at::native::direct_copy_kernel_cuda>>",
            "copy",
            False,
            None,
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)",
            "normalization",
            False,
            "bf16",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>, FusedAdamMath>",
            "optimizer",
            False,
            None,
        ),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps>>", "reduction", False, "fp32"),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false>",
            "normalization",
            False,
            "fp32",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 4, true, false>(float*)",
            "loss",
            False,
            "fp32",
        ),
        (
            "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, c10::BFloat16, "
            "at::native::(anonymous namespace)::LogSoftMaxBackwardEpilogue>(float*)",
            "loss",
            False,
            "bf16",
        ),
        (
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, "
            "at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(float*)",
            "normalization",
            False,
            "fp32",
        ),
        (
            "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float>(float*)",
            "loss",
            False,
            "fp32",
        ),
        ("triton_red_fused__log_softmax_nll_loss_forward_3", "loss", False, None),
        ("liger_cross_entropy_kernel", "loss", False, None),
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>", "layout", False, "fp16"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x64", "attention", True, "fp16"),
        ("triton_poi_fused_convolution_relu_2", "elementwise", False, None),
        ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "normalization", False, None),
        ("void fbgemm_gpu::permute_2D_data_kernel<true, int, int, float>(int)", "copy", False, "fp32"),
        (H2D_PINNED, "copy", False, None),
        (
            "void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda>",
            "copy",
            False,
            "bf16",
        ),
        ("Memset (Device)", "copy", False, None),
        ("my_own_thing", "other", False, None),
    ],
)
def test_kernel_name_gives_kind_dtype_and_tensor_cores(name, kind, tensor_cores, dtype):
    assert kernel_kind(name) == (kind, tensor_cores, dtype)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "matmul"),
        ("aten::mkldnn_convolution", "convolution"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::native_layer_norm", "normalization"),
        ("aten::normal_", "elementwise"),
        ("aten::_log_softmax", "loss"),
        ("aten::nll_loss_forward", "loss"),
        ("aten::_softmax", "normalization"),
        ("aten::_scaled_dot_product_attention_math", "attention"),
        ("aten::_efficient_attention_forward", "attention"),
        ("aten::_cudnn_attention_forward", "attention"),
        ("aten::_foreach_add_", "optimizer"),
        ("aten::_fused_adam_", "optimizer"),
        ("aten::sum", "reduction"),
        ("aten::max_pool2d_with_indices", "reduction"),
        ("aten::threshold_backward", "elementwise"),
        ("aten::cat", "copy"),
        ("aten::as_strided", "host"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "host"),
        ("AddmmBackward0", "host"),
        ("c10d::allreduce_", "communication"),
        ("mylib::special", "other"),
    ],
)
def test_operator_name_gives_kind(name, kind):
    assert operator_kind(name) == kind
