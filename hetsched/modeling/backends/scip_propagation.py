"""The propagators of a program as plug-ins of SCIP: they tighten bounds in every node, and choose columns to branch on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyscipopt.scip import PY_SCIP_PROPTIMING as SCIP_PROPTIMING
from pyscipopt.scip import PY_SCIP_RESULT as SCIP_RESULT
from pyscipopt.scip import Branchrule, Prop

from hetsched.modeling.backends import Run
from hetsched.modeling.expression import Expression
from hetsched.modeling.program import Program, Propagator

LATER, FIRST = -1_000_000, 1_000_000
"""Priorities of plug-ins: after all others, and before them."""
STEP = 1e-6
"""Relative change of a bound that is passed on."""
CLOSER = 1e-7
"""Relative improvement that a solution must have to be searched for; part of the tolerance of SCIP's bounds."""
BY_BOUNDS = {
    "lp/solvefreq": -1,
    "nodeselection/childsel": "u",
    "nodeselection/dfs/stdpriority": FIRST,
    "propagating/probing/maxprerounds": 0,
}
"""Parameters for a search that propagators guide and bound: depth first, the upper half first, and no linear programs."""


class Propagation:
    """The propagators of one SCIP model."""

    def __init__(self, model: Any, columns: list[Any], propagators: Sequence[Propagator]) -> None:
        self.plugins = []
        for number, propagator in enumerate(propagators):
            plugin = _Tightener(propagator)
            model.includeProp(plugin, f"p{number}", propagator.tag, 0, 0, SCIP_PROPTIMING.BEFORELP, priority=LATER, freq=1, delay=True)
            if propagator.branches:
                model.includeBranchrule(_Chooser(plugin), f"b{number}", propagator.tag, FIRST, -1, 1.0)
            for column in propagator.columns.tolist():
                model.markDoNotMultaggrVar(columns[column])  # which has no bounds of its own
            self.plugins.append(plugin)

    def use(self, run: Run, columns: list[Any], program: Program) -> dict[str, Any]:
        """Propagate in a solve; return parameters of SCIP: `BY_BOUNDS` if a propagator chooses columns and bounds the objective."""
        for plugin in self.plugins:
            plugin.use(run, columns, program.objective)
        return BY_BOUNDS if any(plugin.propagator.branches and plugin.goal for plugin in self.plugins) else {}


class _Tightener(Prop):
    """Calls a propagator; keeps the column to branch on."""

    def __init__(self, propagator: Propagator) -> None:
        self.propagator = propagator
        self.proposed: Any = None

    def use(self, run: Run, columns: list[Any], objective: Expression) -> None:
        self.run, own = run, self.propagator.columns.tolist()
        self.original = [columns[column] for column in own]
        self.goal: tuple[int, float, float] | None = None
        """The place of the objective's only column, its coefficient and the constant."""
        if len(objective.column) == 1 and objective.column[0] in own and objective.coefficient[0] > 0:
            self.goal = own.index(objective.column[0]), float(objective.coefficient[0]), float(objective.constant[0])

    def propinit(self) -> None:
        self.columns = [self.model.getTransformedVar(column) for column in self.original]

    def propexec(self, timing: int) -> dict[str, Any]:
        self.proposed = None
        lower = np.array([column.getLbLocal() for column in self.columns])
        upper = np.array([column.getUbLocal() for column in self.columns])
        if self.goal is not None and self.model.getNSols():
            place, coefficient, constant = self.goal
            best = (self.model.getPrimalbound() - constant) / coefficient
            upper[place] = min(upper[place], best - CLOSER * abs(best))
        if (lower > upper + STEP * np.maximum(1.0, np.abs(upper))).any():
            return {"result": SCIP_RESULT.CUTOFF}
        low, high = lower.copy(), upper.copy()
        choice = self.run.guard(lambda: self.propagator.tighten(low, high))
        if self.run.stopped:
            return {"result": SCIP_RESULT.DIDNOTRUN}
        if choice is None:
            return {"result": SCIP_RESULT.CUTOFF}
        if choice >= 0:
            self.proposed = self.columns[choice]
        tightened = False
        for new, old, tighten in ((low, lower, self.model.tightenVarLb), (-high, -upper, self._lower_upper)):
            for place in np.flatnonzero(new > old + STEP * np.maximum(1.0, np.abs(old))).tolist():
                infeasible, changed = tighten(self.columns[place], new[place])
                if infeasible:
                    return {"result": SCIP_RESULT.CUTOFF}
                tightened |= changed
        return {"result": SCIP_RESULT.REDUCEDDOM if tightened else SCIP_RESULT.DIDNOTFIND}

    def _lower_upper(self, column: Any, negated: float) -> tuple[bool, bool]:
        answer: tuple[bool, bool] = self.model.tightenVarUb(column, -negated)
        return answer


class _Chooser(Branchrule):
    """Branches on the column that a propagator has chosen in the node."""

    def __init__(self, tightener: _Tightener) -> None:
        self.tightener = tightener

    def _branch(self) -> dict[str, Any]:
        column = self.tightener.proposed
        if column is None or column.getLbLocal() + 0.5 > column.getUbLocal():
            return {"result": SCIP_RESULT.DIDNOTRUN}
        self.model.branchVar(column)
        return {"result": SCIP_RESULT.BRANCHED}

    def branchexeclp(self, allowaddcons: bool) -> dict[str, Any]:
        return self._branch()

    def branchexecps(self, allowaddcons: bool) -> dict[str, Any]:
        return self._branch()

    def branchexecext(self, allowaddcons: bool) -> dict[str, Any]:
        return {"result": SCIP_RESULT.DIDNOTRUN}
