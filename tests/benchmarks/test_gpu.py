"""benchmarks/gpu.py: its sections on a CPU, with what a bare machine has; how it ends, and how it goes on; its tables."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import figures
import gpu
import gpu_plans
import gpu_sections
import gpu_tables
import gpu_tools
import torch

import hetsched as hs

ABSENT = ("typer", "rich", "click", "pyscipopt", "highspy", "ortools", "matplotlib", "plotly", "pandas", "dask", "pymetis")
BARE = f"""
import sys
from importlib.machinery import PathFinder

class Present(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {ABSENT!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Present
sys.path[0] = "benchmarks"  # as for a script, whose folder is the only one of the repository on the path
import gpu
gpu.main(sys.argv[1:])
"""


def bare(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the script where neither hetsched nor what it does not need is installed."""
    packages = {"PYTHONPATH": str(Path(torch.__file__).parents[1])}  # without its .pth files, as -S leaves out
    return subprocess.run(
        [sys.executable, "-S", "-c", BARE, *words],
        cwd=gpu.ROOT,
        env={**os.environ, **packages},
        capture_output=True,
        text=True,
        timeout=300,
    )


def lines(path: Path) -> list[gpu.Row]:
    return gpu.read(path.read_text(), path)


def check(rows: list[gpu.Row]) -> None:
    """Check what every line has."""
    for row in rows:
        assert all(name in row for name in gpu.FIELDS)
        assert row["what"] != "failed", row
        assert row["device"]
        assert "torch " in row["software"]
        if row["what"] != "end":
            assert row["digest"]
            assert 0 <= row["stolen"]
        if row["seconds"] is not None:
            assert row["seconds"] > 0
            assert row["statistic"] in ("median", "least", "once")
            assert row["spread"][0] <= row["spread"][1]
    assert all(row["left"] == [] for row in rows if row["what"] == "end")


@pytest.mark.slow
def test_two_sections_run_with_what_a_bare_machine_has(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    done = bare("--device", "cpu", "--quick", "--only", "engine", "--out", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = lines(file)
    check(rows)
    assert {row["section"] for row in rows} == {"environment", "engine"}
    assert {row["way"] for row in rows if row["what"] == "dispatch"} == {"eager", "compiled tasks"}
    assert [row["threads"] for row in rows if row["what"] == "launch"] == [1, 2, 4]
    assert [row["deviation"] for row in rows if row["what"] == "dispatch"] == [0.0, 0.0]


@pytest.mark.slow
def test_every_section_runs_and_the_page_is_made_of_its_file(tmp_path: Path, docs: Path) -> None:
    file = tmp_path / "x.jsonl"
    words = ("--device", "cpu", "--quick", "--out", str(file))
    done = bare(*words, "--minutes", "27")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = lines(file)
    check(rows)
    assert {row["section"] for row in rows} == {*gpu.SECTIONS}
    latencies = {row["way"]: row for row in rows if row["what"] == "latency"}
    assert {"eager", "sequential", "greedy", "IOS, model", "IOS, finalists", "IOS, measured"} <= set(latencies)
    for row in (row for row in rows if row["what"] in ("latency", "run", "drill")):
        assert row["same"], row
    assert all(row["planted"] > gpu_sections.ALIKE for row in rows if row["what"] == "run")
    assert any(row["what"] == "drill" and row["refused"] for row in rows)
    again = bare(*words)
    assert again.returncode == 0
    assert lines(file) == rows, "what is done is not done again"

    calm = tmp_path / "calm.jsonl"
    calm.write_text("".join(f"{json.dumps({**row, 'stolen': 0.0, 'lost': 0.0})}\n" for row in rows))
    gpu.main(["--tables", str(calm), "--docs", str(docs), "--profile", str(tmp_path / "p.json")])
    page = (docs / "benchmarks.md").read_text()
    assert gpu_tables.NOTHING in page
    for title in (
        "What the devices reach",
        "Copies and messages",
        "Operators",
        "Dispatching",
        "Stages on one device",
        "contention model",
        "E2",
        "E3",
    ):
        assert title in page
    profile = hs.read(tmp_path / "p.json")
    assert isinstance(profile, hs.costs.Profile)
    assert len(profile.operators) == len({row["digest"] for row in rows if row["what"] == "operator"})


class Gpu:
    """What `gpu_plans` asks of a device of torch."""

    type, index = "cuda", 0


def test_plans_on_a_gpu_are_forecast_from_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = gpu_sections.Bench("cpu", gpu.Records(None), quick=False, full=False)
    bench.device, bench.name = Gpu(), "gpu0"  # type: ignore[assignment]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    maps: list[dict[str, object]] = []
    size = gpu_plans.COPIED
    copies = gpu_plans.line("link", [size / 17e9], way="pageable copy", bytes=size)

    def request(own: object, device: object, prompt: int, output: int) -> tuple[float, float]:
        whole = len(maps) == 1
        return prompt * 5e-5 if whole else 0.6, output * 0.025 if whole else 5.0

    monkeypatch.setattr(gpu_plans, "loaded", lambda bench, modules: maps.append(modules))
    monkeypatch.setattr(gpu_plans, "request", request)
    monkeypatch.setattr(gpu_plans, "pageable", lambda bench: copies)
    for name in ("reset_peak_memory_stats", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda device: 16e9)
    for step in gpu_plans.plans(bench):
        bench.records.add([{**dict.fromkeys(gpu.FIELDS), **row} for row in step.work()])
    alone, plan, default = (row for row in bench.records.rows if row["what"] == "plan")
    assert set(maps[0].values()) == {0}
    assert alone["forecasts"]["measured"] == pytest.approx(alone["seconds"], rel=0.02)
    for row, device_map in ((plan, maps[1]), (default, maps[2])):
        assert set(device_map.values()) == {0, "cpu"}
        assert row["needed"] <= row["limit"] == row["weight_bytes"] / 2
        copied = 9 * sum(value == "cpu" for key, value in device_map.items() if "layers" in key) * 436e6 / 17e9
        assert copied < row["forecasts"]["measured"] < 1.3 * copied + 0.3
        assert row["forecasts"]["sheets"] < row["forecasts"]["measured"]
    assert plan["forecasts"]["measured"] <= default["forecasts"]["measured"]
    text = "\n".join(gpu_tables.plans(bench.records.rows))
    assert "Llama, 8B: 16.1 GB of weights" in text
    assert "| 0.226 (0.0256 of it the prompt) | 16.4 | 16.0 |" in text


# ---------------------------------------------------------------------- ends and goes on


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the sections by three steps, and return the names of those that are taken."""
    taken: list[str] = []

    def step(name: str) -> list[gpu.Row]:
        taken.append(name)
        return [gpu_tools.line("thing", [1.0, 2.0, 4.0], name)] * 3

    def section(bench: Any) -> Iterator[gpu.Step]:
        for name in ("one", "two", "three"):
            yield gpu.Step(name, lambda name=name: step(name))  # type: ignore[misc]

    monkeypatch.setattr(gpu_tools, "full_precision", lambda: None)  # it changes this process
    monkeypatch.setattr(gpu_sections, "STEPS", {**dict.fromkeys(gpu.SECTIONS, section), "environment": lambda bench: iter(())})
    return taken


def run(file: Path, *more: str) -> None:
    gpu.main(["--device", "cpu", "--quick", "--only", "links", "--out", str(file), *more])


def test_a_section_that_is_finished_is_not_repeated(tmp_path: Path, steps: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "x.jsonl")
    run(tmp_path / "x.jsonl")
    assert steps == ["one", "two", "three"]
    assert "links: done before" in capsys.readouterr().out
    row = next(row for row in lines(tmp_path / "x.jsonl") if row["what"] == "thing")
    assert (row["seconds"], row["spread"], row["step"], row["section"], row["runs"]) == (2.0, [1.5, 3.0], "one", "links", 3)


def test_sections_without_figures_come_first(tmp_path: Path, steps: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "x.jsonl")
    capsys.readouterr()
    gpu.main(["--device", "cpu", "--quick", "--only", "links,engine,memory", "--out", str(tmp_path / "x.jsonl")])
    ended = [text.partition(":")[0] for text in capsys.readouterr().out.splitlines() if text.endswith((" s", "before"))]
    assert ended == ["environment", "engine", "memory", "links"]


@pytest.mark.parametrize("cut", [b'{"section": "links", "wha', b"{"])
def test_a_line_that_is_not_whole_is_removed_and_the_rest_goes_on(tmp_path: Path, steps: list[str], cut: bytes) -> None:
    file = tmp_path / "x.jsonl"
    run(file)
    kept = [line for line in file.read_bytes().splitlines(keepends=True) if b'"step": "one"' in line]
    file.write_bytes(b"".join(kept) + cut)
    run(file)
    assert steps == ["one", "two", "three", "two", "three"]
    assert file.read_bytes().startswith(b"".join(kept) + b"{")
    check(lines(file))


def test_sigterm_leaves_whole_steps(tmp_path: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.jsonl"
    line = gpu_tools.line

    def kill(what: str, seconds: Any, *about: object, **more: Any) -> gpu.Row:
        if about == ("two",):
            os.kill(os.getpid(), signal.SIGTERM)
        return line(what, seconds, *about, **more)

    monkeypatch.setattr(gpu_tools, "line", kill)
    with pytest.raises(SystemExit) as stop:
        run(file)
    assert stop.value.code == 128 + signal.SIGTERM
    assert [row["step"] for row in lines(file) if row["what"] == "thing"] == ["one"] * 3
    assert file.read_bytes().endswith(b"\n")
    monkeypatch.setattr(gpu_tools, "line", line)
    run(file)
    assert steps == ["one", "two", "two", "three"]


def test_what_is_left_when_the_time_is_over_is_printed_and_done_later(
    tmp_path: Path, steps: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    records = gpu.Records(tmp_path / "x.jsonl")
    section = list(gpu_sections.STEPS["links"](None))  # type: ignore[arg-type]
    common = {"device": "cpu0", "software": "torch 0"}
    assert gpu.measure("links", section, records, common, -1.0) == []
    assert "links: left, as the time is over: one, two, three" in capsys.readouterr().out
    assert not records.finished("links")
    assert gpu.measure("links", section, gpu.Records(tmp_path / "x.jsonl"), common, 1e9) == []
    assert steps == ["one", "two", "three"]
    assert gpu.Records(tmp_path / "x.jsonl").finished("links")


def test_a_step_that_fails_is_recorded_and_repeated_at_the_next_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = iter([RuntimeError("no\nmemory"), None])

    def work() -> list[gpu.Row]:
        error = next(outcomes)
        if error is not None:
            raise error
        return [gpu_tools.line("thing", [1.0], 1)]

    records, common = gpu.Records(tmp_path / "x.jsonl"), {"device": "cpu0", "software": "torch 0"}
    section = [gpu.Step("one", work)]
    assert gpu.measure("links", section, records, common, 1e9) == ["one"]
    assert "links: one: RuntimeError: no memory" in capsys.readouterr().out
    assert gpu.measure("links", section, gpu.Records(tmp_path / "x.jsonl"), common, 1e9) == []


def test_a_file_of_another_device_or_software_is_refused(tmp_path: Path, steps: list[str]) -> None:
    file = tmp_path / "x.jsonl"
    run(file)
    rows = [json.dumps({**row, "software": "torch 1"}) for row in lines(file)]
    file.write_text("\n".join([*rows, ""]))
    with pytest.raises(SystemExit, match="lines of another device, other software"):
        run(file)
    file.write_text('{"section": "links"}\n')
    with pytest.raises(SystemExit, match=r"line 1 of .* is not a line of gpu\.py"):
        run(file)


# ---------------------------------------------------------------------- what is missing


def test_what_is_missing_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = gpu.importlib.util.find_spec
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None if name in ("msgspec", "numba") else find(name))
    with pytest.raises(SystemExit, match=r"numba is not installed; msgspec is not installed\. Collect wheels by benchmarks/gpu_wheels\.sh"):
        run(tmp_path / "x.jsonl")
    assert not (tmp_path / "x.jsonl").exists()
    monkeypatch.undo()
    monkeypatch.setattr(torch, "__version__", "2.6.1+cu118")
    with pytest.raises(SystemExit, match=r"torch is 2\.6\.1\+cu118, and must be at least 2\.7"):
        run(tmp_path / "x.jsonl")


@pytest.mark.parametrize("words", [["--only", "link"], ["--minutes", "0"]])
def test_wrong_words_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        gpu.main(["--device", "cpu", "--quick", *words])
    assert stop.value.code == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_device_that_is_not_there_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"torch has 0 CUDA devices"):
        gpu.main(["--quick", "--out", str(tmp_path / "x.jsonl")])


def test_the_wheels_of_torch_are_never_collected(tmp_path: Path) -> None:
    script = gpu.ROOT / "benchmarks" / "gpu_wheels.sh"
    for words in ([], ["3.12", str(tmp_path), "msgspec", "torch==2.11"]):
        done = subprocess.run([script, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert "torch" in done.stderr
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- tables


def row(what: str, **more: Any) -> gpu.Row:
    made = {**dict.fromkeys(gpu.FIELDS), "section": "ios", "device": "gpu0", "software": "torch 0", "stolen": 0.0}
    return {**made, **gpu_tools.line(what, [1.0, 1.0], what), **more}


def latency(way: str, seconds: float, **more: Any) -> gpu.Row:
    about = {"network": "x", "batch": 1, "way": way, "seconds": seconds, "same": True, "deviation": 0.0}
    return row("latency", **{**about, **more})


def test_disturbed_rows_and_other_outputs_make_no_claim() -> None:
    first = latency("sequential", 3.0)
    _, clear = gpu_tables.stages([first, latency("greedy", 2.0)])
    assert "| 1.50 |" in clear
    for more in ({"stolen": 0.11}, {"lost": 0.11}, {"same": False}):
        _, shown = gpu_tables.stages([first, latency("greedy", 2.0, **more)])
        assert "| 1.50 |" not in shown
        assert ("disturbed" in shown) == ("same" not in more)
        assert ("outputs differ" in shown) == ("same" in more)


def placed(**more: Any) -> list[gpu.Row]:
    common = {"network": "x", "same": True, "deviation": 0.0}
    best = row("run", way="gpu0", **{**common, "seconds": 3.0})
    about = {"forecast": 1.9, "error": -0.05, "tasks": {"gpu0": 3, "cpu1": 1}, "best": "gpu0", "replays": [1.9, 1.95, 1.96, 1.97, 2.0]}
    return [best, row("run", way="placed", **{**common, **about, "seconds": 2.0, "method": "heft", **more})]


def test_placements_are_beside_their_forecasts() -> None:
    _, table = gpu_tables.placements(placed())
    assert table.endswith("| 1.50 |")
    assert "+50.000, +10.000, +10.000, +30.000" in table
    assert gpu_tables.placements(placed(stolen=0.2))[1].endswith("| disturbed |")
    assert gpu_tables.placements(placed(same=False))[1].endswith("| outputs differ |")


def test_calls_are_in_a_row_of_their_network() -> None:
    about = {"what": "call", "network": "n", "spread": [0.001, 0.004], "stolen": 0.0}
    rows = [
        {**about, "way": "module", "seconds": 0.002, "same": True},
        {**about, "way": "placed", "seconds": 0.003, "same": False},
        {**about, "way": "placed", "network": "m", "seconds": 0.003, "same": True, "stolen": 0.2},
    ]
    _, table = gpu_tables.calls(rows)
    assert "| n | 2.000 (1.000 to 4.000) | 3.000 (1.000 to 4.000), outputs differ |" in table
    assert "| m |  | 3.000 (1.000 to 4.000) (disturbed) |" in table
    assert gpu_tables.calls([]) == []


def test_the_page_says_that_nothing_has_run_on_cuda_until_something_has() -> None:
    assert gpu_tables.text([]) == gpu_tables.NOTHING
    assert gpu_tables.text([[row("launch", device="cpu0", threads=1)]]).startswith(gpu_tables.NOTHING)
    assert gpu_tables.text([[row("failed", seconds=None)]]).startswith(gpu_tables.NOTHING)
    assert gpu_tables.NOTHING not in gpu_tables.text([[row("launch", threads=1)]])
    assert figures.replaced(figures.DOCS / "benchmarks.md", gpu.REGION, "x")
    kept = sorted(gpu.KEPT.glob("gpu-*.jsonl"))
    if not kept:
        assert gpu_tables.NOTHING in (figures.DOCS / "benchmarks.md").read_text()


def operators(network: str, batch: int) -> list[gpu.Row]:
    """Return lines of convolutions that take what the analytic model of a V100 says, with other constants."""
    widths = [32 * k for k in range(1, 13)]
    shapes = [hs.Shape(28 * 28, n, 9 * n, (3, 3), (1, 1)) for n in widths]
    amounts = [(2.0 * 28 * 28 * n * 9 * n, 4.0 * 28 * 28 * 2 * n + 36.0 * n * n, 36.0 * n * n) for n in widths]
    flops, accessed, weights = zip(*amounts, strict=True)
    graph = hs.TaskGraph(
        [f"{network}{n}" for n in widths], op="conv2d", shape=shapes, flops=flops, bytes_accessed=accessed, weight_bytes=weights
    )
    seconds = 1.7 * hs.costs.Analytic().durations(graph, hs.Cluster([hs.costs.device("v100")]), [batch])[:, 0, 0]
    columns = zip(graph.names, shapes, flops, accessed, weights, seconds.tolist(), strict=True)
    common = {
        "device": "gpu0",
        "network": network,
        "batch": batch,
        "op": "conv2d",
        "text": "",
        "tasks": 1,
        "cpu": None,
        "memory_bytes": 1.0,
    }
    return [
        row("operator", digest=name, shape=shape, flops=work, bytes_accessed=moved, weight_bytes=weight, seconds=time, **common)
        for name, shape, work, moved, weight, time in columns
    ]


@pytest.mark.slow
def test_operators_are_fitted_on_half_of_the_networks(tmp_path: Path) -> None:
    device = hs.costs.device("v100", "gpu0")
    rows = [gpu_sections.of(device, "gpu0"), *operators("x", 1), *operators("y", 4)]
    file = tmp_path / "x.jsonl"
    gpu.Records(file).add(
        [{**dict.fromkeys(gpu.FIELDS), "section": "operators", "software": "torch 0", "stolen": 0.0, **one} for one in rows]
    )
    counts, _, table, as_shipped = gpu_tables.operators(lines(file))
    assert "| gpu0 | 24 | 24 | 0 |" in counts
    held = [[float(part) for part in line.split("|")[5].replace("%", "").split("/")] for line in table.splitlines()[2:]]
    assert len(held) == 2
    assert all(median < 10 for median, _ in held), table
    assert re.match(r"With the constants that are shipped \(.*V100.*\) Analytic's errors on all 24 operators are \d+\.\d % / ", as_shipped)
    profile = gpu_tables.profile(lines(file))
    assert profile.pooled("x32", "gpu0", 1).seconds == rows[1]["seconds"]
    assert profile.device("gpu0").device.peak_flops == {"float32": device.peak_flops["float32"]}


def test_pairs_of_schedules_are_ordered_by_a_model() -> None:
    graph = hs.TaskGraph(["a", "b"])
    schedules = [
        latency("sequential", 2.0, stages=[[[0], "concurrent"], [[1], "concurrent"]]),
        latency("one", 1.0, stages=[[[0, 1], "merge"]]),
    ]
    assert gpu_tables.ordered(graph, lambda tasks, way: 1.0, schedules) == (1, 1)
    assert gpu_tables.ordered(graph, lambda tasks, way: 3.0 if way == "merge" else 1.0, schedules) == (0, 1)
    schedules[1]["seconds"] = 1.99
    assert gpu_tables.ordered(graph, lambda tasks, way: 1.0, schedules) == (0, 0)


def test_a_change_of_one_weight_is_seen() -> None:
    module, x = gpu_sections.model("decoder", gpu_sections.QUICK_TOKENS, 1)
    with torch.no_grad():
        expected = module(x)
        assert gpu_sections.planted(module, x, expected) > gpu_sections.ALIKE
        assert torch.equal(module(x), expected), "and taken back"
