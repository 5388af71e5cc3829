"""List schedulers that plan transfers, against edge scheduling in plain Python, by its definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.arrays import readonly
from hetsched.heuristics.list_scheduling import dynamic, dynamic_kernels, static_kernels
from hetsched.heuristics.list_scheduling.kernels import Placed
from hetsched.heuristics.list_scheduling.offers import decision_of, in_slices, list_problem, plans
from hetsched.heuristics.list_scheduling.static import ranks, static_level
from hetsched.heuristics.list_scheduling.transfer_kernels import Transfers, new_transfers
from hetsched.heuristics.placement import kernels as placement_kernels
from hetsched.problem.links import CONTENDED, MODELS
from hetsched.stopping import NEVER
from hetsched.testing import problems
from hetsched.testing.profiles import examples

CLEAR = {"inputs": 1, "memory": "static", "tight": False, "colocation": False, "missing_links": False}
PLANNING = ("heft", "cpop", "peft", "hlfet", "mcp", "etf", "dls", "bil", "min-min", "max-min", "sufferage")
PLANNING += ("met", "mct", "olb", "greedy", "m-etf", "m-sct")
contended = st.sampled_from(CONTENDED)


class Plan:
    """Tasks and transfers with the times that they have been given, by the definition of edge scheduling."""

    def __init__(self, problem: hs.Problem) -> None:
        self.problem = problem
        self.device: dict[int, int] = {}
        self.finish: dict[int, float] = {}
        self.busy: dict[int, list[tuple[float, float]]] = {k: [] for k in range(problem.n_devices)}
        self.held: dict[int, list[tuple[float, float]]] = {}
        self.transfers: dict[int, float] = {}

    @property
    def ready(self) -> list[int]:
        """The tasks whose parents all have times, and that have none."""
        graph = self.problem.graph
        parents = {i: graph.pred[graph.pred_ptr[i] : graph.pred_ptr[i + 1]].tolist() for i in range(graph.n_tasks)}
        return [i for i in parents if i not in self.finish and all(j in self.finish for j in parents[i])]

    def arrival(self, i: int, k: int) -> tuple[float, dict[int, tuple[float, float]]]:
        """Return when all data of task i are on device k, and the start and the end of each transfer that takes time, by edge."""
        graph, there = self.problem.graph, 0.0
        rows = [(self.finish[int(graph.source[e])], e) for e in np.flatnonzero(graph.target == i).tolist()]
        planned: dict[int, tuple[float, float]] = {}
        held = {resource: list(intervals) for resource, intervals in self.held.items()}
        for done, e in sorted(rows):
            h = self.device[int(graph.source[e])]
            seconds = float(self.problem.transfer_times(e, h, k))
            start = done
            if seconds > 0:
                both = [interval for r in self.resources(h, k) for interval in held.get(r, [])]
                # The earliest start is the finish of the parent or the end of another transfer.
                starts = [done, *(end for _, end in both if end > done)]
                start = min(s for s in starts if all(s + seconds <= begin or s >= end for begin, end in both))
                planned[e] = start, start + seconds
                for r in self.resources(h, k):
                    held.setdefault(r, []).append(planned[e])
            there = max(there, start + seconds)
        return there, planned

    def resources(self, h: int, k: int) -> set[int]:
        """Return what a transfer from device h to k holds."""
        return set(self.problem.links.resource[h, k].tolist()) - {-1}

    def start(self, i: int, k: int, *, insertion: bool, waits: bool = False) -> float:
        """Return when task i can start on device k."""
        there, length = self.arrival(i, k)[0], self.problem.whole_durations[i, k]
        if length == 0 and not waits:
            return there
        if not insertion:
            return max([there, *(end for _, end in self.busy[k])])
        starts = [there, *(end for _, end in self.busy[k] if end > there)]
        return min(s for s in starts if all(s + length <= begin or s >= end for begin, end in self.busy[k]))

    def put(self, i: int, k: int, start: float, *, waits: bool = False) -> None:
        """Give task i its times on device k, and its transfers theirs."""
        for e, interval in self.arrival(i, k)[1].items():
            self.transfers[e] = interval[0]
            for r in self.resources(self.device[int(self.problem.graph.source[e])], k):
                self.held.setdefault(r, []).append(interval)
        self.device[i], self.finish[i] = k, start + float(self.problem.whole_durations[i, k])
        if waits or self.finish[i] > start:
            self.busy[k].append((start, self.finish[i]))

    def able(self, i: int) -> Iterator[int]:
        """Return the devices that can run task i."""
        return iter(np.flatnonzero(np.isfinite(self.problem.whole_durations[i])).tolist())


def heft_by_the_book(problem: hs.Problem) -> Plan:
    plan, (rank, _) = Plan(problem), ranks(problem)
    while plan.ready:
        i = min(plan.ready, key=lambda i: (-rank[i], i))
        starts = {k: plan.start(i, k, insertion=True) for k in plan.able(i)}
        k = min(starts, key=lambda k: (starts[k] + problem.whole_durations[i, k], k))
        plan.put(i, k, starts[k])
    return plan


def choices_by_the_book(problem: hs.Problem, rule: int) -> Plan:
    """Return the plan of ETF, DLS with a median duration of 1, or Min-Min."""
    plan, level = Plan(problem), static_level(problem)

    def value(i: int, k: int) -> float:
        start, duration = plan.start(i, k, insertion=False), problem.whole_durations[i, k]
        if rule == dynamic_kernels.ETF:
            return -start
        return level[i] - start + (1.0 - duration) if rule == dynamic_kernels.DLS else -(start + duration)

    while plan.ready:
        values = {i: max((value(i, k), -k) for k in plan.able(i)) for i in plan.ready}
        i = min(values, key=lambda i: (-values[i][0], -level[i] if rule == dynamic_kernels.ETF else 0.0, i))
        k = -values[i][1]
        plan.put(i, k, plan.start(i, k, insertion=False))
    return plan


def m_sct_by_the_book(problem: hs.Problem, favourite: list[int]) -> Plan:
    plan, last = Plan(problem), {}

    def allowed(i: int, k: int) -> bool:
        kept = favourite[last[k]] if k in last else -1
        free = max((end for _, end in plan.busy[k]), default=0.0)
        return kept in (-1, i) or kept in plan.finish or plan.arrival(i, k)[0] <= free

    while plan.ready:
        pairs = [(plan.start(i, k, insertion=False, waits=True), i, k) for i in plan.ready for k in plan.able(i)]
        start, i, k = min([pair for pair in pairs if allowed(*pair[1:])] or pairs)
        plan.put(i, k, start, waits=True)
        last[k] = i
    return plan


def planned_heft(problem: hs.Problem, need: np.ndarray) -> tuple[Placed, np.ndarray, Transfers]:
    """Return the placement, the planned finish of each task, and the planned transfers of HEFT."""
    state, transfers = static_kernels.new_state(problem.n_tasks, problem.n_devices, problem.n_units), new_transfers(problem.arrays, False)
    rank, _ = ranks(problem)
    rule = static_kernels.Rule(static_kernels.FINISH, True, rank, np.empty((0, 0)), np.empty(0, np.int64))
    stuck = static_kernels.in_planned_order(list_problem(problem, need), rule, state, transfers)
    return (state.device, state.sequence, stuck), state.finish, transfers


def planned_choices(problem: hs.Problem, need: np.ndarray, rule: int) -> tuple[Placed, np.ndarray, Transfers]:
    """Return the same for a rule that compares all ready tasks, with the mean duration, and static levels, in the place of others."""
    n, size = problem.n_tasks, problem.n_devices
    level, transfers = static_level(problem)[:, None], new_transfers(problem.arrays, True)
    level = np.tile(level, size) if rule == dynamic_kernels.BIL else np.array(level)
    choice, state = dynamic_kernels.Choice(rule, level, np.ones(n)), dynamic_kernels.Choosing.begin(n, size, problem.n_units)
    data, preferences = list_problem(problem, need), dynamic_kernels.Preferences.begin(n, size)

    def work(state: dynamic_kernels.Choosing, most: int) -> int:
        return dynamic_kernels.by_planned_choice(data, choice, state, preferences, transfers, most)

    return in_slices(work, state, NEVER, ""), state.finish, transfers


def planned_favourites(problem: hs.Problem, need: np.ndarray, favourite: list[int]) -> tuple[Placed, np.ndarray, Transfers]:
    """Return the same for m-sct with given favourite children."""
    n, size, transfers = problem.n_tasks, problem.n_devices, new_transfers(problem.arrays, True)
    data, state = list_problem(problem, need), dynamic_kernels.Choosing.begin(n, size, problem.n_units)
    reservations = placement_kernels.Reservations(readonly(np.array(favourite, np.int64)), np.full(size, -1))

    def work(state: dynamic_kernels.Choosing, most: int) -> int:
        return placement_kernels.small_planned_communication(data, state, reservations, transfers, most)

    return in_slices(work, state, NEVER, ""), state.finish, transfers


def assert_equal(found: tuple[Placed, np.ndarray, Transfers], plan: Plan) -> None:
    """Check devices, finishes and transfers, to the bit."""
    (device, _, stuck), finish, transfers = found
    assert stuck < 0
    assert device.tolist() == [plan.device[i] for i in range(len(device))]
    assert finish.tolist() == [plan.finish[i] for i in range(len(device))]
    count = transfers.sizes[0]
    assert dict(zip(transfers.edge[:count].tolist(), transfers.start[:count].tolist(), strict=True)) == plan.transfers


clear = problems(n_tasks=st.integers(1, 9), n_devices=st.integers(1, 4), communication=contended, **CLEAR)


def layered(seed: int, communication: str, n: int = 40, n_devices: int = 4, nodes: int = 2) -> hs.Problem:
    """Return a problem with long transfers of random sizes, of which only few are equal."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, n, (3 * n, 2)), axis=1)
    ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], ends, edge_bytes=rng.uniform(0, 9, len(ends)) * (rng.random(len(ends)) < 0.8))
    cluster = hs.Cluster(
        [hs.Device(f"d{k}", node=f"n{k % nodes}") for k in range(n_devices)],
        bandwidth=rng.uniform(1, 4, (n_devices, n_devices)),
        latency=rng.integers(0, 2, (n_devices, n_devices)),
    )
    return hs.Problem(graph, cluster, durations=rng.uniform(0, 4, (n, n_devices)), communication=communication)


