"""GPT-3 on six nodes: the repetition of a node's schedule is valid, and the script writes its tables and continues."""

from __future__ import annotations

import json
from pathlib import Path

import cases
import figures
import gpt3
import numpy as np
import pytest

import hetsched as hs


@pytest.mark.parametrize("inputs", [1, 3])
def test_the_schedule_of_one_node_is_repeated_on_the_others(inputs: int):
    problem, part = gpt3.problem_of("6.7B", 6, 3, inputs), gpt3.problem_of("6.7B", 2, 1, inputs)
    schedule_of_part = hs.solve(part, "annealing" if inputs == 1 else "heft", evaluations=2000, seed=1).schedule
    assert schedule_of_part is not None
    decision = gpt3.repeated(schedule_of_part.decision, part, 3)
    schedule = hs.simulate(problem, decision)
    assert hs.verify(problem, schedule) == []
    devices = schedule.batches.device
    node = (schedule.batches.task - 1) // (part.n_tasks - 1)
    node[schedule.batches.task == 0] = 0
    assert np.array_equal(devices // 4, node), "each part is on its node"
    first = {(int(i), int(k)) for i, k in zip(schedule_of_part.batches.task, schedule_of_part.batches.device, strict=True) if i}
    for n in range(3):
        mine = node == n
        moved = zip(schedule.batches.task[mine] - n * (part.n_tasks - 1), devices[mine] - 4 * n, strict=True)
        assert {(int(i), int(k)) for i, k in moved if i} == first
    hops = 2 * float(problem.transfer_times(np.array([0]), np.array([0]), np.array([4]), inputs)[0])
    assert schedule.makespan <= 3 * schedule_of_part.makespan + hops + 1e-12
    assert schedule.makespan >= 3 * schedule_of_part.makespan


def test_half_a_block_runs_between_its_ends():
    block = gpt3.problem_of("125M", 1, 2, 1)
    for ends, device in gpt3.ENDS.items():
        problem = gpt3.half_problem("125M", 2, 1, ends)
        assert problem.graph.names[0] == "x"
        assert problem.graph.names[-1] == "h0.add"
        allowed = [np.flatnonzero(np.isfinite(problem.whole_durations[i])).tolist() for i in (0, -1)]
        assert allowed == [[0], [block.cluster.names.index(device)]]


@pytest.mark.slow
def test_gpt3_writes_its_tables_and_goes_on(docs: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--quick", "--docs", str(docs), "--results", str(docs / "gpt3.jsonl"), "--json", str(docs / "gpt3.json"), "--solvers", "cpsat"]
    gpt3.main([*words, "--time-limit", "5"])
    assert "0 of 23 cases" in capsys.readouterr().out
    gpt3.main([*words, "--time-limit", "5", "--parts", "stack"])
    assert "7 of 7 cases" in capsys.readouterr().out
    page = (docs / "benchmarks.md").read_text()
    assert "kept gpt3" in page
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    shown = {line[0]: line[-1] for line in lines}
    assert {*gpt3.SCHEDULES, "upper bound", *(f"cpsat, {ends}" for ends in gpt3.ENDS)} < set(shown)
    bound = float(shown["upper bound"])
    assert all(0 < float(shown[name]) <= bound for name in gpt3.SCHEDULES)
    rows = json.loads((docs / "gpt3.json").read_text())["figures"]
    proven = {(row["ends"], round(row["makespan"] * 1e12)) for row in rows if row.get("proven")}
    assert len(proven) <= len(gpt3.ENDS), "whatever the criterion, the optimum is the same"


def test_a_bound_above_a_makespan_stops_the_run():
    case = {"model": "125M", "nodes": 2, "layers": 2, "inputs": 1, "schedule": "list schedulers", "solver": "scip", "limit": 1.0}
    results = cases.Results(None)
    results.add(case, {"makespan": 1.0, "bound": 0.5})
    other = {**case, "schedule": "single node, split"}
    results.add(other, {"makespan": None, "bound": 0.0})
    half = {"model": "125M", "nodes": 2, "inputs": 1, "ends": "the same", "criterion": "by time", "solver": "scip", "limit": 1.0}
    results.add(half, {"makespan": 3.0, "bound": 3.0})
    gpt3.check(results, case)
    results.add({**case, "solver": "cpsat"}, {"makespan": 1.5, "bound": 1.1})
    with pytest.raises(SystemExit, match=r"one is wrong on model 125M, nodes 2, layers 2, inputs 1: a bound of 1.1 s is proven"):
        gpt3.check(results, other)
    gpt3.check(results, half)


def test_the_page_of_the_docs_has_its_region():
    assert figures.replaced(figures.DOCS / "benchmarks.md", gpt3.REGION, "x")


@pytest.mark.parametrize(("words", "message"), [(["--layers", "3"], "3 layers cannot be shared out evenly to 2 nodes")])
def test_layers_are_shared_out_evenly(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        gpt3.main(["--quick", *words])
    assert message in capsys.readouterr().err
