"""Items of papers: measured case by case, stored, continued, reported with verdicts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import hetsched as hs
from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.experiments import Progress, Results
from hetsched.experiments.results import sources
from hetsched.papers import Claim, Item, Paper, Report, Setting, Table, Verdict, find_paper, papers, registry, rendering

MODULE = """
import os
from pathlib import Path
from hetsched.papers import Claim, Item, Paper, Report, Table

def cases(setting):
    return [{"what": "square", "x": x} for x in range(1 if setting.quick else 3)]

def limited(setting):
    return [*cases(setting), {"what": "square", "x": 3, "limit": 2.0}, {"what": "square", "x": 4, "limit": None}]

def measure(case, data):
    with open(Path(data) / "log", "a") as log:
        print(case["x"], file=log)
    if (Path(data) / f"fail{case['x']}").exists():
        raise ValueError(f"no square of {case['x']}")
    if (Path(data) / f"die{case['x']}").exists():
        os._exit(7)
    return {"square": case["x"] ** 2, "says": f"{case['x'] ** 2}"}

def report(rows, setting):
    table = Table(["x", "square"], [[str(row["x"]), str(row["square"])] for row in rows])
    held = Claim.decided("squares are even", all(row["square"] % 2 == 0 for row in rows), f"{len(rows)} squares")
    return Report([table], [held], ["a note"])

ITEMS = [Item(name, f"Item {name}", "nothing", cases, report) for name in ("table-1", "figure-2")]
ITEMS.append(Item("figure-3", "Item figure-3", "it has 2 s", limited, report))
PAPER = Paper("squares", "On squares", "Euclid", ITEMS[:2], measure)
LIMITED = Paper("squares", "On squares", "Euclid", ITEMS, measure)
"""


@pytest.fixture
def squares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a paper of two items with the same cases known, and return its folder of data."""
    source, data = tmp_path / "source", tmp_path / "data"
    source.mkdir()
    data.mkdir()
    (source / "paper_on_squares.py").write_text(MODULE)
    (source / "sitecustomize.py").write_text(PATCH)
    monkeypatch.syspath_prepend(source)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(source), str(Path(hs.__file__).parents[1])]))
    monkeypatch.setattr(registry, "PAPERS", {"squares": "paper_on_squares"})
    return data


PATCH = """
import hetsched.papers.registry
hetsched.papers.registry.PAPERS = {"squares": "paper_on_squares"}
"""


def measured(data: Path) -> list[str]:
    return (data / "log").read_text().split() if (data / "log").exists() else []


def test_results_are_measured_once_and_shared_by_the_items_of_a_paper(squares: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    made = hs.reproduce("squares", data=squares, results=tmp_path / "results", on_progress=told.append)
    assert [one.item.name for one in made] == ["table-1", "figure-2"]
    assert measured(squares) == ["0", "1", "2"]
    assert str(told[-1]) == "3 of 3: square 2: 4"
    assert [list(row) for row in made[0].report.tables[0].rows] == [["0", "0"], ["1", "1"], ["2", "4"]]
    again = hs.reproduce("squares", "table-1", data=squares, results=tmp_path / "results")
    assert measured(squares) == ["0", "1", "2"]
    assert again[0] == made[0]
    hs.reproduce("squares", "table-1", quick=True, data=squares, results=tmp_path / "results", fresh=True)
    assert measured(squares) == ["0", "1", "2", "0"]


def test_results_of_another_limit_are_kept_apart(squares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import paper_on_squares

    monkeypatch.setattr(paper_on_squares, "PAPER", paper_on_squares.LIMITED)
    (squares / "die0").touch()  # nothing but what is stored is to be told
    store = Results(tmp_path / "squares.jsonl")
    for case in paper_on_squares.limited(Setting()):
        store.add(case, {"square": case["x"] ** 2})
    store.add({"what": "square", "x": 3, "limit": 600.0}, {"square": -9})

    def shown(limit: float | str | None) -> tuple[list[str], str]:
        (made,) = hs.reproduce("squares", "figure-3", results=tmp_path, stored=True, time_limit=limit)
        return [row[1] for row in made.report.tables[0].rows], str(made)

    assert shown(None)[0] == ["0", "1", "4", "9", "16"]
    assert "Whatever limit" not in shown(None)[1]
    for limit in (600, 600.0, "10 min"):
        squared, text = shown(limit)
        assert squared == ["0", "1", "4", "-9", "16"], "cases without a limit are the same"
        assert "Whatever limit is named above, here it is 600 s for each method, by --time-limit." in text
    assert shown(2)[0] == shown(None)[0]
    assert shown(60)[0] == ["0", "1", "4", "16"]
    assert "cannot be seen here: 4 of 5 cases are measured yet" in shown(60)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "said"), [("fail", "ValueError: no square of 1"), ("die", "ended by itself with exit code 7")])
