"""The charts: every curve is in them, and one slow step does not press the others flat."""

from __future__ import annotations

import base64
import gzip
import json

import numpy
import pytest
from golden_report import golden

from advisor.render import charts
from advisor.timeline import Chart, Curve


def columns(chart: Chart, name: str) -> list[numpy.ndarray]:
    """A column of every curve's data, as the page gets it."""
    found = []

    def walk(node):
        if isinstance(node, dict):
            if node.get("type") == "map" and "entries" in node:
                found.extend(value for key, value in node["entries"] if key == name)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(charts.item((chart,)))
    return [numpy.frombuffer(gzip.decompress(base64.b64decode(one["array"]["data"])), "float32") for one in found]


def test_every_curve_is_drawn_by_its_name():
    text = json.dumps(charts.item(golden().charts))

    assert all(curve.label in text for chart in golden().charts for curve in chart.curves)


def test_values_are_in_the_axis_unit_and_gaps_stay_gaps():
    chart = Chart(title="t", unit="s", curves=(Curve(label="a", times=(0.0, 1.0, 2.0), values=(0.1, None, 0.2)),))

    (values,) = columns(chart, "v")

    assert values == pytest.approx([100.0, numpy.nan, 200.0], nan_ok=True)


def test_a_single_slow_step_is_drawn_within_reach_and_told_in_full():
    line = Curve(label="step", times=(0.0, 1.0), values=(0.1, 0.1))
    slow = Curve(label="epoch start", times=(0.5,), values=(9.0,), kind="points")
    chart = Chart(title="t", unit="s", curves=(line, slow))

    assert columns(chart, "y")[0] == pytest.approx([charts.ABOVE * 100.0])
    assert columns(chart, "v")[1] == pytest.approx([9000.0])


def test_a_limit_far_above_the_curve_is_told_and_not_drawn():
    curve = Curve(label="program", times=(0.0, 1.0), values=(1.0, 1.0))
    near = Chart(title="CPU", unit="cores", curves=(curve,), limit=2.0, limit_label="allowed")
    far = Chart(title="CPU", unit="cores", curves=(curve,), limit=128.0, limit_label="allowed")

    assert "CPU (dashed: 2 cores allowed)" in json.dumps(charts.item((near,)))
    assert "CPU (of 128 cores allowed)" in json.dumps(charts.item((far,)))
