"""The charts as a Bokeh document: one above the other, with one time axis between them."""

from __future__ import annotations

from typing import Any

import numpy
from bokeh.document import Document
from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    CrosshairTool,
    HoverTool,
    Legend,
    LegendItem,
    NumeralTickFormatter,
    Range1d,
    Span,
    WheelZoomTool,
)
from bokeh.plotting import figure

from advisor.timeline import Chart, Curve
from advisor.units import quantity

# Distinct in both colour schemes and to the colour-blind (after Okabe and Ito, darkened or lightened to suit both).
COLOURS = ("#3b82c4", "#d9822b", "#2a9d78", "#b565a7", "#7a869a", "#c9a227", "#56a8d6", "#c8553d")
WAIT = "#d9542b"
INK = "#5a6675"  # of words, in the light scheme as report.css has it; the page's script changes it in the dark one
RULE = "#808a98"  # of grid and limits: seen on white and on black

TITLES = {"s": "ms", "1": "%", "cores": "cores", "B": "GiB"}
SCALES = {"s": 1e3, "1": 100.0, "cores": 1.0, "B": 1 / 1024**3}
HEIGHT = 178
ABOVE = 1.3
FAR = 4  # a limit that many times above a curve would press it flat


def item(charts: tuple[Chart, ...]) -> dict[str, Any]:
    """What `Bokeh.embed.embed_item` draws in the element "charts". Needs no callbacks, so no eval."""
    end = max((time for chart in charts for curve in chart.curves for time in curve.times), default=1.0)
    shared = Range1d(0.0, end, bounds=(0.0, end), min_interval=end / 1000)
    cursor = Span(dimension="height", line_dash="dotted", line_width=1, line_color=RULE)
    figures = [_figure(chart, shared, cursor, last=chart is charts[-1]) for chart in charts]
    document = Document()
    layout = column(*figures, sizing_mode="stretch_width")
    document.add_root(layout)
    return dict(json_item(layout, "charts"))


def _figure(chart: Chart, shared: Range1d, cursor: Span, last: bool) -> Any:
    plot = figure(
        height=HEIGHT + (24 if last else 0),
        sizing_mode="stretch_width",
        x_range=shared,
        tools="",
        toolbar_location=None,
        y_axis_label=TITLES[chart.unit],
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        output_backend="canvas",
        name=chart.title,
        margin=(8, 0, 0, 0),
    )
    plot.title.text = chart.title
    zoom = WheelZoomTool(dimensions="width", modifiers={"ctrl": True})
    drag = BoxZoomTool(dimensions="width")
    plot.add_tools(drag, zoom, CrosshairTool(overlay=cursor))
    plot.toolbar.update(active_drag=drag, active_scroll=zoom)
    legend = Legend(
        items=[], orientation="horizontal", location="top_left", click_policy="hide", background_fill_color=None
    )
    legend.update(border_line_color=None, padding=0, margin=0, spacing=14, glyph_width=14, label_text_font_size="12px")
    for number, curve in enumerate(chart.curves):
        colour = WAIT if curve.label == "waiting for data" else COLOURS[number % len(COLOURS)]
        legend.items.append(LegendItem(label=curve.label, renderers=[_curve(plot, chart, curve, colour)]))
    plot.add_layout(legend, "above")
    _tell_values(plot, chart)
    _style(plot, chart, last)
    if chart.limit is not None:
        _limit(plot, chart, chart.limit)
    return plot


def _curve(plot: Any, chart: Chart, curve: Curve, colour: str) -> Any:
    """Single precision halves the page and is a tenth of a pixel."""
    values = numpy.array([numpy.nan if v is None else v * SCALES[chart.unit] for v in curve.values], dtype="float32")
    source = ColumnDataSource({"t": numpy.array(curve.times, dtype="float32"), "v": values})
    if curve.kind == "points":
        top = _top(chart)
        source.data["y"] = numpy.minimum(values, top)
        source.data["mark"] = ["triangle" if value > top else "circle" for value in values]
        drawn = plot.scatter("t", "y", source=source, marker="mark", size=7, color=colour, alpha=0.85, name=curve.label)
    else:
        drawn = plot.line("t", "v", source=source, line_width=1.6, color=colour, alpha=0.95, name=curve.label)
    return drawn


def _tell_values(plot: Any, chart: Chart) -> None:
    """Where the mouse is: of every line at that time, of a point only if it is upon it."""
    tips = [("", f"$name @v{{0,0.[00]}} {TITLES[chart.unit]}"), ("", "at @t{0,0.0} s")]
    drawn = list(zip(plot.renderers, chart.curves, strict=True))
    for kind, mode in (("line", "vline"), ("points", "mouse")):
        if shown := [one for one, curve in drawn if curve.kind == kind]:
            plot.add_tools(HoverTool(renderers=shown, tooltips=tips, mode=mode, point_policy="snap_to_data"))


def _top(chart: Chart) -> float:
    """Single points above this are drawn here, as triangles: one slow first step would press the curves flat."""
    lines = [v for c in chart.curves if c.kind == "line" for v in c.values if v is not None]
    return ABOVE * max(lines) * SCALES[chart.unit] if lines else numpy.inf


def _limit(plot: Any, chart: Chart, limit: float) -> None:
    """Drawn where the curves come anywhere near it, else only told."""
    highest = max(value for curve in chart.curves for value in curve.values if value is not None)
    said = f"{quantity(limit, chart.unit)} {chart.limit_label}".rstrip()
    if highest < limit / FAR:
        plot.title.text = f"{chart.title} (of {said})"
        return
    height = limit * SCALES[chart.unit]
    plot.add_layout(Span(location=height, dimension="width", line_dash="dashed", line_color=RULE, line_alpha=0.8))
    plot.y_range.end = 1.06 * max(height, highest * SCALES[chart.unit])
    plot.title.text = f"{chart.title} (dashed: {said})"


def _style(plot: Any, chart: Chart, last: bool) -> None:
    plot.title.update(text_font_size="13px", text_font_style="bold", text_color=INK)
    plot.y_range.start = 0
    if chart.unit == "1":
        plot.y_range = Range1d(0, 102)
    plot.xgrid.visible = False
    plot.ygrid.grid_line_color = RULE
    plot.ygrid.grid_line_alpha = 0.18
    for axis in (*plot.xaxis, *plot.yaxis):
        axis.update(axis_line_color=None, major_tick_line_color=None, minor_tick_line_color=None)
        axis.update(major_label_text_color=INK, axis_label_text_color=INK, axis_label_text_font_style="normal")
    plot.yaxis.ticker.desired_num_ticks = 4
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    plot.xaxis.axis_label = "seconds since the start of the run" if last else None
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0.[0]")
    plot.xaxis.visible = last
    plot.legend.label_text_color = INK
    plot.min_border_left = 64
