"""The backend of SCIP, by pyscipopt."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import MissingDependency, UnsupportedFeature
from hetsched.modeling.backends import Request, Run, info
from hetsched.modeling.lowering import Edits, Matrix, linear
from hetsched.modeling.outcome import Outcome
from hetsched.modeling.program import Program
from hetsched.stopping import NEVER, Deadline, Stop

try:
    import pyscipopt
    from pyscipopt.scip import PY_SCIP_EVENTTYPE as SCIP_EVENTTYPE
    from pyscipopt.scip import PY_SCIP_STAGE as SCIP_STAGE
    from pyscipopt.scip import Eventhdlr
except ModuleNotFoundError as error:
    raise MissingDependency("pyscipopt", "solvers") from error

from hetsched.modeling.backends.scip_propagation import Propagation  # which imports pyscipopt too

STOPPED = {
    "timelimit": Stop.TIME_LIMIT,
    "gaplimit": Stop.GAP,
    "userinterrupt": Stop.INTERRUPTED,
    "optimal": Stop.FINISHED,
    "infeasible": Stop.FINISHED,
    "unbounded": Stop.FINISHED,
    "inforunbd": Stop.FINISHED,
}
OKAY = 1
TOO_LATE = "cannot be called at this time"
"""SCIP's message if a solve has ended between the check of its stage and the call."""
RUNNING = (
    SCIP_STAGE.TRANSFORMED,
    SCIP_STAGE.INITPRESOLVE,
    SCIP_STAGE.PRESOLVING,
    SCIP_STAGE.EXITPRESOLVE,
    SCIP_STAGE.PRESOLVED,
    SCIP_STAGE.INITSOLVE,
    SCIP_STAGE.SOLVING,
)
PIECE = 1.5e-5
"""Estimated seconds to pass a column or a row to SCIP, and for SCIP to copy it at the start."""
EVENTS = (SCIP_EVENTTYPE.BESTSOLFOUND, SCIP_EVENTTYPE.NODESOLVED, SCIP_EVENTTYPE.FIRSTLPSOLVED, SCIP_EVENTTYPE.LPSOLVED)


class Scip:
    """SCIP as a backend."""

    name = "scip"
    capabilities = info("scip").capabilities

    def __init__(self) -> None:
        self._kept: tuple[_Loaded, Matrix] | None = None

    def native(self, program: Program) -> Any:
        """Return a ``pyscipopt.Model`` with columns named as in `Program.column_names`."""
        return _Loaded(linear(program)).model

    def solve(self, program: Program, request: Request) -> Outcome:
        """Solve a program by branch and cut; bounds hold within SCIP's tolerance of 1e-6."""
        run = Run(request, self)
        lowered = linear(program, cuts=request.settings.cuts, deadline=request.settings.deadline)
        loaded = self._loaded(lowered, request.settings.deadline)
        model, columns = loaded.model, loaded.columns
        model.setParam("randomization/randomseedshift", request.settings.seed % (2**31))
        model.setParam("limits/gap", request.settings.gap)
        if run.time_left is not None:
            model.setParam("limits/time", run.time_left)
        options = {**loaded.propagation.use(run, columns, program), **request.settings.options}
        for name, value in options.items():
            try:
                model.setParam(name, value)
            except (KeyError, LookupError, ValueError) as error:
                raise UnsupportedFeature(f"SCIP has no parameter {name!r} = {value!r}: {error}") from None
        if request.hint is not None:
            _start(model, columns, program, lowered, request.hint)
        loaded.listener.listen(run, columns[: program.n_columns])
        run.work(model.optimizeNogil, lambda: interrupt(model))
        outcome = _outcome(model, columns, program, run)
        if outcome.values is not None and not run.reported:  # the solution of the previous solve is still the best
            run.found(outcome.objective, lambda: np.asarray(outcome.values))
        return outcome

    def _loaded(self, lowered: Matrix, deadline: Deadline) -> _Loaded:
        """Return a model of a matrix: the previous one, edited, or a new one."""
        edits = None if self._kept is None else lowered.edits(self._kept[1])
        if self._kept is None or edits is None:
            loaded = _Loaded(lowered, deadline)
        else:
            loaded = self._kept[0]
            loaded.edit(lowered, edits)
        self._kept = (loaded, lowered)
        return loaded


