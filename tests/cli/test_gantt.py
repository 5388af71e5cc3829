"""The Gantt chart in characters: its width, its marks, its legend without colour."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

import hetsched as hs
from hetsched.cli.gantt import ASCII, COLOURS, MOST_DEVICES, UNICODE, gantt


def drawn(
    schedule: hs.Schedule, *, width: int = 80, colour: bool = False, encoding: str = "utf-8", ops: list[str] | None = None
) -> list[str]:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, width=width, force_terminal=colour, color_system="standard" if colour else None, highlight=False)
    for line in gantt(schedule, console, ops):
        console.print(line, soft_wrap=True)
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


def random_schedule(n: int, k: int, seed: int) -> hs.Schedule:
    rng = np.random.default_rng(seed)
    names = [f"task{i}" for i in range(n)]
    edges = [(names[i], names[j], 1e5) for i in range(n) for j in range(i + 1, min(n, i + 4)) if rng.random() < 0.5]
    graph = hs.TaskGraph(names, edges)
    cluster = hs.Cluster([f"device{i}" for i in range(k)], 1e9, 1e-5)
    problem = hs.Problem(graph, cluster, durations=rng.choice([0.0, 1e-4, 1e-2], (n, k)))
    return hs.simulate(problem, hs.Decision.whole(problem, rng.integers(0, k, n), graph.topological_order))


@given(n=st.integers(0, 30), k=st.integers(1, 4), seed=st.integers(0, 99), width=st.integers(40, 200), colour=st.booleans())
def test_it_always_fits_the_width(n: int, k: int, seed: int, width: int, colour: bool) -> None:
    schedule = random_schedule(n, k, seed)
    lines = drawn(schedule, width=width, colour=colour, ops=[f"op{i % 9}" for i in range(n)])
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert all(len(line) <= width for line in plain)
    assert [line.split()[0] for line in plain if line.startswith("device")] == [f"device{i}" for i in range(k)]


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Mn", "Me", "Cf", "Zl", "Zp"]), min_size=1, max_size=40)


@given(names=st.lists(NAMES, min_size=2, max_size=2, unique=True), width=st.integers(40, 120), encoding=st.sampled_from(["utf-8", "ascii"]))
def test_it_fits_whatever_the_names(names: list[str], width: int, encoding: str) -> None:
    """Wide characters count twice, characters outside the encoding are escaped, and every row ends in the same column."""
    problem = hs.Problem(hs.TaskGraph(names), hs.Cluster(names, 1e9), durations=[[1.0, 9.0], [9.0, 2.0]])
    schedule = hs.simulate(problem, hs.Decision.from_assignment(problem, {names[0]: names[0], names[1]: names[1]}))
    lines = drawn(schedule, width=width, encoding=encoding, ops=names)
    assert [cell_len(line) for line in lines[:2]] == [cell_len(lines[3])] * 2
    assert all(cell_len(line) <= width for line in lines)


def test_long_names_keep_both_ends() -> None:
    names = [f"node-{i}.rack.example.org/accelerator:{i}" for i in range(2)]
    problem = hs.Problem(hs.TaskGraph(["t"]), hs.Cluster(names, 1e9), durations=[[1.0, 1.0]])
    lines = drawn(hs.simulate(problem, hs.Decision.whole(problem, np.zeros(1, int), np.arange(1))))
    assert lines[0].startswith("node-0.…erator:0 [t==")
    assert lines[1].startswith("node-1.…erator:1 ")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_without_colour_a_line_explains_the_marks_that_are_drawn(encoding: str) -> None:
    graph = hs.TaskGraph(["producer", "consumer"], [("producer", "consumer", 1e9)])
    problem = hs.Problem(graph, hs.Cluster(["a", "b"], 1e9), durations=[[1.0, 9.0], [9.0, 1.0]])
    apart, together = (
        hs.simulate(problem, hs.Decision.from_assignment(problem, {"producer": "a", "consumer": where})) for where in ("b", "a")
    )
    marks = UNICODE if encoding == "utf-8" else ASCII
    legend = drawn(apart, encoding=encoding)[-1]
    assert legend == (f"{marks.shades} how busy  [name==] a long task  {marks.moving} data coming in  {marks.arrived} arrived")
    assert drawn(together, encoding=encoding)[-1] == f"{marks.shades} how busy  [name==] a long task"
    assert "long task" not in drawn(random_schedule(1000, 2, 0), encoding=encoding)[-1]


@given(seed=st.integers(0, 99))
def test_busy_cells_are_marked_and_idle_ones_are_not(seed: int) -> None:
    """Each cell is compared with a slow computation of its busy time."""
    schedule = random_schedule(12, 2, seed)
    width = 80 - len("device0") - 9
    edges = np.linspace(0, schedule.makespan, width + 1)
    rows = schedule.batches
    lines = [line for line in drawn(schedule) if line.startswith("device")]
    for k, line in enumerate(lines):
        cells = line[len("device0 ") :][:width]
        for c, mark in enumerate(cells):
            overlap = np.minimum(rows.finish, edges[c + 1]) - np.maximum(rows.start, edges[c])
            busy = overlap[(rows.device == k) & (overlap > 0)].sum() / (edges[1] - edges[0])
            if mark == " ":
                assert busy < 0.51  # the ends of a named bar are rounded to whole cells
            elif mark in "░▒▓█":
                assert busy > 0


def test_long_batches_carry_their_names_and_transfers_show() -> None:
    graph = hs.TaskGraph(["producer", "consumer"], [("producer", "consumer", 1e9)])
    problem = hs.Problem(graph, hs.Cluster(["a", "b"], 1e9), durations=[[1.0, 9.0], [9.0, 1.0]])
    schedule = hs.simulate(problem, hs.Decision.from_assignment(problem, {"producer": "a", "consumer": "b"}))
    a, b, arrivals, ruler, times, _ = drawn(schedule)
    assert a.startswith("a [producer=")
    assert a.endswith("33%")
    assert "[consumer=" in b
    assert b.index("[consumer") > a.index("]")
    assert arrivals.count("▾") == 1
    assert arrivals.count("·") > 10
    assert arrivals.endswith("1 in")
    assert ruler.count("┬") == 5
    assert times.split()[:2] == ["0", "s"]
    assert "3.000 s" in times


def test_without_unicode_it_is_ascii() -> None:
    lines = drawn(random_schedule(30, 3, 1), encoding="ascii")
    assert all(line.isascii() for line in lines)
    assert any(mark in "".join(lines) for mark in ASCII.shades)


def test_colours_distinguish_operator_types_and_are_explained() -> None:
    schedule = random_schedule(20, 2, 3)
    lines = drawn(schedule, colour=True, ops=["conv2d" if i % 2 else "relu" for i in range(20)])
    assert "conv2d" in lines[-2]
    assert "relu" in lines[-2]
    assert "other" not in lines[-2]
    many = drawn(schedule, colour=True, ops=[f"op{i}" for i in range(20)])
    assert "other" in many[-2]
    assert many[-2].count("█") <= len(COLOURS) + 1


def test_of_many_devices_the_busiest_are_drawn() -> None:
    lines = drawn(random_schedule(60, MOST_DEVICES + 6, 0))
    assert sum(line.startswith("device") for line in lines) == MOST_DEVICES
    assert any(line == "and 6 less busy devices" for line in lines)


@pytest.mark.parametrize("n", [0, 1])
def test_an_empty_schedule_is_drawn_too(n: int) -> None:
    graph = hs.TaskGraph([f"t{i}" for i in range(n)])
    problem = hs.Problem(graph, hs.Cluster(["only"]), durations=np.zeros((n, 1)))
    schedule = hs.simulate(problem, hs.Decision.whole(problem, np.zeros(n, int), np.arange(n)))
    assert drawn(schedule)[0].split() == ["only", "0%"]
