"""`modules`: the modules of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hetsched.cli.files import read_problem
from hetsched.cli.options import JSON, ProblemFile
from hetsched.cli.terminal import Working, console, say, say_json, say_rows, warn
from hetsched.errors import one_line
from hetsched.problem.units import percent

if TYPE_CHECKING:
    from hetsched.analysis.modules import Modules
    from hetsched.arrays import IntArray
    from hetsched.problem.problem import Problem


class _Row(NamedTuple):
    """A line of the list; modules are numbered from 1."""

    number: int
    tasks: IntArray
    work: float
    """Share of the total least work, the shortest duration of each task on any device."""
    channels: IntArray
    """Tasks of this module and those before it that later modules read."""
    same_as: int
    """The first module identical to it, possibly itself."""


def modules(
    problem: ProblemFile,
    channels: Annotated[
        int | None,
        typer.Option(help="The most tasks read across a boundary; default: the least of 1 to 4 without a large module.", metavar="NUMBER"),
    ] = None,
    largest: Annotated[
        int, typer.Option(help="A module of more tasks is divided further where several channels permit it.", metavar="NUMBER")
    ] = 40,
    smallest: Annotated[int, typer.Option(help="A module of fewer tasks is merged with a neighbour.", metavar="NUMBER")] = 1,
    json: JSON = False,
) -> None:
    """Divide a graph into modules that few tensors connect.

    With one channel each module ends with a task that is before or after every other task: an optimal schedule of the
    problem can be joined from optimal schedules of the modules. With more channels it is a heuristic. Each line
    has a module's share of the least work, the number of tasks that later modules read, and the module that it
    equals except for names, which is solved once.

    Example: [bold]hetsched modules problem.json --smallest 4[/bold]
    """
    from hetsched.analysis.modules import MOST_CHANNELS
    from hetsched.analysis.modules import modules as cut_apart
    from hetsched.problem.graph import plural

    instance = read_problem(problem)
    with Working("cutting"):
        cut = cut_apart(instance.graph, channels=channels, largest=largest, smallest=smallest)
        rows = list(_rows(instance, cut))
    if json:
        say_json({"channels": cut.channels, "modules": [_record(instance, row) for row in rows]})
        return
    sizes, n = cut.sizes.tolist(), instance.n_tasks
    kinds = len({row.same_as for row in rows})
    say_rows(
        [
            ("problem", f"{n} tasks, {instance.graph.n_edges} edges"),
            ("modules", f"{cut.number} of {min(sizes, default=0)} to {max(sizes, default=0)} tasks, {kinds} different"),
            ("channels", f"at most {cut.channels}; a split is exact at {int((cut.cuts >= 0).sum())} of {len(cut.cuts)} boundaries"),
        ]
    )
    _print(instance.graph.names, rows)
    if max(sizes, default=0) > largest:
        limit = plural(channels or MOST_CHANNELS, "channel")
        warn(
            f"no boundaries of at most {limit} were found that leave all modules with at most {largest} tasks; "
            "allow more with --channels or --largest",
            "note",
        )


def _rows(problem: Problem, division: Modules) -> Iterator[_Row]:
    import numpy as np

    from hetsched.analysis.isomorphism import identical_parts
    from hetsched.analysis.levels import least_work

    graph, of_task = problem.graph, division.of_task
    shortest = least_work(problem).min(axis=1)
    work = np.bincount(of_task, np.where(np.isfinite(shortest), shortest, 0.0), division.number)  # a task that fits no device counts as 0
    share = work / (work.sum() or 1.0)
    ends = [*(np.unique(graph.source[edges]) for edges in division.boundaries()), np.empty(0, np.int64)][: division.number]
    # A module with the tasks it reads, of which only the possible devices matter, and marks of the tasks that are read later.
    tasks = division.tasks()
    crossing = np.flatnonzero(of_task[graph.source] < of_task[graph.target])
    read: list[set[int]] = [set() for _ in tasks]
    for i, j in graph.edges[crossing].tolist():
        read[of_task[j]].add(i)
    before = [np.array(sorted(members), np.int64) for members in read]
    parts = [np.concatenate([*members]) for members in zip(before, tasks, strict=True)]
    bare = [np.arange(len(part)) < len(first) for part, first in zip(parts, before, strict=True)]
    marks = [np.isin(part, own).astype(np.int64) for part, own in zip(parts, ends, strict=True)]
    copies = identical_parts(problem, parts, marks=marks, bare=bare)
    for x, own in enumerate(tasks):
        yield _Row(x + 1, own, float(share[x]), ends[x], copies[x].of + 1)


def _record(problem: Problem, row: _Row) -> dict[str, Any]:
    names = problem.graph.names
    return {
        "number": row.number,
        "tasks": [names[i] for i in row.tasks.tolist()],
        "work": row.work,
        "channels": [names[i] for i in row.channels.tolist()],
        "same_as": row.same_as,
    }


def _print(names: tuple[str, ...], rows: list[_Row]) -> None:
    """Print a table, wrapped to the width of a terminal, or else a line for each module."""
    screen = console()
    titles, lines = ("module", "tasks", "work", "channels"), []
    for row in rows:
        first, last = names[row.tasks[0]], names[row.tasks[-1]]
        span = first if len(row.tasks) == 1 else f"{first} .. {last}"
        copy = f", as module {row.same_as}" if row.same_as != row.number else ""
        channels = str(len(row.channels)) if row.number < len(rows) else ""
        lines.append((str(row.number), str(len(row.tasks)), percent(row.work), channels, one_line(span) + copy))
    if not screen.is_terminal:
        say(*("  ".join([*(f"{cell:>8}" for cell in line[:4]), line[4]]) for line in [(*titles, "tasks by name"), *lines]))
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("tasks by name", overflow="fold")
    for line in lines:
        table.add_row(*line)
    screen.print(table)
