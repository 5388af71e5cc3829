"""Claims: checked again, and made of schedules and certificates."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from hetsched import checker, documents
from hetsched.arguments import checked
from hetsched.certificates.certificate import decision_of
from hetsched.errors import InvalidSchedule
from hetsched.instances.files import problem_of
from hetsched.instances.registry import Claim, Instance, Side, check_consistent
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.schedule.simulate import simulate
from hetsched.verification.verify import verify


@checked
def failures(instance: Instance) -> list[str]:
    """Return what is wrong with the claims of an instance, in a line each; none if all hold.

    A schedule of a checked claim is verified and timed exactly, a certificate is checked, and both must give the value of the claim.
    A claim of a solver needs its version and options, and every claim an author and a date that is past. Of all claims no lower
    one may be above an upper one.
    """
    problem, found = problem_of(instance), []
    today = datetime.datetime.now(datetime.UTC).date()
    for claim in instance.claims:
        what = f"{instance.name}: {claim.kind} {claim.value}"
        if claim.trust == "solver" and not claim.evidence:
            found.append(f"{what}: it has no evidence, which is the version and the options of the solver")
        if not claim.by.strip():
            found.append(f"{what}: nobody makes it; state a program and its version, or a publication")
        if claim.date > today:
            found.append(f"{what}: its date is {claim.date}, after today")
    exact = checker.Problem(documents.encode(problem))
    for claim in (claim for claim in instance.claims if claim.trust == "checked"):
        try:
            value = _value(problem, exact, claim.kind, claim.evidence)
        except (checker.Rejected, checker.Malformed, InvalidSchedule) as error:
            found.append(f"{instance.name}: {claim.kind} {claim.value}: {error}")
            continue
        if value != claim.seconds:
            found.append(f"{instance.name}: the evidence of {claim.kind} {claim.value} is for {value}")
    lower, upper = instance.best("lower"), instance.best("upper")
    if lower is not None and upper is not None and lower.seconds > upper.seconds:
        below, above = (f"{claim.kind} {claim.value} ({claim.trust}, by {claim.by})" for claim in (upper, lower))
        found.append(f"{instance.name}: {above} is above {below}")
    return found


def _value(problem: Problem, exact: checker.Problem, kind: Side, evidence: Mapping[str, Any] | None) -> Fraction | None:
    """Return the exact value that evidence proves; `exact` is the problem as the checker reads it."""
    if evidence is None:
        raise InvalidSchedule(f"it has no evidence, which is {'a certificate' if kind == 'lower' else 'the batches of a schedule'}")
    if kind == "lower":
        return checker.check(exact, checker.read_certificate(msgspec.json.encode(evidence), exact)).bound
    violations = verify(problem, simulate(problem, decided(evidence)))
    if violations:
        raise InvalidSchedule(str(violations[0]))
    return checker.retimed(exact, evidence["batches"], evidence.get("transfers"))


def decided(evidence: Mapping[str, Any]) -> Decision:
    """Return the decision of a claim's evidence; one of the wrong shape is refused."""
    try:
        batches = msgspec.convert(evidence.get("batches", []), list[tuple[int, int, list[int]]])
    except msgspec.ValidationError as error:
        raise InvalidSchedule(f"batches are rows of task, device and inputs: {error}") from None
    return decision_of(batches, evidence.get("transfers"))


def evidence_of(decision: Decision) -> dict[str, Any]:
    """Return the evidence of a decision."""
    pointer, items = decision.item_ptr.tolist(), decision.items.tolist()
    rows = zip(decision.task.tolist(), decision.device.tolist(), range(len(decision.task)), strict=True)
    evidence: dict[str, Any] = {"batches": [[task, device, items[pointer[b] : pointer[b + 1]]] for task, device, b in rows]}
    if decision.transfer_order is not None:
        evidence["transfers"] = decision.transfer_order.tolist()
    return evidence


@checked
def claim_of(instance: Instance, kind: Side, evidence: Mapping[str, Any], by: str, date: datetime.date | None = None) -> Claim:
    """Return a checked claim from evidence, after it was checked.

    Raises
    ------
    InvalidSchedule
        The evidence does not hold, or it is for another problem.
    """
    problem = problem_of(instance)
    try:
        value = _value(problem, checker.Problem(documents.encode(problem)), kind, evidence)
    except (checker.Rejected, checker.Malformed) as error:
        raise InvalidSchedule(f"the evidence for {instance.name!r} is refused: {error}") from None
    if value is None:
        raise InvalidSchedule(f"the certificate says that {instance.name!r} has no schedule at all, which is no bound of one")
    claim = Claim(kind, str(value), "checked", by, date or datetime.datetime.now(datetime.UTC).date(), dict(evidence))
    check_consistent(msgspec.structs.replace(instance, claims=[*instance.claims, claim]))
    return claim
