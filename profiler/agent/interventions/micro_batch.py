"""Micro-batches: split each batch into pieces whose gradients add up to one update.

Activations then need memory for one piece only. The loader hands out a batch's pieces one after the other. Each loss
is weighted by its piece's share of the samples; updates, zeroing and clipping of gradients, and learning-rate
schedules wait for the last piece. So a step of the trial trains on the same samples as before, and its time can be
compared. The gradient is the same up to rounding if the loss is a mean over the samples and no layer looks at other
samples of its batch. Batch normalization does, and so do losses that are averaged over tokens of which some are
padding, or that contrast samples with each other.

This holds only in a loop that fetches a batch, makes one backward pass, and updates. Any other loop is reported as a
problem.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..importing import when_imported
from ..stack import place
from ._modification import Modification, NotMade
from ._tensors import tensors
from ._updates import Optimizers, replace_clipping

_LIMITS = {"clip_grad_norm_": "max_norm", "clip_grad_value_": "clip_value"}
"""Functions that clip gradients, with the name of the argument that sets their limit."""

_OURS = "_profile_train_split"
"""Attribute of the loaders whose batches are split."""


def apply(change: Modification, file: str, line: int, pieces: int) -> None:
    """Split batches of the loaders made from now on at that line of the program, and delay updates of the optimizers.

    Raises:
        NotMade: `pieces` is less than 2.
    """
    if pieces < 2:
        raise NotMade("A batch must be split into at least 2 pieces.", "no-target")
    torch = change.torch
    from torch.optim import lr_scheduler  # type: ignore[import-not-found,unused-ignore]

    state = _PiecewiseUpdate(change)
    unless_waiting = functools.partial(_unless, lambda: state.waiting)
    unless_accumulating = functools.partial(_unless, lambda: state.accumulating)
    change.replace(torch.Tensor, "backward", state.backward)
    replace_clipping(change, state.clipped)
    for cls in (torch.optim.Optimizer, torch.nn.Module):
        change.replace(cls, "zero_grad", unless_waiting)
    for cls in [value for value in vars(lr_scheduler).values() if isinstance(value, type) and "step" in vars(value)]:
        change.replace(cls, "step", unless_accumulating)
    scaler = torch.amp.GradScaler
    change.replace(scaler, "step", state.scaled)
    for name in ("unscale_", "update"):
        change.replace(scaler, name, unless_accumulating)

    def made(plain: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        origin = place()
        plain(loader, *args, **kwargs)
        if origin is not None and (origin["file"], origin["line"]) == (file, line):
            loader.__dict__[_OURS] = True

    def iterated(plain: Any, loader: Any) -> Any:
        iterator = plain(loader)
        return _BatchPieces(torch, state, iterator, pieces) if _OURS in loader.__dict__ else iterator

    def split() -> None:
        change.replace(torch.utils.data.DataLoader, "__init__", made)
        change.replace(torch.utils.data.DataLoader, "__iter__", iterated)

    when_imported("torch.utils.data.dataloader", split)
    change.expect(f"No batch of a DataLoader created at {file}:{line} was split.")


class _PiecewiseUpdate:
    """The progress of an update through the pieces of its batch.

    Its methods `backward`, `clipped` and `scaled` replace the functions that they receive as `plain`.
    """

    def __init__(self, change: Modification) -> None:
        self._change = change
        self._share: float | None = None
        """The current piece's share of the batch's samples, 0 to 1; None before the first piece."""
        self._is_last = True
        """Whether the current piece is the last of its batch."""
        self.waiting = False
        """Whether there are gradients that no update has used."""
        self._passes = self._asked = 0
        """Backward passes and requested updates since the piece was handed out."""
        self.fail = change.fail
        self._optimizers = Optimizers(change, self._step)
        self._seen: list[tuple[Any, Any, int]] = []
        """Parameters, their gradients as the last pass left them, and the gradients' versions."""

    @property
    def accumulating(self) -> bool:
        """Return whether the current gradients are still incomplete."""
        return self.waiting and not self._is_last

    def hand_out(self, share: float, is_last: bool, is_first: bool) -> None:
        """Start a new piece; `is_first` marks the first one of an iterator."""
        if not is_first:
            if self._passes != 1:
                self.fail(f"The program makes {self._passes} backward passes per batch; the trial needs exactly one.")
            elif not self._asked:
                self.fail("The program does not update its weights after every batch.")
        self._share, self._is_last = share, is_last
        self._change.made = self._change.made or share < 1
        self._passes = self._asked = 0

    def backward(self, plain: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        if self._share is None:
            return plain(loss, *args, **kwargs)
        if args or kwargs.get("gradient") is not None or loss.numel() != 1:
            self.fail("A backward pass does not start at a scalar loss.")
            return plain(loss, *args, **kwargs)
        if any(parameter.grad is not grad or grad._version != version for parameter, grad, version in self._seen):
            self.fail("The program changes gradients between the backward pass and the update.")
        result = plain(loss, self._change.torch.full_like(loss, self._share), **kwargs)
        losses = self._change.agent.losses
        if losses and losses[-1].data_ptr() == loss.data_ptr():  # the trial keeps one loss per batch
            losses[-1] = loss.detach() * self._share
            if self.waiting and len(losses) > 1:
                losses[-2:] = [losses[-2] + losses[-1]]
        self._passes += 1
        self.waiting = True
        self._look()
        return result

    def clipped(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.accumulating:
            return plain(*args, **kwargs)
        bound = inspect.signature(plain).bind(*args, **kwargs)
        bound.arguments[_LIMITS[plain.__name__]] = float("inf")
        result = plain(*bound.args, **bound.kwargs)
        self._look()
        return result

    def scaled(self, plain: Any, *args: Any, **kwargs: Any) -> Any:
        """Replace `GradScaler.step`, which may skip the update."""
        if not self.accumulating:
            return self._update(functools.partial(plain, *args, **kwargs))
        self._asked += 1
        return None

    def _step(self, plain: Any, optimizer: Any, closure: Any, *args: Any, **kwargs: Any) -> Any:
        self._asked += 1
        if self._is_last:
            return self._update(plain)
        return closure() if closure is not None else None

    def _update(self, plain: Any) -> Any:
        result = plain()
        self.waiting = False
        self._seen = []
        return result

    def _look(self) -> None:
        self._seen = [
            (parameter, parameter.grad, parameter.grad._version)
            for parameter in (self._optimizers.with_gradients() if self.accumulating else ())
        ]


class _BatchPieces:
    """A loader's iterator that hands out pieces; every other attribute is the original iterator's."""

    def __init__(self, torch: Any, state: _PiecewiseUpdate, iterator: Any, number: int) -> None:
        self.__dict__.update(_torch=torch, _state=state, _iterator=iterator, _number=number, _left=[], _is_first=True)

    def __iter__(self) -> _BatchPieces:
        return self

    def __next__(self) -> Any:
        attributes = self.__dict__
        if not attributes["_left"]:
            batch = next(attributes["_iterator"])
            try:
                attributes["_left"] = in_pieces(attributes["_torch"], batch, attributes["_number"])
            except ValueError as error:
                attributes["_state"].fail(str(error))
                return batch
        share, piece = attributes["_left"].pop(0)
        attributes["_state"].hand_out(share, not attributes["_left"], attributes["_is_first"])
        attributes["_is_first"] = False
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_iterator"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_iterator"], name, value)

    def __len__(self) -> int:
        return len(self.__dict__["_iterator"])


