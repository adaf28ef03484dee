"""Render a plan for scripts: sizes in bytes, times in seconds, shares of 1.

null means not known or not given.
"""

import json
import math

from advisor.plan import advice
from advisor.plan.interval import IntervalPlan
from advisor.plan.memory import BatchPlan, MemoryPlan
from advisor.plan.placement import Account
from advisor.plan.plan import Plan
from advisor.plan.settings import settings
from advisor.report.render.picked import picked
from profiler.version import __version__

SCHEMA = "profile-train/plan@1"


def render(plan: Plan) -> str:
    """Return the plan as JSON in ASCII."""
    document = {
        "schema": SCHEMA,
        "version": __version__,
        "memory": plan.memory and _memory(plan.memory),
        "batch": plan.batch and _batch(plan.batch),
        "checkpoint_interval": plan.interval and _interval(plan.interval),
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _memory(plan: MemoryPlan) -> dict[str, object]:
    choice, accumulation, activations = plan.choice, plan.accumulation, plan.activations
    return {
        "model": picked(plan.model, "parameters optimizer precision largest_unit=unit"),
        "cluster": {
            **picked(plan.cluster, "gpus gpus_per_node=in_node gpu=device.name gpu_memory=device.memory"),
            "gpu_bandwidth": plan.cluster.device.peaks and plan.cluster.device.peaks.bandwidth,
            "reserve": plan.cluster.reserve,
            "budget": round(plan.cluster.budget),
            "host_memory": plan.cluster.host,
        },
        "micro_batch": plan.batch,
        "activations": activations
        and {
            "source": activations.source,
            "per_sample": [
                {
                    "checkpointing": checkpointing.name,
                    "bytes": activations.kept(checkpointing),
                    "time_added": checkpointing.extra,
                }
                for checkpointing in activations.choices
            ],
        },
        "placements": [_account(plan, item) for item in plan.accounts + plan.accounts_in_8_bits],
        "recommendation": choice
        and {
            **picked(choice.account, "stage=placement.stage offload=placement.offload.value optimizer"),
            **picked(choice.checkpointing, "checkpointing=name checkpoint_every=every time_added=extra"),
            "gpu_bytes": round(plan.used(choice)),
            "largest_micro_batch": plan.largest(choice.account, choice.checkpointing),
        },
        "headline": advice.headline(plan),
        "why": advice.why(plan),
        "least_gpus": plan.least_gpus,
        "accumulation": accumulation and picked(accumulation, "target_batch=target micro_batch steps samples=total"),
        "settings": [picked(item, "tool language code note") for item in settings(plan)],
        "notes": advice.notes(plan),
    }


def _account(plan: MemoryPlan, one: Account) -> dict[str, object]:
    least = plan.least(one)
    state_names = (
        "weights=states.parameters gradients=states.gradients optimizer_state=states.optimizer states=states.total"
    )
    return {
        **picked(one, "stage=placement.stage offload=placement.offload.value optimizer"),
        **_rounded(one, f"{state_names} transient"),
        "total": None if one.transient is None else round(one.least),
        **_rounded(one, "host sent_per_step=sent"),
        "offload_seconds": one.offload_time,
        "deepspeed": one.deepspeed and _rounded(one.deepspeed, "gpu host"),
        "fits": least is not None,
        "fits_with": least and least.name,
        "largest_micro_batch": {
            checkpointing.name: plan.largest(one, checkpointing)
            for checkpointing in (plan.activations.choices if plan.activations else ())
        },
    }


def _batch(plan: BatchPlan) -> dict[str, object]:
    return _rounded(plan, "fixed=line.fixed per_sample=line.each budget largest largest_multiple_of_8=even")


def _rounded(thing: object, names: str) -> dict[str, object]:
    """Return attributes in whole bytes."""
    return {name: None if value is None else round(value) for name, value in picked(thing, names).items()}


def _interval(plan: IntervalPlan) -> dict[str, object]:
    return {
        **picked(plan, "mtbf save_cost=save restart_cost=restart interval=best young"),
        "inflation": plan.inflation(plan.best),
        "async": None
        if plan.best_async is None
        else {"save_cost": plan.async_save, "interval": plan.best_async, "inflation": plan.inflated},
        "now": None
        if plan.interval is None
        else {"interval": plan.interval, "inflation": _finite(plan.inflation(plan.interval))},
        "table": [
            {"interval": interval, "inflation": _finite(inflation), "what": label}
            for interval, inflation, label in plan.table
        ],
        "spot": {
            **picked(plan, "discount break_even_discount=break_even cost_ratio"),
            "worth_it": None if plan.cost_ratio is None else plan.cost_ratio < 1,
        },
        **picked(plan, "headline verdict remarks"),
    }


def _finite(value: float) -> float | None:
    """Return None for infinity, which JSON does not have."""
    return None if math.isinf(value) else value
