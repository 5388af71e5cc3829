"""Batched MET, greedy and HEFT: by hand, against enumeration, and against the methods they extend."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import hetsched as hs
from hetsched.documents import encode
from hetsched.heuristics.list_scheduling.batch_kernels import cut_points
from hetsched.search import Kind, Monitor, select, several_inputs
from hetsched.testing import strategies
from hetsched.testing.brute_force import brute_force
from tests.golden import distant

KIN = {"bmet": "met", "bgreedy": "greedy", "bheft": "heft"}
NAN = np.nan


def run(problem: hs.Problem, name: str, **options: object) -> Monitor:
    monitor = Monitor(problem)
    monitor.run(name, options)
    return monitor


def batches(schedule: hs.Schedule) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return (task, device, inputs) of every batch, sorted."""
    rows = schedule.batches
    return sorted(
        (schedule.tasks[i], schedule.devices[k], tuple(schedule.items[schedule.item_ptr[b] : schedule.item_ptr[b + 1]].tolist()))
        for b, (i, k) in enumerate(zip(rows.task, rows.device, strict=True))
    )


def one_task(durations: list[list[float]], sizes: list[int], inputs: int, **rules: object) -> hs.Problem:
    devices = ["x", "y", "z"][: len(durations)]
    return hs.Problem(
        hs.TaskGraph(["a"]), hs.Cluster(devices, bandwidth=1.0), durations=[durations], batch_sizes=sizes, inputs=inputs, **rules
    )


def test_the_batched_methods():
    several = [method.name for method in select(kind=Kind.CONSTRUCTIVE, auto=True) if method.auto.when is several_inputs]
    assert set(several) == set(KIN)


# ---------------------------------------------------------------------- by hand


def test_batched_met_takes_the_least_device_time_and_the_others_the_least_finish():
    problem = one_task([[2.0, 3.0], [2.5, 5.0]], [2, 4], 4)
    assert batches(run(problem, "bmet").best) == [("a", "x", (0, 1, 2, 3))]
    for name in ("bgreedy", "bheft"):
        schedule = run(problem, name).best
        assert batches(schedule) == [("a", "x", (0, 1)), ("a", "y", (2, 3))]
        assert schedule.makespan == 2.5
        assert schedule.throughput == 4 / 2.5


def test_of_equal_partitions_the_one_of_fewest_batches_is_taken():
    problem = one_task([[2.0, 3.0], [3.0, 5.0]], [2, 4], 4)
    for name in KIN:
        assert batches(run(problem, name).best) == [("a", "x", (0, 1, 2, 3))]


def test_batches_of_one_follow_one_another_where_batching_is_free():
    problem = one_task([[1.0], [1.6]], [1], 3, batching="free")
    assert run(problem, "bmet").incumbent == 3.0
    for name in ("bgreedy", "bheft"):
        schedule = run(problem, name).best
        assert batches(schedule) == [("a", "x", (0,)), ("a", "x", (1,)), ("a", "y", (2,))]
        assert schedule.makespan == 2.0


