"""Division of a problem into modules, and the dynamic program over the devices of the channels between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import numpy as np

from hetsched.analysis import levels
from hetsched.analysis.isomorphism import identical_parts
from hetsched.analysis.modules import LARGEST, modules
from hetsched.analysis.symmetry import Exchange, exchanges
from hetsched.arguments import check_array, check_indices, checked
from hetsched.arrays import BoolArray, FloatArray, IntArray, row_starts
from hetsched.errors import InvalidProblem
from hetsched.modeling.dynamic import DynamicProgram, Path
from hetsched.problem.problem import Problem, stated
from hetsched.schedule.decision import Decision
from hetsched.schedule.parts import PartialDecision, join, subproblem
from hetsched.schedule.schedule import Schedule
from hetsched.stopping import NEVER, Deadline

MOST_STATES = 81
"""The most combinations of devices at a boundary: all those of four channels and three devices."""


@checked
@dataclass(frozen=True)
class Module:
    """The tasks between two boundaries, from the end of the channels before until the end of all tasks.

    Attributes
    ----------
    tasks : int array
        First the channels of the boundary before, which have ended on given devices; then the module's own
        tasks, in topological order.
    edges : int array
        The edges between these tasks, ascending.
    given : int
        Number of channels of the boundary before.
    ends : int array
        Positions in `tasks` of the channels of the boundary after.
    clean : bool
        Whether later modules depend on only one task up to its end, or there are none.
    """

    tasks: IntArray
    edges: IntArray
    given: int
    ends: IntArray
    clean: bool

    @property
    def plain(self) -> bool:
        """Whether it is a single task with at most one channel, so that its longest path is its optimum."""
        return len(self.tasks) - self.given == 1 and self.given <= 1

    @checked
    def between(self, problem: Problem, source: IntArray, target: IntArray | None = None) -> Problem | None:
        """Return the module as a problem with its channels on given devices, or None if a task then has no device.

        Without `target` the channels of the boundary after may be on any device.
        """
        self._check_ends(problem, source, target)
        durations = stated(problem.usable_durations[self.tasks])
        elsewhere = np.arange(problem.n_devices) != source[:, None]
        front = durations[: self.given]
        front[np.isfinite(front)] = 0.0
        front[elsewhere] = np.nan
        if target is not None:
            for place, device in zip(self.ends.tolist(), target.tolist(), strict=True):
                durations[place, np.arange(problem.n_devices) != device] = np.nan
        try:
            return subproblem(problem, self.tasks, edges=self.edges, durations=durations)
        except InvalidProblem:  # with these channels a task has no device
            return None

    def _check_ends(self, problem: Problem, source: IntArray, target: IntArray | None) -> None:
        """Raise `InvalidArgument` for unknown devices, or if there is not one for each channel."""
        for name, devices, count in (("source", source, self.given), ("target", target, len(self.ends))):
            if devices is not None:
                check_array(check_indices(devices, name, problem.n_devices), name, (count,), np.int64)

    @checked
    def moved(self, alone: Problem, known: Schedule, source: IntArray, target: IntArray) -> Decision | None:
        """Return a schedule of one input, for other devices, as a decision for these; None if a task cannot run on its device.

        `alone` is the module as a problem; tasks with the label of a channel move with it.
        """
        self._check_ends(alone, source, target)
        order = np.lexsort((known.batches.task, known.batches.start))  # ties in topological order
        task = known.batches.task[order]
        home = np.full(alone.n_units, -1)
        home[alone.unit[self.ends]] = target
        home[alone.unit[: self.given]] = source
        there = home[alone.unit[task]]
        device = np.where(there >= 0, there, known.batches.device[order])
        return Decision(task, device) if alone.eligible[task, device].all() else None

    @checked
    def least(self, problem: Problem, sources: IntArray, targets: IntArray, shortest: FloatArray) -> FloatArray:
        """Return lower bounds by the longest paths for all devices of the channels before and after, [sources, targets].

        NaN if a channel of both boundaries would be on two devices. `shortest` [n, K] are the shortest
        durations of the problem.
        """
        check_array(sources, "sources", ("sources", self.given), np.int64)
        check_array(targets, "targets", ("targets", len(self.ends)), np.int64)
        finish = self.plain_finishes(problem, sources, shortest) if self.plain else self._finishes(problem, sources)
        at_all = finish.min(axis=2).max(axis=1, initial=0.0)
        at_ends = finish[:, self.ends, targets].max(axis=2, initial=0.0)
        carried = np.flatnonzero(self.ends < self.given)
        torn = (sources[:, None, self.ends[carried]] != targets[:, carried]).any(axis=2)
        return np.where(torn, np.nan, np.maximum(at_all[:, None], at_ends))

    def _finishes(self, problem: Problem, sources: IntArray) -> FloatArray:
        """Return the earliest finish of each task on each device, for all sources, [sources, m, K]."""
        alone = subproblem(problem, self.tasks, edges=self.edges)
        shortest = levels.least_durations(alone)
        finish = np.repeat(shortest[None], len(sources), axis=0)
        front = finish[:, : self.given]
        front[np.isfinite(front)] = 0.0
        front[np.arange(problem.n_devices) != sources[:, :, None]] = math.inf
        for earliest in finish:
            earliest += levels.earliest_starts(alone, earliest)
        return finish

    @checked
    def plain_finishes(self, problem: Problem, sources: IntArray, shortest: FloatArray) -> FloatArray:
        """Return the finish of each task of a plain module on each device, for all sources, [sources, m, K]."""
        check_array(shortest, "shortest", (problem.n_tasks, problem.n_devices))
        check_array(sources, "sources", ("sources", self.given), np.int64)
        finish = np.repeat(shortest[self.tasks][None], len(sources), axis=0)
        if self.given:
            there = np.arange(problem.n_devices) == sources
            finish[:, 0] = np.where(there & np.isfinite(finish[:, 0]), 0.0, math.inf)
            finish[:, 1] += finish[:, 0].min(axis=1, keepdims=True)
            if len(self.edges):
                finish[:, 1] += problem.transfer_times(self.edges[0], sources, np.arange(problem.n_devices))
            if problem.unit[self.tasks[0]] == problem.unit[self.tasks[1]]:
                finish[:, 1][~there] = math.inf
        return finish


@checked
def cut(problem: Problem, channels: int | None = None, largest: int = LARGEST, deadline: Deadline = NEVER) -> list[Module]:
    """Return the modules of a problem's graph, see `hetsched.analysis.modules`."""
    division = modules(problem.graph, channels=channels, largest=largest, deadline=deadline)
    source, target = problem.graph.source, division.of_task[problem.graph.target]
    order = np.argsort(target, kind="stable")
    inside = np.split(order, np.searchsorted(target[order], np.arange(1, division.number)))
    channels_after = [np.unique(source[edges]) for edges in division.boundaries()]
    empty = np.empty(0, np.int64)
    clean = [*(division.cuts >= 0).tolist(), True]
    result = []
    for own, edges, before, after, alone in zip(
        division.tasks(), inside, [empty, *channels_after], [*channels_after, empty], clean, strict=True
    ):
        tasks = np.concatenate([before, own])
        place = np.argsort(tasks)
        ends = place[np.searchsorted(tasks[place], after)]
        result.append(Module(tasks, edges, len(before), ends, alone))
    return result


