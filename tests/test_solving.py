"""`hetsched.solve`: statuses, budgets, progress, warm starts, messages, methods of other packages."""

from __future__ import annotations

import importlib.metadata
import math
import os
import pickle
import re
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import documents, search
from hetsched.bounds import best
from hetsched.search import registry
from hetsched.search.solution import Bound
from hetsched.testing import problems
from hetsched.testing.profiles import examples
from tests.golden import topcuoglu


@pytest.fixture
def mine():
    """Use a temporary registry, so that methods of tests are removed."""
    with search.temporarily():
        yield


def chain(**arguments):
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 4.0)])
    return hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[3, 1], [1, 3]], **arguments)


def test_solve_returns_a_verified_schedule_a_bound_and_a_history():
    problem = topcuoglu()
    solution = hs.solve(problem, evaluations=30)
    assert solution.status == "feasible"
    assert hs.verify(problem, solution.schedule) == []
    assert 0 < solution.bound <= 73 <= solution.makespan == solution.schedule.makespan
    assert solution.gap == (solution.makespan - solution.bound) / solution.makespan
    assert solution.throughput == 1 / solution.makespan
    assert solution.proof.name
    history = solution.history
    assert (np.diff(history.time) >= 0).all()
    assert (np.diff(history.incumbent[np.isfinite(history.incumbent)]) <= 0).all()
    assert (np.diff(history.bound) >= 0).all()
    assert solution.method == history.source[history.incumbent == solution.makespan][0]
    assert hs.simulate(problem, solution.schedule.decision) == solution.schedule


@examples(40)
@given(problems(inputs=1), st.sampled_from(["heft", "packing"]), st.sampled_from([None, 1]))
def test_bounds_computed_after_a_constructive_method_are_those_computed_before_it(problem, name, evaluations):
    later = hs.solve(problem, name, evaluations=evaluations)
    first = hs.solve(problem, name, evaluations=evaluations, on_progress=lambda event: None)
    assert (later.status, later.stopped, later.proof) == (first.status, first.stopped, first.proof)
    assert pickle.loads(pickle.dumps(later)) == later
    assert documents.decode(documents.encode(later)) == later


def test_a_constructive_method_does_not_wait_for_bounds(monkeypatch):
    computed = []
    quick = best.quick

    def counted(*arguments):
        computed.append(arguments)
        yield from quick(*arguments)

    monkeypatch.setattr(best, "quick", counted)
    solution = hs.solve(chain(), "heft")
    assert computed == []
    assert solution.bound == 4.0
    assert solution.status == solution.stopped == "optimal"
    assert len(computed) == 1
    hs.solve(chain(), ["heft", "peft"])
    assert len(computed) == 2


def test_a_bound_above_the_schedule_is_reported_when_it_is_read(monkeypatch):
    monkeypatch.setattr(best, "quick", lambda *_: iter([Bound(5.0, "wrong")]))
    solution = hs.solve(chain(), "heft")
    with pytest.raises(hs.errors.InconsistentBound, match=r"bound 'wrong' = 5.0 s is above the makespan 4.0 s of 'heft'"):
        solution.bound  # noqa: B018


def test_a_proven_optimum_is_called_optimal_and_ends_the_search():
    solution = hs.solve(chain())
    assert (solution.status, solution.makespan, solution.gap, solution.stopped) == ("optimal", 4.0, 0.0, "optimal")


def test_proven_infeasibility_is_a_status_with_its_reason():
    graph = hs.TaskGraph(["a"], weight_bytes=5)
    problem = hs.Problem(graph, hs.Cluster([hs.Device("x", memory_bytes=4)]), durations=[[1]])
    solution = hs.solve(problem)
    assert solution.status == "infeasible"
    assert solution.schedule is None
    assert math.isinf(solution.bound)
    assert solution.makespan == math.inf
    assert solution.throughput == 0
    with pytest.raises(hs.Infeasible, match="no valid schedule"):
        solution.raise_for_status()


