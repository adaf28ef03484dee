"""GPUs by name."""

import pytest

from advisor.plan.cluster import NAMES, device
from profiler.errors import ProfilerError

MIB = 1024**2


@pytest.mark.parametrize(
    ("name", "known", "mib"),
    [
        ("H100", "H100", 81559),
        ("NVIDIA H100 80GB HBM3", "H100", 81559),
        ("NVIDIA H100 PCIe", "H100 PCIe", 81559),
        ("a100-80gb", "A100 80GB", 81920),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB", 40960),
        ("l4", "L4", 23034),
        ("RTX4090", "RTX 4090", 24564),
        ("4090", "RTX 4090", 24564),
    ],
)
def test_device_is_found_by_any_spelling(name, known, mib):
    found = device(name)

    assert found.name == known
    assert found.memory == mib * MIB


@pytest.mark.parametrize("name", NAMES)
def test_every_device_has_data_sheet(name):
    found = device(name)

    assert found.peaks is not None
    assert found.peaks.bandwidth >= 3e11


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("A100", "A100 40GB, A100 80GB"),
        ("H10", "Did you mean H100?"),
        ("RTX 4090 Laptop", "--gpu-memory"),
        ("x", "Known"),
    ],
)
def test_unknown_device_suggests_similar_names(name, suggestion):
    with pytest.raises(ProfilerError) as raised:
        device(name)

    assert repr(name) in raised.value.message
    assert suggestion in raised.value.remedy
