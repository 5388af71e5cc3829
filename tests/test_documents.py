"""Every value that can be constructed can be written, and is equal and immutable when read."""

from __future__ import annotations

import copy
import gzip
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import documents
from hetsched.arrays import Columns, Frozen, texts
from hetsched.search.solution import BestEffort, Bound
from hetsched.testing import decisions, problems
from hetsched.testing.profiles import examples
from hetsched.verification.verify import Violation
from tests.golden import topcuoglu

TEXTS = st.text(max_size=3) | st.text(st.characters(codec=None), max_size=2) | st.sampled_from(["a", "\ud800", "\x1b[31m", "\0", "nan", ""])
"""Arbitrary strings, including those with lone surrogates."""
NAMES = st.text(min_size=1, max_size=2) | TEXTS
STRANGE = st.none() | st.integers() | st.floats() | st.booleans() | st.binary(max_size=2) | st.lists(st.integers(), max_size=1)
ANY = TEXTS | STRANGE
NUMBERS = st.floats() | st.integers(-2, 5) | st.integers() | st.sampled_from([1e100, 1e-310, 2**64, 10**400, np.float32(0.1), np.int64(3)])


def comes_back(value: Any) -> None:
    data = documents.encode(value)
    back = documents.decode(data, documents.KINDS)
    assert back == value
    assert documents.encode(back) == data


def tried(make: Any, *arguments: Any, **named: Any) -> Any:
    """Return the value made, or None if it is refused by an error of the package."""
    try:
        return make(*arguments, **named)
    except hs.HetschedError:
        return None


@given(
    st.fixed_dictionaries(
        {"name": NAMES | ANY},
        optional={
            "kind": ANY,
            "node": ANY,
            "memory_bytes": NUMBERS | ANY,
            "memory_bandwidth": NUMBERS | ANY,
            "launch_overhead": NUMBERS | ANY,
            "peak_flops": st.dictionaries(TEXTS | st.integers(), NUMBERS | TEXTS, max_size=2) | ANY,
        },
    )
)
def test_a_device_is_refused_when_made_or_comes_back(fields):
    device = tried(hs.Device, **fields)
    if device is not None:
        comes_back(hs.Cluster([device]))


@examples(200)
@given(st.data())
def test_a_graph_is_refused_when_made_or_comes_back(data):
    n = data.draw(st.integers(0, 3))
    names = data.draw(st.lists(NAMES, min_size=n, max_size=n, unique=True))
    ends = st.sampled_from(names) if names else st.nothing()
    edges = data.draw(st.lists(st.tuples(ends, ends, st.none() | NUMBERS), max_size=3)) if names else []
    amounts = st.lists(NUMBERS, min_size=n, max_size=n) | NUMBERS
    fields = {
        "op": st.lists(TEXTS, min_size=n, max_size=n) | TEXTS,
        "colocation": st.lists(TEXTS | st.none(), min_size=n, max_size=n),
        "devices": st.lists(st.none() | st.lists(TEXTS, max_size=2) | TEXTS, min_size=n, max_size=n),
        "weight_bytes": amounts,
        "input_bytes": amounts,
        "output_bytes": amounts,
        "flops": amounts,
        "bytes_accessed": amounts,
    }
    graph = tried(hs.TaskGraph, names, edges, **data.draw(st.fixed_dictionaries({}, optional=fields)))
    if graph is not None:
        comes_back(graph)


@given(st.data())
def test_a_cluster_is_refused_when_made_or_comes_back(data):
    size = data.draw(st.integers(0, 3))
    names = data.draw(st.lists(NAMES, min_size=size, max_size=size, unique=True))
    matrix = NUMBERS | st.lists(st.lists(NUMBERS, min_size=size, max_size=size), min_size=size, max_size=size)
    cluster = tried(hs.Cluster, names, data.draw(matrix), data.draw(matrix))
    if cluster is not None:
        comes_back(cluster)


@pytest.mark.slow
@examples(200)
@given(problems(), st.data())
def test_a_problem_and_what_is_made_of_it_come_back(problem, data):
    comes_back(problem)
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    comes_back(schedule)
    try:
        solution = hs.solve(problem, "heft")
    except hs.UnsupportedFeature:  # a task takes several batches
        return
    comes_back(solution)


REALS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, -0.0])


@given(st.data())
def test_a_schedule_from_elsewhere_comes_back_however_wrong_it_is(data):
    names = data.draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    devices = data.draw(st.lists(NAMES, min_size=1, max_size=2, unique=True))
    size, moves, inputs = (data.draw(st.integers(0, 3)) for _ in range(3))
    counts = data.draw(st.lists(st.integers(0, 3 if inputs else 0), min_size=size, max_size=size))

    def column(strategy: Any, length: int) -> list[Any]:
        return data.draw(st.lists(strategy, min_size=length, max_size=length))

    integers = st.integers(-(2**63), 2**63 - 1)
    batches = Columns(
        task=np.array(column(st.integers(0, len(names) - 1), size), int),
        device=np.array(column(st.integers(0, len(devices) - 1), size), int),
        start=np.array(column(REALS, size)),
        finish=np.array(column(REALS, size)),
        size=np.array(column(st.integers(-1, 3), size), int),
    )
    batch = st.integers(0, max(0, size - 1))
    moves = moves if size else 0
    transfers = Columns(
        edge=np.array(column(integers, moves), int),
        source=np.array(column(batch, moves), int),
        target=np.array(column(batch, moves), int),
        start=np.array(column(REALS, moves)),
        finish=np.array(column(REALS, moves)),
    )
    memory = st.none() | st.lists(REALS, min_size=len(devices), max_size=len(devices))
    order = st.none() | st.lists(st.tuples(integers, integers, integers), max_size=2).map(lambda rows: np.array(rows, int).reshape(-1, 3))
    schedule = tried(
        hs.Schedule.from_columns,
        tuple(names),
        tuple(devices),
        inputs,
        batches,
        np.cumsum([0, *counts]),
        column(st.integers(0, max(0, inputs - 1)), sum(counts)),
        transfers,
        transfer_order=data.draw(order),
        makespan=data.draw(st.none() | REALS),
        static_memory=data.draw(memory),
        peak_memory=data.draw(memory),
    )
    if schedule is not None:
        comes_back(schedule)