def test_a_method_that_finds_nothing_leaves_the_status_unknown(mine):
    @hs.method("shy", summary="offers nothing")
    def shy(problem, monitor):
        monitor.note("nothing to offer")

    solution = hs.solve(topcuoglu(), "shy")
    assert (solution.status, solution.method, solution.messages) == ("unknown", "shy", ("shy: nothing to offer",))
    assert solution.gap == 1
    with pytest.raises(hs.HetschedError, match="shy found no valid schedule \\(finished\\): shy: nothing to offer"):
        solution.raise_for_status()


def test_several_methods_share_a_run_and_the_best_wins():
    problem = topcuoglu()
    both = hs.solve(problem, ["olb", "heft"])
    assert (both.makespan, both.method) == (80, "heft")
    assert hs.solve(problem, "min-min").makespan == 76


def test_warm_starts_never_worsen_the_schedule():
    problem = topcuoglu()
    good = hs.solve(problem, "min-min")
    for start in (good, good.schedule, good.schedule.decision):
        solution = hs.solve(problem, "olb", start=start)
        assert solution.makespan == 76
        assert solution.method == "start"
    assert hs.solve(problem, "min-min", start=hs.solve(problem, "olb")).makespan == 76
    with pytest.raises(hs.InvalidSchedule, match="the 10 tasks, 3 devices and 1 inputs of the start are not those"):
        hs.solve(chain(), start=good)


def test_progress_is_reported_and_true_stops():
    events = []
    hs.solve(topcuoglu(), ["olb", "heft"], on_progress=events.append)
    assert [event.incumbent for event in events][-1] == 80
    assert all(0 <= event.gap <= 1 for event in events)
    stopped = hs.solve(topcuoglu(), ["olb", "heft"], on_progress=lambda event: math.isfinite(event.incumbent))
    assert (stopped.stopped, stopped.method) == ("callback", "olb")


def test_budgets_stop_a_method_that_never_would(mine):
    @hs.method("endless", summary="offers random decisions for ever")
    def endless(problem, monitor):
        for _ in monitor:
            device = monitor.rng.integers(0, problem.n_devices, problem.n_tasks)
            monitor.offer(hs.Decision.whole(problem, device, problem.graph.topological_order))

    problem = topcuoglu()
    limited = hs.solve(problem, "endless", evaluations=50, seed=3)
    assert limited.stopped == "evaluations"
    again = hs.solve(problem, "endless", evaluations=50, seed=3)
    assert again.schedule == limited.schedule, "same seed, same answer"
    assert any(hs.solve(problem, "endless", evaluations=50, seed=seed).schedule != limited.schedule for seed in range(4, 8))
    assert hs.solve(problem, "endless", time_limit=0.2).stopped == "time limit"
    with pytest.raises(hs.InvalidArgument, match="time_limit is -1"):
        hs.solve(problem, time_limit=-1)


def test_ctrl_c_returns_the_best_found(mine):
    @hs.method("interrupted", summary="is interrupted after its first offer")
    def interrupted(problem, monitor):
        monitor.run("olb")
        raise KeyboardInterrupt

    solution = hs.solve(topcuoglu(), "interrupted")
    assert (solution.stopped, solution.makespan) == ("interrupted", hs.solve(topcuoglu(), "olb").makespan)


def test_a_method_that_dies_does_not_affect_the_others(mine):
    @hs.method("dies", summary="finds something, then dies")
    def dies(problem, monitor):
        monitor.run("olb")
        raise RuntimeError("out of luck")

    solution = hs.solve(topcuoglu(), ["dies", "heft"])
    assert solution.makespan == 80
    assert "dies failed: RuntimeError: out of luck" in solution.messages
    assert hs.solve(topcuoglu(), "dies").schedule is not None

    @hs.method("dies-at-once", summary="dies")
    def dies_at_once(problem, monitor):
        raise RuntimeError("no luck at all")

    with pytest.raises(RuntimeError, match="no luck at all"):
        hs.solve(topcuoglu(), "dies-at-once")


