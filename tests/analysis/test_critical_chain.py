"""The critical chain of schedules."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.analysis.critical_chain import critical_chain
from tests.report.cases import diamond, schedules, stack
from tests.resources import held_resources


@given(schedules())
def test_it_joins_time_zero_to_the_makespan_without_a_gap(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    chain = critical_chain(problem, schedule)
    assert chain.finish[-1] == schedule.makespan
    assert chain.start[0] == 0
    assert chain.waited_for[0] == "start"
    np.testing.assert_array_equal(chain.start[1:], chain.finish[:-1])


@given(schedules())
def test_every_step_follows_what_it_waited_for(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    batches, moves = schedule.batches, schedule.transfers
    chain = list(critical_chain(problem, schedule))
    for before, step in itertools.pairwise(chain):
        if step["waited_for"] == "device":
            assert batches.device[before["batch"]] == batches.device[step["batch"]]
            assert before["batch"] >= 0
        elif step["waited_for"] == "data" and step["transfer"] >= 0:
            assert moves.source[step["transfer"]] == before["batch"]
        elif step["waited_for"] == "data" and before["transfer"] >= 0:
            assert moves.target[before["transfer"]] == step["batch"]
        elif step["waited_for"] == "data":
            tasks = batches.task[before["batch"]], batches.task[step["batch"]]
            assert tasks in set(map(tuple, problem.graph.edges.tolist()))
        else:
            assert step["waited_for"] == "link"
            assert problem.links.contended
            both = [batches.device[[moves.source[row["transfer"]], moves.target[row["transfer"]]]].tolist() for row in (before, step)]
            one, other = (held_resources(problem.communication, problem.cluster, h, k) for h, k in both)
            assert one & other


def test_the_steps_of_a_diamond() -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    chain = critical_chain(problem, solution.schedule)
    assert chain.waited_for.tolist() == ["start", "data", "data", "data", "data"]
    assert chain.start.tolist() == pytest.approx([0, 2e-3, 3e-3, 7e-3, 8e-3])


def test_a_gap_of_a_foreign_schedule_is_left_open() -> None:
    problem, solution = stack(1, 10)
    assert solution.schedule is not None
    schedule = solution.schedule
    late = schedule.batches.replace(start=schedule.batches.start + 1.0, finish=schedule.batches.finish + 1.0)
    moves = schedule.transfers.replace(start=schedule.transfers.start + 1.0, finish=schedule.transfers.finish + 1.0)
    shifted = hs.Schedule.from_columns(schedule.tasks, schedule.devices, 1, late, schedule.item_ptr, schedule.items, moves)
    chain = critical_chain(problem, shifted)
    assert chain.start[0] == 1.0
    assert chain.waited_for[0] == "start"


def test_noise_that_the_check_forgives_breaks_no_chain() -> None:
    problem, solution = stack(4, 16, "channel")
    assert solution.schedule is not None
    schedule, rng = solution.schedule, np.random.default_rng(0)
    noise = 1e-11 * schedule.makespan
    batches, moves = (
        rows.replace(start=rows.start + (shift := rng.uniform(-noise, noise, len(rows))), finish=rows.finish + shift)
        for rows in (schedule.batches, schedule.transfers)
    )
    noisy = hs.Schedule.from_columns(schedule.tasks, schedule.devices, 1, batches, schedule.item_ptr, schedule.items, moves)
    assert hs.verify(problem, noisy) == []
    chain = critical_chain(problem, noisy)
    assert np.abs(chain.start[1:] - chain.finish[:-1]).max() <= 4 * noise
    assert chain.start[0] <= noise
    assert len(chain) == len(critical_chain(problem, schedule))


def test_an_empty_schedule_has_an_empty_chain() -> None:
    problem = hs.Problem(hs.TaskGraph([], []), hs.Cluster(["x"], bandwidth=1.0), durations=np.zeros((0, 1)))
    schedule = hs.simulate(problem, hs.Decision.from_assignment(problem, {}))
    assert len(critical_chain(problem, schedule)) == 0
