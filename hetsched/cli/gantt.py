"""A Gantt chart in characters: a row for each device, time to the right, transfers below the device that receives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import one_line
from hetsched.problem.units import seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from hetsched.schedule.schedule import Schedule

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")
OTHER = "default"  # the terminal's own text colour, which is visible on dark and on light backgrounds
_INK = {"blue": "white on blue", OTHER: "reverse"}  # style of a name on a colour, where it is not black
NAMED = 4  # cells; a batch at least this long is drawn by itself, with its name
SHORT = 8  # cells; a name cut to fewer keeps its start only
MOST_DEVICES = 24
_RIGHT = 7  # cells of the right column: utilisation of a device, number of transfers to it
_OPERATOR = 20  # the most cells of an operator's name in the legend


@dataclass(frozen=True)
class Marks:
    """The characters of a chart: shades of a cell from light to full, a transfer and its arrival."""

    shades: str
    moving: str
    arrived: str
    tick: str
    rule: str
    cut: str


UNICODE = Marks("░▒▓█", "·", "▾", "┬", "─", "…")
ASCII = Marks(".:*#", "-", "v", "+", "-", "~")


def gantt(schedule: Schedule, console: Console, ops: Sequence[str] | None = None) -> Iterator[Text]:
    """Yield the lines of the chart and its legend, fitted to the console's width, colours and encoding.

    Parameters
    ----------
    schedule : Schedule
    console : rich.console.Console
        The console that will print it, at least 40 columns wide; it may lack colours.
    ops : sequence of str, optional
        Operator type per task, which colours the batches.
    """
    from rich.text import Text

    chart = _Chart(schedule, console, ops)
    busiest = sorted(np.argsort(-schedule.busy_time, kind="stable")[:MOST_DEVICES].tolist())
    for k in busiest:
        yield chart.batches(k)
        arrivals = chart.arrivals(k)
        if arrivals is not None:
            yield arrivals
    if len(schedule.devices) > len(busiest):
        yield Text(f"and {len(schedule.devices) - len(busiest)} less busy devices")
    yield from chart.axis()
    yield from chart.legend()


def _fitted(text: str, width: int, cut: str, fill: str = " ") -> str:
    """Return the text in exactly `width` cells: filled at its end, or cut in its middle, for names differ at either end."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width and width < SHORT:
        text = set_cell_size(text[: 4 * width], width).rstrip()
    elif cell_len(text) > width:
        head = set_cell_size(text[: 4 * width], (width - 1) // 2).rstrip()
        tail = text[-width:]
        while cell_len(tail) > width - 1 - cell_len(head):
            tail = tail[1:]
        text = head + cut + tail
    return text + fill * (width - cell_len(text))


class _Chart:
    def __init__(self, schedule: Schedule, console: Console, ops: Sequence[str] | None) -> None:
        from rich.cells import cell_len

        self.schedule, self.columns, self.encoding = schedule, console.width, console.encoding
        self.colour = console.color_system is not None and not console.no_color
        self.marks = UNICODE if self.encoding.startswith("utf") else ASCII
        self.names = [self._printable(name) for name in schedule.devices]
        self.label = min(max(map(cell_len, self.names)), max(8, min(24, self.columns // 5)))
        self.width = max(20, self.columns - self.label - _RIGHT - 2)
        self.end = max(schedule.makespan, float(schedule.batches.finish.max(initial=0.0)))
        self.edges = np.linspace(0.0, self.end, self.width + 1)
        self.ops = list(ops) if ops is not None else [""] * len(schedule.tasks)
        self.palette = self._palette()
        self.named = False  # whether a batch has been drawn with its name

    def _printable(self, name: str) -> str:
        """Return a name on one line, with characters outside the encoding escaped, so that its width is final."""
        return one_line(name).encode(self.encoding, "backslashreplace").decode(self.encoding)

    def _palette(self) -> dict[str, str]:
        """Return the colours of the operator types that take the most time."""
        batches, time = self.schedule.batches, dict.fromkeys(self.ops, 0.0)
        for task, length in zip(batches.task.tolist(), (batches.finish - batches.start).tolist(), strict=True):
            time[self.ops[task]] += length
        longest = sorted((op for op in time if op and time[op] > 0), key=lambda op: -time[op])
        return dict(zip(longest, COLOURS, strict=False))

    def _row(self, label: str, cells: list[tuple[str, str]], right: str) -> Text:
        from rich.text import Text

        text = Text(f"{_fitted(label, self.label, self.marks.cut)} ", no_wrap=True, overflow="crop")
        for style, run in groupby(cells, key=lambda cell: cell[1] if self.colour else ""):
            text.append("".join(mark for mark, _ in run), style)
        return text.append(f" {right:>{_RIGHT}}")

    def _share(self, start: FloatArray, finish: FloatArray) -> FloatArray:
        """Return the share of each cell that the union of the intervals covers."""
        if not len(start) or self.end <= 0:
            return np.zeros(self.width)
        order = np.argsort(start, kind="stable")
        start, finish = start[order], np.maximum.accumulate(finish[order])
        start = np.maximum(start, np.concatenate([[0.0], finish[:-1]]))  # the union as disjoint intervals
        length = np.maximum(finish - start, 0.0)
        times = np.stack([start, start + length], axis=1).ravel()
        covered = np.cumsum(np.stack([np.zeros(len(length)), length], axis=1).ravel())
        shares: FloatArray = np.diff(np.interp(self.edges, times, covered, left=0.0)) * (self.width / self.end)
        return shares

    def batches(self, k: int) -> Text:
        """Return the row of a device: shades for its utilisation, long batches by name."""
        rows = self.schedule.batches
        here = rows.device == k
        task, start, finish = rows.task[here], rows.start[here], rows.finish[here]
        share = self._share(start, finish)
        tones = [*self.palette.values(), OTHER]
        tone_of = np.array([tones.index(self.palette.get(self.ops[i], OTHER)) for i in task.tolist()], np.int64)
        shares = np.stack([self._share(start[tone_of == c], finish[tone_of == c]) for c in range(len(tones))])
        shades = " " + self.marks.shades
        level = np.ceil(np.clip(share, 0.0, 1.0) * len(self.marks.shades) - 1e-6).astype(np.int64)
        tops = shares.argmax(axis=0).tolist()
        cells = [(shades[depth], tones[tone] if depth else "") for depth, tone in zip(level.tolist(), tops, strict=True)]
        if self.end > 0:
            first = np.round(start * self.width / self.end).astype(np.int64)
            last = np.round(finish * self.width / self.end).astype(np.int64)
            for b in np.flatnonzero(last - first >= NAMED).tolist():
                a, z = int(first[b]), int(last[b])
                bar = self._bar(self.schedule.tasks[int(task[b])], z - a)
                tone = tones[int(tone_of[b])]
                style = _INK.get(tone, f"black on {tone}")
                self.named = True
                cells[a:z] = [(bar, style), *[("", style)] * (z - a - 1)]  # wide characters take two cells
        busy = float(self.schedule.busy_time[k]) / self.end if self.end > 0 else 0.0
        return self._row(self.names[k], cells, f"{busy:.0%}")

    def _bar(self, name: str, width: int) -> str:
        return f"[{_fitted(self._printable(name), width - 2, self.marks.cut, ' ' if self.colour else '=')}]"

    def arrivals(self, k: int) -> Text | None:
        """Return the row of the transfers to a device: a trail for their duration, a mark at their end."""
        moves = self.schedule.transfers
        here = self.schedule.batches.device[moves.target] == k
        if not here.any() or self.end <= 0:
            return None
        moving = self._share(moves.start[here], moves.finish[here]) > 0
        arrived = np.zeros(self.width, bool)
        arrived[np.minimum((moves.finish[here] * self.width / self.end).astype(np.int64), self.width - 1)] = True
        marks = np.where(arrived, self.marks.arrived, np.where(moving, self.marks.moving, " "))
        count = int(here.sum())
        return self._row("", [("".join(marks.tolist()), "dim")], f"{count if count < 10_000 else f'{count // 1000}k'} in")

    def axis(self) -> Iterator[Text]:
        """Yield the time axis: ticks at the quarters, or at the halves if it is short, with the times below."""
        parts = 0 if self.end <= 0 else 2 if self.width < 48 else 4
        shares = [part / max(1, parts) for part in range(parts + 1)]
        ticks = [round(share * (self.width - 1)) for share in shares]
        ruler, line = [self.marks.rule] * self.width, [" "] * self.width
        for tick, share in zip(ticks, shares, strict=True):
            text = seconds(self.end * share)
            at = min(max(0, tick - len(text) // 2), self.width - len(text))
            ruler[tick], line[at : at + len(text)] = self.marks.tick, text
        yield self._row("", [("".join(ruler), "")], "")
        yield self._row("", [("".join(line), "")], "busy")

    def legend(self) -> Iterator[Text]:
        """Yield the lines that explain the colours and the marks drawn so far."""
        if self.colour and self.palette:
            names = {op: _fitted(name := self._printable(op), min(_OPERATOR, len(name)), self.marks.cut).rstrip() for op in self.palette}
            rest = [("other", OTHER)] if set(self.ops) - set(self.palette) else []
            colours = [*((names[op], tone) for op, tone in self.palette.items()), *rest]
            yield from self._flowing((f"{self.marks.shades[-1]} ", name, tone) for name, tone in colours)
        if self.end > 0:
            used = [(f"{self.marks.shades} ", "how busy")]
            used += [(f"{self._bar('name', 8)} ", "a long task")] * self.named
            if len(self.schedule.transfers):
                used += [(f"{self.marks.moving} ", "data coming in"), (f"{self.marks.arrived} ", "arrived")]
            yield from self._flowing((mark, meaning, "") for mark, meaning in used)

    def _flowing(self, entries: Iterable[tuple[str, str, str]]) -> Iterator[Text]:
        """Yield lines of entries (mark, meaning, style), as many on a line as fit."""
        from rich.text import Text

        line = Text(no_wrap=True)
        for mark, meaning, style in entries:
            entry = Text.assemble((mark, style), meaning)
            if line.cell_len and line.cell_len + 2 + entry.cell_len > self.columns:
                yield line
                line = Text(no_wrap=True)
            line = Text.assemble(line, "  ", entry) if line.cell_len else entry
        if line.cell_len:
            yield line
