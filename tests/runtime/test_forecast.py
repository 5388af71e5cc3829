"""Forecasts: the times of `simulate` without overheads, and known cases of each overhead by hand."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import Machine, Overhead
from hetsched.runtime import forecast
from hetsched.runtime.plan import Value
from hetsched.testing import numbers, problems
from hetsched.testing.profiles import examples
from tests.runtime.test_plan import planned, values_of

SECONDS = numbers(largest=2)


def overheads(**fixed):
    """Return a strategy for the overhead of a device."""
    parts = {
        "dispatch": SECONDS,
        "host": st.sampled_from([None, "p", "q"]),
        "dispatch_python": SECONDS,
        "send": st.tuples(SECONDS, SECONDS),
        "receive": st.tuples(SECONDS, SECONDS),
        "busy": st.sampled_from([1.0, 1.25, 2.0]),
        "gather": st.tuples(SECONDS, SECONDS),
    }
    return st.builds(Overhead, **(parts | {name: st.just(value) for name, value in fixed.items()}))


@st.composite
def machines(draw, problem, once=None, **fixed):
    """Draw a machine with overheads of the devices of a problem."""
    own = {name: draw(overheads(**fixed)) for name in problem.cluster.names}
    return Machine(own, once=draw(st.booleans()) if once is None else once)


@pytest.mark.slow
@given(planned())
@examples(600)
def test_without_overheads_the_times_are_those_of_simulate(case):
    problem, decision = case
    schedule, forecasted = hs.simulate(problem, decision), forecast(problem, decision).schedule
    assert forecasted.batches == schedule.batches
    assert forecasted.transfers == schedule.transfers
    assert forecasted.makespan == schedule.makespan


@pytest.mark.slow
@given(planned(communication=st.sampled_from(["delay", "per-input"])), st.data())
@examples(300)
def test_overheads_never_shorten_a_run_whose_transfers_do_not_contend(case, data):
    problem, decision = case
    values = data.draw(st.none() | values_of(problem.graph))
    ideal = hs.simulate(problem, decision)
    machine = data.draw(machines(problem, None if values is None else False, host=None))
    late = forecast(problem, decision, machine, values=values).schedule
    assert (late.batches.start >= ideal.batches.start - 1e-9).all()
    assert late.makespan >= ideal.makespan - 1e-9


@pytest.mark.slow
@given(planned(memory="static", tight=False), st.data())
@examples(300)
def test_a_forecast_verifies_against_the_problem_with_its_times(case, data):
    problem, decision = case
    values = data.draw(st.none() | values_of(problem.graph))
    timeline = forecast(problem, decision, data.draw(machines(problem)), values=values)
    assert hs.verify(timeline.problem(problem), timeline.schedule) == []
    assert not timeline.measured


@pytest.mark.slow
@given(planned(communication="delay", transfers=False), st.data())
@examples(200)
def test_dispatch_is_exactly_that_of_the_nearest_problem(case, data):
    problem, decision = case
    machine = Machine({name: Overhead(dispatch=data.draw(SECONDS)) for name in problem.cluster.names})
    late, nearest = forecast(problem, decision, machine).schedule, hs.simulate(machine.problem(problem), decision)
    assert (late.batches.finish == nearest.batches.finish).all()


@pytest.mark.slow
@given(planned(communication="delay"), st.data())
@examples(200)
def test_sends_and_receptions_delay_no_less_than_those_of_the_nearest_problem(case, data):
    problem, decision = case
    lasting = problem.durations[decision.task, decision.device, np.searchsorted(problem.batch_sizes, decision.sizes)] > 0
    machine = data.draw(machines(problem, False, host=None, busy=1.0))
    late, nearest = forecast(problem, decision, machine).schedule, hs.simulate(machine.problem(problem), decision)
    if lasting.all():  # batches of zero length pay nothing, but a problem cannot say so
        assert (late.batches.finish >= nearest.batches.finish - 1e-9).all()


def test_messages_that_are_ready_at_once_start_in_the_order_of_their_batches():
    """Edge 0 is that of the second batch: the first batch sends first all the same."""
    graph = hs.TaskGraph(list("abcd"), np.array([(1, 2), (0, 3)]), edge_bytes=[2.0, 3.0])
    problem = hs.Problem(graph, hs.Cluster(["x", "y", "z"], bandwidth=1.0), durations=np.ones((4, 3)), communication="port")
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "z", "d": "z"}, list("abdc"))
    timeline = forecast(problem, decision)
    assert times(timeline) == {"a": (0, 1), "b": (0, 1), "d": (4, 5), "c": (6, 7)}
    assert timeline.schedule.batches == hs.simulate(problem, decision).batches


def problem_of(durations, edges, nodes=("", ""), **arguments):
    names = [chr(ord("a") + i) for i in range(len(durations))]
    cluster = hs.Cluster([hs.Device(name, node=node) for name, node in zip("xy", nodes, strict=True)], bandwidth=8.0)
    return hs.Problem(hs.TaskGraph(names, edges), cluster, durations=np.repeat(np.array(durations, float)[:, None], 2, 1), **arguments)


def times(timeline):
    schedule = timeline.schedule
    return {name: (schedule.start(name), schedule.finish(name)) for name in schedule.tasks}


def test_a_device_computes_nothing_while_it_dispatches_sends_and_receives():
    problem = problem_of([2, 3, 1], [("a", "b", 8.0)])
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "x"}, ["a", "c", "b"])
    machine = Machine({"x": Overhead(dispatch=0.25, send=(0.5, 0.125)), "y": Overhead(receive=(0.25, 0.25))})
    timeline = forecast(problem, decision, machine)
    # a: dispatched by 0.25. Sent from 2.25 for 0.5 + 8/8 s, on the link for 1 s, read for 0.25 + 8/4 s.
    assert times(timeline) == {"a": (0.25, 2.25), "c": (4.0, 5.0), "b": (7.0, 10.0)}
    assert timeline.schedule.transfers.start.tolist() == [3.75]
    assert timeline.schedule.transfers.finish.tolist() == [4.75]
    assert timeline.waited.tolist() == [0.0, 0.0, 4.75]
    assert hs.simulate(machine.problem(problem), decision).finish("b") == 2.25 + (0.5 + 1) + 1 + (0.25 + 2) + 3


def test_inputs_of_several_batches_are_put_together_before_the_batch_that_reads_them():
    problem = problem_of([2, 3], [("a", "b", 8.0)]).replace(durations=np.full((2, 2, 2), 2.0), batch_sizes=[1, 2], inputs=2)
    decision = hs.Decision.from_batches(problem, [("a", "x", [0]), ("a", "y", [1]), ("b", "y", [0, 1])])
    timeline = forecast(problem, decision, Machine({"y": Overhead(gather=(0.5, 0.25))}))
    # The input of x is there at 3; 0.5 s and 0.25 s for each of 16 bytes.
    assert timeline.schedule.batches.start.tolist() == [0.0, 0.0, 7.5]
    assert timeline.gathered.tolist() == [0.0, 0.0, 4.5]
    assert timeline.waited.tolist() == [0.0, 0.0, 1.0]


def test_batches_of_zero_length_pay_nothing():
    problem = problem_of([0, 3], [("a", "b", 8.0)])
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y"})
    timeline = forecast(problem, decision, Machine({"x": Overhead(dispatch=1.0, send=(1.0, 1.0), host="p", dispatch_python=5.0)}))
    assert times(timeline) == {"a": (0.0, 0.0), "b": (1.0, 4.0)}


def test_an_interpreter_dispatches_one_batch_at_a_time():
    problem = problem_of([4, 4, 1], [])
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "y"}, ["a", "b", "c"])
    own = Overhead(host="python", dispatch_python=1.0)
    assert times(forecast(problem, decision, Machine({"x": own, "y": own}))) == {"a": (1, 5), "b": (2, 6), "c": (7, 8)}
    apart = Machine({"x": own, "y": Overhead(host="other", dispatch_python=1.0)})
    assert times(forecast(problem, decision, apart)) == {"a": (1, 5), "b": (1, 5), "c": (6, 7)}


def test_busy_devices_of_a_node_slow_each_other_while_both_compute():
    decision_of = {"a": "x", "b": "y"}
    busy = Machine({"x": Overhead(busy=1.5), "y": Overhead(busy=2.0)})
    for nodes, expected in ((("n", "n"), {"a": (0, 3), "b": (0, 5.5)}), (("n", "m"), {"a": (0, 2), "b": (0, 4)})):
        problem = problem_of([2, 4], [], nodes)
        # Together: a does 2 s in 3; b does 1.5 in these 3 s, and the 2.5 s left alone.
        assert times(forecast(problem, hs.Decision.from_assignment(problem, decision_of), busy)) == expected
    problem = problem_of([2, 4], [])
    same = Machine({"x": Overhead(busy=1.5, host="p"), "y": Overhead(busy=2.0, host="p")})
    assert times(forecast(problem, hs.Decision.from_assignment(problem, decision_of), same)) == {"a": (0, 3), "b": (0, 5.5)}


def test_a_value_crosses_once_if_the_machine_says_so():
    problem = problem_of([1, 1, 1], [("a", "b", 8.0), ("a", "c", 8.0)], communication="port")
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y", "c": "y"}, ["a", "b", "c"])
    value = [Value(0, "t", 8.0, (1, 2))]
    assert times(forecast(problem, decision, values=value)) == {"a": (0, 1), "b": (2, 3), "c": (3, 4)}
    machine = Machine({"y": Overhead(receive=(1.0, 0.0))}, once=True)
    once = forecast(problem, decision, machine, values=value)
    assert times(once) == {"a": (0, 1), "b": (3, 4), "c": (4, 5)}
    assert once.shipment.tolist() == [0, 0]
    assert once.schedule.transfers.finish.tolist() == [2, 2]
    by_edge = forecast(problem, decision, Machine({"y": Overhead(receive=(1.0, 0.0))}), values=value)
    assert times(by_edge) == {"a": (0, 1), "b": (3, 4), "c": (5, 6)}


def test_two_values_of_an_edge_take_their_own_times():
    problem = problem_of([1, 1], [("a", "b", 16.0)])
    decision = hs.Decision.from_assignment(problem, {"a": "x", "b": "y"})
    values = [Value(0, "s", 4.0, (1,)), Value(0, "t", 12.0, (1,))]
    timeline = forecast(problem, decision, Machine(once=True), values=values)
    assert times(timeline) == {"a": (0, 1), "b": (2.5, 3.5)}
    assert hs.simulate(problem, decision).makespan == 4
    explicit = problem.replace(transfers=[[[0, 3], [3, 0]]])  # each value its part of 3 s
    assert times(forecast(explicit, decision, Machine(once=True), values=values)) == {"a": (0, 1), "b": (2.5, 3.5)}


def test_a_value_holds_the_first_place_of_its_edges_in_the_order_of_transfers():
    problem = problem_of([1, 1, 1, 1, 1], [("a", "c", 8.0), ("a", "e", 8.0), ("b", "d", 8.0)], communication="channel")
    batches = [("b", "x", [0]), ("a", "x", [0]), ("c", "y", [0]), ("d", "y", [0]), ("e", "y", [0])]
    rows = [(("a", "c"), 1, 2), (("b", "d"), 0, 3), (("a", "e"), 1, 4)]
    decision = hs.Decision.from_batches(problem, batches, transfers=rows)
    values = [Value(0, "s", 8.0, (2, 4)), Value(1, "t", 8.0, (3,))]
    # b is ready first, but its value is behind that of a: 2 to 3 s, and 3 to 4 s.
    once = forecast(problem, decision, Machine(once=True), values=values)
    assert times(once) == {"b": (0, 1), "a": (1, 2), "c": (3, 4), "d": (4, 5), "e": (5, 6)}
    assert times(forecast(problem, decision, values=values)) == {"b": (0, 1), "a": (1, 2), "c": (3, 4), "d": (4, 5), "e": (5, 6)}


def test_the_nearest_problem_has_the_overheads_in_its_links_or_transfers():
    machine = Machine({"x": Overhead(send=(0.5, 0.125)), "y": Overhead(receive=(0.25, 0.0))})
    problem = problem_of([1, 1], [("a", "b", 8.0)], inputs=4, batch_sizes=[4])
    decision = hs.Decision.whole(problem, [0, 1], [0, 1])
    assert hs.simulate(machine.problem(problem), decision).transfers.finish.tolist() == [1 + (0.5 + 0.25) + 32 * (0.125 + 1 / 8)]
    explicit = problem.replace(transfers=[[[0, 3], [2, 0]]])
    assert hs.simulate(machine.problem(explicit), decision).transfers.finish.tolist() == [1 + (0.5 + 0.25) + 32 * 0.125 + 4 * 3]
    fixed = Machine({"x": Overhead(send=(0.5, 0.0))})
    odd = problem.replace(cluster=hs.Cluster(["x", "y"], bandwidth=49.0))  # 1 / (1 / 49) is not 49
    assert fixed.problem(odd).cluster.bandwidth.tolist() == odd.cluster.bandwidth.tolist()
    assert fixed.problem(odd).cluster.latency[0, 1] == 0.5


def test_first_come_first_served_an_overhead_may_shorten_a_run():
    """Hence the property above is of transfers without contention: a message that is later lets a more urgent one pass."""
    edges = np.array([(5, 7), (0, 7), (0, 2), (0, 6), (1, 7), (3, 5), (1, 4), (3, 4)])
    graph = hs.TaskGraph(list("abcdefgh"), edges, edge_bytes=[3.0, 8.0, 1.0, 1.0, 3.0, 8.0, 4.0, 2.0])
    durations = np.repeat(np.array([[3.0], [2.0], [4.0], [1.0], [3.0], [1.0], [1.0], [1.0]]), 3, 1)
    problem = hs.Problem(graph, hs.Cluster(["x", "y", "z"], bandwidth=1.0), durations=durations, communication="port")
    decision = hs.Decision.whole(problem, [2, 0, 1, 0, 1, 2, 2, 1], range(8))
    machine = Machine({name: Overhead(dispatch=0.25) for name in "xyz"})
    assert (hs.simulate(problem, decision).makespan, forecast(problem, decision, machine).makespan) == (28, 27)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dispatch": -1.0}, "dispatch is -1.0; it must be a finite number, at least 0"),
        ({"busy": 0.5}, "busy is 0.5; it must be a finite number, at least 1"),
        ({"send": 1.0}, "send is 1.0; give seconds and seconds per byte"),
        ({"receive": (0.0, float("inf"))}, "receive is inf"),
        ({"host": 3}, "host is 3"),
    ],
)
def test_impossible_overheads_are_refused(change, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        Overhead(**change)


@given(problems(n_tasks=st.integers(1, 4), transfers=st.booleans()))
@examples(50)
def test_a_machine_without_overheads_changes_no_problem(problem):
    assert Machine().problem(problem) == problem.replace(durations=problem.durations, batch_sizes=problem.batch_sizes)


@pytest.mark.slow
def test_a_forecast_does_without_torch():
    code = "import sys; from hetsched.runtime import forecast, Plan; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_overhead_of_a_device_that_the_problem_lacks_is_refused():
    problem = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster(["cpu0"]), durations=[[1.0]])
    machine = Machine({"cpuO": Overhead(dispatch=1.0)})
    decision = hs.Decision.from_assignment(problem, {"a": "cpu0"})
    message = "the machine has an overhead of device 'cpuO', which the problem does not have; its devices are 'cpu0'"
    for use in (lambda: machine.problem(problem), lambda: forecast(problem, decision, machine)):
        with pytest.raises(hs.InvalidProblem, match=message):
            use()
    assert Overhead(dispatch=np.float32(1e-6)).dispatch == pytest.approx(1e-6)
    with pytest.raises(hs.InvalidProblem, match="dispatch is True"):
        Overhead(dispatch=True)
