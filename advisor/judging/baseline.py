"""Build the measured step as the state that gain models change."""

from advisor.metrics import gpu
from advisor.metrics.base import Metrics
from advisor.metrics.between import between_seconds, epoch_start_share
from advisor.metrics.input import epoch_restart_share, wait_without_preparing, workers_are_behind
from advisor.metrics.step import exposed_comm_fraction, modeled_phases, sync_fraction
from advisor.models.state import State

LAUNCH_MARGIN = 1.1
"""Factor on the host's enqueue time. A host that enqueues for 90 ms cannot run a 90 ms step: it needs about a tenth for
everything else (assumption).
"""


def baseline(metrics: Metrics) -> State:
    """Return the mean steady step as measured.

    Without workers, the data wait is in series with everything else. The part of it that prepares no batch, such as a
    slow sampler, stays in the training process even with workers. Workers that cannot keep up set the pace: the step is
    then as long as their supply takes, no matter how fast the rest is.

    Raises:
        Missing: the phases of the step were not measured.
    """
    phases = dict(metrics[modeled_phases])
    step_time = sum(phases.values())
    data_wait = phases.pop("data_wait", 0.0)
    overhead = min(data_wait, metrics.get(wait_without_preparing) or 0.0)
    if overhead:
        phases["loader_overhead"] = phases.get("loader_overhead", 0.0) + overhead
    starved = metrics.get(workers_are_behind)
    gpu_seconds = (metrics.get(gpu.gpu_computing_fraction) or 0.0) * step_time
    # The launch-bound index is a share of the window without these waits.
    wait_shares = (sync_fraction, exposed_comm_fraction, gpu.host_stall_fraction)
    total_wait = data_wait + sum((metrics.get(metric) or 0.0) for metric in wait_shares) * step_time
    return State(
        phases=phases,
        between=_between(metrics),
        load=0.0 if starved else data_wait - overhead,
        supply=step_time if starved else 0.0,
        launch=min(LAUNCH_MARGIN * (metrics.get(gpu.host_launch) or 0.0), step_time),
        matmul=(metrics.get(gpu.matmul_share) or 0.0) * gpu_seconds,
        membound=(metrics.get(gpu.membound_share) or 0.0) * gpu_seconds,
        launch_idle=(metrics.get(gpu.launch_bound_index) or 0.0) * (step_time - total_wait),
    )


def _between(metrics: Metrics) -> dict[str, float]:
    """Return the time between steps, leaving out the first epoch's start.

    The first start weighs heavily only because a profiled run is short.
    """
    between = dict(metrics.get(between_seconds) or {})
    start_share, restart_share = metrics.get(epoch_start_share), metrics.get(epoch_restart_share)
    if "epoch_start" in between:
        between["epoch_start"] *= restart_share / start_share if start_share and restart_share is not None else 0.0
    return between
