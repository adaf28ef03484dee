"""Put the recordings of one job side by side: their ranks, machines and clocks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.runs.clocks import Clock, Reference
from advisor.units import seconds
from profiler.schema import MOST_RANKS, HostSample, Problem, Run, Step
from profiler.store import Tables, ranks, with_columns

MOST_NAMED = 8
"""Most ranks that a sentence names one by one."""

NOTABLE = 0.1
"""Largest difference between hosts' clocks, in seconds, that needs no remark: what NTP achieves over a poor network."""

SUMS = ("cpu", "cpu_workers", "rss", "processes", "read", "write")
"""Fields of a HostSample that belong to the program, not to the machine."""


def rank_numbers(node: Tables) -> set[int]:
    """Return the ranks that trained on a node."""
    return {process.rank for process in ranks(node)}


def in_order(nodes: Iterable[Tables]) -> list[Tables]:
    """Return the nodes ordered by their lowest rank. Statements about a single node are about the first."""
    return sorted(nodes, key=lambda node: min(rank_numbers(node), default=1 << 62))


def numbered(nodes: Sequence[Tables]) -> list[Tables]:
    """Return the nodes with a node rank per machine, and with each GPU once, numbered across all of them.

    The launcher may give no node ranks, every rank's recorder may see all GPUs of a machine, and NVML counts the GPUs
    of every machine from 0.
    """
    if len(nodes) < 2:
        return list(nodes)
    numbers: dict[tuple[str, int], int] = {}
    uuids: set[str] = set()
    result = []
    for node in nodes:
        host = _host(node)
        processes = tuple(
            replace(process, node_rank=numbers.setdefault((host, process.node_rank), len(numbers)))
            for process in node.processes
        )
        new_gpus = [gpu for gpu in node.gpus if gpu.uuid not in uuids]
        tables = with_gpus(node, {gpu.index: number for number, gpu in enumerate(new_gpus, len(uuids))})
        uuids |= {gpu.uuid for gpu in new_gpus}
        result.append(replace(tables, processes=processes))
    return result


def with_gpus(node: Tables, numbers: Mapping[int, int]) -> Tables:
    """Return a node with only the GPUs in `numbers`, renumbered accordingly."""
    samples = [sample for sample in node.gpu_samples if sample.gpu in numbers]
    return replace(
        node,
        gpus=tuple(replace(gpu, index=numbers[gpu.index]) for gpu in node.gpus if gpu.index in numbers),
        gpu_samples=tuple(with_columns(samples, gpu=[numbers[sample.gpu] for sample in samples])),
    )


def clocks(nodes: Sequence[Tables]) -> list[Clock]:
    """Return the clock of each recording, relative to the first."""
    first, *others = nodes
    if not others:
        return [Clock()]
    reference = Reference(_steps(first))
    return [Clock(), *(reference.clock_of(_steps(node), _ahead(first, node)) for node in others)]


def _steps(node: Tables) -> list[Step]:
    """Return the steps of the lowest rank; of several processes of that rank, those of the last one started."""
    heads = sorted((process.rank, -process.started, process.pid) for process in ranks(node))
    return [step for step in node.steps if step.pid == heads[0][2]] if heads else []


def _ahead(first: Tables, node: Tables) -> float:
    """Return how far the node's clock is ahead by the hosts' clocks: a clock that started later shows less."""
    return first.runs[0].started_at - node.runs[0].started_at if first.runs and node.runs else 0.0


def _host(node: Tables) -> str:
    return node.runs[-1].host if node.runs else ""


def on_one_clock(node: Tables, clock: Clock) -> Tables:
    """Return a recording with its samples on the reference's clock; steps and problems keep their own."""
    if clock == Clock():
        return node
    return replace(
        node,
        gpu_samples=tuple(with_columns(node.gpu_samples, time=[clock(sample.time) for sample in node.gpu_samples])),
        host_samples=tuple(with_columns(node.host_samples, time=[clock(sample.time) for sample in node.host_samples])),
    )


def ended(nodes: Sequence[Tables]) -> Run | None:
    """Return the run whose outcome is the job's: one that was killed or failed, else the first; None if there is none.

    For a rank that was restarted, only the last start counts.
    """
    last: dict[int, tuple[float, Run]] = {}
    for node in nodes:
        for run in node.runs[-1:]:
            for rank in rank_numbers(node) or {-1}:
                if rank not in last or run.started_at > last[rank][0]:
                    last[rank] = run.started_at, run
    runs = [run for _, run in last.values()]
    failed_runs = [run for outcome in ("killed", "failed") for run in runs if run.outcome == outcome]
    return next(iter([*failed_runs, *runs]), None)


