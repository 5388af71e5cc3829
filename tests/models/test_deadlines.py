"""The making of models and the division of graphs end with the time, and do not begin if they would take too long."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hetsched as hs
from hetsched.analysis import model_size
from hetsched.analysis.modules import modules
from hetsched.errors import OutOfTime
from hetsched.heuristics.local_search.search import StateSearch
from hetsched.heuristics.local_search.tabu import SLICE, Walk
from hetsched.modeling.lowering import linear
from hetsched.modeling.model import Model
from hetsched.models.assignment import Assignment
from hetsched.models.batched import BatchedMakespan
from hetsched.models.formulation import Formulation
from hetsched.models.moirai import CongestionAware
from hetsched.models.shortage import shortage
from hetsched.models.steady_state import SteadyState
from hetsched.search import Budget, Monitor
from hetsched.stopping import Deadline
from hetsched.testing.clocks import SteppingClock, watched

KINDS = (BatchedMakespan, CongestionAware, Assignment, SteadyState)
EXACT = ("milp", "milp:highs", "cpsat", "moirai", "assignment", "load-milp")


def tangle(n: int, inputs: int = 1) -> hs.Problem:
    """Return a problem whose graph no single task divides."""
    rng = np.random.default_rng(0)
    arcs = [(f"t{i}", f"t{j}") for j in range(2, n) for i in rng.choice(j, 2, replace=False).tolist()]
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], arcs, output_bytes=1.0)
    sizes: dict[str, Any] = {} if inputs == 1 else {"inputs": inputs, "batch_sizes": [1, inputs]}
    shape = (n, 3) if inputs == 1 else (n, 3, 2)
    return hs.Problem(graph, hs.Cluster(["a", "b", "c"], bandwidth=1.0), durations=rng.uniform(1, 9, shape), **sizes)


def least_time(work: Any) -> tuple[int, Any]:
    """Return the least number of checks of the clock for which ``work(deadline)`` does not raise `OutOfTime`, and its result."""
    looks = 0
    while True:
        clock = SteppingClock(1.0)
        try:
            return looks, work(Deadline(clock.now + looks, clock))
        except OutOfTime:
            looks += 1


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        *((kind, tangle(10)) for kind in KINDS),
        pytest.param(CongestionAware, tangle(10, inputs=2).replace(communication="port"), marks=pytest.mark.slow),
    ],
)
def test_no_component_begins_after_the_end(kind: type[Formulation], problem: hs.Problem) -> None:
    looks, made = least_time(lambda deadline: kind(problem, deadline=deadline))
    assert looks >= len(made.components)
    alike = kind(problem)
    assert alike.model.describe() == made.model.describe()


def test_a_formulation_without_time_to_be_solved_has_a_message() -> None:
    formulation = BatchedMakespan(tangle(20))
    solution = formulation.solve("scip", time_limit=0.0)
    assert solution.stopped == "time limit"
    assert solution.messages[-1].endswith("allow more time")


def test_lowering_checks_the_clock_after_each_pass() -> None:
    program = BatchedMakespan(tangle(20)).model.program
    looks, lowered = least_time(lambda deadline: linear(program, deadline=deadline))
    assert looks >= 4
    np.testing.assert_array_equal(lowered.coefficient, linear(program).coefficient)


def test_dividing_a_graph_checks_the_clock() -> None:
    graph = tangle(200).graph
    looks, partition = least_time(lambda deadline: modules(graph, largest=10, deadline=deadline))
    assert looks >= 10
    np.testing.assert_array_equal(partition.of_task, modules(graph, largest=10).of_task)


@pytest.mark.parametrize("method", EXACT)
def test_models_that_take_too_long_are_refused_before_they_begin(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: object) -> None:
        raise AssertionError("the making of a model has begun")

    monkeypatch.setattr(Model, "_columns", begun)
    problem = tangle(2000)
    monitor = Monitor(problem, Budget(1e-3), clock=SteppingClock())  # which does not advance
    monitor.run(method)
    solution = monitor.solution(method)
    assert solution.stopped == "time limit"
    assert solution.schedule is not None, "list schedulers, or a short search, come first"
    assert hs.verify(problem, solution.schedule) == []
    message = r"making a model of about [\d,]+ columns takes about [\d.]+ s, but 0\.001 s are left; allow more time"
    assert re.search(message, "\n".join(solution.messages))


@pytest.mark.slow
def test_all_pairs_are_not_compared_where_there_is_no_time_to() -> None:
    deadline, problem = Deadline.after(1.0, SteppingClock()), tangle(8000)
    with pytest.raises(OutOfTime, match=r"comparing 8,000 tasks with one another takes about 1\.3 s, but 1 s are left; allow more time"):
        BatchedMakespan(problem, deadline=deadline)
    with pytest.raises(OutOfTime, match=r"comparing [\d,]+ transfers with one another takes about"):
        CongestionAware(problem.replace(communication="port"), deadline=deadline)


def test_transfers_between_batches_are_neither_made_nor_compared_where_there_is_no_time_to() -> None:
    problem = tangle(500, inputs=2).replace(communication="port")
    assert model_size.columns(problem) == CongestionAware.columns(problem)
    with pytest.raises(OutOfTime, match=r"making a model of about [\d,]+ columns takes about"):
        CongestionAware(problem, deadline=Deadline.after(0.01, SteppingClock()))
    with pytest.raises(OutOfTime, match=r"comparing 1,992 transfers with one another takes about"):
        CongestionAware(problem, upper=1e6, deadline=Deadline.after(0.07, SteppingClock()))


@pytest.mark.parametrize("communication", ["channel", "port", "node"])
@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_the_columns_of_a_model_are_about_as_many_as_estimated(communication: str, inputs: int) -> None:
    problem = tangle(20, inputs).replace(communication=communication)
    made = CongestionAware(problem, upper=1e6).model.program.n_columns
    assert 0.5 <= model_size.columns(problem) / made <= 1.1


def test_missing_memory_is_explained_as_long_as_there_is_time() -> None:
    plain = tangle(20)
    graph = hs.TaskGraph(plain.graph.names, plain.graph.edges, edge_bytes=plain.graph.edge_bytes, weight_bytes=1.0)
    small = hs.Cluster([hs.Device(name, memory_bytes=5.0) for name in "abc"], bandwidth=1.0)
    problem = hs.Problem(graph, small, durations=plain.durations[:, :, 0])
    assert "at least 5 bytes are missing" in shortage(problem)
    assert shortage(problem, deadline=Deadline.after(0.0)) == ""
    assert shortage(problem, deadline=Deadline.after(3.0, SteppingClock(1.0))) == ""


@pytest.mark.parametrize("method", [*EXACT, "getf", "m-sct", "split", "contiguous"])
@pytest.mark.parametrize("looks", [0, 3, 15, 40])
def test_a_method_without_time_has_a_message(method: str, looks: int) -> None:
    run = watched(tangle(300), method, looks)
    assert run.late <= 60
    if looks < 10:  # later a solver may run, with its own clock
        assert run.monitor.solution(method).stopped == "time limit"


def test_many_random_changes_end_with_the_time() -> None:
    problem = tangle(2000)
    clock = SteppingClock()
    monitor = Monitor(problem, Budget(10.0), clock=clock)
    hs.methods()  # registers the list schedulers from which a search starts
    search = StateSearch(monitor)
    assert search.start()
    walk = Walk(search)
    assert walk.shake(2000) == 2000
    clock.now += 20.0
    assert walk.shake(2000) == SLICE, "a slice is done, and no more"