@given(st.data())
def test_stages_from_elsewhere_come_back_however_wrong_they_are(data):
    names = data.draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    groups = data.draw(st.lists(st.lists(st.lists(st.sampled_from(names), max_size=2), max_size=2), max_size=3))
    column = st.lists(REALS, min_size=len(groups), max_size=len(groups))
    strategies = data.draw(st.lists(NAMES, min_size=len(groups), max_size=len(groups)))
    schedule = tried(
        hs.StageSchedule.from_groups,
        names,
        groups,
        strategies,
        data.draw(column),
        latency=data.draw(st.none() | REALS),
        asked=data.draw(st.none() | st.integers(0)),
        bound=data.draw(st.none() | REALS),
    )
    if schedule is not None:
        comes_back(schedule)


def test_the_sum_of_infinite_latencies_of_both_signs_is_no_number():
    """Found by `make thorough`."""
    schedule = hs.StageSchedule.from_groups(["a"], [[], []], ["concurrent", "concurrent"], [np.inf, -np.inf])
    assert np.isnan(schedule.latency)
    comes_back(schedule)


@pytest.mark.parametrize("wrong", [{"static_memory": [1.0]}, {"peak_memory": [[1.0, 2.0]]}, {"transfer_order": [[0, 0, 2]]}])
def test_columns_that_do_not_fit_a_schedule_are_refused_when_it_is_made(wrong):
    schedule = a_solution().schedule
    assert schedule is not None
    with pytest.raises(hs.InvalidSchedule):
        hs.Schedule.from_columns(
            schedule.tasks, schedule.devices, 1, schedule.batches, schedule.item_ptr, schedule.items, schedule.transfers, **wrong
        )


def a_solution() -> hs.Solution:
    problem = hs.Problem(hs.TaskGraph(["a", "b"], [("a", "b")]), hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[1, 2], [2, 1]])
    return hs.solve(problem, "heft")


@given(
    st.booleans(),
    st.sampled_from(["makespan", "period", "max-load"]),
    st.none() | REALS,
    REALS,
    st.fixed_dictionaries({"method": TEXTS, "messages": st.lists(TEXTS, max_size=2)}),
    TEXTS,
    st.integers(0),
)
def test_a_solution_is_refused_when_made_or_comes_back(has_schedule, objective, value, bound, words, evidence, seed):
    base = a_solution()
    proof = tried(Bound, bound, evidence, evidence, objective)
    if proof is not None:
        schedule = base.schedule if has_schedule else None
        columns = {"history": base.history, "methods": base.methods}
        solution = tried(hs.Solution, schedule, proof, objective=objective, value=value, seed=seed, **words, **columns)
        if solution is not None:
            comes_back(solution)


def test_a_best_effort_comes_back():
    solution = a_solution()
    assert solution.schedule is not None
    broken = Violation("time", "a runs to inf s", math.inf, ("a",), ("x",), (0,), (math.nan, 1.0))
    effort = BestEffort(solution.schedule, (broken,))
    partial = hs.Solution(
        None,
        Bound(1.0, "memory"),
        method="m",
        seed=0,
        history=solution.history,
        methods=solution.methods,
        best_effort=effort,
        messages=["\ud800 from a solver"],
    )
    data = documents.encode(partial)
    back = documents.decode(data, documents.KINDS)
    assert documents.encode(back) == data
    assert "\\ud800 from a solver" in back.messages


@pytest.mark.parametrize("name", ["", "\ud800", None])
def test_a_method_has_a_name_that_its_solutions_can_be_written_with(name):
    with pytest.raises(hs.HetschedError, match="name .*; (give each method a name of Unicode text|it must be a string)"):
        hs.method(name, summary="")


def test_one_long_name_in_a_history_takes_its_own_room_alone():
    rows = 1000
    column = texts(["x" * 10**6, *["y"] * (rows - 1)])
    assert column.nbytes == rows * 8
    assert Columns(source=column) == Columns(source=texts(column.tolist()))


def frozen(value: object) -> None:
    """Assert that no array in a value can be written to."""
    if isinstance(value, np.ndarray):
        assert not value.flags.writeable
    elif isinstance(value, dict):
        for part in value.values():
            frozen(part)
    elif isinstance(value, tuple):
        for part in value:
            frozen(part)
    elif isinstance(value, Frozen):
        for part in vars(value).values():
            frozen(part)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_are_as_unchangeable_as_what_they_copy(again):
    solution = a_solution()
    schedule = solution.schedule
    assert schedule is not None
    schedule.batch_of, schedule.busy_time, schedule.decision  # noqa: B018  # cached columns
    for value in (solution, schedule, schedule.decision, schedule.batches):
        twin = again(value)
        assert twin == value
        frozen(twin)
    with pytest.raises(ValueError, match="read-only"):
        again(schedule).batches.start[0] = 1.0


def test_a_packed_document_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    problem = topcuoglu()
    path = tmp_path / "problem.json.gz"
    path.write_bytes(gzip.compress(hs.documents.encode(problem)))
    assert hs.read(path) == problem
    path.write_bytes(b"\x1f\x8b" + b"x" * 20)
    with pytest.raises(hs.InvalidProblem, match="is damaged: .*; make it anew"):
        hs.read(path)
