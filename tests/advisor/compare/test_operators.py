"""Comparison of the operators of two windows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from profiles import metrics, rank

from advisor.compare.comparison import compare
from advisor.compare.operators import operator_changes
from advisor.report.render.compare_view import brief, sections
from profiler.schema import REST, DeviceFact, Operator, TraceFact

FACT = TraceFact(id=0, steps=2, seconds=1.0)
MATMUL = Operator(
    pid=1, window=0, device="cuda", name="aten::mm", inputs=((8, 8),), dtype="fp32", calls=8, total=0.4,
    kind="matmul", phase="forward", path=("Net", "Linear"), kernels=8, kernel="sgemm",
)  # fmt: skip
SOFTMAX = replace(MATMUL, name="aten::_softmax", kind="other", kernel="softmax", total=0.2, path=("Net", "Attention"))


def of(*operators, gpu="H100"):
    device = DeviceFact(id=0, name=gpu, capability=(9, 0), memory_total=1)
    return metrics(rank(operators=operators, traces=(FACT,), devices=(device,)))


def changes(before, after):
    return operator_changes(of(*before), of(*after))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"dtype": "bf16"},
        {"inputs": ((16, 8),), "dtype": "bf16"},
        {"path": ("Wrapper", "Net", "Linear")},
    ],
)
def test_operator_is_matched_despite_changes(change):
    after = replace(MATMUL, total=0.1, kernel="hgemm", **change)

    (row,) = changes([MATMUL, SOFTMAX], [after, SOFTMAX]).rows

    assert (row.before.seconds, row.after.seconds) == (pytest.approx(0.2), pytest.approx(0.05))
    assert (row.before.kernel, row.after.kernel, row.exchanged) == ("sgemm", "hgemm", True)


def test_two_operators_replaced_by_one_are_exchanged():
    scores = replace(SOFTMAX, name="aten::bmm", kernel="bmm", total=0.3)
    fused = replace(SOFTMAX, name="aten::_flash_attention_forward", kernel="flash", total=0.1)

    (row,) = changes([MATMUL, scores, SOFTMAX], [MATMUL, fused]).rows

    assert row.exchanged
    assert (row.before.names, row.after.names) == (("aten::bmm", "aten::_softmax"), (fused.name,))
    assert row.difference == pytest.approx(-0.2)


def test_operator_missing_from_truncated_table_is_not_zero():
    elsewhere = replace(SOFTMAX, path=("Net", "Head"), name="aten::exp")
    rest = replace(MATMUL, name=REST, path=(), phase=None, total=0.3)

    found = changes([MATMUL, elsewhere], [replace(MATMUL, total=0.02), rest])

    assert [(row.before is None, row.after is None) for row in found.rows] == [(False, False), (False, True)]
    assert found.least == (None, pytest.approx(0.01))
    assert found.others == pytest.approx(0.15)


def test_rows_and_the_others_add_up_to_the_difference():
    small = [replace(SOFTMAX, name=f"aten::op{n}", path=("Net", str(n)), total=0.001) for n in range(50)]

    found = changes([MATMUL, *small], [replace(MATMUL, total=0.3)])

    assert len(found.rows) == 1
    assert sum(row.difference for row in found.rows) + found.others == pytest.approx(found.after - found.before)


def test_without_gpu_work_on_both_sides_nothing_is_compared():
    assert changes([MATMUL], [replace(MATMUL, device="cpu")]) is None


def test_comparison_includes_operators():
    found = compare(of(MATMUL), of(replace(MATMUL, total=0.1), gpu="A100"), ("a.json", "b.json"))
    made = {section.id: section for section in sections(found)}

    assert [table.marks for table in made["gpu-work"].tables] == [("better",)]
    assert made["gpu-work"].sentences[-1].count("100") == 2
    assert [section.id for section in brief(found)] == ["time", "gpu-work"]
    assert json.loads(json.dumps(found.result()))["operators"]["rows"][0]["after"]["seconds"] == pytest.approx(0.05)
