"""Lazy dynamic programs: shortest paths with costs that are expensive to evaluate."""

from __future__ import annotations

import concurrent.futures
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import InvalidModel
from hetsched.modeling.expression import Expression
from hetsched.modeling.jobs import Jobs
from hetsched.modeling.model import Model
from hetsched.stopping import NEVER, Deadline, Stop

if TYPE_CHECKING:
    from hetsched.modeling.path_kernels import Transitions

TOLERANCE = 1e-6
"""Relative difference of a cost's bounds at which it counts as known."""
_SHARES = 4.0  # the first evaluations together get 1 / _SHARES of the time left


class Query(NamedTuple):
    """A request of `DynamicProgram.solve` for an evaluation."""

    transition: int
    seconds: float
    """Time limit in seconds, or inf."""
    cutoff: float
    """A transition of at least this cost is not in the best path: a lower bound of this value is enough."""
    tries: int
    """Number of previous evaluations of the transition."""
    answer: Any
    """The best answer so far, or None."""


class Evaluation(NamedTuple):
    """The result of an evaluation of a transition."""

    lower: float
    """Lower bound of the cost; inf if there is no answer."""
    upper: float
    """Cost of the answer found, inf without one."""
    answer: Any = None
    done: bool = False
    """Whether further evaluations are useless; implied if the bounds are equal."""


@dataclass(frozen=True)
class Path:
    """The result of a dynamic program, final or intermediate.

    Attributes
    ----------
    transitions : int64 array or None
        The best path of transitions that all have an answer, in order.
    answers : list
        The answers of these transitions.
    value : float
        Cost of the path, inf without one.
    bound : float
        Lower bound of the cost of every path; inf if there is none.
    evaluated : int
        Number of kinds of transitions evaluated at least once, of `DynamicProgram.n_kinds`.
    stopped : Stop
        `Stop.NONE` in intermediate results.
    troubles : tuple of str
        Failures of the executor, after which work was done in this process.
    """

    transitions: IntArray | None
    answers: list[Any]
    value: float
    bound: float
    evaluated: int
    stopped: str
    troubles: tuple[str, ...] = ()


