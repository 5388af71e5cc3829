"""`hetsched stages`: output, files and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hetsched as hs


def graph(strides: tuple[int, int] = (1, 2)) -> hs.TaskGraph:
    """Return two convolutions in parallel that are too small for a device, between two others."""
    shapes = [hs.Shape(196, 256, 1152, (3, 3), (stride, stride)) for stride in (1, *strides, 1)]
    return hs.TaskGraph(
        ["in", "left", "right", "out"],
        [("in", "left"), ("in", "right"), ("left", "out"), ("right", "out")],
        op="conv2d",
        output_bytes=1e4,
        flops=2 * 196 * 256 * 1152,
        shape=shapes,
    )


def test_it_finds_prints_and_writes_stages(run: Any, folder: Path) -> None:
    hs.documents.write(graph(), "graph.json")
    shown = run("stages", "graph.json", "-o", "stages.json", "--gantt", "stages.svg", "--trace", "trace.json")
    assert shown.exit_code == 0, shown.stderr
    assert "lane 2" in Path("stages.svg").read_text()
    assert {"left", "right"} <= {event["name"] for event in json.loads(Path("trace.json").read_text())["traceEvents"]}
    assert "4 tasks, 4 edges, 2 blocks" in shown.stdout
    assert "left | right" in shown.stdout
    assert "on v100, by the model, within about 6 % where it was measured" in shown.stdout
    assert "where it was measured" not in run("stages", "graph.json", "--device", "a100").stdout
    cost = hs.costs.Contention(graph(), hs.costs.device("v100"))
    stages = hs.read("stages.json")
    assert hs.verify_stages(graph(), stages, groups=8, group_size=3, cost=cost) == []
    facts = json.loads(run("stages", "graph.json", "--json").stdout)
    assert facts["latency"] == stages.latency < facts["sequential"]
    assert [row["groups"] for row in facts["stages"]] == [[list(g) for g in stages.groups(s)] for s in range(len(stages))]


def test_merged_convolutions_are_named(run: Any, folder: Path) -> None:
    hs.documents.write(graph((1, 1)), "graph.json")
    assert "merged: left | right" in run("stages", "graph.json").stdout
    facts = json.loads(run("stages", "graph.json", "--json").stdout)
    assert [row["strategy"] for row in facts["stages"]] == ["concurrent", "merge", "concurrent"]


def test_the_cost_model_is_a_choice(run: Any, folder: Path) -> None:
    hs.documents.write(graph(), "graph.json")
    roofline = json.loads(run("stages", "graph.json", "--json", "--costs", "roofline", "--dtype", "float16").stdout)
    cost = hs.costs.Contention(graph(), hs.costs.device("v100"), costs=hs.costs.Roofline("float16"))
    assert roofline["latency"] == hs.stages(graph(), cost).latency
    refused = run("stages", "graph.json", "--dtype", "float16")
    assert refused.exit_code == 2
    assert "there are constants of " in refused.stderr


def test_stages_of_a_cuda_graph_have_its_times(run: Any, folder: Path) -> None:
    hs.documents.write(graph(), "graph.json")
    shown = json.loads(run("stages", "graph.json", "--device", "h100", "--cuda-graph", "--json").stdout)
    cost = hs.costs.Contention(graph(), hs.costs.device("h100"), **hs.costs.Contention.CUDA_GRAPHS)
    assert shown["latency"] == hs.stages(graph(), cost).latency
    assert "where it was measured" not in run("stages", "graph.json", "--cuda-graph").stdout


def test_limits_and_devices_count(run: Any, folder: Path) -> None:
    hs.documents.write(graph(), "graph.json")

    def latency(*words: object) -> float:
        return json.loads(run("stages", "graph.json", "--json", *words).stdout)["latency"]

    assert latency("--groups", 1, "--group-size", 1) > latency() >= latency("--groups", 0, "--group-size", 0)
    assert latency("--device", "h100") != latency("--device", "p4")


def test_strategies_and_blocks_are_those_of_the_function(run: Any, folder: Path) -> None:
    whole = graph((1, 1))
    hs.documents.write(whole, "graph.json")
    cost = hs.costs.Contention(whole, hs.costs.device("v100"))
    own = [["in", "left"], ["right", "out"]]
    Path("blocks.json").write_text(json.dumps(own))

    def found(*words: object) -> dict[str, Any]:
        return json.loads(run("stages", "graph.json", "--json", *words).stdout)

    for strategies in ("concurrent", "merge", "both"):
        for word, blocks in (("yes", True), ("no", False), ("blocks.json", own)):
            facts = found("--strategies", strategies, "--blocks", word)
            best = hs.stages(whole, cost, strategies=strategies, blocks=blocks)
            assert (facts["latency"], facts["bound"]) == (best.latency, best.bound)
            assert all(row["strategy"] != {"merge": "concurrent", "concurrent": "merge"}.get(strategies) or len(row["groups"]) == 1
                       for row in facts["stages"])  # fmt: skip
    assert found("--strategies", "both")["latency"] < found("--strategies", "both", "--blocks", "blocks.json")["latency"]
    assert "2 blocks" in run("stages", "graph.json", "--blocks", "blocks.json").stdout
    assert "1 block" in run("stages", "graph.json", "--blocks", "no").stdout
    assert "bound" not in run("stages", "graph.json").stdout


def test_blocks_after_the_time_limit_are_cut_with_a_note_and_a_bound(run: Any, folder: Path) -> None:
    pairs = [(f"t{i}", f"u{i}") for i in range(9)]
    names = [name for pair in zip(*pairs, strict=True) for name in pair]
    hs.documents.write(hs.TaskGraph(names, pairs, op="conv2d", output_bytes=1e4, flops=1e8), "wide.json")
    shown = run("stages", "wide.json", "--time-limit", 0, "--group-size", 1, "--groups", 2)
    message = "the block of 18 tasks 't0', 't1' and 16 more was begun after the search was stopped and was cut into 2 parts"
    assert message in " ".join(shown.stdout.split())
    assert "bound     0 s; the stages are not proven to be the best" in shown.stdout
    free = run("stages", "wide.json", "--time-limit", 600, "--group-size", 1, "--groups", 2)
    assert "cut into" not in free.stdout
    assert "not proven" not in free.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "--blocks is 'blocks.json'; give yes, no or a JSON file with the names of each block's tasks ("),
        ("[[", "--blocks is 'blocks.json'; give yes, no or a JSON file with the names of each block's tasks ("),
        ('["in", "left"]', "blocks.json holds no blocks; it must be a list of lists of names of tasks"),
        ('[["in", 1]]', "blocks.json holds no blocks; it must be a list of lists of names of tasks"),
        ('[["in", "left"]]', "'right', 'out' are in none of the blocks"),
        ('[["left", "right", "out"], ["in"]]', "give blocks in the order of execution"),
    ],
)
def test_blocks_that_are_none_are_refused(run: Any, folder: Path, text: str | None, message: str) -> None:
    hs.documents.write(graph(), "graph.json")
    if text is not None:
        Path("blocks.json").write_text(text)
    refused = run("stages", "graph.json", "--blocks", "blocks.json")
    assert refused.exit_code == 2
    assert message in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stages", "schedule.json"], "schedule.json holds a schedule, but a task graph or a problem is needed here"),
        (["stages", "problem.json", "--device", "abacus"], "device kind 'abacus' is not in the catalogue"),
        (["stages", "problem.json", "--groups", "-1"], "--groups"),
        (["stages", "problem.json", "--strategies", "all"], "--strategies"),
        (["stages", "problem.json", "--time-limit", "-1"], "time_limit is -1"),
        (["stages", "problem.json", "-o", "problem.json"], "problem.json would be overwritten"),
        (["stages", "problem.json", "--gantt", "stages.txt"], "'stages.txt' does not end in .png, .svg or .pdf"),
    ],
)
def test_what_it_refuses(run: Any, problem: hs.Problem, schedule: hs.Schedule, words: list[str], message: str) -> None:
    refused = run(*words)
    assert refused.exit_code == 2
    assert message in refused.stderr


def test_a_wide_block_is_cut_with_a_message(run: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsched.models.ios.block_states.MOST_STATES", 1000)
    monkeypatch.setattr("hetsched.models.ios.dynamic_program.OF_A_PART", 1)
    names = [f"t{i}" for i in range(15)]
    hs.documents.write(hs.TaskGraph(names, op="conv2d", output_bytes=1e4, flops=1e8), "wide.json")
    message = "the block of 15 tasks 't0', 't1' and 13 more is too wide to be solved as one and was cut into 2 parts"
    assert message in " ".join(run("stages", "wide.json").stdout.split())
    assert json.loads(run("stages", "wide.json", "--json").stdout)["messages"] == [message]
