"""The most tokens per second that devices of several types serve, with its proof."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Literal, NamedTuple

import numpy as np

from hetsched import documents
from hetsched.arguments import checked
from hetsched.arrays import Columns, Frozen
from hetsched.bounds.serving import ThroughputBound, tightest
from hetsched.chain.card import ModelCard
from hetsched.chain.flow import ServingFlow, max_flow
from hetsched.chain.flow_kernels import network
from hetsched.chain.machine import Machine
from hetsched.chain.serving import ServingPlacement, ServingProblem
from hetsched.chain.workload import Workload
from hetsched.costs.language import LanguageRoofline, types_of
from hetsched.errors import InconsistentBound, OutOfTime
from hetsched.modeling.backends import info
from hetsched.modeling.outcome import Incumbent, NewBound
from hetsched.models.serving import ServingModel
from hetsched.planning import serving_kernels as kernels
from hetsched.planning import serving_starts as starts
from hetsched.search.solution import OPTIMALITY_GAP, Status
from hetsched.stopping import NEVER, Deadline, Stop, reason
from hetsched.verification.serving import verify_serving

BETTER = 4e-7
"""Share by which the model has to be better than what is known; with a solver's tolerance less than `OPTIMALITY_GAP`."""
GROUPS, ANNEALING = 0.2, 0.4
"""Shares of the time that is left for groups in series, and then for annealing."""
MOVES, LIMITED_MOVES, COURSES, ROUNDS = 500, 50, 10, 8
"""Moves of annealing per device and course of temperatures, fewer where links are limited; courses of a round; rounds without a time
limit."""
HOT, COLD = 0.03, 0.0003
"""Temperatures at the beginning and at the end of a round, as shares of the best throughput."""


class ServingProgress(NamedTuple):
    """A better placement or bound during a search."""

    seconds: float
    """Seconds since the start."""
    value: float
    """Tokens per second of the best placement so far."""
    bound: float
    source: str
    """What it comes from."""


