"""DiviML's batched MILP: latency and throughput on unequal devices."""

from __future__ import annotations

from collections.abc import Iterator

from hetsched.models.components import LiteralPrecedence, Makespan, NonOverlap, Placement, Precedence, SharedTiming, StaticMemory, Timing
from hetsched.models.formulation import Component, Formulation
from hetsched.models.propagation import TaskPropagation
from hetsched.models.redundant import LoadCuts, symmetry_order
from hetsched.problem.links import UNCONTENDED
from hetsched.search import Supports


class BatchedMakespan(Formulation):
    """DiviML, equations (1) to (7): devices, batches and order of tasks for the least makespan.

    `faithful` keeps the paper's literal (3), which for several inputs also orders batches without a
    common input; without it rows bind only where they must, times are limited to windows under the upper
    bound, and redundant load rows are added. Its bounds hold for ``batching="once"``.
    """

    name = "milp"
    supports = Supports(communication=UNCONTENDED, memory=("static",))

    def recipe(self) -> Iterator[Component]:
        yield Placement()  # (1), (4), (5)
        yield Timing() if self.faithful or self.problem.inputs > 1 else SharedTiming()
        yield LiteralPrecedence() if self.faithful else Precedence()  # (3)
        yield NonOverlap()  # (7)
        yield StaticMemory()  # (6)
        yield Makespan()  # (2)
        if not self.faithful:
            yield LoadCuts()  # redundant rows
            yield TaskPropagation()
        yield from symmetry_order(self.symmetry)
