"""benchmarks/truth.py: its tables on a small network, and repetition of disturbed sessions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import figures
import truth


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the tasks take")  # which are small here
def test_it_writes_its_tables(docs: Path) -> None:
    truth.main(["--quick", "--docs", str(docs), "--results", str(docs / "truth.jsonl")])
    page = (docs / "benchmarks.md").read_text()
    assert "kept truth" in page
    row = next(line for line in page.splitlines() if line.startswith("| squeezenet | 1 | 77 |"))
    cells = row.strip("| ").split(" | ")
    assert len(cells) == len(truth.HEAD)
    assert cells[-3:-1] == ["yes", "yes"], "every rule was kept, and to the bit without folding"
    assert float(cells[-1]) < 1e-5
    assert "A hand-off between two threads: " in page
    for title, first, head in (
        ("Streams of inputs", "| squeezenet | 1 |", truth.STREAM_HEAD),
        ("Two processes, by gloo", "| squeezenet | 1 |", truth.APART_HEAD),
        ("Several batches of a task", "| squeezenet | 2 |", truth.PART_HEAD),
    ):
        row = next(line for line in page.partition(f"### {title}\n")[2].splitlines() if line.startswith(first))
        cells = row.strip("| ").split(" | ")
        assert len(cells) == len(head)
        assert cells[-3] == "yes", title
        assert float(cells[-1]) < 1e-5
    goals = {line.split(" | ")[0][2:]: line.split(" | ")[-1][:-2] for line in page.splitlines() if line.endswith((" | yes |", " | no |"))}
    assert goals["outputs without folding"] == goals["runs that kept every rule"] == goals["deviation of outputs with folding"] == "yes"
    changed = re.search(r"One weight changed makes the outputs deviate by (\S+) at least; .* in float64 by up to (\S+)\.\n", page)
    assert changed is not None
    assert float(changed[1]) > 1e-4 > float(changed[2])
    rows = [json.loads(line) for line in (docs / "truth.jsonl").read_text().splitlines()]
    assert {row["table"] for row in rows} == set(truth.Measured._fields)


def test_goals_say_what_is_not_reached() -> None:
    def own(error: float, engine: float, *, disturbed: bool = False) -> Any:
        comparison = SimpleNamespace(error=error, engine=engine, run=1.0, violations=(), disturbed=disturbed)
        return truth.Session(100, 1.25, comparison, 2e-5, True, 0.1, 1e-5, 0.001, 0.01)

    sessions = {("googlenet", 1): own(-0.05, 0.01), ("squeezenet", 1): own(0.25, 0.02), ("squeezenet", 4): own(0.5, 0.5, disturbed=True)}
    found = truth.Measured(sessions, {}, {}, {}, {"googlenet": truth.Functions(100, 1.0, 1.00005, 0.03)}, {}, 2e-5, None)
    assert truth.goals(found).splitlines()[2:] == [
        "| outputs without folding | equal to the bit | 3 of 3 | yes |",
        "| deviation of outputs with folding | 1e-05 | 2.0e-05 at most | no |",
        "| runs that kept every rule | all | 3 of 3 | yes |",
        "| engine, threads | 3.0 % | 1.5 %, median of 2 | yes |",
        "| error of the forecast, threads, tasks of 100 us or more | 10.0 % | 15.0 %, median of 2 | no |",
        "| the same | 20.0 % | 25.0 %, largest of 2 | no |",
        "| dispatching a compiled task, more than in the module | 1.0 us | 0.5 us, largest of 1 | yes |",
        "| hand-off between two threads | 10.0 us | 20.0 us | no |",
        "| functions of GoogLeNet's tasks | 20.00 ms | 30.00 ms | no |",
        "| googlenet on two threads against one worker | 1.20 times | 1.25 times | yes |",
    ]


def test_the_page_of_the_docs_has_its_region() -> None:
    assert figures.replaced(figures.DOCS / "benchmarks.md", truth.REGION, "x")


def sessions(*disturbed: bool) -> Any:
    left = [SimpleNamespace(stolen=0.2 if one else 0.0, number=x) for x, one in enumerate(disturbed)]
    return lambda: left.pop(0)


def test_disturbed_sessions_are_repeated_but_not_for_ever() -> None:
    assert truth.undisturbed(sessions(True, True, False, False)).number == 2  # type: ignore[attr-defined]
    assert truth.undisturbed(sessions(*[True] * 9)).number == truth.SESSIONS - 1  # type: ignore[attr-defined]
