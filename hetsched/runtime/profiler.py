"""Times and memory of the tasks of a PyTorch module on the devices of this machine."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch.utils._pytree import tree_map

from hetsched.arguments import check_count, checked, whole
from hetsched.arrays import FloatArray
from hetsched.costs.protocol import Measured, Placement, devices_of
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.problem.cluster import Device
from hetsched.runtime.measured import device_name
from hetsched.runtime.placed import PlacedRun, Worker
from hetsched.runtime.probes import allocated, timed
from hetsched.runtime.program import Program, Values

Nested = TypeVar("Nested")


class ModuleProfiler:
    """A `hetsched.costs.Profiler` that runs a module task by task on this machine.

    Devices are worker threads on the CPU, each with a number of torch threads, and CUDA devices. Each has its own copy of the
    values that it reads from others. All tasks run in order, repeatedly; the first runs are not counted. On CUDA tasks are timed
    by events, so that the wait of a kernel for its launch is part of its time.

    The bytes of a task are the most that it allocates at a time: on CUDA by the allocator, on a CPU the tensors that it makes,
    without the workspaces of library kernels.

    Parameters
    ----------
    module : torch.nn.Module
        In eval mode if it has layers that differ in training.
    example_args : tuple (or one tensor)
        Arguments of a call; their items are repeated for batches of other sizes.
    example_kwargs : mapping, optional
    devices : mapping of name to int or str, optional
        A number of CPU threads, or a device of torch such as ``"cuda:0"``. Default: each core of the CPU with one thread and each
        CUDA device.
    dynamic_batch, fuse : bool
        As for `hetsched.frontends.torch.capture`.
    warmup, repeats : int
        Numbers of runs before the measurement and in it: 5 and 50 as in Celeritas.
    statistic : {"median", "mean"}
        Statistic over the runs; Celeritas uses the mean.
    clock : {"wall", "cpu"}
        Clock of tasks on a CPU. "cpu" counts only the time in which the worker's thread was running, for machines with other
        load; it needs devices of one thread.
    time_limit : float, optional
        Seconds after which a measurement ends with the runs so far, or during the warm-up with the last run.
    on_progress : callable, optional
        Called after each run with the number of runs so far and in all; returns True to end the measurement.

    Raises
    ------
    InvalidProblem
        A parameter is out of range, or the arguments do not fit.
    UnsupportedFeature
        As for `Program`; a device is neither a CPU nor CUDA; or the captured tasks differ between devices.
    """

    @checked(InvalidProblem)
    def __init__(
        self,
        module: torch.nn.Module,
        example_args: tuple[Any, ...] | torch.Tensor,
        *,
        example_kwargs: Mapping[str, Any] | None = None,
        devices: Mapping[str, int | str] | None = None,
        dynamic_batch: bool = True,
        fuse: bool = False,
        warmup: int = 5,
        repeats: int = 50,
        statistic: Literal["median", "mean"] = "median",
        clock: Literal["wall", "cpu"] = "wall",
        time_limit: float | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> None:
        for what, value, fits, rule in (
            ("warmup", warmup, warmup >= 0, ">= 0"),
            ("repeats", repeats, repeats >= 1, ">= 1"),
            ("statistic", statistic, statistic in ("median", "mean"), "'median' or 'mean'"),
            ("clock", clock, clock in ("wall", "cpu"), "'wall' or 'cpu'"),
            ("time_limit", time_limit, time_limit is None or time_limit > 0, "a number of seconds > 0, or None"),
        ):
            if not fits:
                raise InvalidProblem(f"{what} is {value!r}; it must be {rule}")
        self.warmup, self.repeats, self.statistic = warmup, repeats, statistic
        self.time_limit, self.on_progress = time_limit, on_progress
        self._args = (example_args,) if isinstance(example_args, torch.Tensor) else example_args
        self._kwargs = dict(example_kwargs or {})
        self._workers: dict[str, Worker] = {}
        programs: dict[torch.device, Program] = {}
        for name, kind in (_default_devices() if devices is None else devices).items():
            device = _torch_device(name, kind)
            if clock == "cpu" and (kind != 1 or device.type != "cpu"):
                raise InvalidProblem(f"clock 'cpu' measures one thread of the CPU, but device {name!r} is {kind!r}; give 1, or use 'wall'")
            if device not in programs:
                programs[device] = self._program(module, device, dynamic_batch, fuse)
            threads = kind if isinstance(kind, int) else torch.get_num_threads()
            self._workers[name] = Worker(name, programs[device], threads, time.thread_time if clock == "cpu" else time.perf_counter)
        if not self._workers:
            raise InvalidProblem("devices is empty; name at least one, for instance {'cpu': 1}")
        first, *others = programs.values()
        if any(_named(other) != _named(first) or other.graph != first.graph for other in others):
            raise UnsupportedFeature("the module is captured differently on different devices; profile it on one kind of them at a time")
        self.graph = first.graph
        self.devices = tuple(map(_described, self._workers.values()))

    def _program(self, module: torch.nn.Module, device: torch.device, dynamic_batch: bool, fuse: bool) -> Program:
        there = all(tensor.device == device for tensor in (*module.parameters(), *module.buffers()))
        own = module if there else copy.deepcopy(module).to(device)
        args, kwargs = _moved(self._args, device), _moved(self._kwargs, device)
        return Program(own, args, example_kwargs=kwargs, dynamic_batch=dynamic_batch, fuse=fuse)

    @checked
    def measure(self, inputs: int, placement: Placement) -> Measured:
        """Run all tasks in order, each on its device and as one batch of `inputs`; return seconds and bytes, [n] each.

        Raises
        ------
        InvalidProblem
            A task has no device, or an unknown one; or the module has no batches.
        UnsupportedFeature
            The batch exceeds the memory of a CUDA device.
        """
        inputs = check_count(inputs, "inputs", error=InvalidProblem)
        where = [self._workers[name] for name in devices_of(self, placement)]
        threads = torch.get_num_threads()
        try:
            given = {worker.name: worker.call(self._given, worker, inputs) for worker in dict.fromkeys(where)}
            run = PlacedRun(where, given)
            memory = np.array(run(run.start(), allocated), np.float64)
            works = np.array([bool(work.steps) for work in where[0].program.work])  # inputs have none
            seconds = self._repeated(lambda: np.array([clock() for clock in run(run.start(), timed)]))
        except torch.OutOfMemoryError as error:
            remedy = "measure a smaller batch, or place it on more devices"
            raise UnsupportedFeature(f"a batch of {inputs} does not fit into the memory of its devices; {remedy}") from error
        finally:
            torch.set_num_threads(threads)
        return Measured(np.where(works, seconds, 0.0), memory)

    def _given(self, worker: Worker, inputs: int) -> Values:
        program = worker.program
        return program.resized(program.inputs(_moved(self._args, worker.device), _moved(self._kwargs, worker.device)), inputs)

    @checked(InvalidProblem, size=whole(0))
    def transfer(self, size: int, source: str, target: str) -> float:
        """Return the seconds of a copy of `size` bytes, just written by `source`, to `target`; between CPU devices within memory."""
        for name in (source, target):
            if name not in self._workers:
                raise InvalidProblem(f"device {name!r} is not one of the profiler's ({', '.join(self._workers)}); choose one of these")
        giver, taker = self._workers[source], self._workers[target]
        data = torch.empty(size, dtype=torch.uint8, device=giver.device)

        def write() -> None:
            data.fill_(1)
            _wait_for(giver)

        def take() -> FloatArray:
            start = time.perf_counter()
            taker.copied(data)
            _wait_for(giver)
            _wait_for(taker)
            return np.array(time.perf_counter() - start)

        def once() -> FloatArray:
            giver.call(write)
            return taker.call(take)

        threads = torch.get_num_threads()
        try:
            return float(self._repeated(once))
        finally:
            torch.set_num_threads(threads)

    def _repeated(self, once: Callable[[], FloatArray]) -> FloatArray:
        """Return the statistic over the runs after the warm-up."""
        start, number, kept = time.perf_counter(), self.warmup + self.repeats, []
        for turn in range(1, number + 1):
            kept.append(once())
            stopped = self.on_progress is not None and self.on_progress(turn, number) is True
            if stopped or (self.time_limit is not None and time.perf_counter() - start > self.time_limit):
                break
        counted = kept[self.warmup :] or kept[-1:]
        result: FloatArray = np.median(counted, axis=0) if self.statistic == "median" else np.mean(counted, axis=0)
        return result


def _default_devices() -> dict[str, int | str]:
    cores: dict[str, int | str] = {f"cpu{core}": 1 for core in range(os.cpu_count() or 1)}
    return cores | {f"cuda:{k}": f"cuda:{k}" for k in range(torch.cuda.device_count())}


def _torch_device(name: str, what: int | str) -> torch.device:
    """Return the torch device of a device of the profiler."""
    if isinstance(what, int) and not isinstance(what, bool):
        if what < 1:
            raise InvalidProblem(f"device {name!r} is {what} threads of the CPU; it must be at least one")
        return torch.device("cpu")
    try:
        device = torch.device(what)
    except (RuntimeError, TypeError) as error:
        raise InvalidProblem(f"device {name!r} is {what!r}; give a number of CPU threads or a device of torch, such as 'cuda:0'") from error
    if device.type not in ("cpu", "cuda"):
        raise UnsupportedFeature(f"device {name!r} is a {device.type} device; tasks are timed on cpu or cuda")
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        if device.index >= torch.cuda.device_count():
            raise InvalidProblem(f"device {name!r} is {device}, but torch has {torch.cuda.device_count()} CUDA devices; leave it out")
    return device


def _described(worker: Worker) -> Device:
    memory = float(torch.cuda.get_device_properties(worker.device).total_memory) if worker.device.type == "cuda" else math.inf
    kind = device_name(worker.device) if worker.device.type == "cuda" else f"cpu, {worker.threads} threads"
    return Device(worker.name, kind=kind, memory_bytes=memory)


def _moved(nested: Nested, device: torch.device) -> Nested:
    moved: Nested = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, nested)
    return moved


def _named(program: Program) -> list[str]:
    return [node.name for node in program.calls.program.graph.nodes]


def _wait_for(worker: Worker) -> None:
    if worker.device.type == "cuda":
        torch.cuda.synchronize(worker.device)
