"""The contention model of stages: two shared resources, launches by one thread, merging, and its lower bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import Contention, Kernels
from hetsched.models import ios
from hetsched.models.ios.dynamic_program import connected
from hetsched.testing.profiles import examples
from hetsched.testing.strategies import task_graphs

DEVICE = hs.Device("gpu", peak_flops={"float32": 2e9}, memory_bandwidth=1e30)  # 1e9 FLOP/s at half the peak
SETTINGS = {"launch": 0.25, "host": 0.125, "synchronisation": 0.5, "interference": 0.0}


class Given:
    """A kernel model of given numbers, and no launch for tasks of type "input"."""

    def __init__(self, body, work, move):
        self.columns = [np.asarray(column, float) for column in (body, work, move)]

    def kernels(self, graph, device, inputs):
        return Kernels(*self.columns, np.array([op != "input" for op in graph.op]))


def model(body, work, move=None, edges=(), **more):
    """Return the model of tasks a, b, ... with given seconds alone, of computing, and of moving."""
    names = "abcdef"[: len(body)]
    graph = hs.TaskGraph(list(names), list(edges), op="conv")
    return Contention(graph, DEVICE, costs=Given(body, work, [0.0] * len(body) if move is None else move), **{**SETTINGS, **more})


def test_small_kernels_share_the_device_and_large_ones_saturate_it():
    small, large = model([4, 4], [1, 1]), model([4, 4], [4, 4])
    assert small(("a",), "concurrent") == large(("a",), "concurrent") == 0.25 + 4, "one group: no barrier"
    assert small(("a", "b"), "concurrent") == 0.125 + 0.125 + 4 + 0.5, "b is launched after a, and ends last"
    assert large(("a", "b"), "concurrent") == 0.125 + 8 + 0.5


def test_computing_and_moving_are_shared_apart():
    mixed, alike = model([4, 4], [4, 0], [0, 4]), model([4, 4], [0, 0], [4, 4])
    assert mixed(("a", "b"), "concurrent") == 0.25 + 4 + 0.5, "a computes while b moves bytes"
    assert alike(("a", "b"), "concurrent") == 0.125 + 8 + 0.5


def test_kernels_beyond_the_device_interfere():
    kernels = [2.0] * 2, [2.0] * 2
    worse = model(*kernels, host=0.0, interference=1.0)
    assert worse(("a", "b"), "concurrent") == pytest.approx(0.5 + 2 * 2 * 1.5)
    assert model(*kernels, host=0.0)(("a", "b"), "concurrent") == pytest.approx(0.5 + 2 * 2)


def test_one_thread_launches_group_after_group():
    """With kernels of no length what is left are the launches, of which the last group's is the last."""
    cost = model([0.01] * 4, [0.0] * 4, edges=[("a", "b")], host=1.0)
    assert cost(("a", "b", "c", "d"), "concurrent") == pytest.approx(4 + 0.01 + 0.5)
    assert cost(("a", "b"), "concurrent") == pytest.approx(2 * (0.25 + 0.01)), "a row of kernels hides its launches"


def test_groups_run_one_task_after_another():
    chain = model([1, 2, 4], [1, 2, 4], edges=[("a", "b")], host=0.0)
    assert chain(("a", "b"), "concurrent") == 2 * 0.25 + 3
    assert chain(("a", "b", "c"), "concurrent") == pytest.approx(0.5 + 7), "c has the device for itself at the end"


def test_tasks_without_a_kernel_take_nothing():
    graph = hs.TaskGraph(["x", "a"], op=["input", "conv"])
    cost = Contention(graph, DEVICE, costs=Given([0, 1], [0, 1], [0, 0]), **SETTINGS)
    assert cost(("x",), "concurrent") == 0.0
    assert cost(("x", "a"), "concurrent") == 0.125 + 1 + 0.5


def test_a_part_of_an_output_is_read_with_steps_in_batches():
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 60.0), ("a", "c", 100.0)], op="conv", output_bytes=[100.0, 1.0, 1.0])
    one, two = (Contention(graph, DEVICE, inputs=k, costs=Given([1] * 3, [1] * 3, [0] * 3), strided=1.5, **SETTINGS) for k in (1, 2))
    assert one(("b",), "concurrent") == one(("c",), "concurrent") == two(("c",), "concurrent") == 0.25 + 1
    assert two(("b",), "concurrent") == 0.25 + 1.5