@pytest.mark.parametrize("name", KIN)
@pytest.mark.parametrize(("communication", "makespan"), [("delay", 1 + 1 + 2 + 1), ("per-input", 1 + 1 + 1 + 1), ("port", 5)])
def test_only_the_inputs_in_both_batches_move(name, communication, makespan):
    """Task a runs on both devices, two inputs each; b runs all four on x, so two inputs move over a link of 1 s + 1 s per byte."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 1.0)])
    problem = hs.Problem(
        graph,
        hs.Cluster(["x", "y"], bandwidth=1.0, latency=1.0),
        inputs=4,
        batch_sizes=[2, 4],
        communication=communication,
        durations=[[[1, NAN], [1, NAN]], [[NAN, 1], [NAN, NAN]]],
    )
    schedule = run(problem, name).best
    assert batches(schedule) == [("a", "x", (0, 1)), ("a", "y", (2, 3)), ("b", "x", (0, 1, 2, 3))]
    assert schedule.makespan == makespan


@pytest.mark.parametrize("name", KIN)
def test_inputs_stay_where_they_are_from_task_to_task(name):
    """The intervals of every task are in the order of the devices, so nothing moves over the slow link."""
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 9.0), ("b", "c", 9.0)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), inputs=2, batch_sizes=[1], durations=np.ones((3, 2)))
    schedule = run(problem, name).best
    assert schedule.makespan == 3
    assert len(schedule.transfers.edge) == 0


@pytest.mark.parametrize("name", KIN)
def test_memory_is_claimed_for_the_inputs_that_are_there(name):
    graph = hs.TaskGraph(["a"], weight_bytes=2, input_bytes=1, output_bytes=1)
    cluster = hs.Cluster([hs.Device("x", memory_bytes=5), hs.Device("y", memory_bytes=8)], bandwidth=1.0)
    durations = [[[1, 1, 1, 1], [9, 9, 9, 9]]]
    problem = hs.Problem(graph, cluster, inputs=4, batch_sizes=[1, 2, 3, 4], durations=durations)
    schedule = run(problem, name).best
    assert [row[1:] for row in batches(schedule)] == [("x", (0,)), ("y", (1, 2, 3))], "2 + 2 x 1 and 2 + 2 x 3 bytes"
    tighter = problem.replace(cluster=hs.Cluster([hs.Device("x", memory_bytes=5), hs.Device("y", memory_bytes=7)], bandwidth=1.0))
    monitor = run(tighter, name)
    assert monitor.best is None
    message = monitor.solution(name).messages[0]
    assert "found no place for the 4 inputs of task 'a'" in message
    assert "claims 2 bytes on every device it uses and 2 for each input; left: 5 on 'x', 7 on 'y'" in message


@pytest.mark.parametrize("name", KIN)
@pytest.mark.parametrize("batching", ["once", "free"])
def test_co_located_tasks_share_devices_that_suit_them_all(name, batching):
    """a can run both sizes; b cannot run size 3 on x, which is best for a alone."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b")], colocation=["g", "g"])
    durations = [[[1, 1, 1, NAN], [1, 1, 1, NAN]], [[1, NAN, NAN, NAN], [NAN, NAN, 1, NAN]]]
    problem = hs.Problem(
        graph, hs.Cluster(["x", "y"], bandwidth=1.0), inputs=4, batch_sizes=[1, 2, 3, 4], durations=durations, batching=batching
    )
    schedule = run(problem, name).best
    assert hs.verify(problem, schedule) == []
    for item in range(4):
        assert schedule.device_of("a", item) == schedule.device_of("b", item)


# ---------------------------------------------------------------------- the sizes given


def test_only_the_sizes_given_are_used():
    problem = one_task([[1.0, 1.5, 1.6, 2.0], [1.0, 1.5, 1.6, 2.0]], [1, 2, 3, 4], 4)
    assert run(problem, "bheft").incumbent == 1.5
    assert run(problem, "bheft", sizes=(1, 3)).best.batches.size.tolist() in ([1, 3], [3, 1])
    assert run(problem, "bheft", sizes=4).best.batches.size.tolist() == [4]


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((4, 5), r"sizes=\(4, 5\) must be some of the problem's batch sizes \[1, 2, 3, 4\]; it has no durations for 5"),
        ((), r"sizes=\(\) must be some of"),
        ("four", r"no durations for 'four'"),
        (1, r"sizes=1 do not suffice: task 'a' has no way to process all 4 inputs"),
    ],
)
def test_sizes_that_do_not_suffice_are_refused(sizes, words):
    problem = one_task([[1.0, 1.5, 1.6, 2.0], [1.0, 1.5, 1.6, 2.0]], [1, 2, 3, 4], 4)
    with pytest.raises(hs.UnsupportedFeature, match=words):
        run(problem, "bmet", sizes=sizes)


# ---------------------------------------------------------------------- properties


@given(sizes=st.lists(st.integers(1, 9), min_size=1, unique=True), inputs=st.integers(1, 12), most=st.integers(1, 5))
def test_cut_points_are_the_sums_that_can_be_completed(sizes, inputs, most):
    sums = {
        part
        for count in range(1, most + 1)
        for chosen in itertools.product(sizes, repeat=count)
        if sum(chosen) == inputs
        for part in itertools.accumulate(chosen, initial=0)
    }
    cuts = cut_points(np.array(sorted(sizes)), inputs, most).tolist()
    assert cuts == sorted(sums)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", KIN)
def test_with_one_input_latencies_count_as_in_the_methods_they_extend(name, seed):
    problem = distant(seed)
    assert batches(run(problem, name).best) == batches(run(problem, KIN[name]).best)


@given(problem=strategies.problems(inputs=1), name=st.sampled_from(sorted(KIN)))
def test_with_one_input_they_are_the_methods_they_extend(problem, name):
    note(encode(problem).decode())
    batched, plain = run(problem, name), run(problem, KIN[name])
    assert (batched.best is None) == (plain.best is None)
    if batched.best is not None:
        assert batched.best.makespan == plain.best.makespan
        one, other = ({row["task"]: (row["device"], row["start"]) for row in monitor.best.batches} for monitor in (batched, plain))
        assert one == other


