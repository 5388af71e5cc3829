"""Times and memory of the tasks of a PyTorch module on the devices of this machine."""

from __future__ import annotations

import copy
import os
import time
from _thread import allocate_lock
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch.utils._pytree import tree_map

from hetsched.arguments import check_count, checked, whole
from hetsched.arrays import FloatArray
from hetsched.costs.measurements import Operator, ProfiledDevice
from hetsched.costs.protocol import Measured, Placement, devices_of
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.problem.cluster import Device
from hetsched.runtime.accelerator import full_precision
from hetsched.runtime.checking import check_updates
from hetsched.runtime.code import Compiled
from hetsched.runtime.digests import Computations
from hetsched.runtime.placed import PlacedRun, Worker
from hetsched.runtime.places import Place, Where, clock_hz, kind, memory, place, software, units
from hetsched.runtime.probes import allocated, timed
from hetsched.runtime.program import Program, Values
from hetsched.runtime.streams import Handoff, queues_of
from hetsched.runtime.team import Turn

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
    module : torch.nn.Module or Program
        In eval mode if it has layers that differ in training. A module or program on the CPU is profiled on all kinds of devices, a
        program elsewhere where it is.
    example_args : tuple (or one tensor)
        Arguments of a call; their items are repeated for batches of other sizes.
    example_kwargs : mapping, optional
    devices : mapping of name to int, sequence of int or str, optional
        A number of CPU threads; the cores to which they are pinned, one each; or a device of torch such as ``"cuda:0"``. Default:
        each core of the CPU with one thread, not pinned, and each CUDA device.
    dynamic_batch, fuse : bool
        As for `hetsched.frontends.torch.capture`; those of a program are its own.
    fold : bool
        As for `Executor`: whether batch norms are multiplied into convolutions.
    warmup, repeats : int
        Numbers of runs before the measurement and in it: 5 and 50 as in Celeritas, which takes their mean; here it is the median.
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
        As for `Program`; a device is neither a CPU nor CUDA, or has no kernel for an operator.
    """

    @checked(InvalidProblem)
    def __init__(
        self,
        module: torch.nn.Module | Program,
        example_args: tuple[Any, ...] | torch.Tensor,
        *,
        example_kwargs: Mapping[str, Any] | None = None,
        devices: Mapping[str, Where] | None = None,
        dynamic_batch: bool = True,
        fuse: bool = False,
        fold: bool = True,
        warmup: int = 5,
        repeats: int = 50,
        clock: Literal["wall", "cpu"] = "wall",
        time_limit: float | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> None:
        for what, value, fits, rule in (
            ("warmup", warmup, warmup >= 0, ">= 0"),
            ("repeats", repeats, repeats >= 1, ">= 1"),
            ("clock", clock, clock in ("wall", "cpu"), "'wall' or 'cpu'"),
            ("time_limit", time_limit, time_limit is None or time_limit > 0, "a number of seconds > 0, or None"),
        ):
            if not fits:
                raise InvalidProblem(f"{what} is {value!r}; it must be {rule}")
        self.warmup, self.repeats, self.fold = warmup, repeats, fold
        self.time_limit, self.on_progress = time_limit, on_progress
        self._args = (example_args,) if isinstance(example_args, torch.Tensor) else example_args
        self._kwargs = dict(example_kwargs or {})
        self._workers: dict[str, Worker] = {}
        places = {name: (where, place(name, where)) for name, where in (_default_devices() if devices is None else devices).items()}
        if not places:
            raise InvalidProblem("devices is empty; name at least one, for instance {'cpu': 1}")
        base = self._program(module, {own.device for _, own in places.values()}, dynamic_batch, fuse)
        check_updates(base, "threads", [own for _, own in places.values()])
        compiled = Compiled(base, fold)
        queues = queues_of([own for _, own in places.values()])
        for (name, (where, own)), streams in zip(places.items(), queues, strict=True):
            if clock == "cpu" and (own.threads != 1 or own.device.type != "cpu"):
                raise InvalidProblem(f"clock 'cpu' measures one thread of the CPU, but device {name!r} is {where!r}; give 1, or use 'wall'")
            if base.device not in (own.device, torch.device("cpu")):
                raise UnsupportedFeature(f"the program is on {base.device} and cannot be profiled on {own.device}; give its module")
            try:
                self._workers[name] = Worker(own, base, compiled, time.thread_time if clock == "cpu" else time.perf_counter, streams)
            except torch.OutOfMemoryError as error:
                raise UnsupportedFeature(f"the weights do not fit into the memory of device {name!r}; leave it out") from error
        self.graph, self._first = base.graph, base
        self._clocks = {own.device: clock_hz(own.device) for _, own in places.values()}
        self.devices = tuple(map(_described, self._workers.values()))

    def _program(self, module: torch.nn.Module | Program, devices: set[torch.device], dynamic_batch: bool, fuse: bool) -> Program:
        """Return the program of a module: on the CPU, unless it is on the only device."""
        if isinstance(module, Program):
            return module
        places = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
        device = next(iter(places)) if places == devices else torch.device("cpu")
        own = module if places <= {device} else copy.deepcopy(module).to(device)
        args, kwargs = _moved(self._args, device), _moved(self._kwargs, device)
        return Program(own, args, example_kwargs=kwargs, dynamic_batch=dynamic_batch, fuse=fuse)

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """What each task computes; tasks with equal digests take the same time."""
        return Computations(self._first).operators

    @checked
    def described(self, device: str, session: str) -> ProfiledDevice:
        """Return a device with its threads, cores, clock and software."""
        worker = self._worker(device)
        cpu = worker.device.type == "cpu"
        return ProfiledDevice(
            next(own for own in self.devices if own.name == device),
            session,
            worker.threads if cpu else None,
            tuple(sorted(worker.place.cores or ())),
            self._clocks[worker.device],
            software(worker.device, fold=self.fold),
        )

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
            with full_precision():
                given = {worker.name: worker.call(self._given, worker, inputs) for worker in dict.fromkeys(where)}
                run, program = PlacedRun(where, given), where[0].program
                works = np.array([bool(work.steps) for work in program.work])  # inputs have none
                with program.in_use(), program.kept():
                    memory = np.array(run(run.start(), allocated), np.float64)
                    times = self._repeated(lambda: np.array([clock() for clock in run(run.start(), timed)]).reshape(-1, 2))
        except torch.OutOfMemoryError as error:
            remedy = "measure a smaller batch, or place it on more devices"
            raise UnsupportedFeature(f"a batch of {inputs} does not fit into the memory of its devices; {remedy}") from error
        finally:
            torch.set_num_threads(threads)
        quartiles = np.where(works, np.quantile(times[..., 0], [0.25, 0.5, 0.75], axis=0), 0.0)
        cpu = np.where(works, np.median(times[..., 1], axis=0), 0.0)
        return Measured(quartiles[1], memory, quartiles[0], quartiles[2], cpu, len(times))

    @cached_property
    def batch(self) -> int:
        """The number of inputs in the example."""
        program, args, kwargs = self.example(self.devices[0].name)
        return max(program.compiled.lengths(program.inputs(args, kwargs)), default=1)

    def call(self, device: str, function: Callable[[], float]) -> float:
        """Call a function on the thread of a device."""
        threads = torch.get_num_threads()
        try:
            return self._worker(device).call(function)
        finally:
            torch.set_num_threads(threads)

    def place(self, device: str) -> Place:
        """Return where a device is."""
        return self._worker(device).place

    def example(self, device: str) -> tuple[Program, tuple[Any, ...], dict[str, Any]]:
        """Return the program of a device and the arguments of the example, on the program's device."""
        worker = self._worker(device)
        home = worker.program.device
        return worker.program, _moved(self._args, home), _moved(self._kwargs, home)

    def _given(self, worker: Worker, inputs: int) -> Values:
        program, args, kwargs = self.example(worker.name)
        return program.resized(program.inputs(args, kwargs), inputs)

    @checked(InvalidProblem, size=whole(0))
    def transfer(self, size: int, source: str, target: str) -> float:
        """Return the seconds of a hand-off of an `Executor`, from the thread of `source`, which has just written `size` bytes, to `target`.

        Between CPU devices it is a copy within memory.
        """
        giver, taker = self._worker(source), self._worker(target)
        data = torch.empty(size, dtype=torch.uint8)
        if giver.queues is not None:
            data = giver.queues.put(data)
        handoff = Handoff(0, 0, 0, 1, giver.queues, taker.queues)

        def write() -> None:
            data.fill_(1)
            giver.wait()

        def timed_copy() -> FloatArray:
            begin = time.perf_counter()
            taker.copied(data, giver)
            return np.array(time.perf_counter() - begin)

        def copied() -> FloatArray:
            giver.call(write)
            return taker.call(timed_copy)

        def handed() -> FloatArray:
            turn, posted = Turn([[], []], [[[data]], [[None]]], [], 0, 0, [None, None]), allocate_lock()
            posted.acquire()

            def give() -> float:
                try:
                    write()
                    begin = time.perf_counter()
                    handoff.send(turn)
                    return begin
                finally:
                    posted.release()

            def take() -> float:
                posted.acquire()  # its thread waits, as that of a receiver does in a run
                handoff.receive(turn)
                taker.wait()
                return time.perf_counter()

            if giver is taker:
                begin, end = giver.call(lambda: (give(), take()))
            else:
                taken = taker.begin(take)
                begin, end = giver.call(give), taken.result()
            return np.array(end - begin)

        threads = torch.get_num_threads()
        try:
            return float(np.median(self._repeated(copied if giver.queues is taker.queues is None else handed)))
        finally:
            torch.set_num_threads(threads)

    def _worker(self, name: str) -> Worker:
        if name not in self._workers:
            raise InvalidProblem(f"device {name!r} is not one of the profiler's ({', '.join(self._workers)}); choose one of these")
        return self._workers[name]

    def _repeated(self, once: Callable[[], FloatArray]) -> FloatArray:
        """Return the results of the runs after the warm-up, [runs, ...]."""
        start, number, kept = time.perf_counter(), self.warmup + self.repeats, []
        for turn in range(1, number + 1):
            kept.append(once())
            stopped = self.on_progress is not None and self.on_progress(turn, number) is True
            if stopped or (self.time_limit is not None and time.perf_counter() - start > self.time_limit):
                break
        return np.array(kept[self.warmup :] or kept[-1:])


def _default_devices() -> dict[str, Where]:
    cores: dict[str, Where] = {f"cpu{core}": 1 for core in range(os.cpu_count() or 1)}
    return cores | {f"cuda:{k}": f"cuda:{k}" for k in range(torch.cuda.device_count())}


def _described(worker: Worker) -> Device:
    own = worker.device
    return Device(worker.name, kind=kind(own), memory_bytes=memory(own), family=worker.device.type, units=units(worker.place))


def _moved(nested: Nested, device: torch.device) -> Nested:
    moved: Nested = tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, nested)
    return moved
