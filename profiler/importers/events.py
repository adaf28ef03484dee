"""An event of a Chrome trace as Kineto writes it, with what is read of it; everything else in the file is skipped."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, defstruct, field

Text = int | str
"""Process and thread numbers, and streams, are written either way."""

PHASES = "BEiICbneSTpFstfMNOD()PVvRca"
"""Of Chrome's format, beside "X": moments, arrows, counters and names, of which nothing is kept."""


class Arguments(Struct, gc=False):
    """What Kineto says of an event beside its name and time."""

    correlation: int = -1
    """Ties GPU work to the call that launched it."""
    stream: Text = -1
    collective: str = field(name="Collective name", default="")
    group_size: int = field(name="Group size", default=0)
    group_name: str = field(name="Process Group Name", default="")
    group_about: str = field(name="Process Group Description", default="")
    elements_in: int = field(name="In msg nelems", default=0)
    elements_out: int = field(name="Out msg nelems", default=0)
    dtype: str = ""
    dims: Raw = field(name="Input Dims", default=Raw())
    types: Raw = field(name="Input type", default=Raw())


class Range(Struct, gc=False, tag_field="ph", tag="X"):
    """Something that lasted. Times are microseconds."""

    name: str = ""
    cat: str = ""
    pid: Text = 0
    tid: Text = 0
    ts: float = 0.0
    dur: float = -1.0
    args: Arguments | None = None


Unknown: Any = defstruct("Unknown", [("ph", str, "")], namespace={"cat": ""}, gc=False)
"""An event of no phase, as an empty one that some put last, or of one that the format does not have."""

Event: Any = Range
"""What msgspec tells apart by the phase, so that nothing is made of what another phase holds."""
for _phase in PHASES:
    Event |= defstruct("Other", (), namespace={"cat": ""}, gc=False, tag_field="ph", tag=_phase)