@checked
@dataclass(frozen=True)
class ServingQuestion:
    """A model that all devices of a machine serve.

    Parameters
    ----------
    card : ModelCard
    machine : hetsched.Machine
    work : Workload
        Its sequences are the most that a device has at a time.
    costs : LanguageRoofline, optional
    """

    card: ModelCard
    machine: Machine
    work: Workload
    costs: LanguageRoofline = field(default_factory=LanguageRoofline)

    @cached_property
    def problem(self) -> ServingProblem:
        """The problem of serving its blocks, see `hetsched.costs.LanguageRoofline.serving`."""
        return self.costs.serving(self.card, self.machine, self.work)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices in the order of the problem."""
        return tuple(self.machine.cluster.names[k] for _, own in types_of(self.machine) for k in own)


class ServingPlan(Frozen):
    """The best placement found for serving, with a bound.

    Attributes
    ----------
    problem : ServingProblem
    question : ServingQuestion or None
        The model whose problem it is, if one was given.
    placement : ServingPlacement or None
        None if none passes anything on.
    flow : ServingFlow or None
        A maximum flow through it.
    value : float
        Tokens per second; 0 without a placement.
    proof : ThroughputBound
        An upper bound on the tokens per second of all placements, with its evidence.
    baselines : dict of str to float
        Tokens per second of simple rules: ``"even"`` and ``"replicas"``. None is more than the value.
    history : tuple of ServingProgress
    stopped : Stop
        The reason of the end.
    """

    _format = "hetsched-serving"
    problem: ServingProblem
    question: ServingQuestion | None
    placement: ServingPlacement | None
    flow: ServingFlow | None
    value: float
    proof: ThroughputBound
    baselines: dict[str, float]
    history: tuple[ServingProgress, ...]
    stopped: Stop

    def __init__(self) -> None:
        raise TypeError("plans for serving are made by hetsched.planning.most_throughput(problem)")

    def __repr__(self) -> str:
        return f"<ServingPlan of {self.value:.6g} tokens/s, at most {self.bound:.6g}: {self.status}>"

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the plan as a JSON document; ``hetsched.read`` reads it back, and verifies it."""
        documents.write(self, path)

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices: those of the machine, or of their types, numbered."""
        if self.question is not None:
            return self.question.devices
        return tuple(
            f"{name} {k}" for name, count in zip(self.problem.types, self.problem.counts.tolist(), strict=True) for k in range(count)
        )

    @property
    def bound(self) -> float:
        """The upper bound in tokens per second."""
        return self.proof.value

    @property
    def gap(self) -> float:
        """(bound - value) / value; inf without a placement."""
        return _gap(self.value, self.bound)

    @property
    def status(self) -> Status:
        """Optimal if the gap is at most 1e-6, infeasible if the bound is 0, else feasible, or unknown without a placement."""
        if self.bound == 0:
            return Status.INFEASIBLE
        if self.placement is None:
            return Status.UNKNOWN
        return Status.OPTIMAL if self.gap <= OPTIMALITY_GAP else Status.FEASIBLE

    @property
    def intervals(self) -> Columns:
        """Rows of type, first, end, devices and tokens_per_second: how many devices of a type hold an interval, and their flow."""
        rows: dict[tuple[int, int, str], list[float]] = {}
        if self.placement is not None and self.flow is not None:
            for d, (first, end) in enumerate(zip(self.placement.first.tolist(), self.placement.end.tolist(), strict=True)):
                if first < end:
                    row = rows.setdefault((first, end, self.problem.types[self.problem.device_type[d]]), [0, 0.0])
                    row[0] += 1
                    row[1] += self.flow.device[d]
        keys = sorted(rows)
        return Columns(
            type=np.array([key[2] for key in keys], object),
            first=np.array([key[0] for key in keys], np.int64),
            end=np.array([key[1] for key in keys], np.int64),
            devices=np.array([rows[key][0] for key in keys], np.int64),
            tokens_per_second=np.array([rows[key][1] for key in keys]),
        )


def _gap(value: float, bound: float) -> float:
    return max(0.0, bound - value) / value if value > 0 else math.inf


class _Search:
    """The best placement and bound of a problem so far."""

    def __init__(self, problem: ServingProblem, deadline: Deadline, on_progress: Callable[[ServingProgress], object] | None) -> None:
        self.problem, self.deadline, self.on_progress = problem, deadline, on_progress
        self.started = deadline.clock()
        self.placement: ServingPlacement | None = None
        self.flow: ServingFlow | None = None
        self.value, self.stop = 0.0, Stop.NONE
        self.offered: list[ServingPlacement] = []
        self.history: list[ServingProgress] = []
        self.proof = tightest(problem)
        self._tell(self.proof.name)

    def _check(self) -> None:
        if self.value > self.proof.value * (1 + OPTIMALITY_GAP):
            raise InconsistentBound(
                f"bound {self.proof.name!r} = {self.proof.value!r} tokens/s is below a placement's {self.value!r}: one of them is wrong; "
                "please report it with the problem"
            )

    def _tell(self, source: str) -> None:
        self.history.append(ServingProgress(self.deadline.clock() - self.started, self.value, self.proof.value, source))
        if self.on_progress is not None and self.on_progress(self.history[-1]) is True:
            self.stop = self.stop or Stop.CALLBACK

    def offer(self, placement: ServingPlacement | None, source: str) -> float:
        """Keep a placement if it is the best so far, and return its tokens per second."""
        if placement is None:
            return 0.0
        self.offered.append(placement)
        flow = max_flow(self.problem, placement)
        if flow.throughput > self.value:
            self.placement, self.flow, self.value = placement, flow, flow.throughput
            self._check()
            self._tell(source)
        return flow.throughput

    def lower(self, bound: ThroughputBound) -> None:
        """Keep a bound if it is the least so far."""
        if bound.value < self.proof.value:
            self.proof = bound
            self._check()
            self._tell(bound.name)

    @property
    def over(self) -> bool:
        """Whether nothing is left to be done."""
        if not self.stop and self.proof.value == 0:
            self.stop = Stop.INFEASIBLE
        if not self.stop and _gap(self.value, self.proof.value) <= OPTIMALITY_GAP:
            self.stop = Stop.OPTIMAL
        if not self.stop and self.deadline.over:
            self.stop = Stop.TIME_LIMIT
        return bool(self.stop)

    def anneal(self, rng: np.random.Generator, rounds: int) -> None:
        """Improve placements by annealing; where links are limited, first without and then with the limits."""
        deadline, begins = self.deadline.part(ANNEALING), [] if self.placement is None else [self.placement]
        if self.problem.limited:
            free = self.problem.unlimited()
            begin = max(self.offered, key=lambda made: max_flow(free, made).throughput)
            begins.append(self._annealed(free, begin, rng, deadline.part(0.5), rounds))
        for k, begin in enumerate(begins):
            self._annealed(self.problem, begin, rng, deadline.part(1 / (len(begins) - k)), rounds)

    def _annealed(
        self, problem: ServingProblem, begin: ServingPlacement, rng: np.random.Generator, deadline: Deadline, rounds: int
    ) -> ServingPlacement:
        """Return the best placement of a problem in rounds of annealing: so many, or with a time limit as time allows.

        The first round begins with `begin`, each next one with the best so far.
        """
        fleet, scratch = problem.fleet(), network(problem.n_items, problem.n_devices)
        moves = problem.n_devices * (LIMITED_MOVES if fleet.limited else MOVES)
        best = max_flow(problem, begin).throughput
        while rounds > 0 and not self.over:
            rounds -= math.isinf(deadline.end)
            now, kept, trial = (kernels.Intervals(begin.first.copy(), begin.end.copy()) for _ in range(3))
            for hot, cold in itertools.pairwise((best or self.proof.value) * np.geomspace(HOT, COLD, COURSES + 1)):
                if self.over or deadline.over or _gap(best, self.proof.value) <= OPTIMALITY_GAP:
                    return begin
                found = kernels.anneal(fleet, now, kept, trial, scratch, rng, kernels.Course(moves, float(hot), float(cold)))
                if found > best:
                    best, begin = found, ServingPlacement(*kept)
                    self.offer(begin, "annealing")
        return begin

    def model(self, solver: str, seed: int) -> None:
        """Solve the model of placements that are better than the best one, by a solver; if it fails, that is the reason of the end."""
        above = self.value * (1 + BETTER)
        made = ServingModel(self.problem, above, self.proof.value, deadline=self.deadline)
        tolerance = 1 + info(solver).capabilities.bound_tolerance

        def found(event: Incumbent) -> bool:
            self.offer(made.decode(event.values), f"model by {solver}")
            return self.over

        def bounded(share: float) -> None:
            value = max(above, made.below * share) * tolerance  # the share is -inf where nothing is better
            self.lower(ThroughputBound(value, f"model by {solver}", f"dual bound of {made.model!r}, whose links are unlimited"))

        def bound(event: NewBound) -> bool:
            bounded(event.bound)
            return self.over

        outcome = made.model.solve(solver, deadline=self.deadline, seed=seed, on_incumbent=found, on_bound=bound, stop=lambda: self.over)
        if outcome.values is not None:
            self.offer(made.decode(outcome.values), f"model by {solver}")
        bounded(outcome.bound)
        if not self.over:
            self.stop = outcome.stopped


@checked
def most_throughput(
    problem: ServingProblem | ServingQuestion,
    *,
    time_limit: float | None = None,
    solver: Literal["scip", "highs"] = "scip",
    seed: int = 0,
    on_progress: Callable[[ServingProgress], object] | None = None,
) -> ServingPlan:
    """Return the placement that passes the most tokens per second on, or the best one found, with a proven bound.

    Bounds come first (`bounds.serving`), then simple rules, groups in series and annealing, and last a mixed-integer model of all
    placements that are better (`models.serving`), which proves what is left to be proven. Bounds and model leave limits of links out,
    placements keep them; so where links bind, a gap may be left that no time closes.

    Parameters
    ----------
    problem : ServingProblem or ServingQuestion
        A question of a model is a part of the plan, of its document and its page.
    time_limit : float, optional
        Seconds. Default: until the optimum is proven.
    solver : "scip" or "highs"
        The solver of the model.
    seed : int
    on_progress : callable, optional
        Called with a `ServingProgress` for each better placement or bound; returning True ends the search.

    Returns
    -------
    ServingPlan
        After Ctrl-C the best so far.
    """
    question = problem if isinstance(problem, ServingQuestion) else None
    problem = problem.problem if isinstance(problem, ServingQuestion) else problem
    search = _Search(problem, Deadline.after(time_limit), on_progress)
    baselines = {name: search.offer(placement, name) for name, placement in simple_rules(problem).items()}
    try:
        if not search.over:
            part = search.deadline.part(GROUPS)
            search.offer(starts.groups_in_series(problem, search.value, search.proof.value, deadline=part), "groups in series")
        search.anneal(np.random.default_rng(seed), ROUNDS)
        if not search.over:
            search.model(solver, seed)
    except OutOfTime:
        search.stop = search.stop or Stop.TIME_LIMIT
    except KeyboardInterrupt as interruption:
        search.stop = reason(interruption)
    return served(
        problem,
        search.proof,
        search.placement,
        search.flow,
        baselines,
        question=question,
        history=search.history,
        stopped=search.stop or Stop.FINISHED,
    )


def simple_rules(problem: ServingProblem) -> dict[str, ServingPlacement | None]:
    """Return the placements of simple rules by name; None where a rule has none."""
    return {"even": starts.even(problem), "replicas": starts.replicas(problem)}


def served(
    problem: ServingProblem,
    proof: ThroughputBound,
    placement: ServingPlacement | None,
    flow: ServingFlow | None,
    baselines: dict[str, float],
    *,
    question: ServingQuestion | None,
    history: Sequence[ServingProgress] = (),
    stopped: Stop,
) -> ServingPlan:
    """Return the plan of a placement and a flow through it, which are verified."""
    value = 0.0 if flow is None else flow.throughput
    if placement is not None and flow is not None:
        violations = verify_serving(problem, placement, flow.transfers, throughput=value)
        assert not violations, violations
    made = ServingPlan.__new__(ServingPlan)
    made._set(
        problem=problem,
        question=question,
        placement=placement,
        flow=flow,
        value=value,
        proof=proof,
        baselines=baselines,
        history=tuple(history),
        stopped=stopped,
    )
    return made


def prepare() -> None:
    """Compile the kernels."""
    search = _Search(ServingProblem(2, ["a"], [3], [[2.0, 1.0]]), NEVER, None)
    search.offer(starts.even(search.problem), "even")
    search.proof = ThroughputBound(math.inf, "none")  # so that there is something left to improve
    search.anneal(np.random.default_rng(0), rounds=1)
