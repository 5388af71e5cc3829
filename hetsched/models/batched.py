"""DiviML's batched MILP: latency and throughput on unequal devices."""

from __future__ import annotations

import numpy as np

from hetsched.arguments import checked
from hetsched.arrays import FloatArray, row_starts
from hetsched.errors import UnsupportedFeature
from hetsched.models import components as parts
from hetsched.models.formulation import Component, Formulation
from hetsched.models.redundant import LoadCuts
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision


class BatchedMakespan(Formulation):
    """Assignment, batches and order of tasks for the least makespan, equations (1) to (7) of DiviML.

    `faithful` keeps the paper's literal (3), which for several inputs also orders batches that share
    none; without it rows bind only where they must, times keep to windows under the upper bound, and
    redundant load rows are added. Its bounds hold for ``batching="once"``.
    """

    name = "milp"

    @classmethod
    @checked
    def check(cls, problem: Problem) -> None:
        super().check(problem)
        if problem.links.contended:
            raise UnsupportedFeature(
                f"{cls.name} knows no contention, but communication is {problem.communication!r}; use CongestionAware (method 'moirai')"
            )

    def parts(self) -> list[Component]:
        if self.faithful:
            return [
                parts.Placement(),
                parts.Timing(),
                parts.LiteralPrecedence(),
                parts.NonOverlap(),
                parts.StaticMemory(),
                parts.Makespan(),
            ]
        timing = parts.SharedTiming() if self.problem.inputs == 1 else parts.Timing()
        return [parts.Placement(), timing, parts.Precedence(), parts.NonOverlap(), parts.StaticMemory(), parts.Makespan(), LoadCuts()]

    @checked
    def decode(self, values: FloatArray) -> Decision:
        return decode(self, values)


def decode(f: Formulation, values: FloatArray) -> Decision:
    """Return the decision of `x` and `start`; batches of a device in the order of their starts.

    No batch comes before one that it needs, though a solver's tolerance may have it so where times are short.
    """
    problem = f.problem
    x = f.x.value(values) > 0.5  # type: ignore[attr-defined]
    start = f.start.value(values)  # type: ignore[attr-defined]
    task, device = np.nonzero(x.any(axis=2))
    begin = start[task] if start.ndim == 1 else start[task, device]
    finish = f.finish.value(values)  # type: ignore[attr-defined]
    end = finish[task] if finish.ndim == 1 else finish[task, device]
    batch = np.full((problem.n_tasks, problem.n_devices), -1)
    batch[task, device] = np.arange(len(task))
    of_item = np.where(x, batch[:, :, None], -1).max(axis=1)
    begin, end = begin.copy(), end.copy()
    for j in problem.graph.topological_order.tolist():
        for i in problem.graph.pred[problem.graph.pred_ptr[j] : problem.graph.pred_ptr[j + 1]].tolist():
            for times in (begin, end):
                np.maximum.at(times, of_item[j], times[of_item[i]])
    order = np.lexsort((problem.graph.rank[task], end, begin))
    task, device = task[order], device[order]
    items = [np.flatnonzero(x[i, u]) for i, u in zip(task.tolist(), device.tolist(), strict=True)]
    counts = [len(each) for each in items]
    return Decision(task, device, row_starts(counts), np.concatenate([np.zeros(0, np.int64), *items]))
