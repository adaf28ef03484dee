"""Start and stop the agent once the program has imported torch."""

from __future__ import annotations

import atexit
import os
import sys
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
from .look import ByIdentity, parameters, tensor
from .session import Agent

# Some programs create an optimizer per step: cap how many are reported and kept.
MOST_OPTIMIZERS = 256

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
    agent.leave = lambda: end() if agent is active else None
    when_imported("torch._dynamo", lambda: agent.dynamo.append(True))
    if torch.version.cuda or torch.version.hip:
        agent.mark = cuda_events.Marks(agent)
    functions = agent.flush, agent.end_step, agent.after_step, agent.give_up, cuda_events.Marks.__call__
    not_for_dynamo(torch, *functions, callees=True)
    if settings.get("tracer"):
        yama.allow(settings["tracer"])
    if settings.get("trial"):
        from . import trial

        trial.begin(agent, **settings["trial"])
    features = usage.Usage(agent)
    reported = _Reported(agent, features)
    ddp_modules = ddp.Ddp(agent)
    roots = forward.Roots(agent, reported.model, ddp_modules.counting)
    install = agent.install
    install("optimizer", lambda: optimizer.install(agent, reported.optimizer, roots.watch))
    install("backward", lambda: backward.install(agent))
    install("forward", roots.install)
    if agent.mark is not None:
        install("cuda_graphs", lambda: cuda_graphs.install(agent))
    install("ddp", ddp_modules.install)
    install("save", lambda: save.install(agent))
    install("gc", lambda: gc.install(agent))
    install("usage", features.install)
    install("output", output.Output(agent).install)
    install("tracebacks", lambda: tracebacks.install(agent))
    install("anomaly", lambda: anomaly.install(agent))
    when_imported("torch.utils.data.dataloader", lambda: install("dataloader", lambda: dataloader.install(agent)))
    when_imported(ray_data.MODULE, lambda: install("ray_data", lambda: ray_data.install(agent)))

    def opened() -> None:
        agent.fact("process", facts.process(torch))
        # Ranks wait for each other, so the windows of every rank would slow all of them; `attach` chooses the ranks.
        if not agent.is_worker and (agent.attached or ranks.numbers()["rank"] == 0):
            if settings.get("windows"):
                agent.install("windows", open_windows)
            else:
                agent.fact("windows", {"reason": "off"})

    def open_windows() -> None:
        from .window import Windows

        agent.windows = Windows(agent, reported.are_sized)

    agent.on_open.append(opened)
    # Separate callbacks: a failure loses only one fact.
    agent.on_tick += [reported.flags, reported.scaler, reported.windows, reported.devices, reported.memory]
    atexit.register(agent.finish)
    return agent


