"""`run`: models on threads of this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hetsched as hs
from hetsched.cli.commands import run as command
from hetsched.cli.places import places

pytest.importorskip("torch", reason="running needs torch")

NET = """
import torch

def make():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

        def forward(self, x):
            return self.a(x).relu() + self.b(x).sigmoid()

    return Net()
"""
QUICK = ["--input", "2,64", "--method", "heft", "--runs", "3", "--no-pin"]
pytestmark = pytest.mark.filterwarnings("ignore:the tasks take")


@pytest.fixture(autouse=True)
def _net(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("net_to_run.py").write_text(NET)
    monkeypatch.setattr(command, "_disturbed", lambda runs: False)  # as these runs may be, beside other tests


@pytest.mark.slow
def test_a_run_is_compared_and_written(run: Any) -> None:
    files = ["-o", "run.json", "--problem", "problem.json", "--schedule", "schedule.json", "--trace", "trace.json", "--gantt", "run.svg"]
    done = run("run", "net_to_run:make", *QUICK, "--devices", "one,other=2", *files, "--report", "run.html")
    assert done.exit_code == 0, done.stderr
    assert "net_to_run:make, 6 tasks" in done.stdout
    assert "one (1 thread), other (2 threads)" in done.stdout
    assert "of the largest, within 0.0001" in done.stdout
    assert re.search(r"speed-up\s+\d+\.\d\d over (one|other)\n", done.stdout)
    page = Path("run.html").read_text()
    assert all(f'"{row}"' in page for row in ("one", "one, forecast", "other", "other, forecast"))
    assert "valid: the run kept every rule" in done.stdout
    for name in ("run.json", "problem.json", "schedule.json", "trace.json", "run.svg", "run.html"):
        assert f"wrote {name}" in done.stdout
        assert Path(name).stat().st_size > 0
    problem, schedule, timeline = (hs.read(f"{name}.json") for name in ("problem", "schedule", "run"))
    assert (problem.inputs, len(timeline.makespans)) == (2, 3)
    assert all(own.dispatch > 0 for _, own in timeline.machine.devices)
    assert len(timeline.machine.devices) == 2
    assert hs.verify(problem, schedule) == []
    again = run("compare", "problem.json", "schedule.json", "run.json")
    assert again.exit_code == 0
    assert again.stdout in done.stdout


@pytest.mark.slow
def test_a_run_as_json(run: Any) -> None:
    done = run("run", "net_to_run:make", *QUICK, "--devices", "a,b", "--json")
    assert done.exit_code == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["same"]
    assert facts["difference"] <= command.TOLERANCE
    assert facts["devices"] == {"a": 1, "b": 1}
    assert set(facts["alone"]) == {"a", "b"}
    assert facts["speed_up"] == pytest.approx(min(facts["alone"].values()) / facts["comparison"]["run"])
    assert facts["comparison"]["runs"] == 3


@pytest.mark.slow
def test_disturbed_runs_claim_no_speed_up(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_disturbed", lambda runs: True)
    done = run("run", "net_to_run:make", *QUICK, "--devices", "a,b")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"speed-up +none is claimed over [ab]: the runs were disturbed, other processes took more than 10 % of", done.stdout)
    assert "alone is faster" not in done.stdout
    assert json.loads(run("run", "net_to_run:make", *QUICK, "--devices", "a", "--json").stdout)["speed_up"] is None


@pytest.mark.slow
def test_a_schedule_for_the_period_runs_on_a_stream(run: Any) -> None:
    words = ["run", "net_to_run:make", "--input", "2,64", "--runs", "3", "--no-pin", "--objective", "period", "--method", "load-search"]
    told = run(*words, "--devices", "a,b", "--time-limit", "0.2").stdout
    assert re.search(
        r"stream +a result each .*s \(quartiles .*s and .*s\) with \d+ inputs in progress, \d+\.\d\d times the pace of [ab];", told
    )
    facts = json.loads(run(*words, "--devices", "a,b", "--time-limit", "0.2", "--json").stdout)
    assert set(facts["stream"]) == {"period", "q25", "q75", "latency", "depth", "forecast"}
    assert 0 < facts["stream"]["period"]
    assert 0 < facts["stream"]["forecast"]
    assert json.loads(run("run", "net_to_run:make", *QUICK, "--devices", "a", "--json").stdout)["stream"] is None


@pytest.mark.slow
def test_a_run_on_processes_has_the_costs_of_messages(run: Any) -> None:
    done = run("run", "net_to_run:make", *QUICK, "--devices", "one,other", "--engine", "gloo", "-o", "run.json")
    assert done.exit_code == 0, done.stderr
    assert "valid: the run kept every rule" in done.stdout
    machine = hs.read("run.json").machine
    assert machine.once
    assert machine.of("one").send > (0.0, 0.0)
    assert machine.of("one").dispatch > 0


@pytest.mark.slow
def test_torchrun_runs_the_terminal(folder: Path) -> None:
    words = ["run", "net_to_run:make", *QUICK, "--devices", "one,other", "--engine", "gloo", "-o", "run.json"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "hetsched", *words]
    root = str(Path(hs.__file__).parents[1])
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONPATH": root}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("valid: the run kept every rule") == 1, "rank 0 alone reports"
    assert len(hs.read("run.json").makespans) == 3


ON_TWO_HOSTS = """
import os, sys
import hetsched.runtime as runtime
from hetsched.cli.app import main
from hetsched.runtime import gloo, profiling

