"""Branch and bound: proven optima for one input, with pins, labels and limited memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import hetsched as hs
from hetsched.analysis import task_subsets
from hetsched.analysis.task_subsets import RefutationBudget, SingleInputProblem, TaskSubset
from hetsched.bounds.branch_and_bound import orders
from hetsched.bounds.destructive import destructive
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.problem.links import UNCONTENDED
from hetsched.search.solution import Bound
from hetsched.testing import brute_force, conformance, problems
from hetsched.testing.profiles import examples
from hetsched.testing.strategies import clusters
from tests import golden


class TestBranch(conformance.MethodSuite):
    method = "branch"
    evaluations = 200

    def problems(self, **features: object) -> SearchStrategy[hs.Problem]:
        return problems(**{"inputs": 1, **features})  # type: ignore[arg-type]


def everything(problem: hs.Problem) -> TaskSubset:
    return TaskSubset(SingleInputProblem(problem), np.arange(problem.n_tasks), np.arange(problem.graph.n_edges))


def test_an_order_that_does_not_fit_proves_more_than_loads() -> None:
    """In less than 6 s t3 and t4 run on b, t1 and t2 on a. With t0 on b that has 6 s of work; on a t0 and t2 take 3 s, and then t3 3 s."""
    edges = [("t0", "t3"), ("t1", "t4"), ("t2", "t3")]
    durations = [[2.0, 2.0], [1.0, 6.0], [1.0, math.nan], [5.0, 3.0], [6.0, 1.0]]
    cluster = hs.Cluster(["a", "b"], bandwidth=math.inf)
    problem = hs.Problem(hs.TaskGraph([f"t{i}" for i in range(5)], edges), cluster, durations=durations)
    optimum = brute_force(problem)
    assert optimum is not None
    assert optimum.makespan == 6.0
    assert orders(problem).value == pytest.approx(6.0)
    assert destructive(problem).value <= 5.0


def test_a_bound_of_all_inputs_is_not_rounded_to_the_times_of_one_input() -> None:
    """The times of one input are whole seconds here, those of a batch of two are not."""
    problem = hs.Problem(hs.TaskGraph(["task"]), hs.Cluster(["device"]), durations=[[[1.0, 1.125]]], batch_sizes=[1, 2], inputs=2)
    assert orders(problem, best=Bound(1.125, "load", "")).value == 1.125


@pytest.mark.slow
@examples(80)
@given(problem=problems(n_tasks=st.integers(1, 6), inputs=1, communication=st.sampled_from(UNCONTENDED), memory="static"))
def test_optima_are_found_and_proven(problem: hs.Problem) -> None:
    """With static memory, and where there is no schedule at all."""
    try:
        optimum = brute_force(problem, limit=50_000)
    except UnsupportedFeature:
        return
    solution = hs.solve(problem, "branch")
    if optimum is None:
        assert solution.status == "infeasible"
        return
    assert solution.makespan == pytest.approx(optimum.makespan, rel=1e-9)
    assert solution.status == "optimal"


@examples(60)
@given(
    data=st.data(),
    problem=problems(
        n_tasks=st.integers(1, 5),
        n_devices=3,
        cluster=clusters(n_devices=3, bandwidth=st.sampled_from([1.0, 1.0, 1.0, 2.0]), latency=1.0, missing_links=False, nodes=False),
        inputs=1,
        communication="delay",
        memory="static",
        tight=False,
        transfers=False,
    ),
)
def test_optima_are_proven_where_devices_can_be_exchanged(data: st.DataObject, problem: hs.Problem) -> None:
    """Some devices have equal durations, and the links of some are equal too."""
    column = data.draw(st.sampled_from([[0, 0, 0], [0, 0, 2], [1, 1, 1], [0, 1, 1]]))
    if np.isnan(problem.durations[:, column]).all(axis=(1, 2)).any():
        return
    try:
        problem = problem.replace(durations=problem.durations[:, column])
    except InvalidProblem:  # a pin left no device
        return
    optimum = brute_force(problem)
    assert optimum is not None
    value = everything(problem).least([everything(problem).node()], RefutationBudget(100_000))
    assert value == pytest.approx(optimum.makespan, rel=1e-6)


def identical(rng: np.random.Generator) -> hs.Problem:
    """Return a random problem of up to six tasks on two or three devices, mostly identical ones, sometimes with co-located tasks."""
    n, size = int(rng.integers(2, 7)), int(rng.integers(2, 4))
    durations = rng.integers(rng.integers(2), 5, (n, 1)) * np.ones((1, size))
    durations = rng.integers(0, 6, (n, size)) * rng.choice([1.0, 0.1, 0.5]) if rng.random() < 0.3 else durations
    edges = np.argwhere(np.triu(rng.random((n, n)) < rng.choice([0.2, 0.4, 0.7]), 1))
    labels = ["together", *[None] * (n - 2), "together"] if rng.random() < 0.15 else [None] * n
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges, edge_bytes=rng.integers(0, 7, len(edges)), colocation=labels)
    cluster = hs.Cluster([f"d{k}" for k in range(size)], bandwidth=1.0, latency=float(rng.choice([0, 0, 1])))
    return hs.Problem(graph, cluster, durations=durations)


def fork_join(rng: np.random.Generator, inner: int, processors: int, most: int) -> hs.Problem:
    """Return a random fork and join of some tasks on identical processors, each transfer of up to `most` seconds."""
    middle = np.arange(1, inner + 1)
    edges = np.vstack([np.column_stack([0 * middle, middle]), np.column_stack([middle, 0 * middle + inner + 1])])
    graph = hs.TaskGraph([f"t{i}" for i in range(inner + 2)], edges, edge_bytes=rng.integers(0, most + 1, 2 * inner))
    durations = np.tile(rng.integers(1, 6, (inner + 2, 1)), processors)
    return hs.Problem(graph, hs.Cluster([f"d{k}" for k in range(processors)], bandwidth=1.0), durations=durations)


def optima_hold(seeds: range) -> None:
    """Within one node, a few and many the bound is at most the optimum; with many it is the optimum, which is never refuted."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        problem = fork_join(rng, int(rng.integers(2, 4)), int(rng.integers(2, 5)), 4) if seed % 3 == 0 else identical(rng)
        best = brute_force(problem, limit=10**7)
        assert best is not None
        subset = everything(problem)
        for nodes in (1, 5, 100_000):
            value = subset.least([subset.node()], RefutationBudget(nodes))
            assert value <= best.makespan * (1 + 1e-9), seed
        assert value == pytest.approx(best.makespan, rel=1e-6), seed
        assert subset.refute(subset.node(), best.makespan, RefutationBudget(100_000)) is not True, seed


