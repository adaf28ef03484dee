"""Define the parts of the bars in the report and the plan."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a stacked bar."""

    name: str
    label: str
    amount: float
    text: str
