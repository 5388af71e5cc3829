"""Wall-clock time of plans of a language model of 80 blocks on unequal devices, baselines and verification included, and of the command:
until it prints the plan, and whole, with what limits the plan.

    python benchmarks/planning.py [--quick]

Medians of several calls in one process, after one that does not count; and of several processes, each with the whole command.
"""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import figures
import numpy as np

import hetsched as hs
from hetsched.chain import evaluate
from hetsched.planning import least_latency

REGION = "planning"
BLOCKS = 80
CONFIG = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
MACHINES = {"16 devices in 4 groups": (16, 4), "12 devices, all different": (12, 12), "16 devices, all different": (16, 16)}
"""Number of devices and of groups."""
ROWS = [
    ("16 devices in 4 groups", 1, "1 s"),
    ("16 devices in 4 groups", 16, "1 s"),
    ("12 devices, all different", 1, "1 s"),
    ("12 devices, all different", 12, "1 s"),
    ("16 devices, all different", 1, "3 s"),
    ("16 devices, all different", 16, "3 s"),
]
"""Machine, sequences at a time (one: the latency, several: the throughput), and target."""
OVERLAPPED = [
    ("16 devices in 4 groups", 128, "1 s"),
    ("16 devices in 4 groups", 0, "1 s"),
    ("12 devices, all different", 128, "1 s"),
    ("12 devices, all different", 0, "1 s"),
]
"""Machine, tokens of output after a prompt of 8 chunks that overlap, and target."""


def machine(devices: int, groups: int, memory: float) -> hs.Machine:
    """Return a machine whose devices have about `memory` bytes each, and equal links."""
    made = []
    for k in range(devices):
        factor = 1 + k % groups / groups
        made.append(
            hs.Device(f"gpu{k}", memory_bytes=memory * factor, peak_flops={"float16": 1e14 * factor}, memory_bandwidth=1e12 / factor)
        )
    return hs.Machine(hs.Cluster(made, bandwidth=16e9, latency=1e-5))


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return the seconds until its first line, and until its end."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        printed = time.perf_counter() - started
        process.stdout.read()
    if process.returncode or not first:
        raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
    return printed, time.perf_counter() - started


def main(words: Sequence[str] | None = None) -> None:
    """Time plans and publish the table."""
    arguments = figures.parse(figures.parser(__doc__), words, region=REGION)
    blocks, repeats = (8, 1) if arguments.quick else (BLOCKS, 5)
    card = hs.frontends.configs.read({**CONFIG, "num_hidden_layers": blocks}, name="model")
    rows, found = [], {}

    def add(name: str, regime: str, goal: str, solve: Callable[[], object], value: float, simple: float) -> None:
        """Time calls after one that does not count, and add a row."""
        solve()
        seconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            solve()
            seconds.append(time.perf_counter() - started)
        add_row(name, regime, goal, seconds, value, simple)

    def add_row(name: str, regime: str, goal: str, seconds: Sequence[float], value: float, simple: float) -> None:
        """Add a row of the median."""
        median = statistics.median(seconds)
        told = f"{figures.number(median)} s"
        rows.append(
            [
                name,
                regime,
                f"**{told}**" if median > float(goal.split()[0]) else told,
                goal,
                f"{100 * (1 - value / simple):.0f} %" if np.isfinite(simple) else "none fits",
            ]
        )
        found[f"{name}, {regime}"] = {"wall_s": seconds, "target": goal}

    for name, sequences, goal in ROWS[:2] if arguments.quick else ROWS:
        devices, groups = MACHINES[name]
        where = machine(devices, groups, 1.5 * card.total_bytes / devices)
        work = hs.Workload(prompt=512, output=128, sequences=sequences)
        plan = hs.plan(card, where, work)
        simple = min(row.value for row in plan.baselines)
        add(name, plan.regime, goal, functools.partial(hs.plan, card, where, work), plan.value, simple)
    for name, output, goal in OVERLAPPED[:1] if arguments.quick else OVERLAPPED:
        devices, groups = MACHINES[name]
        where = machine(devices, groups, 1.5 * card.total_bytes / devices)
        work = hs.Workload(prompt=8 * 512, output=output)

        def solve(where: hs.Machine = where, work: hs.Workload = work) -> tuple[hs.ChainProblem, float]:
            problem = hs.costs.LanguageRoofline().chain(card, where, work, overlap=True)
            return problem, float(least_latency(problem, each=False).latency.min())

        problem, value = solve()
        placements = [row.placement for row in hs.plan(card, where, work).baselines if np.isfinite(row.value)]
        simple = min((evaluate(problem, placement).latency for placement in placements), default=np.inf)
        add(name, f"latency, 8 chunks that overlap, then {output} tokens", goal, solve, value, simple)
    with tempfile.TemporaryDirectory() as folder:
        model, where = Path(folder, "config.json"), Path(folder, "machine.json")
        model.write_text(json.dumps({**CONFIG, "num_hidden_layers": blocks}))
        for name, sequences, goal in ROWS[:1] if arguments.quick else ROWS:
            devices, groups = MACHINES[name]
            own = machine(devices, groups, 1.5 * card.total_bytes / devices)
            own.write(where)
            words = [str(model), "--machine", str(where), "--prompt", "512", "--output", "128", "--sequences", str(sequences)]
            command = [sys.executable, "-m", "hetsched", "plan", *words]

            plan = hs.plan(card, own, hs.Workload(prompt=512, output=128, sequences=sequences))
            simple = min(row.value for row in plan.baselines)
            printed, whole = zip(*[timed(command) for _ in range(1 + repeats)][1:], strict=True)
            add_row(name, f"{plan.regime}, the command, until the plan is printed", goal, printed, plan.value, simple)
            add_row(name, f"{plan.regime}, the whole command", goal, whole, plan.value, simple)
    table = figures.table(["machine", "regime", "wall time", "target", "less than the best simple rule that fits"], rows)
    figures.publish(arguments, REGION, f"Taken on: {figures.machine()}.\n\n{table}", found)


if __name__ == "__main__":
    main()
