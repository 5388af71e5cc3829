"""A Gantt chart in characters: devices as rows, time to the right, transfers hinted below the device they reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hetsched.cli.terminal import one_line, seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from hetsched.schedule.schedule import Schedule

Floats = npt.NDArray[np.float64]
COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")
OTHER = "white"
NAMED = 4  # a batch this many cells long is drawn on its own, with its name
MOST_DEVICES = 24


@dataclass(frozen=True)
class Marks:
    """The characters of a chart: shares of a cell from little to all, a transfer and its arrival."""

    shades: str
    moving: str
    arrived: str
    tick: str


UNICODE = Marks("░▒▓█", "·", "▾", "┬")
ASCII = Marks(".-+#", "-", "v", "+")


def gantt(schedule: Schedule, console: Console, ops: Sequence[str] | None = None) -> Iterator[Text]:
    """Yield the lines of the chart, fitted to a console's width, colours and encoding.

    Parameters
    ----------
    schedule : Schedule
    console : rich.console.Console
        Where it will be printed; without colour the shapes alone carry the meaning.
    ops : sequence of str, optional
        Operator type per task, which colours the batches.
    """
    from rich.text import Text

    colour = console.color_system is not None and not console.no_color
    chart = _Chart(schedule, console.width, UNICODE if console.encoding.startswith("utf") else ASCII, colour, ops)
    busiest = sorted(np.argsort(-schedule.busy_time, kind="stable")[:MOST_DEVICES].tolist())
    for k in busiest:
        yield chart.batches(k)
        arrivals = chart.arrivals(k)
        if arrivals is not None:
            yield arrivals
    if len(schedule.devices) > len(busiest):
        yield Text(f"and {len(schedule.devices) - len(busiest)} less busy devices")
    yield from chart.axis()
    if colour and chart.palette:
        yield Text.assemble(*((f"█ {op or 'other'}  ", tone) for op, tone in chart.legend()))


class _Chart:
    def __init__(self, schedule: Schedule, width: int, marks: Marks, colour: bool, ops: Sequence[str] | None) -> None:
        self.schedule, self.marks, self.colour = schedule, marks, colour
        self.names = [one_line(name) for name in schedule.devices]
        self.label = min(12, max(map(len, self.names)))
        self.width = max(20, width - self.label - 9)
        self.end = max(schedule.makespan, float(schedule.batches.finish.max(initial=0.0)))
        self.edges = np.linspace(0.0, self.end, self.width + 1)
        self.ops = list(ops) if ops is not None else [""] * len(schedule.tasks)
        self.palette = self._palette()

    def _palette(self) -> dict[str, str]:
        """Return a colour for each of the operator types that take the most time."""
        batches, time = self.schedule.batches, dict.fromkeys(self.ops, 0.0)
        for task, length in zip(batches.task.tolist(), (batches.finish - batches.start).tolist(), strict=True):
            time[self.ops[task]] += length
        longest = sorted((op for op in time if op and time[op] > 0), key=lambda op: -time[op])
        return dict(zip(longest, COLOURS, strict=False))

    def legend(self) -> list[tuple[str, str]]:
        """Return the operator types and their colours, what the palette leaves out under an empty name."""
        rest = set(self.ops) - set(self.palette)
        return [*self.palette.items(), *([("", OTHER)] if rest else [])]

    def _row(self, label: str, cells: list[tuple[str, str]], right: str) -> Text:
        from rich.text import Text

        text = Text(f"{label[: self.label]:<{self.label}} ", no_wrap=True, overflow="crop")
        for style, run in groupby(cells, key=lambda cell: cell[1] if self.colour else ""):
            text.append("".join(mark for mark, _ in run), style)
        return text.append(f" {right:>7}")

    def _share(self, start: Floats, finish: Floats) -> Floats:
        """Return which share of each cell the intervals cover, counted once each where they overlap."""
        if not len(start) or self.end <= 0:
            return np.zeros(self.width)
        order = np.argsort(start, kind="stable")
        start, finish = start[order], np.maximum.accumulate(finish[order])
        start = np.maximum(start, np.concatenate([[0.0], finish[:-1]]))  # the union as disjoint intervals
        length = np.maximum(finish - start, 0.0)
        times = np.stack([start, start + length], axis=1).ravel()
        covered = np.cumsum(np.stack([np.zeros(len(length)), length], axis=1).ravel())
        shares: Floats = np.diff(np.interp(self.edges, times, covered, left=0.0)) * (self.width / self.end)
        return shares

    def batches(self, k: int) -> Text:
        """Return the row of a device: shades of how busy it is, long batches by name."""
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
                a, z, tone = int(first[b]), int(last[b]), tones[int(tone_of[b])]
                name = one_line(self.schedule.tasks[int(task[b])])[: z - a - 2]
                bar = f"[{name:{'=' if not self.colour else ' '}<{z - a - 2}}]"
                cells[a:z] = [(mark, f"black on {tone}") for mark in bar]
        busy = float(self.schedule.busy_time[k]) / self.end if self.end > 0 else 0.0
        return self._row(self.names[k], cells, f"{busy:.0%}")

    def arrivals(self, k: int) -> Text | None:
        """Return the row of what reaches a device: a trail while it moves, a mark where it arrives."""
        moves = self.schedule.transfers
        here = self.schedule.batches.device[moves.target] == k
        if not here.any() or self.end <= 0:
            return None
        moving = self._share(moves.start[here], moves.finish[here]) > 0
        arrived = np.zeros(self.width, bool)
        arrived[np.minimum((moves.finish[here] * self.width / self.end).astype(np.int64), self.width - 1)] = True
        marks = np.where(arrived, self.marks.arrived, np.where(moving, self.marks.moving, " "))
        return self._row("", [("".join(marks.tolist()), "dim")], f"{int(here.sum())} in")

    def axis(self) -> Iterator[Text]:
        """Yield the time axis: ticks at the quarters, times below them."""
        ticks = [round(quarter * (self.width - 1) / 4) for quarter in range(5)]
        ruler = ["-" if self.marks is ASCII else "─"] * self.width
        for tick in ticks:
            ruler[tick] = self.marks.tick
        yield self._row("", [("".join(ruler), "")], "")
        texts = [seconds(self.end * quarter / 4) for quarter in range(5)]
        line = [" "] * self.width
        for tick, text in zip(ticks, texts, strict=True):
            at = min(max(0, tick - len(text) // 2), self.width - len(text))
            line[at : at + len(text)] = text
        yield self._row("", [("".join(line), "")], "busy")
