"""Running the stages of a `StageSchedule`: groups in parallel, on threads or CUDA streams."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from hetsched.arguments import checked
from hetsched.errors import InvalidSchedule, UnsupportedFeature
from hetsched.runtime.accelerator import WARM_UPS, Cuda, captured, full_precision
from hetsched.runtime.code import Registers
from hetsched.runtime.merging import Merged
from hetsched.runtime.program import Program, Values
from hetsched.schedule.stages import StageSchedule
from hetsched.verification.stages import verify_stages

Groups = Sequence[Sequence[int]]
MOST_GRAPHS = 8
"""The most CUDA graphs that are kept; each holds its own memory."""


class Threads:
    """Groups on threads of the CPU, which share the torch threads."""

    def __init__(self, program: Program) -> None:
        self.functions = program.compiled.functions
        self.pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="hetsched-group")

    def groups(self, groups: Groups, registers: Registers) -> None:
        """Run groups in parallel, the tasks of a group in turn, and set the registers of the values that others read."""
        if len(groups) == 1:
            for i in groups[0]:
                self.functions[i](registers)
            return
        threads, casts = torch.get_num_threads(), torch.is_autocast_enabled("cpu")
        share = max(1, threads // len(groups))
        try:
            begun = [self.pool.submit(self._group, group, registers, share, casts) for group in groups]
            wait(begun)
            for done in begun:
                done.result()
        finally:
            torch.set_num_threads(threads)  # some libraries have one number for all threads

    def _group(self, group: Sequence[int], registers: Registers, share: int, casts: bool) -> None:
        torch.set_num_threads(share)
        with torch.no_grad(), torch.autocast("cpu", enabled=casts, dtype=torch.get_autocast_dtype("cpu")):
            for i in group:
                self.functions[i](registers)


class Streams:
    """Groups on CUDA streams, synchronised with the stages before and after."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.streams: list[torch.cuda.Stream] = []

    def groups(self, groups: Groups, registers: Registers) -> None:
        """Run groups as `Threads.groups` does."""
        here = torch.cuda.current_stream(self.program.device)
        while len(self.streams) < len(groups) - 1:
            self.streams.append(torch.cuda.Stream(self.program.device))  # type: ignore[no-untyped-call]
        others = list(zip(self.streams, groups[1:], strict=False))
        for stream, group in others:
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                self._run(group, registers)
        self._run(groups[0], registers)
        for stream, _ in others:
            here.wait_stream(stream)

    def _run(self, group: Sequence[int], registers: Registers) -> None:
        for i in group:
            self.program.compiled.functions[i](registers)


def runner(program: Program) -> Threads | Streams:
    """Return the runner of stages for the device of a program."""
    kind = program.device.type
    if program.updates:
        raise UnsupportedFeature("training steps do not run by stages; give the program to an Executor")
    if kind not in ("cpu", "cuda"):
        raise UnsupportedFeature(f"the program is on a {kind} device; stages run on cpu or cuda")
    return Streams(program) if kind == "cuda" else Threads(program)


class StagedProgram:
    """A program that runs by the stages of a schedule; a call has the arguments and the result of the module.

    On a CPU the groups of a stage run on threads, which share the torch threads. On CUDA they run on streams; for each
    new shape of the arguments the program is captured as a CUDA graph and replayed afterwards, without TF32. It computes no gradients.

    Parameters
    ----------
    program : Program
    schedule : StageSchedule
        A schedule of the program's graph.
    graphs : bool
        Whether to capture CUDA graphs.

    Raises
    ------
    InvalidSchedule
        The schedule is not valid for the graph.
    UnsupportedFeature
        The tasks of a merged stage cannot be merged, or the program is neither on a CPU nor on CUDA.
    """

    @checked
    def __init__(self, program: Program, schedule: StageSchedule, *, graphs: bool = True) -> None:
        violations = verify_stages(program.graph, schedule)
        if violations:
            raise InvalidSchedule(f"the schedule cannot be run: {violations[0].message}")
        self.program, self.schedule, self.graphs = program, schedule, graphs
        self._runner = runner(program)
        index = program.graph.index
        self._stages: list[tuple[list[list[int]], Merged | None]] = []
        for s, row in enumerate(schedule.stages):
            groups = [[index[name] for name in group] for group in schedule.groups(s)]
            tasks = [i for group in groups for i in group]
            self._stages.append((groups, Merged(program, tasks) if row["strategy"] == "merge" and len(tasks) > 1 else None))
        self._dead = self._last_reads()
        self._captured: dict[Any, _Captured] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.program.inputs(args, kwargs)
        with torch.no_grad():
            if isinstance(self._runner, Threads):
                return self._run(given)
            with torch.cuda.device(self.program.device):
                if self.graphs:
                    return self._replayed(given)
                with full_precision():
                    return self._run(given)

    def _run(self, given: Values) -> Any:
        registers = self.program.compiled.start(given)
        for (groups, merged), dead in zip(self._stages, self._dead, strict=True):
            if merged is None:
                self._runner.groups(groups, registers)
            else:
                merged.run(registers)
            for register in dead:
                registers[register] = None
        return self.program.compiled.result(registers)

    def _last_reads(self) -> list[list[int]]:
        """Return, for each stage, the registers of the values that no later stage reads."""
        compiled = self.program.compiled
        after = {register for register, value in enumerate(compiled.values) if value.kept}
        dead: list[list[int]] = []
        for groups, _ in reversed(self._stages):
            reads = set[int]().union(*(compiled.reads[i] for group in groups for i in group))
            dead.append(list(reads - after))
            after |= reads
        return dead[::-1]

    def _replayed(self, given: Values) -> Any:
        key = tuple(map(_key, given.values()))
        if key not in self._captured:
            while len(self._captured) >= MOST_GRAPHS:
                del self._captured[next(iter(self._captured))]
            self._captured[key] = _Captured(self, given)
        return self._captured[key].replay(given)


def _key(value: Any) -> Any:
    """Return the properties of an argument that a CUDA graph depends on, which include the numbers of a tensor on the CPU."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.shape, repr(value.tolist()) if value.device.type == "cpu" else ""


class _Captured:
    """A CUDA graph of the program for arguments of one shape."""

    def __init__(self, staged: StagedProgram, given: Values) -> None:
        self.given = {node: value.clone() if isinstance(value, torch.Tensor) else value for node, value in given.items()}
        with full_precision():
            self.again, made = captured(Cuda(staged.program.device), lambda: staged._run(self.given), WARM_UPS)
        self.made, self.nesting = tree_flatten(made)

    def replay(self, given: Values) -> Any:
        for node, value in given.items():
            if isinstance(value, torch.Tensor):
                self.given[node].copy_(value)
        self.again()
        return tree_unflatten([value.clone() if isinstance(value, torch.Tensor) else value for value in self.made], self.nesting)
