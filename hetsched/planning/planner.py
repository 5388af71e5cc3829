"""`hetsched.plan`: the best placement of a model on a machine, with its proof and what others would do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Literal, NamedTuple

from hetsched import documents
from hetsched.arguments import checked, number, shown
from hetsched.arrays import Frozen
from hetsched.chain.card import ModelCard
from hetsched.chain.evaluation import ChainValues, evaluate
from hetsched.chain.machine import Machine, basis
from hetsched.chain.placement import Placement
from hetsched.chain.problem import ChainProblem
from hetsched.chain.workload import Workload
from hetsched.costs.language import LanguageRoofline
from hetsched.errors import InvalidArgument, OutOfTime, UnsupportedFeature
from hetsched.planning import sensitivity, tools
from hetsched.planning.allowance import Allowance
from hetsched.planning.incumbent import Incumbent, PlanProgress
from hetsched.planning.question import Question
from hetsched.planning.sensitivity import CLOSE, Best, MemoryStep, Problems
from hetsched.planning.simple_rules import Baseline, baselines_of
from hetsched.planning.tools import Command
from hetsched.search.solution import OPTIMALITY_GAP, Status, relative_gap
from hetsched.stopping import NEVER, Deadline, Stop, reason
from hetsched.verification.placement import verify_placement

if TYPE_CHECKING:
    from hetsched.planning.explanation import Explanation

Regime = Literal["fit", "latency", "throughput"]
MOST_TOKENS = 2**24
"""The longest context that is tried."""
OFF_BY = 0.2
"""By how much the times of a device are off where the regret is asked for."""


class ModelPlan(Frozen):
    """The best placement of a model among all that give each device at most one interval of items, in any order of devices.

    Attributes
    ----------
    card, machine, work, costs
        What was asked.
    regime : str
        ``"fit"``: whether the model fits; no time counts, and the value is 0. ``"latency"``: seconds of one batch of the sequences alone.
        ``"throughput"``: seconds between two sequences, where the sequences are divided into as many microbatches as there are stages.
    tool : str or None
        The tool whose placements were searched, with its margins of memory and its messages; None for all placements.
    status : Status
        ``"optimal"``, or ``"infeasible"`` if no placement fits; if it was not proven, as the search ended before or was no exact one,
        ``"feasible"``, or ``"unknown"`` without a placement.
    placement : Placement or None
        Of a tool that runs a tied head with the embedding, without the head.
    value : float
        Seconds, by the costs; inf without a placement.
    bound : float
        Seconds below which no placement is; the value if it is proven the best, inf if none fits.
    stopped : Stop
        The reason of the end: ``"finished"``, ``"time limit"``, ``"callback"``, ``"interrupted"`` or ``"terminated"``.
    missing_bytes : float
        Least sum of the bytes that are lacking, over all placements; 0 if one fits, inf if the devices cannot run the items at all, nan
        if it was not found. Where weights may be offloaded, or devices are too many for exact search, it may be a bound from below.
    baselines : tuple of Baseline
        What the tool does by default, if one is asked for, and what simple rules make of the same problem, evaluated with the same costs;
        and the default of the tool with each other degree of tensor parallelism. No value is less than that of the plan.
    degrees : tuple of int
        The degrees of tensor parallelism that were searched: numbers of devices that run each stage together.
    explanation : Explanation or None
        What the plan depends on, if `with_explanation` was told; its document and its page have it.
    called : str or None
        What the tool calls the model, or the path of its file; None for the name of the card.
    """

    _format = "hetsched-plan"
    card: ModelCard
    machine: Machine
    work: Workload
    costs: LanguageRoofline
    regime: str
    tool: str | None
    question: Question
    status: Status
    placement: Placement | None
    value: float
    bound: float
    stopped: Stop
    missing_bytes: float
    baselines: tuple[Baseline, ...]
    degrees: tuple[int, ...]
    explanation: Explanation | None
    called: str | None

    def __init__(self) -> None:
        raise TypeError("plans are made by hetsched.plan(card, machine, work)")

    def __repr__(self) -> str:
        return f"<ModelPlan for {self.card.name!r} on {', '.join(self.machine.cluster.names)}: {self.status}, {self.value:.4g} s>"

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the plan as a JSON document; ``hetsched.read`` reads it back, and verifies it."""
        documents.write(self, path)

    @property
    def gap(self) -> float:
        """(value - bound) / value; 1 without a placement."""
        return relative_gap(self.value, self.bound)

    @property
    def tensor_parallel(self) -> int:
        """The degree of tensor parallelism: how many alike devices of a node run each stage together."""
        return self.question.tensor_parallel

    @property
    def problems(self) -> Problems:
        """The problems for 1, 2, ... stages; the last one is for more too."""
        return self.question.problems

    @property
    def problem(self) -> ChainProblem:
        """The problem for as many requests in progress as the placement has stages."""
        return self.question.of(self.placement)

    @property
    def values(self) -> ChainValues:
        """Times and bytes of the stages; raises `UnsupportedFeature` without a placement."""
        return evaluate(self.problem, self._placed())

    @property
    def tokens_per_second(self) -> float:
        """Tokens of output per second; 0 without a placement, nan where no time counts."""
        if self.regime == "fit":
            return math.nan
        return self.work.output * (self.work.sequences if self.regime == "latency" else 1) / self.value

    @property
    def prompt_seconds(self) -> float:
        """Seconds of the value that the prompts take; the rest is that of the output."""
        return self._without_output().judged(self._placed())[1]

    @property
    def prompt_values(self) -> ChainValues:
        """Times of the stages for the prompts alone; raises `UnsupportedFeature` without a placement."""
        return evaluate(self._without_output().of(self.placement), self._placed())

    def _without_output(self) -> Question:
        return self.question.replace(work=replace(self.work, output=0, context=self.work.tokens))

    @property
    def cost_basis(self) -> str:
        """``"modelled"``, ``"measured"`` or ``"mixed"``: whether the efficiency of no, each or some device was measured."""
        used = zip(self.machine.cluster.names, self.machine.computes, strict=True)
        return basis(name in self.machine.efficiency for name, computes in used if computes and name in self.question.used)

    @checked
    def next_memory_step(self, device: str) -> MemoryStep | None:
        """Return the least memory of a device with which the value falls, solved again; None if none does."""
        return self._next_memory_step(device)

    def _next_memory_step(self, device: str, tried: MemoryStep | None = None) -> MemoryStep | None:
        """Return the next step of memory; `tried` is a memory and the best with it, if they are known."""
        now = self.value if self.status is Status.OPTIMAL else self._solve(self.problems).value

        def solve(problems: Problems) -> Best:
            return self.question.solve(problems, below=now * (1 - CLOSE))

        return sensitivity.next_memory_step(self.problems, self._device(device), solve, now=now, tried=tried)

    def _with_room(self) -> list[str]:
        """Return the devices of a plan proven by exact search that could hold any further item."""
        if self.status is not Status.OPTIMAL or not self.question.is_exact:
            return []
        problem, held = self.problem, self.values.stage_bytes.tolist()
        largest = float((problem.weight_bytes + problem.cache_bytes + problem.workspace_bytes).max())
        used = zip((stage.device for stage in self._placed().stages), held, strict=True)
        return [problem.devices[k] for k, own in used if own + largest <= problem.memory_bytes[k]]

    def _needs_no_memory(self, devices: Sequence[str]) -> bool:
        """Return whether no placement is better however much more memory each of some devices has, solved again."""
        changed = sensitivity.with_memory(self.problems, list(map(self._device, devices)), math.inf)
        return self.question.solve(changed, below=self.value * (1 - CLOSE)).placement is None

    @checked(more_bytes=number(0))
    def with_memory(self, device: str, more_bytes: float) -> Best:
        """Return the best value and placement with more memory on a device, solved again; by local search where the plan is."""
        k = self._device(device)
        changed = sensitivity.with_memory(self.problems, k, self.problems[0].memory_bytes[k] + more_bytes)
        best = self.question.solve(changed, below=self.value * (1 - CLOSE), near=True)
        return Best(self.value, self.placement) if best.placement is None else best

    def without_hops(self) -> Best:
        """Return the best value and placement if links took no time, solved again; by local search where the plan is."""
        return self.question.solve(sensitivity.without_hops(self.problems), known=self.placement, near=True)

    def second_best(self) -> Best:
        """Return the best of the placements that lack the first stage's device, the last one's, or a hop of the plan, solved again."""
        return sensitivity.second_best(self.problems, self._placed(), self._solve)

    @checked(share=number(0, 1))
    def regret(self, share: float = OFF_BY) -> float:
        """Return by which share of the best value the plan is worse, at most, if all times of a device are off by a share, solved again."""
        placement = self._placed()
        own = self.question.searched(placement, self.problems)
        return sensitivity.regret(self.problems, own, placement, share, self._solve, self.question.value)

    @checked
    def break_even(self, device: str) -> tuple[float, float]:
        """Return the factors of a device's times between which the placement stays the best, from 1/16 to 16, solved again for each.

        Raises
        ------
        UnsupportedFeature
            There is no placement, or the factors may be several intervals: the regime is throughput, or chunks of a prompt overlap.
        """
        if self.regime != "latency":
            raise UnsupportedFeature(f"the regime is {self.regime!r}; the factors are an interval only for 'latency'")
        return sensitivity.break_even(self.problems, self._placed(), self._device(device), self._solve)

    def _solve(self, problems: Problems, below: float = math.inf) -> Best:
        return self.question.solve(problems, known=self.placement, below=below)

    @checked
    def within(self, deadline: Deadline) -> ModelPlan:
        """Return the plan whose further solves end at a deadline, or with an allowance of work of its own, with `OutOfTime`."""
        return self._with(question=self.question.replace(deadline=deadline, allowance=Allowance()))

    @checked
    def with_explanation(self, explanation: Explanation | None, *, model: str | None = None) -> ModelPlan:
        """Return the plan with what it depends on, as `hetsched.planning.explain` says, and with the tool's name of the model.

        Its document and its page then have both.
        """
        return self._with(explanation=explanation, called=model)

    def _with(self, **changes: object) -> ModelPlan:
        made = ModelPlan.__new__(ModelPlan)
        made._set(**{name: getattr(self, name) for name in self._fields} | changes)
        return made

    def most_context(self) -> int:
        """Return the most tokens of a sequence, from prompt and output, with which any placement fits; 0 if none does."""
        least = self.work.prompt + self.work.output
        found = self._most(lambda more: {"work": replace(self.work, context=least + more - 1)}, MOST_TOKENS + 1, self.work.tokens)
        return least + found - 1 if found else 0

    def most_sequences(self) -> int:
        """Return the most sequences at a time with which any placement fits; 0 if none does."""
        return self._most(lambda count: {"work": replace(self.work, sequences=count)}, MOST_TOKENS, self.work.sequences)

    def most_bits(self) -> float:
        """Return the most bits per parameter, all weights scaled alike, with which any placement fits, in steps of 1/16; 0 if none does."""
        now = math.ceil(16 * self.card.bits)
        return self._most(lambda count: {"card": self.card.scaled(count / 16 / self.card.bits)}, 64 * 16, now) / 16

    def _most(self, changes: Callable[[int], dict[str, object]], limit: int, start: int) -> int:
        def fits(question: Question) -> Callable[[int], bool]:
            return lambda number: question.replace(**changes(number)).fits()

        questions = self.question.with_degrees(sorted(self.degrees, reverse=True))  # more devices together tend to hold more
        return sensitivity.most_that_fits(list(map(fits, questions)), limit, start)

    @checked
    def command(self, tool: str | None = None, *, model: str | None = None) -> Command:
        """Return what states the placement to a tool, read back by the tool's own rule.

        Parameters
        ----------
        tool : str, optional
            A name of `hetsched.planning.tools.TOOLS`. Default: the tool of the plan. What it calls a device is in ``tool_names`` of the
            machine, or as `hetsched.Machine.names_in` says.
        model : str, optional
            What the tool calls the model, or the path of its file. Default: `called`, or the name of the card.

        Raises
        ------
        InvalidArgument
            The tool is unknown, or there is none.
        UnsupportedFeature
            There is no placement, or the tool cannot state it; the message says what to do.
        """
        if tool is None and self.tool is None:
            raise InvalidArgument(f"the plan is for no tool; name one of {', '.join(tools.TOOLS)}")
        chosen = tools.tool(tool or self.tool or "")
        devices, work = self.question.names(chosen.name), self.work
        asked = {"context": work.tokens, "sequences": work.sequences, "chunk": work.chunk}
        share, model = self._memory_share(), self.called if model is None and chosen.name == self.tool else model
        made = chosen.emit(self.card, self._placed(), devices, model=model, cache_bytes=work.cache_bytes, memory_share=share, **asked)
        read = chosen.read(self.card, made, devices)
        run = chosen.execution.as_run(read, devices)
        if read == self.placement != run:
            unused = {stage.device for stage in read.stages} - {stage.device for stage in run.stages}
            names = ", ".join(str(devices[k]) for k in sorted(unused))
            raise UnsupportedFeature(
                f"{chosen.name} runs what is on {names} elsewhere, so that it cannot state this placement; "
                f"make a plan for {chosen.name}: tool={chosen.name!r}, in the terminal --for {chosen.name}"
            )
        assert run == self.placement, f"{chosen.name} reads {made.text!r} as {run!r}, not as {self.placement!r}"
        return made

    def _memory_share(self) -> float | None:
        """Return the least share of its memory that a device with a stage may use, rounded down.

        None if that is too little for a stage of another device, or a memory is unlimited.
        """
        problem = self.problem
        used = [stage.device for stage in self._placed().stages]
        whole = [self.question.device(self.question.sets[k][0]).memory_bytes for k in used]
        shares = [float(problem.memory_bytes[k]) / memory for k, memory in zip(used, whole, strict=True) if 0 < memory < math.inf]
        if len(shares) < len(used):
            return None
        share = math.floor(min(shares) * 1e4) / 1e4
        over = [problem.devices[k] for k, memory, held in zip(used, whole, self.values.stage_bytes, strict=True) if held > share * memory]
        return None if over else share

    @property
    def refusal(self) -> str:
        """Why the tool of the plan cannot state its placement; empty if it can, or without a tool or a placement."""
        if self.question.tool is None or self.placement is None:
            return ""
        return self.question.tool.refusal(self.card, self.placement, self.question.names(self.question.tool.name))

    def _device(self, name: str) -> int:
        if name not in self.problems[0].devices:
            raise InvalidArgument(f"device is {shown(name)}; the plan has {', '.join(self.problems[0].devices)}")
        return self.problems[0].devices.index(name)

    def _placed(self) -> Placement:
        if self.placement is None:
            if self.status is Status.UNKNOWN:
                raise UnsupportedFeature(f"the search found no placement before its end ({self.stopped}); allow more time")
            raise UnsupportedFeature(
                f"no placement fits, {self.missing_bytes:g} bytes are missing; give devices more memory, or ask for less"
            )
        return self.placement


