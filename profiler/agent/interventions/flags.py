"""Switches of torch: TF32, cuDNN benchmarking, threads, and debugging aids left on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._modification import Modification

# Steps after which a program has set its own switches.
SETTLED = 3


def apply(
    change: Modification,
    matmul_precision: str | None = None,
    cudnn_benchmark: bool | None = None,
    threads: int | None = None,
    deterministic: bool | None = None,
    anomaly: bool | None = None,
) -> None:
    """Set the switches at the end of each of the first steps, after the program has set its own.

    If the program changes one back, that is reported as a problem. None leaves a switch as it is. `matmul_precision` is
    "highest", "high" or "medium". With `anomaly` False, anomaly detection stays off even if the program switches it on:
    its context manager does so at every step.
    """
    torch, agent = change.torch, change.agent
    cudnn = torch.backends.cudnn
    all_switches: tuple[tuple[Any, Callable[[], Any], Callable[[Any], None]], ...] = (
        (matmul_precision, torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (cudnn_benchmark, lambda: cudnn.benchmark, lambda value: setattr(cudnn, "benchmark", value)),
        (threads, torch.get_num_threads, torch.set_num_threads),
        (deterministic, torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    )
    switches = [switch for switch in all_switches if switch[0] is not None]
    """For each switch to change: the wanted value, how to read it, and how to set it."""
    steps = [0]

    def at_step() -> None:
        steps[0] += 1
        for value, _, switch in switches:
            switch(value)
        if steps[0] >= SETTLED and at_step in agent.on_step:
            agent.on_step.remove(at_step)

    def hold() -> bool:
        return all(read() == value for value, read, _ in switches)

    agent.on_step.append(at_step)
    change.expect("The program itself sets this switch.", hold, code="program-does", by_the_end=True)
    if anomaly is False:
        _without_anomaly(change)


def _without_anomaly(change: Modification) -> None:
    torch = change.torch
    torch.set_anomaly_enabled(False)

    def never(plain: Any, mode: Any, check_nan: Any = True) -> None:
        change.made = change.made or bool(mode)
        plain(False, check_nan)

    change.replace(torch, "set_anomaly_enabled", never)
    change.expect("Anomaly detection was never switched on.", by_the_end=True)
