"""A suite of tests for the backend of a solver, to inherit from."""

from __future__ import annotations

import itertools
import math
import threading
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import InvalidModel, UnsupportedFeature
from hetsched.modeling.backends import backend
from hetsched.modeling.expression import Expression, stack
from hetsched.modeling.model import Model
from hetsched.modeling.outcome import Incumbent, NewBound
from hetsched.stopping import Deadline
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples

PLENTY = 120.0
"""Time limit that is enough for every solver, even on a loaded machine."""

_SETTINGS = examples(25)


class Shop:
    """Jobs that each run on one of several machines, with delays between some jobs on different machines.

    Attributes
    ----------
    length : array [n, machines]
    arcs : list of (job, later job, delay)
    """

    def __init__(self, length: Any, arcs: list[tuple[int, int, float]]) -> None:
        self.length, self.arcs = np.asarray(length, np.float64), arcs

    def __repr__(self) -> str:
        return f"Shop({self.length.tolist()}, {self.arcs})"

    def optimum(self) -> float:
        """Return the least makespan, by enumeration of assignments and orders."""
        n, machines = self.length.shape
        best = math.inf
        for order in itertools.permutations(range(n)):
            if any(order.index(i) > order.index(j) for i, j, _ in self.arcs):
                continue
            for where in itertools.product(range(machines), repeat=n):
                free, finish = [0.0] * machines, [0.0] * n
                for j in order:
                    ready = max((finish[a] + (d if where[a] != where[j] else 0.0) for a, b, d in self.arcs if b == j), default=0.0)
                    # A job of zero length occupies no machine.
                    finish[j] = max(ready, free[where[j]] if self.length[j, where[j]] > 0 else 0.0) + self.length[j, where[j]]
                    if self.length[j, where[j]] > 0:
                        free[where[j]] = finish[j]
                best = min(best, max(finish))
        return best

    def model(self) -> tuple[Model, dict[str, Expression]]:
        """Return the model of the least makespan, and its columns by name."""
        n, machines = self.length.shape
        horizon = float(self.length.max(axis=1).sum() + sum(delay for *_, delay in self.arcs)) + 1.0
        model = Model()
        x = model.binary("x", (n, machines))
        start, finish = (model.time(name, n, upper=horizon) for name in ("start", "finish"))
        model.exactly_one(x, tag="one machine")
        model.add(finish == start + (x * self.length).sum(axis=1), tag="length")
        for i, j, delay in self.arcs:
            model.add(start[j] >= finish[i], tag="arc")
            late = (start[j] - finish[i]).reshape(1).broadcast_to((machines,)) >= delay
            model.implies(stack([x[i], 1 - x[j]]), late, tag="delay")
        model.no_overlap(model.interval(start, self.length, end=finish, presence=x), tag="machine")
        makespan = model.maximum("C", finish, tag="makespan")
        model.minimise(makespan)
        return model, {"x": x, "start": start, "finish": finish, "C": makespan}


@st.composite
def shops(draw: st.DrawFn, times: st.SearchStrategy[float], largest: int = 4) -> Shop:
    """Draw a shop with few jobs and machines."""
    n, machines = draw(st.integers(1, largest)), draw(st.integers(1, 2))
    arcs = [(i, j, draw(times)) for j in range(n) for i in range(j) if draw(st.booleans())]
    return Shop([[draw(times) for _ in range(machines)] for _ in range(n)], arcs)


WHOLE = st.integers(0, 9).map(float)
TENTHS = st.integers(0, 99).map(lambda count: count / 10)
ANY = st.floats(0.0, 10.0, allow_subnormal=False).map(lambda value: 0.0 if value < 1e-3 else value)


def hard(n: int = 40, machines: int = 4, seed: int = 0) -> Model:
    """Return a model that no solver solves within seconds."""
    rng = np.random.default_rng(seed)
    arcs = [(i, j, float(rng.integers(1, 20))) for j in range(n) for i in range(j) if rng.random() < 0.1]
    return Shop(rng.integers(5, 60, (n, machines)), arcs).model()[0]