@pytest.mark.parametrize("kind", ["v100", "a100", "skylake"])
def test_a_fully_connected_layer_alone_takes_about_its_roofline_time(kind):
    one, device = 2048 * 1000, hs.costs.device(kind)
    shape = [hs.Shape(1, 1000, 2048)]
    graph = hs.TaskGraph(["fc"], op="linear", weight_bytes=4 * one, input_bytes=4 * 2048, output_bytes=4 * 1000, flops=2 * one, shape=shape)
    alone = hs.costs.Roofline().durations(graph, hs.Cluster([device]), [1]).item()
    assert Contention(graph, device)(("fc",), "concurrent") <= 3 * alone


@pytest.mark.parametrize("network", hs.workloads.networks.names())
def test_alone_kernels_take_what_the_cost_model_says(network):
    graph, device, analytic = hs.workloads.networks.load(network), hs.costs.device("v100"), hs.costs.Analytic()
    for costs in (analytic, hs.costs.Roofline()):
        for inputs in (1, 16):
            cost = Contention(graph, device, inputs=inputs, costs=costs, launch=device.launch_overhead)
            seconds = costs.durations(graph, hs.Cluster([device]), [inputs])[:, 0, 0]
            assert [cost.alone(i) for i in range(graph.n_tasks)] == pytest.approx(seconds.tolist())
            kernels = costs.kernels(graph, device, inputs)
            assert (kernels.work <= kernels.body * (1 + 1e-12)).all()
            assert (kernels.move <= kernels.body * (1 + 1e-12)).all()
    roofline = hs.costs.Roofline().durations(graph, hs.Cluster([device]), [1])[:, 0, 0]
    alone = np.array([Contention(graph, device).alone(i) for i in range(graph.n_tasks)])
    assert alone.sum() <= 3 * roofline.sum()


def amounts(largest):
    """Return a strategy for 0 and for numbers that are not too small for a graph."""
    return st.just(0.0) | st.floats(1e-90, largest)


KERNELS = st.lists(st.tuples(amounts(3), st.floats(0, 1), st.floats(0, 1)), min_size=6, max_size=6)
"""Seconds alone, and the parts of them that computing and moving would take on the whole device."""


@given(task_graphs(n_tasks=st.integers(1, 6), colocation=False, pins=False), KERNELS, st.floats(0, 1), st.sampled_from([0.0, 0.125, 2.0]))
@examples(60)
def test_the_bound_is_one_and_a_stage_is_no_slower_than_its_groups_in_turn(graph, kernels, interference, host):
    body, work, move = np.array(kernels[: graph.n_tasks]).T
    tasks = tuple(graph.names[i] for i in graph.topological_order)
    settings = {**SETTINGS, "interference": interference, "host": host}
    cost = Contention(graph, DEVICE, costs=Given(body, work * body, move * body), **settings)
    together, groups = cost(tasks, "concurrent"), connected(graph, tasks)
    assert together == pytest.approx(reference(cost, groups, body, work * body, move * body), rel=1e-9)
    assert cost.bound(tasks, "concurrent") <= together * (1 + 1e-9)
    if interference == 0 and len(groups) > 1:
        assert together - 0.5 <= (host * graph.n_tasks + math.fsum(body)) * (1 + 1e-9)
    assert cost(tasks[:1], "concurrent") == cost.bound(tasks[:1], "concurrent") == cost(tasks[:1], "merge")


def reference(cost, groups, body, work, move):
    """Return the seconds of a stage in small steps of the rules, with exact rests: what a kernel did is 1 when it ends."""
    places = [[cost.graph.index[name] for name in group] for group in groups]
    launched = [cost.graph.op[i] != "input" for i in range(cost.graph.n_tasks)]
    if len(places) == 1:
        return sum(cost.launch * launched[i] + body[i] for i in places[0])
    ready, count = {}, 0
    for group in places:
        for i in group:
            count += launched[i]
            ready[i] = count * cost.host
    now, done, part = 0.0, set(), dict.fromkeys(ready, 0.0)
    while len(done) < len(ready):
        heads = [next(i for i in group if i not in done) for group in places if not done.issuperset(group)]
        running = [i for i in heads if ready[i] <= now]
        loads = [sum(load[i] / body[i] for i in running if body[i]) for load in (work, move)]
        most = max(1.0, *loads)
        slower = most * (1 + cost.interference * (1 - 1 / most))
        events = [((1 - part[i]) * body[i] * slower, i) for i in running] + [(ready[i] - now, None) for i in heads if ready[i] > now]
        step, ending = min(events, key=lambda event: event[0])
        now += step
        for i in running:
            part[i] = 1.0 if i == ending or not body[i] else part[i] + step / slower / body[i]
        done.update(i for i in running if part[i] >= 1 - 1e-12)
        now = min((ready[i] for i in heads if ending is None and abs(ready[i] - now) <= 1e-12 * now), default=now)
    return now + cost.synchronisation


