"""The backend of OR-tools' CP-SAT: enforced rows, native optional intervals and non-overlap, times in whole units."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import MissingDependency, UnsupportedFeature
from hetsched.modeling.backends import Request, Run, info
from hetsched.modeling.expression import Expression
from hetsched.modeling.integers import MOST, IntegerRows, Units, down, rounded, units
from hetsched.modeling.lowering import in_order, linear, maxima, orders, without_cuts
from hetsched.modeling.outcome import Outcome
from hetsched.modeling.program import Constraint, ExactlyOne, Implies, Linear, NoOverlap, Program
from hetsched.stopping import NEVER, Deadline, Stop

try:
    from ortools.sat.python import cp_model
except ModuleNotFoundError as error:
    raise MissingDependency("ortools", "solvers") from error

PROVEN = {cp_model.OPTIMAL: "optimal", cp_model.INFEASIBLE: "infeasible"}
SCHEDULING = ("no_lp", "default_lp", "quick_restart_no_lp", "quick_restart", "reduced_costs", "max_lp")
"""Full searches by their names in CP-SAT, the best for schedules first."""
LEAST_WORKERS = 3  # two full searches, and one for neighbourhoods
MOST_ORDERS = 2000
"""The most pairs of intervals that get binaries for their order.

CP-SAT 9.12 to 9.15 at times prove what is wrong with native non-overlap of optional intervals: with some seeds 515 for the job shop
fattahi15, whose optimum is 514; with binaries never. More pairs take too long that way, and keep the risk.
"""
PIECE = 2e-5
"""Estimated seconds to pass a column or a row to the solver."""
TOLERANCE = 2e-9  # relative tolerance of a bound: numbers so close to whole ones were rounded


class CpSat:
    """CP-SAT as a backend."""

    name = "cpsat"
    capabilities = info("cpsat").capabilities

    def native(self, program: Program) -> Any:
        """Return an ``ortools.sat.python.cp_model.CpModel``; its first variables are the columns in order."""
        return _Build(program, 0.0).model

    def solve(self, program: Program, request: Request) -> Outcome:
        """Solve a program.

        Bounds hold for the program in real times for every unit. If the times have no common unit, a
        linear program with all choices and orders fixed computes exact times of a solution.
        """
        run = Run(request, self)
        if not request.settings.cuts:
            program = without_cuts(program)
        built = _Build(program, request.settings.gap, request.settings.deadline)
        if request.hint is not None:
            built.hint(request.hint)
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.num_workers = request.settings.threads or max(LEAST_WORKERS, _cores())
        parameters.random_seed = request.settings.seed % (2**31)
        parameters.relative_gap_limit, parameters.catch_sigint_signal = request.settings.gap, False
        # In 9.15 this part of presolve excludes optima (google/or-tools issue 5293).
        parameters.presolve_inclusion_work_limit = 0
        if any(isinstance(constraint, NoOverlap) for constraint in program.constraints):
            _search_for_schedules(parameters)
        if run.time_left is not None:
            parameters.max_time_in_seconds = run.time_left
        for name, value in request.settings.options.items():
            try:
                setattr(parameters, name, value)
            except (AttributeError, TypeError, ValueError) as error:
                raise UnsupportedFeature(f"CP-SAT has no parameter {name!r} = {value!r}: {error}") from None
        listener = _Listener(run, built)
        solver.best_bound_callback = lambda bound: run.bounded(built.real_bound(bound))
        status: list[Any] = []
        run.work(lambda: status.append(solver.solve(built.model, listener)), solver.stop_search)
        return _outcome(solver, status[0], built, run)


class _Listener(cp_model.CpSolverSolutionCallback):
    def __init__(self, run: Run, built: _Build) -> None:
        super().__init__()
        self.run, self.built = run, built

    def on_solution_callback(self) -> None:
        self.run.nodes = max(self.run.nodes, int(self.num_branches))
        values = self.built.real(self.value)
        if self.built.exact or self.run.request.on_incumbent is None:
            self.run.found(float(self.built.program.objective.value(values)), lambda: values)
        else:
            repaired = self.built.repair(values)
            if repaired is not None:
                self.run.found(float(self.built.program.objective.value(repaired)), lambda: repaired)
        if self.run.stopped:
            self.stop_search()


class _Build:
    """A CP-SAT model of a program, and the conversion of its solutions."""

    def __init__(self, program: Program, gap: float, deadline: Deadline = NEVER) -> None:
        self.program = maxima(program).check()
        pairs = sum(len(constraint.pairs) for constraint in program.constraints if isinstance(constraint, NoOverlap))
        self.lowered = orders(self.program).check() if pairs <= MOST_ORDERS else self.program
        what = f"handing {program.n_columns:,} columns and {self.program.n_rows:,} rows to CP-SAT"
        self._watch = partial(deadline.watch, what=what)
        deadline.require(PIECE * (self.lowered.n_columns + self.lowered.n_rows), what)
        self.units: Units = units(self.lowered, gap)
        self.exact = self.units.common
        self.model = cp_model.CpModel()
        names = self.lowered.column_names()
        low, high = self.units.lower.tolist(), self.units.upper.tolist()
        self.columns = [self.model.new_int_var(a, b, name) for a, b, name in self._watch(zip(low, high, names, strict=True))]
        for constraint in self.lowered.constraints:
            self._add(constraint)
        self._minimise()

    def _add(self, constraint: Constraint) -> None:
        if isinstance(constraint, Linear):
            self._rows(rounded(constraint.rows, self.units), None, constraint.cut)
        elif isinstance(constraint, Implies):
            self._rows(rounded(constraint.rows, self.units), self._literals(constraint.literals, constraint.tag), constraint.cut)
        elif isinstance(constraint, ExactlyOne):
            for line in self._watch(self._literals(constraint.literals, constraint.tag)):
                self.model.add_exactly_one(line)
        elif isinstance(constraint, NoOverlap):
            self._no_overlap(constraint)

    def _rows(self, rows: IntegerRows, literals: list[list[Any]] | None, cut: bool) -> None:
        self.exact &= rows.exact or cut
        ptr, column, coefficient = rows.ptr.tolist(), rows.column.tolist(), rows.coefficient.tolist()
        for r, (limit, source) in self._watch(enumerate(zip(rows.limit.tolist(), rows.row.tolist(), strict=True))):
            terms = slice(ptr[r], ptr[r + 1])
            total = cp_model.LinearExpr.weighted_sum([self.columns[c] for c in column[terms]], coefficient[terms])
            added = self.model.add_linear_constraint(total, cp_model.INT_MIN, limit)
            if literals is not None:
                added.only_enforce_if(literals[source])

    def _literals(self, literals: Expression, tag: str) -> list[list[Any]]:
        """Return binaries or their negations, a list for each line."""
        plain = np.diff(literals.ptr) == 1
        sign = literals.coefficient if plain.all() else np.zeros(0)
        if not plain.all() or not (((sign == 1) & (literals.constant == 0)) | ((sign == -1) & (literals.constant == 1))).all():
            raise UnsupportedFeature(f"a literal of {tag!r} is neither a binary x nor 1 - x; write it in this form, or use scip or highs")
        literals_of_lines = [
            self.columns[c] if s > 0 else self.columns[c].negated() for c, s in zip(literals.column.tolist(), sign.tolist(), strict=True)
        ]
        width = literals.shape[-1]
        return [literals_of_lines[i : i + width] for i in range(0, len(literals_of_lines), width)]

    def _no_overlap(self, constraint: NoOverlap) -> None:
        intervals = constraint.intervals
        for resource in range(intervals.resources):
            made = (self._interval(constraint, i, resource) for i in self._watch(range(intervals.n)))
            self.model.add_no_overlap([interval for interval in made if interval is not None])

    def _interval(self, constraint: NoOverlap, i: int, resource: int) -> Any:
        """Return interval i on a resource in units, None if it cannot be present or has no length."""
        intervals = constraint.intervals
        start, size = (_entry(part, i, resource) for part in (intervals.start, intervals.size))
        presence = None
        if intervals.presence is not None:
            there = _entry(intervals.presence, i, resource)
            ((presence,),) = self._literals(there.reshape(1, 1), constraint.tag)
            if self.units.upper[int(there.column[0])] == 0:
                return None
        begin, length = self._affine(start, constraint.tag), self._affine(size, constraint.tag)
        if isinstance(length, int) and length <= 0:
            return None
        name = f"{constraint.tag}[{i},{resource}]"
        if isinstance(length, int):
            if presence is None:
                return self.model.new_fixed_size_interval_var(begin, length, name)
            return self.model.new_optional_fixed_size_interval_var(begin, length, presence, name)
        (low, high), (shortest, longest) = _domain(begin), _domain(length)
        end = self.model.new_int_var(low + shortest, high + longest, f"end of {name}")
        if presence is None:
            return self.model.new_interval_var(begin, length, end, name)
        return self.model.new_optional_interval_var(begin, length, end, presence, name)

    def _affine(self, expression: Expression, tag: str) -> Any:
        """Return a time in units, rounded down: a number, a column, or a new column below the expression."""
        unit = self.units.unit
        constant = float(expression.constant[0])
        if not len(expression.column):
            counted = constant / unit
            integer = int(down(counted))
            self.exact &= abs(counted - integer) <= 1e-6
            return integer
        if len(expression.column) == 1 and expression.coefficient[0] == 1 and constant == 0 and self.units.is_time[expression.column[0]]:
            return self.columns[int(expression.column[0])]
        low, high = expression.reshape(1).bounds(self.program.lower, self.program.upper)
        below = self.model.new_int_var(math.floor(low[0] / unit) - 1, math.ceil(high[0] / unit) + 1, f"part of {tag}")
        # expression - unit < unit * below' <= expression, and so is every part rounded down.
        parts = [
            (self.columns[c], a / unit * self.units.scale[c])
            for c, a in zip(expression.column.tolist(), expression.coefficient.tolist(), strict=True)
        ]
        if any(
            self.units.is_time[c] and abs(weight - round(weight)) > 1e-9
            for c, (_, weight) in zip(expression.column.tolist(), parts, strict=True)
        ):
            raise UnsupportedFeature(f"an interval of {tag!r} has a fraction of a time in its start or size; use scip or highs")
        weights = [int(down(w)) for _, w in parts]
        base = constant / unit
        offset = int(down(base))
        self.exact &= abs(base - offset) <= 1e-6 and all(abs(w - k) <= 1e-6 for k, (_, w) in zip(weights, parts, strict=True))
        self.model.add(below == cp_model.LinearExpr.weighted_sum([column for column, _ in parts], weights) + offset)
        return below

    def _minimise(self) -> None:
        goal = self.program.objective
        weight = np.bincount(goal.column, goal.coefficient * self.units.scale[goal.column], self.program.n_columns)
        used = np.flatnonzero(weight)
        self.offset = float(goal.constant[0])
        self.factor = 1.0
        if not len(used):
            return
        smallest = float(np.abs(weight[used]).min())
        self.factor = 1.0 / smallest
        scaled = weight[used] * self.factor
        low = self.units.lower[used]
        reach = float(np.abs(weight[used]) @ np.maximum(np.abs(low), np.abs(self.units.upper[used])))
        if (np.abs(scaled - np.round(scaled)) > 1e-9 * np.abs(scaled)).any() or reach * self.factor > MOST:
            self.factor = min(1e9 / float(np.abs(weight[used]).max()), MOST / reach if reach else math.inf)
            scaled = weight[used] * self.factor
        weights = down(scaled)
        # Rounded down from the lower bound of each column; a time with a negative weight may be one unit longer.
        self.offset += float((weight[used] * low).sum() - (weights * low).sum() / self.factor)
        longer = np.minimum(weight[used] * self.units.is_time[used], 0.0)
        self.offset += float(longer.sum())
        self.exact &= not longer.any()
        self.model.minimize(cp_model.LinearExpr.weighted_sum([self.columns[c] for c in used.tolist()], weights.astype(np.int64).tolist()))

    def real_bound(self, bound: float) -> float:
        """Return a bound on the program's objective from one on the model's."""
        value = bound / self.factor + self.offset
        return value - TOLERANCE * abs(value)

    def real(self, value: Callable[[Any], int]) -> FloatArray:
        """Return the values of the program's columns in seconds; `value` has those of the model's variables, in units."""
        n = self.program.n_columns
        return np.array([value(column) for column in self.columns[:n]], np.float64) * self.units.scale[:n]

    def hint(self, values: FloatArray) -> None:
        """Pass the known values of a start to the solver."""
        values = self.lowered.complete(values)
        columns = np.flatnonzero(np.isfinite(values))
        scaled = np.clip(np.floor(values[columns] / self.units.scale[columns] + 1e-6), self.units.lower[columns], self.units.upper[columns])
        for c, value in zip(columns.tolist(), scaled.astype(np.int64).tolist(), strict=True):
            self.model.add_hint(self.columns[c], value)

    def repair(self, values: FloatArray) -> FloatArray | None:
        """Return exact times for the choices and orders of a solution in units, or None if infeasible."""
        from scipy.optimize import linprog
        from scipy.sparse import vstack

        lowered = linear(in_order(self.program, values), cuts=False)
        integral = lowered.integer
        bounds = np.column_stack([np.where(integral, values, lowered.program.lower), np.where(integral, values, lowered.program.upper)])
        rows = lowered.rows(len(lowered.row_lower))
        above, below = np.isfinite(lowered.row_upper), np.isfinite(lowered.row_lower)
        solved = linprog(
            lowered.cost,
            A_ub=vstack([rows[above], -rows[below]]),
            method="highs",
            bounds=bounds,
            b_ub=np.concatenate([lowered.row_upper[above], -lowered.row_lower[below]]),
        )
        return solved.x[: self.program.n_columns] if solved.status == 0 else None


def _domain(part: Any) -> tuple[int, int]:
    """Return the least and the largest value of a number or a variable."""
    if isinstance(part, int):
        return part, part
    low, high = part.proto.domain  # two numbers
    return low, high


def _entry(part: Expression, i: int, resource: int) -> Expression:
    """Return the entry of an expression [n], [n, 1] or [n, R] for an interval on a resource, faster than by general indexing."""
    width = 1 if part.ndim == 1 else part.shape[1]
    return part._take(np.asarray(i * width + (resource if width > 1 else 0)))


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _search_for_schedules(parameters: Any) -> None:
    """Set a search that is good at proofs for schedules: full searches with and without linear relaxation, and neighbourhoods."""
    workers = parameters.num_workers
    if workers == 1:  # several searches in turns stall at times; this one alone proves most
        parameters.linearization_level = 0
    else:
        parameters.subsolvers.extend(SCHEDULING[: max(2, workers // 2)])  # with two workers there is none for neighbourhoods


def _outcome(solver: Any, status: Any, built: _Build, run: Run) -> Outcome:
    program = built.program
    proven = PROVEN.get(status, "")
    values, objective = None, math.inf
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        values = built.real(solver.value)
        if not built.exact:
            values = built.repair(values)
        if values is not None:
            objective = float(program.objective.value(values))
    bound = math.inf if proven == "infeasible" else built.real_bound(solver.best_objective_bound)
    if not len(program.objective.column):
        bound = -math.inf if proven == "" else min(built.offset, objective)
    bound = min(bound, objective) if values is not None and built.exact else bound
    gap = (objective - bound) / max(abs(objective), 1e-9) if values is not None else math.inf
    finished = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    stopped = run.stopped or (Stop.FINISHED if finished else Stop.TIME_LIMIT)
    if proven == "optimal" and not gap <= 1e-6:
        stopped, proven = (Stop.GAP if run.request.settings.gap else Stop.FINISHED), ""
    if status == cp_model.MODEL_INVALID:
        raise UnsupportedFeature(f"CP-SAT refuses the model: {built.model.validate()}")
    return Outcome(stopped, values, proven, objective, bound, "cpsat", run.elapsed, int(solver.num_branches))


BACKEND = CpSat
