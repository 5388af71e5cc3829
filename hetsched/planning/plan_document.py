"""The JSON document of a plan."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self

import msgspec

from hetsched.chain.card_document import ModelDocument
from hetsched.chain.machine_document import MachineDocument
from hetsched.chain.placement import Placement
from hetsched.chain.workload import Workload
from hetsched.costs.language import LanguageRoofline
from hetsched.documents import VERSION, Document, Number, Real, Row, real
from hetsched.errors import InvalidProblem
from hetsched.planning import words
from hetsched.planning.explanation import MORE, NOTHING, DeviceLimit, Explanation
from hetsched.planning.planner import ModelPlan, answered
from hetsched.planning.question import Question
from hetsched.planning.rows import device_rows, stage_rows, transfer_rows
from hetsched.planning.sensitivity import CLOSE, Best, Problems, with_memory
from hetsched.planning.tools import TOOLS, Command
from hetsched.stopping import Stop
from hetsched.verification.placement import verify_placement

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Run = tuple[str, Count, Count]
"""Device, first and last item of a stage, or of items that a device holds for others."""


class WorkloadPart(Row, kw_only=True):
    """Requests: tokens, sequences, and bytes of a number in the KV cache and of activations."""

    prompt: Count
    output: Count
    context: Count | None = None
    sequences: Count = 1
    chunk: Count
    cache_bytes: float
    activation_bytes: float

    @classmethod
    def of(cls, work: Workload) -> Self:
        """Return the part of a workload."""
        return cls(**dataclasses.asdict(work))

    def value(self) -> Workload:
        """Return the workload."""
        return Workload(**msgspec.structs.asdict(self))


class CostsPart(Row, kw_only=True):
    """The roofline; `kind` says of how many devices the efficiency was measured."""

    kind: Literal["modelled", "measured", "mixed"]
    dtype: str
    compute: float
    memory: float
    item_seconds: float

    @classmethod
    def of(cls, basis: str, costs: LanguageRoofline) -> Self:
        """Return the part of a cost model; the basis is its kind."""
        return cls(kind=basis, **dataclasses.asdict(costs))  # type: ignore[arg-type]

    def value(self) -> LanguageRoofline:
        """Return the cost model."""
        return LanguageRoofline(**{field.name: getattr(self, field.name) for field in dataclasses.fields(LanguageRoofline)})


class PlanStageRow(Row, kw_only=True):
    """A stage: items from `first` to `last` on a device, what it takes, the bytes that the device needs, and its offloaded items.

    These are device, first and last item of those whose experts, or weights, another device holds.
    """

    device: str
    first: Count
    last: Count
    seconds: float
    prompt_seconds: Number = None
    output_seconds: Number = None
    bytes: float
    offloaded: list[Run] = []


class TransferRow(Row, kw_only=True):
    """What goes from a stage to the next, behind the item with this number, or from the last one back to the first, without bytes."""

    source: str
    target: str
    item: Count
    seconds: float
    bytes: Number = None


class DeviceRow(Row, kw_only=True):
    """The bytes of a device; those of weights include other stages', and `free_bytes` is null where the memory is unlimited."""

    device: str
    weight_bytes: float = 0.0
    cache_bytes: float = 0.0
    workspace_bytes: float = 0.0
    reserved_bytes: float = 0.0
    free_bytes: Number = None


class BaselineRow(Row, kw_only=True):
    """What a simple rule makes of the problem: device, first and last item of stages; `seconds` is null if it is no valid placement.

    The devices are sets of as many as `tensor_parallel` says. Without stages `reason` says why there are none.
    """

    name: str
    stages: list[Run]
    offloaded: list[Run] = []
    tensor_parallel: Positive = 1
    reason: str = ""
    missing_bytes: float
    seconds: Number


class BestPart(Row, kw_only=True):
    """The best value and placement of a changed problem."""

    seconds: Number
    stages: list[Run]
    offloaded: list[Run] = []


