"""Batch 2, 4 heads of 16, 64 tokens: scores of 2 x 4 x 64 x 64 numbers, in matmuls as a stack of 8."""

from dataclasses import replace

import pytest
from profiles import metrics, rank, steps

from advisor.metrics.attention import (
    attention_heads,
    attention_is_flash,
    attention_share,
    hidden_size,
    materialized_attention_share,
    scores_bytes,
    scores_dropped_out,
    sequence_length,
    slower_backend,
)
from advisor.metrics.base import Missing
from profiler.schema import DeviceFact, Kernel, Operator, Window

HEADS, SCORES = (2, 4, 64, 16), (2, 4, 64, 64)
ROWS, COLUMNS, INSIDE = (8, 64, 16), (8, 16, 64), (8, 64, 64)
EVERY = (
    attention_share,
    materialized_attention_share,
    attention_is_flash,
    sequence_length,
    attention_heads,
    hidden_size,
    scores_bytes,
)


def operator(name, *inputs, total=0.1, calls=2, dtype="bf16", device="cuda"):
    return Operator(pid=1, window=1, device=device, name=name, inputs=inputs, dtype=dtype, calls=calls, total=total)


def kernel(total, kind="other", device="cuda", name="k"):
    return Kernel(pid=1, window=1, device=device, name=name, kind=kind, calls=1, total=total)


def shaped(*operators, kernels=(), device="cuda", micro_steps=1.0):
    """Return metrics of one step without shapes and one with them; its kernels, including those given, take 1 s."""
    windows = [
        Window(pid=1, start=1.0, steps=1, duration=1.0, cost=0.0, device=device, shapes=shapes)
        for shapes in (False, True)
    ]
    rest = kernel(1.0 - sum(k.total for k in kernels), device=device)
    return metrics(
        rank(
            steps=steps(*[0.1] * 40, micro_steps=micro_steps),
            windows=tuple(windows),
            kernels=(rest, *kernels),
            operators=operators,
        )
    )


WRITTEN = (
    operator("aten::bmm", ROWS, COLUMNS),  # query by key
    operator("aten::div", SCORES, ()),
    operator("aten::masked_fill_", SCORES, (64, 64), ()),
    operator("aten::_softmax", SCORES, (), ()),
    operator("aten::bmm", INSIDE, ROWS),  # by value
    operator("aten::_softmax_backward_data", SCORES, SCORES, (), ()),
)
REST = (
    operator("aten::addmm", (192,), (128, 64), (64, 192)),
    operator("aten::gelu", (2, 64, 256), ()),
    operator("aten::copy_", HEADS, HEADS, ()),
)


def test_attention_is_share_of_compute_whether_fused_or_not():
    flash, reduce = kernel(0.3, kind="attention"), kernel(0.4, kind="communication")

    fused = shaped(operator("aten::_flash_attention_forward", HEADS, HEADS), kernels=(flash, reduce))
    written = shaped(*WRITTEN[:4], kernels=(reduce,))

    assert fused[attention_share] == pytest.approx(0.3 / 0.6)
    assert written[attention_share] == written[materialized_attention_share] == pytest.approx(0.4 / 0.6)


def test_softmax_between_batched_matmuls_is_materialized_attention():
    m = shaped(*WRITTEN, *REST)

    assert m[materialized_attention_share] == pytest.approx(0.6)
    assert m[attention_share] == pytest.approx(0.6)
    assert m[attention_is_flash] is False
    assert (m[sequence_length], m[attention_heads], m[hidden_size]) == (64, 4, 64)


def test_scores_bytes_are_of_one_micro_batch():
    layers, numbers = 2, 2 * 4 * 64 * 64
    dropout = operator("aten::native_dropout", SCORES, (), ())

    assert shaped(*WRITTEN)[scores_bytes] == layers * numbers * 2
    assert shaped(*WRITTEN, micro_steps=2.0)[scores_bytes] == layers / 2 * numbers * 2
    assert shaped(*WRITTEN, dropout)[scores_bytes] == layers * numbers * 5
    assert shaped(*(replace(each, dtype="fp32") for each in WRITTEN))[scores_bytes] == layers * numbers * 4
    assert (shaped(*WRITTEN)[scores_dropped_out], shaped(*WRITTEN, dropout)[scores_dropped_out]) == (False, True)


@pytest.mark.parametrize(
    "softmax",
    [
        operator("aten::_softmax", (128, 8), (), ()),  # a router's softmax, of the result of a plain matmul
        operator("aten::_softmax", (2, 64, 8), (), ()),
        operator("aten::_softmax", (2, 4, 64, 32), (), ()),
        operator("aten::_log_softmax", SCORES, (), ()),
    ],
)
def test_not_every_softmax_is_attention(softmax):
    router = operator("aten::addmm", (8,), (128, 64), (64, 8))
    one = operator("aten::mm", (64, 64), (64, 8))
    m = shaped(softmax, router, one, operator("aten::bmm", ROWS, COLUMNS))

    assert m[materialized_attention_share] == 0.0
    assert m[attention_share] == 0.0
    with pytest.raises(Missing):
        m[attention_is_flash]
    with pytest.raises(Missing):
        m[sequence_length]


