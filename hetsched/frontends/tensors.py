"""Tasks of a model that was captured, the tensors that they read and write, and the bytes of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hetsched.problem.graph import Shape, TaskGraph

GATHERS = {"embedding", "embedding_bag", "index_select", "index", "gather"}
"""Operator types that read only the rows of a table that they return."""


def task_graph(tasks: Sequence[Task], **columns: Any) -> TaskGraph:
    """Return the graph of tasks in the order of execution; `columns` replace those made from the tasks."""
    place = {task: i for i, task in enumerate(tasks)}
    edges = [(place[tensor.task], i, size) for i, task in enumerate(tasks) for tensor, size in task.reads.items() if tensor.task]
    return TaskGraph(
        [task.name for task in tasks],
        np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2),
        edge_bytes=[size for *_, size in edges],
        op=[task.op for task in tasks],
        input_bytes=[task.input_bytes for task in tasks],
        output_bytes=[task.output_bytes for task in tasks],
        flops=[task.flops for task in tasks],
        bytes_accessed=[task.bytes_accessed for task in tasks],
        shape=[task.shape for task in tasks],
        **{"weight_bytes": [task.weight for task in tasks], **columns},
    )


@dataclass(eq=False)
class Tensor:
    """A tensor in memory: an output of a task, or a constant (no task)."""

    size: float
    grows: bool  # whether its size grows with the batch
    task: Task | None
    used: bool = False


@dataclass(eq=False)
class Task:
    name: str
    op: str
    nodes: list[Any]
    flops: float = 0.0
    shape: Shape | None = None
    weight: float = 0.0
    outputs: list[Tensor] = field(default_factory=list)
    reads: dict[Tensor, float] = field(default_factory=dict)  # bytes of each tensor that is not a constant
    trained: dict[Tensor, float] = field(default_factory=dict)  # bytes of each parameter that another task updates
    written: float = 0.0  # bytes of the weights that it writes

    @property
    def input_bytes(self) -> float:
        return sum(self.reads.values())

    @property
    def output_bytes(self) -> float:
        return sum(tensor.size for tensor in self.outputs if tensor.used)

    @property
    def bytes_accessed(self) -> float:
        read = self.weight + sum(self.trained.values())
        if self.op in GATHERS:
            read = min(read, self.output_bytes)
        return read + self.written + self.input_bytes + self.output_bytes


def unused_name(name: str, names: set[str]) -> str:
    """Return the name, with a number behind it if `names` has it, and add it to them."""
    candidate, count = name, 0
    while candidate in names:
        count += 1
        candidate = f"{name}_{count}"
    names.add(candidate)
    return candidate
