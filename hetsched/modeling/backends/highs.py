"""The backend of HiGHS, by highspy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hetsched.errors import MissingDependency, UnsupportedFeature
from hetsched.modeling.backends import Request, Run, info
from hetsched.modeling.lowering import Edits, Matrix, linear
from hetsched.modeling.outcome import Outcome
from hetsched.modeling.program import Program
from hetsched.stopping import Stop

try:
    import highspy
    from highspy import HighsModelStatus as Status
except ModuleNotFoundError as error:
    raise MissingDependency("highspy", "solvers") from error

FINISHED = (Status.kOptimal, Status.kInfeasible, Status.kUnbounded, Status.kUnboundedOrInfeasible, Status.kModelEmpty)
STOPPED = {
    **dict.fromkeys(FINISHED, Stop.FINISHED),
    Status.kTimeLimit: Stop.TIME_LIMIT,
    Status.kInterrupt: Stop.INTERRUPTED,
    Status.kHighsInterrupt: Stop.INTERRUPTED,
}
PROVEN = {Status.kOptimal: "optimal", Status.kModelEmpty: "optimal", Status.kInfeasible: "infeasible", Status.kUnbounded: "unbounded"}


class Highs:
    """HiGHS as a backend."""

    name = "highs"
    capabilities = info("highs").capabilities

    def __init__(self) -> None:
        self._kept: tuple[Any, Matrix] | None = None

    def native(self, program: Program) -> Any:
        """Return a ``highspy.Highs`` with columns named as in `Program.column_names`."""
        return load(linear(program))

    def solve(self, program: Program, request: Request) -> Outcome:
        """Solve a program by branch and cut; bounds hold within HiGHS' tolerance of 1e-6."""
        run = Run(request, self)
        lowered = linear(program, cuts=request.settings.cuts, deadline=request.settings.deadline)
        model = self._loaded(lowered)
        settings: dict[str, Any] = {
            "mip_feasibility_tolerance": 1e-7,
            "mip_rel_gap": request.settings.gap,
            "random_seed": request.settings.seed % (2**31),
            "threads": request.settings.threads or 1,
        }
        for name, value in {**settings, **request.settings.options}.items():
            if model.setOptionValue(name, value) != highspy.HighsStatus.kOk:
                raise UnsupportedFeature(f"HiGHS has no option {name!r} = {value!r}")
        if run.time_left is not None:
            model.setOptionValue("time_limit", run.time_left)
        if request.hint is not None:
            values = lowered.program.complete(request.hint)
            columns = np.flatnonzero(np.isfinite(values)).astype(np.int32)
            model.setSolution(len(columns), columns, values[columns])
        _listen(model, run, program.n_columns)
        run.work(model.run, model.cancelSolve)
        return _outcome(model, program, run)

    def _loaded(self, lowered: Matrix) -> Any:
        """Return a model of a matrix: the previous one, edited, or a new one."""
        edits = None if self._kept is None else lowered.edits(self._kept[1])
        if self._kept is None or edits is None:
            model = load(lowered)
        else:
            model, old = self._kept
            model.resetOptions()
            model.setOptionValue("output_flag", False)
            for event in (model.cbMipImprovingSolution, model.cbMipLogging, model.cbMipInterrupt):
                event.clear()  # the listener of the previous solve
            _edit(model, lowered, old, edits)
        self._kept = (model, lowered)
        return model


