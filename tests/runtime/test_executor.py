"""Modules run by decisions on threads: results, faults, and what the caller keeps."""

from __future__ import annotations

import functools
import gc
import os
import random
import signal
import threading
import time
import warnings
import weakref

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from hetsched.runtime import Executor, Program, team  # noqa: E402
from hetsched.runtime import executor as executors  # noqa: E402
from hetsched.runtime import places as placing  # noqa: E402
from hetsched.runtime import threads as engines  # noqa: E402
from hetsched.runtime.places import Place, warn_of_moved  # noqa: E402
from hetsched.runtime.plan import Gather  # noqa: E402
from hetsched.runtime.team import OWN_THREADS, Stream, Turn  # noqa: E402
from hetsched.testing import decisions  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402
from tests.torch_modules import arguments, captured, tensors  # noqa: E402

BOUND = 60.0
"""Seconds in which every fault has to end."""
HOOKS: dict[int, object] = {}
"""What the operator `act` does, by its number."""


@torch.library.custom_op("hetsched_tests::act", mutates_args=())
def act(x: torch.Tensor, number: int) -> torch.Tensor:
    hook = HOOKS.get(number)
    if hook is not None:
        hook()
    return x + 1


@act.register_fake
def _(x, number):
    return torch.empty_like(x)


class Acts(nn.Module):
    """Two chains of acts, 0 to 2 and 3 to 5, that begin with the argument and end in a sum."""

    def forward(self, x):
        a = b = x
        for number in range(3):
            a, b = act(a, number), act(b, number + 3)
        return a + b


@pytest.fixture(autouse=True)
def _one_thread():
    HOOKS.clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def within(function, seconds=BOUND):
    """Return the result of a function, or raise its error; fail if it takes longer than that."""
    result = []

    def call():
        try:
            result.append((True, function()))
        except BaseException as error:
            result.append((False, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    assert result, f"it took longer than {seconds} s"
    good, value = result[0]
    if not good:
        raise value
    return value


def cluster(count):
    return hs.Cluster([f"d{k}" for k in range(count)], bandwidth=1e9, latency=1e-6)


def problem_of(graph, count=2, seconds=1.0, **options):
    return hs.Problem(graph, cluster(count), durations=np.full((graph.n_tasks, count), seconds), **options)


@functools.cache
def acts():
    program = Program(Acts(), torch.zeros(2, 3))
    return program, problem_of(program.graph)


def executor(**options):
    """Return an executor of `Acts`, its chains on two devices."""
    program, problem = acts()
    device = np.array([0 if name not in second() else 1 for name in program.graph.names])
    decision = hs.Decision.whole(problem, device, program.graph.topological_order)
    return Executor(program, None, decision, **{"devices": {"d0": 1, "d1": 1}, "problem": problem, **options})


@functools.cache
def second():
    """Return the names of the tasks of the second chain."""
    program, _ = acts()
    numbers = {node: node.args[1] for nodes in program.calls.nodes for node in nodes if "act" in str(node.target)}
    return {program.graph.names[i] for i, (node, *_) in enumerate(program.calls.nodes) if numbers.get(node, 0) >= 3}


X = torch.zeros(1, 3)


# ---------------------------------------------------------------------- results


@st.composite
def programs(draw):
    """Draw a module, a program of it, and a generator of random numbers."""
    return *draw(captured()), np.random.default_rng(draw(st.integers(0, 10**6)))


@st.composite
def runs(draw, least=1):
    """Draw a module, a problem of at least so many devices with tasks of zero length, and a decision that can be simulated."""
    module, program, rng = draw(programs())
    graph = program.graph
    count, inputs = draw(st.integers(least, 3)), draw(st.integers(1, 3))
    seconds = rng.integers(0, 3, graph.n_tasks) * 1.0
    names = {"per-input", "channel", "port", "delay"}
    problem = hs.Problem(
        graph,
        cluster(count),
        durations=np.repeat(seconds[:, None, None], count, 1),
        batch_sizes=[inputs],
        inputs=inputs,
        communication=draw(st.sampled_from(sorted(names))),
    )
    key = graph.rank + rng.integers(0, 2) * rng.random(graph.n_tasks) * graph.n_tasks * (seconds == 0)
    decision = hs.Decision.whole(problem, rng.integers(0, count, graph.n_tasks), np.argsort(key))
    try:
        hs.simulate(problem, decision)
    except hs.InvalidSchedule:
        assume(False)
    return module, program, problem, decision


@pytest.mark.slow
@given(drawn=runs(), fold=st.booleans(), copies=st.booleans())
@examples(30)
def test_an_executor_returns_what_the_module_does(drawn, fold, copies):
    module, program, problem, decision = drawn
    args = arguments(problem.inputs)
    with torch.no_grad():
        wanted = module(*args)
    devices = dict.fromkeys(problem.cluster.names, 1)
    with Executor(program, None, decision, devices=devices, problem=problem, fold=fold, copies=copies) as run:
        for _ in range(3):
            made = within(lambda: run(*args))
            for own, other in zip(tensors(made), tensors(wanted), strict=True):
                assert torch.equal(own, other) if not fold else (own - other).abs().max() <= 1e-5 * other.abs().max()
        timeline = within(lambda: run.measure(*args, runs=2))
        assert hs.verify(timeline.problem(problem), timeline.schedule) == []


@pytest.mark.slow
def test_a_module_and_a_schedule_are_enough():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)).eval()
    x = torch.randn(1, 3, 8, 8)
    graph = hs.frontends.torch.capture(module, x)
    schedule = hs.solve(problem_of(graph), "heft").schedule
    with Executor(module, x, schedule, devices={"d0": 1, "d1": 1}, fold=False) as run:
        with torch.no_grad():
            assert torch.equal(run(x), module(x))
        assert run.placing_seconds > 0
        assert run.plan.devices == ("d0", "d1")


