"""The Gantt chart by matplotlib."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from PIL import Image

import hetsched as hs
from hetsched.testing.profiles import examples
from tests.report.cases import diamond, schedules, stack


def drawn(problem: hs.Problem, schedule: hs.Schedule, **options: object) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    hs.report.gantt(problem, schedule, ax=figure.subplots(), **options)
    return figure


@examples(25)
@given(schedules())
def test_every_batch_is_a_bar_and_every_transfer_a_line(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = drawn(problem, schedule)
        figure.draw_without_rendering()
    ax = figure.axes[0]
    (bars,) = [
        collection for collection in ax.collections if isinstance(collection, PolyCollection) and not isinstance(collection, LineCollection)
    ]
    assert len(bars.get_paths()) == len(schedule.batches)
    lines = sum(len(collection.get_segments()) for collection in ax.collections if isinstance(collection, LineCollection))
    assert lines == len(schedule.transfers)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(schedule.devices)


def test_bars_have_the_rows_and_times_of_their_batches() -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    ax = drawn(problem, solution.schedule).axes[0]
    bars = next(collection for collection in ax.collections if isinstance(collection, PolyCollection))
    batches = solution.schedule.batches
    for path, start, finish, device in zip(bars.get_paths(), batches.start, batches.finish, batches.device, strict=True):
        (left, top), (right, bottom) = path.vertices.min(axis=0), path.vertices.max(axis=0)
        assert [left, right] == pytest.approx([start * 1e3, finish * 1e3])
        assert top < device < bottom
    assert ax.get_xlabel() == "time, ms"
    assert {text.get_text() for text in ax.texts} == {"a", "b", "c", "d"}
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first device is at the top"
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["conv2d", "pool", "cat", "input"]


def test_names_that_do_not_fit_are_shortened_or_left_out() -> None:
    problem, solution = stack(32)
    assert solution.schedule is not None
    figure = drawn(problem, solution.schedule)
    figure.draw_without_rendering()
    bars = next(collection for collection in figure.axes[0].collections if isinstance(collection, PolyCollection))
    width = {round(float(path.vertices[:, 0].mean()), 9): np.ptp(path.vertices[:, 0]) for path in bars.get_paths()}
    to_pixels = figure.axes[0].transData.get_matrix()[0, 0]
    for text in figure.axes[0].texts:
        room = width[round(float(text.get_position()[0]), 9)] * to_pixels
        assert text.get_window_extent().width <= room * 1.1


def test_without_transfers_on_request() -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    ax = drawn(problem, solution.schedule, transfers=False).axes[0]
    assert not any(isinstance(collection, LineCollection) for collection in ax.collections)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_pictures_are_written(tmp_path: Path, suffix: str) -> None:
    problem, solution = diamond(a="$a$ & <b>", cpu="c$pu")
    assert solution.schedule is not None
    path = tmp_path / f"chart{suffix}"
    hs.report.write_gantt(problem, solution.schedule, path)
    begin = path.read_bytes()[:200]
    assert begin.startswith({".svg": b"<?xml", ".pdf": b"%PDF"}.get(suffix, b"\x89PNG"))
    if suffix == ".png":
        colours = {"#{:02x}{:02x}{:02x}".format(*pixel) for _, pixel in Image.open(path).convert("RGB").getcolors(1 << 20)}
        assert {"#0072b2", "#e69f00", "#009e73", "#cc79a7"} <= colours


def test_a_thousand_tasks_stay_legible(tmp_path: Path) -> None:
    """Rows are separate: the background is visible where there is no bar and no line."""
    problem, solution = stack(32)
    assert solution.schedule is not None
    path = tmp_path / "chart.png"
    hs.report.write_gantt(problem, solution.schedule, path, colour_by="module")
    pixels = np.asarray(Image.open(path).convert("RGB"))
    assert pixels.shape[0] < 800
    white = (pixels == 255).all(axis=2).mean()
    assert 0.3 < white < 0.95


def test_fifty_devices_and_an_empty_schedule_are_drawn() -> None:
    cluster = hs.Cluster([f"d{k}" for k in range(50)], bandwidth=1.0)
    problem = hs.Problem(hs.TaskGraph(["a"], []), cluster, durations=np.zeros((1, 50)))
    schedule = hs.simulate(problem, hs.Decision.from_assignment(problem, {"a": "d7"}))
    ax = hs.report.gantt(problem, schedule)
    assert ax.figure.get_size_inches()[1] > 20
    ax.figure.draw_without_rendering()


def test_another_ending_is_refused(tmp_path: Path) -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    with pytest.raises(hs.UnsupportedFeature, match=r"must end in .png, .svg, .pdf"):
        hs.report.write_gantt(problem, solution.schedule, tmp_path / "chart.gif")


def test_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(hs.MissingDependency, match=r"'matplotlib' is not installed; install it with: pip install 'hetsched\[report\]'"):
        hs.report.gantt(problem, solution.schedule)


def test_importing_the_package_imports_no_library() -> None:
    import subprocess

    code = "import hetsched.report, sys; sys.exit(any(m in sys.modules for m in ('matplotlib', 'plotly', 'jinja2', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