@checked
def plan(
    card: ModelCard,
    machine: Machine,
    work: Workload,
    *,
    regime: Regime | None = None,
    tool: str | None = None,
    costs: LanguageRoofline | None = None,
    order: Sequence[str] | None = None,
    tensor_parallel: int | None = None,
    time_limit: float | None = None,
    on_progress: Callable[[PlanProgress], object] | None = None,
) -> ModelPlan:
    """Return the best placement of a model on a machine, by exact search over all intervals and orders of devices.

    Where so many devices differ that this is too large, from about 21 on, it is a good one by local search, with a bound.

    Parameters
    ----------
    card : ModelCard
    machine : hetsched.Machine
    work : Workload
    regime : str, optional
        ``"fit"``, ``"latency"`` or ``"throughput"``, see `ModelPlan`. Default: latency for one sequence, throughput for several if the
        tool pipelines them.
    tool : str, optional
        A name of `hetsched.planning.tools.TOOLS`: only placements that it can state are searched, with the memory that it leaves free
        where ``reserved_bytes`` of the machine does not say how much, and its default is a baseline. They include weights that it may
        leave on other devices than that of their stage: llama.cpp experts on the CPU, Transformers and Accelerate weights on the CPU or
        a disk. Default: all placements of whole items.
    costs : LanguageRoofline, optional
        The cost model. Default: ``LanguageRoofline()``.
    order : sequence of str, optional
        Names of the devices that may be used, in the order in which stages use them; some may be left out. Default: all, in any order.
        With tensor parallelism those of a stage follow one another.
    tensor_parallel : int, optional
        How many alike devices of a node run each stage together, for a tool that has it. Default: the best of all numbers that the model
        can be divided by.
    time_limit : float, optional
        Seconds. Default: until the best is proven.
    on_progress : callable, optional
        Called with a `hetsched.planning.PlanProgress` for each better placement or bound; returning True ends the search.

    Returns
    -------
    ModelPlan
        After the time limit or Ctrl-C the best so far, with its bound; the simple rules are tried first.

    Raises
    ------
    InvalidArgument
        The tool is unknown, or the order names a device twice, or one that the machine does not have.
    InvalidProblem
        A device has no peak for the costs' dtype, or no memory bandwidth; the regime ``"fit"`` needs neither.
    UnsupportedFeature
        The model has no decoder and output is asked for, or the tool does not pipeline and the regime is throughput, or the tool, the model
        or the machine does not allow the tensor parallelism.
    """
    chosen = None if tool is None else tools.tool(tool)
    if regime is None:
        regime = "latency" if work.sequences == 1 or (chosen is not None and not chosen.execution.pipelines) else "throughput"
    question = Question(
        card, machine, work, regime, costs or LanguageRoofline(), chosen, None if order is None else tuple(order), tensor_parallel or 1
    )
    degrees = question.degrees() if tensor_parallel is None else [tensor_parallel]
    return solved(question, degrees, deadline=Deadline.after(time_limit), on_progress=on_progress)


