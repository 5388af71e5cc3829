"""Runs of cases: what fails is a record, what is measured is not measured again."""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hetsched.errors import InvalidArgument
from hetsched.experiments import Progress, Results, run, runner
from hetsched.experiments.runner import perform
from hetsched.processes import ProcessDied

WORK = """
import os
import time
from pathlib import Path

def note(case):
    with open(case["log"], "a") as file:
        print(case["name"], file=file)
    return {"says": "noted"}

def do(case):
    if case["name"] == "raise":
        raise ValueError("no such thing")
    if case["name"] == "leave":
        raise SystemExit(3)
    if case["name"] == "die":
        os._exit(7)
    if case["name"] == "kill":
        os.kill(os.getpid(), 9)
    if case["name"] == "sleep":
        time.sleep(1000)
    if case["name"] == "object":
        return {"value": object()}
    return {"process": os.getpid()}

def prepare(case):
    if case["name"] == "unprepared":
        raise RuntimeError("nothing is ready")

def meet(case):
    folder = Path(case["folder"])
    (folder / case["name"]).touch()
    end = time.monotonic() + 100
    while not (folder / case["other"]).exists():
        assert time.monotonic() < end, "the other never came"
        time.sleep(0.01)
    return {"says": "met"}
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a module of work functions that other processes can import."""
    (tmp_path / "work_of_cases.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "work_of_cases", raising=False)
    return importlib.import_module("work_of_cases")


@pytest.mark.slow
def test_what_is_measured_is_not_measured_again(tmp_path: Path, work: ModuleType):
    log, path = tmp_path / "log", tmp_path / "deep" / "results.jsonl"

    def measured(names: str, *, fresh: bool = False) -> str:
        told: list[Progress] = []
        selected = [{"name": name, "log": str(log)} for name in names]
        store = run(selected, work.note, results=path, fresh=fresh, on_progress=told.append)
        assert all(case in store for case in selected)
        assert [str(progress)[:8] for progress in told][-1:] in ([], [f"{len(set(names))} of {len(set(names))}: "])
        return log.read_text().replace("\n", "")

    assert measured("ab") == "ab"
    assert measured("cab") == "abc"
    assert measured("aa", fresh=True) == "abca"
    assert len(Results(path)) == 3


@pytest.mark.slow
def test_a_killed_worker_is_a_record(tmp_path: Path, work: ModuleType):
    path = tmp_path / "results.jsonl"
    run([{"name": name} for name in ("kill", "good")], work.do, results=path)
    assert Results(path).failures() == [{"name": "kill", "status": "failed", "error": "its process was killed by signal 9 (SIGKILL)"}]
    assert [row["name"] for row in Results(path).rows()] == ["good"]


@pytest.mark.slow
def test_failures_are_records_and_the_next_run_tries_them_again(tmp_path: Path, work: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "GRACE", 0.1)
    names = ["raise", "die", "good", "sleep", "kill", "leave", "object", "unprepared", "better"]
    told: list[Progress] = []
    path = tmp_path / "results.jsonl"
    store = run(
        [{"name": name} for name in names], work.do, results=path, prepare=work.prepare, limit=lambda _: 0.1, on_progress=told.append
    )
    errors = {row["name"]: (row["status"], row["error"]) for row in store.failures()}
    assert errors == {
        "raise": ("failed", "ValueError: no such thing"),
        "die": ("failed", "its process ended by itself with exit code 7"),
        "sleep": ("late", "its process was ended after twice its limit of 0.1 s and 0.1 s"),
        "kill": ("failed", "its process was killed by signal 9 (SIGKILL)"),
        "leave": ("failed", "SystemExit: 3"),
        "object": ("failed", "TypeError: Object of type object is not JSON serializable"),
        "unprepared": ("failed", "RuntimeError: nothing is ready"),
    }
    assert "no such thing" in next(row["traceback"] for row in store.failures() if row["name"] == "raise")
    assert {row["name"] for row in store.rows()} == {"good", "better"}
    assert [progress.failed for progress in told] == [name not in ("good", "better") for name in names]
    assert {"name": "die"} not in Results(path)
    good = run([{"name": "good"}, {"name": "raise"}], work.do, results=path)
    assert (len(good), len(good.failures())) == (9, 7)


@pytest.mark.slow
def test_a_preparation_without_an_end_is_late(work: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "PREPARING", 3.0)
    store = run([{"name": "sleep"}], work.do, prepare=work.do)
    assert store.failures() == [{"name": "sleep", "status": "late", "error": "its process was ended after 3 s of preparation"}]


def test_jobs_are_done_at_once(tmp_path: Path, work: ModuleType):
    selected = [{"name": name, "other": other, "folder": str(tmp_path)} for name, other in ("ab", "ba")]
    assert [row["says"] for row in run(selected, work.meet, jobs=2).rows()] == ["met", "met"]


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path, work: ModuleType):
    def pressed(progress: Progress) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "results.jsonl"
    with pytest.raises(KeyboardInterrupt):
        run([{"name": "a"}, {"name": "b"}], work.do, results=path, on_progress=pressed)
    assert [row["name"] for row in Results(path).rows()] == ["a"]