class DynamicProgram:
    """States, transitions between them, and bounds on the costs of transitions.

    The shortest path from the first state to the last is found lazily: the transitions of the path that
    is best by the bounds are evaluated until its costs are exact. A transition whose bound excludes it
    is never evaluated.

    Parameters
    ----------
    tail, head : int arrays [T]
        The states before and after each transition, numbered from 0 so that ``tail < head``. Several
        transitions may have the same states.
    lower : float array [K]
        Cheap lower bounds of the costs, >= 0, by kind of transition; inf for an impossible transition.
    upper : float array [K], optional
        Costs of initial answers, inf without one.
    answers : list [K], optional
        The initial answers.
    kind : int array [T], optional
        Transitions of a kind have the same cost and answer; one of them is evaluated for all. Default: each is its own kind.

    Raises
    ------
    InvalidModel
        Arrays do not fit, ``tail < head`` does not hold, a bound is negative or above the initial cost.
    """

    @checked
    def __init__(
        self,
        tail: npt.ArrayLike,
        head: npt.ArrayLike,
        lower: npt.ArrayLike,
        *,
        upper: npt.ArrayLike | None = None,
        answers: list[Any] | None = None,
        kind: npt.ArrayLike | None = None,
    ) -> None:
        def column(values: npt.ArrayLike, what: str, dtype: npt.DTypeLike, length: str) -> npt.NDArray[Any]:
            return np.array(check_array(values, what, (length,), dtype, error=InvalidModel))

        self.tail, self.head = (column(values, what, np.int64, "transitions") for values, what in ((tail, "tail"), (head, "head")))
        self.kind = np.arange(len(self.tail)) if kind is None else column(kind, "kind", np.int64, "transitions")
        self.lower = column(lower, "lower", np.float64, "kinds")
        self.upper = np.full(len(self.lower), math.inf) if upper is None else column(upper, "upper", np.float64, "kinds")
        self.answers: list[Any] = [None] * len(self.lower) if answers is None else list(answers)
        self._check()
        self.n_states = int(self.head.max()) + 1
        self._order = np.argsort(self.tail, kind="stable")

    def __repr__(self) -> str:
        return f"<DynamicProgram of {self.n_states} states and {self.n_transitions} transitions>"

    @property
    def n_transitions(self) -> int:
        """Number of transitions."""
        return len(self.tail)

    @property
    def n_kinds(self) -> int:
        """Number of kinds of transitions."""
        return len(self.lower)

    def _check(self) -> None:
        for what, arrays in (
            ("tail, head and kind", (self.tail, self.head, self.kind)),
            ("bounds and answers", (self.lower, self.upper, self.answers)),
        ):
            lengths = {len(column) for column in arrays}
            if len(lengths) > 1 or 0 in lengths:
                raise InvalidModel(f"{what} have lengths {sorted(lengths)}; they must be the same, and not zero")
        back = np.flatnonzero(~((self.tail >= 0) & (self.tail < self.head)))
        if len(back):
            t = int(back[0])
            raise InvalidModel(f"transition {t} leads from state {self.tail[t]} to {self.head[t]}; number the states so that tail < head")
        first, last = int(self.kind.min()), int(self.kind.max())
        if first < 0 or last >= self.n_kinds:
            raise InvalidModel(
                f"kinds go from {first} to {last}, but there are {self.n_kinds} bounds; number the kinds from 0, each with a bound"
            )
        bad = np.flatnonzero(~((self.lower >= 0) & (self.lower <= self.upper * (1 + TOLERANCE))))
        if len(bad):
            k = int(bad[0])
            raise InvalidModel(f"kind {k} has lower bound {self.lower[k]} and known cost {self.upper[k]}; 0 <= bound <= cost must hold")

    @checked
    def shortest(self, cost: FloatArray) -> tuple[float, IntArray | None]:
        """Return the cost of the shortest path for costs [K], and its transitions; inf and None without a path."""
        return self._path(*self._from_first(cost))

    @checked
    def least(self, cost: FloatArray) -> float:
        """Return the cost of the shortest path for costs [K], inf without a path."""
        return float(self._from_first(cost)[0][-1])

    @checked
    def around(self, cost: FloatArray) -> FloatArray:
        """Return the least cost of the other transitions of a path through each transition, [T]."""
        rest: FloatArray = self._from_first(cost)[0][self.tail] + self._to_last(cost)[self.head]
        return rest

    def _path(self, distance: FloatArray, last: IntArray) -> tuple[float, IntArray | None]:
        if math.isinf(distance[-1]):
            return math.inf, None
        transitions: list[int] = []
        state = self.n_states - 1
        while state:
            transitions.append(int(self._order[last[state]]))
            state = int(self.tail[transitions[-1]])
        return float(distance[-1]), np.array(transitions[::-1], np.int64)

    @cached_property
    def _paths(self) -> Transitions:
        """The transitions by ascending tail."""
        from hetsched.modeling import path_kernels

        return path_kernels.transitions(*(column[self._order] for column in (self.tail, self.head, self.kind)))

    def _from_first(self, cost: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return the distance of each state from the first, and the last transition of its path."""
        from hetsched.modeling import path_kernels

        given = check_array(cost, "cost", (self.n_kinds,), error=InvalidModel)
        distance, last = path_kernels.from_first(self._paths, _writable(given), self.n_states)
        return distance, last

    def _to_last(self, cost: FloatArray) -> FloatArray:
        """Return the distance of each state to the last."""
        from hetsched.modeling import path_kernels

        distance: FloatArray = path_kernels.to_last(self._paths, _writable(cost), self.n_states)
        return distance

    @checked
    def solve(
        self,
        evaluate: Callable[[Query], Evaluation],
        *,
        time_limit: float | None = None,
        deadline: Deadline = NEVER,
        executor: concurrent.futures.Executor | None = None,
        parallel: int | None = None,
        on_progress: Callable[[Path], object] | None = None,
        stop: Callable[[], object] | None = None,
    ) -> Path:
        """Find the shortest path.

        Parameters
        ----------
        evaluate : callable
            Evaluates the transition of a `Query`. A transition whose bounds stay different is evaluated
            again, with twice the time.
        time_limit : float, optional
            Seconds of wall-clock time; afterwards the best path so far and a valid bound are returned.
        deadline : Deadline, optional
            The same as a point in time; the earlier one applies.
        executor : Executor, optional
            Evaluates transitions in parallel; one with processes needs a picklable `evaluate`. Failed
            evaluations are repeated in this process.
        parallel : int, optional
            The most evaluations submitted at a time; default the number of cores. Transitions of the best
            path come first, then the most promising others.
        on_progress : callable, optional
            Called with an intermediate `Path` after each evaluation; returning True stops.
        stop : callable, optional
            Called between evaluations; a true result stops the solve.
        """
        end = Deadline.after(time_limit, deadline.clock).earlier(deadline)
        return _Run(self, evaluate, end, executor, parallel, on_progress, stop).run()

    def to_model(self, cost: npt.ArrayLike | None = None) -> tuple[Model, Expression]:
        """Return a linear program for a unit of flow from the first state to the last, and its columns [T].

        Parameters
        ----------
        cost : float array [K], optional
            Default: initial costs, or lower bounds where there is none.
        """
        if cost is None:
            cost = np.where(np.isfinite(self.upper), self.upper, self.lower)
        values = check_array(cost, "cost", (self.n_kinds,), error=InvalidModel)[self.kind]
        model = Model()
        flow = model.continuous("flow", self.n_transitions, upper=np.isfinite(values).astype(np.float64))
        state = np.concatenate([self.tail, self.head])
        order = np.argsort(state, kind="stable")
        column, sign = np.tile(flow.column, 2)[order], np.repeat([1.0, -1.0], self.n_transitions)[order]
        ptr = np.searchsorted(state[order], np.arange(self.n_states + 1))
        net = Expression((self.n_states,), ptr, column, sign, np.zeros(self.n_states))
        demand = np.zeros(self.n_states)
        demand[0], demand[-1] = 1.0, -1.0
        model.add(net == demand, tag="flow")
        model.minimise(np.where(np.isfinite(values), values, 0.0) @ flow)
        return model, flow


def _writable(cost: FloatArray) -> FloatArray:
    """Return costs as the one kind of array that the kernels are compiled for, copied only where they are another."""
    return np.require(cost, np.float64, ["C", "W"])


class _Run:
    """The state of one solve: known costs and running evaluations."""

    def __init__(
        self,
        program: DynamicProgram,
        evaluate: Callable[[Query], Evaluation],
        deadline: Deadline,
        executor: concurrent.futures.Executor | None,
        parallel: int | None,
        on_progress: Callable[[Path], object] | None,
        stop: Callable[[], object] | None,
    ) -> None:
        self.program, self.evaluate = program, evaluate
        self.parallel = (parallel or os.cpu_count() or 1) if executor is not None else 1
        self.deadline, self.on_progress, self.stop = deadline, on_progress, stop
        self.lower, self.upper, self.answers = program.lower.copy(), program.upper.copy(), list(program.answers)
        self.done = _meet(self.lower, self.upper)
        self.known = np.where(self.done, self.upper, self.lower)  # cost of each finished kind, lower bound of others
        self.tries = np.zeros(program.n_kinds, np.int64)
        self.evaluated = 0
        self.troubles: dict[str, None] = {}
        self.jobs: Jobs[Query] = Jobs(executor, self._learn, self.troubles.setdefault)
        self.stopped = Stop.NONE

    def run(self) -> Path:
        """Evaluate the best path until its costs are known."""
        try:
            while not self._over():
                path = self._open_path()
                if not path:
                    self.stopped = Stop.FINISHED
                else:
                    for t in path[:1] if self.jobs.executor is None else self._wanted(path):
                        query = self._query(t, len(path))
                        self.jobs.submit(query, self.evaluate, query)
                    self.jobs.collect(self.deadline)
        finally:
            self.jobs.cancel()
        return self.state()

    def state(self) -> Path:
        """Return the current result."""
        value, transitions = self.program.shortest(self.upper)
        answers = [] if transitions is None else [self.answers[k] for k in self.program.kind[transitions]]
        bound = min(self.program.least(self.lower), value)
        return Path(transitions, answers, value, bound, self.evaluated, self.stopped, tuple(self.troubles))

    def _over(self) -> bool:
        if not self.stopped and self.stop is not None and self.stop():
            self.stopped = Stop.STOPPED
        if not self.stopped and self.deadline.over:
            self.stopped = Stop.TIME_LIMIT
        return bool(self.stopped)

    def _open_path(self) -> list[int]:
        """Return the transitions of the best path to evaluate, by decreasing uncertainty; none if no path can be better."""
        self.value = self.program.least(self.upper)
        self.before, last = self.program._from_first(self.known)
        best, transitions = self.program._path(self.before, last)
        if transitions is None or best >= self.value * (1 - TOLERANCE):
            return []
        kind = self.program.kind[transitions]
        open_ones = transitions[np.flatnonzero(~self.done[kind])]
        return self._one_of_each(open_ones[np.argsort(self.tries[self.program.kind[open_ones]], kind="stable")])

    def _one_of_each(self, transitions: IntArray) -> list[int]:
        _, first = np.unique(self.program.kind[transitions], return_index=True)
        return transitions[np.sort(first)].tolist()  # type: ignore[no-any-return]

    def _wanted(self, path: list[int]) -> list[int]:
        """Return the transitions to submit: those of the path, and up to the limit the most promising others."""
        kind = self.program.kind
        busy = np.zeros(self.program.n_kinds, np.bool_)
        busy[[kind[query.transition] for query in self.jobs.running]] = True
        selected = [t for t in path if not busy[kind[t]]]
        if self.parallel - len(self.jobs) <= len(selected):
            return selected
        through = self.program.around(self.known) + self.known[kind]
        open_ones = np.flatnonzero(~self.done[kind] & ~busy[kind] & (through < self.value))
        promising = open_ones[np.argsort(through[open_ones], kind="stable")]
        return self._one_of_each(np.concatenate([np.array(selected, np.int64), promising]))[: self.parallel - len(self.jobs)]

    def _query(self, t: int, shared: int) -> Query:
        """Return the query for a transition, whose time is shared by `shared` open ones."""
        from hetsched.modeling import path_kernels

        left = max(0.0, self.deadline.left)
        kind = int(self.program.kind[t])
        tries = int(self.tries[kind])
        seconds = min(left, left / (_SHARES * shared) * self.parallel * 2.0**tries)
        rest = path_kernels.least_around(self.program._paths, self.before, self.program._to_last(self.known), kind)
        self.evaluated += not tries
        self.tries[kind] += 1
        return Query(t, seconds, self.value - rest, tries, self.answers[kind])

    def _learn(self, query: Query, evaluation: Evaluation) -> None:
        t, kind = query.transition, int(self.program.kind[query.transition])
        self.lower[kind] = max(self.lower[kind], evaluation.lower)
        if evaluation.upper < self.upper[kind]:
            self.upper[kind], self.answers[kind] = evaluation.upper, evaluation.answer
        if self.lower[kind] > self.upper[kind] * (1 + TOLERANCE):
            raise InvalidModel(f"transition {t} has lower bound {self.lower[kind]}, but an answer costs {self.upper[kind]}")
        self.done[kind] = evaluation.done or _meet(self.lower[kind], self.upper[kind])
        self.known[kind] = self.upper[kind] if self.done[kind] else self.lower[kind]
        if self.on_progress is not None and self.on_progress(self.state()) is True:
            self.stopped = Stop.STOPPED


def _meet(lower: Any, upper: Any) -> Any:
    """Return where costs are known: the bounds are equal up to the tolerance, or there is no answer."""
    return np.isinf(lower) | (lower >= upper * (1 - TOLERANCE))
