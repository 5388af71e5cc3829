"""Dynamic list schedulers against a comparison of all ready tasks and devices at each step, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs
from hetsched.analysis import ranking_kernels
from hetsched.compiled import interpreter
from hetsched.heuristics.list_scheduling import pair_kernels
from hetsched.heuristics.list_scheduling.dynamic import one_order
from hetsched.heuristics.list_scheduling.static import static_level

RULES = ("etf", "dls", "bil", "min-min", "max-min", "sufferage")
SLACK = 1 + 1e-9


class Steps:
    """The choices of a rule among all pairs of a ready task and a device, by the definitions."""

    def __init__(self, problem: hs.Problem, rule: str) -> None:
        self.problem, self.rule, self.durations = problem, rule, problem.whole_durations
        finite = np.where(np.isinf(self.durations), np.nan, self.durations)
        self.median = np.median(self.durations, axis=1)
        self.median = np.where(np.isinf(self.median), np.nanmax(finite, axis=1), self.median)
        self.level = static_level(problem, self.median if rule == "dls" else None)
        order = problem.graph.topological_order
        self.imaginary = ranking_kernels.imaginary_levels(problem.arrays, order, self.durations)
        self.bound = np.full(problem.n_units, -1)
        self.used, self.free = np.zeros(problem.n_devices), np.zeros(problem.n_devices)
        self.need = np.bincount(problem.unit, problem.graph.weight_bytes, problem.n_units)

    def starts(self, i: int, arrival: list[float]) -> dict[int, float]:
        """Return the start of a task on each device that is admissible for it."""
        unit, result = self.problem.unit[i], {}
        for k, there in enumerate(arrival):
            room = self.bound[unit] == k or (
                self.bound[unit] < 0 and self.used[k] + self.need[unit] <= self.problem.cluster.memory_bytes[k] * SLACK
            )
            if np.isfinite(self.durations[i, k]) and np.isfinite(there) and room:
                result[k] = there if self.durations[i, k] == 0 else max(there, self.free[k])
        return result

    def key(self, i: int, starts: dict[int, float], n_ready: int) -> tuple[tuple[float, ...], int]:
        """Return the key of a task, the greatest of which is selected, and its device."""
        durations, crowd = self.durations[i], max(n_ready / len(self.free) - 1, 0.0)
        values = {
            k: -start
            if self.rule == "etf"
            else self.level[i] - start + (self.median[i] - durations[k])
            if self.rule == "dls"
            else -(start + self.imaginary[i, k] + durations[k] * crowd)
            if self.rule == "bil"
            else -(start + durations[k])
            for k, start in starts.items()
        }
        best = max(values, key=lambda k: (values[k], -k))
        second = max((value for k, value in values.items() if k != best), default=-np.inf)
        if self.rule == "bil":
            makespans = sorted(start + self.imaginary[i, k] for k, start in starts.items())
            return (makespans[min(n_ready, len(makespans)) - 1], -i), best
        if self.rule == "max-min":
            return (-values[best], -i), best
        if self.rule == "sufferage":
            return (values[best] - second, -i), best
        return (values[best], self.level[i] if self.rule == "etf" else 0.0, -i), best

    def run(self) -> tuple[list[tuple[int, int]], int | None]:
        """Return the pairs in the order of choice, and the first ready task that fits nowhere, if any.

        The last ready task replaces the one that is chosen.
        """
        problem, graph = self.problem, self.problem.graph
        waiting = np.diff(graph.pred_ptr)
        device, finish = np.full(problem.n_tasks, -1), np.zeros(problem.n_tasks)

        def arrival(i: int) -> list[float]:
            there = np.zeros(problem.n_devices)
            for x in range(graph.pred_ptr[i], graph.pred_ptr[i + 1]):
                h, amount = device[graph.pred[x]], problem.links.edge_bytes[graph.pred_edge[x]]
                there = np.maximum(there, finish[graph.pred[x]] + (problem.links.latency[h] + amount / problem.links.bandwidth[h]))
            return there.tolist()

        ready = np.flatnonzero(waiting == 0).tolist()
        there = {i: arrival(i) for i in ready}
        chosen: list[tuple[int, int]] = []
        while ready:
            starts = {i: self.starts(i, there[i]) for i in ready}
            if not all(starts.values()):
                return chosen, next(i for i, own in starts.items() if not own)
            keys = {i: self.key(i, own, len(ready)) for i, own in starts.items()}
            i = max(keys, key=lambda i: keys[i][0])
            k = keys[i][1]
            chosen.append((i, k))
            device[i], finish[i] = k, starts[i][k] + self.durations[i, k]
            if self.durations[i, k] > 0:
                self.free[k] = finish[i]
            if self.bound[problem.unit[i]] < 0:
                self.bound[problem.unit[i]] = k
                self.used[k] += self.need[problem.unit[i]]
            last = ready.pop()
            if last != i:
                ready[ready.index(i)] = last
            for j in graph.succ[graph.succ_ptr[i] : graph.succ_ptr[i + 1]].tolist():
                waiting[j] -= 1
                if waiting[j] == 0:
                    ready.append(j)
                    there[j] = arrival(j)
        return chosen, None


def problem_of(seed: int) -> hs.Problem | None:
    """Return a random problem with many ready tasks, and ties that depend on rounding; None if it has no valid assignment."""
    rng = np.random.default_rng(seed)
    n, size = int(rng.integers(4, 70)), int(rng.integers(1, 5))
    values = [
        np.arange(4.0),
        np.arange(1, 12) * 0.1,
        np.array([0.1, 0.2, 0.1 + 0.2, 0.3, 0.7, 0.1 + 0.7, 0.8]),
        rng.random(3),
        rng.random(400) * 10.0 ** rng.integers(-3, 4),
    ][rng.integers(5)]
    density = rng.choice([0.0, 0.3, 1.0, 3.0])
    edges = [(f"t{i}", f"t{j}", rng.choice(values)) for j in range(n) for i in {*rng.integers(0, max(j, 1), rng.poisson(density))} - {j}]
    colocation = [f"c{rng.integers(n // 3, n)}" for _ in range(n)] if rng.random() < 0.4 else None
    weight = rng.choice([1.0, 0.0]) * rng.choice(values, n)
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], edges, weight_bytes=weight, colocation=colocation)
    durations = rng.choice(values, (n, size))
    if rng.random() < 0.4:
        durations[rng.random((n, size)) < 0.25] = np.nan
    bandwidth = rng.choice([0.5, 1.0, 3.0, 1 / 3], (size, size))
    if rng.random() < 0.5:
        bandwidth[rng.random((size, size)) < 0.4] = 0.0
    np.fill_diagonal(bandwidth, np.inf)
    room = weight.sum() * rng.choice([np.inf, 1.3 / size, 1.05 / size, 1.0 / size]) if weight.any() else np.inf
    cluster = hs.Cluster([hs.Device(f"d{k}", memory_bytes=room) for k in range(size)], bandwidth=bandwidth, latency=rng.choice([0.0, 0.1]))
    try:
        return hs.Problem(graph, cluster, durations=durations)
    except hs.InvalidProblem:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_each_step_takes_the_best_of_all_pairs(rule):
    placed = refused = 0
    for seed in range(60):
        problem = problem_of(seed)
        if problem is None:
            continue
        chosen, stuck = Steps(problem, rule).run()
        monitor = hs.Monitor(problem)
        monitor.attempt(rule)
        if stuck is not None:
            refused += 1
            assert monitor.best is None
            assert f"found no place for task 't{stuck}'" in " ".join(monitor.solution(rule).messages), seed
        elif monitor.best is not None:  # None where static memory counts more than the weights
            placed += 1
            decision = monitor.best.decision
            device = dict(zip(decision.task.tolist(), decision.device.tolist(), strict=True))
            assert device == dict(chosen), seed
            for k in range(problem.n_devices):
                here = [i for i in decision.task.tolist() if device[i] == k]
                assert here == [i for i, other in chosen if other == k], seed
    assert placed > 20
    assert refused >= 3


def test_a_set_of_positions_finds_the_next_member():
    rng = np.random.default_rng(0)
    for n in (1, 31, 32, 33, 1024, 1025, 40_000):
        pairs = pair_kernels.Pairs.begin(np.arange(n), np.zeros(n), 2)
        members = set(rng.integers(0, n, 40).tolist())
        with interpreter():
            for place in members:
                pair_kernels._include(pairs, 1, place)
            for place in [*rng.integers(0, n, 20).tolist(), min(members), max(members)]:
                pair_kernels._exclude(pairs, 1, place)
                members.discard(place)
            for place in [*rng.integers(0, n, 50).tolist(), 0, n]:
                found = pair_kernels._next(pairs, 1, place)
                assert found == min((member for member in members if member >= place), default=-1)
                assert pair_kernels._next(pairs, 0, place) == -1


def test_one_order_puts_the_lower_task_first_among_equals():
    order = one_order(np.array([1.0, 3.0, 1.0, 3.0]), 2, waits=False)
    assert order.task.tolist() == [[1, 3, 0, 2]]
    assert order.place.tolist() == [[2, 0, 3, 1]]