class Series:
    """The modules of a problem, and the dynamic program over the devices of the channels between them.

    A state is a boundary with a device for each of its channels: all combinations of devices, or if
    these are more than `MOST_STATES` those close to a given schedule.

    Attributes
    ----------
    modules : list of Module
        The modules; the tasks of identical ones are in corresponding order.
    program : DynamicProgram
        The dynamic program, in which identical modules between exchangeable devices have the same kind.
    exact : bool
        Whether no schedule is shorter than the shortest path: there is one input, and every boundary is
        clean.
    """

    @checked
    def __init__(
        self, problem: Problem, modules: list[Module], known: Schedule | None = None, *, symmetry: bool = True, deadline: Deadline = NEVER
    ) -> None:
        if not modules:
            raise InvalidProblem("modules is []; it must be the modules of the problem, as `cut` returns them")
        self.problem = problem
        self.modules, self._first = _aligned(problem, modules)
        self._orbits = _Orbits(problem, exchanges(problem) if symmetry else [])
        self.exact = problem.inputs == 1 and all(module.clean for module in modules)
        self.states = [np.empty((1, 0), np.int64)]
        self.states += [_states(problem, module.tasks[module.ends], known) for module in modules[:-1]]
        self.states.append(self.states[0])
        self._shortest = levels.least_durations(problem)
        rows, lower = [], []
        boundaries = zip(self.modules, pairwise(self.states), strict=True)
        for x, (module, (before, after)) in deadline.watch(enumerate(boundaries), "the bounding of modules", every=20):
            lowest = module.least(problem, before, after, self._shortest)
            i, j = np.nonzero(~np.isnan(lowest))
            rows.append([np.full(len(i), x), i, j])
            lower.append(lowest[i, j])
        self._module, self._before, self._after = (np.concatenate(column) for column in zip(*rows, strict=True))
        first = row_starts([len(row) for row in self.states])
        bound = np.concatenate(lower)
        plain = np.array([module.plain and problem.inputs == 1 for module in self.modules])[self._module]
        _, one, kind = np.unique(self._alike(plain), return_index=True, return_inverse=True)
        self.program = DynamicProgram(
            first[self._module] + self._before,
            first[self._module + 1] + self._after,
            bound[one],
            upper=np.where(plain, bound, math.inf)[one],
            kind=kind,
        )

    @cached_property
    def n_open(self) -> int:
        """Number of kinds of transitions to evaluate."""
        return int(np.isinf(self.program.upper).sum())

    @checked
    def ends(self, t: int) -> tuple[Module, IntArray, IntArray]:
        """Return the module of a transition, and the devices of the channels before and after it."""
        x = self._module[t]
        return self.modules[x], self.states[x][self._before[t]], self.states[x + 1][self._after[t]]

    @checked
    def model(self, t: int) -> tuple[Module, IntArray, IntArray]:
        """Return the representative of all transitions of the same kind; answers are in its tasks and devices."""
        _, source, target = self.ends(t)
        return self.modules[self._first[self._module[t]]], *self._orbits.first(source, target)

    def _alike(self, plain: BoolArray) -> IntArray:
        """Return a number for each transition, equal for those that share an answer."""
        numbers: dict[tuple[int, bytes, bytes], int] = {}
        alike = np.arange(len(plain))
        for t in np.flatnonzero(~plain).tolist():
            _, source, target = self.model(t)
            alike[t] = numbers.setdefault((int(self._first[self._module[t]]), source.tobytes(), target.tobytes()), t)
        return alike

    @property
    def coupled(self) -> bool:
        """Whether memory or a co-location label may couple modules, so that optimal modules may not be optimal together."""
        problem = self.problem
        claim = np.where(problem.eligible, (problem.static_bytes @ [1.0, problem.inputs])[:, None], 0.0)
        if (claim.sum(axis=0) > problem.cluster.memory_bytes).any():
            return True
        homes = {(problem.unit[i], x) for x, module in enumerate(self.modules) for i in module.tasks[module.given :].tolist()}
        return len(homes) > len({unit for unit, _ in homes})

    @checked
    def join(self, path: Path) -> Decision:
        """Return the joint decision of the answers along a path."""
        assert path.transitions is not None
        chosen = []
        for t, piece in zip(path.transitions.tolist(), path.answers, strict=True):
            module, source, target = self.ends(t)
            tasks = module.tasks.copy()
            tasks[: module.given] = -1  # they belong to earlier modules
            decision = self._plain(module, source, target) if piece is None else self._orbits.carried(piece, source, target)
            chosen.append((decision, tasks, module.edges))
        return join(self.problem, chosen)

    def _plain(self, module: Module, source: IntArray, target: IntArray) -> PartialDecision:
        """Return the decision of a plain module."""
        own = [target[place] for place, end in enumerate(module.ends.tolist()) if end == module.given]
        if not own:  # its device is free, and the one with the earliest finish is best
            own = [module.plain_finishes(self.problem, source[None], self._shortest)[0, -1].argmin()]
        devices = np.array([*source, own[0]])
        return PartialDecision(Decision(np.arange(len(devices)), devices), np.arange(len(module.edges) if devices[0] != devices[-1] else 0))


