"""Prepare the charts for `templates/charts.js`: numbers, names and colors.

Numbers have no more digits than are visible.
"""

import math

from advisor.report.timeline import WAITING, Chart, Curve
from advisor.units import quantity

# Distinct in both color schemes and to the color-blind (after Okabe and Ito, darkened or lightened to suit both).
COLORS = ("#3b82c4", "#d9822b", "#2a9d78", "#b565a7", "#7a869a", "#c9a227", "#56a8d6", "#c8553d")
WAIT = "#d9542b"

UNITS = {"s": "ms", "1": "%", "cores": "cores", "B": "GiB"}
SCALES = {"s": 1e3, "1": 100.0, "cores": 1.0, "B": 1 / 1024**3}
TOPS = {"1": 102.0}
"""Fixed upper limits, by unit; other charts end just above their highest value."""

ABOVE = 1.3
"""Multiple of the highest line above which single points are drawn as triangles.

Otherwise one slow first step would flatten the curves.
"""

FAR = 4
"""Factor by which a limit may exceed the curves and still be drawn. A higher limit would flatten them."""

FINEST = 1e6
"""Fewest time ticks per run. A thousandth of the run, the closest zoom, then still has a thousand."""

DIGITS = 5
"""Significant digits of a value: 12,345 ms, 123.45 GiB. A chart is not 1,000 pixels high."""


def item(charts: tuple[Chart, ...]) -> dict[str, object]:
    """Return what the page draws.

    Times are whole ticks, each relative to the one before; curves with the same times share them.
    """
    curves = [curve for chart in charts for curve in chart.curves]
    end = max((time for curve in curves for time, _ in _points(curve)), default=0.0)
    end = end if end > 0 else 1.0
    tick = 10.0 ** math.floor(math.log10(end / FINEST))
    clocks: dict[tuple[int, ...], int] = {}
    drawings = [_chart(chart, tick, clocks) for chart in charts]
    return {"end": end, "tick": tick, "times": list(clocks), "charts": drawings}


def _points(curve: Curve) -> list[tuple[float, float | None]]:
    """Return times and values; None is a gap, and replaces values that are not finite."""
    return [
        (time, value if value is not None and math.isfinite(value) else None)
        for time, value in zip(curve.times, curve.values, strict=True)
        if math.isfinite(time)
    ]


def _chart(chart: Chart, tick: float, clocks: dict[tuple[int, ...], int]) -> dict[str, object]:
    scale = SCALES[chart.unit]
    title, limit = _limit(chart)
    highest = _highest(chart, "line")
    return {
        "title": title,
        "unit": UNITS[chart.unit],
        "limit": None if limit is None else _short(limit * scale),
        "top": TOPS.get(chart.unit),
        "ceiling": None if highest is None else _short(ABOVE * highest * scale),
        "curves": [_curve(curve, number, scale, tick, clocks) for number, curve in enumerate(chart.curves)],
    }


def _curve(
    curve: Curve, number: int, scale: float, tick: float, clocks: dict[tuple[int, ...], int]
) -> dict[str, object]:
    points = _points(curve)
    ticks = [round(time / tick) for time, _ in points]
    deltas = tuple(now - before for before, now in zip([0, *ticks], ticks, strict=False))
    return {
        "label": curve.label,
        "kind": curve.kind,
        "color": WAIT if curve.label.startswith(WAITING) else COLORS[number % len(COLORS)],
        "times": clocks.setdefault(deltas, len(clocks)),
        "values": [None if value is None else _short(value * scale) for _, value in points],
    }


def _limit(chart: Chart) -> tuple[str, float | None]:
    """Return the title and the limit.

    The limit is drawn if the curves come near it; otherwise, it is only mentioned in the title.
    """
    if chart.limit is None:
        return chart.title, None
    limit_text = f"{quantity(chart.limit, chart.unit)} {chart.limit_label}".rstrip()
    if (_highest(chart) or 0.0) < chart.limit / FAR:
        return f"{chart.title} (of {limit_text})", None
    return f"{chart.title} (dashed: {limit_text})", chart.limit


def _highest(chart: Chart, *kinds: str) -> float | None:
    curves = [curve for curve in chart.curves if curve.kind in (kinds or ("line", "points"))]
    return max((value for curve in curves for _, value in _points(curve) if value is not None), default=None)


def _short(value: float) -> float:
    """Return a value rounded to DIGITS, in the shortest form for JSON."""
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
