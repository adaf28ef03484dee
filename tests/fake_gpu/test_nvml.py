"""GPUs as NVML reports them on real machines, sampled from outside any program."""

import json

import pytest
from fake_gpu import make

PROGRAM = """
import json, os, sys, time
from dataclasses import asdict
from profiler.recorder.gpu import GpuSampler
sampler = GpuSampler(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
gpus = [asdict(gpu) for gpu in sampler.gpus]
time.sleep(0.2)
rows = [asdict(row) for row in sampler.sample(1.0, [os.getpid(), 4242])]
print(json.dumps([gpus, rows, [problem.message for problem in sampler.problems]]))
"""
NOT_SUPPORTED, NO_PERMISSION, IS_LOST = 3, 4, 15
MIXED = "A100:40,H100:80,T4:16"


@pytest.fixture
def sampled(tmp_path, script):
    """Return a function that samples a machine; it returns its GPUs, one row for each, and the problems."""

    def sample(devices="H100:80", env=None, **how):
        gpu = make(tmp_path / "gpus", devices, **how)
        ran = gpu.run(script(PROGRAM), env=env)
        assert ran.status == 0, ran.err.decode()
        return json.loads(ran.out)

    return sample


FIELDS = {
    "nvmlDeviceGetUtilizationRates": ("utilization",),
    "nvmlDeviceGetMemoryInfo": ("memory_used",),
    "nvmlDeviceGetPowerUsage": ("power",),
    "nvmlDeviceGetTotalEnergyConsumption": ("energy",),
    "nvmlDeviceGetClockInfo": ("sm_clock", "memory_clock"),
    "nvmlDeviceGetTemperature": ("temperature",),
    "nvmlDeviceGetCurrPcieLinkGeneration": ("pcie_generation",),
    "nvmlDeviceGetCurrPcieLinkWidth": ("pcie_width",),
}
"""Fields that each NVML function fills in."""


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
@pytest.mark.parametrize("function", FIELDS)
def test_refused_nvml_call_only_empties_its_fields(sampled, function, code):
    _, (row,), _ = sampled(nvml={function: code})
    assert {name for names in FIELDS.values() for name in names if row[name] is None} == set(FIELDS[function])


def test_a_gpu_without_permission_is_known_but_not_measured(sampled):
    functions = dict.fromkeys(FIELDS, NO_PERMISSION)
    (gpu,), (row,), problems = sampled(nvml=functions)
    assert gpu["name"] == "NVIDIA H100 80GB HBM3"
    assert gpu["memory_total"] == 0
    assert all(row[name] is None for names in FIELDS.values() for name in names)
    assert len([message for message in problems if "permission" in message]) == 1


def test_lost_gpus_are_no_longer_measured(sampled):
    _, rows, problems = sampled("H100:80,H100:80", nvml={"nvmlDeviceGetUtilizationRates": IS_LOST})
    assert len(problems) == 2
    assert [row["memory_used"] for row in rows] == [None, None]


@pytest.mark.parametrize(
    ("visible", "order", "indexes"),
    [
        (None, "PCI_BUS_ID", [0, 1, 2]),
        ("2,0", "PCI_BUS_ID", [2, 0]),
        ("1", "PCI_BUS_ID", [1]),
        ("1,7,0", "PCI_BUS_ID", [1]),
        ("0", "FASTEST_FIRST", [0, 1, 2]),
        ("-1", None, []),
        ("", None, []),
    ],
)
def test_the_gpus_that_the_program_may_see_are_sampled(sampled, visible, order, indexes):
    env = {
        name: value
        for name, value in (("CUDA_VISIBLE_DEVICES", visible), ("CUDA_DEVICE_ORDER", order))
        if value is not None
    }
    gpus, rows, _ = sampled(MIXED, env=env)
    assert [gpu["index"] for gpu in gpus] == indexes
    assert [row["gpu"] for row in rows] == indexes


def test_uuid_prefix_selects_a_gpu(sampled):
    gpus, _, _ = sampled(MIXED)
    uuid = gpus[2]["uuid"]
    assert uuid.startswith("GPU-")
    chosen, _, _ = sampled(MIXED, env={"CUDA_VISIBLE_DEVICES": uuid[:10]})
    assert [gpu["index"] for gpu in chosen] == [2]


def test_memory_of_other_processes_counts_as_used_but_not_as_process_memory(sampled):
    _, (row,), _ = sampled("H100:80", others="0:77:3000,0:4242:1000")
    assert row["memory_used"] == (450 + 3000 + 1000) << 20
    assert row["process_memory"] == 1000 << 20


@pytest.mark.parametrize("shown", ["hidden", "foreign"])
def test_process_memory_is_none_or_zero_if_processes_are_hidden(sampled, shown):
    _, (row,), _ = sampled("H100:80", processes=shown)
    assert row["process_memory"] in (None, 0)  # None if this machine shows that it has its own PIDs


def test_mig_device_is_measured_as_far_as_nvml_supports_it(sampled):
    (gpu,), (row,), _ = sampled("A100:40:mig=2", env={"CUDA_VISIBLE_DEVICES": mig_uuid(sampled)})
    assert gpu["mig"] is True
    assert gpu["memory_total"] == 20 << 30
    assert row["utilization"] is None
    assert row["power"] is not None


def mig_uuid(sampled):
    (board,), _, _ = sampled("A100:40:mig=2")
    head, last = board["uuid"][4:-2], int(board["uuid"][-2:], 16)
    return f"MIG-{head}{last ^ 0x80:02x}"


def test_slow_answers_are_waited_for(sampled):
    (gpu,), (row,), _ = sampled(nvml_slow={"nvmlDeviceGetPowerUsage": 0.3, "nvmlDeviceGetUUID": 0.3})
    assert gpu["uuid"].startswith("GPU-")
    assert row["power"] is not None


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, 9, 18])
def test_nvml_init_failure_is_reported_and_no_gpu_sampled(sampled, code):
    gpus, rows, problems = sampled(nvml={"nvmlInit_v2": code, "nvmlInitWithFlags": code})
    assert (gpus, rows, len(problems)) == ([], [], 1)


AS_TORCH = """
import json, torch
p = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
print(json.dumps([[str(one.uuid), one.name, one.total_memory] for one in p]))
"""


def test_torch_and_nvml_name_the_same_gpus(sampled, tmp_path, script):
    gpus, _, _ = sampled(MIXED)
    ran = make(tmp_path / "torch", MIXED).run(script(AS_TORCH, "as_torch.py"))
    seen = json.loads(ran.out)
    fastest = [gpus[1], gpus[0], gpus[2]]
    assert [one[0] for one in seen] == [gpu["uuid"].removeprefix("GPU-") for gpu in fastest]
    assert [one[1:] for one in seen] == [[gpu["name"], gpu["memory_total"]] for gpu in fastest]
