"""`hetsched coarsen`: output, files, lifted schedules and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched as hs


@pytest.fixture
def chains(folder: Path) -> hs.Problem:
    names = [f"{c}{i}/op" for c in "ab" for i in range(6)]
    edges = [(f"{c}{i}/op", f"{c}{i + 1}/op", 1e6) for c in "ab" for i in range(5)]
    problem = hs.Problem(hs.TaskGraph(names, edges), hs.Cluster(["u", "v"], bandwidth=1e9), durations=np.full((12, 2), 1e-4))
    problem.write("problem.json")
    return problem


@pytest.mark.parametrize("by", ["celeritas", "heavy-edges", "degree-one", "module", "cudnn"])
def test_a_coarse_problem_is_written_and_its_schedule_carried_back(run: Any, chains: hs.Problem, by: str) -> None:
    words = ["coarsen", "problem.json", "--by", by, "--tasks", "4", "--window", "3"]
    shown = run(*words, "-o", "coarse.json")
    assert shown.exit_code == 0, shown.stderr
    assert "12 tasks, 10 edges, CCR 8.333" in shown.stdout
    coarse = hs.read("coarse.json")
    hs.solve(coarse, "heft").write("small.json")
    facts = json.loads(run(*words, "--lift", "small.json", "--lifted", "schedule.json", "--json").stdout)
    assert (facts["tasks"], facts["coarse_tasks"], facts["written"]) == (12, coarse.n_tasks, ["schedule.json"])
    assert facts["ccr"] == pytest.approx(10 * 1e-3 / 1.2e-3)
    assert hs.verify(chains, hs.read("schedule.json")) == []
    assert facts["makespan"] == hs.read("schedule.json").makespan <= facts["coarse_makespan"] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--by wishes", "--by is 'wishes'; choose one of celeritas, heavy-edges, degree-one, module, moirai, cudnn, onnxruntime"),
        ("--lift small.json", "--lift and --lifted go together"),
        ("--lift fine.json --lifted x.json", "fine.json is a schedule of other tasks, devices or inputs than those of the coarse problem"),
    ],
)
def test_refusals(run: Any, chains: hs.Problem, words: str, message: str) -> None:
    hs.solve(chains, "heft").schedule.write("fine.json")
    refused = run("coarsen", "problem.json", *words.split())
    assert refused.exit_code == 2
    assert message in refused.stderr


def test_a_schedule_of_other_devices_is_not_carried_back(run: Any, chains: hs.Problem) -> None:
    run("coarsen", "problem.json", "-o", "coarse.json")
    coarse = hs.read("coarse.json")
    turned = coarse.replace(cluster=hs.Cluster(["v", "u"], bandwidth=1e9))
    hs.solve(turned, "heft").schedule.write("turned.json")
    refused = run("coarsen", "problem.json", "--lift", "turned.json", "--lifted", "x.json")
    assert refused.exit_code == 2
    assert "is a schedule of other tasks, devices or inputs" in refused.stderr
    assert not Path("x.json").exists()


def test_fused_operators_hold_less_than_their_parts(run: Any, folder: Path) -> None:
    graph = hs.TaskGraph(["c", "r"], [("c", "r", 40.0)], op=["conv2d", "relu"], output_bytes=40.0)
    cluster = hs.Cluster([hs.Device(name, memory_bytes=70.0) for name in "uv"], bandwidth=1.0)
    hs.Problem(graph, cluster, durations=np.ones((2, 2))).write("p.json")
    run("coarsen", "p.json", "--by", "cudnn", "-o", "coarse.json")
    hs.solve(hs.read("coarse.json"), "heft").schedule.write("small.json")
    refused = run("coarsen", "p.json", "--by", "cudnn", "--lift", "small.json", "--lifted", "x.json")
    assert refused.exit_code == 2
    assert "breaks 1 rule, first: 'u' needs 80 bytes" in refused.stderr
    assert "need less memory than their parts" in refused.stderr


def test_a_best_effort_is_reported(run: Any, folder: Path) -> None:
    graph = hs.TaskGraph(["a", "b", "c"], weight_bytes=2e9)
    cluster = hs.Cluster([hs.Device(name, memory_bytes=3.1e9) for name in "uv"], bandwidth=1e9)
    hs.Problem(graph, cluster, durations=np.ones((3, 2))).write("tight.json")
    shown = run("solve", "tight.json", "--method", "block")
    assert shown.exit_code == 1
    assert "nearest   2.000 s, but 900 MB over the available memory" in shown.stdout
    facts = json.loads(run("solve", "tight.json", "--method", "block", "--json").stdout)
    assert facts["best_effort_bytes_over"] == pytest.approx(9e8)
