"""SCIP, through pyscipopt."""

from __future__ import annotations

import ctypes
import math
from itertools import pairwise
from typing import Any

import numpy as np

from hetsched.errors import MissingDependency, UnsupportedFeature
from hetsched.modeling.backends import Request, Run
from hetsched.modeling.expression import FloatArray
from hetsched.modeling.lowering import Matrix, linear
from hetsched.modeling.outcome import Outcome
from hetsched.modeling.program import Program

try:
    import pyscipopt
    from pyscipopt.scip import PY_SCIP_EVENTTYPE as SCIP_EVENTTYPE
    from pyscipopt.scip import Eventhdlr
except ModuleNotFoundError as error:
    raise MissingDependency("pyscipopt", "solvers") from error

STOPPED = {"timelimit": "time limit", "gaplimit": "gap", "userinterrupt": "interrupted", "optimal": "finished", "infeasible": "finished",
           "unbounded": "finished", "inforunbd": "finished"}  # fmt: skip
OKAY = 1


class Scip:
    """SCIP as a backend."""

    name = "scip"

    def native(self, program: Program) -> Any:
        """Return a ``pyscipopt.Model``; its columns are called as in `Program.column_names`."""
        return load(linear(program))[0]

    def solve(self, program: Program, request: Request) -> Outcome:
        """Solve a program by branch and cut; bounds hold within SCIP's tolerance of 1e-6."""
        run = Run(request)
        lowered = linear(program, cuts=request.cuts)
        model, columns = load(lowered)
        model.setParam("misc/catchctrlc", False)  # Ctrl-C is this process's, see Run
        model.setParam("randomization/randomseedshift", request.seed % (2**31))
        model.setParam("limits/gap", request.gap)
        if run.time_left is not None:
            model.setParam("limits/time", run.time_left)
        for name, value in request.options.items():
            try:
                model.setParam(name, value)
            except (KeyError, LookupError, ValueError) as error:
                raise UnsupportedFeature(f"SCIP takes no parameter {name!r} = {value!r}: {error}") from None
        if request.hint is not None:
            _start(model, columns, program, lowered, request.hint)
        listener = _Listener(run, columns, program.n_columns)
        model.includeEventhdlr(listener, "hetsched", "tells of incumbents and bounds")
        run.work(model.optimizeNogil, model.interruptSolve)
        return _outcome(model, columns, program, run)


class _Listener(Eventhdlr):
    """Tells of better solutions and bounds."""

    def __init__(self, run: Run, columns: list[Any], own: int) -> None:
        self.run, self.columns, self.own = run, columns[:own], own

    def eventinit(self) -> None:
        for event in (SCIP_EVENTTYPE.BESTSOLFOUND, SCIP_EVENTTYPE.NODESOLVED, SCIP_EVENTTYPE.FIRSTLPSOLVED):
            self.model.catchEvent(event, self)

    def eventexit(self) -> None:
        for event in (SCIP_EVENTTYPE.BESTSOLFOUND, SCIP_EVENTTYPE.NODESOLVED, SCIP_EVENTTYPE.FIRSTLPSOLVED):
            self.model.dropEvent(event, self)

    def eventexec(self, event: Any) -> dict[str, Any]:
        model = self.model
        if event.getType() == SCIP_EVENTTYPE.BESTSOLFOUND:
            solution = model.getBestSol()
            self.run.found(model.getSolObjVal(solution), lambda: np.array([model.getSolVal(solution, column) for column in self.columns]))
        bound = model.getDualbound()
        if abs(bound) < model.infinity():
            self.run.bounded(bound)
        if self.run.stopped:
            model.interruptSolve()
        return {}


def _start(model: Any, columns: list[Any], program: Program, lowered: Matrix, hint: FloatArray) -> None:
    """Hand a start to SCIP, whole or in parts."""
    values = lowered.program.complete(hint)
    solution = model.createSol() if np.isfinite(values).all() else model.createPartialSol()
    for c in np.flatnonzero(np.isfinite(values)).tolist():
        model.setSolVal(solution, columns[c], values[c])
    model.addSol(solution)