class LimitsPart(Row, kw_only=True):
    """The most with which a placement fits, null where the time ended before; what is not computed, and whether for lack of time."""

    most_context: Count | None = None
    most_sequences: Count | None = None
    most_bits: Number = None
    left_out: list[str] = []
    out_of_time: bool = False


class DeviceChangeRow(Row, kw_only=True):
    """What a device limits: the best with `more_bytes` more, the bytes more with which the value falls, inf for never, and the best then.

    Null: unknown. Between the factors of its times the placement stays the best.
    """

    device: str
    more_bytes: float
    with_more: BestPart | None = None
    step_bytes: Real = "nan"
    step: BestPart | None = None
    factors: tuple[Number, Number] = (None, None)


class SensitivityPart(Row, kw_only=True):
    """What other devices, links and times would change: seconds if links took none, the next best order, and the regret; null: unknown."""

    devices: list[DeviceChangeRow] = []
    without_hops: Number = None
    second_best: BestPart | None = None
    regret: Number = None


class CommandPart(Row, kw_only=True):
    """What states the placement to a tool, read back by its rule; `refusal` says why there is nothing."""

    text: str = ""
    arguments: list[str] = []
    environment: dict[str, str] = {}
    device_map: dict[str, str | int] = {}
    cuts: list[tuple[Count, Count]] = []
    split_spec: dict[str, str] = {}
    refusal: str = ""

    @classmethod
    def of(cls, command: Command | None, refusal: str) -> CommandPart:
        """Return the part of a command, or of the reason why there is none."""
        if command is None:
            return cls(refusal=refusal)
        return cls(
            text=command.text,
            arguments=list(command.arguments),
            environment=dict(command.environment),
            device_map=dict(command.device_map),
            cuts=list(command.cuts),
            split_spec=dict(command.split_spec),
        )


