"""Fusion of operators that a back end runs as one: Moirai's graph coarsening by fusion rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hetsched.arguments import checked, shown
from hetsched.arrays import IntArray
from hetsched.coarsening.coarse import Coarsening, contract, settled
from hetsched.errors import UnsupportedFeature, warn
from hetsched.problem.graph import Shape
from hetsched.problem.problem import CostModel, Problem

Rule = tuple[str, ...]

SYNONYMS: Mapping[str, str] = {
    "conv": "conv2d",
    "bn": "batch_norm",
    "Conv": "conv2d",
    "BatchNormalization": "batch_norm",
    "Relu": "relu",
    "Add": "add",
    "MatMul": "matmul",
    "Gemm": "linear",
    "LayerNormalization": "layer_norm",
    "Gelu": "gelu",
}
"""Operator types of ONNX and of Moirai's paper, with those captured from PyTorch: rules match both."""
_NORMALISED: tuple[Rule, ...] = (("conv2d", "batch_norm"), ("conv2d", "batch_norm", "relu"), ("conv2d", "batch_norm", "add", "relu"))
_CONVOLVED: tuple[Rule, ...] = (("conv2d", "relu"), ("conv2d", "add", "relu"))

RULES: Mapping[str, tuple[Rule, ...]] = {
    "moirai": (*_NORMALISED, *_CONVOLVED),  # the latter are the former where the norm is part of the convolution, as in captures
    "cudnn": (
        *_NORMALISED,
        *_CONVOLVED,
        ("conv2d", "add"),
        ("conv2d", "silu"),
        ("conv2d", "sigmoid"),
        ("linear", "relu"),
        ("linear", "gelu"),
        ("linear", "add"),
        ("matmul", "add"),
        ("matmul", "add", "relu"),
        ("matmul", "add", "gelu"),
        ("add", "relu"),
    ),
    "onnxruntime": (
        *_NORMALISED,
        *_CONVOLVED,
        ("conv2d", "add"),
        ("matmul", "add"),
        ("linear", "relu"),
        ("add", "layer_norm"),
        ("add", "gelu"),
        ("add", "relu"),
    ),
}
"""Sets of rules by name: operator types in the order of execution, as captured from PyTorch (see `SYNONYMS`)."""


@checked(UnsupportedFeature)
def fuse(problem: Problem, rules: str | Iterable[Sequence[str]] = "cudnn", *, costs: CostModel | None = None) -> Coarsening:
    """Fuse operators by rules: Moirai's Algorithm 1.

    Depth first from the sources, two parts are joined if the sequence of their types is part of a rule and the edge between
    them is the only one from the first (a direct or a multi-input connection, never a multi-output one). Finally, a part that
    is not a complete rule is divided into the longest rules that it contains, and single operators.

    Unlike clusters, fused operators need less than the sum of their members: tensors between members are neither written nor
    read, and only the last output is kept. So a decision lifted to single operators may exceed the memory; it is meant for a
    back end that fuses.

    Parameters
    ----------
    rules : str or sequences of operator types
        A name of `RULES`, or other rules. A warning says so if they match nothing.
    costs : CostModel, optional
        Cost model of the fused graph; default: the sum of the members' durations, an upper estimate.

    References
    ----------
    Moirai (Zhang et al. 2023), section III-B, Table I, Figures 6 and 7.
    """
    chosen = _rules(rules)
    groups = _groups(problem, chosen)
    if not groups and problem.n_tasks:
        name = repr(rules) if isinstance(rules, str) else "given"
        have, want = (shown(sorted(set(words))) for words in (problem.graph.op, sum(chosen, ())))
        warn(
            f"no sequence of operators matches the {name} rules, nothing is fused: the graph has the types {have}, the rules have {want}",
            UserWarning,
        )
    number = np.arange(problem.n_tasks)
    for group in groups:
        number[group] = group[0]
    coarsening = contract(problem, settled(problem, number))
    return Coarsening(problem, _recosted(coarsening, costs), coarsening.cluster)


def _rules(rules: str | Iterable[Sequence[str]]) -> set[Rule]:
    if isinstance(rules, str):
        if rules not in RULES:
            raise UnsupportedFeature(f"rules is {rules!r}; choose one of {', '.join(RULES)}, or give sequences of operator types")
        return set(RULES[rules])
    sequences = [tuple(rule) if isinstance(rule, Iterable) else () for rule in rules if not isinstance(rule, str)]
    if not sequences or any(len(rule) < 2 or not all(isinstance(op, str) and op for op in rule) for rule in sequences):
        raise UnsupportedFeature(f"rules is {shown(rules)}; each rule is two operator types or more, such as ('conv2d', 'relu')")
    return {_canonical(rule) for rule in sequences}


