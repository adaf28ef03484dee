"""Communication is exposed: the GPU computes nothing while collectives run.

A GPU can send and compute at the same time. A collective that starts on its own stream as soon as its data is ready
costs time only if nothing is left to compute. A separate collective for each parameter, or one that the program waits
for immediately, is fully exposed.

Wrong when: most of the exposed time is waiting for a slower rank. The trace of a single rank does not show that: pass
the traces of all ranks. The advice also does not help if the next kernel needs the result, as in tensor parallelism.
"""

from __future__ import annotations

from advisor.metrics.base import Metrics, Threshold
from advisor.metrics.communication import ddp, exposed_collective, exposed_collectives
from advisor.metrics.gpu import gpu_computing_fraction
from advisor.metrics.settings import world_size
from advisor.metrics.step import modelled_phases
from advisor.models.effects import COMPUTE, Triple
from advisor.rules._exposed import remove_exposed
from advisor.rules.base import Advice, Area, Change, Confidence, Evidence, Measurement, Rule, Source
from advisor.units import share

MIN_SHARE = Threshold(0.10, "Share of the step: hiding 40 % of a smaller share gains less than 4 % (assumption).")

MIN_RANKS = 2

# Of what computing could hide (assumption): nothing where the ranks wait for a slower one.
HIDDEN: Triple = (0.0, 0.4, 0.8)

REDUCE = """\
from torch.nn.parallel import DistributedDataParallel

# reduces buckets of gradients while the backward pass computes the next ones
model = DistributedDataParallel(model, device_ids=[local_rank], gradient_as_bucket_view=True, static_graph=True)
"""

SHARD = """\
from torch.distributed.fsdp import fully_shard

for block in blocks:
    fully_shard(block, reshard_after_forward=False)  # if memory allows: the backward pass then gathers nothing
fully_shard(model)
for block, following in zip(blocks, blocks[1:]):
    block.set_modules_to_forward_prefetch([following])
"""

ASYNC = """\
import torch.distributed as dist

work = dist.all_to_all_single(received, sent, async_op=True)  # on NCCL's own stream
independent = compute_what_does_not_need_it()
work.wait()
# TorchRec: TrainPipelineSparseDist exchanges the next batch's features meanwhile
"""

CURES = {
    "allreduce": (
        "Reduce gradients in buckets while the backward pass runs, as DistributedDataParallel does; if it does "
        "already, its bf16 hook halves the bytes.",
        REDUCE,
    ),
    "allgather": ("Gather the next block's weights while this one computes, and shard whole blocks.", SHARD),
    "reducescatter": ("Shard whole blocks, so that gradients are reduced while the next block computes.", SHARD),
}
"""What to do, and the code, by kind of collective."""

DEFAULT = (
    "Start the exchange, for example of the next batch's inputs, before work that does not depend on it. Fewer bits "
    "per value shorten it.",
    ASYNC,
)


def when(m: Metrics) -> Evidence | None:
    """If several ranks train, DistributedDataParallel's own timings are not available, and exposed collectives take at
    least 10 % of the step,
    """
    if m[world_size] < MIN_RANKS:
        return None
    exposed, longest = m[exposed_collectives], m[exposed_collective]
    if exposed < m[MIN_SHARE] or m.get(ddp) is not None:
        return None
    return Evidence((Measurement(exposed_collectives, exposed, m[MIN_SHARE]),), f"mostly {longest.name}")


def then(m: Metrics, found: Evidence) -> Advice:
    """then start collectives earlier, so that they overlap computation."""
    exposed = m[exposed_collectives]
    cure, code = CURES.get(m[exposed_collective].name, DEFAULT)
    hidden = min(exposed, m[gpu_computing_fraction])
    return Advice(
        then=f"{cure} {share(exposed)} of the step is exposed communication, {found.note}.",
        changes=(Change(language="python", code=code),),
        basis="0 % (if the ranks wait for a slower one), 40 or 80 % of the exposed time is hidden, at most the GPU's "
        "computing time.",
        effect=remove_exposed("communication", hidden * sum(m[modelled_phases].values()), HIDDEN, within=COMPUTE),
        risk="Low: the same numbers, in the same order. Buffers that are being sent must not be written to.",
    )


RULE = Rule(
    title="Overlap communication with computation",
    area=Area.DISTRIBUTED,
    when=when,
    then=then,
    confidence=Confidence.EMPIRICAL,
    difficulty=2,
    sources=(
        Source(
            "Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020",
            "https://arxiv.org/abs/2006.15704",
        ),
        Source(
            "PyTorch: fully_shard and its prefetching",
            "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
        ),
    ),
)