@given(clear)
def test_heft_is_edge_scheduling_of_the_definition(problem):
    assert_equal(planned_heft(problem, np.zeros(problem.n_units)), heft_by_the_book(problem))


@pytest.mark.slow
@pytest.mark.parametrize("rule", [dynamic_kernels.ETF, dynamic_kernels.DLS, dynamic_kernels.MIN_MIN])
@given(problem=clear)
def test_choices_are_edge_scheduling_of_the_definition(problem, rule):
    assert_equal(planned_choices(problem, np.zeros(problem.n_units), rule), choices_by_the_book(problem, rule))


@pytest.mark.slow
@given(clear, st.data())
def test_m_sct_is_edge_scheduling_of_the_definition(problem, data):
    graph, taken, favourite = problem.graph, set(), [-1] * problem.n_tasks
    for i in range(problem.n_tasks):
        children = [j for j in graph.succ[graph.succ_ptr[i] : graph.succ_ptr[i + 1]].tolist() if j not in taken]
        if children and data.draw(st.booleans()):
            favourite[i] = data.draw(st.sampled_from(children))
            taken.add(favourite[i])
    found = planned_favourites(problem, np.zeros(problem.n_units), favourite)
    assert_equal(found, m_sct_by_the_book(problem, favourite))


@pytest.mark.parametrize("communication", CONTENDED)
@pytest.mark.parametrize("seed", range(2))
def test_many_transfers_are_those_of_the_definition(seed, communication):
    """So many that gaps of a resource are moved to more room."""
    problem = layered(seed, communication)
    need = np.zeros(problem.n_units)
    assert_equal(planned_heft(problem, need), heft_by_the_book(problem))
    for rule in (dynamic_kernels.ETF, dynamic_kernels.DLS, dynamic_kernels.MIN_MIN):
        assert_equal(planned_choices(problem, need, rule), choices_by_the_book(problem, rule))
    assert_equal(planned_favourites(problem, need, [-1] * problem.n_tasks), m_sct_by_the_book(problem, [-1] * problem.n_tasks))


