"""DiviML's bound: at most the optimum for any modules, exact for modules joined by one channel, with clear errors."""

from __future__ import annotations

import concurrent.futures
import math

import instances
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis import levels
from hetsched.analysis.task_subsets import RefutationBudget
from hetsched.arrays import IntArray
from hetsched.bounds import batches
from hetsched.bounds.destructive import destructive
from hetsched.bounds.modular import modular, reverse
from hetsched.bounds.release_times import ReleaseTimes
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.stopping import NEVER, Deadline
from hetsched.testing import brute_force, decisions, problems
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples
from hetsched.testing.strategies import numbers

FREE = hs.Cluster(["x", "y"], bandwidth=np.inf)
NONE = math.nan


@st.composite
def partitions(draw: st.DrawFn, graph: hs.TaskGraph) -> list[IntArray]:
    """Draw modules: a topological order, cut at random positions."""
    before = {i: set(graph.source[graph.target == i].tolist()) for i in range(graph.n_tasks)}
    order: list[int] = []
    while before:
        order.append(draw(st.sampled_from(sorted(i for i, waits in before.items() if not waits))))
        del before[order[-1]]
        for waits in before.values():
            waits.discard(order[-1])
    cuts = sorted(draw(st.sets(st.integers(1, graph.n_tasks - 1)))) if graph.n_tasks > 1 else []
    return [part for part in np.split(np.array(order, np.int64), cuts) if len(part)]


def chain(*modules: list[int]) -> list[IntArray]:
    return [np.array(tasks) for tasks in modules]


def check(data: st.DataObject, problem: hs.Problem) -> None:
    """Compare the bound, and both terms of the bound for several inputs, with the optimum."""
    try:
        optimum = brute_force(problem, limit=30_000)
    except UnsupportedFeature:
        return
    makespan = (math.inf if optimum is None else optimum.makespan) * (1 + 1e-9)
    modules = data.draw(partitions(problem.graph))
    assert modular(problem, modules=modules).value <= makespan
    if modules:
        assert batches.handover(problem, modules, NEVER).value <= makespan
        assert batches.handover(reverse(problem), modules[::-1], NEVER).value <= makespan


@pytest.mark.slow
@examples(60)
@given(data=st.data(), problem=problems())
def test_it_is_never_above_the_optimum(data: st.DataObject, problem: hs.Problem) -> None:
    """Under every model of communication, memory and batches, for any modules."""
    check(data, problem)


@pytest.mark.slow
@examples(40)
@given(data=st.data(), problem=problems(n_tasks=st.integers(4, 7), n_devices=2, inputs=1))
def test_it_is_never_above_the_optimum_of_one_input(data: st.DataObject, problem: hs.Problem) -> None:
    check(data, problem)


@examples(40)
@given(
    data=st.data(),
    problem=problems(n_tasks=st.integers(2, 3), n_devices=st.integers(1, 2), inputs=st.integers(2, 4), durations=numbers(largest=3)),
)
def test_it_is_never_above_the_optimum_of_several_inputs(data: st.DataObject, problem: hs.Problem) -> None:
    check(data, problem)


@pytest.mark.slow
@examples(25)
@given(data=st.data(), problem=problems(n_tasks=st.integers(6, 14), inputs=st.integers(1, 3), tight=False))
def test_it_is_never_above_a_schedule(data: st.DataObject, problem: hs.Problem) -> None:
    """Problems that are too large for enumeration."""
    makespan = hs.simulate(problem, data.draw(decisions(problem))).makespan
    assert modular(problem, modules=data.draw(partitions(problem.graph))).value <= makespan * (1 + 1e-9)


@pytest.mark.slow
@examples(40)
@given(data=st.data(), problem=problems(n_tasks=st.integers(2, 7), inputs=st.integers(1, 2)))
def test_the_recursion_is_never_above_the_optimum(data: st.DataObject, problem: hs.Problem) -> None:
    try:
        optimum = brute_force(problem, limit=30_000)
    except UnsupportedFeature:
        return
    literal = modular(problem, modules=data.draw(partitions(problem.graph)), literal=True)
    assert literal.value <= (math.inf if optimum is None else optimum.makespan) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("dependence", ["sdep", "wdep"])
