"""The schedules that the authors published, and the contention model's constants fitted to what they measured with them."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from hetsched.costs import devices
from hetsched.costs.analytic import Analytic
from hetsched.costs.stages import Contention
from hetsched.papers.ios.networks import network
from hetsched.papers.ios.published import SEQUENTIAL, SPECIALISED
from hetsched.problem.graph import Shape, TaskGraph

Cell = tuple[str, int]
"""What a schedule of Inception-v3 was made for, or "sequential", and the batch size that it is run with."""

MEASURED: dict[Cell, float] = {(name, batch): ms for name, row in SPECIALISED.items() for batch, ms in row.items()}
"""Milliseconds."""
ALONE: dict[Cell, float] = {("sequential", batch): ms for batch, ms in SEQUENTIAL.items()}
FITTED: tuple[Cell, ...] = (("1", 1), ("1", 32), ("32", 1), ("32", 32))
"""The cells that the defaults of `Contention` are fitted to, besides the sequential ones."""
CONSTANTS = {"launch": (1e-6, 1e-4), "host": (1e-7, 1e-4), "interference": (1e-3, 4.0), "strided": (1.0, 2.0)}
"""The fitted constants and their ranges."""
ORDER = 2.0
"""Weight of the ratios of latencies, by which schedules are ordered, relative to that of latencies."""


class Stages(NamedTuple):
    """A network in which merged convolutions are one task, and its stages."""

    graph: TaskGraph
    stages: list[tuple[str, ...]]

    def seconds(self, batch: int, constants: dict[str, float], only: Callable[[str], bool] = lambda name: True) -> float:
        """Return the seconds by the contention model, of the stages with a task of which `only` is true."""
        cost = Contention(self.graph, devices.device("v100"), inputs=batch, costs=_analytic(), **constants)
        return sum(cost(tasks, "concurrent") for tasks in self.stages if any(map(only, tasks)))


@functools.cache
def _analytic() -> Analytic:
    return Analytic()


def folder(data: Path | None) -> Path | None:
    """Return the folder of the authors' schedules: in `data` or its subfolder ``ios``; None if they are not there."""
    for where in () if data is None else (data / "schedules", data / "ios" / "schedules"):
        if all((where / f"{name}.json").exists() for name in SPECIALISED):
            return where
    return None


@functools.cache
def schedule(path: Path) -> Stages:
    """Read a schedule of the authors' program."""
    document = json.loads(path.read_text(encoding="utf-8"))
    made = {document["input"]["name"]: document["input"]["output_shape"]}
    columns: dict[str, list[Any]] = {name: [] for name in ("tasks", "op", "output_bytes", "input_bytes", "weight_bytes", "flops", "shape")}
    edges, stages = [], []
    for column, value in zip(columns.values(), (*made, "input", 4.0 * math.prod(*made.values()), 0.0, 0.0, 0.0, None), strict=True):
        column.append(value)
    for block in document["blocks"]:
        for node in (*block["inner_nodes"], block["exit_node"]):
            channels, height, width = made[node["name"]] = node["output_shape"]
            parts = [
                (source, 4.0 * (end - begin) * math.prod(made[source][1:])) for terms in node["inputs"] for source, begin, end in terms
            ]
            kernel, stride, outputs = tuple(node.get("kernel", ())), tuple(node.get("stride", ())), 4.0 * channels * height * width
            shape, flops, weights, op = None, 0.0, 0.0, "cat"
            if node["type"] == "conv":
                reduction = sum(terms[0][2] - terms[0][1] for terms in node["inputs"]) * math.prod(kernel)
                shape, op = Shape(height * width, channels, reduction, kernel, stride), "conv2d"
                flops, weights = 2.0 * height * width * channels * reduction, 4.0 * channels * (reduction + 1)
            elif node["type"] == "pool":
                op = "adaptive_avg_pool2d" if node["pool_type"].startswith("global") else f"{node['pool_type']}_pool2d"
                shape = Shape(height * width, channels, math.prod(kernel), kernel, stride)
            edges += [(source, node["name"], size) for source, size in parts]
            row = (node["name"], op, outputs, sum(size for _, size in parts), weights, flops, shape)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
        stages += [tuple(name for group in stage for name in group) for stage in block["stages"]]
    return Stages(TaskGraph(edges=edges, **columns), stages)


def last_block(path: Path) -> tuple[list[list[str]], frozenset[str]]:
    """Return the stages of the last block of Inception-v3 before its pool and concatenation, and their tasks."""
    block = json.loads(path.read_text(encoding="utf-8"))["blocks"][-2]
    stages = [[name for group in stage for name in group] for stage in block["stages"]]
    return stages[:-1], frozenset(itertools.chain(*stages[:-1]))


def seconds(cell: Cell, data: Path, constants: dict[str, float]) -> float:
    """Return the seconds of a cell by the contention model."""
    name, batch = cell
    if name != "sequential":
        return schedule(data / f"{name}.json").seconds(batch, constants)
    graph = network("inception_v3", None).graph
    return Stages(graph, [(graph.names[i],) for i in graph.topological_order.tolist()]).seconds(batch, constants)


def fitted(cells: Iterable[Cell], data: Path) -> dict[str, float]:
    """Return the constants that minimise the deviations from what was measured in some cells, and from all sequential latencies.

    Parameters
    ----------
    cells : iterable of Cell
    data : Path
        `folder`.
    """
    import numpy as np
    from scipy.optimize import least_squares

    measured = MEASURED | ALONE
    used = [*ALONE, *cells]
    compared = [(one, other) for one, other in itertools.combinations(used, 2) if one[1] == other[1]]

    def misses(logs: Any) -> Any:
        constants = dict(zip(CONSTANTS, np.exp(logs).tolist(), strict=True))
        missed = {cell: math.log(1e3 * seconds(cell, data, constants) / measured[cell]) for cell in used}
        return [*missed.values(), *(ORDER * (missed[one] - missed[other]) for one, other in compared)]

    defaults = inspect.signature(Contention).parameters
    low, high = np.log(list(CONSTANTS.values())).T
    start = np.clip(np.log([defaults[name].default for name in CONSTANTS]), low, high)
    found = np.exp(least_squares(misses, start, bounds=(low, high), diff_step=1e-3).x).tolist()
    return dict(zip(CONSTANTS, found, strict=True))
