"""Plans against a naive replay of their steps, and known cases by hand."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.errors import InvalidArgument, InvalidSchedule
from hetsched.runtime.plan import Drop, Gather, Plan, Run, Send, Value, Wait
from hetsched.testing import decisions, problems
from hetsched.testing.profiles import examples


@st.composite
def planned(draw, **features):
    """Draw a problem of one to three inputs and a decision; many durations are zero, many tasks have several batches."""
    few = {"n_tasks": st.integers(1, 7), "n_devices": st.integers(1, 3), "inputs": st.sampled_from([1, 1, 2, 3])}
    problem = draw(problems(**{**few, **features}))
    return problem, draw(decisions(problem))


@st.composite
def shuffled(draw, **features):
    """Draw a problem and a decision in any order, which may deadlock."""
    problem, decision = draw(planned(**features))
    order = np.array(draw(st.permutations(range(decision.n_batches))))
    place = np.argsort(order)
    moves = decision.transfer_order
    if moves is not None:
        moves = [(moves[x, 0], place[moves[x, 1]], place[moves[x, 2]]) for x in draw(st.permutations(range(len(moves))))]
    parts = [decision.items[decision.item_ptr[b] : decision.item_ptr[b + 1]] for b in order]
    ends = np.cumsum([0, *map(len, parts)])
    return problem, hs.Decision(decision.task[order], decision.device[order], ends, np.concatenate(parts), transfer_order=moves)


@st.composite
def values_of(draw, graph):
    """Draw values for every edge of a graph: tensors with several readers, several tensors along an edge, unread ones."""
    values = []
    for i in range(graph.n_tasks):
        readers = graph.edges[graph.edges[:, 0] == i, 1].tolist()
        parts = [readers] if readers else []
        if draw(st.booleans()):
            parts = [[reader] for reader in readers]
        extra = draw(st.lists(st.sampled_from(readers), unique=True)) if readers else []
        for part in [*parts, extra, []]:
            values.append(Value(i, f"v{len(values)}", draw(st.integers(0, 5)) * 1.0, tuple(sorted(part)), draw(st.booleans())))
    return values


class Replay:
    """All steps, taken in rounds by lists and sets, with the invariants of the rules asserted."""

    def __init__(self, problem, decision, plan):
        self.problem, self.decision, self.plan = problem, decision, plan
        count = len(plan.devices)
        self.ran, self.sent, self.peak = [], [], list(plan.weight_bytes)
        self.held = [{} for _ in range(count)]
        at = [0] * count
        moved = True
        while moved:
            moved = False
            for k in range(count):
                while at[k] < len(plan.steps[k]) and self.take(k, plan.steps[k][at[k]]):
                    at[k] += 1
                    moved = True
                    self.peak[k] = max(self.peak[k], plan.weight_bytes[k] + sum(self.held[k].values()))
        self.finished = at == [len(steps) for steps in plan.steps]

    def take(self, k, step):
        plan = self.plan
        own = self.inputs(step.batch)
        if isinstance(step, Run):
            task = plan.task[step.batch]
            assert plan.device[step.batch] == k
            assert all((v, own) in self.held[k] for v, value in enumerate(plan.values) if task in value.readers)
            self.ran.append(step.batch)
            self.held[k] |= {(v, own): value.bytes * len(own) for v, value in enumerate(plan.values) if value.task == task}
            return True
        value = plan.values[step.value]
        if isinstance(step, Gather):
            taken = []
            for source, first, count in step.runs:
                assert plan.task[source] == value.task
                assert (step.value, self.inputs(source)) in self.held[k]
                taken += self.inputs(source)[first : first + count]
            assert tuple(taken) == own
            assert (step.value, own) not in self.held[k]
            self.held[k][step.value, own] = value.bytes * len(own)
            return True
        if not isinstance(step, Drop):
            assert plan.task[step.batch] == value.task
        if isinstance(step, Send):
            assert (step.value, own) in self.held[k]
            assert step.to != k
            self.sent.append((step.value, step.batch, step.to))
        elif isinstance(step, Wait):
            if (step.value, step.batch, k) not in self.sent:
                return False
            assert (step.value, own) not in self.held[k]
            self.held[k][step.value, own] = value.bytes * len(own)
        else:
            assert isinstance(step, Drop)
            del self.held[k][step.value, own]
        return True

    def inputs(self, batch):
        return tuple(self.decision.items[self.decision.item_ptr[batch] : self.decision.item_ptr[batch + 1]].tolist())


@pytest.mark.slow
@given(st.data())
@examples(300)
def test_what_simulates_can_be_run_step_by_step(data):
    problem, decision = data.draw(planned())
    values = data.draw(st.none() | values_of(problem.graph))
    plan = Plan(problem, decision, values)
    plan.check()
    replay = Replay(problem, decision, plan)
    assert replay.finished
    assert sorted(replay.ran) == list(range(decision.n_batches))
    assert len(set(replay.sent)) == len(replay.sent)  # a value crosses to each device once
    read = [
        (v, a, b)
        for v, value in enumerate(plan.values)
        for a in range(decision.n_batches)
        for b in range(decision.n_batches)
        if decision.task[a] == value.task and decision.task[b] in value.readers and set(replay.inputs(a)) & set(replay.inputs(b))
    ]
    assert set(replay.sent) == {(v, a, decision.device[b]) for v, a, b in read if decision.device[a] != decision.device[b]}
    np.testing.assert_allclose(plan.peak_bytes, replay.peak)
    kept = [
        {
            (v, replay.inputs(b))
            for v, value in enumerate(plan.values)
            if value.kept
            for b in range(decision.n_batches)
            if decision.task[b] == value.task and decision.device[b] == k
        }
        for k in range(len(plan.devices))
    ]
    assert [set(held) for held in replay.held] == kept
    edges = {edge: e for e, edge in enumerate(map(tuple, problem.graph.edges.tolist()))}
    moves = hs.simulate(problem, decision).transfers
    for send, rows in zip(plan.sends, plan.carried, strict=True):
        value = plan.values[send.value]
        expected = [
            x
            for x, (edge, a, b) in enumerate(zip(moves.edge.tolist(), moves.source.tolist(), moves.target.tolist(), strict=True))
            if edge in {edges[value.task, r] for r in value.readers} and a == send.batch and decision.device[b] == send.to
        ]
        assert list(rows) == expected


@pytest.mark.slow
@given(st.data())
@examples(100)
def test_a_plan_that_gathers_other_inputs_is_refused(data):
    problem, decision = data.draw(planned(inputs=st.sampled_from([2, 3])))
    plan = Plan(problem, decision)
    places = [(k, at) for k, steps in enumerate(plan.steps) for at, step in enumerate(steps) if isinstance(step, Gather)]
    assume(places)
    k, at = data.draw(st.sampled_from(places))
    step = plan.steps[k][at]
    runs = ((step.runs[0][0], step.runs[0][1], step.runs[0][2] + 1), *step.runs[1:])
    steps = list(plan.steps)
    steps[k] = (*steps[k][:at], step._replace(runs=runs[:-1] if len(runs) > 1 else ()), *steps[k][at + 1 :])
    made = Plan.__new__(Plan)
    named = ("devices", "task", "device", "inputs", "items", "values", "order", "carried", "weight_bytes")
    made._set_steps(**{name: getattr(plan, name) for name in named}, steps=tuple(steps))
    with pytest.raises(InvalidSchedule, match="is gathered for the inputs"):
        made.check()


@pytest.mark.slow
@given(st.data())
@examples(300)
def test_deadlocks_are_refused_exactly_where_simulation_refuses_them(data):
    problem, decision = data.draw(shuffled(n_devices=st.integers(2, 3), n_tasks=st.integers(2, 6)))
    try:
        hs.simulate(problem, decision)
    except InvalidSchedule as error:
        refused = str(error)
    else:
        Plan(problem, decision).check()
        return
    with pytest.raises(InvalidSchedule) as refusal:
        Plan(problem, decision)
    assert str(refusal.value) == refused


@pytest.mark.slow
@given(st.data())
@examples(200)
def test_drops_come_right_behind_the_last_use(data):
    problem, decision = data.draw(planned())
    plan = Plan(problem, decision, data.draw(values_of(problem.graph)))
    tasks, task_of = plan.task.tolist(), [value.task for value in plan.values]
    for k, steps in enumerate(plan.steps):
        for v, own in itertools.product(range(len(plan.values)), set(plan.items)):
            value = plan.values[v]

            def uses(step, v=v, own=own, value=value):
                """Whether a step makes or reads the value for these inputs."""
                mine = plan.items[step.batch] == own
                if isinstance(step, Run):
                    return mine and tasks[step.batch] in (value.task, *value.readers)
                if isinstance(step, Gather):
                    return step.value == v and any(plan.items[source] == own for source, *_ in step.runs)
                return isinstance(step, Send) and step.value == v and mine

            used = [place for place, step in enumerate(steps) if uses(step)]
            drops = [
                place for place, step in enumerate(steps) if isinstance(step, Drop) and step.value == v and plan.items[step.batch] == own
            ]
            made_here = any(isinstance(step, Run) and tasks[step.batch] == task_of[v] and plan.items[step.batch] == own for step in steps)
            if not used or (value.kept and made_here):
                assert drops == []
            else:
                assert len(drops) == 1
                assert all(isinstance(step, Drop) for step in steps[max(used) + 1 : drops[0]]), k


@pytest.mark.slow
@given(st.data())
@examples(200)
def test_the_order_keeps_to_precedence_and_to_the_orders_of_devices_and_ports(data):
    problem, decision = data.draw(planned())
    plan, schedule = Plan(problem, decision), hs.simulate(problem, decision)
    place = {(type(step), step): number for number, step in enumerate(plan.order)}
    ran = [place[Run, Run(b)] for b in range(decision.n_batches)]
    duration = schedule.batches.finish - schedule.batches.start
    for k in range(problem.n_devices):
        own = [ran[b] for b in range(decision.n_batches) if decision.device[b] == k and duration[b] > 0]
        assert own == sorted(own)
        steps = [step for step in plan.steps[k] if isinstance(step, Run | Send)]
        assert steps == [step for step in plan.order if decision.device[step.batch] == k]
    for step in plan.order:
        if isinstance(step, Send):
            (reader,) = plan.values[step.value].readers
            own = set(plan.items[step.batch])
            targets = [b for b in range(decision.n_batches) if decision.task[b] == reader and own & set(plan.items[b])]
            assert ran[step.batch] < place[Send, step] < min(ran[b] for b in targets if decision.device[b] == step.to)
    if problem.links.contended and decision.transfer_order is not None and len(decision.transfer_order):
        rows, moves = decision.transfer_order.tolist(), schedule.transfers
        of = {
            (edge, source, target): x for x, (edge, source, target) in enumerate(zip(moves.edge, moves.source, moves.target, strict=True))
        }
        sender = {x: send for send, carried in zip(plan.sends, plan.carried, strict=True) for x in carried}
        single = [x for x in (of[tuple(row)] for row in rows) if sum(sender[x] == other for other in sender.values()) == 1]
        sent = [sender[x] for x in single]
        lasts = [moves.finish[x] - moves.start[x] for x in single]
        for (a, x), (b, y) in itertools.combinations(zip(sent, lasts, strict=True), 2):
            h = plan.device[a.batch]
            same = h == plan.device[b.batch] and problem.links.resource[h, a.to, 0] == problem.links.resource[h, b.to, 0] >= 0
            if same and x > 0 and y > 0:
                assert place[Send, a] < place[Send, b]


def chain(times, edges, names="abcdefgh", **arguments):
    graph = hs.TaskGraph(list(names[: len(times)]), edges)
    durations = np.repeat(np.array(times, float)[:, None], 2, 1)
    return hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), **{"durations": durations, **arguments})


def test_a_zero_length_batch_behind_its_successor_in_the_order_of_its_device_does_not_hang():
    """The order z, a on x, with a -> b -> z, b on y and z of length 0: `simulate` accepts it."""
    problem = chain([1, 1, 0], [("a", "b", 1.0), ("b", "c", 1.0)])
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "x"}, ["c", "a", "b"])
    plan = Plan(problem, decision)
    plan.check()
    c, a, b = 0, 1, 2  # batches by device, then in the decision's order
    assert plan.steps == (
        (Run(a), Send(0, a, 1), Drop(0, a), Wait(1, b), Run(c), Drop(1, b)),
        (Wait(0, a), Run(b), Drop(0, a), Send(1, b, 0), Drop(1, b)),
    )


def test_a_value_crosses_once_and_stays_where_it_is_kept():
    problem = chain([1, 1, 1], [("a", "b", 2.0), ("a", "c", 2.0)])
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "y"})
    plan = Plan(problem, decision, [Value(0, "t", 2.0, (1, 2), kept=True)])
    assert plan.steps == ((Run(0), Send(0, 0, 1)), (Wait(0, 0), Run(1), Run(2), Drop(0, 0)))
    assert plan.peak_bytes.tolist() == [2.0, 2.0]
    by_edge = Plan(problem, decision)
    assert sum(isinstance(step, Send) for step in by_edge.order) == 2
    assert [value.name for value in by_edge.values] == ["'a' -> 'b'", "'a' -> 'c'"]


def test_an_explicit_order_of_transfers_holds_a_send_back_but_no_batch():
    """Edge a -> c is put behind b -> d on the channel: its send stands behind that of b, not in front of b."""
    problem = chain([1, 1, 1, 1], [("a", "c", 1.0), ("b", "d", 1.0)], communication="channel")
    batches = [("a", "x", [0]), ("b", "x", [0]), ("d", "y", [0]), ("c", "y", [0])]
    decision = hs.Decision.from_batches(problem, batches, transfers=[(("b", "d"), 1, 2), (("a", "c"), 0, 3)])
    steps = [step for step in Plan(problem, decision).steps[0] if not isinstance(step, Drop)]
    assert steps == [Run(0), Run(1), Send(1, 1, 1), Send(0, 0, 1)]
    first_come = hs.Decision.from_batches(problem, batches)
    steps = [step for step in Plan(problem, first_come).steps[0] if not isinstance(step, Drop)]
    assert steps == [Run(0), Send(0, 0, 1), Run(1), Send(1, 1, 1)]


def test_a_value_crosses_at_the_first_place_of_its_edges():
    """Places: a -> c, b -> d, a -> e. The value of a crosses in front of that of b, though one of its edges is behind."""
    problem = chain([1, 1, 1, 1, 1], [("a", "c", 1.0), ("a", "e", 1.0), ("b", "d", 1.0)], communication="channel")
    batches = [("b", "x", [0]), ("a", "x", [0]), ("c", "y", [0]), ("d", "y", [0]), ("e", "y", [0])]
    rows = [(("a", "c"), 1, 2), (("b", "d"), 0, 3), (("a", "e"), 1, 4)]
    decision = hs.Decision.from_batches(problem, batches, transfers=rows)
    values = [Value(0, "s", 1.0, (2, 4)), Value(1, "t", 1.0, (3,))]
    steps = [step for step in Plan(problem, decision, values).steps[0] if not isinstance(step, Drop)]
    assert steps == [Run(0), Run(1), Send(0, 1, 1), Send(1, 0, 1)]
    late = hs.Decision.from_batches(problem, batches, transfers=[rows[1], rows[0], rows[2]])
    steps = [step for step in Plan(problem, late, values).steps[0] if not isinstance(step, Drop)]
    assert steps == [Run(0), Send(1, 0, 1), Run(1), Send(0, 1, 1)]


def test_steps_that_hang_are_refused():
    problem = chain([1, 1, 1, 1], [("a", "b", 1.0), ("c", "d", 1.0)])
    decision = hs.Decision.from_assignment(problem, {"a": "x", "d": "x", "c": "y", "b": "y"}, ["a", "d", "c", "b"])
    plan = Plan(problem, decision)

    def changed(steps):
        made = Plan.__new__(Plan)
        named = ("devices", "task", "device", "inputs", "items", "values", "order", "carried", "weight_bytes")
        made._set_steps(**{name: getattr(plan, name) for name in named}, steps=steps)
        return made

    changed(plan.steps).check()
    assert changed(plan.steps) == plan
    on_x, on_y = plan.steps
    late = tuple(sorted(on_x, key=lambda step: not (step == Wait(1, 2) and isinstance(step, Wait))))
    late_y = tuple(sorted(on_y, key=lambda step: not (step == Wait(0, 0) and isinstance(step, Wait))))
    changed((late, on_y)).check()  # a wait too early, which is served all the same
    for steps, message in (
        ((late, late_y), r"on 'x' the wait for \"'c' -> 'd'\" is never served"),
        ((tuple(step for step in on_x if not isinstance(step, Send)), on_y), "never served"),
        ((tuple(step for step in on_x if not isinstance(step, Wait)), on_y), "which is not there"),
        ((on_x[1:], on_y), "a transfer to 'y' needs .*, which is not there"),
        ((on_x, on_y[:-2]), "never runs"),
        (((*on_x, Run(0)), on_y), "runs twice"),
    ):
        with pytest.raises(InvalidSchedule, match=message):
            changed(steps).check()


def test_inputs_of_several_batches_are_gathered_where_they_are_read():
    """Batches of a for inputs 0 and 1 on x and y; b reads both on y."""
    problem = chain([1, 1], [("a", "b", 2.0)], inputs=2, batch_sizes=[1, 2], durations=np.ones((2, 2, 2)), batching="free")
    decision = hs.Decision.from_batches(problem, [("a", "x", [0]), ("a", "y", [1]), ("b", "y", [0, 1])])
    plan = Plan(problem, decision)
    plan.check()
    assert plan.steps == (
        (Run(0), Send(0, 0, 1), Drop(0, 0)),
        (Run(1), Wait(0, 0), Gather(0, 2, ((0, 0, 1), (1, 0, 1))), Drop(0, 0), Drop(0, 1), Run(2), Drop(0, 2)),
    )
    assert plan.peak_bytes.tolist() == [2.0, 8.0]
    assert plan.groups == ((0,), (1,), (0, 1))
    assert plan.carried == ((0,),)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "no value is read along the edge 'a' -> 'b'"),
        ([Value(0, "t", 1.0, (1,)), Value(0, "t", 1.0, (1,))], "same name"),
        ([Value(1, "t", 1.0, (0,))], "no edge between them"),
        ([Value(2, "t", 1.0, ())], "the problem has 2 tasks"),
        ([(0, "t", 1.0, (1,))], "must be a Value"),
    ],
)
def test_values_that_do_not_fit_the_graph_are_refused(values, message):
    problem = chain([1, 1], [("a", "b", 1.0)])
    with pytest.raises(InvalidArgument, match=message):
        Plan(problem, hs.Decision.from_assignment(problem, {"a": "x", "b": "y"}), values)


def test_equal_plans_have_equal_digests_and_hashes_in_every_process():
    problem = chain([1, 1], [("a", "b", 1.0)])
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y"})
    plan, other = Plan(problem, decision), Plan(problem, hs.Decision.from_assignment(problem, {"a": "x", "b": "x"}))
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert len({plan, Plan(problem, decision), other}) == 2
    assert plan.digest != other.digest
    code = "import sys; from hetsched.runtime.plan import Plan; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
