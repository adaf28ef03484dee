from harness import DoesNotFire, Fires, NotMeasured, given

from advisor.metrics.base import Goals
from advisor.metrics.settings import world_size


def waiting(part: float | None, ranks: int = 8):
    return given({world_size: ranks}, Goals(queue_share=part))


CASES = [
    Fires(
        "20 % of the time in the queue",
        waiting(0.2),
        code=("sched/backfill", "minMember"),
        then="a job's 8 GPUs all at once or not at all (gang scheduling), let small jobs fill the gaps",
        no_gain=True,
        cost=(0.06, 0.1, 0.16),
        fault=False,
    ),
    Fires("the share of GPU time that is recovered", waiting(0.2), then="10% of the GPUs' time (6 to 16%)"),
    Fires("one GPU needs no gang scheduling", waiting(0.2, ranks=1), then="Let small jobs fill the gaps"),
    Fires("just above the limit", waiting(0.101)),
    DoesNotFire("just below the limit", waiting(0.099)),
    NotMeasured("queue time was not declared", waiting(None)),
]
