"""The DataLoader: how long `next()` took and how many batches were ready; in the workers, what a batch costs.

Patched on the classes, so iterators that exist already are seen as well, and everything can be taken out again.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from ..dynamo import not_for_dynamo
from ..outlet import clock
from ..ring import BATCH, FETCH, ITER, MARK_FETCH_END, MARK_FETCH_START
from ..session import FLUSH_NS, TICK_NS, Agent, ident
from ..stack import place
from ..tracebacks import step_aside
from .arrival import TURN_NS, Arrival
from .padding import Paddings

_MARK = "_profile_train_loader"
_ARRIVAL = "_profile_train_arrival"

# In the training process itself a batch's making is on the step's path: it is looked into for the first ones, then for
# one at each flush. In workers every batch is.
EVERY_BATCH = 64

SLOW_NS = 2_000_000
"""Asking the kernel how long a thread waited for a core takes some 10 us, twice a batch."""

# Some programs make a loader an episode: those after so many have no number and no fact of their own.
MOST_LOADERS = 256


def install(agent: Agent) -> Callable[[], None]:
    """Hook iterators, loaders and dataset fetchers; `torch.utils.data` must have been imported by the program."""
    loaders = _Loaders(agent)
    paddings = Paddings(agent)
    for function in (
        _Loaders.id,
        _Loaders.iterated,
        _Loaders.batch,
        _Loaders.made,
        _Loaders.look_into,
        _waiting,
        Arrival.has_come,
        Arrival.was_late,
        _was_ready,
    ):
        not_for_dynamo(agent.torch, function, callees=True)
    undo = [
        _hook_next(agent, loaders, paddings),
        _hook_iter(agent, loaders),
        _hook_construction(loaders),
        _hook_fetchers(agent, loaders),
        loaders.release,
    ]

    def uninstall() -> None:
        for each in undo:
            each()

    return uninstall


def _module() -> Any:
    """As it stands in sys.modules: its package may be in the middle of its own import."""
    return sys.modules["torch.utils.data.dataloader"]


class _Loaders:
    """Ids and facts of the loaders seen, without keeping them alive."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._ids: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._places: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self.described: set[int] = set()
        self._looked_into: set[int] = set()
        self._facts: dict[int, dict[str, Any]] = {}
        self._like: dict[str, tuple[int, weakref.ref[Any]]] = {}
        """By what a loader is like: the number and the last one."""
        self._numbered: weakref.WeakSet[Any] = weakref.WeakSet()
        """The iterators that bear a number of ours."""
        self._timed: weakref.WeakSet[Any] = weakref.WeakSet()
        """The fetchers that have been given a `fetch` of ours."""

    def made(self, loader: Any) -> None:
        where = place()
        if where is not None and "via" in where:
            where = self._origin(loader) or where
        if where is not None:
            self._places.setdefault(loader, where)

    def _origin(self, loader: Any) -> dict[str, Any] | None:
        """Where the program has made the loader that a framework makes anew: the one of the same data."""
        data = loader.dataset
        made = [where for other, where in list(self._places.items()) if other.dataset is data and "via" not in where]
        return made[0] if len(made) == 1 else None

    def id(self, loader: Any) -> int:
        number = self._ids.get(loader)
        if number is None:
            number = self._ids[loader] = self._number(loader)
        return number

    def _number(self, loader: Any) -> int:
        """A new one; that of a loader that is gone if this is the same again, made anew for another epoch."""
        fact = self._describe(loader)
        like = f"{id(loader.dataset)} {fact}"
        number, last = self._like.get(like, (0, None))
        if last is None or last() is not None:
            if len(self._facts) >= MOST_LOADERS:
                return 0
            number = len(self._facts) + 1
            self._facts[number] = {"id": number, **fact}
        self._like[like] = number, weakref.ref(loader)
        return number

    def iterated(self, loader: Any, number: int) -> None:
        if number:
            self._agent.fact("loader", self._facts[number])

    def mark(self, iterator: Any, number: int) -> None:
        setattr(iterator, _MARK, number)
        self._numbered.add(iterator)

    def adopt(self, iterator: Any) -> int:
        """The number of an iterator that had been begun before we came."""
        number = 0
        try:
            loader = _Begun(iterator)
            number = self.id(loader)
            self._agent.flush()
            self.iterated(loader, number)
        except Exception as error:  # its fetches are worth measuring all the same
            self._agent.problem("loader", error)
        self.mark(iterator, number)
        return number

    def time(self, fetcher: Any, fetch: Callable[[Any], Any]) -> None:
        fetcher.fetch = fetch
        self._timed.add(fetcher)

    def release(self) -> None:
        """What lives on when the hooks are out bears nothing of ours."""
        for iterator in tuple(self._numbered):
            iterator.__dict__.pop(_MARK, None)
            iterator.__dict__.pop(_ARRIVAL, None)
        for fetcher in tuple(self._timed):
            fetcher.__dict__.pop("fetch", None)

    def batch(self, number: int, batch: Any) -> None:
        """Complete the fact with the size of the first batch."""
        self.described.add(number)
        if number not in self._facts:
            return
        begin = clock()
        fact = self._facts[number]
        fact["batch_bytes"], fact["batch_tensors"], fact["batch_device"] = _size(batch)
        self._agent.fact("loader", fact)
        if self._agent.outlet is not None:
            self._agent.outlet.measured_ns += clock() - begin

    def rows(self, number: int) -> Any:
        """Samples in a batch, where the loader's settings tell."""
        return self._facts.get(number, {}).get("batch_size")

    def look_into(self, fetcher: Any, number: int) -> None:
        """Time the making of the next batch of this process, of the first ones of a loader each."""
        if "fetch" not in fetcher.__dict__:
            times = 1 if number in self._looked_into else EVERY_BATCH
            self._looked_into.add(number)
            self.time(fetcher, _timed_fetch(self._agent, fetcher, number, times=times))

    def _describe(self, loader: Any) -> dict[str, Any]:
        dataset = loader.dataset
        context = getattr(loader, "multiprocessing_context", None)
        method = getattr(context, "get_start_method", None)
        if method is None and loader.num_workers > 0:
            multiprocessing = sys.modules.get("multiprocessing")
            method = getattr(multiprocessing, "get_start_method", None)
        iterable = isinstance(dataset, sys.modules["torch.utils.data.dataset"].IterableDataset)
        length = None
        if not iterable:
            try:
                length = len(loader)
            except Exception:
                length = None
        return {
            "place": self._places.get(loader),
            "dataset": type(dataset).__qualname__,
            "length": length,
            "iterable": iterable,
            "batch_size": _batch_size(loader),
            "num_workers": loader.num_workers,
            "sampler": type(_sampler(loader)).__name__,
            "collate": getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__name__),
            "pin_memory": bool(loader.pin_memory),
            "drop_last": bool(loader.drop_last),
            "timeout": float(loader.timeout),
            "context": method() if method is not None and loader.num_workers > 0 else None,
            "prefetch_factor": loader.prefetch_factor,
            "persistent_workers": bool(loader.persistent_workers),
        }


