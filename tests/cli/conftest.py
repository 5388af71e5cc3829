"""Fixtures: a small problem on disk, and the command line run in-process in a temporary folder."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner

import hetsched as hs
from hetsched.cli.app import app
from hetsched.cli.commands import demo

Run = Callable[..., Any]
typer.testing._get_command = functools.cache(typer.main.get_command)  # which makes all commands again for each line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a temporary folder, made the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    """Return a function that runs a command line in-process; its result has exit_code, stdout and stderr."""

    def run(*words: object) -> Any:
        return CliRunner().invoke(app, [str(word) for word in words])

    return run


@pytest.fixture
def short_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the demo to a second, enough for the methods from which others begin."""
    monkeypatch.setattr(demo, "SECONDS", 1.0)


def small_problem(**changes: Any) -> hs.Problem:
    """Return a problem of five tasks on two different devices; the best schedule uses both."""
    graph = hs.TaskGraph(
        ["load", "left", "right", "join", "end"],
        [("load", "left", 4e6), ("load", "right", 4e6), ("left", "join", 1e6), ("right", "join", 1e6), ("join", "end", 1e3)],
        op=["input", "conv2d", "conv2d", "add", "softmax"],
        weight_bytes=[0, 9e6, 9e6, 0, 0],
        output_bytes=1e6,
    )
    cluster = hs.Cluster([hs.Device("cpu", memory_bytes=64e9), hs.Device("gpu", memory_bytes=16e9)], bandwidth=25e9, latency=5e-6)
    times = np.array([[1e-4, 2e-4], [3e-3, 1e-3], [2e-3, 1.5e-3], [1e-4, 2e-4], [1e-4, 1e-4]])
    return hs.Problem(graph, cluster, **{"durations": times, **changes})


@pytest.fixture
def problem(folder: Path) -> hs.Problem:
    """Return the small problem, written as problem.json."""
    made = small_problem()
    made.write("problem.json")
    return made


@pytest.fixture
def schedule(problem: hs.Problem, folder: Path) -> hs.Schedule:
    """Return a valid schedule of the small problem, all on the slower device, written as schedule.json."""
    made = hs.simulate(problem, hs.Decision.from_assignment(problem, dict.fromkeys(problem.graph.names, "cpu")))
    made.write("schedule.json")
    return made


@pytest.fixture
def document(problem: hs.Problem) -> dict[str, Any]:
    """Return the document of the small problem as plain data, to be modified."""
    loaded: dict[str, Any] = json.loads(Path("problem.json").read_text())
    return loaded
