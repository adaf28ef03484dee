"""GPUs are idle between jobs, or wait for the other GPUs of their job.

If the scheduler allocates the GPUs of a job one by one, the first ones stay idle until the last one is available. Gang
scheduling allocates all or none; backfilling lets small jobs use the gaps; a warm pool avoids machine start-up. Only
the scheduler knows how long GPUs wait, so you declare this time; it is not measured.

Wrong when: jobs wait for a quota, or no other job could use the idle time.

Source: Slurm, sched/backfill, https://slurm.schedmd.com/sched_config.html
Source: Kueue, all-or-nothing scheduling, https://kueue.sigs.k8s.io/docs/tasks/manage/setup_wait_for_pods_ready/
"""

from advisor.metrics import Metrics, Threshold, goals, settings
from advisor.models.effects import Triple
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure, text
from advisor.units import share, span

RULE = Rule("Schedule jobs as gangs", Area.COST, Confidence.HEURISTIC, difficulty=3, cap=Severity.SUGGEST)

MIN_SHARE = Threshold(
    0.1, "Share of the GPUs' time; starting and ending jobs takes this much in any case (assumption)."
)

# Share of that time that is saved (assumption).
REMOVED: Triple = (0.3, 0.5, 0.8)

SETTINGS = """\
Slurm (slurm.conf): SchedulerType=sched/backfill, PriorityType=priority/multifactor
Kubernetes: Kueue with waitForPodsReady, or a Volcano PodGroup with minMember = the job's pods
"""


def when(m: Metrics) -> Evidence | None:
    """If you declared that GPUs wait without training for at least 10 % of their time,"""
    return evidence(measure(m, goals.queue_share, ">=", MIN_SHARE))


def then(m: Metrics, found: Evidence) -> Advice:
    """then let the scheduler allocate all GPUs of a job at once, and fill the gaps with small jobs."""
    low, expected, high = (m[goals.queue_share] * fraction for fraction in REMOVED)
    gpus = m.get(settings.world_size) or 1
    opening = f"Give a job's {gpus} GPUs all at once or not at all (gang scheduling), let" if gpus > 1 else "Let"
    return Advice(
        then=f"{opening} small jobs fill the gaps (backfill), share by past use (fairshare), keep a few machines warm, "
        "and let the autoscaler remove them only after a delay, never during a checkpoint. This regains about "
        f"{share(expected)} of the GPUs' time ({span(low, high)}).",
        changes=(text(SETTINGS),),
        basis="30, 50 or 80 % of the declared time is saved, assuming that you pay for it. The steps themselves stay "
        "the same.",
        cost=(low, expected, high),
        risk="No effect on results. Large jobs may wait longer to start.",
    )
