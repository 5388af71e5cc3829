"""How a plan changes with the context and with the bits of its weights: each point of a curve is a plan of its own, solved."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hetsched.planning.explanation import MOST_WORK
from hetsched.planning.planner import ModelPlan, solved
from hetsched.planning.question import Question

DOUBLINGS = 8
"""Contexts of a curve: 1, 2, 4, ... times the tokens of a request."""
BITS = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0)
"""Bits per parameter of a curve."""


class Point(NamedTuple):
    """A context or a number of bits, and the best placement with it."""

    at: float
    plan: ModelPlan


def affordable(plan: ModelPlan) -> bool:
    """Return whether both curves together take at most `MOST_WORK` steps."""
    return (DOUBLINGS + len(BITS) + 2) * plan.question.work_of(plan.problems) <= MOST_WORK


def over_context(plan: ModelPlan) -> tuple[Point, ...]:
    """Return the plans with longer and longer contexts, among them the one asked, up to the last that fits.

    None are computed where no time counts or no output is asked for, nor where it takes long.
    """
    work = plan.work
    if not work.output:
        return ()
    return _points(
        plan,
        {(work.prompt + work.output) << k for k in range(DOUBLINGS)} | {work.tokens},
        lambda tokens: plan.question.replace(work=dataclasses.replace(work, context=int(tokens))),
        asked=work.tokens,
    )


def over_bits(plan: ModelPlan) -> tuple[Point, ...]:
    """Return the plans with more and more bits per parameter, all weights scaled alike, among them the one asked, up to the last that fits.

    None are computed where no time counts, nor where it takes long.
    """
    card = plan.card
    return _points(plan, {*BITS, card.bits}, lambda bits: plan.question.replace(card=card.scaled(bits / card.bits)), asked=card.bits)


def _points(plan: ModelPlan, places: Iterable[float], question: Callable[[float], Question], asked: float) -> tuple[Point, ...]:
    found: list[Point] = []
    if plan.regime == "fit" or not affordable(plan):
        return ()
    for at in sorted(places):
        changed = plan if at == asked else solved(question(at), plan.degrees)
        if changed.placement is None:
            break
        found.append(Point(at, changed))
    return tuple(found)
