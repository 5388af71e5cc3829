"""Stacks of randomly wired modules on the paper's three devices, with times like those of profiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hetsched as hs
from hetsched.papers.diviml import solving
from hetsched.papers.items import Case, Row

MEAN_MS = (183.39, 32.58, 25.84)
"""Milliseconds of a randomly wired network on the CPU, the T4 and the A100 (Table II)."""
KINDS = (("sdep", 1), ("sdep", 2), ("sdep", 3), ("sdep", 4), ("wdep", 2), ("wdep", 3), ("wdep", 4))
"""Dependence and channels of the stacks of Tables I and IV."""
INPUTS = 16
DIFFERS = (
    "the paper profiles networks on its devices; here a stack of ER(0.2) modules has random times around the means of its Table II "
    "(`profiled`): a task takes 1/320 of the time of a network, so a stack of ten modules takes less than the paper's, and ratios "
    "compare, not milliseconds. "
)
SIZE = "The paper's modules have 10 or 32 tasks, and it does not say which these stacks have"


def profiled(
    n: int, modules: int, *, channels: int = 1, dependence: str = "sdep", inputs: int = 1, seed: int = 0, kind: str = "er"
) -> hs.Problem:
    """Generate a stack of randomly wired modules on DiviML's CPU, T4 and A100, with times like those of profiles.

    A network of 320 tasks takes as long on each device as the paper's on average (its Table II). The times of
    a task deviate from the mean by a log-normal factor of the task (0.5) and one for each device (0.5). A
    batch of b inputs takes ``1 + share (b - 1)`` times as long as one, share 1 on the CPU,
    0.6 on the T4, 0.35 on the A100; batches have a quarter, half, three quarters or all of the inputs.
    Tensors and links are those of the generator and the cluster.
    """
    rng = np.random.default_rng([seed, n, modules, channels])
    graph = hs.workloads.rwnn(kind, n, modules=modules, channels=channels, dependence=dependence, seed=seed)  # type: ignore[arg-type]
    spread = np.exp(rng.normal(0, 0.5, (graph.n_tasks, 1)) + rng.normal(0, 0.5, (graph.n_tasks, 3)))
    times = np.array(MEAN_MS) * 1e-3 / 320 * spread
    cluster = hs.workloads.clusters.diviml()
    if inputs == 1:
        return hs.Problem(graph, cluster, durations=times)
    sizes = quarters(inputs)
    growth = 1 + np.array([1.0, 0.6, 0.35])[:, None] * (np.array(sizes) - 1)
    return hs.Problem(graph, cluster, durations=times[:, :, None] * growth, inputs=inputs, batch_sizes=sizes)


def quarters(inputs: int) -> list[int]:
    """Return a quarter, half, three quarters and all of some inputs, the paper's batch sizes."""
    return sorted({max(1, inputs * quarter // 4) for quarter in (1, 2, 3, 4)})


def case(
    tasks: int, modules: int, dependence: str, channels: int, inputs: int, method: str, seed: int, limit: float, wiring: str = "er"
) -> Case:
    """Return the case of one method on one stack."""
    return {
        "what": "stack",
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
    return solving.solved(problem, case, {"channels": case["channels"], "largest": case["tasks"] + 2} if several else None)


def label(dependence: str, channels: int) -> str:
    """Return what the paper calls a stack in Tables I and IV."""
    return "1 channel" if channels == 1 else f"{dependence}, {channels} channels"
