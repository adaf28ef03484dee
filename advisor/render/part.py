"""What the bars of the report and of the plan are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a stacked bar."""

    name: str
    label: str
    amount: float
    text: str
