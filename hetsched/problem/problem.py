"""A scheduling problem: a task graph on a cluster, with durations, inputs, and the rules of execution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from os import PathLike
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hetsched import documents
from hetsched.arguments import checked, number, whole
from hetsched.arrays import BoolArray, FloatArray, Frozen, IntArray, readonly, row_starts
from hetsched.errors import InvalidProblem
from hetsched.lazy import later
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.labels import Axis, Numbers
from hetsched.problem.links import Communication, LinkTable, link_table
from hetsched.problem.validation import (
    MOST_INPUTS,
    check_coverage,
    check_eligibility,
    checked_durations,
    checked_kinds,
    checked_sizes,
    checked_transfers,
    warn_of_units,
)

Batching = Literal["once", "free"]
Memory = Literal["static", "peak"]
MOST_ITEMS = 10_000_000
"""Limit on inputs times (tasks + edges) of a problem, which is the number of rows of its schedules."""


class CostModel(Protocol):
    """An object that computes durations from a graph and a cluster."""

    def durations(self, graph: TaskGraph, cluster: Cluster, batch_sizes: Sequence[int]) -> FloatArray:
        """Return seconds per batch, shape [n, K, B]; NaN where a task cannot run."""
        ...


class ProblemArrays(NamedTuple):
    """The columns of one problem in a form numba accepts, for kernels."""

    inputs: int
    links: LinkTable
    source: IntArray
    target: IntArray
    pred_ptr: IntArray
    pred: IntArray
    pred_edge: IntArray
    succ_ptr: IntArray
    succ: IntArray
    succ_edge: IntArray
    sizes: IntArray
    durations: FloatArray
    """[n, C, B], for C classes of devices; inf where the batch cannot run, pins and co-location included."""
    column: IntArray
    """[K], the class of each device."""


class Problem(Frozen):
    """A task graph to be mapped and scheduled on a cluster; validated and immutable.

    Parameters
    ----------
    graph : TaskGraph
    cluster : Cluster
    durations : array [n, K] or [n, K, B]
        Seconds for one batch of each size of each task on each device; NaN where it cannot run.
        [n, K] is for one input. A mapping (of mappings) or a pandas data frame is indexed by name.
    costs : CostModel
        Computes the durations; given instead of `durations`.
    kinds : sequence of str, optional
        The second axis of `durations` are these kinds of devices instead of the devices: all devices of one
        ``kind`` have equal durations, which are stored once. With `costs`, which then computes them for the
        first device of each kind, ``kinds=cluster.kinds``.
    batch_sizes : sequence of int
        The B sizes along the last axis of `durations`. With `costs` and several inputs the default
        is a quarter, half, three quarters and all of the inputs.
    inputs : int
        Number L of inputs that flow through the graph.
    batching : {"once", "free"}
        At most one batch per task and device, or any number.
    communication : {"delay", "per-input", "channel", "port", "node"}
    memory : {"static", "peak"}
    transfers : array [E, K, K], optional
        Transfer seconds for one input along each edge between each ordered pair of devices, in the
        order of ``graph.edges``; zero on the diagonal, NaN where impossible. Replaces bytes over
        bandwidth. A mapping is indexed by (source, target), then by device names.

    Raises
    ------
    InvalidProblem
        An argument breaks a rule; the message has the task, edge or device, the rule and the remedy.

    Warns
    -----
    UserWarning
        Tasks have a `Shape`, as those of captured models, and a link, a memory or a duration looks like one of another unit: below
        1 MB/s, below 1 MB, above an hour.

    Notes
    -----
    Units are seconds, bytes and bytes per second; durations may be text with a unit, ``"2 ms"``. docs/background/semantics.md
    defines each option.
    """

    _format = "hetsched-problem"
    graph: TaskGraph
    cluster: Cluster
    kinds: tuple[str, ...] | None
    table: FloatArray
    """Seconds, [n, kinds, B], or [n, K, B] without `kinds`; NaN where a task cannot run."""
    batch_sizes: IntArray
    inputs: int
    batching: Batching
    communication: Communication
    memory: Memory
    transfers: FloatArray | None

    @checked(InvalidProblem, inputs=whole(1, MOST_INPUTS))
    def __init__(
        self,
        graph: TaskGraph,
        cluster: Cluster,
        *,
        durations: Numbers | None = None,
        costs: CostModel | None = None,
        kinds: Iterable[str] | None = None,
        batch_sizes: Iterable[int] | None = None,
        inputs: int = 1,
        batching: Batching = "once",
        communication: Communication = "delay",
        memory: Memory = "static",
        transfers: Numbers | None = None,
    ) -> None:
        if inputs * (graph.n_tasks + graph.n_edges) > MOST_ITEMS:
            raise InvalidProblem(
                f"inputs is {inputs}, which with {graph.n_tasks} tasks and {graph.n_edges} edges makes more than {MOST_ITEMS} pairs of "
                "an input and a task or edge; give fewer inputs, for instance several as one with durations to match"
            )
        sizes = checked_sizes(batch_sizes, inputs, costs is not None)
        if (durations is None) == (costs is None):
            raise InvalidProblem("give either durations (an array of seconds) or costs (a cost model), and not both")
        names = None if kinds is None else checked_kinds(kinds, cluster)
        if costs is not None:
            durations = costs.durations(graph, cluster if names is None else _first_of(names, cluster), sizes.tolist())
        axis = Axis("device", cluster.names) if names is None else Axis("kind", names)
        times = checked_durations(durations, graph, axis, sizes, batch_sizes is None)
        order = np.argsort(sizes, kind="stable")
        self._set(
            graph=graph,
            cluster=cluster,
            kinds=names,
            table=np.ascontiguousarray(times[:, :, order]),
            batch_sizes=sizes[order],
            inputs=inputs,
            batching=batching,
            communication=communication,
            memory=memory,
            transfers=None if transfers is None else checked_transfers(transfers, graph, cluster),
        )
        check_eligibility(self)
        check_coverage(self)
        warn_of_units(self)

    def __repr__(self) -> str:
        inputs = "" if self.inputs == 1 else f", {self.inputs} inputs, batching {self.batching}"
        return f"<Problem: {self.n_tasks} tasks on {', '.join(self.cluster.names)}{inputs}, communication {self.communication}>"

    _repr_html_ = later("hetsched.report.notebook:problem_html")

    def replace(self, **changes: Any) -> Problem:
        """Return a copy with some constructor arguments replaced.

        New `durations` are of all devices unless `kinds` is given, and of other sizes need `batch_sizes`; `costs` replaces all three.
        """
        arguments = {name: self.__dict__[name] for name in self._fields}
        arguments["durations"] = arguments.pop("table")
        if "costs" in changes:
            del arguments["durations"], arguments["kinds"], arguments["batch_sizes"]
        elif "durations" in changes:
            del arguments["kinds"], arguments["batch_sizes"]
            if self.n_sizes > 1 or self.batch_sizes[0] != 1:
                arguments["batch_sizes"] = self.batch_sizes
        return Problem(**{**arguments, **changes})

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the problem as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)

    # ------------------------------------------------------------------ sizes and derived columns

    @property
    def n_tasks(self) -> int:
        """Number of tasks n."""
        return self.graph.n_tasks

    @property
    def n_devices(self) -> int:
        """Number of devices K."""
        return self.cluster.n_devices

    @property
    def n_sizes(self) -> int:
        """Number of batch sizes B."""
        return len(self.batch_sizes)

    # Of what depends on tasks and devices, one column is kept for each class of devices.

    @cached_property
    def column(self) -> IntArray:
        """The column of `table` of each device, shape [K]."""
        if self.kinds is None:
            return readonly(np.arange(self.n_devices))
        index = {kind: place for place, kind in enumerate(self.kinds)}
        return readonly([index[device.kind] for device in self.cluster.devices], np.int64)

    @cached_property
    def device_class(self) -> IntArray:
        """The class of each device, shape [K]: tasks have equal durations and equal pins on all devices of a class."""
        if self.kinds is None or not self.paths.all():
            return readonly(np.arange(self.n_devices))
        pins = dict.fromkeys(pin for pin in self.graph.devices if pin is not None)
        keys = [self.column, *(np.isin(self.cluster.names, pin) for pin in pins)]
        first, classes = np.unique(np.stack(keys, axis=1), axis=0, return_index=True, return_inverse=True)[1:]
        return readonly(np.arange(self.n_devices) if len(first) == self.n_devices else classes.reshape(-1), np.int64)

    def _per_device(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values for each device of values for each class: [n, C, ...] to [n, K, ...]; those of one device per class unchanged."""
        return values if values.shape[1] == self.n_devices else readonly(values[:, self.device_class])

    @cached_property
    def class_durations(self) -> FloatArray:
        """Seconds as `durations`, on a device of each class, shape [n, C, B]."""
        if self.kinds is None:
            return self.table
        return readonly(self.table[:, self.column[np.unique(self.device_class, return_index=True)[1]]])

    @cached_property
    def durations(self) -> FloatArray:
        """Seconds for one batch of each size of each task on each device, shape [n, K, B]; NaN where it cannot run."""
        return self.table if self.kinds is None else readonly(self.table[:, self.column])

    @cached_property
    def class_pinned(self) -> BoolArray:
        """Whether the pin of a task allows the devices of a class, shape [n, C]."""
        allowed = np.ones((self.n_tasks, self.class_durations.shape[1]), bool)
        index = self.cluster.index
        for i, pin in enumerate(self.graph.devices):
            if pin is not None:
                for name in pin:
                    if name not in index:
                        task = self.graph.names[i]
                        raise InvalidProblem(f"task {task!r} is pinned to {name!r}, which is no device of the cluster ({', '.join(index)})")
                allowed[i] = False
                allowed[i, self.device_class[[index[name] for name in pin]]] = True
        return readonly(allowed)

    @cached_property
    def pinned(self) -> BoolArray:
        """Whether the pin of a task allows a device, shape [n, K]."""
        return self._per_device(self.class_pinned)

    @cached_property
    def unit(self) -> IntArray:
        """Number of the co-location unit of each task, shape [n]; a task without a label is a unit by itself."""
        labels = self.graph.colocation
        if all(label is None for label in labels):
            return readonly(np.arange(self.n_tasks))
        numbers: dict[object, int] = {}
        return readonly([numbers.setdefault(i if label is None else label, len(numbers)) for i, label in enumerate(labels)], np.int64)

    @cached_property
    def n_units(self) -> int:
        """Number of co-location units."""
        return int(self.unit.max(initial=-1)) + 1

    @cached_property
    def class_eligible(self) -> BoolArray:
        """Whether a task may run on the devices of a class, see `eligible`; shape [n, C]."""
        usable = np.isfinite(self.class_durations[:, :, self.batch_sizes <= self.inputs]).any(axis=2) & self.class_pinned
        return readonly(self._reachable(self._united(usable)))

    @cached_property
    def eligible(self) -> BoolArray:
        """Whether a task may run on a device: durations, pins, co-location and the paths to its
        neighbours are considered, memory is not; shape [n, K]."""
        return self._per_device(self.class_eligible)

    def _united(self, usable: BoolArray) -> BoolArray:
        """Return for each task the devices, or classes, usable by all members of its co-location unit, [n, K] or [n, C]."""
        if self.n_units == self.n_tasks:
            return usable
        common = np.ones((self.n_units, usable.shape[1]), bool)
        np.logical_and.at(common, self.unit, usable)
        return common[self.unit]

    @cached_property
    def paths(self) -> BoolArray:
        """Whether a transfer from h to k is possible: [1, K, K] if equal for all edges, else [E, K, K]."""
        return self.cluster.route_bandwidth[None] > 0 if self.transfers is None else np.isfinite(self.transfers)

    def _reachable(self, usable: BoolArray) -> BoolArray:
        """Remove devices with no path to any usable device of some neighbour, until none is left to remove; [n, K]."""
        if self.paths.all():
            return usable
        from hetsched.problem import topology_kernels

        units = np.ones((self.n_units, self.n_devices), bool)
        units[self.unit] = usable  # equal for all members
        source, target, every = self.unit[self.graph.source], self.unit[self.graph.target], np.arange(self.graph.n_edges)
        ends, others = np.concatenate([source, target]), np.concatenate([target, source])
        order = np.argsort(ends, kind="stable")
        ptr = row_starts(np.bincount(ends, minlength=self.n_units))
        leaving = np.repeat([True, False], self.graph.n_edges)
        topology_kernels.drop_unreachable(units, ptr, others[order], np.tile(every, 2)[order], leaving[order], self.paths)
        return units[self.unit]

    @cached_property
    def static_bytes(self) -> FloatArray:
        """Bytes that task i adds to the static memory of a device, once and per input, [n, 2]."""
        graph = self.graph
        return readonly(np.stack([graph.weight_bytes, graph.input_bytes + graph.output_bytes], axis=1))

    @cached_property
    def unit_bytes(self) -> FloatArray:
        """Bytes that each co-location unit adds to the static memory of a device, once and per input, [n_units, 2]."""
        return readonly(sums_by_unit(self, self.static_bytes))

    @cached_property
    def class_whole_durations(self) -> FloatArray:
        """Seconds of one batch of all L inputs on a device of each class, shape [n, C]; inf where it cannot run."""
        place = int(np.searchsorted(self.batch_sizes, self.inputs))
        if place == self.n_sizes or self.batch_sizes[place] != self.inputs:
            return readonly(np.full(self.arrays.durations.shape[:2], np.inf))
        seconds = self.arrays.durations[:, :, place]
        return readonly(np.where(self._united(np.isfinite(seconds)), seconds, np.inf))

    @cached_property
    def without_whole_batch(self) -> IntArray:
        """The tasks that have no batch of all L inputs on any device."""
        return readonly(np.flatnonzero(np.isinf(self.class_whole_durations).all(axis=1)))

    @cached_property
    def whole_durations(self) -> FloatArray:
        """Seconds of one batch of all L inputs on each device, shape [n, K]; inf where it cannot run."""
        return self._per_device(self.class_whole_durations)

    @cached_property
    def usable_durations(self) -> FloatArray:
        """Seconds as `durations`, but inf where the batch cannot run, pins and co-location included; shape [n, K, B]."""
        return self._per_device(self.arrays.durations)

    @cached_property
    def links(self) -> LinkTable:
        """Transfer times, and the resources that transfers hold."""
        return link_table(self.communication, self.cluster, self.graph.edge_bytes, self.transfers)

    @cached_property
    def arrays(self) -> ProblemArrays:
        """The columns for kernels."""
        graph = self.graph
        seconds = self.class_durations
        usable = self.class_eligible[:, :, None] & np.isfinite(seconds) & (self.batch_sizes <= self.inputs)
        return ProblemArrays(
            inputs=self.inputs,
            links=self.links,
            source=graph.source,
            target=graph.target,
            pred_ptr=graph.pred_ptr,
            pred=graph.pred,
            pred_edge=graph.pred_edge,
            succ_ptr=graph.succ_ptr,
            succ=graph.succ,
            succ_edge=graph.succ_edge,
            sizes=self.batch_sizes,
            durations=readonly(np.where(usable, seconds, np.inf)),
            column=self.device_class,
        )

    # ------------------------------------------------------------------ transfer times

    @checked(InvalidProblem, size=number(0.0))
    def transfer_time(self, size: float, source: str, target: str) -> float:
        """Return the seconds that `size` bytes take between two devices, inf without a path.

        ``alpha + size / beta`` over the route, 0 within a device. Explicit `transfers` are
        ignored here: they belong to edges, see `transfer_times`.
        """
        h, k = self._device(source), self._device(target)
        return 0.0 if h == k else float(self._route_times(np.float64(size), h, k))

    def transfer_times(self, edge: Any, source: Any, target: Any, count: Any = 1) -> FloatArray:
        """Return the seconds of transfers, element by element.

        Parameters
        ----------
        edge, source, target : int arrays (broadcast together)
            Index of the edge, of the sending device, of the receiving device.
        count : int array
            Number of inputs that each transfer carries.

        Returns
        -------
        float64 array
            0 within a device, inf where there is no path.
        """
        try:
            factor = np.ones(np.shape(count)) if self.links.per_input else np.asarray(count, np.float64)
            if self.transfers is None:
                return np.asarray(self._route_times(self.graph.edge_bytes[edge] * factor, source, target))
            return np.asarray(np.nan_to_num(self.transfers[edge, source, target] * factor, nan=np.inf))
        except (IndexError, OverflowError, TypeError, ValueError) as error:
            rule = "give indices of edges and devices, and numbers of inputs, that can be broadcast together"
            raise InvalidProblem(f"no transfer times: {' '.join(str(error).split())}; {rule}") from error

    def _route_times(self, size: Any, h: Any, k: Any) -> Any:
        latency, bandwidth = self.cluster.route_latency[h, k], self.cluster.route_bandwidth[h, k]
        if self.cluster.connected:  # within a device the latency is 0 and the bandwidth infinite
            return latency + size / bandwidth
        with np.errstate(divide="ignore", invalid="ignore"):
            moving = np.where(size > 0, size / bandwidth, 0.0)
        return latency + moving

    def _device(self, name: str) -> int:
        try:
            return self.cluster.index[name]
        except KeyError:
            raise InvalidProblem(f"device {name!r} is not in the cluster; it has {', '.join(self.cluster.names)}") from None


def sums_by_unit(problem: Problem, amounts: FloatArray) -> FloatArray:
    """Return the sums of amounts [n] or [n, c] over the tasks of each co-location unit, [n_units] or [n_units, c]."""
    sums = np.empty((problem.n_units, *amounts.shape[1:]))
    for column, total in zip(np.atleast_2d(amounts.T), np.atleast_2d(sums.T), strict=True):
        total[:] = np.bincount(problem.unit, column, problem.n_units)
    return sums


def stated(durations: FloatArray) -> FloatArray:
    """Return usable durations as `Problem` takes them: NaN instead of inf."""
    return np.where(np.isfinite(durations), durations, np.nan)


def _first_of(kinds: tuple[str, ...], cluster: Cluster) -> Cluster:
    """Return the cluster of the first device of each kind."""
    of = [device.kind for device in cluster.devices]
    chosen = [of.index(kind) for kind in kinds]
    pairs = np.ix_(chosen, chosen)
    return Cluster([cluster.devices[k] for k in chosen], cluster.bandwidth[pairs], cluster.latency[pairs])
