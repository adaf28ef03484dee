"""The DataLoader: how long `next()` took, how many batches were ready, and what a batch costs to make.

The hooks patch the classes, so existing iterators are covered as well and every hook can be removed again.
"""

from __future__ import annotations

import functools
import sys
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

from ..attached import is_abandoned
from ..dynamo import FLAG, compiling, not_for_dynamo
from ..event_writer import clock
from ..files import contents
from ..look import (
    ByIdentity,
    class_dict_of,
    dict_of,
    inside,
    is_a,
    module_of,
    mro_of,
    name_of,
    qualified_name_of,
    tensor,
)
from ..observe import observe, observer
from ..patching import each_of, patch
from ..ring import BATCH, FETCH, ITER, MARK_FETCH_END, MARK_FETCH_START
from ..session import FLUSH_NS, TICK_NS, Agent, ident
from ..stack import place
from ..tracebacks import not_counted, step_aside
from .arrival import NO_WORKERS, Arrival
from .padding import Paddings

# Number of a loader's first batches to time. In the training process itself, making a batch is part of the step, so
# only these are timed, and then one at each flush. In workers, every batch is timed.
EVERY_BATCH = 64

SLOW_NS = 2_000_000
"""Batches slower than this (ns) are worth a query of the scheduler.

Reading from the kernel how long a thread waited for a core takes some 10 us, twice per batch.
"""

# Some programs create a loader per episode: loaders after this many get no number and no fact.
MOST_LOADERS = 256


def install(agent: Agent) -> None:
    """Hook iterators, loaders and dataset fetchers. The program must have imported `torch.utils.data`."""
    loaders = _Loaders(agent)
    paddings = Paddings(agent)
    loader_functions = _Loaders.id, _Loaders.iterated, _Loaders.batch, _Loaders.made, _Loaders.look_into
    arrival_functions = Arrival.__init__, Arrival.asked, Arrival.ready, Arrival._has_come, Arrival._was_late
    not_for_dynamo(agent.torch, *loader_functions, *arrival_functions, callees=True)
    _hook_next(agent, loaders, paddings)
    _hook_iter(agent, loaders)
    _hook_construction(agent, loaders)
    _hook_fetchers(agent, loaders)
    agent.uninstall.append(("dataloader", loaders.fetches.uninstall))


def _module() -> Any:
    """Return the dataloader module from `sys.modules`: its package may still be importing."""
    return sys.modules["torch.utils.data.dataloader"]