class _Part(NamedTuple):
    """What is known of the placements with one degree of tensor parallelism."""

    question: Question
    best: Best
    bound: float
    stopped: Stop
    missing_bytes: float


def solved(
    question: Question,
    degrees: Sequence[int] = (),
    *,
    deadline: Deadline = NEVER,
    on_progress: Callable[[PlanProgress], object] | None = None,
) -> ModelPlan:
    """Return the plan of a question, with the best of some degrees of tensor parallelism, or the best found until a deadline or Ctrl-C."""
    questions = question.with_degrees(degrees)
    rows, parts = baselines_of(questions), list[_Part]()
    begin = deadline.clock() if len(questions) > 1 else 0.0

    def tell(progress: PlanProgress) -> object:
        """Tell the progress of all degrees by that of the one that is searched; those behind it have no bound yet."""
        assert on_progress is not None
        value = min([progress.value, *(part.best.value for part in parts)])
        bound = 0.0 if len(parts) + 1 < len(questions) else min([progress.bound, *(part.bound for part in parts)])
        return on_progress(PlanProgress(deadline.clock() - begin, value, bound, progress.source))

    heard = on_progress if on_progress is None or len(questions) == 1 else tell
    for one in questions:
        own = [row for row in rows if row.tensor_parallel == one.tensor_parallel]
        parts.append(_part(one, own, deadline, heard, parts[-1].stopped if parts else Stop.FINISHED))
    best = min(parts, key=lambda part: part.best.value)
    lacking = [part.missing_bytes for part in parts]
    return answered(
        best.question,
        best.best,
        degrees,
        rows,
        bound=min(part.bound for part in parts),
        stopped=parts[-1].stopped,
        missing_bytes=math.nan if any(map(math.isnan, lacking)) else min(lacking),
    )


