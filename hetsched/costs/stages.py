"""Costs of stages on a device that runs several small kernels at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_rows, checked, number, shown
from hetsched.arrays import FloatArray, IntArray
from hetsched.costs.analytic import Analytic
from hetsched.costs.protocol import KernelModel, Kernels
from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.problem.cluster import Device
from hetsched.problem.graph import TaskGraph

if TYPE_CHECKING:
    from hetsched.costs.stage_kernels import Neighbours

_FITTED = {
    "launch": (1e-9, 1.0),
    "host": (1e-9, 1.0),
    "synchronisation": (1e-9, 1.0),
    "interference": (1e-4, 4.0),
    "efficiency": (1e-4, 1e4),
}
"""The fitted parameters and their ranges."""
PART = 1 - 1e-9
"""A task that reads less than this much of an output reads a part of it."""
FUSED = 2
"""Multiplications and additions for each element of a convolution's output that may be fused with it: bias, normalisation, activation."""


class Contention:
    """Stage costs from what each kernel needs of the device and from how they are launched.

    A kernel alone takes `body` seconds; computing on the whole device would take `work` of these, and moving its bytes at full
    bandwidth `move` (`KernelModel.kernels`). Kernels that run at the same time share both: with ``s`` the largest of 1, the sum of
    ``work / body`` and the sum of ``move / body``, each is slower by ``s * (1 + interference * (1 - 1 / s))``.

    A stage of one group takes ``launch + body`` for each kernel. In a stage of several groups one thread of the host launches the
    kernels of group after group: kernel j is ready ``(j + 1) * host`` seconds after the begin of the stage, and runs after those
    before it in its group; at the end are `synchronisation` seconds. With CUDA graphs `host` is about 1e-6.

    A merged stage is one convolution with the channels of all, whose kernels are padded to one size, and whose readers read
    parts of its output. A task that reads a part of an output (an edge of less than `output_bytes`) takes `strided` times as long in
    batches of more than one input, where the part is not contiguous; a merged stage bears that of its readers. Its cost is inf if
    shapes are unknown, if operators, strides or sizes differ, or if the tasks do not read the same tasks; tasks without
    predecessors are assumed to read different tensors, or if one has more work than the convolution of its shape and what may
    be fused with it: a separable convolution, which is two. A `Shape` does not tell dilation, which excludes merging.

    Parameters
    ----------
    graph : TaskGraph
    device : Device
        The device, with the figures that the cost model needs; its `launch_overhead` is not used.
    inputs : int
        Number of inputs in the batch.
    costs : KernelModel, optional
        What kernels take alone. Default: `Analytic`; with `Roofline` each kernel fills the device.
    launch : float
        Seconds to launch a kernel, as far as they are not hidden by kernels before it in a group.
    host : float
        Seconds of the host between two launches in a stage of several groups.
    synchronisation : float
        Seconds at the end of such a stage.
    interference : float
        Loss by contention beyond that of sharing, >= 0.
    strided : float
        Factor >= 1 for reading a part of an output.
    efficiency : float
        Speed of kernels relative to the cost model, > 0.

    Raises
    ------
    InvalidProblem
        A parameter is out of range, or the cost model refuses the device.

    Notes
    -----
    The defaults of `launch`, `host`, `interference` and `strided` are fitted to latencies of Inception-v3 on a V100 that the authors of
    IOS measured with their engine, see `hetsched reproduce ios table-3`; `fitted` finds other ones. `error` is the largest
    relative error of latencies that were held out of the fit: what differs by less is not told apart. On other devices, or launched
    otherwise, stages take other times; see `CUDA_GRAPHS`.

    References
    ----------
    Y. Ding et al., "IOS: Inter-operator scheduler for CNN acceleration", MLSys 2021, and its implementation.
    """

    error = 0.06
    CUDA_GRAPHS: ClassVar[Mapping[str, float]] = MappingProxyType(
        {"launch": 2.7e-6, "host": 4.84e-6, "synchronisation": 3.38e-6, "interference": 4.0, "efficiency": 0.703}
    )
    """Parameters of stages that are enqueued as CUDA graphs, as `hetsched.runtime.StagedProgram` does; give them by ``**``.

    They are fitted to Inception-v3 with one input on an H100; "On a GPU" in `docs/benchmarks.md` has their errors on other networks."""

    @checked
    def __init__(
        self,
        graph: TaskGraph,
        device: Device,
        *,
        inputs: int = 1,
        costs: KernelModel | None = None,
        launch: float = 11.0e-6,
        host: float = 24.4e-6,
        synchronisation: float = 0.0,
        interference: float = 0.54,
        strided: float = 1.4,
        efficiency: float = 1.0,
    ) -> None:
        for what, value, fits, rule in (
            ("inputs", inputs, inputs >= 1, ">= 1"),
            ("launch", launch, 0 <= launch < math.inf, ">= 0"),
            ("host", host, 0 <= host < math.inf, ">= 0"),
            ("synchronisation", synchronisation, 0 <= synchronisation < math.inf, ">= 0"),
            ("interference", interference, 0 <= interference < math.inf, ">= 0"),
            ("strided", strided, 1 <= strided < math.inf, ">= 1"),
            ("efficiency", efficiency, 0 < efficiency < math.inf, "> 0"),
        ):
            if not fits:
                raise InvalidProblem(f"{what} is {value!r}; it must be {rule}")
        self.graph, self.device, self.inputs = graph, device, inputs
        self.costs: KernelModel = Analytic() if costs is None else costs
        self.launch, self.host, self.synchronisation = launch, host, synchronisation
        self.interference, self.strided, self.efficiency = interference, strided, efficiency
        self._parents = [frozenset(graph.pred[a:b].tolist()) for a, b in zip(graph.pred_ptr[:-1], graph.pred_ptr[1:], strict=True)]
        slower = np.full(graph.n_tasks, 1.0 / efficiency)
        if inputs > 1:
            slower[graph.target[graph.edge_bytes < PART * graph.output_bytes[graph.source]]] *= strided
        self._kernels: FloatArray = np.column_stack([*self._of(graph, slower)]).astype(np.float64)  # [n, 4]

    def _of(self, graph: TaskGraph, slower: FloatArray) -> Kernels:
        kernels = self.costs.kernels(graph, self.device, self.inputs)
        return Kernels(kernels.body * slower, kernels.work * slower, kernels.move * slower, kernels.launched)

    def __call__(self, tasks: tuple[str, ...], strategy: str) -> float:
        """Return the seconds of a stage."""
        if not isinstance(strategy, str):
            raise InvalidArgument(f"strategy is {shown(strategy)}; choose 'concurrent' or 'merge'")
        if strategy == "merge" and len(tasks) > 1:
            return self._merged(self._places(tasks))
        places = self._places(tasks)
        return float(self._seconds(np.array([len(places)]), _chain(len(places)), np.array([0, *places]))[0])

    def table(self, names: tuple[str, ...], parent: npt.NDArray[np.int32], last: npt.NDArray[np.int32]) -> FloatArray:
        """Return the seconds of many stages under both strategies, [stages, 2], see `StageCost`."""
        own = np.array([self.graph.index[name] for name in names])
        costs = np.full((len(parent), 2), math.inf)
        costs[:, 0] = self._seconds(np.arange(len(parent)), parent, own[last])
        costs[:, 1] = self._merges(own, parent, last)
        return costs

    def _seconds(self, chosen: IntArray, parent: npt.NDArray[np.int32], last: IntArray) -> FloatArray:
        from hetsched.costs import stage_kernels

        constants = stage_kernels.Launches(self.launch, self.host, self.synchronisation, self.interference)
        made: FloatArray = stage_kernels.seconds(chosen, parent, last, self._neighbours, self._kernels, constants)
        return made

    @cached_property
    def _neighbours(self) -> Neighbours:
        from hetsched.costs import stage_kernels

        ends = np.concatenate([self.graph.edges, self.graph.edges[:, ::-1]])
        ends = ends[np.argsort(ends[:, 0], kind="stable")]
        return stage_kernels.Neighbours(np.searchsorted(ends[:, 0], np.arange(self.graph.n_tasks + 1)), ends[:, 1].astype(np.int64))

    def _merges(self, own: IntArray, parent: npt.NDArray[np.int32], last: npt.NDArray[np.int32]) -> FloatArray:
        """Return the seconds of many merged stages; `own` are the tasks of the block."""
        from hetsched.costs import stage_kernels

        sorts: dict[object, int] = {}
        kinds = [_merging(self.graph, i) for i in own.tolist()]
        sort = [
            -1 if kind is None else sorts.setdefault((self._parents[i], kind), len(sorts))
            for i, kind in zip(own.tolist(), kinds, strict=True)
        ]
        costs = np.full(len(parent), math.inf)
        for s in np.flatnonzero(stage_kernels.alike(parent, last, np.array(sort, np.int64))).tolist():
            tasks, at = [], s
            while at:
                tasks.append(int(own[last[at]]))
                at = parent[at]
            costs[s] = self._merged(tasks[::-1])
        return costs

    @checked
    def fitted(self, measured: Iterable[tuple[tuple[str, ...], str, float]]) -> Contention:
        """Return the model whose parameters are fitted to measured stages.

        `launch`, `host`, `synchronisation`, `interference` and `efficiency`, starting from their current values, minimise the
        sum of squares of the logarithms of predicted over measured seconds. The measurements should include single tasks, and
        stages of several groups, on which the sharing of the device depends.

        Parameters
        ----------
        measured : iterable of (tasks, strategy, seconds)
            Arguments of the cost, and its measured value.

        Raises
        ------
        InvalidProblem
            There are fewer than five stages, or the time of one is not finite and positive, measured or in the model.
        """
        from scipy.optimize import least_squares

        rows = check_rows(measured, "measured", "tasks", "strategy", "seconds", error=InvalidProblem)
        stages = [(tuple(tasks), strategy, number().check(seconds, "seconds", InvalidProblem)) for tasks, strategy, seconds in rows]
        if len(stages) < len(_FITTED):
            raise InvalidProblem(f"{len(stages)} stages are measured; {len(_FITTED)} parameters need at least as many")
        for tasks, strategy, seconds in stages:
            strange = [name for name in tasks if name not in self.graph.index]
            if strange:
                raise InvalidProblem(f"{strange[0]!r} of a stage is not a task of the graph")
            if not (0 < seconds < math.inf and math.isfinite(self(tasks, strategy))):
                raise InvalidProblem(f"stage {', '.join(tasks)} ({strategy}) takes {seconds} s; leave out impossible stages")
        measured_logs = np.log([seconds for _, _, seconds in stages])

        def model(logs: FloatArray) -> Contention:
            values = dict(zip(_FITTED, np.exp(logs).tolist(), strict=True))
            return Contention(self.graph, self.device, inputs=self.inputs, costs=self.costs, strided=self.strided, **values)

        def misses(logs: FloatArray) -> FloatArray:
            cost = model(logs)
            return np.log([cost(tasks, strategy) for tasks, strategy, _ in stages]) - measured_logs

        low, high = np.log(list(_FITTED.values())).T
        start = np.clip(np.log([max(getattr(self, name), 1e-300) for name in _FITTED]), low, high)
        return model(least_squares(misses, start, bounds=(low, high), diff_step=1e-4, x_scale="jac").x)

    @cached_property
    def bound(self) -> ContentionBound:
        """A cheap lower bound with the arguments of the cost: the longest group alone, all work, all moves, or all launches."""
        return ContentionBound(self)

    def alone(self, i: int) -> float:
        """Return the seconds of a task alone."""
        try:
            return float(self.launch * self._kernels[i, 3] + self._kernels[i, 0])
        except (IndexError, TypeError):
            raise InvalidArgument(f"i is {shown(i)}; it must be the number of a task, below {self.graph.n_tasks}") from None

    def _places(self, tasks: Iterable[str]) -> list[int]:
        try:
            return [self.graph.index[name] for name in tasks]
        except (KeyError, TypeError):
            raise InvalidArgument(f"tasks is {shown(tasks)}; it must be names of tasks of the graph") from None

    def _merged(self, places: list[int]) -> float:
        graph = self.graph
        sorts = {(self._parents[i], _merging(graph, i)) for i in places}
        ((parents, kind),) = sorts if len(sorts) == 1 else ((frozenset(), None),)
        shapes = [shape for i in places if (shape := graph.shape[i]) is not None]
        if kind is None or not parents:
            return math.inf
        first, columns = shapes[0], math.fsum(shape.columns for shape in shapes)
        kernel = tuple(max(lengths) for lengths in zip(*(shape.kernel for shape in shapes), strict=True))
        channels = first.reduction / math.prod(first.kernel)
        reduction = channels * math.prod(kernel)
        made, read = float(graph.output_bytes[places].sum()), float(graph.input_bytes[places].max())
        scalar = float(graph.output_bytes[places[0]]) / (first.rows * first.columns)
        weights = scalar * reduction * columns
        one = TaskGraph(
            ["merged"],
            op=graph.op[places[0]],
            weight_bytes=weights,
            input_bytes=read,
            output_bytes=made,
            flops=2.0 * first.rows * columns * reduction,
            bytes_accessed=weights + read + made,
            shape=[first._replace(columns=columns, reduction=reduction, kernel=kernel)],
        )
        seconds = self.launch + float(self._of(one, np.array([1.0 / self.efficiency])).body[0])
        if self.inputs > 1:
            readers = {j for i in places for j in graph.succ[graph.succ_ptr[i] : graph.succ_ptr[i + 1]].tolist()}
            seconds += (self.strided - 1.0) * float(self._kernels[list(readers), 0].sum())
        return seconds


