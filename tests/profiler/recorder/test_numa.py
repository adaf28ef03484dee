"""What Linux reports about NUMA nodes, with a similar tree of files."""

import os

import pytest

from profiler.agent import facts
from profiler.recorder.gpu import GpuSampler
from profiler.recorder.host import machine
from profiler.recorder.numa import node_of_pci, nodes


@pytest.fixture
def sysfs(tmp_path):
    """Return a tree with two nodes with cores and one with memory only; a GPU near each of the first two, and one GPU
    without a node."""
    files = {
        "devices/system/node/node0/cpulist": "0-15,32-47",
        "devices/system/node/node1/cpulist": "16-31,48-63",
        "devices/system/node/node2/cpulist": "",
        "devices/system/node/possible": "0-2",
        "bus/pci/devices/0000:3b:00.0/numa_node": "0",
        "bus/pci/devices/0000:d8:00.0/numa_node": "1",
        "bus/pci/devices/0000:00:05.0/numa_node": "-1",
    }
    for name, text in files.items():
        path = tmp_path / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return tmp_path / "sys"


def test_cores_of_each_numa_node(sysfs):
    assert nodes(sysfs) == {0: "0-15,32-47", 1: "16-31,48-63"}
    assert machine(sysfs).numa_nodes == nodes(sysfs)


def test_numa_node_of_a_pci_device(sysfs):
    assert node_of_pci(0, 0x3B, 0, sysfs) == 0
    assert node_of_pci(0, 0xD8, 0, sysfs) == 1
    assert node_of_pci(0, 0, 5, sysfs) is None, "-1 is not a node"
    assert node_of_pci(1, 0, 0, sysfs) is None


def test_missing_or_invalid_sysfs_gives_no_nodes(tmp_path):
    assert nodes(tmp_path) == {}
    (tmp_path / "devices/system/node/node0").mkdir(parents=True)
    (tmp_path / "devices/system/node/node0/cpulist").write_bytes(b"\xff\n")
    assert nodes(tmp_path) == {}


def test_each_gpu_knows_its_node(nvml, sysfs):
    nvml.says(gpus=2, **{"1.pci_bus": 0xD8})
    sampler = GpuSampler(sysfs=sysfs)
    sampler.close()

    assert [gpu.numa_node for gpu in sampler.gpus] == [0, 1]


def test_numa_node_is_unknown_without_pci_information(nvml, sysfs):
    nvml.says(**{"fail.nvmlDeviceGetPciInfo_v3": 3})
    sampler = GpuSampler(sysfs=sysfs)
    sampler.close()

    assert [gpu.numa_node for gpu in sampler.gpus] == [None]


@pytest.mark.parametrize(
    ("cores", "expected"), [({0}, "0"), ({0, 1, 2}, "0-2"), ({5, 0, 1, 7, 8, 9}, "0-1,5,7-9"), (set(), "")]
)
def test_cpu_affinity_is_written_as_ranges(monkeypatch, cores, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores, raising=False)

    assert facts._cpus() == expected
