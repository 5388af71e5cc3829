"""`hetsched.plan`: the best placement of a model on a machine, with its proof and what others would do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from hetsched.arguments import checked, number, shown
from hetsched.arrays import Frozen
from hetsched.chain.card import ModelCard
from hetsched.chain.evaluation import ChainValues, evaluate
from hetsched.chain.machine import Machine
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.chain.workload import Workload
from hetsched.costs.language import LanguageRoofline
from hetsched.errors import InvalidArgument, UnsupportedFeature
from hetsched.planning import baselines, sensitivity, tools
from hetsched.planning.dynamic_program import least_latency, least_missing, least_period
from hetsched.planning.sensitivity import CLOSE, Best, MemoryStep, Problems
from hetsched.planning.tools import Command
from hetsched.search.solution import Status
from hetsched.verification.placement import verify_placement

Regime = Literal["latency", "throughput"]


class Baseline(NamedTuple):
    """The placement of a simple rule, the bytes that it lacks, and its value, inf if it lacks any."""

    name: str
    placement: Placement
    missing_bytes: float
    value: float


class ModelPlan(Frozen):
    """The best placement of a model among all that give each device at most one interval of items, in any order of devices.

    Attributes
    ----------
    card, machine, work, costs
        What was asked.
    regime : str
        ``"latency"``: seconds of one batch of the sequences alone. ``"throughput"``: seconds between two sequences, where the sequences
        are divided into as many microbatches as there are stages.
    status : Status
        ``"optimal"``, or ``"infeasible"`` if no placement fits.
    placement : Placement or None
    value : float
        Seconds, by the costs; inf without a placement.
    missing_bytes : float
        Least sum of the bytes that are lacking, over all placements; 0 if one fits.
    baselines : tuple of Baseline
        What simple rules make of the same problem, evaluated with the same costs. No value is less than that of the plan.
    """

    card: ModelCard
    machine: Machine
    work: Workload
    costs: LanguageRoofline
    regime: str
    problems: Problems
    status: Status
    placement: Placement | None
    value: float
    missing_bytes: float
    baselines: tuple[Baseline, ...]

    def __init__(self) -> None:
        raise TypeError("plans are made by hetsched.plan(card, machine, work)")

    def __repr__(self) -> str:
        return f"<ModelPlan for {self.card.name!r} on {', '.join(self.machine.cluster.names)}: {self.status}, {self.value:.4g} s>"

    @property
    def problem(self) -> ChainProblem:
        """The problem for as many requests in progress as the placement has stages."""
        return _problem_of(self.problems, self.placement)

    @property
    def values(self) -> ChainValues:
        """Times and bytes of the stages; raises `UnsupportedFeature` without a placement."""
        return evaluate(self.problem, self._placed())

    @property
    def tokens_per_second(self) -> float:
        """Tokens of output per second; 0 without a placement."""
        return self.work.output * (self.work.sequences if self.regime == "latency" else 1) / self.value

    @checked
    def next_memory_step(self, device: str) -> MemoryStep | None:
        """Return the least memory of a device with which the value falls, solved again; None if none does."""
        return sensitivity.next_memory_step(self.problems, self._device(device), SOLVE[self.regime])

    @checked(more_bytes=number(0))
    def with_memory(self, device: str, more_bytes: float) -> Best:
        """Return the best value and placement with more memory on a device, solved again."""
        k = self._device(device)
        return SOLVE[self.regime](sensitivity.with_memory(self.problems, k, self.problems[0].memory_bytes[k] + more_bytes))

    def without_hops(self) -> Best:
        """Return the best value and placement if links took no time, solved again."""
        return SOLVE[self.regime](sensitivity.without_hops(self.problems))

    @checked
    def break_even(self, device: str) -> tuple[float, float]:
        """Return the factors of a device's times between which the placement stays the best, from 1/16 to 16, solved again for each.

        Raises
        ------
        UnsupportedFeature
            There is no placement, or the regime is throughput, where the factors may be several intervals.
        """
        if self.regime != "latency":
            raise UnsupportedFeature(f"the regime is {self.regime!r}; the factors are an interval only for 'latency'")
        return sensitivity.break_even(self.problem, self._placed(), self._device(device))

    @checked
    def command(self, tool: str, *, model: str | None = None) -> Command:
        """Return what states the placement to a tool, read back by the tool's own rule.

        Parameters
        ----------
        tool : str
            A name of `hetsched.planning.tools.TOOLS`. What it calls a device is in ``tool_names`` of the machine.
        model : str, optional
            What the tool calls the model, or the path of its file. Default: the name of the card.

        Raises
        ------
        InvalidArgument
            The tool is unknown, or a device has no name in it.
        UnsupportedFeature
            There is no placement, or the tool cannot state it; the message says what to do.
        """
        placement, chosen = self._placed(), tools.tool(tool)
        nameless = [name for name in self.problem.devices if tool not in self.machine.tool_names.get(name, {})]
        if nameless:
            raise InvalidArgument(
                f"device {nameless[0]!r} has no name in {tool}; make the machine with tool_names={{{nameless[0]!r}: {{{tool!r}: ...}}}}"
            )
        devices = [self.machine.tool_names[name][tool] for name in self.problem.devices]
        work = self.work
        made = chosen.emit(self.card, placement, devices, model=model, context=work.tokens, sequences=work.sequences)
        understood = chosen.read(self.card, made, devices)
        assert understood == placement, f"{tool} reads {made.text!r} as {understood!r}, not as {placement!r}"
        return made

    def _device(self, name: str) -> int:
        if name not in self.problems[0].devices:
            raise InvalidArgument(f"device is {shown(name)}; the plan has {', '.join(self.problems[0].devices)}")
        return self.problems[0].devices.index(name)

    def _placed(self) -> Placement:
        if self.placement is None:
            raise UnsupportedFeature(
                f"no placement fits, {self.missing_bytes:g} bytes are missing; give devices more memory, or ask for less"
            )
        return self.placement


def _latency(problems: Problems) -> Best:
    found = least_latency(problems[0])
    return Best(float(found.latency.min()), found.best)


def _period(problems: Problems) -> Best:
    found = least_period(problems)
    return Best(found.period, found.placement)


SOLVE = {"latency": _latency, "throughput": _period}
"""The best placement by regime."""


@checked
def plan(
    card: ModelCard,
    machine: Machine,
    work: Workload,
    *,
    regime: Regime | None = None,
    costs: LanguageRoofline | None = None,
    order: Sequence[str] | None = None,
) -> ModelPlan:
    """Return the best placement of a model on a machine, by exact search over all intervals and orders of devices.

    Parameters
    ----------
    card : ModelCard
    machine : hetsched.Machine
    work : Workload
    regime : str, optional
        ``"latency"`` or ``"throughput"``, see `ModelPlan`. Default: latency for one sequence, throughput for several.
    costs : LanguageRoofline, optional
        The cost model. Default: ``LanguageRoofline()``.
    order : sequence of str, optional
        Names of the devices that may be used, in the order in which stages use them; some may be left out. Default: all, in any order.

    Raises
    ------
    InvalidArgument
        The order names a device twice, or one that the machine does not have.
    InvalidProblem
        A device has no peak for the costs' dtype, or no memory bandwidth.
    UnsupportedFeature
        The model has no decoder and output is asked for, or so many different devices take a table that is too large.
    """
    regime, costs = regime or ("latency" if work.sequences == 1 else "throughput"), costs or LanguageRoofline()
    most = 1 if regime == "latency" else min(len(machine.cluster.names), card.n_items, work.sequences)
    problems = tuple(_per_sequence(costs, card, machine, work, count, regime) for count in range(1, most + 1))
    if order is not None:
        problems = tuple(ordered(problem, order) for problem in problems)
    best = SOLVE[regime](problems)
    missing = 0.0 if best.placement is not None else least_missing(problems[0])
    bandwidth = {device.name: device.memory_bandwidth for device in machine.cluster.devices}
    simple = _baselines(card, bandwidth, problems, regime)
    if best.placement is not None:
        violations = verify_placement(
            _problem_of(problems, best.placement), best.placement, **{"latency" if regime == "latency" else "period": best.value}
        )
        assert not violations, violations
    better = [row.name for row in simple if row.value < best.value * (1 - CLOSE)]
    assert not better, f"baselines are better than the plan of {best.value} s: {better}"
    made = ModelPlan.__new__(ModelPlan)
    made._set(
        card=card,
        machine=machine,
        work=work,
        costs=costs,
        regime=regime,
        problems=problems,
        placement=best.placement,
        value=best.value,
        status=Status.INFEASIBLE if best.placement is None else Status.OPTIMAL,
        missing_bytes=missing,
        baselines=simple,
    )
    return made


def _per_sequence(costs: LanguageRoofline, card: ModelCard, machine: Machine, work: Workload, count: int, regime: str) -> ChainProblem:
    """Return the problem of `count` microbatches in progress; for the throughput with times per sequence."""
    problem = costs.chain(card, machine, work, in_progress=count)
    if regime == "latency":
        return problem
    return problem.scaled(1 / math.ceil(work.sequences / count)).replace(most_in_progress=work.sequences)


def _problem_of(problems: Problems, placement: Placement | None) -> ChainProblem:
    return problems[min(1 if placement is None else len(placement), len(problems)) - 1]


@checked
def ordered(problem: ChainProblem, order: Sequence[str]) -> ChainProblem:
    """Return the problem whose stages use only these devices, in this order.

    Raises
    ------
    InvalidArgument
        A device is named twice, or the problem does not have it.
    """
    strange = [name for k, name in enumerate(order) if name not in problem.devices or name in order[:k]]
    if strange or not order:
        raise InvalidArgument(f"order is {shown(list(order))}; name devices of {', '.join(problem.devices)}, each at most once")
    own = [problem.devices.index(name) for name in order]
    hops = problem.hops[np.ix_(own, own)].copy()
    hops[np.tri(len(own), k=-1, dtype=bool)] = np.inf
    return problem.replace(
        devices=order,
        seconds=problem.seconds[:, own],
        memory_bytes=problem.memory_bytes[own],
        stage_seconds=problem.stage_seconds[own],
        hops=hops,
        closing=problem.closing[np.ix_(own, own)],
    )


def _baselines(card: ModelCard, bandwidth: Mapping[str, float | None], problems: Problems, regime: str) -> tuple[Baseline, ...]:
    """Return what the baselines make of a problem; those that need a finite figure of each device are left out where one has none."""
    first = problems[0]
    widths = np.array([bandwidth[name] or math.inf for name in first.devices])
    made = {"even": baselines.even(card, first), "fill-first": baselines.fill_first(first)}
    if np.isfinite(first.memory_bytes).all() and first.memory_bytes.any():
        made["by memory"] = baselines.by_memory(card, first)
    if np.isfinite(widths).all():
        made["by bandwidth"] = baselines.by_bandwidth(card, first, widths)
    return tuple(Baseline(name, placement, *_judged(problems, placement, regime)) for name, placement in made.items())


def _judged(problems: Problems, placement: Placement, regime: str) -> tuple[float, float]:
    """Return the bytes that a placement lacks, and its value, inf if it lacks any."""
    found = evaluate(_problem_of(problems, placement), placement)
    value = found.latency if regime == "latency" else found.period
    return float(found.missing_bytes.sum()), value if found.fits else math.inf
