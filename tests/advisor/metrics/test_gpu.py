from dataclasses import replace

import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing, Need
from advisor.metrics.communication import comm_total, common_steps
from advisor.metrics.goals import time_between_failures
from advisor.metrics.gpu import (
    achieved_matmul_flops,
    bf16_gemm_share,
    bf16_gemm_us,
    compute_capability,
    compute_dtype_mix,
    conv_share,
    device,
    fp16_matmul_share,
    fp32_matmul_share,
    fp64_share,
    gpu_busy_fraction,
    gpu_computing_fraction,
    h2d_pageable_share,
    host_launch,
    idle_queued_fraction,
    idle_queued_us,
    kernels_per_step,
    launch_bound_index,
    layout_share,
    matmul_share,
    median_kernel_us,
    membound_share,
    optim_share,
    reached_multiprocessors,
    simt_fp32_gemm_share,
    simt_fp32_matmul_share,
    tensor_core_fraction,
)
from advisor.metrics.hardware import gpu_energy, gpu_utilization, sm_clock_ratio
from advisor.metrics.memory import mem_params, oom_count
from advisor.metrics.settings import WINDOW_REMEDIES
from advisor.metrics.stack import stack_mismatches
from advisor.metrics.step import data_wait_fraction, exposed_comm_fraction, h2d_fraction
from profiler.schema import DeviceFact, Gpu, GpuSample, Kernel, ModelFact, TraceFact, Window, WindowsFact

FORTY = steps(*[0.1] * 40)
GPUS = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="A100", capability=(8, 0), memory_total=80 << 30) for n in range(2))


def windowed(*kernels, **columns):
    values = {"steps": 2, "duration": 0.2, "cost": 0.0, "device": "cuda", **columns}
    return metrics(rank(steps=FORTY, windows=(Window(pid=1, start=1.0, **values),), kernels=kernels))


def kernel(kind, total, **columns):
    return Kernel(
        **{"pid": 1, "window": 0, "device": "cuda", "name": kind, "kind": kind, "calls": 1, "total": total, **columns}
    )


def test_matmuls_of_unknown_dtype_are_not_given_another():
    template = kernel("matmul", 0.08, name="triton_tem_fused_mm_3")
    typed = replace(template, window=1, dtype="bf16", total=0.02)
    rest = kernel("elementwise", 0.1)

    for share in (bf16_gemm_share, fp32_matmul_share, fp16_matmul_share, simt_fp32_matmul_share):
        with pytest.raises(Missing):
            windowed(template, rest)[share]
    assert windowed(template, typed, rest)[bf16_gemm_share] == pytest.approx(0.5)  # only a window with shapes shows it
    few = replace(template, total=0.01)
    assert windowed(few, kernel("matmul", 0.1, dtype="bf16"))[bf16_gemm_share] == pytest.approx(0.1 / 0.11)


def test_share_of_multiprocessors_reached_by_kernels():
    half, all_of_them = kernel("matmul", 0.06, reached=0.5), kernel("elementwise", 0.03, reached=1.0)
    silent = kernel("matmul", 0.01)

    assert windowed(half, all_of_them, silent)[reached_multiprocessors] == pytest.approx(0.06 / 0.09)
    with pytest.raises(Missing):
        windowed(half, kernel("matmul", 0.1))[reached_multiprocessors]


def test_device_comes_from_torch_or_else_nvml():
    of_nvml = metrics(rank(steps=FORTY), gpus=GPUS)[device]
    fact = DeviceFact(id=0, name="H100", capability=(9, 0), memory_total=1)
    of_torch = metrics(rank(steps=FORTY, devices=(fact,)), gpus=GPUS)[device]

    assert (of_nvml.name, of_nvml.count) == ("A100", 2)
    assert (of_torch.name, of_torch.capability, of_torch.count) == ("H100", (9, 0), 2)


def test_compute_capability_comes_from_device():
    fact = DeviceFact(id=0, name="H100", capability=(9, 0), memory_total=1)

    assert metrics(rank(steps=FORTY, devices=(fact,)))[compute_capability] == (9, 0)
    with pytest.raises(Missing, match="capability of H100 is unknown"):
        metrics(rank(steps=FORTY, devices=(replace(fact, capability=None),)))[compute_capability]


