from dataclasses import replace

from gpu_runs import ADAM, FLAGS, GB, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.base import Missing
from advisor.metrics.memory import mem_activations, mem_grads, mem_headroom, mem_peak_allocated, memory_pressure
from advisor.metrics.settings import flags, optimizer, world_size
from advisor.metrics.step import micro_steps_per_step
from advisor.models.state import State

FULL = {
    optimizer: ADAM,
    flags: FLAGS,
    mem_grads: 14 * GB,
    mem_activations: 8 * GB,
    mem_peak_allocated: 78 * GB,
    mem_headroom: 0.01,
    memory_pressure: True,
    world_size: 1,
}


CASES = [
    Fires(
        "7 billion gradients in 16 bits",
        gpu_metrics(FULL),
        code=("torch.optim.AdamW([p], ...)", "register_post_accumulate_grad_hook"),
        then="frees up to 13 GiB of gradients",
        note="AdamW",
        memory=-14 * GB,
        state=State(phases={"forward": 0.04, "backward": 0.04, "optimizer": 0.02}),
        removed=(-0.1, -0.02, 0.02),
        fault=True,
        by_hand=True,
    ),
    Fires("just above the limit", gpu_metrics({**FULL, mem_peak_allocated: 93 * GB})),
    DoesNotFire("just below the limit", gpu_metrics({**FULL, mem_peak_allocated: 94 * GB})),
    Fires("activations just below the limit", gpu_metrics({**FULL, mem_activations: 31 * GB})),
    DoesNotFire("activations just above the limit", gpu_metrics({**FULL, mem_activations: 32 * GB})),
    DoesNotFire("memory is not short", gpu_metrics({**FULL, memory_pressure: False})),
    DoesNotFire("gradients are accumulated", gpu_metrics({**FULL, micro_steps_per_step: 4.0})),
    DoesNotFire("gradients are scaled", gpu_metrics({**FULL, flags: replace(FLAGS, grad_scaler=True)})),
    DoesNotFire("several ranks reduce gradients", gpu_metrics({**FULL, world_size: 2})),
    DoesNotFire(
        "a framework clips gradients", gpu_metrics({**FULL, optimizer: replace(ADAM, driven_by=("transformers",))})
    ),
    DoesNotFire(
        "an Adam that is not torch's", gpu_metrics({**FULL, optimizer: replace(ADAM, module="bitsandbytes.optim")})
    ),
    DoesNotFire("the optimizer runs on the host", gpu_metrics({**FULL, optimizer: replace(ADAM, device="cpu")})),
    NotMeasured("memory was not measured", gpu_metrics({**FULL, mem_grads: Missing("No", "Yes.")})),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
