"""Which of the real rules fire where several apply: the cheaper cure first."""

from dataclasses import replace

import pytest
from gpu_runs import ADAM, FLAGS, GB, LOADER, MODEL, a_gpu, gpu_metrics

from advisor.judging.judge import judge
from advisor.metrics import attention, between, gpu, host, input, memory, settings
from advisor.rules import all_rules

RULES = {rule.id: rule for rule in all_rules()}


def advised(changes, **how):
    return {finding.rule.id for finding in judge(gpu_metrics(changes, **how)).findings}


# One sample at a time, blocks checkpointed, moments in 8 bits: only the host's memory is left to use.
FULL = {
    gpu.device: a_gpu("NVIDIA A10", (8, 6), 24),
    input.loader: replace(LOADER, batch_size=1),
    settings.flags: replace(FLAGS, checkpointing=True),
    settings.model: replace(MODEL, parameters=1_500_000_000, trainable=1_500_000_000, bytes=6 * GB),
    settings.optimizer: replace(ADAM, name="AdamW8bit", module="bitsandbytes.optim.adamw"),
    memory.mem_params: 6 * GB,
    memory.mem_grads: 6 * GB,
    memory.mem_optim: 3 * GB,
    memory.mem_activations: 8 * GB,
    memory.mem_peak_allocated: 23 * GB,
    memory.mem_headroom: 0.01,
    memory.memory_pressure: True,
    memory.oom_count: 1,
    host.host_memory_available: 64 * GB,
    host.local_ranks: 1,
}

# GPT-3's layers: scores of written-out attention are 70 % of the activations.
SCORES = {
    **FULL,
    settings.flags: FLAGS,
    memory.mem_activations: 15 * GB,
    attention.attention_is_flash: False,
    attention.attention_heads: 96,
    attention.hidden_size: 12288,
    attention.sequence_length: 2048,
    attention.scores_bytes: 10.5 * GB,
}


def test_offload_is_advised_if_nothing_else_is_left():
    assert "offload-states" in advised(FULL)


@pytest.mark.parametrize(
    ("cheaper", "changes"),
    [
        ("grad-accum", {input.loader: replace(LOADER, batch_size=4)}),
        ("ckpt-every-n", {settings.flags: FLAGS, memory.mem_activations: 10 * GB}),
        ("optimizer-8bit", {settings.optimizer: ADAM, memory.mem_optim: 9 * GB}),
        ("alloc-fragmentation", {memory.fragmentation_ratio: 0.3}),
        ("ckpt-selective", SCORES),
    ],
)
def test_cheaper_changes_come_before_offload(cheaper, changes):
    found = advised({**FULL, **changes})
    assert cheaper in found
    assert "offload-states" not in found


def test_offload_is_advised_if_cheaper_rule_is_limited_or_disabled():
    adam = gpu_metrics({**FULL, settings.optimizer: ADAM, memory.mem_optim: 9 * GB})
    cheaper, last = RULES["optimizer-8bit"], RULES["offload-states"]
    for eight_bit in (replace(cheaper, limits={"min_share": 0.5}), replace(cheaper, off="[rules] of here.toml")):
        assert [finding.rule.id for finding in judge(adam, [eight_bit, last]).findings] == ["offload-states"]


def test_fused_attention_comes_before_recomputing_it():
    assert {"sdpa-flash", "ckpt-selective", "ckpt-every-n"} & advised(SCORES) == {"ckpt-selective"}
    slow = {**SCORES, attention.materialized_attention_share: 0.3}
    assert {"sdpa-flash", "ckpt-selective", "ckpt-every-n", "offload-states"} & advised(slow) == {"sdpa-flash"}


def test_selective_checkpointing_is_advised_even_if_batch_can_be_split():
    """The kernel that replaces them is faster; smaller batches are not."""
    assert {"grad-accum", "ckpt-selective"} <= advised({**SCORES, input.loader: replace(LOADER, batch_size=4)})


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("launch-bound-graphs", {gpu.launch_bound_index: 0.6, gpu.median_kernel_us: 4.0}),
        (
            "cudnn-benchmark",
            {settings.flags: replace(FLAGS, cudnn_benchmark=False), gpu.conv_share: 0.6, gpu.matmul_share: 0.8},
        ),
    ],
)
def test_recompilation_is_fixed_before_rules_that_need_static_shapes(rule, changes):
    assert rule in advised({**changes, between.recompiles: 6, between.recompile_share: 0.4})
    found = advised({**changes, between.recompiles: 7, between.recompile_share: 0.4})
    assert "compile-recompiles" in found
    assert rule not in found
    configured = replace(RULES["compile-recompiles"], limits={"min_recompiles": 3})
    few = gpu_metrics({**changes, between.recompiles: 3, between.recompile_share: 0.4})
    assert {finding.rule.id for finding in judge(few, [configured, RULES[rule]]).findings} == {"compile-recompiles"}
