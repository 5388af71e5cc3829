"""`hetsched reproduce`: list, results, pages and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hetsched.experiments import Results
from hetsched.papers import papers


def test_the_list_names_every_item(run: Any) -> None:
    shown = run("reproduce", "--list")
    assert shown.exit_code == 0, shown.stderr
    for paper in papers():
        assert f"{paper.name}: " in shown.stdout
        for item in paper.items:
            assert f"{item.name} " in shown.stdout
    assert run("reproduce").stdout == shown.stdout
    assert run("reproduce", "ios", "--list").stdout in shown.stdout


def test_stored_results_are_shown_and_written_as_a_page(run: Any, folder: Path) -> None:
    counts = {"operators": 50, "tasks": 6, "width": 3, "bound": 220.0, "published": [51, 131], "every": [60, 152], "pruned": 51}
    Results(Path("kept") / "ios.jsonl").add({"what": "counts", "network": "squeezenet"}, counts)
    shown = run("reproduce", "ios", "table-1", "--stored", "--results", "kept", "-o", "page.md")
    assert shown.exit_code == 0, shown.stderr
    assert "6 of 6 numbers agree" in shown.stdout
    assert "claims: 3 cannot be seen here" in shown.stdout
    assert "| ios | table-1 | " in Path("page.md").read_text()
    facts = json.loads(run("reproduce", "ios", "table-1", "--stored", "--results", "kept", "--json").stdout)
    assert facts[0]["claims"][0]["verdict"] == "cannot be seen here"
    empty = run("reproduce", "ios", "table-1", "--stored", "--results", "none")
    assert "results: none at none/ios.jsonl" in empty.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["triangles"], "'triangles' is not one of the papers; choose from"),
        (["ios", "table-9"], "'table-9' is not an item of 'ios'; choose from"),
        (["all", "table-1"], "'table-1' is an item of one paper; name the paper instead of all"),
        (["ios", "--data", "nowhere"], "nowhere is not a folder"),
        (["ios", "--jobs", "0"], "greater than or equal to 1"),
        (["ios", "table-1", "--time-limit", "600"], "time_limit is 600, but no case of table-1 has a limit; leave it out"),
        (["all", "--time-limit", "600"], "not every paper has cases with a limit; name the paper instead of all"),
    ],
)
def test_wrong_arguments_are_told(run: Any, folder: Path, words: list[str], said: str) -> None:
    shown = run("reproduce", *words)
    assert shown.exit_code == 2
    assert said in shown.stderr