def _edit(model: Any, lowered: Matrix, old: Matrix, edits: Edits) -> None:
    """Change the model of one matrix into that of another."""
    infinity, program = highspy.kHighsInf, lowered.program
    low, high = (np.clip(bound, -infinity, infinity) for bound in (program.lower, program.upper))
    row_low, row_high = (np.clip(bound, -infinity, infinity) for bound in (lowered.row_lower, lowered.row_upper))
    columns = edits.bounds.astype(np.int32)
    model.changeColsBounds(len(columns), columns, low[columns], high[columns])
    costs = edits.costs.astype(np.int32)
    model.changeColsCost(len(costs), costs, lowered.cost[costs])
    model.changeObjectiveOffset(lowered.offset)
    for row in edits.changed.tolist():
        before, after = (matrix.row(row) for matrix in (old, lowered))
        for column in before.keys() | after.keys():
            if before.get(column) != after.get(column):
                model.changeCoeff(row, column, after.get(column, 0.0))
        model.changeRowBounds(row, row_low[row], row_high[row])
    for row in edits.added.tolist():
        terms = lowered.row(row)
        model.addRow(row_low[row], row_high[row], len(terms), np.array([*terms], np.int32), np.array([*terms.values()], np.float64))


def _listen(model: Any, run: Run, own: int) -> None:
    """Report better solutions and bounds, and stop the solve on request."""

    def improved(event: Any) -> None:
        data = event.data_out
        run.nodes = max(0, int(data.mip_node_count))
        values = np.array(data.mip_solution)[:own]
        run.found(float(data.objective_function_value), lambda: values)

    def logged(event: Any) -> None:
        bound = float(event.data_out.mip_dual_bound)
        run.nodes = max(0, int(event.data_out.mip_node_count))
        if math.isfinite(bound):
            run.bounded(bound)

    model.HandleUserInterrupt = True
    model.cbMipImprovingSolution.subscribe(improved)
    model.cbMipLogging.subscribe(logged)
    model.cbMipInterrupt.subscribe(logged)


def _outcome(model: Any, program: Program, run: Run) -> Outcome:
    status, information = model.getModelStatus(), model.getInfo()
    stopped = run.stopped or STOPPED.get(status, Stop.STOPPED)
    detail = "" if status in STOPPED or run.stopped else f"HiGHS ended by {model.modelStatusToString(status)!r}"
    proven = PROVEN.get(status, "")
    if status == Status.kUnboundedOrInfeasible:
        proven = ""
    values, objective = None, math.inf
    if information.primal_solution_status == 2 and proven != "infeasible":
        values = np.array(model.getSolution().col_value)[: program.n_columns]
        objective = float(information.objective_function_value)
    if status == Status.kModelEmpty:
        values, objective = np.zeros(0), float(program.objective.value(np.zeros(0)))
    is_mip = bool((program.kind == 1).any()) or len(program.derived) > 0
    bound = float(information.mip_dual_bound) if is_mip else objective if proven == "optimal" else -math.inf
    if proven == "infeasible":
        bound = math.inf
    if proven == "optimal":
        bound = min(bound, objective)
        if run.request.settings.gap and objective - bound > 1e-9 * abs(objective):
            stopped, proven = Stop.GAP, ""
    nodes = max(0, int(information.mip_node_count))
    return Outcome(stopped, values, proven, objective, bound, "highs", run.elapsed, nodes, detail)


def load(lowered: Matrix) -> Any:
    """Return a HiGHS model of a matrix, passed in one call."""
    program, infinity = lowered.program, highspy.kHighsInf
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = program.n_columns, len(lowered.row_lower)
    lp.col_cost_, lp.offset_ = lowered.cost, lowered.offset
    lp.col_lower_, lp.col_upper_ = np.clip(program.lower, -infinity, infinity), np.clip(program.upper, -infinity, infinity)
    lp.row_lower_, lp.row_upper_ = np.clip(lowered.row_lower, -infinity, infinity), np.clip(lowered.row_upper, -infinity, infinity)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, lp.num_row_
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = lowered.start, lowered.column, lowered.coefficient
    if lowered.integer.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[integral] for integral in lowered.integer.tolist()]
    lp.col_names_ = program.column_names()
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    if model.passModel(lp) == highspy.HighsStatus.kError:
        raise UnsupportedFeature("HiGHS refuses the model; a coefficient may be out of its range")
    return model


BACKEND = Highs
