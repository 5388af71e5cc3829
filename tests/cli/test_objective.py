"""``solve --objective``: the value minimised, printed and written, and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

import hetsched as hs
from hetsched.cli.answers import News
from hetsched.search import Event
from tests.cli.conftest import small_problem


def test_the_period_is_compared_and_printed(run: Any, problem: hs.Problem) -> None:
    solved = run("solve", "problem.json", "--objective", "period", "--method", "load-search", "--evaluations", 5000, "--json")
    facts = json.loads(solved.stdout)
    expected = hs.solve(problem, "load-search", objective="period", evaluations=5000)
    assert (facts["objective"], facts["value"], facts["period"]) == ("period", expected.value, expected.value)
    assert facts["throughput"] == 1 / expected.value
    assert facts["makespan"] == expected.makespan > facts["value"]
    output = run("solve", "problem.json", "--objective", "period", "--method", "load-search", "--evaluations", 5000).stdout
    assert "period" in output
    assert "per input" in output
    assert "makespan" in output


def test_the_makespan_is_the_default_objective(run: Any, problem: hs.Problem) -> None:
    facts = json.loads(run("solve", "problem.json", "--method", "heft", "--json").stdout)
    assert (facts["objective"], facts["value"]) == ("makespan", facts["makespan"])


def test_the_solution_document_keeps_the_objective(run: Any, problem: hs.Problem) -> None:
    run("solve", "problem.json", "--objective", "period", "--method", "contiguous", "--solution", "solution.json")
    solution = hs.read("solution.json")
    assert isinstance(solution, hs.Solution)
    assert solution.objective == "period"
    assert solution.value < solution.makespan
    assert solution.proof.objective == "period"
    again = json.loads(
        run("solve", "problem.json", "--objective", "period", "--method", "heft", "--start", "solution.json", "--json").stdout
    )
    assert again["value"] <= solution.value


@pytest.mark.parametrize(("solver", "code"), [("scip", 0), ("highs", 0), ("cpsat", 2)])
def test_a_solver_gets_the_model_of_loads(run: Any, problem: hs.Problem, solver: str, code: int) -> None:
    solved = run("solve", "problem.json", "--objective", "period", "--solver", solver, "--json")
    assert solved.exit_code == code, solved.stderr
    if code:
        assert "choose scip or highs" in solved.stderr
    else:
        assert json.loads(solved.stdout)["method"] in ("load-milp", "load-search")
        assert json.loads(solved.stdout)["status"] == "optimal"


@pytest.mark.parametrize(
    ("objective", "message"), [("latency", "choose from makespan, period, max-load"), ("max-load", "device of kind 'cpu'")]
)
def test_an_objective_that_is_none_is_refused(run: Any, problem: hs.Problem, objective: str, message: str) -> None:
    refused = run("solve", "problem.json", "--objective", objective, "--method", "heft")
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_the_live_line_names_the_objective() -> None:
    news = News(["load-search"], "period")
    assert news(Event(0.1, 2.0, 1.0, "load-search"))[0] == "load-search: period 2.000 s, bound 1.000 s, gap 50.00 %"


def test_bounds_are_of_the_objective_given(run: Any, problem: hs.Problem) -> None:
    facts = json.loads(run("bound", "problem.json", "--objective", "period", "--json").stdout)
    assert facts["objective"] == "period"
    assert facts["value"] == hs.bound(problem, objective="period").value < hs.bound(problem).value


def test_the_problem_is_one_where_the_objectives_differ() -> None:
    problem = small_problem()
    makespan, period = (hs.solve(problem, ["milp"], objective=name).makespan for name in ("makespan", "period"))
    assert makespan == period, "the same schedules are offered"
    assert hs.solve(problem, "load-milp", objective="period").value < makespan
