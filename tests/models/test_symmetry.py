"""The option `symmetry` of the exact methods, and of `split`, which solves modules by them."""

from __future__ import annotations

import re
from typing import Any

import pytest

import hetsched as hs
from hetsched.models import methods
from hetsched.workloads import clusters

EXACT = ("milp", "milp:highs", "cpsat")
CRITERIA = (None, "batches", "tasks", "time")


def blocks(layers: int) -> hs.Problem:
    """Return blocks of GPT-3 on a node with twins."""
    graph = hs.workloads.gpt3("6.7B", layers=layers)
    return hs.Problem(graph, clusters.diviml_nodes(nodes=1), costs=hs.costs.Roofline(dtype="float16"))


@pytest.mark.parametrize("method", EXACT)
def test_no_criterion_changes_the_optimum(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    criteria: list[Any] = []
    problem = blocks(1)

    class Noted(methods.fitting(problem)):  # type: ignore[misc]
        def __init__(self, problem: hs.Problem, **options: Any) -> None:
            criteria.append(options["symmetry"])
            super().__init__(problem, **options)

    monkeypatch.setattr(methods, "fitting", lambda _: Noted)
    solutions = [hs.solve(problem, method, time_limit=60, options={"symmetry": criterion}) for criterion in CRITERIA]
    solutions.append(hs.solve(problem, method, time_limit=60))
    assert criteria == [*CRITERIA, "tasks"]
    assert {solution.status for solution in solutions} == {hs.Status.OPTIMAL}
    assert [solution.makespan for solution in solutions] == pytest.approx([solutions[0].makespan] * 5, rel=1e-6)


@pytest.mark.parametrize("method", EXACT)
def test_an_unknown_criterion_is_refused(method: str) -> None:
    with pytest.raises(hs.UnsupportedFeature, match="unknown criterion 'size' for symmetries; choose from batches, tasks, time"):
        hs.solve(blocks(1), method, options={"symmetry": "size"})


@pytest.mark.slow
def test_split_proves_the_same_with_any_criterion_for_symmetries() -> None:
    problem = blocks(2)
    options = [{"solver": "cpsat", "symmetry": criterion, "workers": 1} for criterion in CRITERIA]
    solutions = [hs.solve(problem, "split", time_limit=60, options=solution) for solution in options]
    assert {solution.status for solution in solutions} == {hs.Status.OPTIMAL}
    assert [solution.makespan for solution in solutions] == pytest.approx([solutions[0].makespan] * 4, rel=1e-6)
    none, *ordered = (int(re.search(r"of (\d+) pairs", solution.proof.evidence)[1]) for solution in solutions)
    assert none > 2 * max(ordered), "alike pairs of devices are looked into once"
