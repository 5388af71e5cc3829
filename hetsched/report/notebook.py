"""Values as pieces of HTML for notebooks: facts, a Gantt chart and tables, without scripts, requests or optional libraries.

``_repr_html_`` of `TaskGraph`, `Cluster`, `Problem`, `Schedule` and `Solution` calls them. They are dark where the notebook is: by the
theme of JupyterLab, VS Code or Colab, otherwise by the system's. What is left out of a large value is said in a line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph, plural
from hetsched.problem.problem import Problem
from hetsched.problem.units import percent, seconds, size, time_unit
from hetsched.report.groups import COLOURS, by_module, fitted, ink, labels
from hetsched.report.tables import method_table
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import Solution

MOST_ROWS, MOST_DEVICES = 10, 8
"""Rows of a table, and devices that have a column each; further ones are counted."""
MOST_LANES, MOST_BARS, MOST_LINES = 16, 300, 100
"""Devices, batches and transfers in a chart."""
_LABELS, _WIDE, _BUSY, _ROW, _BAR, _LETTER = 96.0, 600.0, 70.0, 24.0, 17.0, 6.3  # pixels
_LIGHT = "--ink:#222;--dim:#5a5a5a;--paper:#fff;--line:#ddd;--track:#f1f1f1;--good:#0072b2"
_DARK = "--ink:#e4e4e4;--dim:#a8a8a8;--paper:#1c1c1c;--line:#444;--track:#2e2e2e;--good:#56b4e9"
_THEMES = (
    ('[data-jp-theme-light="true"]', '[data-jp-theme-light="false"]'),
    ('[data-theme="light"]', '[data-theme="dark"]'),
    ("[theme=light]", "[theme=dark]"),
    ("body.vscode-light", "body.vscode-dark"),
)
"""Selectors of light and dark notebooks: JupyterLab, pages of Sphinx, Colab, VS Code."""
_IN_LIGHT, _IN_DARK = (",".join(f"{selector} .hetsched" for selector in column) for column in zip(*_THEMES, strict=True))
_STYLE = f"""<style>
.hetsched{{{_LIGHT};color:var(--ink);background:var(--paper);font:13px/1.45 system-ui,sans-serif;padding:6px 10px;max-width:800px}}
@media(prefers-color-scheme:dark){{.hetsched{{{_DARK}}}}}
{_IN_LIGHT}{{{_LIGHT}}}
{_IN_DARK}{{{_DARK}}}
.hetsched p{{margin:2px 0 6px;color:var(--dim)}} .hetsched p b{{color:var(--ink)}}
.hetsched .wide{{overflow-x:auto;margin:0 0 6px}}
.hetsched table{{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:0;color:var(--ink);background:none;border:0}}
.hetsched tr,.hetsched tbody tr:nth-child(n){{background:none}}
.hetsched td,.hetsched th{{text-align:right;padding:1px 14px 1px 0;border:0;border-bottom:1px solid var(--line);white-space:nowrap}}
.hetsched th{{color:var(--dim);font-weight:600}} .hetsched .t{{text-align:left}}
.hetsched svg{{display:block;max-width:100%;height:auto;font:11px system-ui,sans-serif}} .hetsched svg text{{fill:var(--ink)}}
.hetsched svg .d{{fill:var(--dim)}} .hetsched .track{{fill:var(--track)}} .hetsched .bar{{stroke:var(--paper);stroke-width:.7}}
.hetsched .move{{stroke:var(--ink);stroke-width:.8;opacity:.55}}
.hetsched .good{{fill:var(--good)}}
.hetsched .rest{{fill:var(--dim);opacity:.45}}
</style>"""


def _piece(*parts: str) -> str:
    return f'<div class="hetsched">{_STYLE}{"".join(parts)}</div>'


def _line(title: str, *facts: str) -> str:
    return f"<p><b>{escape(title)}</b> {escape(', '.join(filter(None, facts)))}</p>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1, more: str = "") -> str:
    """Return a table whose first `text` columns are text, and below it a line about the rows that it leaves out."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{' class=t' if i < text else ''}>{escape(c)}</{tag}>" for i, c in enumerate(cells)) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    left_out = f"<p>{escape(more)}</p>" if more else ""
    return f'<div class="wide"><table><thead>{row(heads, "th")}</thead><tbody>{body}</tbody></table></div>{left_out}'


