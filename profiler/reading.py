"""Read small files of the system that may not be there, as of /proc and /sys."""

from pathlib import Path


def text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
