"""Profiled networks: they are read as their authors define them, and published values are reached and reported."""

from __future__ import annotations

import json
from pathlib import Path

import figures
import instances
import numpy as np
import period
import pytest

import hetsched as hs
from hetsched.schedule.objectives import max_load

CONTIGUOUS = {
    "layer/bert24_inference": 17.790,
    "layer/resnet50_inference": 33.775,
    "operator/bert_l-3_inference": 27.919,
    "operator/bert_l-6_inference": 29.580,
}
"""The least max-load of contiguous assignments."""


@pytest.fixture
def networks(shared_data: Path) -> Path:
    return shared_data / "msr-dnn-partitioning"


def test_a_network_is_read_as_its_authors_define_it(networks: Path) -> None:
    path = networks / "layer" / "gnmt_training.json"
    data = json.loads(path.read_text())
    problem = instances.read(path)
    assert problem.n_tasks == len(data["nodes"])
    assert problem.graph.n_edges == len(data["edges"])
    assert problem.n_units == len({node["colorClass"] for node in data["nodes"]})
    assert problem.cluster.names[-1] == "host0"
    assert np.isinf(problem.cluster.memory_bytes[-1])
    edge = next(e for e in data["edges"] if e["cost"] > 0)
    e = problem.graph.edges.tolist().index([problem.graph.index[f"n{edge['sourceId']}"], problem.graph.index[f"n{edge['destId']}"]])
    assert problem.transfer_times(e, 0, 6) == edge["cost"]
    assert problem.transfer_times(e, 0, 1) == 2 * edge["cost"]


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_the_best_intervals_are_found(networks: Path, name: str) -> None:
    problem = instances.read(networks / f"{name}.json")
    solution = hs.solve(problem, "contiguous", objective="max-load")
    assert solution.value == pytest.approx(CONTIGUOUS[name], abs=period.SLACK)
    assert max_load(problem, solution.schedule) == solution.value
    assert hs.verify(problem, solution.schedule) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", period.KNOWN)
def test_the_published_values_are_reached(networks: Path, name: str) -> None:
    problem = instances.read(networks / f"{name}.json")
    solution = hs.solve(problem, "load-search", objective="max-load", evaluations=400_000)
    assert solution.value <= period.KNOWN[name] + period.SLACK
    assert solution.bound <= solution.value
    assert hs.verify(problem, solution.schedule) == []


@pytest.mark.slow
def test_the_benchmark_writes_its_region(networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(period, "KNOWN", {"layer/bert24_inference": 17.778})
    page = tmp_path / "benchmarks.md"
    page.write_text("before\n<!-- period: begin -->\n<!-- period: end -->\nafter\n")
    period.main(["--quick", "--docs", str(tmp_path), "--json", str(tmp_path / "figures.json"), "--data", str(networks)])
    text = page.read_text()
    assert text.startswith("before\n")
    assert "| bert24_inference | 17.778 |" in text
    assert "### Objective period" in text
    assert json.loads((tmp_path / "figures.json").read_text())["figures"]


def test_the_page_of_the_docs_has_the_region() -> None:
    assert figures.replaced(figures.DOCS / "benchmarks.md", period.REGION, "x")


def test_a_bound_above_the_best_value_is_an_error() -> None:
    race = {"max-load": {"bound": 18.0}}
    assert period.contradictions({"layer/bert24_inference": race}) == [
        "layer/bert24_inference: the bound 18.0 is above the known value 17.778"
    ]
    assert period.contradictions({"layer/bert24_inference": {"max-load": {"bound": 17.0}}}) == []
