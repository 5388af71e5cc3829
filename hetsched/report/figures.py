"""The interactive charts of the page, by plotly: Gantt, memory over time, incumbent and bound over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.arrays import Columns, FloatArray, IntArray
from hetsched.problem.problem import Problem
from hetsched.problem.units import byte_unit, percent, seconds, size, time_unit
from hetsched.report.groups import COLOURS, Groups, labels
from hetsched.report.offline import LINE, escape, look
from hetsched.report.pairs import paler
from hetsched.report.tables import batch_table
from hetsched.schedule.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HEIGHT = 0.62  # of a bar, where devices are 1 apart
MOST_BARS = 8000  # with more, runs of short batches are drawn as one
MOST_TRANSFERS = 8000
MOST_CURVES = 8  # of memory that are visible at first
SLOTS = 3000  # of the makespan, for runs of short batches and for long memory curves
FEW = 300  # bars or transfers; up to here they are drawn with stronger lines
SHOWN = 60  # batches; with more, the critical chain is hidden at first
MOST_GROUPS = 24  # named in the legend
FIRST_MOMENT = 1e-3  # seconds; the start of the logarithmic axis, where earlier values are drawn


def gantt_figure(problem: Problem, schedule: Schedule, grouping: Groups, chain: Columns | None, pairs: bool = False) -> Figure:
    """Return the Gantt chart: a trace of bars per group, transfers as lines, the critical chain as outlines.

    With `pairs` every second row is of a second schedule, see `report.pairs`, in paler colours.
    """
    from plotly.graph_objects import Bar, Figure, Scatter

    unit, scale = time_unit(schedule.makespan)
    batches = schedule.batches
    rows = batch_table(problem, schedule)
    end = schedule.makespan or 1.0
    short = batches.finish - batches.start < end / SLOTS if len(batches) > MOST_BARS else np.zeros(len(batches), bool)
    figure = Figure()
    tone, names = grouping.of_task[batches.task], labels(schedule)
    hover = _hover(rows, names, np.flatnonzero(~short))
    edge = 0.5 if len(batches) <= FEW else 0.0
    wide = batches.finish - batches.start >= end / 25
    for number, (name, colour) in enumerate(zip(grouping.names, grouping.colours, strict=True)):
        own = np.flatnonzero((tone == number) & ~short)
        if len(own):
            figure.add_trace(
                Bar(
                    name=escape(name),
                    showlegend=len(grouping.names) <= MOST_GROUPS,
                    orientation="h",
                    base=batches.start[own] / scale,
                    y=batches.device[own],
                    width=HEIGHT,
                    x=(batches.finish - batches.start)[own] / scale,
                    marker={"color": _shades(colour, batches.device[own]) if pairs else colour, "line": {"color": "white", "width": edge}},
                    hovertext=[hover[b] for b in own.tolist()],
                    hovertemplate="%{hovertext}<extra></extra>",
                    text=[escape(names[b]) if wide[b] else "" for b in own.tolist()],
                    textposition="inside",
                    insidetextanchor="middle",
                    textangle=0,
                    textfont={"size": 12},
                )
            )
    if short.any():
        figure.add_trace(_runs(schedule, np.flatnonzero(short), end / SLOTS, scale))
    if 0 < len(schedule.transfers) <= MOST_TRANSFERS:
        figure.add_trace(_transfers(problem, schedule, scale))
    if chain is not None and len(chain):
        own, moved = chain.batch[chain.batch >= 0], chain.transfer[chain.transfer >= 0]
        shown = {"legendgroup": "chain", "legendrank": 2, "hoverinfo": "skip", "visible": True if len(batches) <= SHOWN else "legendonly"}
        x, y = _segments(schedule, moved, scale)
        figure.add_trace(Scatter(x=x, y=y, mode="lines", line={"color": LINE, "width": 2.0}, showlegend=False, **shown))
        figure.add_trace(
            Bar(
                name="critical chain",
                orientation="h",
                base=batches.start[own] / scale,
                y=batches.device[own],
                width=HEIGHT + 0.1,
                x=(batches.finish - batches.start)[own] / scale,
                marker={"color": "rgba(0,0,0,0)", "line": {"color": LINE, "width": 1.6}},
                **shown,
            )
        )
    if not figure.data:
        figure.add_trace(Scatter(x=[], y=[]))
    ticks = list(range(len(schedule.devices)))
    figure.update_layout(
        **look(f"time, {unit}", max(300, 130 + 64 * len(ticks))),
        barmode="overlay",
        bargap=0.0,
        hovermode="closest",
        uniformtext={"minsize": 9, "mode": "hide"},
    )
    figure.update_xaxes(range=[0.0, end / scale])
    figure.update_yaxes(
        tickvals=ticks,
        ticktext=[escape(name) for name in schedule.devices],
        range=[len(ticks) - 0.5, -0.5],
        fixedrange=True,
        showgrid=False,
    )
    return figure


def _shades(colour: str, row: IntArray) -> list[str]:
    """Return the colour of each bar of a group: a paler one in every second row."""
    channels = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)])
    pale = "#" + "".join(f"{round(255 * channel):02x}" for channel in paler(channels / 255).tolist())
    return [(colour, pale)[k % 2] for k in row.tolist()]


def left_out(schedule: Schedule) -> list[str]:
    """Return sentences about the batches and transfers that the Gantt chart does not show one by one."""
    sentences = []
    if len(schedule.batches) > MOST_BARS:
        sentences.append(
            f"Runs of batches shorter than {seconds(schedule.makespan / SLOTS)} are drawn as one grey block; the trace file shows each."
        )
    if len(schedule.transfers) > MOST_TRANSFERS:
        sentences.append(f"The {len(schedule.transfers)} transfers are not drawn; the trace file shows them.")
    return sentences


def _hover(rows: Columns, names: list[str], shown: IntArray) -> dict[int, str]:
    """Return the hover text of each of the batches shown."""
    texts = {}
    columns = [rows[name][shown].tolist() for name in ("op", "device", "start", "finish", "duration", "inputs", "size")]
    batched = bool((rows.size > 1).any())
    for b, op, device, start, finish, duration, inputs, count in zip(shown.tolist(), *columns, strict=True):
        which = f"<br>inputs {inputs} ({count})" if batched else ""
        texts[b] = (
            f"<b>{escape(names[b])}</b><br>{escape(op) + ' on ' if op else 'on '}{escape(device)}{which}"
            f"<br>{seconds(start)} to {seconds(finish)} ({seconds(duration)})"
        )
    return texts


def _runs(schedule: Schedule, short: IntArray, slot: float, scale: float) -> Any:
    """Return blocks for batches too short to be visible, one for those of a device that start in the same slot."""
    from plotly.graph_objects import Bar

    batches = schedule.batches
    start, finish, device = batches.start[short], batches.finish[short], batches.device[short]
    key, which, count = np.unique(device * (SLOTS + 2) + (start / slot).astype(np.int64), return_inverse=True, return_counts=True)
    first, last = np.full(len(key), np.inf), np.zeros(len(key))
    np.minimum.at(first, which, start)
    np.maximum.at(last, which, finish)
    busy = np.bincount(which, finish - start)
    texts = [
        f"<b>{many} short batches</b><br>on {escape(schedule.devices[row // (SLOTS + 2)])}<br>{seconds(a)} to {seconds(z)}"
        f"<br>busy {percent(work / (z - a) if z > a else 0.0)} of it"
        for row, many, a, z, work in zip(key.tolist(), count.tolist(), first.tolist(), last.tolist(), busy.tolist(), strict=True)
    ]
    return Bar(
        name="short batches",
        orientation="h",
        base=first / scale,
        x=(last - first) / scale,
        y=key // (SLOTS + 2),
        width=HEIGHT,
        marker={"color": "#7f7f7f", "opacity": 0.25 + 0.75 * np.clip(busy / np.maximum(last - first, 1e-300), 0, 1)},
        hovertext=texts,
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _transfers(problem: Problem, schedule: Schedule, scale: float) -> Any:
    """Return one trace of line segments between the rows of the devices."""
    from plotly.graph_objects import Scatter

    moves, batches, names = schedule.transfers, schedule.batches, schedule.tasks
    source, target = moves.source.astype(np.int64), moves.target.astype(np.int64)
    h, k = batches.device[source], batches.device[target]
    x, y = _segments(schedule, np.arange(len(moves)), scale)
    columns = [column.tolist() for column in (batches.task[source], batches.task[target], h, k, moves.start, moves.finish)]
    texts = [
        f"<b>{escape(names[i])}</b> to <b>{escape(names[j])}</b><br>{escape(schedule.devices[a])} to {escape(schedule.devices[b])}"
        f"<br>{size(amount)} for one input<br>{seconds(start)} to {seconds(finish)} ({seconds(finish - start)})"
        for i, j, a, b, start, finish, amount in zip(*columns, problem.graph.edge_bytes[moves.edge.astype(np.int64)].tolist(), strict=True)
    ]
    few = len(moves) <= FEW
    return Scatter(
        name="transfers",
        legendrank=1,
        x=x,
        y=y,
        mode="lines+markers",
        hovertext=[text for text in texts for _ in range(3)],
        hovertemplate="%{hovertext}<extra></extra>",
        line={"color": "#444444", "width": 1.0 if few else 0.6},
        marker={"size": 4 if few else 3, "color": "#444444"},
        opacity=0.75 if few else 0.4,
    )


def _segments(schedule: Schedule, moves: IntArray, scale: float) -> tuple[FloatArray, FloatArray]:
    """Return x and y of the ends of lines for the transfers `moves`, separated by NaN."""
    rows, device = schedule.transfers, schedule.batches.device
    h, k = device[rows.source[moves].astype(np.int64)], device[rows.target[moves].astype(np.int64)]
    side, gap = np.sign(k - h) * HEIGHT / 2, np.full(len(moves), np.nan)
    x = np.column_stack([rows.start[moves] / scale, rows.finish[moves] / scale, gap])
    return x.ravel(), np.column_stack([h + side, k - side, gap]).ravel()


def memory_figure(problem: Problem, schedule: Schedule, profile: Columns) -> Figure:
    """Return the bytes held over time, a step line for each device; dashed lines are capacities near the curves."""
    from plotly.graph_objects import Figure, Scatter

    unit, scale = time_unit(schedule.makespan)
    most = float(profile.bytes.max(initial=0.0))
    amount, bytes_scale = byte_unit(most)
    figure = Figure()
    peak = np.zeros(len(schedule.devices))
    np.maximum.at(peak, profile.device, profile.bytes)
    largest = set(np.argsort(-peak, kind="stable")[:MOST_CURVES].tolist())
    for k, name in enumerate(schedule.devices):
        own = profile.device == k
        time, held = np.append(profile.time[own], schedule.makespan), profile.bytes[own]
        time, held = _thinned(time, np.append(held, held[-1]), schedule.makespan)
        colour = COLOURS[k % len(COLOURS)]
        figure.add_trace(
            Scatter(
                name=escape(name),
                x=time / scale,
                y=held / bytes_scale,
                mode="lines",
                visible=True if k in largest else "legendonly",
                line={"color": colour, "shape": "hv", "width": 1.6, "dash": "solid" if k < len(COLOURS) else "dot"},
                hovertemplate=f"{escape(name)}: %{{y:.4g}} {amount} at %{{x:.4g}} {unit}<extra></extra>",
            )
        )
        capacity = float(problem.cluster.memory_bytes[k])
        if 0 < capacity <= 4 * most:
            figure.add_hline(capacity / bytes_scale, line={"color": colour, "dash": "dash"}, annotation_text=f"capacity of {escape(name)}")
    figure.update_layout(**look(f"time, {unit}", 330), hovermode="closest", showlegend=True)
    figure.update_xaxes(range=[0.0, (schedule.makespan or 1.0) / scale])
    figure.update_yaxes(title=f"held, {amount}", rangemode="tozero")
    return figure


def _thinned(time: FloatArray, value: FloatArray, end: float) -> tuple[FloatArray, FloatArray]:
    """Return a step curve with at most two steps for each slot of time: its first value and its largest."""
    if len(time) <= 2 * SLOTS:
        return time, value
    slot = np.minimum((time * (SLOTS / end)).astype(np.int64), SLOTS - 1)
    first = np.flatnonzero(np.diff(slot, prepend=-1))
    highest = np.lexsort((np.arange(len(time)), -value, slot))[np.searchsorted(slot, slot[first])]
    kept = np.unique(np.concatenate([first, highest, [len(time) - 1]]))
    return time[kept], value[kept]


def progress_figure(history: Columns) -> Figure:
    """Return incumbent and bound over the seconds of the solve; the colour of a mark is that of its method."""
    from plotly.graph_objects import Figure, Scatter

    finite = history.incumbent[np.isfinite(history.incumbent)]
    unit, scale = time_unit(float(finite.max(initial=float(history.bound[np.isfinite(history.bound)].max(initial=0.0)))))
    time = np.maximum(history.time, FIRST_MOMENT)
    figure = Figure()
    marks: dict[str, list[tuple[float, float, str, str]]] = {}
    for name, values, dash, symbol in (("incumbent", history.incumbent, "solid", "circle"), ("bound", history.bound, "dash", "diamond")):
        changes = np.flatnonzero(np.isfinite(values) & (values > 0) & np.append(True, values[1:] != values[:-1]))
        if not len(changes):
            continue
        x, y = time[changes], values[changes] / scale
        figure.add_trace(
            Scatter(
                name=name,
                x=np.append(x, time[-1]),
                y=np.append(y, y[-1]),
                mode="lines",
                hoverinfo="skip",
                legendrank=1,
                line={"color": LINE, "shape": "hv", "width": 1.4, "dash": dash},
            )
        )
        for source, a, b in zip(history.source[changes].tolist(), x.tolist(), y.tolist(), strict=True):
            marks.setdefault(source, []).append((a, b, name, symbol))
    for number, (source, own) in enumerate(marks.items()):
        first, second, kinds, symbols = zip(*own, strict=True)
        figure.add_trace(
            Scatter(
                name=escape(source),
                x=first,
                y=second,
                mode="markers",
                customdata=kinds,
                legendrank=2,
                marker={"color": COLOURS[number % len(COLOURS)], "size": 9, "symbol": symbols, "line": {"color": "white", "width": 1}},
                hovertemplate=f"%{{customdata}} %{{y:.6g}} {unit} by {escape(source)}, after %{{x:.3g}} s<extra></extra>",
            )
        )
    figure.update_layout(**look("seconds since the start of the solve", 360), hovermode="closest", showlegend=True)
    figure.update_xaxes(type="log", tickformat="~g")
    figure.update_yaxes(title=f"makespan, {unit}", rangemode="normal")
    return figure
