"""A Gantt chart by matplotlib: devices as rows, transfers as lines between them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.arguments import checked
from hetsched.documents import write_bytes
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.report import GANTT_FORMATS, require
from hetsched.report.groups import Groups, groups, ink, labels
from hetsched.report.tables import schedule_of
from hetsched.report.units import seconds, time_unit
from hetsched.schedule.schedule import Schedule
from hetsched.search.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 0.62  # of a bar, where devices are 1 apart
LABEL = 7.0  # points
BUSY = 0.85  # inches, right of the chart, for the utilisation of the devices
FEW = 40  # transfers; up to here they are drawn with stronger lines
MANY = 4000  # shapes; with more, a vector file has them as pixels
MOST_NAMES = 24  # in a legend


@checked
def gantt(
    problem: Problem,
    answer: Schedule | Solution,
    *,
    ax: Axes | None = None,
    colour_by: str | Sequence[str] = "op",
    transfers: bool = True,
    legend: bool = True,
) -> Axes:
    """Draw a schedule: a row for each device, a bar for each batch, a line for each transfer from producer to consumer.

    Bars wide enough show the name of their task. Right of each row is the share of the makespan in
    which the device is busy.

    Parameters
    ----------
    problem : Problem
    answer : Schedule or Solution
        A schedule of this problem; it need not be valid.
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
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=_figure_size(schedule), layout="constrained")[1]
    _Drawing(problem, schedule, ax, groups(problem, schedule, colour_by)).draw(transfers, legend)
    return ax


@checked
def write_gantt(problem: Problem, answer: Schedule | Solution, path: str | PathLike[str], *, colour_by: str | Sequence[str] = "op") -> None:
    """Write the chart of `gantt` as a picture; the name ends in .png, .svg or .pdf."""
    require("gantt")
    suffix = Path(path).suffix.lower()
    if suffix not in GANTT_FORMATS:
        raise UnsupportedFeature(f"no picture can be written to {fspath(path)!r}: its name must end in {', '.join(GANTT_FORMATS)}")
    from matplotlib.figure import Figure

    schedule = schedule_of(problem, answer)
    figure = Figure(figsize=_figure_size(schedule), layout="constrained", dpi=150)
    gantt(problem, schedule, ax=figure.subplots(), colour_by=colour_by)
    picture = io.BytesIO()
    figure.savefig(picture, format=suffix[1:])
    write_bytes(picture.getvalue(), path)


def _figure_size(schedule: Schedule) -> tuple[float, float]:
    """Return width and height in inches."""
    return 11.0, 1.7 + 0.55 * len(schedule.devices)


class _Drawing:
    def __init__(self, problem: Problem, schedule: Schedule, ax: Axes, grouping: Groups) -> None:
        self.problem, self.schedule, self.ax, self.groups = problem, schedule, ax, grouping
        batches = schedule.batches
        self.end = max(schedule.makespan, float(batches.finish.max(initial=0.0)))
        self.unit, self.scale = time_unit(self.end)
        self.start, self.finish = batches.start / self.scale, batches.finish / self.scale
        self.tone = grouping.of_task[batches.task]

    def draw(self, transfers: bool, legend: bool) -> None:
        self._frame()
        if transfers:
            self._transfers()
        self._batches()
        self._names()
        if legend:
            self._legend()

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
        shares = schedule.busy_time / self.end if self.end > 0 else np.zeros(len(rows))
        busy.set_yticks(rows, [f"{share:.0%} busy" for share in shares.tolist()])
        busy.tick_params(length=0, labelsize=8, labelcolor="#555555")
        busy.spines["right"].set_visible(False)
        done = "" if schedule.n_inputs == 1 else f", {schedule.n_inputs} inputs"
        ax.set_title(f"{len(schedule.tasks)} tasks{done}: makespan {seconds(schedule.makespan)}", loc="left", fontsize=10)

    def _batches(self) -> None:
        from matplotlib.collections import PolyCollection

        row, half = self.schedule.batches.device, HEIGHT / 2
        corners = np.empty((len(row), 4, 2))
        corners[:, :2, 0], corners[:, 2:, 0] = self.start[:, None], self.finish[:, None]
        corners[:, [0, 3], 1], corners[:, 1:3, 1] = (row - half)[:, None], (row + half)[:, None]
        # A white edge separates neighbours, where bars are wider than the edge.
        edge = 0.5 if np.median(self._pixels(self.finish - self.start), axis=None) > 3 else 0.0
        faces = np.array(self.groups.colours)[self.tone]
        drawn = PolyCollection(corners, facecolors=faces, edgecolors="white" if edge else "none", linewidths=edge, zorder=2)  # type: ignore[arg-type]
        drawn.set_snap(False)  # a bar thinner than a pixel is drawn in a paler colour, not rounded to one pixel or none
        drawn.set_rasterized(len(row) > MANY)
        self.ax.add_collection(drawn)

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
        opacity = 0.8 * min(1.0, FEW / len(moves)) ** 0.55  # the rows remain visible behind many lines
        drawn = LineCollection(ends, colors="#333333", linewidths=0.9 if few else 0.5, alpha=opacity, zorder=1.5)  # type: ignore[arg-type]
        drawn.set_rasterized(len(moves) > MANY)
        self.ax.add_collection(drawn)
        if few:
            self.ax.scatter(ends[:, 1, 0], ends[:, 1, 1], s=7, color="#333333", zorder=3)  # the ends

    def _names(self) -> None:
        """Write into each bar as much of its name as fits, or nothing if only a few letters fit."""
        width = self._pixels(self.finish - self.start) * 72 / self.ax.figure.dpi / (LABEL * 0.62)  # in letters
        texts, row = labels(self.schedule), self.schedule.batches.device
        for b in np.flatnonzero(width >= 1.5).tolist():
            text, fits = texts[b], int(width[b] - 0.5)
            if len(text) > fits:
                if fits < 7:
                    continue
                text = text[: (fits - 1) // 2] + "\N{HORIZONTAL ELLIPSIS}" + text[-(fits // 2) :]  # names differ at either end
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

    def _legend(self) -> None:
        from matplotlib.patches import Patch
        from matplotlib.transforms import ScaledTranslation

        names = self.groups.names
        if len(names) > MOST_NAMES:
            text = f"{len(names)} {self.groups.title}s, from dark to light in their order"
            self.ax.annotate(
                text, (0.0, -34), xycoords=("axes fraction", "axes points"), fontsize=8, color="#555555", annotation_clip=False
            )
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
