"""The operator table of a report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from golden_report import golden
from profiles import rank

from advisor.models.gpus import peaks
from advisor.report.operator_table import operator_table
from advisor.report.render import result_json
from advisor.report.render.operator_charts import PLACE, WIDTH, icicle, roofline
from advisor.report.render.operators_view import lines
from advisor.runs.profile import Profile
from profiler.schema import REST, Operator, TraceFact

H100 = peaks("NVIDIA H100 80GB HBM3")
MATMUL = Operator(
    pid=1, window=2, device="cuda", name="aten::mm", inputs=((8, 8),), calls=8, total=0.4, kind="matmul", kernels=16,
    arithmetic="bf16", flop=4e13, bytes=4e9, host=0.02, gap=0.004,
)  # fmt: skip


FACT = TraceFact(id=2, steps=4, seconds=1.0)


def table(*operators, traces=(FACT,)):
    return operator_table(Profile(runs=(), ranks=(replace(rank(0), operators=operators, traces=traces),)), H100)


def test_rows_are_per_step_and_of_one_window():
    other = replace(MATMUL, window=5, calls=100)
    found = table(
        MATMUL,
        replace(MATMUL, name=REST, total=0.1, kind="other"),
        other,
        traces=(FACT, TraceFact(id=5, steps=3, seconds=1.0)),
    )

    (row,) = found.rows
    assert (found.steps, found.seconds, found.elapsed) == (4, pytest.approx(0.125), pytest.approx(0.25))
    assert (row.calls, row.kernels, row.seconds, row.share) == (2, 4, pytest.approx(0.1), pytest.approx(0.8))
    assert (row.host, row.gap, row.flop) == (pytest.approx(0.005), pytest.approx(0.001), pytest.approx(1e13))
    assert row.roof.share == pytest.approx(1e13 / H100.half / 0.1)
    assert found.rest.share == pytest.approx(0.2)


@pytest.mark.parametrize("kernel", ["Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)"])
def test_copies_over_the_bus_have_no_roofline(kernel):
    (row,) = table(replace(MATMUL, name="aten::copy_", kind="copy", flop=None, kernel=kernel)).rows

    assert (row.roof.share, row.roof.gain) == (None, None)
    assert row.roof.bandwidth == pytest.approx(1e10)


@pytest.mark.parametrize("operators", [(), (replace(MATMUL, device="cpu"),), (replace(MATMUL, window=3),)])
def test_without_gpu_work_there_is_no_table(operators):
    assert table(*operators) is None


def test_chart_contains_rows_with_flop_and_bytes():
    report = golden()
    found = roofline(report.operators)

    assert len(found.rows) == 2
    assert found.peaks == {"fp32": 19.5e12}
    for x, y, _ in map(found.point, found.rows):
        assert found.left <= x <= found.width
        assert 0 <= y <= found.bottom


def test_no_chart_without_peaks():
    report = golden()

    assert roofline(replace(report.operators, peaks=None)) is None
    assert lines(replace(report.operators, peaks=None))


def test_result_json_has_every_row():
    rows = result_json.result(golden())["operators"]["rows"]

    assert [row["name"] for row in rows] == ["aten::addmm", "aten::native_layer_norm", "my::operator", REST]
    assert rows[0]["bound"] == "compute"
    assert rows[2]["flop"] is None


def test_icicle_places_each_part_below_its_parent():
    layer = {"path": ("Model", "Layer", "aten::linear"), "phase": "forward", "kernel": "gemm"}
    other = replace(MATMUL, name="aten::add_", total=0.1, kind="elementwise", phase="optimizer", kernel="<add>")
    found = icicle(table(replace(MATMUL, **layer, total=0.3), other))

    by_label = {part.title.rpartition(": ")[0]: part for part in found.parts}
    assert [part.title.rpartition(": ")[0] for part in found.parts] == [
        *("forward", "Model", "Layer", "aten::linear", "aten::mm", "gemm"),
        *("optimizer", "aten::add_", "<add>"),
    ]
    assert (by_label["Layer"].width, by_label["Layer"].color) == (0.75 * WIDTH, PLACE)
    assert (by_label["optimizer"].x, by_label["optimizer"].y) == (0.75 * WIDTH, 0)
    assert by_label["gemm"].y == 5 * found.level == found.height - found.level


def test_without_modules_there_is_no_icicle():
    assert icicle(table(MATMUL, replace(MATMUL, path=("aten::linear", "MmBackward0")))) is None
