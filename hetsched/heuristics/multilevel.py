"""Multilevel search: coarsen or co-locate clusters for a start, and improve the schedule at each level of uncoarsening."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hetsched.arguments import check_count
from hetsched.arrays import IntArray
from hetsched.coarsening.coarse import Coarsening, colocated
from hetsched.coarsening.matching import hierarchy, joined
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.heuristics.pacing import SECONDS, bursts
from hetsched.heuristics.placement.clustering import dominant_sequences
from hetsched.heuristics.placement.offers import carried_back, fused, main_devices
from hetsched.problem.problem import Problem
from hetsched.schedule import memory
from hetsched.schedule.decision import Decision
from hetsched.search import Kind, Monitor, Role, Supports, method, select
from hetsched.stopping import Stop

if TYPE_CHECKING:
    from hetsched.heuristics.local_search.clusters import ClusterSearch

AT_ONCE = 0.25
"""Share of the time for the baselines."""
COARSEST, OTHER = 0.15, 0.05
"""Shares of the remaining time for the coarsest graph and for Celeritas' coarse graph, if no random clusters have the best schedule."""
TRIED, DRAWS, MOVED = 0.2, 0.35, 0.2
"""Shares of the remaining time for list schedules of random clusters, if one is near the best for more, and if one is the best for moving
its clusters."""
NEAR = 1.1
"""The factor between a draw and the best schedule up to which there are more draws."""
LISTS, AGAIN, SPREAD = ("heft", "m-etf"), 0.5, 0.5
"""Methods for them; the probability of drawing near the best so far; how far, the standard deviation of the logarithm of the size."""
LEAST, LARGEST = 0.002, 0.5
"""The limits of the largest cluster of a draw, as a share of the work."""
SEQUENCES, SHORTEST, LONGEST = 0.4, 0.5, 4.0
"""The probability that clusters are parts of dominant sequences; the limits of the factor of transfers there."""
FEWER, PLACED, MOVES, PARTS = 0.1, 0.85, 20, 20
"""Where placements are annealed: the share for more draws, the share for moves of clusters, the most of them for each unit, and the
temperatures there."""
HOT, COLD = 0.0002, 0.00002
"""The first and the last one, as shares of the makespan."""
CYCLE, CYCLES, WORTH = 0.3, 0.5, 0.002
"""Shares of the remaining time for a cycle, and for all but those that follow one that improved the schedule by the third share."""
LEVELS, FINER, MOST = 3, 1.5, 10
"""The most levels of a cycle; the least factor between the units of two; the most units of one, as a multiple of `tasks`."""


@method(
    "multilevel",
    summary="coarsens along heavy edges, schedules random clusters, and moves ever smaller clusters, then single tasks",
    source="Karypis and Kumar 1998; Walshaw 2004; for schedules ours",
    kind=Kind.SEARCH,
    deterministic=False,
    supports=Supports(inputs="whole"),
    turn=360,
)
def multilevel(problem: Problem, monitor: Monitor, *, tasks: int = 200, cycles: int | None = None) -> None:
    """Run the baselines, schedule random clusters, run cycles while they improve the schedule, then auto on the whole graph.

    Random clusters of heavy edges, or of the edges within dominant sequences, of random size, are co-located and scheduled by list
    scheduling, task by task. If one of these schedules is the best so far, there are more, and annealing moves the clusters of the
    best; else a coarse graph is solved by auto.

    Instead, if the graph has more units than a level of a cycle may have, the objective is the makespan and no ``peak`` memory is limited,
    the best placement is annealed: a cluster grown along heavy edges from a random task, of up to 3 % of the work, moves to another
    device, alone or with all clusters alike, and others leave that device if its memory requires it. Each placement is scheduled by
    upward ranks, transfers included.

    A cycle starts from the best schedule. It merges, in a random order, only tasks on one device in it, and searches on the whole graph
    with the clusters of a level co-located, from the coarsest level on: a move is that of a cluster, and is evaluated
    task by task, with contention. Without a limit the method ends after 10 s.

    Parameters
    ----------
    tasks : int
        Number of tasks at which coarsening ends.
    cycles : int, optional
        Maximum number of cycles; default: until one gains too little.
    """
    for what, value in (("tasks", tasks), ("cycles", cycles)):
        if value is not None:
            check_count(value, what, error=UnsupportedFeature)
    MultilevelSearch(problem, monitor, tasks).run(math.inf if cycles is None else cycles)


