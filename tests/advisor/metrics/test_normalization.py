from dataclasses import replace

import pytest
from profiles import with_operators

from advisor.metrics.base import Missing
from advisor.metrics.normalization import unfused_norm
from profiler.schema import Operator

SHAPE, ROWS = (4, 512, 1024), (4, 512, 1)
PLACE = ("Model", "LlamaRMSNorm")


def operator(name, *inputs, path=PLACE, total=0.01, moved=1e8, calls=4, phase="forward"):
    return Operator(
        pid=1,
        window=1,
        device="cuda",
        name=f"aten::{name}",
        inputs=inputs,
        dtype="fp32",
        calls=calls,
        kernels=calls,
        total=total,
        kind="elementwise",
        path=path,
        phase=phase,
        bytes=moved,
    )


def of_llama(path=PLACE):
    """Return the operators of four normalizations."""
    return [
        operator("copy_", SHAPE, SHAPE, path=(*path, "aten::to", "aten::_to_copy"), calls=8),
        operator("pow", SHAPE, (), path=path),
        operator("mean", SHAPE, (), path=path),
        operator("add", ROWS, (), path=path),
        operator("rsqrt", ROWS, path=path),
        operator("mul", SHAPE, ROWS, path=path),
        operator("mul", SHAPE[-1:], SHAPE, path=path),
    ]


OTHERS = [
    operator("mul", SHAPE, SHAPE, path=("Model", "Mlp")),
    operator("add", SHAPE, SHAPE),
    operator("rsqrt", ROWS, phase="backward"),
    operator("copy_", SHAPE, SHAPE),
]


def test_the_operators_of_a_normalization_are_found_and_no_others():
    found = with_operators(*of_llama(), *OTHERS)[unfused_norm]

    assert (found.calls, found.operators, found.share) == (2, 8, pytest.approx(0.07))
    assert (found.bytes, found.least) == (3.5e8, 2 * 4 * 512 * 1024 * 2 * 2)  # cast from 16 bits
    assert found.saved == pytest.approx(1 - 4 * 2 * 4 * 512 * 1024 * 2 / (0.7 * 2.039e12) / 0.07, abs=1e-3)
    assert (found.trained, found.own) == (True, False)


def test_without_a_cast_elements_have_four_bytes():
    _, *rest = of_llama()
    assert with_operators(*rest)[unfused_norm].least == 2 * 4 * 512 * 1024 * 2 * 4


def test_only_calls_by_the_normalization_are_counted():
    copy, *rest = of_llama()
    twice = replace(copy, calls=16, kernels=16, total=0.02)
    assert with_operators(twice, *rest)[unfused_norm].share == pytest.approx(0.07)


def test_recognizes_torchs_own_normalization():
    assert with_operators(*of_llama((*PLACE, "aten::rms_norm")))[unfused_norm].own


@pytest.mark.parametrize("missing", ["aten::rsqrt", "aten::mean"])
def test_normalization_requires_all_its_operators(missing):
    assert with_operators(*(one for one in of_llama() if one.name != missing))[unfused_norm] is None


def test_without_shapes_it_is_not_measured():
    with pytest.raises(Missing):
        with_operators(operator("rsqrt"))[unfused_norm]