def test_a_case_that_fails_keeps_the_others(squares: Path, tmp_path: Path, how: str, said: str) -> None:
    (squares / f"{how}1").touch()
    with pytest.raises(hs.HetschedError, match=f"square 1 failed: .*{said}.*run again"):
        hs.reproduce("squares", data=squares, results=tmp_path / "results")
    stored = hs.reproduce("squares", data=squares, results=tmp_path / "results", stored=True)
    assert [list(row) for row in stored[0].report.tables[0].rows] == [["0", "0"], ["2", "4"]]
    (claim,) = stored[0].report.claims  # the even squares alone would hold it
    assert (str(claim.verdict), claim.reason) == ("cannot be seen here", "2 of 3 cases are measured yet; 2 squares")
    (squares / f"{how}1").unlink()
    hs.reproduce("squares", data=squares, results=tmp_path / "results")
    assert measured(squares) == ["0", "1", "2", "1"]


def test_results_of_other_sources_are_told(squares: Path, tmp_path: Path) -> None:
    hs.reproduce("squares", data=squares, results=tmp_path)
    path = tmp_path / "squares.jsonl"
    path.write_text(path.read_text().replace(sources(), "other", 2))
    made = hs.reproduce("squares", "table-1", data=squares, results=tmp_path)[0]
    assert made.outdated == 2
    assert "2 of its cases were measured with other sources of hetsched; --fresh measures the paper again" in str(made)


@pytest.mark.slow
def test_a_line_cut_off_is_measured_again_and_a_damaged_file_is_told(squares: Path, tmp_path: Path) -> None:
    hs.reproduce("squares", data=squares, results=tmp_path)
    path = tmp_path / "squares.jsonl"
    path.write_text(path.read_text()[:-20])
    hs.reproduce("squares", data=squares, results=tmp_path)
    assert measured(squares) == ["0", "1", "2", "2"]
    path.write_text("{}\n" + path.read_text())
    with pytest.raises(InvalidProblem, match="line 1 of .*squares.jsonl is not a record; remove it"):
        hs.reproduce("squares", data=squares, results=tmp_path)


def test_reports_have_tables_notes_and_verdicts(squares: Path, tmp_path: Path) -> None:
    made = hs.reproduce("squares", data=squares)
    text = str(made[0])
    assert "differs from the paper: nothing" in text
    assert "x  square\n0       0\n1       1\n2       4" in text
    assert "not held: 3 squares" in text
    page = rendering.page(made)
    assert "| squares | table-1 | squares are even | not held | 3 squares |" in page
    assert "| x | square |\n| --- | ---: |\n| 0 | 0 |" in page
    assert "a note" in page
    facts = json.loads(json.dumps(made[0].as_dict()))
    assert facts["claims"] == [{"text": "squares are even", "verdict": "not held", "reason": "3 squares"}]
    nothing = hs.reproduce("squares", results=tmp_path / "empty", stored=True)
    assert "nothing is measured yet" in str(nothing[0])
    assert "Nothing of it is measured here yet." in rendering.page(nothing)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"paper": "triangles"}, "'triangles' is not one of the papers; choose from squares"),
        ({"items": "table-9"}, "'table-9' is not an item of 'squares'; choose from table-1, figure-2"),
        ({"stored": True}, "stored is True without results; give the folder"),
        ({"stored": True, "fresh": True, "results": "."}, "stored and fresh are both True"),
        ({"jobs": 0}, "jobs is 0; it must be a whole number, at least 1"),
        ({"time_limit": "600"}, "time_limit is '600'; it must be a number of seconds"),
        ({"time_limit": -1}, "time_limit is -1; it must be a number of seconds"),
        ({"time_limit": 600}, "time_limit is 600, but no case of table-1, figure-2 has a limit; leave it out"),
    ],
)
def test_wrong_arguments_are_told(squares: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        hs.reproduce(**({"paper": "squares"} | arguments))


def test_a_missing_library_is_told_before_anything_is_measured(squares: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paper = find_paper("squares")
    items = [Item("table-1", "Table 1", "nothing", paper.items[0].cases, paper.items[0].report, needs=(("no_such_module", "torch"),))]
    monkeypatch.setattr("paper_on_squares.PAPER", Paper("squares", "On squares", "Euclid", items, paper.measure))
    with pytest.raises(hs.MissingDependency, match="no_such_module"):
        hs.reproduce("squares", data=squares)
    assert measured(squares) == []


def test_every_paper_has_items_with_names_of_their_own() -> None:
    for paper in papers():
        assert paper.name in registry.PAPERS
        names = [item.name for item in paper.items]
        assert len(set(names)) == len(names)
        for item in paper.items:
            assert item.title
            assert item.differs
            for quick in (True, False):
                cases = item.cases(Setting(quick))
                assert json.loads(json.dumps(cases)) == list(cases)
                item.report([], Setting(quick))  # nothing is measured


def test_claims_count_and_tables_are_checked() -> None:
    claims = [Claim.decided("a", True, ""), Claim("b", Verdict.UNSEEN, ""), Claim.decided("c", True, "")]
    assert rendering.counted(claims) == "2 held, 1 cannot be seen here"
    with pytest.raises(ValueError, match="a row of 1 cells under a head of 2"):
        Table(["a", "b"], [["a"]])
    assert Report().tables == ()
    assert Results().rows([{"x": 1}]) == []
