"""How much of a batch is padding, judged by a mask, by repeated tokens, or by frames of zeros.

Repeated tokens count only at the ends of rows. Batches are inspected rarely and on the CPU only, with numpy if it is
loaded. torch's profilers and modes do not see the inspection, and nothing waits for a GPU. Padding that cannot be
determined with certainty is not reported.
"""

from __future__ import annotations

import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from ..event_writer import clock
from ..look import class_dict_of, inside, is_a
from ..session import Agent

# Looks are far enough apart to take 1/500 of the run time, not counting the first millisecond: the first looks are slow
# because the code is cold, and short runs need some, too.
REST = 500
FREE_NS = 1_000_000
# After this many batches that showed nothing, a loader is no longer inspected; PAUSE_NS later, another loader may be.
FRUITLESS = 16
PAUSE_NS = 1_000_000_000
# Larger tensors take a millisecond or more to read.
MOST_ELEMENTS = 1 << 20
MOST_TENSORS = 32
MOST_DEPTH = 4
# Shorter rows are features or classes rather than tokens.
SHORTEST = 8
# Fewer different values in a row are flags or levels rather than tokens.
FEWEST_TOKENS = 8

Arrays = dict[str, Any]
Mark = Callable[[Any], Any]
"""Function from an array whose rows are sequences to a boolean array of the positions that are real."""

_is_zero: Mark = partial(operator.eq, 0)
_is_not_zero: Mark = partial(operator.ne, 0)


class Paddings:
    """Sums over the inspected batches, one PaddingFact for each loader."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._sums: dict[int, Counter[str]] = {}
        self._told_by: dict[int, tuple[str, Mark]] = {}
        self._fruitless: Counter[int] = Counter()
        """Number of batches that showed nothing, by loader."""
        self._begun = clock()
        self._spent = 0
        self.due = 0
        """The clock time (ns) from which the next batch must be inspected."""
        agent.on_tick.append(self._tell)

    def look(self, number: int, batch: Any, rows: Any, now: int) -> None:
        """Count a batch of loader `number`; call it from `due` on.

        `rows` is the number of samples in the batch, if known.
        """
        agent = self._agent
        if not number or self._fruitless[number] >= FRUITLESS:
            self.due = now + PAUSE_NS
            return
        try:
            with agent.torch._C.DisableTorchFunction():
                self._count(number, batch, rows if type(rows) is int else None)
        except Exception as error:
            self.due = agent.fetch_due = sys.maxsize
            agent.problem("padding", error)
            return
        agent.account(now)
        self._spent += clock() - now
        self.due = self._begun + REST * (self._spent - FREE_NS)
        agent.fetch_due = self.due if self._fruitless[number] < FRUITLESS else sys.maxsize

    def _count(self, number: int, batch: Any, rows: int | None) -> None:
        numpy = sys.modules.get("numpy")
        arrays = {} if numpy is None else dict(_arrays(self._agent.torch, numpy, batch, rows))
        source = self._told_by.get(number) or _find(arrays)
        if source is None or source[0] not in arrays:
            self._fruitless[number] += 1
            return
        path, mark = self._told_by[number] = source
        real = mark(arrays[path])
        lengths = _lengths(real)
        if lengths is None:  # this batch contradicts the others, so what they showed was not padding either
            self._fruitless[number] = FRUITLESS
            self._sums[number] = Counter()
            return
        count, positions = real.shape
        longest = int(lengths.max())
        self._sums.setdefault(number, Counter()).update(
            batches=1,
            real=int(lengths.sum()),
            longest=count * longest,
            padded=count * positions,
            real_pairs=int((lengths.astype("int64") ** 2).sum()),
            padded_pairs=count * positions**2,
        )

    def _tell(self) -> None:
        for number, sums in self._sums.items():
            source = {"told_by": self._told_by[number][0]} if sums else {}
            self._agent.fact("padding", {"id": number, **source, **sums})


def _arrays(torch: Any, numpy: Any, batch: Any, rows: int | None) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a batch that can be rows of tokens or frames, with their paths in the batch."""
    for path, value in list(_leaves(batch, "batch", MOST_DEPTH))[:MOST_TENSORS]:
        if type(value) is torch.Tensor:
            if value.device.type != "cpu" or value.layout is not torch.strided or value.is_nested:
                continue
            if value.requires_grad or not 2 <= value.dim() <= 3 or value.numel() > MOST_ELEMENTS:
                continue
            value = _array(torch, numpy, value)
        if type(value) is not numpy.ndarray or not 2 <= value.ndim <= 3 or value.size > MOST_ELEMENTS:
            continue
        if value.dtype.kind not in "biuf":  # objects would be compared by code of the program
            continue
        # If there are more rows than samples, rows are positions: (time, batch) rather than (batch, time).
        if 0 < value.shape[0] <= (rows or sys.maxsize) and value.shape[1] >= SHORTEST:
            yield path, value


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a batch, each with the expression by which a program accesses it."""
    children = inside(value)[:MOST_TENSORS] if depth else []
    if not children:
        yield path, value
        return
    names = class_dict_of(type(value)).get("_fields") if is_a(value, tuple) else None
    for name, child in children:
        accessor = f"[{name!r}]" if type(name) in (str, int) else "[...]"
        if type(names) is tuple:
            accessor = f".{names[name]}"
        yield from _leaves(child, (path + accessor)[:80], depth - 1)


_CODES = {
    **{f"int{bits}": f"i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"f{bits // 8}" for bits in (16, 32, 64)},
    **{"bool": "b1", "uint8": "u1"},
}


def _array(torch: Any, numpy: Any, tensor: Any) -> Any:
    """Return a CPU tensor as an array without a copy; None for a dtype that numpy lacks.

    `Tensor.numpy` would call an operator, which TorchDispatchModes and profilers see. The tensor must stay alive as
    long as the array.
    """
    code = _CODES.get(str(tensor.dtype).replace("torch.", ""))
    if code is None or tensor.is_conj() or tensor.is_neg():
        return None
    size = tensor.element_size()
    interface = {
        "version": 3,
        "data": (tensor.data_ptr(), True),
        "shape": tuple(tensor.shape),
        "strides": tuple(step * size for step in tensor.stride()),
        "typestr": ("|" if size == 1 else "<") + code,
    }
    return numpy.asarray(SimpleNamespace(__array_interface__=interface))


def _find(arrays: Arrays) -> tuple[str, Mark] | None:
    """Return the path of the array that shows the padding, and its `Mark`; None if there is none."""
    for path, array in arrays.items():
        mark = _mark_of_mask(path, array, arrays)
        if mark is not None:
            return path, mark
    for path, array in arrays.items():
        mark = _mark_of_tokens(path, array) or _mark_of_frames(array)
        if mark is not None:
            return path, mark
    return None


def _mark_of_mask(path: str, mask: Any, arrays: Arrays) -> Mark | None:
    """Return how a mask marks real positions, or None if this is no padding mask.

    Its name decides what its ones mean, or else tokens or frames of the same shape that are all alike at the padded
    positions.
    """
    if mask.ndim != 2 or not any(word in path.lower() for word in ("mask", "padding")) or not _is_of_inputs(path):
        return None
    if not ((mask == 0) | (mask == 1)).all():
        return None
    is_attention, is_padding = "attention_mask" in path.lower(), "pad" in path.lower()
    inputs = [array for name, array in arrays.items() if _is_of_inputs(name) and _goes_with(mask, array)]
    for mark in (_is_not_zero,) if is_attention else (_is_zero, _is_not_zero):
        real = mark(mask)
        if _lengths(real) is None or _is_triangle(real):
            continue
        if inputs and not is_attention and not real.all():
            if any(_are_alike(array[~real]) for array in inputs):
                return mark
        elif is_attention or (is_padding and mark is _is_zero and real[:, 0].all()):
            return mark  # by its name alone; with the opposite meaning, it would begin with padding
    return None


def _is_of_inputs(path: str) -> bool:
    return not any(word in path.lower() for word in ("label", "target", "loss", "causal"))


def _goes_with(mask: Any, other: Any) -> bool:
    """Return whether `other` has the mask's rows and positions, and more values than a mask."""
    return other.shape[:2] == mask.shape and not ((other == 0) | (other == 1)).all()