ON_CPU = (ModelFact(id=1, devices={"cpu": 8}),)
A_GPU = (DeviceFact(id=0, name="H100", capability=(9, 0), memory_total=1),)
LONE, ONE_OF_TWO = {}, {"process": {"world_size": 2}}


@pytest.mark.parametrize(
    ("metric", "tables", "need"),
    [
        (device, {"models": ON_CPU}, Need.GPU),
        (gpu_utilization, {"models": ON_CPU}, Need.GPU),
        (gpu_utilization, {"devices": A_GPU}, Need.RUN),
        (matmul_share, {"models": ON_CPU}, Need.GPU),
        (matmul_share, {"devices": A_GPU}, Need.RUN),
        (oom_count, {"models": ON_CPU}, Need.GPU),
        (oom_count, {"devices": A_GPU}, Need.RUN),
        (mem_params, {"devices": A_GPU}, Need.RUN),
        (stack_mismatches, {}, Need.GPU),
        (h2d_fraction, {"models": ON_CPU}, Need.GPU),
        (h2d_fraction, {"devices": A_GPU}, Need.RUN),
        (data_wait_fraction, {"models": ON_CPU}, Need.RUN),
        (exposed_comm_fraction, {"devices": A_GPU, **LONE}, Need.RANKS),
        (exposed_comm_fraction, {"devices": A_GPU, **ONE_OF_TWO}, Need.RUN),
        (exposed_comm_fraction, {"models": ON_CPU, **ONE_OF_TWO}, Need.GPU),
        (common_steps, LONE, Need.RANKS),
        (time_between_failures, LONE, Need.DECLARATION),
    ],
)
def test_missing_metric_says_what_it_needs(metric, tables, need):
    m = metrics(rank(steps=FORTY, **tables))

    for _ in ("computed", "remembered"):
        with pytest.raises(Missing) as caught:
            m[metric]
        assert caught.value.need is need


def test_unused_gpu_of_machine_does_not_satisfy_need():
    m = metrics(rank(steps=FORTY, models=ON_CPU), gpus=GPUS)

    with pytest.raises(Missing) as caught:
        m[oom_count]
    assert caught.value.need is Need.GPU


def test_unused_gpu_is_not_a_device_of_program():
    on_cpu = rank(steps=FORTY, models=(ModelFact(id=1, devices={"cpu": 8}),))
    m = metrics(on_cpu, gpus=GPUS, gpu_samples=(GpuSample(time=2.0, gpu=0, utilization=0.9),))

    for metric in (device, gpu_utilization, gpu_energy):
        with pytest.raises(Missing):
            m[metric]


@pytest.mark.parametrize("reason", [*WINDOW_REMEDIES, "some other"])
def test_remedy_for_missing_window_fits_reason(reason):
    on_gpu = rank(devices=(DeviceFact(id=0),), window_state=WindowsFact(reason=reason))
    with pytest.raises(Missing) as caught:
        metrics(on_gpu)[kernels_per_step]
    assert caught.value.remedy == WINDOW_REMEDIES.get(reason, WINDOW_REMEDIES["failed"])
    assert caught.value.need is Need.RUN


def test_missing_gpu_is_only_reason_without_gpu():
    with pytest.raises(Missing) as caught:
        metrics(rank(window_state=WindowsFact(reason="budget")))[kernels_per_step]
    assert caught.value.need is Need.GPU
    assert caught.value.remedy not in WINDOW_REMEDIES.values()


def test_no_gpu():
    m = metrics(rank(steps=FORTY))
    for metric in (device, gpu_utilization, sm_clock_ratio, gpu_energy, gpu_busy_fraction, host_launch, matmul_share):
        with pytest.raises(Missing) as caught:
            m[metric]
        assert caught.value.remedy


def test_the_window():
    m = windowed(
        busy=0.12,
        kernels=300,
        median_kernel=4e-6,
        idle_launch=0.03,
        idle_data=0.04,
        idle_sync=0.01,
        communication_exposed=0.05,
        h2d=0.01,
        h2d_pageable=0.004,
    )

    assert m[gpu_busy_fraction] == pytest.approx(0.6)
    assert m[launch_bound_index] == pytest.approx(0.3)
    assert m[kernels_per_step] == 150
    assert m[median_kernel_us] == pytest.approx(4.0)
    assert m[h2d_pageable_share] == pytest.approx(0.4)


def test_cpu_window_has_no_gpu_metrics():
    with pytest.raises(Missing):
        windowed(device="cpu", busy=0.1)[gpu_busy_fraction]


