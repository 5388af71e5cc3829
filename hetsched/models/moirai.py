"""Moirai's MILP: transfers that contend for channels or ports are planned together with the tasks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.analysis.closure import ancestors, unordered
from hetsched.arguments import checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import UnsupportedFeature
from hetsched.models import components as parts
from hetsched.models.batched import BatchedMakespan, decode
from hetsched.models.formulation import PAIR, Component, fill_in
from hetsched.models.redundant import LoadCuts
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.schedule import Schedule


class Flows:
    """A flow node an edge, after its source and before its target; Moirai (4a), (5), (6).

    ``pair[e, u, v]`` chooses the ends (the paper's z and u at once: it is one where the source runs on
    u and the target on v), ``leave[e]`` and ``arrive[e]`` are the times of the transfer.
    """

    def add_to(self, f: Any) -> None:
        graph, model = f.problem.graph, f.model
        self.edges = np.arange(graph.n_edges)
        self.times = parts.transfer_ticks(f)
        self.seconds = np.where(np.isfinite(self.times), self.times, 0.0)
        f.pair = self.choose(f)
        f.leave = model.time("leave", graph.n_edges, upper=f.ticks)
        f.arrive = model.time("arrive", graph.n_edges, upper=f.ticks)
        f.moving = (f.pair * self.seconds).sum(axis=(1, 2))
        model.add(f.arrive == f.leave + f.moving, tag="(6)")
        model.add(f.leave >= f.finish[graph.source], tag="(4a)")
        model.add(f.start[graph.target] >= f.arrive, tag="(4a)")
        f.flow_seconds = self.seconds

    def choose(self, f: Any) -> Any:
        """Add the columns that tell where an edge's ends are, and return them."""
        return parts.flows(f, "pair", self.edges, self.times)

    def fill_choice(self, f: Any, values: Any) -> None:
        """Set the values of those columns."""
        parts.fill_flows(f, f.pair, self.edges, values)

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        self.fill_choice(f, values)
        moves = schedule.transfers
        finish = values[f.finish.column]
        leave = finish[f.problem.graph.source]
        arrive = leave.copy()
        leave[moves.edge], arrive[moves.edge] = moves.start * f.second, moves.finish * f.second
        fill_in(values, f.leave, leave)
        fill_in(values, f.arrive, arrive)


class LiteralFlows(Flows):
    """The flow nodes as Moirai prints them: ``z[e]``, whether the ends differ, and ``u[e, k', k'']``, the channel, with its rows (6)."""

    def choose(self, f: Any) -> Any:
        problem, model = f.problem, f.model
        n_edges, k = problem.graph.n_edges, problem.n_devices
        source, target = f.on[problem.graph.source], f.on[problem.graph.target]
        apart = ~np.eye(k, dtype=bool)
        self.differ = model.binary("z", n_edges)
        wide = self.differ.reshape(-1, 1)
        for rows in (wide >= source - target, wide >= target - source, wide <= 2 - source - target):
            model.add(rows, tag="(6)")
        channel = model.binary("u", (n_edges, k, k), upper=apart & np.isfinite(self.times))
        model.add(channel.sum(axis=(1, 2)) == self.differ, tag="(6)")
        u, v = np.nonzero(apart)
        model.add(channel[:, u, v] >= source[:, u] + target[:, v] - 1, tag="(6)")
        return channel

    def fill_choice(self, f: Any, values: Any) -> None:
        on = values[f.on.column].reshape(f.on.shape)
        graph = f.problem.graph
        channel = on[graph.source][:, :, None] * on[graph.target][:, None, :] * ~np.eye(f.problem.n_devices, dtype=bool)
        fill_in(values, f.pair, channel)
        fill_in(values, self.differ, channel.sum(axis=(1, 2)))


