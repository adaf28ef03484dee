"""The DataLoader stops its workers after every epoch and starts new ones.

Without `persistent_workers`, the worker processes end with each epoch and start again for the next one. That is a fork
per worker or, with the spawn method, a new Python process that imports torch again. The next step waits for all of
that. After a fork, that step is also slower: the first write to each memory page, mostly of gradients and parameters,
copies the page.

Wrong when: the training process changes the data set between epochs (a curriculum, new negative samples, an epoch
number set on it). Persistent workers keep the copy they started with.

Source: PyTorch: torch.utils.data, https://docs.pytorch.org/docs/stable/data.html
"""

from dataclasses import replace

from advisor.metrics import Metrics, Threshold, between, input
from advisor.models.effects import in_turn, remove
from advisor.rules._workers import set_loader
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure
from advisor.units import count, seconds, share

RULE = Rule("Keep the DataLoader workers between epochs", Area.STALLS, Confidence.PHASE_REMOVAL)

MIN_SHARE = Threshold(0.03, "Share of the run. Below this, epochs are so long that worker start-up does not matter.")

# Share saved of an epoch's start, without the first batch, which is needed anyway; resetting live workers costs some
# messages.
REMOVED = (0.7, 0.9, 1.0)


def when(m: Metrics) -> Evidence | None:
    """If the loader's workers are not persistent, and restarting them takes at least 3 % of the run,"""
    loader = m[input.loader]
    if not loader.num_workers or loader.persistent_workers:
        return None
    if m[input.epoch_restart_share] * _start_up(m) < m[MIN_SHARE]:
        return None
    settling_facts = (measure(m, between.epoch_settling_share),) if _settling(m) else ()
    return evidence(
        measure(m, input.epoch_restart_share, ">=", MIN_SHARE),
        measure(m, input.epoch_start_seconds),
        *settling_facts,
        note=f"{count(loader.num_workers, 'worker')} started for every epoch",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then keep the workers from epoch to epoch."""
    loader, loader_count = m[input.loader], m.get(input.loaders_made) or 1
    changes, intervention = set_loader(m, persistent_workers=True)
    hint = ""
    # Workers end with their DataLoader; a framework creates one.
    if loader_count > 1 and not (loader.place and loader.place.via):
        intervention = None
        hint = f" Create the DataLoader once, before the loop over the epochs: this run created {loader_count}."
        first_change = replace(changes[0], code=f"# once, before the loop over the epochs\n{changes[0].code}")
        changes = (first_change, *changes[1:])
    return Advice(
        then=f"Keep the workers: each epoch begins with a stall of {seconds(m[input.epoch_start_seconds])}, "
        f"{share(m[input.epoch_restart_share])} of the run.{hint}",
        changes=changes,
        basis="70, 90 or 100 % of two costs: the start of every epoch after the first (minus one batch, which is "
        "needed anyway), and the extra time of the step after a fork.",
        effect=in_turn(
            remove("epoch_start", shares=REMOVED, portion=_start_up(m)),
            remove("epoch_settling", shares=REMOVED, portion=1.0 if _settling(m) else 0.0),
        ),
        memory=0,
        host_memory=0,
        intervention=intervention,
        risk="Low: workers keep their copy of the data set and their caches for the whole run. Later epochs are "
        "shuffled differently because the workers draw fewer seeds.",
    )


def _start_up(m: Metrics) -> float:
    """Return the share (0 to 1) of an epoch's start that is not spent preparing its first batch."""
    start_seconds = m[input.epoch_start_seconds]
    return max(0.0, 1 - m[input.batch_time] / start_seconds) if start_seconds > 0 else 0.0


def _settling(m: Metrics) -> float:
    """Return the share of the run by which epochs' first steps are slower after a fork; 0 if unknown."""
    return (m.get(between.epoch_settling_share) or 0.0) if m[input.loader].forks else 0.0
