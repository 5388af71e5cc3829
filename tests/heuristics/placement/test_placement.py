"""Placement of large graphs: the papers' rules against plain implementations, and best efforts over capacity."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import coarsening
from hetsched.analysis.levels import unit_sums
from hetsched.arrays import readonly, row_starts
from hetsched.coarsening.coarse import mean_durations, mean_transfers
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.list_scheduling import dynamic_kernels, pair_kernels
from hetsched.heuristics.list_scheduling.dynamic import one_order
from hetsched.heuristics.list_scheduling.offers import in_slices, list_problem
from hetsched.heuristics.placement import baechi, celeritas, offers, partitions, repartition
from hetsched.heuristics.placement import kernels as placement_kernels
from hetsched.heuristics.placement.clustering import dominant_sequences
from hetsched.search import Monitor
from hetsched.stopping import NEVER
from hetsched.testing import problems
from hetsched.testing.profiles import examples

plain = {
    "inputs": 1,
    "communication": "delay",
    "memory": "static",
    "tight": False,
    "absent": False,
    "pins": False,
    "missing_links": False,
    "transfers": False,
}
tiny = problems(n_tasks=st.integers(1, 7), colocation=False, **plain)


def chain(n, *, memory, weight=1.0, devices=3, seconds=1.0, size=1.0, **arguments):
    graph = hs.TaskGraph(
        [f"t{i}" for i in range(n)], [(f"t{i}", f"t{i + 1}", size) for i in range(n - 1)], weight_bytes=weight, **arguments
    )
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=memory) for k in range(devices)], bandwidth=1.0)
    return hs.Problem(graph, cluster, durations=np.full((n, devices), seconds))


# ---------------------------------------------------------------------- Celeritas


def test_order_place_fills_one_device_after_another():
    schedule = hs.solve(chain(6, memory=2.5), "order-place", options={"memory": 0.5}).schedule
    assert [schedule.device_of(f"t{i}") for i in range(6)] == ["d0", "d0", "d1", "d1", "d2", "d2"]


def test_adjusting_leaves_a_device_only_for_a_start_earlier_by_more_than_the_transfer_back():
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "c", 4.0), ("b", "c", 4.0)])
    for gain, devices in ((5.0, ["d0", "d1"]), (4.0, ["d0", "d0"])):
        problem = hs.Problem(graph, hs.Cluster(["d0", "d1"], bandwidth=1.0), durations=np.tile([[gain], [gain], [1.0]], (1, 2)))
        monitor = hs.Monitor(problem)
        celeritas.adjusting(problem, monitor)
        assert [monitor.best.device_of(name) for name in "ab"] == devices


@given(tiny)
def test_adjusting_follows_algorithm_2(problem):
    monitor = hs.Monitor(problem)
    celeritas.adjusting(problem, monitor)
    graph, device, start, finish, slots = problem.graph, {}, {}, {}, {k: [] for k in range(problem.n_devices)}
    transfer, before = mean_transfers(problem), None
    from hetsched.coarsening import topological_order

    for i in topological_order(problem).tolist():
        back = max((transfer[e] for e in graph.succ_edge[graph.succ_ptr[i] : graph.succ_ptr[i + 1]]), default=0.0)
        est = {}
        for k in range(problem.n_devices):
            ready = 0.0
            for x in range(graph.pred_ptr[i], graph.pred_ptr[i + 1]):
                j, e = int(graph.pred[x]), int(graph.pred_edge[x])
                ready = max(ready, finish[j] + float(problem.transfer_times(e, device[j], k)))
            est[k] = first_slot(slots[k], ready, problem.durations[i, k, 0])
        best = min(est, key=lambda k: (est[k], k))
        if before is not None and not est[before] > est[best] + back:
            best = before
        device[i], start[i], before = best, est[best], best
        finish[i] = est[best] + problem.durations[i, best, 0]
        if finish[i] > start[i]:
            slots[best].append((start[i], finish[i]))
    for i, name in enumerate(graph.names):
        assert monitor.best.device_of(name) == problem.cluster.names[device[i]]


@pytest.mark.slow
@given(problems(n_tasks=st.integers(1, 10), colocation=True, **plain), st.sampled_from(["celeritas", "order-place"]), st.integers(1, 4))
def test_co_located_tasks_follow_the_first_that_is_placed(problem, method, window):
    free = problem.replace(
        graph=problem.graph.replace(colocation=None), durations=np.where(problem.eligible[:, :, None], problem.durations, np.nan)
    )
    options = {"window": window}
    alone, together = (hs.solve(each, method, options=options).schedule for each in (free, problem))
    fused = coarsening.operation_fusion(free, window=window)
    position = {c: x for x, c in enumerate(coarsening.topological_order(fused.coarse).tolist())}
    chosen = {}
    for _, _, i in sorted((position[fused.cluster[i]], x, i) for x, i in enumerate(problem.graph.topological_order.tolist())):
        chosen.setdefault(problem.unit[i], alone.device_of(problem.graph.names[i]))
    for i, name in enumerate(problem.graph.names):
        assert together.device_of(name) == chosen[problem.unit[i]]
    assert hs.verify(problem, together) == []


def test_labels_do_not_divide_clusters_and_the_memory_is_repaired():
    """Two clusters fill one device each, but a label draws the last task to the first device, which lacks the memory for it."""
    problem = chain(4, memory=3.0, devices=2, colocation=["x", None, None, "x"], weight=[1.0, 1.0, 1.0, 2.0])
    solution = hs.solve(problem, "order-place", options={"window": 2, "memory": 1.0})
    devices = [solution.schedule.device_of(f"t{i}") for i in range(4)]
    assert devices[0] == devices[3]
    assert hs.verify(problem, solution.schedule) == []
    assert any("4 bytes on 'd0', 1 more than there are" in message for message in solution.messages)


def first_slot(taken, ready, length):
    """Return the earliest start, `ready` or later, in a gap between intervals that is long enough."""
    if length == 0:
        return ready
    at = ready
    for begin, end in sorted(taken):
        if at + length <= begin:
            break
        at = max(at, end)
    return at


def test_adjusting_can_be_worse_than_order_place():
    """The paper claims the contrary, but its proof considers the start of one task and not those after it."""
    edges = [("a", "d", 3), ("a", "e", 3), ("b", "d", 2), ("c", "d", 3), ("c", "f", 0), ("d", "e", 3), ("e", "f", 3)]
    problem = hs.Problem(
        hs.TaskGraph("abcdef", edges), hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.tile([[3.0], [2], [2], [1], [2], [4]], (1, 2))
    )
    adjusted, filled = hs.Monitor(problem), hs.Monitor(problem)
    celeritas.adjusting(problem, adjusted)
    celeritas.filling(problem, filled)
    assert (adjusted.incumbent, filled.incumbent) == (15.0, 14.0)


# ---------------------------------------------------------------------- over capacity


@pytest.mark.parametrize(
    "method", ["celeritas", "order-place", "dfs-topo", "m-topo", "m-etf", "m-sct", "block", "dsc", "linear-clustering", "metis"]
)
def test_what_is_over_capacity_is_a_best_effort_and_no_schedule(method, tmp_path):
    problem = chain(4, memory=3.0, weight=2.0)  # each of the three devices holds one task
    solution = hs.solve(problem, method)
    assert solution.schedule is None
    assert solution.status in ("infeasible", "unknown")
    effort = solution.best_effort
    assert effort is not None
    assert {violation.rule for violation in effort.violations} == {"memory"}
    assert effort.bytes_over >= 1.0
    assert hs.verify(problem, effort.schedule) == list(effort.violations)
    solution.write(tmp_path / "solution.json")
    assert hs.read(tmp_path / "solution.json") == solution


def test_a_best_effort_is_reported_unless_a_schedule_is_found():
    problem = chain(4, memory=2.5, devices=2)
    blocked = hs.solve(problem, "best-device")
    assert blocked.schedule is None
    assert blocked.best_effort.bytes_over == 1.5
    with pytest.raises(hs.HetschedError, match=r"solution.best_effort is 1.5 bytes over the available memory"):
        blocked.raise_for_status()
    assert hs.solve(problem, ["best-device", "order-place"]).best_effort is None


def test_memory_of_the_first_member_alone_ends_over_capacity_as_in_baechi():
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b", 9.0), ("b", "c", 9.0)], weight_bytes=[1, 3, 4], colocation=["x", None, "x"])
    cluster = hs.Cluster([hs.Device("small", memory_bytes=4), hs.Device("large", memory_bytes=8)], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((3, 2)))
    for method in ("m-topo", "m-etf", "m-sct"):
        first, all_members = hs.solve(problem, method, options={"claims": "first"}), hs.solve(problem, method)
        assert first.schedule is None
        assert first.best_effort.bytes_over == 4.0
        assert all_members.schedule.device_of("a") == all_members.schedule.device_of("c") == "large"


# ---------------------------------------------------------------------- Baechi


@given(tiny)
@examples(25)
def test_a_task_has_at_most_one_favourite_child_and_a_child_one_parent(problem):
    for solver in ("scip", "highs"):
        favourite = baechi.favourite_children(problem, hs.Monitor(problem), solver)
        edges = set(map(tuple, problem.graph.edges.tolist()))
        chosen = [(i, j) for i, j in enumerate(favourite.tolist()) if j >= 0]
        assert set(chosen) <= edges
        assert len({j for _, j in chosen}) == len(chosen)


def test_the_favourite_child_is_the_one_whose_transfer_costs_most():
    graph = hs.TaskGraph("abc", [("a", "b", 9.0), ("a", "c", 1.0)])
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.ones((3, 2)))
    assert baechi.favourite_children(problem, hs.Monitor(problem), "scip").tolist() == [1, -1, -1]


@given(problems(n_tasks=st.integers(1, 12), colocation=st.booleans(), **plain), st.data())
def test_a_device_is_kept_for_the_favourite_child_and_memory_is_exceeded_where_most_is_left(problem, data):
    graph, n, size, units = problem.graph, problem.n_tasks, problem.n_devices, problem.unit
    favourite, taken = np.full(n, -1), set()
    for i in range(n):
        children = [j for j in graph.succ[graph.succ_ptr[i] : graph.succ_ptr[i + 1]].tolist() if j not in taken]
        if children and data.draw(st.booleans()):
            favourite[i] = data.draw(st.sampled_from(children))
            taken.add(int(favourite[i]))
    need = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=problem.n_units, max_size=problem.n_units)))
    room = np.array(data.draw(st.lists(st.sampled_from([1.0, 3.0, np.inf]), min_size=size, max_size=size)))
    claims, pairs = list_problem(problem, need)._replace(capacity=readonly(room)), pair_kernels.Pairs.begin(units, need, size)
    choice, order = dynamic_kernels.Choice(dynamic_kernels.ETF, np.empty((0, 0)), np.empty(0)), one_order(np.zeros(n), size, waits=True)
    reservations = placement_kernels.Reservations(favourite, np.full(size, -1))

    def work(state, most):
        return placement_kernels.small_communication(claims, choice, order, state, pairs, reservations, most)

    device, sequence, stuck = in_slices(work, dynamic_kernels.Choosing.begin(n, size, problem.n_units), NEVER, "")
    assert stuck < 0
    placed, finish, free, last = {}, {}, [0.0] * size, [-1] * size
    bound, used, waiting = {}, np.zeros(size), np.diff(graph.pred_ptr)

    def arrival(i, k):
        rows = [(int(graph.pred[x]), graph.pred_edge[x]) for x in range(graph.pred_ptr[i], graph.pred_ptr[i + 1])]
        return max((finish[j] + float(problem.transfer_times(e, placed[j], k)) for j, e in rows), default=0.0)

    def fits(pair):
        _, j, k = pair
        return units[j] in bound or used[k] + need[units[j]] <= room[k]

    def allowed(pair):
        _, j, k = pair
        kept = favourite[last[k]] if last[k] >= 0 else -1
        return kept in (-1, j) or kept in placed or arrival(j, k) <= free[k]

    ready = np.flatnonzero(waiting == 0).tolist()
    for i in sequence.tolist():
        able = [(j, k) for j in ready for k in range(size) if bound.get(units[j], k) == k]
        starts = [(max(arrival(j, k), free[k]), j, k) for j, k in able]
        within = [pair for pair in starts if fits(pair)]
        chosen = min([pair for pair in within if allowed(pair)] or within, default=None)
        j, k = max(able, key=lambda pair: room[pair[1]] - used[pair[1]]) if chosen is None else chosen[1:]
        assert (i, device[i]) == (j, k)
        placed[i], finish[i], last[k] = k, max(arrival(i, k), free[k]) + problem.durations[i, k, 0], i
        free[k] = finish[i]
        if units[i] not in bound:
            bound[units[i]] = k
            used[k] += need[units[i]]
        moved = ready.pop()  # the last ready task takes the place of the one that is chosen
        if moved != i:
            ready[ready.index(i)] = moved
        for child in graph.succ[graph.succ_ptr[i] : graph.succ_ptr[i + 1]].tolist():
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)


class Offered(Monitor):
    """A monitor that keeps the first decision and regards it as a schedule."""

    decision: hs.Decision | None = None

    def offer(self, decision: hs.Decision) -> float:
        self.decision = self.decision or decision
        return 0.0


def offered(problem: hs.Problem) -> list[tuple[int, int]]:
    """Return the first decision of m-etf: tasks and devices, those of a device in the order of choice."""
    monitor = Offered(problem)
    baechi.m_etf(problem, monitor)
    return list(zip(monitor.decision.task.tolist(), monitor.decision.device.tolist(), strict=True))


def test_co_located_tasks_join_the_first_where_it_exceeds_memory():
    graph = hs.TaskGraph(["a", "b", "e"], [("a", "e")], weight_bytes=[3.0, 2.0, 0.0], colocation=["u", "u", "u"])
    cluster = hs.Cluster([hs.Device("d0", memory_bytes=1.0), hs.Device("d1", memory_bytes=1.0)], bandwidth=1.0)
    # After a, both b and e may be the second on d0; b is the lower task.
    assert offered(hs.Problem(graph, cluster, durations=np.ones((3, 2)))) == [(0, 0), (1, 0), (2, 0)]


def test_the_first_task_over_memory_is_one_that_can_run_where_most_is_left():
    graph = hs.TaskGraph(["x", "y", "z"], [], weight_bytes=5.0)
    cluster = hs.Cluster([hs.Device("d0", memory_bytes=1.0), hs.Device("d1", memory_bytes=2.0)], bandwidth=1.0)
    chosen = offered(hs.Problem(graph, cluster, durations=[[1.0, np.nan], [1.0, 1.0], [1.0, 1.0]]))
    assert [i for i, k in chosen if k == 1] == [1, 2]  # z would be first if x were chosen before y


def test_m_topo_takes_equal_shares_of_memory():
    schedule = hs.solve(chain(9, memory=100.0), "m-topo").schedule
    assert np.bincount(schedule.batches.device).tolist() == [4, 4, 1]  # at most 9 / 3 + 1 each


def test_dfs_topo_keeps_branches_together_where_m_topo_cuts_them():
    """Celeritas, Figure 3: two devices, each with room for half of the tasks of two chains."""
    graph = hs.TaskGraph("aAbBcC", [("a", "b", 9.0), ("b", "c", 9.0), ("A", "B", 9.0), ("B", "C", 9.0)], weight_bytes=1.0)
    cluster = hs.Cluster([hs.Device(name, memory_bytes=3.0) for name in "uv"], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((6, 2)))
    together, apart = (hs.solve(problem, method).schedule for method in ("dfs-topo", "m-topo"))
    assert len(together.transfers) == 0
    assert together.makespan == 3.0
    assert len(apart.transfers) > 0


def test_metis_refuses_what_it_cannot_cut():
    pytest.importorskip("pymetis")
    solution = hs.solve(chain(3, memory=math.inf, devices=8), "metis")
    assert solution.schedule is not None
    assert any("METIS cuts only graphs of more tasks than devices" in message for message in solution.messages)


@pytest.mark.slow
def test_output_of_metis_is_not_printed():
    """One task has nearly all the work, so METIS prints a warning about empty parts, which no option suppresses."""
    pytest.importorskip("pymetis")
    code = (
        "import hetsched as hs; problem = hs.Problem(hs.TaskGraph(list('abcdefgh')), hs.Cluster(list('1234567'), bandwidth=1.0),"
        "durations=[[1000] * 7] + [[1] * 7] * 7); assert hs.solve(problem, 'metis').schedule is not None"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # C may buffer output until the process ends
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_metis_that_dies_is_reported(monkeypatch):
    pytest.importorskip("pymetis")
    monkeypatch.setattr(partitions, "_METIS", "raise MemoryError('no more')")
    with pytest.raises(UnsupportedFeature, match="METIS ended with exit code 1: MemoryError: no more; choose another method"):
        hs.solve(chain(9, memory=math.inf), "metis")


def test_missing_memory_is_explained_in_a_large_graph():
    n = 4000
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], weight_bytes=1.0)
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=n / 4 - 1) for k in range(4)], bandwidth=1.0)
    solution = hs.solve(hs.Problem(graph, cluster, durations=np.ones((n, 4))), "heft")
    assert solution.status == "infeasible"
    assert "of its capacity" in solution.proof.evidence


# ---------------------------------------------------------------------- clusters and partitions


@given(tiny)
def test_linear_clusters_are_longest_paths_of_what_is_left(problem):
    graph, weight, transfer = problem.graph, mean_durations(problem), mean_transfers(problem)
    clusters = placement_kernels.linear_clusters(problem.arrays, graph.topological_order, weight, transfer)
    left = set(range(graph.n_tasks))
    for number in range(int(clusters.max()) + 1):
        members = [i for i in graph.topological_order.tolist() if clusters[i] == number]
        longest = {}
        for i in graph.topological_order.tolist()[::-1]:
            if i in left:
                rows = range(graph.succ_ptr[i], graph.succ_ptr[i + 1])
                longest[i] = weight[i] + max(
                    (transfer[graph.succ_edge[x]] + longest[graph.succ[x]] for x in rows if graph.succ[x] in left), default=0.0
                )
        edges = {(i, j): transfer[e] for e, (i, j) in enumerate(graph.edges.tolist())}
        length = sum(weight[members]) + sum(edges[pair] for pair in itertools.pairwise(members))
        assert length == pytest.approx(max(longest.values()))
        left -= set(members)
    assert not left


@given(tiny)
def test_dominant_sequences_never_start_a_task_later_than_alone(problem):
    from hetsched.analysis import ranking_kernels

    graph, weight, transfer = problem.graph, mean_durations(problem), mean_transfers(problem)
    below = ranking_kernels.upward(problem.arrays, graph.topological_order, weight, transfer)
    cluster, begin = placement_kernels.dominant_sequence(problem.arrays, weight, transfer, below)
    assert sorted(set(cluster.tolist())) == list(range(len(begin)))
    alone = float((below + ranking_kernels.downward(problem.arrays, graph.topological_order, weight, transfer)).max())
    clusters = hs.Cluster([f"d{k}" for k in range(len(begin))], bandwidth=math.inf)
    wide = np.zeros((graph.n_edges, len(begin), len(begin))) + transfer[:, None, None]
    wide[:, np.arange(len(begin)), np.arange(len(begin))] = 0.0
    unlimited = hs.Problem(graph.replace(devices=None), clusters, durations=np.tile(weight[:, None], (1, len(begin))), transfers=wide)
    monitor = hs.Monitor(unlimited)
    offers.offer_devices(monitor, cluster)
    assert monitor.incumbent <= alone * len(weight) + 1e-9  # a device for each cluster; list scheduling may add delays, but bounded ones
    assert begin.min() >= 0


def test_dsc_zeroes_the_dominant_edge():
    graph = hs.TaskGraph("abc", [("a", "c", 9.0), ("b", "c", 1.0)])
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.ones((3, 2)))
    schedule = hs.solve(problem, "dsc").schedule
    assert schedule.makespan == 3.0
    assert schedule.device_of("a") == schedule.device_of("c") != schedule.device_of("b")


def test_dominant_sequences_with_longer_transfers_are_longer():
    graph = hs.TaskGraph("abc", [("a", "c", 1.0), ("b", "c", 0.5)])
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.ones((3, 2)))
    chain = hs.TaskGraph("abc", [("a", "b", 0.5), ("a", "c", 0.5)])
    forked = problem.replace(graph=chain)
    assert [len(np.unique(dominant_sequences(forked, factor)[0])) for factor in (0.1, 4.0)] == [2, 1]
    assert len(np.unique(dominant_sequences(problem)[0])) == 2


def test_blocks_are_of_work_in_proportion_to_speed():
    graph = hs.TaskGraph([f"t{i}" for i in range(12)], [(f"t{i}", f"t{i + 1}", 1.0) for i in range(11)])
    problem = hs.Problem(graph, hs.Cluster(["slow", "fast"], bandwidth=1.0), durations=np.tile([2.0, 1.0], (12, 1)))
    assert offers.shares(problem).tolist() == pytest.approx([1 / 3, 2 / 3])
    schedule = hs.solve(problem, "block").schedule
    assert [schedule.device_of(f"t{i}") for i in range(12)] == ["fast"] * 8 + ["slow"] * 4


def test_repartition_moves_a_task_to_what_it_reads():
    # two chains, interleaved by the breadth-first order: blocks cut both, moves put each on one device
    edges = [(f"{c}{i}", f"{c}{i + 1}", 5.0) for c in "ab" for i in range(4)]
    graph = hs.TaskGraph([f"{c}{i}" for i in range(5) for c in "ab"], edges)
    problem = hs.Problem(graph, hs.Cluster(["u", "v"], bandwidth=1.0), durations=np.ones((10, 2)))
    before, after = hs.solve(problem, "block"), hs.solve(problem, "repartition", options={"slack": 0.4})
    assert (before.makespan, after.makespan) == (10.0, 5.0) or after.makespan < before.makespan


@given(problems(n_tasks=st.integers(1, 9), colocation=st.booleans(), **plain), st.sampled_from([0.0, 0.2, 1.0]), st.data())
def test_a_pass_of_repartitioning_follows_the_paper(problem, slack, data):
    """The pass beside the paper's conditions in plain Python: D, the balance of the receiving and of the giving device."""
    graph, unit, size = problem.graph, problem.unit, problem.n_devices
    cost = unit_sums(problem, problem.whole_durations)
    before = partitions.drawn(problem, np.random.default_rng(data.draw(st.integers(0, 99))))
    order = np.array(data.draw(st.lists(st.sampled_from(range(problem.n_units)), unique=True)), np.int64)
    members = placement_kernels.Members(unit, row_starts(np.bincount(unit, minlength=problem.n_units)), np.argsort(unit, kind="stable"))
    partition = placement_kernels.partition(before, cost, order)
    ideal = float(partition.load.mean())
    balance = placement_kernels.Balance(cost, ideal, slack * ideal)
    moved = placement_kernels.repartition(problem.arrays, order, members, graph.edge_bytes, balance, partition)

    device, load = before.tolist(), [sum(cost[u, k] for u in order if before[u] == k) for k in range(size)]
    for u in order.tolist():
        into = [
            (device[unit[i]], size_)
            for (i, j), size_ in zip(graph.edges.tolist(), graph.edge_bytes, strict=True)
            if unit[j] == u != unit[i]
        ]
        communication = [sum(w if k != r else -w for k, w in into) for r in range(size)]
        q, others = device[u], [r for r in range(size) if r != device[u] and cost[u, r] < np.inf]
        left = load[q] - cost[u, q]
        closer = [
            r
            for r in others
            if communication[r] < communication[q] and load[r] + cost[u, r] - ideal <= slack * ideal and ideal - left <= slack * ideal
        ]
        balancing = [r for r in others if left > ideal and load[r] + cost[u, r] < ideal]
        if closer or balancing:
            device[u] = min(closer or balancing, key=communication.__getitem__)
            load[q] = left
            load[device[u]] += cost[u, device[u]]
    assert partition.device.tolist() == device
    assert moved == (partition.device != before).sum()
    assert partition.load.tolist() == pytest.approx(load)


