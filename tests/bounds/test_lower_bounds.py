"""Every bound against true optima, valid schedules, published optima, and worked examples."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.bounds import best
from hetsched.bounds.combinatorial import critical_path, head_tail_load, load, memory, quick_head_tail_load
from hetsched.bounds.destructive import destructive
from hetsched.bounds.modular import modular
from hetsched.stopping import Deadline
from hetsched.testing import brute_force, decisions, problems
from hetsched.testing.backends import PLENTY
from tests import golden

BOUNDS: list[Callable[[hs.Problem], hs.Bound]] = [critical_path, load, head_tail_load, quick_head_tail_load, destructive, modular, hs.bound]
each_bound = pytest.mark.parametrize("function", BOUNDS, ids=lambda function: function.__name__)


@pytest.mark.slow
@given(problems(n_tasks=st.integers(1, 8)))
def test_the_best_bound_is_the_best(problem: hs.Problem) -> None:
    """`bound` is at least every quick bound, and `destructive` at least the bounds from which it starts: by itself, none is rounded up."""
    quick = max(best.quick(problem), key=lambda bound: bound.value)
    assert hs.bound(problem).value >= quick.value
    assert destructive(problem).value >= max(bound(problem).value for bound in (critical_path, load, head_tail_load, quick_head_tail_load))
    assert destructive(problem, best=quick).value >= quick.value


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "optimum"), [(golden.topcuoglu(), 73.0), (golden.arabnejad(), 113.0)], ids=["topcuoglu", "arabnejad"])
@each_bound
def test_published_optima_are_not_exceeded(function: Callable[[hs.Problem], hs.Bound], problem: hs.Problem, optimum: float) -> None:
    """The best bound is close to them."""
    assert function(problem).value <= optimum * (1 + 1e-9)
    assert hs.bound(problem).value >= 0.85 * optimum


def two(**options: object) -> hs.Problem:
    """Return tasks a -> b of 10 bytes of weights each on two devices of 15 bytes."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 4)], weight_bytes=10)
    cluster = hs.Cluster([hs.Device("x", memory_bytes=15), hs.Device("y", memory_bytes=15)], bandwidth=1)
    return hs.Problem(graph, cluster, **{"durations": [[1, 9], [1, 9]], **options})  # type: ignore[arg-type]


def test_memory_splits_the_load() -> None:
    """x holds one and a half tasks, so half a task runs on y. Without memory limits the load is 1.8 s, divided by speed."""
    assert load(two()).value == pytest.approx(4.5, rel=1e-5)
    roomy = two().replace(cluster=hs.Cluster(["x", "y"], bandwidth=1))
    assert load(roomy).value == pytest.approx(1.8)


@pytest.mark.parametrize("model", ["static", "peak"])
def test_more_weights_than_memory_is_proven_infeasible(model: str) -> None:
    """20 bytes of weights do not fit 18 in all, though each task fits each device."""
    devices = [hs.Device("x", memory_bytes=10), hs.Device("y", memory_bytes=8)]
    small = two(memory=model).replace(
        graph=hs.TaskGraph(["a", "b", "c"], weight_bytes=[7, 7, 6]), cluster=hs.Cluster(devices, bandwidth=1), durations=np.ones((3, 2))
    )
    proof = memory(small)
    assert math.isinf(proof.value)
    assert proof.evidence == "however the tasks are spread, some device needs at least 111.1111% of its capacity"
    assert hs.bound(small) == proof
    assert math.isinf(load(small).value)


@pytest.mark.slow
@given(data=st.data(), problem=problems(memory="static", tight=False))
def test_capacities_that_a_schedule_fills_to_the_byte_are_enough(problem: hs.Problem, data: st.DataObject) -> None:
    """A hundredth less on every device is not enough if each task has one batch: the sum of capacities is too small."""
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    used = schedule.static_memory

    def shrunk(share: float) -> hs.Problem:
        cluster = problem.cluster
        devices = [
            dataclasses.replace(device, memory_bytes=float(room)) for device, room in zip(cluster.devices, share * used, strict=True)
        ]
        return problem.replace(cluster=hs.Cluster(devices, cluster.bandwidth, cluster.latency))

    assert memory(shrunk(1.0)).value == 0
    if used.sum() > 0 and problem.inputs == 1:
        assert memory(shrunk(0.99)).value == math.inf


def test_activations_count_under_static_only() -> None:
    """Outputs of 8 inputs need 16 bytes at once under static; under peak they may exist one after another."""
    graph = hs.TaskGraph(["a"], output_bytes=2)
    cluster = hs.Cluster([hs.Device("x", memory_bytes=10)])
    problem = hs.Problem(graph, cluster, durations=[[[1.0]]], batch_sizes=[1], inputs=8, batching="free")
    assert math.isinf(memory(problem).value)
    assert memory(problem.replace(memory="peak")).value == 0