rank = os.environ["RANK"]
gloo.host = lambda: f"host {rank}"
profile = runtime.profile

def noted(program, args, *, devices, **rest):
    with open(f"profiled{rank}", "w") as file:
        print(*devices, file=file)
    return profile(program, args, devices=devices, **rest)

runtime.profile = noted
main()
"""


@pytest.mark.slow
def test_on_two_hosts_each_rank_measures_its_own_device(folder: Path) -> None:
    Path("on_two_hosts.py").write_text(ON_TWO_HOSTS)
    words = ["run", "net_to_run:make", *QUICK, "--devices", "one,other", "--engine", "gloo", "-o", "run.json", "--json"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "on_two_hosts.py", *words]
    root = str(Path(hs.__file__).parents[1])
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONPATH": root}, check=False)
    assert done.returncode == 0, done.stderr
    assert [Path(f"profiled{rank}").read_text() for rank in range(2)] == ["one\n", "other\n"]
    facts = json.loads(done.stdout)
    assert set(facts["alone"]) == {"one", "other"}
    assert facts["comparison"]["violations"] == []
    timeline = hs.read("run.json")
    assert timeline.clock_error > 0
    assert {name for name, own in timeline.machine.devices if own.dispatch > 0} == {"one", "other"}


def test_time_that_others_took_of_any_run_disturbs(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    monkeypatch.undo()
    quiet, loud = command.Alone(np.ones(2), 0.05), command.Alone(np.ones(2), 0.2)
    assert [command._disturbed(runs) for runs in ([], [quiet], [quiet, loud])] == [False, False, True]


@pytest.mark.slow
def test_outputs_that_differ_end_with_code_1(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_difference", lambda *_: 0.25)
    done = run("run", "net_to_run:make", *QUICK, "--devices", "a")
    assert done.exit_code == 1
    assert "differ from the model's by 0.25 of the largest, more than 0.0001" in done.stdout


def test_the_difference_is_that_of_the_worst_output() -> None:
    import torch

    def module(x: Any) -> Any:
        return {"y": x, "z": (2 * x, torch.tensor([3]))}

    x = torch.tensor([1.0, -4.0])
    assert command._difference(module(x), module, (x,)) == 0
    assert command._difference({"y": x, "z": (2 * x + torch.tensor([0.0, 1.0]), torch.tensor([3]))}, module, (x,)) == 0.125
    assert command._difference({"y": x * float("nan"), "z": (2 * x, torch.tensor([3]))}, module, (x,)) == float("inf")
    odd = torch.tensor([1.0, -float("inf"), float("nan")])
    assert command._difference(odd, torch.clone, (odd,)) == 0
    assert command._difference(torch.tensor([1.0, float("inf"), float("nan")]), torch.clone, (odd,)) == float("inf")
    assert command._difference(x[None], torch.clone, (x,)) == command._difference(x.double(), torch.clone, (x,)) == float("inf")
    turned = torch.tensor([1 + 2j])
    assert command._difference(turned.conj().clone(), torch.clone, (turned,)) == pytest.approx(4 / 5**0.5)


def test_a_device_that_is_faster_alone_is_named_beyond_the_spread() -> None:
    import numpy as np

    alone, slower, alike = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]), np.array([2.0, 3.0, 6.0])
    (text,) = command._warned(alone, slower, "gpu0")
    assert "gpu0 alone is faster than this schedule" in text
    assert command._warned(alone, alike, "gpu0") == command._warned(slower, alone, "gpu0") == []


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs affinity of threads")
def test_devices_are_pinned_if_there_are_enough_cores() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert places(None, None) == {f"cpu{k}": [core] for k, core in enumerate(cores)}
    count = len(cores)
    assert places(f"a={count}", None) == {"a": cores}
    assert places(f"a={count},b", None) == {"a": count, "b": 1}
    assert places("a", False) == {"a": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--devices", "a,a"], "--devices 'a,a' is not a list of different names with numbers of threads, such as cpu0,cpu1=2"),
        (["--devices", "a=0"], "--devices 'a=0' is not a list"),
        (["--devices", "a=x"], "--devices 'a=x' is not a list"),
        (["--devices", "a=100000", "--pin"], "--pin needs a core for each of 100000 threads"),
        (["--runs", "0"], "greater than or equal to 1"),
        (["--method", "frobnicate", "--devices", "a"], "frobnicate"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_line(run: Any, words: list[str], message: str) -> None:
    failed = run("run", "net_to_run:make", "--input", "2,64", *words)
    assert failed.exit_code == 2
    assert message in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_gpus_are_named_as_in_torch_or_given_a_name() -> None:
    assert places("cpu0,cuda:0,gpu=cuda:1", False) == {"cpu0": 1, "cuda:0": "cuda:0", "gpu": "cuda:1"}
    if hasattr(os, "sched_getaffinity"):
        assert places("cuda:0,cpu0", True) == {"cuda:0": "cuda:0", "cpu0": [min(os.sched_getaffinity(0))]}
    with pytest.raises(hs.InvalidProblem, match="is not a list of different names"):
        places("cuda:0,cuda:0", False)


@pytest.mark.slow
def test_a_gpu_that_torch_does_not_have_is_refused(run: Any) -> None:
    done = run("run", "net_to_run:make", *QUICK, "--devices", "cpu0,cuda:99")
    assert done.exit_code == 2
    assert "device 'cuda:99' is cuda:99, but torch has" in done.stderr


@pytest.mark.slow
def test_a_run_on_cpu_and_gpu_is_compared(run: Any) -> None:
    from tests.runtime.fake_device import World

    with World().engine():
        done = run("run", "net_to_run:make", *QUICK, "--devices", "cpu0,cuda:0")
        assert done.exit_code == 0, done.stderr
        assert "cpu0 (1 thread), cuda:0 (cuda:0)" in done.stdout
        profiled = run("profile", "net_to_run:make", "--input", "2,64", "--devices", "cpu0,cuda:0", "--no-pin", "-o", "p.json", "--runs", 3)
        assert profiled.exit_code == 0, profiled.stderr
        again = run("run", "net_to_run:make", *QUICK, "--devices", "cpu0,cuda:0", "--profile", "p.json")
        assert again.exit_code == 0, again.stderr