class _Reported:
    """The facts of models and optimizers, and the facts derived from them."""

    def __init__(self, agent: Agent, used: usage.Usage) -> None:
        self._agent = agent
        self._used = used
        self._models: dict[int, dict[str, Any]] = {}
        self._optimizers: dict[int, dict[str, Any]] = {}
        self._stages: dict[int, Any] = {}
        """ZeRO stage by root; None if the root is not known to be sharded."""
        self._parameters = ByIdentity()
        """By root: device and bytes of each parameter on a GPU, by `id` of the parameter."""
        self._updated = ByIdentity()
        """By optimizer: bytes of its gradients and of its state, by device."""
        self._peaks: dict[int, dict[str, int]] = {}
        """The highest bytes so far, by device and kind.

        A program may reset torch's own peaks, and its models and optimizers are gone by the time it ends.
        """
        self._has_devices = False

    def model(self, module: Any, number: int) -> None:
        def look() -> dict[str, Any]:
            by_id = {id(parameter): tensor(parameter) for parameter in parameters(module)}
            sizes = {
                key: (parameter.device.index, parameter.held)
                for key, parameter in by_id.items()
                if parameter and parameter.device.type == "cuda"
            }
            self._parameters.put(module, sizes)
            self._stages[number] = facts.sharding(module)
            return facts.model(module, number)

        self._tell("model", self._models, number, look)
        self._agent.change(self._agent.on_model, module)

    def optimizer(self, instance: Any, number: int, made: Any) -> None:
        def look() -> dict[str, Any]:
            origin = made or {"place": None}  # None: created before the agent started
            tensors = facts.gradients(instance), facts.states(instance)
            self._updated.put(instance, tuple(map(facts.held_on_gpus, tensors)))
            fact = facts.optimizer(instance, number, origin["place"])
            return {**fact, "callers": origin.get("callers", []), "driven_by": stack.frameworks()}

        if number <= MOST_OPTIMIZERS:
            self._tell("optimizer", self._optimizers, number, look)

    def _tell(
        self, kind: str, reported: dict[int, dict[str, Any]], number: int, look: Callable[[], dict[str, Any]]
    ) -> None:
        try:
            reported[number] = look()
        except Exception as error:  # keep measuring its steps
            self._agent.problem(kind, error)
        else:
            self._agent.fact(kind, reported[number])

    def are_sized(self) -> bool:
        """Return whether torch knows the size of every parameter without calling code of the program."""
        return all(fact["sized"] for fact in self._models.values())

    # ---- at every tick ----

    def flags(self) -> None:
        models = self._models.values()
        wrappers = {name for fact in models for name in fact["wrappers"]}
        classes = {name for fact in models for name in fact["modules"]}
        features = {
            **self._used.flags,
            "anomaly": self._used.anomaly,
            "compile": any(fact["compiled"] for fact in models) or compiled_graphs() > 0,
            "ddp": "DistributedDataParallel" in wrappers,
            "data_parallel": "DataParallel" in wrappers,
            "fsdp": any(name.startswith(("FullyShardedDataParallel", "FSDP")) for name in wrappers | classes),
            "zero_stage": facts.zero_stage(list(self._stages.values()), list(self._optimizers.values())),
            "program_profiler": bool(getattr(self._agent.windows, "program_profiler", False)),
            "profiled_throughout": self._used.profiled_throughout(),
        }
        self._agent.fact("flags", facts.flags(self._agent.torch, features))

    def scaler(self) -> None:
        steps = self._used.scaler_steps
        if steps:
            self._agent.fact("scaler", {"steps": steps, "skipped": steps - self._used.scaler_applied})

    def windows(self) -> None:
        if self._agent.windows is not None:
            self._agent.fact("windows", self._agent.windows.state)

    def devices(self) -> None:
        """Report the devices once the program has initialized CUDA."""
        if not self._has_devices:
            for fact in facts.devices(self._agent.torch):
                self._has_devices = True
                self._agent.fact("device", fact)

    def memory(self) -> None:
        """Report the memory of every GPU on which torch has reserved some."""
        agent, cuda = self._agent, self._agent.torch.cuda
        for device in range(cuda.device_count()) if cuda.is_initialized() else ():
            statistics = cuda.memory_stats(device)  # from the allocator: queries no device, creates no context
            if not statistics.get("reserved_bytes.all.peak"):
                continue
            current_sizes = {
                "allocated_peak": statistics.get("allocated_bytes.all.peak", 0),
                "reserved_peak": statistics["reserved_bytes.all.peak"],
                **self._held_on(device),
            }
            peaks = self._peaks.setdefault(device, current_sizes)
            peaks.update({name: max(size, peaks[name]) for name, size in current_sizes.items()})
            sizes = {
                "id": device,
                "allocated": statistics.get("allocated_bytes.all.current", 0),
                "reserved": statistics.get("reserved_bytes.all.current", 0),
                **peaks,
            }
            counts = {"retries": statistics.get("num_alloc_retries", 0), "ooms": statistics.get("num_ooms", 0)}
            agent.fact("allocator", {"device": device, **sizes, **counts})
            free, total = (None, None) if agent.is_capturing() else cuda.mem_get_info(device)
            agent.fact("memory", {**sizes, "free": free, "total": total})

    def _held_on(self, device: int) -> dict[str, int]:
        """Return the bytes that existing models and optimizers hold on a GPU.

        A parameter counts once: DDP shares its parameters with the module inside it.
        """
        parameters = {key: entry for _, sizes in self._parameters.items() for key, entry in sizes.items()}
        optimizers = [held_bytes for _, held_bytes in self._updated.items()]
        return {
            "parameters": sum(size for index, size in parameters.values() if index == device),
            "gradients": sum(gradients.get(device, 0) for gradients, _ in optimizers),
            "optimizer": sum(state.get(device, 0) for _, state in optimizers),
        }


def step() -> None:
    """Record that the program has declared the end of a step."""
    if active is not None:
        active.declare_step()


def region(name: str, begin_ns: int, end_ns: int) -> None:
    """Record a named region of the program that has ended."""
    if active is not None:
        active.region(name, begin_ns, end_ns)


def end() -> None:
    """Remove everything; the program continues as if the agent had never been there."""
    global active
    forget()
    if active is not None:
        atexit.unregister(active.finish)
        active.stop()
        active = None


def _after_fork() -> None:
    if active is not None:
        active.after_fork()


os.register_at_fork(after_in_child=_after_fork)  # once: it cannot be unregistered
