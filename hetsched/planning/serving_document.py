"""The JSON document of a plan for serving."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

import numpy as np

from hetsched.bounds.serving import ThroughputBound, capped_load, counting
from hetsched.chain.card_document import ModelDocument
from hetsched.chain.flow import ServingFlow, max_flow
from hetsched.chain.machine_document import MachineDocument
from hetsched.chain.serving import ServingPlacement, ServingProblem
from hetsched.documents import VERSION, Document, Number, Row, optional
from hetsched.errors import InvalidProblem
from hetsched.planning.plan_document import CostsPart, Count, Positive, WorkloadPart, finite
from hetsched.planning.sensitivity import CLOSE
from hetsched.planning.serving import ServingPlan, ServingQuestion, served, simple_rules
from hetsched.planning.serving_words import serving_rows
from hetsched.planning.words import each_labelled
from hetsched.stopping import Stop
from hetsched.verification.serving import verify_serving


class TypeRow(Row, kw_only=True):
    """Devices of a type, and the tokens per second of one that holds 1, 2, ... items."""

    name: str
    devices: Count
    throughput: list[float]


class IntervalRow(Row, kw_only=True):
    """A device, by number and name, its items from `first` to `last`, and the tokens per second that it passes on."""

    device: Count
    name: str = ""
    first: Count
    last: Count
    tokens_per_second: float = 0.0


class FlowRow(Row, kw_only=True):
    """Tokens per second from a device to another, by number; null is the outside."""

    source: Count | None = None
    target: Count | None = None
    tokens_per_second: float


class BoundPart(Row, kw_only=True):
    """An upper bound, null for none, and its evidence; `parts` are those of a bound by counting."""

    tokens_per_second: Number
    name: str
    evidence: str = ""
    parts: Positive | None = None


class QuestionPart(Row, kw_only=True):
    """The model, the machine, the workload and the costs that make the problem."""

    model: ModelDocument
    machine: MachineDocument
    workload: WorkloadPart
    costs: CostsPart

    @classmethod
    def of(cls, value: ServingQuestion) -> Self:
        """Return the part of a question."""
        return cls(
            model=ModelDocument.of(value.card),
            machine=MachineDocument.of(value.machine),
            workload=WorkloadPart.of(value.work),
            costs=CostsPart.of(value.machine.cost_basis, value.costs),
        )

    def value(self) -> ServingQuestion:
        """Return the question."""
        return ServingQuestion(self.model.value(), self.machine.value(), self.workload.value(), self.costs.value())


class ServingDocument(Document[ServingPlan], kw_only=True, tag="hetsched-serving"):
    """Devices of several types that serve a chain of items together, and the placement that passes the most tokens per second on.

    Devices are numbered by type, from 0. `links` are tokens per second between devices, in the last row and column from and to the
    outside; null: unlimited, as all are by default. `question` is null where the problem is not of a model.

    Reading verifies the placement, the flow and their value, computes baselines and bounds by counting and by capped load anew, and
    does not search again. For other readers are names of devices, what each passes on, and the plan in sentences with their labels.
    """

    question: QuestionPart | None = None
    items: Positive
    types: list[TypeRow]
    links: list[list[Number]] | None = None
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    tokens_per_second: float
    bound: BoundPart
    stopped: str
    intervals: list[IntervalRow] = []
    flow: list[FlowRow] = []
    baselines: dict[str, float] = {}
    sentences: list[tuple[str, str]] = []

    @classmethod
    def of(cls, value: ServingPlan) -> Self:
        """Return the document of a plan."""
        problem, asked = value.problem, value.question
        return cls(
            version=VERSION,
            question=None if asked is None else QuestionPart.of(asked),
            items=problem.n_items,
            types=[
                TypeRow(name=name, devices=count, throughput=row)
                for name, count, row in zip(problem.types, problem.counts.tolist(), problem.throughput.tolist(), strict=True)
            ],
            links=optional(problem.links) if problem.limited else None,
            status=str(value.status),  # type: ignore[arg-type]
            tokens_per_second=value.value,
            bound=BoundPart(
                tokens_per_second=finite(value.bound), name=value.proof.name, evidence=value.proof.evidence, parts=value.proof.parts
            ),
            stopped=str(value.stopped),
            intervals=list(_intervals(value)),
            flow=list(_flow(value)),
            baselines=value.baselines,
            sentences=each_labelled(list(serving_rows(value))),
        )

    def value(self) -> ServingPlan:
        """Return the plan, verified."""
        problem, question = self._problem()
        m = problem.n_devices
        strange = [row.device for row in self.intervals if row.device >= m]
        strange += [d for row in self.flow for d in (row.source, row.target) if d is not None and d >= m]
        if strange or len({row.device for row in self.intervals}) < len(self.intervals):
            raise InvalidProblem(f"an interval or a flow is of device {strange[0] if strange else 'twice'}; there are {m}, each with one")
        if self.stopped not in list(Stop):
            raise InvalidProblem(f"stopped is {self.stopped!r}; choose from {', '.join(filter(None, Stop))}")
        placement, flow = (None, None) if not self.intervals else self._placed(problem)
        proof = self._proof(problem)
        baselines = {name: 0.0 if row is None else max_flow(problem, row).throughput for name, row in simple_rules(problem).items()}
        best = max(baselines.values())
        if best > self.tokens_per_second * (1 + CLOSE):
            raise InvalidProblem(f"a simple rule passes {best:g} tokens/s on, and the plan {self.tokens_per_second:g}; solve again")
        if proof.value < self.tokens_per_second * (1 - CLOSE):
            raise InvalidProblem(f"the bound is {proof.value:g} tokens/s, and the value {self.tokens_per_second:g}; solve again")
        plan = served(problem, proof, placement, flow, baselines, question=question, stopped=Stop(self.stopped))
        if plan.status != self.status:
            raise InvalidProblem(f"the status is {self.status!r}, and by value and bound it is {plan.status!r}; solve again")
        return plan

    def _problem(self) -> tuple[ServingProblem, ServingQuestion | None]:
        """Return the problem, which is that of the question, and the question."""
        links = None if self.links is None else [[np.inf if rate is None else rate for rate in row] for row in self.links]
        tables = [row.throughput for row in self.types]
        problem = ServingProblem(self.items, [row.name for row in self.types], [row.devices for row in self.types], tables, links=links)
        if self.question is None:
            return problem, None
        question = self.question.value()
        made = question.problem
        same = (made.types, made.counts.tolist(), made.throughput.shape) == (
            problem.types,
            problem.counts.tolist(),
            problem.throughput.shape,
        )
        if not same or not all(
            np.allclose(a, b, rtol=CLOSE) for a, b in ((made.throughput, problem.throughput), (made.links, problem.links))
        ):
            raise InvalidProblem("the types or their throughput are not those of the question's model and machine; solve again")
        return problem, question

    def _placed(self, problem: ServingProblem) -> tuple[ServingPlacement, ServingFlow]:
        """Return the stated placement and flow, which are valid."""
        m = problem.n_devices
        first, end = np.zeros((2, m), np.int64)
        for row in self.intervals:
            first[row.device], end[row.device] = row.first, row.last + 1
        transfers = np.zeros((m + 1, m + 1))
        for move in self.flow:
            transfers[m if move.source is None else move.source, m if move.target is None else move.target] += move.tokens_per_second
        placement = ServingPlacement(first, end)
        violations = verify_serving(problem, placement, transfers, throughput=self.tokens_per_second)
        if violations:
            raise InvalidProblem(f"the intervals or the flow are not valid: {violations[0].message}; correct them, or solve again")
        return placement, ServingFlow(transfers)

    def _proof(self, problem: ServingProblem) -> ThroughputBound:
        """Return the bound: computed anew where that needs no search, else as stated."""
        bound = self.bound
        stated = np.inf if bound.tokens_per_second is None else bound.tokens_per_second
        if bound.name not in ("counting", "capped load"):
            return ThroughputBound(stated, bound.name, bound.evidence)
        proof = capped_load(problem) if bound.parts is None else counting(problem, bound.parts)
        if not stated >= proof.value * (1 - CLOSE):
            raise InvalidProblem(f"the bound by {bound.name} is {stated:g} tokens/s, and computed anew {proof.value:g}; solve again")
        return proof


def _intervals(plan: ServingPlan) -> Iterator[IntervalRow]:
    if plan.placement is not None and plan.flow is not None:
        rows = zip(plan.devices, plan.placement.first.tolist(), plan.placement.end.tolist(), plan.flow.device.tolist(), strict=True)
        for d, (name, first, end, rate) in enumerate(rows):
            if first < end:
                yield IntervalRow(device=d, name=name, first=first, last=end - 1, tokens_per_second=rate)


def _flow(plan: ServingPlan) -> Iterator[FlowRow]:
    outside = plan.problem.n_devices
    if plan.flow is not None:
        for a, b in np.argwhere(plan.flow.transfers > 0).tolist():
            rate = float(plan.flow.transfers[a, b])
            yield FlowRow(source=None if a == outside else a, target=None if b == outside else b, tokens_per_second=rate)
