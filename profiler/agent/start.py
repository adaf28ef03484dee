"""Start and stop the agent once the program has imported torch."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from . import facts, ranks, stack, tracebacks, yama
from .dynamo import compiled_graphs, not_for_dynamo
from .hooks import (
    anomaly,
    backward,
    cuda_events,
    cuda_graphs,
    dataloader,
    ddp,
    forward,
    gc,
    optimizer,
    output,
    ray_data,
    save,
    usage,
)
from .importing import forget, when_imported
from .look import parameters, tensor
from .outlet import clock
from .ring import MARK_STEP, REGION, STEP
from .session import Agent, ident

# Some programs make an optimizer a step, or a name a pass: what we report and keep of them must not grow with the run.
MOST_OPTIMIZERS = 256
MOST_REGIONS = 1_000
OTHERS = "other regions"

active: Agent | None = None
"""The one agent of this process."""


def begin_or_leave(settings: dict[str, Any]) -> None:
    """Start the agent; if that fails, remove what is already installed."""
    try:
        begin(settings)
    except Exception:
        end()
        raise


def begin(settings: dict[str, Any]) -> Agent | None:
    """Install every hook; a hook that cannot be installed is left out and reported."""
    global active
    if active is not None:
        return active
    torch = sys.modules["torch"]
    agent = active = Agent(torch, settings)
    seen = _Reported(agent)
    when_imported("torch._dynamo", lambda: agent.dynamo.append(True))
    if torch.version.cuda or torch.version.hip:
        agent.mark = cuda_events.Marks(agent)
    for method in (Agent.flush, Agent.end_step, Agent.after_step, Agent.give_up, cuda_events.Marks.__call__):
        not_for_dynamo(torch, method, callees=True)
    if settings.get("tracer"):
        yama.allow(settings["tracer"])
    if settings.get("trial"):
        from . import trial

        trial.begin(agent, **settings["trial"])
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
    if agent.mark is not None:
        put_in("cuda_graphs", lambda: cuda_graphs.install(agent))
    put_in("ddp", parallel.install)
    put_in("save", lambda: save.install(agent))
    put_in("gc", lambda: gc.install(agent))
    put_in("usage", used.install)
    put_in("output", output.Output(agent).install)
    put_in("tracebacks", lambda: tracebacks.install(agent))
    put_in("anomaly", lambda: anomaly.install(agent))
    when_imported("torch.utils.data.dataloader", lambda: put_in("dataloader", lambda: dataloader.install(agent)))
    when_imported(ray_data.MODULE, lambda: put_in("ray_data", lambda: ray_data.install(agent)))

    def opened() -> None:
        agent.fact("process", facts.process(torch))
        # Ranks wait for each other, so every rank's windows would cost all of them; `attach` chooses whose.
        if not agent.is_worker and (agent.attached or ranks.numbers()["rank"] == 0):
            agent.windows = _windows(agent, seen)

    agent.on_open.append(opened)
    # Apart from one another: what fails takes one fact with it.
    agent.on_tick.append(lambda: _tell_flags(agent, seen, used))
    agent.on_tick.append(lambda: _tell_scaler(agent, used))
    agent.on_tick.append(lambda: _tell_windows(agent))
    agent.on_tick.append(lambda: _tell_devices(agent, seen))
    peaks: dict[int, dict[str, int]] = {}
    agent.on_tick.append(lambda: _tell_memory(agent, seen, peaks))

    agent.leave = lambda: end() if agent is active else None
    atexit.register(agent.finish)
    return agent


class _Reported:
    """The facts of models and optimizers, kept for the flags and memory facts once reported."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.models: dict[int, dict[str, Any]] = {}
        self.optimizers: dict[int, dict[str, Any]] = {}
        self.devices = False
        """Whether the device facts have been reported."""
        self._parameters: dict[int, tuple[weakref.ref[Any], dict[int, tuple[int, int]]]] = {}
        """By root: the root, and device and bytes of each of its parameters on a GPU, by their `id`."""
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        self._updated: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
        """By optimizer: bytes of its gradients and of its state, by device."""
        self.stages: dict[int, Any] = {}
        """By root: the ZeRO stage; None if it is not known to be sharded."""

    def model(self, module: Any, number: int) -> None:
        def look() -> dict[str, Any]:
            read = {id(each): tensor(each) for each in parameters(module)}
            sizes = {
                key: (each.device.index, each.held) for key, each in read.items() if each and each.device.type == "cuda"
            }
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
            self._updated[number] = facts.held_on_gpus(gradients), facts.held_on_gpus(state)
            return {**fact, "callers": origin.get("callers", []), "driven_by": stack.frameworks()}

        if number > MOST_OPTIMIZERS:
            return
        self._optimizers[number] = weakref.ref(instance)
        self._tell("optimizer", self.optimizers, number, look)

    def are_sized(self) -> bool:
        """Return whether torch knows the size of every parameter without calling code of the program."""
        return all(fact["sized"] for fact in self.models.values())

    def on_gpu(self, device: int) -> int:
        """Return the bytes of parameters on a GPU, each counted once.

        DDP shares its parameters with the module inside it.
        """
        living = (sizes for module, sizes in self._parameters.values() if module() is not None)
        every = {key: each for sizes in living for key, each in sizes.items()}
        return sum(size for where, size in every.values() if where == device)

    def updated_on_gpu(self, device: int) -> tuple[int, int]:
        """Return the bytes of gradients and of optimizer state on a GPU, for the optimizers that still exist."""
        living = [held for number, held in self._updated.items() if self._optimizers[number]() is not None]
        return sum(held.get(device, 0) for held, _ in living), sum(held.get(device, 0) for _, held in living)

    def _tell(
        self, kind: str, reported: dict[int, dict[str, Any]], number: int, look: Callable[[], dict[str, Any]]
    ) -> None:
        try:
            reported[number] = look()
        except Exception as error:  # its steps are worth measuring all the same
            self._agent.problem(kind, error)
        else:
            self._agent.fact(kind, reported[number])


