"""Peak rates of GPUs for dense matrix products with fp32 accumulation.

From the vendors' data sheets, checked against Bekman, "Machine Learning Engineering" (the accelerators chapter).
Headlines are often for 2:4 sparsity or fp16 accumulation: two to four times these numbers. A GPU that is not in the
table has no prediction, not a guessed one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TERA = 1e12


@dataclass(frozen=True, slots=True)
class Peaks:
    """FLOP/s a kind of arithmetic; None where the GPU lacks it."""

    fp32: float
    tf32: float | None
    half: float
    """fp16, and from compute capability 8.0 bf16."""


def _tera(fp32: float, tf32: float | None, half: float) -> Peaks:
    return Peaks(fp32 * TERA, None if tf32 is None else tf32 * TERA, half * TERA)


# All of a row's words must occur in the device's name, none of the words after "-"; the first row that fits counts.
_TABLE = (
    ("V100", _tera(15.7, None, 125)),
    ("T4", _tera(8.1, None, 65)),
    ("A10", _tera(31.2, 62.5, 125)),
    ("A100", _tera(19.5, 156, 312)),
    ("L4", _tera(30.3, 60, 121)),
    ("L40S", _tera(91.6, 183, 362)),
    ("RTX 3090 -Ti", _tera(35.6, 35.6, 71)),
    ("RTX 4090", _tera(82.6, 82.6, 165)),
    ("RTX 5090", _tera(104.8, 104.8, 209.5)),
    ("H100 PCIe", _tera(51, 378, 756)),
    ("H100 -NVL", _tera(67, 494, 989)),
    ("H200 -NVL", _tera(67, 494, 989)),
    ("B200", _tera(80, 1125, 2250)),
    ("MI300X", _tera(163, 654, 1307)),
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
