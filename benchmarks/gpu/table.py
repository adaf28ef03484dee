"""Results of the acceptance run: rows, their verdicts, and the files that hold them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LARGEST = 15 * 2**20
"""Most bytes of all artifacts together; 16 MiB can be carried away from a borrowed machine."""
OF_A_RUN = ("result.json", "report.html", "tuning.json")


@dataclass(frozen=True)
class Row:
    """One measurement; `passed` is None where it is reported but not judged."""

    item: str
    measured: str
    bar: str = ""
    passed: bool | None = None

    @property
    def verdict(self) -> str:
        """Return whether the row meets its bar."""
        return "-" if self.passed is None else "pass" if self.passed else "FAIL"


def as_text(rows: Iterable[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| item | measured | bar | |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.item} | {_cell(row.measured)} | {_cell(row.bar)} | {row.verdict} |" for row in rows]
    return "\n".join(lines) + "\n"


def write(folder: Path, rows: list[Row], about: dict[str, Any]) -> None:
    """Write table.md and accept.json; called after each item, so that a killed run keeps what it measured."""
    _replace(folder / "table.md", as_text(rows).encode())
    document = {**about, "rows": [{**asdict(row), "verdict": row.verdict} for row in rows]}
    _replace(folder / "accept.json", json.dumps(document, indent=1).encode() + b"\n")


def pack(folder: Path, runs: Path) -> None:
    """Pack the recordings into runs.tar.gz, smallest first, as far as LARGEST allows."""
    files = [path for path in runs.rglob("*") if path.is_file() and (path.suffix == ".db" or path.name in OF_A_RUN)]
    left = LARGEST - sum(
        path.stat().st_size for path in folder.iterdir() if path.is_file() and path.name != "runs.tar.gz"
    )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path in sorted(files, key=lambda path: path.stat().st_size):
            left -= len(gzip.compress(path.read_bytes(), 1))
            if left > 0:
                archive.add(path, path.relative_to(runs.parent))
    _replace(folder / "runs.tar.gz", buffer.getvalue())


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that a killed run never leaves it incomplete."""
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(data)
    beside.replace(path)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
