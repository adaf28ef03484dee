import pytest
from profiles import metrics, rank, steps

from advisor.metrics.base import Missing
from advisor.metrics.gpu import achieved_matmul_flops, cross_entropy_share, kernels_per_step
from advisor.metrics.matmul import (
    head_share,
    large_bf16_matmuls,
    large_bf16_share,
    logits,
    logits_bytes,
    misaligned,
    misaligned_efficiency,
    misaligned_length,
    misaligned_matmul_share,
    vocabulary,
)
from advisor.metrics.operators import products
from profiler.schema import Kernel, Operator, Window


def operator(name, *inputs, total=0.1, calls=1, dtype="bf16"):
    return Operator(pid=1, window=1, device="cuda", name=name, inputs=inputs, dtype=dtype, calls=calls, total=total)


def kernel(kind, total):
    return Kernel(pid=1, window=1, device="cuda", name=kind, kind=kind, calls=1, total=total)


A_SECOND = (kernel("matmul", 1.0),)


def shaped(*operators, kernels=A_SECOND):
    """Return metrics of a step with shapes; unless given, its kernels take a second."""
    windows = tuple(
        Window(pid=1, start=1.0, steps=1, duration=1.0, cost=0.0, device="cuda", shapes=shapes, kernels=number)
        for shapes, number in ((False, 10), (True, 1000))
    )
    return metrics(rank(steps=steps(*[0.1] * 40), windows=windows, kernels=kernels, operators=operators))


def multiply(rows, inner, columns, rate, **columns_of):
    """Return a matmul that runs at `rate` FLOP/s."""
    return operator("aten::mm", (rows, inner), (inner, columns), total=2 * rows * inner * columns / rate, **columns_of)


def test_matmuls_are_found_by_operator_name_and_shape():
    m = shaped(
        operator("aten::mm", (2, 3), (3, 4)),
        operator("aten::addmm", (4,), (2, 3), (3, 4), (), (), calls=5),
        operator("aten::bmm", (7, 2, 3), (7, 3, 4)),
        operator("aten::baddbmm", (7, 2, 4), (7, 2, 3), (7, 3, 4)),
        operator("aten::mm", (2, 3), (5, 4)),  # shapes do not match
        operator("aten::mm", (2, 0), (0, 4)),
        operator("aten::mm", (2, 3)),
        operator("aten::mul", (2, 3), (3, 4)),
    )

    found = [(p.batch, p.rows, p.columns, p.inner, p.flop, p.calls) for p in m[products]]
    assert found == [(1, 2, 4, 3, 48, 1), (1, 2, 4, 3, 48, 5), (7, 2, 4, 3, 336, 1), (7, 2, 4, 3, 336, 1)]


def test_achieved_rate_of_all_matmuls():
    kernels = (kernel("matmul", 0.9), kernel("convolution", 0.05))
    few, many = (kernel("matmul", 0.5),), (kernel("matmul", 0.5), kernel("convolution", 0.5))
    product = operator("aten::mm", (100, 100), (100, 500), total=0.1, calls=2)  # 2e7 operations

    assert shaped(product, operator("aten::mul", (2,)), kernels=kernels)[achieved_matmul_flops] == pytest.approx(2e8)
    with pytest.raises(Missing, match="convolutions"):
        shaped(product, kernels=many)[achieved_matmul_flops]
    with pytest.raises(Missing, match="size"):
        shaped(operator("aten::mul", (2,)), kernels=few)[achieved_matmul_flops]
    with pytest.raises(Missing):
        metrics(rank(steps=steps(*[0.1] * 40), kernels=few))[achieved_matmul_flops]


