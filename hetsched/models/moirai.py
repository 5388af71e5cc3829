"""Moirai's MILP: tasks and the transfers that contend for channels or ports are scheduled together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hetsched.analysis import model_size
from hetsched.analysis.closure import ancestors, unordered
from hetsched.arguments import checked
from hetsched.arrays import BoolArray, FloatArray, IntArray, row_starts
from hetsched.errors import UnsupportedFeature
from hetsched.modeling.expression import Expression
from hetsched.models.components import (
    ROW,
    Makespan,
    NonOverlap,
    Placement,
    SharedTiming,
    StaticMemory,
    Timing,
    add_flows,
    fill_flows,
    shared_resources,
    transfer_ticks,
)
from hetsched.models.formulation import PAIR, SLACK, Component, Formulation
from hetsched.models.redundant import LoadCuts, between, symmetry_order
from hetsched.models.variables import FlowVariables, Values
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule

CHANNEL, PORTS = "one on a channel", ("send", "receive")
"""The tag of the rows of channels, and the names of the groups of ports."""


class Flows(Component):
    """A flow node for each edge, after its source and before its target: `FlowVariables`; Moirai (4a), (7).

    ``pair[e, u, v]`` is 1 if the source runs on u and the target on v (it replaces z and u of the paper);
    ``leave[e]`` and ``arrive[e]`` are the start and finish of the transfer.
    """

    def add_to(self, f: Formulation) -> None:
        if f.problem.inputs > 1:
            raise UnsupportedFeature("one transfer for each edge is enough for one input only; use BatchFlows")
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


class BatchFlows(Component):
    """A flow node for each edge and pair of batches on different devices: `FlowVariables`; Moirai (4a), (7) for several inputs.

    A task has at most one batch on a device, so an edge and the devices u and v of its ends name a pair of batches.
    ``shared[e, u, v, l]`` is 1 if u runs the source and v the target on input l: over v these sum to ``x`` of the source, over
    u to that of the target, and since each input of a task has one device, they are the product of both. A pair has
    ``q = sum of shared over l`` inputs in common; ``pair[e, u, v]`` is 1 if q > 0, and then the target starts after the source,
    if u and v differ after a transfer. It takes a fixed time, the latency, or under ``per-input`` that of one input, and for
    each input the rest of that of one: ``pair * fixed + q * each``. Without a pair it takes no time and binds nothing.
    """

    shared: Expression
    """[E, K, K, L] binaries."""
    earliest: FloatArray
    """[E, K, K] model time: the earliest departures."""

    def add_to(self, f: Formulation) -> None:
        if f.times.shared:
            raise UnsupportedFeature("transfers between batches depend on the start of each batch; use Timing")
        graph, model, k = f.problem.graph, f.model, f.problem.n_devices
        rows = graph.n_edges * k**2 * f.problem.inputs
        f.deadline.require(ROW * rows, f"adding {rows:,} rows of shared inputs")
        one = transfer_ticks(f)
        self.earliest, latest, possible = _transfer_windows(f, one)
        pair = self._choose(f, possible)
        leave = model.time("leave", one.shape, lower=self.earliest, upper=latest)
        arrive = model.time("arrive", one.shape, lower=self.earliest, upper=latest)
        fixed, one = (np.where(possible, seconds, 0.0) for seconds in (transfer_ticks(f, 0), one))
        each = one - fixed
        moving = pair * fixed + self.shared.sum(axis=3) * each
        start, finish = f.times.start, f.times.finish
        e, u = np.nonzero(np.diagonal(possible, axis1=1, axis2=2))
        model.implies(pair[e, u, u], start[graph.target[e], u] >= finish[graph.source[e], u], tag="(4a)")
        e, u, v = np.nonzero(possible & ~np.eye(k, dtype=bool))
        model.add(arrive[e, u, v] == (leave + moving)[e, u, v], tag="(7)")
        model.implies(pair[e, u, v], leave[e, u, v] >= finish[graph.source[e], u], tag="(4a)")
        model.implies(pair[e, u, v], start[graph.target[e], v] >= arrive[e, u, v], tag="(4a)")
        f.provide(FlowVariables(pair, leave, arrive, moving, fixed + f.problem.inputs * each))

    def _choose(self, f: Formulation, possible: BoolArray) -> Expression:
        """Add the columns for shared inputs and pairs of batches, and return the pairs."""
        model, x = f.model, f.assign.x
        self.shared = model.binary("shared", (*possible.shape, f.problem.inputs), upper=possible[:, :, :, None])
        pair = model.binary("pair", possible.shape, upper=possible)
        model.add(self.shared.sum(axis=2) == x[f.problem.graph.source], tag="pair")
        model.add(self.shared.sum(axis=1) == x[f.problem.graph.target], tag="pair")
        shared, there = self.shared[np.nonzero(possible)], pair[np.nonzero(possible)]
        model.add(there.reshape(-1, 1) >= shared, tag="pair")
        model.add(there <= shared.sum(axis=1), tag="pair")
        return pair

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        flows, graph, moves, device = f.flows, f.problem.graph, schedule.transfers, schedule.batches.device
        x = values[f.assign.x]
        shared = x[graph.source][:, :, None] * x[graph.target][:, None]
        values[self.shared], values[flows.pair] = shared, shared.max(axis=3)
        place = moves.edge, device[moves.source], device[moves.target]
        for columns, times in ((flows.leave, moves.start), (flows.arrive, moves.finish)):
            moments = self.earliest.copy()  # also without a transfer, which then takes no time
            moments[place] = times * f.second
            values[columns] = moments


def _transfer_windows(f: Formulation, seconds: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the earliest departure and latest arrival of flows, 0 within a device, and which are possible, [E, K, K].

    `seconds` is the model time of one input; the bounds of a flow that is not possible are 0.
    """
    graph, windows = f.problem.graph, f.windows
    least = np.where(f.possible, f.levels.least, 0.0)
    leave = np.where(f.possible, windows.start + least, np.inf)[graph.source][:, :, None] * f.second
    arrive = np.where(f.possible, windows.finish - least, -np.inf)[graph.target][:, None] * f.second
    possible = leave + seconds <= arrive + SLACK * f.ticks
    real = possible & ~np.eye(f.problem.n_devices, dtype=bool)
    earliest, latest = (np.where(real, end, 0.0) for end in (np.minimum(leave, arrive), np.maximum(leave, arrive)))
    return earliest, latest, possible


