"""Communication is exposed: the GPU computes nothing while collectives run.

A GPU can send and compute at the same time. A collective that starts on its own stream as soon as its data is ready
costs time only if nothing is left to compute. A separate collective for each parameter, or one that the program waits
for immediately, is fully exposed.

Wrong when: most of the exposed time is waiting for a slower rank. The trace of a single rank does not show that: pass
the traces of all ranks. The advice also does not help if the next kernel needs the result, as in tensor parallelism.

Source: Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020, https://arxiv.org/abs/2006.15704
Source: PyTorch: fully_shard and its prefetching, https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from advisor.metrics import Metrics, Threshold, communication, gpu, settings, step
from advisor.models.effects import COMPUTE, Triple
from advisor.rules._phases import remove_exposed
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, evidence, measure, python
from advisor.units import share

RULE = Rule("Overlap communication with computation", Area.DISTRIBUTED, Confidence.EMPIRICAL, difficulty=2)

MIN_SHARE = Threshold(0.10, "Share of the step: hiding 40 % of a smaller share gains less than 4 % (assumption).")

MANY_CALLS = Threshold(50, "Collectives per step: a model of a billion fp32 gradients has 160 buckets of 25 MB.")

SMALL_BYTES = Threshold(1e6, "Below a megabyte, latency dominates, not bandwidth (nccl-tests).")

SLOW_LINK = 5e9
"""Bytes/s that any link reaches (comm-slow-link), used if the trace does not contain the bytes."""

# Share hidden of the communication that computation could hide (assumption): none if the ranks wait for a slower one.
HIDDEN: Triple = (0.0, 0.4, 0.8)

REDUCE = """\
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

# reduces buckets of gradients while the backward pass computes the next ones
model = DistributedDataParallel(model, device_ids=[local_rank], gradient_as_bucket_view=True, static_graph=True)
model.register_comm_hook(None, bf16_compress_hook)  # halves the bytes of fp32 gradients
# under gradient accumulation: `with model.no_sync():` around all micro-batches but the last
"""

SHARD = """\
from torch.distributed.fsdp import fully_shard

for block in blocks:
    fully_shard(block, reshard_after_forward=False)  # if memory allows: the backward pass then gathers nothing
fully_shard(model)  # several nodes: mesh=init_device_mesh("cuda", (nodes, gpus)) gathers inside a node only (HSDP)
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
    "allreduce": ("Reduce gradients in buckets while the backward pass runs, as DistributedDataParallel does.", REDUCE),
    "allgather": ("Gather the next block's weights while this one computes, and shard whole blocks.", SHARD),
    "reducescatter": ("Shard whole blocks, so that gradients are reduced while the next block computes.", SHARD),
}
"""What to do, and the code, by kind of collective."""

FEWER_BYTES = (
    "Send fewer bytes, because the reduction already overlaps the backward pass: bf16 gradients, fewer reductions per "
    "step."
)

DEFAULT = (
    "Start the exchange, for example of the next batch's inputs, before work that does not depend on it. Fewer bits "
    "per value shorten it.",
    ASYNC,
)


def when(m: Metrics) -> Evidence | None:
    """If several ranks train, DistributedDataParallel's own timings are not available, and exposed collectives take at
    least 10 % of the step,
    """
    if m[settings.world_size] < 2:
        return None
    exposure = measure(m, communication.exposed_collectives, ">=", MIN_SHARE)
    reason = evidence(exposure, note=f"mostly {m[communication.exposed_collective].name}")
    return reason if m.get(communication.ddp) is None else None


def then(m: Metrics, found: Evidence) -> Advice:
    """then start collectives earlier, so that they overlap computation."""
    exposed_share, collective = m[communication.exposed_collectives], m[communication.exposed_collective]
    cure, code = CURES.get(collective.name, DEFAULT)
    if collective.name == "allreduce" and m.get(communication.overlaps_backward):
        cure = FEWER_BYTES
    calls = m.get(communication.exposed_collective_calls) or 0.0
    total_bytes = SLOW_LINK * collective.seconds if collective.bytes is None else collective.bytes
    has_small_calls = calls >= m[MANY_CALLS] and total_bytes < m[SMALL_BYTES] * collective.calls
    if has_small_calls:
        cure = f"Merge {calls:,.0f} collectives per step into a few: each costs its latency. {cure}"
    hideable_share = exposed_share if has_small_calls else min(exposed_share, m[gpu.gpu_computing_fraction])
    return Advice(
        then=f"{cure} {share(exposed_share)} of the step is exposed communication, {found.note}.",
        changes=(python(code),),
        basis="0 % (if the ranks wait for a slower one), 40 or 80 % of the exposed time is saved"
        + ("." if has_small_calls else ", at most the GPU's computing time."),
        effect=remove_exposed(
            "communication", hideable_share * sum(m[step.modeled_phases].values()), HIDDEN, within=COMPUTE
        ),
        risk="Low: the same numbers, in the same order. Buffers that are being sent must not be written to.",
    )
