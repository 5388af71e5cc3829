"""A Gantt chart by matplotlib: devices as rows, transfers as lines between them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.documents import write_bytes
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.problem.units import seconds, time_unit
from hetsched.report import GANTT_FORMATS, require
from hetsched.report.groups import Groups, fitted, groups, ink, labels
from hetsched.report.pairs import Against, paired, paler
from hetsched.report.tables import schedule_of
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 0.62  # of a bar, where devices are 1 apart
LABEL = 7.0  # points
BUSY = 0.85  # inches, right of the chart, for the utilisation of the devices
FEW = 40  # transfers; up to here they are drawn with stronger lines
MANY = 4000  # shapes; with more, a vector file has them as pixels, and those that no pixel separates are drawn together
SLOTS = 3000  # of the time axis, which is about half as many pixels wide
MOST_NAMES = 24  # in a legend


@checked
def gantt(
    problem: Problem,
    answer: Schedule | Solution,
    *,
    against: Against | None = None,
    ax: Axes | None = None,
    colour_by: str | Sequence[str] = "op",
    transfers: bool = True,
    legend: bool = True,
) -> Axes:
    """Draw a schedule: a row for each device, a bar for each batch, a line for each transfer from producer to consumer.

    Bars wide enough show the name of their task. Right of each row is the share of the makespan in
    which the device is busy. Of more than 4000 batches, those shorter than 1/3000 of the makespan are drawn together, in the
    mean of their colours, paler where the device is idle; of more than 4000 transfers, those whose ends differ by less share
    a line. The chart says so.

    Parameters
    ----------
    problem : Problem
    answer : Schedule or Solution
        A schedule of this problem; it need not be valid.
    against : Schedule, Solution or Timeline, optional
        A second one, for instance the forecast of a run: a paler row below that of each device.
    ax : matplotlib.axes.Axes, optional
        Default: those of a new figure. Names are fitted to the current size. In a figure made by the
        caller ``layout="constrained"`` makes room for the legend.
    colour_by : "op", "module", "cut" or a sequence of str
        Meaning of the colours: operator types, modules by the leading part of the tasks' names,
        modules of the graph (`hetsched.analysis.modules`), or one group name for each task.
    transfers, legend : bool
        Whether to draw transfers, and a legend of the colours right of the chart.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    MissingDependency
        matplotlib is not installed.
    UnsupportedFeature
        `colour_by` is not one of these.
    """
    require("gantt")
    schedule = schedule_of(problem, answer)
    grouping, title = groups(problem, schedule, colour_by), _title(schedule)
    ends = None
    if against is not None:
        schedule, name, makespan, ends = paired(problem, schedule, against)
        title += f", {name} {seconds(makespan)}"
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=_figure_size(schedule), layout="constrained")[1]
    _Drawing(problem, schedule, ax, grouping, title, ends).draw(transfers, legend)
    return ax


@checked
def write_gantt(
    problem: Problem,
    answer: Schedule | Solution,
    path: str | PathLike[str],
    *,
    against: Against | None = None,
    colour_by: str | Sequence[str] = "op",
) -> None:
    """Write the chart of `gantt` as a picture; the name ends in .png, .svg or .pdf."""
    require("gantt")
    suffix = Path(path).suffix.lower()
    if suffix not in GANTT_FORMATS:
        raise UnsupportedFeature(f"no picture can be written to {fspath(path)!r}: its name must end in {', '.join(GANTT_FORMATS)}")
    from matplotlib.figure import Figure

    schedule = schedule_of(problem, answer)
    figure = Figure(figsize=_figure_size(schedule, 1 if against is None else 2), layout="constrained", dpi=150)
    gantt(problem, schedule, against=against, ax=figure.subplots(), colour_by=colour_by)
    picture = io.BytesIO()
    figure.savefig(picture, format=suffix[1:])
    write_bytes(picture.getvalue(), path)


def _figure_size(schedule: Schedule, rows: int = 1) -> tuple[float, float]:
    """Return width and height in inches, for so many rows for each device."""
    return 11.0, 1.7 + 0.55 * len(schedule.devices) * rows


def _title(schedule: Schedule) -> str:
    done = "" if schedule.n_inputs == 1 else f", {schedule.n_inputs} inputs"
    return f"{len(schedule.tasks)} tasks{done}: makespan {seconds(schedule.makespan)}"


class _Drawing:
    def __init__(self, problem: Problem, schedule: Schedule, ax: Axes, grouping: Groups, title: str, ends: FloatArray | None) -> None:
        self.problem, self.schedule, self.ax, self.groups, self.title = problem, schedule, ax, grouping, title
        self.pairs = ends is not None
        """Whether every second row belongs to the device of the row before, and to a second schedule."""
        batches = schedule.batches
        self.end = max(schedule.makespan, float(batches.finish.max(initial=0.0)))
        self.ends = np.full(len(schedule.devices), self.end) if ends is None else ends
        """The makespan of the schedule of each row."""
        self.unit, self.scale = time_unit(self.end)
        self.start, self.finish = batches.start / self.scale, batches.finish / self.scale
        self.tone = grouping.of_task[batches.task]
        self.slot = self.end / self.scale / SLOTS
        self.merged: list[str] = []

    def draw(self, transfers: bool, legend: bool) -> None:
        self._frame()
        if transfers:
            self._transfers()
        self._batches()
        self._names()
        if legend:
            self._legend()
        if self.merged:
            self._remark(f"{' and '.join(sorted(self.merged))} within {seconds(self.end / SLOTS)} are drawn together", 1.0, ha="right")

    def _frame(self) -> None:
        ax, schedule = self.ax, self.schedule
        rows = np.arange(len(schedule.devices))
        ax.set_yticks(rows, [_shown(name) for name in schedule.devices])
        ax.set_ylim(len(rows) - 0.5, -0.5)
        ax.set_xlim(0.0, self.end / self.scale or 1.0)
        ax.set_xlabel(f"time, {self.unit}")
        ax.tick_params(axis="y", length=0)
        for side in ("top", "right", "left"):
            ax.spines[side].set_visible(False)
        ax.grid(axis="x", color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        busy = ax.secondary_yaxis("right")
        shares = np.divide(schedule.busy_time, self.ends, out=np.zeros(len(rows)), where=self.ends > 0)
        busy.set_yticks(rows, [f"{share:.0%} busy" for share in shares.tolist()])
        busy.tick_params(length=0, labelsize=8, labelcolor="#555555")
        busy.spines["right"].set_visible(False)
        ax.set_title(self.title, loc="left", fontsize=10)
        if self.pairs:
            ax.hlines(rows[2::2] - 0.5, *ax.get_xlim(), colors="#dddddd", linewidths=0.8, zorder=0)

    def _batches(self) -> None:
        length = self.finish - self.start
        short = np.zeros(len(length), bool)
        if len(length) > MANY and 0 < self.end < np.inf:
            short = (length >= 0) & (length < self.slot) & (self.start >= 0)
        self._bars(np.flatnonzero(~short))
        if short.any():
            self._strips(np.flatnonzero(short))
            self.merged.append("batches")

    def _bars(self, shown: IntArray) -> None:
        """Draw batches one by one."""
        from matplotlib.collections import PolyCollection
        from matplotlib.colors import to_rgba_array

        row, half = self.schedule.batches.device[shown], HEIGHT / 2
        corners = np.empty((len(row), 4, 2))
        corners[:, :2, 0], corners[:, 2:, 0] = self.start[shown, None], self.finish[shown, None]
        corners[:, [0, 3], 1], corners[:, 1:3, 1] = (row - half)[:, None], (row + half)[:, None]
        # A white edge separates neighbours, where bars are wider than the edge.
        edge = 0.5 if np.median(self._pixels(self.finish - self.start), axis=None) > 3 else 0.0
        faces = to_rgba_array(self.groups.colours)[self.tone[shown]]
        if self.pairs:
            faces[row % 2 == 1, :3] = paler(faces[row % 2 == 1, :3])
        drawn = PolyCollection(corners, facecolors=faces, edgecolors="white" if edge else "none", linewidths=edge, zorder=2)  # type: ignore[arg-type]
        drawn.set_snap(False)  # a bar thinner than a pixel is drawn in a paler colour, not rounded to one pixel or none
        drawn.set_rasterized(len(row) > MANY)
        self.ax.add_collection(drawn)

    def _strips(self, short: IntArray) -> None:
        """Draw batches shorter than a slot of time as a strip for each device: in each slot their mean colour, as opaque as it is busy."""
        from matplotlib.colors import to_rgba_array

        device, start, finish = self.schedule.batches.device[short], self.start[short], self.finish[short]
        slot = np.minimum((start / self.slot).astype(np.int64), SLOTS - 1)
        ahead = np.clip((slot + 1) * self.slot - start, 0.0, finish - start)  # seconds in the slot of the start; the rest is in the next
        cells = (device * SLOTS + slot, device * SLOTS + np.minimum(slot + 1, SLOTS - 1))
        shape = (len(self.schedule.devices), SLOTS)

        def of_cells(weight: FloatArray) -> FloatArray:
            total = np.zeros(shape[0] * SLOTS)
            for cell, length in zip(cells, (ahead, finish - start - ahead), strict=True):
                total += np.bincount(cell, weight * length, len(total))
            return total.reshape(shape)

        colours = to_rgba_array(self.groups.colours)[:, :3]
        busy = of_cells(np.ones(len(short)))
        strips = np.zeros((*shape, 4))
        for channel in range(3):
            strips[:, :, channel] = of_cells(colours[self.tone[short], channel]) / np.where(busy > 0, busy, 1.0)
        strips[:, :, 3] = busy / self.slot
        pixels = np.rint(255 * np.minimum(strips, 1.0)).astype(np.uint8)
        for row in np.flatnonzero(busy.any(axis=1)).tolist():
            place = (0.0, SLOTS * self.slot, row + HEIGHT / 2, row - HEIGHT / 2)
            self.ax.imshow(pixels[row, None], extent=place, aspect="auto", zorder=2)

    def _transfers(self) -> None:
        from matplotlib.collections import LineCollection

        moves, device = self.schedule.transfers, self.schedule.batches.device
        if not len(moves):
            return
        h, k = device[moves.source.astype(np.int64)], device[moves.target.astype(np.int64)]
        side = np.sign(k - h) * HEIGHT / 2
        ends = np.stack(
            [np.column_stack([moves.start / self.scale, h + side]), np.column_stack([moves.finish / self.scale, k - side])], axis=1
        )
        few = len(moves) <= FEW
        opacity: Any = 0.8 * min(1.0, FEW / len(moves)) ** 0.55  # the rows remain visible behind many lines
        if len(moves) > MANY and np.isfinite(ends).all() and self.end > 0:
            ends, number = self._together(ends, h * len(self.schedule.devices) + k)
            if len(ends) < len(moves):
                opacity = 1 - (1 - opacity) ** number  # that of so many lines in the same place
                self.merged.append("transfers")
        drawn = LineCollection(ends, colors="#333333", linewidths=0.9 if few else 0.5, alpha=opacity, zorder=1.5)  # type: ignore[arg-type]
        drawn.set_rasterized(len(moves) > MANY)
        self.ax.add_collection(drawn)
        if few:
            self.ax.scatter(ends[:, 1, 0], ends[:, 1, 1], s=7, color="#333333", zorder=3)  # the ends

    def _together(self, ends: FloatArray, pair: IntArray) -> tuple[FloatArray, IntArray]:
        """Return one line, in their mean place, for all lines of a pair of devices whose ends are in the same slots of time, and
        the number of lines that each replaces."""
        slots = np.clip(ends[:, :, 0] / self.slot, 0, SLOTS).astype(np.int64)
        keys = (pair * (SLOTS + 1) + slots[:, 0]) * (SLOTS + 1) + slots[:, 1]
        _, first, which, number = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        merged = ends[first]
        for end in range(2):
            merged[:, end, 0] = np.bincount(which, ends[:, end, 0], len(first)) / number
        return merged, number

    def _names(self) -> None:
        """Write into each bar as much of its name as fits, or nothing if only a few letters fit."""
        width = self._pixels(self.finish - self.start) * 72 / self.ax.figure.dpi / (LABEL * 0.62)  # in letters
        row, wide = self.schedule.batches.device, np.flatnonzero(width >= 1.5)
        for b, text in zip(wide.tolist(), labels(self.schedule, wide), strict=True):
            text = fitted(text, int(width[b] - 0.5))
            if not text:
                continue
            self.ax.text(
                (self.start[b] + self.finish[b]) / 2,
                row[b],
                _shown(text),
                ha="center",
                va="center",
                fontsize=LABEL,
                clip_on=True,
                zorder=4,
                color=ink(self.groups.colours[self.tone[b]]),
            )

    def _pixels(self, lengths: Any) -> Any:
        """Return the width of time intervals, in the unit of the chart, in pixels."""
        return lengths * self.scale / self.end * self.ax.get_window_extent().width * 0.85 if self.end > 0 else lengths * 0

    def _remark(self, text: str, x: float, **style: Any) -> None:
        """Write a line below the chart, `x` of its width from the left."""
        place: Any = ("axes fraction", "axes points")
        self.ax.annotate(text, (x, -34), xycoords=place, fontsize=8, color="#555555", annotation_clip=False, **style)

    def _legend(self) -> None:
        from matplotlib.patches import Patch
        from matplotlib.transforms import ScaledTranslation

        names = self.groups.names
        if len(names) > MOST_NAMES:
            self._remark(f"{len(names)} {self.groups.title}s, from dark to light in their order", 0.0)
            return
        patches = [Patch(color=colour, label=_shown(name)) for name, colour in zip(names, self.groups.colours, strict=True)]
        if patches:
            self.ax.legend(
                handles=patches,
                title=self.groups.title,
                loc="upper left",
                bbox_to_anchor=(1.0, 1.02),
                fontsize=8,
                title_fontsize=8,
                frameon=False,
                ncols=1 + len(patches) // 9,
                borderaxespad=0.0,
                handlelength=1.0,
                bbox_transform=self.ax.transAxes + ScaledTranslation(BUSY, 0.0, self.ax.figure.dpi_scale_trans),
            )


def _shown(name: str) -> str:
    """Return a name escaped for matplotlib, where a dollar begins mathematics."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name).replace("$", r"\$")
