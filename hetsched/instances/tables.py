"""Tables of instances: the best claims, and the gap between them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from fractions import Fraction

from hetsched.arguments import checked
from hetsched.instances.registry import Claim, Family, Instance, families


@checked
def page(path: str | os.PathLike[str] | None = None) -> str:
    """Return tables of all families as Markdown: of those that come with the package, or of the documents in a folder."""
    parts = [f"## {family.name}\n\n{_about(family)}\n\n{markdown(family.instances)}" for family in families(path).values()]
    return "\n\n".join(parts) + "\n"


def markdown(instances: Iterable[Instance]) -> str:
    """Return a Markdown table of instances, with the ratio to the best lower bound where there is the schedule of a named method."""
    every = list(instances)
    ratios = any(map(_of_method, every))
    head = ["instance", "tasks", "devices", "lower bound", "upper bound", "gap", *(("schedule", "ratio") if ratios else ())]
    rows = [[*cells(instance), *(_ratio(instance) if ratios else ())] for instance in every]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of_method(instance: Instance) -> Claim | None:
    """Return the longest schedule that a named method has made; `Claim.by` has its name after that of the program."""
    of_methods = [claim for claim in instance.claims if claim.kind == "upper" and ", " in claim.by]
    return max(of_methods, key=lambda claim: claim.seconds, default=None)


def _ratio(instance: Instance) -> tuple[str, str]:
    made, lower = _of_method(instance), instance.best("lower")
    if made is None or lower is None or not lower.seconds:
        return "", ""
    return f"{exact(made.seconds)} by `{made.by.rpartition(', ')[2]}`", f"{float(made.seconds / lower.seconds):.2f}"


def cells(instance: Instance) -> list[str]:
    """Return the cells of the row of an instance: name, tasks, devices, both bounds with their trust, gap or status."""
    status, gap = instance.status, instance.gap
    last = status if status != "open" else "" if math.isnan(gap) else f"{100 * gap:.1f} %"
    bounds = [_shown(instance.best(kind)) for kind in ("lower", "upper")]
    return [instance.name, str(instance.tasks), str(instance.devices), *bounds, last]


def _shown(claim: Claim | None) -> str:
    if claim is None:
        return ""
    return f"{exact(claim.seconds)} {claim.trust}"


def exact(value: Fraction) -> str:
    """Return a fraction as text: whole, or rounded to nine digits."""
    return str(value) if value.denominator == 1 else f"{float(value):.9g}"


def _about(family: Family) -> str:
    solved = [sum(instance.status == status for instance in family.instances) for status in ("optimal", "closed", "open")]
    return (
        f"{family.citation}. Licence: `{family.licence}`; {family.attribution}. {solved[0]} optimal, {solved[1]} closed, {solved[2]} open."
    )
