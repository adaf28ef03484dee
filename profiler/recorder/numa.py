"""NUMA: which memory is near which cores and which GPU, as Linux reports it under /sys."""

import re
from pathlib import Path

SYSFS = Path("/sys")


def nodes(sysfs: Path = SYSFS) -> dict[int, str]:
    """Return the cores of each NUMA node, as "0-15,32-47"; empty if unknown.

    Nodes that have only memory are left out.
    """
    found = {}
    for folder in (sysfs / "devices" / "system" / "node").glob("node*"):
        number = re.fullmatch(r"node(\d+)", folder.name)
        cores = _text(folder / "cpulist")
        if number and cores:
            found[int(number[1])] = cores
    return dict(sorted(found.items()))


def node_of_pci(domain: int, bus: int, device: int, sysfs: Path = SYSFS) -> int | None:
    """Return the NUMA node of a PCI device; None if unknown, as in most virtual machines."""
    text = _text(sysfs / "bus" / "pci" / "devices" / f"{domain:04x}:{bus:02x}:{device:02x}.0" / "numa_node")
    return int(text) if text is not None and text.isdecimal() else None  # -1: unknown


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
