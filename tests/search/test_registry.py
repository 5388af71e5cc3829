"""Declarations of methods: queries, refusals before a method runs, and the members of `auto`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched import search
from hetsched.modeling import backends
from hetsched.search import ALL, Auto, Kind, Method, Monitor, Role, Supports, always, select, several_inputs, tasks_up_to
from hetsched.testing import strategies
from hetsched.testing.profiles import examples
from tests.golden import topcuoglu
from tests.portfolio.strange_methods import tangle

PACKAGE = Path(hs.__file__).parent


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """Remove the methods that a test registers."""
    with search.temporarily():
        yield


def idle(problem: hs.Problem, monitor: Monitor) -> None:
    """Do nothing."""


def names(chosen: list[Method]) -> list[str]:
    return [method.name for method in chosen]


def registering() -> set[str]:
    """Return the modules of the package that have a function decorated by `method`, or call it."""
    modules = set()
    for path in PACKAGE.rglob("*.py"):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        if any(isinstance(function, ast.Name) and function.id == "method" for function in calls):
            modules.add(".".join(path.relative_to(PACKAGE).with_suffix("").parts))
    return modules


@pytest.mark.slow
def test_every_module_that_registers_methods_is_built_in() -> None:
    missing, idle = registering() - set(search.BUILT_IN), set(search.BUILT_IN) - registering()
    assert not missing, f"add {', '.join(sorted(missing))} to BUILT_IN of hetsched/search/registry.py"
    assert not idle, f"remove {', '.join(sorted(idle))} from BUILT_IN of hetsched/search/registry.py: no method is registered there"


PAGES = "".join(
    page.read_text(encoding="utf-8")
    for folder in ("background", "howto")
    for page in sorted((PACKAGE.parent / "docs" / folder).glob("*.md"))
)


@pytest.mark.parametrize("name", [name for name, each in search.registered().items() if each.function.__module__.startswith("hetsched.")])
def test_every_method_of_the_package_has_its_turn_and_is_described(name: str) -> None:
    method = search.registered()[name]
    assert method.turn < 1000, f"the turn of {name} is {method.turn}; methods of the package have one below 1000"
    assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", PAGES, re.IGNORECASE), (
        f"describe {name} in a page of docs/background or docs/howto"
    )


@pytest.mark.slow
def test_loading_all_methods_loads_neither_numba_nor_a_solver() -> None:
    script = "import sys; from hetsched.search import registered; registered(); print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert "hetsched" in loaded
    heavy = {"numba", "torch", "scipy", *(solver.requires for solver in backends.known())} & set(loaded)
    assert not heavy, f"{', '.join(sorted(heavy))} is loaded with the methods; import it in the functions that need it"


@examples(100)
@given(problem=strategies.problems())
def test_what_is_selected_for_a_problem_takes_it(problem: hs.Problem) -> None:
    chosen = select(problem=problem)
    assert chosen == sorted(chosen, key=lambda method: (method.turn, method.name))
    for method in search.registered().values():
        refusal = method.supports.refusal(problem)
        assert (method in chosen) == (not refusal)
        if refusal:
            monitor = Monitor(problem)
            with pytest.raises(hs.UnsupportedFeature) as refused:
                monitor.run(method.name)
            assert str(refused.value) == refusal
            assert monitor.evaluations == 0


def test_queries_join_their_conditions() -> None:
    one, cluster = topcuoglu(), hs.Cluster(["x"], bandwidth=1.0)
    several = hs.Problem(hs.TaskGraph(["a"]), cluster, durations=[[[1.0, 2.0]]], batch_sizes=[1, 2], inputs=2)
    assert names(select(role=Role.START, problem=one)) == ["best-device", "heft"]
    assert names(select(role=Role.START, problem=several)) == ["best-device", "heft", "bheft"]
    assert names(select(role=Role.PACKING)) == ["packing", "assignment", "celeritas", "order-place"]
    assert names(select(kind=Kind.SEARCH, objective="period", auto=True)) == ["load-search", "contiguous"]
    assert names(select(objective="max-load", auto=True, problem=one))[:2] == ["best-device", "heft"]


def test_the_condition_of_a_role_is_not_that_of_auto() -> None:
    with search.temporarily(
        Method("narrow", "for two tasks", idle, roles={Role.BASELINE: tasks_up_to(2)}, auto=Auto(when=several_inputs)),
        Method("missing", "needs what nobody has", idle, needs="no_such_package", roles={Role.BASELINE: always}, auto=Auto()),
    ):
        assert "narrow" not in names(select(role=Role.BASELINE, problem=topcuoglu()))
        assert "narrow" not in names(select(auto=True, problem=topcuoglu()))
        assert "narrow" in names(select(role=Role.BASELINE))
        assert "missing" not in names(select(role=Role.BASELINE)) + names(select(auto=True))
        assert not search.find_method("missing").available


def test_only_a_plug_in_that_requests_it_takes_part_in_auto() -> None:
    ran = []

    def records(name: str) -> Method:
        def run(problem: hs.Problem, monitor: Monitor) -> None:
            ran.append(name)
            monitor.offer(hs.Decision.whole(problem, np.zeros(problem.n_tasks, np.int64), problem.graph.topological_order))

        return Method(name, "records", run, kind=Kind.CONSTRUCTIVE, auto=Auto() if name == "joins" else None)

    with search.temporarily(records("joins"), records("stays")):
        solution = hs.solve(topcuoglu(), evaluations=200)
    assert ran == ["joins"]
    assert {"joins", "heft"} <= set(solution.methods.method)


@pytest.mark.slow
def test_a_search_that_joins_auto_gets_its_share_of_the_evaluations() -> None:
    seen = []

    def run(problem: hs.Problem, monitor: Monitor) -> None:
        seen.append(monitor.budget.evaluations)
        monitor.evaluated(monitor.budget.evaluations or 0)

    with search.temporarily(Method("mine", "a search", run, auto=Auto(weight=2.0))):
        hs.solve(tangle(20).replace(communication="port"), evaluations=2000)
    assert seen
    assert seen[0] > 200


@pytest.mark.parametrize(
    ("supports", "problem", "message"),
    [
        (Supports(inputs="one"), {"inputs": 2}, "one input is supported, but the problem has 2; use problem.replace(inputs=1)"),
        (Supports(memory=("static",)), {"memory": "peak"}, "memory='peak' is not supported; use problem.replace(memory='static')"),
        (Supports(batching=("once",)), {"batching": "free"}, "batching='free' is not supported; use problem.replace(batching='once')"),
        (
            Supports(communication=("delay",)),
            {"communication": "port"},
            "communication='port' is not supported; use problem.replace(communication='delay')",
        ),
    ],
)
def test_a_refusal_names_value_rule_and_remedy(supports: Supports, problem: dict[str, object], message: str) -> None:
    unsupported = topcuoglu().replace(**problem)
    with search.temporarily(Method("picky", "refuses", idle, supports=supports)), pytest.raises(hs.UnsupportedFeature) as refused:
        hs.solve(unsupported, "picky")
    assert message in str(refused.value)
    assert supports.refused
    assert supports.refusal(topcuoglu()) == ""


def test_a_task_without_a_batch_of_all_inputs_is_named() -> None:
    graph = hs.TaskGraph(["a", "b"])
    problem = hs.Problem(
        graph, hs.Cluster(["x"], bandwidth=1.0), durations=[[[1.0, 2.0]], [[1.0, np.nan]]], batch_sizes=[1, 2], inputs=2, batching="free"
    )
    refusal = Supports(inputs="whole").refusal(problem)
    assert refusal == (
        "every task has to run as one batch of all 2 inputs, but 'b' has no such batch on any device; give durations for that size"
    )


def test_every_objective_has_constructive_methods_and_bounds() -> None:
    for objective in ALL:
        kinds = {method.kind for method in select(objective=objective, auto=True, problem=topcuoglu())}
        assert {Kind.CONSTRUCTIVE, Kind.SEARCH, Kind.BOUND} <= kinds
