"""Options of exact methods: the method and its options, and errors before any work."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

import hetsched as hs
from hetsched.cli.solver_options import fraction
from hetsched.modeling import backends
from hetsched.search import Monitor, exact, temporarily


@pytest.fixture
def ran() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Replace the exact methods with spies; yield the calls, each with its options."""
    calls: list[tuple[str, dict[str, Any]]] = []

    def plain(name: str) -> Any:
        def spy(problem: hs.Problem, monitor: Monitor, gap: float = 0.0, threads: int | None = None) -> None:
            calls.append((name, {"gap": gap, "threads": threads}))

        return spy

    def open_to_any(problem: hs.Problem, monitor: Monitor, solver: str = "scip", gap: float = 0.0, threads: int | None = None) -> None:
        calls.append(("moirai", {"solver": solver, "gap": gap, "threads": threads}))

    methods = hs.methods()
    spies = [replace(methods[backend.method], function=plain(backend.method)) for backend in backends.known()]
    with temporarily(*spies, replace(methods["moirai"], function=open_to_any)):
        yield calls


def test_every_solver_has_its_method() -> None:
    for backend in backends.known():
        assert exact(backend.name).name == backend.method
        assert exact(backend.name, "period").name == "load-milp"
    assert exact("branch").name == "branch"
    with pytest.raises(hs.UnsupportedFeature, match="no exact method for the makespan uses solver 'gurobi'; choose from assignment"):
        exact("gurobi")


@pytest.mark.parametrize(
    ("words", "method", "options"),
    [
        ("--solver scip", "milp", {}),
        ("--solver highs", "milp:highs", {}),
        ("--solver cpsat", "cpsat", {}),
        ("--solver cpsat --gap 0.02 --threads 2", "cpsat", {"gap": 0.02, "threads": 2}),
        ("--solver scip --threads 1", "milp", {"threads": 1}),
        ("--method milp:highs --gap 5% --option threads=2", "milp:highs", {"gap": 0.05, "threads": 2}),
        ("--method moirai --solver highs", "moirai", {"solver": "highs"}),
        ("--method moirai --solver cpsat --threads 2", "moirai", {"solver": "cpsat", "threads": 2}),
        ("--method moirai --option solver=cpsat --threads 2", "moirai", {"solver": "cpsat", "threads": 2}),
        ("--method moirai --gap 1%", "moirai", {"solver": "scip", "gap": 0.01}),
    ],
)
def test_the_method_gets_the_options_given(
    run: Any, problem: hs.Problem, ran: Any, words: str, method: str, options: dict[str, Any]
) -> None:
    solved = run("solve", "problem.json", *words.split())
    assert solved.exit_code == 1, solved.stderr  # the spies offer no schedule
    ((name, given),) = ran
    assert name == method
    assert given == {**given, "gap": 0.0, "threads": None, **options}


def test_several_methods_share_the_options(run: Any, problem: hs.Problem, ran: Any) -> None:
    run("solve", "problem.json", "--method", "milp,cpsat", "--gap", "10%")
    assert ran == [("milp", {"gap": 0.1, "threads": None}), ("cpsat", {"gap": 0.1, "threads": None})]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--solver gurobi", "unknown solver 'gurobi'; choose from scip, highs, cpsat"),
        (
            "--solver highs --method milp",
            "method 'milp' takes no option 'solver'; its options: gap=0.0, threads=None; either "
            "--method milp:highs or --solver highs alone will do",
        ),
        ("--solver scip --method milp", "either --method milp or --solver scip alone will do"),
        ("--solver cpsat --method moirai,heft", "method 'heft' takes no option 'solver'"),
        ("--solver scip --method nope", "unknown method 'nope'; choose from "),
        ("--solver highs --method moirai --option solver=scip", "--option solver=scip is given too; leave one of them out"),
        ("--gap 0.1 --option gap=0.2 --method milp", "--option gap=0.2 is given too; leave one of them out"),
        ("--threads 2 --option threads=2 --method cpsat", "--option threads=2 is given too; leave one of them out"),
        (
            "--gap 0.1 --method heft",
            "method 'heft' takes no option 'gap'; its options: mean_communication='paper', contention=None; choose an exact method "
            "by --solver scip, highs or cpsat instead",
        ),
        ("--gap 0.1", "method 'auto' takes no option 'gap'; its options: members=None, exclude=(), workers=None, seconds=10.0, "),
        ("--threads 2 --option workers=3", "--option workers=3 is given too; leave one of them out"),
        ("--threads 0", "threads is 0; it must be a whole number, at least 1"),
        ("--solver scip --gap 5", "'5' is not at least 0 and below 1; write one per cent as 0.01 or 1%"),
        ("--solver scip --gap some", "'some' is neither a fraction like 0.01 nor per cent like 1%"),
        ("--solver scip --threads 2", "scip searches in one thread, not 2; leave threads out, or use highs or cpsat"),
        ("--method milp --option threads=2", "scip searches in one thread, not 2; leave threads out, or use highs or cpsat"),
        ("--method moirai --threads 2", "scip searches in one thread, not 2; leave threads out, or use highs or cpsat"),
        ("--method cpsat,milp --threads 2", "scip searches in one thread, not 2; leave threads out, or use highs or cpsat"),
        ("--solver cpsat --threads 0", "threads is 0; it must be a whole number, at least 1, or None"),
        ("--method ,", "no method named; give one or more, or leave it out for 'auto'"),
    ],
)
def test_what_cannot_be_is_one_line_before_the_work(run: Any, problem: hs.Problem, ran: Any, words: str, message: str) -> None:
    refused = run("solve", "problem.json", *words.split())
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert ran == []


def test_a_missing_solver_is_reported_with_its_installation(run: Any, problem: hs.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hetsched.modeling.backends.highs", raising=False)
    monkeypatch.setitem(sys.modules, "highspy", None)
    for words in ("--solver highs", "--method milp:highs"):
        refused = run("solve", "problem.json", *words.split())
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr == "error: 'highspy' is not installed; install it with: pip install 'hetsched[solvers]'\n"


@pytest.mark.parametrize("solver", [backend.name for backend in backends.known()])
def test_a_solver_proves_the_optimum(run: Any, problem: hs.Problem, solver: str) -> None:
    solved = run("solve", "problem.json", "--solver", solver, "--json", "-o", "schedule.json")
    assert (solved.exit_code, solved.stderr) == (0, "")
    facts = json.loads(solved.stdout)
    assert facts["status"] == "optimal"
    assert facts["makespan"] == pytest.approx(hs.solve(problem, exact(solver).name).makespan, rel=1e-6)
    assert Path("schedule.json").exists()


@pytest.mark.parametrize(("text", "value"), [("0.01", 0.01), ("1%", 0.01), (" 2.5 % ", 0.025), ("0", 0.0), ("0%", 0.0), ("1e-3", 0.001)])
def test_a_gap_is_a_fraction_or_per_cent(text: str, value: float) -> None:
    assert fraction(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "%", "1", "100%", "-0.1", "nan", "inf", "1%%", "one"])
def test_what_is_no_gap_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="0.01 "):
        fraction(text)