def _chain(n: int) -> npt.NDArray[np.int32]:
    """Return the parents of n + 1 stages, each of which is the one before and a task; read-only, as those of a block."""
    parents = np.maximum(np.arange(-1, n, dtype=np.int32), 0)
    parents.setflags(write=False)
    return parents


def _merging(graph: TaskGraph, i: int) -> tuple[object, ...] | None:
    """Return what is equal for convolutions that can be merged if they read the same tensors; None for what cannot be merged."""
    op, shape = graph.op[i], graph.shape[i]
    if shape is None or shape.groups != 1 or not shape.kernel or not op.startswith("conv"):
        return None
    if graph.flops[i] > 2.0 * shape.rows * shape.columns * (shape.reduction + FUSED):
        return None
    return op, shape.rows, shape.stride, len(shape.kernel), round(shape.reduction / math.prod(shape.kernel))


class ContentionBound:
    """Lower bounds of the costs of a `Contention`."""

    def __init__(self, cost: Contention) -> None:
        self.cost = cost

    def __call__(self, tasks: tuple[str, ...], strategy: str) -> float:
        """Return the bound of one stage."""
        if strategy == "merge" and len(tasks) > 1:
            return self.cost(tasks, strategy)
        chain = _chain(len(tasks))
        return float(self._concurrent(np.array(self.cost._places(tasks)), chain, chain)[-1])

    def table(self, names: tuple[str, ...], parent: npt.NDArray[np.int32], last: npt.NDArray[np.int32]) -> FloatArray:
        """Return the bounds of many stages under both strategies, [stages, 2], see `StageCost`."""
        own = np.array([self.cost.graph.index[name] for name in names])
        return np.column_stack([self._concurrent(own, parent, last), self.cost._merges(own, parent, last)])

    def _concurrent(self, own: IntArray, parent: npt.NDArray[np.int32], last: npt.NDArray[np.int32]) -> FloatArray:
        """Return the bounds of stages whose tasks are numbers of `own`."""
        from hetsched.costs import stage_kernels

        cost = self.cost
        body, work, move, launched = cost._kernels.T
        amounts = np.column_stack([cost.launch * launched + body, work, move, cost.host * launched])
        longest, single, total = stage_kernels.groups_and_sums(parent, own[last], cost._neighbours, body, amounts)
        together = cost.synchronisation + np.maximum(longest + cost.host * (longest > 0), total[:, 1:].max(axis=1))
        return np.asarray(np.where(single, total[:, 0], together))