@pytest.mark.slow
def test_a_changed_weight_changes_the_result():
    module, x = nn.Linear(3, 3).eval(), torch.randn(1, 3)
    schedule = hs.solve(problem_of(hs.frontends.torch.capture(module, x)), "heft").schedule
    with Executor(module, x, schedule, devices={"d0": 1, "d1": 1}) as run:
        before = run(x)
    with torch.no_grad():
        module.weight[0, 0] += 1
    with Executor(module, x, schedule, devices={"d0": 1, "d1": 1}) as run:
        assert (run(x) - before).abs().max() > 1e-3


# ---------------------------------------------------------------------- batches


@st.composite
def split_runs(draw, least=1):
    """Draw a module, and a problem of at least so many devices and decision with several batches of a task."""
    module, program, rng = draw(programs())
    graph = program.graph
    count, inputs = draw(st.integers(least, 3)), draw(st.integers(2, 4))
    sizes = np.arange(1, inputs + 1)
    seconds = rng.integers(0, 3, (graph.n_tasks, 1)) * (1.0 + sizes)
    problem = hs.Problem(
        graph,
        cluster(count),
        durations=np.repeat(seconds[:, None], count, 1),
        batch_sizes=sizes,
        inputs=inputs,
        batching=draw(st.sampled_from(["once", "free"])),
    )
    return module, program, problem, draw(decisions(problem))


@pytest.mark.slow
@given(drawn=split_runs(), copies=st.booleans())
@examples(25)
def test_batches_split_over_devices_have_the_results_of_the_module(drawn, copies):
    module, program, problem, decision = drawn
    args = arguments(problem.inputs)
    with torch.no_grad():
        wanted = module(*args)
    devices = dict.fromkeys(problem.cluster.names, 1)
    with Executor(program, None, decision, devices=devices, problem=problem, fold=False, copies=copies) as run:
        for made in (within(lambda: run(*args)), *within(lambda: list(run.stream([args, args])))):
            for own, other in zip(tensors(made), tensors(wanted), strict=True):
                assert own.shape == other.shape
                assert (own - other).abs().max() <= 1e-5 * other.abs().max()
        timeline = within(lambda: run.measure(*args, runs=2))
        if problem.batching == "once":
            assert hs.runtime.verify_run(problem, timeline) == []
        gathers = {step.batch for steps in run.plan.steps for step in steps if isinstance(step, Gather)}
        assert set(np.flatnonzero(timeline.gathered).tolist()) == gathers
        timed = run.profiled(problem)
    forecast = hs.runtime.forecast(timed, decision)
    assert forecast.schedule.batches == hs.simulate(timed, decision).batches
    assert hs.runtime.compare(timed, decision, timeline).runs == 2


def split_evenly(graph):
    """Return a problem of two inputs, and a decision by which each device does one."""
    count = graph.n_tasks
    problem = hs.Problem(graph, cluster(2), durations=np.ones((count, 2, 2)), batch_sizes=[1, 2], inputs=2)
    return problem, hs.Decision(np.repeat(graph.topological_order, 2), np.tile([0, 1], count), items=np.tile([0, 1], count))


