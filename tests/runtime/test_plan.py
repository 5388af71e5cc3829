"""Plans against a naive replay of their steps, and known cases by hand."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.errors import InvalidArgument, InvalidSchedule, UnsupportedFeature
from hetsched.runtime.plan import Drop, Plan, Run, Send, Value, Wait
from hetsched.testing import decisions, problems
from hetsched.testing.profiles import examples


@st.composite
def planned(draw, **features):
    """Draw a problem and a decision of one batch a task, of one to three inputs; many durations are zero."""
    problem = draw(problems(**{"n_tasks": st.integers(1, 7), "n_devices": st.integers(1, 3), **features, "inputs": 1}))
    return whole(problem, draw(decisions(problem)), draw(st.sampled_from([1, 1, 3])))


def whole(problem, decision, inputs):
    """Return a problem and a decision as given for one input with that many inputs."""
    if inputs == 1:
        return problem, decision
    several = problem.replace(inputs=inputs, batch_sizes=[inputs])
    m = decision.n_batches
    items = np.tile(np.arange(inputs), m)
    return several, hs.Decision(decision.task, decision.device, np.arange(m + 1) * inputs, items, transfer_order=decision.transfer_order)


@st.composite
def shuffled(draw, **features):
    """Draw a problem and a decision in any order, which may deadlock."""
    problem, decision = draw(planned(**features))
    order = np.array(draw(st.permutations(range(decision.n_batches))))
    place = np.argsort(order)
    moves = decision.transfer_order
    if moves is not None:
        moves = [(moves[x, 0], place[moves[x, 1]], place[moves[x, 2]]) for x in draw(st.permutations(range(len(moves))))]
    m, inputs = decision.n_batches, problem.inputs
    items = np.tile(np.arange(inputs), m)
    return problem, hs.Decision(decision.task[order], decision.device[order], np.arange(m + 1) * inputs, items, transfer_order=moves)


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
        if isinstance(step, Run):
            task = plan.task[step.batch]
            assert plan.device[step.batch] == k
            assert all(v in self.held[k] for v, value in enumerate(plan.values) if task in value.readers)
            self.ran.append(step.batch)
            self.held[k] |= {v: value.bytes * plan.inputs for v, value in enumerate(plan.values) if value.task == task}
            return True
        value = plan.values[step.value]
        assert plan.task[step.batch] == value.task
        if isinstance(step, Send):
            assert step.value in self.held[k]
            assert step.to != k
            self.sent.append((step.value, step.to))
        elif isinstance(step, Wait):
            if (step.value, k) not in self.sent:
                return False
            assert step.value not in self.held[k]
            self.held[k][step.value] = value.bytes * plan.inputs
        else:
            assert isinstance(step, Drop)
            del self.held[k][step.value]
        return True


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
    home = dict(zip(plan.task.tolist(), plan.device.tolist(), strict=True))
    crossing = {(v, home[r]) for v, value in enumerate(plan.values) for r in value.readers if home[r] != home[value.task]}
    assert set(replay.sent) == crossing
    np.testing.assert_allclose(plan.peak_bytes, replay.peak)
    kept = [{v for v, value in enumerate(plan.values) if value.kept and home[value.task] == k} for k in range(len(plan.devices))]
    assert [set(held) for held in replay.held] == kept


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


@given(st.data())
@examples(200)
def test_drops_come_right_behind_the_last_use(data):
    problem, decision = data.draw(planned())
    plan = Plan(problem, decision, data.draw(values_of(problem.graph)))
    tasks = plan.task.tolist()
    for steps in plan.steps:
        for v, value in enumerate(plan.values):
            uses = [
                place
                for place, step in enumerate(steps)
                if (isinstance(step, Run) and tasks[step.batch] in (value.task, *value.readers))
                or (isinstance(step, Send) and step.value == v)
            ]
            drops = [place for place, step in enumerate(steps) if isinstance(step, Drop) and step.value == v]
            made_here = any(isinstance(step, Run) and tasks[step.batch] == value.task for step in steps)
            if not uses or (value.kept and made_here):
                assert drops == []
            elif made_here or any(tasks[step.batch] in value.readers for step in steps if isinstance(step, Run)):
                assert len(drops) == 1
                between = steps[max(uses) + 1 : drops[0]]
                assert all(isinstance(step, Drop) for step in between)


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
            target = int(np.flatnonzero(decision.task == reader)[0])
            assert ran[step.batch] < place[Send, step] < ran[target]
    if problem.links.contended and decision.transfer_order is not None and len(decision.transfer_order):
        rows = decision.transfer_order.tolist()
        sent = [next(s for s in plan.order if isinstance(s, Send) and s.value == edge) for edge, _, _ in rows]
        lasts = problem.transfer_times([s.value for s in sent], [plan.device[s.batch] for s in sent], [s.to for s in sent], problem.inputs)
        for (a, x), (b, y) in itertools.combinations(zip(sent, lasts, strict=True), 2):
            h = plan.device[a.batch]
            same = h == plan.device[b.batch] and problem.links.resource[h, a.to, 0] == problem.links.resource[h, b.to, 0] >= 0
            if same and x > 0 and y > 0:
                assert place[Send, a] < place[Send, b]


def chain(times, edges, names="abcdefgh", **arguments):
    graph = hs.TaskGraph(list(names[: len(times)]), edges)
    return hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=np.repeat(np.array(times, float)[:, None], 2, 1), **arguments)


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
        made._set_steps(plan.devices, plan.task, plan.device, plan.inputs, plan.values, plan.order, steps, plan.weight_bytes)
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


def test_several_batches_of_a_task_are_refused_by_name():
    problem = chain([1], [], inputs=2, batching="free")
    decision = hs.Decision.from_batches(problem, [("a", "x", [0]), ("a", "y", [1])])
    with pytest.raises(UnsupportedFeature, match="task 'a' has several batches"):
        Plan(problem, decision)


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
