"""The JSON document of a plan."""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated, Literal, Self

import msgspec

from hetsched.chain.card_document import ModelDocument
from hetsched.chain.machine_document import MachineDocument
from hetsched.chain.placement import Placement
from hetsched.chain.workload import Workload
from hetsched.costs.language import LanguageRoofline
from hetsched.documents import VERSION, Document, Number, Row
from hetsched.errors import InvalidProblem
from hetsched.planning.planner import ModelPlan, answered, stage_rows
from hetsched.planning.question import Question
from hetsched.planning.sensitivity import CLOSE, Best
from hetsched.planning.tools import TOOLS
from hetsched.stopping import Stop
from hetsched.verification.placement import verify_placement

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class WorkloadPart(Row, kw_only=True):
    """Requests: tokens, sequences, and bytes of a number in the KV cache and of activations."""

    prompt: Count
    output: Count
    context: Count | None = None
    sequences: Count = 1
    chunk: Count
    cache_bytes: float
    activation_bytes: float


class CostsPart(Row, kw_only=True):
    """The roofline; `kind` says of how many devices the efficiency was measured."""

    kind: Literal["modelled", "measured", "mixed"]
    dtype: str
    compute: float
    memory: float
    item_seconds: float


class PlanStageRow(Row, kw_only=True):
    """A stage: items from `first` to `last` on a device, what it takes, the bytes that the device needs, and its offloaded items.

    These are device, first and last item of those whose experts, or weights, another device holds.
    """

    device: str
    first: Count
    last: Count
    seconds: float
    bytes: float
    offloaded: list[tuple[str, Count, Count]] = []


class BaselineRow(Row, kw_only=True):
    """What a simple rule makes of the problem: device, first and last item of stages; `seconds` is null if it is no valid placement.

    The devices are sets of as many as `tensor_parallel` says.
    """

    name: str
    stages: list[tuple[str, Count, Count]]
    offloaded: list[tuple[str, Count, Count]] = []
    tensor_parallel: Positive = 1
    missing_bytes: float
    seconds: Number


class PlanDocument(Document[ModelPlan], kw_only=True, tag="hetsched-plan"):
    """A model, a machine, what was asked, and the best placement; `seconds`, its value, and `missing_bytes` are null for infinity.

    `bound` is a lower bound on the seconds of all placements, by default and where it is null that which the status says: the seconds of
    the best, or infinity. `stopped` is the reason of the end. What is missing is null too where it is not known.

    Each stage runs on as many alike devices of a node as `tensor_parallel` says, a set whose name has theirs with ``+``: ``gpu0+gpu1``;
    `degrees` are the numbers that were searched, by default that one.

    Reading verifies the stages and their value, and that no baseline is better, but does not search again. The seconds and bytes of stages,
    and the baselines, are for other readers: they are computed anew.
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
    stopped: Literal["finished", "time limit", "callback", "interrupted", "terminated"] = "finished"
    missing_bytes: Number = 0.0
    stages: list[PlanStageRow] = []
    baselines: list[BaselineRow] = []

    @classmethod
    def of(cls, value: ModelPlan) -> Self:
        """Return the document of a plan."""
        return cls(
            version=VERSION,
            model=ModelDocument.of(value.card),
            machine=MachineDocument.of(value.machine),
            workload=WorkloadPart(**dataclasses.asdict(value.work)),
            regime=value.regime,  # type: ignore[arg-type]
            tool=value.tool,
            order=None if value.question.order is None else list(value.question.order),
            tensor_parallel=value.tensor_parallel,
            degrees=list(value.degrees),
            costs=CostsPart(kind=value.cost_basis, **dataclasses.asdict(value.costs)),  # type: ignore[arg-type]
            status=str(value.status),  # type: ignore[arg-type]
            seconds=_finite(value.value),
            bound=_finite(value.bound),
            stopped=str(value.stopped),  # type: ignore[arg-type]
            missing_bytes=_finite(value.missing_bytes),
            stages=[PlanStageRow(**row) for row in stage_rows(value)],
            baselines=[
                BaselineRow(
                    name=row.name,
                    stages=[
                        (value.question.devices(row.tensor_parallel)[stage.device], stage.first, stage.end - 1)
                        for stage in row.placement.stages
                    ],
                    offloaded=[(value.problem.devices[k], first, end - 1) for k, first, end in row.placement.offloaded_runs()],
                    tensor_parallel=row.tensor_parallel,
                    missing_bytes=row.missing_bytes,
                    seconds=_finite(row.value),
                )
                for row in value.baselines
            ],
        )

    def value(self) -> ModelPlan:
        """Return the plan, verified."""
        if self.tool is not None and self.tool not in TOOLS:
            raise InvalidProblem(f"tool is {self.tool!r}; choose from {', '.join(TOOLS)}")
        costs = LanguageRoofline(**{field.name: getattr(self.costs, field.name) for field in dataclasses.fields(LanguageRoofline)})
        question = Question(
            self.model.value(),
            self.machine.value(),
            Workload(**msgspec.structs.asdict(self.workload)),
            self.regime,
            costs,
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
        return plan

    def _best(self, question: Question) -> Best:
        """Return the stated placement and value, which are those of the question."""
        placed = self.status in ("optimal", "feasible")
        if placed != bool(self.stages) or placed != (self.seconds is not None):
            raise InvalidProblem(f"the status is {self.status!r} with {len(self.stages)} stages and {self.seconds} seconds; solve again")
        if not self.stages:
            return Best(math.inf, None)
        names = question.problems[0].devices
        moved = [run for row in self.stages for run in row.offloaded]
        strange = [name for name in [*(row.device for row in self.stages), *(name for name, _, _ in moved)] if name not in names]
        if strange:
            raise InvalidProblem(
                f"a stage is on {strange[0]!r}, which is none of the devices {', '.join(names)}; correct it, or solve again"
            )
        stages = [(names.index(row.device), row.first, row.last + 1) for row in self.stages]
        last = len(question.problems[0].items) - 1
        placement = Placement(stages, ((i, names.index(name)) for name, first, end in moved for i in range(first, min(end, last) + 1)))
        stated = float(self.seconds or 0.0)
        violations = verify_placement(question.of(placement), placement, **question.stated(stated))
        if violations:
            raise InvalidProblem(f"the stages are not valid: {violations[0].message}; correct them, or solve again")
        return Best(stated, placement)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
