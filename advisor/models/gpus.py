"""What GPUs can do by their data sheets: dense matrix products with fp32 accumulation, memory bandwidth, power.

From the vendors' data sheets, checked against Bekman, "Machine Learning Engineering" (the accelerators chapter).
Headlines are often for 2:4 sparsity or fp16 accumulation: two to four times these numbers. A GPU that is not in the
table has no prediction, not a guessed one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TERA = 1e12
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Peaks:
    """FLOP/s a kind of arithmetic, None where the GPU lacks it; bandwidth and power of the board."""

    fp32: float
    tf32: float | None
    half: float
    """fp16, and from compute capability 8.0 bf16."""
    fp8: float | None
    bandwidth: float
    """Of its memory, bytes/s."""
    watts: float
    """The board's limit as it is sold; NVML tells what it was set to."""


def _peaks(fp32: float, tf32: float | None, half: float, fp8: float | None, bandwidth: float, watts: float) -> Peaks:
    """Of rates in TFLOP/s and GB/s."""
    tensor = (None if rate is None else rate * TERA for rate in (tf32, fp8))
    return Peaks(fp32 * TERA, next(tensor), half * TERA, next(tensor), bandwidth * GIGA, watts)


# All of a row's words must occur in the device's name, none of the words after "-"; the first row that fits counts.
# Where a name says less than its board (an A100 without its size), the slower memory is meant.
_TABLE = (
    # name                      fp32   tf32  half    fp8   GB/s     W
    ("V100 PCIe", _peaks(14, None, 112, None, 900, 250)),
    ("V100", _peaks(15.7, None, 125, None, 900, 300)),
    ("T4", _peaks(8.1, None, 65, None, 320, 70)),
    ("A10", _peaks(31.2, 62.5, 125, None, 600, 150)),
    ("A100 80GB PCIe", _peaks(19.5, 156, 312, None, 1935, 300)),
    ("A100 80GB", _peaks(19.5, 156, 312, None, 2000, 400)),
    ("A100 PCIe", _peaks(19.5, 156, 312, None, 1555, 250)),
    ("A100", _peaks(19.5, 156, 312, None, 1555, 400)),
    ("L4", _peaks(30.3, 60, 121, 242, 300, 72)),
    ("L40S", _peaks(91.6, 183, 362, 733, 864, 350)),
    ("RTX 3090 -Ti", _peaks(35.6, 35.6, 71, None, 936, 350)),
    ("RTX 4090", _peaks(82.6, 82.6, 165, 330, 1008, 450)),
    ("RTX 5090", _peaks(104.8, 104.8, 209.5, 419, 1792, 575)),
    ("H100 PCIe", _peaks(51, 378, 756, 1513, 2000, 350)),
    ("H100 -NVL", _peaks(67, 494, 989, 1979, 3350, 700)),
    ("H200 -NVL", _peaks(67, 494, 989, 1979, 4800, 700)),
    ("B200", _peaks(80, 1125, 2250, 4500, 8000, 1000)),
    ("MI300X", _peaks(163, 654, 1307, 2615, 5300, 750)),
)

# Variants with the same name that run slower: mobile and export models, and slices of a GPU.
_OTHER = {"laptop", "mobile", "max", "d", "mig"}


def peaks(name: str) -> Peaks | None:
    """Of the GPU as its driver names it, such as "NVIDIA A100-SXM4-80GB"; None if it is not in the table."""
    words = set(re.findall(r"[a-z0-9.]+", name.lower()))
    if words & _OTHER:
        return None
    for row, rates in _TABLE:
        wanted = row.lower().split()
        if all(word[1:] not in words if word.startswith("-") else word in words for word in wanted):
            return rates
    return None