class Settings(NamedTuple):
    """How random clusters are drawn and scheduled."""

    name: str
    """The method of list scheduling."""
    size: float
    """The most work of a cluster, as a share of the graph's."""
    factor: float
    """The factor of transfers by which dominant sequences are found; 0 where clusters may join along any edge, in a random order."""

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Settings:
        """Return any settings."""
        size = math.exp(rng.uniform(math.log(LEAST), math.log(LARGEST)))
        if rng.random() < SEQUENCES:
            return cls("heft", size, math.exp(rng.uniform(math.log(SHORTEST), math.log(LONGEST))))
        return cls(LISTS[rng.integers(len(LISTS))], size, 0.0)

    def near(self, rng: np.random.Generator) -> Settings:
        """Return settings of about the same size and factor."""
        size, factor = rng.lognormal(0.0, SPREAD, 2)
        return self._replace(size=min(self.size * size, LARGEST), factor=min(self.factor * factor, LONGEST))

    def clusters(self, problem: Problem, rng: np.random.Generator) -> IntArray:
        """Return a cluster for each task, [n]."""
        if self.factor == 0.0:
            return joined(problem, largest=self.size, rng=rng)
        return joined(problem, largest=self.size, along=dominant_sequences(problem, self.factor)[0])


class Draw(NamedTuple):
    """The schedule of random clusters."""

    makespan: float
    settings: Settings
    problem: Problem
    """The whole graph with the clusters co-located."""
    decision: Decision