class _Begun:
    """The DataLoader of an iterator, as far as the iterator knows: the loader itself may be gone already."""

    def __init__(self, iterator: Any) -> None:
        self.dataset = iterator._dataset
        self.num_workers = iterator._num_workers
        self.collate_fn = iterator._collate_fn
        self.pin_memory = iterator._pin_memory
        self.drop_last = iterator._drop_last
        self.timeout = iterator._timeout
        self.persistent_workers = iterator._persistent_workers
        self.prefetch_factor = getattr(iterator, "_prefetch_factor", None)
        self.multiprocessing_context = None
        order = iterator._index_sampler
        self.batch_size = None
        self.batch_sampler: Any = order if iterator._auto_collation else None
        self.sampler: Any = None if iterator._auto_collation else order
        self._order = order

    def __len__(self) -> int:
        return len(self._order)


def _batch_size(loader: Any) -> Any:
    """With a batch sampler of the program's (or of accelerate's) the loader itself has none."""
    size = getattr(loader, "batch_size", None)
    return getattr(getattr(loader, "batch_sampler", None), "batch_size", None) if size is None else size


def _sampler(loader: Any) -> Any:
    sampler = getattr(loader, "sampler", None)
    if getattr(loader, "batch_size", None) is None:  # then it is one that torch made up
        sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", sampler)
    return sampler


