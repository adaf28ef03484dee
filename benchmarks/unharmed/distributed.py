"""Train by DistributedDataParallel on two ranks."""

import torch
import torch.distributed as dist
from ending import model, say, train
from torch import nn

dist.init_process_group("gloo")
network = nn.parallel.DistributedDataParallel(model())
torch.manual_seed(dist.get_rank())
losses = train(network)
if dist.get_rank() == 0:
    say(losses, network=network.module)
dist.barrier()
dist.destroy_process_group()
