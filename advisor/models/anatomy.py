"""What fills one GPU at the peak of a step, and what other settings would make of that. All sizes in bytes.

`templates/memory_model.js` says the same once more, for the report's page; a test in the browser compares the two.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from advisor.models.memory import FILL, LAYER_OVER_BOUNDARY, MOMENTS, Slope, States, layers
from advisor.models.precision import ACTIVATIONS_SAVED, CAST_BYTES
from advisor.models.sharding import GATHERED_UNITS
from advisor.models.state import Scenario

SAVED = Scenario.EXPECTED.of(ACTIVATIONS_SAVED)
"""Share of the activations that autocast saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a reader may turn."""

    batch: int
    """Samples of a micro-batch on one GPU."""
    stage: int = 0
    """Of ZeRO; 0: everything is whole on every GPU."""
    ranks: int = 1
    every: int | None = None
    """Every N-th block is checkpointed; None: none is."""
    moments: str | None = None
    """The optimizer, one of MOMENTS; None: the one there is."""
    autocast: bool = False
    """Under 16-bit autocast, which the measured run was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The memory of one GPU at the peak of a step."""

    params: float
    grads: float
    optim: float
    gathered: float
    """Weights that are there only while they are used: units that FSDP gathers, autocast's 16-bit copies."""
    activations: float
    """And whatever else the step allocates."""
    rest: float
    """Cached by the allocator, and outside PyTorch."""

    @property
    def total(self) -> float:
        """Their sum."""
        return self.params + self.grads + self.optim + self.gathered + self.activations + self.rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """A run as it was measured, and what of it depends on its settings."""

    now: Setting
    """Nothing checkpointed, unless `blocks` is 0."""
    capacity: float
    """Of the GPU."""
    states: States
    """If nothing were sharded."""
    unit: float = 0.0
    """The largest unit that stage 3 gathers, in the type it is gathered in."""
    activations: float
    rest: float
    blocks: int = 0
    """Equal blocks that can be checkpointed."""
    parameters: float = 0.0
    """Whose 16-bit copies autocast would hold."""

    def parts(self, setting: Setting) -> Parts:
        """Of another setting; activations are taken to grow with the batch as a whole."""
        states = self._updated_by(setting.moments).sharded(setting.stage, setting.ranks)
        return Parts(
            params=states.parameters,
            grads=states.gradients,
            optim=states.optimizer,
            gathered=self._gathered(setting),
            activations=self._activations(setting),
            rest=self.rest,
        )

    def largest(self, setting: Setting) -> int | None:
        """Samples of the largest micro-batch that fits, room left for what varies; None if any would."""
        one = self._activations(replace(setting, batch=1))
        if one <= 0:
            return None
        used = self.parts(setting).total
        return Slope(used - self._activations(setting), one).largest(self.capacity)

    @property
    def safe(self) -> float:
        """Bytes that may be filled."""
        return FILL * self.capacity

    def as_data(self) -> dict[str, Any]:
        """All that the script in the page reckons with."""
        return {
            **asdict(self),
            "safe": self.safe,
            "saved": SAVED,
            "moments": MOMENTS,
            "layer_over_boundary": LAYER_OVER_BOUNDARY,
            "gathered_units": GATHERED_UNITS,
            "cast_bytes": CAST_BYTES,
        }

    def _updated_by(self, moments: str | None) -> States:
        """By another optimizer, whose state is in proportion."""
        if moments is None or self.now.moments is None:
            return self.states
        return replace(self.states, optimizer=self.states.optimizer * MOMENTS[moments] / MOMENTS[self.now.moments])

    def _gathered(self, setting: Setting) -> float:
        units = GATHERED_UNITS * self.unit if setting.stage == 3 and setting.ranks > 1 else 0.0
        return units + (CAST_BYTES * self.parameters if setting.autocast else 0.0)

    def _activations(self, setting: Setting) -> float:
        kept = self.activations / self.now.batch * setting.batch
        if setting.autocast:
            kept *= 1 - SAVED
        return kept if setting.every is None or kept <= 0 else layers(self.blocks, kept).kept(setting.every)