def _aligned(problem: Problem, modules: list[Module]) -> tuple[list[Module], IntArray]:
    """Return the modules with the tasks and edges of identical ones in corresponding order, and the first of each kind."""
    first, result = np.arange(len(modules)), list(modules)
    nontrivial = [x for x, module in enumerate(modules) if not module.plain]
    marks, bare = [], []
    for x in nontrivial:
        module = modules[x]
        mark = np.zeros(len(module.tasks), np.int64)
        mark[: module.given] = 1 + np.arange(module.given)
        mark[module.ends] += (1 + module.given) * (1 + np.arange(len(module.ends)))
        marks.append(mark)
        bare.append(np.arange(len(mark)) < (module.given if np.isinf(problem.cluster.memory_bytes).all() else 0))
    for x, copy in zip(nontrivial, identical_parts(problem, [modules[x].tasks for x in nontrivial], marks=marks, bare=bare), strict=True):
        first[x] = nontrivial[copy.of]
        model = result[first[x]]
        if first[x] != x:
            model_places, have = _places(problem, model.tasks, model.edges), _places(problem, copy.tasks, modules[x].edges)
            edges = modules[x].edges[np.argsort(have)][np.argsort(np.argsort(model_places))]
            result[x] = Module(copy.tasks, edges, model.given, model.ends, modules[x].clean)
    return result, first


