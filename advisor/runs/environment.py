"""Collect the environment of a run: the facts a reader needs to compare two runs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from advisor.runs.profile import Profile
from profiler.schema import FlagsFact, Place

Scalar = str | int | float | bool | None

Environment = Mapping[str, Mapping[str, Scalar]]
"""Facts by group, such as "machine" or "loader 1"."""

MOST = 16
"""Largest number of groups for one kind of thing."""

# Fields of each group that describe the environment; IDs and clocks of one recording do not.
SHOWN: dict[str, tuple[str, ...]] = {
    "machine": ("host", "platform", "cpu_model", "cores", "cores_total", "memory_total", "version"),
    "software": ("python", "torch", "cuda", "hip", "world_size"),
    "gpu": ("name", "capability", "memory_total", "power_limit", "driver", "cuda_driver", "mig", "gpm"),
    "model": ("name", "wrappers", "parameters", "trainable", "tensors", "bytes", "block", "blocks", "compiled"),
    "optimizer": ("name", "place", "parameters", "tensors", "fused", "foreach", "lr", "state_bytes", "device"),
    "loader": (
        *("place", "dataset", "length", "batch_size", "num_workers", "prefetch_factor", "persistent_workers"),
        *("pin_memory", "context", "sampler", "collate", "batch_bytes", "training"),
    ),
    "flags": tuple(field.name for field in fields(FlagsFact)),
}


def environment(profile: Profile) -> Environment:
    """Return the facts of the machine, the GPUs and the primary rank's training, by group; None means "not known"."""
    first = profile.ranks[0] if profile.ranks else None
    things: dict[str, tuple[Any, ...]] = {
        "machine": profile.runs,
        "software": (first.process,) if first else (),
        "gpu": profile.gpus,
    }
    if first:
        things |= {"model": first.models, "optimizer": first.optimizers, "loader": first.loaders}
        things["flags"] = (first.flags,) if first.flags else ()
    return {group: facts for name, members in things.items() for group, facts in _numbered(name, members)}


def _numbered(name: str, things: tuple[Any, ...]) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """Yield a group for each thing, numbered if there are several. Many things are grouped by kind."""
    if len(things) > MOST:
        yield from _kinds(name, things)
        return
    for number, thing in enumerate(things):
        facts = {key: _plain(getattr(thing, key)) for key in SHOWN[name]}
        yield f"{name} {number}" if len(things) > 1 else name, facts


def _kinds(name: str, things: tuple[Any, ...]) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """Yield a group for each kind of thing, the most frequent first.

    A field that differs for all of them, such as a host's name, is left out.
    """
    columns = {key: [_plain(getattr(thing, key)) for thing in things] for key in SHOWN[name]}
    shared_columns = {key: values for key, values in columns.items() if len(set(values)) < len(things)}
    kinds = Counter(zip(*shared_columns.values(), strict=True)).most_common()
    for number, (values, count) in enumerate(kinds[:MOST]):
        group = f"{name} {number}" if len(kinds) > 1 else name
        yield group, {"count": count, **dict(zip(shared_columns, values, strict=True))}
    if len(kinds) > MOST:
        yield f"{name} others", {"count": sum(count for _, count in kinds[MOST:])}


def _plain(value: Any) -> Scalar:
    """Return an equivalent JSON scalar."""
    if isinstance(value, Place):
        return f"{value.file}:{value.line}"
    if isinstance(value, tuple):
        return (".".join if all(isinstance(item, int) for item in value) else ", ".join)(str(item) for item in value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