class Contention:
    """No two flows at a time on a channel, Moirai (7), (8), or in the sending or receiving port of a device."""

    def add_to(self, f: Any) -> None:
        problem, k = f.problem, f.problem.n_devices
        if not problem.graph.n_edges or k < 2:
            return
        pairs = self._pairs(f)
        if problem.communication == "channel":
            u, v = np.nonzero(~np.eye(k, dtype=bool))
            intervals = f.model.interval(f.leave, f.flow_seconds[:, u, v], end=f.arrive, presence=f.pair[:, u, v])
            f.model.no_overlap(intervals, pairs, tag="(7)-(8)")
            return
        real = (f.flow_seconds > 0) & ~np.eye(k, dtype=bool)  # what takes no time needs no port
        self.ports = {}
        for name, axis in (("send", 2), ("receive", 1)):
            used = f.model.binary(name, (problem.graph.n_edges, k))
            f.model.add(used == (f.pair * real).sum(axis=axis), tag=name)
            taking = np.flatnonzero(real.any(axis=(1, 2)))
            intervals = f.model.interval(f.leave[taking], f.moving[taking], end=f.arrive[taking], presence=used[taking])
            place = np.full(problem.graph.n_edges, -1)
            place[taking] = np.arange(len(taking))
            kept = pairs[(place[pairs] >= 0).all(axis=1)]
            f.model.no_overlap(intervals, place[kept], tag=f"one {name}s")
            self.ports[name] = (used, axis, real)

    def _pairs(self, f: Any) -> Any:
        """Return the pairs of edges that precedence does not order, [P, 2]."""
        graph = f.problem.graph
        source, target = graph.source, graph.target
        f.deadline.require(PAIR * (graph.n_tasks**2 + 2 * graph.n_edges**2), f"comparing {graph.n_edges:,} transfers with one another")
        before = ancestors(graph, f.deadline) | np.eye(graph.n_tasks, dtype=bool)

        # Edge a is before edge b if the target of a is, or leads to, the source of b.
        def ordered(some: slice) -> Any:
            return before[source[some, None], target] | before[source, target[some, None]]

        return unordered(graph.n_edges, ordered, f.deadline)

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        for used, axis, real in getattr(self, "ports", {}).values():
            pair = values[f.pair.column].reshape(f.pair.shape) * real
            fill_in(values, used, pair.sum(axis=axis))


class CongestionAware(BatchedMakespan):
    """Placement and order of tasks and of transfers for the least makespan, equations (4) to (8) of Moirai; one input.

    Every edge is a flow node of the augmented graph; with ``communication="channel"`` flows on one
    directed channel exclude one another, with ``"port"`` those that leave or reach one device.
    """

    name = "moirai"

    @classmethod
    @checked
    def check(cls, problem: Problem) -> None:
        super(BatchedMakespan, cls).check(problem)
        if problem.inputs > 1:
            raise UnsupportedFeature(
                f"{cls.name} schedules one input, not {problem.inputs}; use BatchedMakespan where there is no contention"
            )

    def parts(self) -> list[Component]:
        contention: list[Component] = [Contention()] if self.problem.links.contended else []
        literal = self.faithful
        found: list[Component] = [
            parts.Placement(),
            parts.SharedTiming(),
            LiteralFlows() if literal else Flows(),
            *contention,
            parts.NonOverlap(),
            parts.StaticMemory(),
            parts.Makespan(),
        ]
        return found if literal else [*found, LoadCuts()]

    @checked
    def decode(self, values: FloatArray) -> Decision:
        problem, graph = self.problem, self.problem.graph
        decision = decode(self, values)
        if not problem.links.contended:
            return decision
        batch = np.empty(problem.n_tasks, np.int64)
        batch[decision.task] = np.arange(decision.n_batches)
        source, target = batch[graph.source], batch[graph.target]
        apart = np.flatnonzero(decision.device[source] != decision.device[target])
        leave, arrive = self.leave.value(values).copy(), self.arrive.value(values).copy()  # type: ignore[attr-defined]
        # As with batches, none comes before one that brings what it carries on.
        into, out = _edges_by(graph.target, problem.n_tasks), _edges_by(graph.source, problem.n_tasks)
        for i in graph.topological_order.tolist():
            if len(into[i]) and len(out[i]):
                for times in (leave, arrive):
                    times[out[i]] = np.maximum(times[out[i]], times[into[i]].max())
        rank = graph.rank[graph.source]
        order = apart[np.lexsort((rank[apart], arrive[apart], leave[apart]))]
        return Decision(
            decision.task,
            decision.device,
            decision.item_ptr,
            decision.items,
            transfer_order=np.column_stack([order, source[order], target[order]]),
        )


def _edges_by(end: IntArray, n: int) -> list[IntArray]:
    """Return the edges that have each task at an end, by task."""
    order = np.argsort(end, kind="stable")
    return np.split(order, np.searchsorted(end[order], np.arange(1, n)))