def _canonical(types: Iterable[str]) -> Rule:
    return tuple(SYNONYMS.get(name, name) for name in types)


def _groups(problem: Problem, rules: set[Rule]) -> list[list[int]]:
    """Return the parts of several operators that match rules, each in the order of execution."""
    graph = problem.graph
    pieces = {rule[a:b] for rule in rules for a in range(len(rule)) for b in range(a + 1, len(rule) + 1)}
    part = {i: [i] for i in range(graph.n_tasks)}
    only, op = np.diff(graph.succ_ptr) == 1, _canonical(graph.op)

    def types(group: list[int]) -> Rule:
        return tuple(op[i] for i in group)

    changed = True
    while changed:  # a later join may complete an earlier part
        changed = False
        for i in _depth_first(problem):
            if not only[i] or part[i][-1] != i:
                continue
            j = int(graph.succ[graph.succ_ptr[i]])
            if part[j][0] != j or types(part[i]) + types(part[j]) not in pieces:
                continue
            joined = part[i] + part[j]
            for k in joined:
                part[k] = joined
            changed = True
    distinct = {id(group): group for group in part.values() if len(group) > 1}
    return [kept for group in distinct.values() for kept in _released(group, types(group), rules)]


def _depth_first(problem: Problem) -> IntArray:
    """Return the tasks in depth-first preorder from the sources, children in the order of edges."""
    from hetsched.coarsening import kernels

    graph = problem.graph
    sources = np.flatnonzero(np.diff(graph.pred_ptr) == 0)
    return kernels.met_first(graph.succ_ptr, graph.succ, sources)


def _released(group: list[int], types: Rule, rules: set[Rule]) -> Iterable[list[int]]:
    """Yield the longest rule in a part, and recursively those before and after it."""
    for size in range(len(group), 1, -1):
        for a in range(len(group) - size + 1):
            if types[a : a + size] in rules:
                yield group[a : a + size]
                yield from _released(group[:a], types[:a], rules)
                yield from _released(group[a + size :], types[a + size :], rules)
                return


def _recosted(coarsening: Coarsening, costs: CostModel | None) -> Problem:
    """Return the fused problem without the tensors between members."""
    graph, number, coarse = coarsening.problem.graph, coarsening.cluster, coarsening.coarse.graph
    inner = number[graph.source] == number[graph.target]
    inside = np.bincount(number[graph.source[inner]], graph.edge_bytes[inner], coarse.n_tasks)
    handed = np.zeros(graph.n_tasks, np.bool_)
    handed[graph.source[inner]] = True  # its only reader is in the same part
    received = np.bincount(graph.target[inner], graph.edge_bytes[inner], graph.n_tasks)
    changes: dict[str, Any] = {
        "input_bytes": np.bincount(number, np.maximum(graph.input_bytes - received, 0.0), coarse.n_tasks),
        "output_bytes": np.bincount(number, np.where(handed, 0.0, graph.output_bytes), coarse.n_tasks),
        "bytes_accessed": np.maximum(coarse.bytes_accessed - 2 * inside, 0.0),
        "op": _fused(coarsening),
        "shape": _shapes(coarsening),
    }
    fused = coarse.replace(**changes)
    return coarsening.coarse.replace(graph=fused) if costs is None else coarsening.coarse.replace(graph=fused, costs=costs)


def _shapes(coarsening: Coarsening) -> list[Shape | None]:
    """Return the shape of each cluster's largest member, as its convolution."""
    shapes: list[Shape | None] = [None] * coarsening.coarse.n_tasks
    for c, shape in zip(coarsening.cluster.tolist(), coarsening.problem.graph.shape, strict=True):
        other = shapes[c]
        if shape is not None and (other is None or math.prod(shape[:3]) > math.prod(other[:3])):
            shapes[c] = shape
    return shapes


def _fused(coarsening: Coarsening) -> list[str]:
    """Return the types of each cluster's members, in order."""
    words: list[list[str]] = [[] for _ in range(coarsening.coarse.n_tasks)]
    for i in coarsening.problem.graph.topological_order.tolist():
        words[coarsening.cluster[i]].append(coarsening.problem.graph.op[i])
    return [" ".join(types) for types in words]
