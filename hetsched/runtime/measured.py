"""Costs of stages, measured on the device of a program and stored in a file."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem, UnsupportedFeature, warn
from hetsched.models.ios.dynamic_program import connected
from hetsched.runtime.code import Registers
from hetsched.runtime.merging import Merged, alike
from hetsched.runtime.program import Program
from hetsched.runtime.staged import Streams, runner

REPLAYS = 5
"""Number of timed replays of a CUDA graph of runs."""


class MeasuredStages:
    """The cost of stages, measured on demand: a `StageCost` for ``hetsched.stages``.

    A stage is run alone, on the values of one run of the entire program, `warmup` times and then `repeats`
    times; the cost is the median in seconds. On CUDA it is captured as a CUDA graph, and replays are timed by events.
    Stages of the same computation are measured once, independently of names.

    Parameters
    ----------
    program : Program
    example_args : tuple (or one tensor)
        Arguments of a call, whose batch is measured; all values of that call are kept on the device.
    example_kwargs : mapping, optional
    warmup, repeats : int
        Numbers of runs before the measurement and in it.
    cache : path, optional
        A file to which each measurement is appended as a line of JSON, and from which measurements on the same kind of device are
        read, so that an interrupted search can continue.
    floor : float
        Factor in [0, 1] of the measurements in `bound`; 1 assumes that they are exact.

    Attributes
    ----------
    measured : int
        Number of stages measured so far.

    Raises
    ------
    InvalidProblem
        A parameter is out of range, the arguments do not fit, or a line of the file is not a measurement.
    UnsupportedFeature
        The program is neither on a CPU nor on CUDA.
    """

    @checked(InvalidProblem)
    def __init__(
        self,
        program: Program,
        example_args: tuple[Any, ...] | torch.Tensor,
        *,
        example_kwargs: Mapping[str, Any] | None = None,
        warmup: int = 3,
        repeats: int = 10,
        cache: str | os.PathLike[str] | None = None,
        floor: float = 0.8,
    ) -> None:
        for what, value, fits, rule in (
            ("warmup", warmup, warmup >= 0, ">= 0"),
            ("repeats", repeats, repeats >= 1, ">= 1"),
            ("floor", floor, 0 <= floor <= 1, "in [0, 1]"),
        ):
            if not fits:
                raise InvalidProblem(f"{what} is {value!r}; it must be {rule}")
        self.program, self.warmup, self.repeats, self.floor = program, warmup, repeats, floor
        self.measured = 0
        self._runner = runner(program)
        self._device = f"{device_name(program.device)}, torch {torch.__version__}"
        self._single: dict[tuple[str, int], float] = {}  # by task and number of threads
        self._path = None if cache is None else Path(cache)
        self._known, self._whole = ({}, None) if self._path is None else _read(self._path)
        args = (example_args,) if isinstance(example_args, torch.Tensor) else example_args
        self._registers = program.compiled.start(program.inputs(args, example_kwargs or {}))
        with torch.no_grad():
            for i in program.graph.topological_order.tolist():
                program.compiled.functions[i](self._registers)

    @checked
    def __call__(self, tasks: tuple[str, ...], strategy: str) -> float:
        """Return the seconds of a stage; inf if it cannot be merged."""
        bound = self.bound(tasks, strategy)
        if len(tasks) == 1 or bound == math.inf:
            return self._alone(tasks[0]) if len(tasks) == 1 else bound
        indices = self._indices(tasks)
        if strategy == "merge":
            merged = Merged(self.program, indices)
            seconds = self._cost(strategy, [indices], merged.run)
        else:
            groups = [self._indices(group) for group in connected(self.program.graph, tasks)]
            seconds = self._cost(strategy, groups, lambda registers: self._runner.groups(groups, registers))
        return max(seconds, bound)

    @checked
    def bound(self, tasks: tuple[str, ...], strategy: str) -> float:
        """Return `floor` times the seconds of the longest group, from tasks measured alone, or inf if they cannot be merged.

        `__call__` never returns less, so that bound and cost are consistent despite noise.
        """
        if strategy == "merge" and len(tasks) > 1:
            try:
                alike(self.program, self._indices(tasks))
            except UnsupportedFeature:
                return math.inf
            return self.floor * max(map(self._alone, tasks))
        return self.floor * max(math.fsum(map(self._alone, group)) for group in connected(self.program.graph, tasks))

    def _alone(self, task: str) -> float:
        key = task, torch.get_num_threads()
        if key not in self._single:
            group = self._indices((task,))
            self._single[key] = self._cost("concurrent", [group], lambda registers: self._runner.groups([group], registers))
        return self._single[key]

    def _indices(self, tasks: Iterable[str]) -> list[int]:
        return [self.program.graph.index[name] for name in tasks]

    def _cost(self, strategy: str, groups: Sequence[Sequence[int]], run: Callable[[Registers], None]) -> float:
        if not any(self.program.work[i].steps for group in groups for i in group):
            return 0.0  # inputs
        signature = self._signature(strategy, groups)
        if signature not in self._known:
            with torch.no_grad():
                seconds = self._on_cuda(run) if isinstance(self._runner, Streams) else self._on_cpu(run)
            self._known[signature] = seconds
            self.measured += 1
            names = self.program.graph.names
            self._keep(
                {"stage": signature, "seconds": seconds, "tasks": [names[i] for group in groups for i in group], "strategy": strategy}
            )
        return self._known[signature]

    def _on_cpu(self, run: Callable[[Registers], None]) -> float:
        seconds = []
        for _ in range(self.warmup + self.repeats):
            registers = list(self._registers)
            start = time.perf_counter()
            run(registers)
            seconds.append(time.perf_counter() - start)
        return median(seconds[self.warmup :])

    def _on_cuda(self, run: Callable[[Registers], None]) -> float:
        """Return the seconds per run of a CUDA graph of `repeats` runs, which makes the time of its launch negligible."""
        device = self.program.device
        with torch.cuda.device(device):
            beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                run(list(self._registers))
            torch.cuda.current_stream().wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=beside):
                for _ in range(self.repeats):
                    run(list(self._registers))
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            seconds = []
            for _ in range(self.warmup + REPLAYS):
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                seconds.append(begin.elapsed_time(end) / 1e3 / self.repeats)
        return float(median(seconds[self.warmup :]))

    def _signature(self, strategy: str, groups: Sequence[Sequence[int]]) -> str:
        """Return a digest of the computation of a stage: calls, shapes, dependencies and groups, without names and values."""
        number: dict[Node, int] = {}
        parts, fresh = [f"{self._device}, {torch.get_num_threads()} threads", strategy], itertools.count()

        def place(node: Node) -> str:
            if node not in number:
                number[node] = next(fresh)
                value = self.program.compiled.read(node, self._registers)
                fixed = "weight" if node in self.program.constants else "given"
                parts.append(f"%{number[node]} = {fixed} {_described(value)}")
            return f"%{number[node]}"

        for group in groups:
            parts.append("group")
            for i in group:
                for node in self.program.compiled.steps[i]:
                    call = map_arg((node.args, node.kwargs), place)
                    number[node] = next(fresh)  # a view that several tasks make belongs to each of them
                    parts.append(f"%{number[node]} = {node.target}{call}")
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _keep(self, row: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        try:
            if self._whole is not None:
                os.truncate(self._path, self._whole)
                self._whole = None
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            warn(f"measurements are no longer written to {self._path}: {error.strerror}")
            self._path = None


def _read(path: Path) -> tuple[dict[str, float], int | None]:
    """Return the measurements in a file and, if its last line is incomplete, the bytes of the complete lines."""
    if not path.exists():
        return {}, None
    *lines, rest = path.read_bytes().split(b"\n")
    measurements = {}
    for number, text in enumerate(lines, 1):
        try:
            row = json.loads(text)
            measurements[str(row["stage"])] = seconds = float(row["seconds"])
            valid = seconds >= 0
        except (ValueError, KeyError, TypeError):
            valid = False
        if not valid:
            raise _not_ours(path, number)
    begins = b'{"stage": '
    if rest[: len(begins)] != begins[: len(rest)]:
        raise _not_ours(path, len(lines) + 1)
    return measurements, sum(len(text) + 1 for text in lines) if rest else None


def _not_ours(path: Path, line: int) -> InvalidProblem:
    return InvalidProblem(f"line {line} of {path} is not a measurement of a stage; name another file as cache, or remove it")


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_described, value))})"
    return f"{value.dtype} {tuple(value.shape)} {value.stride()}" if isinstance(value, torch.Tensor) else repr(value)


def device_name(device: torch.device) -> str:
    """Return the vendor's name of a device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} {_processor()}"


def _processor() -> str:
    """Return the name of the processor if the system provides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())
