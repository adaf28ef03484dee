"""NUMA: which memory is near which cores and which GPU, as Linux reports it under /sys."""

import re
from pathlib import Path

from profiler.reading import text

SYSFS = Path("/sys")


def nodes(sysfs: Path = SYSFS) -> dict[int, str]:
    """Return the cores of each NUMA node, as "0-15,32-47"; empty if unknown.

    Nodes that have only memory are left out.
    """
    cores_by_node = {}
    for folder in (sysfs / "devices" / "system" / "node").glob("node*"):
        match = re.fullmatch(r"node(\d+)", folder.name)
        cores = text(folder / "cpulist").strip()
        if match and cores and cores.isascii():
            cores_by_node[int(match[1])] = cores
    return dict(sorted(cores_by_node.items()))


def node_of_pci(domain: int, bus: int, device: int, sysfs: Path = SYSFS) -> int | None:
    """Return the NUMA node of a PCI device; None if unknown, as in most virtual machines."""
    folder = sysfs / "bus" / "pci" / "devices" / f"{domain:04x}:{bus:02x}:{device:02x}.0"
    number = text(folder / "numa_node").strip()
    return int(number) if number.isdecimal() else None  # -1: unknown
