from dataclasses import replace

from gpu_runs import FLAGS, GB, MODEL, cpu_metrics, gpu_metrics
from harness import DoesNotFire, Fires, NotMeasured

from advisor.metrics.attention import attention_heads, attention_is_flash, hidden_size, scores_bytes, sequence_length
from advisor.metrics.base import Missing
from advisor.metrics.memory import mem_activations, mem_headroom, memory_pressure, oom_count
from advisor.metrics.settings import flags, model
from advisor.models.state import State
from advisor.rules.base import Intervention, Safety


def scored(sequence: int = 2048):
    """Return values of GPT-3's layers: 5 x 96 x 2048 / 12288 = 80, so 70 % of a layer's activations are scores."""
    return {
        memory_pressure: True,
        oom_count: 1,
        mem_headroom: 0.01,
        mem_activations: 46 * GB,
        attention_is_flash: False,
        attention_heads: 96,
        hidden_size: 12288,
        sequence_length: sequence,
        scores_bytes: 0.702 * 46 * GB,
    }


CASES = [
    Fires(
        "attention scores are 70 % of the activations",
        gpu_metrics(scored()),
        code=("scaled_dot_product_attention(", "checkpoint(core"),
        note="5as/h = 80",
        memory=-round(32.3 * GB),
        state=State(phases={"forward": 0.3, "backward": 0.6, "optimizer": 0.1}),
        removed=(-0.063, -0.036, -0.018),
        fault=True,
        intervention=Intervention(
            name="selective_recompute",
            settings={"block": "Block"},
            safety=Safety.MEMORY,
            leaves="attention in one kernel, which is faster",
        ),
    ),
    Fires("no equal blocks", gpu_metrics({**scored(), model: replace(MODEL, block=None)}), by_hand=True),
    Fires("frees no more than all activations", gpu_metrics({**scored(), scores_bytes: 60 * GB}), memory=-46 * GB),
    Fires("just above the limit: 17.07", gpu_metrics(scored(437))),
    DoesNotFire("just below the limit: 16.99", gpu_metrics(scored(435))),
    DoesNotFire("flash attention", gpu_metrics({**scored(), attention_is_flash: True})),
    DoesNotFire("memory is not short", gpu_metrics({**scored(), memory_pressure: False})),
    DoesNotFire(
        "activation checkpointing is used already", gpu_metrics({**scored(), flags: replace(FLAGS, checkpointing=True)})
    ),
    NotMeasured(
        "no attention was recorded: a convolutional network",
        gpu_metrics({**scored(), attention_is_flash: Missing("No attention was recorded", "Nothing.")}),
    ),
    NotMeasured(
        "heads are merged with the batch dimension", gpu_metrics({**scored(), attention_heads: Missing("No", "Yes.")})
    ),
    NotMeasured("no GPU", cpu_metrics(phases={})),
]
