"""Solvers in processes of their own: a death does not affect other work, and the incumbent is kept."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given

import hetsched as hs
from hetsched.modeling import backends
from hetsched.modeling.backends import apart
from hetsched.modeling.model import Model
from hetsched.testing import backends as solvers
from hetsched.testing import problems
from hetsched.testing.profiles import examples
from tests.golden import topcuoglu

EXACT = {"scip": "milp", "highs": "milp:highs", "cpsat": "cpsat"}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[apart._Child]]:
    """Return the processes started during the test; no idle process exists before it."""
    made: list[apart._Child] = []

    class Seen(apart._Child):
        def __init__(self, solver: str) -> None:
            made.append(self)
            super().__init__(solver)

    monkeypatch.setattr(apart, "_Child", Seen)
    monkeypatch.setattr(apart, "_idle", {})
    yield made
    for child in made:
        child.process.kill()
        child.process.process.wait()


def long() -> hs.Problem:
    """Return a problem that no solver proves in a minute."""
    graph = hs.workloads.rwnn(kind="er", n=32, modules=2, channels=2, seed=0)
    return hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())


def signal_when_at_work(monkeypatch: pytest.MonkeyPatch, number: int, seconds: float) -> None:
    """Send every process a signal `seconds` after it receives a model."""
    send = apart._Child.send

    def and_then(child: apart._Child, message: object) -> None:
        send(child, message)
        if isinstance(message, apart._Job):
            threading.Timer(seconds, os.kill, (child.process.process.pid, number)).start()

    monkeypatch.setattr(apart._Child, "send", and_then)


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize("number", [signal.SIGABRT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_the_incumbent_of_a_killed_solver_is_kept(solver: str, number: int, started: list[apart._Child]) -> None:
    objectives: list[float] = []

    def kill(incumbent: hs.modeling.model.Incumbent) -> None:
        objectives.append(incumbent.objective)
        os.kill(started[0].process.process.pid, number)

    size = {"highs": 14}.get(solver, 24)  # HiGHS takes long to find a schedule of more tasks
    outcome = solvers.hard(size, 3).solve(solver, time_limit=60, on_incumbent=kill)
    assert outcome.stopped == "failed"
    assert outcome.proven == ""
    assert outcome.values is not None
    assert outcome.objective <= objectives[0]
    assert outcome.bound <= outcome.objective
    name = signal.Signals(number).name
    assert outcome.detail.startswith(f"the process of {solver} was killed by signal {number} ({name})")
    with pytest.raises(hs.SolverFailed, match=name):
        outcome.raise_for_failure()
    assert solvers.hard(4).solve(solver).proven == "optimal", "the next one has a process anew"


@pytest.mark.slow
@pytest.mark.parametrize("method", EXACT.values())
def test_a_solve_survives_the_abort_of_its_solver(method: str, started: list[apart._Child], monkeypatch: pytest.MonkeyPatch) -> None:
    signal_when_at_work(monkeypatch, signal.SIGABRT, 0.5)
    problem = long()
    solution = hs.solve(problem, method, time_limit=60)
    assert len(started) == 1
    assert solution.status == "feasible"
    assert solution.stopped == "failed"
    assert hs.verify(problem, solution.schedule) == []
    assert solution.bound > 0
    assert any("killed by signal 6 (SIGABRT)" in message for message in solution.messages)


@pytest.mark.slow
def test_a_formulation_keeps_the_incumbent_of_its_solver(started: list[apart._Child], monkeypatch: pytest.MonkeyPatch) -> None:
    signal_when_at_work(monkeypatch, signal.SIGKILL, 0.5)
    problem = long()
    start = hs.solve(problem, "heft")
    solution = hs.models.BatchedMakespan(problem, upper=start.makespan).solve("scip", time_limit=60, start=start)
    assert solution.makespan <= start.makespan
    assert any("SIGKILL" in message for message in solution.messages)


def test_other_methods_run_after_the_death_of_a_solver(started: list[apart._Child], monkeypatch: pytest.MonkeyPatch) -> None:
    signal_when_at_work(monkeypatch, signal.SIGABRT, 0.0)
    solution = hs.solve(long(), ["assignment", "peft"], time_limit=60)
    assert "peft" in solution.methods.method


@pytest.mark.parametrize("number", [pytest.param(signal.SIGABRT, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_solve_on_the_terminal_survives_too(number: int, tmp_path: Path) -> None:
    problem, schedule = tmp_path / "problem.json", tmp_path / "schedule.json"
    long().write(problem)
    words = [str(problem), "--method", "cpsat", "--time-limit", "100", "-o", str(schedule)]
    process = subprocess.Popen([sys.executable, "-m", "hetsched", "solve", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    limit = time.monotonic() + 90
    children: list[psutil.Process] = []
    while not children and process.poll() is None and time.monotonic() < limit:
        children = psutil.Process(process.pid).children()
        time.sleep(0.1)
    children[0].send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"Traceback" not in err
    assert f"killed by signal {number}".encode() in err
    assert hs.verify(long(), hs.read(schedule)) == []


def test_a_solver_that_ignores_its_limit_is_ended(started: list[apart._Child], monkeypatch: pytest.MonkeyPatch) -> None:
    signal_when_at_work(monkeypatch, signal.SIGSTOP, 0.0)
    outcome = solvers.hard().solve("highs", time_limit=1.0)
    assert outcome.stopped == "time limit"
    assert outcome.proven == ""
    started[0].process.process.wait(timeout=60)


@pytest.mark.slow
def test_one_process_serves_solve_after_solve(started: list[apart._Child]) -> None:
    for _ in range(3):
        assert solvers.hard(4).solve("highs").proven == "optimal"
    with pytest.raises(hs.UnsupportedFeature, match="has no option"):
        solvers.hard(4).solve("highs", options={"no such": 1})
    assert solvers.hard(4).solve("highs").proven == "optimal"
    assert len(started) == 1
    started[0].process.kill()
    started[0].process.process.wait()
    assert solvers.hard(4).solve("highs").proven == "optimal"
    assert len(started) == 2


@pytest.mark.slow
def test_a_limit_that_ends_before_the_solver_is_loaded_costs_no_process(started: list[apart._Child]) -> None:
    outcome = solvers.hard(4).solve("cpsat", time_limit=0.0)
    assert outcome.stopped == "time limit"
    assert solvers.hard(4).solve("cpsat").proven == "optimal"
    assert len(started) == 1


def test_only_solvers_start_a_process(started: list[apart._Child]) -> None:
    hs.solve(topcuoglu(), "heft")
    hs.solve(topcuoglu(), "annealing", evaluations=50)
    assert started == []


@pytest.mark.parametrize("method", ["milp", "split"])
def test_in_process_starts_no_process(method: str, started: list[apart._Child]) -> None:
    assert hs.solve(topcuoglu(), method, in_process=True).status == "optimal"
    assert started == []
    assert not backends.in_process.get()


def test_a_process_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(apart, "_idle", {})
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(hs.UnsupportedFeature, match=r"no process can be started for scip .*; in_process=True"):
        solvers.hard(4).solve("scip")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("unfinished", "the module 'unfinished' of solver 'unfinished' has no BACKEND; assign the class of the backend to that name"),
        ("absent", "the module 'absent' of solver 'unfinished' cannot be imported: No module named 'absent'; its BackendInfo must name"),
    ],
)
def test_a_solver_without_a_backend_is_refused_by_its_process_too(
    module: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unfinished-1.dist-info").mkdir()
    (tmp_path / "unfinished-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: unfinished\nVersion: 1\n")
    (tmp_path / "unfinished-1.dist-info" / "entry_points.txt").write_text("[hetsched.backends]\nunfinished = unfinished:INFO\n")
    (tmp_path / "unfinished.py").write_text(
        "from hetsched.modeling.backends import BackendInfo, Capabilities\n"
        "can = Capabilities(*[True] * 6, bound_tolerance=0.0)\n"
        f"INFO = BackendInfo('unfinished', 'x', '{module}', 'scipy', '', 'milp:unfinished', 300, can)\n"
    )
    script = (
        "from hetsched.modeling import Model\nfrom hetsched.modeling.backends import backend\n"
        "for call in (lambda: backend('unfinished'), lambda: Model().solve('unfinished')):\n"
        "    try:\n        call()\n    except Exception as error:\n        print(type(error).__name__, error)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(hs.__file__).parents[1])]))
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = shown.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"UnsupportedFeature {message}") for line in lines)
    assert shown.stderr == ""


def test_errors_that_cannot_be_sent_are_sent_as_text() -> None:
    class Local(Exception):
        pass

    assert str(apart._sendable(Local("here"))) == "Local: here"
    refused = hs.UnsupportedFeature("no")
    assert apart._sendable(refused) is refused


def test_a_model_can_be_sent() -> None:
    program = solvers.hard(4).program
    again: Any = pickle.loads(pickle.dumps(program))
    assert Model().program.n_columns == 0
    assert again.n_columns == program.n_columns
    assert len(again.constraints) == len(program.constraints)


@examples(30)
@given(problems())
def test_cpsat_lives_with_any_number_of_threads(problem: hs.Problem) -> None:
    for threads in (1, 2, 3):
        try:
            solution = hs.solve(problem, "cpsat", threads=threads, time_limit=20)
        except hs.UnsupportedFeature:
            return
        assert solution.stopped != "failed", solution.messages
