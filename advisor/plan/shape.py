"""Describe a transformer by its options, complete or in part."""

from dataclasses import dataclass

from advisor.models.activations import Layer
from advisor.plan.activations import Activations, matrices, of_shape

# Parameters further off than this belong to another shape; gated layers and grouped heads stay below it (assumption).
FAR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The given shape; None was not given."""

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    sequence: int | None = None
    vocabulary: int | None = None
    flash: bool = True

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the options that are missing to compute activations. Flash attention keeps nothing per head."""
        needed = {"--layers": self.layers, "--hidden": self.hidden, "--sequence": self.sequence}
        if not self.flash:
            needed["--heads"] = self.heads
        return tuple(name for name, value in needed.items() if value is None)

    def activations(self, element: int) -> Activations | None:
        """Return the activations of one sample, `element` bytes per number; None if the shape is incomplete.

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
            element=element,
        )

    def unit(self, parameters: float) -> float | None:
        """Return the parameters of the largest part that FSDP gathers, a layer or the embedding.

        None if the number of layers is not known.
        """
        if self.layers is None:
            return None
        embedding = min(parameters, float((self.vocabulary or 0) * (self.hidden or 0)))
        return max(1.0, (parameters - embedding) / self.layers, embedding)

    def unmatched(self, parameters: float) -> float | None:
        """Return the parameters of an ordinary transformer of this shape, if they are far from the given ones."""
        if self.layers is None or self.hidden is None:
            return None
        usual = matrices(self.layers, self.hidden, self.vocabulary)
        return usual if not 1 / FAR <= parameters / usual <= FAR else None