class PlanDocument(Document[ModelPlan], kw_only=True, tag="hetsched-plan"):
    """A model, a machine, what was asked, and the best placement; `seconds`, its value, and `missing_bytes` are null for infinity.

    `bound` is a lower bound on the seconds of all placements, by default and where it is null that which the status says: the seconds of
    the best, or infinity. `stopped` is the reason of the end. What is missing is null too where it is not known.

    Each stage runs on as many alike devices of a node as `tensor_parallel` says, a set whose name has theirs with ``+``: ``gpu0+gpu1``;
    `degrees` are the numbers that were searched, by default that one.

    `limits` and `sensitivity` are null unless the plan was explained; `called` is what its tool calls the model.

    Reading verifies the stages and their value, those of `sensitivity`, and that no baseline is better, but does not search again. For
    other readers are the seconds and bytes of stages, transfers and devices, the baselines, the name of the bound and its evidence, the
    commands by tool, and the sentences with their labels: they are computed anew.
    """

    model: ModelDocument
    machine: MachineDocument
    workload: WorkloadPart
    regime: Literal["fit", "latency", "throughput"]
    tool: str | None = None
    order: list[str] | None = None
    tensor_parallel: Positive = 1
    degrees: list[Positive] = []
    costs: CostsPart
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    seconds: Number
    bound: Number = None
    bound_name: str = ""
    bound_evidence: str = ""
    stopped: Literal["finished", "time limit", "callback", "interrupted", "terminated"] = "finished"
    missing_bytes: Number = 0.0
    stages: list[PlanStageRow] = []
    transfers: list[TransferRow] = []
    devices: list[DeviceRow] = []
    baselines: list[BaselineRow] = []
    limits: LimitsPart | None = None
    sensitivity: SensitivityPart | None = None
    called: str | None = None
    commands: dict[str, CommandPart] = {}
    sentences: list[tuple[str, str]] = []

    @classmethod
    def of(cls, value: ModelPlan) -> Self:
        """Return the document of a plan."""
        return cls(
            version=VERSION,
            model=ModelDocument.of(value.card),
            machine=MachineDocument.of(value.machine),
            workload=WorkloadPart.of(value.work),
            regime=value.regime,  # type: ignore[arg-type]
            tool=value.tool,
            order=None if value.question.order is None else list(value.question.order),
            tensor_parallel=value.tensor_parallel,
            degrees=list(value.degrees),
            costs=CostsPart.of(value.cost_basis, value.costs),
            status=str(value.status),  # type: ignore[arg-type]
            seconds=finite(value.value),
            bound=finite(value.bound),
            stopped=str(value.stopped),  # type: ignore[arg-type]
            missing_bytes=finite(value.missing_bytes),
            bound_name=words.bound_name(value),
            bound_evidence=words.proof(value),
            stages=[PlanStageRow(**row) for row in stage_rows(value)],
            transfers=[TransferRow(**row) for row in transfer_rows(value)],
            devices=[
                DeviceRow(
                    device=row.device,
                    weight_bytes=row.weights,
                    cache_bytes=row.cache,
                    workspace_bytes=row.workspace,
                    reserved_bytes=row.reserved,
                    free_bytes=finite(row.free),
                )
                for row in device_rows(value, value.placement)
            ],
            baselines=[
                BaselineRow(
                    name=row.name,
                    stages=_stages(value.question.devices(row.tensor_parallel), row.placement),
                    offloaded=_offloaded(value.problem.devices, row.placement),
                    tensor_parallel=row.tensor_parallel,
                    reason=row.reason,
                    missing_bytes=row.missing_bytes,
                    seconds=finite(row.value),
                )
                for row in value.baselines
            ],
            limits=None if value.explanation is None else _limits(value.explanation),
            sensitivity=None if value.explanation is None else _sensitivity(value, value.explanation),
            called=value.called,
            commands={name: CommandPart.of(*words.command(value, tool=name)) for name in ([value.tool] if value.tool else TOOLS)},
            sentences=words.plan_rows(value, labelled=True),
        )

    def value(self) -> ModelPlan:
        """Return the plan, verified."""
        if self.tool is not None and self.tool not in TOOLS:
            raise InvalidProblem(f"tool is {self.tool!r}; choose from {', '.join(TOOLS)}")
        question = Question(
            self.model.value(),
            self.machine.value(),
            self.workload.value(),
            self.regime,
            self.costs.value(),
            None if self.tool is None else TOOLS[self.tool],
            None if self.order is None else tuple(self.order),
            self.tensor_parallel,
        )
        degrees = self.degrees or [self.tensor_parallel]
        if self.tensor_parallel not in degrees or sorted(set(degrees)) != degrees:
            raise InvalidProblem(f"degrees are {degrees}; they must rise, and have tensor_parallel, {self.tensor_parallel}, among them")
        best = self._best(question)
        proven = best.value if self.status in ("optimal", "infeasible") else 0.0
        bound = proven if self.bound is None else self.bound
        ended = self.status == "infeasible" and self.stopped == "finished"
        missing = min(question.replace(tensor_parallel=size).missing() for size in degrees) if ended else math.nan
        try:
            plan = answered(question, best, degrees, bound=bound, stopped=Stop(self.stopped), missing_bytes=missing)
        except AssertionError as error:
            raise InvalidProblem(f"the stages are not the best: {error}; solve again") from None
        if bound > best.value * (1 + CLOSE) or plan.status != self.status:
            raise InvalidProblem(
                f"the status is {self.status!r} with {self.seconds} seconds and a bound of {self.bound}, so that it is {plan.status!r}; "
                "solve again"
            )
        return plan.with_explanation(self._explanation(question), model=self.called)

    def _best(self, question: Question) -> Best:
        """Return the stated placement and value, which are those of the question."""
        placed = self.status in ("optimal", "feasible")
        if placed != bool(self.stages) or placed != (self.seconds is not None):
            raise InvalidProblem(f"the status is {self.status!r} with {len(self.stages)} stages and {self.seconds} seconds; solve again")
        stages = [(row.device, row.first, row.last) for row in self.stages]
        part = BestPart(seconds=self.seconds, stages=stages, offloaded=[run for row in self.stages for run in row.offloaded])
        return _stated(question, question.problems, part)

    def _explanation(self, question: Question) -> Explanation | None:
        """Return what the plan is stated to depend on; its placements are valid in the changed problems."""
        if self.limits is None or self.sensitivity is None:
            return None
        problems, limits, found = question.problems, self.limits, self.sensitivity
        devices = []
        for row in found.devices:
            k = _index(problems[0].devices, row.device)
            memory = float(problems[0].memory_bytes[k])
            more = _stated(question, with_memory(problems, k, memory + MORE), row.with_more)
            extra = float(row.step_bytes)
            step = _stated(question, with_memory(problems, k, memory + extra) if math.isfinite(extra) else problems, row.step)
            least, most = (math.nan if factor is None else factor for factor in row.factors)
            devices.append(DeviceLimit(row.device, more, extra, step, (least, most)))
        return Explanation(
            limits.most_context,
            limits.most_sequences,
            limits.most_bits,
            tuple(devices),
            math.nan if found.without_hops is None else found.without_hops,
            _stated(question, problems, found.second_best),
            math.nan if found.regret is None else found.regret,
            tuple(limits.left_out),
            limits.out_of_time,
        )