class Contention(Component):
    """At most one flow at a time in each resource of links: a port of a device, Moirai (8), a port of a node, or a channel."""

    ports: tuple[tuple[Expression, BoolArray], ...] = ()
    """For sending and receiving ports: [E, R] binaries, and which flows hold a resource, [R, E, K, K]; empty for channels."""

    def add_to(self, f: Formulation) -> None:
        problem, k, flows = f.problem, f.problem.n_devices, f.flows
        if not problem.graph.n_edges or k < 2:
            return
        if not flows.shared:
            self._between_batches(f)
            return
        pairs, groups = self._pairs(f), shared_resources(problem.links)
        if groups is None:
            u, v = np.nonzero(~np.eye(k, dtype=bool))
            intervals = f.model.interval(flows.leave, flows.seconds[:, u, v], end=flows.arrive, presence=flows.pair[:, u, v])
            f.model.no_overlap(intervals, pairs, tag=CHANNEL)
            return
        real = (flows.seconds > 0) & ~np.eye(k, dtype=bool)  # a transfer of zero length needs no port
        for name, group in zip(PORTS, groups, strict=False):
            holds = real & group[:, None]
            used = f.model.binary(name, (problem.graph.n_edges, len(group)))
            f.model.add(used == _holders(flows.pair, holds), tag=name)
            taking = np.flatnonzero(holds.any(axis=(0, 2, 3)))
            intervals = f.model.interval(flows.leave[taking], flows.moving[taking], end=flows.arrive[taking], presence=used[taking])
            place = np.full(problem.graph.n_edges, -1)
            place[taking] = np.arange(len(taking))
            kept = pairs[(place[pairs] >= 0).all(axis=1)]
            f.model.no_overlap(intervals, place[kept], tag=_rule(f, name))
            self.ports = (*self.ports, (used, holds))

    def _between_batches(self, f: Formulation) -> None:
        """Let flows between batches that hold a resource exclude one another."""
        flows = f.flows
        for rule, held in _holding(f):
            count = len(held[0])
            f.deadline.require(PAIR * count**2, f"comparing {count:,} transfers with one another")
            intervals = f.model.interval(
                flows.leave[held], flows.moving[held], end=flows.arrive[held], presence=flows.pair[held].reshape(-1, 1)
            )
            f.model.no_overlap(intervals, tag=rule)

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


