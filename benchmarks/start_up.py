"""Wall-clock time of imports, complete commands and solvers' processes, and of documents and checks at 50,000 tasks.

    python benchmarks/start_up.py [--quick]

Imports and commands run in separate processes; times are the least over several runs, except those of cold
starts and of long commands, which run once. CPU time is that of a command and of the processes it starts.
`--quick` leaves out what compiles most kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import figures
import instances

import hetsched as hs

REGION = "start_up"
SUBREAPER = 36
"""Linux's PR_SET_CHILD_SUBREAPER: processes whose parent ended become children of this one."""
IMPORT = "import time; t = time.perf_counter(); import hetsched; print(time.perf_counter() - t)"
FIRST = """
import math, sys
import hetsched as hs

solution = hs.solve(hs.read(sys.argv[1]), on_progress=lambda event: math.isfinite(event.incumbent))
assert solution.schedule is not None
"""
"""Solves a problem until there is a schedule, which `solve` verifies."""
ROOT = Path(__file__).parents[1]


def command(*words: str, cache: Path | None = None) -> float:
    """Return the wall-clock seconds of a `hetsched` command; `cache` is the folder of compiled kernels, if not the default."""
    return python("-m", "hetsched", *words, cache=cache)


def python(*words: str, cache: Path | None = None) -> float:
    """Return the wall-clock seconds of a new Python, like `command`."""
    environment = dict(os.environ) if cache is None else {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return wall(lambda: subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment))


def cloned(folder: Path) -> float:
    """Return the wall-clock seconds of `git clone` and of `make demo` in the clone; packages come from the index."""
    clone = str(folder / "clone")
    environment = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "VIRTUAL_ENV", "PYTHONPATH")}
    words = (["git", "clone", "--quiet", str(ROOT), clone], ["make", "--directory", clone, "demo"])
    return sum(wall(lambda call=call: subprocess.run(call, check=True, capture_output=True, env=environment)) for call in words)


def cold(folder: Path, *words: str) -> tuple[float, float]:
    """Return the wall-clock and CPU seconds of a command whose kernel cache is empty, with those of its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)  # its processes that end after it are counted when this one has waited for them
    seconds = command(*words, cache=Path(tempfile.mkdtemp(dir=folder)))
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def imports() -> float:
    """Return the seconds of `import hetsched` in a new process."""
    return float(subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True).stdout)


def wall(call: Callable[[], object]) -> float:
    """Return the wall seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def empty_caches(folder: Path) -> dict[str, tuple[float, str]]:
    """Return seconds and target of commands that compile most kernels."""
    demo, demo_cpu = cold(folder, "demo", "--out", str(folder))
    prepare, prepare_cpu = cold(folder, "prepare", "--jobs", "2")
    return {
        "`git clone` to the end of `make demo`": (cloned(folder), "60 s"),
        "first `hetsched demo`, empty kernel cache": (demo, "35 s"),
        "the same, CPU time": (demo_cpu, "65 s"),
        "`hetsched prepare --jobs 2`, empty kernel cache": (prepare, ""),
        "the same, CPU time, all processes": (prepare_cpu, ""),
    }


def commands(folder: Path, repeats: int, modules: int) -> dict[str, tuple[float, str]]:
    """Return seconds and target of other commands."""
    problem, schedule, cache = str(folder / "problem.json"), str(folder / "schedule.json"), folder / "kernels"
    figures_by_name = {
        "`import hetsched`": (min(imports() for _ in range(repeats)), "0.25 s"),
        "`hetsched --help`": (min(command("--help") for _ in range(repeats)), "0.4 s"),
    }
    generate = ("generate", "rwnn", "--kind", "er", "--n", "16", "--modules", str(modules), "--cluster", "diviml", "-o", problem)
    command("generate", "network", "inception_v3", "-o", problem)
    solve = ("solve", problem, "--method", "heft")
    figures_by_name["first `hetsched solve --method heft`, empty kernel cache"] = (command(*solve, cache=cache), "3 s")
    first = python("-c", FIRST, problem, cache=folder / "first")
    figures_by_name["first schedule of `hs.solve(problem)`, verified, empty kernel cache"] = (first, "3 s")
    figures_by_name["`solve --method heft`, warm kernel cache"] = (min(command(*solve, cache=cache) for _ in range(repeats)), "1 s")
    parts = [command(*generate), command("solve", problem, "--method", "heft", "-o", schedule), command("verify", problem, schedule)]
    figures_by_name[f"`generate` + `solve --method heft` + `verify`, {16 * modules:,} tasks"] = (sum(parts), "10 s")
    return figures_by_name


def processes() -> dict[str, tuple[float, str]]:
    """Return the seconds of each solver for ten tasks: in this process, with the start of a separate one, and in a started one."""
    graph = hs.workloads.rwnn("er", 10, modules=1, seed=0)
    problem = hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())
    figures_by_name = {}
    for method in ("milp", "milp:highs", "cpsat"):
        hs.solve(problem, method, in_process=True)  # imports and compiles
        for what, here in (("in this process, warm", True), ("with the start of its process", False), ("in the process that waits", False)):
            solve = partial(hs.solve, problem, method, in_process=here)
            figures_by_name[f"10 tasks by `{method}`, {what}"] = (wall(solve), "")
    return figures_by_name


def calls(folder: Path, n: int) -> dict[str, tuple[float, str]]:
    """Return seconds and target of writing, reading, simulating and verifying a large problem."""
    problem, path = instances.peer(instances.layered(n, 50)), folder / "large.json"
    size = f"{n:,} tasks, {problem.graph.n_edges:,} edges"
    figures_by_name = {f"write + read a problem document, {size}": (wall(lambda: problem.write(path)) + wall(lambda: hs.read(path)), "2 s")}
    schedule = hs.solve(problem, "heft").schedule
    assert schedule is not None
    for communication in ("delay", "channel", "port", "node"):
        variant = problem.replace(communication=communication)
        hs.simulate(variant, schedule.decision)  # compiles
        timed = hs.simulate(variant, schedule.decision)
        figures_by_name[f"`simulate`, {communication}, {size}"] = (
            wall(lambda variant=variant: hs.simulate(variant, schedule.decision)),
            "",
        )
        figures_by_name[f"`verify`, {communication}, {size}"] = (wall(lambda variant=variant, timed=timed: hs.verify(variant, timed)), "")
    return figures_by_name


def main(words: Sequence[str] | None = None) -> None:
    """Time everything and publish the table."""
    arguments = figures.parse(figures.parser(__doc__), words, region=REGION)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = {} if arguments.quick else empty_caches(folder)
        results |= commands(folder, 1 if arguments.quick else 5, 60 if arguments.quick else 3_125)
        results |= processes()
        results |= calls(folder, 1_000 if arguments.quick else 50_000)
    rows = []
    for what, (seconds, goal) in results.items():
        missed = goal and seconds > float(goal.split()[0])
        rows.append([what, f"**{figures.number(seconds)} s**" if missed else f"{figures.number(seconds)} s", goal])
    table = figures.table(["what", "wall time", "target"], rows)
    seconds = {what: {"wall_s": seconds, "target": goal} for what, (seconds, goal) in results.items()}
    figures.publish(arguments, REGION, f"Taken on: {figures.machine()}.\n\n{table}", seconds)


if __name__ == "__main__":
    main()
