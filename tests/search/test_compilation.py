"""Kernels that are not compiled yet: a solve with a limit has them compiled elsewhere, and ends in time with or without them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hetsched as hs
from hetsched import compiled
from hetsched.processes import Ready, in_process
from hetsched.search import Budget, Monitor, compilation, find_method, registered
from hetsched.search.solution import Solution
from tests.golden import topcuoglu


class Compiler:
    """A process that compiles for as many looks at the clock as it is told."""

    started: list[str]
    killed: list[str]
    seconds: float

    def __init__(self, main: str, receive: Callable[[object], object]) -> None:
        assert main == compilation.MAIN
        self.receive = receive

    def send(self, message: bytes) -> None:
        self.name = pickle.loads(message)
        self.started.append(self.name)
        if self.seconds == 0.0:
            self.receive(Ready())

    def kill(self) -> None:
        self.killed.append(self.name)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Compiler]:
    """No kernel is marked as compiled, and nothing is compiled but by this."""
    Compiler.started, Compiler.killed, Compiler.seconds = [], [], 0.0
    monkeypatch.setattr(compilation, "Process", Compiler)
    monkeypatch.setattr(compilation, "WAKE", 0.0)
    monkeypatch.setattr(compilation, "_marker", lambda name: tmp_path / name)
    return Compiler


def run(name: str, clock: Any = None, **budget: Any) -> tuple[Solution, list[str]]:
    """Return the solution of a method alone, and the notes that it left."""
    arguments = {} if clock is None else {"clock": clock}
    monitor = Monitor(topcuoglu(), Budget(**budget), **arguments)
    try:
        solution = monitor.run_alone(name)
    finally:
        monitor.close()
    return solution, list(solution.messages)


class Clock:
    """Time that passes only when somebody looks."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_without_its_kernels_in_time_a_search_answers_with_list_schedules(compiler: type[Compiler]) -> None:
    compiler.seconds = 1.0
    with pytest.warns(RuntimeWarning, match=r"compiling the kernels of 'tabu'.*`hetsched prepare`"):
        solution, notes = run("tabu", Clock(0.01), time_limit=5.0)
    assert solution.makespan <= 80.0
    assert solution.method == "heft"
    assert any("not compiled within the time; `hetsched prepare`" in note for note in notes)
    assert compiler.started == compiler.killed == ["tabu"]


def test_list_schedules_are_offered_while_the_kernels_of_a_search_are_compiled(compiler: type[Compiler]) -> None:
    compiler.seconds = 1.0
    events: list[tuple[float, str]] = []
    clock = Clock(0.01)
    monitor = Monitor(topcuoglu(), Budget(time_limit=5.0), clock=clock, on_progress=lambda event: events.append((event.time, event.source)))
    with pytest.warns(RuntimeWarning, match="compiling the kernels of 'tabu'"):
        monitor.run_alone("tabu")
    monitor.close()
    assert "heft" in [source for when, source in events if when < 1.0]
    assert clock.now > 5.0


def test_a_limit_on_evaluations_leaves_all_of_them_to_the_search(compiler: type[Compiler]) -> None:
    with pytest.warns(RuntimeWarning, match="compiling the kernels of 'annealing'"):
        cold, _ = run("annealing", time_limit=60.0, evaluations=50)
    compilation.mark_prepared("annealing")
    warm, _ = run("annealing", time_limit=60.0, evaluations=50)
    assert cold.schedule is not None
    assert warm.schedule is not None
    assert cold.schedule.decision == warm.schedule.decision
    assert cold.methods.evaluations.tolist() == warm.methods.evaluations.tolist()


def test_a_search_begins_when_its_kernels_are_compiled(compiler: type[Compiler]) -> None:
    with pytest.warns(RuntimeWarning, match="compiling the kernels of 'annealing'"):
        solution, notes = run("annealing", time_limit=60.0, evaluations=200)
    assert compiler.started == ["annealing"]
    assert dict(zip(solution.methods.method, solution.methods.evaluations, strict=True))["annealing"] > 0
    assert not any("compiled" in note for note in notes)


@pytest.mark.parametrize("name", ["auto", "milp"])
def test_methods_without_kernels_of_their_own_start_no_compiler(compiler: type[Compiler], name: str) -> None:
    assert compilation.is_prepared(find_method(name))


