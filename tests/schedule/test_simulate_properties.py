"""The simulator against a slow implementation of its specification in plain Python."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.arrays import row_starts
from hetsched.problem.links import CONTENDED
from hetsched.testing import conformance, decisions, problems
from tests.resources import held_resources


class Reference:
    """The times of a decision by the problem statement; NaN for events that never happen."""

    def __init__(self, problem: hs.Problem, decision: hs.Decision) -> None:
        self.problem, self.decision = problem, decision
        self.items = [
            set(decision.items[first:last].tolist()) for first, last in zip(decision.item_ptr[:-1], decision.item_ptr[1:], strict=True)
        ]
        batches = range(decision.n_batches)
        self.task, self.device = decision.task.tolist(), decision.device.tolist()
        sizes = problem.batch_sizes.tolist()
        self.duration = [float(problem.durations[self.task[b], self.device[b], sizes.index(len(self.items[b]))]) for b in batches]
        self.links = [
            (e, a, b)
            for e, (i, j) in enumerate(problem.graph.edges.tolist())
            for a in batches
            for b in batches
            if self.task[a] == i and self.task[b] == j and self.items[a] & self.items[b]
        ]
        self.seconds = {link: self.transfer_seconds(*link) for link in self.links}
        self.start = [math.nan] * decision.n_batches
        self.moved = dict.fromkeys(self.links, math.nan)
        contended = problem.links.contended
        self.explicit = contended and decision.transfer_order is not None
        self.positive = [link for link in self.links if contended and self.seconds[link] > 0]
        if self.explicit:
            given_order = [tuple(row) for row in decision.transfer_order.tolist()]
            self.positive.sort(key=given_order.index)
        self.run()

    def transfer_seconds(self, e: int, a: int, b: int) -> float:
        h, k = self.device[a], self.device[b]
        if h == k:
            return 0.0
        q = 1 if self.problem.communication == "per-input" else len(self.items[a] & self.items[b])
        if self.problem.transfers is not None:
            return float(self.problem.transfers[e, h, k]) * q
        cluster = self.problem.cluster
        return float(cluster.route_latency[h, k]) + float(self.problem.graph.edge_bytes[e]) * q / float(cluster.route_bandwidth[h, k])

    def resources(self, link: tuple[int, int, int]) -> set[object]:
        return held_resources(self.problem.communication, self.problem.cluster, self.device[link[1]], self.device[link[2]])

    def done(self, b: int, now: float) -> bool:
        return self.start[b] + self.duration[b] <= now

    def arrived(self, link: tuple[int, int, int], now: float) -> bool:
        return self.moved[link] + self.seconds[link] <= now

    def run(self) -> None:
        now = 0.0
        while True:
            while self.settle(now):
                pass
            if not self.explicit:
                self.serve(now)
            ends = [s + d for s, d in zip(self.start, self.duration, strict=True)]
            ahead = [end for end in [*ends, *(s + self.seconds[link] for link, s in self.moved.items())] if end > now]
            if not ahead:
                return
            now = min(ahead)

    def settle(self, now: float) -> bool:
        """Start all batches and transfers that can start now; return whether there were any."""
        changed = False
        for link in self.links:
            if math.isnan(self.moved[link]) and self.done(link[1], now) and (link not in self.positive or self.may_follow(link, now)):
                self.moved[link], changed = now, True
        for b in range(len(self.start)):
            if math.isnan(self.start[b]) and all(self.arrived(link, now) for link in self.links if link[2] == b):
                ahead = [a for a in range(b) if self.device[a] == self.device[b] and self.duration[a] > 0]
                if self.duration[b] == 0 or all(self.done(a, now) for a in ahead):
                    self.start[b], changed = now, True
        return changed

    def may_follow(self, link: tuple[int, int, int], now: float) -> bool:
        """Return whether the explicit order admits the transfer now; without such an order, `serve` starts transfers."""
        if not self.explicit:
            return False
        ahead = self.positive[: self.positive.index(link)]
        return all(self.arrived(other, now) for other in ahead if self.resources(other) & self.resources(link))

    def serve(self, now: float) -> None:
        """Start waiting transfers whose resources are free, the earliest ready first."""
        waiting = [link for link in self.positive if math.isnan(self.moved[link]) and self.done(link[1], now)]
        for link in sorted(waiting, key=lambda link: (self.start[link[1]] + self.duration[link[1]], link[1], link[0], link[2])):
            busy = [other for other in self.positive if self.moved[other] <= now < self.moved[other] + self.seconds[other]]
            if not any(self.resources(other) & self.resources(link) for other in busy):
                self.moved[link] = now

    @property
    def deadlocked(self) -> bool:
        return any(map(math.isnan, [*self.start, *self.moved.values()]))

    @property
    def makespan(self) -> float:
        return max((s + d for s, d in zip(self.start, self.duration, strict=True)), default=0.0)

    def static_bytes(self, k: int) -> float:
        graph = self.problem.graph
        mine = [b for b in range(len(self.task)) if self.device[b] == k]
        weights = sum(graph.weight_bytes[i] for i in {self.task[b] for b in mine})
        return float(weights + sum((graph.input_bytes[self.task[b]] + graph.output_bytes[self.task[b]]) * len(self.items[b]) for b in mine))

    def peak_bytes(self, k: int) -> float:
        """Return the largest number of bytes held at any start, by evaluation of every event."""
        graph = self.problem.graph
        mine = [b for b in range(len(self.task)) if self.device[b] == k]
        held: list[tuple[float, float, float]] = []
        for b in mine:
            i, finish = self.task[b], self.start[b] + self.duration[b]
            parents, children = i in graph.edges[:, 1], i in graph.edges[:, 0]
            for item in self.items[b]:
                until = [finish] if children else [finish, self.makespan]
                for link in self.links:
                    if link[1] == b and item in self.items[link[2]]:
                        local = self.device[link[2]] == k
                        until.append(self.start[link[2]] + self.duration[link[2]] if local else self.moved[link] + self.seconds[link])
                held.append((self.start[b], max(until), graph.output_bytes[i]))
                if not parents:
                    held.append((0.0, finish, graph.input_bytes[i]))
            for e, a, target in self.links:
                if target == b and self.device[a] != k:
                    held.append((self.moved[e, a, b], finish, graph.edge_bytes[e] * len(self.items[a] & self.items[b])))
        weights = sum(graph.weight_bytes[i] for i in {self.task[b] for b in mine})
        moments = {0.0, *(since for since, _, _ in held)}
        return float(weights + max(sum(size for since, until, size in held if since <= t < until) for t in moments))


def several_inputs(**features):
    return problems(**{"inputs": st.integers(1, 4), "n_tasks": st.integers(1, 5), **features})


@given(st.data())
def test_times_are_those_of_the_plain_restatement(data):
    problem = data.draw(several_inputs())
    decision = data.draw(decisions(problem))
    schedule, reference = hs.simulate(problem, decision), Reference(problem, decision)
    assert schedule.batches.start.tolist() == reference.start
    assert (schedule.batches.finish - schedule.batches.start).tolist() == reference.duration
    moves = {link: reference.moved[link] for link in reference.links if reference.device[link[1]] != reference.device[link[2]]}
    columns = schedule.transfers
    rows = zip(columns.edge.tolist(), columns.source.tolist(), columns.target.tolist(), strict=True)
    assert dict(zip(rows, columns.start.tolist(), strict=True)) == moves
    assert (columns.finish - columns.start).tolist() == [reference.seconds[link] for link in moves]
    assert schedule.makespan == reference.makespan


@given(st.data())
def test_memory_is_that_of_the_plain_restatement(data):
    problem = data.draw(several_inputs())
    decision = data.draw(decisions(problem))
    schedule, reference = hs.simulate(problem, decision), Reference(problem, decision)
    assert schedule.static_memory.tolist() == [reference.static_bytes(k) for k in range(problem.n_devices)]
    assert schedule.peak_memory.tolist() == [reference.peak_bytes(k) for k in range(problem.n_devices)]


@given(st.data())
def test_a_simulated_schedule_verifies_but_for_memory(data):
    problem = data.draw(several_inputs())
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    over = {violation.devices[0]: violation.amount for violation in hs.verify(problem, schedule) if violation.rule == "memory"}
    assert {violation.rule for violation in hs.verify(problem, schedule)} <= {"memory"}
    needed = schedule.static_memory if problem.memory == "static" else schedule.peak_memory
    capacity = problem.cluster.memory_bytes
    assert over == {problem.cluster.names[k]: needed[k] - capacity[k] for k in np.flatnonzero(needed > capacity)}


@pytest.mark.slow
@given(st.data())
def test_the_decision_of_a_schedule_gives_it_back(data):
    problem = data.draw(several_inputs())
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    assert hs.simulate(problem, schedule.decision) == schedule


@pytest.mark.slow
@given(st.data(), st.sampled_from([0.25, 8.0]))
def test_times_scale_with_the_problem(data, factor):
    problem = data.draw(several_inputs())
    decision = data.draw(decisions(problem))
    one, other = hs.simulate(problem, decision), hs.simulate(conformance.scaled(problem, factor), decision)
    assert (other.batches.start == one.batches.start * factor).all()
    assert (other.transfers.finish == one.transfers.finish * factor).all()


@given(st.data())
def test_shuffled_orders_deadlock_exactly_when_the_restatement_does(data):
    problem = data.draw(several_inputs(n_tasks=st.integers(2, 4), n_devices=2))
    decision = data.draw(decisions(problem))
    order = data.draw(st.permutations(range(decision.n_batches)))
    rows = [decision.items[decision.item_ptr[b] : decision.item_ptr[b + 1]] for b in order]
    moves = decision.transfer_order
    if moves is not None:
        place = np.argsort(order)
        moves = [(moves[x, 0], place[moves[x, 1]], place[moves[x, 2]]) for x in data.draw(st.permutations(range(len(moves))))]
    shuffled = hs.Decision(
        decision.task[order],
        decision.device[order],
        row_starts([len(row) for row in rows]),
        np.concatenate([np.empty(0, np.int64), *rows]),
        transfer_order=moves,
    )
    if Reference(problem, shuffled).deadlocked:
        with pytest.raises(hs.InvalidSchedule, match=r"^the decision deadlocks: .+ before .+; reorder one of them$"):
            hs.simulate(problem, shuffled)
    else:
        assert hs.simulate(problem, shuffled).batches.start.tolist() == Reference(problem, shuffled).start


@pytest.mark.slow
@given(st.data())
def test_first_come_first_served_is_the_order_it_reports(data):
    """First come, first served gives a semi-active schedule: with its order of transfers made explicit it is the same."""
    problem = data.draw(several_inputs(communication=st.sampled_from(CONTENDED), n_devices=st.integers(2, 3)))
    decision = data.draw(decisions(problem, transfer_order=False))
    schedule = hs.simulate(problem, decision)
    moves = schedule.transfers
    rows = np.stack([moves.edge, moves.source, moves.target], axis=1)[np.argsort(moves.start, kind="stable")]
    explicit = hs.Decision(decision.task, decision.device, decision.item_ptr, decision.items, transfer_order=rows)
    again = hs.simulate(problem, explicit)
    assert again.batches == schedule.batches
    assert again.transfers == schedule.transfers


def test_a_deadlock_is_refused_with_its_cycle():
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "b"), ("c", "d")])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=np.ones((4, 2)))
    decision = hs.Decision.from_assignment(problem, {"a": "x", "d": "x", "c": "y", "b": "y"}, ["d", "a", "b", "c"])
    with pytest.raises(hs.InvalidSchedule) as refusal:
        hs.simulate(problem, decision)
    message = str(refusal.value)
    for step in ("'d' on 'x' before 'a' on 'x'", "'b' on 'y' before 'c' on 'y'", "transfer 'a' -> 'b'", "transfer 'c' -> 'd'"):
        assert step in message


def test_batches_and_transfers_of_zero_length_wait_for_no_resource():
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "c", 0.0), ("b", "d", 5.0)])
    times = [[0.0, 0.0], [3.0, 3.0], [0.0, 0.0], [1.0, 1.0]]
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=times, communication="port")
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "x", "c": "y", "d": "y"}, ["b", "a", "d", "c"])
    schedule = hs.simulate(problem, decision)
    assert [schedule.start(name) for name in "abcd"] == [0, 0, 0, 8]
    assert hs.verify(problem, schedule) == []


def exchanged(communication: str, nodes: list[str], ends: list[tuple[int, int]]) -> list[float]:
    """Return the starts of transfers of 2 s between tasks that end at 1 s, one for each pair of devices."""
    size = len(nodes)
    graph = hs.TaskGraph(
        [f"{kind}{x}" for kind in ("from", "to") for x in range(len(ends))], [(f"from{x}", f"to{x}", 2.0) for x in range(len(ends))]
    )
    cluster = hs.Cluster([hs.Device(f"d{k}", node=node) for k, node in enumerate(nodes)], bandwidth=1.0)
    times = [[1.0] * size] * len(ends) + [[0.0] * size] * len(ends)
    problem = hs.Problem(graph, cluster, durations=times, communication=communication)
    device = {f"from{x}": f"d{h}" for x, (h, _) in enumerate(ends)} | {f"to{x}": f"d{k}" for x, (_, k) in enumerate(ends)}
    schedule = hs.simulate(problem, hs.Decision.from_assignment(problem, device, list(graph.names)))
    assert hs.verify(problem, schedule) == []
    return schedule.transfers.start.tolist()


@pytest.mark.parametrize(
    ("nodes", "ends", "by_port", "by_node"),
    [
        (["a", "a", "b", "b"], [(0, 2), (1, 3)], [1, 1], [1, 3]),  # two devices of a node send to two of another
        (["a", "a", "b", "c"], [(0, 2), (1, 3)], [1, 1], [1, 3]),  # or to two others
        (["a", "a", "a", "b"], [(0, 2), (1, 3)], [1, 1], [1, 1]),  # within a node no port is held
        (["a", "a", "a", "b"], [(0, 2), (1, 2)], [1, 3], [1, 1]),
        (["a", "a", "b", "b"], [(0, 2), (3, 1)], [1, 1], [1, 1]),  # one sends, the other receives
        (["", "", "b", "b"], [(0, 2), (1, 3)], [1, 1], [1, 3]),  # devices without a node are nodes of their own
        (["", "", "", ""], [(0, 2), (1, 3)], [1, 1], [1, 1]),
    ],
)
def test_nodes_share_their_ports(nodes, ends, by_port, by_node):
    assert exchanged("port", nodes, ends) == by_port
    assert exchanged("node", nodes, ends) == by_node


@given(problems(communication="node"), st.data())
def test_nodes_of_one_device_are_ports_and_a_single_node_is_no_contention(problem, data):
    cluster = problem.cluster
    for node, equal in (("", "port"), ("a", "delay")):
        devices = [dataclasses.replace(device, node=node) for device in cluster.devices]
        alone = problem.replace(cluster=cluster.replace(devices=devices))
        decision = data.draw(decisions(alone, transfer_order=False))
        assert hs.simulate(alone, decision).makespan == hs.simulate(alone.replace(communication=equal), decision).makespan