def test_misaligned_vocabulary():
    head = multiply(8192, 768, 50257, 1e14)
    states = multiply(8192, 50257, 768, 0.5e14)
    layer = multiply(8192, 768, 3072, 2e14)
    m = shaped(head, states, layer)

    found = m[misaligned]
    assert (found.length, found.seconds) == (50257, pytest.approx(head.total + states.total))
    assert m[misaligned_matmul_share] == pytest.approx(head.total + states.total)
    # Together they take 1.5 times as long as one takes at 1e14; both could run at 2e14: 2 halves over 3.
    assert m[misaligned_efficiency] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "no_peer",
    [
        multiply(8192, 4096, 4096, 9e14),  # larger per number moved
        multiply(8192, 768, 65536, 9e14),  # larger
        multiply(8192, 768, 3072, 9e14, dtype="fp32"),
        multiply(8192, 768, 3073, 9e14),  # no better aligned
    ],
)
def test_dissimilar_matmuls_are_not_peers_for_comparison(no_peer):
    m = shaped(multiply(8192, 768, 50257, 1e14), no_peer)

    assert m[misaligned_length] == 50257
    with pytest.raises(Missing, match="compare"):
        m[misaligned_efficiency]


@pytest.mark.parametrize(
    ("length", "dtype", "odd"),
    [
        (1001, "bf16", True),
        (1004, "fp16", True),
        (1000, "bf16", False),
        (1000, "fp8", True),
        (1008, "fp8", False),
        (1001, "fp32", False),  # no tensor cores, or TF32
        (1001, None, False),
        (10, "bf16", False),  # too short to pad
    ],
)
def test_misaligned_lengths_by_dtype(length, dtype, odd):
    m = shaped(operator("aten::mm", (64, 1024), (1024, length), total=0.25, dtype=dtype))

    assert m[misaligned_matmul_share] == (0.25 if odd else 0.0)
    if not odd:
        with pytest.raises(Missing):
            m[misaligned_length]


def test_the_loss_over_a_vocabulary():
    m = shaped(
        operator("aten::_log_softmax", (2048, 1000), (), (), dtype="fp32"),
        operator("aten::_log_softmax", (16, 10), (), (), dtype="fp32"),
        operator("aten::mm", (2048, 64), (64, 1000), total=0.1),
        operator("aten::mm", (1000, 2048), (2048, 64), total=0.05),
        operator("aten::mm", (2048, 64), (64, 64), total=0.2),
        kernels=(kernel("loss", 0.25), kernel("matmul", 0.75)),
    )

    assert (m[logits].rows, m[vocabulary]) == (2048, 1000)
    assert m[logits_bytes] == 6 * 2048 * 1000
    assert m[head_share] == pytest.approx(0.15)
    assert m[cross_entropy_share] == pytest.approx(0.25)


def test_cross_entropy_over_pixels():
    m = shaped(operator("aten::_log_softmax", (4, 21, 64, 32), (), (), dtype="fp32"))

    assert (m[logits].rows, m[vocabulary]) == (4 * 64 * 32, 21)


def test_rows_of_a_damaged_store_are_passed_over():
    m = shaped(
        operator("aten::mm"),
        operator("aten::_log_softmax"),
        operator("aten::_softmax"),
        operator("aten::mm", (-1, 3), (3, 4)),
        operator("aten::_log_softmax", (0, 5)),
    )

    assert m[products] == ()
    with pytest.raises(Missing):
        m[vocabulary]


def test_no_loss_over_classes():
    with pytest.raises(Missing, match="cross-entropy"):
        shaped(operator("aten::mm", (2, 3), (3, 4)))[vocabulary]


def test_windows_with_shapes_are_not_used_for_timing():
    assert shaped()[kernels_per_step] == 10


def test_large_bf16_matmuls_have_no_short_dimension():
    m = shaped(
        operator("aten::mm", (4096, 2048), (2048, 2048), total=0.3),
        operator("aten::mm", (4096, 2047), (2047, 2048), total=0.2),
        operator("aten::bmm", (8, 4096, 2048), (8, 2048, 2048), total=0.2),
        operator("aten::mm", (4096, 4096), (4096, 4096), total=0.2, dtype="fp16"),
    )

    assert [product.seconds for product in m[large_bf16_matmuls]] == [0.3]
    assert m[large_bf16_share] == pytest.approx(0.3)