# ---------------------------------------------------------------------- merging

CONV = hs.Shape(25, 8, 4 * 9, (3, 3), (1, 1))


def convolutions(second=CONV, *, edges=(("x", "a"), ("x", "b")), ops=("input", "conv", "conv"), first=CONV, fused=0, **more):
    shapes = [None, first, second]
    made = [100.0 * 4, *(4.0 * (shape or CONV).rows * (shape or CONV).columns for shape in shapes[1:])]
    flops = [0.0, *(2.0 * math.prod((shape or CONV)[:3]) for shape in shapes[1:])]
    flops[1] += 2.0 * fused * first.rows * first.columns
    graph = hs.TaskGraph(["x", "a", "b"], list(edges), op=ops, output_bytes=made, input_bytes=[0, 400.0, 400.0], flops=flops, shape=shapes)
    return Contention(graph, DEVICE, costs=hs.costs.Roofline(), **{**SETTINGS, **more})


def test_merged_convolutions_are_launched_once():
    cost = convolutions()
    assert cost(("a", "b"), "merge") == pytest.approx(cost(("a",), "concurrent") + cost(("b",), "concurrent") - 0.25)
    assert cost.bound(("a", "b"), "merge") == cost(("a", "b"), "merge")


def test_a_merged_stage_bears_what_its_readers_lose():
    edges, ops = [("x", "a"), ("x", "b"), ("a", "c"), ("b", "c")], ["input", "conv", "conv", "cat"]
    names = ["x", "a", "b", "c"]
    graph = hs.TaskGraph(
        names, edges, op=ops, output_bytes=[400.0, 800.0, 800.0, 1600.0], flops=[0, 14400, 14400, 4e6], shape=[None, CONV, CONV, None]
    )
    one, two, none = (
        Contention(graph, DEVICE, inputs=inputs, costs=hs.costs.Roofline(), strided=strided, **SETTINGS)
        for inputs, strided in ((1, 1.5), (2, 1.5), (2, 1.0))
    )
    reader = two.alone(3) - 0.25
    assert two(("a", "b"), "merge") == pytest.approx(none(("a", "b"), "merge") + 0.5 * reader)
    assert one(("a", "b"), "merge") == pytest.approx(0.25 + (none(("a", "b"), "merge") - 0.25) / 2, rel=1e-6)


def test_the_smaller_kernel_is_padded():
    narrow = CONV._replace(kernel=(1, 1), reduction=4)
    assert convolutions(narrow)(("a", "b"), "merge") == pytest.approx(convolutions()(("a", "b"), "merge"))
    row, column = (CONV._replace(kernel=kernel, reduction=4 * math.prod(kernel)) for kernel in ((1, 7), (3, 7)))
    assert convolutions(row)(("a", "b"), "merge") == pytest.approx(convolutions(column)(("a", "b"), "merge")), "3 x 3 and 1 x 7 make 3 x 7"


@pytest.mark.parametrize(
    "cost",
    [
        convolutions(CONV._replace(stride=(2, 2))),
        convolutions(CONV._replace(rows=9)),
        convolutions(None),
        convolutions(CONV._replace(reduction=3 * 9)),
        convolutions(CONV._replace(groups=2), first=CONV._replace(groups=2)),
        convolutions(CONV._replace(kernel=()), first=CONV._replace(kernel=())),
        convolutions(fused=9),
        convolutions(edges=()),
        convolutions(edges=[("x", "a")]),
        convolutions(edges=[("x", "a"), ("a", "b")]),
        convolutions(ops=("input", "conv", "pool")),
        convolutions(ops=("input", "pool", "pool")),
    ],
)
def test_what_cannot_be_merged_is_infinite(cost):
    assert cost(("a", "b"), "merge") == cost.bound(("a", "b"), "merge") == math.inf


def test_bias_and_activation_do_not_hinder_merging():
    assert convolutions(fused=2)(("a", "b"), "merge") == convolutions()(("a", "b"), "merge")