def _of_a_script(case: object) -> dict[str, object]:
    return {}


def test_what_cannot_be_measured_is_told(monkeypatch: pytest.MonkeyPatch, work: ModuleType):
    with pytest.raises(InvalidArgument, match="a case is 3; it must be a mapping of JSON values"):
        run([3], work.do)
    with pytest.raises(InvalidArgument, match="a case is {}; it must be a SolveCase, which hetsched.experiments.cases makes"):
        run([{}])
    with pytest.raises(InvalidArgument, match="a case is .*: Object of type object is not JSON serializable; give JSON values"):
        run([{"name": object()}], work.do)
    with pytest.raises(InvalidArgument, match="a cannot be sent to another process: .*use functions of modules"):
        run([{"name": "a"}], lambda case: {})
    monkeypatch.setattr(_of_a_script, "__module__", "__main__")
    with pytest.raises(InvalidArgument, match="'_of_a_script' is a function of a script, which other processes cannot import"):
        run([{"name": "a"}], _of_a_script)
    with pytest.raises(InvalidArgument, match="prepare and limit are given without work; cases to be solved have their own"):
        run([], prepare=work.prepare)
    with pytest.raises(InvalidArgument, match="client is 3; it must be a client of dask.distributed, or None"):
        run([], client=3)


def test_the_time_in_a_queue_of_an_executor_is_not_counted(monkeypatch: pytest.MonkeyPatch, work: ModuleType):
    monkeypatch.setattr(runner, "PREPARING", 0.2)
    waited = threading.Event()

    class Client:
        """A client of one busy worker."""

        def nthreads(self) -> dict[str, int]:
            return {"worker": 1}

        def get_executor(self) -> ThreadPoolExecutor:
            return threads

    with ThreadPoolExecutor(1) as threads:
        threads.submit(waited.wait, 100)
        threading.Timer(1.0, lambda: (monkeypatch.setattr(runner, "PREPARING", 100.0), waited.set())).start()
        assert len(run([{"name": "good"}], work.do, client=Client()).rows()) == 1


@pytest.mark.parametrize(("times", "error"), [(2, None), (3, "its process was lost: its worker was lost")])
def test_a_case_is_measured_on_another_worker_if_its_own_is_lost(
    monkeypatch: pytest.MonkeyPatch, work: ModuleType, times: int, error: str | None
):
    """Of a method it says nothing that a machine was lost."""
    lost = iter([True] * times)

    class Worker:
        """A worker that is lost as it begins, the first few times, or measures here."""

        begun = True

        def __init__(self, main: str, receive: Callable[[Any], object]) -> None:
            self.receive = receive

        def send(self, message: bytes) -> None:
            gone = next(lost, False)
            self.receive(ProcessDied(None, "its worker was lost") if gone else perform(pickle.loads(message)))

        def kill(self) -> None:
            """Nothing is left to end."""

    monkeypatch.setattr(runner, "processes", lambda executor: contextlib.nullcontext(Worker))
    store = run([{"name": "good"}], work.do)
    assert [row["name"] for row in store.rows()] == ([] if error else ["good"])
    assert [row["error"] for row in store.failures()] == ([error] if error else [])


@pytest.mark.slow
def test_the_workers_of_a_dask_client_measure_too(tmp_path: Path, work: ModuleType):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.run(sys.path.insert, 0, str(tmp_path))
        cases = [{"name": name, "other": other, "folder": str(tmp_path)} for name, other in (("a", "b"), ("b", "a"))]
        assert len(run(cases, work.meet, client=client).rows()) == 2
        store = run([{"name": name} for name in ("good", "raise", "die")], work.do, client=client)
        (worker,) = client.run(os.getpid).values()
    (row,), failures = store.rows(), store.failures()
    assert row["process"] not in (os.getpid(), worker)
    assert sorted(failure["error"] for failure in failures) == ["ValueError: no such thing", "its process ended by itself with exit code 7"]


def test_seconds_of_a_call_include_those_of_processes_that_it_has_started() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    _, spent = runner.timed(lambda: subprocess.run([sys.executable, "-c", busy], check=True))
    assert spent["cpu_s"] >= 0.25
