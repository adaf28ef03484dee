"""GPUs wait in the queue, or for the rest of their job.

A job of several GPUs that is given them one by one holds the first ones idle until the last is there. Gang scheduling
gives all or none; backfilling lets small jobs use the gaps; a warm pool spares them the start of a machine. How long
GPUs wait is seen by the scheduler alone: it is declared, not measured.

Wrong when: the waiting is for a quota, or the time between jobs is nobody's to use.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.goals import queue_share
from advisor.metrics.settings import world_size
from advisor.models.effects import Triple
from advisor.rules.base import Advice, Change, Confidence, Evidence, Fact, Rule, Severity, Source, Tier
from advisor.units import share, span

MIN_SHARE = Threshold(0.1, "Of the GPUs' time: less is what starting and ending jobs takes anyway (assumption).")

# Of that time, what goes (assumption).
REMOVED: Triple = (0.3, 0.5, 0.8)


def when(m: Metrics) -> Evidence | None:
    """If GPUs wait, as declared, for at least a tenth of their time without training,"""
    waiting = m[queue_share]
    return None if waiting < m[MIN_SHARE] else Evidence((Fact(queue_share, waiting, m[MIN_SHARE]),))


def then(m: Metrics, found: Evidence) -> Advice:
    """then let the scheduler give a job all of its GPUs at once, and fill the gaps with small ones."""
    low, expected, high = (m[queue_share] * part for part in REMOVED)
    several = (m.get(world_size) or 1) > 1
    first = f"Give a job's {m[world_size]} GPUs all at once or not at all (gang scheduling), let" if several else "Let"
    return Advice(
        then=f"{first} small jobs fill the gaps (backfill), share by what was used (fairshare), keep a few machines "
        f"warm, and let the autoscaler take them away only after a while, never during a save: about {share(expected)} "
        f"of the GPUs' time back ({span(low, high)}).",
        changes=(
            Change(
                language="text",
                code="Slurm (slurm.conf): SchedulerType=sched/backfill, PriorityType=priority/multifactor\n"
                "Kubernetes: Kueue with waitForPodsReady, or a Volcano PodGroup with minMember = the job's pods\n",
            ),
        ),
        basis="0.3, 0.5 or 0.8 of the declared time, taken to be paid for; the steps themselves stay as they are.",
        cost=(low, expected, high),
        risk="None to results. Large jobs may wait longer for their start.",
    )


RULE = Rule(
    title="Schedule jobs as gangs",
    tier=Tier.COST,
    when=when,
    then=then,
    confidence=Confidence.HEURISTIC,
    difficulty=3,
    cap=Severity.SUGGEST,
    sources=(
        Source("Slurm, sched/backfill", "https://slurm.schedmd.com/sched_config.html"),
        Source(
            "Kueue, all-or-nothing scheduling", "https://kueue.sigs.k8s.io/docs/tasks/manage/setup_wait_for_pods_ready/"
        ),
    ),
)