def _part(
    question: Question, rows: Sequence[Baseline], deadline: Deadline, on_progress: Callable[[PlanProgress], object] | None, stopped: Stop
) -> _Part:
    """Return the best placement with one degree of tensor parallelism; by simple rules alone if the search of those before was stopped."""
    simple = min((Best(row.value, row.placement) for row in rows), key=lambda best: best.value, default=Best(math.inf, None))
    if stopped is not Stop.FINISHED:
        return _Part(question, simple if simple.value < math.inf else Best(math.inf, None), 0.0, stopped, math.nan)
    incumbent = Incumbent(simple.value * (1 + CLOSE), deadline=deadline, on_progress=on_progress)
    missing = math.nan
    try:
        question.find(question.problems, incumbent, near=True)
        if incumbent.placement is None:
            missing = question.replace(deadline=deadline).missing()
    except OutOfTime:
        stopped = incumbent.stop or Stop.TIME_LIMIT
    except KeyboardInterrupt as interruption:
        stopped = reason(interruption)
    best = question.best(incumbent)
    if simple.value < best.value * (1 - CLOSE):
        best = simple
    bound = best.value if stopped is Stop.FINISHED and question.is_exact else min(best.value, incumbent.bound)
    return _Part(question, best, bound, stopped, missing)


def answered(
    question: Question,
    best: Best,
    degrees: Sequence[int],
    rows: tuple[Baseline, ...] | None = None,
    *,
    bound: float,
    stopped: Stop,
    missing_bytes: float,
) -> ModelPlan:
    """Return the plan of a question with its best placement, verified, and its baselines, by default computed."""
    rows = baselines_of(question.with_degrees(degrees)) if rows is None else rows
    if best.placement is not None:
        violations = [
            *verify_placement(question.of(best.placement), best.placement, **question.stated(best.value)),
            *question.verified_sets(best.placement),
        ]
        assert not violations, violations
    better = [row.name for row in rows if row.value < best.value * (1 - CLOSE)]
    assert not better, f"baselines are better than the plan of {best.value} s: {better}"
    if best.placement is None:
        status = Status.INFEASIBLE if math.isinf(bound) else Status.UNKNOWN
    else:
        status = Status.OPTIMAL if relative_gap(best.value, bound) <= OPTIMALITY_GAP else Status.FEASIBLE
    made = ModelPlan.__new__(ModelPlan)
    made._set(
        card=question.card,
        machine=question.machine,
        work=question.work,
        costs=question.costs,
        regime=question.regime,
        tool=None if question.tool is None else question.tool.name,
        question=question,
        placement=best.placement,
        value=best.value,
        bound=bound,
        stopped=stopped,
        status=status,
        missing_bytes=0.0 if best.placement is not None else missing_bytes,
        baselines=rows,
        degrees=tuple(degrees) or (question.tensor_parallel,),
        explanation=None,
        called=None,
    )
    return made
