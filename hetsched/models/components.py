"""Components of formulations; their tags are the equation numbers of the papers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import BoolArray, FloatArray, IntArray
from hetsched.errors import UnsupportedFeature
from hetsched.modeling.expression import Expression, stack
from hetsched.models.formulation import Component, Formulation
from hetsched.models.variables import AssignmentVariables, Objective, TimeVariables, Values
from hetsched.problem.links import LinkTable
from hetsched.problem.problem import Problem
from hetsched.schedule.objectives import find_objective
from hetsched.schedule.schedule import Schedule

ROW = 3e-7
"""Estimated seconds to add a row for an edge, two devices and an input."""


class Placement(Component):
    """The assignment of inputs of tasks to devices, `AssignmentVariables`; DiviML (1), (4), (5).

    With several inputs, ``b[i, u, p]`` chooses the batch size.
    """

    takes: BoolArray | None = None
    """[n, K, B]: sizes with a positive duration, for tasks and devices that also have sizes of duration 0."""

    def add_to(self, f: Formulation) -> None:
        problem, model = f.problem, f.model
        n, k, inputs = problem.n_tasks, problem.n_devices, problem.inputs
        possible = f.possible * 1.0
        x = model.binary("x", (n, k, inputs), upper=possible[:, :, None])
        # A batch longer than the upper bound is in no representable schedule; twice the bound is a number that suits solvers.
        seconds = np.minimum(np.where(np.isfinite(problem.durations), problem.durations, 0.0) * f.second, 2.0 * f.ticks)
        model.exactly_one(_devices_last(x), tag="(1)")
        if inputs == 1:
            size = int(np.flatnonzero(problem.batch_sizes == 1)[0])
            on, one = x[:, :, 0], seconds[:, :, size]
            f.provide(AssignmentVariables(x, on, on, on * one, one, None))
        else:
            usable = np.isfinite(problem.durations) * possible[:, :, None]
            b = model.binary("b", (n, k, problem.n_sizes), upper=usable)
            on = model.binary("on", (n, k), upper=possible)
            model.add(b.sum(axis=2) == on, tag="(5)")
            model.add((b * problem.batch_sizes).sum(axis=2) == x.sum(axis=2), tag="(5)")
            model.add((b * problem.batch_sizes).sum(axis=(1, 2)) == inputs, tag="(4)", cut=True)
            busy = on
            takes = (seconds > 0) & (usable > 0)
            if (takes.any(axis=2) & (takes != (usable > 0)).any(axis=2)).any():
                # Only sizes of positive duration occupy the device.
                busy = model.binary("busy", (n, k))
                model.add(busy == (b * takes).sum(axis=2), tag="busy")
                self.takes = takes
            f.provide(AssignmentVariables(x, on, busy, (b * seconds).sum(axis=2), seconds.max(axis=2), b))
        self._colocate(f)

    def _colocate(self, f: Formulation) -> None:
        problem, x = f.problem, f.assign.x
        unit = problem.unit
        leader = np.full(problem.n_units, -1)
        leader[unit[::-1]] = np.arange(problem.n_tasks)[::-1]
        followers = np.flatnonzero(leader[unit] != np.arange(problem.n_tasks))
        if len(followers):
            f.model.add(x[followers] == x[leader[unit[followers]]], tag="co-location")

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        problem, batches = f.problem, schedule.batches
        x = np.zeros((problem.n_tasks, problem.n_devices, problem.inputs))
        batch = np.repeat(np.arange(len(batches)), np.diff(schedule.item_ptr))
        x[batches.task[batch], batches.device[batch], schedule.items] = 1
        values[f.assign.x] = x
        if f.assign.batches is not None:
            b = np.zeros((problem.n_tasks, problem.n_devices, problem.n_sizes))
            b[batches.task, batches.device, np.searchsorted(problem.batch_sizes, batches.size)] = 1
            values[f.assign.batches] = b
            values[f.assign.on] = b.sum(axis=2)
            if self.takes is not None:
                values[f.assign.busy] = (b * self.takes).sum(axis=2)


class SharedTiming(Component):
    """One start and one finish for each task, on any device, for one input: `TimeVariables` of shape [n]."""

    def add_to(self, f: Formulation) -> None:
        if f.problem.inputs > 1:
            raise UnsupportedFeature("one start for each task is enough for one input only; use Timing")
        n, length = f.problem.n_tasks, f.assign.duration.sum(axis=1)
        if f.faithful:
            start, finish = (f.model.time(name, n, upper=f.ticks) for name in ("start", "finish"))
            f.model.add(finish == start + length, tag="finish")
            f.provide(TimeVariables(start, finish))
            return
        # A task without a possible device has no window; another row makes the model infeasible.
        first = np.where(f.possible, f.windows.start * f.second, 0.0)
        last = np.where(f.possible, f.windows.finish * f.second, f.ticks)
        early, end = _over(f, first, np.min), _over(f, last, np.max)
        late, head = _over(f, last - f.assign.seconds, np.max), _over(f, first + f.assign.seconds, np.min)
        start = f.model.time("start", n, lower=early, upper=np.maximum(early, late))
        finish = f.model.time("finish", n, lower=np.minimum(head, end), upper=end)
        f.model.add(finish == start + length, tag="finish")
        # The window of the start depends on the device.
        heads = np.where(f.possible, first - early[:, None], 0.0)
        tail = np.where(f.possible, end[:, None] - last, 0.0)
        f.model.add(start - (f.assign.on * heads).sum(axis=1) >= early, tag="window", cut=True)
        f.model.add(finish + (f.assign.on * tail).sum(axis=1) <= end, tag="window", cut=True)
        f.provide(TimeVariables(start, finish))

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        task = schedule.batches.task
        for columns, times in ((f.times.start, schedule.batches.start), (f.times.finish, schedule.batches.finish)):
            starts = np.empty(f.problem.n_tasks)
            starts[task] = times
            values[columns] = starts * f.second


class Timing(Component):
    """A start for each task on each device, even if it does not run there: `TimeVariables` of shape [n, K]."""

    def add_to(self, f: Formulation) -> None:
        start = f.model.time("start", (f.problem.n_tasks, f.problem.n_devices), upper=f.ticks)
        finish = start + f.assign.duration
        f.provide(TimeVariables(start, finish))
        if not f.faithful:  # windows, which bind on devices that run the task
            first = np.where(f.possible, f.windows.start * f.second, 0.0)
            last = np.where(f.possible, f.windows.finish * f.second, f.ticks)
            f.model.add(start - f.assign.on * first >= 0, tag="window", cut=True)
            f.model.add(finish + f.assign.on * (f.ticks - last) <= f.ticks, tag="window", cut=True)

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        batches = schedule.batches
        starts = _literal_starts(f.problem, schedule) if f.faithful else np.zeros(f.times.start.shape)
        starts[batches.task, batches.device] = batches.start
        values[f.times.start] = starts * f.second


class Precedence(Component):
    """A task starts after its parents, and after the transfer of their data from other devices; a relaxed DiviML (3)."""

    flows: tuple[Expression, IntArray] | None = None
    """Columns of `add_flows`, and their edges."""
    shared: tuple[Expression, tuple[IntArray, IntArray, IntArray, IntArray]] | None = None
    """[P, L] binaries: both ends of a pair have an input; with the task and device of both ends."""

    def add_to(self, f: Formulation) -> None:
        if f.problem.inputs == 1:
            self._shared(f)
        else:
            self._each_input(f)

    def _shared(self, f: Formulation) -> None:
        graph, model = f.problem.graph, f.model
        times = transfer_ticks(f)
        i, j = graph.source, graph.target
        start, finish, on = f.times.start, f.times.finish, f.assign.on
        model.add(start[j] >= finish[i], tag="(3)")
        uniform = _uniform(times)
        even = np.flatnonzero(~np.isnan(uniform) & (uniform > 0))
        if len(even):  # one time between any two devices: charged if a device runs the parent but not the child
            gap = on[i[even]] - on[j[even]]
            late = (start[j[even]] - finish[i[even]]).reshape(-1, 1)
            model.add(late - gap * uniform[even, None] >= 0, tag="(3)")
        uneven = np.flatnonzero(np.isnan(uniform))
        if len(uneven):
            pair = add_flows(f, "pair", uneven, times[uneven])
            seconds = np.where(np.isfinite(times[uneven]), times[uneven], 0.0)
            late = start[j[uneven]] - finish[i[uneven]]
            model.add(late - (pair * seconds).sum(axis=(1, 2)) >= 0, tag="(3)")
            self.flows = pair, uneven

    def _each_input(self, f: Formulation) -> None:
        """Bind pairs of batches on two devices if they share inputs, by the transfer time of these inputs."""
        problem, model = f.problem, f.model
        graph, k, inputs = problem.graph, problem.n_devices, problem.inputs
        one, rest = transfer_ticks(f), np.zeros((graph.n_edges, k, k))
        if not problem.links.per_input:
            rest = np.where(np.isfinite(one), transfer_ticks(f, 2) - np.where(np.isfinite(one), one, 0.0), 0.0)  # for each further input
        e, u, v = (axis.ravel() for axis in np.indices((graph.n_edges, k, k)))
        i, j = graph.source[e], graph.target[e]
        real = f.possible[i, u] & f.possible[j, v]
        e, u, v, i, j = (axis[real] for axis in (e, u, v, i, j))
        both = np.isfinite(one[e, u, v])
        Paths().add_to(f)
        e, u, v, i, j = (axis[both] for axis in (e, u, v, i, j))
        far = np.flatnonzero((u != v) & (rest[e, u, v] > 0))
        near = np.setdiff1d(np.arange(len(e)), far)
        seconds = f.times.start[j, v] - f.times.finish[i, u] - one[e, u, v]
        self._bind(f, (i[near], u[near], j[near], v[near]), seconds[near])
        if len(far):
            # Each further input of a pair on different devices adds its time.
            shared = model.binary("shared", (len(far), inputs))
            ends = (i[far], u[far], j[far], v[far])
            model.add(shared >= f.assign.x[ends[0], ends[1]] + f.assign.x[ends[2], ends[3]] - 1, tag="(3)")
            more = (shared.sum(axis=1) - 1) * rest[e[far], u[far], v[far]]
            self.shared = shared, ends
            self._bind(f, ends, seconds[far] - more)

    @staticmethod
    def _bind(f: Formulation, ends: tuple[IntArray, IntArray, IntArray, IntArray], late: Expression) -> None:
        """Require ``late >= 0`` if both ends have an input."""
        i, u, j, v = ends
        rows = late.size * f.problem.inputs
        f.deadline.require(ROW * rows, f"adding {rows:,} rows of precedence")
        wide = late.reshape(late.size, 1).broadcast_to((late.size, f.problem.inputs))
        f.model.implies(stack([f.assign.x[i, u], f.assign.x[j, v]]), wide >= 0, tag="(3)")

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        if self.flows is not None:
            fill_flows(f, *self.flows, values)
        if self.shared is not None:
            columns, (i, u, j, v) = self.shared
            x = values[f.assign.x]
            values[columns] = x[i, u] * x[j, v]


class Paths(Component):
    """The ends of an edge run on devices that have a path between them."""

    def add_to(self, f: Formulation) -> None:
        e, u, v = np.nonzero(np.isinf(transfer_ticks(f)))
        if len(e):
            i, j = f.problem.graph.source[e], f.problem.graph.target[e]
            f.model.add(f.assign.x[i, u] + f.assign.x[j, v] <= 1, tag="no path")


class LiteralPrecedence(Component):
    """DiviML (3) as printed: it orders starts even if a device runs only one of the ends."""

    def add_to(self, f: Formulation) -> None:
        problem, model = f.problem, f.model
        graph, k = problem.graph, problem.n_devices
        times = transfer_ticks(f)
        e, u, v = (axis.ravel() for axis in np.indices((graph.n_edges, k, k)))
        i, j = graph.source[e], graph.target[e]
        seconds = times[e, u, v]
        Paths().add_to(f)
        kept = np.flatnonzero(np.isfinite(seconds))
        e, u, v, i, j, seconds = (axis[kept] for axis in (e, u, v, i, j, seconds))
        comm = (f.assign.x[j, v] + f.assign.x[i, u] - 1) * seconds[:, None]
        model.add((f.times.start[j, v] - f.times.finish[i, u]).reshape(-1, 1) - comm >= 0, tag="(3)")


class NonOverlap(Component):
    """No two batches overlap on a device; DiviML (7). Pairs connected by a path are omitted if the path orders them."""

    def add_to(self, f: Formulation) -> None:
        problem = f.problem
        ordered = problem.inputs == 1 or f.faithful
        pairs = f.unordered_pairs() if ordered else np.stack(np.triu_indices(problem.n_tasks, 1), axis=1)
        size = f.assign.seconds if f.times.shared else f.assign.duration
        batches = f.model.interval(f.times.start, size, end=f.times.finish, presence=f.assign.busy)
        f.model.no_overlap(batches, pairs, tag="(7)")


class StaticMemory(Component):
    """The weights of the tasks on a device, and their bytes for every input, fit its capacity; DiviML (6)."""

    def add_to(self, f: Formulation) -> None:
        problem = f.problem
        capacity = problem.cluster.memory_bytes
        limited = np.flatnonzero(np.isfinite(capacity))
        if not len(limited):
            return
        # In shares of the capacity, so that a solver's tolerance is relative; the rules permit 1e-9. A claim that does not fit
        # by itself counts as 2, so that coefficients stay small and a device without memory has a row like any other.
        room = capacity[limited]
        weight, activation = (_share(claim, room) for claim in (problem.graph.weight_bytes, problem.static_bytes[:, 1]))
        needed = (f.assign.on[:, limited] * weight).sum(axis=0) + (f.assign.x.sum(axis=2)[:, limited] * activation).sum(axis=0)
        f.model.add(needed <= (room > 0) * 1.0, tag="(6)")


def _share(claim: FloatArray, room: FloatArray) -> FloatArray:
    """Return memory claims as shares of capacities, [n, K], at most 2."""
    shares = np.where(claim[:, None] > 0, 2.0, np.zeros(len(room)))
    return np.divide(claim[:, None], room, out=shares, where=claim[:, None] < 2.0 * room)


class Makespan(Component):
    """C is at least every finish; DiviML (2)."""

    def add_to(self, f: Formulation) -> None:
        makespan = f.model.time("C", (), lower=0.0, upper=f.ticks)
        f.model.add(makespan >= f.times.finish, tag="(2)")
        f.minimise(Objective(makespan, "makespan", f.second, find_objective("makespan")))

    def fill(self, f: Formulation, schedule: Schedule, values: Values) -> None:
        fill_objective(f, schedule, values)


def transfer_ticks(f: Formulation, count: int = 1) -> FloatArray:
    """Return the time of every edge between every two devices in the model's time, [E, K, K]; inf without a path.

    Times are at most twice the upper bound, for a longer transfer is in no representable schedule.
    """
    every, edge = np.arange(f.problem.n_devices), np.arange(f.problem.graph.n_edges)
    times = np.asarray(f.problem.transfer_times(edge[:, None, None], every[:, None], every, count)) * f.second
    return np.where(np.isfinite(times), np.minimum(times, 2.0 * f.ticks), np.inf)


def add_flows(f: Formulation, name: str, edges: IntArray, times: FloatArray) -> Expression:
    """Return new ``pair[e, u, v]``: the edge's source runs on u and its target on v."""
    i, j = f.problem.graph.source[edges], f.problem.graph.target[edges]
    upper = (f.possible[i][:, :, None] & f.possible[j][:, None, :] & np.isfinite(times)) * 1.0
    pair = f.model.binary(name, times.shape, upper=upper)
    f.model.add(pair.sum(axis=2) == f.assign.on[i], tag="pair")
    f.model.add(pair.sum(axis=1) == f.assign.on[j], tag="pair")
    return pair