@pytest.mark.parametrize(("channels", "seed"), [(1, 0), (2, 1), (3, 2)])
def test_the_recursion_is_at_most_the_bound_by_heads_and_tails(dependence: str, channels: int, seed: int) -> None:
    """Three modules of six tasks; an executor's answer is that without one."""
    problem = instances.profiled(6, 3, channels=channels, dependence=dependence, seed=seed)
    modules = [np.arange(6) + 6 * t for t in range(3)] if channels > 1 else None
    literal, ours = modular(problem, modules=modules, literal=True), modular(problem, modules=modules)
    makespan = hs.solve(problem, "split", evaluations=3000).makespan
    assert 0 < literal.value <= ours.value * (1 + 1e-6)
    assert ours.value <= makespan * (1 + 1e-9)
    assert literal.evidence.startswith("DiviML's recursion over ")
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        assert modular(problem, modules=modules, literal=True, executor=executor).value == literal.value


def test_the_recursion_adds_up_modules() -> None:
    """On forks and joins through single tasks it is exact: 1 + 5 (3 + 3 + 1); the critical path has 5 (3 + 1) + 1."""
    problem, modules = forks(5)
    assert modular(problem, modules=modules, literal=True).value == pytest.approx(36, rel=1e-6)
    assert levels.critical_path(problem).length == 21


@pytest.mark.parametrize("turned", [False, True])
def test_a_task_without_readers_does_not_delay_the_rest(turned: bool) -> None:
    """A dangling task of 100 s in the first module, and o -> g takes 51 s: the sum of the modules would be 150."""
    graph = hs.TaskGraph(["a", "o", "g"], [("o", "g", 0)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[100, 100], [1, 1], [50, 50]])
    modules = chain([0, 1], [2])
    if turned:
        problem, modules = reverse(problem), modules[::-1]
    assert brute_force(problem).makespan == 100  # type: ignore[union-attr]
    assert modular(problem, modules=modules).value == 100
    assert modular(problem, modules=modules, literal=True).value == 51
    several = problem.replace(inputs=2, durations=problem.durations, batch_sizes=[2])
    assert batches.handover(several, modules, NEVER).value <= brute_force(several).makespan  # type: ignore[union-attr]


def forks(count: int) -> tuple[hs.Problem, list[IntArray]]:
    """Return forks and joins through single tasks; both branches of each fork run on x: 1 + 3 + 3, and 1 at the end."""
    names, edges = ["cut0"], []
    for m in range(count):
        names += [f"left{m}", f"right{m}", f"cut{m + 1}"]
        for side in ("left", "right"):
            edges += [(f"cut{m}", f"{side}{m}", 9), (f"{side}{m}", f"cut{m + 1}", 9)]
    durations = [[1, 2] if name.startswith("cut") else [3, 6] for name in names]
    problem = hs.Problem(hs.TaskGraph(names, edges), hs.Cluster(["x", "y"], bandwidth=1), durations=durations)
    return problem, [np.array([0]), *(np.arange(1, 4) + 3 * m for m in range(count))]


@pytest.mark.parametrize("default", [False, True])
def test_one_channel_is_exact(default: bool) -> None:
    """If the bounds of all modules are exact, so is their sum."""
    problem, modules = forks(5)
    bound = modular(problem, modules=None if default else modules)
    assert bound.value == pytest.approx(36, rel=1e-6)
    assert bound.value <= 36
    assert bound.evidence.startswith("6 modules, at most 1 channel: ")


def test_one_of_the_ends_is_last() -> None:
    """u and v take 6 s together on x; the successor of the last takes 5 s on y. By its path alone each end finishes after 3 s."""
    graph = hs.TaskGraph(["u", "v", "g", "h"], [("u", "g", 0), ("v", "h", 0)])
    problem = hs.Problem(graph, FREE, durations=[[3, NONE], [3, NONE], [NONE, 5], [NONE, 1]])
    assert brute_force(problem).makespan == 9  # type: ignore[union-attr]
    swapped = problem.replace(durations=[[3, NONE], [3, NONE], [NONE, 5], [NONE, 5]])
    assert brute_force(swapped).makespan == 13  # type: ignore[union-attr]
    apart = swapped.replace(cluster=hs.Cluster(["x", "y", "z"], bandwidth=np.inf), durations=[[3, NONE, NONE]] * 2 + [[NONE, 5, 5]] * 2)
    assert brute_force(apart).makespan == 11  # type: ignore[union-attr]
    assert levels.critical_path(apart).length == 8
    heads = ReleaseTimes(apart, levels.least_durations(apart), chain([0, 1], [2, 3]))
    heads.raise_(1, RefutationBudget(100))
    assert heads.release[:2, 0].tolist() == [0, 0]
    assert heads.last[0, (0, 1)][0][0] == pytest.approx(3)
    assert heads.last[0, (0, 1)][1][0] == pytest.approx(3)
    assert heads.join(1, 1, np.zeros((4, 3)), RefutationBudget(100)) == pytest.approx(11)