def test_a_wrong_bound_is_an_error_and_never_clipped(mine):
    @hs.method("overconfident", summary="claims too much")
    def overconfident(problem, monitor):
        monitor.run("heft")
        monitor.raise_bound(hs.Bound(81.0, "hearsay", "somebody said so"))

    with pytest.raises(hs.InconsistentBound, match="'hearsay' = 81.0 s is above the makespan 80.0 s of 'heft'"):
        hs.solve(topcuoglu(), "overconfident")


def test_over_full_decisions_are_noted_and_not_kept(mine):
    graph = hs.TaskGraph(["a", "b"], weight_bytes=3)
    problem = hs.Problem(graph, hs.Cluster([hs.Device("x", memory_bytes=4), "y"], bandwidth=1.0), durations=np.ones((2, 2)))

    @hs.method("crams", summary="puts everything on x")
    def crams(problem, monitor):
        assert math.isinf(monitor.offer(hs.Decision.from_assignment(problem, {"a": "x", "b": "x"})))

    solution = hs.solve(problem, "crams")
    assert solution.schedule is None
    assert solution.messages == ("crams: a decision needs 6 bytes on 'x', 2 more than there are (static memory)",)


def test_options_reach_the_method_and_unknown_ones_are_refused():
    problem = topcuoglu()
    assert hs.solve(problem, "heft", options={"mean_communication": "saga"}).schedule is not None
    with pytest.raises(hs.UnsupportedFeature, match="method 'heft' takes no option 'mean'; its options: mean_communication='paper'"):
        hs.solve(problem, "heft", options={"mean": "saga"})
    with pytest.raises(hs.UnsupportedFeature, match="unknown method 'heftt'; choose from annealing, assignment, auto, best-device"):
        hs.solve(problem, "heftt")
    with pytest.raises(hs.UnsupportedFeature, match="no method named"):
        hs.solve(problem, [])


def test_names_are_taken_once(mine):
    with pytest.raises(hs.UnsupportedFeature, match="'heft' is registered already"):

        @hs.method("heft", summary="an impostor")
        def impostor(problem, monitor):
            raise AssertionError("never called")


def test_methods_describe_themselves():
    for name, method in hs.methods().items():
        assert method.name == name
        assert method.summary
        assert method.supports
        built_in = method.function.__module__.startswith("hetsched.")  # other tests register some of their own
        assert method.source or name == "auto" or not built_in, f"{name} has no source; give source= the paper, or 'ours'"


@pytest.mark.parametrize(
    ("failure", "message"), [(None, ""), (ImportError("no module strangers"), "no module strangers"), (SystemExit(3), "SystemExit(3)")]
)
def test_entry_points_of_other_packages_are_found_and_failures_reported(mine, monkeypatch, failure, message):
    class Entry:
        name, value = "strangers", "strangers.methods"

        def load(self):
            if failure is not None:
                raise failure
            hs.method("strange", summary="of another package")(lambda problem, monitor: monitor.run("heft"))

    entries = {"hetsched.methods": [Entry()]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries.get(group, []))
    monkeypatch.setattr(registry, "_discovered", False)
    if failure is not None:
        with pytest.warns(UserWarning, match=re.escape(f"'strangers' (strangers.methods) cannot be loaded: {message}")):
            hs.methods()
    else:
        assert hs.solve(topcuoglu(), "strange").makespan == 80


