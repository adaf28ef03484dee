"""The rates of GPUs: dense matmuls with fp32 accumulation, memory bandwidth, power and memory.

`peaks` looks up a GPU by the name its driver reports, in a table from the vendors' data sheets (checked against
Bekman, "Machine Learning Engineering", the accelerators chapter). Headline numbers are often for 2:4 sparsity or fp16
accumulation, two to four times these numbers. `derived` computes the rates of NVIDIA GPUs that the table lacks.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

TERA = 1e12
GIGA = 1e9
MEGA = 1e6

VOLTA = (7, 0)
"""Compute capability of the first GPUs with tensor cores, which compute fp16, and of the first that Triton supports."""
TURING = (7, 5)
"""Compute capability of the last GPUs without bf16."""
AMPERE = (8, 0)
"""Compute capability of the first GPUs with bf16 and TF32."""
ADA = (8, 9)
"""Compute capability of the first GPUs with fp8; Hopper has it too."""

HALF_RATE = 2.1
"""Ratio of 16-bit to fp32 rate up to which a GPU counts as accumulating in fp32 at half rate."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """FLOP/s by kind of arithmetic, None if the GPU lacks it; bandwidth and power of the board."""

    fp32: float
    tf32: float | None
    half: float
    """FLOP/s in fp16 and, from compute capability 8.0, bf16."""
    fp8: float | None
    fp4: float | None
    bandwidth: float | None
    """Memory bandwidth in bytes/s; None if unknown."""
    watts: float | None
    """The board's power limit in watts as sold; NVML reports the limit in force."""
    derived: bool = False
    """Whether the rates were computed from capability, SMs and clock instead of taken from a data sheet."""

    @property
    def is_half_rate(self) -> bool:
        """Return whether tensor cores run at half rate with fp32 accumulation: GeForce, and boards cut down like it."""
        return self.half <= HALF_RATE * self.fp32


