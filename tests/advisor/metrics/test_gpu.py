from dataclasses import replace

import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing, Need
from advisor.metrics.communication import common_steps
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
    gpu_busy_fraction,
    h2d_pageable_share,
    half_conv_share,
    host_launch,
    kernels_per_step,
    launch_bound_index,
    layout_share,
    matmul_share,
    median_kernel_us,
    membound_share,
    optim_share,
    simt_fp32_gemm_share,
    simt_fp32_matmul_share,
    tensor_core_fraction,
)
from advisor.metrics.hardware import gpu_energy, gpu_utilization, sm_clock_ratio
from advisor.metrics.memory import mem_params, oom_count
from advisor.metrics.stack import stack_mismatches
from advisor.metrics.step import data_wait_fraction, exposed_comm_fraction, h2d_fraction
from profiler.schema import DeviceFact, Gpu, GpuSample, Kernel, ModelFact, Window

FORTY = steps(*[0.1] * 40)
GPUS = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="A100", capability=(8, 0), memory_total=80 << 30) for n in range(2))


def windowed(*kernels, **columns):
    values = {"steps": 2, "duration": 0.2, "cost": 0.0, "device": "cuda", **columns}
    return metrics(rank(steps=FORTY, windows=(Window(pid=1, start=1.0, **values),), kernels=kernels))


def kernel(kind, total, **columns):
    return Kernel(pid=1, window=0, device="cuda", name=kind, kind=kind, calls=1, total=total, **columns)


def test_the_device_is_torchs_or_else_nvmls():
    of_nvml = metrics(rank(steps=FORTY), gpus=GPUS)[device]
    fact = DeviceFact(id=0, name="H100", capability=(9, 0), memory_total=1)
    of_torch = metrics(rank(steps=FORTY, devices=(fact,)), gpus=GPUS)[device]

    assert (of_nvml.name, of_nvml.count) == ("A100", 2)
    assert (of_torch.name, of_torch.capability, of_torch.count) == ("H100", (9, 0), 2)


def test_the_capability_is_the_devices_where_it_is_known():
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
def test_what_is_missing_is_for_want_of(metric, tables, need):
    m = metrics(rank(steps=FORTY, **tables))

    for _ in ("computed", "remembered"):
        with pytest.raises(Missing) as caught:
            m[metric]
        assert caught.value.need is need


def test_a_gpu_that_is_only_in_the_machine_is_needed_still():
    m = metrics(rank(steps=FORTY, models=ON_CPU), gpus=GPUS)

    with pytest.raises(Missing) as caught:
        m[oom_count]
    assert caught.value.need is Need.GPU


def test_a_gpu_that_the_program_leaves_alone_is_none_of_its_devices():
    on_cpu = rank(steps=FORTY, models=(ModelFact(id=1, devices={"cpu": 8}),))
    m = metrics(on_cpu, gpus=GPUS, gpu_samples=(GpuSample(time=2.0, gpu=0, utilization=0.9),))

    for metric in (device, gpu_utilization, gpu_energy):
        with pytest.raises(Missing):
            m[metric]


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


def test_a_cpu_window_says_nothing_of_a_gpu():
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


def test_sixteen_bits_convolutions_and_layouts():
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
    assert m[half_conv_share] == pytest.approx(0.2)
    assert m[layout_share] == pytest.approx(0.1)
    with pytest.raises(Missing, match="bf16"):
        windowed(kernel("matmul", 1.0, dtype="fp32"))[bf16_gemm_us]


def test_host_launch():
    assert metrics(rank(steps=steps(*[0.1] * 40, host_launch=0.02)))[host_launch] == pytest.approx(0.02)


def test_achieved_rate_is_not_known_yet():
    with pytest.raises(Missing):
        windowed(kernel("matmul", 1.0))[achieved_matmul_flops]
