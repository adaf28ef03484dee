import pytest
from profiles import with_operators

from advisor.metrics.base import Missing
from advisor.metrics.batching import batchable
from profiler.schema import Operator


def matmul(*inputs, run=1.0, path=("Model",), calls=128, total=0.1, gap=0.0):
    return Operator(
        pid=1,
        window=1,
        device="cuda",
        name="aten::mm",
        inputs=inputs,
        dtype="bf16",
        arithmetic="bf16",
        calls=calls,
        kernels=calls,
        total=total,
        kind="matmul",
        path=path,
        flop=1e9,
        bytes=1e6,
        gap=gap,
        run=run,
    )


def test_matmuls_in_a_row_are_batchable():
    alone = matmul((64, 128), (128, 64), gap=0.2)
    found = with_operators(matmul((2048, 64), (64, 512), run=64.0, gap=0.2), alone)[batchable]

    assert (found.calls, found.together, found.size) == (64, 64, "(2048 x 64) by (64 x 512)")
    assert (found.share, found.experts) == (pytest.approx(0.1), False)
    assert found.saved == pytest.approx(1.0, abs=1e-3)  # 1 GFLOP in 0.1 s, for which an A100 needs 5 us
    assert found.late == pytest.approx(0.5 * 63 / 64)


@pytest.mark.parametrize(
    ("inputs", "run"),
    [
        (((2048, 64), (64, 512)), 3.0),  # query, key and value
        (((2048, 64), (64, 64)), 7.0),  # each may use the result of the one before
        (((64, 64), (64, 512)), 7.0),  # or use it as its second matrix
    ],
)
def test_few_or_dependent_matmuls_are_not_batchable(inputs, run):
    assert with_operators(matmul(*inputs, run=run))[batchable] is None


def experts(path, number):
    return [matmul((10 + rows, 512), (512, 2048), path=path, calls=4) for rows in range(number)]


def test_experts_are_recognized_by_equal_weights_and_varying_rows():
    found = with_operators(*experts(("Model", "MixtralSparseMoeBlock"), 32))[batchable]

    assert (found.calls, found.together, found.experts) == (64, 16, True)


@pytest.mark.parametrize(("path", "number"), [(("Model", "Mlp"), 32), (("Model", "MixtralSparseMoeBlock"), 15)])
def test_sequences_of_varying_length_are_not_experts(path, number):
    assert with_operators(*experts(path, number))[batchable] is None


def test_without_shapes_it_is_not_measured():
    with pytest.raises(Missing):
        with_operators(matmul())[batchable]