@pytest.mark.slow
def test_optima_on_identical_devices_are_never_refuted() -> None:
    optima_hold(range(15))


@pytest.mark.slow
def test_optima_on_many_identical_devices_are_never_refuted() -> None:
    optima_hold(range(1000, 1150))


def test_parents_whose_data_is_late_share_the_device() -> None:
    """Three parents of 4 s, whose transfers take 5, 6 and 20 s: the child starts at 9 s, with the first elsewhere; mirrored likewise."""
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "d", 5.0), ("b", "d", 6.0), ("c", "d", 20.0)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1), durations=np.tile([[4.0], [4.0], [4.0], [1.0]], 2))
    subset = everything(problem)
    assert subset.starts(subset.node())[-1].tolist() == [9, 9]
    assert subset.path(subset.node()) == 10
    mirror = hs.TaskGraph(["d", "a", "b", "c"], [("d", "a", 5.0), ("d", "b", 6.0), ("d", "c", 20.0)])
    subset = everything(problem.replace(graph=mirror, durations=problem.durations[[3, 0, 1, 2]]))
    assert subset.path(subset.node()) == 10


def test_a_device_works_from_when_data_can_be_there() -> None:
    """Between a and e on x, both of 1 s, 4 tasks of 2 s: y may begin 3 s later and must end 3 s earlier, so x has three of them."""
    edges = [("a", name, 3.0) for name in "bcdf"] + [(name, "e", 3.0) for name in "bcdf"]
    graph = hs.TaskGraph(list("abcdfe"), edges)
    durations = np.tile([[1.0], [2.0], [2.0], [2.0], [2.0], [1.0]], 2)
    subset = everything(hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1), durations=durations))
    pins = [(0, 0), (5, 0)]
    budget = RefutationBudget(1)
    assert subset.refute(subset.node(pins=pins), 9.0, budget) is True
    assert subset.refute(subset.node(pins=pins), 10.0, RefutationBudget(1000)) == 10


def test_the_first_tasks_of_equal_devices_are_distinct() -> None:
    """A fork and join of 1 s each on x, and 7 tasks of 2 s, whose transfers to and from other devices take 1 to 7 s.

    In 8 s x runs three of them. y and z begin at 2 and 3 s, and end 2 and 3 s before the end, which leaves 4 + 2 s for the other 8 s.
    """
    middle, wait = list("abcdefg"), [1.0, 2, 3, 4, 5, 6, 7]
    edges = [edge for name, x in zip(middle, wait, strict=True) for edge in (("s", name, x), (name, "t", x))]
    durations = np.tile([[1.0], *[[2.0]] * 7, [1.0]], 3)
    subset = everything(hs.Problem(hs.TaskGraph(["s", *middle, "t"], edges), hs.Cluster(list("xyz"), bandwidth=1), durations=durations))
    assert subset.refute(subset.node(pins=[(0, 0), (8, 0)]), 8.0, RefutationBudget(1)) is True