class BackendSuite:
    """Base class of the tests of one backend.

    Subclass it in a test module; pytest collects the tests::

        class TestScip(backends.BackendSuite):
            solver = "scip"

    Attributes
    ----------
    solver : str
    tolerance : float
        Relative tolerance of objectives and bounds.
    option, bad_option : tuple of str and value
        A parameter that the solver accepts, and one that it refuses.
    """

    solver: str
    tolerance: float = 1e-6
    option: ClassVar[tuple[str, Any]]
    bad_option: ClassVar[tuple[str, Any]] = ("no_such_parameter", 1)

    def _agrees(self, shop: Shop) -> None:
        model, _ = shop.model()
        outcome, optimum = model.solve(self.solver, time_limit=PLENTY), shop.optimum()
        slack = self.tolerance * max(1.0, optimum)
        assert outcome.bound <= optimum + slack, "a bound above the optimum"
        assert outcome.values is not None
        assert outcome.objective >= optimum - slack, "better than the optimum"
        assert outcome.objective <= optimum + 2 * slack
        assert outcome.bound >= optimum - 3 * slack
        assert outcome.stopped == "finished"
        assert model.violations(outcome.values, tolerance=1e-5) == []

    @_SETTINGS
    @given(shop=shops(WHOLE))
    def test_it_finds_the_optimum_in_whole_times(self, shop: Shop) -> None:
        self._agrees(shop)

    @_SETTINGS
    @given(shop=shops(TENTHS))
    def test_it_finds_the_optimum_in_decimal_times(self, shop: Shop) -> None:
        self._agrees(shop)

    @_SETTINGS
    @given(shop=shops(ANY))
    def test_it_finds_the_optimum_in_any_times(self, shop: Shop) -> None:
        self._agrees(shop)

    def test_a_knapsack_is_packed(self) -> None:
        model = Model()
        x = model.binary("x", 4)
        model.add(np.array([5, 4, 3, 2]) @ x <= 9, tag="weight")
        model.maximise(np.array([10, 7, 6, 1]) @ x + 3)
        outcome = model.solve(self.solver)
        assert outcome.objective == pytest.approx(20)
        assert outcome.bound == pytest.approx(20)
        assert outcome.proven == "optimal"
        assert x.value(outcome.values).round().tolist() == [1, 1, 0, 0]  # type: ignore[arg-type]

    def test_whole_numbers_below_zero(self) -> None:
        model = Model()
        y = model.integer("y", 2, lower=-7, upper=7)
        model.add(2 * y[0] + 3 * y[1] >= -11)
        model.add(y[0] - y[1] == 2)
        model.minimise(y.sum())
        outcome = model.solve(self.solver)
        assert outcome.objective == pytest.approx(-4)
        assert y.value(outcome.values).round().tolist() == [-1, -3]  # type: ignore[arg-type]

    def test_a_contradiction_is_proven_infeasible(self) -> None:
        model = Model()
        x = model.binary("x", 3)
        model.exactly_one(x)
        model.add(x.sum() >= 2)
        model.minimise(x[0])
        outcome = model.solve(self.solver)
        assert (outcome.proven, outcome.stopped, outcome.values) == ("infeasible", "finished", None)
        assert outcome.bound == math.inf
        assert outcome.gap == math.inf

    def test_continuous_columns(self) -> None:
        model = Model()
        y = model.continuous("y", 2, upper=10)
        model.add(y[0] + 2 * y[1] <= 7)
        model.add(3 * y[0] + y[1] <= 11)
        model.maximise(y.sum())
        if backend(self.solver).capabilities.continuous:
            outcome = model.solve(self.solver)
            assert outcome.objective == pytest.approx(5)
            assert outcome.bound == pytest.approx(5)
        else:
            with pytest.raises(UnsupportedFeature, match=r"y\(0\) is continuous; .* use scip or highs"):
                model.solve(self.solver)

    @pytest.mark.parametrize("limit", [0.0, 0.5])
    def test_a_time_limit_is_kept_and_the_bound_too(self, limit: float) -> None:
        outcome = hard().solve(self.solver, time_limit=limit)  # without a limit it takes hours
        assert outcome.stopped == "time limit"
        assert outcome.proven == ""
        assert outcome.bound <= outcome.objective

    @pytest.mark.parametrize("looks", [0, 1, 3, 10, 30])
    def test_the_clock_is_read_while_a_model_is_built_in_the_solver(self, looks: int) -> None:
        clock = SteppingClock(1.0)
        deadline = Deadline.after(looks, clock)
        outcome = hard().solve(backend(self.solver), deadline=deadline)
        assert outcome.stopped == "time limit"
        assert outcome.bound <= outcome.objective
        assert clock.late(deadline) <= 50, "the clock is read too often after the deadline"

    def test_without_time_it_does_not_begin(self) -> None:
        outcome = hard().solve(backend(self.solver), time_limit=0.0)
        assert (outcome.stopped, outcome.values, outcome.proven) == ("time limit", None, "")
        assert outcome.detail.endswith("allow more time")

    @pytest.mark.parametrize("limit", [1e9, 1e21, math.inf])
    def test_a_limit_of_centuries_is_no_limit(self, limit: float) -> None:
        model, _ = Shop([[3.0, 4.0], [2.0, 2.0]], []).model()
        assert model.solve(self.solver, time_limit=limit).proven == "optimal"

    def test_threads_are_used_or_refused(self) -> None:
        model, _ = Shop([[3.0, 4.0], [2.0, 2.0]], []).model()
        if backend(self.solver).capabilities.threads:
            assert model.solve(self.solver, threads=2).proven == "optimal"
        else:
            with pytest.raises(UnsupportedFeature, match="in one thread, not 2; leave threads out"):
                model.solve(self.solver, threads=2)
        assert model.solve(self.solver, threads=1).proven == "optimal"
        with pytest.raises(UnsupportedFeature, match="threads is 0; it must be a whole number, at least 1"):
            model.solve(self.solver, threads=0)

    @pytest.mark.parametrize("gap", [-0.1, math.inf, math.nan, "1%"])
    def test_an_invalid_gap_is_refused(self, gap: Any) -> None:
        with pytest.raises(UnsupportedFeature, match=r"gap is .*; it must be a number"):
            hard(4).solve(self.solver, gap=gap)

    def test_with_one_thread_the_same_seed_gives_the_same_answer(self) -> None:
        if backend(self.solver).capabilities.deterministic:
            one, other = (hard(8, 3).solve(self.solver, threads=1, seed=3) for _ in range(2))
            assert one.values is not None
            np.testing.assert_array_equal(one.values, other.values)

    def test_a_gap_stops_it(self) -> None:
        outcome = hard(12).solve(self.solver, gap=0.5, time_limit=PLENTY)
        assert outcome.gap <= 0.5
        assert outcome.stopped in ("gap", "finished")

    def test_another_thread_stops_it(self) -> None:
        request = threading.Event()
        threading.Timer(1.0, request.set).start()
        assert hard().solve(self.solver, time_limit=PLENTY, stop=request.is_set).stopped == "stopped"

    def test_a_listener_receives_incumbents_and_stops_it(self) -> None:
        reported: list[float] = []

        def listen(incumbent: Incumbent) -> bool:
            reported.append(incumbent.objective)
            return len(reported) >= 2

        outcome = hard(14).solve(self.solver, time_limit=PLENTY, on_incumbent=listen)
        assert outcome.stopped == "callback"
        assert reported == sorted(reported, reverse=True)
        assert outcome.values is not None
        assert outcome.objective <= reported[0] + 1e-6

    def test_bounds_are_reported_as_they_rise(self) -> None:
        reported: list[float] = []

        def listen(bound: NewBound) -> bool:
            reported.append(bound.bound)
            return len(reported) >= 2

        outcome = hard(12).solve(self.solver, time_limit=PLENTY, on_bound=listen)
        assert outcome.stopped == "callback"
        assert reported == sorted(reported)
        assert reported[-1] <= outcome.objective * (1 + 1e-6)

    def test_an_exception_of_a_listener_is_raised(self) -> None:
        def fail(_: object) -> None:
            raise RuntimeError("the listener's own")

        with pytest.raises(RuntimeError, match="the listener's own"):
            hard(14).solve(self.solver, time_limit=PLENTY, on_incumbent=fail)

    def test_a_start_is_taken(self) -> None:
        model = hard(14)
        first = model.solve(self.solver, time_limit=PLENTY, on_incumbent=lambda event: event.objective < 120)
        reported: list[float] = []
        model.solve(self.solver, time_limit=PLENTY, hint=first.values, on_incumbent=lambda event: reported.append(event.objective) or True)  # type: ignore[func-returns-value]
        assert reported[0] <= first.objective * (1 + 1e-6)

    def test_part_of_a_start_is_taken(self) -> None:
        model, columns = Shop([[3.0, 4.0], [2.0, 5.0], [4.0, 4.0]], [(0, 2, 1.0)]).model()
        hint = np.full(model.program.n_columns, np.nan)
        hint[columns["x"].column] = [1, 0, 0, 1, 1, 0]
        assert model.solve(self.solver, hint=hint).proven == "optimal"

    def test_an_optimum_is_the_same_without_cuts(self) -> None:
        model, columns = Shop([[3.0, 4.0], [2.0, 5.0], [4.0, 4.0]], [(0, 2, 1.0)]).model()
        model.add(columns["C"] >= 4.0, tag="redundant", cut=True)
        outcomes = [model.solve(self.solver, cuts=cuts).objective for cuts in (True, False)]
        assert outcomes[0] == pytest.approx(outcomes[1])

    def test_bounds_of_columns_may_change_between_solves(self) -> None:
        model, columns = Shop([[3.0, 1.0], [2.0, 5.0]], []).model()
        assert model.solve(self.solver).objective == pytest.approx(2)
        model.set_bounds(columns["x"][0, 1], upper=0)
        assert model.solve(self.solver).objective == pytest.approx(5)

    def test_bounds_of_whole_numbers_are_rounded_inwards_and_may_not_cross(self) -> None:
        model = Model()
        x = model.integer("x", 2, lower=0, upper=5)
        model.minimise(x.sum())
        model.set_bounds(x, lower=0.5)
        assert model.solve(self.solver).objective == pytest.approx(2)
        with pytest.raises(InvalidModel, match=r"column x\(0\) would have lower bound 7.0 above upper bound 5.0; to move both"):
            model.set_bounds(x, lower=7)

    def test_a_backend_used_again_reports_to_the_current_listener(self) -> None:
        kept, reported = backend(self.solver), []
        model, _ = Shop([[3.0, 1.0], [2.0, 5.0]], []).model()
        for name in ("first", "second"):
            model.solve(kept, on_incumbent=lambda incumbent, name=name: reported.append(name))  # type: ignore[misc]
            assert set(reported) == {name}
            reported.clear()

    def test_a_model_without_columns_has_its_constant(self) -> None:
        model = Model()
        outcome = model.solve(self.solver)
        assert (outcome.proven, outcome.objective, outcome.bound) == ("optimal", 0.0, 0.0)

    def test_its_own_options_are_passed_on_and_others_refused(self) -> None:
        model, _ = Shop([[3.0, 4.0]], []).model()
        assert model.solve(self.solver, options=dict([self.option])).proven == "optimal"
        with pytest.raises(UnsupportedFeature, match=self.bad_option[0]):
            model.solve(self.solver, options=dict([self.bad_option]))

    def test_the_native_model_is_available(self) -> None:
        model, _ = Shop([[3.0, 4.0]], []).model()
        assert model.native(self.solver) is not None

    def test_a_backend_used_again_solves_changed_models(self) -> None:
        """Bounds, rows, costs and right-hand sides change in turn; the results are those of a new backend."""
        solver = backend(self.solver)
        model, columns = Shop([[3.0, 1.0], [2.0, 5.0], [2.0, 2.0]], [(0, 2, 1.0)]).model()
        x, makespan = columns["x"], columns["C"]

        def check(solution: float | None = None) -> None:
            outcome = model.solve(solver)
            assert outcome.proven == "optimal"
            assert outcome.objective == pytest.approx(model.solve(self.solver).objective if solution is None else solution)
            assert outcome.values is not None
            assert model.violations(outcome.values, tolerance=1e-5) == []

        check(3)
        model.set_bounds(x[0, 1], upper=0)
        check(5)
        model.set_bounds(x[0, 1], upper=1)
        check(3)
        model.add(x[1:, 0].sum() <= 1, tag="one of the two")
        model.minimise(2 * makespan + x[:, 1].sum() + 7)
        check()
        model.add(makespan >= 6, tag="late")
        check()
