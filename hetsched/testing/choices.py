"""The options of a decision, derived from the rules alone: batch sizes, numbers of inputs, devices."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hetsched.problem.problem import Problem


class Choices:
    """The options of a decision for a problem, in plain Python containers.

    Attributes
    ----------
    units : list of tuple of int
        Tasks that must share devices: those with the same co-location label, or a single task.
    unit_of : list of int
        The unit of each task.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        members: dict[object, list[int]] = {}
        for i, label in enumerate(problem.graph.colocation):
            members.setdefault(i if label is None else label, []).append(i)
        self.units = [tuple(tasks) for tasks in members.values()]
        self.unit_of = [0] * problem.n_tasks
        for u, tasks in enumerate(self.units):
            for i in tasks:
                self.unit_of[i] = u

    @cached_property
    def sizes(self) -> list[list[list[int]]]:
        """Batch sizes of task i on device k; empty if a pin or missing durations exclude the device."""
        problem = self.problem
        finite = np.isfinite(problem.durations).tolist()
        sizes = problem.batch_sizes.tolist()
        return [
            [
                [size for size, fits in zip(sizes, finite[i][k], strict=True) if fits and size <= problem.inputs]
                if pin is None or name in pin
                else []
                for k, name in enumerate(problem.cluster.names)
            ]
            for i, pin in enumerate(problem.graph.devices)
        ]

    @cached_property
    def counts(self) -> list[list[set[int]]]:
        """Numbers of inputs of task i that can run on device k under the batching rule."""
        return [[self._sums(sizes) for sizes in row] for row in self.sizes]

    def _sums(self, sizes: list[int]) -> set[int]:
        if self.problem.batching == "once":
            return {0, *sizes}
        return {total for total in range(self.problem.inputs + 1) if self.chunks(total, sizes) or total == 0}

    def chunks(self, total: int, sizes: list[int]) -> list[int]:
        """Return the possible sizes of a first batch of `total` inputs such that the rest can be batched too."""
        if self.problem.batching == "once":
            return [total] if total in sizes else []
        reachable = [True] + [False] * total
        for amount in range(1, total + 1):
            reachable[amount] = any(size <= amount and reachable[amount - size] for size in sizes)
        return [size for size in sizes if size <= total and reachable[total - size]]

    def spreads(self, unit: int) -> list[tuple[int, ...]]:
        """Return every distribution of a unit's L inputs over the devices: numbers of inputs per device."""
        n_devices, total = self.problem.n_devices, self.problem.inputs
        common = [set.intersection(*(self.counts[i][k] for i in self.units[unit])) for k in range(n_devices)]
        partial: list[tuple[int, ...]] = [()]
        for k in range(n_devices):
            partial = [(*row, count) for row in partial for count in sorted(common[k]) if sum(row) + count <= total]
        return [row for row in partial if sum(row) == total]

    @cached_property
    def paths(self) -> list[list[list[bool]]]:
        """Whether the data of edge e can move from device h to device k."""
        size = self.problem.n_devices
        edge, h, k = np.ogrid[: self.problem.graph.n_edges, :size, :size]
        result: list[list[list[bool]]] = np.isfinite(self.problem.transfer_times(edge, h, k)).tolist()
        return result

    @cached_property
    def incoming(self) -> list[list[tuple[int, int]]]:
        """(edge, source task) pairs of each task."""
        result: list[list[tuple[int, int]]] = [[] for _ in range(self.problem.n_tasks)]
        for e, (i, j) in enumerate(self.problem.graph.edges.tolist()):
            result[j].append((e, i))
        return result
