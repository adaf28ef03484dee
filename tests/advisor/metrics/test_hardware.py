from dataclasses import replace

import pytest
from profiles import metrics, nvml_uuid, rank, steps, torch_uuid

from advisor.metrics.base import Missing
from advisor.metrics.hardware import (
    REASONS,
    capped_clock_ratio,
    gpu_energy,
    gpu_power,
    gpu_utilization,
    pcie_ratio,
    power_cap,
    power_ratio,
    set_clock_ratio,
    sm_active,
    sm_clock_ratio,
    thermal_throttle_share,
    throttle_reasons,
    throttled_gpu,
)
from profiler.schema import DeviceFact, Gpu, GpuSample, MemoryFact

FORTY = steps(*[0.1] * 40)
GPUS = tuple(
    Gpu(
        index=n,
        uuid=nvml_uuid(n),
        name="A100",
        capability=(8, 0),
        memory_total=80 << 30,
        sm_clock_max=1400,
        power_limit=400.0,
        pcie_generation_max=4,
        pcie_width_max=16,
    )
    for n in range(2)
)


def sampled(*samples):
    return metrics(rank(steps=FORTY), gpus=GPUS, gpu_samples=samples)


def sample(gpu=0, time=2.0, utilization=0.9, **columns):
    return GpuSample(time=time, gpu=gpu, utilization=utilization, **columns)


def test_utilization_of_the_steady_part():
    m = sampled(sample(time=0.1, utilization=0.0), sample(utilization=0.5), sample(utilization=0.9, count=3))

    assert m[gpu_utilization] == pytest.approx(0.8)


def test_sm_active_ignores_idle_samples():
    m = sampled(sample(sm_active=0.8), sample(utilization=0.0, sm_active=0.0))

    assert m[sm_active] == pytest.approx(0.8)


def test_sm_activity_shows_busy_samples_without_utilization():
    m = sampled(sample(utilization=None, sm_active=0.6), sample(utilization=None, sm_active=0.0))

    assert m[sm_active] == pytest.approx(0.6)


def test_the_hot_gpu_is_found():
    m = sampled(
        *[sample(0, throttle=0x4, sm_clock=1000)] * 4,
        *[sample(1, throttle=0x40 | 0x4, sm_clock=700)] * 3,
        sample(1, throttle=0, sm_clock=1400),
    )

    assert m[throttled_gpu].index == 1
    assert m[thermal_throttle_share] == pytest.approx(0.75)
    assert m[sm_clock_ratio] == pytest.approx((3 * 700 + 1400) / 4 / 1400)
    assert m[throttle_reasons] == (REASONS[0x4], REASONS[0x40])


def test_lowest_clock_decides_between_equally_throttled_gpus():
    m = sampled(
        sample(0, throttle=0, sm_clock=1300, count=3),
        sample(1, throttle=0, sm_clock=1000, count=9),
        sample(1, throttle=0, sm_clock=1800),
    )

    assert m[throttled_gpu].index == 1


def test_power_cap_is_not_thermal_throttling():
    assert sampled(sample(throttle=0x4, sm_clock=1300))[thermal_throttle_share] == 0.0


def test_idle_samples_are_not_throttling():
    m = sampled(sample(throttle=0x40, utilization=0.0), sample(throttle=0, sm_clock=1400))

    assert m[thermal_throttle_share] == 0.0


def test_thermal_share_of_merged_samples_depends_on_clock():
    once = sampled(sample(throttle=0x40, sm_clock=1390, count=20))
    throughout = sampled(sample(throttle=0x40, sm_clock=900, count=20))
    at_the_power_cap = sampled(sample(throttle=0x40 | 0x4, sm_clock=900, count=20))

    assert once[thermal_throttle_share] == pytest.approx(0.05)
    assert throughout[thermal_throttle_share] == pytest.approx(1.0)
    assert at_the_power_cap[thermal_throttle_share] == pytest.approx(0.05)