class FlowLoads(Component):
    """Redundant rows for several inputs: all flows that hold a resource fit between the earliest departure and the least rest.

    So do those of edges ``(i, j)`` whose source finishes at some level or later, and after whose target's start some level
    remains to the makespan, by the shortest batches; see `LoadCuts`.
    """

    @checked
    def __init__(self, levels: int = 3) -> None:
        self.levels = levels

    def add_to(self, f: Formulation) -> None:
        graph, levels = f.problem.graph, f.levels
        head = (levels.starts + levels.least).min(axis=1)[graph.source] * f.second
        tail = (levels.tails + levels.least).min(axis=1)[graph.target] * f.second
        if f.problem.inputs == 1 or np.isinf(head + tail).any():  # a task has no possible device, so the model is infeasible
            return
        sets = list(between(head, tail, self.levels))
        for _, held in _holding(f):
            for chosen in sets:
                some = tuple(axis[np.isin(held[0], chosen)] for axis in held)
                if len(some[0]):
                    begin, rest = float(head[chosen].min()), float(tail[chosen].min())
                    f.model.add(f.objective.expression - f.flows.moving[some].sum() >= begin + rest, tag="flow load", cut=True)


def _holding(f: Formulation) -> Iterator[tuple[str, tuple[IntArray, ...]]]:
    """Yield the rule of each resource that several flows between batches may hold, and their edges and devices."""
    k = f.problem.n_devices
    real = (f.flows.seconds > 0) & ~np.eye(k, dtype=bool)
    groups = shared_resources(f.problem.links)
    channels = np.eye(k * k, dtype=bool).reshape(-1, k, k)
    named = [(CHANNEL, channels)] if groups is None else [(_rule(f, name), group) for name, group in zip(PORTS, groups, strict=False)]
    for rule, resources in named:
        for pairs in resources:
            held = np.nonzero(real & pairs)
            if len(held[0]) > 1:
                yield rule, held


def _rule(f: Formulation, port: str) -> str:
    """Return the tag of the rows of a group of ports."""
    return f"{'(8)' if f.problem.communication == 'port' else 'one'} {port}s"


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
    """Moirai, equations (4) to (8): tasks and transfers are scheduled together.

    Every edge is a flow node of the augmented graph. With ``communication="port"`` flows that leave, or reach, one device
    exclude one another: equation (8), as its published rows have it. With ``"node"`` those that leave or reach one node do,
    with ``"channel"`` those on one directed channel. With several inputs, which the paper does not have, tasks have batches as
    in `BatchedMakespan`, and every pair of batches with common inputs has a flow; the bounds hold for ``batching="once"``.
    `faithful` is for one input.
    """

    name = "moirai"

    @classmethod
    @checked
    def check(cls, problem: Problem, *, faithful: bool = False) -> None:
        super().check(problem, faithful=faithful)
        if faithful and problem.inputs > 1:
            raise UnsupportedFeature(f"{cls.name} has a literal form for one input, not for {problem.inputs}; use faithful=False")

    @classmethod
    @checked
    def columns(cls, problem: Problem) -> int:
        return model_size.assignments(problem) + model_size.timed_flows(problem)

    def recipe(self) -> Iterator[Component]:
        several = self.problem.inputs > 1
        yield Placement()
        yield Timing() if several else SharedTiming()
        yield BatchFlows() if several else LiteralFlows() if self.faithful else Flows()  # (4a), (7)
        if self.problem.links.contended:
            yield Contention()  # (8)
        yield NonOverlap()
        yield StaticMemory()
        yield Makespan()
        if not self.faithful:
            yield LoadCuts()  # redundant rows
            if several and self.problem.links.contended:
                yield FlowLoads()
        yield from symmetry_order(self.symmetry)
