"""The options of a recording, however it is started."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    """The options of a recording."""

    budget: float = 0.01
    """Share of the run time that profiler windows may cost."""
    rate: float = 10.0
    """Samples of GPUs and host per second."""
    windows: bool = True
    """Whether to take torch.profiler windows."""
    stacks: bool = True
    """Whether to sample Python stacks from outside."""


DEFAULTS = RecordingOptions()