def test_power_and_energy():
    m = sampled(
        sample(0, power=200.0, energy=1000.0),
        sample(0, power=400.0, energy=1500.0),
        sample(1, power=100.0, energy=70.0),
        sample(1, power=100.0, energy=90.0),
    )

    assert m[gpu_power] == pytest.approx(400.0)
    assert m[power_ratio] == pytest.approx(0.5)
    assert m[gpu_energy] == pytest.approx(520.0)


def test_pcie_ratio_combines_width_and_generation():
    m = sampled(
        sample(0, pcie_generation=4, pcie_width=16),
        sample(1, pcie_generation=1, pcie_width=8),
        sample(1, pcie_generation=3, pcie_width=8),
    )

    assert m[pcie_ratio] == pytest.approx(0.25)


def test_gpus_used_by_others_are_ignored():
    ours, theirs = sample(0, process_memory=5, throttle=0), sample(1, process_memory=0, throttle=0x40, utilization=0.1)
    hidden = sampled(replace(ours, process_memory=0), theirs)

    assert sampled(ours, theirs)[throttled_gpu].index == 0
    assert sampled(ours, theirs)[gpu_utilization] == pytest.approx(0.9)
    assert hidden[gpu_utilization] == pytest.approx(0.5)


def test_torch_devices_identify_gpus_in_container():
    theirs = sample(0, throttle=0x40, sm_clock=600)
    ours = sample(1, throttle=0, sm_clock=1400)
    devices = tuple(DeviceFact(id=n, uuid=torch_uuid(1 - n)) for n in (0, 1))

    def within(peaks=(), devices=devices):
        trained = rank(steps=FORTY, devices=devices, memory_peaks=peaks)
        return metrics(trained, gpus=GPUS, gpu_samples=(theirs, ours))

    assert within((MemoryFact(id=0, allocated_peak=1),))[throttled_gpu].index == 1
    assert within(devices=devices[:1])[throttled_gpu].index == 1
    assert within()[throttled_gpu].index == 0, "both may be used"


def test_sm_active_of_always_idle_gpu_is_measured():
    m = sampled(*[sample(utilization=0.06, sm_active=0.02)] * 3)

    assert m[sm_active] == pytest.approx(0.02)
    with pytest.raises(Missing):
        m[sm_clock_ratio]


def limited(*limits, name="NVIDIA A100-SXM4-80GB"):
    """Return metrics of GPUs with 400 W on the data sheet and other limits in force; only the first two are busy."""
    gpus = tuple(
        replace(GPUS[0], index=n, uuid=nvml_uuid(n), name=name, power_limit=limit) for n, limit in enumerate(limits)
    )
    samples = [sample(n, utilization=0.9 if n < 2 else 0.0) for n in range(len(limits))]
    return metrics(rank(steps=FORTY), gpus=gpus, gpu_samples=samples)


def test_power_cap_is_lowest_limit_of_busy_gpus():
    assert limited(400.0, 300.0, 100.0)[power_cap] == pytest.approx(0.75)


@pytest.mark.parametrize("unknown", [limited(None), limited(400.0, name="NVIDIA Next")])
def test_power_cap_is_missing_for_unknown_gpu_or_limit(unknown):
    with pytest.raises(Missing):
        unknown[power_cap]


def test_set_clock_ratio_counts_only_locked_clocks():
    locked, heated, free = (sample(throttle=bits, sm_clock=700) for bits in (0x2, 0x2 | 0x20, 0))

    assert sampled(locked, locked, free)[set_clock_ratio] == pytest.approx(0.5)
    assert sampled(locked, heated, free)[set_clock_ratio] == 1.0


def test_the_clock_under_the_power_cap():
    capped, free = sample(throttle=0x4, sm_clock=700), sample(throttle=0, sm_clock=1400)

    assert sampled(capped, capped, free)[capped_clock_ratio] == pytest.approx(0.5)
    assert sampled(capped, free, free)[capped_clock_ratio] == 1.0
    with pytest.raises(Missing):
        sampled(sample(sm_clock=700))[capped_clock_ratio]
