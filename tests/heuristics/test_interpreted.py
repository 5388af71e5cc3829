"""Kernels in the interpreter: the answers are those of the compiled code, to the bit."""

from __future__ import annotations

import pytest
from hypothesis import given

import hetsched as hs
from hetsched.analysis.levels import Levels
from hetsched.compiled import interpreter
from hetsched.search import Kind, select
from hetsched.testing import problems
from hetsched.testing.profiles import examples


@pytest.mark.slow
@pytest.mark.parametrize("name", [method.name for method in select(kind=Kind.CONSTRUCTIVE)])
@examples(20)
@given(problem=problems())
def test_constructive_methods(name: str, problem: hs.Problem) -> None:
    def answer() -> tuple[hs.Solution | None, str]:
        try:
            solution = hs.solve(problem.replace(), name)
        except hs.HetschedError as error:
            return None, str(error)
        return solution, str(solution.messages)

    compiled = answer()
    with interpreter():
        interpreted = answer()
    assert interpreted[1] == compiled[1]
    if compiled[0] is not None and interpreted[0] is not None:
        assert (interpreted[0].schedule, interpreted[0].status) == (compiled[0].schedule, compiled[0].status)


@examples(40)
@given(problem=problems())
def test_levels_and_simulation(problem: hs.Problem) -> None:
    levels, schedule = Levels(problem), hs.solve(problem, "best-device").schedule
    with interpreter():
        same, copy = Levels(problem), problem.replace()
        assert same.starts.tobytes() == levels.starts.tobytes()
        assert same.tails.tobytes() == levels.tails.tobytes()
        assert (copy.graph.topological_order == problem.graph.topological_order).all()
        if schedule is not None:
            assert hs.simulate(copy, schedule.decision) == schedule
