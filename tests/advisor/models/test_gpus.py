"""The table of GPUs, number by number, and derived rates; TFLOP/s, GB/s and W."""

import pytest

from advisor.models.gpus import BOARDS, derived, peaks

TABLE = [
    ("Tesla V100-SXM2-16GB", 15.7, None, 125, None, None, 900, 300),
    ("Tesla V100-PCIE-16GB", 14, None, 112, None, None, 900, 250),
    ("Tesla V100S-PCIE-32GB", 16.4, None, 130, None, None, 1134, 250),
    ("Tesla T4", 8.1, None, 65, None, None, 320, 70),
    ("NVIDIA A10", 31.2, 62.5, 125, None, None, 600, 150),
    ("NVIDIA A10G", 31.5, 35, 70, None, None, 600, 300),
    ("NVIDIA A100-SXM4-40GB", 19.5, 156, 312, None, None, 1555, 400),
    ("NVIDIA A100-SXM4-80GB", 19.5, 156, 312, None, None, 2039, 400),
    ("NVIDIA A100-PCIE-40GB", 19.5, 156, 312, None, None, 1555, 250),
    ("NVIDIA A100 80GB PCIe", 19.5, 156, 312, None, None, 1935, 300),
    ("NVIDIA L4", 30.3, 60, 121, 242, None, 300, 72),
    ("NVIDIA L40", 90.5, 90.5, 181, 362, None, 864, 300),
    ("NVIDIA L40S", 91.6, 183, 362, 733, None, 864, 350),
    ("NVIDIA RTX 6000 Ada Generation", 91.1, 182.1, 364.2, 728.5, None, 960, 300),
    ("NVIDIA GeForce RTX 3090", 35.6, 35.6, 71, None, None, 936, 350),
    ("NVIDIA GeForce RTX 3090 Ti", 40, 40, 80, None, None, 1008, 450),
    ("NVIDIA GeForce RTX 4090", 82.6, 82.6, 165, 330, None, 1008, 450),
    ("NVIDIA GeForce RTX 5090", 104.8, 104.8, 209.5, 419, 1676, 1792, 575),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 120, 240, 480, 960, 1920, 1597, 600),
    ("NVIDIA H100 PCIe", 51, 378, 756, 1513, None, 2000, 350),
    ("NVIDIA H100 80GB HBM3", 67, 494, 989, 1979, None, 3350, 700),
    ("NVIDIA H100 NVL", 60, 418, 835, 1671, None, 3900, 400),
    ("NVIDIA H20", 44, 74, 148, 296, None, 4000, 400),
    ("NVIDIA H200", 67, 494, 989, 1979, None, 4800, 700),
    ("NVIDIA H200 NVL", 60, 418, 835, 1671, None, 4800, 600),
    ("NVIDIA GH200 480GB", 67, 494, 989, 1979, None, 4000, 900),
    ("NVIDIA B200", 75, 1125, 2250, 4500, 9000, 8000, 1000),
    ("NVIDIA GB200", 80, 1250, 2500, 5000, 10000, 8000, 1200),
    ("NVIDIA B300 SXM6 AC", 75, 1125, 2250, 4500, 13500, 8000, 1100),
    ("AMD Instinct MI210", 45.3, None, 181, None, None, 1638, 300),
    ("AMD Instinct MI250", 45.3, None, 181, None, None, 1638, 280),
    ("AMD Instinct MI300A", 122.6, 490.3, 980.6, 1961, None, 5300, 550),
    ("AMD Instinct MI350X", 144.2, None, 2307, 4614, 9227, 8000, 1000),
    ("AMD Instinct MI250X", 47.9, None, 191.5, None, None, 1638, 280),
    ("AMD Instinct MI300X", 163, 654, 1307, 2615, None, 5300, 750),
    ("AMD Instinct MI355X", 157.3, None, 2517, 5033, 10066, 8000, 1400),
]


@pytest.mark.parametrize(("name", "fp32", "tf32", "half", "fp8", "fp4", "bandwidth", "watts"), TABLE)
def test_gpu_is_found_by_driver_name(name, fp32, tf32, half, fp8, fp4, bandwidth, watts):
    known = peaks(name)
    assert known
    rates = (known.fp32, known.tf32, known.half, known.fp8, known.fp4)
    assert rates == tuple(rate and pytest.approx(rate * 1e12) for rate in (fp32, tf32, half, fp8, fp4))
    assert known.bandwidth == pytest.approx(bandwidth * 1e9)
    assert known.watts == watts
    assert not known.derived