def test_where_devices_are_equal_the_task_with_most_transfers_is_placed_first() -> None:
    """On devices of which none are equal it is the longest task."""
    problem = fork_join(np.random.default_rng(1), 6, 3, 9)
    time, transfers = problem.durations[:, 0, 0], np.bincount(problem.graph.edges.ravel(), np.repeat(problem.graph.edge_bytes, 2))
    assert time[transfers.argmax()] < time.max()
    for unlike, first in ((0.0, transfers.argmax()), (1.0, time.argmax())):
        subset = everything(problem.replace(durations=problem.durations[:, :, 0] * (1 + unlike * np.arange(3))))
        budget = RefutationBudget(2, log=[])
        subset.refute(subset.node(), 2 * problem.durations[:, 0].sum(), budget)
        assert budget.log is not None
        assert budget.log[0][1] == first


@pytest.mark.slow
@pytest.mark.parametrize(("processors", "seed", "optimum"), [(2, 0, 93), (4, 0, 53), (4, 1, 50), (16, 1, 28)])
def test_forks_and_joins_of_thirty_tasks_are_refuted_in_few_nodes(processors: int, seed: int, optimum: int) -> None:
    """Those of benchmarks/identical.py; a constraint solver has a bound of 19 for the first after a minute."""
    rng = np.random.default_rng([seed, 30, 3])
    time, middle = rng.integers(1, 11, 30), np.arange(1, 29)
    edges = np.vstack([np.column_stack([0 * middle, middle]), np.column_stack([middle, 0 * middle + 29])])
    graph = hs.TaskGraph([f"t{i}" for i in range(30)], edges, edge_bytes=rng.integers(1, round(2 * time.mean()), 56))
    cluster = hs.Cluster([f"p{k}" for k in range(processors)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.tile(time[:, None], processors))
    subset = everything(problem)
    assert subset.refute(subset.node(), optimum - 1.0, RefutationBudget(40)) is True
    certificate = hs.certify(problem, float(optimum))
    assert certificate is not None
    assert certificate.nodes <= 40


def test_times_that_are_multiples_are_refuted_up_to_the_next() -> None:
    """Three tasks of 2 s on two devices: 3 s of load, so 4 s."""
    problem = hs.Problem(hs.TaskGraph(["a", "b", "c"]), hs.Cluster(["x", "y"], bandwidth=1), durations=np.full((3, 2), 2.0))
    subset = everything(problem)
    assert subset.least([subset.node()], RefutationBudget(1)) == 4
    assert subset.refute(subset.node(), 3.99, RefutationBudget(1)) is True


def test_equal_devices_are_tried_once() -> None:
    """Of four tasks on four equal devices the first goes to one of them, which stands for all."""
    problem = hs.Problem(hs.TaskGraph(["a", "b", "c", "d", "e"]), hs.Cluster(list("wxyz"), bandwidth=1), durations=np.ones((5, 4)))
    nodes = []
    for least in (np.ones((5, 4)), np.ones((5, 4)) + np.arange(4) * 1e-6):
        subset = TaskSubset(SingleInputProblem(problem, least), np.arange(5), np.zeros(0, np.int64))
        budget = RefutationBudget(10_000, log=[])
        assert subset.refute(subset.node(), 1.5, budget) is True
        nodes.append(len(budget.log or []))
    assert nodes[0] < nodes[1]


@examples(30)
@given(problem=problems(n_tasks=st.integers(2, 6), inputs=1, communication="delay"), share=st.floats(0.5, 1.0))
def test_how_often_the_time_is_looked_at_and_room_for_nodes_change_nothing(problem: hs.Problem, share: float) -> None:
    best = brute_force(problem)
    horizon = share * (1.0 if best is None else best.makespan)
    answers = []
    for work, depth in ((1, 2), (task_subsets._WORK, task_subsets._DEPTH)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task_subsets, "_WORK", work)
            patch.setattr(task_subsets, "_DEPTH", depth)
            budget, subset = RefutationBudget(200, log=[]), everything(problem)
            answers.append((subset.refute(subset.node(), horizon, budget), budget.log, budget.work, budget.open))
    assert answers[0] == answers[1]


@examples(50)
@given(data=st.data(), problem=problems(n_tasks=st.integers(2, 5), inputs=1, communication="delay", tight=False))
def test_the_bound_of_a_subset_is_at_most_the_optimum(data: st.DataObject, problem: hs.Problem) -> None:
    """The bound of some tasks and their ancestors, without or with a pin, is at most the optimum under the same pin."""
    chosen = data.draw(st.sets(st.sampled_from(range(problem.n_tasks)), min_size=1))
    subset = everything(problem).ancestry(sorted(chosen))
    assert subset.least([subset.node()], RefutationBudget(1000)) <= brute_force(problem).makespan * (1 + 1e-9)  # type: ignore[union-attr]
    task = data.draw(st.sampled_from(subset.tasks.tolist()))
    pinned = {k: subset.least([subset.node(pins=[(task, k)])], RefutationBudget(1000)) for k in range(problem.n_devices)}
    assert min(pinned.values()) == pytest.approx(subset.least([subset.node()], RefutationBudget(1000)), rel=1e-6)


@pytest.mark.parametrize(("problem", "optimum"), [(golden.topcuoglu(), 73.0), (golden.arabnejad(), 113.0)], ids=["topcuoglu", "arabnejad"])
def test_published_optima_are_proven(problem: hs.Problem, optimum: float) -> None:
    solution = hs.solve(problem, "branch")
    assert solution.makespan == optimum
    assert solution.status == "optimal"
    assert solution.proof.name == "branch"


def test_releases_and_deliveries_count() -> None:
    """b starts at 5 s or later and 2 s follow it; a may precede it on x; y is excluded for b in the first node."""
    graph = hs.TaskGraph(["a", "b"])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1), durations=[[4, 9], [3, 1]])
    subset = everything(problem)
    release, delivery = np.array([[0.0, 0], [5, math.inf]]), np.array([[0.0, 0], [2, 2]])
    assert subset.least([subset.node(release, delivery)], RefutationBudget(100)) == pytest.approx(10, rel=1e-6)
    late = np.array([[0.0, 0], [5, 8]])
    nodes = [subset.node(release, delivery, [(0, 1)]), subset.node(late, pins=[(1, 1)])]
    assert subset.least(nodes, RefutationBudget(100)) == pytest.approx(9, rel=1e-6)


