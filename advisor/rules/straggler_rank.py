"""One rank is slower than the others, and all of them wait for it in every step.

In every backward pass, all ranks of a model synchronize to reduce gradients, so each step takes as long as the slowest
rank's own work. The other ranks wait for it, which looks like slow communication. The rule therefore compares ranks by
their work without communication. If the same rank is always the slowest, look for the cause there: its host, its
storage, its GPU's clocks, or code that runs only on that rank.

Wrong when: that rank has extra work that no other rank can do, or its host also runs other programs that will end soon.
If the slowest rank changes from step to step, as with sequences of uneven length, the rule does not fire; balance
tokens between ranks instead.

Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, Missing, Threshold, communication, lines, settings, stragglers
from advisor.models.effects import PARTLY, remove_seconds, remove_wait, up_to
from advisor.models.state import Effect
from advisor.rules._line_kinds import KINDS
from advisor.rules._phases import remove_exposed
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Rule, bash, evidence, measure
from advisor.units import seconds, share

RULE = Rule("Find out why one rank is slower than the others", Area.STALLS, Confidence.PHASE_REMOVAL, difficulty=2)

MIN_SKEW = Threshold(0.08, "Ranks of one job differ by a few percent even on equal hosts (assumption).")

MIN_SHARE = Threshold(
    0.8,
    "Share of the steps. Measured with two ranks on two busy cores: 0.53 to 0.63 without a straggler, 1 with a rank "
    "that sleeps.",
)

MIN_STEPS = Threshold(30, "A host that is busy for a few steps is not a straggler (assumption).")

STRONG_SKEW = Threshold(0.5, "A host that is busy for a while does not make every step 1.5 times as long (assumption).")

STRONG_STEPS = Threshold(
    10, "With two ranks, the probability that one of them is the slowest in all ten steps by chance is 1 in 500."
)

FEW_STEPS = Threshold(
    3, "Traces rarely have more steps, and a host that is busy for a while does not make kernels longer."
)

# What to do, by measured cause.
_CURES = {
    "batches": "Give every rank the same number of samples, or tokens, per step",
    "gpu": "Check the cooling and the power limit of its GPU",
    "host": "Free its cores from other processes, or give it as many cores as the others have",
    "gc": "Check which objects are kept alive on that rank only",
    "saving": "Let all ranks save their part, or save in the background",
    "evaluation": "Distribute the evaluation over the ranks",
    "data": "Check its DataLoader: storage, number of workers, cores that other processes use",
    "copies": "Check its GPU's link, and whether its host pins memory",
}

# What to check if no measurement shows the cause, by the phase that is longer.
_HINTS = {
    "forward": "its GPU's clocks and temperature, its host's load, and whether its batches are larger or longer",
    "optimizer": "its GPU's clocks and its host's load",
}
_OTHER = "code that runs on that rank only: logging, metrics, saving, progress bars; then its host's load"

MOST_NAMED = 4
"""Number of ranks whose waiting is shown."""


def when(m: Metrics) -> Evidence | None:
    """If one rank's own work, without communication, takes at least 8 % longer than the median rank's, and either that
    rank is the slowest in 80 % of at least 30 steps, or it takes 1.5 times as long in each of at least 10 steps, or
    traces of all ranks show that its GPU reaches their collectives late,
    """
    if m[settings.world_size] < 2 or m[communication.straggler_skew] < m[MIN_SKEW]:
        return None
    least_steps = _enough(m)
    if m[communication.common_step_count] < m[least_steps]:
        raise Missing(
            f"Only {m[communication.common_step_count]} steps were steady on every rank", "Record more steps."
        )
    if m[communication.straggler_persistence] < m[MIN_SHARE]:
        return None
    pair = m[stragglers.slowest_pair]
    slow, middle, phase = pair.slow, pair.middle, _phase(pair)
    work = "work outside all phases" if phase == "other" else phase.replace("_", " ")
    wait_texts = [f"rank {rank} {seconds(wait)}" for rank, wait in m[stragglers.waits] if wait > 0]
    wait_texts[MOST_NAMED:] = ["..."] if len(wait_texts) > MOST_NAMED else []
    return evidence(
        measure(m, communication.straggler_skew, ">=", MIN_SKEW),
        measure(m, communication.straggler_persistence, ">=", MIN_SHARE),
        measure(m, communication.common_step_count, ">=", least_steps),
        measure(m, settings.world_size, ">=", 2),
        note=f"A step's own work, without communication: rank {slow.rank} {seconds(slow.median)}, rank "
        f"{middle.rank} {seconds(middle.median)}; most of the difference is in {work}. Waiting for rank {slow.rank}, "
        f"in each step: {', '.join(wait_texts)}",
    )


def _enough(m: Metrics) -> Threshold:
    """Return the least number of steps, as a threshold."""
    if m[communication.straggler_persistence] < 1:
        return MIN_STEPS
    if m.get(stragglers.slow_gpu) == m[stragglers.slowest_pair].slow.rank:
        return FEW_STEPS
    return STRONG_STEPS if m[communication.straggler_skew] >= m[STRONG_SKEW] else MIN_STEPS


def then(m: Metrics, found: Evidence) -> Advice:
    """then find out what that rank or its host does differently."""
    pair, place_changes = m[stragglers.slowest_pair], []
    # Unequal conditions make all of the rank's lines take longer.
    place = None if m.get(stragglers.unequal_conditions) else m.get(stragglers.straggler_place)
    if place is not None:
        action = KINDS[place.kind].then if place.kind else "Check why only this rank spends so long here."
        place_changes.append(Change(language="text", code=action, file=place.file, line=place.line))
    return Advice(
        then=f"Rank {pair.slow.rank} makes all others wait {seconds(pair.lost)} per step: {_why(m, pair, place)}.",
        changes=(
            *place_changes,
            bash(
                f"# on the host of rank {pair.slow.rank}: what else uses its cores, its storage, its GPU?\n"
                "top -b -n 1 | head -n 20\n"
                "iostat -x 1 3\n"
                "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE\n"
            ),
        ),
        basis="50, 80 or 100 % of the slowest rank's extra time over the lower median is saved; every other rank "
        "waits that much less.",
        effect=_effect(m, pair),
        risk="No effect on training: the same work, on ranks that are equally fast.",
    )


def _why(m: Metrics, pair: stragglers.Pair, place: lines.HotPlace | None) -> str:
    """Return the measured cause and what to do about it; if there is none, where to look."""
    causes = m.get(stragglers.straggler_causes) or ()
    if place is not None:
        cause_text = "".join(f"{cause.text}; " for cause in causes)
        location = f"{place.name} in {place.where}{KINDS[place.kind].what}"
        return f"{cause_text}{share(place.share)} of its step is {location}, more than on other ranks"
    if not causes:
        hint = _HINTS.get(_phase(pair), _OTHER)
        return f"no measurement shows the cause on rank {pair.slow.rank}. Check {hint}"
    return "; ".join(cause.text for cause in causes) + f". {_CURES[causes[0].name]}"


def _phase(pair: stragglers.Pair) -> str:
    """Return the phase in which the slowest rank is most behind."""
    return max(pair.slow.phases, key=pair.excess)


def _effect(m: Metrics, pair: stragglers.Pair) -> Effect:
    """Return the effect of removing the delay on the primary rank's step.

    If another rank is the slowest, the primary rank saves waiting for it.
    """
    primary, phases = m[communication.own_work][0], pair.slow.phases
    if pair.slow is not primary:
        waiting_seconds = pair.lost - max(0.0, primary.median - pair.middle.median)
        return remove_exposed("communication", waiting_seconds, PARTLY, within=("backward",))
    if _phase(pair) == "data_wait":
        return remove_wait(up_to(min(1.0, pair.lost / phases["data_wait"])))
    longer_phases = [phase for phase in phases if pair.excess(phase) > 0 and phase != "data_wait"]
    return remove_seconds(*longer_phases, seconds=pair.lost, shares=PARTLY)