@pytest.mark.parametrize(
    "name",
    [
        "Tesla P40",
        "NVIDIA GeForce RTX 3060 Ti",
        "NVIDIA GeForce RTX 4070 SUPER",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "Quadro RTX 6000",
        "",
    ],
)
def test_a_gpu_that_only_resembles_one_in_the_table_is_unknown(name: str):
    assert peaks(name) is None


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_narrower_arithmetic_is_never_slower(board):
    known = board.peaks
    rates = [rate for rate in (known.fp32, known.tf32, known.half, known.fp8, known.fp4) if rate is not None]
    assert rates == sorted(rates)
    assert board.source


# Multiprocessors as torch counts them, and the highest SM clock that NVML reports.
COUNTED = [
    ("Tesla V100-SXM2-16GB", (7, 0), 80, 1530),
    ("Tesla T4", (7, 5), 40, 1590),
    ("NVIDIA TITAN RTX", (7, 5), 72, 2100),
    ("NVIDIA GeForce RTX 2080 Ti", (7, 5), 68, 2100),
    ("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1410),
    ("NVIDIA A30", (8, 0), 56, 1440),
    ("NVIDIA A10", (8, 6), 72, 1695),
    ("NVIDIA A40", (8, 6), 84, 1740),
    ("NVIDIA RTX A6000", (8, 6), 84, 2100),
    ("NVIDIA GeForce RTX 3080", (8, 6), 68, 2100),
    ("NVIDIA GeForce RTX 3090", (8, 6), 82, 2100),
    ("NVIDIA L4", (8, 9), 58, 2040),
    ("NVIDIA L40S", (8, 9), 142, 2520),
    ("NVIDIA RTX 6000 Ada Generation", (8, 9), 142, 3105),
    ("NVIDIA GeForce RTX 4070", (8, 9), 46, 3105),
    ("NVIDIA GeForce RTX 4090", (8, 9), 128, 3105),
    ("NVIDIA H100 PCIe", (9, 0), 114, 1755),
    ("NVIDIA H100 80GB HBM3", (9, 0), 132, 1980),
    ("NVIDIA B200", (10, 0), 148, 1965),
    ("NVIDIA B300 SXM6 AC", (10, 3), 148, 1920),
    ("NVIDIA GeForce RTX 5080", (12, 0), 84, 3090),
    ("NVIDIA GeForce RTX 5090", (12, 0), 170, 3090),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0), 188, 3090),
    ("NVIDIA GB10", (12, 1), 48, 2418),
]

# Not derivable: L40, A10G and H20, whose tensor cores are cut by a half and by six sevenths, and H100 NVL and H200 NVL,
# whose sheets assume a clock that the power limit leaves (16 %).


@pytest.mark.parametrize(("name", "capability", "multiprocessors", "clock"), COUNTED, ids=[row[0] for row in COUNTED])
def test_derived_rates_are_those_of_the_data_sheet(name, capability, multiprocessors, clock):
    sheet, computed = peaks(name), derived(name, capability, multiprocessors, clock, None)
    assert sheet
    assert computed
    assert computed.derived
    for kind in ("fp32", "tf32", "half", "fp8", "fp4"):
        if getattr(sheet, kind) is None:
            assert getattr(computed, kind) is None
        else:
            assert getattr(computed, kind) == pytest.approx(getattr(sheet, kind), rel=0.15), kind


def test_derives_future_gpus_but_none_without_tensor_cores():
    assert derived("Tesla P40", (6, 1), 30, 1531, None) is None, "no tensor cores"
    newest = derived("NVIDIA Next", (13, 0), 100, None, 4e12)
    assert newest
    assert newest.half == pytest.approx(100 * 2.52e9 * 1024), "as the newest generation that is known"
    assert newest.bandwidth == 4e12


def test_a_slice_of_a_gpu_has_its_own_multiprocessors():
    mig = derived("NVIDIA A100-SXM4-40GB MIG 1g.5gb", (8, 0), 14, 1410, None)
    assert mig
    assert mig.half == pytest.approx(312e12 * 14 / 108, rel=0.01)
