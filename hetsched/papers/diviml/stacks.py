"""Stacks of randomly wired modules on the paper's three devices, with times like those of profiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hetsched as hs
from hetsched.papers.diviml import solving
from hetsched.papers.items import Case, Row

MEAN_MS = (183.39, 32.58, 25.84)
"""Milliseconds of a randomly wired network on the CPU, the T4 and the A100 (Table II)."""
SPREAD = 0.5
"""Sigma of the log-normal factors of a task, and of a task on a device."""
GROWTH = (1.0, 0.0264, 0.0264)
"""What each further input of a batch adds to the time of one, on the CPU, the T4 and the A100.

Of the A100 by the best device of Tables I and IV, which takes 1.396 times as long for 16 inputs as for one, the mean of their rows; the
T4 is taken to be like it, and the CPU to be in proportion.
"""
KINDS = (("sdep", 1), ("sdep", 2), ("sdep", 3), ("sdep", 4), ("wdep", 2), ("wdep", 3), ("wdep", 4))
"""Dependence and channels of the stacks of Tables I and IV."""
INPUTS = 16
TIMES = (
    "here random wirings have random times: a module takes on average as long as a network in its Table II, each of its tasks an equal "
    f"share of that, times log-normal factors of mean 1 for the task and for each device (sigma {SPREAD:g}). "
)
"""What stands for the paper's profiles."""
GROWN = (
    f"A further input of a batch adds {GROWTH[2]:g} of the time of one on the A100, by the paper's Tables I and IV for its best device; "
    f"that the T4 is like it, and that the CPU takes as long again ({GROWTH[0]:g}), is ours. "
)
"""What stands for the paper's profiles of batches."""
DIFFERS = (
    f"the paper profiles networks on its devices; {TIMES}With ten modules the best device takes about as long as in the paper's Table I. "
    "The paper's MET is nearly as slow; here MET is faster, so that the factors favour other devices more often than the paper's times do. "
    "Modules are ER(0.2). In wdep stacks a task of every module but the first reads another, and is read in every one but the last: the "
    "paper says only that inputs and outputs are sampled. "
)
SIZE = "The paper's modules have 10 or 32 tasks, and it does not say which these stacks have"


def profiled(
    n: int, modules: int, *, channels: int = 1, dependence: str = "sdep", inputs: int = 1, seed: int = 0, kind: str = "er"
) -> hs.Problem:
    """Generate a stack of randomly wired modules on DiviML's CPU, T4 and A100, with times like those of profiles.

    A module takes as long on each device, on average, as the paper's networks (its Table II), so ten modules take about as long as
    the stacks of its Table I. The times of a task deviate from the mean by a log-normal factor of the task and one for each device,
    both of mean 1 and sigma `SPREAD`. A batch of b inputs takes ``1 + GROWTH[k] (b - 1)`` times as long on device k as one; batches
    have a quarter, half, three quarters or all of the inputs.
    Tensors and links are those of the generator and the cluster.
    """
    rng = np.random.default_rng([seed, n, modules, channels])
    graph = hs.workloads.rwnn(kind, n, modules=modules, channels=channels, dependence=dependence, seed=seed)  # type: ignore[arg-type]
    spread = rng.lognormal(-(SPREAD**2) / 2, SPREAD, (graph.n_tasks, 1)) * rng.lognormal(-(SPREAD**2) / 2, SPREAD, (graph.n_tasks, 3))
    times = np.array(MEAN_MS) * 1e-3 / n * spread
    cluster = hs.workloads.clusters.diviml()
    if inputs == 1:
        return hs.Problem(graph, cluster, durations=times)
    sizes = quarters(inputs)
    growth = 1 + np.array(GROWTH)[:, None] * (np.array(sizes) - 1)
    return hs.Problem(graph, cluster, durations=times[:, :, None] * growth, inputs=inputs, batch_sizes=sizes)


def quarters(inputs: int) -> list[int]:
    """Return a quarter, half, three quarters and all of some inputs, the paper's batch sizes."""
    return sorted({max(1, inputs * quarter // 4) for quarter in (1, 2, 3, 4)})


def case(
    tasks: int, modules: int, dependence: str, channels: int, inputs: int, method: str, seed: int, limit: float, wiring: str = "er"
) -> Case:
    """Return the case of one method on one stack."""
    return {
        "what": "modules",
        "wiring": wiring,
        "tasks": tasks,
        "modules": modules,
        "dependence": dependence,
        "channels": channels,
        "inputs": inputs,
        "method": method,
        "seed": seed,
        "limit": limit,
    }


def measure(case: Case, data: Path | None) -> Row:
    """Solve a stack by one method."""
    names = ("channels", "dependence", "inputs", "seed")
    problem = profiled(case["tasks"], case["modules"], kind=case["wiring"], **{name: case[name] for name in names})
    several = case["channels"] > 1
    options = {"channels": case["channels"], "largest": case["tasks"] + 2} if several else None
    return solving.solved(problem, case, options, np.arange(problem.n_tasks).reshape(case["modules"], case["tasks"]))


def label(dependence: str, channels: int) -> str:
    """Return what the paper calls a stack in Tables I and IV."""
    return "1 channel" if channels == 1 else f"{dependence}, {channels} channels"
