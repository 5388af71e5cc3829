"""IOS's dynamic program over the endings of a graph: stages on one device.

A state is the set of tasks that have run; a stage leads from one state to a larger one (`block_states`).
`modeling.DynamicProgram` chooses the stages whose cost is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hetsched.analysis.cuts import series_cuts
from hetsched.arguments import COUNT, checked, shown
from hetsched.arrays import FloatArray, IntArray
from hetsched.errors import Infeasible, InvalidArgument, InvalidProblem, UnsupportedFeature
from hetsched.modeling.dynamic import TOLERANCE, DynamicProgram, Evaluation, Query
from hetsched.models.ios.block_states import MOST_OF_A_PART, OF_A_PART, Block, described
from hetsched.problem.graph import TaskGraph, named
from hetsched.schedule.stages import StageCost, StageSchedule
from hetsched.stopping import Deadline, Stop

if TYPE_CHECKING:
    from hetsched.modeling.path_kernels import Transitions

Strategies = Literal["concurrent", "merge", "both"]


@checked(UnsupportedFeature, groups=COUNT, group_size=COUNT, finalists=COUNT, part_size=COUNT)
def stages(
    graph: TaskGraph,
    cost: StageCost,
    *,
    groups: int | None = 8,
    group_size: int | None = 3,
    strategies: Strategies = "both",
    bound: StageCost | None = None,
    propose: StageCost | None = None,
    finalists: int = 5,
    blocks: bool | Sequence[Iterable[str]] = True,
    part_size: int | None = None,
    time_limit: float | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> StageSchedule:
    """Divide a graph into stages that run one after another on one device, with the least sum of costs.

    In a stage either its groups, the connected components, run in parallel and the tasks of a group one after
    another ("concurrent"), or all tasks are merged into one operator ("merge").

    Parameters
    ----------
    graph : TaskGraph
        Only names and edges matter.
    cost : StageCost
        ``cost(tasks, strategy)``: seconds of a stage of these tasks, a tuple of names in topological order;
        inf if it is impossible. Each stage is evaluated once. A stage of one task cannot be merged and is evaluated
        as "concurrent".
    groups, group_size : int or None
        The most groups of a stage, and the most tasks of a group; None for no limit. The defaults are the paper's.
    strategies : "concurrent", "merge" or "both"
        "merge" permits stages of one task and merged stages.
    bound : StageCost, optional
        A cheap lower bound on the cost. With it, the cost is evaluated only for stages that can matter; the optimum is the
        same. Without it, the cost of every stage is evaluated. Both may return tables of many stages, see
        `hetsched.costs.StageCost`.
    propose : StageCost, optional
        A model of the cost, such as `hetsched.costs.Contention`, for costs that are measured. Of each block the stages of the model's
        best schedule are evaluated, then those of the best by these costs and, for other stages, by the model times the least
        ratio of a cost to the model so far; and so on.
    finalists : int
        The most schedules of a block that are evaluated with `propose`; fewer if one is proposed again. The answer is the best of
        all schedules whose stages were evaluated.
    blocks : bool or sequence of iterables of str
        Whether stages are limited to the blocks of `hetsched.models.ios.blocks`, as in the paper. If not, the optimum is over
        all stages; it differs only by stages with consecutive tasks of two blocks. Or the names of the tasks of each block,
        in the order of execution, for networks whose cells read more than the cell before, such as NASNet.
    part_size : int, optional
        Cut a block of more tasks, in topological order, into parts of this many, as the authors' program does (100 by default).
    time_limit : float, optional
        Seconds; needs a `bound`, `propose`, or a `cost` with a method `table`. With a bound or a model, for expensive costs, blocks that
        are not finished by then have the best stages so far, at least those that are best by the bounds or the model, whose
        costs are always evaluated. With a table alone a block that was begun is finished, and later ones of more than 16 tasks
        are cut into parts.
    on_progress : callable, optional
        Called with a `Progress` after each cost evaluated by itself and each table of costs; with a `bound`, `propose` or a table,
        returning True stops as the time limit does.

    Returns
    -------
    StageSchedule
        The optimum, to 1e-6 with a bound, with the number of costs `asked` for of those `possible`. Its own `bound` is
        further below its latency only if the search was stopped, or if a block is cut; with `propose` it is 0. A block of too many
        states or transitions is halved, between levels if possible, until its parts are small enough, and no stage crosses a cut. The other
        blocks stay optimal, and `messages` name those that were cut, whose stages need not be and which add nothing to the bound.

    Raises
    ------
    Infeasible
        Every schedule has a stage of infinite cost.
    InvalidProblem
        A cost is negative, not a number, or below its bound; or given blocks do not contain every task once, or one reads a
        later one.
    UnsupportedFeature
        An argument is out of range.

    References
    ----------
    Y. Ding, L. Zhu, Z. Jia, G. Pekhimenko, S. Han, "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021.
    """
    if isinstance(blocks, bool):
        parts = _blocks(graph) if blocks else [graph.topological_order] if graph.n_tasks else []
    else:
        parts = _given(graph, blocks)
    if bound is not None and propose is not None:
        raise UnsupportedFeature("a bound proves the optimum and a model proposes schedules; give `bound` or `propose`")
    every = bound is None and propose is None  # cost is evaluated
    tabled = every and getattr(cost, "table", None) is not None
    if time_limit is not None and every and not tabled:
        raise UnsupportedFeature(f"time_limit is {time_limit!r}; costs that may be left out need a bound, or a model that proposes")
    deadline = Deadline.after(time_limit)
    best_stages: list[_Stage] = []
    evaluated = possible = 0
    lower, stopped = 0.0, False

    def report(number: int, search: _Search) -> None:
        nonlocal stopped
        if on_progress is not None:
            now = Progress(number, len(parts), evaluated + len(search.costs), possible + search.possible)
            stopped = on_progress(now) is True or stopped

    def is_over() -> bool:
        return stopped or deadline.over

    messages = []
    for number, tasks in enumerate(parts):
        bounds = []
        late = tabled and is_over()
        pieces = [tasks] if part_size is None else np.split(tasks, range(part_size, len(tasks), part_size))
        most = MOST_OF_A_PART if late else None
        for block in chain.from_iterable(_within_reach(graph, piece, groups, group_size, most=most) for piece in pieces):
            search = _Search(block, cost, strategies, bound if propose is None else propose, partial(report, number))
            best, own = search.best() if every else search.best(is_over) if propose is None else search.proposed(finalists, is_over)
            best_stages += best
            bounds.append(own)
            evaluated += len(search.costs)
            possible += search.possible
        if len(bounds) == 1:
            lower += bounds[0]
        else:
            large = f"has more than {part_size} tasks" if len(pieces) > 1 else "is too wide to be solved as one"
            reason = "was begun after the search was stopped" if late else large
            messages.append(f"{described(graph, tasks)} {reason} and was cut into {len(bounds)} parts")
    return _schedule(graph, best_stages, evaluated, possible, lower, messages)


def _within_reach(
    graph: TaskGraph, tasks: IntArray, groups: int | None, group_size: int | None, share: int = 1, most: int | None = None
) -> Iterator[Block]:
    """Yield a part of a graph as a block or, if it has too many states, transitions or tasks, as several, in the order of execution."""
    if most is None or len(tasks) <= most:
        try:
            block = Block(graph, tasks, groups, group_size, share)
        except UnsupportedFeature:
            if len(tasks) == 1:
                raise
        else:
            yield block
            return
    level = _levels(graph)[tasks]
    tasks, level = tasks[np.argsort(level, kind="stable")], np.sort(level)
    middle = len(tasks) // 2
    ends = np.flatnonzero(np.diff(level)) + 1
    cut = int(ends[np.abs(ends - middle).argmin()]) if len(ends) else middle
    for part in (tasks[:cut], tasks[cut:]):
        yield from _within_reach(graph, part, groups, group_size, OF_A_PART, most)


class Progress(NamedTuple):
    """The progress of a search for stages."""

    block: int
    """The current block, of `blocks`."""
    blocks: int
    asked: int
    """Number of costs evaluated so far."""
    possible: int
    """Number of costs in the blocks so far."""


@checked
def sequential(graph: TaskGraph, cost: StageCost) -> StageSchedule:
    """Return the schedule with one task in each stage, in topological order: the first baseline of the paper."""
    return _from_stages(graph, cost, [[i] for i in graph.topological_order.tolist()])


@checked
def greedy(graph: TaskGraph, cost: StageCost) -> StageSchedule:
    """Return the schedule in which each stage runs all ready tasks in parallel: the second baseline of the paper."""
    level, order = _levels(graph), graph.topological_order
    return _from_stages(graph, cost, [order[level[order] == x].tolist() for x in range(int(level.max(initial=-1)) + 1)])


def _levels(graph: TaskGraph) -> IntArray:
    """Return the most edges on a path to each task, [n]."""
    level = np.zeros(graph.n_tasks, np.int64)
    for i in graph.topological_order.tolist():
        level[i] = level[graph.pred[graph.pred_ptr[i] : graph.pred_ptr[i + 1]]].max(initial=-1) + 1
    return level


@checked
def blocks(graph: TaskGraph) -> list[tuple[str, ...]]:
    """Return the blocks of a graph in the order of execution, each as the names of its tasks in topological order.

    A block ends with a task that is an ancestor or descendant of all others: between two of these is a region with one
    entry and one exit. Consecutive tasks of this kind form one block.
    """
    return [tuple(graph.names[i] for i in tasks.tolist()) for tasks in _blocks(graph)]


def _blocks(graph: TaskGraph) -> list[IntArray]:
    n, order = graph.n_tasks, graph.topological_order
    ends = np.union1d(graph.rank[series_cuts(graph)] + 1, [n])
    single = np.diff(ends, prepend=0) == 1
    inner = single[:-1] & single[1:]  # boundaries between consecutive single tasks
    ends = np.append(ends[:-1][~inner], ends[-1]) if n else ends
    return [part for part in np.split(order, ends) if len(part)]


def _given(graph: TaskGraph, blocks: Sequence[Iterable[str]]) -> list[IntArray]:
    """Return the given blocks, each in topological order."""
    block = np.full(graph.n_tasks, -1)
    for x, names in enumerate(blocks):
        for name in names:
            if not isinstance(name, str) or name not in graph.index:
                raise InvalidProblem(f"blocks[{x}] names {name!r}, which is not a task of the graph")
            if block[graph.index[name]] >= 0:
                raise InvalidProblem(f"{name!r} is in blocks[{block[graph.index[name]]}] and in blocks[{x}]; it can be in one")
            block[graph.index[name]] = x
    missing = np.flatnonzero(block < 0)
    if len(missing):
        raise InvalidProblem(f"{named(missing, graph.names)} {'is' if len(missing) == 1 else 'are'} in none of the blocks")
    for i, j in graph.edges[block[graph.source] > block[graph.target]].tolist():
        a, b = graph.names[i], graph.names[j]
        raise InvalidProblem(f"{b!r} of blocks[{block[j]}] reads {a!r} of blocks[{block[i]}]; give blocks in the order of execution")
    order = graph.topological_order
    return [order[block[order] == x] for x in range(len(blocks)) if (block == x).any()]


# ---------------------------------------------------------------------- the search for the best stages


class _Stage(NamedTuple):
    tasks: tuple[str, ...]
    strategy: str
    seconds: float


class _Search:
    """The best path through the states of a block."""

    def __init__(
        self,
        block: Block,
        cost: StageCost,
        strategies: Strategies,
        bound: StageCost | None,
        report: Callable[[_Search], object] = lambda _: None,
    ) -> None:
        self.block, self.cost, self.lazy, self.report = block, cost, bound is not None, report
        used = np.flatnonzero(np.bincount(block.stage, minlength=len(block.parent)))
        alone = block.parent[used] == 0
        together, merged = used if strategies != "merge" else used[alone], used[~alone] if strategies != "concurrent" else used[:0]
        self.stages = np.concatenate([together, merged])  # of each kind; a kind is a stage under a strategy
        self.first_merged = len(together)
        self.costs: dict[int, float] = {}  # evaluated costs, by kind
        self.possible = len(self.stages)
        self.lower = self._table(cost if bound is None else bound)
        if bound is None and not self.costs:  # of a table
            self.costs = dict(enumerate(self.lower.tolist()))
            self.report(self)
        finite = np.isfinite(self.lower)
        if self.lazy:
            self.possible = int(finite.sum())
        self.kinds = np.full((2, len(block.parent)), -1, np.int32)  # of each stage under each strategy
        for row, part in zip(self.kinds, (slice(0, len(together)), slice(len(together), None)), strict=True):
            row[self.stages[part]] = np.where(finite[part], np.arange(len(finite))[part], -1)

    def _table(self, cost: StageCost) -> FloatArray:
        """Return the costs, or bounds, of all kinds."""
        table = getattr(cost, "table", None)
        if table is None:
            return np.array([self._evaluated(cost, kind) for kind in range(len(self.stages))], np.float64)
        both = np.asarray(table(self.block.names, self.block.parent, self.block.last), np.float64)
        if both.shape != (len(self.block.parent), 2):
            raise InvalidProblem(f"table returned shape {both.shape} for {len(self.block.parent)} stages; it must be [stages, 2]")
        values = np.concatenate([both[self.stages[: self.first_merged], 0], both[self.stages[self.first_merged :], 1]])
        for kind in np.flatnonzero(~(values >= 0))[:1].tolist():
            _check_seconds(float(values[kind]), *self._named(kind))
        return values

    def _evaluated(self, cost: StageCost, kind: int) -> float:
        seconds = _seconds_of(cost, *self._named(kind))
        if not self.lazy:  # it is the cost, not a bound
            self.costs[kind] = seconds
            self.report(self)
        return seconds

    def _named(self, kind: int) -> tuple[tuple[str, ...], str]:
        return self.block.members(int(self.stages[kind])), "concurrent" if kind < self.first_merged else "merge"

    def program(self, transitions: IntArray | None = None) -> DynamicProgram | None:
        """Return the dynamic program over some transitions of the block or all; None if the last state is not reachable."""
        block = self.block
        some = np.arange(len(block.tail)) if transitions is None else transitions
        kind = self.kinds[:, block.stage[some]]
        row, place = np.nonzero(kind >= 0)
        tail, head = block.tail[some[place]], block.head[some[place]]
        if head.max(initial=0) < block.n_states - 1:
            return None
        upper = np.full(len(self.lower), np.inf)
        upper[list(self.costs)] = list(self.costs.values())
        return DynamicProgram(
            tail, head, self.lower, upper=np.maximum(upper, self.lower), kind=kind[row, place]
        )  # maximum: against rounding

    def best(self, stop: Callable[[], bool] = lambda: False) -> tuple[list[_Stage], float]:
        """Return the stages of the best schedule so far in the order of execution, and a lower bound."""
        program = self.program(self._near())
        if program is not None:
            kinds = program.kind
            evaluate = partial(self._evaluate, kinds)
            path = program.solve(evaluate, stop=stop)
            if path.transitions is None and path.stopped is Stop.STOPPED:
                path = program.solve(evaluate)  # no cost is evaluated yet
            if path.transitions is not None:
                return [_Stage(*self._named(kind), self.costs[kind]) for kind in kinds[path.transitions].tolist()], path.bound
        raise self._infeasible()

    def proposed(self, finalists: int, stop: Callable[[], bool]) -> tuple[list[_Stage], float]:
        """Return the best of the schedules whose stages were evaluated, in the order that costs and the model propose them, and 0."""
        model, path = self.lower, self._path()
        while path is not None:
            new = [kind for kind in path if kind not in self.costs]
            seconds = [self._cost_of(kind, bounded=False) for kind in path]
            finalists -= math.isfinite(sum(seconds))
            if not new or finalists <= 0 or (stop() and math.isfinite(sum(seconds))):
                break
            evaluated = np.array(list(self.costs))
            costs = np.array(list(self.costs.values()))
            usable = np.isfinite(costs) & (costs > 0) & (model[evaluated] > 0)
            self.lower = model * (costs[usable] / model[evaluated][usable]).min(initial=math.inf if usable.any() else 1.0)
            self.lower[evaluated] = costs
            path = self._path()
        self.lower = np.full(len(model), math.inf)
        self.lower[list(self.costs)] = list(self.costs.values())
        path = self._path()
        if path is None:
            raise self._infeasible()
        return [_Stage(*self._named(kind), self.costs[kind]) for kind in path], 0.0

    @cached_property
    def _paths(self) -> Transitions:
        from hetsched.modeling import path_kernels

        return path_kernels.transitions(self.block.tail, self.block.head, self.block.stage)

    def _path(self) -> list[int] | None:
        """Return the kinds of the stages of a path with the least sum of `lower`, in their order; None if it is infinite."""
        from hetsched.modeling import path_kernels

        block = self.block
        kind, bounds = self._least()
        distance, last = path_kernels.from_first(self._paths, bounds, block.n_states)
        state, path = block.n_states - 1, []
        if not np.isfinite(distance[-1]):
            return None
        while state:
            path.append(int(kind[block.stage[last[state]]]))
            state = int(block.tail[last[state]])
        return path[::-1]

    def _infeasible(self) -> Infeasible:
        return Infeasible(f"{described(self.block.graph, self.block.tasks)}: every schedule of it has a stage of infinite cost")

    def _near(self) -> IntArray:
        """Evaluate the stages of the path that is best by the bounds, and return the transitions of possibly better paths."""
        from hetsched.modeling import path_kernels

        paths, end = self._paths, self.block.n_states
        value = 0.0
        for on_path in self._path() or ():
            self.lower[on_path] = self._cost_of(on_path)
            value += self.lower[on_path]
        _, bounds = self._least()
        before, _ = path_kernels.from_first(paths, bounds, end)
        after = path_kernels.to_last(paths, bounds, end)
        kept: IntArray = path_kernels.on_short_paths(paths, bounds, before, after, value * (1 + TOLERANCE))
        return kept

    def _least(self) -> tuple[IntArray, FloatArray]:
        """Return the kind with the least bound for each stage, and that bound."""
        bounds = np.append(self.lower, np.inf)[self.kinds]
        row = bounds.argmin(axis=0)
        rows = np.arange(len(row))
        return self.kinds[row, rows], bounds[row, rows]

    def _evaluate(self, kinds: IntArray, query: Query) -> Evaluation:
        seconds = self._cost_of(int(kinds[query.transition]))
        return Evaluation(seconds, seconds, None, True)

    def _cost_of(self, kind: int, *, bounded: bool = True) -> float:
        """Return the cost of a stage under a strategy, which is not below `lower` if that is `bounded`."""
        if kind in self.costs:
            return self.costs[kind]
        tasks, strategy = self._named(kind)
        seconds = self.costs[kind] = _seconds_of(self.cost, tasks, strategy)
        self.report(self)
        if bounded and self.lower[kind] > seconds * (1 + TOLERANCE):
            raise InvalidProblem(
                f"stage {_list(tasks)} ({strategy}) costs {seconds} s, but its bound is {self.lower[kind]} s; "
                "a bound must never exceed the cost"
            )
        return seconds


def _seconds_of(cost: StageCost, tasks: tuple[str, ...], strategy: str) -> float:
    return _check_seconds(float(cost(tasks, strategy)), tasks, strategy)


def _check_seconds(seconds: float, tasks: tuple[str, ...], strategy: str) -> float:
    if not seconds >= 0:
        raise InvalidProblem(f"stage {_list(tasks)} ({strategy}) costs {seconds} s; a cost must be a number >= 0, or inf")
    return seconds


def _list(tasks: tuple[str, ...]) -> str:
    return named(range(len(tasks)), tasks)


def _from_stages(graph: TaskGraph, cost: StageCost, stages: list[list[int]]) -> StageSchedule:
    rows = [tuple(graph.names[i] for i in tasks) for tasks in stages]
    costs = [_seconds_of(cost, tasks, "concurrent") for tasks in rows]
    for tasks, seconds in zip(rows, costs, strict=True):
        if math.isinf(seconds):
            raise Infeasible(f"stage {_list(tasks)} has infinite cost")
    return _schedule(
        graph, [_Stage(tasks, "concurrent", seconds) for tasks, seconds in zip(rows, costs, strict=True)], len(rows), len(rows)
    )


def _schedule(
    graph: TaskGraph, stages: list[_Stage], asked: int, possible: int, bound: float | None = None, messages: Iterable[str] = ()
) -> StageSchedule:
    return StageSchedule.from_groups(
        graph.names,
        [connected(graph, stage.tasks) for stage in stages],
        [stage.strategy for stage in stages],
        [stage.seconds for stage in stages],
        asked=asked,
        possible=possible,
        bound=bound,
        messages=messages,
    )


def connected(graph: TaskGraph, tasks: tuple[str, ...]) -> list[list[str]]:
    """Return the connected components of some tasks, which keep their order."""
    strange = [name for name in tasks if name not in graph.index]
    if strange:
        raise InvalidArgument(f"{shown(strange[0])} is not a task of the graph; give names of its tasks")
    root = {graph.index[name]: graph.index[name] for name in tasks}

    def find(i: int) -> int:
        while root[i] != i:
            i = root[i]
        return i

    for j in list(root):
        for i in graph.pred[graph.pred_ptr[j] : graph.pred_ptr[j + 1]].tolist():
            if i in root:
                root[find(j)] = find(i)
    result: dict[int, list[str]] = {}
    for name in tasks:
        result.setdefault(find(graph.index[name]), []).append(name)
    return list(result.values())
