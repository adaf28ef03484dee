"""Make a plan from the user's options, and collect its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, TypeVar

from advisor.plan.activations import measured
from advisor.plan.cluster import Cluster, GpuKind, device
from advisor.plan.interval import IntervalPlan
from advisor.plan.memory import BatchPlan, MemoryPlan, of_peaks
from advisor.plan.model import Model
from profiler.errors import ProfilerError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parts of a plan; None if not requested."""

    memory: MemoryPlan | None = None
    batch: BatchPlan | None = None
    interval: IntervalPlan | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Plan:
        """Return the plan for the options of `profile-train plan`; an option is None if it was not given.

        An option has the name of the field that it sets.

        Raises:
            ProfilerError: an option is missing, contradicts another or is impossible.
        """
        failing = given["between_failures"] is not None or given["save"] is not None
        if given["parameters"] is None and not given["peaks"] and not failing:
            raise ProfilerError(
                "There is nothing to plan.",
                "For memory, give --params and --gpu-memory (or --gpu); for the batch, --peak twice; for the "
                "checkpoint interval, --mtbf and --save-cost.",
            )
        cluster = _cluster(given) if given["parameters"] is not None or given["peaks"] else None
        batch = of_peaks(given["peaks"], cluster.budget) if cluster and given["peaks"] else None
        return cls(
            memory=_memory(given, cluster, batch) if cluster and given["parameters"] is not None else None,
            batch=batch,
            interval=_interval(given) if failing else None,
        )


def _filled(kind: Callable[..., T], given: Mapping[str, Any], **more: object) -> T:
    """Return an object with these values; a value that was not given has its default."""
    values = {name: given.get(name) for name in signature(kind).parameters} | more
    return kind(**{name: value for name, value in values.items() if value is not None})


def _cluster(given: Mapping[str, Any]) -> Cluster:
    if given["gpu"] is None and given["gpu_memory"] is None:
        raise ProfilerError("The memory of a GPU is not known.", "Give --gpu NAME, or --gpu-memory 24GB.")
    if given["gpu"] is None:
        kind = GpuKind("The given GPU", given["gpu_memory"])
    else:
        kind = device(given["gpu"])
        kind = kind if given["gpu_memory"] is None else replace(kind, memory=given["gpu_memory"])
    return _filled(Cluster, given, device=kind)


def _memory(given: Mapping[str, Any], cluster: Cluster, batch: BatchPlan | None) -> MemoryPlan:
    model = _filled(Model, given)
    sample_bytes = given["activation_bytes_per_sample"]
    if sample_bytes is not None and batch is not None:
        raise ProfilerError(
            "The memory of a sample was given twice.", "Give --activation-bytes-per-sample or two --peak, not both."
        )
    if batch is not None:
        sample_bytes = batch.line.each
    activations = model.activations if sample_bytes is None else measured(sample_bytes, model.layers)
    return _filled(MemoryPlan, given, model=model, cluster=cluster, activations=activations)


def _interval(given: Mapping[str, Any]) -> IntervalPlan:
    for name, option, example in (("between_failures", "--mtbf", "2h"), ("save", "--save-cost", "20s")):
        if given[name] is None:
            raise ProfilerError(f"An interval cannot be planned without {option}.", f"Give it: {option} {example}.")
    return _filled(IntervalPlan, given)
