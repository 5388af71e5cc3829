"""Comparisons: what tables say of records, whatever their order, and records that contradict one another."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import InvalidArgument
from hetsched.experiments import Comparison, Results, write_html
from hetsched.experiments.comparison import TABLES, curves, median
from hetsched.testing.profiles import examples

Row = dict[str, Any]


def case(method: str, instance: int, seed: int = 0, **changes: Any) -> Row:
    """Return a case of a family of its parity."""
    limits = changes.pop("limits", {"time": 10.0})
    return {
        "instance": f"i{instance}",
        "family": f"f{instance % 2}",
        "digest": f"{instance:04}",
        "method": method,
        "options": changes.pop("options", {}),
        "seed": seed,
        "limits": limits,
    }


def found(makespan: float | None, bound: float = 0.0, **changes: Any) -> Row:
    """Return a result, found after a second."""
    status = "unknown" if makespan is None else "optimal" if makespan == bound else "feasible"
    history = [] if makespan is None else [[1.0, makespan]]
    return {"status": status, "makespan": makespan, "bound": bound, "history": history, "wall_s": 2.0, "cpu_s": 1.5} | changes


def results(rows: list[tuple[Row, Row | str]]) -> Results:
    store = Results()
    for key, result in rows:
        if isinstance(result, str):
            store.add(key, failure={"status": "failed", "error": result})
        else:
            store.add(key, result)
    return store


makespans = st.none() | st.integers(1, 9).map(float)
tables = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 7), st.integers(0, 2), makespans), min_size=1, max_size=20)


@examples(15)
@given(tables, st.randoms())
def test_the_order_of_records_changes_no_number(drawn, random):
    rows = {(method, instance, seed): made for method, instance, seed, made in drawn}
    records = [(case(*key), found(made)) for key, made in rows.items()]
    first = Comparison(results(records))
    random.shuffle(records)
    second = Comparison(results(records))
    assert first.instances == second.instances
    order = [second.methods.index(method) for method in first.methods]
    assert np.array_equal(first.makespans, second.makespans[order], equal_nan=True)
    assert {frozenset(row) for row in map(tuple, first.table("summary").rows)} == {
        frozenset(row) for row in map(tuple, second.table("summary").rows)
    }
    for name in TABLES:
        assert str(first.table(name))
    for pair in first.pairs:
        assert sum(pair.counts) <= len(first.instances)
        assert math.isnan(pair.p) or 0 <= pair.p <= 1


def test_tables_by_hand():
    trusts = ["checked", "computed", "checked"]
    rows = [(case("a", i, seed), found(10.0 + i + seed, 10.0 + i if i else 5.0, trust=trusts[i])) for i in range(3) for seed in (0, 2)]
    rows += [(case("b", 0), found(10.0, 2.0)), (case("b", 1), found(None)), (case("b", 2), "ValueError: no")]
    comparison = Comparison(results(rows))
    assert comparison.best == {"0000": 10.0, "0001": 11.0, "0002": 12.0}
    assert comparison.bound == {"0000": 5.0, "0001": 11.0, "0002": 12.0}
    summary = comparison.table("summary")
    assert [list(row[:8]) for row in summary.rows] == [
        ["f0", "a", "4", "2", "1", "1", "0", "0"],
        ["f0", "b", "2", "1", "0", "0", "1", "0"],
        ["f1", "a", "2", "1", "1", "0", "0", "0"],
        ["f1", "b", "1", "0", "0", "0", "1", "0"],
        ["all", "a", "6", "3", "2", "1", "0", "0"],
        ["all", "b", "3", "1", "0", "0", "2", "0"],
    ]
    everything = dict(zip(summary.head, summary.rows[4], strict=True))
    gaps = [100 * (1 - best / (best + 1)) for best in (10, 11, 12)]
    assert everything["gap, %"] == f"{math.exp(np.mean(np.log1p(gaps))) - 1:.2f}"
    assert everything["time to proof, s"] == "10.00"  # half of the seeds have no proof, so the median has none
    assert comparison.table("gaps").rows[0] == ["i0", "10.000", "5.0000", "9.09", "0.00"]
    assert [row[0] for row in comparison.table("gaps").rows] == ["i0", "i2", "i1"]  # by family
    assert [row[-1] for row in comparison.table("gaps").rows] == ["0.00", "none", "none"]
    assert [row[-1] for row in comparison.table("makespans").rows] == ["10.000", "none", "none"]
    (pair,) = comparison.pairs
    assert (pair.first, pair.second, pair.counts, pair.left_out) == ("a", "b", (2, 0, 1), 2)
    assert pair.ratio.mean == pytest.approx(1.1)
    assert math.isnan(pair.p)
    notes = comparison.table("pairs").notes
    assert notes[-1] == "2 ratios and differences are left out, for a makespan is 0 or missing"


def test_a_method_that_is_always_better_is_told_apart():
    rows = [(case(method, i), found((10.0 + i) * (1 if method == "a" else 1.5))) for i in range(8) for method in "ab"]
    (pair,) = Comparison(results(rows)).pairs
    assert pair.counts == (8, 0, 0)
    assert pair.p == pytest.approx(2 / 2**8)
    assert pair.ratio == pytest.approx((1 / 1.5, 1 / 1.5, 1 / 1.5))


def test_options_and_limits_make_a_method_another_and_refusals_are_counted_apart():
    rows = [
        (case("a", 0), found(3.0)),
        (case("a", 0, options={"cuts": False}), found(2.0)),
        (case("a", 0, limits={"cpu": 1.0}), found(4.0)),
    ]
    rows.append((case("b", 0), {"status": "refused"}))
    comparison = Comparison(results(rows))
    assert comparison.methods == ("a, 10 s", "a{cuts=False}, 10 s", "a, 1 CPU s", "b, 10 s")
    assert len(comparison.pairs) == 3
    refused = dict(zip(comparison.table("summary").head, comparison.table("summary").rows[-1], strict=True))
    assert (refused["method"], refused["cases"], refused["refused"], refused["gap, %"]) == ("b, 10 s", "0", "1", "-")
    assert Comparison(results([rows[2]])).clock == "cpu_s"


def test_a_bound_above_a_makespan_and_a_wrong_answer_are_contradictions():
    fine = [(case("a", 0), found(5.0, 5.0)), (case("b", 0), found(6.0, 5.0 * (1 + 0.9e-6))), (case("a", 1), found(2.0, 1.0))]
    assert Comparison(results(fine)).contradictions == ()
    wrong = [*fine, (case("c", 0, 7, limits={"cpu": 1.0}), found(None, 5.1)), (case("b", 1), "InvalidSchedule: two at once")]
    broken, above = Comparison(results(wrong)).contradictions
    assert broken == "b on i1, seed 0, 10 s: InvalidSchedule: two at once"
    assert above == "one is wrong: the bound of c on i0, seed 7, 1 CPU s is 5.1, and the makespan of a on i0, seed 0, 10 s is 5.0"


@examples(40)
@given(st.lists(st.floats(0, 10) | st.just(math.inf), min_size=1, max_size=7))
def test_a_median_with_results_missing(numbers):
    middle = median(numbers)
    assert middle == pytest.approx(np.median(numbers)) if math.isfinite(middle) else 2 * sum(map(math.isinf, numbers)) >= len(numbers)


def test_the_gap_over_time_is_that_of_the_best_schedule_so_far():
    history = [[1.0, 20.0], [4.0, 10.0]]
    comparison = Comparison(results([(case("a", 0), found(10.0, history=history))]))
    assert curves(comparison, "a", np.array([0.5, 1.0, 3.9, 4.0, 99.0])).tolist() == [1.0, 0.5, 0.5, 0.0, 0.0]


def test_records_of_other_experiments_are_left_out():
    store = results([(case("a", 0), found(1.0))])
    store.add({"kind": "er"}, {"makespan": 3.0})
    assert Comparison(store).methods == ("a",)
    assert Comparison(Results()).methods == ()
    with pytest.raises(InvalidArgument, match="name is 'all'; choose one of 'summary', 'pairs', 'gaps', 'makespans'"):
        Comparison(store).table("all")


@pytest.mark.slow
def test_the_page_has_every_table_and_loads_nothing(tmp_path: Path):
    pytest.importorskip("plotly")
    name = "</script><b>x"
    rows = [(case(method, i) | {"instance": name}, found(10.0 + i * ord(method), 5.0)) for i in range(7) for method in ("a", "b", "c")]
    rows.append((case("a", 9), found(1.0, 2.0)))
    comparison = Comparison(results(rows))
    write_html(comparison, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    for table in TABLES:
        assert comparison.table(table).title in text
    assert "one is wrong: the bound of a on i9" in text
    assert "Gould and Scott 2016" in text
    assert name not in text
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(?!data:)", text)
    for words in ("profile", "profile_pairs", "profile_times", "proofs", "excess"):
        assert text.count(f' id="{words}"') == 1  # a chart is drawn into the first element of its name
    write_html(Comparison(Results()), tmp_path / "empty.html")
    assert "nothing is measured yet" in (tmp_path / "empty.html").read_text()


def test_a_proof_that_there_is_no_schedule_is_a_proof_and_has_no_gap():
    nothing = found(None) | {"status": "infeasible", "bound": None}
    comparison = Comparison(
        results([(case("a", 0), found(10.0, 10.0)), (case("a", 2), nothing), (case("b", 0), found(11.0, 10.0)), (case("b", 2), nothing)])
    )
    rows = {row[0]: row for row in comparison.table("summary").rows}
    assert rows["a"][3] == "2"
    assert rows["a"][7] == "0.00"
    assert np.isnan(comparison._gap_row("b")).tolist() == [False, True]
