"""The independent check: valid schedules pass, and the violation of each rule is named with its amount."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.arrays import Columns, row_starts
from hetsched.problem.links import CONTENDED
from hetsched.testing import decisions, problems
from hetsched.testing.profiles import examples
from tests.resources import held_resources

STEP = 1 / 16
FEW = examples(50)  # examples of each mutation


def rebuilt(schedule, **changes):
    """Return the schedule with some columns replaced, and its makespan computed again unless given."""
    columns = {name: getattr(schedule, name) for name in ("batches", "item_ptr", "items", "transfers")}
    return hs.Schedule.from_columns(
        schedule.tasks,
        schedule.devices,
        schedule.n_inputs,
        **{**columns, **{k: v for k, v in changes.items() if k != "makespan"}},
        makespan=changes.get("makespan"),
    )


def changed(columns, row, **amounts):
    """Return columns with numbers added to one row."""
    new = {name: columns[name].copy() for name in amounts}
    for name, amount in amounts.items():
        new[name][row] += amount
    return columns.replace(**new)


def without(columns, row):
    return Columns(**{name: np.delete(columns[name], row) for name in columns.names})


def repeated(columns, row, **values):
    """Return columns with a copy of one row at the end, some of its values replaced."""
    return Columns(**{name: np.append(columns[name], values.get(name, columns[name][row])) for name in columns.names})


def found(problem, schedule, rule):
    return [violation for violation in hs.verify(problem, schedule) if violation.rule == rule]


def broken(problem, schedule):
    return {violation.rule for violation in hs.verify(problem, schedule)} - {"memory"}


def solved(data, **features):
    """Draw a problem without memory limits and a valid schedule of it."""
    problem = data.draw(problems(**{"tight": False, "n_tasks": st.integers(2, 4), "n_devices": 2, **features}))
    return problem, hs.simulate(problem, data.draw(decisions(problem)))


def a_batch(data, schedule, positive=False):
    rows = np.flatnonzero(schedule.batches.finish > schedule.batches.start) if positive else np.arange(len(schedule.batches))
    assume(len(rows))
    return data.draw(st.sampled_from(rows.tolist()))


def a_transfer(data, schedule):
    assume(len(schedule.transfers))
    return data.draw(st.integers(0, len(schedule.transfers) - 1))


SPREAD = {"pins": False, "absent": False, "colocation": False}


@FEW
@given(st.data())
def test_nothing_can_start_earlier_in_a_simulated_schedule(data):
    """Semi-active schedules: an earlier start of any single batch or transfer breaks a rule."""
    problem, schedule = solved(data)
    b = a_batch(data, schedule)
    early = rebuilt(schedule, batches=changed(schedule.batches, b, start=-STEP, finish=-STEP))
    assert broken(problem, early) & {"time", "precedence", "device-overlap"}
    if len(schedule.transfers):
        x = a_transfer(data, schedule)
        early = rebuilt(schedule, transfers=changed(schedule.transfers, x, start=-STEP, finish=-STEP))
        assert broken(problem, early) & {"time", "transfer-early", f"{problem.communication}-overlap"}


@FEW
@given(st.data())
def test_dropped_batches_leave_their_inputs_uncovered(data):
    problem, schedule = solved(data, inputs=st.integers(1, 3))
    b = a_batch(data, schedule)
    batches, moves = schedule.batches, schedule.transfers
    kept = (moves.source != b) & (moves.target != b)
    transfers = Columns(
        **{name: moves[name][kept] - ((moves[name][kept] > b) if name in ("source", "target") else 0) for name in moves.names}
    )
    sizes = np.diff(schedule.item_ptr)
    items = np.delete(schedule.items, np.arange(schedule.item_ptr[b], schedule.item_ptr[b + 1]))
    short = rebuilt(schedule, batches=without(batches, b), item_ptr=row_starts(np.delete(sizes, b)), items=items, transfers=transfers)
    (violation,) = hs.verify(problem, short)
    assert (violation.rule, violation.amount) == ("coverage", sizes[b])
    assert violation.tasks == (schedule.tasks[batches.task[b]],)
    assert set(violation.items) == set(schedule.items[schedule.item_ptr[b] : schedule.item_ptr[b + 1]].tolist())


@FEW
@given(st.data())
def test_repeated_empty_and_stuttering_batches_break_coverage(data):
    problem, schedule = solved(data, inputs=st.integers(1, 3))
    b, late = a_batch(data, schedule), schedule.makespan + 1
    items = schedule.items[schedule.item_ptr[b] : schedule.item_ptr[b + 1]]
    length = schedule.batches.finish[b] - schedule.batches.start[b]
    batches = repeated(schedule.batches, b, start=late, finish=late + length)

    def extended(more):
        items = [*schedule.items, *more]
        return rebuilt(schedule, batches=batches, item_ptr=[*schedule.item_ptr, len(items)], items=items)

    (violation,) = found(problem, extended(items), "coverage")
    assert violation.amount == len(items)
    assert "in 2 batches" in violation.message
    assert "once" in broken(problem, extended(items)) or problem.batching == "free"
    (violation,) = found(problem, extended([]), "coverage")
    assert violation.message.endswith("has no inputs")
    pointers = schedule.item_ptr.copy()
    pointers[b + 1 :] += 1
    stutter = rebuilt(schedule, item_ptr=pointers, items=np.insert(schedule.items, schedule.item_ptr[b], items[0]))
    (violation,) = found(problem, stutter, "coverage")
    assert (violation.amount, violation.message.endswith("lists an input more than once")) == (1, True)


@FEW
@given(st.data(), st.integers(1, 3))
def test_a_stated_size_must_be_the_true_one(data, more):
    problem, schedule = solved(data)
    b = a_batch(data, schedule)
    (violation,) = hs.verify(problem, rebuilt(schedule, batches=changed(schedule.batches, b, size=more)))
    assert (violation.rule, violation.amount) == ("batch-size", more)


@FEW
@given(st.data())
def test_sizes_a_device_does_not_support_are_named(data):
    problem, schedule = solved(data, inputs=2, **SPREAD)
    b = a_batch(data, schedule)
    i, k, size = (int(schedule.batches[name][b]) for name in ("task", "device", "size"))
    times = np.concatenate([problem.durations, np.ones((*problem.durations.shape[:2], 1))], axis=2)
    sizes = [*problem.batch_sizes.tolist(), 7]
    times[i, k, sizes.index(size)] = np.nan
    assume(np.isfinite(times[i, k, :-1]).any() or np.isfinite(np.delete(times[i], k, axis=0)[:, :-1]).any())
    try:
        restricted = problem.replace(durations=times, batch_sizes=sizes)
    except hs.InvalidProblem:
        assume(False)
    named = found(restricted, schedule, "batch-size")
    supported = [s for s in sizes if np.isfinite(times[i, k, sizes.index(s)])]
    assert {violation.amount for violation in named} == {min(abs(s - size) for s in supported)}
    assert all(violation.tasks == (problem.graph.names[i],) for violation in named)


@pytest.mark.slow
@FEW
@given(st.data())
def test_once_counts_the_batches_too_many(data):
    problem, schedule = solved(data, inputs=3, batching="free", **SPREAD)
    try:
        strict = problem.replace(batching="once")
    except hs.InvalidProblem:
        assume(False)
    pairs = list(zip(schedule.batches.task.tolist(), schedule.batches.device.tolist(), strict=True))
    extra = {(problem.graph.names[i], problem.cluster.names[k]): pairs.count((i, k)) - 1 for i, k in pairs if pairs.count((i, k)) > 1}
    assert {(v.tasks[0], v.devices[0]): v.amount for v in hs.verify(strict, schedule)} == extra


@FEW
@given(st.data())
def test_devices_without_durations_or_outside_a_pin_are_named(data):
    problem, schedule = solved(data, **SPREAD)
    b = a_batch(data, schedule)
    i, k = int(schedule.batches.task[b]), int(schedule.batches.device[b])
    times, pins = problem.durations.copy(), [None] * problem.n_tasks
    times[i, k] = np.nan
    pins[i] = [problem.cluster.names[1 - k]]
    for rule, change in (("eligibility", {"durations": times}), ("pin", {"graph": problem.graph.replace(devices=pins)})):
        try:
            restricted = problem.replace(**({"batch_sizes": problem.batch_sizes} if "durations" in change else {}), **change)
        except hs.InvalidProblem:
            continue
        there = (schedule.batches.task == i) & (schedule.batches.device == k)
        violations = hs.verify(restricted, schedule)
        assert {violation.rule for violation in violations} == {rule}
        assert sum(violation.amount for violation in violations) == schedule.batches.size[there].sum()
        assert all(violation.devices == (problem.cluster.names[k],) for violation in violations)


@FEW
@given(st.data())
def test_split_labels_are_named_with_their_inputs(data):
    problem, schedule = solved(data, inputs=st.integers(1, 3), **SPREAD)
    device = schedule.batches.device[schedule.batch_of]
    labels = ["glue", "glue", *[None] * (problem.n_tasks - 2)]
    try:
        glued = problem.replace(graph=problem.graph.replace(colocation=labels))
    except hs.InvalidProblem:
        assume(False)
    split = np.flatnonzero(device[0] != device[1]).tolist()
    violations = hs.verify(glued, schedule)
    assert [(v.rule, list(v.items), v.amount, v.tasks) for v in violations] == (
        [("colocation", split, len(split), problem.graph.names[:2])] if split else []
    )


@FEW
@given(st.data(), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_times_that_are_none_are_named_and_hide_nothing_else(data, nonsense):
    problem, schedule = solved(data)
    b = a_batch(data, schedule)
    rubbish = rebuilt(schedule, batches=changed(schedule.batches, b, start=nonsense), makespan=nonsense)
    assert [v.amount for v in found(problem, rubbish, "time")] == [math.inf]
    assert [v.amount for v in found(problem, rubbish, "makespan")] == [math.inf]
    other = (b + 1) % len(schedule.batches)
    both = rebuilt(rubbish, batches=changed(rubbish.batches, other, finish=1))
    assert other == b or [v.tasks for v in found(problem, both, "duration")] == [(schedule.tasks[schedule.batches.task[other]],)]
    if len(schedule.transfers):
        x = a_transfer(data, schedule)
        assert len(found(problem, rebuilt(schedule, transfers=changed(schedule.transfers, x, finish=nonsense)), "time")) == 1


@FEW
@given(st.data())
def test_times_before_zero_are_named(data):
    problem, schedule = solved(data)
    b = a_batch(data, schedule)
    by = schedule.batches.start[b] + 1
    (violation,) = found(problem, rebuilt(schedule, batches=changed(schedule.batches, b, start=-by, finish=-by)), "time")
    assert violation.amount == 1


@FEW
@given(st.data(), st.sampled_from([-STEP, STEP, 3.0]))
def test_wrong_durations_are_named(data, more):
    problem, schedule = solved(data)
    b = a_batch(data, schedule)
    (violation,) = found(problem, rebuilt(schedule, batches=changed(schedule.batches, b, finish=more)), "duration")
    assert violation.amount == abs(more)
    if len(schedule.transfers):
        x = a_transfer(data, schedule)
        (violation,) = found(problem, rebuilt(schedule, transfers=changed(schedule.transfers, x, finish=more)), "transfer-time")
        assert violation.amount == abs(more)


def overlap(a, b):
    """Return the length of the overlap of two half-open intervals."""
    return max(0.0, min(a[1], b[1]) - max(a[0], b[0])) if a[0] < a[1] and b[0] < b[1] else 0.0


@FEW
@given(st.data())
def test_overlaps_on_a_device_are_found_exactly_where_they_are(data):
    problem, schedule = solved(data, n_tasks=st.integers(3, 5))
    b, to = a_batch(data, schedule), data.draw(st.integers(0, int(schedule.makespan) + 1))
    length = schedule.batches.finish[b] - schedule.batches.start[b]
    batches = changed(schedule.batches, b, start=to - schedule.batches.start[b], finish=to + length - schedule.batches.finish[b])
    rows = list(zip(batches.device.tolist(), batches.start.tolist(), batches.finish.tolist(), strict=True))
    amounts = {overlap(x[1:], y[1:]) for x, y in itertools.combinations(rows, 2) if x[0] == y[0]} - {0.0}
    violations = found(problem, rebuilt(schedule, batches=batches), "device-overlap")
    assert bool(violations) == bool(amounts)
    assert {violation.amount for violation in violations} <= amounts
    assert max(amounts, default=0.0) == max((violation.amount for violation in violations), default=0.0)


@FEW
@given(st.data())
def test_contention_is_found_exactly_where_transfers_overlap(data):
    problem, schedule = solved(data, communication="delay", n_devices=3, n_tasks=st.integers(3, 5), missing_links=False, **SPREAD)
    moves, device = schedule.transfers, schedule.batches.device
    pairs = list(zip(device[moves.source].tolist(), device[moves.target].tolist(), strict=True))
    rows = list(zip(moves.start.tolist(), moves.finish.tolist(), strict=True))
    for model in CONTENDED:
        resources = [held_resources(model, problem.cluster, h, k) for h, k in pairs]
        amounts = {overlap(rows[x], rows[y]) for x, y in itertools.combinations(range(len(rows)), 2) if resources[x] & resources[y]} - {0.0}
        violations = hs.verify(problem.replace(communication=model), schedule)
        assert {violation.rule for violation in violations} == ({f"{model}-overlap"} if amounts else set()), f"see {model!r} in _contention"
        assert {violation.amount for violation in violations} <= amounts
        assert max(amounts, default=0.0) == max((violation.amount for violation in violations), default=0.0)


@FEW
@given(st.data())
def test_consumers_that_do_not_wait_are_named(data):
    problem, schedule = solved(data)
    parents = np.unique(problem.graph.edges[:, 1])
    rows = np.flatnonzero(np.isin(schedule.batches.task, parents))
    assume(len(rows))
    b = int(data.draw(st.sampled_from(rows.tolist())))
    batches, moves = schedule.batches, schedule.transfers
    ready = [moves.finish[x] for x in np.flatnonzero(moves.target == b)]
    ready += [
        batches.finish[a]
        for i in problem.graph.edges[problem.graph.edges[:, 1] == batches.task[b], 0]
        for a in np.flatnonzero((batches.task == i) & (batches.device == batches.device[b]))
        if set(schedule.items[slice(*schedule.item_ptr[a : a + 2])]) & set(schedule.items[slice(*schedule.item_ptr[b : b + 2])])
    ]
    by = batches.start[b] - max(ready) + STEP
    violations = found(problem, rebuilt(schedule, batches=changed(batches, b, start=-by, finish=-by)), "precedence")
    mine = [violation for violation in violations if violation.times[0] == max(ready) - STEP]
    assert max(violation.amount for violation in mine) == STEP


@pytest.mark.slow
@FEW
@given(st.data())
def test_missing_extra_and_early_transfers_are_named(data):
    problem, schedule = solved(data, n_devices=st.integers(2, 3))
    x = a_transfer(data, schedule)
    moves, batches = schedule.transfers, schedule.batches
    a, b = int(moves.source[x]), int(moves.target[x])
    tasks = (schedule.tasks[batches.task[a]], schedule.tasks[batches.task[b]])
    (violation,) = hs.verify(problem, rebuilt(schedule, transfers=without(moves, x)))
    assert (violation.rule, violation.amount, violation.tasks) == ("transfer-missing", 1, tasks)
    for values, why in (({}, "is listed more than once"), ({"source": b, "target": a}, "joins batches of")):
        (violation,) = hs.verify(problem, rebuilt(schedule, transfers=repeated(moves, x, **values)))
        assert (violation.rule, violation.amount) == ("transfer-extra", 1)
        assert why in violation.message
    by = moves.start[x] - batches.finish[a] + STEP
    (violation,) = found(problem, rebuilt(schedule, transfers=changed(moves, x, start=-by, finish=-by)), "transfer-early")
    assert (violation.amount, violation.tasks) == (STEP, tasks)


@FEW
@given(st.data())
def test_data_that_cannot_travel_is_named(data):
    problem, schedule = solved(data, transfers=False, **SPREAD)
    apart = problem.replace(cluster=hs.Cluster(problem.cluster.devices, bandwidth=0.0))
    device, batch_of = schedule.batches.device, schedule.batch_of
    crossing = sum(int((device[batch_of[i]] != device[batch_of[j]]).sum()) for i, j in problem.graph.edges.tolist())
    violations = hs.verify(apart, schedule)
    assert {violation.rule for violation in violations} == ({"no-path"} if crossing else set())
    assert sum(violation.amount for violation in violations) == crossing


@FEW
@given(st.data(), st.sampled_from([STEP, 1.0]))
def test_memory_over_capacity_is_named_to_the_byte(data, short):
    problem, schedule = solved(data, inputs=st.integers(1, 3))
    for model, needed in (("static", schedule.static_memory), ("peak", schedule.peak_memory)):
        k = int(np.argmax(needed))
        assume(needed[k] >= short)
        for room, over in ((needed[k], []), (needed[k] - short, [short])):
            members = [hs.Device(name, memory_bytes=room if x == k else math.inf) for x, name in enumerate(problem.cluster.names)]
            tight = problem.replace(memory=model, cluster=problem.cluster.replace(devices=members))
            violations = hs.verify(tight, schedule)
            assert [(v.rule, v.amount, v.devices) for v in violations] == [("memory", short, (members[k].name,)) for _ in over]


@FEW
@given(st.data(), st.sampled_from([-1.0, STEP, 1e12]))
def test_a_wrong_makespan_is_named_and_buys_no_tolerance(data, more):
    problem, schedule = solved(data)
    (violation,) = hs.verify(problem, rebuilt(schedule, makespan=schedule.makespan + more))
    assert (violation.rule, violation.amount) == ("makespan", pytest.approx(abs(more), rel=1e-12))