def _places(problem: Problem, tasks: IntArray, edges: IntArray) -> IntArray:
    """Return a number for each edge that identifies the positions of its ends among the tasks."""
    order = np.argsort(tasks)
    ends = order[np.searchsorted(tasks[order], problem.graph.edges[edges])]
    return np.asarray(ends[:, 0] * len(tasks) + ends[:, 1])


class _Orbits:
    """The orbits of pairs of devices under exchanges of devices that change no time."""

    def __init__(self, problem: Problem, exchanged: list[Exchange]) -> None:
        self.size = problem.n_devices
        images = []
        for one, other in exchanged:
            image = np.arange(self.size + 1)  # the last represents no device
            image[one], image[other] = other, one
            images.append(image)
        self.known: dict[tuple[int, int], tuple[tuple[int, int], IntArray]] = {}
        if images:
            for h, k in product(range(self.size + 1), repeat=2):
                self._spread((h, k), images)

    def _spread(self, pair: tuple[int, int], images: list[IntArray]) -> None:
        if pair in self.known:
            return
        self.known[pair] = (pair, np.arange(self.size + 1))
        waiting = [pair]
        for here in waiting:
            for image in images:
                there = (int(image[here[0]]), int(image[here[1]]))
                if there not in self.known:
                    self.known[there] = (pair, image[self.known[here][1]])
                    waiting.append(there)

    def _of(self, source: IntArray, target: IntArray) -> tuple[tuple[int, int], IntArray] | None:
        if not self.known or len(source) > 1 or len(target) > 1:
            return None
        return self.known[(int(source[0]) if len(source) else self.size, int(target[0]) if len(target) else self.size)]

    def first(self, source: IntArray, target: IntArray) -> tuple[IntArray, IntArray]:
        """Return the representatives of the orbit of these devices."""
        orbit = self._of(source, target)
        if orbit is None:
            return source, target
        (h, k), _ = orbit
        return np.full(len(source), h), np.full(len(target), k)

    def carried(self, piece: PartialDecision, source: IntArray, target: IntArray) -> PartialDecision:
        """Return the decision for these devices from one for the representatives of their orbit."""
        orbit = self._of(source, target)
        if orbit is None:
            return piece
        given = piece.decision
        return piece._replace(decision=Decision(given.task, orbit[1][given.device], given.item_ptr, given.items))


def _states(problem: Problem, channels: IntArray, schedule: Schedule | None) -> IntArray:
    """Return combinations of devices for some tasks, [states, channels]."""
    usable = [np.flatnonzero(row) for row in problem.eligible[channels]]
    count = math.prod(map(len, usable))
    if len(channels) <= 1 or count <= MOST_STATES:
        return np.array(list(product(*usable)), np.int64).reshape(count, len(channels))
    near = [np.full(len(channels), k) for k in range(problem.n_devices)]
    if schedule is not None:
        devices = schedule.batches.device[schedule.batch_of[channels, 0]]
        near += [np.where(np.arange(len(channels)) == c, k, devices) for c in range(len(channels)) for k in usable[c]]
    rows = np.unique(near, axis=0)
    return np.asarray(rows[problem.eligible[channels, rows].all(axis=1)])
