"""The components that formulations are lists of; tags are the equation numbers of the papers."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.errors import UnsupportedFeature
from hetsched.modeling.expression import stack
from hetsched.models.formulation import Formulation, fill_in
from hetsched.schedule.schedule import Schedule

ROW = 3e-7
"""Seconds that a row for an edge, two devices and an input takes, on an ordinary machine."""


class Placement:
    """Who runs what: ``x[i, u, l]``, ``on[i, u]``, ``duration[i, u]``; DiviML (1), (4), (5).

    With one input ``x[:, :, 0]`` is `on`; with more, batches ``b[i, u, p]`` of the sizes there are.
    """

    def add_to(self, f: Any) -> None:
        problem, model = f.problem, f.model
        n, k, inputs = problem.n_tasks, problem.n_devices, problem.inputs
        possible = f.possible * 1.0
        f.x = model.binary("x", (n, k, inputs), upper=possible[:, :, None])
        # What takes longer than the upper bound is in no schedule that the model knows: twice that says so in a number that solvers take.
        seconds = np.minimum(np.where(np.isfinite(problem.durations), problem.durations, 0.0) * f.second, 2.0 * f.ticks)
        model.exactly_one(_devices_last(f.x), tag="(1)")
        if inputs == 1:
            size = int(np.flatnonzero(problem.batch_sizes == 1)[0])
            f.on = f.busy = f.x[:, :, 0]
            f.seconds = seconds[:, :, size]
            f.duration = f.on * f.seconds
        else:
            usable = np.isfinite(problem.durations) * possible[:, :, None]
            f.b = model.binary("b", (n, k, problem.n_sizes), upper=usable)
            f.on = model.binary("on", (n, k), upper=possible)
            model.add(f.b.sum(axis=2) == f.on, tag="(5)")
            model.add((f.b * problem.batch_sizes).sum(axis=2) == f.x.sum(axis=2), tag="(5)")
            model.add((f.b * problem.batch_sizes).sum(axis=(1, 2)) == inputs, tag="(4)", cut=True)
            f.duration = (f.b * seconds).sum(axis=2)
            f.busy = f.on
            takes = (seconds > 0) & (usable > 0)
            if (takes.any(axis=2) & (takes != (usable > 0)).any(axis=2)).any():
                # Some sizes of a task take no time there, others do: only the latter keep the device busy.
                f.busy = self.busy = model.binary("busy", (n, k))
                model.add(f.busy == (f.b * takes).sum(axis=2), tag="busy")
                self.takes = takes
        self._colocate(f)

    def _colocate(self, f: Any) -> None:
        problem = f.problem
        unit = problem.unit
        leader = np.full(problem.n_units, -1)
        leader[unit[::-1]] = np.arange(problem.n_tasks)[::-1]
        followers = np.flatnonzero(leader[unit] != np.arange(problem.n_tasks))
        if len(followers):
            f.model.add(f.x[followers] == f.x[leader[unit[followers]]], tag="co-location")

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        problem, batches = f.problem, schedule.batches
        x = np.zeros((problem.n_tasks, problem.n_devices, problem.inputs))
        batch = np.repeat(np.arange(len(batches)), np.diff(schedule.item_ptr))
        x[batches.task[batch], batches.device[batch], schedule.items] = 1
        fill_in(values, f.x, x)
        if problem.inputs > 1:
            b = np.zeros((problem.n_tasks, problem.n_devices, problem.n_sizes))
            b[batches.task, batches.device, np.searchsorted(problem.batch_sizes, batches.size)] = 1
            fill_in(values, f.b, b)
            fill_in(values, f.on, b.sum(axis=2))
            if hasattr(self, "busy"):
                fill_in(values, self.busy, (b * self.takes).sum(axis=2))


class SharedTiming:
    """One start and one finish a task, wherever it runs: for one input. ``start[i]``, ``finish[i]``."""

    def add_to(self, f: Any) -> None:
        if f.problem.inputs > 1:
            raise UnsupportedFeature("one start a task is enough for one input only; use Timing")
        if f.faithful:
            f.start, f.finish = (f.model.time(name, f.problem.n_tasks, upper=f.ticks) for name in ("start", "finish"))
            f.model.add(f.finish == f.start + f.duration.sum(axis=1), tag="finish")
            return
        # A task that can run nowhere has no window; that it must run somewhere makes the model infeasible.
        first = np.where(f.possible, f.windows.start * f.second, 0.0)
        last = np.where(f.possible, f.windows.finish * f.second, f.ticks)
        early, finish = _over(f, first, np.min), _over(f, last, np.max)
        late, head = _over(f, last - f.seconds, np.max), _over(f, first + f.seconds, np.min)
        f.start = f.model.time("start", f.problem.n_tasks, lower=early, upper=np.maximum(early, late))
        f.finish = f.model.time("finish", f.problem.n_tasks, lower=np.minimum(head, finish), upper=finish)
        f.model.add(f.finish == f.start + f.duration.sum(axis=1), tag="finish")
        # Where it can start depends on where it runs.
        heads = np.where(f.possible, first - early[:, None], 0.0)
        tail = np.where(f.possible, finish[:, None] - last, 0.0)
        f.model.add(f.start - (f.on * heads).sum(axis=1) >= early, tag="window", cut=True)
        f.model.add(f.finish + (f.on * tail).sum(axis=1) <= finish, tag="window", cut=True)

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        task = schedule.batches.task
        for columns, times in ((f.start, schedule.batches.start), (f.finish, schedule.batches.finish)):
            known = np.empty(f.problem.n_tasks)
            known[task] = times
            fill_in(values, columns, known * f.second)


class Timing:
    """A start for each task on each device, whether it runs there or not: ``start[i, u]``, ``finish[i, u]``."""

    def add_to(self, f: Any) -> None:
        f.start = f.model.time("start", (f.problem.n_tasks, f.problem.n_devices), upper=f.ticks)
        f.finish = f.start + f.duration
        if not f.faithful:  # windows, which bind where the task runs
            first = np.where(f.possible, f.windows.start * f.second, 0.0)
            last = np.where(f.possible, f.windows.finish * f.second, f.ticks)
            f.model.add(f.start - f.on * first >= 0, tag="window", cut=True)
            f.model.add(f.finish + f.on * (f.ticks - last) <= f.ticks, tag="window", cut=True)

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        batches = schedule.batches
        known = np.zeros(f.start.shape)
        if f.faithful:
            known = _literal_starts(f.problem, schedule)
        known[batches.task, batches.device] = batches.start
        fill_in(values, f.start, known * f.second)


class Precedence:
    """A task starts after its parents, and after their data where they run elsewhere; DiviML (3), as weak as it can be."""

    def add_to(self, f: Any) -> None:
        if f.problem.inputs == 1:
            self._shared(f)
        else:
            self._each_input(f)

    def _shared(self, f: Any) -> None:
        graph, model = f.problem.graph, f.model
        times = transfer_ticks(f)
        i, j = graph.source, graph.target
        model.add(f.start[j] >= f.finish[i], tag="(3)")
        uniform = _uniform(times)
        even = np.flatnonzero(~np.isnan(uniform) & (uniform > 0))
        if len(even):  # one time between any two devices: charged where a device has the parent but not the child
            gap = f.on[i[even]] - f.on[j[even]]
            late = (f.start[j[even]] - f.finish[i[even]]).reshape(-1, 1)
            model.add(late - gap * uniform[even, None] >= 0, tag="(3)")
        uneven = np.flatnonzero(np.isnan(uniform))
        if len(uneven):
            self.edges, self.pair = uneven, flows(f, "pair", uneven, times[uneven])
            seconds = np.where(np.isfinite(times[uneven]), times[uneven], 0.0)
            late = f.start[j[uneven]] - f.finish[i[uneven]]
            model.add(late - (self.pair * seconds).sum(axis=(1, 2)) >= 0, tag="(3)")

    def _each_input(self, f: Any) -> None:
        """Bind a pair of devices where they share an input, and for as long as what they share takes."""
        problem, model = f.problem, f.model
        graph, k, inputs = problem.graph, problem.n_devices, problem.inputs
        one, rest = transfer_ticks(f), np.zeros((graph.n_edges, k, k))
        if not problem.links.per_input:
            rest = np.where(np.isfinite(one), transfer_ticks(f, 2) - np.where(np.isfinite(one), one, 0.0), 0.0)  # of each further input
        e, u, v = (each.ravel() for each in np.indices((graph.n_edges, k, k)))
        i, j = graph.source[e], graph.target[e]
        real = f.possible[i, u] & f.possible[j, v]
        e, u, v, i, j = (each[real] for each in (e, u, v, i, j))
        both = np.isfinite(one[e, u, v])
        Paths().add_to(f)
        e, u, v, i, j = (each[both] for each in (e, u, v, i, j))
        far = np.flatnonzero((u != v) & (rest[e, u, v] > 0))
        near = np.setdiff1d(np.arange(len(e)), far)
        seconds = f.start[j, v] - f.finish[i, u] - one[e, u, v]
        self._bind(f, (i[near], u[near], j[near], v[near]), seconds[near])
        if len(far):
            # shared[q, l]: both ends of a far pair have input l; each after the first takes its own time.
            self.shared = model.binary("shared", (len(far), inputs))
            self.ends = ends = (i[far], u[far], j[far], v[far])
            model.add(self.shared >= f.x[ends[0], ends[1]] + f.x[ends[2], ends[3]] - 1, tag="(3)")
            more = (self.shared.sum(axis=1) - 1) * rest[e[far], u[far], v[far]]
            self._bind(f, ends, seconds[far] - more)

    @staticmethod
    def _bind(f: Any, ends: Any, late: Any) -> None:
        """Require ``late >= 0`` where both ends have an input."""
        i, u, j, v = ends
        rows = late.size * f.problem.inputs
        f.deadline.require(ROW * rows, f"saying {rows:,} rows of precedence")
        wide = late.reshape(late.size, 1).broadcast_to((late.size, f.problem.inputs))
        f.model.implies(stack([f.x[i, u], f.x[j, v]]), wide >= 0, tag="(3)")

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        if hasattr(self, "pair"):
            fill_flows(f, self.pair, self.edges, values)
        if hasattr(self, "shared"):
            i, u, j, v = self.ends
            x = values[f.x.column].reshape(f.x.shape)
            fill_in(values, self.shared, x[i, u] * x[j, v])


class Paths:
    """The ends of an edge do not run on devices between which there is no path."""

    def add_to(self, f: Any) -> None:
        e, u, v = np.nonzero(np.isinf(transfer_ticks(f)))
        if len(e):
            i, j = f.problem.graph.source[e], f.problem.graph.target[e]
            f.model.add(f.x[i, u] + f.x[j, v] <= 1, tag="no path")


class LiteralPrecedence:
    """DiviML (3) as printed: it orders starts also where only one of the ends is there."""

    def add_to(self, f: Any) -> None:
        problem, model = f.problem, f.model
        graph, k = problem.graph, problem.n_devices
        times = transfer_ticks(f)
        e, u, v = (each.ravel() for each in np.indices((graph.n_edges, k, k)))
        i, j = graph.source[e], graph.target[e]
        seconds = times[e, u, v]
        Paths().add_to(f)
        kept = np.flatnonzero(np.isfinite(seconds))
        e, u, v, i, j, seconds = (each[kept] for each in (e, u, v, i, j, seconds))
        comm = (f.x[j, v] + f.x[i, u] - 1) * seconds[:, None]
        model.add((f.start[j, v] - f.finish[i, u]).reshape(-1, 1) - comm >= 0, tag="(3)")


class NonOverlap:
    """No two batches overlap on a device; DiviML (7). Pairs that a path joins are left out where the path orders them."""

    def add_to(self, f: Any) -> None:
        problem = f.problem
        ordered = problem.inputs == 1 or f.faithful
        pairs = f.unordered() if ordered else np.stack(np.triu_indices(problem.n_tasks, 1), axis=1)
        if f.start.ndim == 1:
            intervals = f.model.interval(f.start, f.seconds, end=f.finish, presence=f.busy)
        else:
            intervals = f.model.interval(f.start, f.duration, end=f.finish, presence=f.busy)
        f.model.no_overlap(intervals, pairs, tag="(7)")


class StaticMemory:
    """Weights of what runs on a device once each, inputs and outputs of every input, within its capacity; DiviML (6)."""

    def add_to(self, f: Any) -> None:
        problem = f.problem
        capacity = problem.cluster.memory_bytes
        limited = np.flatnonzero(np.isfinite(capacity))
        if not len(limited):
            return
        # In shares of the capacity, so that a solver's tolerance is one too; the law forgives 1e-9. What does not fit alone
        # counts as two of them, so that coefficients stay small and a device without memory has a row like any other.
        room = capacity[limited]
        weight, activation = (_share(claim, room) for claim in (problem.graph.weight_bytes, problem.static_bytes[:, 1]))
        needed = (f.on[:, limited] * weight).sum(axis=0) + (f.x.sum(axis=2)[:, limited] * activation).sum(axis=0)
        f.model.add(needed <= (room > 0) * 1.0, tag="(6)")


def _share(claim: Any, room: Any) -> Any:
    """Return claims as shares of capacities, [n, K], at most 2."""
    shares = np.where(claim[:, None] > 0, 2.0, np.zeros(len(room)))
    return np.divide(claim[:, None], room, out=shares, where=claim[:, None] < 2.0 * room)


class Makespan:
    """C is at least every finish; DiviML (2)."""

    def add_to(self, f: Any) -> None:
        f.makespan = f.model.time("C", (), lower=0.0, upper=f.ticks)
        f.model.add(f.makespan >= f.finish, tag="(2)")
        f.model.minimise(f.makespan)

    def fill(self, f: Any, schedule: Schedule, values: Any) -> None:
        fill_in(values, f.makespan, schedule.makespan * f.second)


def transfer_ticks(f: Formulation, count: int = 1) -> Any:
    """Return the time of every edge between every two devices in the model's time, [E, K, K]; inf without a path.

    At most twice the upper bound, beyond which it is in no schedule that the model knows.
    """
    every, edge = np.arange(f.problem.n_devices), np.arange(f.problem.graph.n_edges)
    times = np.asarray(f.problem.transfer_times(edge[:, None, None], every[:, None], every, count)) * f.second
    return np.where(np.isfinite(times), np.minimum(times, 2.0 * f.ticks), np.inf)


def flows(f: Any, name: str, edges: Any, times: Any) -> Any:
    """Return new ``pair[e, u, v]``: the edge's source runs on u and its target on v."""
    i, j = f.problem.graph.source[edges], f.problem.graph.target[edges]
    upper = (f.possible[i][:, :, None] & f.possible[j][:, None, :] & np.isfinite(times)) * 1.0
    pair = f.model.binary(name, times.shape, upper=upper)
    f.model.add(pair.sum(axis=2) == f.on[i], tag="pair")
    f.model.add(pair.sum(axis=1) == f.on[j], tag="pair")
    return pair