def fill_flows(f: Formulation, pair: Expression, edges: IntArray, values: Values) -> None:
    """Set the values of `add_flows`."""
    on = values[f.assign.on]
    i, j = f.problem.graph.source[edges], f.problem.graph.target[edges]
    values[pair] = on[i][:, :, None] * on[j][:, None, :]


@checked
def shared_resources(links: LinkTable) -> tuple[BoolArray, ...] | None:
    """Return the pairs of devices that hold each resource: those held first [R, K, K], then those held second; None if no pairs share one.

    It is one group where some resource is held first by one pair and second by another; no pair holds any within a single node.
    """
    one, other = np.moveaxis(links.resource, 2, 0)
    held = np.unique(one[one >= 0], return_counts=True)
    if not len(held[0]):
        return ()
    if (one == other).all() and (held[1] == 1).all():
        return None
    groups = [held[0], np.unique(other[other >= 0])]
    if np.isin(groups[0], groups[1]).any():
        groups = [np.unique(np.concatenate(groups))]
    holds = [(one == group[:, None, None]) | (other == group[:, None, None]) for group in groups]
    return tuple(resources for resources in holds if len(resources))


def fill_objective(f: Formulation, schedule: Schedule, values: Values) -> None:
    """Set the value of the objective's column."""
    values[f.objective.expression] = f.objective.value(f.problem, schedule) * f.objective.ticks_per_second


