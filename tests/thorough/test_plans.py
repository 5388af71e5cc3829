"""Searches of chains on a thousand random problems each: the best of the enumeration, or a bound below and a value above it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from hetsched.chain.problem import ChainProblem
from hetsched.planning.dynamic_program import find_latency, find_period, least_missing
from hetsched.planning.incumbent import Incumbent
from hetsched.planning.local_search import find_near
from hetsched.testing.chains import best_placements
from tests.thorough.conftest import Cases


def drawn(rng: np.random.Generator) -> ChainProblem:
    """Return a chain of up to 7 items on up to 4 devices, with hops by pair, of times that are multiples of 1/2."""
    n, m = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    kinds = rng.integers(0, m, m) if rng.random() < 0.5 else np.arange(m)
    hops, closing = (rng.integers(0, 7, (m, m))[np.ix_(kinds, kinds)] / 2 for _ in range(2))
    weights, workspace = rng.integers(0, 7, n), rng.integers(0, 7, n) * (rng.random() < 0.5)
    memory = rng.integers(0, weights.sum() + 7, m)[kinds] if rng.random() < 0.7 else np.full(m, np.inf)
    seconds = (rng.integers(0, 13, (n, m)) / 2)[:, kinds]
    return ChainProblem(
        [f"i{i}" for i in range(n)],
        [f"d{k}" for k in range(m)],
        seconds,
        weight_bytes=weights,
        workspace_bytes=workspace,
        memory_bytes=memory,
        stage_seconds=(rng.integers(0, 7, m) / 2)[kinds],
        hops=hops,
        closing=closing,
        overlapped_seconds=seconds * rng.choice([0.0, 0.5]),
        shared_bytes=float(rng.integers(0, min(weights[0], weights[-1]) + 1)) if n > 1 else 0.0,
        most_in_progress=int(rng.integers(1, 5)) if rng.random() < 0.5 else None,
    )


@pytest.mark.thorough(cases=1000)
@pytest.mark.parametrize("find", [find_latency, find_period])
def test_searches_find_the_best_of_the_enumeration(cases: Cases, find: Callable[..., None]) -> None:
    for rng in cases:
        problem, incumbent = drawn(rng), Incumbent()
        find([problem], incumbent)
        best = best_placements(problem)
        assert incumbent.value == (best.latency if find is find_latency else best.period).value


@pytest.mark.thorough(cases=1000)
def test_what_fits_and_what_is_missing_are_those_of_the_enumeration(cases: Cases) -> None:
    for rng in cases:
        problem = drawn(rng)
        assert least_missing(problem) == best_placements(problem).missing_bytes.value


@pytest.mark.thorough(cases=1000)
@pytest.mark.parametrize("by_period", [False, True])
def test_the_best_is_between_bound_and_value_of_the_local_search(cases: Cases, by_period: bool) -> None:
    for rng in cases:
        problem, incumbent = drawn(rng), Incumbent()
        find_near([problem], incumbent, by_period=by_period)
        best = best_placements(problem)
        wanted = (best.period if by_period else best.latency).value
        assert incumbent.bound <= wanted * (1 + 1e-9)
        assert incumbent.value >= wanted * (1 - 1e-9)
        assert incumbent.value == math.inf or wanted < math.inf
