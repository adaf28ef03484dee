"""Switches of torch: TF32, cuDNN benchmarking, threads, and debugging aids left on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..patching import patch
from ..session import Agent
from ._expected import expect

# The program sets its own as it begins; by then it has taken these steps.
SETTLED = 3


@dataclass(frozen=True)
class Flags:
    """The switches to change; None leaves a switch as it is."""

    matmul_precision: str | None = None
    """"highest", "high" or "medium"."""
    cudnn_benchmark: bool | None = None
    threads: int | None = None
    deterministic: bool | None = None
    anomaly: bool | None = None
    """False keeps it off whatever the program asks for: its context manager asks at every step."""

    def apply(self, agent: Agent) -> Callable[[], None]:
        """Set the switches at the end of each of the first steps, after the program has set its own.

        If the program changes one back, that is reported as a problem.
        """
        torch = agent.torch
        steps = [0]

        def at_step() -> None:
            steps[0] += 1
            for wanted, _, switch in self._switches(torch):
                switch(wanted)
            if steps[0] >= SETTLED and at_step in agent.on_step:
                agent.on_step.remove(at_step)

        agent.on_step.append(at_step)
        missing = "The program itself sets what is to be changed."

        def holds() -> bool:
            return all(now() == wanted for wanted, now, _ in self._switches(torch))

        expect(agent, holds, missing, code="program-does", by_the_end=True)
        return self._without_anomaly(agent) if self.anomaly is False else lambda: None

    def _switches(self, torch: Any) -> list[tuple[Any, Callable[[], Any], Callable[[Any], None]]]:
        """Return the switches to change: the wanted value of each, how to read it, and how to set it."""
        cudnn = torch.backends.cudnn
        switches = (
            (self.matmul_precision, torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
            (self.cudnn_benchmark, lambda: cudnn.benchmark, lambda wanted: setattr(cudnn, "benchmark", wanted)),
            (self.threads, torch.get_num_threads, torch.set_num_threads),
            (self.deterministic, torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
        )
        return [switch for switch in switches if switch[0] is not None]

    def _without_anomaly(self, agent: Agent) -> Callable[[], None]:
        torch = agent.torch
        plain = torch.set_anomaly_enabled
        asked: list[bool] = []

        def never(mode: Any, check_nan: Any = True) -> None:
            if mode:
                asked[:] = [True]
            plain(False, check_nan)

        never(False)
        expect(agent, lambda: asked, "Nobody has switched anomaly detection on.", by_the_end=True)
        return patch("set_anomaly_enabled", plain, never, torch)
