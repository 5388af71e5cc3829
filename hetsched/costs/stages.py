"""Costs of stages on a device that runs several small kernels at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_rows, checked, number, shown
from hetsched.arrays import FloatArray
from hetsched.costs.roofline import Roofline
from hetsched.errors import InvalidArgument, InvalidProblem
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph, named
from hetsched.problem.problem import CostModel

V100_THREADS = 80 * 2048
"""Resident threads of a V100: 2048 on each of 80 multiprocessors, by NVIDIA's white paper on Volta."""


_FITTED = {
    "filled": (1.0, 1e12),
    "least_share": (1e-4, 1.0),
    "synchronisation": (1e-9, 1.0),
    "interference": (1e-4, 4.0),
    "efficiency": (1e-4, 1e4),
}
"""The fitted parameters and their ranges."""


class Convolution(NamedTuple):
    """The shape of a convolution, which merging needs and a graph does not have.

    Merged convolutions read the same tensor with the same stride, and their outputs have the same height
    and width; kernels are padded with zeros to the largest height and width and stacked.
    """

    in_channels: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    out_size: tuple[int, int]
    """Height and width of the output."""


class Contention:
    """Stage costs from a cost model and the share of the device that each task can fill.

    A task alone takes its launch overhead, then ``body / share`` seconds: `body` is the time of the cost model without
    the overhead, divided by `efficiency`, and `share` the part of the device that the task fills, ``output_bytes * inputs / filled``
    within [least_share, 1]. Small kernels share the device and large ones saturate it: while the shares of
    concurrent kernels sum to more than 1, each is slower by that sum to the power of 1 + `interference`.
    Launches of different groups are independent. A stage begins with `synchronisation` seconds.

    A merged stage is one convolution, see `Convolution`, under the same model. Its cost is inf if shapes are unknown,
    if operators, strides or sizes differ, or if the tasks do not read the same tasks; tasks without predecessors
    are assumed to read different tensors.

    Parameters
    ----------
    graph : TaskGraph
    device : Device
        The device, with the figures that the cost model needs; each kernel has its `launch_overhead`.
    inputs : int
        Number of inputs in the batch.
    costs : CostModel, optional
        Durations of tasks that fill the device. Default: `Roofline`.
    filled : float
        Output bytes of a kernel that fills the device. Default: one float32 for each thread of a V100.
    least_share : float
        The least share of the device that a task fills, in (0, 1]. Default: one of 80 multiprocessors.
    synchronisation : float
        Seconds. The default is a round figure, not a measurement; see `fitted`.
    interference : float
        Loss by contention beyond that of sharing, >= 0.
    efficiency : float
        Speed of kernels that fill the device relative to the cost model, > 0.
    convolutions : mapping of str to Convolution, optional
        Shapes by task name.

    Raises
    ------
    InvalidProblem
        A parameter is out of range, a name is not that of a task, or a task cannot run on the device.
    """

    @checked
    def __init__(
        self,
        graph: TaskGraph,
        device: Device,
        *,
        inputs: int = 1,
        costs: CostModel | None = None,
        filled: float = 4.0 * V100_THREADS,
        least_share: float = 1 / 80,
        synchronisation: float = 5e-6,
        interference: float = 0.0,
        efficiency: float = 1.0,
        convolutions: Mapping[str, Convolution] | None = None,
    ) -> None:
        for what, value, fits, rule in (
            ("inputs", inputs, inputs >= 1, ">= 1"),
            ("filled", filled, filled > 0, "> 0"),
            ("least_share", least_share, 0 < least_share <= 1, "in (0, 1]"),
            ("synchronisation", synchronisation, 0 <= synchronisation < math.inf, ">= 0"),
            ("interference", interference, 0 <= interference < math.inf, ">= 0"),
            ("efficiency", efficiency, 0 < efficiency < math.inf, "> 0"),
        ):
            if not fits:
                raise InvalidProblem(f"{what} is {value!r}; it must be {rule}")
        self.graph, self.device, self.inputs = graph, device, inputs
        self.costs: CostModel = Roofline() if costs is None else costs
        self.filled, self.least_share = filled, least_share
        self.synchronisation, self.interference, self.efficiency = synchronisation, interference, efficiency
        self.convolutions = dict(convolutions or {})
        strange = [name for name in self.convolutions if name not in graph.index]
        if strange:
            raise InvalidProblem(f"convolutions names {strange[0]!r}, which is not a task of the graph")
        self._launch, self._body, self._share = self._columns(graph)
        self._parents = [frozenset(graph.pred[a:b].tolist()) for a, b in zip(graph.pred_ptr[:-1], graph.pred_ptr[1:], strict=True)]

    def _columns(self, graph: TaskGraph) -> tuple[list[float], list[float], list[float]]:
        """Return the launch seconds, the body seconds and the share of each task."""
        seconds = np.asarray(self.costs.durations(graph, Cluster([self.device]), [self.inputs]), np.float64)[:, 0, 0]
        if np.isnan(seconds).any():
            raise InvalidProblem(f"{named(np.flatnonzero(np.isnan(seconds)), graph.names)} cannot run on device {self.device.name!r}")
        launch = np.minimum(seconds, self.device.launch_overhead)
        share = np.clip(graph.output_bytes * self.inputs / self.filled, self.least_share, 1.0)
        return launch.tolist(), ((seconds - launch) / self.efficiency).tolist(), share.tolist()

    def __call__(self, tasks: tuple[str, ...], strategy: str) -> float:
        """Return the seconds of a stage."""
        if not isinstance(strategy, str):
            raise InvalidArgument(f"strategy is {shown(strategy)}; choose 'concurrent' or 'merge'")
        if strategy == "merge" and len(tasks) > 1:
            return self._merged(tasks)
        return self.synchronisation + self._together(self._groups(tasks))

    @checked
    def fitted(self, measured: Iterable[tuple[tuple[str, ...], str, float]]) -> Contention:
        """Return the model whose parameters are fitted to measured stages.

        `filled`, `least_share`, `synchronisation`, `interference` and `efficiency`, starting from their current values, minimise the
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
            return Contention(self.graph, self.device, inputs=self.inputs, costs=self.costs, convolutions=self.convolutions, **values)

        def misses(logs: FloatArray) -> FloatArray:
            cost = model(logs)
            return np.log([cost(tasks, strategy) for tasks, strategy, _ in stages]) - measured_logs

        low, high = np.log(list(_FITTED.values())).T
        start = np.clip(np.log([max(getattr(self, name), 1e-300) for name in _FITTED]), low, high)
        return model(least_squares(misses, start, bounds=(low, high), diff_step=1e-4, x_scale="jac").x)

    @cached_property
    def bound(self) -> ContentionBound:
        """A cheap lower bound with the arguments of the cost: the longest group alone, and the work on a full device."""
        return ContentionBound(self)

    def alone(self, i: int) -> float:
        """Return the seconds of a task alone."""
        try:
            return self._launch[i] + self._body[i] / self._share[i]
        except (IndexError, TypeError):
            raise InvalidArgument(f"i is {shown(i)}; it must be the number of a task, below {len(self._launch)}") from None

    def _groups(self, tasks: Iterable[str]) -> list[list[int]]:
        """Return the connected components, each in the order of `tasks`."""
        group: dict[int, list[int]] = {}
        try:
            places = [self.graph.index[name] for name in tasks]
        except (KeyError, TypeError):
            raise InvalidArgument(f"tasks is {shown(tasks)}; it must be names of tasks of the graph") from None
        for i in places:
            group[i] = joined = [i]
            for other in {id(group[p]): group[p] for p in self._parents[i] if p in group}.values():
                joined[:0] = other
                for j in other:
                    group[j] = joined
        return list({id(other): other for other in group.values()}.values())

    def _together(self, groups: list[list[int]]) -> float:
        """Return the seconds until all of some groups end that start at the same time."""
        now = 0.0
        places = [0] * len(groups)  # completed launches and bodies of each group
        left = [self._launch[group[0]] for group in groups]
        share = [0.0] * len(groups)
        running = list(range(len(groups)))
        while running:
            total = math.fsum(share[g] for g in running)
            slower = max(1.0, total) ** (1.0 + self.interference)
            step = min(left[g] * slower if share[g] else left[g] for g in running)
            now += step
            for g in list(running):
                left[g] -= step / slower if share[g] else step
                if left[g] > 1e-12 * now:
                    continue
                places[g] += 1
                if places[g] == 2 * len(groups[g]):
                    running.remove(g)
                    continue
                i = groups[g][places[g] // 2]
                body = places[g] % 2 == 1
                share[g] = self._share[i] if body else 0.0
                left[g] = self._body[i] / self._share[i] if body else self._launch[i]
        return now

    def _merged(self, tasks: tuple[str, ...]) -> float:
        shapes = [self.convolutions.get(name) for name in tasks]
        first = shapes[0]
        places = [self.graph.index[name] for name in tasks]
        parents = self._parents[places[0]]
        if first is None or not parents or any(self._parents[i] != parents or self.graph.op[i] != self.graph.op[places[0]] for i in places):
            return math.inf
        outputs, height, width = 0, 0, 0
        for shape in shapes:
            if shape is None or shape.out_size != first.out_size or (shape.in_channels, shape.stride) != (first.in_channels, first.stride):
                return math.inf
            outputs += shape.out_channels
            height, width = max(height, shape.kernel[0]), max(width, shape.kernel[1])
        own = first.in_channels * height * width
        made = float(self.graph.output_bytes[places].sum())
        read = float(self.graph.input_bytes[places].max())
        weights = float(self._bytes_of_scalar(places[0], first)) * own * outputs
        pixels = first.out_size[0] * first.out_size[1]
        one = TaskGraph(
            ["merged"],
            op=self.graph.op[places[0]],
            weight_bytes=weights,
            input_bytes=read,
            output_bytes=made,
            flops=2.0 * own * outputs * pixels,
            bytes_accessed=weights + read + made,
        )
        (launch,), (body,), (share,) = self._columns(one)
        return self.synchronisation + launch + body / share

    def _bytes_of_scalar(self, i: int, shape: Convolution) -> float:
        return float(self.graph.output_bytes[i]) / (shape.out_channels * shape.out_size[0] * shape.out_size[1])


class ContentionBound:
    """Lower bounds of the costs of a `Contention`."""

    def __init__(self, cost: Contention) -> None:
        self.cost = cost

    def __call__(self, tasks: tuple[str, ...], strategy: str) -> float:
        """Return the bound of one stage."""
        cost = self.cost
        if strategy == "merge" and len(tasks) > 1:
            return cost._merged(tasks)
        groups = cost._groups(tasks)
        longest = max(math.fsum(map(cost.alone, group)) for group in groups)
        return cost.synchronisation + max(longest, math.fsum(cost._body[i] for group in groups for i in group))

    def table(self, names: tuple[str, ...], parent: npt.NDArray[np.int32], last: npt.NDArray[np.int32]) -> FloatArray:
        """Return the bounds of many stages under both strategies, [stages, 2], see `StageCost`."""
        from hetsched.costs import stage_kernels

        cost, graph = self.cost, self.cost.graph
        own = [graph.index[name] for name in names]
        place = {i: x for x, i in enumerate(own)}
        pairs = [(place[i], x) for x, j in enumerate(own) for i in cost._parents[j] if i in place]
        ends = np.array([*pairs, *((b, a) for a, b in pairs)], np.int64).reshape(-1, 2)
        ends = ends[np.argsort(ends[:, 0], kind="stable")]
        ptr = np.searchsorted(ends[:, 0], np.arange(len(own) + 1))
        alone, body = np.array([cost.alone(i) for i in own]), np.array([cost._body[i] for i in own])
        longest, total = stage_kernels.longest_and_sum(parent, last, ptr, ends[:, 1].copy(), alone, body)
        bounds = np.full((len(parent), 2), math.inf)
        bounds[:, 0] = cost.synchronisation + np.maximum(longest, total)
        sorts: dict[object, int] = {}
        sort = [
            -1 if name not in cost.convolutions else sorts.setdefault(cost._parents[i], len(sorts))
            for name, i in zip(names, own, strict=True)
        ]
        for s in np.flatnonzero(stage_kernels.alike(parent, last, np.array(sort, np.int64))).tolist():
            tasks, at = [], s
            while at:
                tasks.append(names[last[at]])
                at = parent[at]
            bounds[s, 1] = cost._merged(tuple(tasks[::-1]))
        return bounds
