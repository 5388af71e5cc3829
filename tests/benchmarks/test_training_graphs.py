"""benchmarks/training_graphs.py: its tables on small graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import training_graphs

import hetsched as hs


@pytest.mark.slow
def test_it_writes_its_tables(docs: Path):
    training_graphs.main(["--quick", "--docs", str(docs), "--json", str(docs / "found.json")])
    page = (docs / "benchmarks.md").read_text()
    assert "kept training_graphs" in page
    rows = json.loads((docs / "found.json").read_text())["figures"]
    assert set(rows) == {"holography", "gpt3 330M"}
    assert f"| holography | {rows['holography']['tasks']} | " in page
    assert "| 3,810 | 49.1 |" in page
    assert f"| gpt3 330M | 0.407B | {rows['gpt3 330M']['tasks']} | " in page
    assert "From module to schedule" not in page


def test_a_large_one_is_captured_and_scheduled(monkeypatch: pytest.MonkeyPatch):
    vision = pytest.importorskip("hetsched.workloads.vision")
    torch = pytest.importorskip("torch")
    name = training_graphs.LARGEST[0]

    def small() -> hs.TaskGraph:
        return hs.frontends.torch.capture_training(lambda: vision.holography(6), torch.zeros(2, 4, 8, 8))

    monkeypatch.setattr(training_graphs, "training", lambda: {name: training_graphs.Step(small, 0, 0.0)})
    table, rows = training_graphs.largest_table([name])
    assert f"| {name} | {small().n_tasks} | " in table
    assert table.count("**") == 2, "fewer tasks than wanted"
    assert rows[name]["capture_s"] > 0


def test_the_ratio_of_communication_is_that_of_celeritas():
    graph = hs.TaskGraph(["a", "b"], [("a", "b")], output_bytes=[15.75e6, 0], flops=0, bytes_accessed=[9e8, 0])
    problem = training_graphs.problem_of(graph)
    wanted = problem.transfer_time(15.75e6, "gpu0", "gpu1") / problem.whole_durations[:, 0].sum()
    assert training_graphs.ccr(graph) == pytest.approx(wanted)


def test_names_are_of_one_graph_each():
    assert not set(training_graphs.training()) & set(training_graphs.calls())
    assert set(training_graphs.LARGEST) < set(training_graphs.training())


def test_phases_sum_to_all():
    names = ["x", "fc/linear", "loss/mean", "backward:fc/mm", "update:fc.weight"]
    assert training_graphs.phases(hs.TaskGraph(names)) == [3, 1, 1]
