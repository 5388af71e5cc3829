"""Times and memory of the tasks of training steps of several batch sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.arguments import check_count, checked
from hetsched.costs.protocol import Measured, Placement
from hetsched.errors import InvalidProblem
from hetsched.runtime.profiler import ModuleProfiler
from hetsched.runtime.training import TrainingProgram


class TrainingProfiler:
    """A `hetsched.costs.Profiler` of training steps, in which a batch is a part of the program: each size has its own.

    `two_step` with ``whole=True`` takes it. Measurements leave parameters and optimisers as they were.

    Parameters
    ----------
    step : callable
        Given a batch size, returns a `TrainingProgram` and the arguments of a call of it. It is called once for each size.
    batch : int
        The batch size whose graph is `graph`, usually the large one of `two_step`.
    **options
        As for `ModuleProfiler`: `devices`, `fold`, `warmup`, `repeats`, `clock`, `time_limit`, `on_progress`.

    Attributes
    ----------
    graph : TaskGraph
    devices : tuple of Device

    Raises
    ------
    InvalidProblem, UnsupportedFeature
        As for `ModuleProfiler`.
    """

    @checked(InvalidProblem)
    def __init__(self, step: Callable[[int], tuple[TrainingProgram, tuple[Any, ...]]], batch: int, **options: Any) -> None:
        self._step, self._options = step, options
        self._profilers: dict[int, ModuleProfiler] = {}
        first = self._profiler(check_count(batch, "batch", error=InvalidProblem))
        self._first, self.graph, self.devices = first, first.graph, first.devices

    @checked
    def measure(self, inputs: int, placement: Placement) -> Measured:
        """Run all tasks of a step with a batch of `inputs`, each on its device; return seconds and bytes, [n] each.

        Raises
        ------
        InvalidProblem
            As for `ModuleProfiler.measure`; or the step of this batch size has other tasks than `graph`.
        """
        profiler = self._profiler(check_count(inputs, "inputs", error=InvalidProblem))
        if profiler.graph.names != self.graph.names:
            raise InvalidProblem(
                f"a step with a batch of {inputs} has {profiler.graph.n_tasks} tasks, others than the {self.graph.n_tasks} of `graph`; "
                "a batch of one often has: give larger ones"
            )
        return profiler.measure(1, placement)

    @checked(InvalidProblem)
    def transfer(self, size: int, source: str, target: str) -> float:
        """Return the seconds of a copy, see `ModuleProfiler.transfer`."""
        return self._first.transfer(size, source, target)

    def _profiler(self, batch: int) -> ModuleProfiler:
        if batch not in self._profilers:
            program, arguments = self._step(batch)
            self._profilers[batch] = ModuleProfiler(program, arguments, **self._options)
        return self._profilers[batch]
