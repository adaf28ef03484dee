"""Collect the environment of a run: the facts a reader needs to compare two runs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from advisor.runs.profile import Profile, Rank
from profiler.schema import FlagsFact, Gpu, LoaderFact, ModelFact, OptimizerFact, Place, Process, Run

Scalar = str | int | float | bool | None

MOST = 16
"""Largest number of groups for one kind of thing."""

# Of each table, what says something about the environment; ids and clocks of one recording do not.
SHOWN: tuple[tuple[type, tuple[str, ...]], ...] = (
    (Run, ("host", "platform", "cpu_model", "cores", "cores_total", "memory_total", "version")),
    (Process, ("python", "torch", "cuda", "hip", "world_size")),
    (Gpu, ("name", "capability", "memory_total", "power_limit", "driver", "cuda_driver", "mig", "gpm")),
    (ModelFact, ("name", "wrappers", "parameters", "trainable", "tensors", "bytes", "block", "blocks", "compiled")),
    (OptimizerFact, ("name", "place", "parameters", "tensors", "fused", "foreach", "lr", "state_bytes", "device")),
    (
        LoaderFact,
        (
            *("place", "dataset", "length", "batch_size", "num_workers", "prefetch_factor", "persistent_workers"),
            *("pin_memory", "context", "sampler", "collate", "batch_bytes", "training"),
        ),
    ),
    (FlagsFact, tuple(field.name for field in fields(FlagsFact))),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One fact; None means "not known"."""

    name: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Group:
    """The facts of one thing."""

    name: str
    rows: tuple[Row, ...]


def environment(profile: Profile) -> tuple[Group, ...]:
    """Return the facts of the machine, the GPUs and the primary rank's training."""
    first = profile.ranks[0] if profile.ranks else None
    groups = [
        *_numbered("machine", profile.runs),
        *_numbered("software", (first.process,) if first else ()),
        *_numbered("gpu", profile.gpus),
        *(_of_rank(first) if first else ()),
    ]
    return tuple(groups)


def _of_rank(rank: Rank) -> Iterable[Group]:
    yield from _numbered("model", rank.models)
    yield from _numbered("optimizer", rank.optimizers)
    yield from _numbered("loader", rank.loaders)
    yield from _numbered("flags", (rank.flags,) if rank.flags else ())


def _numbered(name: str, things: tuple[Any, ...]) -> Iterable[Group]:
    """Yield a group for each thing, numbered if there are several. Many things are grouped by kind."""
    if len(things) > MOST:
        yield from _kinds(name, things)
        return
    for number, thing in enumerate(things):
        shown = next(names for kind, names in SHOWN if isinstance(thing, kind))
        rows = tuple(Row(key, _plain(getattr(thing, key))) for key in shown)
        yield Group(f"{name} {number}" if len(things) > 1 else name, rows)


def _kinds(name: str, things: tuple[Any, ...]) -> Iterable[Group]:
    """Yield a group for each kind of thing, the most frequent first.

    A field that differs for all of them, such as a host's name, is left out.
    """
    shown = next(names for kind, names in SHOWN if isinstance(things[0], kind))
    columns = {key: [_plain(getattr(thing, key)) for thing in things] for key in shown}
    kept = {key: values for key, values in columns.items() if len(set(values)) < len(things)}
    kinds = Counter(zip(*kept.values(), strict=True)).most_common()
    for number, (values, count) in enumerate(kinds[:MOST]):
        alike = f"{name} {number}" if len(kinds) > 1 else name
        yield Group(alike, (Row("count", count), *map(Row, kept, values)))
    if len(kinds) > MOST:
        yield Group(f"{name} others", (Row("count", sum(count for _, count in kinds[MOST:])),))


def _plain(value: Any) -> Scalar:
    """Return an equivalent JSON scalar."""
    if isinstance(value, Place):
        return f"{value.file}:{value.line}"
    if isinstance(value, tuple):
        return (".".join if all(isinstance(v, int) for v in value) else ", ".join)(str(v) for v in value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
