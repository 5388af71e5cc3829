"""The mixed-integer model of serving: how many devices of each type hold which interval, and the flow through them."""

from __future__ import annotations

import math

import numpy as np

from hetsched.analysis.serving_units import PARTS, excess, needed, units
from hetsched.arguments import checked, number
from hetsched.arrays import FloatArray
from hetsched.chain.flow import max_flow
from hetsched.chain.serving import ServingPlacement, ServingProblem
from hetsched.errors import InvalidArgument
from hetsched.modeling.model import Model
from hetsched.stopping import NEVER, Deadline

KINDS = 4
"""How many numbers of parts have rows: those with the least to spare."""


class ServingModel:
    """A model of the placements that pass at least `above` tokens per second on; limits of links are left out.

    An arc is an interval and a type that can hold it. The devices of a type on an arc are a number, not columns of their own, so the
    model has no symmetry of devices. Flows are shares of `below`.

    Parameters
    ----------
    problem : ServingProblem
    above : float
        Rows count the units of `analysis.serving_units` that each item needs for so many tokens per second.
    below : float
        An upper bound above 0.
    deadline : Deadline, optional
        After it `OutOfTime` is raised.

    Attributes
    ----------
    arcs : int64 [A, 3]
        Type, first and end of each arc.
    held : Expression [A]
        How many devices of the type hold the interval.
    flow : Expression [A]
        Flow through them.
    model : Model
    """

    @checked(above=number(0), below=number(above=0, below=math.inf))
    def __init__(self, problem: ServingProblem, above: float, below: float, *, deadline: Deadline = NEVER) -> None:
        self.problem, self.below, n = problem, below, problem.n_items
        self.arcs = np.array(
            [
                (kind, first, first + length)
                for kind, row in enumerate(problem.throughput.tolist())
                for length, rate in enumerate(row, 1)
                if rate > 0
                for first in range(n - length + 1)
            ],
            np.int64,
        ).reshape(-1, 3)
        kind, first, end = self.arcs.T
        self.model = model = Model(deadline=deadline)
        share = np.minimum(problem.throughput[kind, end - first - 1] / below, 1.0)
        self.held = model.integer("held", len(kind), lower=0, upper=problem.counts[kind])
        self.flow = model.continuous("flow", len(kind))
        self.total = model.continuous("total", lower=min(above / below, 1.0), upper=1.0)
        model.add(self.flow <= self.held * share, tag="device limit")
        model.add((kind == np.arange(len(problem.types))[:, None]) @ self.held <= problem.counts, tag="devices")
        position = np.arange(n + 1)[:, None]
        outside = (position[:, 0] == 0) * 1.0 - (position[:, 0] == n)
        model.add(((first == position) * 1.0 - (end == position)) @ self.flow == self.total * outside, tag="conservation")
        covering = (first <= position[:n]) & (position[:n] < end)
        spare = {parts: excess(problem, above, parts) / needed(parts) for parts in range(1, PARTS + 1)}
        for parts in (None, *sorted(spare, key=lambda parts: spare[parts])[:KINDS]):
            given = units(problem, above, parts)[kind, end - first - 1] / needed(parts)
            model.add((covering * given) @ self.held >= 1.0, tag="units", cut=True)
        model.maximise(self.total)

    @checked
    def encode(self, placement: ServingPlacement) -> FloatArray:
        """Return values of all columns for a placement of at most `below` tokens per second, its links unlimited."""
        through = max_flow(self.problem.unlimited(), placement)
        arc = {row: a for a, row in enumerate(map(tuple, self.arcs.tolist()))}
        held, flow = np.zeros((2, len(self.arcs)))
        for d, interval in enumerate(zip(self.problem.device_type.tolist(), placement.first.tolist(), placement.end.tolist(), strict=True)):
            if interval in arc:
                held[arc[interval]] += 1
                flow[arc[interval]] += through.device[d] / self.below
        values = np.empty(self.model.program.n_columns)
        for columns, amounts in ((self.held, held), (self.flow, flow), (self.total, through.throughput / self.below)):
            values[columns.column] = amounts
        return values

    @checked
    def decode(self, values: FloatArray) -> ServingPlacement:
        """Return the placement for values of all columns."""
        held = np.rint(self.held.value(values))
        if not (held >= 0).all():
            raise InvalidArgument(f"values has {held.min()} devices on an interval; it must be numbers from 0")
        return ServingPlacement.of(self.problem, np.repeat(self.arcs, held.astype(np.int64), axis=0).tolist())