def host_samples(nodes: Sequence[Tables]) -> tuple[HostSample, ...]:
    """Return the host samples of every machine.

    If each rank has its own recorder, the samples of one machine are added up.
    """
    machines: dict[object, list[tuple[HostSample, ...]]] = {}
    for number, node in enumerate(nodes):
        machine = min((process.node_rank for process in node.processes), default=-1 - number)
        machines.setdefault(machine, []).append(node.host_samples)
    return tuple(sample for recordings in machines.values() for sample in _added(recordings))


def _added(recorded: Sequence[Sequence[HostSample]]) -> Sequence[HostSample]:
    first, *others = sorted(recorded, key=len, reverse=True)
    for other in others:
        if other:
            first = [_sum(sample, nearest) for sample, nearest in zip(first, _nearest(first, other), strict=True)]
    return first


def _sum(one: HostSample, other: HostSample) -> HostSample:
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in SUMS}
    sums: dict[str, Any] = {name: None if a is None or b is None else a + b for name, (a, b) in pairs.items()}
    return replace(one, **sums)


def _nearest(samples: Sequence[HostSample], other: Sequence[HostSample]) -> list[HostSample]:
    """Return, for each sample, the closest one in time of the other recorder; both are in order."""
    nearest, index = [], 0
    for sample in samples:
        while index + 1 < len(other) and abs(other[index + 1].time - sample.time) <= abs(
            other[index].time - sample.time
        ):
            index += 1
        nearest.append(other[index])
    return nearest


def remarks(nodes: Sequence[Tables], compared: Sequence[Clock]) -> list[Problem]:
    """Return the problems that a reader of a job recorded in parts must know."""
    messages = [_missing(nodes), _unfinished(nodes), *_apart(nodes, compared)]
    return [Problem(time=0.0, source="ranks", message=message) for message in messages if message]


def _missing(nodes: Sequence[Tables]) -> str:
    world = max((head.world_size for node in nodes for head in node.processes if head.role == "rank"), default=1)
    recorded_ranks = {process.rank for node in nodes for process in node.processes if process.role == "rank"}
    missing_ranks = (
        [number for number in range(min(world, MOST_RANKS)) if number not in recorded_ranks] if recorded_ranks else []
    )
    if not missing_ranks:
        return ""
    return (
        f"{_named(missing_ranks)} not recorded (the job has {world} ranks). If another node runs missing ranks, record "
        "it with the same command and the same --out, or merge its recording: profile-train merge A B --out C"
    )


def _named(numbers: Sequence[int]) -> str:
    stretches: list[list[int]] = []
    for number in numbers:
        if stretches and number == stretches[-1][1] + 1:
            stretches[-1][1] = number
        else:
            stretches.append([number, number])
    words = [str(low) if low == high else f"{low}-{high}" for low, high in stretches[:MOST_NAMED]]
    ellipsis = ["..."] if len(stretches) > MOST_NAMED else []
    return f"Rank {words[0]} was" if len(numbers) == 1 else f"Ranks {', '.join(words + ellipsis)} were"


def _unfinished(nodes: Sequence[Tables]) -> str:
    running_nodes = [node for node in nodes if node.runs and node.runs[-1].outcome == "running"]
    if not running_nodes or len(running_nodes) == len(nodes):
        return ""
    names = [str(number) for node in running_nodes for number in sorted(rank_numbers(node))] or ["?"]
    ellipsis = ", ..." if len(names) > MOST_NAMED else ""
    return (
        f"Still running: {len(running_nodes)} of {len(nodes)} recordings (ranks: "
        f"{', '.join(names[:MOST_NAMED])}{ellipsis}). This report is updated when a recording ends, unless its node is "
        "gone."
    )


def _apart(nodes: Sequence[Tables], compared: Sequence[Clock]) -> Iterable[str]:
    """Yield remarks on how the clocks were aligned, with the largest differences, if notable."""
    pairs = list(zip(compared[1:], nodes[1:], strict=True))
    residuals = [clock.residual for clock, _ in pairs if clock.residual is not None]
    if residuals:
        difference = max(
            abs(clock.offset + _ahead(node, nodes[0])) for clock, node in pairs if clock.residual is not None
        )
        drift = max(abs(clock.drift) for clock, _ in pairs)
        drift_note = f", and drift by up to {drift * 1e6:.0f} ppm" if drift else ""
        if difference > NOTABLE or drift:
            yield (
                f"The clocks of {len(nodes)} recordings were aligned by their common steps, to within "
                f"{seconds(max(residuals))}; the hosts' own clocks differ by up to {seconds(difference)}{drift_note}."
            )
    # Recordings of one host have one clock.
    unaligned_nodes = [node for clock, node in pairs if clock.residual is None and _host(node) != _host(nodes[0])]
    if unaligned_nodes:
        yield (
            f"{len(unaligned_nodes)} of {len(nodes)} recordings cannot be aligned with the first one by steps: too few "
            "steps in common, or ranks that do not train in lockstep. Combined views use the hosts' clocks instead."
        )
