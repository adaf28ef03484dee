"""The training loops that are timed: overhead.py starts them, and loop.py runs them."""

from dataclasses import dataclass

TURN = 0.25
"""Seconds of a turn."""
FEWEST = 6
"""Fewest steps of a turn, however long they take."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    name: str
    model: str
    """`mlp`, `modules` or `tensor`; see training.py."""
    seconds: float
    """Approximate seconds per step on one core of 2024; only sets how many steps make a turn."""
    inputs: int = 256
    width: int = 0
    layers: int = 5
    batch: int = 16
    workers: int = 0
    sample_work: int = 0
    """Rounds of arithmetic per sample, in the process that loads it."""
    ranks: int = 1
    optimizer: bool = True
    """Without an optimizer, the loop updates its parameters itself and calls `profiler.step()`."""
    share: float | None = None
    """Largest share of the median step that may be lost."""
    crowded: bool = False
    """Whether there are more processes than cores: neighbors affect the wall time of a step, so CPU time is judged."""
    watched: float = 3.0
    """Seconds for which the recorder is watched while the program runs alone."""
    at_bar: bool = False
    """Whether the recorder's bar applies to this case."""

    @property
    def steps(self):
        """Return the number of steps in a turn."""
        return max(FEWEST, round(TURN / self.seconds))


_LOOPS = (
    Loop(name="50 us", model="tensor", seconds=50e-6),
    Loop(name="50 us step()", model="tensor", seconds=50e-6, optimizer=False),
    Loop(name="230 us", model="mlp", seconds=230e-6, inputs=64, width=128, layers=2),
    Loop(name="1 ms", model="mlp", seconds=1e-3, width=330, share=0.02),
    Loop(name="10 ms", model="mlp", seconds=10e-3, width=980, share=0.005),
    Loop(name="50 ms", model="mlp", seconds=50e-3, width=1900, batch=48, share=0.003),
    Loop(name="1000 modules", model="modules", seconds=15e-3),
    Loop(name="8 workers", model="mlp", seconds=10e-3, width=980, workers=8, watched=10.0, at_bar=True),
    Loop(name="16 workers", model="mlp", seconds=2e-3, width=330, workers=16, sample_work=40, crowded=True),
    Loop(name="8 processes", model="tensor", seconds=250e-6, ranks=8, crowded=True),
)

LOOPS = {loop.name: loop for loop in _LOOPS}
EVERYDAY = ("230 us", "1 ms", "10 ms", "50 ms")
ALONE = tuple(name for name, loop in LOOPS.items() if loop.workers == 0 and loop.ranks == 1)
"""Loops with a single process: the agent can be inserted into it and removed again."""
