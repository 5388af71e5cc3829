"""The command that lists the modules of a graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched as hs
from hetsched.analysis.modules import modules


def twins() -> hs.Problem:
    """Return two equal diamonds in series, followed by a different tail."""
    graph = hs.TaskGraph(
        ["in", "a1", "b1", "out1", "a2", "b2", "out2", "end"],
        [
            ("in", "a1"),
            ("in", "b1"),
            ("a1", "out1"),
            ("b1", "out1"),
            ("out1", "a2"),
            ("out1", "b2"),
            ("a2", "out2"),
            ("b2", "out2"),
            ("out2", "end"),
        ],
        output_bytes=1e6,
    )
    times = np.array([[1, 2], [3, 4], [5, 3], [1, 1], [3, 4], [5, 3], [1, 1], [7, 8]]) * 1e-3
    return hs.Problem(graph, hs.Cluster(["cpu", "gpu"], bandwidth=1e9), durations=times)


def test_modules_are_listed_with_their_work_and_whose_copies_they_are(run: Any, folder: Path) -> None:
    twins().write("problem.json")
    shown = run("modules", "problem.json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert lines[:3] == [
        "problem 8 tasks, 9 edges",
        "modules 4 of 1 to 3 tasks, 3 different",
        "channels at most 1; a split is exact at 3 of 3 boundaries",
    ]
    work = 1 + 3 + 3 + 1 + 3 + 3 + 1 + 7
    shares = [f"{part / work:.2%}".rstrip("%") for part in (1, 7, 7, 7)]
    assert lines[4:] == [
        f"1 1 {shares[0]} % 1 in",
        f"2 3 {shares[1]} % 1 a1 .. out1",
        f"3 3 {shares[2]} % 1 a2 .. out2, as module 2",
        f"4 1 {shares[3]} % end",
    ]


def test_json_names_every_task(run: Any, folder: Path) -> None:
    problem = hs.Problem(
        hs.workloads.rwnn("er", 32, modules=3, channels=2, seed=2), hs.workloads.clusters.diviml(), costs=hs.costs.Roofline()
    )
    problem.write("problem.json")
    facts = json.loads(run("modules", "problem.json", "--json").stdout)
    partition = modules(problem.graph)
    assert facts["channels"] == partition.channels == 2
    names = problem.graph.names
    assert [row["tasks"] for row in facts["modules"]] == [[names[i] for i in part] for part in partition.tasks()]
    assert [row["number"] for row in facts["modules"]] == list(range(1, partition.number + 1))
    assert sum(row["work"] for row in facts["modules"]) == pytest.approx(1)
    for row, edges in zip(facts["modules"], partition.boundaries(), strict=False):
        assert set(row["channels"]) == {names[i] for i in problem.graph.source[edges]}
        assert row["same_as"] <= row["number"]
    assert facts["modules"][-1]["channels"] == []


def test_the_numbers_are_passed_on(run: Any, folder: Path) -> None:
    graph = hs.workloads.networks.load("googlenet")
    hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline()).write("problem.json")
    for words, options in (
        (["--channels", 1, "--smallest", 4], {"channels": 1, "smallest": 4}),
        (["--largest", 10], {"largest": 10}),
        (["--channels", 3, "--largest", 10], {"channels": 3, "largest": 10}),
    ):
        facts = json.loads(run("modules", "problem.json", "--json", *words).stdout)
        assert [len(row["tasks"]) for row in facts["modules"]] == modules(graph, **options).sizes.tolist()


def test_a_module_that_stays_too_large_is_reported(run: Any, folder: Path) -> None:
    layers = [(f"{t}.{i}", f"{t + 1}.{j}") for t in range(9) for i in range(8) for j in range(8)]
    graph = hs.TaskGraph([f"{t}.{i}" for t in range(10) for i in range(8)], layers)
    hs.Problem(graph, hs.Cluster(["x"]), durations=np.ones((80, 1))).write("problem.json")
    shown = run("modules", "problem.json")
    assert shown.exit_code == 0
    assert shown.stderr == (
        "note: no boundaries of at most 4 channels were found that leave all modules with at most 40 tasks; "
        "allow more with --channels or --largest\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--channels", "0"], "channels is 0; it must be a whole number, at least 1"), (["--largest", "few"], "'--largest'")],
)
def test_bad_numbers_are_one_line(run: Any, problem: hs.Problem, words: list[str], message: str) -> None:
    failed = run("modules", "problem.json", *words)
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert failed.stderr.count("\n") == 1
    assert message in failed.stderr


def test_work_that_fits_nowhere_counts_as_none(run: Any, folder: Path) -> None:
    graph = hs.TaskGraph("ab", [("a", "b")], weight_bytes=[8, 0])
    hs.Problem(graph, hs.Cluster([hs.Device("x", memory_bytes=4)]), durations=[[1], [1]]).write("problem.json")
    facts = json.loads(run("modules", "problem.json", "--json").stdout)
    assert [row["work"] for row in facts["modules"]] == [0, 1]