def _tell_flags(agent: Agent, seen: _Reported, used: usage.Usage) -> None:
    wrappers = {name for fact in seen.models.values() for name in fact["wrappers"]}
    classes = {name for fact in seen.models.values() for name in fact["modules"]}
    compiled = any(fact["compiled"] for fact in seen.models.values()) or compiled_graphs() > 0
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
        agent.fact("scaler", {"steps": used.scaler_steps, "skipped": used.scaler_steps - used.scaler_applied})


def _tell_windows(agent: Agent) -> None:
    if agent.windows is not None:
        agent.fact("windows", agent.windows.state)


def _tell_devices(agent: Agent, seen: _Reported) -> None:
    """Report the devices once the program has initialized CUDA."""
    if not seen.devices:
        for fact in facts.devices(agent.torch):
            seen.devices = True
            agent.fact("device", fact)


def _tell_memory(agent: Agent, seen: _Reported, peaks: dict[int, dict[str, int]]) -> None:
    """Report the memory of every GPU on which torch has reserved some.

    `peaks` holds the highest bytes so far by device and kind: a program may reset torch's own peaks, and its models and
    optimizers are gone by the time it ends.
    """
    cuda = agent.torch.cuda
    if not cuda.is_initialized():
        return
    for device in range(cuda.device_count()):
        statistics = cuda.memory_stats(device)  # the allocator's own: asks no device, and makes no context on one
        if not statistics.get("reserved_bytes.all.peak"):
            continue
        gradients, state = seen.updated_on_gpu(device)
        now = {
            "allocated_peak": statistics.get("allocated_bytes.all.peak", 0),
            "reserved_peak": statistics["reserved_bytes.all.peak"],
            "parameters": seen.on_gpu(device),
            "gradients": gradients,
            "optimizer": state,
        }
        most = peaks.setdefault(device, now)
        most.update({name: max(size, most[name]) for name, size in now.items()})
        sizes = {
            "id": device,
            "allocated": statistics.get("allocated_bytes.all.current", 0),
            "allocated_peak": most["allocated_peak"],
            "reserved": statistics.get("reserved_bytes.all.current", 0),
            "reserved_peak": most["reserved_peak"],
        }
        counts = {"retries": statistics.get("num_alloc_retries", 0), "ooms": statistics.get("num_ooms", 0)}
        agent.fact("allocator", {"device": device, **sizes, **counts})
        free, total = (None, None) if agent.is_capturing() else cuda.mem_get_info(device)
        agent.fact("memory", {**sizes, **most, "free": free, "total": total})


def _windows(agent: Agent, seen: _Reported) -> Any:
    folder = agent.settings.get("windows")
    if not folder:
        agent.fact("windows", {"reason": "off"})
        return None
    try:
        from .window import Windows

        return Windows(agent, folder, agent.settings["budget"], clock, seen.are_sized)
    except Exception as error:
        agent.problem("windows", error)
        return None


def step() -> None:
    """Record that the program has declared the end of a step."""
    agent = active
    if agent is None:
        return
    try:
        if agent.mark is not None:
            agent.mark(MARK_STEP)
        now = clock()
        agent.own_steps = True
        agent.put((ident(), STEP, now, now, 0, agent.end_step(now)))
        agent.after_step(now)
    except Exception as error:
        agent.problem("step", error)


_regions: dict[str, int] = {}


def region(name: str, begin_ns: int, end_ns: int) -> None:
    """Record a named region of the program that has ended."""
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


def end() -> None:
    """Remove everything; the program continues as if the agent had never been there."""
    global active
    forget()
    if active is not None:
        atexit.unregister(active.finish)
        active.stop()
        active = None
    _regions.clear()


def _after_fork() -> None:
    """Reset the state in a forked child: facts the parent has written are in the parent's file."""
    _regions.clear()
    if active is not None:
        active.after_fork()


os.register_at_fork(after_in_child=_after_fork)  # once: it cannot be taken back
