"""The benchmarks run to their end and write their tables; their helper functions."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import adversaries
import bounds
import certificates
import exact
import figures
import goals
import identical
import instances
import list_scheduling
import numpy as np
import peers
import period
import planning
import published
import pytest
import real_graphs
import search
import serving
import start_up
import weakest

import hetsched as hs

SCRIPTS = (
    list_scheduling,
    real_graphs,
    bounds,
    exact,
    published,
    search,
    period,
    planning,
    serving,
    start_up,
    adversaries,
    certificates,
    identical,
    goals,
    weakest,
)

FAKE_SAGA = """
class Network:
    @classmethod
    def create(cls, nodes, links):
        return dict(nodes)

class TaskGraph:
    @classmethod
    def create(cls, tasks, arcs):
        return list(tasks)
"""
FAKE_SCHEDULERS = """
import time
from types import SimpleNamespace
from saga.schedulers import cpop

class FastestNodeScheduler:
    def schedule(self, network, graph):
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return SimpleNamespace(makespan=sum(cost for _, cost in graph) / max(network.values()))

class HeftScheduler:
    def schedule(self, network, graph):
        return SimpleNamespace(makespan=1.0)

class SufferageScheduler:
    def schedule(self, network, graph):
        while True:
            pass
"""
FAKE_RANKS = """
from functools import cache
upward_rank = cache(lambda: 0)
cpop_ranks = cache(lambda: 0)
"""


@pytest.fixture
def fake_saga(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> peers.Saga:
    """Return a fake of SAGA with three schedulers: a quick one, a wrong one, and one that never ends."""
    schedulers = tmp_path / "saga" / "schedulers"
    schedulers.mkdir(parents=True)
    (tmp_path / "saga" / "__init__.py").write_text(FAKE_SAGA)
    (schedulers / "__init__.py").write_text(FAKE_SCHEDULERS)
    (schedulers / "cpop.py").write_text(FAKE_RANKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return peers.Saga("2.0.2", Path(sys.executable))


def test_a_region_is_exchanged_and_the_rest_kept(docs: Path):
    page = docs / "benchmarks.md"
    old = page.read_text()
    page.write_text(figures.replaced(page, "bounds", "| new |\n"))
    once = page.read_text()
    assert once.replace("\n| new |\n\n<!-- bounds: end", "<!-- bounds: end") == old
    page.write_text(figures.replaced(page, "bounds", "\n| new |"))
    assert page.read_text() == once, "the same text makes the same page"


@pytest.mark.parametrize(
    ("page", "named"),
    [
        ("<!-- bounds: end -->\n", "bounds: begin"),
        ("<!-- bounds: begin -->\n", "bounds: end"),
        ("<!-- bounds: begin -->\n" * 2 + "<!-- bounds: end -->\n", "bounds: begin"),
        ("<!-- bounds: end -->\n<!-- bounds: begin -->\n", "bounds: end"),
    ],
)
def test_a_page_without_its_markers_is_refused_before_anything_runs(tmp_path: Path, page: str, named: str):
    (tmp_path / "benchmarks.md").write_text(page)
    with pytest.raises(SystemExit, match=named):
        bounds.main(["--quick", "--docs", str(tmp_path), "--data", "no such folder"])
    assert (tmp_path / "benchmarks.md").read_text() == page


def test_the_page_of_the_docs_has_every_region():
    for script in SCRIPTS:
        assert figures.replaced(figures.DOCS / "benchmarks.md", script.REGION, "x")


def test_tables_align_and_refuse_ragged_rows():
    assert figures.table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
    with pytest.raises(ValueError, match="1 cells under a head of 2"):
        figures.table(["a", "b"], [["x"]])


def test_goals_stand_beside_what_is_known(docs: Path):
    goals.main(["--docs", str(docs)])
    page = (docs / "benchmarks.md").read_text()
    for what in ("assembly job shops (dafjs, yfjs)", "Standard Task Graphs", "worst problems of list schedulers"):
        assert f"| {what} |" in page
    assert goals.reached(
        [{"set": "a", "says": "reached: ...", "proven": True}, {"set": "a", "says": "MISSED", "proven": True}], set="a"
    ) == (2, 1, 1)
    assert "102 closed, 102 of them with a checked certificate" in page, "those found by `adversaries.py`, all certified"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.00"),
        (0.0123, "0.0123"),
        (0.5, "0.500"),
        (1.5, "1.50"),
        (22.84, "22.8"),
        (99.96, "100"),
        (123.4, "123"),
        (25840.2, "25 840"),
    ],
)
def test_numbers_have_three_digits(value: float, shown: str):
    assert figures.number(value).replace("\N{NO-BREAK SPACE}", " ") == shown


def test_the_least_time_is_cpu_time():
    assert figures.least(lambda: sum(range(200_000)), 0.0) > 1e-4
    assert figures.least(lambda: time.sleep(0.05), 0.0) < 0.04, "sleeping costs no CPU time"


def test_the_same_figure_makes_the_same_file(tmp_path: Path):
    plt = pytest.importorskip("matplotlib.pyplot")
    files = [tmp_path / "images" / name for name in ("one.svg", "two.svg")]
    for file in files:
        figure, ax = plt.subplots()
        figures.dots(ax, ["a", "b"], [("s", {"a": 10.0, "b": 100.0})], beyond=lambda _, row: row == "b")
        figures.log_ticks(ax, (1, 10, 100))
        figures.save(figure, file)
        plt.close(figure)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert b"dc:date" not in files[0].read_bytes()


def test_layered_graphs_are_what_both_sides_can_read():
    data = instances.layered(500, 20, seed=3)
    assert data == instances.layered(500, 20, seed=3) != instances.layered(500, 20, seed=4)
    assert json.loads(json.dumps(data)) == data
    problem = instances.peer(data)
    assert (problem.n_tasks, problem.n_devices, problem.graph.n_edges) == (500, 4, len(data["edges"]))
    layer = np.arange(500) // 20
    assert (layer[problem.graph.target] == layer[problem.graph.source] + 1).all()
    assert set(np.bincount(problem.graph.target, minlength=500)[20:]) <= {1, 2, 3}
    assert np.allclose(problem.whole_durations, np.array(data["cost"])[:, None] / data["speed"])
    links = np.array(data["bw"])
    assert (links == links.T).all(), "SAGA's links are symmetric"


@pytest.mark.parametrize("kind", ["er", "ws", "ba"])
def test_modules_are_related_by_default(kind: str):
    problem = instances.module(kind, 10, 3)
    assert (problem.n_tasks, problem.n_devices) == (10, 3)
    assert np.allclose(problem.whole_durations * [1, 1.5, 2], problem.whole_durations[:, :1])
    assert (instances.module(kind, 10, 3).whole_durations == problem.whole_durations).all()
    assert (instances.module(kind, 10, 4).whole_durations != problem.whole_durations).any()
    unrelated = instances.module(kind, 10, 3, unrelated=True)
    assert (unrelated.graph.edges == problem.graph.edges).all()
    assert np.unique(unrelated.whole_durations.argmin(axis=1)).size > 1, "no device is the quickest for all"


@pytest.mark.slow
def test_a_scheduler_of_saga_is_measured_or_interrupted(tmp_path: Path, fake_saga: peers.Saga, capsys: pytest.CaptureFixture[str]):
    data = instances.layered(40, 4)
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(data))
    names = ["FastestNodeScheduler", "SufferageScheduler", "ETFScheduler"]
    fake_saga.run("tiny", path, 0.3, names, patience=0.2)
    assert fake_saga.makespans["tiny", "FastestNodeScheduler"] == pytest.approx(sum(data["cost"]) / 3)
    assert fake_saga.seconds["tiny", "FastestNodeScheduler"] == pytest.approx(0.02, abs=0.02)
    assert fake_saga.makespans["tiny", "SufferageScheduler"] is None
    assert fake_saga.seconds["tiny", "SufferageScheduler"] == 0.3
    assert ("tiny", "ETFScheduler") not in fake_saga.seconds, "this version has none"
    assert "SufferageScheduler: > 0.3 s" in capsys.readouterr().out
    fake_saga.run("tiny", path, 0.3, names, patience=0.2)
    again = capsys.readouterr().out
    assert "FastestNodeScheduler" in again
    assert "SufferageScheduler" not in again, "beyond patience it is not run again"
    fake_saga.run("tiny", path, 0.3, names, patience=0.0)
    assert capsys.readouterr().out == "", "nor is anything if building is beyond patience"


def test_a_venv_that_is_there_is_used_again(tmp_path: Path):
    release = f"{sys.version_info[0]}.{sys.version_info[1]}"
    home = tmp_path / f"saga-2.0.2-python{release}"
    home.mkdir()
    (home / ".installed").touch()
    assert peers.saga("2.0.2", sys.executable, tmp_path).python == home / "bin" / "python"
    with pytest.raises(SystemExit, match="no-such-python.*--peer-python"):
        peers.saga("2.0.2", "no-such-python", tmp_path)


@pytest.mark.slow
def test_the_league_writes_its_tables_and_its_plot(shared_data: Path, docs: Path, fake_saga: peers.Saga, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(peers, "saga", lambda *_: fake_saga)
    words = ["--quick", "--docs", str(docs), "--data", str(shared_data / "peer"), "--limit", "0.2", "--json", str(docs / "league.json")]
    list_scheduling.main(words)
    page = (docs / "benchmarks.md").read_text()
    assert "kept list_scheduling" in page
    for name in ("layered100", "rwnn10x32", "layers500"):
        section = page.partition(f"### {name}:")[2].partition("###")[0]
        rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in section.splitlines() if line.startswith("| ")}
        assert set(list_scheduling.ROWS) < set(rows)
        assert rows["sufferage"][-1].startswith("> "), "it ran out of time, and is shown all the same"
        assert rows["mcp"][-3:] == ["", "", " |"]
    assert "not on layered100, rwnn10x32, layers500." in page, "the fake's HEFT makes another makespan"
    written = json.loads((docs / "league.json").read_text())["figures"]
    problem = instances.peer(json.loads((shared_data / "peer" / "layered100.json").read_text()))
    best = hs.solve(problem, instances.list_schedulers()).makespan
    makespans = {row: value["makespan"] for row, value in written["layered100"]["hetsched"].items() if row in list_scheduling.ROWS}
    assert min(makespans[name] for name in instances.list_schedulers()) == best
    assert (docs / "images" / "list_scheduling.svg").exists()


@pytest.mark.slow
def test_real_graphs_write_their_tables_and_their_plot(shared_data: Path, docs: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(real_graphs, "COMMUNICATIONS", ("delay",))
    path = docs / "real.json"
    real_graphs.main(["--quick", "--docs", str(docs), "--data", str(shared_data / "moirai"), "--json", str(path)])
    section = (docs / "benchmarks.md").read_text().partition("### GoogLeNet")[2].partition("###")[0]
    for name in (*real_graphs.METHODS, "lower bound", "gap"):
        assert f"\n| {name} | " in section
    for graph in json.loads(path.read_text())["figures"].values():
        for row in graph.values():
            assert row["bound"] <= row["makespans"]["auto"] == min(row["makespans"].values())
    assert (docs / "images" / "real_graphs.svg").exists()


@pytest.mark.slow
def test_bounds_write_their_table(shared_data: Path, docs: Path):
    bounds.main(["--quick", "--docs", str(docs), "--data", str(shared_data / "peer")])
    page = (docs / "benchmarks.md").read_text()
    assert "\n| rwnn1x10 | 128.3 | 68.5 | " in page
    assert "kept bounds" in page


@pytest.mark.slow
def test_planning_writes_its_table(docs: Path):
    planning.main(["--quick", "--docs", str(docs)])
    page = (docs / "benchmarks.md").read_text()
    assert "| 16 devices in 4 groups | latency |" in page
    assert "| 16 devices in 4 groups | throughput |" in page


def test_serving_runs_to_its_end(docs: Path, tmp_path: Path):
    row = {"layers": 4, "types": [{"count": 2, "throughput_by_layers": [8.0, 4.0]}], "published_objective": 4.0}
    (tmp_path / "open.json").write_text(json.dumps({"small": row}))
    serving.main(["--quick", "--docs", str(docs), "--data", str(tmp_path / "open.json")])
    assert "| `small`: 4 layers, 2 nodes | 4.0000 | 4.0000 | 4.0000 | proven | counting |" in (docs / "benchmarks.md").read_text()


def test_serving_refuses_links_that_may_bind(tmp_path: Path):
    row = {"layers": 1, "types": [], "published_objective": 4.0, "least_pair_capacity": 3.0}
    (tmp_path / "open.json").write_text(json.dumps({"small": row | {"types": [{"count": 1, "throughput_by_layers": [8.0]}]}}))
    with pytest.raises(ValueError, match="small: links of 3.0 tokens/s may bind; give them as a matrix 'links'"):
        serving.instances(tmp_path / "open.json")


@pytest.mark.slow
def test_certificates_are_made_and_checked(docs: Path):
    certificates.main(["--quick", "--docs", str(docs)])
    assert "| `topcuoglu2002` | 10, 3 | 73 | equal |" in (docs / "benchmarks.md").read_text()


@pytest.mark.slow
def test_adversaries_are_found_and_saved(docs: Path, tmp_path: Path):
    adversaries.main(["met", "--quick", "--docs", str(docs), "--save", str(tmp_path / "worst")])
    assert "| `met` | " in (docs / "benchmarks.md").read_text()
    problem, schedule = (hs.read(tmp_path / f"worst/met-unrelated-none.{kind}.json") for kind in ("problem", "schedule"))
    assert hs.verify(problem, schedule) == []


@pytest.mark.slow
def test_start_up_writes_its_table(docs: Path):
    start_up.main(["--quick", "--docs", str(docs)])
    page = (docs / "benchmarks.md").read_text()
    assert page.count(" s |") > 10
    assert "`import hetsched`" in page


@pytest.mark.slow
def test_weakest_rows_are_measured(docs: Path):
    weakest.main(["--quick", "--rows", "scip", "joins", "members", "--docs", str(docs)])
    page = (docs / "benchmarks.md").read_text()
    assert "| joins and high communication on identical devices, 30 tasks, 5 s |" in page
    assert page.count("SCIP on modules of 32 tasks") == 1


@pytest.mark.parametrize(
    ("verdict", "rows", "figure", "reached"),
    [
        (weakest.within(0.03, proven=1), [(4.0, 4.0), (4.0, 3.9)], "1 of 2 proven, gap 1.3 % on average, 2.5 % at most", True),
        (weakest.within(0.03, proven=2), [(4.0, 4.0), (4.0, 3.9)], "1 of 2 proven, gap 1.3 % on average, 2.5 % at most", False),
        (weakest.values({"0": 4, "1": 3}), [(4.0, 4.0), (4.0, 3.0)], "0 4 (4), 1 4 (3)", False),
        (weakest.gaps({"0": 0.1}), [(4.0, 3.8)], "0 4 of 3.8, 5.0 %", True),
    ],
)
def test_verdicts_on_weak_rows(verdict, rows: list[tuple[float, float]], figure: str, reached: bool):
    made = [
        {"instance": str(i), "value": value, "bound": bound, "gap": 1 - bound / value, "proven": value == bound}
        for i, (value, bound) in enumerate(rows)
    ]
    assert verdict(made) == (figure, reached)


def test_a_row_of_which_instances_are_missing_is_not_reached():
    rows = [{"instance": "a", "method": name, "value": value, "bound": 5.0} for name, value in (("multilevel", 8.0), ("heft", 10.0))]
    assert weakest.ahead(0.1, 0.05, 1)(rows) == ("1 of 1: a 8, `heft` 10, bound 5", True)
    assert weakest.ahead(0.1, 0.05, 7)(rows) == ("1 of 1 measured, of 7: a 8, `heft` 10, bound 5", False)


def test_the_best_bound_is_compared_with_the_best_value_of_all_methods():
    made = [("auto", 10.0, 8.0), ("annealing", 10.4, 5.0), ("bounds", None, 9.5)]
    rows = [{"instance": "a", "method": method, "value": value, "bound": bound} for method, value, bound in made]
    told = "gap 5.0 % on average, 5.0 % at most; above the best at most: `auto` 0.0 %, `annealing` 4.0 %"
    assert weakest.bounded(0.051, 0.05, ("auto", "annealing"))(rows) == (told, True)
    assert not weakest.bounded(0.04, 0.05, ("auto", "annealing"))(rows)[1]
    assert not weakest.bounded(0.051, 0.03, ("auto", "annealing"))(rows)[1]


def test_a_method_behind_the_best_member_is_named():
    rows = [{"instance": "a", "method": method, "value": value} for method, value in (("auto", 10.2), ("tabu", 10.0))]
    assert weakest.behind(0.002)(rows) == ("at most 2.0 % above the best, `tabu`, on a", False)
    assert weakest.behind(0.03)(rows)[1]
    bounded = [{"row": "x", "instance": "a", "value": 8.0, "bound": bound} for bound in (7.0, 9.0)]
    assert weakest.contradictions(bounded) == ["x: a"]
    assert weakest.contradictions(bounded[:1]) == []


@pytest.mark.slow
def test_identical_processors_are_measured(docs: Path):
    identical.main(["--quick", "--docs", str(docs)])
    page = (docs / "benchmarks.md").read_text()
    assert "| layered | yes | 1 | 100.0 % | 100.0 % |" in page
    rows = [{"kind": "erdos", "n": 10, "processors": 2, "ccr": 0, "seed": 0, "bound": bound, "makespan": 8.0} for bound in (7.0, 9.0)]
    assert identical.contradictions(rows) == ["('erdos', 10, 2, 0, 0)"]
    assert identical.contradictions(rows[:1]) == []
