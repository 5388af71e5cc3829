"""Running the stages of a `StageSchedule`: groups in parallel, on threads or CUDA streams."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch

from hetsched.arguments import checked
from hetsched.errors import InvalidSchedule, UnsupportedFeature
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
        self.program = program
        self.pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="hetsched-group")

    def groups(self, groups: Groups, values: Values) -> None:
        """Run groups in parallel, the tasks of a group in turn, and add the values that others read to `values`."""
        if len(groups) == 1:
            self.program.run(groups[0], values)
            return
        threads, casts = torch.get_num_threads(), torch.is_autocast_enabled("cpu")
        share = max(1, threads // len(groups))
        try:
            begun = [self.pool.submit(self._group, group, values, share, casts) for group in groups]
            wait(begun)
            for done in begun:
                done.result()
        finally:
            torch.set_num_threads(threads)  # some libraries have one number for all threads

    def _group(self, group: Sequence[int], values: Values, share: int, casts: bool) -> None:
        torch.set_num_threads(share)
        with torch.no_grad(), torch.autocast("cpu", enabled=casts, dtype=torch.get_autocast_dtype("cpu")):
            self.program.run(group, values)


class Streams:
    """Groups on CUDA streams, synchronised with the stages before and after."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.streams: list[torch.cuda.Stream] = []

    def groups(self, groups: Groups, values: Values) -> None:
        """Run groups as `Threads.groups` does."""
        here = torch.cuda.current_stream(self.program.device)
        while len(self.streams) < len(groups) - 1:
            self.streams.append(torch.cuda.Stream(self.program.device))  # type: ignore[no-untyped-call]
        others = list(zip(self.streams, groups[1:], strict=False))
        for stream, group in others:
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                self.program.run(group, values)
        self.program.run(groups[0], values)
        for stream, _ in others:
            here.wait_stream(stream)


def runner(program: Program) -> Threads | Streams:
    """Return the runner of stages for the device of a program."""
    kind = program.device.type
    if kind not in ("cpu", "cuda"):
        raise UnsupportedFeature(f"the program is on a {kind} device; stages run on cpu or cuda")
    return Streams(program) if kind == "cuda" else Threads(program)


class StagedProgram:
    """A program that runs by the stages of a schedule; a call has the arguments and the result of the module.

    On a CPU the groups of a stage run on threads, which share the torch threads. On CUDA they run on streams; for each
    new shape of the arguments the program is captured as a CUDA graph and replayed afterwards. It computes no gradients.

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
        values = self.program.inputs(args, kwargs)
        with torch.no_grad():
            if isinstance(self._runner, Threads):
                return self._run(values)
            with torch.cuda.device(self.program.device):
                return self._replayed(values) if self.graphs else self._run(values)

    def _run(self, values: Values) -> Any:
        for (groups, merged), dead in zip(self._stages, self._dead, strict=True):
            if merged is None:
                self._runner.groups(groups, values)
            else:
                merged.run(values)
            for node in dead:
                values.pop(node, None)
        return self.program.result(values)

    def _last_reads(self) -> list[list[Any]]:
        """Return, for each stage, the nodes whose values no later stage reads."""
        after = set(self.program.last.reads)
        dead: list[list[Any]] = []
        for groups, _ in reversed(self._stages):
            reads = set().union(*(self.program.work[i].reads for group in groups for i in group))
            dead.append(list(reads - after))
            after |= reads
        return dead[::-1]

    def _replayed(self, values: Values) -> Any:
        key = tuple(map(_key, values.values()))
        if key not in self._captured:
            while len(self._captured) >= MOST_GRAPHS:
                del self._captured[next(iter(self._captured))]
            self._captured[key] = _Captured(self, values)
        return self._captured[key].replay(values)


def _key(value: Any) -> Any:
    """Return the properties of an argument that a CUDA graph depends on, which include the numbers of a tensor on the CPU."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.shape, repr(value.tolist()) if value.device.type == "cpu" else ""


class _Captured:
    """A CUDA graph of the program for arguments of one shape."""

    def __init__(self, staged: StagedProgram, values: Values) -> None:
        self.given = {node: value.clone() if isinstance(value, torch.Tensor) else value for node, value in values.items()}
        beside = torch.cuda.Stream(staged.program.device)  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream(staged.program.device))
        with torch.cuda.stream(beside):
            for _ in range(3):  # libraries choose kernels and allocate workspaces
                staged._run(dict(self.given))
        torch.cuda.current_stream(staged.program.device).wait_stream(beside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=beside):
            self.made = staged._run(dict(self.given))

    def replay(self, values: Values) -> Any:
        for node, value in self.given.items():
            if isinstance(value, torch.Tensor):
                value.copy_(values[node])
        self.graph.replay()
        return torch.utils._pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, self.made)
