"""From the first sight of torch to a running agent, and back."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from . import facts, ranks, stack, tracebacks
from .dynamo import not_for_dynamo
from .hooks import backward, cuda_events, dataloader, ddp, forward, gc, optimizer, output, save, usage
from .importing import forget, when_imported
from .lease import Lease
from .outlet import clock
from .ring import REGION, STEP
from .session import Agent, ident

# Some programs make an optimizer a step, or a name a pass: what is told and kept of them must not grow with the run.
MOST_OPTIMIZERS = 256
MOST_REGIONS = 1_000
OTHERS = "other regions"

active: Agent | None = None
"""The one agent of this process."""


def begin_or_leave(settings: dict[str, Any]) -> None:
    """Begin; if that fails, take out again what is in already."""
    try:
        begin(settings)
    except Exception:
        end()
        raise


def begin(settings: dict[str, Any]) -> Agent | None:
    """Put every hook in; a hook that cannot be put in is left out and named."""
    global active
    if active is not None:
        return active
    torch = sys.modules["torch"]
    agent = active = Agent(torch, settings)
    seen = _Seen(agent)
    when_imported("torch._dynamo", lambda: agent.dynamo.append(True))
    if torch.version.cuda or torch.version.hip:
        agent.mark = cuda_events.Marks(agent)
    for method in (Agent.flush, Agent.end_step, Agent.after_step, Agent.give_up):
        not_for_dynamo(torch, method, callees=True)
    if settings.get("trial"):
        from .trial import Trial

        Trial(agent, settings["trial"]).begin()
    used = usage.Usage(agent)
    parallel = ddp.Ddp(agent)
    roots = forward.Roots(agent, seen.model, parallel.counting)

    def put_in(source: str, install: Callable[[], Callable[[], None]]) -> None:
        try:
            agent.uninstall.append((source, install()))
        except Exception as error:
            agent.problem(source, error)

    put_in("optimizer", lambda: optimizer.install(agent, seen.optimizer, roots.look_again))
    put_in("backward", lambda: backward.install(agent))
    put_in("forward", roots.install)
    put_in("ddp", parallel.install)
    put_in("save", lambda: save.install(agent))
    put_in("gc", lambda: gc.install(agent))
    put_in("usage", used.install)
    put_in("output", output.Output(agent).install)
    put_in("tracebacks", lambda: tracebacks.install(agent))
    when_imported("torch.utils.data.dataloader", lambda: put_in("dataloader", lambda: dataloader.install(agent)))

    def opened() -> None:
        agent.fact("process", facts.process(torch, os.getpid()))
        # Ranks wait for each other, so every rank's windows would cost all of them; attached, we are told whose.
        if not agent.is_worker and (agent.lease is not None or ranks.numbers()["rank"] == 0):
            agent.windows = _windows(agent)

    agent.on_open.append(opened)
    # Apart from one another: what fails takes one fact with it.
    agent.on_tick.append(lambda: _tell_flags(agent, seen, used))
    agent.on_tick.append(lambda: _tell_scaler(agent, used))
    agent.on_tick.append(lambda: _tell_devices(agent, seen))
    agent.on_tick.append(lambda: _tell_memory(agent, seen))

    if "recorder" in settings:
        agent.lease = lease = Lease(settings, lambda: _leave(agent))
        agent.on_tick.append(lambda: _look_at(agent, lease))
    agent.compiled = _graphs
    atexit.register(agent.finish)
    return agent


class _Seen:
    """Facts of models and optimizers, told when they are first seen; kept for the flags and the memory fact."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.models: dict[int, dict[str, Any]] = {}
        self.optimizers: dict[int, dict[str, Any]] = {}
        self.devices = False
        """They have been told."""
        self._parameters: dict[int, tuple[weakref.ref[Any], dict[int, int]]] = {}
        """Of each root: bytes of its parameters on a GPU, by their ids."""
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._updated: dict[int, tuple[int, int]] = {}
        """Of each optimizer: bytes of gradients and of its state on a GPU."""
        self.stages: dict[int, Any] = {}
        """Of each root: the stage of ZeRO; None if it is not known to be sharded."""

    def model(self, module: Any, number: int) -> None:
        def look() -> dict[str, Any]:
            sizes = {id(p): facts.held(p) for p in module.parameters() if p.is_cuda}
            self._parameters[number] = weakref.ref(module), sizes
            self.stages[number] = facts.sharding(module)
            return facts.model(module, number)

        self._tell("model", self.models, number, look)
        for act in self._agent.on_model:
            try:
                act(module)
            except Exception as error:
                self._agent.problem("trial", error)

    def optimizer(self, instance: Any, number: int, made: Any) -> None:
        def look() -> dict[str, Any]:
            origin = made or {"place": None}  # None: it was made before we came
            fact = facts.optimizer(instance, number, origin["place"])
            gradients, state = facts.gradients(instance), facts.states(instance)
            self._updated[number] = facts.held_on_gpu(gradients), facts.held_on_gpu(state)
            return {**fact, "callers": origin.get("callers", []), "driven_by": stack.frameworks()}

        if number > MOST_OPTIMIZERS:
            return
        self._optimizers[number] = weakref.ref(instance)
        self._tell("optimizer", self.optimizers, number, look)

    @property
    def on_gpu(self) -> int:
        """Bytes of the parameters on a GPU of the models that still are; DDP shares its with the module inside it."""
        living = (sizes for module, sizes in self._parameters.values() if module() is not None)
        return sum({key: size for sizes in living for key, size in sizes.items()}.values())

    @property
    def updated_on_gpu(self) -> tuple[int, int]:
        """Bytes of gradients and of optimizer state on a GPU, of the optimizers that still are."""
        living = [held for number, held in self._updated.items() if self._optimizers[number]() is not None]
        return sum(gradients for gradients, _ in living), sum(state for _, state in living)

    def _tell(
        self, kind: str, told: dict[int, dict[str, Any]], number: int, look: Callable[[], dict[str, Any]]
    ) -> None:
        try:
            told[number] = look()
        except Exception as error:  # its steps are worth measuring all the same
            self._agent.problem(kind, error)
        else:
            self._agent.fact(kind, told[number])