def in_pieces(torch: Any, batch: Any, number: int) -> list[tuple[float, Any]]:
    """Split a batch into `number` pieces, at most one per sample; return each with its share.

    Raises:
        ValueError: the tensors' first sizes differ, so it is unclear what a sample is.
    """
    sizes = {tensor.shape[0] for tensor in tensors(torch, batch) if tensor.dim()}
    if len(sizes) != 1:
        raise ValueError(f"The batch cannot be split: the first dimensions of its tensors are {sorted(sizes)}.")
    (samples,) = sizes
    length = max(1, -(-samples // number))
    starts = range(0, max(1, samples), length)
    return [
        ((min(start + length, samples) - start) / max(1, samples), _part(torch, batch, start, start + length, samples))
        for start in starts
    ]


def _part(torch: Any, value: Any, start: int, end: int, samples: int) -> Any:
    if isinstance(value, torch.Tensor):
        return value[start:end] if value.dim() else value
    if isinstance(value, Mapping):
        parts = {key: _part(torch, item, start, end, samples) for key, item in value.items()}
        return parts if type(value) is dict else type(value)(parts)  # type: ignore[call-arg]
    if isinstance(value, (list, tuple)):
        if next(tensors(torch, value), None) is None:  # a list of names, or of sizes
            return value[start:end] if len(value) == samples else value
        pieces = [_part(torch, item, start, end, samples) for item in value]
        return type(value)(*pieces) if hasattr(value, "_fields") else type(value)(pieces)
    return value


def _unless(waits: Callable[[], bool], plain: Any, *args: Any, **kwargs: Any) -> Any:
    return None if waits() else plain(*args, **kwargs)
