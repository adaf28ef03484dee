from dataclasses import replace

import pytest
from profiles import RUN, metrics, nvml_uuid, rank, steps, torch_uuid

from advisor.metrics.base import Goals, Missing
from advisor.metrics.memory import (
    alloc_retries,
    fragmentation_ratio,
    mem_activations,
    mem_grads,
    mem_headroom,
    mem_nontorch,
    mem_optim,
    mem_params,
    mem_peak_allocated,
    mem_peak_reserved,
    memory_pressure,
    oom_count,
    ran_out_of_memory,
)
from advisor.runs.profile import Profile
from profiler.schema import DeviceFact, ErrorFact, Gpu, GpuSample, MemoryFact, MemorySample


def full(reserved=78, retries=0, ooms=0, goals=None, held=82, free=None, nvml=True):
    """Return metrics of a device of 100 bytes: 60 allocated, 35 of them states."""
    samples = tuple(
        MemorySample(
            time=t,
            pid=1,
            device=0,
            allocated=50,
            allocated_peak=60,
            reserved=reserved,
            reserved_peak=reserved,
            retries=retries if t else 0,
            ooms=ooms if t else 0,
        )
        for t in (0.0, 2.0)
    )
    idle = MemorySample(time=1.0, pid=1, device=1, allocated=1, allocated_peak=1, reserved=2, reserved_peak=2)
    peak = MemoryFact(id=0, parameters=10, gradients=5, optimizer=20, allocated_peak=60, reserved_peak=reserved)
    if free is not None:
        peak = replace(peak, reserved=reserved, free=free, total=100)
    fact = DeviceFact(id=0, uuid=torch_uuid(1), memory_total=100)
    gpus = (
        Gpu(index=4, uuid=nvml_uuid(2), name="x", memory_total=1),
        Gpu(index=5, uuid=nvml_uuid(1), name="x", memory_total=100),
    )
    used = (GpuSample(time=1.0, gpu=4, process_memory=999), GpuSample(time=1.0, gpu=5, process_memory=held))
    return metrics(
        rank(steps=steps(*[0.1] * 40), memory_samples=(*samples, idle), memory_peaks=(peak,), devices=(fact,)),
        goals=goals,
        gpus=gpus if nvml else (),
        gpu_samples=used if nvml else (),
    )


def test_the_parts_at_the_peak():
    m = full()

    assert (m[mem_params], m[mem_grads], m[mem_optim], m[mem_activations]) == (10, 5, 20, 25)
    assert (m[mem_peak_allocated], m[mem_peak_reserved], m[mem_nontorch]) == (60, 78, 4)


def test_headroom_and_fragmentation():
    m = full()

    assert m[mem_headroom] == pytest.approx(0.18)
    assert m[fragmentation_ratio] == pytest.approx(18 / 78)


def test_headroom_uses_torch_free_memory_without_nvml():
    m = full(nvml=False, free=17)

    assert m[mem_nontorch] == 5
    assert m[mem_headroom] == pytest.approx(0.17)
    assert full(free=17)[mem_nontorch] == 4, "NVML knows which memory is the run's own"
    assert full(held=0, free=17)[mem_nontorch] == 5, "NVML reports no memory of the run, as under CUDA MPS"
    with pytest.raises(Missing):
        full(nvml=False)[mem_headroom]


@pytest.mark.parametrize("written", [torch_uuid(1), f"MIG-{torch_uuid(1)}", f" {nvml_uuid(1).upper()}", nvml_uuid(1)])
def test_gpu_is_matched_by_uuid_in_any_notation(written):
    gpus = (
        Gpu(index=0, uuid=nvml_uuid(2), name="x", memory_total=1),
        Gpu(index=1, uuid=written, name="x", memory_total=1),
    )
    profile = Profile(runs=(RUN,), gpus=gpus)

    assert profile.gpu_of(DeviceFact(id=0, uuid=torch_uuid(1))) == gpus[1]
    assert profile.gpu_of(DeviceFact(id=0, uuid=None)) is None


def test_counters():
    m = full(retries=3, ooms=1)

    assert (m[alloc_retries], m[oom_count]) == (3, 1)


def test_failed_allocations_before_steady_steps_do_not_count():
    tried = MemorySample(
        time=0.5, pid=1, device=0, allocated=1, allocated_peak=1, reserved=1, reserved_peak=1, retries=2, ooms=4
    )
    late = replace(tried, time=3.0, retries=3)
    m = metrics(rank(steps=steps(*[0.1] * 40), memory_samples=(tried, late)))

    assert (m[alloc_retries], m[oom_count]) == (1, 0)
    assert metrics(rank(memory_samples=(tried,)))[oom_count] == 4, "it never came to a step"


def test_pressure():
    assert full(retries=1)[memory_pressure] is True
    assert full(ooms=1)[memory_pressure] is True
    assert full()[memory_pressure] is False


def test_full_gpu_is_pressure_only_if_goals_need_more_memory():
    assert full(reserved=92, held=94)[memory_pressure] is False
    assert full(reserved=92, held=94, goals=Goals(capacity=True))[memory_pressure] is True
    assert full(reserved=92, held=94, goals=Goals(target_batch=64))[memory_pressure] is True
    assert full(goals=Goals(capacity=True))[memory_pressure] is False


def test_no_gpu():
    m = metrics(rank(steps=steps(*[0.1] * 40)))
    for metric in (mem_params, mem_peak_reserved, mem_headroom, memory_pressure):
        with pytest.raises(Missing):
            m[metric]


@pytest.mark.parametrize(
    ("error", "ran_out"),
    [
        (None, False),
        (ErrorFact(type="torch.OutOfMemoryError", message="CUDA out of memory"), True),
        (ErrorFact(type="RuntimeError", message="DefaultCPUAllocator: can't allocate memory: 12 bytes"), True),
        (ErrorFact(type="MemoryError"), True),
        (ErrorFact(type="RuntimeError"), False),
        (ErrorFact(type="RuntimeError", message="DataLoader worker (pid 7) is killed by signal: Killed."), False),
    ],
)
def test_recognizes_out_of_memory_errors(error, ran_out):
    healthy = rank(steps=steps(3))
    assert metrics(ranks=(healthy, replace(healthy, error=error)))[ran_out_of_memory] is ran_out