class _Listener(Eventhdlr):
    """Reports better solutions and bounds."""

    def listen(self, run: Run, columns: list[Any]) -> None:
        """Report to `run`, with values of `columns`."""
        self.run, self.columns = run, columns

    def eventinit(self) -> None:
        for event in EVENTS:
            self.model.catchEvent(event, self)

    def eventexit(self) -> None:
        for event in EVENTS:
            self.model.dropEvent(event, self)

    def eventexec(self, event: Any) -> dict[str, Any]:
        model = self.model
        self.run.nodes = model.getNTotalNodes()
        if event.getType() == SCIP_EVENTTYPE.BESTSOLFOUND:
            solution = model.getBestSol()
            self.run.found(model.getSolObjVal(solution), lambda: np.array([model.getSolVal(solution, column) for column in self.columns]))
        bound = model.getDualbound()
        if abs(bound) < model.infinity():
            self.run.bounded(bound)
        if self.run.stopped:
            interrupt(model)
        return {}


def interrupt(model: Any) -> None:
    """Interrupt a solve if it is running; otherwise SCIP would print an error."""
    if model.getStage() not in RUNNING:
        return
    try:
        model.interruptSolve()
    except Exception as error:  # pyscipopt has no class for it
        if TOO_LATE not in str(error):
            raise


def _start(model: Any, columns: list[Any], program: Program, lowered: Matrix, hint: FloatArray) -> None:
    """Pass a start to SCIP, complete or partial."""
    values = lowered.program.complete(hint)
    solution = model.createSol() if np.isfinite(values).all() else model.createPartialSol()
    for c in np.flatnonzero(np.isfinite(values)).tolist():
        model.setSolVal(solution, columns[c], values[c])
    model.addSol(solution)


def _outcome(model: Any, columns: list[Any], program: Program, run: Run) -> Outcome:
    status = model.getStatus()
    infinity = model.infinity()
    stopped = run.stopped or STOPPED.get(status, Stop.STOPPED)
    detail = "" if status in STOPPED or run.stopped else f"SCIP ended by {status!r}"
    proven = {"optimal": "optimal", "infeasible": "infeasible", "unbounded": "unbounded"}.get(status, "")
    if status == "gaplimit" and run.request.settings.gap == 0:
        stopped, proven = Stop.FINISHED, "optimal"
    values, objective = None, math.inf
    if model.getNSols() and proven != "infeasible":
        best = model.getBestSol()
        values = np.array([model.getSolVal(best, column) for column in columns[: program.n_columns]])
        objective = model.getSolObjVal(best)
    bound = math.inf if proven == "infeasible" else model.getDualbound()
    bound = -math.inf if bound <= -infinity else math.inf if bound >= infinity else bound
    if proven == "optimal":
        bound = min(bound, objective)
    return Outcome(stopped, values, proven, objective, bound, "scip", run.elapsed, int(model.getNTotalNodes()), detail)


