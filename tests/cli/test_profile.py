"""`profile`, `run --profile`, and `compare` of two profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hetsched as hs
from hetsched.costs import Profile

pytest.importorskip("torch", reason="profiling needs torch")

NET = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.Sigmoid())

def longer():
    return torch.nn.Sequential(make(), torch.nn.Linear(64, 64))
"""
QUICK = ["--input", "2,64", "--runs", "3", "--no-pin"]
pytestmark = pytest.mark.filterwarnings("ignore:the tasks take")


@pytest.fixture(autouse=True)
def _net(folder: Path) -> None:
    Path("net_to_profile.py").write_text(NET)


def profiled(run: Any, *words: str, name: str = "make") -> Any:
    done = run("profile", f"net_to_profile:{name}", *QUICK, *words)
    assert done.exit_code == 0, done.stderr
    return done


@pytest.mark.slow
def test_a_profile_is_told_and_written(run: Any) -> None:
    done = profiled(run, "--devices", "a,b=2", "--batches", "1,4", "-o", "net.json")
    assert "net_to_profile:make, 5 tasks" in done.stdout
    assert "operators 4 different ones" in done.stdout, "two layers are alike"
    assert "a (1 thread), b (2 threads)" in done.stdout
    for row in ("a  ", "b  "):
        line = next(line for line in done.stdout.splitlines() if line.startswith(row))
        assert "with batches of 1, " in line
        assert "to dispatch a task" in line
        assert ("stolen" in line) == (row == "a  "), "of teams of threads it is unknown"
    assert "hand-off" in done.stdout
    assert "wrote     net.json" in done.stdout
    profile = hs.read("net.json")
    assert isinstance(profile, Profile)
    assert (profile.names, profile.batch_sizes) == (("a", "b"), (1, 4))


@pytest.mark.slow
def test_more_is_added_and_nothing_is_measured_twice(run: Any) -> None:
    profiled(run, "--devices", "a", "--batches", "1", "-o", "net.json")
    first = hs.read("net.json")
    again = profiled(run, "--devices", "a", "--batches", "1", "-o", "net.json", "--add")
    assert "measured  nothing: the file has all of it" in again.stdout
    assert hs.read("net.json") == first
    told = json.loads(profiled(run, "--devices", "a", "--batches", "1,2", "-o", "net.json", "--add", "--json").stdout)
    assert told["measured"] == [{"device": "a", "batch": 2}]
    assert set(told["seconds"]["a"]) == {"1", "2"}
    sibling = json.loads(profiled(run, "--devices", "a", "--batches", "1", "-o", "net.json", "--add", "--json", name="longer").stdout)
    assert sibling["measured"] == [], "all its tasks are in the other network"
    merged = hs.read("net.json")
    assert isinstance(merged, Profile)
    assert len(merged.networks) == 2
    profiled(run, "--devices", "a", "--batches", "1", "-o", "net.json")
    assert len(hs.read("net.json").sessions) == 1, "without --add the file is new"  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_run_takes_its_profile_from_the_file(run: Any) -> None:
    profiled(run, "--devices", "a,b", "-o", "net.json")
    words = ["run", "net_to_profile:make", *QUICK, "--method", "heft", "--profile", "net.json"]
    done = run(*words, "--devices", "a,b")
    assert done.exit_code == 0, done.stderr
    assert "the profile is less than a minute old, of 4 operators" in done.stderr
    assert run(*words, "--devices", "a").exit_code == 0, "one of its devices"
    for given, message in (
        (["--devices", "a=2,b"], "device 'a' has 2 threads, and had 1 in net.json; give as many, or profile it again"),
        (["--devices", "a,c"], "device 'c' was not measured; the profile has a, b"),
        (["--devices", "a,b", "--fuse"], "the graph is none of the profile's"),
        (["--devices", "a,b", "-o", "net.json"], "net.json would be overwritten by the answer"),
    ):
        done = run(*words, *given)
        assert done.exit_code == 2
        assert message in done.stderr, given
    done = run("run", "net_to_profile:make", "--input", "3,64", "--profile", "net.json", "--devices", "a,b", "--no-pin")
    assert "net.json has batches of 2, and the inputs are a batch of 3; profile these, or two other sizes" in done.stderr


@pytest.mark.slow
def test_two_profiles_are_compared(run: Any) -> None:
    profiled(run, "--devices", "a,b", "-o", "old.json")
    profiled(run, "--devices", "a,b", "-o", "new.json")
    done = run("compare", "old.json", "new.json")
    assert done.exit_code == 0, done.stderr
    assert "3 operators with the same batch size on the same device: new / old is" in done.stdout
    assert "linear" in done.stdout
    facts = json.loads(run("compare", "old.json", "new.json", "--json").stdout)
    assert {row["op"] for row in facts["classes"]} == {"linear", "relu", "sigmoid"}
    done = run("compare", "old.json", "net_to_profile.py")
    assert done.exit_code == 2
    assert "net_to_profile.py" in done.stderr
    done = run("compare", "old.json", "new.json", "--gantt", "a.svg")
    assert "two profiles have no Gantt chart; leave it out, or give PROBLEM SCHEDULE RUN" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batches", "1,zero"], "--batches '1,zero' is not a list of batch sizes, such as 1,4"),
        (["--batches", "0"], "--batches '0' is not a list of batch sizes"),
        (["--devices", "a=b"], "--devices 'a=b' is not a list of different names with numbers of threads, such as cpu0,cpu1=2"),
        (["-o", "nowhere/net.json"], "no such folder to write into"),
    ],
)
def test_words_that_do_not_fit_are_refused(run: Any, words: list[str], message: str) -> None:
    done = run("profile", "net_to_profile:make", *QUICK, "-o", "net.json", *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not Path("net.json").exists()
