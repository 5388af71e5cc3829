"""The published suite for every backend."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import hetsched as hs
from hetsched.modeling import backends as backends_of_solvers
from hetsched.modeling.backends import scip
from hetsched.modeling.backends.protocol import Request, Run
from hetsched.modeling.model import Model
from hetsched.modeling.settings import SolveSettings
from hetsched.stopping import Deadline
from hetsched.testing import backends


class TestScip(backends.BackendSuite):
    solver = "scip"
    option = ("separating/maxrounds", 3)


class TestHighs(backends.BackendSuite):
    solver = "highs"
    option = ("presolve", "off")


class TestCpSat(backends.BackendSuite):
    solver = "cpsat"
    tolerance = 2e-6  # rounding to units, see hetsched.modeling.integers
    option = ("cp_model_probing_level", 0)


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(hs.UnsupportedFeature, match="unknown solver 'gurobi'; choose from scip, highs, cpsat"):
        Model().solve("gurobi")


def test_a_limit_on_another_clock_is_no_limit_of_wall_clock_seconds_for_the_solver() -> None:
    for clock, given in ((time.monotonic, True), (time.process_time, False)):
        run = Run(Request(SolveSettings(Deadline.after(60.0, clock))))
        assert (run.time_left is not None) == given


def test_the_preferred_solver_is_the_first_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends_of_solvers, "_installed", lambda solver: solver.name != "highs")
    assert backends_of_solvers.preferred(["highs", "scip"]) == "scip"
    assert backends_of_solvers.preferred(["scip", "highs"]) == "scip"
    assert backends_of_solvers.preferred(["highs"]) == "highs", "its backend says how to install it"
    with pytest.raises(hs.UnsupportedFeature, match="unknown solver 'gurobi'"):
        backends_of_solvers.preferred(["gurobi"])


class Interrupt:
    """A callback that sends Ctrl-C shortly after its first call, which shows that the solver runs."""

    def __init__(self) -> None:
        self.timer: threading.Timer | None = None

    def __call__(self, *_: object) -> None:
        if self.timer is None:
            self.timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            self.timer.start()


@pytest.mark.parametrize("solver", ["scip", "highs", "cpsat"])
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_returns_what_has_been_found(solver: str) -> None:
    outcome = backends.hard().solve(solver, time_limit=backends.PLENTY, stop=Interrupt())
    assert outcome.stopped == "interrupted"
    assert outcome.bound <= outcome.objective


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_during_an_exact_method_keeps_the_best_schedule() -> None:
    rng = np.random.default_rng(0)
    graph = hs.workloads.rwnn(kind="er", n=32, modules=3, channels=1, seed=0)
    problem = hs.Problem(graph, hs.Cluster(["a", "b", "c"], bandwidth=1e9), durations=rng.random((graph.n_tasks, 3)))
    solution = hs.solve(problem, "milp", time_limit=backends.PLENTY, on_progress=Interrupt())
    assert solution.stopped == "interrupted"
    assert solution.schedule is not None
    assert hs.verify(problem, solution.schedule) == []


def test_interrupting_scip_in_any_stage_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    model = backends.hard(3).native("scip")
    scip.interrupt(model)
    model.freeProb()
    scip.interrupt(model)
    output = capfd.readouterr()
    assert output.out + output.err == ""


def test_a_solve_that_ends_while_it_is_interrupted_is_no_failure() -> None:
    """SCIP may end between the check of its stage and the call; found by the thorough tests."""
    scip = pytest.importorskip("hetsched.modeling.backends.scip")

    class Model:
        def __init__(self, error: str) -> None:
            self.error = error

        def getStage(self) -> object:
            return scip.SCIP_STAGE.SOLVING

        def interruptSolve(self) -> None:
            raise Exception(self.error)

    scip.interrupt(Model("SCIP: method cannot be called at this time in solution process!"))
    with pytest.raises(Exception, match="unspecified error"):
        scip.interrupt(Model("SCIP: unspecified error!"))


@pytest.mark.parametrize("solver", ["scip", "highs"])
def test_events_of_a_maximisation_have_the_signs_of_the_model(solver):
    pytest.importorskip({"scip": "pyscipopt", "highs": "highspy"}[solver])
    model = Model()
    x = model.integer("x", 4, lower=0, upper=1)
    model.add(np.array([5, 4, 3, 2]) @ x <= 8)
    model.maximise(np.array([10, 7, 6, 3]) @ x)
    found, bounds = [], []
    outcome = model.solve(
        solver, on_incumbent=lambda event: found.append(event.objective), on_bound=lambda event: bounds.append(event.bound)
    )
    assert outcome.objective == found[-1] == 16.0
    assert all(bound >= 16.0 - 1e-6 for bound in bounds)
