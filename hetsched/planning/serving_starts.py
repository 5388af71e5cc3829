"""Placements for serving by simple rules: what others do, and where the search begins."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

import numpy as np

from hetsched.arguments import checked, number
from hetsched.arrays import FloatArray, IntArray
from hetsched.chain.flow_kernels import network, throughput
from hetsched.chain.serving import ServingPlacement, ServingProblem
from hetsched.modeling.backends import backend
from hetsched.modeling.model import Model
from hetsched.stopping import NEVER, Deadline, Stop, Terminated

MOST_GROUPS, SECONDS = 2_000, 2.0
"""The most groups of one length that `groups_in_series` chooses from, and the most seconds for a choice."""
CLOSE = 1e-3
"""Share of the bound to which `groups_in_series` determines the throughput of its kind of placement."""


@checked
def even(problem: ServingProblem) -> ServingPlacement:
    """Return the best even split: the chain in stages of equal lengths, to one, give or take, each with devices of about equal sum.

    All numbers of stages are tried; the fastest device goes first, to the stage with the least so far.
    """
    rates, n = problem.fleet().rates, problem.n_items

    def split(count: int) -> ServingPlacement:
        cuts = [n * s // count for s in range(count + 1)]
        first, end = np.zeros((2, len(rates)), np.int64)
        stages = [(0.0, s) for s in range(count)]
        for d in np.argsort(-rates[:, -(-n // count)], kind="stable").tolist():
            own = [stage for stage in stages if rates[d, cuts[stage[1] + 1] - cuts[stage[1]]] > 0]
            if own:
                total, s = min(own)
                stages[stages.index((total, s))] = (total + rates[d, cuts[s + 1] - cuts[s]], s)
                first[d], end[d] = cuts[s], cuts[s + 1]
        return ServingPlacement(first, end)

    return _best(problem, (split(count) for count in range(1, min(n, len(rates)) + 1)))


@checked
def replicas(problem: ServingProblem) -> ServingPlacement:
    """Return the best number of pipelines of about equal speed, in each of which a device has items in proportion to its own.

    The speed of a device is the most items times tokens per second. It is the rule of Parallax, water filling: shares grow in proportion
    until a device holds all that it can.
    """
    rates, n = problem.fleet().rates, problem.n_items
    held = np.arange(n + 1)
    speed, longest = (rates * held).max(axis=1), np.where(rates > 0, held, 0).max(axis=1)

    def split(count: int) -> ServingPlacement:
        first, end = np.zeros((2, len(rates)), np.int64)
        pipelines: list[tuple[float, int, list[int]]] = [(0.0, k, []) for k in range(count)]
        for d in np.argsort(-speed, kind="stable").tolist():
            total, k, members = heapq.heappop(pipelines)
            heapq.heappush(pipelines, (total + speed[d], k, [*members, d]))
        for _, _, members in pipelines:
            lengths = _filled(n, speed[members], longest[members])
            if lengths.sum() == n and (rates[members, lengths][lengths > 0] > 0).all():
                end[members] = np.cumsum(lengths)
                first[members] = end[members] - lengths
        return ServingPlacement(first, end)

    return _best(problem, (split(count) for count in range(1, max(1, int(longest.sum()) // n) + 1)))


def _filled(n: int, speed: FloatArray, longest: IntArray) -> IntArray:
    """Return whole numbers in proportion to speeds, at most the longest, that add up to n, or to less if that is too much."""
    lengths = np.zeros(len(speed), np.int64)
    for _ in range(min(n, int(longest.sum()))):
        with np.errstate(divide="ignore"):
            lengths[np.where(lengths < longest, (lengths + 1) / speed, np.inf).argmin()] += 1
    return lengths


def _best(problem: ServingProblem, placements: Iterator[ServingPlacement]) -> ServingPlacement:
    fleet, scratch = problem.fleet(), network(problem.n_items, problem.n_devices)
    return max(placements, key=lambda made: throughput(fleet, made.first.copy(), made.end.copy(), scratch))


@checked(above=number(0), below=number(0))
def groups_in_series(problem: ServingProblem, above: float, below: float, *, deadline: Deadline = NEVER) -> ServingPlacement | None:
    """Return a placement of groups one after another, all devices of a group on one interval; None if none is found.

    For a throughput F the smallest groups that reach it are listed for each length, and an integer program chooses among them so that
    the lengths add up to the chain; their order is free. The highest F is found by bisection.

    Parameters
    ----------
    problem : ServingProblem
    above, below : float
        What is known to be reached, and an upper bound.
    deadline : Deadline, optional
    """
    best, close = None, CLOSE * below
    while below - above > close and not deadline.over:
        middle = (above + below) / 2
        rows = _chosen(problem, _groups(problem, middle), deadline)
        if rows is None:
            below = middle
        else:
            above, best = middle, ServingPlacement.of(problem, rows)
    return best


def _groups(problem: ServingProblem, least: float) -> list[tuple[int, tuple[int, ...]]]:
    """Return length and devices of each type of groups that pass `least` on, but do not without one of their devices."""
    groups = []
    for length, rates in enumerate(problem.throughput.T.tolist(), 1):
        groups += [(length, group) for group in itertools.islice(_smallest(rates, problem.counts.tolist(), least), MOST_GROUPS)]
    return groups


def _smallest(rates: list[float], counts: list[int], least: float) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of devices by type whose rates add up to `least`, but do not without the slowest of them."""
    order = sorted((k for k, rate in enumerate(rates) if rate > 0), key=lambda k: -rates[k])

    def more(place: int, left: float, group: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if left <= 0:
            yield group
        elif place < len(order):
            k = order[place]
            for count in range(min(counts[k], math.ceil(left / rates[k])), -1, -1):
                yield from more(place + 1, left - count * rates[k], (*group[:k], count, *group[k + 1 :]))

    return more(0, least, (0,) * len(rates))


def _chosen(problem: ServingProblem, groups: list[tuple[int, tuple[int, ...]]], deadline: Deadline) -> list[tuple[int, int, int]] | None:
    """Return the intervals of groups whose lengths add up to the chain, within the devices that there are."""
    if not groups:
        return None
    model = Model(deadline=deadline)
    taken = model.integer("taken", len(groups), lower=0, upper=problem.n_items)
    model.add(np.array([length for length, _ in groups]) @ taken == problem.n_items)
    model.add(np.array([group for _, group in groups]).T @ taken <= problem.counts)
    outcome = model.solve(backend("scip"), time_limit=SECONDS, deadline=deadline)
    if outcome.stopped in (Stop.INTERRUPTED, Stop.TERMINATED):  # the solve has handled the signal
        raise Terminated if outcome.stopped is Stop.TERMINATED else KeyboardInterrupt
    if outcome.values is None:
        return None
    rows, position = [], 0
    for (length, group), times in zip(groups, np.rint(outcome.values).astype(int).tolist(), strict=True):
        for _ in range(times):
            rows += [(k, position, position + length) for k, count in enumerate(group) for _ in range(count)]
            position += length
    return rows
