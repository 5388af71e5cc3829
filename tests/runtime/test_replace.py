"""Other decisions on the threads of an executor: results, faults between them, and policies that run modules."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs

torch = pytest.importorskip("torch")

from hetsched.runtime import Assistants, Executor, Observation, Resolve, SearchingAssistants, iterate  # noqa: E402
from hetsched.runtime.executor import KEPT_PLANS  # noqa: E402
from hetsched.testing import decisions  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402
from tests.runtime import test_executor as acting  # noqa: E402
from tests.runtime.test_executor import HOOKS, X, acts, cluster, executor, programs, second, split_evenly, within  # noqa: E402
from tests.torch_modules import arguments, tensors  # noqa: E402

_one_thread = acting._one_thread


class Wanders:
    """A policy that takes a random decision after each iteration."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def begin(self, problem, decision):
        self.problem = problem

    def observe(self, observation):
        problem = self.problem
        device = self.rng.integers(0, problem.n_devices, problem.n_tasks)
        return hs.Decision.whole(problem, device, problem.graph.topological_order)


class Checked:
    """A runner that compares every result with the expected one."""

    def __init__(self, placed, expected):
        self.placed, self.expected, self.problem = placed, expected, placed.problem
        self.digests = []

    def replace(self, decision):
        self.placed.replace(decision)

    def timed(self, *args):
        result, timeline = self.placed.timed(*args)
        assert equal(result, self.expected)
        assert timeline.plan_digest == self.placed.plan.digest
        assert hs.runtime.verify_run(self.problem, timeline) == []
        self.digests.append(timeline.plan_digest)
        return result, timeline


def equal(made, expected):
    return all(torch.equal(own, other) for own, other in zip(tensors(made), tensors(expected), strict=True))


def expected_of(module, args):
    with torch.no_grad():
        return module(*args)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the tasks take")
@given(drawn=programs(), count=st.integers(1, 3), policy=st.integers(0, 3), seed=st.integers(0, 99), copies=st.booleans())
@examples(20)
def test_results_are_the_module_s_whatever_a_policy_decides(drawn, count, policy, seed, copies):
    module, program, _ = drawn
    problem = hs.Problem(program.graph, cluster(count), durations=np.full((program.graph.n_tasks, count), 1e-5))
    make = (
        lambda: Wanders(seed),
        lambda: Assistants(cooldown=1, window=1),
        lambda: SearchingAssistants(evaluations=20, window=1),
        lambda: Resolve("heft", evaluations=3, window=1),
    )
    args = arguments(1)
    decision = hs.Decision.whole(problem, np.zeros(problem.n_tasks, int), program.graph.topological_order)
    devices = dict.fromkeys(problem.cluster.names, 1)
    with Executor(program, None, decision, devices=devices, problem=problem, fold=False, copies=copies) as placed:
        threads = [thread.ident for thread in threading.enumerate()]
        checked = Checked(placed, expected_of(module, args))
        run = within(lambda: iterate(checked, decision, 6, policy=make[policy](), items=itertools.repeat(args)))
        assert len(checked.digests) == 6
        assert placed.decision == list(run.decisions.values())[-1]
        assert [thread.ident for thread in threading.enumerate()] == threads
    assert (run.makespan > 0).all()
    assert set(np.flatnonzero(run.pause).tolist()) == run.decisions.keys() - {0}


@pytest.mark.slow
@given(drawn=programs(), data=st.data())
@examples(15)
def test_decisions_with_other_batches_replace_one_another(drawn, data):
    module, program, rng = drawn
    graph, inputs = program.graph, data.draw(st.integers(2, 3))
    sizes = np.arange(1, inputs + 1)
    table = np.repeat((rng.integers(0, 3, (graph.n_tasks, 1)) * (1.0 + sizes))[:, None], 2, 1)
    problem = hs.Problem(graph, cluster(2), durations=table, batch_sizes=sizes, inputs=inputs)
    first, *others = (data.draw(decisions(problem)) for _ in range(3))
    args = arguments(inputs)
    expected = expected_of(module, args)
    with Executor(program, None, first, devices={"d0": 1, "d1": 1}, problem=problem, fold=False) as placed:
        for decision in (*others, first):
            placed.replace(decision)
            for made in (within(lambda: placed(*args)), *within(lambda: list(placed.stream([args, args])))):
                for own, other in zip(tensors(made), tensors(expected), strict=True):
                    assert (own - other).abs().max() <= 1e-5 * other.abs().max()
            assert hs.runtime.compare(problem, decision, within(lambda: placed.measure(*args, runs=1))).runs == 1


@pytest.mark.slow
def test_a_call_of_another_thread_in_the_middle_of_migrations_has_its_result():
    results, ended = [], threading.Event()
    with executor() as placed:

        def calls():
            while not ended.is_set():
                results.append(placed(X))

        thread = threading.Thread(target=calls)
        thread.start()
        policy = Wanders(0)
        try:
            within(lambda: iterate(placed, placed.decision, 60, policy=policy, items=itertools.repeat(X)), 30)
        finally:
            ended.set()
            thread.join(acting.BOUND)
    assert results
    assert all(torch.equal(result, 2 * X + 6) for result in results)


