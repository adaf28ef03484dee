"""Compute where a model's states are kept (whole, sharded, on the host) and what each GPU needs."""

from dataclasses import dataclass
from enum import Enum

from advisor.models.memory import States
from advisor.models.sharding import DeepSpeedEstimate, MemoryEstimate, gathered, offload_time, zero_bytes
from advisor.plan.cluster import Cluster
from advisor.plan.model import OPTIMIZERS, PRECISIONS, Model


class Offload(Enum):
    """The states that are kept on the host."""

    NOTHING = "nothing"
    OPTIMIZER = "optimizer"
    """Optimizer state and gradients."""
    ALL = "all"
    """Optimizer state, gradients and weights."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A stage of ZeRO (0 is plain data parallel training) and the offloaded states."""

    stage: int
    offload: Offload = Offload.NOTHING

    def name(self, gpus: int) -> str:
        """Return the name in a table."""
        if self.offload is Offload.NOTHING:
            plain = "one GPU" if gpus == 1 else "none (DDP)"
            return {0: plain, 3: "ZeRO 3 = FSDP"}.get(self.stage, f"ZeRO {self.stage}")
        suffix = "offload" if self.offload is Offload.OPTIMIZER else "offload all"
        return f"ZeRO {self.stage} + {suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One line of the memory table: bytes of one GPU."""

    placement: Placement
    optimizer: str
    states: States
    transient: float | None
    """Weights that exist only while they are used; None if not known.

    These are autocast's 16-bit copies, or what FSDP gathers.
    """
    host: float | None
    """Bytes of each node's host memory by DeepSpeed's estimate; None if nothing is offloaded."""
    deepspeed: MemoryEstimate | None
    """The estimate of DeepSpeed's own estimator; None if it has none."""
    sent: float
    """Bytes that each rank sends per step, counted in the dtype of the gradients."""
    offload_time: float | None
    """Seconds per step that offloading adds if nothing of it is hidden; None if nothing is offloaded."""

    @property
    def least(self) -> float:
        """Return all bytes that are known: the total, unless `transient` is None."""
        return self.states.total + (self.transient or 0.0)

    def left(self, cluster: Cluster) -> float:
        """Return the bytes left for activations; negative if not even the states fit."""
        return cluster.budget - self.least


def all_accounts(model: Model, cluster: Cluster) -> tuple[Account, ...]:
    """Return the accounts of a model, with and without offload, from the smallest change to the largest.

    One GPU cannot shard, but may offload; 8-bit optimizers do not run on a CPU.
    """
    several = cluster.gpus > 1
    placements = [Placement(stage) for stage in range(4 if several else 1)]
    if model.optimizer != "adamw-8bit":
        sharded = [Placement(3, Offload.OPTIMIZER)] if several else []
        placements += [Placement(2, Offload.OPTIMIZER), *sharded, Placement(3, Offload.ALL)]
    return tuple(account(model, cluster, placement) for placement in placements)


def account(model: Model, cluster: Cluster, placement: Placement) -> Account:
    """Return the account of a model in a placement."""
    ranks, states = cluster.gpus, model.states
    offloaded = placement.offload is not Offload.NOTHING
    estimate = _deepspeed(model, cluster, placement)
    return Account(
        placement=placement,
        optimizer=model.optimizer,
        states=_on_gpu(model, placement, ranks),
        transient=_transient(model, placement),
        host=estimate.host if estimate and offloaded else None,
        deepspeed=estimate if _estimable(model, placement) else None,
        sent=zero_bytes(states.gradients, ranks, placement.stage),
        offload_time=offload_time(
            model.parameters, ranks, bus=cluster.pcie, host=cluster.host_bandwidth / cluster.in_node
        )
        if offloaded
        else None,
    )


def _estimable(model: Model, placement: Placement) -> bool:
    """Return whether DeepSpeed has a usable estimator.

    Its estimators are for Adam at 16 bits, and the one for stage 3 underestimates without the largest unit.
    """
    return (
        OPTIMIZERS[model.optimizer] in ("adam", "adamw")
        and PRECISIONS[model.precision] in ("mixed", "autocast")
        and not (placement.stage == 3 and model.unit is None)
    )


def _on_gpu(model: Model, placement: Placement, ranks: int) -> States:
    """Return the states that stay on the GPU.

    Offloaded gradients leave it as they are made. With the optimizer offloaded, the weights used for computation stay.
    """
    if placement.offload is Offload.ALL:
        return States(0.0, 0.0, 0.0)
    if placement.offload is Offload.OPTIMIZER:
        return States(model.element * model.parameters, 0.0, 0.0).sharded(placement.stage, ranks)
    return model.states.sharded(3 if _gathered(model, placement) else placement.stage, ranks)


def _gathered(model: Model, placement: Placement) -> bool:
    """Return whether stage 2 is FSDP's, whose sharded weights stay gathered from forward to backward.

    DeepSpeed's stage 2 keeps weights whole; only DeepSpeed has master copies.
    """
    return placement == Placement(2) and PRECISIONS[model.precision] != "mixed"


def _transient(model: Model, placement: Placement) -> float | None:
    if placement.stage == 3:
        return None if model.unit is None else gathered(model.unit, model.element)
    if _gathered(model, placement):
        return model.element * model.parameters
    return model.cast if placement.offload is Offload.NOTHING else 0.0


def _deepspeed(model: Model, cluster: Cluster, placement: Placement) -> MemoryEstimate | None:
    """Return DeepSpeed's estimate; None for stages without an estimator.

    These are the stages that shard at most the optimizer.
    """
    estimate = DeepSpeedEstimate(
        parameters=model.parameters, largest=model.unit or 0.0, gpus=cluster.in_node, nodes=cluster.nodes
    )
    offload = placement.offload is not Offload.NOTHING
    if placement.stage == 2:
        return estimate.stage_2(offload=offload)
    if placement.stage == 3:
        return estimate.stage_3(offload=offload, offload_parameters=placement.offload is Offload.ALL)
    return None