class _Loaders:
    """The numbers and facts of the loaders seen, without keeping the loaders alive."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.fetches = _Fetches(agent)
        self._ids = ByIdentity()
        self._places = ByIdentity()
        self._looked_into: set[int] = set()
        self._facts: dict[int, dict[str, Any]] = {}
        self._like: dict[str, tuple[int, weakref.ref[Any]]] = {}
        """The number and the last loader, by the loader's description."""
        self.iterators = ByIdentity()
        """The number of each iterator's loader."""

    def made(self, loader: Any) -> None:
        origin = place()
        if origin is not None and "via" in origin:
            origin = self._origin(loader) or origin
        if origin is not None and self._places.get(loader) is None:
            self._places.put(loader, origin)

    def _origin(self, loader: Any) -> dict[str, Any] | None:
        """Return where the program made the loader that a framework has now rebuilt.

        The two are matched by their dataset. Returns None unless exactly one loader matches.
        """
        dataset = dict_of(loader).get("dataset")
        origins = [
            origin
            for other_loader, origin in self._places.items()
            if dict_of(other_loader).get("dataset") is dataset and "via" not in origin
        ]
        return origins[0] if len(origins) == 1 else None

    def id(self, loader: Any) -> int:
        number: int | None = self._ids.get(loader)
        if number is None:
            number = self._number(loader)
            self._ids.put(loader, number)
        return number

    def _number(self, loader: Any) -> int:
        """Return a number for a loader not seen before.

        A loader with the same description as one that is gone gets its number, because it was rebuilt for a new epoch.
        Returns 0 once MOST_LOADERS have a number.
        """
        fact = self._describe(loader)
        description = f"{id(_settings(loader).get('dataset'))} {fact}"
        number, last_loader = self._like.get(description, (0, None))
        if last_loader is None or last_loader() is not None:
            if len(self._facts) >= MOST_LOADERS:
                return 0
            number = len(self._facts) + 1
            self._facts[number] = {"id": number, **fact}
        self._like[description] = number, weakref.ref(loader)
        return number

    def iterated(self, loader: Any, number: int) -> None:
        if number:
            self._agent.fact("loader", self._facts[number])

    def mark(self, iterator: Any, number: int) -> None:
        if is_a(iterator, _module()._BaseDataLoaderIter):
            self.iterators.put(iterator, number)

    def adopt(self, iterator: Any) -> int:
        """Number an iterator that was started before the agent was attached, and return its number."""
        number = 0
        try:
            number = self.id(iterator)
            self._agent.flush()
            self.iterated(iterator, number)
        except Exception as error:  # keep measuring its fetches
            self._agent.problem("loader", error)
        self.mark(iterator, number)
        return number

    def batch(self, number: int, batch: Any) -> None:
        """Complete the loader's fact with the size of its first batch."""
        fact = self._facts.get(number)
        if fact is None or "batch_bytes" in fact:
            return
        begin = clock()
        fact["batch_bytes"], fact["batch_tensors"], fact["batch_device"] = _size(batch)
        self._agent.fact("loader", fact)
        self._agent.account(begin)

    def rows(self, number: int) -> Any:
        """Return the number of samples in a batch, or None if it is not in the loader's settings."""
        return self._facts.get(number, {}).get("batch_size")

    def look_into(self, fetcher: Any, number: int) -> None:
        """Time how the next batches of this process are made.

        The first time a loader is seen this covers EVERY_BATCH batches, afterwards one.
        """
        times = 1 if number in self._looked_into else EVERY_BATCH
        self._looked_into.add(number)
        self.fetches.watch(fetcher, number, times)

    def _describe(self, loader: Any) -> dict[str, Any]:
        attributes = _settings(loader)
        dataset, workers = attributes.get("dataset"), _whole(attributes.get("num_workers")) or 0
        method = None
        if workers > 0:
            context = attributes.get("_DataLoader__multiprocessing_context")
            if context is None or module_of(type(context)) != "multiprocessing.context":
                context = sys.modules.get("multiprocessing")
            method = getattr(context, "get_start_method", None)
        batch_sampler, sampler = attributes.get("batch_sampler"), attributes.get("sampler")
        size = attributes.get("batch_size")
        if size is None:  # with a batch sampler of the program (or of accelerate), the loader itself has none
            size = dict_of(batch_sampler).get("batch_size")
            sampler = dict_of(batch_sampler).get("sampler", sampler)
        collate = attributes.get("collate_fn")
        dataset_module = sys.modules["torch.utils.data.dataset"]
        return {
            "place": self._places.get(loader),
            "dataset": qualified_name_of(type(dataset)),
            "length": _length(attributes),
            "iterable": is_a(dataset, dataset_module.IterableDataset),
            "batch_size": _whole(size),
            "num_workers": workers,
            "sampler": name_of(type(sampler)),
            "collate": collate.__qualname__ if type(collate) is types.FunctionType else name_of(type(collate)),
            "pin_memory": attributes.get("pin_memory") is True,
            "context": None if method is None else method(),
            "prefetch_factor": _whole(attributes.get("prefetch_factor")),
            "persistent_workers": attributes.get("persistent_workers") is True,
        }


_OF_ITERATORS = (
    *("dataset", "num_workers", "collate_fn", "pin_memory", "drop_last"),
    *("persistent_workers", "prefetch_factor"),
)


def _settings(loader: Any) -> dict[str, Any]:
    """Return the attributes of a loader.

    For an iterator, return the attributes that it has copied from its loader, which may be gone.
    """
    attributes = dict_of(loader)
    if "_index_sampler" not in attributes:
        return attributes
    sampler = attributes["_index_sampler"]
    is_batched = attributes.get("_auto_collation")
    return {
        **{name: attributes.get(f"_{name}") for name in _OF_ITERATORS},
        "batch_sampler": sampler if is_batched is True else None,
        "sampler": None if is_batched is True else sampler,
    }


def _whole(value: Any) -> int | None:
    """Return a plain int; None for anything else, such as a number of the program's own class."""
    return value if type(value) is int else None


