"""The charts of a plan's page: bytes of the devices, seconds of the stages, and how the value changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hetsched.planning.curves import Point
from hetsched.planning.words import described
from hetsched.problem.units import byte_unit, seconds, size, time_unit
from hetsched.report.figures import HEIGHT
from hetsched.report.groups import COLOURS, OTHER
from hetsched.report.offline import LINE, escape, look

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BYTES = {"weights": COLOURS[0], "KV cache": COLOURS[1], "workspace": COLOURS[2], "reserved": OTHER, "free": "#ECECEC"}
"""Colours of the parts of a device's memory."""


class Bar(NamedTuple):
    """A row of a chart: its name, and the amount of each part by its name."""

    name: str
    parts: dict[str, float]


def memory_figure(bars: Sequence[Bar], memory_bytes: Sequence[float]) -> Figure:
    """Return the bytes of each device, its parts among `BYTES`, and a mark at its memory."""
    from plotly.graph_objects import Scatter

    unit, scale = byte_unit(max(sum(bar.parts.values()) for bar in bars))
    figure = _bars(bars, BYTES, scale, size, f"memory, {unit}")
    known = [k for k, amount in enumerate(memory_bytes) if math.isfinite(amount)]
    figure.add_trace(
        Scatter(
            name="memory",
            x=[memory_bytes[k] / scale for k in known],
            y=known,
            mode="markers",
            marker={"symbol": "line-ns", "size": 30, "line": {"width": 2, "color": LINE}},
            hovertext=[f"<b>{escape(bars[k].name)}</b><br>{size(memory_bytes[k])} in all" for k in known],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    return figure


def time_figure(bars: Sequence[Bar], limit: float | None = None) -> Figure:
    """Return the seconds of each stage, part by part; `limit` is drawn as a line across."""
    unit, scale = time_unit(max([*(sum(bar.parts.values()) for bar in bars), limit or 0.0]))
    names = dict.fromkeys(name for bar in bars for name in bar.parts)
    figure = _bars(bars, dict(zip(names, COLOURS, strict=False)), scale, seconds, f"time, {unit}")
    if limit is not None:
        figure.add_vline(limit / scale, line={"color": LINE, "dash": "dash", "width": 1.5})
    return figure


def _bars(bars: Sequence[Bar], colours: dict[str, str], scale: float, told: Callable[[float], str], title: str) -> Figure:
    from plotly.graph_objects import Bar as Trace
    from plotly.graph_objects import Figure

    figure = Figure()
    for part, colour in colours.items():
        own = [k for k, bar in enumerate(bars) if part in bar.parts]
        figure.add_trace(
            Trace(
                name=part,
                orientation="h",
                y=own,
                x=[bars[k].parts[part] / scale for k in own],
                width=HEIGHT,
                marker={"color": colour, "line": {"color": "white", "width": 0.5}},
                hovertext=[f"<b>{escape(bars[k].name)}</b><br>{part}: {told(bars[k].parts[part])}" for k in own],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    figure.update_layout(**look(title, 140 + 46 * len(bars)), barmode="stack", bargap=0.0, hovermode="closest", showlegend=len(colours) > 1)
    figure.update_layout(legend={"traceorder": "normal", "entrywidth": 75})
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(
        tickvals=list(range(len(bars))),
        ticktext=[escape(bar.name) for bar in bars],
        range=[len(bars) - 0.5, -0.5],
        fixedrange=True,
        showgrid=False,
    )
    return figure


def rate_figure(points: Sequence[Point], asked: float) -> Figure:
    """Return the tokens of output per second against the context; the one asked is marked."""
    figure = _curve(points, asked, [point.plan.tokens_per_second for point in points], "context, tokens", "tokens/s")
    ticks = [int(point.at) for point in points if point.at % points[0].at == 0]  # those asked may be close to another
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{tokens:,}" for tokens in ticks])
    return figure


def bits_figure(points: Sequence[Point], asked: float, what: str) -> Figure:
    """Return the value against the bits per parameter; the one asked is marked."""
    unit, scale = time_unit(max(point.plan.value for point in points))
    return _curve(points, asked, [point.plan.value / scale for point in points], "bits a parameter", f"{what}, {unit}")


def _curve(points: Sequence[Point], asked: float, values: Sequence[float], x_title: str, y_title: str) -> Figure:
    from plotly.graph_objects import Figure, Scatter

    texts = []
    for at, plan in points:
        assert plan.placement is not None
        stages = "<br>".join(map(escape, described(plan, plan.placement).split("; ")))
        texts.append(f"<b>{x_title}: {at:.6g}</b><br>{seconds(plan.value)}, {plan.tokens_per_second:.4g} tokens/s<br>{stages}")
    marked = [point.at == asked for point in points]
    figure = Figure(
        Scatter(
            x=[point.at for point in points],
            y=values,
            mode="lines+markers",
            line={"color": COLOURS[0], "width": 1.4, "dash": "dot"},
            marker={
                "color": [COLOURS[5] if own else COLOURS[0] for own in marked],
                "symbol": ["diamond" if own else "circle" for own in marked],
                "size": [13 if own else 8 for own in marked],
                "opacity": 1,
            },
            hovertext=texts,
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    figure.update_layout(**look(x_title, 300), hovermode="closest", showlegend=False)
    figure.update_yaxes(title=y_title, rangemode="tozero")
    return figure
