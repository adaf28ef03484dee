from dataclasses import replace

from gpu_runs import ADAM, FLAGS, GB, MODEL, a_gpu, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.gpu import device
from advisor.metrics.memory import mem_headroom, mem_optim, mem_peak_allocated, memory_pressure, oom_count
from advisor.metrics.settings import flags, model, optimizer, world_size
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety

BILLIONS = replace(ADAM, parameters=3 * GB, tensors=300)


def full():
    """Return values of 3e9 parameters in fp32: 24 GB of moments become 3e9 x 2.03 = 6.09."""
    return {
        device: a_gpu(gb=80),
        optimizer: BILLIONS,
        mem_optim: 24 * GB,
        mem_peak_allocated: 78 * GB,
        mem_headroom: 0.01,
        memory_pressure: True,
        oom_count: 1,
    }


CASES = [
    Fires(
        "a third of the memory is optimizer moments",
        gpu_metrics(full()),
        code=("bnb.optim.AdamW8bit(", "register_module_override", '"optim_bits": 32'),
        then="from 24.00 to 6.09 GB",
        memory=-17_910_000_000,
        state=State(phases={"forward": 0.4, "backward": 0.4, "optimizer": 0.2}),
        removed=(-0.01, 0.0, 0.01),
        fault=True,
        intervention=Intervention(name="optimizer_8bit", settings={"name": "AdamW"}, safety=Safety.TRAJECTORY),
    ),
    Fires(
        "moments in 16 bits: half as much to free",
        gpu_metrics({**full(), mem_optim: 12 * GB, mem_peak_allocated: 40 * GB}),
        memory=-5_910_000_000,
    ),
    Fires(
        "sharded already: an eighth of the moments on each of 8 ranks",
        gpu_metrics(
            {
                **full(),
                world_size: 8,
                flags: replace(FLAGS, fsdp=True),
                mem_optim: 3 * GB,
                mem_peak_allocated: 10 * GB,
            }
        ),
        code="from torchao.optim import AdamW8bit",
        absent="bnb",
        memory=-round(3e9 * (1 - 2.03 / 8)),
    ),
    Fires(
        "hybrid sharding, moments in 16 bits: an eighth of them on each of 16 ranks",
        gpu_metrics(
            {
                **full(),
                world_size: 16,
                model: replace(MODEL, data_parallel=16, shards=8),
                flags: replace(FLAGS, fsdp=True),
                mem_optim: round(1.5 * GB),
                mem_peak_allocated: 5 * GB,
            }
        ),
        memory=-round(3e9 * (4 - 2.03) / 8),
    ),
    Fires("just above the limit", gpu_metrics({**full(), mem_peak_allocated: 95 * GB})),
    DoesNotFire("just below the limit", gpu_metrics({**full(), mem_peak_allocated: 97 * GB})),
    DoesNotFire("memory is not short", gpu_metrics({**full(), memory_pressure: False})),
    DoesNotFire(
        "the ranks could shard the moments", gpu_metrics({**full(), world_size: 8, flags: replace(FLAGS, ddp=True)})
    ),
    DoesNotFire("8-bit moments already", gpu_metrics({**full(), optimizer: replace(BILLIONS, name="AdamW8bit")})),
    DoesNotFire(
        "an Adam that is not torch's",
        gpu_metrics({**full(), optimizer: replace(BILLIONS, module="bitsandbytes.optim")}),
    ),
    DoesNotFire("SGD has no second moment", gpu_metrics({**full(), optimizer: replace(BILLIONS, name="SGD")})),
    DoesNotFire("optimizer state is on the host", gpu_metrics({**full(), optimizer: replace(BILLIONS, device="cpu")})),
    DoesNotFire(
        "tensors too small for 8-bit moments",
        gpu_metrics({**full(), optimizer: replace(BILLIONS, tensors=10**6)}),
    ),
    NotMeasured("the optimizer was not seen", gpu_metrics({**full(), optimizer: Missing("No", "Yes.")})),
    NotMeasured("optimizer memory was not measured", gpu_metrics({**full(), mem_optim: Missing("No", "Yes.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
