"""Worker processes: their messages, their ends, and that their schedules are kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hetsched as hs
from hetsched.portfolio import workers
from hetsched.portfolio.protocol import Done, Found, Job, Message
from hetsched.portfolio.workers import JobReceiver, Pool
from hetsched.processes import ProcessDied
from hetsched.search import Budget, Monitor
from hetsched.testing.backends import PLENTY
from tests.golden import topcuoglu
from tests.portfolio.strange_methods import tangle


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def until(true: Callable[[], bool], seconds: float = PLENTY) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """Return a pool of one worker on a small problem."""
    with Pool(topcuoglu(), 1) as made:
        until(lambda: bool(list(made.receive(0.02))) or made.workers[0].ready)
        yield made
    assert made.workers == []


def messages_of(pool: Pool, job: Job, monitor: Monitor) -> list[Message]:
    """Run a job to its end, with a monitor, and return its messages."""
    until(lambda: bool(list(pool.receive(0.02))) or pool.workers[0].idle)
    receiver = JobReceiver(monitor, job.method)
    pool.give(pool.workers[0], job, receiver)
    messages: list[Message] = []
    deadline = time.monotonic() + PLENTY
    while not messages or not isinstance(messages[-1], Done | ProcessDied):
        assert time.monotonic() < deadline
        for _, message, owner in pool.receive(0.05):
            if owner is not None:
                owner.take(message)
                messages.append(message)
    return messages


def test_a_worker_reports_schedules_and_the_effort_of_their_method(pool: Pool) -> None:
    monitor = Monitor(topcuoglu())
    messages = messages_of(pool, Job("heft"), monitor)
    assert [type(message) for message in messages] == [Found, Done]
    solution = monitor.solution("auto")
    assert (solution.makespan, solution.method) == (80, "heft")
    assert solution.methods.method.tolist() == ["heft"]
    assert solution.methods.evaluations.tolist() == [1]
    assert solution.methods.seconds[0] > 0
    assert hs.verify(topcuoglu(), solution.schedule) == []


def test_only_schedules_better_than_the_start_are_reported(pool: Pool) -> None:
    best = hs.solve(topcuoglu(), "min-min").schedule
    messages = messages_of(pool, Job("heft", start=best), Monitor(topcuoglu()))
    assert [type(message) for message in messages] == [Done]


def test_limits_and_seeds_reach_the_worker(pool: Pool) -> None:
    first, second, third = (messages_of(pool, Job("wanders", seed=seed, evaluations=30), Monitor(topcuoglu())) for seed in (1, 1, 2))
    assert first[-2] == second[-2] != third[-2]  # the last decisions
    assert first[-1].stopped == "evaluations"
    assert first[-1].efforts[0][2] == 30
    assert messages_of(pool, Job("wanders", time_limit=0.2), Monitor(topcuoglu()))[-1].stopped == "time limit"


def test_prints_do_not_get_between_the_messages(pool: Pool, capfd: pytest.CaptureFixture[str]) -> None:
    assert [type(message) for message in messages_of(pool, Job("prints"), Monitor(topcuoglu()))] == [Found, Done]


def test_failures_end_only_the_job(pool: Pool) -> None:
    monitor = Monitor(topcuoglu())
    assert messages_of(pool, Job("raises"), monitor)[-1].failure == "failed"
    assert messages_of(pool, Job("exits"), monitor)[-1].failure == "failed"
    assert messages_of(pool, Job("pesto"), monitor)[-1].failure == "refused"
    assert monitor.incumbent < float("inf")
    failed, exited, refused = monitor.solution("x").messages
    assert failed == "raises failed: RuntimeError: out of luck"
    assert exited == "exits failed: SystemExit: 4"
    assert refused.startswith("pesto: communication='delay' is not supported")


def test_a_method_that_no_module_registers_is_unknown_in_the_worker(pool: Pool) -> None:
    assert messages_of(pool, Job("nowhere"), Monitor(topcuoglu()))[-1].failure == "unknown"


def test_a_job_stops_on_request(pool: Pool) -> None:
    receiver = JobReceiver(Monitor(topcuoglu()), "wanders")
    until(lambda: bool(list(pool.receive(0.02))) or pool.workers[0].idle)
    pool.give(pool.workers[0], Job("wanders"), receiver)
    until(lambda: any(isinstance(message, Found) for _, message, _ in pool.receive(0.02)))
    pool.stop()
    until(lambda: any(isinstance(message, Done) and message.stopped == "stopped" for _, message, _ in pool.receive(0.02)))


@pytest.mark.parametrize(
    ("code", "text"),
    [(3, "ended by itself with exit code 3"), (-9, "was killed by signal 9 (SIGKILL)"), (-11, "was killed by signal 11 (SIGSEGV)")],
)
def test_deaths_are_described_in_words(code: int, text: str) -> None:
    assert str(ProcessDied(code)) == text


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_and_is_reported(pools: list[Pool]) -> None:
    killed: dict[int, float] = {}

    def kill(event: hs.search.Event) -> bool:
        """Kill the worker after its first schedule; stop after a schedule of its replacement."""
        busy = [worker.process.pid for pool in pools for worker in pool.workers if worker.receiver is not None]
        if event.source == "wanders" and busy and not killed:
            os.kill(busy[0], signal.SIGKILL)
            killed[busy[0]] = event.incumbent
        return bool(busy and killed) and busy[0] not in killed

    options = {"members": ["olb", "wanders"], "workers": 1}
    solution = hs.solve(tangle(), time_limit=PLENTY, options=options, on_progress=kill)
    assert killed
    assert solution.makespan <= min(killed.values())
    assert [m for m in solution.messages if "SIGKILL" in m] == [
        "wanders's process was killed by signal 9 (SIGKILL); its results so far are kept"
    ]
    assert solution.stopped == "callback"
    assert pools[0].workers == []


@pytest.mark.slow
def test_a_crash_is_reported_and_the_others_go_on(pools: list[Pool]) -> None:
    problem, pids = tangle(), set[int]()

    def third(event: hs.search.Event) -> bool:
        """Return whether one of the first two processes has been replaced, and the other has found a schedule since."""
        pids.update(worker.process.pid for pool in pools for worker in pool.workers)
        return len(pids) > 2 and event.source == "wanders"

    options = {"members": ["crashes", "wanders"], "workers": 2}
    solution = hs.solve(problem, time_limit=PLENTY, options=options, on_progress=third)
    assert "crashes's process ended by itself with exit code 3; its results so far are kept" in solution.messages
    assert solution.makespan <= hs.solve(problem, "olb").makespan
    efforts = dict(zip(solution.methods.method.tolist(), solution.methods.evaluations.tolist(), strict=True))
    assert efforts["wanders"] > 10


def test_without_processes_all_runs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    solution = hs.solve(
        tangle(), time_limit=PLENTY, options={"members": ["olb", "wanders"]}, on_progress=lambda event: event.source == "wanders"
    )
    assert solution.messages == ("auto: no worker process can be started (no more processes); all members take turns in this one",)
    assert "wanders" in solution.methods.method.tolist()


SCRIPT = """
import os, sys
import hetsched as hs
import hetsched.portfolio.auto
from tests.portfolio.strange_methods import tangle