def test_a_constructive_method_whose_kernels_can_be_interpreted_or_loaded_starts_no_compiler(compiler: type[Compiler]) -> None:
    solution, _ = run("etf", time_limit=60.0)
    assert solution.schedule is not None
    assert compiler.started == []


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no kernel have compiled code, nor arguments small enough for the interpreter."""
    monkeypatch.setattr(compiled.Kernel, "_on_disk", lambda kernel, args: False)
    monkeypatch.setattr(compiled.Kernel, "_may_interpret", lambda kernel, args: False)
    for kernel in compiled.KERNELS:
        monkeypatch.setattr(kernel, "_compiled", False)


def test_a_constructive_method_runs_once_its_kernels_are_compiled_elsewhere(compiler: type[Compiler], nothing_compiled: None) -> None:
    with pytest.warns(RuntimeWarning, match="compiling the kernels of 'etf'"):
        solution, notes = run("etf", time_limit=60.0)
    assert solution.method == "etf"
    assert not notes
    assert compiler.started == ["etf"]


@pytest.mark.parametrize("name", ["etf", "tabu"])
def test_without_any_kernel_in_time_the_first_list_schedule_is_the_answer(
    compiler: type[Compiler], nothing_compiled: None, name: str
) -> None:
    compiler.seconds = 1.0
    with pytest.warns(RuntimeWarning, match=f"compiling the kernels of {name!r}"):
        solution, notes = run(name, Clock(0.01), time_limit=5.0)
    assert solution.method == "best-device"
    assert solution.stopped == "time limit"
    assert any(note.startswith(name) and "not compiled within the time" in note for note in notes)


@pytest.mark.parametrize("options", [{}, {"on_progress": lambda event: None}], ids=["read later", "at the begin"])
def test_bounds_are_compiled_only_if_ten_seconds_are_left(
    compiler: type[Compiler], nothing_compiled: None, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(RuntimeWarning, match="compiling the kernels of 'etf'"):
        solution = hs.solve(topcuoglu(), "etf", time_limit=5.0, **options)
    assert solution.schedule is not None
    assert (solution.status, solution.bound, solution.gap) == ("feasible", 0.0, 1.0)
    assert solution.proof.evidence.startswith("there was no time to compile the kernels of bounds; `hetsched prepare`")
    for kernel in compiled.KERNELS:
        monkeypatch.setattr(kernel, "_compiled", False)
    assert hs.solve(topcuoglu(), "etf", time_limit=60.0, **options).bound == 54.0


def test_without_a_limit_a_method_compiles_its_kernels_itself(compiler: type[Compiler]) -> None:
    run("annealing", evaluations=200)
    token = in_process.set(True)
    try:
        run("annealing", time_limit=60.0, evaluations=200)
    finally:
        in_process.reset(token)
    assert compiler.started == []


def test_kernels_are_compiled_once(compiler: type[Compiler]) -> None:
    compilation.mark_prepared("annealing")
    run("annealing", time_limit=60.0, evaluations=200)
    assert compiler.started == []


def test_every_search_has_a_mark_of_its_own() -> None:
    names = [name for name, method in registered().items() if compilation.part(method)]
    marks = {compilation._marker(name) for name in names}
    assert len(marks) == len(names) > 30


COLD = """
import sys, warnings
import hetsched as hs
from hetsched.search import compilation

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "b", 1.0), ("a", "c", 1.0), ("b", "d", 1.0), ("c", "d", 1.0)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1.0), durations=[[1, 2], [2, 3], [4, 1], [2, 2]])
    solution = hs.solve(problem, sys.argv[1], time_limit=float(sys.argv[2]), evaluations=500)
    print(solution.method, compilation.is_prepared(hs.methods()[sys.argv[1]]))
    print(*solution.messages)
"""


@pytest.mark.slow
def test_an_empty_cache_is_filled_by_solves_with_limits(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def solved(limit: float) -> list[str]:
        command = [sys.executable, "-c", COLD, "sa", str(limit)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()

    first = solved(0.5)
    assert first[0].endswith("False")
    assert first[0].split()[0] in hs.methods()
    assert "not compiled within the time" in first[1]
    assert solved(200.0)[0].endswith("True")
    assert "compiled" not in solved(0.5)[1]