def _more(count: int, noun: str) -> str:
    return f"and {plural(count, f'more {noun}')}" if count > 0 else ""


def _count(number: float) -> str:
    """Return a number of operations with a prefix: ``4.1 G``."""
    if not np.isfinite(number):
        return "-"
    scale, prefix = next(((s, p) for s, p in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")) if number >= s), (1.0, ""))
    return f"{number / scale:.4g} {prefix}".rstrip()


def _sum(values: FloatArray) -> float:
    """Return the sum of what is known, NaN if nothing is."""
    known = values[~np.isnan(values)]
    return float(known.sum()) if len(known) else np.nan


@checked
def graph_html(graph: TaskGraph) -> str:
    """Return a task graph as HTML: its totals, and its operators or, if they have no types, its tasks."""
    total = _count(_sum(graph.flops))
    facts = (plural(graph.n_tasks, "task"), plural(graph.n_edges, "edge"), f"{size(graph.weight_bytes.sum())} of weights")
    head = _line("TaskGraph", *facts, "" if total == "-" else f"{total}FLOP" if total[-1:].isalpha() else f"{total} FLOP")
    heads = ("FLOP", "weights", "output")
    columns = (graph.flops, graph.weight_bytes, graph.output_bytes)
    if not any(graph.op):
        first = range(min(graph.n_tasks, MOST_ROWS))
        rows = [(graph.names[i], *_amounts(*(column[i : i + 1] for column in columns))) for i in first]
        return _piece(head, _table(("task", *heads), rows, 1, _more(graph.n_tasks - len(rows), "task")))
    often = Counter(graph.op).most_common()
    of = np.array(graph.op, dtype=object)
    totals = [(op or "none", str(number), *_amounts(*(column[of == op] for column in columns))) for op, number in often[:MOST_ROWS]]
    return _piece(head, _table(("operator", "tasks", *heads), totals, 1, _more(len(often) - len(totals), "operator")))


def _amounts(flops: FloatArray, *sizes: FloatArray) -> Iterator[str]:
    yield _count(_sum(flops))
    yield from (size(float(column.sum())) for column in sizes)


@checked
def cluster_html(cluster: Cluster) -> str:
    """Return a cluster as HTML: its devices, and its links."""
    count = cluster.n_devices
    return _piece(_line("Cluster", plural(count, "device")), _devices(cluster), _links(cluster) if count > 1 else "")


def _devices(cluster: Cluster, heads: Sequence[str] = (), columns: Sequence[Sequence[str]] = ()) -> str:
    rows = []
    for k, one in enumerate(cluster.devices[:MOST_LANES]):
        best = max(one.peak_flops.items(), key=lambda pair: pair[1], default=None)
        peak = "-" if best is None else f"{_count(best[1])}FLOP/s {best[0]}"
        speed = "-" if one.memory_bandwidth is None else f"{size(one.memory_bandwidth)}/s"
        rows.append((one.name, one.kind, one.node, size(one.memory_bytes), speed, peak, *(column[k] for column in columns)))
    named = ("device", "kind", "node", "memory", "its bandwidth", "highest peak", *heads)
    empty = [i for i in (1, 2, 4, 5) if all(row[i] in ("", "-") for row in rows)]
    kept = [i for i in range(len(named)) if i not in empty]
    text = sum(i < 3 for i in kept)
    shown = [[row[i] for i in kept] for row in rows]
    return _table([named[i] for i in kept], shown, text, _more(cluster.n_devices - len(rows), "device"))


def _links(cluster: Cluster) -> str:
    apart = ~np.eye(cluster.n_devices, dtype=bool)
    bandwidth, latency = cluster.bandwidth[apart], cluster.latency[apart]
    if (bandwidth == bandwidth[0]).all() and (latency == latency[0]).all():
        return _line("Links", f"{_speed(bandwidth[0])} between each two devices, latency {seconds(latency[0])}")
    shown = range(min(cluster.n_devices, MOST_DEVICES))

    def link(h: int, k: int) -> str:
        bandwidth = cluster.bandwidth[h, k]
        return "" if h == k else f"{_speed(bandwidth)}, {seconds(cluster.latency[h, k])}" if bandwidth else _speed(bandwidth)

    rows = [(cluster.names[h], *(link(h, k) for k in shown)) for h in shown]
    left_out = cluster.n_devices - len(rows)
    return _table(("from / to", *(cluster.names[k] for k in shown)), rows, 1, _more(left_out, "device"))


def _speed(bandwidth: float) -> str:
    return "no link" if bandwidth == 0 else "unlimited" if np.isinf(bandwidth) else f"{size(bandwidth)}/s"


@checked
def problem_html(problem: Problem) -> str:
    """Return a problem as HTML: its rules, its devices with what they can run, and the durations of its first tasks."""
    rules = (f"communication {problem.communication}", f"memory {problem.memory}")
    several = f"{problem.inputs} inputs, batching {problem.batching}" if problem.inputs > 1 else ""
    facts = (plural(problem.n_tasks, "task"), plural(problem.graph.n_edges, "edge"), plural(problem.n_devices, "device"), several, *rules)
    times = problem.durations[:, :, 0]
    can = [str(number) for number in problem.eligible.sum(axis=0).tolist()]
    own = [seconds(float(np.nansum(times[:, k]))) if n != "0" else "-" for k, n in enumerate(can)]
    shown, first = problem.cluster.names[:MOST_DEVICES], range(min(problem.n_tasks, MOST_ROWS))
    texts = [problem.graph.names, problem.graph.op] if any(problem.graph.op) else [problem.graph.names]
    rows = [(*(column[i] for column in texts), *map(seconds, times[i, : len(shown)].tolist())) for i in first]
    each = f"a batch of {problem.batch_sizes[0]}" if problem.batch_sizes[0] > 1 else "a task"
    where = "each device" if problem.n_devices == len(shown) else f"the first {len(shown)} of {problem.n_devices} devices"
    return _piece(
        _line("Problem", *facts),
        _devices(problem.cluster, ("can run", "all of them"), (can, own)),
        f"<p>time of {each} on {where}:</p>" if rows else "",
        _table((*("task", "operator")[: len(texts)], *shown), rows, len(texts), _more(problem.n_tasks - len(rows), "task")) if rows else "",
    )


@checked
def schedule_html(schedule: Schedule) -> str:
    """Return a schedule as HTML: its Gantt chart, and the first batches."""
    inputs = "" if schedule.n_inputs == 1 else plural(schedule.n_inputs, "input")
    facts = (f"makespan {seconds(schedule.makespan)}", f"{len(schedule.batches)} batches", inputs)
    return _piece(_line("Schedule", *facts, plural(len(schedule.transfers), "transfer")), _gantt(schedule), _batches(schedule))


def _batches(schedule: Schedule) -> str:
    batches = schedule.batches
    order = np.lexsort((batches.finish, batches.start))[:MOST_ROWS]
    times = ([seconds(value) for value in column[order].tolist()] for column in (batches.start, batches.finish))
    devices = [schedule.devices[k] for k in batches.device[order].tolist()]
    rows = list(zip(labels(schedule, order), devices, *times, strict=True))
    more = f"and {len(batches) - len(rows)} more; schedule.to_dataframe() has all" if len(batches) > len(rows) else ""
    return _table(("first batches", "device", "start", "finish"), rows, 2, more) if rows else ""


@checked
def solution_html(solution: Solution) -> str:
    """Return a solution as HTML: its value beside its bound, the Gantt chart, and the methods that ran."""
    head = _line(f"Solution: {solution.status}", f"by {solution.method}", f"ended: {solution.stopped}")
    proof = solution.proof
    if solution.schedule is None:
        best = "" if not np.isfinite(solution.bound) or solution.bound <= 0 else f"no schedule is below {seconds(solution.bound)}"
        notes = [proof.evidence if np.isinf(proof.value) else best, *solution.messages]
        return _piece(head, *(f"<p>{escape(note)}</p>" for note in notes[:MOST_ROWS] if note))
    ran = method_table(solution)
    rows = [(row["method"], seconds(row["makespan"]), percent(row["gap"]), seconds(row["seconds"])) for row in ran][:MOST_ROWS]
    several = _table(("method", solution.objective, "gap", "took"), rows, 1, _more(len(ran) - len(rows), "method")) if len(rows) > 1 else ""
    return _piece(head, _gap(solution), _gantt(solution.schedule), several)


def _gap(solution: Solution) -> str:
    """Return the value, the bound as a part of it, and the gap."""
    share = 0.0 if not solution.value > 0 else min(1.0, max(0.0, solution.bound / solution.value))
    proof = f"bound {seconds(solution.bound)} ({solution.proof.name})"
    text = f"{solution.objective} {seconds(solution.value)}, {proof}, gap {percent(solution.gap)}"
    bar = f'<rect class="track" width="{_WIDE:g}" height="5" rx="2"/><rect class="good" width="{_WIDE * share:.1f}" height="5" rx="2"/>'
    return f'<p><b>{escape(text)}</b></p><svg viewBox="0 0 {_WIDE:g} 9" width="{_WIDE:g}" height="9" role="img">{bar}</svg>'


def _gantt(schedule: Schedule) -> str:
    """Return the chart of a schedule as SVG, and a line about what it leaves out."""
    batches, moves = schedule.batches, schedule.transfers
    lanes = min(len(schedule.devices), MOST_LANES)
    drawn = np.flatnonzero(np.isfinite(batches.start) & np.isfinite(batches.finish) & (batches.device < lanes))
    end = float(batches.finish[drawn].max(initial=0.0))
    if not end > 0:
        return "<p>nothing takes time</p>" if len(batches) else "<p>it has no batches</p>"
    longest = drawn[np.argsort(batches.start[drawn] - batches.finish[drawn], kind="stable")]
    drawn, rest = np.sort(longest[:MOST_BARS]), longest[MOST_BARS:]
    start, finish, device = batches.start * (_WIDE / end), batches.finish * (_WIDE / end), batches.device
    parts = []
    for k, (name, busy) in enumerate(zip(schedule.devices[:lanes], schedule.busy_time.tolist(), strict=False)):
        grey = rest[device[rest] == k]
        parts += [_lane(k, name, f"{busy / end:.0%} busy"), _occupied(k, start[grey], finish[grey])]
    groups = by_module(schedule)
    colours = groups.colours if len(groups.colours) > 1 else COLOURS
    for b, text in zip(drawn.tolist(), labels(schedule, drawn), strict=True):
        told = f"{text}: {seconds(float(batches.start[b]))} to {seconds(float(batches.finish[b]))}"
        parts.append(_bar(device[b], start[b], finish[b], colours[groups.of_task[batches.task[b]]], text, told))
    ends = [device[moves[end].astype(np.int64)] for end in ("source", "target")]
    lines = np.column_stack([moves.start * (_WIDE / end), moves.finish * (_WIDE / end), *ends])
    lines = lines[np.isfinite(lines).all(axis=1) & (lines[:, 2:] < lanes).all(axis=1)]
    if len(lines) <= MOST_LINES:
        parts += [_move(*line) for line in lines.tolist()]
    unit, one = time_unit(end)
    for i in range(5):
        x, anchor = _LABELS + _WIDE * i / 4, "middle" if i else "start"
        parts.append(f'<text class="d" x="{x:g}" y="{lanes * _ROW + 12:g}" text-anchor="{anchor}">{end * i / 4 / one:.3g} {unit}</text>')
    notes = [f"the {len(rest)} shorter batches are grey"] if len(rest) else []
    notes += [f"{plural(len(schedule.devices) - lanes, 'more device')} left out"] if lanes < len(schedule.devices) else []
    notes += [f"{plural(len(lines), 'transfer')} left out"] if len(lines) > MOST_LINES else []
    wide, high = _LABELS + _WIDE + _BUSY, lanes * _ROW + 18
    told = f"<p>{escape('; '.join(notes))}</p>" if notes else ""
    return f'<svg viewBox="0 0 {wide:g} {high:g}" width="{wide:g}" height="{high:g}" role="img">{"".join(parts)}</svg>{told}'


def _top(device: int) -> float:
    """Return the upper edge of the bars of a device."""
    return device * _ROW + (_ROW - _BAR) / 2


def _lane(device: int, name: str, busy: str) -> str:
    """Return the row of a device: its name, its track, and its share of the time."""
    label, base = escape(fitted(name, int(_LABELS / _LETTER) - 1) or name[:1]), _top(device) + _BAR - 4.5
    return (
        f'<text x="{_LABELS - 8:g}" y="{base:g}" text-anchor="end">{label}<title>{escape(name)}</title></text>'
        f'<rect class="track" x="{_LABELS:g}" y="{_top(device):g}" width="{_WIDE:g}" height="{_BAR:g}"/>'
        f'<text class="d" x="{_LABELS + _WIDE + 8:g}" y="{base:g}">{busy}</text>'
    )


def _bar(device: int, start: float, finish: float, colour: str, text: str, told: str) -> str:
    """Return the bar of a batch, with as much of its name as fits, and a line that appears under the pointer."""
    x, wide, top = _LABELS + start, max(finish - start, 0.3), _top(device)
    place = f'x="{x:.1f}" y="{top:g}" width="{wide:.1f}" height="{_BAR:g}" fill="{colour}"'
    short = escape(fitted(text, int(wide / _LETTER - 0.5)))
    style = f'text-anchor="middle" style="fill:{ink(colour)};pointer-events:none"'
    name = f'<text x="{x + wide / 2:.1f}" y="{top + _BAR - 4.5:g}" {style}>{short}</text>' if short else ""
    return f'<rect class="bar" {place}><title>{escape(told)}</title></rect>{name}'


def _move(start: float, finish: float, source: float, target: float) -> str:
    """Return the line of a transfer between the facing edges of two rows."""
    side = np.sign(target - source) * _BAR / 2
    begin = f'x1="{_LABELS + start:.1f}" y1="{(source + 0.5) * _ROW + side:g}"'
    return f'<line class="move" {begin} x2="{_LABELS + finish:.1f}" y2="{(target + 0.5) * _ROW - side:g}"/>'


def _occupied(device: int, start: FloatArray, finish: FloatArray) -> str:
    """Return what some batches of a device cover, in whole pixels, as a grey shape."""
    steps = np.zeros(int(_WIDE) + 2, np.int64)
    np.add.at(steps, np.clip(np.floor(start), 0, _WIDE).astype(np.int64) + 1, 1)
    np.add.at(steps, np.clip(np.ceil(finish), 0, _WIDE).astype(np.int64) + 1, -1)
    ends = np.flatnonzero(np.diff(np.cumsum(steps) > 0)).reshape(-1, 2).tolist()
    runs = "".join(f"M{_LABELS + begin:g} {_top(device):g}h{end - begin}v{_BAR:g}h{begin - end}z" for begin, end in ends)
    return f'<path class="rest" d="{runs}"/>' if runs else ""