ALL_RULES = [dynamic_kernels.ETF, dynamic_kernels.DLS, dynamic_kernels.BIL, dynamic_kernels.MIN_MIN]
ALL_RULES += [dynamic_kernels.MAX_MIN, dynamic_kernels.SUFFERAGE]


def schedulers() -> list[Callable[[hs.Problem, np.ndarray], tuple[Placed, np.ndarray, Transfers]]]:
    """Return a function of a problem and its claims for each kernel and rule."""
    choices = [lambda problem, need, rule=rule: planned_choices(problem, need, rule) for rule in ALL_RULES]
    return [planned_heft, lambda problem, need: planned_favourites(problem, need, [-1] * problem.n_tasks), *choices]


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", schedulers())
@examples(40)
@given(problem=problems(n_tasks=st.integers(1, 8), n_devices=st.integers(1, 4), communication=contended))
def test_a_decision_is_simulated_within_its_plan(scheduler, problem):
    """With several inputs, explicit transfers, labels and missing links; memory is left out, which has no times."""
    if not np.isfinite(problem.whole_durations).any(axis=1).all():
        return
    placed, finish, transfers = scheduler(problem, np.zeros(problem.n_units))
    if placed[2] < 0:
        schedule = hs.simulate(problem, decision_of(problem, placed, transfers))
        assert schedule.makespan <= finish.max(initial=0.0)
        assert [violation for violation in hs.verify(problem, schedule) if violation.rule != "memory"] == []


