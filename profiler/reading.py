"""Read small system files that may not exist, such as those in /proc and /sys."""

import re
from pathlib import Path


def text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def has_capability(number: int, proc: Path = Path("/proc")) -> bool:
    """Return whether this process has the capability with that number in linux/capability.h."""
    match = re.search(r"^CapEff:\s*(\w+)", text(proc / "self/status"), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> number & 1)
