"""Groups of tasks and their colours: by operator type, by module of the names or of the graph, or by names given."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hetsched.analysis.modules import modules as cut_apart
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule

# The colours of Okabe and Ito (2008), distinct for every common colour vision; black is used for lines.
WAYS = ("op", "module", "cut")
"""The ways to colour tasks without group names."""
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
OTHER = "#A6A6A6"
# Even steps of matplotlib's viridis, whose lightness increases: the order is visible for every colour vision.
SCALE = (
    (68, 1, 84),
    (71, 44, 122),
    (59, 81, 139),
    (44, 113, 142),
    (33, 144, 141),
    (39, 173, 129),
    (92, 200, 99),
    (170, 220, 50),
    (253, 231, 37),
)
PALER = 0.45
MOST_OF_ALL = 0.8


class Groups(NamedTuple):
    """A partition of the tasks."""

    names: tuple[str, ...]
    colours: tuple[str, ...]
    """One ``#rrggbb`` for each group."""
    of_task: IntArray
    """[n]: the group of each task."""
    title: str
    """The kind of the groups."""


def groups(problem: Problem, schedule: Schedule, colour_by: str | Sequence[str] = "op") -> Groups:
    """Return the tasks in coloured groups.

    Parameters
    ----------
    problem : Problem
    schedule : Schedule
    colour_by : "op", "module", "cut" or a sequence of str
        By operator type; by module, the leading part of names such as ``layer3.0.conv/conv2d``; by
        the modules of the graph (`hetsched.analysis.modules`); or by group names, one for each task.
        Modules have colours from dark to light, in their order in the graph or by their first start.
        Of other groups, the seven that take the most time have a colour each; the rest share a grey.

    Raises
    ------
    UnsupportedFeature
        `colour_by` is another string, or a sequence of another length.
    """
    colour_by = colour_by if isinstance(colour_by, str) else list(colour_by)  # an array would compare by element
    if colour_by == "module":
        return by_module(schedule)
    if colour_by == "cut":
        number = cut_apart(problem.graph).of_task
        return _in_order([f"module {x + 1}" for x in number.tolist()], number.astype(np.float64), "cut module")
    if isinstance(colour_by, str):
        if colour_by != "op":
            raise UnsupportedFeature(f"colour_by is {colour_by!r}; choose 'op', 'module', 'cut', or give one group name for each task")
        return _longest(schedule, [op or "task" for op in problem.graph.op], "operator")
    if len(colour_by) != problem.n_tasks:
        raise UnsupportedFeature(f"colour_by names {len(colour_by)} groups for {problem.n_tasks} tasks; give one for each task")
    return _longest(schedule, [str(name) for name in colour_by], "group")


def by_module(schedule: Schedule) -> Groups:
    """Return the tasks of a schedule in coloured groups by `modules`, in the order of their first starts."""
    start = np.full(len(schedule.tasks), np.inf)
    np.minimum.at(start, schedule.batches.task, schedule.batches.start)
    return _in_order(modules(schedule.tasks), start, "module")


def modules(names: Sequence[str]) -> list[str]:
    """Return the module of each task: the leading parts of its name, as few as separate the modules.

    Parts end at ``.`` and ``/``; a part that nearly all tasks share (``model.``) is not enough. Names
    without parts form one module.
    """
    parts = [re.split(r"[./]", name) for name in names]
    if max(map(len, parts), default=0) == 1:
        return ["all"] * len(names)
    prefixes = list(names)
    for depth in range(1, max(map(len, parts), default=0) + 1):
        prefixes = [".".join(part[:depth]) for part in parts]
        if max(Counter(prefixes).values()) <= MOST_OF_ALL * len(prefixes):
            break
    return prefixes


def _numbered(names: Sequence[str]) -> tuple[list[str], IntArray]:
    """Return the distinct names in alphabetical order, and the number of each name; sorting all of them would take longer."""
    distinct = sorted(set(names))
    number = {name: x for x, name in enumerate(distinct)}
    return distinct, np.fromiter((number[name] for name in names), np.int64, len(names))


def _longest(schedule: Schedule, names: Sequence[str], title: str) -> Groups:
    batches = schedule.batches
    distinct, of_task = _numbered(names)
    time = np.bincount(of_task[batches.task], batches.finish - batches.start, len(distinct))
    ranked = np.argsort(-time, kind="stable")
    shown = min(len(distinct), len(COLOURS))
    place = np.minimum(np.argsort(ranked), shown)
    rest = ("other",) if shown < len(distinct) else ()
    return Groups((*(distinct[x] for x in ranked[:shown]), *rest), (*COLOURS[:shown], *(OTHER for _ in rest)), place[of_task], title)


def _in_order(names: Sequence[str], first: FloatArray, title: str) -> Groups:
    """Return the groups from dark to light, by the least value of `first` [n] among their tasks."""
    distinct, of_task = _numbered(names)
    earliest = np.full(len(distinct), np.inf)
    np.minimum.at(earliest, of_task, first)
    ranked = np.argsort(earliest, kind="stable")
    at = np.linspace(0, len(SCALE) - 1, max(len(distinct), 1))
    channels = np.stack([np.interp(at, np.arange(len(SCALE)), channel) for channel in zip(*SCALE, strict=True)], axis=1)
    channels[1::2] += PALER * (255 - channels[1::2])  # neighbours differ
    colours = tuple("#{:02x}{:02x}{:02x}".format(*row) for row in np.round(channels).astype(int).tolist())
    return Groups(tuple(distinct[x] for x in ranked), colours[: len(distinct)], np.argsort(ranked)[of_task], title)


def ink(colour: str) -> str:
    """Return black or white, whichever has more contrast with `colour`."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#000000" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.18 else "#ffffff"


def fitted(text: str, letters: int) -> str:
    """Return a name shortened in the middle to so many letters, for names differ at either end; nothing if only a few would remain."""
    if len(text) <= letters:
        return text
    return "" if letters < 7 else text[: (letters - 1) // 2] + "\N{HORIZONTAL ELLIPSIS}" + text[-(letters // 2) :]


def labels(schedule: Schedule, batches: IntArray | None = None) -> list[str]:
    """Return the label of each batch, or of some: its task, and its size if any batch has several inputs."""
    chosen = slice(None) if batches is None else batches
    names = [schedule.tasks[i] for i in schedule.batches.task[chosen].tolist()]
    if schedule.n_inputs == 1:
        return names
    return [f"{name} x {size}" for name, size in zip(names, schedule.batches.size[chosen].tolist(), strict=True)]
