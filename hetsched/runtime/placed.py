"""Running a module under a placement, each task on the worker of its device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch.fx import Node
from torch.utils._pytree import tree_map

from hetsched.runtime.program import Program, Values

Result = TypeVar("Result")
Probe = Callable[["Worker", Callable[[], None]], Result]
"""Runs a function on a worker's thread and returns a measurement of it."""


class Worker:
    """A device: a thread that runs tasks of a program on a CPU, with a number of torch threads, or on CUDA."""

    def __init__(self, name: str, program: Program, threads: int, clock: Callable[[], float]) -> None:
        self.name, self.program, self.threads, self.clock = name, program, threads, clock
        self.device = program.device
        self.pool = ThreadPoolExecutor(1, thread_name_prefix=f"hetsched-{name}")

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """The nodes by name; names are the same in the programs of all devices."""
        return {node.name: node for node in self.program.calls.program.graph.nodes}

    def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function on the worker's thread and return its result."""
        return self.pool.submit(self._call, function, *args).result()

    def _call(self, function: Callable[..., Result], *args: Any) -> Result:
        torch.set_num_threads(self.threads)  # some libraries have one number for all threads
        if self.device.type == "cpu":
            with torch.no_grad():
                return function(*args)
        with torch.no_grad(), torch.cuda.device(self.device):
            return function(*args)

    def copied(self, value: Any) -> Any:
        """Return a copy of a value on this device."""
        return tree_map(lambda leaf: leaf.to(self.device, copy=True) if isinstance(leaf, torch.Tensor) else leaf, value)


class PlacedRun:
    """A run of all tasks of a module in order, each on its worker, for the arguments of one batch.

    Workers share no data: the inputs of a task from another worker are copied before it begins, and values without further
    readers are released, so that the memory of each device is that of a distributed run.

    Parameters
    ----------
    where : sequence of Worker
        The worker of each task.
    given : dict of worker name to Values
        The arguments, on each worker's device.
    """

    def __init__(self, where: Sequence[Worker], given: dict[str, Values]) -> None:
        self.where = where
        self.workers = list({worker.name: worker for worker in where}.values())
        program = where[0].program
        order = program.graph.topological_order.tolist()
        self.jobs = [(worker, list(tasks)) for worker, tasks in itertools.groupby(order, key=lambda i: where[i])]
        self.owner = {node.name: i for i, nodes in enumerate(program.calls.nodes) for node in nodes}
        self.given = {worker.name: self._own(worker, given[worker.name]) for worker in self.workers}
        kept = {node.name for node in program.last.reads}
        last = {node.name: i for i in order for node in program.work[i].reads}
        self.dead: list[list[str]] = [[] for _ in order]
        for name, i in last.items():
            if name not in kept:
                self.dead[i].append(name)

    def _own(self, worker: Worker, given: Values) -> Values:
        """Return the arguments on a worker: its own inputs, and values that are not tensors."""
        return {node: value for node, value in given.items() if node.name not in self.owner or self.where[self.owner[node.name]] is worker}

    def start(self) -> dict[str, Values]:
        """Return the values on each device before the run."""
        return {name: dict(own) for name, own in self.given.items()}

    def __call__(self, values: dict[str, Values], probe: Probe[Result]) -> list[Result]:
        """Run all tasks on the `values` of `start`, which are updated, and return the probe's measurement of each task."""
        results: dict[int, Result] = {}
        for worker, tasks in self.jobs:
            worker.call(self._job, worker, tasks, values, probe, results)
        return [results[i] for i in range(len(self.where))]

    def _job(self, worker: Worker, tasks: list[int], values: dict[str, Values], probe: Probe[Result], results: dict[int, Result]) -> None:
        own = values[worker.name]
        for i in tasks:
            for node in worker.program.work[i].reads:
                home = self.where[self.owner[node.name]]
                if home is not worker and node not in own:
                    own[node] = worker.copied(values[home.name][home.nodes[node.name]])
            results[i] = probe(worker, lambda i=i: worker.program.run((i,), own))  # type: ignore[misc]
            for name in self.dead[i]:
                for other in self.workers:
                    values[other.name].pop(other.nodes[name], None)
