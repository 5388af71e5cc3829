"""Variables shared by the components of a formulation: typed records of columns, and values of columns by expression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.errors import InvalidModel
from hetsched.modeling.expression import Expression
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule


@checked
@dataclass(frozen=True, eq=False)
class AssignmentVariables:
    """The devices of the inputs of tasks; n tasks, K devices, L inputs, B batch sizes."""

    made_by: ClassVar[str] = "Placement"

    x: Expression
    """[n, K, L] binaries: the device runs the task on the input."""
    on: Expression
    """[n, K] binaries: the device runs the task on some input; with one input ``x[:, :, 0]``."""
    busy: Expression
    """[n, K] binaries: the device runs a batch of the task with a positive duration; `on` if all durations or none are positive."""
    duration: Expression
    """[n, K] model time that the device spends on the task."""
    seconds: FloatArray
    """[n, K] model time of the longest batch of the task on the device, 0 without one."""
    batches: Expression | None
    """[n, K, B] binaries: the batch size used; None with one input."""

    def __getitem__(self, key: Any) -> Expression:
        return self.on[key]


@checked
@dataclass(frozen=True, eq=False)
class TimeVariables:
    """Starts and finishes of batches, in model time."""

    made_by: ClassVar[str] = "SharedTiming or Timing"

    start: Expression
    """[n] if `shared`, else [n, K]."""
    finish: Expression

    @property
    def shared(self) -> bool:
        """Whether a task has one start and one finish for all devices."""
        return self.start.ndim == 1


@checked
@dataclass(frozen=True, eq=False)
class FlowVariables:
    """Transfers, in model time: one for each edge, or one for each edge and pair of devices."""

    made_by: ClassVar[str] = "Flows, LiteralFlows or BatchFlows"

    pair: Expression
    """[E, K, K] binaries: the first device runs the source and the second the target, on some common input."""
    leave: Expression
    """[E] if `shared`, else [E, K, K]."""
    arrive: Expression
    """Of the shape of `leave`."""
    moving: Expression
    """Time from `leave` to `arrive`."""
    seconds: FloatArray
    """[E, K, K] model time of the longest transfer, 0 without a path."""

    @property
    def shared(self) -> bool:
        """Whether an edge has one transfer for all pairs of devices."""
        return self.leave.ndim == 1


@checked
@dataclass(frozen=True, eq=False)
class Objective:
    """The objective of a model, and the conversion of its value."""

    made_by: ClassVar[str] = "Makespan, BusiestDevice or Load"

    expression: Expression
    name: str
    """The objective that its bounds hold for: "makespan", "period" or "max-load"."""
    ticks_per_second: float
    value: Callable[[Problem, Schedule], float]
    """Seconds of a schedule by the expression."""

    @checked
    def bound(self, value: float, tolerance: float) -> float:
        """Return a solver's bound in seconds, less the solver's relative tolerance."""
        return value / self.ticks_per_second * (1 - tolerance)


class Values:
    """Values of all columns of a model, read and set by expression.

    Parameters
    ----------
    array : float array [columns]
        Changed in place; NaN for unknown values.
    """

    def __init__(self, array: FloatArray) -> None:
        self.array = array

    def __getitem__(self, columns: Expression) -> FloatArray:
        return columns.value(self.array)

    def __setitem__(self, columns: Expression, numbers: npt.ArrayLike) -> None:
        if len(columns.column) != columns.size:
            raise InvalidModel("values belong to columns, not to expressions of them; set those that the model returned")
        self.array[columns.column] = np.broadcast_to(np.asarray(numbers, np.float64), columns.shape).ravel()
