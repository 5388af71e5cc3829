"""Groups of tasks and their colours."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.analysis.modules import modules as modules_of_graph
from hetsched.report.groups import COLOURS, OTHER, groups, ink, modules
from tests.report.cases import diamond, schedules, stack

# Linear-light matrices of full colour blindness, from Machado, Oliveira and Fernandes (2009).
SIGHT = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def seen(colour: str, sight: str) -> np.ndarray:
    """Return the CIE Lab coordinates of a colour in a given colour vision."""
    srgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    x, y, z = (
        np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
        @ np.clip(np.array(SIGHT[sight]) @ linear, 0, 1)
    ) / [0.95047, 1.0, 1.08883]
    f = [t ** (1 / 3) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29 for t in (x, y, z)]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_the_colours_of_operators_differ_in_every_colour_vision(sight: str) -> None:
    for a, b in itertools.combinations([*COLOURS, OTHER], 2):
        assert np.linalg.norm(seen(a, sight) - seen(b, sight)) > 8, (a, b)


@given(schedules())
def test_every_task_has_one_group_with_a_colour(case: tuple[hs.Problem, hs.Schedule]) -> None:
    problem, schedule = case
    for colour_by in ("op", "module", "cut", [f"g{i % 9}" for i in range(problem.n_tasks)]):
        grouping = groups(problem, schedule, colour_by)
        assert len(grouping.of_task) == problem.n_tasks
        assert len(grouping.names) == len(grouping.colours) == len(set(grouping.names))
        assert set(grouping.of_task.tolist()) <= set(range(len(grouping.names)))


def test_operators_beyond_the_longest_seven_share_a_grey() -> None:
    problem, solution = stack(1, 20)
    assert solution.schedule is not None
    grouping = groups(problem, solution.schedule, [f"g{i}" for i in range(problem.n_tasks)])
    assert (grouping.names[-1], grouping.colours[-1]) == ("other", OTHER)
    assert len(grouping.names) == 8
    length = solution.schedule.batches.finish - solution.schedule.batches.start
    time = np.bincount(solution.schedule.batches.task, length)
    assert time[grouping.of_task < 7].min() >= time[grouping.of_task == 7].max()


def test_modules_are_the_fewest_leading_parts_that_distinguish_tasks() -> None:
    assert modules(["conv1/conv2d", "layer1.0.conv/conv2d", "layer1.0.relu", "layer2.conv"]) == ["conv1", "layer1", "layer1", "layer2"]
    assert modules([f"model.h.{i}.attn" for i in range(4)]) == [f"model.h.{i}" for i in range(4)]
    assert modules(["same.a", "same.b"]) == ["same.a", "same.b"]
    assert modules(["one", "two"]) == ["all", "all"]
    assert modules([]) == []


def test_neighbouring_modules_differ_and_go_from_dark_to_light() -> None:
    problem, solution = stack(12, 10)
    assert solution.schedule is not None
    grouping = groups(problem, solution.schedule, "module")
    assert grouping.names == tuple(f"m{i}" for i in range(12))
    light = [seen(colour, "full")[0] for colour in grouping.colours]
    assert light[::2] == sorted(light[::2])
    assert min(np.linalg.norm(seen(a, "full") - seen(b, "full")) for a, b in itertools.pairwise(grouping.colours)) > 10


def test_modules_of_the_graph_are_coloured_in_their_order_whatever_the_names() -> None:
    problem, _ = stack(12, 10)
    named = hs.Problem(
        hs.TaskGraph(map(str, range(problem.n_tasks)), problem.graph.edges), problem.cluster, durations=problem.durations[:, :, 0]
    )
    schedule = hs.solve(named, "heft").schedule
    assert schedule is not None
    grouping = groups(named, schedule, "cut")
    own = modules_of_graph(named.graph)
    assert grouping.names == tuple(f"module {m + 1}" for m in range(own.number))
    assert grouping.of_task.tolist() == own.of_task.tolist()
    assert grouping.title == "cut module"
    light = [seen(colour, "full")[0] for colour in grouping.colours]
    assert light[::2] == sorted(light[::2])


def test_ink_is_read_on_its_colour() -> None:
    assert ink("#F0E442") == "#000000"
    assert ink("#0072B2") == "#ffffff"


def test_bad_colour_by_is_refused() -> None:
    problem, solution = diamond()
    assert solution.schedule is not None
    with pytest.raises(hs.UnsupportedFeature, match="colour_by is 'device'; choose 'op', 'module', 'cut'"):
        groups(problem, solution.schedule, "device")
    with pytest.raises(hs.UnsupportedFeature, match="names 3 groups for 4 tasks"):
        groups(problem, solution.schedule, ["x", "y", "z"])