def _length(held: dict[str, Any]) -> int | None:
    """Return the number of batches, or None if finding out would run the program's code."""
    dataset_module = sys.modules["torch.utils.data.dataset"]
    samplers = sys.modules["torch.utils.data.sampler"]
    sampler, size = held.get("sampler"), held.get("batch_size")
    rows: int | None = None
    if type(sampler) is samplers.SubsetRandomSampler:
        rows = _count(dict_of(sampler).get("indices"))
    elif type(sampler) in (samplers.SequentialSampler, samplers.RandomSampler):
        num_samples = dict_of(sampler).get("_num_samples")
        source = dict_of(sampler).get("data_source")
        rows = num_samples if type(num_samples) is int else _count(source)
        if type(source) is dataset_module.TensorDataset and rows is None:
            torch = sys.modules["torch"]
            tensors = dict_of(source).get("tensors")
            first_tensor: Any = tensors[0] if type(tensors) is tuple and tensors else None
            with torch._C.DisableTorchFunction():
                rows = first_tensor.shape[0] if type(first_tensor) is torch.Tensor else None
        elif type(source) is dataset_module.Subset and rows is None:
            rows = _count(dict_of(source).get("indices"))
    if rows is None or type(held.get("batch_sampler")) not in (samplers.BatchSampler, type(None)):
        return None
    if type(size) is not int:
        return rows if held.get("batch_sampler") is None else None
    return rows // size if held.get("drop_last") is True else -(-rows // size)


def _count(values: Any) -> int | None:
    """Return the number of items in a container of a built-in type; None for any other."""
    return len(values) if type(values) in (list, tuple, range, dict, str) else None


def _size(value: Any, depth: int = 0) -> tuple[int, int, Any]:
    """Return the bytes of a batch's tensors and arrays, its number of tensors, and the first one's device."""
    facts = tensor(value)
    if facts is not None:
        return facts.bytes, 1, str(facts.device)
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(value) is getattr(numpy, "ndarray", None):
        return int(value.nbytes), 0, "cpu"
    total, tensors, device = 0, 0, None
    if depth < 4:
        for _, item in inside(value):
            size, number, item_device = _size(item, depth + 1)
            total += size
            tensors += number
            device = device or item_device
    return total, tensors, device


@not_counted
def _hook_next(agent: Agent, loaders: _Loaders, paddings: Paddings) -> None:
    base = _module()._BaseDataLoaderIter
    single = _module()._SingleProcessDataLoaderIter
    plain = base.__next__
    is_traced, flag = compiling(agent.torch)
    dynamo = agent.dynamo
    iterators = loaders.iterators
    arrivals = ByIdentity()
    mark = agent.mark
    put = agent.put

    @functools.wraps(plain)
    def __next__(self: Any) -> Any:
        if dynamo and (is_traced() or flag(FLAG)):
            return plain(self)
        arrival, queue_state = None, (NO_WORKERS, 0, False)
        try:
            if type(self) is not single:  # without workers no batch can be ready
                arrival, attributes = arrivals.get(self), dict_of(self)
                if arrival is None:
                    arrival = Arrival(attributes)
                    arrivals.put(self, arrival)
                queue_state = arrival.asked(attributes)
            if mark is not None:
                mark(MARK_FETCH_START)
        except Exception as error:
            agent.give_up("dataloader", error)
            return plain(self)
        begin = clock()
        try:
            batch = plain(self)
        except BaseException as error:
            put((ident(), FETCH, begin, clock(), iterators.get(self, 0), queue_state[0], 1))
            step_aside(error)
            raise
        end = clock()
        try:
            number = iterators.get(self, 0)
            ready = NO_WORKERS if arrival is None else arrival.ready(attributes, queue_state, end - begin)
            put((ident(), FETCH, begin, end, number, ready))
            if end >= agent.attend:
                if mark is not None:
                    mark(MARK_FETCH_END)
                attend(self, number, batch, end)
        except Exception as error:
            agent.give_up("dataloader", error)
        return batch

    def attend(iterator: Any, number: int, batch: Any, end: int) -> None:
        if agent.attached and iterators.get(iterator) is None:
            number = loaders.adopt(iterator)
        loaders.batch(number, batch)
        if agent.window_open:
            agent.windows.at_fetch(end)
        if end - agent.flushed > FLUSH_NS:  # a loop without an optimizer ends no step
            agent.flush()
        if type(iterator) is single:
            loaders.look_into(iterator._dataset_fetcher, number)
        if end >= paddings.due:
            paddings.look(number, batch, loaders.rows(number), end)

    not_for_dynamo(agent.torch, __next__)
    not_for_dynamo(agent.torch, attend, callees=True)
    agent.uninstall.append(("dataloader", patch("__next__", plain, __next__, base)))


