"""The benchmark of searches: its figures of a run's history, and a run to its end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import search

from hetsched.experiments import Results

ROW = {"history": [[0.1, 12.0], [0.5, 11.0], [8.0, 10.5]], "makespan": 10.5, "bound": 9.0}


def report(limit: float = 10.0) -> search.Report:
    """Return a report on two runs of one method on an instance whose reference is 10."""
    results = Results(None)
    for seed, better in ((0, 10.6), (1, 9.8)):
        history = [*ROW["history"][:2], [8.0, better]]
        results.add({"instance": "mine", "method": "annealing", "seed": seed, "limit": limit}, {**ROW, "history": history})
    every = {"mine": search.Known("mine", 10.0, "proven optimum", lambda: pytest.fail("built"), drawn=True)}
    return search.Report(results, every, limit)


def test_quality_is_that_of_the_best_schedule_so_far() -> None:
    assert search.after(ROW, 0.05) == np.inf
    assert search.after(ROW, 0.1) == 12.0
    assert search.after(ROW, 7.9) == 11.0
    assert search.after(ROW, 60.0) == 10.5


def test_the_table_shows_the_median_over_seeds() -> None:
    text = report().text()
    assert "2 runs of 10 s, seeds 0, 1" in text
    assert "| mine | 10 | **10.0 %** |" in text  # after 1 s
    assert "| mine | 10 | **2.0 %** |" in text  # after 10 s
    assert "After 60 s" not in text


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "images" / "search.svg"
    path.parent.mkdir()
    report().plot(path)
    assert "annealing" in path.read_text()


@pytest.mark.slow
def test_it_runs_to_its_end(shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--quick", "--time-limit", "0.3", "--methods", "heft", "annealing", "--instances", "mk01", "--seeds", "0"]
    search.main([*words, "--data", str(shared_data), "--json", str(tmp_path / "found.json")])
    assert "| mk01 | 40 |" in capsys.readouterr().out
    figures = json.loads((tmp_path / "found.json").read_text())["figures"]
    assert {row["method"] for row in figures} == {"heft", "annealing"}
    assert all(row["makespan"] >= 40 for row in figures)


def test_an_instance_that_is_none_is_named(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        search.options(["--data", str(shared_data), "--instances", "mk99"])
    assert "unknown instance 'mk99'" in capsys.readouterr().err
