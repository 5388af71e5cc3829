"""`modules`: the parts that a graph falls into."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from hetsched.cli.files import read_problem
from hetsched.cli.options import JSON, ProblemFile
from hetsched.cli.terminal import Working, console, say, say_json, say_rows, warn
from hetsched.errors import one_line
from hetsched.report.units import percent

if TYPE_CHECKING:
    from hetsched.analysis.modules import Modules
    from hetsched.arrays import IntArray
    from hetsched.problem.problem import Problem


class _Row(NamedTuple):
    """What is said of a module; numbers begin with 1."""

    number: int
    tasks: IntArray
    work: float
    """Share of the least work of all tasks."""
    channels: IntArray
    """The tasks up to it that later modules read."""
    same_as: int
    """The first module that it is identical to, maybe itself."""


def modules(
    problem: ProblemFile,
    channels: Annotated[
        int | None,
        typer.Option(
            help="How many tasks may be read across a boundary; without it as few of 1 to 4 as make all modules small.", metavar="NUMBER"
        ),
    ] = None,
    largest: Annotated[
        int, typer.Option(help="A module of more tasks is cut further, where several channels allow it.", metavar="NUMBER")
    ] = 40,
    smallest: Annotated[int, typer.Option(help="A module of fewer tasks is merged with a neighbour.", metavar="NUMBER")] = 1,
    json: JSON = False,
) -> None:
    """Cut a graph into modules that few tensors join.

    With one channel each module ends with a task that all others come before or after: there the
    problem falls apart, and what is best for each module is best for the whole. With more channels it
    is a heuristic. Each line tells a module's share of the least work, how many of the tasks up to it
    are read by later modules, and which module it equals but for the names: that one is solved once.

    Example: [bold]hetsched modules problem.json --smallest 4[/bold]
    """
    from hetsched.analysis.modules import MOST_CHANNELS
    from hetsched.analysis.modules import modules as cut_apart
    from hetsched.problem.graph import plural

    asked = read_problem(problem)
    with Working("cutting"):
        found = cut_apart(asked.graph, channels=channels, largest=largest, smallest=smallest)
        rows = list(_rows(asked, found))
    if json:
        say_json({"channels": found.channels, "modules": [_record(asked, row) for row in rows]})
        return
    sizes, n = found.sizes.tolist(), asked.n_tasks
    kinds = len({row.same_as for row in rows})
    say_rows(
        [
            ("problem", f"{n} tasks, {asked.graph.n_edges} edges"),
            ("modules", f"{found.number} of {min(sizes, default=0)} to {max(sizes, default=0)} tasks, {kinds} different"),
            ("channels", f"at most {found.channels}; a split is exact at {int((found.cuts >= 0).sum())} of {len(found.cuts)} boundaries"),
        ]
    )
    _print(asked.graph.names, rows)
    if max(sizes, default=0) > largest:
        limit = plural(channels or MOST_CHANNELS, "channel")
        warn(
            f"no boundaries of at most {limit} were found that leave all modules with at most {largest} tasks; "
            "allow more with --channels or --largest",
            "note",
        )


def _rows(problem: Problem, found: Modules) -> Iterator[_Row]:
    import numpy as np

    from hetsched.analysis.isomorphism import identical_parts
    from hetsched.analysis.levels import least_work

    graph, of_task = problem.graph, found.of_task
    least = least_work(problem).min(axis=1)
    work = np.bincount(of_task, np.where(np.isfinite(least), least, 0.0), found.number)  # what fits nowhere has none
    share = work / (work.sum() or 1.0)
    ends = [*(np.unique(graph.source[edges]) for edges in found.boundaries()), np.empty(0, np.int64)][: found.number]
    # A module with the tasks it reads, of which only where they can run matters to it, and told which tasks are read later.
    tasks = found.tasks()
    crossing = np.flatnonzero(of_task[graph.source] < of_task[graph.target])
    read: list[set[int]] = [set() for _ in tasks]
    for i, j in graph.edges[crossing].tolist():
        read[of_task[j]].add(i)
    before = [np.array(sorted(each), np.int64) for each in read]
    parts = [np.concatenate([*each]) for each in zip(before, tasks, strict=True)]
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
    """Print a table: in a terminal folded to its width, else a line for each module."""
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