def test_alternatives_count_with_the_least() -> None:
    """The order of nodes does not matter, and an infeasible one does not count."""
    problem = golden.topcuoglu()
    subset = everything(problem)
    nodes = [subset.node(pins=[(0, k)]) for k in range(3)]
    values = [subset.least([node], RefutationBudget(5000)) for node in nodes]
    impossible = subset.node(np.full((10, 3), math.inf))
    assert subset.least([impossible], RefutationBudget(10)) == math.inf
    for order in (nodes, nodes[::-1], [impossible, *nodes]):
        assert subset.least(order, RefutationBudget(5000)) == pytest.approx(min(values), rel=1e-6)


def test_without_nodes_it_is_still_a_bound() -> None:
    """With one node per refutation, then more, the value increases to the optimum."""
    subset = everything(golden.arabnejad())
    values = [subset.least([subset.node()], RefutationBudget(nodes)) for nodes in (1, 10, 10_000)]
    assert values[0] <= values[1] * (1 + 3e-3) <= values[2] * (1 + 6e-3)
    assert values[2] == pytest.approx(113, rel=1e-6)
    assert values[2] <= 113


def test_the_bound_is_at_most_the_best_schedule() -> None:
    """With `best`, the search ends when that value is reached."""
    subset = everything(golden.topcuoglu())
    assert subset.least([subset.node()], RefutationBudget(10_000), best=73) == pytest.approx(73, rel=1e-6)
    assert subset.least([subset.node()], RefutationBudget(10_000), best=60) == 60


def test_tasks_that_take_no_time_need_no_order() -> None:
    """They do not occupy a device."""
    graph = hs.TaskGraph(["a", "b", "c"])
    problem = hs.Problem(graph, hs.Cluster(["x"]), durations=[[0], [5], [0]])
    assert hs.solve(problem, "branch").makespan == 5
    nothing = hs.Problem(graph, hs.Cluster(["x"]), durations=[[0], [0], [0]])
    assert (hs.solve(nothing, "branch").makespan, hs.solve(nothing, "branch").bound) == (0, 0)


def test_unsupported_problems_are_refused() -> None:
    several = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["x"]), durations=[[1]], inputs=2, batch_sizes=[1], batching="free")
    with pytest.raises(UnsupportedFeature, match="one input is supported, but the problem has 2"):
        hs.solve(several, "branch")
    large = hs.Problem(hs.TaskGraph([f"t{i}" for i in range(301)]), hs.Cluster(["x"]), durations=np.ones((301, 1)))
    with pytest.raises(UnsupportedFeature, match="branch takes up to 300 tasks, but there are 301"):
        hs.solve(large, "branch")


def test_an_optimum_is_proven_where_the_longest_path_takes_no_time() -> None:
    """Both durations are 0 on x, which has memory for one task."""
    cluster = hs.Cluster([hs.Device("x", memory_bytes=1), hs.Device("y")], bandwidth=1)
    problem = hs.Problem(hs.TaskGraph(["a", "b"], weight_bytes=1), cluster, durations=[[0, 3], [0, 4]])
    solution = hs.solve(problem, "branch")
    assert (solution.makespan, solution.status) == (3, "optimal")