print("once", flush=True)

pids = []

class Seen(hetsched.portfolio.auto.Pool):
    def start(self):
        super().start()
        pids.append(self.workers[-1].process.pid)
        print("pid", pids[-1], flush=True)

    def give(self, worker, job, receiver):
        super().give(worker, job, receiver)
        print("given", job.method, flush=True)

hetsched.portfolio.auto.Pool = Seen

def tell(event):
    print("event", event.source, flush=True)
    return len(pids) == {stop}

solution = hs.solve(tangle(200), time_limit={limit}, options={options}, on_progress=tell)
print("done", solution.stopped, solution.schedule is not None, flush=True)
"""


class Script:
    """A script that solves in a separate process."""

    def __init__(self, folder: Path, stop: int, options: dict[str, object]) -> None:
        path = folder / "script.py"
        path.write_text(textwrap.dedent(SCRIPT).format(limit=PLENTY, stop=stop, options=options))
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        self.process = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True, env=environment)
        self.lines: list[str] = []

    def read_until(self, wanted: Callable[[str], bool]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if wanted(line.strip()):
                return
        raise AssertionError(f"ended after {self.lines}")

    @property
    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines if line.startswith("pid")]


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Callable[..., Script]]:
    made: list[Script] = []

    def start(stop: int = -1, **options: object) -> Script:
        """Start a script that runs until `stop` processes have been started, by default for long."""
        made.append(Script(tmp_path, stop, options))
        return made[-1]

    yield start
    for started in made:
        started.process.kill()
        started.process.communicate()


@pytest.mark.slow
def test_a_script_needs_no_main_guard(script: Callable[..., Script]) -> None:
    run = script(2, workers=2)
    run.read_until(lambda line: line.startswith("done"))
    assert run.lines.count("once") == 1
    assert len(run.pids) == 2
    assert run.lines[-1] in ("done callback True", "done time limit True")


@pytest.mark.parametrize(
    "members", [["olb", "wanders"], *(pytest.param(["heft", name], marks=pytest.mark.slow) for name in ("annealing", "cpsat", "milp"))]
)
def test_workers_end_with_the_process_they_work_for(script: Callable[..., Script], members: list[str]) -> None:
    run = script(members=members, workers=1)
    run.read_until(lambda line: line == f"given {members[1]}")
    time.sleep(0.5)  # so that the worker is busy
    assert all(map(alive, run.pids))
    run.process.kill()
    until(lambda: not any(map(alive, run.pids)))


@pytest.mark.slow
@pytest.mark.parametrize("wait", ["pid", "event annealing"])
def test_ctrl_c_keeps_the_best_and_leaves_no_process(script: Callable[..., Script], ctrl_c: None, wait: str) -> None:
    searches = ["annealing", "tabu"] if wait == "pid" else ["annealing"]  # the only search runs in the script's process
    run = script(members=["heft", *searches, "cpsat"], workers=2)
    run.read_until(lambda line: line.startswith(wait))
    if wait == "pid":
        run.read_until(lambda line: line.startswith("pid"))
    run.process.send_signal(signal.SIGINT)
    run.read_until(lambda line: line.startswith("done"))
    assert run.lines[-1].startswith("done interrupted True")
    assert not any(map(alive, run.pids))


@pytest.mark.slow
def test_a_callback_stops_the_workers(pools: list[Pool]) -> None:
    solution = hs.solve(
        tangle(),
        time_limit=PLENTY,
        options={"members": ["olb", "wanders"], "workers": 1},
        on_progress=lambda event: event.source == "wanders" and bool(pools) and pools[0].workers[0].receiver is not None,
    )
    assert solution.stopped == "callback"
    assert pools[0].workers == []


@pytest.mark.slow
def test_a_proof_by_a_start_reaches_the_job_receiver() -> None:
    problem = topcuoglu()
    monitor = Monitor(problem, Budget(evaluations=5))
    monitor.source = "auto"
    done, improved = workers.run_here(monitor, Job("heft", bound=hs.Bound(70.0, "known")))
    assert (done.stopped, improved, monitor.incumbent, monitor.evaluations) == ("finished", True, 80, 1)
    assert not workers.run_here(monitor, Job("heft", start=monitor.best))[1]
    assert monitor.evaluations == 2
