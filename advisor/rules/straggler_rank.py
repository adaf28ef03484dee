"""One rank is slower than the others, and all wait for it in every step.

Ranks that train one model meet in every backward pass, to reduce gradients: each step takes as long as the slowest
rank's own work. The others spend the difference waiting, which looks like slow communication there; so ranks are
compared by what they do without it. A rank that is always the slowest has a reason of its own: its host, its storage,
its GPU's clocks, or code that runs there only.

Wrong when: that rank does by intention what no other can do for it, or other programs on its host explain it and are
about to end. Where the slowest rank changes from step to step, as with sequences of uneven length, the rule is silent:
balance tokens between ranks.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Missing, Threshold
from advisor.metrics.communication import Work, common_step_count, own_work, straggler_persistence, straggler_skew
from advisor.metrics.settings import world_size
from advisor.metrics.stragglers import slowest_pair, straggler_causes, waits
from advisor.models.effects import PARTLY, remove_seconds, remove_wait
from advisor.models.state import Effect
from advisor.rules._exposed import remove_exposed
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Source, Tier
from advisor.units import seconds

MIN_SKEW = Threshold(0.08, "Ranks of one job differ by some percent even on equal hosts (assumption).")

MIN_SHARE = Threshold(
    0.8,
    "Of the steps. Measured with two ranks on two crowded cores: 0.53 to 0.63 without a straggler, 1 with one that "
    "sleeps.",
)

MIN_STEPS = Threshold(30, "A host that is busy for a few steps is no straggler (assumption).")

MIN_RANKS = 2

# By what was measured, what to do about it.
_CURES = {
    "batches": "Give every rank as many samples, or tokens, a step",
    "gpu": "Look at the cooling and the power limit of its GPU",
    "host": "Free its cores from what else runs there, or give it as many as the others have",
    "gc": "Look at what is kept alive on that rank only",
    "saving": "Let all ranks save their part, or save in the background",
    "evaluation": "Share the evaluation among the ranks",
    "data": "Look at its DataLoader: storage, number of workers, cores that other processes use",
    "copies": "Look at its GPU's link, and whether its host pins memory",
}

# Where nothing that was measured accounts for it: by the phase that is longer, what to look at.
_HINTS = {
    "forward": "its GPU's clocks and temperature, its host's load, and whether its batches are larger or longer",
    "optimizer": "its GPU's clocks and its host's load",
}
_OTHER = "what runs on that rank only: logging, metrics, saving, progress bars; then its host's load"

MOST_NAMED = 4
"""Ranks whose waiting is told."""


def when(m: Metrics) -> Evidence | None:
    """If one rank's own work, without communication, takes at least 8 % longer than the median rank's, and it is the
    slowest in 80 % of 30 steps or more,
    """
    if m[world_size] < MIN_RANKS or m[straggler_skew] < m[MIN_SKEW]:
        return None
    if m[common_step_count] < m[MIN_STEPS]:
        raise Missing(f"Only {m[common_step_count]} steps were steady on every rank", "Record more steps.")
    if m[straggler_persistence] < m[MIN_SHARE]:
        return None
    slowest, middle = _slowest(m), _middle(m)
    return Evidence(
        (
            Fact(straggler_skew, m[straggler_skew], m[MIN_SKEW]),
            Fact(straggler_persistence, m[straggler_persistence], m[MIN_SHARE]),
            Fact(common_step_count, m[common_step_count], m[MIN_STEPS]),
            Fact(world_size, m[world_size], MIN_RANKS),
        ),
        note=f"A step's own work, without communication: rank {slowest.rank} {seconds(slowest.median)}, "
        f"rank {middle.rank} {seconds(middle.median)}; the difference lies mostly in {_place(m)}. "
        f"Waiting for rank {slowest.rank}, in each step: {_waiting(m)}",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then find out what that rank does, or what its host lacks."""
    slowest, middle = _slowest(m), _middle(m)
    lost = slowest.median - middle.median
    return Advice(
        then=f"Rank {slowest.rank} makes all others wait {seconds(lost)} a step: {_why(m)}.",
        changes=(
            Change(
                language="shell",
                code=f"# on the host of rank {slowest.rank}: who else uses its cores, its storage, its GPU?\n"
                "top -b -n 1 | head -n 20\niostat -x 1 3\nnvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE\n",
            ),
        ),
        basis="Of what the slowest rank works longer than the lower median of all, half, 0.8 or all goes: every other "
        "rank waits that much less.",
        effect=_effect(m, lost),
        risk="None for the training: the same work, on ranks that are equally fast.",
    )


def _slowest(m: Metrics) -> Work:
    return m[slowest_pair].slow


def _middle(m: Metrics) -> Work:
    """The lower median: of two ranks, the other one."""
    return m[slowest_pair].middle


def _why(m: Metrics) -> str:
    """What was measured, and what to do about it; else where to look."""
    causes = m.get(straggler_causes) or ()
    if not causes:
        hint = _HINTS.get(_phase(m), _OTHER)
        return f"on rank {_slowest(m).rank} nothing that was measured tells why. Look at {hint}"
    return "; ".join(cause.told for cause in causes) + f". {_CURES[causes[0].name]}"


def _waiting(m: Metrics) -> str:
    waiting = [(number, each) for number, each in m[waits] if each > 0]
    more = ", ..." if len(waiting) > MOST_NAMED else ""
    return ", ".join(f"rank {number} {seconds(each)}" for number, each in waiting[:MOST_NAMED]) + more


def _excess(m: Metrics) -> dict[str, float]:
    """By phase, how much longer it is on the slowest rank."""
    slowest, middle = _slowest(m), _middle(m)
    return {phase: own - middle.phases.get(phase, 0.0) for phase, own in slowest.phases.items()}


def _phase(m: Metrics) -> str:
    excess = _excess(m)
    return max(excess, key=excess.__getitem__)


def _place(m: Metrics) -> str:
    phase = _phase(m)
    return "what no phase holds" if phase == "other" else phase.replace("_", " ")


def _effect(m: Metrics, lost: float) -> Effect:
    """The step is that of the primary rank: if another is the slowest, it waits."""
    primary, slowest = m[own_work][0], _slowest(m)
    if slowest is not primary:
        waits = lost - max(0.0, primary.median - _middle(m).median)
        return remove_exposed("communication", waits, PARTLY, within=("backward",))
    phase, own = _phase(m), slowest.phases[_phase(m)]
    if phase == "data_wait":
        low, expected, high = (part * min(1.0, lost / own) for part in PARTLY)
        return remove_wait((low, expected, high))
    longer = [each for each, more in _excess(m).items() if more > 0 and each != "data_wait"]
    return remove_seconds(*longer, seconds=lost, shares=PARTLY)


RULE = Rule(
    title="Find out why one rank is slower than the others",
    tier=Tier.STALLS,
    when=when,
    then=then,
    confidence=Confidence.PHASE_REMOVAL,
    difficulty=2,
    sources=(
        Source(
            "PyTorch Performance Tuning Guide", "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
        ),
    ),
)
