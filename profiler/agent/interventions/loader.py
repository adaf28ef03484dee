"""Change DataLoader arguments (workers, prefetching, pinned memory) and make copies non-blocking."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..importing import when_imported
from ..patching import each_of, patch
from ..session import Agent
from ..stack import place
from ._copies import without_waiting
from ._expected import expect

# What DataLoader refuses where there are no workers.
_OF_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")


@dataclass(frozen=True)
class Loader:
    """The change to loaders made at that line of the program; None leaves an argument as it is."""

    file: str
    line: int
    num_workers: int | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    pin_memory: bool | None = None
    non_blocking: bool = False
    """Whether copies of pinned batches to a GPU are non-blocking, for any loader."""

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Change every loader made from now on."""
        undo: list[Callable[[], None]] = []
        made_otherwise: list[bool] = []
        expect(agent, lambda: made_otherwise, f"No DataLoader was made at {self.file}:{self.line}.")
        when_imported("torch.utils.data.dataloader", lambda: undo.append(self._patch(agent, made_otherwise)))
        if self.non_blocking:
            copied: list[bool] = []
            undo.append(without_waiting(agent, copied))
            expect(agent, lambda: copied, "No pinned batch was copied to a GPU by its `to` or `cuda`.")

        return each_of(undo)

    def _patch(self, agent: Agent, made_otherwise: list[bool]) -> Callable[[], None]:
        cls = agent.torch.utils.data.DataLoader
        plain = cls.__init__
        signature = inspect.signature(plain)
        wanted = {
            name: getattr(self, name)
            for name in ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
            if getattr(self, name) is not None
        }

        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            made = place()
            if made is None or (made["file"], made["line"]) != (self.file, self.line):
                plain(loader, *args, **kwargs)
                return
            given = signature.bind(loader, *args, **kwargs)
            made_otherwise.append(True)
            given.arguments.update(wanted)
            if not given.arguments.get("num_workers"):
                for name in _OF_WORKERS:
                    given.arguments.pop(name, None)
            plain(*given.args, **given.kwargs)

        return patch("__init__", plain, __init__, cls)