def _outcome(model: Any, columns: list[Any], program: Program, run: Run) -> Outcome:
    status = model.getStatus()
    infinity = model.infinity()
    stopped = run.stopped or STOPPED.get(status, status)
    proven = {"optimal": "optimal", "infeasible": "infeasible", "unbounded": "unbounded"}.get(status, "")
    if status == "gaplimit" and run.request.gap == 0:
        stopped, proven = "finished", "optimal"
    values, objective = None, math.inf
    if model.getNSols() and proven != "infeasible":
        best = model.getBestSol()
        values = np.array([model.getSolVal(best, column) for column in columns[: program.n_columns]])
        objective = model.getSolObjVal(best)
    bound = math.inf if proven == "infeasible" else model.getDualbound()
    bound = -math.inf if bound <= -infinity else math.inf if bound >= infinity else bound
    if proven == "optimal":
        bound = min(bound, objective)
    return Outcome(stopped, values, proven, objective, bound, "scip", run.elapsed, int(model.getNTotalNodes()))


def load(lowered: Matrix) -> tuple[Any, list[Any]]:
    """Return a SCIP model of a matrix, and its columns in order.

    Rows go in through SCIP's C interface, found in the library that pyscipopt brings: row by row
    through Python objects takes three times as long.
    """
    model = pyscipopt.Model()
    model.hideOutput()
    program, infinity = lowered.program, model.infinity()
    low, high = (np.clip(bound, -infinity, infinity).tolist() for bound in (program.lower, program.upper))
    types = np.where(lowered.integer, np.where((program.lower >= 0) & (program.upper <= 1), "B", "I"), "C").tolist()
    columns = [
        model.addVar(name, vtype=kind, lb=lb, ub=ub, obj=cost)
        for name, kind, lb, ub, cost in zip(program.column_names(), types, low, high, lowered.cost.tolist(), strict=True)
    ]
    model.addObjoffset(lowered.offset)
    model.setMinimize()
    _add_rows(model, columns, lowered, infinity)
    return model, columns


def _add_rows(model: Any, columns: list[Any], lowered: Matrix, infinity: float) -> None:
    library, scip = _library(), _pointer(model)
    pointers = np.array([column.ptr() for column in columns], np.uintp)[lowered.column]
    coefficients = np.ascontiguousarray(lowered.coefficient, np.float64)
    first_pointer, first_coefficient = pointers.ctypes.data, coefficients.ctypes.data
    row = ctypes.c_void_p()
    where = ctypes.byref(row)
    low, high = (np.clip(limit, -infinity, infinity).tolist() for limit in (lowered.row_lower, lowered.row_upper))
    starts = lowered.start.tolist()
    for r, (begin, end) in enumerate(pairwise(starts)):
        done = library.SCIPcreateConsBasicLinear(
            scip, where, b"r%d" % r, end - begin, first_pointer + 8 * begin, first_coefficient + 8 * begin, low[r], high[r]
        )  # fmt: skip
        if done != OKAY or library.SCIPaddCons(scip, row) != OKAY or library.SCIPreleaseCons(scip, where) != OKAY:
            raise MemoryError("SCIP could not take a row")


def _library() -> ctypes.CDLL:
    """Return SCIP's own functions; they are found through the extension module that is linked to them."""
    import pyscipopt.scip

    library = ctypes.CDLL(pyscipopt.scip.__file__)
    pointer = ctypes.c_void_p
    library.SCIPcreateConsBasicLinear.argtypes = [
        pointer, ctypes.POINTER(pointer), ctypes.c_char_p, ctypes.c_int, pointer, pointer, ctypes.c_double, ctypes.c_double,
    ]  # fmt: skip
    library.SCIPaddCons.argtypes = [pointer, pointer]
    library.SCIPreleaseCons.argtypes = [pointer, ctypes.POINTER(pointer)]
    return library


def _pointer(model: Any) -> int:
    """Return the address of the model's SCIP."""
    capsule = model.to_ptr(False)
    name, get = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address: int = get(capsule, name(capsule))
    return address


BACKEND = Scip()