def _hook_iter(agent: Agent, loaders: _Loaders) -> None:
    def begins(loader: Any) -> tuple[Any, int, int]:
        agent.loader = number = loaders.id(loader)  # the workers that are forked now inherit it
        return loader, number, clock()

    def begun(begin: tuple[Any, int, int], iterator: Any, failed: bool) -> None:
        if failed:
            return
        loader, number, start = begin
        loaders.mark(iterator, number)
        workers = _whole(dict_of(loader).get("num_workers")) or 0
        agent.put((ident(), ITER, start, clock(), number, int(workers > 0)))
        agent.flush()
        agent.attend = 0  # its first batch must be inspected
        loaders.iterated(loader, number)

    observe(agent, "dataloader", "__iter__", begins, _module().DataLoader, after=begun)


def _hook_construction(agent: Agent, loaders: _Loaders) -> None:
    """Remember where each loader was made, by wrapping a property that its `__init__` sets.

    Nothing in that setter warns. A wrapper around `__init__`, or around the check that warns of too many workers, would
    make the warning point at the agent's code.
    """

    def note(loader: Any, context: Any) -> None:
        try:
            loaders.made(loader)
        except Exception:  # a place is optional
            pass

    DataLoader, name = _module().DataLoader, "multiprocessing_context"
    plain = DataLoader.__dict__.get(name)
    if isinstance(plain, property) and plain.fset is not None:
        replacement = plain.setter(observer(agent, "dataloader", plain.fset, note))
        agent.uninstall.append(("dataloader", patch(name, plain, replacement, DataLoader)))


def _count_opened() -> list[int]:
    """Count the files that are opened from now on; call it in workers only, because an audit hook cannot be removed."""
    files = [0]

    def count(event: str, arguments: Any) -> None:
        if event == "open":
            files[0] += 1

    sys.addaudithook(count)
    return files


def _hook_fetchers(agent: Agent, loaders: _Loaders) -> None:
    """Watch the fetcher that each worker makes once."""

    def made(fetcher: Any, result: None, failed: bool) -> None:
        if agent.is_worker and not failed:
            # When attached, the audit hook would stay after the other hooks are removed.
            opened_files = None if agent.attached else _count_opened()
            loaders.fetches.watch(fetcher, agent.loader, None, opened_files)

    base = sys.modules["torch.utils.data._utils.fetch"]._BaseDatasetFetcher
    observe(agent, "dataloader", "__init__", lambda fetcher, *_, **__: fetcher, base, after=made)


class _Collation:
    """The descriptor that replaces a fetcher's `collate_fn`, and records when `fetch` reads it.

    `fetch` does so when it has all samples. The program's function thus gets no agent frame below it.
    """

    def __init__(self, watched: ByIdentity) -> None:
        self._watched = watched

    def __get__(self, fetcher: Any, owner: Any = None) -> Any:
        state = self._watched.get(fetcher)
        if state is not None:
            state.collates = clock()
        try:
            return dict_of(fetcher)["collate_fn"]
        except KeyError:
            raise AttributeError("collate_fn") from None

    def __set__(self, fetcher: Any, function: Any) -> None:
        dict_of(fetcher)["collate_fn"] = function


def _waited_for_a_core() -> int | None:
    """Return the ns for which this thread was runnable but another ran.

    Returns None if the kernel does not report it. Without this, a worker whose core is taken looks like one that waits
    for storage.
    """
    try:
        return int(contents("/proc/thread-self/schedstat", 64).split()[1])
    except (OSError, ValueError, IndexError):
        return None


