"""The contract of a cost model.

A cost model is any object with ``durations(graph, cluster, batch_sizes)`` that returns float64
seconds of shape [task, device, batch size]: element [i, k, b] is the time of ONE batch of
``batch_sizes[b]`` inputs of task i on device k, alone on the device, with its inputs in memory. It is
finite and >= 0, or NaN where the task cannot run on that device with that batch. Pins, co-location,
memory and transfers are not part of it: ``Problem`` applies them. It must be a pure function of its
arguments, so that a problem can be made again from the same graph and cluster.

``hetsched.Problem(graph, cluster, costs=model)`` calls it. The contract also holds for models that
measure.

The cost of stages on one device is a `StageCost`, a callable ``cost(tasks, strategy)`` that returns the
seconds of one stage: a tuple of task names in topological order, ``"concurrent"`` or ``"merge"``; inf if it
is impossible. ``hetsched.stages`` calls it. `Contention` is one, for any `KernelModel`, which says which parts of
a device the tasks' kernels need.

A `Profiler` measures the tasks of one graph on the devices of a machine. `measure`, `Links` and
``hetsched.runtime.two_step`` use it; ``hetsched.runtime.ModuleProfiler`` runs a PyTorch module, and `Recorder` returns
the measurements of a `Profile`. A `DescribedProfiler` also knows what each task computes, and its devices' software.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from hetsched.arguments import shown
from hetsched.arrays import BoolArray, FloatArray
from hetsched.costs.measurements import Operator, ProfiledDevice
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Device
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import CostModel
from hetsched.schedule.stages import StageCost

__all__ = ["CostModel", "DescribedProfiler", "KernelModel", "Kernels", "Measured", "Placement", "Profiler", "StageCost", "devices_of"]

Placement = str | Mapping[str, str]
"""The device of each task by name, or one device for all tasks."""


class Kernels(NamedTuple):
    """What the kernels of tasks take alone on a device, one batch each, shape [n]."""

    body: FloatArray
    """Seconds without the launch."""
    work: FloatArray
    """Of these, the seconds that the computing would take on a device that it fills; at most `body`."""
    move: FloatArray
    """Of these, the seconds that moving the bytes would take at the device's full bandwidth; at most `body`."""
    launched: BoolArray
    """Whether there is a kernel at all; inputs and views have none."""


class KernelModel(Protocol):
    """What knows how long kernels run, and which parts of a device they need; `Analytic` and `Roofline` do."""

    def kernels(self, graph: TaskGraph, device: Device, inputs: int) -> Kernels:
        """Return what one batch of that many inputs takes on a device."""


class Measured(NamedTuple):
    """Measurements of each task, shape [n] each; NaN if it cannot run or was not measured."""

    seconds: FloatArray
    memory_bytes: FloatArray
    """Peak of the bytes allocated during the task, in addition to those allocated before."""
    q25: FloatArray | None = None
    """Quartiles of the seconds; None if unknown."""
    q75: FloatArray | None = None
    cpu: FloatArray | None = None
    """Median CPU seconds of the thread that runs the task; None if unknown."""
    runs: int = 1
    """Number of runs, of which `seconds` are the medians."""


class Profiler(Protocol):
    """Measures the tasks of a graph."""

    @property
    def graph(self) -> TaskGraph:
        """The graph whose tasks are measured."""
        ...

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that tasks can run on."""
        ...

    def measure(self, inputs: int, placement: Placement) -> Measured:
        """Run all tasks in order, each on its device and as one batch of `inputs`, and return their measurements.

        The time of a task begins when its inputs are on its device: transfers are not included.
        """
        ...

    def transfer(self, size: int, source: str, target: str) -> float:
        """Return the seconds of a copy of `size` bytes from one device to another."""
        ...


@runtime_checkable
class DescribedProfiler(Profiler, Protocol):
    """A profiler whose measurements can be used for other graphs with tasks that compute the same."""

    @property
    def operators(self) -> tuple[Operator, ...]:
        """What each task computes; tasks with equal digests take the same time."""
        ...

    def described(self, device: str, session: str) -> ProfiledDevice:
        """Return a device with its threads and software."""
        ...


def devices_of(profiler: Profiler, placement: Placement) -> tuple[str, ...]:
    """Return the device of each task, in the order of the graph.

    Raises
    ------
    InvalidProblem
        A task has no device, or one that the profiler does not have.
    """
    names = profiler.graph.names
    if not isinstance(placement, (str, Mapping)):
        raise InvalidProblem(f"a placement is {shown(placement)}; give the device of each task by name, or one device for all")
    chosen = dict.fromkeys(names, placement) if isinstance(placement, str) else placement
    for name in names:
        if name not in chosen:
            raise InvalidProblem(f"the placement has no device for task {name!r}; name one for each task, or one device for all")
    devices = tuple(chosen[name] for name in names)
    available = [device.name for device in profiler.devices]
    for device in dict.fromkeys(devices):
        if device not in available:
            raise InvalidProblem(f"device {device!r} is not one of the profiler's ({', '.join(available)}); choose one of these")
    return devices