@given(problems(n_tasks=st.integers(1, 9), colocation=st.booleans(), **plain), st.data())
def test_cheap_tasks_follow_their_neighbours(problem, data):
    graph, unit, size = problem.graph, problem.unit, problem.n_devices
    cost = unit_sums(problem, problem.whole_durations)
    others = np.array(data.draw(st.lists(st.sampled_from(range(problem.n_units)), unique=True)), np.int64)
    device = partitions.drawn(problem, np.random.default_rng(0))
    device[others] = -1
    members = placement_kernels.Members(unit, row_starts(np.bincount(unit, minlength=problem.n_units)), np.argsort(unit, kind="stable"))
    placed = placement_kernels.partition(device, cost, np.flatnonzero(device >= 0))
    expected = device.tolist()
    placement_kernels.follow(problem.arrays, others, members, graph.edge_bytes, cost, placed)
    for u in others.tolist():
        near = [0.0] * size
        for (i, j), weight in zip(graph.edges.tolist(), graph.edge_bytes, strict=True):
            for one, other in ((unit[i], unit[j]), (unit[j], unit[i])):
                if one == u != other and expected[other] >= 0:
                    near[expected[other]] += weight
        expected[u] = int(placed.device[u])
        assert near[expected[u]] == max(near[k] for k in range(size) if cost[u, k] < np.inf)


