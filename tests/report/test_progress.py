"""The chart of incumbent and bound over time: each source has a colour in the legend."""

from __future__ import annotations

import numpy as np
import pytest

from hetsched.arrays import Columns

pytest.importorskip("plotly")

from hetsched.report.figures import FIRST_MOMENT, progress_figure


def history(*rows: tuple[float, float, float, str]) -> Columns:
    time, incumbent, bound, source = zip(*rows, strict=True)
    return Columns(time=time, incumbent=incumbent, bound=bound, source=np.array(source, "U"))


def test_each_source_has_its_marks_and_the_lines_join_them() -> None:
    figure = progress_figure(
        history(
            (0.0, np.inf, 2.0, "load"),
            (0.1, 5.0, 2.0, "heft"),
            (0.5, 4.0, 2.0, "annealing"),
            (2.0, 4.0, 3.0, "series"),
            (3.0, 3.5, 3.0, "annealing"),
        )
    )
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines"}
    marks = {trace.name: trace for trace in figure.data if trace.mode == "markers"}
    assert list(lines["incumbent"].x) == [0.1, 0.5, 3.0, 3.0]
    assert list(lines["incumbent"].y) == [5.0, 4.0, 3.5, 3.5]
    assert list(lines["bound"].x) == [FIRST_MOMENT, 2.0, 3.0]
    assert {name: list(zip(trace.x, trace.y, strict=True)) for name, trace in marks.items()} == {
        "heft": [(0.1, 5.0)],
        "annealing": [(0.5, 4.0), (3.0, 3.5)],
        "load": [(FIRST_MOMENT, 2.0)],
        "series": [(2.0, 3.0)],
    }
    assert len({trace.marker.color for trace in marks.values()}) == 4
    assert list(marks["series"].customdata) == ["bound"]


def test_a_history_of_bounds_alone_is_drawn() -> None:
    figure = progress_figure(history((0.2, np.inf, 0.0, "none"), (0.3, np.inf, 1.0, "load")))
    assert {trace.name for trace in figure.data} == {"bound", "load"}