def test_a_schedule_with_several_batches_of_a_task_is_enough():
    program, _ = acts()
    problem, decision = split_evenly(program.graph)
    x = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    with Executor(program, None, hs.simulate(problem, decision), devices={"d0": 1, "d1": 1}) as run:
        assert torch.equal(run(x), 2 * x + 6)
        assert run.plan.sends == ()


# ---------------------------------------------------------------------- streams


@pytest.mark.slow
@given(drawn=runs(), depth=st.none() | st.integers(1, 4), count=st.integers(0, 7), copies=st.booleans(), data=st.data())
@examples(15)
def test_a_stream_has_the_results_of_its_items_in_order(drawn, depth, count, copies, data):
    module, program, problem, decision = drawn
    items = [arguments(problem.inputs) for _ in range(count)]
    with torch.no_grad():
        wanted = [module(*args) for args in items]
    devices = dict.fromkeys(problem.cluster.names, 1)
    with Executor(program, None, decision, devices=devices, problem=problem, fold=False, copies=copies) as run:
        for _ in range(2):
            made = within(lambda: list(run.stream(items, depth)))
            assert len(made) == count
            for one, other in zip(made, wanted, strict=True):
                assert all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))
        if count:
            again = within(lambda: run(*items[0]))
            assert all(torch.equal(a, b) for a, b in zip(tensors(again), tensors(wanted[0]), strict=True))


def numbers(count):
    return [torch.full((1, 3), float(number)) for number in range(count)]


def test_a_device_that_waits_for_one_input_works_on_the_next():
    begun, second_begun = [], threading.Event()

    def first_act():
        begun.append(1)
        if len(begun) == 2:
            second_begun.set()

    def last_of_the_other_chain():
        assert second_begun.wait(BOUND), "the first device has not begun the second input"

    HOOKS[0], HOOKS[5] = first_act, last_of_the_other_chain
    with executor() as run:
        made = within(lambda: list(run.stream(numbers(4))))
    assert [float(one[0, 0]) for one in made] == [6.0, 8.0, 10.0, 12.0]


@pytest.mark.parametrize("depth", [1, 3])
def test_items_are_taken_no_further_ahead_than_the_depth(depth):
    taken, ahead = [], []

    def items():
        for one in numbers(8):
            taken.append(one)
            yield one

    with executor() as run:
        for given_back, _ in enumerate(run.stream(items(), depth)):
            ahead.append(len(taken) - given_back)
    assert max(ahead) == depth
    assert len(taken) == 8


def test_results_before_the_item_that_fails_are_returned():
    calls = []

    def fail():
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("the third")

    HOOKS[4] = fail
    with executor() as run:
        results = run.stream(numbers(9), 4)
        assert [float(within(lambda: next(results))[0, 0]) for _ in range(2)] == [6.0, 8.0]
        with pytest.raises(ValueError, match="the third") as raised:
            within(lambda: next(results))
        assert raised.value.device == "d1"
        HOOKS.clear()
        assert float(within(lambda: run(X))[0, 0]) == 6.0
        assert len(within(lambda: list(run.stream(numbers(3))))) == 3


def test_an_error_of_the_items_is_raised_and_runs_go_on():
    def items():
        yield X
        raise KeyError("no more")

    with executor() as run:
        with pytest.raises(KeyError, match="no more"):
            within(lambda: list(run.stream(items(), 1)))
        assert float(within(lambda: run(X))[0, 0]) == 6.0


def test_a_stream_that_is_not_taken_to_its_end_is_closed():
    with executor() as run:
        results = run.stream(numbers(9))
        next(results)
        with pytest.raises(hs.UnsupportedFeature, match="a stream of this executor is in progress; take all its results, or close it"):
            run(X)
        waiting = threading.Thread(target=lambda: run(X), daemon=True)
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive(), "another thread waits"
        results.close()
        waiting.join(BOUND)
        assert not waiting.is_alive()
        assert float(within(lambda: run(X))[0, 0]) == 6.0


def test_the_pace_of_a_stream_is_that_of_its_busiest_device():
    HOOKS[0], HOOKS[3] = lambda: time.sleep(0.004), lambda: time.sleep(0.002)
    with executor() as run:
        times = within(lambda: run.measure_stream(X, inputs=8, depth=3))
        assert times.depth == 3
        assert times.latency >= times.period >= 0.004
        assert times.q25 <= times.period <= times.q75
        with pytest.raises(hs.InvalidArgument, match="inputs is 3; with a depth of 2 at least 4 results have to count"):
            run.measure_stream(X, inputs=3, depth=2)
        with pytest.raises(hs.InvalidArgument, match="depth"):
            run.stream([X], depth=0)