def _tell_flags(agent: Agent, seen: _Seen, used: usage.Usage) -> None:
    wrappers = {name for fact in seen.models.values() for name in fact["wrappers"]}
    classes = {name for fact in seen.models.values() for name in fact["modules"]}
    compiled = any(fact["compiled"] for fact in seen.models.values()) or _graphs() > 0
    agent.fact(
        "flags",
        facts.flags(
            agent.torch,
            {
                **used.flags,
                "anomaly": used.anomaly,
                "compile": compiled,
                "ddp": "DistributedDataParallel" in wrappers,
                "data_parallel": "DataParallel" in wrappers,
                "fsdp": any(name.startswith(("FullyShardedDataParallel", "FSDP")) for name in wrappers | classes),
                "zero_stage": facts.zero_stage(list(seen.stages.values()), list(seen.optimizers.values())),
                "program_profiler": bool(getattr(agent.windows, "program_profiler", False)),
                "profiled_throughout": used.profiled_throughout(),
            },
        ),
    )


def _tell_scaler(agent: Agent, used: usage.Usage) -> None:
    if used.scaler_steps:
        agent.fact(
            "scaler",
            {"id": 0, "steps": used.scaler_steps, "skipped": used.scaler_steps - used.scaler_applied},
        )


def _tell_devices(agent: Agent, seen: _Seen) -> None:
    """Once the program has initialised CUDA."""
    if not seen.devices and agent.torch.cuda.is_initialized():
        seen.devices = True
        for fact in facts.devices(agent.torch):
            agent.fact("device", fact)


def _tell_memory(agent: Agent, seen: _Seen) -> None:
    cuda = agent.torch.cuda
    if not cuda.is_initialized():
        return
    device = cuda.current_device()
    statistics = cuda.memory_stats(device)
    allocator = {
        "device": device,
        "allocated": statistics.get("allocated_bytes.all.current", 0),
        "allocated_peak": statistics.get("allocated_bytes.all.peak", 0),
        "reserved": statistics.get("reserved_bytes.all.current", 0),
        "reserved_peak": statistics.get("reserved_bytes.all.peak", 0),
        "retries": statistics.get("num_alloc_retries", 0),
        "ooms": statistics.get("num_ooms", 0),
    }
    agent.fact("allocator", allocator)
    gradients, state = seen.updated_on_gpu
    agent.fact(
        "memory",
        {
            "id": device,
            "parameters": seen.on_gpu,
            "gradients": gradients,
            "optimizer": state,
            "allocated": allocator["allocated"],
            "allocated_peak": allocator["allocated_peak"],
            "reserved": allocator["reserved"],
            "reserved_peak": allocator["reserved_peak"],
        },
    )


def _look_at(agent: Agent, lease: Lease) -> None:
    if lease.is_over:
        agent.leave = lease.end


def _graphs() -> int:
    """Graphs torch.compile has made so far; 0 while the program does not use it. Asked at each step's end."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", None)
    return int(counters["stats"]["unique_graphs"]) if counters else 0


def _windows(agent: Agent) -> Any:
    folder = agent.settings.get("windows")
    if not folder:
        return None
    try:
        from .window import Windows

        if "KINETO_LOG_LEVEL" not in os.environ:  # read when the first window opens: two lines on stderr less
            os.environ["KINETO_LOG_LEVEL"] = "6"
            agent.uninstall.append(("kineto", lambda: _forget("KINETO_LOG_LEVEL")))
        return Windows(agent.torch, folder, agent.settings["budget"], clock, agent.fact)
    except Exception as error:
        agent.problem("windows", error)
        return None


def _forget(variable: str) -> None:
    os.environ.pop(variable, None)


def step() -> None:
    """The program says that a step has ended."""
    agent = active
    if agent is None:
        return
    try:
        now = clock()
        agent.own_steps = True
        agent.put((ident(), STEP, now, now, 0, agent.end_step(now)))
        agent.after_step(now)
    except Exception as error:
        agent.problem("step", error)


_regions: dict[str, int] = {}


def region(name: str, begin_ns: int, end_ns: int) -> None:
    """A named stretch of the program has ended."""
    agent = active
    if agent is None:
        return
    try:
        if name not in _regions and len(_regions) >= MOST_REGIONS:
            name = OTHERS
        number = _regions.get(name)
        agent.put((ident(), REGION, begin_ns, end_ns, number or len(_regions) + 1))
        agent.flush()
        if number is None:
            number = _regions[name] = len(_regions) + 1
            agent.fact("region", {"id": number, "name": name})
    except Exception as error:
        agent.problem("region", error)


def _leave(agent: Agent) -> None:
    if agent is active:
        end()


def end() -> None:
    """Take everything out again: the program goes on as if we had never been there."""
    global active
    forget()
    if active is not None:
        atexit.unregister(active.finish)
        active.stop()
        active = None
    _regions.clear()


def _after_fork() -> None:
    """In a child: what the parent has told is in the parent's facts."""
    _regions.clear()
    if active is not None:
        active.after_fork()


os.register_at_fork(after_in_child=_after_fork)  # once: it cannot be taken back
