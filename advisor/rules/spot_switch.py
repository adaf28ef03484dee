"""The run uses on-demand machines, although spot instances would cost less.

Spot instances have a discount, but the provider can take them back at short notice. An interruption loses the work
since the last checkpoint; saves and restarts also cost time. With the best interval between saves, the run takes E
times as long (Daly). At a discount d, it costs (1 - d) E times as much.

Wrong when: you have never tested a restart from a checkpoint, you need the result by a certain date, data must not
leave certain machines, or environments must run in step with the training, as in reinforcement learning.

Source: Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 2006, https://doi.org/10.1016/j.future.2004.11.016
Source: AWS, EC2 Spot best practices, https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-best-practices.html
"""

from advisor.metrics import Metrics, Threshold, between, goals
from advisor.models.checkpoint_interval import break_even_discount, daly, inflation, spot_cost
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, Severity, evidence, measure, python
from advisor.rules.ckpt_interval_daly import MTBF_TIMES
from advisor.units import money, seconds, share

RULE = Rule("Train on spot instances", Area.COST, Confidence.HEURISTIC, difficulty=3, cap=Severity.SUGGEST)

MAX_RATIO = Threshold(
    0.8, "Share of the on-demand cost; saving less than a fifth does not justify the interruptions (assumption)."
)

# Seconds from an interruption until training continues, if not declared: for a machine, its image and the checkpoint
# (assumption).
RESTART = 300.0

CODE = """\
import signal

ending = []
signal.signal(signal.SIGTERM, lambda number, frame: ending.append(number))
# have the interruption notice (AWS: 2 minutes, in the instance metadata) sent as that signal

# in the loop, after an update; several ranks must agree on which
if ending:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    raise SystemExit(0)
"""


def when(m: Metrics) -> Evidence | None:
    """If spot instances would cost less than 80 % of on-demand ones, calculated from the declared discount, the
    declared time between interruptions and the measured time of a save,
    """
    _, time_factor, cost_ratio = _on_spot(m)
    if not cost_ratio < m[MAX_RATIO]:
        return None
    return evidence(
        measure(m, goals.spot_discount, ">", break_even_discount(time_factor)),
        measure(m, goals.time_between_failures),
        measure(m, between.checkpoint_save_seconds),
        note=f"{share(cost_ratio)} of the on-demand cost",
    )


def then(m: Metrics, found: Evidence) -> Advice:
    """then train on spot instances, save at the best interval, and test that restarts work."""
    interval, time_factor, cost_ratio = _on_spot(m)
    low, expected, high = (1 - _on_spot(m, factor)[2] for factor in MTBF_TIMES)
    price = m.goals.gpu_price
    money_note = f" ({money(100 * (1 - cost_ratio) * price)} less for every 100 GPU-hours)" if price is not None else ""
    restart_note = (
        ""
        if m.goals.restart is not None
        else f" A restart is assumed to take {seconds(RESTART)}; declare yours with --restart."
    )
    return Advice(
        then=f"Train on spot instances: {share(cost_ratio)} of the cost{money_note} in {time_factor:.2f} times the "
        f"time, saving every {seconds(interval)}. Spot instances pay off from a discount of "
        f"{share(break_even_discount(time_factor))} on. Request several instance types, keep the leader of several "
        "nodes on demand, and save on an interruption notice." + restart_note,
        changes=(python(CODE),),
        basis="(1 - d) E with E = (M/tau) e^(R/M) (e^((tau+delta)/M) - 1) at Daly's tau, for twice, once or half as "
        "many interruptions as declared; on-demand machines are assumed to never fail.",
        cost=(low, expected, high),
        risk="Medium: the run depends on its restarts. Kill a short run and let it resume before you rely on them.",
    )


def _on_spot(m: Metrics, times: float = 1.0) -> tuple[float, float, float]:
    """Return the best interval between saves, E, and the share of the on-demand cost.

    E is the factor by which interruptions lengthen the run, at `times` the declared time between them.
    """
    discount, save_seconds = m[goals.spot_discount], m[between.checkpoint_save_seconds]
    failures, restart = times * m[goals.time_between_failures], m.goals.restart
    interval = daly(save_seconds, failures)
    time_factor = inflation(interval, save_seconds, failures, RESTART if restart is None else restart)
    return interval, time_factor, spot_cost(discount, time_factor)