def _size(value: Any, depth: int = 0) -> tuple[int, int, Any]:
    """Bytes of the tensors and arrays in a batch, how many tensors these are, and the device of the first."""
    if hasattr(value, "element_size") and hasattr(value, "numel"):
        return value.element_size() * value.numel(), 1, str(value.device)
    if hasattr(value, "nbytes"):
        return int(value.nbytes), 0, "cpu"
    children: Any = ()
    if isinstance(value, dict):
        children = value.values()
    elif isinstance(value, (list, tuple)):
        children = value
    total, tensors, device = 0, 0, None
    if depth < 4:
        for child in children:
            size, number, where = _size(child, depth + 1)
            total += size
            tensors += number
            device = device or where
    return total, tensors, device


NO_WORKERS = -1
UNKNOWN = -2  # macOS: the queue does not tell its length


def _waiting(iterator: Any, queue: Any) -> tuple[int, int, bool]:
    """Batches in the queue, batches that came out of order and were put by, and whether the next one is among these."""
    try:
        queued: int = queue.qsize()
    except NotImplementedError:
        return UNKNOWN, 0, False
    if queued:
        arrival = iterator.__dict__.get(_ARRIVAL)
        if arrival is None:
            arrival = iterator.__dict__[_ARRIVAL] = Arrival(queue)
        # Of more batches than workers one was put a batch's time ago, and has long been sent.
        if (arrival.slow or queued <= iterator._num_workers) and not arrival.has_come(iterator):
            queued = 0
    put_by = _put_by(iterator)
    return queued, put_by, put_by > 0 and len(iterator._task_info.get(iterator._rcvd_idx, ())) == 2


def _put_by(iterator: Any) -> int:
    return sum(1 for info in iterator._task_info.values() if len(info) == 2)


def _was_ready(iterator: Any, queued: int, put_by: int, next_put_by: bool) -> int:
    """Batches that were ready as the one returned now was asked for; 0 if that one was not among them.

    Batches are handed out in order. If as many as lay in the queue have since been put by as out of order, then the one
    asked for was not there, however many others were.
    """
    if not next_put_by and (queued == 0 or _put_by(iterator) - put_by >= queued):
        return 0
    return queued + put_by


