"""GPU memory at the peak of a step, by part, and how other settings change it. All sizes are in bytes.

`templates/memory_model.js` computes the same from the result of `as_data`; a browser test compares the two.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.models.memory import FILL, MOMENTS, Slope, States, layers
from advisor.models.precision import ACTIVATIONS_SAVED, CAST_BYTES
from advisor.models.sharding import GATHERED_UNITS
from advisor.models.state import Scenario

SAVED = Scenario.EXPECTED.of(ACTIVATIONS_SAVED)
"""Share of the activations that autocast saves."""

INTERVALS = (1, 2, 3, 4, 6, 8)
"""Checkpointing intervals on offer: every N-th block is checkpointed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """The settings that a reader can change."""

    batch: int
    """Samples per micro-batch on one GPU."""
    stage: int = 0
    """ZeRO stage; at 0 every GPU holds everything."""
    ranks: int = 1
    every: int | None = None
    """Every N-th block is checkpointed; None if no block is."""
    moments: str | None = None
    """The optimizer, one of `MOMENTS`; None for the present one."""
    autocast: bool = False
    """Whether to use 16-bit autocast, which the measured run did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The memory of one GPU at the peak of a step."""

    params: float
    grads: float
    optim: float
    gathered: float
    """Weights held only while in use: units that FSDP gathers, and autocast's 16-bit copies."""
    activations: float
    """Activations and whatever else the step allocates."""
    rest: float
    """Memory cached by the allocator, and memory outside PyTorch."""

    @property
    def total(self) -> float:
        """Return the sum of all parts."""
        return self.params + self.grads + self.optim + self.gathered + self.activations + self.rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """A measured run, and the parts of its memory that depend on settings."""

    now: MemorySettings
    """The present setting; nothing is checkpointed, unless `blocks` is 0."""
    capacity: float
    """Memory of the GPU."""
    states: States
    """States of one rank if nothing were sharded."""
    unit: float = 0.0
    """The largest unit that stage 3 gathers, in the dtype in which it is gathered."""
    activations: float
    rest: float
    blocks: int = 0
    """Number of equal blocks that can be checkpointed."""
    parameters: float = 0.0
    """Number of parameters of which autocast would hold 16-bit copies."""

    def parts(self, setting: MemorySettings) -> Parts:
        """Return the memory at another setting, assuming that all activations grow with the batch."""
        states = self._updated_by(setting.moments).sharded(setting.stage, setting.ranks)
        return Parts(
            params=states.parameters,
            grads=states.gradients,
            optim=states.optimizer,
            gathered=self._gathered(setting),
            activations=self._activations(setting),
            rest=self.rest,
        )

    def largest(self, setting: MemorySettings) -> int | None:
        """Return the largest micro-batch that fits, with room for variation; None if any size fits."""
        sample_bytes = self._activations(replace(setting, batch=1))
        if sample_bytes <= 0:
            return None
        used_bytes = self.parts(setting).total
        return Slope(used_bytes - self._activations(setting), sample_bytes).largest(self.capacity)

    @property
    def safe(self) -> float:
        """Return the bytes of GPU memory that may be filled."""
        return FILL * self.capacity

    def as_data(self) -> dict[str, Any]:
        """Return the data for the script in the report's page.

        The key None stands for the present optimizer, or for no checkpointing.
        """
        one_sample = replace(self.now, batch=1)
        intervals = (None, *(interval for interval in INTERVALS if interval <= self.blocks))
        return {
            "now": asdict(self.now),
            "capacity": self.capacity,
            "safe": self.safe,
            "parameters": self.states.parameters,
            "gradients": self.states.gradients,
            "optimizers": {moments: self._updated_by(moments).optimizer for moments in (None, *MOMENTS)},
            "units": GATHERED_UNITS * self.unit,
            "cast": CAST_BYTES * self.parameters,
            "samples": {every: self._activations(replace(one_sample, every=every)) for every in intervals},
            "saved": SAVED,
            "rest": self.rest,
        }

    def _updated_by(self, moments: str | None) -> States:
        """Return the states with another optimizer, whose state is scaled in proportion."""
        if moments is None or self.now.moments is None:
            return self.states
        return replace(self.states, optimizer=self.states.optimizer * MOMENTS[moments] / MOMENTS[self.now.moments])

    def _gathered(self, setting: MemorySettings) -> float:
        unit_bytes = GATHERED_UNITS * self.unit if setting.stage == 3 and setting.ranks > 1 else 0.0
        return unit_bytes + (CAST_BYTES * self.parameters if setting.autocast else 0.0)

    def _activations(self, setting: MemorySettings) -> float:
        activations = self.activations / self.now.batch * setting.batch
        if setting.autocast:
            activations *= 1 - SAVED
        return (
            activations
            if setting.every is None or activations <= 0
            else layers(self.blocks, activations).kept(setting.every)
        )
