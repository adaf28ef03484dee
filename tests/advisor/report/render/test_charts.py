"""The charts: they contain every curve, and one slow step does not flatten the others."""

from __future__ import annotations

import json
import math

import pytest
from golden_report import golden

from advisor.report.render import charts
from advisor.report.timeline import Chart, Curve

LINE = Curve(label="step", times=(0.0, 1.0), values=(0.1, 0.1))


def drawn(*curves: Curve, unit="s", **limit):
    """Return the one chart of these curves."""
    (made,) = charts.item((Chart(title="t", unit=unit, curves=curves, **limit),))["charts"]
    return made


def test_every_curve_is_drawn_by_its_name():
    items = charts.item(golden().charts)["charts"]

    assert [[curve["label"] for curve in chart["curves"]] for chart in items] == [
        [curve.label for curve in chart.curves] for chart in golden().charts
    ]


def test_values_are_in_the_axis_unit_and_gaps_stay_gaps():
    values = (0.1, None, 0.0, 0.123456789, 12.3456789, math.inf, math.nan)
    curve = Curve(label="a", times=tuple(map(float, range(7))), values=values)

    (seconds,) = drawn(curve)["curves"]
    (shares,) = drawn(curve, unit="1")["curves"]
    (sizes,) = drawn(Curve(label="a", times=(0.0,), values=(1.5 * 1024**3,)), unit="B")["curves"]

    assert seconds["values"] == [100, None, 0, 123.46, 12346, None, None]
    assert shares["values"] == [10, None, 0, 12.346, 1234.6, None, None]
    assert sizes["values"] == [1.5]


def test_times_are_delta_encoded_and_shared_by_curves():
    late = Curve(label="late", times=(0.5, 250.0), values=(1.0, 2.0))
    other = Curve(label="other", times=(0.5, 250.0), values=(3.0, 4.0))
    early = Curve(label="early", times=(0.0, 0.1234, 0.12345), values=(1.0, 1.0, 1.0))

    made = charts.item((Chart(title="t", unit="s", curves=(late, early)), Chart(title="u", unit="B", curves=(other,))))

    assert (made["end"], made["tick"]) == (250.0, pytest.approx(1e-4))
    assert made["times"] == [(5000, 2_495_000), (0, 1234, 0)]
    assert [[curve["times"] for curve in chart["curves"]] for chart in made["charts"]] == [[0, 1], [0]]


@pytest.mark.parametrize("times", [(0.0,), (math.inf,), (-5.0,)])
def test_run_of_zero_length_is_drawn_as_one_second(times):
    made = charts.item((Chart(title="t", unit="s", curves=(Curve(label="a", times=times, values=(1.0,)),)),))

    assert made["end"] == 1.0
    assert json.loads(json.dumps(made, allow_nan=False))


def test_slow_step_is_clipped_in_chart_but_keeps_its_value():
    slow = Curve(label="epoch start", times=(0.5,), values=(9.0,), kind="points")

    assert drawn(LINE, slow)["ceiling"] == pytest.approx(charts.ABOVE * 100.0)
    assert drawn(LINE, slow)["curves"][1]["values"] == [9000]
    assert drawn(slow)["ceiling"] is None


def test_limit_far_above_curve_is_stated_but_not_drawn():
    curve = Curve(label="program", times=(0.0, 1.0), values=(1.0, 1.0))
    near = drawn(curve, unit="cores", limit=4.0, limit_label="allowed")
    far = drawn(curve, unit="cores", limit=4.1, limit_label="allowed")

    assert (near["title"], near["limit"]) == ("t (dashed: 4 cores allowed)", 4)
    assert (far["title"], far["limit"]) == ("t (of 4.1 cores allowed)", None)


def test_shares_always_have_the_same_height():
    assert drawn(LINE, unit="1")["top"] == 102
    assert drawn(LINE)["top"] is None


def test_waiting_has_fixed_color_and_other_curves_differ():
    curves = [Curve(label=f"rank {i}", times=(0.0,), values=(1.0,)) for i in range(8)]
    waiting = Curve(label="waiting for data (rank 0)", times=(0.0,), values=(1.0,))

    colors = [curve["color"] for curve in drawn(*curves, waiting)["curves"]]

    assert colors[-1] == charts.WAIT
    assert len(set(colors)) == 9


def test_charts_of_longest_run_are_below_330_kb():
    """A limit for the page, whatever the run: as many points as are drawn, no two curves at the same times."""
    count = 1000
    curves = [
        Curve(
            label=f"rank {k}",
            times=tuple(28_500 * (i + k / 24 + math.sin(i) / 9) / count for i in range(count)),
            values=tuple(0.285 + 0.01 * math.sin(7.7 * i + k) for i in range(count)),
        )
        for k in range(24)
    ]
    made = charts.item((Chart(title="t", unit="s", curves=tuple(curves)),))

    assert len(json.dumps(made, separators=(",", ":"))) < 330_000
