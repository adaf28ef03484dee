import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from profiler.recorder import gpu as gpu_module
from profiler.recorder import nvml as nvml_module
from profiler.recorder.gpu import GpuSampler
from profiler.recorder.nvml import choose

GPUS = ["GPU-aa1", "GPU-ab2", "GPU-ab3"]
MIGS = ["MIG-c4"]
GPM = {"gpm": 1, "gpm.2": 80, "gpm.3": 40, "gpm.5": 25, "gpm.10": 10}
NOT_SUPPORTED, NO_PERMISSION, NOT_READY, GPU_IS_LOST = 3, 4, 27, 15


@pytest.fixture
def opened(nvml):
    samplers = []

    def open_(visible=None, order=None, **values):
        nvml.says(**values)
        samplers.append(GpuSampler(visible, order))
        return samplers[-1]

    yield open_
    for sampler in samplers:
        sampler.close()


def only(sampler, time=0.0, pids=()):
    (row,) = sampler.sample(time, pids)
    return row


def second(sampler):
    """Return the second row: the first is too soon after the sampler was opened to have counters."""
    only(sampler, time=0.0)
    return only(sampler, time=0.2)


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        (None, GPUS),
        ("1,0", ["GPU-ab2", "GPU-aa1"]),
        (" 2 ", ["GPU-ab3"]),
        ("0,0", ["GPU-aa1"]),
        ("GPU-ab3", ["GPU-ab3"]),
        ("GPU-a", []),
        ("GPU-aa,MIG-c", ["GPU-aa1", "MIG-c4"]),
        ("0,7,1", ["GPU-aa1"]),
        ("1,-1,0", ["GPU-ab2"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_gpus_are_chosen_like_cuda_does(visible, chosen):
    assert choose(visible, GPUS, MIGS) == chosen


def test_a_gpu_that_cannot_be_opened_is_not_chosen():
    assert choose(None, ["", "GPU-b"], []) == ["GPU-b"]
    assert choose("0", ["", "GPU-b"], []) == []


def test_a_gpu_is_described(opened):
    (gpu,) = opened(**{"name": "Stub H1", "memory": 64e9, "power_limit": 350000}).gpus

    assert gpu.index == 0
    assert gpu.uuid == "GPU-00000000-stub"
    assert gpu.name == "Stub H1"
    assert gpu.capability == (9, 0)
    assert gpu.memory_total == 64_000_000_000
    assert gpu.sm_clock_max == 1980
    assert (gpu.memory_clock_max, gpu.memory_bus_width) == (2619, None), "the stub has no bus"
    assert gpu.power_limit == pytest.approx(350.0)
    assert (gpu.pcie_generation_max, gpu.pcie_width_max) == (5, 16)
    assert (gpu.driver, gpu.cuda_driver) == ("580.00", "13.1")
    assert gpu.mig is False
    assert gpu.gpm is False


def test_sample_uses_schema_units(opened):
    sampler = opened(
        utilization=75,
        used=5e9,
        power=123456,
        energy=987654,
        sm_clock=1500,
        memory_clock=2600,
        throttle=0x24,
        temperature=61,
        pcie_generation=3,
        pcie_width=8,
    )

    row = only(sampler, time=1.5)

    assert (row.time, row.gpu, row.count) == (1.5, 0, 1)
    assert row.utilization == pytest.approx(0.75)
    assert row.memory_used == 5_000_000_000
    assert row.power == pytest.approx(123.456)
    assert row.energy == pytest.approx(987.654)
    assert (row.sm_clock, row.memory_clock) == (1500, 2600)
    assert row.throttle == 0x24
    assert row.temperature == 61
    assert (row.pcie_generation, row.pcie_width) == (3, 8)
    assert row.sm_active is None
    assert sampler.problems == []


def test_each_visible_gpu_is_sampled_under_its_own_index(opened):
    sampler = opened("1,0", gpus=2, **{"0.power": 1000, "1.power": 2000})

    assert [gpu.index for gpu in sampler.gpus] == [1, 0]
    assert {row.gpu: row.power for row in sampler.sample(0.0, ())} == {0: 1.0, 1: 2.0}


def test_values_are_read_again_for_each_sample(opened, nvml):
    sampler = opened(utilization=10)
    assert only(sampler).utilization == 0.1

    nvml.says(utilization=90)

    assert only(sampler).utilization == 0.9


READ_BY = {
    "utilization": "nvmlDeviceGetUtilizationRates",
    "memory_used": "nvmlDeviceGetMemoryInfo",
    "process_memory": "nvmlDeviceGetComputeRunningProcesses_v3",
    "power": "nvmlDeviceGetPowerUsage",
    "energy": "nvmlDeviceGetTotalEnergyConsumption",
    "temperature": "nvmlDeviceGetTemperature",
    "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
}


@pytest.mark.parametrize("field", READ_BY)
def test_unsupported_field_is_none_and_not_queried_again(opened, nvml, monkeypatch, field):
    for period in ("POWER_PERIOD", "SLOW_PERIOD"):
        monkeypatch.setattr(gpu_module, period, 0.0)
    sampler = opened()
    before = only(sampler)
    failing = READ_BY[field]
    nvml.says(**{f"fail.{failing}": NOT_SUPPORTED})

    after = only(sampler, time=0.1)
    asked = nvml.calls.count(f"{failing} 0")
    nvml.says()
    last = only(sampler, time=0.2)

    assert after == replace(before, time=0.1, **{field: None})
    assert last == replace(before, time=0.2, **{field: None})
    assert nvml.calls.count(f"{failing} 0") == asked
    assert sampler.problems == []


def test_one_clock_may_be_missing_without_the_other(opened, nvml, monkeypatch):
    sampler = opened(sm_clock=1500, memory_clock=2600)
    real = pynvml.nvmlDeviceGetClockInfo

    def without_memory_clock(handle, clock):
        if clock == pynvml.NVML_CLOCK_MEM:
            raise pynvml.NVMLError(NOT_SUPPORTED)
        return real(handle, clock)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", without_memory_clock)

    row = only(sampler)

    assert (row.sm_clock, row.memory_clock) == (1500, None)


def test_transient_error_affects_one_sample(opened, nvml):
    sampler = opened(power=1000)
    nvml.says(**{"power": 1000, "fail.nvmlDeviceGetPowerUsage": NOT_READY})
    assert only(sampler).power is None

    nvml.says(power=1000)

    assert only(sampler, time=gpu_module.POWER_PERIOD).power == 1.0


def test_slow_readings_are_cached_between_queries(opened, nvml):
    sampler = opened(power=1000)
    before = nvml.calls
    rows = [only(sampler, time=tick / 10, pids={41}) for tick in range(40)]
    asked = nvml.calls[len(before) :]

    assert {row.power for row in rows} == {1.0}
    assert None not in {value for row in rows for value in (row.temperature, row.pcie_width, row.process_memory)}
    counts = {field: asked.count(f"{name} 0") for field, name in READ_BY.items()}
    assert counts == {
        "utilization": 40,
        "memory_used": 40,
        "power": 8,
        "energy": 8,
        "process_memory": 2,
        "temperature": 2,
        "pcie_generation": 2,
        "pcie_width": 2,
    }


def test_new_process_memory_is_queried_at_once(opened, nvml):
    sampler = opened()
    only(sampler, pids={41})
    before = len(nvml.calls)

    only(sampler, time=0.1, pids={41, 42})

    assert nvml.calls[before:].count("nvmlDeviceGetComputeRunningProcesses_v3 0") == 1


def test_unsupported_field_on_one_gpu_does_not_affect_the_other(opened):
    sampler = opened(gpus=2, **{"power": 1000, "0.fail.nvmlDeviceGetPowerUsage": NOT_SUPPORTED})

    assert [row.power for row in sampler.sample(0.0, ())] == [None, 1.0]


def test_missing_permission_is_reported_once_per_gpu(opened):
    refused = {f"fail.{name}": NO_PERMISSION for name in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature")}
    sampler = opened(**refused)

    row = only(sampler, time=3.0)
    only(sampler, time=4.0)

    assert (row.power, row.temperature) == (None, None)
    (problem,) = sampler.problems
    assert problem.source == "nvml"
    assert problem.time == 3.0
    assert "GPU 0" in problem.message
    assert "permission" in problem.message


@pytest.mark.process
def test_clock_reasons_fall_back_to_their_old_name(nvml, without):
    without("nvmlDeviceGetCurrentClocksEventReasons")
    nvml.says(throttle=0x40)
    sampler = GpuSampler()

    assert only(sampler).throttle == 0x40
    assert "nvmlDeviceGetCurrentClocksEventReasons 0" not in nvml.calls
    assert sampler.problems == []
    sampler.close()


@pytest.mark.process
def test_old_driver_only_lacks_fields(nvml, without):
    without("nvmlDeviceGetTotalEnergyConsumption", "nvmlGpmQueryDeviceSupport", "nvmlDeviceGetMigMode")
    nvml.says(power=1000, energy=5)
    sampler = GpuSampler()
    row = only(sampler)
    sampler.close()

    assert (row.power, row.energy) == (1.0, None)
    assert (sampler.gpus[0].mig, sampler.gpus[0].gpm) == (None, False)


def test_lost_gpu_is_reported_and_no_longer_sampled(opened, nvml):
    sampler = opened(gpus=2)
    nvml.says(**{"gpus": 2, "0.fail.nvmlDeviceGetMemoryInfo": GPU_IS_LOST})
    sampler.sample(7.0, ())

    assert [row.gpu for row in sampler.sample(8.0, ())] == [1]
    (problem,) = sampler.problems
    assert problem.time == 7.0
    assert "Xid" in problem.message


def test_process_memory_sums_the_processes_of_the_run(opened):
    sampler = opened(**{"0.process": ["41 1000", "42 500", "99 7"]})
    assert only(sampler, pids={41, 42, 43}).process_memory == 1500


def test_process_memory_is_zero_before_the_run_uses_the_gpu(opened, monkeypatch):
    monkeypatch.setattr(gpu_module, "_in_pid_namespace", lambda: False)
    assert only(opened(**{"0.process": "99 7"}), pids={41}).process_memory == 0


def test_process_memory_is_unknown_in_a_pid_namespace(opened, monkeypatch):
    monkeypatch.setattr(gpu_module, "_in_pid_namespace", lambda: True)
    assert only(opened(**{"0.process": "99 7"}), pids={41}).process_memory is None


def test_process_memory_is_unknown_if_nvml_omits_it(opened):
    sampler = opened(**{"0.process": ["41 18446744073709551615", "42 500"]})
    assert only(sampler, pids={41, 42}).process_memory is None


def test_counters_are_fractions(opened):
    sampler = opened(**GPM)
    assert sampler.gpus[0].gpm is True

    row = second(sampler)

    assert row.sm_active == pytest.approx(0.8)
    assert row.sm_occupancy == pytest.approx(0.4)
    assert row.tensor_active == pytest.approx(0.25)
    assert row.dram_active == pytest.approx(0.1)


def test_counters_are_not_read_faster_than_nvml_refreshes_them(opened):
    sampler = opened(**GPM)

    active = [only(sampler, time=tick / 10).sm_active for tick in range(6)]

    assert [value is not None for value in active] == [False, False, True, False, True, False]


def test_one_counter_may_be_missing(opened):
    row = second(opened(**{key: value for key, value in GPM.items() if key != "gpm.5"}))

    assert row.tensor_active is None
    assert row.sm_active == pytest.approx(0.8)


@pytest.mark.parametrize("visible", [None, "MIG-0"])
def test_counter_samples_are_freed(opened, nvml, visible):
    sampler = opened(visible, **GPM, **{"0.mig": 1})
    second(sampler)
    sampler.close()
    sampler.close()

    calls = [call.split()[0] for call in nvml.calls]
    assert calls.count("nvmlGpmSampleAlloc") == calls.count("nvmlGpmSampleFree") == 2
    assert calls.count("nvmlInitWithFlags") == calls.count("nvmlShutdown") == 1
    assert sampler.sample(1.0, ()) == []


def test_counters_refused_at_start_are_reported(opened, nvml):
    sampler = opened(**GPM, **{"fail.nvmlGpmSampleGet": NO_PERMISSION, "utilization": 50})

    assert sampler.gpus[0].gpm is False
    assert only(sampler).utilization == 0.5
    (problem,) = sampler.problems
    assert "GPM" in problem.message
    assert nvml.calls.count("nvmlGpmSampleFree 0") == 2


def test_counters_refused_later_are_reported_once(opened, nvml):
    sampler = opened(**GPM)
    only(sampler)
    nvml.says(**GPM, **{"fail.nvmlGpmSampleGet": NO_PERMISSION, "utilization": 50})

    assert only(sampler, time=1.0).sm_active is None
    assert only(sampler, time=2.0).utilization == 0.5
    assert len(sampler.problems) == 1
    assert nvml.calls.count("nvmlGpmSampleFree 0") == 2


def test_counters_continue_after_a_transient_error(opened, nvml):
    sampler = opened(**GPM)
    only(sampler)
    nvml.says(**GPM, **{"fail.nvmlGpmSampleGet": NOT_READY})
    assert only(sampler, time=1.0).sm_active is None

    nvml.says(**GPM)

    assert only(sampler, time=2.0).sm_active == pytest.approx(0.8)
    assert sampler.problems == []


def test_mig_device_has_own_memory_and_counters_but_board_power(opened, nvml):
    sampler = opened("MIG-0", **GPM, **{"0.mig": 1, "memory": 80e9, "mig.memory": 10e9, "power": 5000})

    (gpu,) = sampler.gpus
    row = second(sampler)

    assert gpu.uuid == "MIG-00000000-stub"
    assert (gpu.mig, gpu.gpm, gpu.memory_total) == (True, True, 10_000_000_000)
    assert row.utilization is None
    assert row.power == 5.0
    assert row.sm_active == pytest.approx(0.8)
    assert "nvmlGpmSampleGet 0" not in nvml.calls


def test_all_gpus_are_sampled_if_cuda_index_is_ambiguous(opened):
    def sampled(visible, order=None, other="Large"):
        values = {"gpus": 2, "0.name": "Small", "1.name": other}
        return [gpu.index for gpu in opened(visible, order, **values).gpus]

    assert sampled("0") == [0, 1]
    assert sampled("0", order="PCI_BUS_ID") == [0]
    assert sampled("0", other="Small") == [0]
    assert sampled("GPU-0") == [0]


@pytest.mark.parametrize("visible", ["", "-1", " "])
def test_hidden_gpus_are_not_measured(opened, nvml, visible):
    sampler = opened(visible)

    assert sampler.gpus == ()
    assert sampler.sample(0.0, ()) == []
    assert "hides every GPU" in sampler.problems[0].message
    assert nvml.calls == []


def test_nonexistent_visible_gpu_is_reported(opened, nvml):
    sampler = opened("3", gpus=2)

    assert sampler.gpus == ()
    assert "'3'" in sampler.problems[0].message
    assert "nvmlShutdown 0" in nvml.calls


def test_gpu_that_cannot_be_opened_is_reported_and_others_sampled(opened):
    sampler = opened(gpus=2, **{"0.fail.nvmlDeviceGetHandleByIndex_v2": NO_PERMISSION})

    assert [gpu.index for gpu in sampler.gpus] == [1]
    assert [problem.code for problem in sampler.problems] == ["not-opened"]
    assert "GPU 0" in sampler.problems[0].message


@pytest.mark.parametrize(("error", "remedy"), [(9, "modprobe"), (18, "restart the machine"), (999, "nvidia-smi")])
def test_failing_nvml_is_reported_with_remedy(opened, error, remedy):
    sampler = opened(**{"fail.nvmlInitWithFlags": error})

    assert sampler.gpus == ()
    assert sampler.problems[0].code == "driver-fails"
    assert remedy in sampler.problems[0].message


def without_library(monkeypatch, traces):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    monkeypatch.setattr(nvml_module, "DRIVER_TRACES", traces)
    (problem,) = GpuSampler().problems
    return problem


def test_missing_driver_is_expected_on_a_cpu_machine(monkeypatch):
    assert without_library(monkeypatch, ()).code == "no-driver"


def test_driver_without_its_library_is_reported(monkeypatch, tmp_path):
    problem = without_library(monkeypatch, (str(tmp_path),))
    assert problem.code == "driver-fails"
    assert "NVIDIA_DRIVER_CAPABILITIES" in problem.message


@pytest.mark.process
def test_the_library_is_found_the_way_the_loader_finds_it(nvml):
    nvml.says(name="Loaded GPU", gpus=2)
    program = "from profiler.recorder.gpu import GpuSampler; print([gpu.name for gpu in GpuSampler('1').gpus])"
    environment = os.environ | {"PYTHONPATH": str(Path(gpu_module.__file__).parents[2])}

    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "['Loaded GPU']\n"


@pytest.mark.gpu
def test_a_real_gpu_is_sampled():
    sampler = GpuSampler()
    if not sampler.gpus:
        pytest.skip(sampler.problems[0].message)
    try:
        sampler.sample(0.0, [os.getpid()])
        time.sleep(0.3)  # the counters' refresh period
        rows = sampler.sample(1.0, [os.getpid()])
    finally:
        sampler.close()

    assert [row.gpu for row in rows] == [gpu.index for gpu in sampler.gpus]
    for gpu, row in zip(sampler.gpus, rows, strict=True):
        assert gpu.uuid.startswith(("GPU-", "MIG-"))
        assert row.memory_used is not None
        assert 0 < row.memory_used <= gpu.memory_total
        shares = [row.utilization, row.sm_active, row.sm_occupancy, row.tensor_active, row.dram_active]
        assert all(0 <= share <= 1 for share in shares if share is not None)
        if gpu.sm_clock_max and row.sm_clock:
            assert row.sm_clock <= gpu.sm_clock_max