class _Fetches:
    """The time it takes to make a batch.

    While a batch is watched, the agent replaces `fetch` of its fetcher's class.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._watched = ByIdentity()
        self._undo: dict[int, Callable[[], None]] = {}
        """The undo function of each hooked class, by `id` of the class."""
        self._slow: set[int] = set()
        """Loaders whose batches take so long that reading the wait for a core is comparatively cheap."""

    def watch(self, fetcher: Any, loader: int, times: int | None, opened: list[int] | None = None) -> None:
        """Time the fetcher's next `times` batches; all of them if `times` is None."""
        if self._watched.get(fetcher) is None:
            self._watched.put(fetcher, _Fetched(loader, times, opened))
            if id(type(fetcher)) not in self._undo:
                self._undo[id(type(fetcher))] = self._hook(type(fetcher))

    def uninstall(self) -> None:
        for undo in self._undo.values():
            undo()
        self._undo.clear()
        self._watched.entries.clear()

    @not_counted
    def _hook(self, cls: type) -> Callable[[], None]:
        plain: Any = getattr(cls, "fetch")  # noqa: B009
        agent, watched_fetchers, done, slow_loaders = self._agent, self._watched, self._done, self._slow

        @functools.wraps(plain)
        def fetch(self: Any, possibly_batched_index: Any) -> Any:
            state = watched_fetchers.get(self)
            if state is None:
                return plain(self, possibly_batched_index)
            opened_files = state.opened
            wait_ns = _waited_for_a_core() if state.loader in slow_loaders else None  # before `files`: it opens a file
            files = opened_files[0] if opened_files else 0
            state.collates = 0
            cpu = time.thread_time_ns()
            begin = clock()
            try:
                batch = plain(self, possibly_batched_index)
            except BaseException as error:
                step_aside(error)
                raise
            end = clock()
            try:
                done(state, self, possibly_batched_index, (begin, end, cpu, wait_ns, files))
            except Exception as error:
                agent.give_up("dataloader", error)
            return batch

        not_for_dynamo(agent.torch, fetch)
        undo = [_put(cls, "fetch", fetch)]
        if not any("collate_fn" in class_dict_of(base) for base in mro_of(cls)):
            undo.append(_put(cls, "collate_fn", _Collation(watched_fetchers)))
        return each_of(undo)

    def _done(self, watched: _Fetched, fetcher: Any, index: Any, times: tuple[int, int, int, int | None, int]) -> None:
        """Put the event of a batch that was made.

        `times` are the clock at its begin and end, and three values from before it: CPU time, time spent waiting for a
        core, and files opened.
        """
        agent, (begin, end, cpu, wait_ns, files) = self._agent, times
        core_ns = time.thread_time_ns() - cpu
        if watched.left is not None:
            watched.left -= 1
            if watched.left <= 0:
                self._watched.entries.pop(id(fetcher), None)
                if not self._watched.entries:
                    self.uninstall()
        opened_files = watched.opened
        samples = 1
        if dict_of(fetcher).get("auto_collation") is True:  # a sampler may hand out iterators, which cannot be counted
            samples = _count(index) or 0
        files = opened_files[0] - files if opened_files and samples else -1
        if wait_ns is not None:
            core_ns += max(0, (_waited_for_a_core() or wait_ns) - wait_ns)
        if end - begin > SLOW_NS:
            self._slow.add(watched.loader)
        else:
            self._slow.discard(watched.loader)
        collate_ns = end - watched.collates if begin <= watched.collates <= end else 0
        agent.put((ident(), BATCH, begin, end, watched.loader, min(core_ns, end - begin), collate_ns, samples, files))
        if watched.left is None:  # a worker may be killed without notice; its work in parallel with the step is free
            agent.flush()
            if agent.event_writer is not None:
                agent.event_writer.publish()
            if agent.attached and end >= agent.next_tick:
                agent.next_tick = end + TICK_NS
                if is_abandoned(agent.settings):
                    agent.leave()


def _put(cls: type, name: str, ours: Any) -> Callable[[], None]:
    """Set an attribute of a class; return the undo function."""
    attributes = class_dict_of(cls)
    plain = attributes.get(name)
    type.__setattr__(cls, name, ours)

    def undo() -> None:
        if class_dict_of(cls).get(name) is ours:
            if plain is not None:
                type.__setattr__(cls, name, plain)
            else:
                type.__delattr__(cls, name)

    return undo


class _Fetched:
    """The state of one watched fetcher."""

    def __init__(self, loader: int, left: int | None, opened: list[int] | None) -> None:
        self.loader = loader
        self.left = left
        """Batches still to be watched; None means all."""
        self.opened = opened
        self.collates = 0
        """The clock time (ns) at which the collation of the batch began; 0 before that."""