def _are_alike(values: Any) -> bool:
    return bool((values == values[:1]).all())


def _is_triangle(real: Any) -> bool:
    """Return whether this is a causal mask: a square whose rows have 1, 2, 3 ... real positions."""
    rows, positions = real.shape
    return rows == positions and sorted(real.sum(axis=1).tolist()) == list(range(1, rows + 1))


def _mark_of_tokens(path: str, tokens: Any) -> Mark | None:
    """Return a mark if exactly one value is repeated at the ends of rows and occurs nowhere else in them."""
    if tokens.ndim != 2 or tokens.dtype.kind not in "iu" or not _is_of_inputs(path):
        return None
    for last, neighbor in ((-1, -2), (0, 1)):
        end_values = set(tokens[:, last][tokens[:, last] == tokens[:, neighbor]].tolist())
        if len(end_values) != 1:
            continue
        padding = end_values.pop()
        real = tokens != padding
        lengths = _lengths(real)
        if lengths is None:
            continue
        row = int(lengths.argmax())
        if len(set(tokens[row][real[row]][:256].tolist())) >= FEWEST_TOKENS:
            return lambda array: array != padding
    return None


def _mark_of_frames(frames: Any) -> Mark | None:
    """Return a mark for (batch, time, features) in which sequences end in zero frames.

    No sequence may have a zero frame before its last real one.
    """
    if frames.ndim != 3 or frames.dtype.kind != "f" or frames.shape[2] < 2:
        return None
    real = _has_values(frames)
    lengths = _lengths(real)
    # Zero frames alone may be silence or a black line; padding comes in several lengths.
    if lengths is None or not real[:, 0].all() or len(set(lengths.tolist())) < 2:
        return None
    return _has_values


def _has_values(frames: Any) -> Any:
    return (frames != 0).any(axis=2)


def _lengths(real: Any) -> Any:
    """Return the number of real positions in each row.

    None if a row has none, or if the real positions neither all start nor all end with their row.
    """
    lengths = real.sum(axis=1)
    if not lengths.all():
        return None
    before, after = real[:, :-1], real[:, 1:]
    return lengths if (before >= after).all() or (before <= after).all() else None