def test_plans_are_kept_for_the_last_decisions():
    program, problem = acts()
    order = program.graph.topological_order
    every = [hs.Decision.whole(problem, (np.arange(problem.n_tasks) == k) * 1, order) for k in range(KEPT_PLANS + 1)]
    assert len({tuple(decision.device.tolist() + decision.task.tolist()) for decision in every}) > 4
    with executor() as placed:
        first, decision = placed.plan, placed.decision
        placed.replace(every[1])
        assert placed.plan is not first
        placed.replace(hs.Decision(decision.task, decision.device))
        assert placed.plan is first
        for other in every:
            placed.replace(other)
        placed.replace(decision)
        assert placed.plan is not first
        assert placed.plan == first


def test_a_schedule_replaces_a_decision_and_the_timeout_follows():
    program, problem = acts()
    alone = hs.simulate(problem, hs.Decision.whole(problem, [0] * problem.n_tasks, program.graph.topological_order))
    with executor() as placed, executor(timeout=7.0) as limited:
        assert (placed.timeout, limited.timeout) == (60 * hs.simulate(problem, placed.decision).makespan, 7.0)
        for one in (placed, limited):
            one.replace(alone)
            assert one.plan.sends == ()
            assert torch.equal(within(lambda one=one: one(X)), 2 * X + 6)
        assert (placed.timeout, limited.timeout) == (60 * alone.makespan, 7.0)
        with pytest.raises(hs.InvalidSchedule, match="the schedule is of another problem"):
            placed.replace(hs.solve(hs.Problem(hs.TaskGraph(["x", "y"]), cluster(2), durations=np.ones((2, 2))), "heft").schedule)


def test_a_refused_decision_leaves_the_former_one(monkeypatch):
    program, problem = acts()
    with executor() as placed:
        before = placed.decision, placed.plan
        for wrong in (hs.Decision([0], [0]), split_evenly(program.graph)[1]):
            with pytest.raises(hs.InvalidSchedule):
                placed.replace(wrong)
        with pytest.raises(hs.InvalidArgument, match="decision is 'd0'; it must be a Schedule .* or a Decision"):
            placed.replace("d0")
        monkeypatch.setattr("hetsched.runtime.executor.free_memory", lambda: 1.0)
        with pytest.raises(hs.UnsupportedFeature, match="of the 1 that are free"):
            placed.replace(hs.Decision.whole(problem, [0] * problem.n_tasks, program.graph.topological_order))
        assert (placed.decision, placed.plan) == before
        assert torch.equal(within(lambda: placed(X)), 2 * X + 6)


def test_after_a_fault_another_decision_runs():
    program, problem = acts()
    order = program.graph.topological_order
    elsewhere = hs.Decision.whole(problem, [int(name not in second()) for name in program.graph.names], order)
    with executor() as placed:

        def fail():
            raise ValueError("broken")

        HOOKS[1] = fail
        with pytest.raises(ValueError, match="broken") as failure:
            within(lambda: placed.timed(X))
        assert failure.value.device == "d0"
        placed.replace(elsewhere)
        with pytest.raises(ValueError, match="broken") as failure:
            within(lambda: placed.timed(X))
        assert failure.value.device == "d1"
        HOOKS.clear()
        result, timeline = within(lambda: placed.timed(X))
        assert torch.equal(result, 2 * X + 6)
        assert timeline.plan_digest == placed.plan.digest
        placed.close()
        with pytest.raises(hs.UnsupportedFeature, match="the executor is closed; make a new one"):
            placed.replace(elsewhere)


def test_what_was_profiled_is_of_the_decision_that_ran():
    program, problem = acts()
    with executor() as placed:
        within(lambda: placed.measure(X, runs=1))
        placed.profiled(problem)
        placed.replace(hs.Decision.whole(problem, [0] * problem.n_tasks, program.graph.topological_order))
        with pytest.raises(hs.UnsupportedFeature, match="nothing has been profiled yet"):
            placed.profiled(problem)
        within(lambda: placed.measure(X, runs=1))
        assert (placed.profiled(problem).durations[:, 1] == 1).all()


def test_a_stream_in_progress_keeps_its_decision():
    with executor() as placed:
        stream = placed.stream([X, X])
        within(lambda: next(stream))
        stream.close()
        held = placed.stream([X, X])
        next(held)
        with pytest.raises(hs.UnsupportedFeature, match="a stream of this executor is in progress"):
            placed.replace(placed.decision)
        held.close()
        placed.replace(placed.decision)


def test_an_observation_has_the_times_of_a_run():
    with executor() as placed:
        _, timeline = within(lambda: placed.timed(X))
        observation = Observation.of_timeline(2, placed.decision, timeline)
        assert (observation.iteration, observation.seconds) == (2, timeline.makespan)
        assert observation.task_seconds.shape == (placed.problem.n_tasks,)
        assert (observation.task_seconds >= 0).all()
        assert observation.transfer_seconds.shape == (2,)
