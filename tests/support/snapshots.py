"""Texts for users, kept as a whole in tests/snapshots/ for a reviewer to read. `make snapshots` rewrites them."""

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "snapshots"


def same(name: str, text: str) -> None:
    """Compare a text with the one kept under this name.

    Raises AssertionError where they differ. With PROFILE_TRAIN_SNAPSHOTS=write, store `text` instead.
    """
    path = FOLDER / name
    if os.environ.get("PROFILE_TRAIN_SNAPSHOTS") == "write":
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), (
        "if the change is intended, run `make snapshots`"
    )


def scenes(texts: dict[str, str]) -> str:
    """Join texts, each below a heading; remove spaces at line ends."""
    parts = (f"===== {name}\n\n{text.strip()}\n" for name, text in texts.items())
    return "\n".join("\n".join(line.rstrip() for line in part.splitlines()) + "\n" for part in parts)