def _hook_next(agent: Agent, loaders: _Loaders, paddings: Paddings) -> Callable[[], None]:
    base = _module()._BaseDataLoaderIter
    single = _module()._SingleProcessDataLoaderIter
    plain = base.__next__
    is_compiling = agent.torch.compiler.is_compiling
    dynamo = agent.dynamo
    mark = agent.mark
    put = agent.put

    def __next__(self: Any) -> Any:
        if dynamo and is_compiling():
            return plain(self)
        try:
            number = getattr(self, _MARK, 0)
            queue = self.__dict__.get("_data_queue")
            queued, put_by, next_put_by = (NO_WORKERS, 0, False) if queue is None else _waiting(self, queue)
            if mark is not None:
                mark(MARK_FETCH_START)
        except Exception as error:
            agent.give_up("dataloader", error)
            return plain(self)
        begin = clock()
        try:
            batch = plain(self)
        except BaseException as error:
            put((ident(), FETCH, begin, clock(), number, queued, 1))
            step_aside(error)
            raise
        end = clock()
        try:
            ready = queued if queued < 0 else _was_ready(self, queued, put_by, next_put_by)
            if queued > 0 and end - begin > TURN_NS and self.__dict__[_ARRIVAL].was_late(end - begin):
                ready = 0
            put((ident(), FETCH, begin, end, number, ready))
            if end >= agent.attend:
                if mark is not None:
                    mark(MARK_FETCH_END)
                attend(self, number, batch, end)
        except Exception as error:
            agent.give_up("dataloader", error)
        return batch

    def lean(self: Any) -> Any:
        """Without workers nothing can lie ready."""
        if dynamo and is_compiling():
            return plain(self)
        begin = clock()
        try:
            batch = plain(self)
        except BaseException as error:
            put((ident(), FETCH, begin, clock(), getattr(self, _MARK, 0), NO_WORKERS, 1))
            step_aside(error)
            raise
        end = clock()
        number = getattr(self, _MARK, 0)  # this hook may have been taken out meanwhile
        put((ident(), FETCH, begin, end, number, NO_WORKERS))
        if end >= agent.attend:
            try:
                attend(self, number, batch, end)
            except Exception as error:
                agent.give_up("dataloader", error)
        return batch

    def attend(iterator: Any, number: int, batch: Any, end: int) -> None:
        if agent.lease is not None and _MARK not in iterator.__dict__:
            number = loaders.adopt(iterator)
        if number not in loaders.described:
            loaders.batch(number, batch)
        if agent.window_open:
            agent.windows.at_fetch(end)
        if end - agent.flushed > FLUSH_NS:  # a loop without an optimizer ends no step
            agent.flush()
        if type(iterator) is single:
            loaders.look_into(iterator._dataset_fetcher, number)
        if end >= paddings.due:
            paddings.look(number, batch, loaders.rows(number), end)

    setattr(base, _MARK, 0)
    for function in (__next__, lean):
        function.__wrapped__ = plain  # type: ignore[attr-defined]
        not_for_dynamo(agent.torch, function)
    not_for_dynamo(agent.torch, attend, callees=True)
    base.__next__ = __next__
    if mark is None and "__next__" not in single.__dict__:
        lean.__name__ = "__next__"
        single.__next__ = lean

    def undo() -> None:
        if single.__dict__.get("__next__") is lean:
            del single.__next__
        if base.__next__ is __next__:
            base.__next__ = plain
            delattr(base, _MARK)

    return undo


def _hook_iter(agent: Agent, loaders: _Loaders) -> Callable[[], None]:
    DataLoader = _module().DataLoader
    plain = DataLoader.__iter__

    def __iter__(self: Any) -> Any:
        try:
            agent.loader = number = loaders.id(self)  # the workers that are forked now inherit it
        except Exception as error:
            agent.give_up("dataloader", error)
            return plain(self)
        begin = clock()
        try:
            iterator = plain(self)
        except BaseException as error:
            step_aside(error)
            raise
        try:
            loaders.mark(iterator, number)
            agent.put((ident(), ITER, begin, clock(), number, int(self.num_workers > 0)))
            agent.flush()
            agent.attend = 0  # its first batch is to be looked at
            loaders.iterated(self, number)
        except Exception as error:
            agent.give_up("dataloader", error)
        return iterator

    __iter__.__wrapped__ = plain  # type: ignore[attr-defined]
    not_for_dynamo(agent.torch, __iter__)
    DataLoader.__iter__ = __iter__

    def undo() -> None:
        if DataLoader.__iter__ is __iter__:
            DataLoader.__iter__ = plain

    return undo


def _hook_construction(loaders: _Loaders) -> Callable[[], None]:
    """Remember where a loader was made: its `__init__` sets this property, and nothing in there warns. A wrapper of
    `__init__`, or of the check that warns of too many workers, would have the warning point at us."""
    DataLoader = _module().DataLoader
    plain = DataLoader.__dict__.get("multiprocessing_context")
    if not isinstance(plain, property) or plain.fset is None:
        return lambda: None
    setter = plain.fset

    def set_context(self: Any, context: Any) -> None:
        try:
            loaders.made(self)
        except Exception:  # a place is a nicety
            pass
        try:
            setter(self, context)
        except BaseException as error:
            step_aside(error)
            raise

    hooked = plain.setter(set_context)
    DataLoader.multiprocessing_context = hooked

    def undo() -> None:
        if DataLoader.__dict__.get("multiprocessing_context") is hooked:
            DataLoader.multiprocessing_context = plain

    return undo