def _index(names: Sequence[str], name: str) -> int:
    """Return the number of a device of a stage."""
    if name not in names:
        raise InvalidProblem(f"a stage is on {name!r}, which is none of the devices {', '.join(names)}; correct it, or solve again")
    return names.index(name)


def _stated(question: Question, problems: Problems, part: BestPart | None) -> Best:
    """Return a stated placement and value, which are valid in some problems of the question."""
    if part is None or not part.stages:
        return NOTHING
    names, last = problems[0].devices, len(problems[0].items) - 1
    stages = [(_index(names, name), first, end + 1) for name, first, end in part.stages]
    moved = [(i, _index(names, name)) for name, first, end in part.offloaded for i in range(first, min(end, last) + 1)]
    placement, stated = Placement(stages, moved), float(part.seconds or 0.0)
    violations = verify_placement(question.of(placement, problems), placement, **question.stated(stated))
    if violations:
        raise InvalidProblem(f"the stages are not valid: {violations[0].message}; correct them, or solve again")
    return Best(stated, placement)


def _stages(names: Sequence[str], placement: Placement | None) -> list[Run]:
    return [] if placement is None else [(names[stage.device], stage.first, stage.end - 1) for stage in placement.stages]


def _offloaded(names: Sequence[str], placement: Placement | None) -> list[Run]:
    return [] if placement is None else [(names[k], first, end - 1) for k, first, end in placement.offloaded_runs()]


def _limits(found: Explanation) -> LimitsPart:
    return LimitsPart(**{name: getattr(found, name) for name in LimitsPart.__struct_fields__} | {"left_out": list(found.left_out)})


def _sensitivity(plan: ModelPlan, found: Explanation) -> SensitivityPart:
    names = plan.problem.devices

    def part(best: Best) -> BestPart | None:
        if best.placement is None:
            return None
        return BestPart(seconds=best.value, stages=_stages(names, best.placement), offloaded=_offloaded(names, best.placement))

    return SensitivityPart(
        devices=[
            DeviceChangeRow(
                device=limit.device,
                more_bytes=MORE,
                with_more=part(limit.with_more),
                step_bytes=real(limit.step_bytes),
                step=part(limit.step),
                factors=(finite(limit.factors[0]), finite(limit.factors[1])),
            )
            for limit in found.devices
        ],
        without_hops=finite(found.without_hops),
        second_best=part(found.second_best),
        regret=finite(found.regret),
    )


def finite(value: float) -> float | None:
    """Return a number, or None if it is infinite or nan."""
    return value if math.isfinite(value) else None
