"""The table of GPUs, number by number; TFLOP/s, GB/s and W."""

import pytest

from advisor.models.gpus import peaks

TABLE = [
    ("Tesla V100-SXM2-16GB", 15.7, None, 125, None, 900, 300),
    ("Tesla V100-PCIE-16GB", 14, None, 112, None, 900, 250),
    ("Tesla T4", 8.1, None, 65, None, 320, 70),
    ("NVIDIA A10", 31.2, 62.5, 125, None, 600, 150),
    ("NVIDIA A100-SXM4-40GB", 19.5, 156, 312, None, 1555, 400),
    ("NVIDIA A100-SXM4-80GB", 19.5, 156, 312, None, 2000, 400),
    ("NVIDIA A100-PCIE-40GB", 19.5, 156, 312, None, 1555, 250),
    ("NVIDIA A100 80GB PCIe", 19.5, 156, 312, None, 1935, 300),
    ("NVIDIA L4", 30.3, 60, 121, 242, 300, 72),
    ("NVIDIA L40S", 91.6, 183, 362, 733, 864, 350),
    ("NVIDIA GeForce RTX 3090", 35.6, 35.6, 71, None, 936, 350),
    ("NVIDIA GeForce RTX 4090", 82.6, 82.6, 165, 330, 1008, 450),
    ("NVIDIA GeForce RTX 5090", 104.8, 104.8, 209.5, 419, 1792, 575),
    ("NVIDIA H100 PCIe", 51, 378, 756, 1513, 2000, 350),
    ("NVIDIA H100 80GB HBM3", 67, 494, 989, 1979, 3350, 700),
    ("NVIDIA H200", 67, 494, 989, 1979, 4800, 700),
    ("NVIDIA B200", 80, 1125, 2250, 4500, 8000, 1000),
    ("AMD Instinct MI300X", 163, 654, 1307, 2615, 5300, 750),
]


@pytest.mark.parametrize(("name", "fp32", "tf32", "half", "fp8", "bandwidth", "watts"), TABLE)
def test_a_gpu_is_known_by_the_name_its_driver_gives(name, fp32, tf32, half, fp8, bandwidth, watts):
    known = peaks(name)
    assert known
    rates = (known.fp32, known.tf32, known.half, known.fp8)
    assert rates == tuple(rate and pytest.approx(rate * 1e12) for rate in (fp32, tf32, half, fp8))
    assert known.bandwidth == pytest.approx(bandwidth * 1e9)
    assert known.watts == watts


@pytest.mark.parametrize(
    "name",
    [
        "Tesla P40",
        "NVIDIA A10G",
        "NVIDIA H100 NVL",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "",
    ],
)
def test_a_gpu_that_only_resembles_one_in_the_table_is_unknown(name: str):
    assert peaks(name) is None


@pytest.mark.parametrize("name", [row[0] for row in TABLE])
def test_narrower_arithmetic_is_never_slower(name: str):
    known = peaks(name)
    assert known
    rates = [rate for rate in (known.fp32, known.tf32, known.half, known.fp8) if rate is not None]
    assert rates == sorted(rates)
