"""Running a module under a placement, each task on the worker of its device."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from hetsched.runtime.code import Compiled, Function, Registers
from hetsched.runtime.places import Place
from hetsched.runtime.program import Program, Values
from hetsched.runtime.streams import Queues

Result = TypeVar("Result")
Probe = Callable[["Worker", Callable[[], None]], Result]
"""Runs a function on a worker's thread and returns a measurement of it."""


class Worker:
    """A device: a thread that runs tasks of a program on a CPU, with a number of torch threads and maybe cores, or on CUDA."""

    def __init__(
        self, place: Place, program: Program, compiled: Compiled, clock: Callable[[], float], queues: Queues | None = None
    ) -> None:
        self.place, self.program, self.compiled, self.clock, self.queues = place, program, compiled, clock, queues
        self.name, self.device, self.threads = place.name, place.device, place.threads
        self.functions: Sequence[Function] | Mapping[int, Function] = compiled.functions
        if queues is not None and program.device != place.device:
            queues.load(compiled, range(program.graph.n_tasks))
            self.functions = queues.functions
        elif queues is not None:
            queues.follow()
        self.pool = ThreadPoolExecutor(1, thread_name_prefix=f"hetsched-{place.name}", initializer=self._pin)

    @property
    def counts_cpu(self) -> bool:
        """Whether the CPU time of its thread is that of its tasks."""
        return self.device.type == "cpu" and self.threads == 1

    def _pin(self) -> None:
        if self.place.cores is not None:
            os.sched_setaffinity(0, self.place.cores)

    def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function on the worker's thread and return its result."""
        return self.begin(function, *args).result()

    def begin(self, function: Callable[..., Result], *args: Any) -> Future[Result]:
        """Let the worker's thread call a function."""
        return self.pool.submit(self._call, function, *args)

    def _call(self, function: Callable[..., Result], *args: Any) -> Result:
        torch.set_num_threads(self.threads)  # some libraries have one number for all threads
        queues = self.queues
        with torch.no_grad(), contextlib.nullcontext() if queues is None else queues.accelerator.on(queues.compute):
            return function(*args)

    def put(self, value: Any) -> Any:
        """Return a tensor of the program's device, or another value, on this one."""
        moves = isinstance(value, torch.Tensor) and self.queues is not None and self.program.device != self.device
        return self.queues.put(value) if moves and self.queues is not None else value

    def copied(self, value: torch.Tensor, home: Worker) -> torch.Tensor:
        """Return a copy of a tensor of another worker on this device."""
        if home.queues is not None:
            home.queues.synchronise()
            value = home.queues.get(value)
        return self.queues.put(value) if self.queues is not None else value.to(self.device, copy=True)

    def wait(self) -> None:
        """Wait until the device has done its work."""
        if self.queues is not None:
            self.queues.synchronise()


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
        program, compiled = where[0].program, where[0].compiled
        order = program.order
        self.jobs = [(worker, list(tasks)) for worker, tasks in itertools.groupby(order, key=lambda i: where[i])]
        self.reads = compiled.reads
        self.home = [where[value.task] for value in compiled.values]
        self.given = {worker.name: self._own(worker, given[worker.name]) for worker in self.workers}
        place = {i: k for k, i in enumerate(order)}
        self.dead: list[list[int]] = [[] for _ in order]
        for register, value in enumerate(compiled.values):
            if not value.kept:
                self.dead[max(value.readers, key=place.__getitem__)].append(register)

    def _own(self, worker: Worker, given: Values) -> Registers:
        """Return the registers of a worker before a run: its own inputs, and what is no value of a task."""
        registers = list(map(worker.put, worker.compiled.start(given)))
        for register, home in enumerate(self.home):
            if home is not worker:
                registers[register] = None
        return registers

    def start(self) -> dict[str, Registers]:
        """Return the registers of each worker before the run."""
        return {name: list(own) for name, own in self.given.items()}

    def __call__(self, registers: dict[str, Registers], probe: Probe[Result]) -> list[Result]:
        """Run all tasks on the `registers` of `start`, which are updated, and return the probe's measurement of each task."""
        results: dict[int, Result] = {}
        for worker, tasks in self.jobs:
            worker.call(self._job, worker, tasks, registers, probe, results)
        return [results[i] for i in range(len(self.where))]

    def _job(
        self, worker: Worker, tasks: list[int], registers: dict[str, Registers], probe: Probe[Result], results: dict[int, Result]
    ) -> None:
        own, functions = registers[worker.name], worker.functions
        for i in tasks:
            for register in self.reads[i]:
                home = self.home[register]
                if home is not worker and own[register] is None:
                    own[register] = worker.copied(registers[home.name][register], home)
            results[i] = probe(worker, lambda i=i: functions[i](own))  # type: ignore[misc]
            for register in self.dead[i]:
                for other in self.workers:
                    registers[other.name][register] = None
