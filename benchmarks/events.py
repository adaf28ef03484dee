"""Count events per step in the rings."""

import json
from pathlib import Path

import checkout  # noqa: F401

from profiler.agent.ring import OPTIMIZER, STEP, Reader


def in_rings(folder):
    """Return the events per step of the training processes whose rings are in this folder; None if there are none.
    Events that the agent writes to itself, of kind 0, do not count."""
    events = steps = 0
    for path in folder.glob("*.ring"):
        reader = Reader(str(path))
        found = [event for event in reader.read() if event.kind]
        reader.close()
        ends = sum(1 for event in found if event.kind == STEP or (event.kind == OPTIMIZER and not event.b))
        if ends:  # a DataLoader worker has none
            events, steps = events + len(found), steps + ends
    return events / steps if steps else None


def in_run(folder):
    """Return the events per step of the run that is being recorded into this folder."""
    return in_rings(Path(json.loads((folder / "recording.json").read_text())["rings"]))