class _Loaded:
    """A SCIP model of a matrix, its columns in order, and the addresses of its rows.

    Rows are added by SCIP's C interface, from the library that pyscipopt includes; Python objects for each row take
    three times as long.
    """

    def __init__(self, lowered: Matrix, deadline: Deadline = NEVER) -> None:
        size = lowered.program.n_columns + len(lowered.row_lower)
        what = f"handing {lowered.program.n_columns:,} columns and {len(lowered.row_lower):,} rows to SCIP"
        deadline.require(PIECE * size, what)
        self.model = model = pyscipopt.Model()
        program, infinity = lowered.program, model.infinity()
        self._hush()
        low, high = (np.clip(bound, -infinity, infinity).tolist() for bound in (program.lower, program.upper))
        types = np.where(lowered.integer, np.where((program.lower >= 0) & (program.upper <= 1), "B", "I"), "C").tolist()
        self.columns = [
            model.addVar(name, vtype=kind, lb=lb, ub=ub, obj=cost)
            for name, kind, lb, ub, cost in deadline.watch(
                zip(program.column_names(), types, low, high, lowered.cost.tolist(), strict=True), what
            )
        ]
        self.offset = lowered.offset
        model.addObjoffset(lowered.offset)
        model.setMinimize()
        self.listener = _Listener()
        model.includeEventhdlr(self.listener, "hetsched", "reports incumbents and bounds")
        self.propagation = Propagation(model, self.columns, lowered.program.propagators)
        self._library, self._scip = _library(), _pointer(model)
        self.rows: list[int] = []
        self.rows += self._add(lowered, deadline.watch(range(len(lowered.row_lower)), what))

    def _hush(self) -> None:
        self.model.hideOutput()
        self.model.setParam("misc/catchctrlc", False)  # Ctrl-C is handled by this process, see Run

    def edit(self, lowered: Matrix, edits: Edits) -> None:
        """Change it into the model of another matrix."""
        model, program = self.model, lowered.program
        model.freeTransform()
        model.resetParams()
        self._hush()
        infinity = model.infinity()
        for c in edits.bounds.tolist():
            model.chgVarLb(self.columns[c], max(-infinity, program.lower[c]))
            model.chgVarUb(self.columns[c], min(infinity, program.upper[c]))
        for c in edits.costs.tolist():
            _done(self._library.SCIPchgVarObj(self._scip, self.columns[c].ptr(), lowered.cost[c]))
        model.addObjoffset(lowered.offset - self.offset)
        self.offset = lowered.offset
        for r, new in zip(edits.changed.tolist(), self._add(lowered, edits.changed.tolist()), strict=True):
            _done(self._library.SCIPdelCons(self._scip, self.rows[r]))
            self.rows[r] = new
        self.rows += self._add(lowered, edits.added.tolist())

    def _add(self, lowered: Matrix, rows: Iterable[int]) -> list[int]:
        """Add rows and return their addresses."""
        library, scip, infinity = self._library, self._scip, self.model.infinity()
        pointers = np.array([column.ptr() for column in self.columns], np.uintp)[lowered.column]
        coefficients = np.ascontiguousarray(lowered.coefficient, np.float64)
        first_pointer, first_coefficient = pointers.ctypes.data, coefficients.ctypes.data
        row = ctypes.c_void_p()
        where = ctypes.byref(row)
        low, high = (np.clip(limit, -infinity, infinity).tolist() for limit in (lowered.row_lower, lowered.row_upper))
        starts = lowered.start.tolist()
        added = []
        for r in rows:
            begin, length = starts[r], starts[r + 1] - starts[r]
            terms = first_pointer + 8 * begin, first_coefficient + 8 * begin
            _done(library.SCIPcreateConsBasicLinear(scip, where, b"r%d" % r, length, *terms, low[r], high[r]))
            _done(library.SCIPaddCons(scip, row))
            added.append(int(row.value or 0))
            _done(library.SCIPreleaseCons(scip, where))
        return added


def _done(code: int) -> None:
    if code != OKAY:
        raise MemoryError(f"SCIP could not change the model (code {code})")


def _library() -> ctypes.CDLL:
    """Return SCIP's C functions, from the extension module that is linked with them."""
    import pyscipopt.scip

    library = ctypes.CDLL(pyscipopt.scip.__file__)
    pointer = ctypes.c_void_p
    library.SCIPcreateConsBasicLinear.argtypes = [
        pointer,
        ctypes.POINTER(pointer),
        ctypes.c_char_p,
        ctypes.c_int,
        pointer,
        pointer,
        ctypes.c_double,
        ctypes.c_double,
    ]
    library.SCIPaddCons.argtypes = library.SCIPdelCons.argtypes = [pointer, pointer]
    library.SCIPchgVarObj.argtypes = [pointer, pointer, ctypes.c_double]
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


BACKEND = Scip