def test_the_search_merges_where_it_pays():
    cost = convolutions(host=1.0)
    stages = hs.stages(cost.graph, cost)
    assert stages.stages.strategy.tolist() == ["concurrent", "merge"]
    assert stages.latency < hs.stages(cost.graph, cost, strategies="concurrent").latency


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": 0}, "inputs is 0"),
        ({"launch": -1.0}, "launch is -1.0"),
        ({"host": math.inf}, "host is inf"),
        ({"synchronisation": -1.0}, "synchronisation"),
        ({"interference": math.nan}, "interference"),
        ({"strided": 0.5}, "strided is 0.5; it must be >= 1"),
        ({"efficiency": 0.0}, "efficiency is 0.0"),
    ],
)
def test_parameters_out_of_range_are_refused(settings, message):
    with pytest.raises(hs.errors.InvalidProblem, match=message):
        model([1], [1], **settings)


@given(task_graphs(n_tasks=st.integers(1, 7), colocation=False, pins=False), st.data())
@examples(60)
def test_costs_and_bounds_of_all_stages_at_once_are_those_of_each(graph, data):
    """The method for tables returns the same values as single calls, only faster."""
    n = graph.n_tasks
    seconds = data.draw(st.lists(amounts(3), min_size=n, max_size=n))
    shape = st.builds(hs.Shape, st.just(25), st.integers(1, 3), st.just(36), st.just((3, 3)), st.sampled_from([(1, 1), (2, 2)]), st.just(1))
    shapes = [data.draw(st.none() | shape) for _ in range(n)]
    ops = data.draw(st.lists(st.sampled_from(["conv", "conv", "input"]), min_size=n, max_size=n))
    graph = graph.replace(flops=[1e9 * x for x in seconds], op=ops, output_bytes=[50.0] * n, shape=shapes)
    cost = Contention(graph, DEVICE, costs=hs.costs.Roofline(), inputs=data.draw(st.sampled_from([1, 2])), **SETTINGS)
    block = ios.Block(graph, graph.topological_order, None, None)
    for one in (cost, cost.bound):
        table = one.table(block.names, block.parent, block.last)
        assert table.shape == (len(block.parent), 2)
        for stage in range(1, len(block.parent)):
            tasks = block.members(stage)
            assert table[stage, 0] == pytest.approx(one(tasks, "concurrent"), rel=1e-12)
            if len(tasks) > 1:
                assert table[stage, 1] == pytest.approx(one(tasks, "merge"), rel=1e-12)


def parallel(n=12):
    """Return parallel chains of two tasks of many sizes, and a shape for each."""
    names = [f"t{i}" for i in range(n)]
    rows = [2.0 ** (4 + i % 6) for i in range(n)]
    shapes = [hs.Shape(row, 64, 64 * (1 + i)) for i, row in enumerate(rows)]
    flops = [2 * math.prod(shape[:3]) for shape in shapes]
    return hs.TaskGraph(names, [("t0", "t1")], op="linear", output_bytes=[256 * row for row in rows], flops=flops, shape=shapes)


GPU = hs.costs.device("v100")


@pytest.mark.parametrize("interference", [0.1, 0.5])
def test_fitted_parameters_estimate_stages_that_were_not_measured(interference):
    graph = parallel()
    true = Contention(graph, GPU, launch=7e-6, host=3e-6, synchronisation=9e-6, interference=interference, efficiency=0.02)
    singles = [(name,) for name in graph.names]
    stages = [*singles, *(tuple(graph.names[i : i + k]) for k in (2, 3, 5) for i in range(0, 12 - k, 2))]
    first = Contention(graph, GPU)
    fitted = first.fitted([(tasks, "concurrent", true(tasks, "concurrent")) for tasks in stages])
    unseen = [tuple(graph.names[i] for i in range(start, 12, 3)) for start in range(3)]
    for tasks in unseen:
        assert fitted(tasks, "concurrent") == pytest.approx(true(tasks, "concurrent"), rel=0.03)
        assert abs(first(tasks, "concurrent") / true(tasks, "concurrent") - 1) > 0.1
    assert fitted.efficiency == pytest.approx(0.02, rel=0.05)
    assert fitted.launch == pytest.approx(7e-6, rel=0.1)
    assert fitted.strided == first.strided


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ([(("t0",), "concurrent", 1.0)] * 4, "4 stages are measured; 5 parameters need at least as many"),
        ([(("x",), "concurrent", 1.0)] * 5, "'x' of a stage is not a task of the graph"),
        ([(("t0",), "concurrent", 0.0)] * 5, r"stage t0 \(concurrent\) takes 0.0 s; leave out impossible stages"),
        ([(("t2", "t3"), "merge", 1.0)] * 5, r"stage t2, t3 \(merge\) takes 1.0 s; leave out"),
    ],
)
def test_what_cannot_be_fitted_is_refused(measured, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        Contention(parallel(), GPU).fitted(measured)