class _Opened:
    """Counts files opened in a worker. An audit hook cannot be removed, so it is added in workers only."""

    def __init__(self) -> None:
        self.files = 0

    def __call__(self, event: str, arguments: Any) -> None:
        if event == "open":
            self.files += 1


def _hook_fetchers(agent: Agent, loaders: _Loaders) -> Callable[[], None]:
    """In workers: a fetcher is made there, once."""
    base = sys.modules["torch.utils.data._utils.fetch"]._BaseDatasetFetcher
    plain = base.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        try:
            if agent.is_worker:
                opened = None
                if agent.lease is None:  # it would stay when the others have been taken out
                    opened = _Opened()
                    sys.addaudithook(opened)
                loaders.time(self, _timed_fetch(agent, self, agent.loader, opened))
        except Exception as error:
            agent.give_up("dataloader", error)

    for function in (__init__, _Collate.__call__):
        not_for_dynamo(agent.torch, function)
    base.__init__ = __init__

    def undo() -> None:
        if base.__init__ is __init__:
            base.__init__ = plain

    return undo


class _Collate:
    """A collate function and the time it takes."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self.spent_ns = 0

    def __call__(self, samples: Any) -> Any:
        begin = clock()
        try:
            return self._plain(samples)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            self.spent_ns += clock() - begin


def _waited_for_a_core() -> int | None:
    """Nanoseconds for which this thread could have run and another ran; None where the kernel does not tell.

    Without it a worker whose core is taken looks like one that waits for storage.
    """
    try:
        file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        try:
            return int(os.read(file, 64).split()[1])
        finally:
            os.close(file)
    except (OSError, ValueError, IndexError):
        return None


def _timed_fetch(
    agent: Agent, fetcher: Any, loader: int, opened: _Opened | None = None, times: int | None = None
) -> Callable[[Any], Any]:
    """What to put in the place of this fetcher's `fetch`; after so many `times` it takes itself out."""
    plain = type(fetcher).fetch
    owner = weakref.ref(fetcher)  # which owns this closure, and the data set: a cycle would keep files open
    cpu_clock = time.thread_time_ns
    left = times
    slow = False
    """Batches take so long that it costs nothing to ask for how long the thread waited for a core."""

    def fetch(possibly_batched_index: Any) -> Any:
        nonlocal left, slow
        fetcher: Any = owner()
        collate = fetcher.collate_fn
        fetcher.collate_fn = timed = _Collate(collate)
        queued = _waited_for_a_core() if slow else None  # which opens a file
        files = opened.files if opened else 0
        cpu = cpu_clock()
        begin = clock()
        try:
            batch = plain(fetcher, possibly_batched_index)
        except BaseException as error:
            step_aside(error)
            raise
        finally:
            fetcher.collate_fn = collate
        end = clock()
        try:
            if left is not None:
                left -= 1
                if left == 0:
                    fetcher.__dict__.pop("fetch", None)
            samples = 1
            if fetcher.auto_collation:  # a sampler of batches may hand out iterators, which cannot be counted
                samples = len(possibly_batched_index) if hasattr(possibly_batched_index, "__len__") else 0
            files = opened.files - files if opened and samples else -1
            wanted = cpu_clock() - cpu
            if queued is not None:
                wanted += max(0, (_waited_for_a_core() or queued) - queued)
            slow = end - begin > SLOW_NS
            agent.put((ident(), BATCH, begin, end, loader, min(wanted, end - begin), timed.spent_ns, samples, files))
            if times is None:  # a worker may be ended without a word; what it does beside the step costs nothing
                agent.flush()
                if agent.outlet is not None:
                    agent.outlet.publish()
                if agent.lease is not None and end >= agent.next_tick:
                    agent.next_tick = end + TICK_NS
                    if agent.lease.is_over:
                        agent.lease.end()
        except Exception as error:
            agent.give_up("dataloader", error)
        return batch

    not_for_dynamo(agent.torch, fetch)
    return fetch