def test_a_method_that_exits_keeps_its_offer(mine):
    @hs.method("leaves", summary="offers, then exits")
    def leaves(problem, monitor):
        monitor.run("olb")
        raise SystemExit(4)

    @hs.method("leaves-at-once", summary="exits")
    def leaves_at_once(problem, monitor):
        raise SystemExit(4)

    solution = hs.solve(topcuoglu(), "leaves")
    assert solution.makespan == hs.solve(topcuoglu(), "olb").makespan
    assert "leaves failed: SystemExit: 4" in solution.messages
    with pytest.raises(hs.HetschedError, match=re.escape("leaves-at-once failed: SystemExit(4)")):
        hs.solve(topcuoglu(), "leaves-at-once")


def test_subsolve_runs_another_method_on_another_problem_within_the_budget(mine):
    seen = []

    @hs.method("divides", summary="solves a part first")
    def divides(problem, monitor):
        part = monitor.subsolve(chain(), "heft")
        seen.append(part)
        monitor.run("olb")

    solution = hs.solve(topcuoglu(), "divides")
    assert seen[0].makespan == hs.solve(chain(), "heft").makespan
    assert solution.method == "olb"
    monitor = search.Monitor(topcuoglu(), search.Budget(time_limit=0.0))
    assert monitor.subsolve(chain(), "heft").stopped == "time limit"


@pytest.mark.parametrize("has_schedule", [True, False])
def test_solutions_and_schedules_round_trip_to_the_bit(tmp_path, has_schedule):
    solution = hs.solve(topcuoglu(), evaluations=100) if has_schedule else search.Monitor(topcuoglu()).solution("nothing")
    solution.write(tmp_path / "solution.json")
    back = hs.read(tmp_path / "solution.json")
    assert back == solution
    assert documents.encode(back) == documents.encode(solution)
    if has_schedule:
        solution.schedule.write(tmp_path / "schedule.json")
        assert hs.read(tmp_path / "schedule.json") == solution.schedule


def test_foreign_schedules_get_one_line_errors(tmp_path):
    path = tmp_path / "schedule.json"
    text = '{"format": "hetsched-schedule", "version": 1, "schedule": {"tasks": ["a"], "devices": ["x"], "batches": [%s]}}'
    path.write_text(text % '{"task": "b", "device": "x", "start": 0, "finish": 1}')
    with pytest.raises(hs.InvalidProblem, match="batch 0 of the schedule names task 'b', which is not in its list of tasks"):
        hs.read(path)
    path.write_text(text % '{"task": "a", "device": "x", "start": 0, "finish": 1, "inputs": [4]}')
    with pytest.raises(hs.InvalidSchedule, match="input numbers run from 4 to 4, but the schedule has 1, numbered from 0"):
        hs.read(path)


@pytest.mark.parametrize("method", ["auto", "heft", "best-device"])
def test_a_time_limit_of_zero_still_gives_an_answer(method):
    assert hs.solve(topcuoglu(), method, time_limit=0).schedule is not None


def test_the_first_ctrl_c_requests_a_stop_and_the_second_interrupts(mine, ctrl_c):
    usual = signal.getsignal(signal.SIGINT)

    @hs.method("polite", summary="stops when asked")
    def polite(problem, monitor):
        monitor.run("olb")
        os.kill(os.getpid(), signal.SIGINT)
        assert monitor.stopped == "interrupted"

    @hs.method("rude", summary="does not look up")
    def rude(problem, monitor):
        monitor.run("olb")
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("never reached")

    for name in ("polite", "rude"):
        solution = hs.solve(topcuoglu(), [name, "heft"])
        assert (solution.stopped, solution.method) == ("interrupted", "olb")
        assert signal.getsignal(signal.SIGINT) is usual


def test_a_failure_does_not_hide_a_proof(mine):
    @hs.method("bad", summary="dies")
    def bad(problem, monitor):
        raise RuntimeError("bad luck")

    @hs.method("proves", summary="proves that there is no schedule")
    def proves(problem, monitor):
        monitor.raise_bound(hs.Bound(math.inf, "proof", "for a test"))

    assert hs.solve(topcuoglu(), ["bad", "proves"]).status == "infeasible"
