"""One process drives all GPUs through nn.DataParallel.

In every step, DataParallel copies the model to each GPU, runs one Python thread per GPU under a single interpreter
lock, and gathers outputs and gradients on the first GPU. That GPU has more work, and its memory fills up first.
DistributedDataParallel has one process per GPU: weights stay in place, and gradients are reduced during the backward
pass.

Wrong when: the wrapped model can use only one GPU anyway (then just remove the wrapper), or the program cannot be
started once per GPU, as in a notebook.

Source: PyTorch, DataParallel, https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html
Source: PyTorch Performance Tuning Guide, https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from advisor.metrics import Metrics, gpu, input, settings, step
from advisor.models.effects import divide_step, in_turn, relieve_host, shares_of
from advisor.rules.base import Advice, Area, Confidence, Evidence, Rule, bash, evidence, measure, python

RULE = Rule("Use DistributedDataParallel instead of DataParallel", Area.DISTRIBUTED, Confidence.HEURISTIC, difficulty=2)

# DataParallel runs in one process; with a single GPU, it only forwards the call and costs nothing.
MIN_GPUS = 2

# Speed-up of the step (assumption: it depends on the model's size and on the number of GPUs).
SPEEDUP = (1.1, 1.4, 2.0)

WRAPPED = """\
import os

import torch
from torch.nn.parallel import DistributedDataParallel

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])
"""


def when(m: Metrics) -> Evidence | None:
    """If the model is wrapped in nn.DataParallel and the program sees two or more GPUs,"""
    if not m[settings.flags].data_parallel or m[settings.world_size] > 1 or m[gpu.device].count < MIN_GPUS:
        return None
    note = f"nn.DataParallel in one process, {m[gpu.device].count} GPUs"
    return evidence(measure(m, step.step_time_mean), note=note)


def then(m: Metrics, found: Evidence) -> Advice:
    """then start one process per GPU and wrap the model in DistributedDataParallel."""
    gpus, loader = m[gpu.device].count, m.get(input.loader)
    batch_size = loader.batch_size if loader else None
    size_argument = f"batch_size={max(1, batch_size // gpus)}, " if batch_size else ""
    comment = f"  # batch_size was {batch_size} for all GPUs together" if batch_size else ""
    return Advice(
        then=f"Start {gpus} processes, one for each GPU, and wrap the model in DistributedDataParallel instead of "
        "DataParallel. Each process loads its own part of the data.",
        changes=(
            bash(f"torchrun --standalone --nproc-per-node={gpus} train.py\n"),
            python(WRAPPED),
            python(
                "sampler = torch.utils.data.DistributedSampler(dataset)  # sampler.set_epoch(epoch) each epoch\n"
                f"loader = torch.utils.data.DataLoader(dataset, {size_argument}sampler=sampler){comment}\n",
                loader.place if loader else None,
            ),
        ),
        basis="The step without data loading becomes 1.1, 1.4 or 2 times as fast, and so does the host's launching.",
        effect=in_turn(relieve_host(shares_of(SPEEDUP)), divide_step(SPEEDUP)),
        risk="Low: the same gradients, averaged. Code outside the model runs once per process: let only rank 0 "
        "write files.",
    )