def test_transfers_at_a_boundary_count_where_they_cannot_be_avoided() -> None:
    """The second module cannot run on the only device of the first: 1 + 4 + 1."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 4)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1), durations=[[1, NONE], [NONE, 1]])
    assert modular(problem, modules=chain([0], [1])).value == 6


def test_an_edge_may_pass_over_modules() -> None:
    """a is read by the module after the next as well."""
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "b", 0), ("a", "d", 0), ("b", "c", 0), ("c", "d", 0)])
    problem = hs.Problem(graph, FREE, durations=[[5, 5], [1, 1], [1, 1], [2, 2]])
    modules = chain([0], [1], [2], [3])
    assert ReleaseTimes(problem, levels.least_durations(problem), modules).channels == 2
    assert modular(problem, modules=modules).value == pytest.approx(9)


def test_memory_that_leaves_one_device_counts() -> None:
    """y has memory for one of the two tasks only, so the other runs on x, which is slow."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 0)], weight_bytes=[6, 6])
    cluster = hs.Cluster([hs.Device("x", memory_bytes=8), hs.Device("y", memory_bytes=8)], bandwidth=np.inf)
    problem = hs.Problem(graph, cluster, durations=[[9, 1], [9, 1]])
    assert brute_force(problem).makespan == 10  # type: ignore[union-attr]
    assert modular(problem, modules=chain([0, 1])).value == pytest.approx(10, rel=1e-6)


def test_inputs_follow_one_another() -> None:
    """u and v take 2 s per input on x, then y takes 3 s for each: the first input leaves x after 2 s, then y needs 12 s."""
    graph = hs.TaskGraph(["u", "v", "w"], [("u", "w", 0), ("v", "w", 0)])
    problem = hs.Problem(
        graph, FREE, durations=[[[1.0], [NONE]], [[1.0], [NONE]], [[NONE], [3.0]]], batch_sizes=[1], inputs=4, batching="free"
    )
    bound = batches.handover(problem, chain([0, 1], [2]), NEVER)
    assert bound == batches.Handover(pytest.approx(14), 1, 1)
    assert modular(problem, modules=chain([0, 1], [2])).value == pytest.approx(14)


def test_a_part_of_a_batch_costs_as_much_as_the_cheapest_batch_that_holds_it() -> None:
    """A batch of two is cheaper than one of one: two inputs cannot be counted as two batches of one."""
    graph = hs.TaskGraph(["u", "w"], [("u", "w", 0)])
    cheap = hs.Problem(graph, hs.Cluster(["x"]), durations=[[[5.0, 2.0]], [[5.0, 2.0]]], batch_sizes=[1, 2], inputs=2)
    assert brute_force(cheap).makespan == 4  # type: ignore[union-attr]
    assert batches.handover(cheap, chain([0], [1]), NEVER).value == pytest.approx(4)


def test_several_ends_are_counted_at_the_price_of_the_cheapest() -> None:
    """The successor of v takes a tenth of the time of that of u; v may be the last end for all four inputs."""
    graph = hs.TaskGraph(["u", "v", "g", "h"], [("u", "g", 0), ("v", "h", 0)])
    durations = [[[1.0], [NONE]], [[1.0], [NONE]], [[NONE], [10.0]], [[NONE], [1.0]]]
    problem = hs.Problem(graph, FREE, durations=durations, batch_sizes=[1], inputs=4, batching="free")
    assert batches.handover(problem, chain([0, 1], [2, 3]), NEVER).value == pytest.approx(9)  # all four inputs, and 1 s


@examples(25)
@given(data=st.data(), problem=problems(n_tasks=st.integers(3, 8), tight=False))
def test_later_passes_never_lower_a_head(data: st.DataObject, problem: hs.Problem) -> None:
    heads = ReleaseTimes(problem, levels.least_durations(problem), data.draw(partitions(problem.graph)))
    before = heads.release.copy()
    for width, nodes in ((1, 1), (1, 100), (2, 1), (2, 100)):
        heads.raise_(width, RefutationBudget(nodes))
        assert (heads.release >= before).all()
        before = heads.release.copy()


