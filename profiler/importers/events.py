"""An event of a Chrome trace as Kineto writes it, with only the fields that are read."""

from typing import Any

from msgspec import Raw, Struct, defstruct, field

Text = int | str
"""Text or number: process, thread and stream identifiers are written either way."""

PHASES = "BEiICbneSTpFstfMNOD()PVvRca"
"""Phases of Chrome's format apart from "X": instants, arrows, counters and names. None of these events is kept."""


class Arguments(Struct, gc=False):
    """Kineto's details of an event, apart from its name and time."""

    correlation: int = -1
    """Number that links GPU work to the call that launched it."""
    stream: Text = -1
    collective: str = field(name="Collective name", default="")
    group_size: int = field(name="Group size", default=0)
    group_name: str = field(name="Process Group Name", default="")
    group_about: str = field(name="Process Group Description", default="")
    elements_in: int = field(name="In msg nelems", default=0)
    elements_out: int = field(name="Out msg nelems", default=0)
    dtype: str = ""
    blocks: Any = field(name="blocks per SM", default=None)
    """A number; whatever else a version of Kineto wrote must not cost the event."""
    sequence: Any = field(name="Sequence number", default=-1)
    """Number that an operator of the backward pass shares with that of the forward pass; a number, as above."""
    finished: bool | str = True
    """False for a range whose end was not seen."""
    dims: Raw = field(name="Input Dims", default=Raw())
    types: Raw = field(name="Input type", default=Raw())
    values: Raw = field(name="Concrete Inputs", default=Raw())


class Range(Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a duration; times are microseconds."""

    name: str = ""
    cat: str = ""
    pid: Text = 0
    tid: Text = 0
    ts: float = 0.0
    dur: float = -1.0
    args: Arguments | None = None


Unknown: Any = defstruct("Unknown", [("ph", str, "")], namespace={"cat": ""}, gc=False)
"""An event with an unknown phase or none, such as the empty one that some tools append."""

Event: Any = Range
"""Union that msgspec resolves by the phase, so that the contents of other phases are not built."""
for _phase in PHASES:
    Event |= defstruct("Other", (), namespace={"cat": ""}, gc=False, tag_field="ph", tag=_phase)