@dataclass(frozen=True, slots=True)
class Board:
    """A row of the table."""

    name: str
    """Words that the driver's name must contain and, after "-", words that it must not contain."""
    peaks: Peaks
    source: str
    """The document with these rates."""
    memory: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Memory in MiB that the driver reports, by product name; empty if it was never observed."""


Number = float | None
Row = tuple[str, float, Number, float, Number, Number, float, float, int | dict[str, int] | None]


def _boards(source: str, *rows: Row) -> Iterator[Board]:
    """Yield boards from rows of the table.

    A row is name, TFLOP/s of fp32, TF32, half, fp8 and fp4, GB/s, W, and MiB of memory.
    """
    for name, fp32, tf32, half, fp8, fp4, bandwidth, watts, memory in rows:
        tensor_rates = [None if rate is None else rate * TERA for rate in (tf32, fp8, fp4)]
        rates = Peaks(
            fp32 * TERA, tensor_rates[0], half * TERA, tensor_rates[1], tensor_rates[2], bandwidth * GIGA, watts
        )
        sizes = memory if isinstance(memory, dict) else {name.partition(" -")[0]: memory} if memory else {}
        yield Board(name, rates, source, sizes)


# The first matching row is used. If a name does not identify its board (an A100 without its size), the row has the
# slower memory. Memory sizes of the H200, H100, A100, A10, L40S, L4 and T4 are from Belotti, "Why does an NVIDIA H100
# 80GB card offer 85.52 GB?", 2024 (boards that keep ECC bits in the same memory report less than their name says); the
# others are as printed by nvidia-smi and amd-smi.
# fmt: off
BOARDS: tuple[Board, ...] = (
    # name                       fp32   tf32   half    fp8    fp4   GB/s   W   MiB
    *_boards("NVIDIA Tesla P100 datasheet (no tensor cores: fp16 runs at twice the rate of fp32)",
        ("P100 PCIe",             9.3,  None,  18.7,  None,  None,  732,  250, None),
        ("P100",                 10.6,  None,  21.2,  None,  None,  732,  300, None)),
    *_boards("NVIDIA V100 and V100S datasheets",
        ("V100S",                16.4,  None,   130,  None,  None, 1134,  250, 32768),
        ("V100 PCIe",              14,  None,   112,  None,  None,  900,  250, None),
        ("V100",                 15.7,  None,   125,  None,  None,  900,  300,
            {"V100 16GB": 16384, "V100 32GB": 32768})),
    *_boards("NVIDIA T4 datasheet",
        ("T4",                    8.1,  None,    65,  None,  None,  320,   70, 15360)),
    *_boards("NVIDIA Turing GPU architecture whitepaper (fp16 with fp32 accumulation)",
        ("RTX 2080 Ti",          13.4,  None,  53.8,  None,  None,  616,  250, 11264),
        ("Titan RTX",            16.3,  None, 130.5,  None,  None,  672,  280, 24576)),
    *_boards("NVIDIA A10, A30 and A40 datasheets",
        ("A10",                  31.2,  62.5,   125,  None,  None,  600,  150, 23028),
        ("A30",                  10.3,    82,   165,  None,  None,  933,  165, 24576),
        ("A40",                  37.4,  74.8, 149.7,  None,  None,  696,  300, 46068)),
    *_boards("NVIDIA A10G datasheet (made for AWS; tensor cores at half rate)",
        ("A10G",                 31.5,    35,    70,  None,  None,  600,  300, 23028)),
    *_boards("NVIDIA A100 datasheet; the A800 differs only in its links",
        ("A100 80GB PCIe",       19.5,   156,   312,  None,  None, 1935,  300, None),
        ("A100 80GB",            19.5,   156,   312,  None,  None, 2039,  400, 81920),
        ("A100 PCIe",            19.5,   156,   312,  None,  None, 1555,  250, None),
        ("A100",                 19.5,   156,   312,  None,  None, 1555,  400, {"A100 40GB": 40960}),
        ("A800 80GB PCIe",       19.5,   156,   312,  None,  None, 1935,  300, None),
        ("A800 80GB",            19.5,   156,   312,  None,  None, 2039,  400, 81920)),
    *_boards("NVIDIA RTX A6000 datasheet",
        ("RTX A6000",            38.7,  77.4, 154.8,  None,  None,  768,  300, 49140)),
    *_boards("NVIDIA Ampere GA102 and GA10x GPU architecture whitepapers (fp16 with fp32 accumulation)",
        ("RTX 3060 -Ti",         12.7,  12.7,  25.5,  None,  None,  360,  170, 12288),
        ("RTX 3080 -Ti",         29.8,  29.8,  59.5,  None,  None,  760,  320, 10240),
        ("RTX 3090 Ti",            40,    40,    80,  None,  None, 1008,  450, 24564),
        ("RTX 3090",             35.6,  35.6,    71,  None,  None,  936,  350, 24576)),
    *_boards("NVIDIA L4, L40 and L40S datasheets (the L4 cannot hold its rate for long at 72 W)",
        ("L4",                   30.3,    60,   121,   242,  None,  300,   72, 23034),
        ("L40",                  90.5,  90.5,   181,   362,  None,  864,  300, 46068),
        ("L40S",                 91.6,   183,   362,   733,  None,  864,  350, 46068)),
    *_boards("NVIDIA Ada GPU architecture whitepapers (with fp32 accumulation)",
        ("RTX 6000 Ada",         91.1, 182.1, 364.2, 728.5,  None,  960,  300, 49140),
        ("RTX 4070 -Ti -Super",  29.1,  29.1,  58.3, 116.6,  None,  504,  200, 12282),
        ("RTX 4080 -Super",      48.7,  48.7,  97.5, 194.9,  None,  717,  320, 16376),
        ("RTX 4090",             82.6,  82.6,   165,   330,  None, 1008,  450, 24564)),
    *_boards("NVIDIA H100 datasheet; the H800 differs only in its links and fp64",
        ("H100 PCIe",              51,   378,   756,  1513,  None, 2000,  350, 81559),
        ("H100 NVL",               60,   418,   835,  1671,  None, 3900,  400, 95830),
        ("H100",                   67,   494,   989,  1979,  None, 3350,  700, 81559),
        ("H800 PCIe",              51,   378,   756,  1513,  None, 2000,  350, 81559),
        ("H800",                   67,   494,   989,  1979,  None, 3350,  700, 81559)),
    *_boards("NVIDIA H20 datasheet (tensor cores cut to a seventh)",
        ("H20",                    44,    74,   148,   296,  None, 4000,  400, 97871)),
    *_boards("NVIDIA H200 datasheet",
        ("H200 NVL",               60,   418,   835,  1671,  None, 4800,  600, 143771),
        ("H200",                   67,   494,   989,  1979,  None, 4800,  700, 143771)),
    *_boards("NVIDIA GH200 Grace Hopper Superchip datasheet (with 96 GB)",
        ("GH200",                  67,   494,   989,  1979,  None, 4000,  900, 97871)),
    *_boards("NVIDIA HGX B200 and HGX B300 datasheets, one eighth of the system",
        ("B200",                   75,  1125,  2250,  4500,  9000, 8000, 1000, 183359),
        ("B300",                   75,  1125,  2250,  4500, 13500, 8000, 1100, None)),
    *_boards("NVIDIA GB200 NVL72 and GB300 NVL72 datasheets, 1/72 of the system",
        ("GB200",                  80,  1250,  2500,  5000, 10000, 8000, 1200, 189471),
        ("GB300",                  80,  1250,  2500,  5000, 15000, 8000, 1400, None)),
    *_boards("NVIDIA RTX Blackwell GPU architecture whitepapers (with fp32 accumulation)",
        ("RTX 5080",             56.3,  56.3, 112.6, 225.1, 900.4,  960,  360, 16303),
        ("RTX 5090",            104.8, 104.8, 209.5,   419,  1676, 1792,  575, 32607),
        ("RTX PRO 6000 Server",   120,   240,   480,   960,  1920, 1597,  600, 97887),
        ("RTX PRO 6000",          125,   252,   504,  1008,  2015, 1792,  600, 97887)),
    *_boards("NVIDIA DGX Spark datasheet (1 PFLOP/s of sparse fp4; the other rates follow from it)",
        ("GB10",                 31.2,  62.5,   125,   250,   500,  273,  140, None)),
    *_boards("AMD Instinct MI210 data sheet",
        ("MI210",                45.3,  None,   181,  None,  None, 1638,  300, None)),
    *_boards("AMD Instinct MI250 and MI250X data sheets, half of the board: torch sees each of its two dies as a GPU",
        ("MI250",                45.3,  None,   181,  None,  None, 1638,  280, None),
        ("MI250X",               47.9,  None, 191.5,  None,  None, 1638,  280, None)),
    *_boards("AMD Instinct MI300A data sheet",
        ("MI300A",              122.6, 490.3, 980.6,  1961,  None, 5300,  550, None)),
    *_boards("AMD Instinct MI300X and MI325X data sheets",
        ("MI300X",                163,   654,  1307,  2615,  None, 5300,  750, 196592),
        ("MI325X",                163,   654,  1307,  2615,  None, 6000, 1000, None)),
    *_boards("AMD Instinct MI350X and MI355X data sheets",
        ("MI350X",              144.2,  None,  2307,  4614,  9227, 8000, 1000, None),
        ("MI355X",              157.3,  None,  2517,  5033, 10066, 8000, 1400, None)),
)
# fmt: on

# Variants with the same name that run slower: mobile and export models, power-capped ones, slices of a GPU.
_OTHER = {"laptop", "mobile", "max", "d", "mig"}


def peaks(name: str) -> Peaks | None:
    """Return the rates of a GPU by its driver's name, such as "NVIDIA A100-SXM4-80GB".

    None if the table lacks it.
    """
    words = set(re.findall(r"[a-z0-9.]+", name.lower()))
    if words & _OTHER:
        return None
    for board in BOARDS:
        board_words = board.name.lower().split()
        if all(word[1:] not in words if word.startswith("-") else word in words for word in board_words):
            return board.peaks
    return None


# Dense FLOP per multiprocessor and cycle (a multiply-add is two), from NVIDIA's architecture whitepapers (Volta to
# Blackwell) and, for fp32, the table of arithmetic throughput in the CUDA C++ Programming Guide; then the clock in MHz
# that data sheets assume, the highest boost clock of the generation's boards. On GeForce, NVML's maximum is up to a
# quarter higher.
_GENERATIONS: dict[tuple[int, int], tuple[int, int | None, int, int | None, int | None, int]] = {
    # capability: fp32, TF32, half, fp8, fp4, clock
    (7, 0): (128, None, 1024, None, None, 1530),
    (7, 5): (128, None, 1024, None, None, 1770),
    (8, 0): (128, 1024, 2048, None, None, 1440),
    (8, 6): (256, 512, 1024, None, None, 1860),
    (8, 9): (256, 512, 1024, 2048, None, 2520),
    (9, 0): (256, 2048, 4096, 8192, None, 1980),
    (10, 0): (256, 4096, 8192, 16384, 32768, 1965),
    (10, 3): (256, 4096, 8192, 16384, 49152, 1965),
    (12, 0): (256, 512, 1024, 2048, 4096, 2617),
    (12, 1): (256, 512, 1024, 2048, 4096, 2520),
}


def derived(
    name: str, capability: tuple[int, int], multiprocessors: int, clock: float | None, bandwidth: float | None
) -> Peaks | None:
    """Return the rates of an NVIDIA GPU computed from its generation, multiprocessors and clock.

    An unknown capability counts as the newest one before it. GeForce boards accumulate in fp32 at half rate, and have
    no faster TF32. Export boards with cut tensor cores (H20, L20) are slower than this result.

    Args:
        name: The name that the driver reports; only the name identifies a GeForce.
        capability: CUDA compute capability.
        multiprocessors: Number of multiprocessors as torch counts them; for a MIG device, its own.
        clock: NVML's highest SM clock in MHz; None uses the generation's.
        bandwidth: Memory bandwidth in bytes/s, if known.

    Returns:
        The rates; None before Volta, which has no tensor cores.
    """
    generations = [generation for generation in _GENERATIONS if generation <= capability]
    if not generations:
        return None
    fp32, tf32, half, fp8, fp4, highest_clock = _GENERATIONS[max(generations)]
    cycles = multiprocessors * MEGA * min(clock or highest_clock, highest_clock)
    tensor_cycles = 0.5 * cycles if "geforce" in name.lower() else cycles
    tf32_rate, fp8_rate = (None if rate is None else tensor_cycles * rate for rate in (tf32, fp8))
    fp4_rate = None if fp4 is None else fp4 * cycles
    return Peaks(fp32 * cycles, tf32_rate, tensor_cycles * half, fp8_rate, fp4_rate, bandwidth, None, derived=True)
