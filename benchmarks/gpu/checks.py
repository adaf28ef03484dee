"""The items of the acceptance run, in the order in which they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import check_advice
import check_harm
import check_sampling
import check_truth
from acceptance import Bench
from table import Row


@dataclass(frozen=True)
class Item:
    """A check, and the seconds that it normally takes on an H100."""

    name: str
    seconds: float
    check: Callable[[Bench], Iterable[Row]]
    """Yields each row as soon as it is measured, where an item takes several programs."""


ITEMS = (
    Item("identity", 20, check_truth.identity),
    Item("trace", 20, check_truth.raw_trace),  # early, so that a run that is cut off has it
    Item("graph", 20, check_harm.graph),
    Item("forwards", 30, check_harm.forwards),
    Item("phases", 45, check_truth.phases),
    Item("cost", 90, check_harm.cost),
    Item("sampling", 30, check_sampling.sampling),
    Item("windows", 40, check_truth.windows),
    Item("precision", 90, check_advice.precision),
    Item("faults", 60, check_advice.faults),
    Item("oom", 45, check_advice.out_of_memory),
    Item("compile", 60, check_harm.compiled),
    Item("trainer", 60, check_harm.trainer),
)
