"""benchmarks/training_graphs.py: its tables on small graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import training_graphs

import hetsched as hs
from hetsched.papers import models
from hetsched.papers.models import Model


@pytest.mark.slow
def test_it_writes_its_tables(docs: Path):
    training_graphs.main(["--quick", "--docs", str(docs), "--json", str(docs / "found.json")])
    page = (docs / "benchmarks.md").read_text()
    assert "kept training_graphs" in page
    rows = json.loads((docs / "found.json").read_text())["figures"]
    assert set(rows) == {"gpt3 330M"}
    assert f"| gpt3 330M | 0.407B | {rows['gpt3 330M']['tasks']} | " in page
    assert "From module to schedule" not in page


@pytest.mark.slow
def test_a_large_one_is_captured_and_scheduled(monkeypatch: pytest.MonkeyPatch):
    vision = pytest.importorskip("hetsched.workloads.vision")
    torch = pytest.importorskip("torch")
    name = training_graphs.LARGEST[0]

    def small() -> hs.TaskGraph:
        return hs.frontends.torch.capture_training(lambda: vision.holography(6), torch.zeros(2, 4, 8, 8))

    monkeypatch.setattr(training_graphs, "larger", lambda: {name: Model(small)})
    table, rows = training_graphs.largest_table([name])
    assert f"| {name} | {small().n_tasks} | " in table
    assert table.count("**") == 2, "fewer tasks than wanted"
    assert rows[name]["capture_s"] > 0


def test_names_are_of_one_graph_each():
    names = [*models.training(), *training_graphs.larger(), *models.calls()]
    assert len(set(names)) == len(names)