def test_attention_heads_merged_into_batch_dimension():
    flat = [replace(each, inputs=tuple(INSIDE if x == SCORES else x for x in each.inputs)) for each in WRITTEN]
    m = shaped(*flat)

    assert m[materialized_attention_share] == pytest.approx(0.6)
    assert m[sequence_length] == 64
    with pytest.raises(Missing):
        m[hidden_size]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("aten::_flash_attention_forward", (2, 64, 4, 16)),
        ("aten::_efficient_attention_forward", (2, 64, 4, 16)),
        ("flash_attn::_flash_attn_forward", (2, 64, 4, 16)),
        ("aten::_cudnn_attention_forward", HEADS),
    ],
)
def test_fused_attention(name, shape):
    backward = operator(name.replace("forward", "backward"), shape, shape, shape, shape, total=0.2)
    m = shaped(operator(name, shape, shape, shape), backward, kernels=(kernel(0.3, "attention"),))

    assert m[materialized_attention_share] == 0.0
    assert m[attention_share] == pytest.approx(0.3)
    assert m[attention_is_flash] is True
    assert (m[sequence_length], m[attention_heads], m[hidden_size]) == (64, 4, 64)
    assert m[scores_bytes] == 0.0


def test_on_a_cpu():
    fused = operator("aten::_scaled_dot_product_flash_attention_for_cpu", HEADS, HEADS, HEADS, device="cpu")
    m = shaped(fused, kernels=(kernel(0.3, "attention", "cpu"),), device="cpu")

    assert m[attention_share] == pytest.approx(0.3)
    assert m[attention_is_flash] is True
    assert m[sequence_length] == 64


def test_sequence_length_with_longer_keys_than_queries():
    m = shaped(operator("aten::_flash_attention_forward", (2, 64, 4, 16), (2, 256, 4, 16), (2, 256, 4, 16)))

    assert m[sequence_length] == 256


def test_without_shapes_nothing_is_known():
    m = metrics(rank(steps=steps(*[0.1] * 40), kernels=(kernel(1.0, "attention"),)))

    for one in EVERY:
        with pytest.raises(Missing, match="shapes") as caught:
            m[one]
        assert "budget" in caught.value.remedy


def test_a_softmax_that_was_compiled_may_be_attention():
    compiled = (kernel(0.2, "normalization", name="triton_per_fused__softmax_0"),)
    products = (operator("aten::bmm", ROWS, COLUMNS),)

    with pytest.raises(Missing, match="compiled"):
        shaped(*products, kernels=compiled)[attention_share]
    assert shaped(operator("aten::mm", (8, 8), (8, 8)), kernels=compiled)[attention_share] == 0.0


def attending(name, *, gpu=(8, 0), mask=(), keys=2048, dtype="bf16", kernel="fmha", model="NVIDIA GPU"):
    shape = (1, keys, 8, 64)
    gradient = (shape,) if name.endswith("backward") else ()
    one = replace(operator(name, *gradient, shape, shape, shape, mask, dtype=dtype), kernel=kernel, flop=1e12)
    window = Window(pid=1, start=1.0, steps=1, duration=1.0, cost=0.0, device="cuda", shapes=True)
    fact = DeviceFact(id=0, name=model, capability=gpu, memory_total=1)
    other = Kernel(pid=1, window=1, device="cuda", name="k", kind="other", calls=1, total=1.0)
    found = rank(steps=steps(*[0.1] * 40), windows=(window,), kernels=(other,), operators=(one,), devices=(fact,))
    return metrics(found)[slower_backend]


EFFICIENT, FLASH = "aten::_efficient_attention_forward", "aten::_flash_attention_forward"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": EFFICIENT, "mask": (1, 8, 2048, 2048)}, ("efficient", True)),
        ({"name": EFFICIENT}, ("efficient", False)),
        ({"name": "aten::_efficient_attention_backward", "mask": (1, 8, 2048, 2048)}, ("efficient", True)),
        ({"name": EFFICIENT, "gpu": (7, 0)}, None),
        ({"name": EFFICIENT, "dtype": "fp32"}, None),
        ({"name": EFFICIENT, "keys": 1023}, None),
        ({"name": FLASH}, None),
        ({"name": FLASH, "gpu": (9, 0)}, ("flash2", False)),
        ({"name": FLASH, "gpu": (9, 0), "kernel": "flash::hopper_sm90"}, None),
        ({"name": FLASH, "gpu": (9, 4), "kernel": "attn_fwd", "model": "AMD Instinct MI300X"}, ("triton", False)),
        ({"name": FLASH, "gpu": (9, 4), "kernel": "ck_tile", "model": "AMD Instinct MI300X"}, None),
    ],
)
def test_finds_attention_kernels_with_faster_alternatives(given, expected):
    found = attending(**given)

    assert (found and (found.name, found.masked)) == expected
