"""Modules run by decisions on several processes: results, times, faults, and what the caller keeps."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this build of torch has no gloo", allow_module_level=True)

from hetsched.runtime import Executor, Program, Ranks, TrainingProgram  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402
from tests.runtime.acting import EXIT, EXIT_SOON, RAISE, SLEEP, STOP, UNPICKLABLE, Fault, Obeys, order  # noqa: E402
from tests.runtime.test_executor import _one_thread, cluster, problem_of, runs, split_runs, state, within  # noqa: E402, F401  # the fixture
from tests.torch_modules import arguments, tensors  # noqa: E402


@pytest.fixture(scope="module")
def pair():
    with Ranks(2) as ranks:
        yield ranks


@pytest.fixture
def processes(pair):
    """Return two ranks, started again if a test before has ended them."""
    if "ended" in repr(pair) or not all(process.alive for process in pair._state.processes):
        pair.restart()
    return pair


@functools.cache
def obeys():
    program = Program(Obeys(), order())
    problem = problem_of(program.graph)
    numbers = {node: node.args[1] for nodes in program.calls.nodes for node in nodes if "obey" in str(node.target)}
    device = np.array([int(numbers.get(node, 0) >= 3) for node, *_ in program.calls.nodes])
    return program, problem, hs.Decision.whole(problem, device, program.graph.topological_order)


def obeying(engine, **options):
    """Return an executor of `Obeys`, its chains on two devices."""
    program, problem, decision = obeys()
    return Executor(program, None, decision, **{"devices": {"d0": 1, "d1": 1}, "problem": problem, "engine": engine, **options})


def value(result):
    return float(result[0, 0])


# ---------------------------------------------------------------------- results


@st.composite
def ranked(draw, decided):
    """Draw a run on two or more devices, and the rank of each."""
    module, program, problem, decision = draw(decided)
    ranks = {name: k if k < 2 else draw(st.integers(0, 1)) for k, name in enumerate(problem.cluster.names)}
    return module, program, problem, decision, ranks


@pytest.mark.slow
@given(drawn=ranked(runs(2)), fold=st.booleans(), copies=st.booleans())
@examples(8)
def test_two_processes_return_what_the_module_does(pair, drawn, fold, copies):
    module, program, problem, decision, ranks = drawn
    args = arguments(problem.inputs)
    with torch.no_grad():
        wanted = module(*args)
    devices = dict.fromkeys(problem.cluster.names, 1)
    with Executor(program, None, decision, devices=devices, problem=problem, fold=fold, copies=copies, engine=pair, ranks=ranks) as run:
        for _ in range(2):
            made = within(lambda: run(*args))
            for own, other in zip(tensors(made), tensors(wanted), strict=True):
                assert torch.equal(own, other) if not fold else (own - other).abs().max() <= 1e-5 * other.abs().max()
        timeline = within(lambda: run.measure(*args, runs=2))
        assert timeline.clock_error == 0
        assert hs.runtime.verify_run(problem, timeline) == []


@pytest.mark.slow
@given(drawn=ranked(split_runs(2)))
@examples(8)
def test_batches_split_over_processes_have_the_results_of_the_module(pair, drawn):
    module, program, problem, decision, ranks = drawn
    args = arguments(problem.inputs)
    with torch.no_grad():
        wanted = module(*args)
    devices = dict.fromkeys(problem.cluster.names, 1)
    with Executor(program, None, decision, devices=devices, problem=problem, fold=False, engine=pair, ranks=ranks) as run:
        made = within(lambda: run(*args))
        for own, other in zip(tensors(made), tensors(wanted), strict=True):
            assert own.shape == other.shape
            assert (own - other).abs().max() <= 1e-5 * other.abs().max()
        timeline = within(lambda: run.measure(*args, runs=2))
        timed = run.profiled(problem)
    assert hs.runtime.compare(timed, decision, timeline).runs == 2


def test_a_measurement_has_the_times_of_all_ranks(processes):
    with obeying(processes) as run:
        timeline = within(lambda: run.measure(order(), runs=4))
        profiled = run.profiled(run.problem)
    assert timeline.durations.shape == (4, run.problem.n_tasks)
    assert (timeline.durations[:, [("obey" in name) for name in timeline.schedule.tasks]] > 0).all()
    assert timeline.plan_digest == run.plan.digest
    assert np.isfinite(timeline.cpu).all()
    assert timeline.seen.any(), "the sum waits for the chain of the other process"
    assert (profiled.durations.max(axis=(1, 2)) > 0).sum() >= 7
    assert hs.verify(timeline.problem(profiled), timeline.schedule) == []


def test_results_are_not_overwritten_by_the_next_run(processes):
    with obeying(processes) as run:
        first = run(order())
        kept = first.clone()
        run(order() + torch.tensor([5.0, 0.0, 0.0]))  # the other columns are acts
        assert torch.equal(first, kept)


# ---------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    "number", [pytest.param(0, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow), 2], ids=["first", "second", "last act"]
)
def test_the_error_of_a_task_reaches_the_caller_and_runs_go_on_after_a_restart(processes, number):
    with obeying(processes) as run:
        assert value(within(lambda: run(order()))) == 6
        with pytest.raises(Fault, match="on purpose") as info:
            within(lambda: run(order(number, RAISE)))
        assert info.value.device == ("d1" if number >= 3 else "d0")
        assert "obey" in info.value.task
        notes = "\n".join(info.value.__notes__)
        assert f"in task {info.value.task!r} on device {info.value.device!r}" in notes
        assert 'raise Fault("on purpose")' in notes, "the traceback of the other process"
        assert np.isnan(info.value.times.finish).any()
        with pytest.raises(hs.UnsupportedFeature, match=r"the ranks have ended in an earlier run; call restart\(\)"):
            run(order())
        run.restart()
        assert value(within(lambda: run(order()))) == 6


@pytest.mark.slow
def test_an_error_that_cannot_be_sent_is_told_by_its_text(processes):
    with obeying(processes) as run, pytest.raises(RuntimeError, match="Unpicklable: with a lock"):
        within(lambda: run(order(4, UNPICKLABLE)))


@pytest.mark.parametrize(
    ("number", "kind"), [pytest.param(5, EXIT_SOON, marks=pytest.mark.slow), (4, EXIT)], ids=["after its task", "in its task"]
)
def test_a_rank_that_dies_is_named(processes, number, kind):
    x = order(number, kind)
    with obeying(processes) as run:
        with pytest.raises(hs.PeerLost, match="rank 1 ended by itself with exit code 7") as info:
            within(lambda: [run(x) for _ in range(10**6)])
        assert info.value.rank == 1


@pytest.mark.slow
def test_a_rank_that_was_killed_before_the_run_is_named(processes):
    with obeying(processes) as run:
        victim = processes._state.processes[0].process
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        with pytest.raises(hs.PeerLost, match="rank 0 was killed by signal 9") as info:
            within(lambda: run(order()))
        assert info.value.rank == 0
        run.restart()
        assert value(within(lambda: run(order()))) == 6


@pytest.mark.slow
@pytest.mark.parametrize("kind", [STOP, SLEEP], ids=["stopped", "asleep"])
def test_a_rank_that_hangs_ends_with_the_step_of_each_device(processes, kind):
    with obeying(processes, timeout=0.5) as run:
        with pytest.raises(hs.Timeout, match="the run took longer than 0.5 s") as info:
            within(lambda: run(order(4, kind)))
        if kind == STOP:
            assert "rank 1 does not answer" in str(info.value)
        else:  # a rank on a busy machine may learn that the other one has given up before its own time is over
            assert "'d1' is in task" in str(info.value) or "'d0' waits for" in str(info.value)
        run.restart()
        assert value(within(lambda: run(order()))) == 6


@pytest.mark.slow
@pytest.mark.parametrize("how", ["cancel", "close", "interrupt"])
def test_a_run_is_ended_from_outside(processes, how):
    pids = [process.process.pid for process in processes._state.processes]
    with obeying(processes) as run:
        if how == "interrupt":
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
                with pytest.raises(KeyboardInterrupt):
                    run(order(4, SLEEP))
            finally:
                signal.signal(signal.SIGINT, before)
        else:
            threading.Timer(0.3, run.cancel if how == "cancel" else processes.cancel).start()
            with pytest.raises(hs.Cancelled):
                within(lambda: run(order(4, SLEEP)))
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
        run.restart()
        assert value(within(lambda: run(order()))) == 6


def test_cancelling_an_executor_leaves_the_run_of_another_on_the_same_processes(processes, monkeypatch):
    with obeying(processes) as run, obeying(processes) as idle:
        answers = processes._state.answers

        def meanwhile(*args):
            idle.cancel()
            return answers(*args)

        monkeypatch.setattr(processes._state, "answers", meanwhile)
        assert value(within(lambda: run(order()))) == 6


def test_a_closed_executor_leaves_the_processes_to_others(processes):
    with obeying(processes) as other:
        run = obeying(processes)
        run.close()
        with pytest.raises(hs.UnsupportedFeature, match="the executor is closed; make a new one"):
            run(order())
        assert value(within(lambda: other(order()))) == 6
        assert processes.dropped == []


@pytest.mark.slow
def test_processes_of_an_executor_end_with_it():
    run = obeying("gloo")
    processes = run._engine.processes
    pids = [process.process.pid for process in processes._state.processes]
    folder = processes._state.folder
    assert value(run(order())) == 6
    run.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert not os.path.exists(folder)
    with pytest.raises(hs.UnsupportedFeature, match="the executor is closed; make a new one"):
        run(order())


@pytest.mark.slow
def test_three_processes():
    program, _, _ = obeys()
    wide = hs.Problem(program.graph, cluster(3), durations=np.ones((program.graph.n_tasks, 3)))
    decision = hs.Decision.whole(wide, np.arange(program.graph.n_tasks) % 3, program.graph.topological_order)
    with Executor(program, None, decision, devices={"d0": 1, "d1": 1, "d2": 1}, problem=wide, engine="gloo") as run:
        for _ in range(20):
            assert value(within(lambda: run(order()))) == 6
        timeline = within(lambda: run.measure(order(), runs=3))
    assert hs.runtime.verify_run(wide, timeline) == []


def test_what_belongs_to_the_caller_stays(processes):
    torch.set_num_threads(2)
    before = state()
    with obeying(processes) as run:
        y = run(order())
        run.measure(order(), runs=1)
    assert state() == before
    weight = torch.ones(3, requires_grad=True)
    (y * weight).sum().backward()
    assert torch.equal(weight.grad, y[0])


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ranks": {"d0": 0}}, hs.InvalidProblem, "ranks are given for 'd0'; give one for each"),
        ({"ranks": {"d0": 0, "d1": 0}}, hs.InvalidProblem, r"the devices have the ranks \[0, 0\]; the ranks are 0 to 1, and each needs a"),
        ({"ranks": {"d0": 0, "d1": -1}}, hs.InvalidArgument, "the rank of 'd1' is -1"),
        ({"engine": "threads", "ranks": {"d0": 0, "d1": 1}}, hs.InvalidArgument, "engine='threads' has none"),
    ],
)
def test_options_that_do_not_fit_are_refused(processes, options, error, message):
    with pytest.raises(error, match=message):
        obeying(**{"engine": processes, **options})


def test_as_many_ranks_as_devices_are_needed_without_a_mapping(processes):
    program, _, _ = obeys()
    wide = hs.Problem(program.graph, cluster(3), durations=np.ones((program.graph.n_tasks, 3)))
    decision = hs.Decision.whole(wide, np.zeros(program.graph.n_tasks, int), program.graph.topological_order)
    with pytest.raises(hs.InvalidProblem, match=r"there are 2 ranks for 3 devices; give ranks=\{...\} with the rank of each device"):
        Executor(program, None, decision, devices={"d0": 1, "d1": 1, "d2": 1}, problem=wide, engine=processes)


def test_values_beyond_the_free_memory_are_refused(processes, monkeypatch):
    from hetsched.runtime import executor as executors

    program, problem, decision = obeys()
    needed = float(hs.runtime.Plan(problem, decision, program.compiled.values).peak_bytes.sum())
    monkeypatch.setattr(executors, "free_memory", lambda: 1.2 * needed)
    Executor(program, None, decision, devices={"d0": 1, "d1": 1}, problem=problem).close()
    with pytest.raises(hs.UnsupportedFeature, match="bytes, more than 90 % of the .* that are free"):  # with buffers
        obeying(processes)


def test_autocast_and_streams_are_refused(processes):
    with obeying(processes) as run:
        with pytest.raises(hs.UnsupportedFeature, match="streams of inputs run on threads and under torchrun;"):
            list(run.stream([order()]))
        with (
            torch.autocast("cpu", dtype=torch.bfloat16),
            pytest.raises(hs.UnsupportedFeature, match="autocast changes the types of values"),
        ):
            run(order())
        assert value(run(order())) == 6


@pytest.mark.slow
def test_training_steps_are_refused(processes):
    model = torch.nn.Linear(3, 3)
    program = TrainingProgram(model, torch.ones(2, 3), optimiser=torch.optim.SGD(model.parameters()))
    problem = problem_of(program.graph)
    decision = hs.Decision.whole(problem, np.zeros(program.graph.n_tasks, int), program.graph.topological_order)
    with pytest.raises(hs.UnsupportedFeature, match="^engine is <2 ranks>, and training steps run on CPU threads of one process so far"):
        Executor(program, None, decision, devices={"d0": 1, "d1": 1}, problem=problem, engine=processes)


@pytest.mark.slow
def test_an_operator_of_the_script_is_refused(processes, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["tests.runtime.acting"])
    monkeypatch.delitem(sys.modules, "tests.runtime.acting")
    with pytest.raises(hs.UnsupportedFeature, match="is defined in this script, and other processes have to call it"):
        obeying(processes)
