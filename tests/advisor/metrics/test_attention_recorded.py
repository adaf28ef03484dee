"""Attention as torch records it: batch 2, 4 heads of 16, 64 tokens."""

import pytest
import torch
from profiles import metrics, rank, steps
from torch.nn.functional import cross_entropy, dropout, scaled_dot_product_attention

from advisor.metrics.attention import (
    attention_heads,
    attention_is_flash,
    attention_share,
    hidden_size,
    materialized_attention_share,
    scores_bytes,
    scores_dropped_out,
    sequence_length,
)
from advisor.metrics.matmul import logits
from profiler.recorder.windows import parse

FUTURE = torch.ones(64, 64, dtype=torch.bool).triu(1)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setenv("KINETO_LOG_LEVEL", "6")  # read only once per process, at its first use


def heads():
    return torch.randn(2, 4, 64, 16, requires_grad=True)


def written(p=0.0):
    scores = (heads() @ heads().transpose(-1, -2)) / 4
    weights = scores.masked_fill(FUTURE, float("-inf")).softmax(-1)
    (dropout(weights, p) @ heads()).sum().backward()


def multihead():
    states = torch.randn(2, 64, 64, requires_grad=True)
    module = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    module(states, states, states, need_weights=False)[0].sum().backward()


def fused():
    scaled_dot_product_attention(heads(), heads(), heads(), is_causal=True).sum().backward()


REPEATS = 20  # one preemption takes longer than one pass of such small operators


def recorded(folder, step):
    step()  # what torch loads at the first call is not part of attention
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(REPEATS):
            step()
    path = folder / "window.json"
    profiler.export_chrome_trace(str(path))
    window, kernels, operators, *_ = parse(path, pid=1, position=0, start=0.0, steps=REPEATS, cost=0.0)
    return metrics(
        rank(
            steps=steps(*[0.1] * 40, micro_steps=1.0),
            windows=(window,),
            kernels=tuple(kernels),
            operators=tuple(operators),
        )
    )


@pytest.mark.parametrize("p", [0.0, 0.1])
def test_recorded_materialized_attention(tmp_path, p):
    m = recorded(tmp_path, lambda: written(p))

    assert 0.1 < m[materialized_attention_share] <= 1.0
    assert m[attention_share] == m[materialized_attention_share]
    assert not m[attention_is_flash]
    assert (m[sequence_length], m[attention_heads], m[hidden_size]) == (64, 4, 64)
    assert m[scores_dropped_out] == (p > 0)
    assert m[scores_bytes] == 2 * 4 * 64 * 64 * (9 if p else 4)


@pytest.mark.parametrize("step", [fused, multihead])
def test_recorded_fused_attention(tmp_path, step):
    m = recorded(tmp_path, step)

    assert m[materialized_attention_share] == 0.0
    assert m[attention_share] > 0.0
    assert m[attention_is_flash]
    assert (m[sequence_length], m[attention_heads], m[hidden_size]) == (64, 4, 64)


def test_math_backend_materializes_attention(tmp_path):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        m = recorded(tmp_path, fused)

    assert m[materialized_attention_share] > 0.0
    assert not m[attention_is_flash]
    assert m[sequence_length] == 64


def test_a_classifier_has_no_attention(tmp_path):
    layer = torch.nn.Linear(16, 10)

    m = recorded(tmp_path, lambda: cross_entropy(layer(torch.randn(8, 16)), torch.zeros(8, dtype=torch.long)))

    assert m[attention_share] == 0.0
    assert (m[logits].rows, m[logits].vocabulary) == (8, 10)