def test_three_times_as_many_inputs_are_in_progress_as_the_makespan_has_periods():
    """The input, three acts and the sum on the first device: 5 s of work, and a makespan longer by the transfers."""
    with executor() as run:
        assert run._depth() == 6


# ---------------------------------------------------------------------- measurements


def test_a_measurement_is_the_times_of_its_runs():
    HOOKS[4] = lambda: time.sleep(0.002)
    with executor() as run:
        timeline = within(lambda: run.measure(X, runs=4, profile=False))
        assert timeline.durations.shape == (4, run.problem.n_tasks)
        assert timeline.plan_digest == run.plan.digest
        assert dict(timeline.software)["torch"] == torch.__version__
        assert hs.verify(timeline.problem(run.problem), timeline.schedule) == []
        slept = [i for i, name in enumerate(timeline.schedule.tasks) if name in second()][1]
        batch = int(np.flatnonzero(timeline.schedule.batches.task == slept)[0])
        assert (timeline.durations[:, batch] >= 0.002).all()
        assert timeline.cpu[batch] < timeline.durations[:, batch].min(), "sleeping costs no CPU time"
        (join,) = np.flatnonzero(timeline.schedule.batches.task == run.program.graph.index["add"])
        assert timeline.waited[join] > 0.001, "the sum waits for the chain that sleeps"
        with pytest.raises(hs.UnsupportedFeature, match=r"nothing has been profiled yet; call measure\(..., profile=True\)"):
            run.profiled(run.problem)


def test_profiles_run_one_task_at_a_time():
    running, most = [], []

    def busy():
        running.append(1)
        most.append(len(running))
        time.sleep(0.001)
        running.pop()

    with executor() as run:
        HOOKS.update(dict.fromkeys(range(6), busy))
        turn = within(lambda: run._run((X,), {}, serial=True))
        assert max(most) == 1
        assert torch.equal(run._gathered(turn), Acts()(X))
        HOOKS[1] = lambda: time.sleep(0.01)
        within(lambda: run.measure(X, runs=3))
        problem = run.profiled(run.problem)
        first = [i for i, op in enumerate(run.program.graph.op) if "act" in op and run.program.graph.names[i] not in second()]
        assert [bool(seconds >= 0.01) for seconds in problem.durations[first, 0, 0]] == [False, True, False]
        assert problem.durations[run.program.graph.index["x"], 0, 0] == 0


def test_more_threads_than_one_have_no_cpu_time():
    with executor(devices={"d0": 2, "d1": 1}) as run:
        timeline = within(lambda: run.measure(X, runs=1, profile=False))
    known = ~np.isnan(timeline.cpu)
    assert known.tolist() == (timeline.schedule.batches.device == 1).tolist()


# ---------------------------------------------------------------------- faults


class Fault(Exception):
    pass


def failing(seconds=0.0):
    def hook():
        time.sleep(seconds)
        raise Fault("on purpose")

    return hook


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 4, 2], ids=["first device", "second device", "last act"])
def test_the_error_of_a_task_is_raised_with_its_place_and_runs_go_on(number):
    draw = random.Random(number)
    with executor() as run:
        for _ in range(200):
            delays = {k: draw.choice([0.0, 0.0, 1e-4, 1e-3]) for k in range(6)}
            HOOKS.update({k: functools.partial(time.sleep, delay) for k, delay in delays.items()})
            HOOKS[number] = failing(delays[number])
            with pytest.raises(Fault, match="on purpose") as info:
                within(lambda: run(X))
            device = "d1" if number >= 3 else "d0"
            assert (info.value.device, info.value.task in second()) == (device, number >= 3)
            assert any(
                f"in task {info.value.task!r} on device {device!r}, batch {info.value.batch}" in note for note in info.value.__notes__
            )
        HOOKS.clear()
        assert torch.equal(within(lambda: run(X)), Acts()(X))


def test_the_error_has_the_times_until_then():
    HOOKS[2] = failing()
    with executor() as run, pytest.raises(Fault) as info:
        within(lambda: run(X))
    names = [run.program.graph.names[i] for i in run.plan.task]
    done = {name for name, finish in zip(names, info.value.times.finish, strict=True) if not np.isnan(finish)}
    assert info.value.task not in done
    assert "add" not in done
    assert len([name for name in done if "act" in name and name not in second()]) == 2


