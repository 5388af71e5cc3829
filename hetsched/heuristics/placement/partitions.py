"""Partitions of work in proportion to speed: blocks, at random, by METIS."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from typing import Any

import numpy as np

from hetsched.analysis.levels import unit_sums
from hetsched.arrays import FloatArray, IntArray, row_starts
from hetsched.coarsening.coarse import mean_durations, mean_transfers
from hetsched.errors import MissingDependency, OutOfTime, UnsupportedFeature
from hetsched.heuristics.placement.offers import filled, offer_devices, shares
from hetsched.problem.problem import Problem
from hetsched.search import Kind, Monitor, Role, Supports, always, method
from hetsched.stopping import Deadline

GRACE = 0.3
"""Seconds after the time limit at which METIS is ended."""
_METIS = """
import os, pickle, sys
sys.path[:] = {path!r}
answer = os.fdopen(os.dup(1), "wb")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
from pymetis import CSRAdjacency, part_graph
count, neighbours, options = pickle.load(sys.stdin.buffer)
with answer:
    pickle.dump(list(part_graph(count, CSRAdjacency(*neighbours), **options)[1]), answer)
"""


@method(
    "block",
    summary="topological order cut into one block a device, of work in proportion to its speed",
    source="Tavarageri et al. 2019, block partitioning",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    supports=Supports(inputs="whole"),
    turn=250,
)
def block(problem: Problem, monitor: Monitor) -> None:
    """Offer a partition into blocks of the breadth-first topological order, the fastest device first; ignores memory."""
    offer_devices(monitor, blocks(problem))


def blocks(problem: Problem) -> IntArray:
    """Return the device of each task in a block partition, [n]."""
    return blocks_of(problem, unit_sums(problem, mean_durations(problem)))


def blocks_of(problem: Problem, work: FloatArray) -> IntArray:
    """Return the device of each task in a block partition of the given work of units, [n]."""
    return filled(problem, problem.graph.topological_order, work, work.sum() * shares(problem))


@method(
    "random-partition",
    summary="each task on a device drawn at random, in proportion to speed",
    source="Tavarageri et al. 2019, random partitioning",
    kind=Kind.CONSTRUCTIVE,
    supports=Supports(inputs="whole"),
    turn=280,
)
def random_partition(problem: Problem, monitor: Monitor) -> None:
    """Offer one random partition; ignores memory."""
    offer_devices(monitor, drawn(problem, monitor.rng)[problem.unit])


def drawn(problem: Problem, rng: np.random.Generator) -> IntArray:
    """Return a device for each unit at random, [n_units], in proportion to speed."""
    first = np.unique(problem.unit, return_index=True)[1]
    weight = np.where(np.isfinite(problem.whole_durations[first]), np.maximum(shares(problem), 1e-12), 0.0)
    reach = weight.cumsum(axis=1)
    at = rng.random(problem.n_units) * reach[:, -1]
    return np.asarray((at[:, None] >= reach).sum(axis=1).clip(max=problem.n_devices - 1))


@method(
    "metis",
    summary="k-way partition of least communication by METIS, loads in proportion to speed; needs pymetis",
    source="Karypis and Kumar 1998",
    kind=Kind.CONSTRUCTIVE,
    roles={Role.BASELINE: always},
    needs="pymetis",
    supports=Supports(inputs="whole"),
    turn=260,
)
def metis(problem: Problem, monitor: Monitor) -> None:
    """Offer a partition of METIS, which ignores directions, pins and memory and therefore may have no schedule."""
    if importlib.util.find_spec("pymetis") is None:
        raise MissingDependency("pymetis", "metis")
    if problem.n_units <= problem.n_devices:
        monitor.note("METIS cuts only graphs of more tasks than devices; this one is cut into blocks")
        offer_devices(monitor, blocks(problem))
        return
    graph, unit = problem.graph, problem.unit
    work: FloatArray = unit_sums(problem, mean_durations(problem))
    ends = np.sort(unit[graph.edges], axis=1)
    apart = ends[:, 0] != ends[:, 1]
    pair, edge = np.unique(ends[apart, 0] * problem.n_units + ends[apart, 1], return_inverse=True)
    moved = np.bincount(edge, mean_transfers(problem)[apart], len(pair)).astype(np.float64)
    row = np.concatenate([pair // problem.n_units, pair % problem.n_units])
    order = np.argsort(row, kind="stable")
    column = np.concatenate([pair % problem.n_units, pair // problem.n_units])[order]
    ptr = row_starts(np.bincount(row, minlength=problem.n_units))
    share = np.maximum(shares(problem), 1e-6)
    part = _partition(
        monitor.deadline,
        problem.n_devices,
        (ptr.tolist(), column.tolist()),
        vweights=_whole_numbers(work),
        eweights=_whole_numbers(moved, order),
        tpwgts=(share / share.sum()).tolist(),
        recursive=False,
    )
    offer_devices(monitor, np.array(part, np.int64)[unit])


def _partition(deadline: Deadline, count: int, neighbours: tuple[list[int], list[int]], **options: Any) -> list[int]:
    """Return the partition of METIS, run in a separate process because it prints to standard output."""
    words, message = [sys.executable, "-c", _METIS.format(path=sys.path)], pickle.dumps((count, neighbours, options))
    limit = None if deadline.limit is None else deadline.limit + GRACE
    try:
        done = subprocess.run(words, input=message, capture_output=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        raise OutOfTime("METIS was not done when the time limit was reached; allow more time") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise UnsupportedFeature(f"METIS ended with exit code {done.returncode}: {last or 'it said nothing'}; choose another method")
    return pickle.loads(done.stdout)  # type: ignore[no-any-return]


def _whole_numbers(values: FloatArray, order: IntArray | None = None) -> list[int]:
    """Return weights as positive integers for METIS; with `order`, those of pairs, twice, in that order."""
    scaled = np.maximum(1, np.round(values / max(float(values.mean()) if len(values) else 1.0, 1e-300) * 100)).clip(max=10**6).astype(int)
    return (scaled if order is None else np.tile(scaled, 2)[order]).tolist()  # type: ignore[no-any-return]