def test_expensive_tasks_have_the_given_share_of_the_work():
    work = np.array([1.0, 5.0, 3.0, 1.0, 10.0])
    alone = np.array([True, True, True, True, False])
    assert repartition._expensive(work, alone, 0.8).tolist() == [1, 2]
    assert repartition._expensive(work, alone, 1.0).tolist() == [0, 1, 2, 3]
    assert repartition._expensive(work, np.zeros(5, bool), 0.5).tolist() == [4]


@pytest.mark.parametrize("options", [{"start": "random"}, {"expensive": 0.5}, {"expensive": 1.0, "passes": 0}])
def test_repartition_with_options_gives_valid_schedules(options):
    graph = hs.workloads.rwnn("er", 32)
    problem = hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())
    first, second = (hs.solve(problem, "repartition", options=options, seed=seed).schedule for seed in (0, 0))
    assert first == second
    assert hs.verify(problem, first) == []


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("m-etf", {"claims": "none"}, "claims is 'none'; choose 'all' or 'first'"),
        ("repartition", {"slack": -1}, "slack is -1; it must be a share of the ideal load, at least 0"),
        ("repartition", {"start": "metis"}, "start is 'metis'; choose 'block' or 'random'"),
        ("repartition", {"expensive": 0}, "expensive is 0; it must be a share of the work, above 0, at most 1"),
        ("repartition", {"passes": 1.5}, "passes is 1.5; it must be a whole number, at least 0"),
        ("celeritas", {"window": 0}, "window is 0; it must be a whole number, at least 1"),
        ("multilevel", {"tasks": 0}, "tasks is 0; it must be a whole number, at least 1"),
    ],
)
def test_messages(method, options, message):
    with pytest.raises(UnsupportedFeature, match=message):
        hs.solve(chain(3, memory=math.inf), method, options=options)


def test_metis_is_ended_with_the_time(monkeypatch):
    pytest.importorskip("pymetis")
    monkeypatch.setattr(partitions, "_METIS", "import time; time.sleep(600)")
    monkeypatch.setattr(partitions, "GRACE", 0.0)
    solution = hs.solve(chain(9, memory=100.0), "metis", time_limit=0.5)
    assert solution.stopped == "time limit"
    assert "metis: METIS was not done when the time limit was reached; allow more time" in solution.messages
