"""Adversaries: ratios are exact, problems are of their families, and no ratio is above what theory allows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.testing import Adversary, Family, adversary, brute_force
from hetsched.testing.profiles import examples

GRAPHS = ("free", "chains", "out-tree", "fork-join", "independent")
families = st.builds(
    Family,
    tasks=st.integers(1, 5),
    devices=st.integers(1, 3),
    kind=st.sampled_from(("identical", "related", "unrelated")),
    communication=st.booleans(),
    graph=st.sampled_from(GRAPHS),
    largest=st.integers(1, 20),
)


def is_of(family: Family, problem: hs.Problem) -> bool:
    """Whether a problem is of a family, by the words of its docstring."""
    graph, durations = problem.graph, problem.durations[:, :, 0]
    parents, children = np.diff(graph.pred_ptr), np.diff(graph.succ_ptr)
    n, last = problem.n_tasks, problem.n_tasks - 1
    shapes = {
        "free": True,
        "chains": (parents <= 1).all() and (children <= 1).all(),
        "out-tree": (parents <= 1).all(),
        "fork-join": n < 2
        or {tuple(sorted(e)) for e in graph.edges.tolist()} == {(0, j) for j in range(1, last)} | {(i, last) for i in range(1, last)},
        "independent": graph.n_edges == 0,
    }
    speeds = durations / durations[:, :1]
    kinds = {
        "identical": (speeds == 1).all(),
        "related": np.isin(speeds, (0.25, 0.5, 1, 2, 4)).all() and (speeds == speeds[0]).all(),
        "unrelated": True,
    }
    sizes = graph.edge_bytes
    numbers = (durations >= 1).all() and (durations <= 4 * family.largest).all() and (durations % 1 == 0).all() and (sizes % 1 == 0).all()
    bytes_fit = (sizes <= (family.largest if family.communication else 0)).all()
    return bool(
        n <= family.tasks and problem.n_devices == family.devices and shapes[family.graph] and kinds[family.kind] and numbers and bytes_fit
    )


@examples(12)
@given(st.sampled_from(("heft", "cpop", "etf", "olb", "min-min")), families, st.integers(0, 3))
def test_the_ratio_is_that_of_the_scheduler_to_the_optimum(scheduler, family, seed):
    found = adversary(scheduler, family, evaluations=10, seed=seed)
    assert is_of(family, found.problem)
    assert found.schedule.makespan == hs.solve(found.problem, scheduler).makespan
    assert found.optimal.makespan == brute_force(found.problem).makespan
    assert found.ratio == Fraction(found.schedule.makespan) / Fraction(found.optimal.makespan) >= 1
    assert hs.verify(found.problem, found.schedule) == hs.verify(found.problem, found.optimal) == []


@examples(3)
@given(families, st.integers(0, 3))
def test_the_same_seed_finds_the_same_problem(family, seed):
    one, other = (adversary("heft", family, evaluations=10, seed=seed) for _ in range(2))
    assert one.ratio == other.ratio
    assert one.problem == other.problem


def test_what_was_found_is_as_simple_as_it_is_bad():
    found = adversary("met", Family(tasks=3, devices=2, communication=False, largest=3), evaluations=100)
    assert found.certificate.value == found.optimal.makespan
    assert found.ratio == 2  # the sum of what the fastest device does, on two devices
    assert found.problem.n_tasks == 2
    assert found.problem.durations.max() == 1.0


@pytest.mark.slow
def test_every_worse_problem_is_told_and_the_search_can_be_ended():
    told: list[Adversary] = []
    adversary("olb", Family(tasks=4), evaluations=60, on_progress=told.append)
    assert [found.ratio for found in told] == sorted({found.ratio for found in told})
    assert len(told) > 1
    ended = adversary("olb", Family(tasks=4), evaluations=60, on_progress=lambda found: True)
    assert ended.ratio >= told[0].ratio


def test_a_scheduler_of_ones_own():
    def all_on_the_first(problem: hs.Problem) -> hs.Schedule:
        return hs.simulate(problem, hs.Decision(problem.graph.topological_order, np.zeros(problem.n_tasks, np.int64)))

    found = adversary(all_on_the_first, Family(tasks=2, devices=2, kind="identical", communication=False, largest=2), evaluations=50)
    assert found.ratio == 2


def test_a_scheduler_that_fails_is_told_with_its_error():
    def broken(problem: hs.Problem) -> hs.Schedule:
        raise KeyError("rank")

    with pytest.raises(
        hs.InvalidArgument, match=r"the scheduler fails on a problem of \d+ tasks? on \d+ devices?: KeyError: 'rank'"
    ) as caught:
        adversary(broken, Family(tasks=3, devices=2), evaluations=5)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_invalid_schedule_is_an_error():
    def of_another_problem(problem: hs.Problem) -> hs.Schedule:
        faster = problem.replace(durations=problem.durations / 2)
        return hs.simulate(faster, hs.Decision(problem.graph.topological_order, np.zeros(problem.n_tasks, np.int64)))

    with pytest.raises(hs.InvalidSchedule, match="the scheduler returned a schedule that breaks a rule of its problem: "):
        adversary(of_another_problem, Family(tasks=2), evaluations=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "family", "most"),
    [
        ("etf", Family(devices=2, kind="identical", communication=False), Fraction(3, 2)),
        ("etf", Family(devices=3, kind="identical", communication=False), Fraction(5, 3)),
        ("hlfet", Family(devices=3, kind="identical", communication=False), Fraction(5, 3)),
        ("heft", Family(devices=2, kind="identical", communication=False, graph="independent"), Fraction(7, 6)),
        ("heft", Family(devices=3, kind="identical", communication=False, graph="independent"), Fraction(11, 9)),
        ("met", Family(devices=3, communication=False), Fraction(3)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_no_ratio_is_above_what_is_proven(scheduler, family, most):
    """Graham 1966, 1969: 2 - 1/m for schedules in which no device waits while a task is ready, 4/3 - 1/(3m) by longest times first.

    The devices of least times are at most the sum of m loads, each of them at most the optimum.
    """
    found = adversary(scheduler, family, evaluations=600, seed=1)
    assert 1 < found.ratio <= most


def test_a_scheduler_whose_times_are_rounded_is_judged_by_its_decisions():
    def rounded(problem: hs.Problem) -> hs.Schedule:
        faster = problem.replace(durations=problem.durations * (1 - 3e-10))
        return hs.simulate(faster, hs.solve(problem, "cpop").schedule.decision)

    found = adversary(rounded, Family(tasks=3, devices=2, communication=False), evaluations=5)
    assert found.ratio.denominator <= 60
    assert found.schedule.makespan % 1 == 0
