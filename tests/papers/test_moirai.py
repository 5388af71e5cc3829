"""Moirai's items: cases, the paper's figures, verdicts on made-up rows, and a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

import numpy as np
import pytest

import hetsched as hs
from hetsched.papers import Setting, Verdict, rendering
from hetsched.papers.items import Item, Row
from hetsched.papers.moirai import PAPER, fusion, graphs, latency, models, placing, times
from tests.papers.undecided import before, decided

FULL, QUICK = Setting(), Setting(quick=True)
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def seconds(printed: str) -> float:
    value, unit = printed.split()
    return float(value) * UNITS[unit]


def rows(lengths: Mapping[str, Any], *, bound: float = 0.0, known: list[str] | None = None, **more: Any) -> list[Row]:
    """Return rows of all models, clusters and graphs with the same lengths by method; a list has one for each seed."""
    made = []
    for model in known or models.PRINTED:
        for where in models.CLUSTERS:
            for which in models.GRAPHS:
                for method, values in lengths.items():
                    for seed, value in enumerate(values if isinstance(values, list) else [values]):
                        shrunk = value if which == "original" else value * more.get("fused", 1.0)
                        row = {"model": model, "cluster": where, "graph": which, "method": method, "seed": seed, "makespan": shrunk}
                        row |= {
                            "bound": bound,
                            "tasks": 9,
                            "seconds": more.get("seconds", {}).get(method, 1.0),
                            "fits": True,
                            "over": None,
                            "by": method,
                        }
                        milp = {"milp": shrunk, "status": more.get("status", "feasible"), "coarse": 9, "found": more.get("found", "moirai")}
                        made.append(row | (milp if method == "moirai" else {}))
    return made


def verdicts(item: Item, made: list[Row]) -> dict[str, Verdict]:
    """Return the verdicts of an item, those that the model would have."""
    return {claim.text: before(claim).verdict for claim in item.report(made, FULL).claims}


def one(item: Item, made: list[Row], text: str) -> Verdict:
    (found,) = (verdict for claim, verdict in verdicts(item, made).items() if text in claim)
    return found


def test_there_is_a_case_for_each_model_cluster_graph_and_method() -> None:
    methods = {"m-sct", "getf", "moirai", "best-device", "heft", "auto"}
    for setting, count in ((FULL, 11), (QUICK, 1)):
        made = [case for case in placing.cases(setting) if case["method"] in methods]
        assert len(made) == count * 2 * 2 * len(methods)
        assert len(graphs.cases(setting)) == count
    assert all(case["limit"] is None or case["limit"] <= placing.QUICK_LIMIT for case in placing.cases(QUICK))
    assert [item.name for item in PAPER.items] == ["table-4", "figure-9", "figure-10", "table-5"]


def test_the_papers_figures_agree_with_its_text() -> None:
    assert len(models.PRINTED) == 11
    assert all(len(printed.seconds) == 8 for printed in models.PRINTED.values())
    left = [seconds(printed.seconds[7]) / seconds(printed.seconds[3]) for printed in models.PRINTED.values()]
    assert mean(left) == pytest.approx(times.SHARE, abs=5e-4)  # section IV-C states the mean of Table V
    shares = [printed.coarsened / printed.original for printed in models.PRINTED.values()]
    assert (round(100 * min(shares)), round(100 * max(shares))) == (69, 81)
    assert all(printed.seconds[k].endswith("h") for printed in models.PRINTED.values() for k in (0, 4))


@pytest.mark.slow
def test_a_speed_up_is_held_or_open() -> None:
    text = "On the original graphs, inter-server, Moirai is up to 1.77 times faster than m-SCT"
    assert one(latency.FIGURE_9, rows({"m-sct": 1.8, "moirai": 1.0}), text) is Verdict.HELD
    assert one(latency.FIGURE_9, rows({"m-sct": 1.2, "moirai": 1.0}, bound=0.9), text) is Verdict.UNSEEN
    assert one(latency.FIGURE_9, rows({"m-sct": 1.2, "moirai": 1.0}, bound=0.5), text) is Verdict.UNSEEN
    one_model = rows({"m-sct": 1.2, "moirai": 1.0}, bound=0.9, known=["gpt3 330M"])
    assert one(latency.FIGURE_9, one_model, text) is Verdict.UNSEEN
    assert one(latency.FIGURE_9, rows({"moirai": 1.0}), text) is Verdict.UNSEEN
    learned = "On the fused graphs, intra-server, Moirai is up to 4.28 times faster than Placeto"
    spread = rows({placing.LEARNED: [3.9, 4.5, 4.3], "moirai": 1.0}, bound=0.5)
    assert one(latency.FIGURE_9, spread, learned) is Verdict.UNSEEN
    assert one(latency.FIGURE_9, rows({placing.LEARNED: [4.3, 4.5, 4.4], "moirai": 1.0}), learned) is Verdict.UNSEEN  # not Placeto
    excluded = rows({placing.LEARNED: [1.9, 2.1, 2.0], "moirai": 1.0}, bound=0.9)
    assert one(latency.FIGURE_9, excluded, learned) is Verdict.UNSEEN  # not Placeto either
    reached = rows({placing.LEARNED: [4.3, 4.5, 4.4], "moirai": 1.0})
    (reason,) = (claim.reason for claim in latency.FIGURE_9.report(reached, FULL).claims if learned in claim.text)
    assert "would be held, but the learned placer is not Placeto" in reason


def test_only_schedules_of_the_milp_itself_decide() -> None:
    text = "On the original graphs, inter-server, Moirai is up to 1.77 times faster than m-SCT"
    made = rows({"m-sct": 1.8, "moirai": 1.0, "best-device": 1.2}, found="heft")
    for wanted in (text, "1.87 times shorter", "consistently"):
        assert one(latency.FIGURE_9, made, wanted) is Verdict.UNSEEN
    (reason,) = (claim.reason for claim in latency.FIGURE_9.report(made, FULL).claims if text == claim.text)
    assert "found by `heft`, where m-SCT takes 1.50 times as long as the best device" in reason
    assert not decided(latency.FIGURE_9.report(rows({"m-sct": 1.8, "moirai": 1.0}), FULL).claims), "Moirai ran on devices"
    excluded = rows({"m-sct": 1.2, "moirai": 1.0}, bound=0.9)
    assert one(latency.FIGURE_9, excluded, text) is Verdict.UNSEEN  # no method has it on these instances
    (reason,) = (claim.reason for claim in latency.FIGURE_9.report(excluded, FULL).claims if text == claim.text)
    assert reason.endswith(f"no schedule is more than 1.33 times faster: {rendering.DIFFERENT}")
    shown = latency.FIGURE_9.report(made, FULL).tables[0].rows[0]
    assert "1 000 (heft)".replace(" ", "\N{NO-BREAK SPACE}", 1) in shown, "the column has the name of the method that found the schedule"
    own = next(row for row in made if (row["method"], row["cluster"], row["graph"]) == ("moirai", "inter", "original"))
    own |= {"found": "moirai", "milp": 1.01}
    assert one(latency.FIGURE_9, made, text) is Verdict.HELD  # the MILP's own, though not the highest
    own |= {"milp": 1.03}
    assert one(latency.FIGURE_9, made, text) is Verdict.UNSEEN  # a little less than 1.77
    for fused in (0.9, 1.01):
        assert set(verdicts(fusion.FIGURE_10, rows({"moirai": 1.0}, fused=fused, found="heft")).values()) == {Verdict.UNSEEN}


def test_moirai_outperforms_consistently_or_not() -> None:
    text = "consistently outperforms"
    assert one(latency.FIGURE_9, rows({"m-sct": 1.2, "getf": 1.1, "moirai": 1.0}), text) is Verdict.UNSEEN  # Placeto is not here
    learned = rows({placing.LEARNED: 0.9, "m-sct": 1.2, "getf": 1.1, "moirai": 1.0}, bound=0.9)
    assert one(latency.FIGURE_9, learned, text) is Verdict.UNSEEN  # proven shortest, but not Placeto's
    assert one(latency.FIGURE_9, rows({placing.LEARNED: 0.9, "moirai": 1.0}, bound=0.9), text) is Verdict.UNSEEN
    assert one(latency.FIGURE_9, rows({"m-sct": 0.9, "getf": 1.1, "moirai": 1.0}, bound=0.9), text) is Verdict.NOT_HELD
    assert one(latency.FIGURE_9, rows({"m-sct": 0.9, "getf": 1.1, "moirai": 1.0}, bound=0.8), text) is Verdict.UNSEEN


@pytest.mark.slow
def test_larger_models_and_more_bandwidth_are_judged_by_the_seeds() -> None:
    growing = rows({placing.LEARNED: [2.0, 2.1], "moirai": 1.0})
    for row in growing:
        if row["method"] == placing.LEARNED:
            row["makespan"] *= (1 + 0.2 * list(models.PRINTED).index(row["model"])) * (1.5 if row["cluster"] == "intra" else 1.0)
    claims = [claim for claim in latency.FIGURE_9.report(growing, FULL).claims if "section IV-D" in claim.text]
    assert len(claims) == 2
    for claim in claims:
        assert claim.verdict is Verdict.UNSEEN
        assert "would be held, but the learned placer is not Placeto" in claim.reason
    equal = rows({placing.LEARNED: [2.0, 2.1], "moirai": 1.0})
    assert one(latency.FIGURE_9, equal, "The larger the model") is Verdict.UNSEEN
    assert one(latency.FIGURE_9, equal, "More bandwidth") is Verdict.UNSEEN


def test_what_fusion_saves_is_compared_with_the_paper() -> None:
    assert set(verdicts(fusion.FIGURE_10, rows({"moirai": 1.0}, fused=0.94)).values()) == {Verdict.HELD}
    worse = verdicts(fusion.FIGURE_10, rows({"moirai": 1.0}, fused=1.01))
    assert set(worse.values()) == {Verdict.NOT_HELD}
    searched = rows({"moirai": 1.0, "heft": 0.9}, fused=0.94)
    for row in searched:
        row["milp"] = 1.1 if row["graph"] == "fused" else 1.0
    assert one(fusion.FIGURE_10, searched, "without loss of quality") is Verdict.UNSEEN
    table = fusion.FIGURE_10.report(rows({"moirai": 1.0, "heft": 0.9}, fused=0.9), FULL).tables[0]
    assert list(table.rows[0][1:5]) == ["1\u00a0000 / 900", "10.0 %", "900 / 810", "10.0 %"]


def test_placement_times_are_compared() -> None:
    made = rows({"m-sct": 1.0, "getf": 1.0, "moirai": 1.0}, seconds={"m-sct": 0.5, "getf": 2.0, "moirai": 9.0})
    assert one(times.TABLE_5, made, "m-SCT takes the least") is Verdict.HELD
    assert one(times.TABLE_5, made, "Fusion reduces Moirai's placement time") is Verdict.UNSEEN  # at the limit
    proven = rows({"moirai": 1.0}, status="optimal")
    assert one(times.TABLE_5, proven, "Fusion reduces Moirai's placement time") is Verdict.NOT_HELD
    made = rows({"m-sct": 1.0, "getf": 1.0}, seconds={"m-sct": 3.0, "getf": 2.0})
    assert one(times.TABLE_5, made, "m-SCT takes the least") is Verdict.NOT_HELD


def test_a_method_with_a_smaller_graph_or_a_limit_does_not_refute_the_time_of_another() -> None:
    made = rows({"m-sct": 1.0, "getf": 1.0, "moirai": 1.0}, seconds={"m-sct": 3.0, "getf": 9.0, "moirai": 2.0})
    for tasks, verdict in ((9, Verdict.NOT_HELD), (10, Verdict.UNSEEN)):  # the MILP's graph has 9
        assert one(times.TABLE_5, [row | {"tasks": tasks} for row in made], "m-SCT takes the least") is verdict
    made = rows({"m-sct": 1.0, placing.LEARNED: 1.0}, seconds={"m-sct": 3.0, placing.LEARNED: 2.0})
    assert one(times.TABLE_5, made, "m-SCT takes the least") is Verdict.UNSEEN


def test_a_method_without_a_schedule_has_its_excess_in_the_table() -> None:
    made = rows({"best-device": 1.0, "moirai": 1.0}, known=["gpt3 13B"])
    for row in made:
        if row["method"] == "best-device":
            row |= {"makespan": None, "over": 10.2e9, "fits": None}
    table = latency.FIGURE_9.report(made, FULL).tables[0]
    assert dict(zip(table.head, table.rows[0], strict=True))["best device"] == "(10 GB over)"


@pytest.mark.slow
def test_a_model_is_counted_and_placed() -> None:
    pytest.importorskip("torch")
    counted = PAPER.measure({"what": "graph", "model": "gpt3 330M"}, None)
    assert counted["fused"] < counted["original"] == 293
    assert counted["weights"] == pytest.approx(2 * 0.33e9, rel=0.25)  # two bytes; the embedding is read twice
    report = graphs.TABLE_4.report([{"model": "gpt3 330M", **counted}], QUICK)
    assert before(report.claims[0]).verdict is Verdict.HELD  # of our export of it
    made = measured({"heft", "m-sct"}, limit=None)
    assert len(made) == 8
    assert all(row["makespan"] >= row["bound"] > 0 and row["fits"] for row in made)
    for item in PAPER.items[1:]:
        assert item.report(made, QUICK).tables


def measured(methods: set[str], limit: float | None) -> list[Row]:
    cases = [case for case in placing.cases(QUICK) if case["method"] in methods]
    return [{**case, **PAPER.measure({**case, "limit": limit}, None)} for case in cases]


@pytest.mark.slow
def test_the_milp_of_a_model_is_carried_back() -> None:
    pytest.importorskip("torch")
    for row in measured({"moirai"}, limit=20.0):
        assert row["makespan"] <= row["milp"]
        assert row["coarse"] == row["tasks"] <= placing.TASKS  # nothing is merged


def test_the_size_of_the_graph_that_was_solved_is_read_from_the_solution() -> None:
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "b"), ("b", "d"), ("a", "c")], output_bytes=1.0)
    two = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=9.0), durations=np.ones((4, 2)), communication="port")
    at_once = placing._milp(hs.solve(two, "moirai", options={"tasks": 3}))
    assert at_once == {"coarse": None, "found": None, "status": "optimal", "milp": 3.0}  # the critical path
    apart = two.replace(cluster=hs.Cluster(["u", "v"], bandwidth=0.5))
    row = placing._milp(hs.solve(apart, "moirai", options={"tasks": 3}))
    assert (row["coarse"], row["status"], row["milp"]) == (3, "optimal", pytest.approx(4.0))  # a transfer takes 2 s
