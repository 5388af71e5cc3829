"""Placements with offloaded items by search are those of the enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.chain import Offload, Offloading, evaluate
from hetsched.planning.dynamic_program import fewest_stages, find_latency, least_latency, least_missing, least_period
from hetsched.planning.incumbent import Incumbent
from hetsched.planning.offloading import least_offloaded, work
from hetsched.planning.offloading_kernels import least_costs
from hetsched.planning.planner import solved
from hetsched.planning.sensitivity import Best, next_memory_step, with_factor, with_memory, without_hops
from hetsched.stopping import Deadline
from hetsched.testing import best_placements, offloading_problems, placements
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples
from hetsched.verification.placement import verify_placement
from tests.planning.test_questions import box, sparse


@pytest.mark.slow
@examples(300)
@given(offloading_problems())
def test_the_least_latency_is_that_of_the_enumeration_for_each_number_of_stages(problem):
    found, best = least_latency(problem), best_placements(problem)
    for value, placement, wanted in zip(found.latency, found.placements, best.latency_by_stages, strict=False):
        assert value == wanted.value
        assert (placement is None) == (wanted.placement is None)
        if placement is not None:
            assert verify_placement(problem, placement, latency=value) == []
            assert evaluate(problem, placement).latency == value
    assert least_latency(problem, each=False).latency.min() == best.latency.value
    fewest = fewest_stages(problem)
    assert (fewest is None) == (best.latency.placement is None)
    assert least_latency(problem.replace(offloading=None)).latency.min() >= best.latency.value


@pytest.mark.slow
@examples(200)
@given(offloading_problems())
def test_the_least_missing_bytes_are_those_of_the_enumeration(problem):
    best = best_placements(problem)
    value, placement = least_offloaded(problem, missing=True)
    assert value == least_missing(problem) == best.missing_bytes.value
    if placement is not None:
        assert evaluate(problem, placement).all_missing_bytes == value
    assert (value == 0) == (best.latency.placement is not None)


@pytest.mark.slow
@examples(200)
@given(st.data())
def test_the_check_and_the_evaluation_agree_about_every_placement(data):
    problem = data.draw(offloading_problems())
    placement = data.draw(placements(problem))
    violations = verify_placement(problem, placement)
    wrong = {row.rule for row in violations} - {"item-time", "hop", "memory"}
    try:
        values = evaluate(problem, placement)
    except hs.InvalidSchedule:
        assert wrong
        return
    if wrong:
        assert (wrong, values.latency) == ({"offload"}, math.inf)
    elif not violations:
        assert verify_placement(problem, placement, latency=values.latency) == []
        assert values.fits
    assert sum(row.amount for row in violations if row.rule == "memory") == values.all_missing_bytes


@pytest.mark.slow
@examples(150)
@given(offloading_problems(), st.sampled_from([-0.25, 0.0, 3.0, math.inf]))
def test_what_is_known_prunes_but_loses_nothing(problem, above):
    best, told = best_placements(problem).latency.value, []
    incumbent = Incumbent(best + above, on_progress=told.append)
    find_latency([problem], incumbent)
    if above >= 0 and best < math.inf:
        assert verify_placement(problem, incumbent.placement, latency=best) == []
        assert incumbent.value == incumbent.bound == best
    else:
        assert incumbent.placement is None
    assert all(event.bound <= best for event in told)


@examples(100)
@given(offloading_problems(), st.integers(0, 40))
def test_a_search_that_ends_early_has_a_bound_below_the_best(problem, looks):
    best, clock = best_placements(problem).latency.value, SteppingClock(1.0)
    deadline, told = Deadline.after(looks, clock), []
    incumbent = Incumbent(deadline=deadline, on_progress=told.append)
    clock.looks.clear()  # it has noted the start
    try:
        find_latency([problem], incumbent)
    except hs.errors.OutOfTime:
        assert incumbent.bound <= best * (1 + 1e-9)
    else:
        assert incumbent.bound == incumbent.value == best
    assert incumbent.value >= best
    assert clock.late(deadline) <= 3 + len(told)  # progress reads the clock too
    assert [event.bound for event in told] == sorted(event.bound for event in told)


@pytest.mark.slow
def test_a_plan_that_ends_early_is_the_best_so_far_and_comes_back_from_its_document(tmp_path):
    best = hs.plan(sparse(5), box((8e5, 3e6), (8.0, 1.0)), hs.Workload(20, 5), tool="llama.cpp")
    assert best.placement.offloaded
    bounds = []
    for looks in range(2, 60, 3):
        plan = solved(best.question, deadline=Deadline.after(looks, SteppingClock(1.0)))
        bounds.append(plan.bound)
        assert plan.bound * (1 - 1e-9) <= best.value <= plan.value * (1 + 1e-9)
        plan.write(tmp_path / "plan.json")
        back = hs.read(tmp_path / "plan.json")
        assert (back.status, back.bound, back.placement, back.stopped) == (plan.status, plan.bound, plan.placement, plan.stopped)
    assert 0 < bounds[0] < bounds[-1] == best.value
    assert (plan.status, plan.stopped) == ("optimal", "finished")
    with pytest.raises(hs.errors.OutOfTime):
        best.within(Deadline.after(3, SteppingClock(1.0))).most_context()


@examples(50)
@given(offloading_problems(), st.integers(0, 2), st.integers(1, 8))
def test_more_memory_never_makes_it_worse(problem, device, more):
    memory = problem.memory_bytes.copy()
    memory[device % problem.n_devices] += more
    assert least_offloaded(problem.replace(memory_bytes=memory))[0] <= least_offloaded(problem)[0]


def test_the_least_number_of_alike_items_that_fits_is_offloaded_and_the_first_of_them_are():
    n, moved = 60, 9.0
    offloading = Offloading([moved] * n, np.ones((n, 2)), [[math.inf, 4.0]] * n)
    seconds = np.ones((n, 2)) * [1.0, 50.0]
    problem = hs.ChainProblem(map(str, range(n)), ["gpu", "cpu"], seconds, weight_bytes=[10.0] * n, memory_bytes=[300, 1000],
                              offloading=offloading)  # fmt: skip
    value, placement = least_offloaded(problem)
    least = math.ceil((600 + moved - 300) / moved)
    assert placement.stages == ((0, 0, n),)
    assert placement.offloaded == tuple(Offload(item, 1) for item in range(least))
    assert value == n + 4 * least
    assert work(problem) < 1e6
    alone = problem.replace(memory_bytes=[300, 9 * least - 1])  # the holder lacks a byte, so that it runs an item too
    assert least_offloaded(alone)[0] > value


@pytest.mark.slow
def test_what_holds_weights_of_several_stages_has_room_for_all():
    """Alone each stage would offload more than the holder has room for; the faster placement needs the more of it."""
    n = 5
    offloading = Offloading([4.0, 3.0] * 2 + [4.0], np.ones((n, 3)), [[math.inf, math.inf, 1.0]] * n)
    seconds = np.ones((n, 3)) * [1.0, 3.0, math.inf]
    problem = hs.ChainProblem("abcde", "xyz", seconds, weight_bytes=[5.0] * n, offloading=offloading)
    values = []
    for memory in range(5, 13):
        less = problem.replace(memory_bytes=[12, 10, memory])
        best = best_placements(less)
        values.append(least_offloaded(less)[0])
        assert values[-1] == best.latency.value
        assert least_missing(less) == best.missing_bytes.value
    assert values == [math.inf] * 2 + [11.0] * 3 + [10.0, 8.0, 8.0]


def solve(problems):
    return Best(*least_offloaded(problems[0]))


@examples(40)
@given(offloading_problems(), st.integers(0, 2))
def test_the_value_falls_at_the_memory_step_and_not_before(problem, device):
    device %= problem.n_devices
    step = next_memory_step((problem,), device, solve)
    now, memory = least_offloaded(problem)[0], problem.memory_bytes[device]
    if step is None:
        assert least_offloaded(with_memory((problem,), device, math.inf)[0])[0] == now
    else:
        assert step.best.value == least_offloaded(with_memory((problem,), device, step.memory_bytes)[0])[0] < now
        assert least_offloaded(with_memory((problem,), device, step.memory_bytes - 1)[0])[0] == now
        assert step.memory_bytes > memory


@examples(40)
@given(offloading_problems(), st.integers(0, 2), st.sampled_from([0.5, 2.0]))
def test_times_of_a_device_and_of_links_are_changed_in_all_places(problem, device, factor):
    device %= problem.n_devices
    placement = least_offloaded(problem)[1]
    if placement is None:
        return
    everywhere = problem
    for k in range(problem.n_devices):
        everywhere = with_factor(everywhere, k, factor)
    hops = {name: getattr(problem, name) * factor for name in ("hops", "closing")}
    everywhere = everywhere.replace(**hops, offloading=everywhere.offloading.scaled(links=factor))
    assert evaluate(everywhere, placement).latency == factor * evaluate(problem, placement).latency
    assert evaluate(problem.scaled(factor), placement).latency == factor * evaluate(problem, placement).latency
    used = {stage.device for stage in placement.stages} | {k for _, k in placement.offloaded}
    changed = evaluate(with_factor(problem, device, 2.0), placement).latency - evaluate(problem, placement).latency
    assert 0 <= changed <= evaluate(problem, placement).latency * (device in used)
    (free,) = without_hops((problem,))
    assert evaluate(free, placement).latency <= evaluate(problem, placement).latency


WRONG = [
    (lambda: Offloading([1.0], [[1.0, 1.0]], [[1.0]]), r"held_seconds has shape \[1, 1\]; it must be \[1, 2\]"),
    (lambda: Offloading([-1.0], [[1.0]], [[1.0]]), r"weight_bytes\[0\] is -1.0; it must be 0 or a number"),
    (lambda: chain([3.0, 0.0]), "offloading moves 3 bytes of item 'a', which has 2; it must be at most those"),
    (lambda: chain([1.0, 0.0, 0.0]), r"offloading is for \(3, 2\) items and devices; those of seconds are \(2, 2\)"),
    (lambda: chain([1.0, 0.0], shared_bytes=1.0), "the first and the last item share weights, so neither may be offloaded"),
    (lambda: chain([1.0, 0.0], overlapped_seconds=np.ones((2, 2))), "times overlap, which those of offloaded items never do"),
    (lambda: chain([1.0, 1.0]).merged([0]), "an item that may be offloaded would be one with another; give it"),
    (lambda: evaluate(chain([1.0, 0.0]), hs.Placement([(0, 0, 2)], [(1, 1)])), r"offloads items \[1\]; offload each once at most"),
    (lambda: evaluate(chain([1.0, 0.0]), hs.Placement([(0, 0, 2)], [(0, 0)])), "has weights of item 0 on device 0; they are on another"),
    (lambda: evaluate(chain([2.0, 2.0]), hs.Placement([(0, 0, 2)], [(0, 1), (1, 1)])), "offloads all weights of a stage; it has to"),
    (lambda: evaluate(chain([1.0, 1.0], first=True), hs.Placement([(0, 0, 1), (1, 1, 2)], [(1, 0)])), "offloads item 1 of a later stage"),
    (lambda: hs.Placement([(0, 0, 1)], [(0, "x")]), r"device of offloaded\[0\] is 'x'"),
]  # fmt: skip


def chain(moved, first=False, **columns):
    offloading = Offloading(moved, np.ones((len(moved), 2)), np.ones((len(moved), 2)), only_first=first)
    return hs.ChainProblem("ab", "xy", np.ones((2, 2)), weight_bytes=[2.0, 2.0], offloading=offloading, **columns)


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_values(call, message):
    with pytest.raises(hs.HetschedError, match=message):
        call()


def test_messages():
    offloading = Offloading([1.0, 0.0], np.ones((2, 2)), np.ones((2, 2)))
    problem = hs.ChainProblem("ab", "xy", np.ones((2, 2)), weight_bytes=[2.0, 2.0], offloading=offloading)
    with pytest.raises(hs.UnsupportedFeature, match="items may be offloaded, which is searched for the latency alone"):
        least_period(problem)
    with pytest.raises(hs.UnsupportedFeature, match="give no cap"):
        least_latency(problem, cap=1.0)


def test_kernels_are_not_compiled_when_little_time_is_left(monkeypatch):
    monkeypatch.setattr("hetsched.compiled.Kernel._may_interpret", lambda self, args: False)
    monkeypatch.setattr("hetsched.compiled.Kernel._on_disk", lambda self, args: False)
    monkeypatch.setattr(least_costs, "_compiled", False)
    with pytest.raises(hs.errors.OutOfTime, match="no time to be compiled; allow more time, or run `hetsched prepare`"):
        least_offloaded(chain([1.0, 0.0]), deadline=Deadline.after(5.0))


def returning(memory=(12, 12, 12)):
    """Two GPUs and a holder: the last two items may be held by it, and are run by the first one."""
    offloading = Offloading([0, 0, 0, 5, 5], np.ones((5, 3)), [[math.inf, math.inf, 1.0]] * 5, only_first=True)
    seconds = np.array([[1.0, 2.0, math.inf]] * 5)
    hops = np.array([[0, 3, 9], [4, 0, 9], [9, 9, 0]])
    problem = hs.ChainProblem("abcde", "xyz", seconds, weight_bytes=[5] * 5, cache_bytes=[1] * 5, workspace_bytes=[1] * 5, hops=hops,
                              closing=hops * 100, memory_bytes=memory, offloading=offloading)  # fmt: skip
    return problem, hs.Placement([(0, 0, 1), (1, 1, 3), (0, 3, 5)], [(3, 2), (4, 2)])


def test_requests_return_to_the_device_of_the_first_stage_for_items_that_are_all_offloaded():
    """5 + 1 bytes and 2 of the cache of d and e, and room for one of them that passes through beside its workspace: 14."""
    problem, placement = returning()
    found = evaluate(problem, placement)
    assert found.latency == (1 + 3 + 4 + 4) + 2 * (1 + 1)  # no hop closes
    assert found.stage_bytes.tolist() == [14, 13, 0]
    assert found.all_missing_bytes == 2 + 1
    assert [(row.rule, row.amount) for row in verify_placement(problem, placement)] == [("memory", 2), ("memory", 1)]
    problem, _ = returning((14, 13, 10))
    assert verify_placement(problem, placement, latency=found.latency) == []
    assert [row.rule for row in verify_placement(returning((14, 13, 9))[0], placement)] == ["memory"]
    part = hs.Placement(placement.stages, [(3, 2)])
    assert "one-stage" in [row.rule for row in verify_placement(problem, part)]
    with pytest.raises(hs.InvalidSchedule, match="each stage has a device of its own"):
        evaluate(problem, part)
    experts = problem.replace(offloading=Offloading([0, 0, 0, 5, 5], np.ones((5, 3)), [[math.inf, math.inf, 1.0]] * 5))
    assert "one-stage" in [row.rule for row in verify_placement(experts, placement)]
    with pytest.raises(hs.InvalidSchedule, match="has two stages on device 0; each stage has a device of its own"):
        evaluate(experts, placement)
