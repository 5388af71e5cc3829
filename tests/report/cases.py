"""Schedules for pictures: small ones of every kind of problem, and some of real size."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

import hetsched as hs
from hetsched.testing import decisions, problems


@st.composite
def schedules(draw: st.DrawFn) -> tuple[hs.Problem, hs.Schedule]:
    """Draw a problem and a schedule of one of its decisions."""
    problem = draw(problems())
    return problem, hs.simulate(problem, draw(decisions(problem)))


@cache
def stack(modules: int, n: int = 32, communication: str = "delay") -> tuple[hs.Problem, hs.Solution]:
    """Return randomly wired modules in series, scheduled by HEFT."""
    graph = hs.workloads.rwnn(kind="er", n=n, modules=modules, channels=1, seed=0)
    problem = hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline(), communication=communication)
    return problem, hs.solve(problem, "heft")


def diamond(**names: str) -> tuple[hs.Problem, hs.Solution]:
    """Return four tasks on two devices with a makespan of 10 ms; `names` replaces names of tasks and devices."""
    a, b, c, d = (names.get(name, name) for name in "abcd")
    graph = hs.TaskGraph([a, b, c, d], [(a, b), (a, c), (b, d), (c, d)], output_bytes=1e6, op=["input", "conv2d", "pool", "cat"])
    cluster = hs.Cluster([names.get("cpu", "cpu"), names.get("gpu", "gpu")], bandwidth=1e9)
    problem = hs.Problem(graph, cluster, durations=[[2e-3, 9.0], [9.0, 4e-3], [3e-3, 9.0], [2e-3, 9.0]], communication="channel")
    return problem, hs.solve(problem, ["heft", "peft"])
