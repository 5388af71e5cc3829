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
from hetsched.problem.units import seconds, time_unit
from hetsched.testing.profiles import examples
from tests.report.cases import diamond, schedules, stack


def drawn(problem: hs.Problem, schedule: hs.Schedule, **options: object) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    hs.report.gantt(problem, schedule, ax=figure.subplots(), **options)
    return figure


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_second_schedule_has_a_paler_row_below_that_of_each_device(tmp_path: Path) -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    slower = problem.replace(durations=problem.durations * 2)
    measured, forecast = hs.runtime.forecast(slower, solution.schedule), hs.runtime.forecast(problem, solution.schedule)
    ax = drawn(problem, measured.schedule, against=forecast).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        row for name in problem.cluster.names for row in (name, f"{name}, forecast")
    ]
    bars = next(collection for collection in ax.collections if isinstance(collection, PolyCollection))
    first, second, count = measured.schedule.batches, forecast.schedule.batches, problem.n_tasks
    for number, (path, colour) in enumerate(zip(bars.get_paths(), bars.get_facecolors(), strict=True)):
        batches, side = (first, 0) if number < count else (second, 1)
        b = number - side * count
        (left, top), (right, bottom) = path.vertices.min(axis=0), path.vertices.max(axis=0)
        assert [left, right] == pytest.approx([batches.start[b] * 1e3, batches.finish[b] * 1e3])
        assert top < 2 * batches.device[b] + side < bottom
        assert colour[:3] == pytest.approx(1 - (0.55 if side else 1) * (1 - bars.get_facecolors()[b % count][:3]))
    assert ax.get_title(loc="left").endswith(f"makespan {seconds(measured.makespan)}, forecast {seconds(forecast.makespan)}")
    lines = sum(len(collection.get_segments()) for collection in ax.collections if isinstance(collection, LineCollection))
    assert lines - (problem.n_devices - 1) == len(measured.schedule.transfers), "those of the first schedule, and lines between devices"
    hs.report.write_gantt(problem, measured.schedule, tmp_path / "one.png")
    hs.report.write_gantt(problem, measured.schedule, tmp_path / "two.png", against=solution)
    with Image.open(tmp_path / "one.png") as one, Image.open(tmp_path / "two.png") as two:
        assert two.height > one.height


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


def many(tasks: int, long: float) -> tuple[hs.Problem, hs.Schedule]:
    """Return short tasks on two devices, of which the second idles half of the time, and two tasks of `long` seconds."""
    names = ["first", "last", *(f"t{i}" for i in range(tasks))]
    owner = np.arange(tasks) % 2
    durations = np.full((tasks + 2, 2), np.nan)
    durations[0, 0] = durations[1, 1] = long
    durations[2 + np.arange(tasks), owner] = np.where(owner == 0, 2.0, 1.0)
    edges = [("first", names[2]), *((names[i], names[i + 1], 0.0) for i in range(2, tasks + 1)), (names[-1], "last")]
    graph = hs.TaskGraph(names, edges, op=["long", "long", *("odd" if i % 2 else "even" for i in range(tasks))])
    problem = hs.Problem(graph, hs.Cluster(["a", "b"], bandwidth=1e9, latency=0.25), durations=durations)
    schedule = hs.solve(problem, "heft").schedule
    assert schedule is not None
    return problem, schedule


def test_batches_that_no_pixel_separates_are_drawn_as_a_strip_that_is_as_opaque_as_its_device_is_busy() -> None:
    problem, schedule = many(20_000, 500.0)
    figure = drawn(problem, schedule)
    ax = figure.axes[0]
    bars = next(collection for collection in ax.collections if isinstance(collection, PolyCollection))
    assert len(bars.get_paths()) == 2, "the two long ones"
    strips = [np.asarray(image.get_array()) for image in ax.images]
    short = schedule.batches.finish - schedule.batches.start < schedule.makespan / 3000
    assert short.sum() == 20_000
    for row, strip in enumerate(strips):
        own = short & (schedule.batches.device == row)
        busy = float((schedule.batches.finish - schedule.batches.start)[own].sum())
        assert strip.shape == (1, 3000, 4)
        assert strip[0, :, 3].mean() / 255 == pytest.approx(busy / schedule.makespan, abs=1 / 255)
        *_, bottom, top = ax.images[row].get_extent()
        assert top < row < bottom
    colours = ["#{:02x}{:02x}{:02x}".format(*strip[0, strip[0, :, 3].argmax(), :3]) for strip in strips]
    assert len(set(colours)) == 2, "a strip has the colour of its batches"
    lines = sum(len(collection.get_segments()) for collection in ax.collections if isinstance(collection, LineCollection))
    assert 0 < lines < 0.6 * len(schedule.transfers)
    slot = schedule.makespan / 3000
    assert [text.get_text() for text in ax.texts if "together" in text.get_text()] == [
        f"batches and transfers within {seconds(slot)} are drawn together"
    ]
    figure.draw_without_rendering()


def test_a_merged_line_is_within_a_slot_of_every_transfer_that_it_replaces() -> None:
    problem, schedule = many(20_000, 500.0)
    (lines,) = [collection for collection in drawn(problem, schedule).axes[0].collections if isinstance(collection, LineCollection)]
    unit, scale = time_unit(schedule.makespan)
    starts = {
        down: np.sort([segment[0, 0] for segment in lines.get_segments() if (segment[1, 1] > segment[0, 1]) == down])
        for down in (True, False)
    }
    device = schedule.batches.device
    for down, found in starts.items():
        own = (device[schedule.transfers.target] > device[schedule.transfers.source]) == down
        assert own.any(), unit
        start = schedule.transfers.start[own] / scale
        after = np.searchsorted(found, start).clip(1, len(found) - 1)
        nearest = np.minimum(np.abs(found[after] - start), np.abs(found[after - 1] - start))
        assert nearest.max() <= schedule.makespan / scale / 3000


def test_up_to_four_thousand_batches_are_drawn_one_by_one() -> None:
    problem, schedule = many(3_998, 500.0)
    ax = drawn(problem, schedule).axes[0]
    bars = next(collection for collection in ax.collections if isinstance(collection, PolyCollection))
    assert len(bars.get_paths()) == 4_000
    assert not ax.images
    assert not any("together" in text.get_text() for text in ax.texts)


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


@pytest.mark.slow
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