@examples(25)
@given(data=st.data(), problem=problems(n_tasks=st.integers(2, 5), inputs=1, tight=False))
def test_numbering_does_not_matter(data: st.DataObject, problem: hs.Problem) -> None:
    """With tasks and modules renumbered the bound is the same if all refutations are complete."""
    graph = problem.graph
    tasks = np.array(data.draw(st.permutations(range(problem.n_tasks))))
    place = np.argsort(tasks)
    other = problem.replace(
        graph=hs.TaskGraph(
            [graph.names[i] for i in tasks],
            place[graph.edges],
            edge_bytes=graph.edge_bytes,
            weight_bytes=graph.weight_bytes[tasks],
            input_bytes=graph.input_bytes[tasks],
            output_bytes=graph.output_bytes[tasks],
            colocation=[graph.colocation[i] for i in tasks],
            devices=[graph.devices[i] for i in tasks],
        ),
        durations=problem.durations[tasks],
        batch_sizes=problem.batch_sizes,
    )
    modules = data.draw(partitions(graph))
    bound = modular(other, modules=[place[part] for part in modules])
    assert bound.value == pytest.approx(modular(problem, modules=modules).value, rel=1e-5)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        (chain([0, 1], [2]), "'d': in no module, or in more than one; each task must be in one"),
        (chain([0, 1], [1, 2, 3]), "'b': in no module, or in more than one; each task must be in one"),
        (chain([1, 2], [0, 3]), "edge 'a' -> 'b' leads from module 1 back to module 0; put modules in order"),
        (chain([0, 1, 2, 4]), "modules[0] has task indices 0 to 4; they must be in 0 to 3"),
        ([np.array([0.5])], "modules[0] is array([0.5]); it must be a list of task indices"),
    ],
)
def test_a_wrong_partition_is_refused(modules: list[IntArray], message: str) -> None:
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "b", 0), ("b", "c", 0)])
    with pytest.raises(InvalidProblem) as refusal:
        modular(hs.Problem(graph, FREE, durations=np.ones((4, 2))), modules=modules)
    assert str(refusal.value) == message


def test_the_reverse_of_the_reverse_is_the_problem() -> None:
    """Transfers and links are reversed with the edges."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 3)])
    cluster = hs.Cluster(["x", "y"], bandwidth=[[0, 2], [1, 0]], latency=[[0, 5], [7, 0]])
    problem = hs.Problem(graph, cluster, durations=[[1, NONE], [NONE, 1]])
    turned = reverse(problem)
    assert turned.graph.edges.tolist() == [[1, 0]]
    assert turned.transfer_times(0, 1, 0) == problem.transfer_times(0, 0, 1) == 6.5
    assert reverse(turned).transfer_times(0, 0, 1) == 6.5
    given_times = problem.replace(transfers=[[[0, 4], [9, 0]]])
    assert reverse(given_times).transfer_times(0, 1, 0) == 4


# Best makespans of ten seconds of annealing; gaps are those of the paper (table I), except that of one channel.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "makespan", "gap"), [(1, 2250.3645, 0.002), (2, 1781.3977, 0.066), (3, 1553.8476, 0.148), (4, 1750.2944, 0.225)]
)
def test_stacks_are_bounded_better_than_by_the_paper(channels: int, makespan: float, gap: float) -> None:
    problem = instances.stack("er", 10, 10, channels=channels)
    bound = modular(problem)
    assert makespan * (1 - gap) <= bound.value <= makespan
    assert bound.value > destructive(problem).value


@pytest.mark.slow
@pytest.mark.parametrize("looks", [0, 10, 1000])
def test_after_the_deadline_hardly_anything_is_done(looks: int) -> None:
    """For a stack that takes minutes without a deadline, one large module, and a deadline of zero."""
    for problem in (instances.stack("er", 10, 10, channels=4), forks(1000)[0]):
        clock = SteppingClock(step=1.0)
        deadline = Deadline.after(looks, clock)
        bound = modular(problem, deadline=deadline)
        assert 0 < clock.late(deadline) <= (4 * problem.n_tasks if looks else 2), "at most a few looks a module"
        length = levels.critical_path(problem).length
        assert bound.value >= length * (1 - 1e-12) if looks else bound.value == length


def test_impossible_ends_are_proven_so() -> None:
    """There is no path from the device of a to the only device of b."""
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 0), ("b", "c", 0)], weight_bytes=[0, 9, 0])
    cluster = hs.Cluster([hs.Device("x"), hs.Device("y", memory_bytes=5)], bandwidth=0)
    problem = hs.Problem(graph, cluster, durations=[[NONE, 1], [1, 1], [1, 1]])
    bound = modular(problem, modules=chain([0], [1, 2]))
    assert math.isinf(bound.value)
    assert bound.evidence