def test_shares_of_busy_time():
    m = windowed(
        kernel("matmul", 0.30, dtype="fp32"),
        kernel("matmul", 0.10, dtype="tf32", tensor_cores=True),
        kernel("convolution", 0.15, dtype="bf16", tensor_cores=True),
        kernel("convolution", 0.05, dtype="fp32"),
        kernel("attention", 0.05, tensor_cores=True),
        kernel("elementwise", 0.10),
        kernel("normalization", 0.05),
        kernel("copy", 0.05),
        kernel("optimizer", 0.15),
        kernel("host", 9.0),
    )

    assert m[matmul_share] == pytest.approx(0.60)
    assert m[membound_share] == pytest.approx(0.20)
    assert m[optim_share] == pytest.approx(0.15)
    assert m[tensor_core_fraction] == pytest.approx(0.30)
    assert m[fp32_matmul_share] == pytest.approx(0.45)
    assert m[simt_fp32_matmul_share] == pytest.approx(0.35)
    assert m[simt_fp32_gemm_share] == pytest.approx(0.30)
    assert m[compute_dtype_mix] == pytest.approx({"fp32": 0.35 / 0.6, "tf32": 1 / 6, "bf16": 0.25})


def test_shares_of_16_bit_convolution_and_layout_kernels():
    m = windowed(
        kernel("matmul", 0.20, dtype="bf16"),
        replace(kernel("matmul", 0.20, dtype="bf16"), calls=3),
        kernel("matmul", 0.10, dtype="fp16"),
        kernel("convolution", 0.20, dtype="fp16"),
        kernel("convolution", 0.10, dtype="fp32"),
        replace(kernel("copy", 0.05), name="void cudnn::ops::nchwToNhwcKernel<__half>"),
        replace(kernel("copy", 0.05), name="void cudnn::ops::nhwcToNchwKernel<__half>"),
        kernel("copy", 0.10),
    )

    assert m[bf16_gemm_share] == pytest.approx(0.4)
    assert m[bf16_gemm_us] == pytest.approx(1e5)
    assert m[fp16_matmul_share] == pytest.approx(0.3)
    assert m[conv_share] == pytest.approx(0.3)
    assert m[layout_share] == pytest.approx(0.1)
    with pytest.raises(Missing, match="bf16"):
        windowed(kernel("matmul", 1.0, dtype="fp32"))[bf16_gemm_us]


def test_fp64_share_ignores_argument_types_in_kernel_names():
    of_double = kernel("elementwise", 0.3, name="void at::native::vectorized_elementwise_kernel<4, AddFunctor<double>>")
    optional = kernel("elementwise", 0.2, name="nan_to_num_kernel_cuda(at::TensorIteratorBase&, c10::optional<double>)")
    matmul = kernel("matmul", 0.1, name="ampere_dgemm_64x64_nn")
    m = windowed(of_double, optional, matmul, kernel("matmul", 0.4))

    assert m[fp64_share] == pytest.approx(0.4)


def test_membound_share_excludes_embedding_tables():
    table = kernel("copy", 0.5, name="split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel")
    miopen = kernel("layout", 0.2, name="batched_transpose_16x64_pack_1x4_ediv_1x2_half")
    m = windowed(table, miopen, kernel("elementwise", 0.3))

    assert m[membound_share] == pytest.approx(0.5)
    assert m[layout_share] == pytest.approx(0.2)


def test_host_launch():
    assert metrics(rank(steps=steps(*[0.1] * 40, host_launch=0.02)))[host_launch] == pytest.approx(0.02)


def test_host_launch_of_windows_excludes_profiler_overhead():
    """Two steps of 0.1 s took 0.125 s each in the window, and launching their work took 0.095 s."""
    m = windowed(steps=2, duration=0.25, cost=0.1, host_launch=0.19, busy=0.1, idle_launch=0.15)

    assert m[host_launch] == pytest.approx((0.19 - 0.05) / 2)


