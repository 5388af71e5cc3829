"""The contract of a cost model.

A cost model is any object with ``durations(graph, cluster, batch_sizes)`` that returns float64
seconds of shape [task, device, batch size]: element [i, k, b] is the time of ONE batch of
``batch_sizes[b]`` inputs of task i on device k, alone on the device, its inputs already there. It is
finite and >= 0, or NaN where the task cannot run on that device with that batch. Pins, co-location,
memory and transfers are not its business: ``Problem`` applies them. It must be a pure function of its
arguments, so that a problem can be made again from the same graph and cluster.

``hetsched.Problem(graph, cluster, costs=model)`` is the caller. Models that measure instead of
computing meet the same contract.

The cost of stages on one device is a `StageCost`, any callable ``cost(tasks, strategy)`` that returns the
seconds of one stage: a tuple of task names in topological order, ``"concurrent"`` or ``"merge"``; inf if it
cannot be done. ``hetsched.stages`` is its caller.

A `Profiler` measures instead of computing: what the tasks of one graph take on devices at hand. `Samples`, `Links` and
``hetsched.runtime.two_step`` ask it; ``hetsched.runtime.ModuleProfiler`` is one that runs a PyTorch module, `Recorded` one
that answers from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from hetsched.arrays import FloatArray
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import CostModel
from hetsched.schedule.stages import StageCost

__all__ = ["CostModel", "Measured", "Placement", "Profiler", "StageCost", "devices_of"]

Placement = str | Mapping[str, str]
"""The device of each task by name, or the one device of all."""


class Measured(NamedTuple):
    """What each task took, shape [n] each; NaN where it cannot run, or was not measured."""

    seconds: FloatArray
    memory_bytes: FloatArray
    """The most that was allocated at a time while the task ran, on top of what lay there before."""


class Profiler(Protocol):
    """Anything that can tell what the tasks of a graph took when they ran."""

    @property
    def graph(self) -> TaskGraph:
        """The graph whose tasks are measured."""
        ...

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices they can run on."""
        ...

    def measure(self, inputs: int, placement: Placement) -> Measured:
        """Run all tasks in order, each on its device and as one batch of `inputs`, and return what each took.

        What a task reads is on its device before its time begins: transfers do not count.
        """
        ...

    def transfer(self, size: int, source: str, target: str) -> float:
        """Return the seconds of copying `size` bytes from one device to another."""
        ...


def devices_of(profiler: Profiler, placement: Placement) -> tuple[str, ...]:
    """Return the device of each task, in the order of the graph.

    Raises
    ------
    InvalidProblem
        A task has no device, or one that the profiler does not have.
    """
    names = profiler.graph.names
    chosen = dict.fromkeys(names, placement) if isinstance(placement, str) else placement
    for name in names:
        if name not in chosen:
            raise InvalidProblem(f"the placement has no device for task {name!r}; name one for each task, or one device for all")
    found = tuple(chosen[name] for name in names)
    known = [device.name for device in profiler.devices]
    for device in dict.fromkeys(found):
        if device not in known:
            raise InvalidProblem(f"device {device!r} is not one of the profiler's ({', '.join(known)}); choose one of these")
    return found
