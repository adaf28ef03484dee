from dataclasses import replace

import pytest
from profiles import RUN, metrics, nvml_uuid, rank, torch_uuid

from advisor.metrics.base import Missing
from advisor.metrics.host import cores
from advisor.metrics.numa import gpu_node, near_cores, numa_nodes
from profiler.schema import DeviceFact, Gpu, MemoryFact, ModelFact

TWO = {0: "0-3,8-11", 1: "4-7,12-15"}
GPUS = tuple(Gpu(index=n, uuid=nvml_uuid(n), name="H100", memory_total=1, numa_node=n) for n in (0, 1))
DEVICES = tuple(DeviceFact(id=n, uuid=torch_uuid(1 - n)) for n in (0, 1))


def of(cpus="0-15", nodes=TWO, gpus=GPUS, device=0, **tables):
    peaks = () if device is None else (MemoryFact(id=device, allocated_peak=1),)
    each = {"process": {"cpus": cpus}, "devices": DEVICES, "memory_peaks": peaks, **tables}
    return metrics(rank(**each), runs=(replace(RUN, numa_nodes=nodes),), gpus=gpus)


def test_gpu_node_is_of_gpu_where_rank_holds_memory():
    assert of(device=0)[gpu_node] == 1, "torch's first is NVML's second"
    assert of(device=1)[gpu_node] == 0


def test_without_memory_all_gpus_must_agree():
    same = tuple(replace(gpu, numa_node=1) for gpu in GPUS)

    assert of(device=None, gpus=same)[gpu_node] == 1
    with pytest.raises(Missing):
        of(device=None)[gpu_node]


def test_the_share_of_near_cores():
    assert of()[near_cores] == 0.5
    assert of(cpus="4-7")[near_cores] == 1.0
    assert of(cpus="0-3,4")[near_cores] == 0.2


def test_nodes_with_cores():
    assert of()[numa_nodes] == 2
    with pytest.raises(Missing):
        of(nodes={})[numa_nodes]


@pytest.mark.parametrize(
    "changes",
    [
        {"cpus": None},
        {"cpus": "many"},
        {"cpus": "0-99999999"},
        {"gpus": tuple(replace(gpu, numa_node=None) for gpu in GPUS)},
        {"gpus": ()},
        {"nodes": {0: "0-7", 2: "8-15"}},
        {"devices": (), "models": (ModelFact(id=1, devices={"cpu": 1}),)},
    ],
    ids=[
        "no cores",
        "not a list of cores",
        "too large a core number",
        "no node",
        "no GPU",
        "node without cores",
        "on the CPU",
    ],
)
def test_near_cores_is_missing_for_unknown_topology(changes):
    with pytest.raises(Missing):
        of(**changes)[near_cores]


def test_lists_of_cores():
    assert cores("0-2,5") == {0, 1, 2, 5}
    assert cores("") == frozenset()
    assert cores("2-") == {2}
    assert cores("a-b") is None