def test_a_run_that_hangs_ends_with_the_step_of_each_device():
    wake = threading.Event()
    HOOKS[4] = lambda: wake.wait(60)
    with executor(timeout=0.3) as run:
        with pytest.raises(hs.Timeout, match="the run took longer than 0.3 s") as info:
            within(lambda: run(X))
        name = sorted(second())[1]
        assert f"'d1' is in task {name!r}" in str(info.value)
        assert "'d0' waits for" in str(info.value)
        assert "from 'd1'" in str(info.value)
        assert str(info.value).endswith("give a longer timeout")
        assert np.isnan(info.value.times.finish).any()
        HOOKS.clear()
        assert torch.equal(within(lambda: run(X)), Acts()(X)), "new threads have taken its place"
        wake.set()


def test_a_device_leaves_a_closed_stream_only_after_all_of_its_turns():
    class Aborting:
        """A turn that is aborted after its device has looked at it."""

        def __init__(self):
            self.looks, self.ended, self.polls = 0, [-1], [False]

        def advance(self, k, until):
            self.looks += 1
            if self.looks > 1:
                self.ended[k] = 1

    stream, turn = Stream(1), Aborting()
    stream.turns, stream.closed = (turn,), True
    thread = threading.Thread(target=stream.advance, args=(0,), daemon=True)
    thread.start()
    while not turn.looks:
        time.sleep(0.001)
    stream._tell(0)
    thread.join(BOUND)
    assert not thread.is_alive()
    assert turn.ended == [1]


@pytest.mark.parametrize("call", [lambda run: run(X), lambda run: list(run.stream(numbers(20)))], ids=["run", "stream"])
@pytest.mark.parametrize("how", ["cancel", "close"])
def test_a_run_and_a_stream_are_cancelled_from_another_thread(how, call):
    inside, wake = threading.Event(), threading.Event()

    def hook():
        inside.set()
        wake.wait(BOUND)

    HOOKS[4] = hook
    with executor() as run:

        def stop():
            inside.wait(BOUND)
            threading.Timer(0.05, wake.set).start()
            getattr(run, how)()

        thread = threading.Thread(target=stop, daemon=True)
        thread.start()
        with pytest.raises(hs.Cancelled):
            within(lambda: call(run))
        thread.join(BOUND)
        HOOKS.clear()
        if how == "cancel":
            assert torch.equal(within(lambda: run(X)), Acts()(X))
        else:
            with pytest.raises(hs.UnsupportedFeature, match="the executor is closed; make a new one"):
                run(X)
    assert not thread.is_alive()


def test_a_stream_that_is_cancelled_takes_no_more_inputs():
    with executor() as run:
        taken = []

        def items():
            for number in range(8):
                taken.append(number)
                if number == 1:
                    run.cancel()
                    time.sleep(0.2)  # until the devices have left the stream
                yield X

        with pytest.raises(hs.Cancelled):
            within(lambda: list(run.stream(items(), depth=8)))
        assert taken == [0, 1]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals of threads")
def test_an_interrupt_ends_the_run():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the processes of pytest-xdist ignore it
    try:
        HOOKS[4] = lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        with executor(timeout=BOUND) as run:
            with pytest.raises(KeyboardInterrupt):
                run(X)
            HOOKS.clear()
            assert torch.equal(within(lambda: run(X)), Acts()(X))
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_error_of_a_task_does_not_wait_for_a_long_task_of_another_device():
    wake = threading.Event()
    HOOKS.update({0: failing(), 3: lambda: wake.wait(60)})
    with executor() as run:
        with pytest.raises(Fault):
            within(lambda: run(X))
        HOOKS.clear()
        assert torch.equal(within(lambda: run(X)), Acts()(X))
    wake.set()


def test_a_turn_that_is_over_cannot_be_aborted():
    turns = []
    with executor() as run:
        HOOKS[4] = lambda: turns.append(run._engine.turn)
        run(X)
        HOOKS.clear()
        turns[0].abort(hs.Cancelled("too late: the locks are those of the next run"))
        HOOKS[3] = lambda: time.sleep(0.01)
        assert torch.equal(within(lambda: run(X)), Acts()(X))


def test_a_measurement_is_cancelled_between_its_runs():
    with executor() as run:
        place, count = run._placed, []

        def placed(*given):
            count.append(1)
            if len(count) == 3:
                run.cancel()
            return place(*given)

        run._placed = placed
        with pytest.raises(hs.Cancelled, match="the run was cancelled"):
            within(lambda: run.measure(X, runs=30, profile=False))
        assert len(count) == 3
        assert torch.equal(within(lambda: run(X)), Acts()(X)), "what is called later is not cancelled"


def test_an_executor_closed_before_its_run_begins_says_so(monkeypatch):
    run = executor()
    monkeypatch.setattr(engines, "affinities", run.close)  # between the choice of threads and their start
    with pytest.raises(hs.Cancelled, match="the executor was closed"):
        within(lambda: run(X))