@given(problem=strategies.problems(n_tasks=1, inputs=st.integers(1, 4), memory="static"), name=st.sampled_from(["bgreedy", "bheft"]))
def test_a_single_task_gets_its_best_partition(problem, name):
    note(encode(problem).decode())
    optimum, schedule = brute_force(problem), run(problem, name).best
    assert (schedule is None) == (optimum is None)
    if optimum is not None:
        assert schedule.makespan == pytest.approx(optimum.makespan, rel=1e-12)


@given(data=st.data(), batching=st.sampled_from(["once", "free"]))
def test_batched_met_takes_the_least_device_time_there_is(data, batching):
    inputs, n_devices = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    sizes = data.draw(st.lists(st.integers(1, inputs), min_size=1, unique=True).map(sorted))
    seconds = st.integers(1, 9).map(float)
    times = np.array([[data.draw(seconds) for _ in sizes] for _ in range(n_devices)])
    times[0, 0] = 1.0
    shortest = least_time(times, sizes, inputs, batching)
    if shortest < np.inf:
        schedule = run(one_task(times.tolist(), sizes, inputs, batching=batching), "bmet").best
        assert (schedule.batches.finish - schedule.batches.start).sum() == shortest


def least_time(times: np.ndarray, sizes: list[int], inputs: int, batching: str) -> float:
    """Return the least total duration over every choice of batches, by enumeration."""
    if batching == "once":
        choices = itertools.product(range(-1, len(sizes)), repeat=len(times))
        rows = ([(k, s) for k, s in enumerate(chosen) if s >= 0] for chosen in choices)
    else:
        pairs = list(itertools.product(range(len(times)), range(len(sizes))))
        rows = (list(chosen) for count in range(1, inputs + 1) for chosen in itertools.combinations_with_replacement(pairs, count))
    return min((sum(times[k, s] for k, s in row) for row in rows if sum(sizes[s] for _, s in row) == inputs), default=np.inf)


@given(problem=strategies.problems(inputs=st.integers(2, 4)), name=st.sampled_from(sorted(KIN)))
def test_every_batch_is_a_stretch_of_inputs_in_the_order_of_the_devices(problem, name):
    note(encode(problem).decode())
    schedule = run(problem, name).best
    if schedule is None:
        return
    assert hs.verify(problem, schedule) == []
    assert set(schedule.batches.size.tolist()) <= set(problem.batch_sizes.tolist())
    device = schedule.batches.device[schedule.batch_of]
    assert (np.diff(device, axis=1) >= 0).all()


def test_they_work_where_no_task_has_a_batch_of_all_inputs():
    problem = hs.Problem(
        hs.TaskGraph(["a", "b"], [("a", "b", 1.0)]),
        hs.Cluster(["x", "y"], bandwidth=1.0),
        inputs=4,
        batch_sizes=[2],
        durations=np.ones((2, 2)),
    )
    with pytest.raises(hs.UnsupportedFeature, match="no such batch on any device"):
        run(problem, "heft")
    for name in KIN:
        assert run(problem, name).incumbent == 2


@pytest.mark.parametrize("name", KIN)
@pytest.mark.parametrize("batching", ["once", "free"])
def test_a_large_graph_with_many_inputs(name, batching):
    rng = np.random.default_rng(1)
    n, sizes = 1000, [4, 8, 12, 16]
    edges = np.column_stack([np.maximum(np.arange(n).repeat(3) - rng.integers(1, 60, 3 * n), 0), np.arange(n).repeat(3)])
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges[edges[:, 0] < edges[:, 1]], edge_bytes=1.0)
    durations = rng.random((n, 3))[:, :, None] * (1.0 + np.array(sizes))
    problem = hs.Problem(
        graph, hs.Cluster(["x", "y", "z"], bandwidth=9.0), durations=durations, batch_sizes=sizes, inputs=16, batching=batching
    )
    assert hs.verify(problem, run(problem, name).best) == []


def test_on_randomly_wired_networks_batches_win_as_in_the_paper():
    graph = hs.workloads.rwnn("ws", 32, modules=3)
    problem = hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline(), inputs=16)
    assert problem.batch_sizes.tolist() == [4, 8, 12, 16], "a quarter, half, three quarters and all of them"
    throughput = {name: hs.solve(problem, name).throughput for name in (*KIN, *KIN.values(), "best-device")}
    assert throughput["bmet"] >= throughput["met"]
    for name in ("bgreedy", "bheft"):
        assert throughput[name] > 1.1 * max(throughput["best-device"], throughput[KIN[name]])
