"""The charts of a comparison: performance profiles, proofs and gaps, and the gap over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.experiments.comparison import Comparison, curves
from hetsched.experiments.statistics import performance_profile
from hetsched.report.groups import COLOURS
from hetsched.report.offline import escape, look

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

DASHES = ("solid", "dash", "dot", "dashdot")
MOST_PAIRS = 15
"""Pairs of methods that are drawn."""
FASTEST = 1e-3
"""Seconds at which axes of time begin."""
MOMENTS = 200
"""Points of a curve over time."""


def _style(number: int, name: str, *, legend: bool = True) -> dict[str, Any]:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    return {"name": escape(name), "line": {"color": colour, "dash": dash, "width": 1.8}, "legendgroup": name, "showlegend": legend}


def makespan_profile(comparison: Comparison) -> Figure:
    """Return the performance profile of the makespans."""
    return _profile(comparison, comparison.makespans, "makespan / shortest")


def time_profile(comparison: Comparison) -> Figure:
    """Return the performance profile of the seconds to the proven optimum."""
    return _profile(comparison, np.maximum(comparison.proof_times, FASTEST), "time to proof / fastest")


def _profile(comparison: Comparison, values: FloatArray, title: str) -> Figure:
    from plotly.graph_objects import Figure

    figure = Figure(_steps(values, comparison.methods, range(len(comparison.methods))))
    figure.update_layout(**look(title, 360), hovermode="closest")
    figure.update_xaxes(type="log", rangemode="tozero")
    figure.update_yaxes(range=[0, 103], ticksuffix=" %", title="share of instances")
    return figure


def _steps(values: FloatArray, methods: Sequence[str], chosen: Sequence[int], *, legend: bool = True) -> list[Any]:
    """Return a step curve for each chosen method, over the instances that all of them have run on."""
    from plotly.graph_objects import Scatter

    table = values[list(chosen)]
    profiles = performance_profile(table[:, ~np.isnan(table).any(axis=0)])
    end = 1.05 * max([1.0, *(float(profile.ratios[-1]) for profile in profiles if len(profile.ratios))])
    return [
        Scatter(
            x=[1.0, *profile.ratios, end],
            y=100 * np.concatenate([[0.0], profile.shares, profile.shares[-1:] if len(profile.shares) else [0.0]]),
            mode="lines",
            hovertemplate="%{y:.0f} % within %{x:.4g}",
            **{**_style(number, methods[number], legend=legend), "line": {**_style(number, "")["line"], "shape": "hv"}},
        )
        for number, profile in zip(chosen, profiles, strict=True)
    ]


def pair_profiles(comparison: Comparison) -> Figure | None:
    """Return the performance profile of the makespans of each two methods; None of two methods or fewer."""
    from plotly.subplots import make_subplots

    pairs = list(itertools.combinations(range(len(comparison.methods)), 2))[:MOST_PAIRS]
    if len(pairs) < 2:
        return None
    columns = min(3, len(pairs))
    lines = math.ceil(len(pairs) / columns)
    figure = make_subplots(lines, columns, shared_yaxes=True, horizontal_spacing=0.04, vertical_spacing=0.2 / lines)
    named: set[int] = set()
    for place, pair in enumerate(pairs):
        for number, trace in zip(pair, _steps(comparison.makespans, comparison.methods, pair), strict=True):
            trace.showlegend = number not in named
            named.add(number)
            figure.add_trace(trace, row=1 + place // columns, col=1 + place % columns)
    _dressed(figure, "", 120 + 220 * lines)
    figure.update_xaxes(type="log")
    figure.update_xaxes(title="makespan / shortest of the two", row=lines)
    figure.update_yaxes(range=[0, 103], ticksuffix=" %")
    return figure


def proof_figure(comparison: Comparison) -> Figure:
    """Return the share of the cases proven over time and, from there on, the share that ended within each gap of its own bound."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 2, shared_yaxes=True, column_widths=[0.6, 0.4], horizontal_spacing=0.02)
    longest = max(row[comparison.clock] for _, row in ended(comparison))
    for number, method in enumerate(comparison.methods):
        rows = [row for place in comparison.instances for row in comparison.cases(method, place)]
        times = sorted(max(FASTEST, row[comparison.clock]) for row in rows if row["status"] == "optimal")
        gaps = sorted(100 * (1 - row["bound"] / row["makespan"]) for row in rows if row["status"] == "feasible" and row["makespan"] > 0)
        share = 100 * np.arange(len(times) + len(gaps) + 1) / max(1, len(rows))
        proven = len(times)
        style = {**_style(number, method), "mode": "lines"}
        style["line"] = {**style["line"], "shape": "hv"}
        figure.add_trace(Scatter(x=[FASTEST, *times, longest], y=[*share[: proven + 1], share[proven]], **style), row=1, col=1)
        right = {**style, "showlegend": False}
        figure.add_trace(Scatter(x=[0, *gaps, max([1.0, *gaps])], y=[*share[proven:], share[-1]], **right), row=1, col=2)
    _dressed(figure, "", 360)
    figure.update_xaxes(type="log", title=f"{_clock(comparison)} to the proof", row=1, col=1)
    figure.update_xaxes(title="gap to the bound at the end, %", rangemode="tozero", row=1, col=2)
    figure.update_yaxes(range=[0, 103], ticksuffix=" %")
    return figure


def _clock(comparison: Comparison) -> str:
    return "CPU seconds" if comparison.clock == "cpu_s" else "seconds"


def ended(comparison: Comparison) -> list[tuple[str, dict[str, Any]]]:
    return [
        (method, row)
        for method in comparison.methods
        for place in comparison.instances
        for row in comparison.cases(method, place)
        if comparison.clock in row
    ]


def excess_figure(comparison: Comparison) -> Figure:
    """Return the gap to the best known makespan over time, its median over the instances."""
    from plotly.graph_objects import Figure, Scatter

    longest = max([FASTEST * 10, *(row[comparison.clock] for _, row in ended(comparison))])
    times = np.geomspace(FASTEST, longest, MOMENTS)
    figure = Figure()
    for number, method in enumerate(comparison.methods):
        shares = 100 * curves(comparison, method, times)
        style = {**_style(number, method), "mode": "lines"}
        figure.add_trace(Scatter(x=times, y=np.where(shares < 100, shares, np.nan), **style))
    figure.update_layout(**look(_clock(comparison), 360), hovermode="closest")
    figure.update_xaxes(type="log")
    figure.update_yaxes(title="median gap", ticksuffix=" %", rangemode="tozero")
    return figure


def _dressed(figure: Figure, title: str, height: int) -> None:
    """Apply the look of all charts to every part of a figure."""
    layout = look("", height)
    axes = {axis: layout.pop(axis) for axis in ("xaxis", "yaxis")}
    figure.update_layout(**layout, hovermode="closest")
    figure.update_xaxes(**{**axes["xaxis"], "title": {"text": title}})
    figure.update_yaxes(**axes["yaxis"])