def fill_flows(f: Any, pair: Any, edges: Any, values: Any) -> None:
    """Set the values of `flows`."""
    on = values[f.on.column].reshape(f.on.shape)
    i, j = f.problem.graph.source[edges], f.problem.graph.target[edges]
    fill_in(values, pair, on[i][:, :, None] * on[j][:, None, :])


def _uniform(times: Any) -> Any:
    """Return the time between any two different devices where there is but one, else NaN, [E]."""
    size = times.shape[1]
    if size < 2:
        return np.zeros(len(times))
    apart = times[:, ~np.eye(size, dtype=bool)]
    same = np.isfinite(apart).all(axis=1) & (apart.max(axis=1, initial=0) == apart.min(axis=1, initial=np.inf))
    return np.where(same, apart[:, 0], np.nan) if apart.shape[1] else np.zeros(len(times))


def _devices_last(x: Any) -> Any:
    """Return x[i, u, l] with the devices last."""
    return x._take(np.arange(x.size).reshape(x.shape).transpose(0, 2, 1))


def _over(f: Any, times: Any, choose: Any) -> Any:
    """Return the least or largest of [n, K] times over the devices where each task can run, over all if there is none, [n]."""
    somewhere = np.where(f.possible.any(axis=1)[:, None], f.possible, True)
    return np.array([choose(row[here]) for row, here in zip(times, somewhere, strict=True)], np.float64).reshape(len(times))


def _literal_starts(problem: Any, schedule: Schedule) -> Any:
    """Return starts that keep the literal (3) where a task does not run: as early as its parents allow, [n, K] seconds."""
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
