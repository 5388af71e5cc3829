"""A suite of tests for a lower bound, to inherit from, and one for each bound of a list."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, note
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy

from hetsched.analysis.levels import Levels
from hetsched.arrays import IntArray
from hetsched.bounds.best import BoundFunction, Cost, Entry
from hetsched.documents import encode
from hetsched.errors import OutOfTime, UnsupportedFeature
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.schedule.simulate import simulate
from hetsched.search import always
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import Deadline
from hetsched.testing import strategies
from hetsched.testing.brute_force import brute_force
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples

TOLERANCE = 1e-9
SECONDS = 60.0
"""For a solver, which on such problems needs a fraction of it."""


class BoundSuite:
    """Base class of the tests of one lower bound on the makespan.

    Subclass it in a test module; pytest collects the tests::

        class TestMine(BoundSuite):
            function = staticmethod(mine)

    `suites` makes the classes of many bounds.

    Attributes
    ----------
    function : BoundFunction
    fits : callable
        Whether the bound applies to a problem; other problems are skipped.
    time_limit : float or None
        Seconds of each call, for bounds that need a deadline.
    scales : bool
        Whether the bound scales with all times, to the bit if the factor is a power of two.
    ignores_numbering : bool
        Whether it is the same for tasks and devices in another order, to 1e-5.
    looks_to_stop : int
        The most readings of the clock after the deadline.
    """

    function: ClassVar[BoundFunction]
    fits: ClassVar[Callable[[Problem], bool]] = staticmethod(always)
    time_limit: ClassVar[float | None] = None
    scales: ClassVar[bool] = True
    ignores_numbering: ClassVar[bool] = True
    looks_to_stop: ClassVar[int] = 50

    def problems(self, **features: Any) -> SearchStrategy[Problem]:
        """Return the strategy of the problems to test with; override it to restrict or extend them."""
        return strategies.problems(**features)

    def large_problems(self) -> SearchStrategy[Problem]:
        """Return the strategy of problems on which the bound takes long."""
        return self.problems(n_tasks=st.integers(20, 40), n_devices=3)

    def value(self, problem: Problem, best: Bound = NO_BOUND) -> float:
        """Return the bound of a problem in seconds, from the best bound so far; a failing test prints the problem as a document."""
        assume(type(self).fits(problem))
        note(encode(problem).decode())
        return type(self).function(problem, best=best, deadline=Deadline.after(self.time_limit)).value

    @examples(100, HealthCheck.filter_too_much)
    @given(data=st.data())
    def test_it_is_never_above_the_optimum(self, data: DataObject) -> None:
        """Under every rule; if the bound is inf, the enumeration finds no schedule either."""
        problem = data.draw(self.problems())
        assert self.value(problem) <= _optimum(problem) * (1 + TOLERANCE), "above the optimum"

    @examples(100, HealthCheck.filter_too_much)
    @given(data=st.data(), share=st.sampled_from([0.5, 0.9, 1.0]))
    def test_it_is_never_above_the_optimum_if_it_starts_from_another_bound(self, data: DataObject, share: float) -> None:
        """The bound so far may be of what this one leaves out, such as other inputs or transfers."""
        problem = data.draw(self.problems())
        optimum = _optimum(problem)
        assume(math.isfinite(optimum))
        best = Bound(share * optimum, "given", f"{share:.0%} of the optimum")
        assert self.value(problem, best) <= optimum * (1 + TOLERANCE), "above the optimum"

    @examples(40, HealthCheck.filter_too_much)
    @given(data=st.data())
    def test_it_is_never_above_a_schedule(self, data: DataObject) -> None:
        """On problems too large for the enumeration."""
        problem = data.draw(self.problems(n_tasks=st.integers(5, 12), inputs=st.integers(1, 4), tight=False))
        makespan = simulate(problem, data.draw(strategies.decisions(problem))).makespan
        assert self.value(problem) <= makespan * (1 + TOLERANCE), "above a schedule"

    def test_it_is_at_most_zero_without_tasks(self) -> None:
        problem = Problem(TaskGraph([]), Cluster(["x", "y"], bandwidth=1.0), durations=np.zeros((0, 2)))
        if type(self).fits(problem):
            assert type(self).function(problem, deadline=Deadline.after(self.time_limit)).value <= 0

    @examples(30, HealthCheck.filter_too_much)
    @given(data=st.data(), factor=st.sampled_from([2.0**-20, 0.5, 4.0, 2.0**17]))
    def test_it_scales_with_the_unit_of_time(self, data: DataObject, factor: float) -> None:
        if not self.scales:
            pytest.skip("does not claim to scale")
        problem = data.draw(self.problems(n_tasks=st.integers(1, 6), transfers=False))
        cluster = problem.cluster.replace(bandwidth=problem.cluster.bandwidth / factor, latency=problem.cluster.latency * factor)
        scaled = problem.replace(durations=problem.durations * factor, batch_sizes=problem.batch_sizes, cluster=cluster)
        assert self.value(scaled) == pytest.approx(self.value(problem) * factor, rel=1e-12)

    @examples(30, HealthCheck.filter_too_much)
    @given(data=st.data())
    def test_it_does_not_depend_on_numbering(self, data: DataObject) -> None:
        if not self.ignores_numbering:
            pytest.skip("does not claim to ignore numbering")
        problem = data.draw(self.problems(n_tasks=st.integers(1, 6), missing_links=False, transfers=False))
        tasks = np.array(data.draw(st.permutations(range(problem.n_tasks))))
        devices = np.array(data.draw(st.permutations(range(problem.n_devices))))
        assert self.value(renumbered(problem, tasks, devices)) == pytest.approx(self.value(problem), rel=1e-5)

    @examples(30, HealthCheck.filter_too_much)
    @given(data=st.data())
    def test_levels_made_before_change_nothing(self, data: DataObject) -> None:
        problem = data.draw(self.problems(n_tasks=st.integers(1, 6)))
        assume(type(self).fits(problem))
        until = Deadline.after(self.time_limit)
        levels = Levels(problem)
        before = [levels.least.copy(), levels.starts.copy(), levels.tails.copy(), levels.work.copy(), levels.batch_durations.copy()]
        assert type(self).function(problem, levels=levels, deadline=until).value == type(self).function(problem, deadline=until).value
        after = [levels.least, levels.starts, levels.tails, levels.work, levels.batch_durations]
        assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True)), "it changes the levels"

    @examples(20, HealthCheck.filter_too_much)
    @given(data=st.data())
    def test_it_ends_soon_after_its_deadline(self, data: DataObject) -> None:
        """On a clock that advances at each reading."""
        problem = data.draw(self.large_problems())
        assume(type(self).fits(problem))
        clock = SteppingClock(1.0)
        deadline = Deadline.after(3.0, clock)
        with contextlib.suppress(OutOfTime):
            type(self).function(problem, deadline=deadline)
        assert clock.late(deadline) <= self.looks_to_stop


def _optimum(problem: Problem) -> float:
    """Return the shortest makespan, inf if there is no schedule; a problem with too many decisions is not an example."""
    try:
        optimum = brute_force(problem, limit=50_000)
    except UnsupportedFeature:
        assume(False)
    return math.inf if optimum is None else optimum.makespan


def suites(entries: Iterable[Entry], suite: type[BoundSuite] = BoundSuite, **attributes: Any) -> type:
    """Return a class that holds a suite for each entry of a list of bounds; pytest collects it under any name that begins with "Test".

    Suites of bounds that use a solver have the marker ``slow``, which the configuration of pytest has to register. They have
    `SECONDS`, and need not scale, because tolerances of solvers do not.

    Parameters
    ----------
    entries : iterable of Entry
        As in `hetsched.bounds.best.BOUNDS`.
    suite : subclass of BoundSuite
        The base class of the suites.
    **attributes
        Attributes of all of them.
    """
    classes: dict[str, type] = {}
    for entry in entries:
        title = "Test" + entry.bound.__name__.title().replace("_", "")
        own: dict[str, object] = {"function": staticmethod(entry.bound), "fits": staticmethod(entry.fits)}
        if entry.cost is Cost.MODEL:
            own |= {"time_limit": SECONDS, "scales": False}
        made = type(title, (suite,), {"__module__": suite.__module__, **own, **attributes})
        classes[title] = pytest.mark.slow(made) if entry.cost is Cost.MODEL else made
    return type("Suites", (), {"__doc__": "A suite for each of some bounds.", **classes})


def renumbered(problem: Problem, tasks: IntArray, devices: IntArray) -> Problem:
    """Return a problem with tasks and devices in another order, given as permutations."""
    graph, cluster = problem.graph, problem.cluster
    place = np.argsort(tasks)
    return problem.replace(
        graph=TaskGraph(
            [graph.names[i] for i in tasks],
            place[graph.edges],
            edge_bytes=graph.edge_bytes,
            weight_bytes=graph.weight_bytes[tasks],
            input_bytes=graph.input_bytes[tasks],
            output_bytes=graph.output_bytes[tasks],
            colocation=[graph.colocation[i] for i in tasks],
            devices=[graph.devices[i] for i in tasks],
        ),
        cluster=type(cluster)(
            [cluster.devices[k] for k in devices], cluster.bandwidth[np.ix_(devices, devices)], cluster.latency[np.ix_(devices, devices)]
        ),
        durations=problem.durations[np.ix_(tasks, devices)],
        batch_sizes=problem.batch_sizes,
    )