def test_a_second_interrupt_leaves_no_thread_in_the_old_run(monkeypatch):
    wake = threading.Event()
    HOOKS[4] = lambda: wake.wait(60)
    with executor() as run:
        threads = run._engine.team().threads

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Turn, "wait", interrupted)
            patch.setattr(Turn, "settle", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(X)
        HOOKS.clear()
        wake.set()
        assert torch.equal(within(lambda: run(X)), Acts()(X))
        for thread in threads:
            thread.join(BOUND)
        assert not any(thread.is_alive() for thread in threads)


def test_a_failed_run_keeps_no_values():
    values = []

    def hook():
        values.extend(
            weakref.ref(value) for own in run._engine.turn.registers for box in own for value in box if isinstance(value, torch.Tensor)
        )
        raise Fault

    with executor() as run:
        HOOKS[2] = hook
        with pytest.raises(Fault):
            run(X)
        assert len(values) > 1
        assert [value() for value in values if value() is not None and value() is not X] == [], "not even until the next collection"


def test_an_interrupt_after_the_run_is_raised(monkeypatch):
    wait = Turn.wait

    def late(self, timeout):
        wait(self, timeout)
        raise KeyboardInterrupt

    with executor() as run:
        with monkeypatch.context() as patch:
            patch.setattr(Turn, "wait", late)
            with pytest.raises(KeyboardInterrupt):
                run(X)
        assert torch.equal(within(lambda: run(X)), Acts()(X))


def test_threads_end_if_making_them_is_interrupted(monkeypatch):
    before, start, made = threading.active_count(), threading.Thread.start, []

    def limited(thread):
        if made:
            raise RuntimeError("can't start new thread")
        made.append(thread)
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            executor()
    made[0].join(BOUND)
    assert threading.active_count() <= before


@pytest.mark.slow
def test_a_profile_may_take_as_long_for_each_device():
    with executor(timeout=0.6) as run:
        HOOKS.update(dict.fromkeys(range(6), lambda: time.sleep(0.12)))
        assert torch.equal(run._gathered(within(lambda: run._run((X,), {}, serial=True))), Acts()(X))
        HOOKS[4] = lambda: time.sleep(1.0)
        with pytest.raises(hs.Timeout, match="the run of one task at a time took longer than 1.2 s: .*waits for its turn"):
            within(lambda: run._run((X,), {}, serial=True))


@pytest.mark.slow
def test_weights_that_were_folded_must_not_change():
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).eval()
    x = torch.randn(1, 3, 4, 4)
    program = Program(module, x)
    problem = problem_of(program.graph)
    decision = hs.Decision.whole(problem, np.zeros(program.graph.n_tasks, np.int64), program.graph.topological_order)
    options = {"devices": {"d0": 1, "d1": 1}, "problem": problem}
    with Executor(program, None, decision, **options) as run, Executor(program, None, decision, fold=False, **options) as exact:
        run(x)
        with torch.no_grad():
            module[3].weight.mul_(2)
        assert torch.allclose(run(x), module(x), atol=1e-5), "what is not folded may change"
        with torch.no_grad():
            module[0].weight.mul_(2)
        with pytest.raises(hs.UnsupportedFeature, match=r"weights of the module have changed since .*; make a new one, or give fold=False"):
            run(x)
        assert torch.equal(exact(x), module(x))


@pytest.mark.parametrize("other", [{"inputs": 2, "batch_sizes": [2]}, {"cluster": cluster(1)}])
def test_a_profile_of_another_problem_is_refused(other):
    program, _ = acts()
    where = other.pop("cluster", cluster(2))
    problem = hs.Problem(
        program.graph, where, durations=np.ones((program.graph.n_tasks, where.n_devices, 1)), **{"batch_sizes": [1], **other}
    )
    with executor() as run:
        run.measure(X, runs=1)
        with pytest.raises(hs.InvalidProblem, match="which are not those of the executor, 8, 2 and 1; give the problem"):
            run.profiled(problem)


@pytest.mark.slow
def test_an_executor_without_references_ends_its_threads():
    run = executor()
    threads = run._engine.team().threads
    run(X)
    del run
    gc.collect()
    for thread in threads:
        thread.join(BOUND)
    assert not any(thread.is_alive() for thread in threads)


