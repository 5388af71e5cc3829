"""The process from outside: signals, closed pipes, full disks, encodings, imported modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hetsched as hs

SLOW_METHOD = """
import time, pathlib
import hetsched
from hetsched.cli.app import app

@hetsched.method("slow", summary="offers one schedule, then dawdles")
def slow(problem, monitor):
    monitor.offer(hetsched.Decision.from_assignment(problem, dict.fromkeys(problem.graph.names, "cpu")))
    pathlib.Path("offered").touch()
    while not monitor.should_stop:
        time.sleep(0.01)

app(["solve", "problem.json", "--method", "slow", "-o", "schedule.json"], prog_name="hetsched")
"""


def hetsched(*words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "hetsched", *words], capture_output=True, timeout=120, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "word"), [(signal.SIGINT, 130, b"interrupted"), (signal.SIGTERM, 143, b"terminated")])
@pytest.mark.usefixtures("ctrl_c")
def test_signals_leave_the_best_schedule_and_an_exit_code_of_their_own(problem: hs.Problem, number: int, code: int, word: bytes) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW_METHOD], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 100
    while not Path("offered").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert b"Traceback" not in err
    assert word in err
    assert b"makespan" in out
    schedule = hs.read("schedule.json")
    assert isinstance(schedule, hs.Schedule)
    assert hs.verify(problem, schedule) == []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="no pipes as on POSIX")
def test_a_closed_pipe_is_silent() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([sys.executable, "-m", "hetsched", "schema", "problem"], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line_and_exit_code_2(problem: hs.Problem) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "hetsched", "schema", "problem"], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 2
    assert done.stderr == b"error: No space left on device\n"


@pytest.mark.slow
def test_names_beyond_the_encoding_are_escaped(folder: Path) -> None:
    graph = hs.TaskGraph(["tâche", "仕事"], [("tâche", "仕事", 1e6)])
    problem = hs.Problem(graph, hs.Cluster(["größe", "b"], 1e9), durations=[[1.0, 2.0], [1.0, 2.0]])
    problem.write("problem.json")
    hs.simulate(problem, hs.Decision.from_assignment(problem, {"tâche": "größe", "仕事": "b"})).write("schedule.json")
    spoilt = Path("schedule.json").read_text().replace('"finish":1.0', '"finish":1.5')
    Path("schedule.json").write_text(spoilt)
    done = hetsched("verify", "problem.json", "schedule.json", env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 1
    assert done.stdout.isascii()
    assert b"Traceback" not in done.stderr


def loaded_by(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_loads_nothing_heavy() -> None:
    heavy = {"numba", "scipy", "networkx", "torch", "pyscipopt", "typer", "rich", "pandas"}
    assert not loaded_by("import hetsched") & heavy
    assert not loaded_by("import hetsched.cli.app") & (heavy - {"typer", "rich"} | {"numpy", "msgspec"})
