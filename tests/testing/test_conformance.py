"""The suite on methods of the package, and on faulty methods that have to fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import search
from hetsched.testing import backends, bounds, conformance
from hetsched.testing.profiles import searching


@pytest.fixture
def mine():
    """Use a temporary registry, so that methods of tests are removed."""
    with search.temporarily():
        yield


QUICK = searching(100)


def run(test, name, **attributes):
    """Run one test of the suite on a method, without shrinking."""
    suite = type("Suite", (conformance.MethodSuite,), {"method": name, **attributes})
    inner = getattr(suite, test).hypothesis.inner_test

    @QUICK
    @given(data=st.data())
    def once(data):
        inner(suite(), data)

    once()


def test_a_method_that_breaks_a_rule_fails(mine, monkeypatch):
    @hs.method("careless", summary="ignores memory")
    def careless(problem, monitor):
        monitor.best = hs.simulate(problem, hs.Decision.whole(problem, np.zeros(problem.n_tasks, int), problem.graph.topological_order))

    with pytest.raises(hs.InvalidSchedule):
        run("test_restrictions_are_kept_or_refused", "careless")


@pytest.mark.slow
def test_a_method_that_finds_nothing_fails(mine):
    @hs.method("shy", summary="offers nothing")
    def shy(problem, monitor):
        monitor.note("nothing to offer")

    with pytest.raises(AssertionError, match="no schedule for a problem without restrictions"):
        run("test_plain_problems_are_answered", "shy")
    run("test_plain_problems_are_answered", "shy", answers_plain=False)


def test_a_method_that_supports_less_than_it_declares_fails(mine):
    def whole_only(problem, monitor):
        if np.isinf(problem.whole_durations).any():
            return monitor.note("nothing to offer")
        return monitor.run("heft")

    hs.method("modest", summary="needs whole batches, and declares it", supports=search.Supports(inputs="whole"))(whole_only)
    hs.method("boastful", summary="needs whole batches")(whole_only)
    rules = {"inputs": 2, "batching": "free"}
    assert rules in conformance._RULES
    for name in ("modest", "boastful"):
        suite = type("Suite", (conformance.MethodSuite,), {"method": name})()
        if name == "modest":
            suite.test_what_the_declaration_supports_is_answered(rules)
        else:
            with pytest.raises(AssertionError, match="declare in `supports` what it does not support"):
                suite.test_what_the_declaration_supports_is_answered(rules)


def test_a_method_that_needs_tasks_fails(mine):
    @hs.method("first", summary="begins with a task")
    def first(problem, monitor):
        monitor.note(problem.graph.names[0])

    suite = type("Suite", (conformance.MethodSuite,), {"method": "first"})()
    with pytest.raises(IndexError):
        suite.test_a_graph_without_tasks_is_answered_or_refused()


def test_failing_assertions_of_the_suites_show_their_values():
    for suite in (backends, bounds, conformance):
        assert isinstance(suite.__spec__.loader, AssertionRewritingHook)


def test_a_method_that_dies_fails(mine):
    @hs.method("dies", summary="dies")
    def dies(problem, monitor):
        raise KeyError("a column")

    with pytest.raises(KeyError, match="a column"):
        run("test_answers_keep_every_rule_and_never_beat_the_optimum", "dies")


@pytest.mark.slow
def test_a_method_that_refuses_a_problem_passes(mine):
    @hs.method("choosy", summary="takes one input only")
    def choosy(problem, monitor):
        if problem.inputs > 1:
            raise hs.UnsupportedFeature("choosy takes one input; set inputs=1")
        monitor.run("heft")

    run("test_several_inputs_and_contention_are_kept_or_refused", "choosy")
    run("test_plain_problems_are_answered", "choosy")


def test_false_bounds_fail(mine):
    @hs.method("boastful", summary="claims that what it found is optimal")
    def boastful(problem, monitor):
        monitor.run("best-device")
        monitor.raise_bound(hs.Bound(monitor.incumbent, "hearsay"))

    with pytest.raises((AssertionError, hs.InconsistentBound)):
        run("test_answers_keep_every_rule_and_never_beat_the_optimum", "boastful")


def test_hidden_randomness_fails(mine):
    calls = iter(range(10**9))

    @hs.method("moody", summary="changes its mind between calls")
    def moody(problem, monitor):
        k = next(calls) % problem.n_devices
        order = problem.graph.topological_order
        if problem.inputs == 1 and np.isfinite(problem.whole_durations[:, k]).all():
            monitor.offer(hs.Decision.whole(problem, np.full(problem.n_tasks, k), order))

    with pytest.raises(AssertionError):
        run("test_the_same_seed_gives_the_same_answer", "moody")


def test_dependence_on_the_scale_fails(mine):
    @hs.method("metric", summary="chooses by seconds")
    def metric(problem, monitor):
        monitor.run("best-device" if np.nanmax(problem.durations, initial=0) > 8 else "heft")

    with pytest.raises(AssertionError):
        run("test_the_makespan_scales_with_the_times", "metric")
    with pytest.raises(pytest.skip.Exception, match="does not claim to scale"):
        run("test_the_makespan_scales_with_the_times", "metric", scales=False)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1e6, "the bound is above the optimum"),
        (math.inf, "reported infeasible, but a schedule of"),
        (0.0, "no schedule for a problem without restrictions"),
    ],
)
def test_false_claims_fail_on_the_corpus_and_name_the_problem(mine, value, message):
    @hs.method("claims", summary="claims a bound and finds nothing")
    def claims(problem, monitor):
        monitor.raise_bound(hs.Bound(value, "hearsay"))

    class Suite(conformance.MethodSuite):
        method = "claims"

    with pytest.raises(AssertionError, match=message) as caught:
        Suite().test_answers_on_the_corpus_agree_with_the_stored_optima()
    assert caught.value.__notes__ == ["problem 'plain 0' of hetsched.testing.corpus"]


@pytest.fixture
def goes_on(mine):
    """Return the suite of a method that repeats some work a thousand times without regard to limits."""

    def made(work):
        @hs.method("goes-on", summary="goes on whatever it is told")
        def goes_on(problem, monitor):
            decision = hs.Decision.whole(problem, np.zeros(problem.n_tasks, int), problem.graph.topological_order)
            for _ in range(1000):
                work(monitor, decision)

        class Suite(conformance.MethodSuite):
            method = "goes-on"
            evaluations_to_stop = 100

        return Suite()

    return made


def test_methods_that_never_check_the_clock_fail(goes_on):
    with pytest.raises(AssertionError, match="[0-9]+ evaluations between two readings of the clock"):
        goes_on(lambda monitor, decision: monitor.offer(decision)).test_little_is_done_between_looks_at_the_clock_and_after_the_end(30)


@pytest.mark.parametrize("looks", [0, 30])
def test_methods_that_do_not_end_with_their_time_fail(goes_on, looks):
    with pytest.raises(AssertionError, match="the clock was read [0-9]{3,4} times after the deadline"):
        goes_on(lambda monitor, _: monitor.elapsed).test_little_is_done_between_looks_at_the_clock_and_after_the_end(looks)


def test_methods_that_continue_after_their_time_fail(goes_on):
    suite = goes_on(lambda monitor, decision: (monitor.offer(decision), monitor.elapsed))
    suite.looks_to_stop = 10_000
    with pytest.raises(AssertionError, match="[0-9]+ evaluations after the deadline"):
        suite.test_little_is_done_between_looks_at_the_clock_and_after_the_end(30)


def test_methods_that_ignore_evaluation_limits_fail(goes_on):
    with pytest.raises(AssertionError):
        goes_on(lambda monitor, decision: monitor.offer(decision)).test_little_is_done_after_the_last_evaluation_allowed()


def marks(suite):
    return [mark.name for mark in getattr(suite, "pytestmark", [])]


def test_suites_are_made_of_a_query(mine):
    for growth, name in ((1, "my:method"), (2, "my-slow-method")):
        hs.method(name, summary="mine", growth=growth)(lambda problem, monitor: monitor.run("heft"))
    chosen = [item for name, item in search.registered().items() if name.startswith("my")]
    made = conformance.suites(chosen, evaluations=7)
    suites = {name: item for name, item in vars(made).items() if name.startswith("Test")}
    assert {name: (item.method, item.evaluations) for name, item in suites.items()} == {
        "TestMyMethod": ("my:method", 7),
        "TestMySlowMethod": ("my-slow-method", 7),
    }
    assert all(issubclass(item, conformance.MethodSuite) for item in suites.values())
    assert [marks(item) for item in suites.values()] == [["slow"], []]


def test_which_suites_are_slow_follows_from_what_methods_declare():
    """Methods that solve models, or whose time grows with the square of the tasks, are slow; `auto` is not."""
    methods = search.registered()
    assert {name for name, method in methods.items() if conformance.slow(method)} >= {"m-sct", "moirai", "milp:highs"}
    assert not any(conformance.slow(methods[name]) for name in ("heft", "annealing", "auto", "milp", "cpsat"))