def test_two_callers_and_two_executors_do_not_disturb_each_other():
    with executor() as one, executor() as other:
        wrong = []

        def call(run, number):
            x = torch.full((1, 3), float(number))
            for _ in range(20):
                wrong.extend([] if torch.equal(run(x), Acts()(x)) else [number])

        threads = [threading.Thread(target=call, args=(run, k), daemon=True) for k, run in enumerate((one, one, other, other))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND)
        assert not any(thread.is_alive() for thread in threads)
        assert not wrong


def test_threads_that_are_moved_from_their_cores_are_told(monkeypatch):
    pinned = Place("x", 1, frozenset({0}))
    monkeypatch.setattr(placing, "affinities", lambda: {1: {7}, 2: {0}, 3: {5}})
    with pytest.warns(RuntimeWarning, match=r"a thread of torch is on the cores \[5\], which are no device's; unset OMP_PROC_BIND"):
        warn_of_moved({1: {7}}, [pinned])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_moved({1: {7}, 3: {5}}, [pinned])
        warn_of_moved({1: {7}}, [Place("x", 1)])


def test_one_number_of_threads_for_all_devices_is_told(monkeypatch):
    monkeypatch.setattr(team, "OWN_THREADS", False)
    number = torch.get_num_threads()
    with pytest.warns(RuntimeWarning, match=rf"device 'y' has {number + 1} threads, but this build .*, {number}; set that by torch"):
        team.warn_unequal([Place("x", number), Place("y", number + 1)])


def test_values_beyond_the_free_memory_are_refused(monkeypatch):
    monkeypatch.setattr(executors, "free_memory", lambda: 50.0)
    with pytest.raises(hs.UnsupportedFeature, match="bytes, more than 90 % of the 50 that are free"):
        executor()
    monkeypatch.setattr(executors, "free_memory", lambda: None)
    with executor() as run:
        needed = float(run.plan.peak_bytes.sum())
        monkeypatch.setattr(executors, "free_memory", lambda: 2.5 * needed)
        assert len(list(run.stream(numbers(3), 2))) == 3
        with pytest.raises(hs.UnsupportedFeature, match="the values of 3 runs at a time need .* or give a smaller depth"):
            list(run.stream(numbers(3), 3))


# ---------------------------------------------------------------------- what the caller keeps


