"""benchmarks/assistants.py: its tables and its picture, on two small runs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import assistants
import figures
import numpy as np
import pytest
import truth


@pytest.mark.slow
def test_it_writes_its_tables(docs: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assistants.main(["--quick", "--docs", str(docs), "--json", str(tmp_path / "figures.json")])
    page = (docs / "benchmarks.md").read_text()
    assert "kept assistants" in page
    for start in (
        "| googlenet, diviml | a100 |",
        "| googlenet, diviml | one link, x 5 |",
        "| 40 equal tasks | one device, x 2 or 3 |",
        "| googlenet, diviml: re-solve |",
        "### Without a change",
    ):
        assert start in page
    assert (docs / "images" / "assistants.svg").stat().st_size > 10_000
    made = json.loads((tmp_path / "figures.json").read_text())["figures"]
    for row in made["races"].values():
        after = row["after"]
        assert row["before"] < after["re-solve"] < after["static"]
        assert 0.2 < row["recovered"]["assistants"] < 1.5
        assert row["recovered"]["re-solve"] == 1
        assert row["migrations"]["static"] == 0
        assert [sum(moved[len(moved) // 2 :]) for moved in row["steady"]["assistants"]] == [0, 0, 0]
        assert [sum(moved) for moved in row["steady"]["searching"][:2]] == [0, 0]
    assert len(made["changes"]) == 3
    for name, cases in made["changes"].items():
        assert {case["kind"] for case in cases} >= {"one device, x 2 or 3", "one device, x 20", "recovered from that"}
        for case in cases:
            assert case["seconds"]["searching"] <= 1.1 * case["seconds"]["re-solve"], (name, case["where"])


@pytest.mark.slow
@pytest.mark.skipif(len(truth.cores()) < 2, reason="the two workers need two cores")
@pytest.mark.filterwarnings("ignore:the tasks take")  # which are small here
def test_it_writes_its_table_of_real_workers(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(truth, "SESSIONS", 1)
    assistants.main(["--real", "--quick", "--docs", str(docs), "--json", str(tmp_path / "figures.json")])
    page = (docs / "benchmarks.md").read_text()
    assert "kept assistants" in page
    text = page.split("<!-- assistants_real: begin -->")[1].split("<!-- assistants_real: end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == ["policy", "---", "static", "assistants", "searching", "re-solve", "by hand"]
    assert float(text.split("Largest deviation of a result: ")[1].split()[0].rstrip(".")) <= 1e-5
    made = json.loads((tmp_path / "figures.json").read_text())["figures"]
    scale = assistants.QUICK
    assert sum(len(made["static"][phase]) for phase in ("before", "with it", "after")) == scale.iterations - scale.warm
    assert ("disturbed" in text) == (made["stolen"] > 0.1)
    moved = made["by hand"]["moved"][0]
    assert [t for t, count in enumerate(moved) if count] in ([scale.start, scale.stop], [])


def race(cpu: float, beside: float) -> assistants.RealRace:
    """Return a race of one lap in which the shares `cpu` and `beside` of tasks' time were CPU time, the latter beside the spinner."""
    scale = assistants.QUICK
    wall = np.ones((scale.iterations, 2))
    spent = np.full((scale.iterations, 2), cpu)
    spent[scale.phases["with it"], 1] = beside
    spent[: scale.warm] = 0.0
    return assistants.RealRace(scale, 1, 1, {"static": [assistants.Lap(None, wall, spent, 0.0)]})  # type: ignore[arg-type]


def test_what_the_spinner_takes_is_not_stolen() -> None:
    quiet = race(1.0, 0.5)
    assert (quiet.stolen, quiet.spun) == (0.0, 0.5)
    assert (race(0.75, 0.5).stolen, race(0.75, 0.25).spun) == (0.25, 0.75)


def test_a_spinner_computes_only_while_it_is_on() -> None:
    with assistants.Spinner(truth.cores()[0]) as spinner:
        times = Path(f"/proc/{spinner.process.pid}/stat")
        before = state(times)
        spinner.switch(True)
        running = state(times)
        spinner.switch(False)
        after = state(times)
    assert (before, running, after) == ("T", "R", "T")
    assert not times.exists()


def state(stat: Path) -> str:
    """Return the state of a process once it no longer changes."""
    states = [""] * 5
    while len(set(states)) > 1 or not states[0]:
        time.sleep(0.01)
        states = [*states[1:], stat.read_text().rpartition(")")[2].split()[0]]
    return states[0]


@pytest.mark.parametrize("region", [assistants.REGION, assistants.REAL])
def test_the_page_of_the_docs_has_the_regions(region: str) -> None:
    assert figures.replaced(figures.DOCS / "benchmarks.md", region, "x")
