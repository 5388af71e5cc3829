"""A suite of tests for a scheduling method, to inherit from, and one for each method of a list."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy

from hetsched.documents import encode
from hetsched.errors import UnsupportedFeature
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.links import CONTENDED
from hetsched.problem.problem import Problem
from hetsched.schedule.schedule import Schedule
from hetsched.schedule.simulate import simulate
from hetsched.search import Kind, Method, Supports
from hetsched.search.solution import Solution, Status
from hetsched.solving import methods, solve
from hetsched.testing import corpus, strategies
from hetsched.testing.brute_force import brute_force
from hetsched.testing.clocks import watched
from hetsched.testing.corpus import Case
from hetsched.testing.profiles import examples
from hetsched.verification.verify import verify

TOLERANCE = 1e-9

_SETTINGS = examples(30)
_RULES: tuple[dict[str, Any], ...] = (
    *({"communication": name} for name in CONTENDED),
    {"memory": "peak"},
    {"inputs": 2, "batching": "free"},
    *({"inputs": 2, "batching": "free", "communication": name} for name in CONTENDED),
    {"inputs": 2, "batching": "once", "batch_sizes": [2]},
)
"""Rules that a method may declare not to support."""


class MethodSuite:
    """Base class of the tests of one method.

    Subclass it in a test module; pytest collects the tests::

        class TestMine(conformance.MethodSuite):
            method = "mine"

    `suites` makes the classes of many methods.

    Attributes
    ----------
    method : str
        The registered name.
    options : mapping
        Options to solve with.
    evaluations : int or None
        The evaluation limit of each solve.
    time_limit : float or None
        Seconds of each solve; needed for methods that ignore an evaluation limit.
    answers_plain : bool
        Whether it must find a schedule of every problem without restrictions (one input, any device,
        enough memory, no contention).
    scales : bool
        Whether the makespan must double if all times double.
    evaluations_to_stop : int
        The most evaluations between two readings of the clock, and after the deadline, with 40 tasks.
    looks_to_stop : int
        The most readings of the clock after the deadline.
    enumerated : int
        The limit of `brute_force`; answers to larger problems are only verified.
    """

    method: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    evaluations: ClassVar[int | None] = 200
    time_limit: ClassVar[float | None] = None
    answers_plain: ClassVar[bool] = True
    scales: ClassVar[bool] = True
    evaluations_to_stop: ClassVar[int] = 10_000
    looks_to_stop: ClassVar[int] = 200
    enumerated: ClassVar[int] = 10_000

    def problems(self, **features: Any) -> SearchStrategy[Problem]:
        """Return the strategy of the problems to test with; override it to restrict or extend them."""
        return strategies.problems(**features)

    def plain_problems(self) -> SearchStrategy[Problem]:
        """Return the strategy of problems without restrictions."""
        return strategies.problems(
            inputs=1,
            communication="delay",
            memory="static",
            tight=False,
            absent=False,
            pins=False,
            colocation=False,
            missing_links=False,
            transfers=False,
        )

    def cases(self) -> Sequence[Case]:
        """Return the problems of the corpus to test with; override it to restrict them."""
        return corpus.sample()

    def solve(self, problem: Problem, **arguments: Any) -> Solution | None:
        """Return the solution of the method, or None if it raises `UnsupportedFeature`."""
        given_arguments = {"evaluations": self.evaluations, "time_limit": self.time_limit, "options": self.options, **arguments}
        try:
            return solve(problem, self.method, **given_arguments)
        except UnsupportedFeature:
            return None

    def draw(self, data: DataObject, problems: SearchStrategy[Problem]) -> Problem:
        """Draw a problem; a failing test prints it as a document."""
        problem = data.draw(problems)
        note(encode(problem).decode())
        return problem

    def check(self, problem: Problem, solution: Solution | None) -> Schedule | None:
        """Check an answer against the rules and, if it can be enumerated, the optimum; return the schedule."""
        if solution is None:
            return None
        check_rules(problem, solution)
        try:
            optimum = brute_force(problem, limit=self.enumerated)
        except UnsupportedFeature:
            return solution.schedule
        check_optimum(solution, None if optimum is None else optimum.makespan)
        return solution.schedule

    # ------------------------------------------------------------------ the tests

    def test_is_registered_with_a_summary(self) -> None:
        method = methods()[self.method]
        assert method.summary
        assert isinstance(method.supports, Supports)

    @_SETTINGS
    @given(data=st.data())
    def test_plain_problems_are_answered(self, data: DataObject) -> None:
        problem = self.draw(data, self.plain_problems())
        schedule = self.check(problem, self.solve(problem))
        if self.answers_plain:
            assert schedule is not None, "no schedule for a problem without restrictions"

    def test_a_graph_without_tasks_is_answered_or_refused(self) -> None:
        problem = Problem(TaskGraph([]), Cluster(["x", "y"], bandwidth=1.0), durations=np.zeros((0, 2)))
        schedule = self.check(problem, self.solve(problem))
        assert schedule is None or schedule.makespan == 0

    @pytest.mark.parametrize("rules", _RULES, ids=lambda rules: " ".join(map(str, rules.values())))
    def test_what_the_declaration_supports_is_answered(self, rules: dict[str, Any]) -> None:
        """Where `supports` refuses nothing, and nothing else restricts the schedule, there is one."""
        graph = TaskGraph(["a", "b", "c"], [("a", "b"), ("a", "c")], output_bytes=1.0)
        problem = Problem(graph, Cluster(["x", "y"], bandwidth=1.0), durations=[[[1.0], [2.0]]] * 3, **{"batch_sizes": [1], **rules})
        refusal = methods()[self.method].supports.refusal(problem)
        solution = self.solve(problem)
        if refusal:
            assert solution is None, f"it answers what `supports` refuses: {refusal}"
        elif self.answers_plain and solution is not None:
            assert self.check(problem, solution) is not None, f"no schedule with {rules}; declare in `supports` what it does not support"

    @_SETTINGS
    @given(data=st.data())
    def test_answers_keep_every_rule_and_never_beat_the_optimum(self, data: DataObject) -> None:
        problem = self.draw(data, self.problems())
        self.check(problem, self.solve(problem))

    def test_answers_on_the_corpus_agree_with_the_stored_optima(self) -> None:
        for case in self.cases():
            try:
                solution = self.solve(case.problem)
                if solution is not None:
                    check_rules(case.problem, solution)
                    check_optimum(solution, case.optimum)
                if self.answers_plain and case.feature == "plain":
                    schedule = None if solution is None else solution.schedule
                    assert schedule is not None, "no schedule for a problem without restrictions"
            except Exception as error:
                error.add_note(f"problem {case.name!r} of hetsched.testing.corpus")
                raise

    @_SETTINGS
    @given(data=st.data())
    def test_restrictions_are_kept_or_refused(self, data: DataObject) -> None:
        problem = self.draw(data, self.problems(n_tasks=4, tight=True, absent=True, pins=True, colocation=True, missing_links=True))
        schedule = self.check(problem, self.solve(problem))
        if schedule is None:
            return
        graph = problem.graph
        for i, name in enumerate(graph.names):
            for item in range(problem.inputs):
                device = schedule.device_of(name, item)
                assert device in (graph.devices[i] or problem.cluster.names)
                assert np.isfinite(problem.durations[i, problem.cluster.index[device]]).any()
                for other, label in zip(graph.names, graph.colocation, strict=True):
                    assert label is None or label != graph.colocation[i] or schedule.device_of(other, item) == device

    @_SETTINGS
    @given(data=st.data())
    def test_several_inputs_and_contention_are_kept_or_refused(self, data: DataObject) -> None:
        communication = data.draw(st.sampled_from(CONTENDED))
        problem = self.draw(data, self.problems(n_tasks=3, n_devices=2, inputs=2, communication=communication))
        self.check(problem, self.solve(problem))

    @_SETTINGS
    @given(data=st.data())
    def test_the_same_seed_gives_the_same_answer(self, data: DataObject) -> None:
        if not methods()[self.method].deterministic:
            pytest.skip("does not claim to be deterministic")
        problem = self.draw(data, self.problems())
        seed = data.draw(st.integers(0, 100))
        first, second = (self.solve(problem, seed=seed, time_limit=None) for _ in range(2))
        if first is None or second is None:
            assert first is second, "refuses only sometimes"
            return
        assert first.schedule == second.schedule
        assert (first.status, first.method) == (second.status, second.method)

    @_SETTINGS
    @given(data=st.data())
    def test_the_makespan_scales_with_the_times(self, data: DataObject) -> None:
        if not self.scales:
            pytest.skip("does not claim to scale")
        problem = self.draw(data, self.problems())
        factor = data.draw(st.sampled_from([0.25, 2.0, 1024.0]))
        one, other = self.solve(problem), self.solve(scaled(problem, factor))
        if one is None or other is None:
            assert one is other, "refuses only at some scale"
            return
        assert other.makespan == pytest.approx(one.makespan * factor, rel=TOLERANCE, abs=0)

    @_SETTINGS
    @given(data=st.data())
    def test_names_and_numbering_do_not_matter_to_validity(self, data: DataObject) -> None:
        problem = self.draw(data, self.problems())
        tasks, devices = (data.draw(st.permutations(range(n))) for n in (problem.n_tasks, problem.n_devices))
        twin = renumbered(problem, tasks, devices)
        self.check(twin, self.solve(twin))

    @_SETTINGS
    @given(data=st.data())
    def test_a_warm_start_never_worsens(self, data: DataObject) -> None:
        problem = self.draw(data, self.problems())
        decision = data.draw(strategies.decisions(problem))
        start = simulate(problem, decision)
        assume(not verify(problem, start))
        solution = self.solve(problem, start=decision)
        assert solution is not None, "a schedule was given, so there is one to return"
        assert solution.makespan <= start.makespan
        self.check(problem, solution)

    @pytest.mark.parametrize("looks", [0, 1, 10, 30])
    def test_little_is_done_between_looks_at_the_clock_and_after_the_end(self, looks: int) -> None:
        try:
            monitor, late, after, between = watched(_larger_problem(), self.method, looks, self.options)
        except UnsupportedFeature:
            return
        assert late <= self.looks_to_stop, f"the clock was read {late} times after the deadline"
        assert after <= self.evaluations_to_stop, f"{after} evaluations after the deadline"
        assert between <= self.evaluations_to_stop, f"{between} evaluations between two readings of the clock"
        assert monitor.best is None or verify(monitor.problem, monitor.best) == []

    def test_little_is_done_after_the_last_evaluation_allowed(self) -> None:
        problem = _larger_problem()
        solution = self.solve(problem, evaluations=1, time_limit=None)
        if solution is not None:
            assert solution.methods.evaluations.sum() <= 1 + self.evaluations_to_stop
            assert solution.schedule is None or verify(problem, solution.schedule) == []


def suites(methods: Iterable[Method], suite: type[MethodSuite] = MethodSuite, **attributes: Any) -> type:
    """Return a class that holds a suite for each method; pytest collects it under any name that begins with "Test".

    ::

        TestAll = conformance.suites(select(kind=Kind.SEARCH), time_limit=5.0)

    The suite of "my-method" is ``TestAll::TestMyMethod``. Those for which `slow` is true have the marker ``slow``, which the
    configuration of pytest has to register.

    Parameters
    ----------
    methods : iterable of Method
        As `hetsched.search.select` returns them.
    suite : subclass of MethodSuite
        The base class of the suites.
    **attributes
        Attributes of all of them.
    """
    classes: dict[str, type] = {}
    for method in methods:
        title = "Test" + "".join(part.capitalize() for part in re.findall("[A-Za-z0-9]+", method.name))
        made = type(title, (suite,), {"__module__": suite.__module__, "__test__": True, **attributes, "method": method.name})
        classes[title] = pytest.mark.slow(made) if slow(method) else made
    return type("Suites", (), {"__doc__": "A suite for each of some methods.", **classes})


def slow(method: Method) -> bool:
    """Return whether the suite of a method is slow: its time grows faster than the graph, or it solves models that `auto` does not."""
    return method.growth > 1 or (method.kind is Kind.EXACT and method.auto is None)


def check_rules(problem: Problem, solution: Solution) -> None:
    """Check that no method failed, and that the schedule, if any, keeps every rule and is that of its decision."""
    # A failure after the first schedule is only a message of the solution.
    failures = [message for message in solution.messages if " failed: " in message and "UnsupportedFeature" not in message]
    assert not failures, failures[0]
    if solution.schedule is not None:
        assert verify(problem, solution.schedule) == []
        assert simulate(problem, solution.schedule.decision) == solution.schedule


def check_optimum(solution: Solution, optimum: float | None) -> None:
    """Check an answer against the least makespan, or against None if no schedule exists."""
    if solution.status is Status.INFEASIBLE:
        assert optimum is None, f"reported infeasible, but a schedule of {optimum} s exists"
    if optimum is not None:
        assert solution.bound <= optimum * (1 + TOLERANCE), "the bound is above the optimum"
    if solution.schedule is None:
        return
    makespan = solution.schedule.makespan
    assert optimum is not None, "a schedule of a problem that has none"
    assert makespan >= optimum * (1 - TOLERANCE), "better than the optimum"
    if solution.status is Status.OPTIMAL:
        assert makespan <= optimum * (1 + 1e-6) + TOLERANCE, "reported optimal, but is not"


def scaled(problem: Problem, factor: float) -> Problem:
    """Return the problem with all times multiplied by `factor`."""
    cluster = problem.cluster
    return problem.replace(
        cluster=Cluster(cluster.devices, cluster.bandwidth / factor, cluster.latency * factor),
        durations=problem.durations * factor,
        transfers=None if problem.transfers is None else problem.transfers * factor,
    )


def renumbered(problem: Problem, tasks: list[int], devices: list[int]) -> Problem:
    """Return the problem with other names, and task ``tasks[x]`` and device ``devices[x]`` as number x."""
    graph, cluster = problem.graph, problem.cluster
    place = np.argsort(tasks)
    named = {cluster.names[k]: f"machine {x}" for x, k in enumerate(devices)}
    pins = [graph.devices[i] for i in tasks]
    twin = TaskGraph(
        [f"job {x}" for x in range(len(tasks))],
        place[graph.edges],
        edge_bytes=graph.edge_bytes,
        weight_bytes=graph.weight_bytes[tasks],
        input_bytes=graph.input_bytes[tasks],
        output_bytes=graph.output_bytes[tasks],
        colocation=[graph.colocation[i] for i in tasks],
        devices=[None if pin is None else [named[name] for name in pin] for pin in pins],
    )
    grid = np.ix_(devices, devices)
    return problem.replace(
        graph=twin,
        cluster=Cluster(
            [dataclasses.replace(cluster.devices[k], name=f"machine {x}") for x, k in enumerate(devices)],
            cluster.bandwidth[grid],
            cluster.latency[grid],
        ),
        durations=problem.durations[np.ix_(tasks, devices)],
        transfers=None if problem.transfers is None else problem.transfers[:, devices][:, :, devices],
    )


def _larger_problem() -> Problem:
    """Return a problem on which every search takes long."""
    n = 40
    rng = np.random.default_rng(0)
    pairs = np.array([(i, j) for j in range(n) for i in range(j)])
    edges = pairs[rng.random(len(pairs)) < 0.1]
    graph = TaskGraph([f"t{i}" for i in range(n)], edges, edge_bytes=rng.random(len(edges)))
    return Problem(graph, Cluster(["a", "b", "c"], bandwidth=1.0), durations=rng.random((n, 3)))
