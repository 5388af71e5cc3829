"""Numba kernels of policies over devices of groups: samples, and their makespans.

All samples are decoded in one fixed order of tasks, each as one batch of all inputs; see ``state_kernels``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.arrays import FloatArray, IntArray
from hetsched.compiled import inner, kernel
from hetsched.heuristics.local_search import state_kernels
from hetsched.heuristics.local_search.state_kernels import SearchData, SearchState


class Samples(NamedTuple):
    """Devices of groups in each of S samples, and their values."""

    device: IntArray
    """[S, groups]"""
    makespan: FloatArray
    """[S] seconds, inf without a path."""
    violation: FloatArray
    """[S]: the excess over the memories as a share of all claims, plus the share of the edges that have no path; else 0."""


def new_samples(count: int, groups: int) -> Samples:
    """Return room for samples."""
    return Samples(np.zeros((count, groups), np.int64), np.zeros(count), np.zeros(count))


@kernel
def draw(reach: FloatArray, rng: np.random.Generator, samples: Samples) -> None:
    """Draw the devices of all samples; `reach` [groups, K] has cumulative weights."""
    last = reach.shape[1] - 1
    for sample in range(len(samples.device)):
        for g in range(len(reach)):
            at, k = rng.random() * reach[g, last], 0
            while k < last and reach[g, k] <= at:
                k += 1
            samples.device[sample, g] = k


@inner
def _violation(t: SearchData, s: SearchState, possible: bool) -> float:
    """Return the violation of the current devices; edges are examined only if the evaluation found the state impossible."""
    inputs, slots, total, over = float(t.arrays.inputs), t.slots, 0.0, 0.0
    for k in range(len(s.used)):
        s.used[k] = 0.0
    for u in range(len(t.weight)):
        claim = t.weight[u] + t.activation[u] * inputs
        s.used[s.device[u * slots]] += claim
        total += claim
    for k in range(len(s.used)):
        over += max(0.0, s.used[k] - t.capacity[k])
    share = over / total if over > 0.0 else 0.0
    if possible:
        return share
    source, target, links, lost = t.arrays.source, t.arrays.target, t.arrays.links, 0
    for e in range(len(source)):
        h, k = s.device[t.unit[source[e]] * slots], s.device[t.unit[target[e]] * slots]
        lost += (links.transfers[e, h, k] if links.given else links.latency[h, k]) == np.inf
    return share + lost / len(source)


@kernel
def evaluate(t: SearchData, s: SearchState, group: IntArray, samples: Samples, begin: int, end: int) -> None:
    """Write the makespans and violations of the samples from `begin` to `end`; `group` [units] is the group of each unit.

    `s` has one slot of each unit, and the order of tasks.
    """
    for sample in range(begin, end):
        for u in range(len(group)):
            s.device[u * t.slots] = samples.device[sample, group[u]]
        makespan, _ = state_kernels.evaluate(t, s, 0, np.inf)
        samples.makespan[sample], samples.violation[sample] = makespan, _violation(t, s, makespan < np.inf)