def test_profiler_overhead_is_at_most_half_of_trace():
    """A trace of a million events in 0.1 s: at a microsecond each, nothing of the host's time would remain."""
    asked = {"idle_launch": 0.08, "host_launch": 0.1, "busy": 0.02, "idle_data": 0.0, "idle_sync": 0.0, "events": 10**6}
    window = Window(pid=1, start=1.0, steps=1, duration=0.1, cost=0.0, device="cuda", **asked)
    one = rank(windows=(window,), steps=steps(0.1, host_launch=0.1), traces=(TraceFact(id=0, steps=1, seconds=0.1),))
    m = metrics(one, runs=())

    assert m[launch_bound_index] == pytest.approx(0.03 / 0.05)
    assert m[host_launch] == pytest.approx(0.05)


def test_profiler_overhead_is_not_counted_as_launch_idle():
    own = {"steps": 2, "duration": 0.25, "cost": 0.1, "busy": 0.16, "idle_launch": 0.06, "idle_data": 0.03}
    m = windowed(**own, idle_sync=0.0)

    assert m[gpu_busy_fraction] == pytest.approx(0.16 / 0.2)
    assert m[launch_bound_index] == pytest.approx(0.01 / 0.17)
    imported = windowed(**own | {"cost": 0.0}, idle_sync=0.0)
    assert imported[gpu_busy_fraction] == pytest.approx(0.16 / 0.25), "a trace has no other steps"
    assert imported[launch_bound_index] == pytest.approx(0.06 / 0.22)


def test_shares_of_the_step_come_from_windows_without_shapes():
    plain = {"pid": 1, "start": 1.0, "steps": 2, "cost": 0.1, "device": "cuda"}
    windows = (
        Window(**plain, duration=0.25, h2d=0.02, communication=0.06, communication_exposed=0.04),
        Window(**plain, duration=0.9, h2d=0.3, communication=0.5, communication_exposed=0.4, shapes=True),
    )
    m = metrics(rank(steps=FORTY, windows=windows))

    assert m[h2d_fraction] == pytest.approx(0.02 / 0.2)
    assert m[exposed_comm_fraction] == pytest.approx(0.04 / 0.2)
    assert m[comm_total] == pytest.approx(0.06 / 2)


def test_hidden_communication_does_not_dilute_compute_shares():
    """Collectives and copies overlap with the kernels: the shares are those of the computing kernels."""
    m = windowed(
        kernel("matmul", 0.07, dtype="bf16"),
        kernel("elementwise", 0.03),
        kernel("communication", 0.08),
        Kernel(pid=1, window=0, device="cuda", name="Memcpy HtoD (Pinned -> Device)", kind="copy", calls=1, total=0.05),
        busy=0.18,
        communication_exposed=0.08,
    )

    assert m[matmul_share] == pytest.approx(0.7)
    assert m[bf16_gemm_share] == pytest.approx(0.7)
    assert m[membound_share] == pytest.approx(0.3)
    assert m[gpu_computing_fraction] == pytest.approx(0.1 / 0.2)


def test_times_of_kernels_in_graphs_are_not_used_where_cupti_misreports_them():
    window = Window(pid=1, start=1.0, steps=2, duration=0.2, cost=0.1, device="cuda", busy=0.1, h2d=0.1)
    fact = TraceFact(id=0, steps=2, seconds=0.2, parts={"idle_queued": 0.05})
    tables = {"steps": FORTY, "windows": (window,), "kernels": (kernel("matmul", 1.0),), "traces": (fact,)}
    trusted = metrics(rank(**tables, window_state=WindowsFact()))
    wrong = metrics(rank(**tables, window_state=WindowsFact(graph_times_wrong=True)))

    for metric in (gpu_busy_fraction, matmul_share, h2d_fraction, idle_queued_fraction):
        assert trusted[metric] > 0
        with pytest.raises(Missing):
            wrong[metric]


def test_achieved_matmul_flops_is_missing_without_shapes():
    with pytest.raises(Missing):
        windowed(kernel("matmul", 1.0))[achieved_matmul_flops]


def test_idle_time_before_queued_kernels_comes_from_the_breakdown():
    window = Window(pid=1, start=1.0, steps=2, duration=0.2, cost=0.0, device="cuda", busy=0.1, kernels=1000)
    fact = TraceFact(id=0, steps=2, seconds=0.2, parts={"compute": 0.1, "idle_queued": 0.05})
    m = metrics(rank(windows=(window,), steps=FORTY, traces=(fact,)))

    assert (m[idle_queued_fraction], m[idle_queued_us]) == pytest.approx((0.25, 50.0))


def test_queued_idle_time_is_missing_without_breakdown():
    with pytest.raises(Missing):
        windowed()[idle_queued_fraction]