def _uniform(times: FloatArray) -> FloatArray:
    """Return the time between different devices if it is the same for all pairs, else NaN, [E]."""
    size = times.shape[1]
    if size < 2:
        return np.zeros(len(times))
    apart = times[:, ~np.eye(size, dtype=bool)]
    same = np.isfinite(apart).all(axis=1) & (apart.max(axis=1, initial=0) == apart.min(axis=1, initial=np.inf))
    return np.where(same, apart[:, 0], np.nan) if apart.shape[1] else np.zeros(len(times))


def _devices_last(x: Expression) -> Expression:
    """Return x[i, u, l] with the devices last."""
    return x._take(np.arange(x.size).reshape(x.shape).transpose(0, 2, 1))


def _over(f: Formulation, times: FloatArray, choose: Callable[[FloatArray], float]) -> FloatArray:
    """Return the least or largest of [n, K] times over the possible devices of each task, or over all without one, [n]."""
    somewhere = np.where(np.any(f.possible, axis=1)[:, None], f.possible, True)
    return np.array([choose(row[here]) for row, here in zip(times, somewhere, strict=True)], np.float64).reshape(len(times))


def _literal_starts(problem: Problem, schedule: Schedule) -> FloatArray:
    """Return starts that satisfy the literal (3) on all devices: as early as the parents permit, [n, K] seconds."""
    batches, graph = schedule.batches, problem.graph
    start = np.zeros((problem.n_tasks, problem.n_devices))
    here = np.zeros(start.shape, bool)
    length = np.zeros(start.shape)
    here[batches.task, batches.device] = True
    length[batches.task, batches.device] = batches.finish - batches.start
    start[batches.task, batches.device] = batches.start
    for j in graph.topological_order.tolist():
        parents = graph.pred[graph.pred_ptr[j] : graph.pred_ptr[j + 1]]
        if len(parents):
            ready = (start[parents] + length[parents]).max()
            start[j] = np.where(here[j], start[j], ready)
    return start