def state():
    """Return what belongs to the calling thread, as far as an executor could change it."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return torch.get_num_threads(), cores, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()


def in_thread(function):
    return within(function)


@pytest.mark.skipif(not OWN_THREADS, reason="this build of torch has one number of threads")
def test_threads_are_those_of_each_device_and_the_callers_stay():
    got = {}

    def note(number):
        got[number] = torch.get_num_threads(), torch.is_grad_enabled()

    torch.set_num_threads(2)
    before, later = state(), in_thread(torch.get_num_threads)
    HOOKS.update({k: functools.partial(note, k) for k in (0, 3)})
    with executor(devices={"d0": 1, "d1": 3}) as run:
        run(X)
        assert got == {0: (1, False), 3: (3, False)}
        assert state() == before
        assert in_thread(torch.get_num_threads) == later
        with executor(devices={"d0": 2, "d1": 1}) as other:
            other(X)
            assert got == {0: (2, False), 3: (1, False)}
            run(X)
            assert got == {0: (1, False), 3: (3, False)}
    assert state() == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity of threads")
def test_devices_are_pinned_to_their_cores_and_the_caller_is_not():
    cores, got, before = sorted(os.sched_getaffinity(0)), {}, state()
    HOOKS.update({k: lambda k=k: got.update({k: sorted(os.sched_getaffinity(0))}) for k in (0, 3)})
    with executor(devices={"d0": [cores[0]], "d1": [cores[-1]]}) as run:
        run(X)
    assert got == {0: [cores[0]], 3: [cores[-1]]}
    assert state() == before


def test_results_can_be_used_in_autograd_and_changed():
    with executor() as run:
        y = run(X)
    weight = torch.ones(3, requires_grad=True)
    (y * weight).sum().backward()
    assert torch.equal(weight.grad, y[0])
    y += 1


@pytest.mark.slow
def test_autocast_is_that_of_the_caller():
    module, x = nn.Linear(3, 3).eval(), torch.randn(1, 3)
    schedule = hs.solve(problem_of(hs.frontends.torch.capture(module, x)), "heft").schedule
    with Executor(module, x, schedule, devices={"d0": 1, "d1": 1}) as run:
        assert run(x).dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert run(x).dtype == torch.bfloat16
        assert run(x).dtype == torch.float32


@pytest.mark.slow
def test_a_placed_argument_that_is_the_result_is_returned():
    class Same(nn.Module):
        def forward(self, x):
            return x, x + 1

    x = torch.randn(1, 3)
    schedule = hs.solve(problem_of(hs.frontends.torch.capture(Same(), x)), "heft").schedule
    with Executor(Same(), x, schedule, devices={"d0": 1, "d1": 1}) as run:
        assert torch.equal(run(x)[0], x)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"devices": {"d0": 1}},
            hs.InvalidProblem,
            "the devices of the problem are 'd0', 'd1', and places are given for 'd0'; give one for",
        ),
        ({"devices": {"d0": 1, "d1": 1, "e": 1}}, hs.InvalidProblem, "places are given for 'd0', 'd1', 'e'"),
        ({"devices": {"d0": 1, "d1": 0}}, hs.InvalidProblem, "device 'd1' is 0 threads of the CPU; it must be at least one"),
        ({"devices": {"d0": 1, "d1": "cuda:99"}}, hs.InvalidProblem, "device 'd1' is cuda:99, but torch has .* CUDA devices; leave it out"),
        ({"devices": {"d0": 1, "d1": "cpu"}}, hs.InvalidProblem, "device 'd1' is 'cpu'; give a number of CPU threads, or a list of cores"),
        ({"devices": {"d0": 1, "d1": []}}, hs.InvalidProblem, r"device 'd1' is \[\]; give a number of CPU threads, a list of cores, or"),
        ({"devices": {"d0": 1, "d1": [10**6]}}, hs.InvalidProblem, r"device 'd1' has the cores \[1000000\]; this process has"),
        ({"timeout": 0}, hs.InvalidArgument, "timeout is 0; it must be a number of seconds > 0"),
        ({"engine": "mpi"}, hs.InvalidArgument, "engine is 'mpi'"),
        ({"problem": None}, hs.InvalidArgument, "a Decision has no names of devices; give its problem too, or a Schedule"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        executor(**options)


def test_another_batch_is_refused():
    with executor() as run, pytest.raises(hs.InvalidProblem, match="the arguments are a batch of 2, and the decision is for 1 inputs"):
        run(torch.zeros(2, 3))


@pytest.mark.slow
def test_a_schedule_of_other_tasks_is_refused():
    module, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval(), torch.randn(2, 3)
    schedule = hs.solve(problem_of(hs.frontends.torch.capture(module, x, fuse=True)), "heft").schedule
    with pytest.raises(hs.InvalidSchedule, match=r"the schedule has 2 tasks and the module 3.*'1/relu'; give the Program"):
        Executor(module, x, schedule, devices={"d0": 1, "d1": 1})
    Executor(Program(module, x, fuse=True), None, schedule, devices={"d0": 1, "d1": 1}).close()


@pytest.mark.slow
def test_a_value_whose_inputs_cannot_be_told_apart_is_refused_by_name():
    class Mixes(nn.Module):
        def forward(self, x):
            return act(torch.cat([x, x], 0), 0)

    program = Program(Mixes(), torch.zeros(2, 3))
    count = program.graph.n_tasks
    problem = hs.Problem(program.graph, cluster(2), durations=np.ones((count, 2, 2)), batch_sizes=[1, 2], inputs=2)
    mixed = program.graph.index["cat"]
    rows = [(program.graph.names[i], "d0", [0, 1]) for i in range(count) if i != mixed]
    rows += [("cat", "d0", [0]), ("cat", "d1", [1])]
    order = {name: rank for rank, name in enumerate(program.graph.names)}
    decision = hs.Decision.from_batches(problem, sorted(rows, key=lambda row: order[row[0]]))
    with pytest.raises(hs.UnsupportedFeature, match=r"the value 'cat' of task 'cat' has the shape \(.*\), in which the inputs of a batch"):
        Executor(program, None, decision, devices={"d0": 1, "d1": 1}, problem=problem)
    fixed = Program(Acts(), torch.zeros(2, 3), dynamic_batch=False)
    problem, decision = split_evenly(fixed.graph)
    with pytest.raises(
        hs.UnsupportedFeature, match="takes its example as one batch, which cannot be split; make it with dynamic_batch=True"
    ):
        Executor(fixed, None, decision, devices={"d0": 1, "d1": 1}, problem=problem)


def test_short_tasks_are_warned_of_with_the_remedy():
    program, _ = acts()
    short = problem_of(program.graph, seconds=2e-5)
    decision = hs.Decision.whole(short, np.zeros(program.graph.n_tasks, int), program.graph.topological_order)
    with pytest.warns(RuntimeWarning, match=r"the tasks take 20 us each.*fuse them by capture\(fuse=True\)"):
        Executor(program, None, decision, devices={"d0": 1, "d1": 1}, problem=short).close()
