"""Moirai's MILP: tasks and the transfers that contend for channels or ports are scheduled together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched.analysis.closure import ancestors, unordered
from hetsched.arrays import BoolArray, FloatArray, IntArray, row_starts
from hetsched.modeling.expression import Expression
from hetsched.models.components import (
    Makespan,
    NonOverlap,
    Placement,
    SharedTiming,
    StaticMemory,
    add_flows,
    fill_flows,
    shared_resources,
    transfer_ticks,
)
from hetsched.models.formulation import PAIR, Component, Formulation
from hetsched.models.redundant import LoadCuts, symmetry_order
from hetsched.models.variables import FlowVariables, Values
from hetsched.schedule.schedule import Schedule
from hetsched.search import Supports


class Flows(Component):
    """A flow node for each edge, after its source and before its target: `FlowVariables`; Moirai (4a), (7).

    ``pair[e, u, v]`` is 1 if the source runs on u and the target on v (it replaces z and u of the paper);
    ``leave[e]`` and ``arrive[e]`` are the start and finish of the transfer.
    """

    def add_to(self, f: Formulation) -> None:
        graph, model = f.problem.graph, f.model
        times = transfer_ticks(f)
        seconds = np.where(np.isfinite(times), times, 0.0)
        pair = self.choose(f, times)
        leave = model.time("leave", graph.n_edges, upper=f.ticks)
        arrive = model.time("arrive", graph.n_edges, upper=f.ticks)
        moving = (pair * seconds).sum(axis=(1, 2))
        model.add(arrive == leave + moving, tag="(7)")
        model.add(leave >= f.times.finish[graph.source], tag="(4a)")
        model.add(f.times.start[graph.target] >= arrive, tag="(4a)")
        f.provide(FlowVariables(pair, leave, arrive, moving, seconds))

    def choose(self, f: Formulation, times: FloatArray) -> Expression:
        """Add the columns for the devices of the ends of edges and return them; `times` [E, K, K] are inf without a path."""
        return add_flows(f, "pair", np.arange(f.problem.graph.n_edges), times)

    def fill_choice(self, f: Formulation, values: Values) -> None:
        """Set the values of the columns of `choose`."""
        fill_flows(f, f.flows.pair, np.arange(f.problem.graph.n_edges), values)

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        self.fill_choice(f, values)
        moves = schedule.transfers
        leave = values[f.times.finish][f.problem.graph.source]
        arrive = leave.copy()
        leave[moves.edge], arrive[moves.edge] = moves.start * f.second, moves.finish * f.second
        values[f.flows.leave] = leave
        values[f.flows.arrive] = arrive


class LiteralFlows(Flows):
    """The flow nodes as printed in Moirai: ``z[e]``, whether the devices differ, and ``u[e, k', k'']``, the channel, with rows (7)."""

    differ: Expression
    """[E] binaries: 1 if the ends are on different devices."""

    def choose(self, f: Formulation, times: FloatArray) -> Expression:
        problem, model = f.problem, f.model
        n_edges, k = problem.graph.n_edges, problem.n_devices
        source, target = f.assign.on[problem.graph.source], f.assign.on[problem.graph.target]
        apart = ~np.eye(k, dtype=bool)
        self.differ = model.binary("z", n_edges)
        wide = self.differ.reshape(-1, 1)
        for rows in (wide >= source - target, wide >= target - source, wide <= 2 - source - target):
            model.add(rows, tag="(7)")
        channel = model.binary("u", (n_edges, k, k), upper=apart & np.isfinite(times))
        model.add(channel.sum(axis=(1, 2)) == self.differ, tag="(7)")
        u, v = np.nonzero(apart)
        model.add(channel[:, u, v] >= source[:, u] + target[:, v] - 1, tag="(7)")
        return channel

    def fill_choice(self, f: Formulation, values: Values) -> None:
        on, graph = values[f.assign.on], f.problem.graph
        channel = on[graph.source][:, :, None] * on[graph.target][:, None, :] * ~np.eye(f.problem.n_devices, dtype=bool)
        values[f.flows.pair] = channel
        values[self.differ] = channel.sum(axis=(1, 2))


class Contention(Component):
    """At most one flow at a time in each resource of links: a port of a device, Moirai (8), a port of a node, or a channel."""

    ports: tuple[tuple[Expression, BoolArray], ...] = ()
    """For sending and receiving ports: [E, R] binaries, and which flows hold a resource, [R, E, K, K]; empty for channels."""

    def add_to(self, f: Formulation) -> None:
        problem, k, flows = f.problem, f.problem.n_devices, f.flows
        if not problem.graph.n_edges or k < 2:
            return
        pairs = self._pairs(f)
        groups = shared_resources(problem.links)
        if groups is None:
            u, v = np.nonzero(~np.eye(k, dtype=bool))
            intervals = f.model.interval(flows.leave, flows.seconds[:, u, v], end=flows.arrive, presence=flows.pair[:, u, v])
            f.model.no_overlap(intervals, pairs, tag="one on a channel")
            return
        rule = "(8)" if problem.communication == "port" else "one"
        real = (flows.seconds > 0) & ~np.eye(k, dtype=bool)  # a transfer of zero length needs no port
        for name, group in zip(("send", "receive"), groups, strict=False):
            holds = real & group[:, None]
            used = f.model.binary(name, (problem.graph.n_edges, len(group)))
            f.model.add(used == _holders(flows.pair, holds), tag=name)
            taking = np.flatnonzero(holds.any(axis=(0, 2, 3)))
            intervals = f.model.interval(flows.leave[taking], flows.moving[taking], end=flows.arrive[taking], presence=used[taking])
            place = np.full(problem.graph.n_edges, -1)
            place[taking] = np.arange(len(taking))
            kept = pairs[(place[pairs] >= 0).all(axis=1)]
            f.model.no_overlap(intervals, place[kept], tag=f"{rule} {name}s")
            self.ports = (*self.ports, (used, holds))

    def _pairs(self, f: Formulation) -> IntArray:
        """Return the pairs of edges not ordered by precedence, [P, 2]."""
        graph = f.problem.graph
        source, target = graph.source, graph.target
        f.deadline.require(PAIR * (graph.n_tasks**2 + 2 * graph.n_edges**2), f"comparing {graph.n_edges:,} transfers with one another")
        before = ancestors(graph, f.deadline) | np.eye(graph.n_tasks, dtype=bool)

        # Edge a is before edge b if the target of a is, or leads to, the source of b.
        def ordered(rows: slice) -> BoolArray:
            return before[source[rows, None], target] | before[source, target[rows, None]]

        return unordered(graph.n_edges, ordered, f.deadline)

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        for used, holds in self.ports:
            values[used] = (values[f.flows.pair] * holds).sum(axis=(2, 3)).T


def _holders(pair: Expression, holds: BoolArray) -> Expression:
    """Return the sums of the columns pair[e, u, v] of which each holds a resource, [E, R]; `holds` is [R, E, K, K]."""
    e, r, u, v = np.nonzero(np.moveaxis(holds, 0, 1))
    shape = holds.shape[1], holds.shape[0]
    terms = pair[e, u, v]  # one term each
    return Expression(
        shape,
        row_starts(np.bincount(e * shape[1] + r, minlength=shape[0] * shape[1])),
        terms.column,
        terms.coefficient,
        np.zeros(shape).ravel(),
    )


class CongestionAware(Formulation):
    """Moirai, equations (4) to (8), for one input: tasks and transfers are scheduled together.

    Every edge is a flow node of the augmented graph. With ``communication="port"`` flows that leave, or reach, one device
    exclude one another: equation (8), as its published rows have it. With ``"node"`` those that leave or reach one node do,
    with ``"channel"`` those on one directed channel.
    """

    name = "moirai"
    supports = Supports(inputs="one", memory=("static",))

    def recipe(self) -> Iterator[Component]:
        yield Placement()
        yield SharedTiming()
        yield LiteralFlows() if self.faithful else Flows()  # (4a), (7)
        if self.problem.links.contended:
            yield Contention()  # (8)
        yield NonOverlap()
        yield StaticMemory()
        yield Makespan()
        if not self.faithful:
            yield LoadCuts()  # redundant rows
        yield from symmetry_order(self.symmetry)