@pytest.mark.parametrize("scheduler", schedulers())
@pytest.mark.parametrize("communication", CONTENDED)
def test_a_decision_of_inexact_times_is_simulated_within_its_plan(scheduler, communication):
    for seed in range(3):
        problem = layered(seed, communication)
        placed, finish, transfers = scheduler(problem, np.zeros(problem.n_units))
        schedule = hs.simulate(problem, decision_of(problem, placed, transfers))
        assert schedule.makespan <= finish.max() * (1 + 1e-12)
        assert hs.verify(problem, schedule) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANNING)
@examples(20)
@given(problem=problems(n_tasks=st.integers(1, 6), n_devices=st.integers(1, 3), inputs=1, communication=contended))
def test_by_default_the_better_of_both_placements_is_kept(name, problem):
    def makespan(**options):
        monitor = hs.Monitor(problem)
        monitor.run(name, options)
        if monitor.best is not None:
            assert hs.verify(problem, monitor.best) == []
        return monitor.incumbent

    assert makespan() == min(makespan(contention=True), makespan(contention=False))


@pytest.mark.parametrize("communication", MODELS)
@pytest.mark.parametrize("name", PLANNING)
def test_transfers_are_planned_where_they_contend(name, communication):
    problem = layered(1, communication)
    for contention in (None, True, False):
        decisions = []

        class Recorded(hs.Monitor):
            def offer(self, decision):
                decisions.append(decision)  # noqa: B023
                return super().offer(decision)

        monitor = Recorded(problem)
        monitor.run(name, {"contention": contention})
        planned = [decision.transfer_order is not None for decision in decisions]
        assert planned == list(plans(problem, contention))
        assert planned == ([False] if communication not in CONTENDED else [False, True] if contention is None else [contention])