class MultilevelSearch:
    def __init__(self, problem: Problem, monitor: Monitor, tasks: int) -> None:
        self.problem, self.monitor, self.tasks = problem, monitor, tasks
        self.placements: ClusterSearch | None = None
        unlimited = math.isinf(monitor.time_left) and monitor.budget.evaluations is None
        self.end = monitor.elapsed + SECONDS if unlimited else math.inf

    @property
    def left(self) -> float:
        """Seconds left, at least 0; inf where evaluations are limited."""
        return max(0.0, min(self.monitor.time_left, self.end - self.monitor.elapsed))

    @property
    def _amount(self) -> float:
        """Seconds left, or evaluations where they alone are limited."""
        return self.left if math.isfinite(self.left) else (self.monitor.budget.evaluations or 0) - self.monitor.evaluations

    @property
    def over(self) -> bool:
        return self.monitor.should_stop or self.left <= 0

    def run(self, cycles: float) -> None:
        """Run the baselines, find a start by random clusters or a coarse graph, and run cycles while they improve it, and auto."""
        self._baselines()
        if self.monitor.best is not None and self._places_alone():
            from hetsched.heuristics.local_search.clusters import ClusterSearch

            self.placements = ClusterSearch(self.problem)
            self.placements.start(main_devices(self.problem, self.monitor.best.decision))
        draw = self._draws(None, TRIED)
        if draw is not None and draw.makespan <= NEAR * self.monitor.incumbent:
            draw = self._draws(draw, DRAWS if self.placements is None else FEWER)
        if draw is not None and draw.makespan <= self.monitor.incumbent:
            if self.placements is None:
                self._move(draw)
        else:
            levels = self._levels()
            if levels:
                self._coarse(levels[0], COARSEST)
            self._coarse(fused(self.problem, self.monitor), OTHER)
        if self.placements is not None:
            self._anneal(self.placements, PLACED)
        rest, done, gains = (1 - CYCLES) * self._amount, 0, True
        while done < cycles and (gains or self._amount > rest) and not self.over and self.monitor.best is not None:
            before = self.monitor.incumbent
            if not self._cycle(self.monitor.best.decision):
                break
            done, gains = done + 1, self.monitor.incumbent < before * (1 - WORTH)
        if not self.over:
            self.monitor.run("auto", {"seconds": self.left} if math.isfinite(self.left) else {})

    def _places_alone(self) -> bool:
        """Return whether placements are annealed."""
        large = self.problem.n_units > MOST * self.tasks
        return large and self.monitor.objective == "makespan" and not memory.timed(self.problem)

    def _baselines(self) -> None:
        """Run the baselines within their share of the time."""
        end = self.monitor.elapsed + AT_ONCE * self.left
        for baseline in select(role=Role.BASELINE, problem=self.problem):
            late = self.over or self.monitor.elapsed >= end
            if late and (self.monitor.best is not None or self.monitor.stopped not in (Stop.NONE, Stop.TIME_LIMIT)):
                return
            self.monitor.attempt(baseline.name)

    def _draws(self, best: Draw | None, share: float) -> Draw | None:
        """Schedule random clusters within a share of the time and offer the schedules; return the best draw.

        A draw has any settings, or some near those of the best so far.
        """
        rng, end = self.monitor.rng, (1 - share) * self._amount
        while not self.over and self._amount > end:
            settings = best.settings.near(rng) if best is not None and rng.random() < AGAIN else Settings.drawn(rng)
            try:
                clustered = colocated(self.problem, settings.clusters(self.problem, rng))
            except InvalidProblem as refusal:  # clusters without a path between them
                self.monitor.note(f"the graph is searched as it is, because one with co-located clusters is invalid: {refusal}")
                return best
            decision = self._solve(clustered, settings.name, None, 1.0)
            makespan = math.inf if decision is None else self.monitor.offer(decision)
            if decision is not None and self.placements is not None:
                self.placements.start(main_devices(self.problem, decision))
            if decision is not None and makespan < (math.inf if best is None else best.makespan):
                best = Draw(makespan, settings, clustered, decision)
        return best

    def _move(self, draw: Draw) -> None:
        """Search with the clusters of a draw."""
        decision = None if self.over else self._solve(draw.problem, "annealing", draw.decision, MOVED)
        if decision is not None:
            self.monitor.offer(decision)

    def _anneal(self, search: ClusterSearch, share: float) -> None:
        """Anneal the placement whose schedule by ranks is the shortest within a share of the time."""
        if math.isinf(search.least):
            return
        begin = self._amount
        search.return_to_best()
        for part in range(PARTS):
            temperature = HOT * (COLD / HOT) ** (part / (PARTS - 1)) * search.least
            end, moves = begin * (1 - share * (part + 1) / PARTS), 0
            for count in bursts(self.monitor):
                if self.over or self._amount <= end or moves > MOVES * self.problem.n_units / PARTS:
                    break
                search.anneal(count, temperature, self.monitor.rng)
                self.monitor.evaluated(count)
                moves += count
            if search.least < self.monitor.incumbent:
                search.return_to_best()
                self.monitor.offer(search.decision())

    def _coarse(self, coarsening: Coarsening, share: float) -> None:
        """Search a coarse graph, and offer the two decisions of `carried_back`."""
        if 1 < coarsening.coarse.n_tasks < self.problem.n_tasks and not self.over:
            decision = self._solve(coarsening.coarse, "auto", None, share)
            for finer in [] if decision is None else carried_back(coarsening, decision):
                self.monitor.offer(finer)

    def _levels(self, within: IntArray | None = None) -> list[Coarsening]:
        """Return the levels of coarsening from the coarsest on; in a random order, and only of tasks on one device, if that is given."""
        levels, coarsening = [], Coarsening.through(self.problem, ())
        try:
            for level in hierarchy(self.problem, tasks=self.tasks, within=within, rng=None if within is None else self.monitor.rng):
                coarsening = coarsening.then(level)
                levels.append(coarsening)
        except InvalidProblem as refusal:  # clusters without a path between them
            self.monitor.note(f"the graph is searched without coarsening, because its coarse problem is invalid: {refusal}")
            return []
        return levels[::-1]

    def _cycle(self, best: Decision) -> bool:
        """Search with co-located clusters of tasks that are on one device in the best schedule, from the coarsest level on.

        Returns whether there was a level and time for all.
        """
        problems: list[Problem] = []
        for level in self._levels(main_devices(self.problem, best)):
            units = level.coarse.n_units
            if len(problems) < LEVELS and units <= MOST * self.tasks and (not problems or units >= FINER * problems[-1].n_units):
                problems.append(level.colocated)
        decision: Decision | None = best
        for problem in problems:
            if self.over:
                return False
            decision = self._solve(problem, "annealing", decision, CYCLE / len(problems))
            if decision is not None:
                self.monitor.offer(decision)
        return bool(problems)

    def _solve(self, problem: Problem, name: str, start: Decision | None, share: float) -> Decision | None:
        """Solve a problem within a share of the seconds, or evaluations, left."""
        budget, seconds = self.monitor.budget.evaluations, share * self.left
        solution = self.monitor.subsolve(
            problem,
            name,
            time_limit=seconds if math.isfinite(seconds) else None,
            evaluations=None if budget is None else max(1, int(share * (budget - self.monitor.evaluations))),
            start=start,
        )
        return None if solution.schedule is None else solution.schedule.decision