@each_bound
def test_a_task_that_fits_nowhere_is_named(function: Callable[[hs.Problem], hs.Bound]) -> None:
    """The memory of its only allowed device is too small."""
    graph = hs.TaskGraph(["a", "b"], weight_bytes=[1, 9], devices=[None, ["x"]])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=8), hs.Device("y")], bandwidth=1)
    proof = function(hs.Problem(graph, cluster, durations=np.ones((2, 2))))
    assert math.isinf(proof.value)
    assert "'b'" in proof.evidence


def test_colocated_tasks_move_together() -> None:
    """The two tasks of a label cost 1 + 9 on x and 9 + 1 on y: 5 if divided in half; without the label they cost 1 each."""
    graph = hs.TaskGraph(["a", "b"], colocation=["l", "l"])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1), durations=[[1, 9], [9, 1]])
    assert load(problem).value == pytest.approx(5)
    assert hs.bound(problem).value <= 10


def test_heads_and_tails_add_to_the_load_between_them() -> None:
    """Four tasks of 2 s between a first and a last of 1 s on two devices: 1 + 4 + 1."""
    middle = ["p", "q", "r", "s"]
    graph = hs.TaskGraph(["first", *middle, "last"], [("first", m, 0) for m in middle] + [(m, "last", 0) for m in middle])
    durations = [[1, 1], *[[2, 2]] * 4, [1, 1]]
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1), durations=durations)
    assert head_tail_load(problem).value == pytest.approx(6)
    assert critical_path(problem).value == 4
    assert load(problem).value == pytest.approx(5)


def test_supposing_a_makespan_proves_what_fractions_do_not() -> None:
    """Fractions of b and c run on both devices; below 14 s neither can run on y."""
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 8), ("a", "c", 8)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1), durations=[[2, np.nan], [4, 4], [4, 4]])
    assert brute_force(problem).makespan == 10  # type: ignore[union-attr]
    assert head_tail_load(problem).value < 7
    assert destructive(problem).value == pytest.approx(10, rel=1e-5)


def test_modules_in_series_add_up() -> None:
    """Three forks and joins through single tasks: both branches of each fork run on x, 1 + 3 + 3, and 1 at the end."""
    names, edges = ["cut0"], []
    for m in range(3):
        names += [f"left{m}", f"right{m}", f"cut{m + 1}"]
        for side in ("left", "right"):
            edges += [(f"cut{m}", f"{side}{m}", 9), (f"{side}{m}", f"cut{m + 1}", 9)]
    durations = [[1, 2] if name.startswith("cut") else [3, 6] for name in names]
    problem = hs.Problem(hs.TaskGraph(names, edges), hs.Cluster(["x", "y"], bandwidth=1), durations=durations)
    bound = hs.bound(problem, time_limit=PLENTY)
    assert bound.name == "split"
    assert bound.value == pytest.approx(22, rel=1e-6)
    assert bound.value <= 22
    assert load(problem).value == pytest.approx(44 / 3)


def test_no_time_still_gives_the_cheapest_bound() -> None:
    """A limit of zero returns after the first."""
    problem = golden.topcuoglu()
    assert hs.bound(problem, time_limit=0) == critical_path(problem)
    assert destructive(problem, best=load(problem), deadline=Deadline.after(0)) == load(problem)


def test_an_empty_graph_takes_no_time() -> None:
    """Each bound is 0."""
    problem = hs.Problem(hs.TaskGraph([]), hs.Cluster(["x", "y"], bandwidth=1), durations=np.zeros((0, 2)))
    assert [function(problem).value for function in BOUNDS] == [0] * len(BOUNDS)


def peer(path: Path) -> hs.Problem:
    """Read an instance of the folder ``peer``."""
    data = json.loads(path.read_text())
    bandwidth = np.array(data["bw"])
    np.fill_diagonal(bandwidth, np.inf)
    graph = hs.TaskGraph([f"t{i}" for i in range(data["n"])], np.array(data["edges"]), edge_bytes=data["size"])
    return hs.Problem(graph, hs.Cluster([f"d{k}" for k in range(data["m"])], bandwidth=bandwidth), durations=data["exec"])


def test_random_modules_are_bounded_within_a_few_percent(shared_data: Path) -> None:
    """The makespans are the best of long annealing runs, which agree."""
    makespans = {"rwnn1x10": 137.716449, "rwnn1x10u": 194.975244, "rwnn1x32": 372.317680, "rwnn1x32u": 453.673503}
    gaps = {}
    for name, makespan in makespans.items():
        value = destructive(peer(shared_data / "peer" / f"{name}.json")).value
        assert value <= makespan * (1 + 1e-6)
        gaps[name] = 1 - value / makespan
    assert sum(gaps.values()) / len(gaps) <= 0.03
