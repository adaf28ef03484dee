"""Describe the model as far as memory goes: its parameters, their types, its optimizer and its shape."""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor.models.activations import Layer
from advisor.models.memory import States, bytes_each, states
from advisor.plan.activations import Activations, of_shape
from profiler.errors import ProfilerError

# Names on the command line, and in advisor/models/memory.py.
OPTIMIZERS = {
    "adamw": "adamw",
    "adam": "adam",
    "adamw-8bit": "adamw8bit",
    "sgd": "sgd",
    "sgd-momentum": "momentum",
    "lion": "lion",
    "adafactor": "",
}
PRECISIONS = {
    "fp32": "fp32",
    "tf32": "fp32",
    "bf16": "autocast",
    "fp16": "autocast",
    "pure-bf16": "bf16",
    "bf16-master": "mixed",
}

# Adafactor without a first moment keeps a row and a column in fp32 instead of a matrix (Shazeer and Stern, ICML 2018).
# A square matrix of the hidden size, the worst case in a transformer, takes 4 x 2h / h^2 bytes per parameter.
ADAFACTOR_OVER_HIDDEN = 8

# Parameters of a transformer block's matrices: 4 h^2 in attention, 8 h^2 in the feed-forward part.
BLOCK_OVER_HIDDEN_SQUARED = 12

# Factor between the given and the usual number of parameters above which the given shape does not fit; gated layers
# and grouped heads stay below it (assumption).
FAR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The properties of the model that advisor/models needs; a dimension is None if it was not given."""

    parameters: float
    optimizer: str = "adamw"
    """One of OPTIMIZERS."""
    precision: str = "bf16"
    """One of PRECISIONS."""
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    sequence: int | None = None
    vocabulary: int | None = None
    flash: bool = True
    largest_unit: float | None = None
    """Parameters of the largest part that is gathered at once with sharded weights, if it is given."""

    def __post_init__(self) -> None:
        if not self.parameters >= 1:
            raise ProfilerError(
                f"No model has {self.parameters:g} parameters.", 'Give their number: --params 1.5B, "350M" or "7.5e9".'
            )
        if self.largest_unit is not None and not 1 <= self.largest_unit <= self.parameters:
            raise ProfilerError(
                f"The largest unit has {self.largest_unit:g} parameters, the whole model {self.parameters:g}.",
                "Give --largest-unit as the parameters of one block, no more than --params.",
            )
        if self.optimizer == "adafactor" and self.hidden is None:
            raise ProfilerError(
                "Adafactor's state depends on the shapes of the matrices.", "Give the model's hidden size: --hidden."
            )

    @property
    def element(self) -> int:
        """Return the bytes of a number during computation."""
        return 4 if PRECISIONS[self.precision] == "fp32" else 2

    @property
    def autocast(self) -> bool:
        """Return whether weights are kept in fp32 and cast for each use."""
        return PRECISIONS[self.precision] == "autocast"

    @property
    def states(self) -> States:
        """Return the states, whole on one GPU."""
        return states(self.parameters, self.bytes_each)

    @property
    def bytes_each(self) -> tuple[float, float, float]:
        """Return the bytes per parameter of weights, gradients and optimizer state."""
        precision = PRECISIONS[self.precision]
        if self.optimizer != "adafactor":
            return bytes_each(precision, OPTIMIZERS[self.optimizer])
        weights, gradients, master = bytes_each(precision, "sgd")
        return weights, gradients, master + ADAFACTOR_OVER_HIDDEN / (self.hidden or 1)

    @property
    def cast(self) -> float:
        """Return the bytes of the 16-bit copies of the weights that autocast holds through forward and backward."""
        return self.element * self.parameters if self.autocast else 0.0

    @property
    def unit(self) -> float | None:
        """Return the parameters of the largest part that FSDP gathers: as given, else a layer or the embedding.

        None if the number of layers is not known.
        """
        if self.largest_unit or self.layers is None:
            return self.largest_unit
        embedding = min(self.parameters, float((self.vocabulary or 0) * (self.hidden or 0)))
        return max(1.0, (self.parameters - embedding) / self.layers, embedding)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the options that are missing to compute activations. Flash attention keeps nothing per head."""
        options = {"--layers": self.layers, "--hidden": self.hidden, "--sequence": self.sequence}
        if not self.flash:
            options["--heads"] = self.heads
        return tuple(name for name, value in options.items() if value is None)

    @property
    def activations(self) -> Activations | None:
        """Return the activations of one sample; None if the shape is incomplete.

        Raises:
            ProfilerError: the heads do not divide the hidden size.
        """
        if self.layers is None or self.hidden is None or self.sequence is None or self.missing:
            return None
        return of_shape(
            layer=Layer(sequence=self.sequence, batch=1, hidden=self.hidden, heads=self.heads or 1),
            number=self.layers,
            vocabulary=self.vocabulary,
            flash=self.flash,
            element=self.element,
        )

    @property
    def unmatched(self) -> float | None:
        """Return the parameters of an ordinary transformer of this shape, if they are far from the given ones."""
        if self.layers is None or self.hidden is None:
            return None
        usual = BLOCK_OVER_HIDDEN_SQUARED * self.layers * self.hidden**2 + (self.vocabulary or 0) * self.hidden
        return usual if not 1 / FAR <= self.parameters / usual <= FAR else None

    @property
    def in_8_bits(self) -> Model | None:
        """Return the same model with 8-bit moments; None if its optimizer does not have two moments."""
        return replace(self, optimizer="adamw-8bit") if self.optimizer in ("adam", "adamw") else None
