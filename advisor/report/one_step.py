"""Look into one typical step and the slowest one: what ran when, and what made the slow one slow."""

from dataclasses import dataclass
from typing import Literal

from advisor.runs.profile import Profile, Rank
from profiler.schema import PHASES, STANDS_OUT, Lane, Step, StepLook

FEW = 3
"""Number of steps below which none is typical."""
LONGEST = 2.0**33
"""Seconds from which a step's time is not valid: a page counts nanoseconds, and a damaged store may hold any number."""
CAUSE = 0.3
"""Share of the difference from which a part is named as the cause."""

PLACES = {
    "idle_sync": ("host-sync-item",),
    "memory_exposed": ("h2d-overlap", "data-pin-memory"),
    "idle_data": ("data-wait-traced", "data-workers-zero", "data-more-workers"),
    "idle_launch": ("launch-bound-graphs", "compile-model", "host-stall", "alloc-churn"),
    "communication_exposed": ("comm-overlap", "comm-compress-bf16", "ddp-no-sync"),
}
"""The rules whose evidence lies in each part of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStep:
    """A typical step and the slowest one, to look into."""

    steps: tuple[StepLook, ...]
    placed: bool
    """Whether it is known when each piece ran; else only how long each phase took."""

    @property
    def typical(self) -> StepLook:
        """Return the step that is closest to the median."""
        return self.steps[0]

    @property
    def slowest(self) -> StepLook | None:
        """Return the slowest step; None if it does not stand out."""
        return self.steps[1] if len(self.steps) > 1 else None

    @property
    def cause(self) -> tuple[str, float] | None:
        """Return the part that grew most in the slowest step, and by how much; None if no part explains it."""
        if self.slowest is None:
            return None
        growth = {name: seconds - self.typical.parts.get(name, 0.0) for name, seconds in self.slowest.parts.items()}
        name = max(growth, key=lambda part: growth[part], default=None)
        difference = self.slowest.seconds - self.typical.seconds
        return (name, growth[name]) if name is not None and growth[name] >= CAUSE * difference else None

    def place(self, rule: str) -> str | None:
        """Return the part of the typical step in which the rule's evidence lies, if it is there."""
        parts = {stretch.part for stretch in self.typical.stretches}
        return next((part for part, rules in PLACES.items() if rule in rules and part in parts), None)


def one_step(profile: Profile) -> OneStep | None:
    """Return the steps of the first rank: those in a trace or window, else the recorded ones; None without any."""
    if not profile.ranks:
        return None
    rank = profile.ranks[0]
    looks = next((fact.looks for fact in rank.traces if fact.looks), ())
    if looks:
        return OneStep(steps=looks, placed=True)
    steps = _recorded(rank)
    return OneStep(steps=steps, placed=False) if steps else None


def _recorded(rank: Rank) -> tuple[StepLook, ...]:
    single_steps = (step for step in rank.steps if not step.tags and step.count == 1 and _is_measured(step))
    steps = sorted(single_steps, key=lambda step: step.duration)
    if len(steps) < FEW:
        return ()
    typical, slowest = steps[(len(steps) - 1) // 2], steps[-1]
    looks = [_phases(typical, "typical")]
    if slowest.duration > STANDS_OUT * typical.duration:
        looks.append(_phases(slowest, "slowest"))
    return tuple(looks)


def _is_measured(step: Step) -> bool:
    return all(abs(value) < LONGEST for name in ("duration", *PHASES) if (value := getattr(step, name)) is not None)


def _phases(step: Step, which: Literal["typical", "slowest"]) -> StepLook:
    """Return a step with its phases laid end to end: only their lengths were recorded."""
    parts = {name: value for name in PHASES if (value := getattr(step, name))}
    items, start = [], 0
    for position, length in enumerate(parts.values()):
        items.append((start, round(length * 1e9), position, position, 0, 1))
        start += round(length * 1e9)
    return StepLook(
        which=which,
        number=step.index,
        seconds=step.duration,
        parts=parts,
        names=tuple(parts),
        kinds=tuple(parts),
        lanes=(Lane(name="Phases", items=tuple(items)),),
    )
