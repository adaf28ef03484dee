"""The tier of tests on the CUDA stand-in: real programs with torch's CUDA build, on simulated GPUs."""

from pathlib import Path

import pytest
from fake_gpu import make, why_not

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before a test without a tier counts as a unit test
def pytest_collection_modifyitems(items):
    mine = [item for item in items if HERE in item.path.parents]
    reason = why_not() if mine else None
    for item in mine:
        item.add_marker(pytest.mark.fake_gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def fake_gpu(tmp_path):
    """Return a function that makes simulated GPUs, with the arguments of `fake_gpu.make` except the folder."""
    made = 0

    def gpus(devices="H100:80", **how):
        nonlocal made
        made += 1
        return make(tmp_path / f"gpus-{made}", devices, **how)

    return gpus