@pytest.mark.parametrize("name", ["bil", "max-min", "sufferage", "etf", "heft"])
def test_rules_that_need_all_transfers_in_each_step_plan_those_of_large_graphs_only_where_they_are_asked_to(name, monkeypatch):
    problem, options = layered(1, "port"), {"contention": True}
    before = hs.solve(problem, name)
    monkeypatch.setattr(dynamic, "MOST_PLANNED", problem.n_tasks - 1)
    assert hs.solve(problem, name).methods.evaluations.tolist() == [2 if name in ("etf", "heft") else 1]
    assert before.methods.evaluations.tolist() == [2]
    assert hs.solve(problem, name, options=options).makespan >= before.makespan


def fork(communication: str, transfer: float, lengths: list[float], pinned: bool = False) -> hs.Problem:
    """Return a task whose result goes to all others, on as many devices as there are tasks."""
    names = ["a", "b", "c", "d"][: len(lengths)]
    graph = hs.TaskGraph(names, [("a", name, transfer) for name in names[1:]], devices=[[name] for name in names] if pinned else None)
    durations = np.tile(np.array(lengths)[:, None], len(names))
    return hs.Problem(graph, hs.Cluster(names, bandwidth=1.0), durations=durations, communication=communication)


@pytest.mark.parametrize(("communication", "makespan"), [("delay", 13), ("channel", 13), ("port", 22)])
def test_two_transfers_that_leave_one_device(communication, makespan):
    """A to B and A to C, 10 s each: they exclude each other at the port of A, not on their channels."""
    for name in ("heft", "etf", "m-etf"):
        solution = hs.solve(fork(communication, 10.0, [1.0, 2.0, 1.0], pinned=True), name)
        assert solution.makespan == makespan


@pytest.mark.parametrize("name", ["heft", "etf", "m-etf", "cpop"])
def test_a_fork_is_spread_less_where_its_transfers_leave_one_port(name):
    """The case in which the classic model misleads (Sinnen and Sousa 2005): all transfers seem to run at the same time.

    Each child is 4 s long, each transfer takes 3 s. Without contention two children leave their parent's device, and end after
    1 + 3 + 4 = 8 s; but they share the port, so the second ends at 1 + 3 + 3 + 4 = 11. A plan that knows keeps it: 1 + 4 + 4 = 9.
    """
    problem = fork("port", 3.0, [1.0, 4.0, 4.0, 4.0])
    assert hs.solve(problem.replace(communication="delay"), name).makespan == 8
    assert hs.solve(problem, name, options={"contention": False}).makespan == 11
    assert hs.solve(problem, name, options={"contention": True}).makespan == 9
    assert hs.solve(problem, name).makespan == 9


def test_a_transfer_is_inserted_before_one_that_is_planned_for_later():
    """c, whose rank is higher, waits for the long b; the transfer from the short d reaches y, and e runs there, before."""
    graph = hs.TaskGraph(["b", "c", "d", "e"], [("b", "c", 2.0), ("d", "e", 2.0)], devices=[["x"], ["y"], ["z"], ["y"]])
    problem = hs.Problem(
        graph, hs.Cluster(["x", "y", "z"], bandwidth=1.0), durations=[[6.0] * 3, [6.0] * 3, [1.0] * 3, [1.0] * 3], communication="port"
    )
    _, finish, transfers = planned_heft(problem, np.zeros(4))
    assert transfers.edge[:2].tolist() == [0, 1]
    assert transfers.start[:2].tolist() == [6.0, 1.0]
    assert finish.tolist() == [6.0, 14.0, 1.0, 4.0]
