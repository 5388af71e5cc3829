"""Costs of stages, measured on the device of a program and kept in a profile."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hetsched import documents
from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.costs.measurements import Network, Operator, ProfiledDevice, StageTime
from hetsched.costs.profile import Profile
from hetsched.costs.recording import new_session
from hetsched.errors import InvalidProblem, UnsupportedFeature, warn
from hetsched.models.ios.dynamic_program import connected
from hetsched.problem.cluster import Device
from hetsched.runtime.accelerator import Cuda, captured, full_precision, timed
from hetsched.runtime.code import Registers
from hetsched.runtime.digests import Computations
from hetsched.runtime.merging import Merged, alike
from hetsched.runtime.places import clock_hz, kind, software
from hetsched.runtime.program import Program
from hetsched.runtime.staged import Streams, runner

REPLAYS = 5
"""Number of timed replays of a CUDA graph of runs."""
BETWEEN = 20.0
"""A file is not written again before this many times the seconds of the last time have passed."""


class MeasuredStages:
    """The cost of stages, measured on demand: a `StageCost` for ``hetsched.stages``.

    A stage is run alone, on the values of one run of the entire program, `warmup` times and then `repeats`
    times; the cost is the median in seconds. On CUDA it is captured as a CUDA graph, and replays are timed by events.
    Stages of the same computations, by the digests of their tasks, are measured once, independently of names.

    Parameters
    ----------
    program : Program
    example_args : tuple (or one tensor)
        Arguments of a call, whose batch is measured; all values of that call are kept on the device.
    example_kwargs : mapping, optional
    warmup, repeats : int
        Numbers of runs before the measurement and in it.
    profile : Profile or path, optional
        Measurements on such a device, which are not repeated. A file is read if it exists, and written while measurements are added
        and at the end, so that an interrupted search can continue.
    floor : float
        Factor in [0, 1] of the measurements in `bound`; 1 assumes that they are exact.

    Attributes
    ----------
    measured : int
        Number of stages measured so far.

    Raises
    ------
    InvalidProblem
        A parameter is out of range, the arguments do not fit, or the file is not a profile.
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
        profile: Profile | str | os.PathLike[str] | None = None,
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
        self._operators = Computations(program).operators
        self._session = new_session()
        self._devices: dict[int, ProfiledDevice] = {}
        self._single: dict[tuple[str, int], float] = {}  # by task and number of threads
        network = Network(program.graph, tuple(operator.digest for operator in self._operators))
        self._store = _Store(profile, self._operators, network)
        weakref.finalize(self, self._store.finish)
        args = (example_args,) if isinstance(example_args, torch.Tensor) else example_args
        given = program.inputs(args, example_kwargs or {})
        self.batch = max(program.compiled.lengths(given), default=1)
        self._registers = program.compiled.start(given)
        with torch.no_grad():
            for i in program.graph.topological_order.tolist():
                program.compiled.functions[i](self._registers)

    @property
    def profile(self) -> Profile:
        """All measurements: those that were given, and those made since."""
        return self._store.profile

    @checked
    def write(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the profile as a JSON document; without a path to the file that was given."""
        path = self._store.path if path is None else path
        if path is None:
            raise InvalidProblem("there is no file to write the profile to; name one")
        self.profile.write(path)

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
        digests = tuple(tuple(self._operators[i].digest for i in group) for group in groups)
        device = self._device()
        known = self._store.known(digests, strategy, device, self.batch)
        if known is None:
            with torch.no_grad():
                seconds = self._on_cuda(run) if isinstance(self._runner, Streams) else self._on_cpu(run)
            q25, known, q75 = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
            self.measured += 1
            row = StageTime(digests, strategy, device.name, self.batch, self._session, len(seconds), known, q25, q75)
            self._store.add(row, device)
        return known

    def _device(self) -> ProfiledDevice:
        """Return the program's device, with the number of threads that torch has now."""
        threads, device = torch.get_num_threads(), self.program.device
        if threads not in self._devices:
            cpu = device.type == "cpu"
            self._devices[threads] = ProfiledDevice(
                Device(f"cpu with {threads} threads" if cpu else str(device), kind=kind(device)),
                self._session,
                threads if cpu else None,
                (),
                clock_hz(device),
                software(device, fold=False),
            )
        return self._devices[threads]

    def _on_cpu(self, run: Callable[[Registers], None]) -> FloatArray:
        seconds = []
        for _ in range(self.warmup + self.repeats):
            registers = list(self._registers)
            start = time.perf_counter()
            run(registers)
            seconds.append(time.perf_counter() - start)
        return np.array(seconds[self.warmup :])

    def _on_cuda(self, run: Callable[[Registers], None]) -> FloatArray:
        """Return the seconds per run of a CUDA graph of `repeats` runs, which makes the time of its launch negligible."""
        own = Cuda(self.program.device)

        def repeated() -> None:
            for _ in range(self.repeats):
                run(list(self._registers))

        with torch.cuda.device(own.device), full_precision():
            replay, _ = captured(own, repeated, warmup=1)
            seconds = [timed(own, replay)() / self.repeats for _ in range(self.warmup + REPLAYS)]
        return np.array(seconds[self.warmup :])


class _Store:
    """Measurements of stages, and the file that they are written to."""

    def __init__(self, profile: Profile | str | os.PathLike[str] | None, operators: Sequence[Operator], network: Network) -> None:
        self.path = None if profile is None or isinstance(profile, Profile) else Path(profile).absolute()  # of now, not at the end
        before = profile if isinstance(profile, Profile) else Profile()
        if self.path is not None and self.path.exists():
            before = _read(self.path)
        self.before, self.operators, self.network = before, operators, network
        self.rows: dict[tuple[object, ...], StageTime] = {}
        self.devices: dict[str, ProfiledDevice] = {}
        self.written, self.due = 0, 0.0

    @property
    def profile(self) -> Profile:
        """All measurements."""
        return self.before.merge(Profile(self.devices.values(), self.operators, (), self.rows.values(), (), [self.network]))

    def known(self, groups: tuple[tuple[str, ...], ...], strategy: str, device: ProfiledDevice, batch: int) -> float | None:
        """Return the seconds of a stage if it was measured on such a device."""
        row = self.rows.get((groups, strategy, device.name, batch))
        return self.before.stage(groups, strategy, device, batch) if row is None else row.median

    def add(self, row: StageTime, device: ProfiledDevice) -> None:
        """Keep a measurement, and write the file unless that was just done."""
        self.rows[row.groups, row.strategy, row.device, row.batch] = row
        self.devices[device.name] = device
        if time.perf_counter() >= self.due:
            self.finish()

    def finish(self) -> None:
        """Write the file if there is anything new; a failure is a warning, and the last."""
        if self.path is None or self.written == len(self.rows):
            return
        begin, count = time.perf_counter(), len(self.rows)
        try:
            self.profile.write(self.path)
            self.written = count
        except OSError as error:
            warn(f"measurements are no longer written to {self.path}: {error.strerror}")
            self.path = None
        end = time.perf_counter()
        self.due = end + BETWEEN * (end - begin)


def _read(path: Path) -> Profile:
    profile = documents.read(path)
    if not isinstance(profile, Profile):
        raise InvalidProblem(f"{path} is not a profile; name another file, or remove it")
    return profile
