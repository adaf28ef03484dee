"""The training loops that are timed: read by overhead.py, which starts them, and by loop.py, which runs them."""

from dataclasses import dataclass

TURN = 0.25
"""Seconds."""
FEWEST = 6
"""Steps of a turn, however long they take."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    name: str
    model: str
    """`mlp`, `modules` or `tensor`; see training.py."""
    seconds: float
    """A step takes about this long on one core of 2024; it only sets how many steps make a turn."""
    inputs: int = 256
    width: int = 0
    layers: int = 5
    batch: int = 16
    workers: int = 0
    sample_work: int = 0
    """Rounds of arithmetic that a sample costs whoever loads it."""
    ranks: int = 1
    optimizer: bool = True
    """Without, the loop updates its parameters by hand and calls `profiler.step()`."""
    share: float | None = None
    """Share of the median step that may be lost."""
    crowded: bool = False
    """More processes than cores: the wall time of a step is that of its neighbors too, so CPU time is judged."""
    watched: float = 3.0
    """Seconds for which the recorder is watched while the program runs alone."""
    at_bar: bool = False
    """The case that the bar of the recorder speaks of."""

    @property
    def steps(self):
        """In a turn."""
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
"""Of one process: the agent can be put into it and taken out of it."""
