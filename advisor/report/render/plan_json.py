"""Render a plan for scripts: sizes in bytes, times in seconds, shares of 1.

null is not known or not given.
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
    made = {
        "schema": SCHEMA,
        "version": __version__,
        "memory": plan.memory and _memory(plan.memory),
        "batch": plan.batch and _batch(plan.batch),
        "checkpoint_interval": plan.interval and _interval(plan.interval),
    }
    return json.dumps(made, indent=2, allow_nan=False) + "\n"


def _memory(plan: MemoryPlan) -> dict[str, object]:
    choice, parts, kept = plan.choice, plan.accumulation, plan.activations
    chosen = None
    if choice is not None:
        chosen = {
            "stage": choice.account.placement.stage,
            "offload": choice.account.placement.offload.name.lower(),
            "optimizer": choice.account.optimizer,
            **picked(choice.checkpointing, "checkpointing=name checkpoint_every=every time_added=extra"),
            "gpu_bytes": round(plan.used(choice)),
            "largest_micro_batch": plan.largest(choice.account, choice.checkpointing),
        }
    return {
        "model": picked(plan.model, "parameters optimizer precision largest_unit=unit"),
        "cluster": {
            **picked(plan.cluster, "gpus gpus_per_node=in_node gpu=device.name gpu_memory=device.memory"),
            "gpu_bandwidth": None if plan.cluster.device.peaks is None else plan.cluster.device.peaks.bandwidth,
            "reserve": plan.cluster.reserve,
            "budget": round(plan.cluster.budget),
            "host_memory": plan.cluster.host,
        },
        "micro_batch": plan.batch,
        "activations": None
        if kept is None
        else {
            "source": kept.source,
            "per_sample": [
                {"checkpointing": way.name, "bytes": kept.kept(way), "time_added": way.extra} for way in kept.choices
            ],
        },
        "placements": [_account(plan, one) for one in plan.accounts + plan.accounts_in_8_bits],
        "recommendation": chosen,
        "headline": advice.headline(plan),
        "why": advice.why(plan),
        "least_gpus": plan.least_gpus,
        "accumulation": None if parts is None else picked(parts, "target_batch=target micro_batch steps samples=total"),
        "settings": [picked(one, "tool language code note") for one in settings(plan)],
        "notes": advice.notes(plan),
    }


def _account(plan: MemoryPlan, one: Account) -> dict[str, object]:
    least = plan.least(one)
    ways = () if plan.activations is None else plan.activations.choices
    return {
        "stage": one.placement.stage,
        "offload": one.placement.offload.name.lower(),
        "optimizer": one.optimizer,
        "weights": round(one.states.parameters),
        "gradients": round(one.states.gradients),
        "optimizer_state": round(one.states.optimizer),
        "states": round(one.states.total),
        "transient": None if one.transient is None else round(one.transient),
        "total": None if one.transient is None else round(one.least),
        "host": None if one.host is None else round(one.host),
        "sent_per_step": round(one.sent),
        "offload_seconds": one.offload_time,
        "deepspeed": None
        if one.deepspeed is None
        else {"gpu": round(one.deepspeed.gpu), "host": round(one.deepspeed.host)},
        "fits": least is not None,
        "fits_with": None if least is None else least.name,
        "largest_micro_batch": {way.name: plan.largest(one, way) for way in ways},
    }


def _batch(plan: BatchPlan) -> dict[str, object]:
    return {
        "fixed": round(plan.line.fixed),
        "per_sample": round(plan.line.each),
        "budget": round(plan.budget),
        "largest": plan.largest,
        "largest_multiple_of_8": plan.even,
    }


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
            {"interval": each, "inflation": _finite(inflated), "what": what} for each, inflated, what in plan.table
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
