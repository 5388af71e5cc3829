"""Randomly wired neural networks: the workload of DiviML."""

from __future__ import annotations

from typing import Literal

import numpy as np

from hetsched.arguments import COUNT, check_count, checked, whole
from hetsched.arrays import IntArray
from hetsched.errors import InvalidProblem
from hetsched.problem.graph import TaskGraph

ATTEMPTS = 200
"""The most attempts to draw a connected graph."""

SCALAR_BYTES = 4
"""Bytes of a float32."""


@checked(InvalidProblem, n=whole(2), modules=COUNT, channels=COUNT, width=COUNT, resolution=COUNT)
def rwnn(
    kind: Literal["er", "ws", "ba"] = "er",
    n: int = 32,
    *,
    modules: int = 10,
    channels: int = 1,
    dependence: Literal["sdep", "wdep"] = "sdep",
    seed: int = 0,
    probability: float = 0.2,
    neighbours: int = 4,
    rewiring: float = 0.75,
    attachments: int = 5,
    width: int = 78,
    resolution: int = 28,
) -> TaskGraph:
    """Return a series of randomly wired modules.

    Each module is a connected random graph whose edges point from the lower to the higher index.
    Every task is a ReLU - separable convolution unit: the sum of its inputs, ReLU, a 3x3 depthwise and
    a 1x1 pointwise convolution with folded batch norm, on `width` x `resolution` x `resolution`
    float32 tensors. Task i of module m is named ``"m{m}.{i}"``.

    Parameters
    ----------
    kind : {"er", "ws", "ba"}
        Erdos-Renyi (each pair with `probability`), Watts-Strogatz (ring of `neighbours` next
        neighbours, each link rewired with probability `rewiring`) or Barabasi-Albert (`attachments`
        links of each new node to old ones, in proportion to their degree).
    n : int
        Number of tasks in a module.
    modules : int
        Number of modules; the graph has n * modules tasks.
    channels : int
        Number of outputs of a module, each connected to the input of the same number of the next module.
    dependence : {"sdep", "wdep"}
        Strongly dependent: the first `channels` tasks of a module are its inputs and the last ones
        its outputs, and every path of the module starts in an input and ends in an output (a task
        that the wiring leaves without predecessor gets a random input as one, likewise the outputs).
        Weakly dependent: inputs and outputs are `channels` tasks each, the first task and others drawn at random, and the last
        task and others. In every module but the first a task that the wiring leaves without predecessor reads a random task
        before it in the module; in every module but the last one without successor is read by a random task after it. So only
        the first module has tasks without predecessors, and only the last such without successors. The paper says that "module
        inputs and outputs are randomly sampled for their dependencies"; that every task of a network has an input is added here.
    seed : int
        The same arguments and seed give the same graph.
    probability, neighbours, rewiring, attachments
        Parameters of the random graphs; the defaults are ER(0.2), WS(4, 0.75), BA(5).
    width, resolution : int
        Channels C and height = width H of the feature maps. For one input a task has
        ``4 (C^2 + 9 C + C)`` bytes of weights, tensors of ``4 C H^2`` bytes, and
        ``2 H^2 (C^2 + 9 C)`` FLOPs (its convolutions). The defaults are the first wired stage of the
        small RandWire network on 224 x 224 images.

    Raises
    ------
    InvalidProblem
        An argument is out of range, or the random graph is practically never connected.

    References
    ----------
    DiviML, section V; S. Xie, A. Kirillov, R. Girshick, K. He, "Exploring randomly wired neural
    networks for image recognition", ICCV 2019.
    """
    _check_choice("kind", kind, ("er", "ws", "ba"))
    _check_choice("dependence", dependence, ("sdep", "wdep"))
    most = n // 2 if dependence == "sdep" else n
    if channels > most:
        raise InvalidProblem(f"channels is {channels}; {dependence} modules of {n} tasks have at most {most}")
    _check_wiring(kind, n, probability, neighbours, rewiring, attachments)

    rng = np.random.default_rng(seed)
    parts: list[IntArray] = []
    outputs = np.empty(0, np.int64)
    for m in range(modules):
        arcs = _connected(kind, n, probability, neighbours, rewiring, attachments, rng)
        if dependence == "sdep":
            inputs, ends = np.arange(channels), np.arange(n - channels, n)
            arcs = np.concatenate([arcs, _anchors(arcs, n, channels, rng)])
        else:
            inputs = rng.permutation(np.append(0, 1 + rng.choice(n - 1, channels - 1, replace=False)))
            ends = rng.permutation(np.append(rng.choice(n - 1, channels - 1, replace=False), n - 1))
            if m:
                loose = np.setdiff1d(np.arange(n), np.append(arcs[:, 1], inputs))
                arcs = np.concatenate([arcs, np.column_stack([rng.integers(loose), loose])])
            if m < modules - 1:
                loose = np.setdiff1d(np.arange(n), np.append(arcs[:, 0], ends))
                arcs = np.concatenate([arcs, np.column_stack([loose, rng.integers(loose + 1, n)])])
        if m:
            parts.append(np.column_stack([outputs, inputs + m * n]))
        parts.append(arcs + m * n)
        outputs = ends + m * n
    edges = np.concatenate(parts)

    tensor = SCALAR_BYTES * width * resolution**2
    weights = SCALAR_BYTES * (width**2 + 9 * width + width)
    received = np.maximum(np.bincount(edges[:, 1], minlength=n * modules), 1) * float(tensor)
    return TaskGraph(
        [f"m{m}.{i}" for m in range(modules) for i in range(n)],
        edges,
        op="relu_sepconv",
        weight_bytes=weights,
        input_bytes=received,
        output_bytes=tensor,
        flops=2 * resolution**2 * (width**2 + 9 * width),
        bytes_accessed=weights + received + tensor,
    )


def _anchors(arcs: IntArray, n: int, channels: int, rng: np.random.Generator) -> IntArray:
    """Return the edges that connect tasks without predecessor or successor to inputs and outputs of the module."""
    loose = np.flatnonzero(np.bincount(arcs[:, 1], minlength=n) == 0)
    loose = loose[loose >= channels]
    first = np.column_stack([rng.integers(channels, size=len(loose)), loose])
    loose = np.flatnonzero(np.bincount(np.concatenate([arcs, first])[:, 0], minlength=n) == 0)
    loose = loose[loose < n - channels]
    last = np.column_stack([loose, rng.integers(n - channels, n, size=len(loose))])
    return np.concatenate([first, last])


def _connected(
    kind: str, n: int, probability: float, neighbours: int, rewiring: float, attachments: int, rng: np.random.Generator
) -> IntArray:
    """Return the edges [E, 2] of a connected random graph, lower index first, sorted."""
    for _ in range(ATTEMPTS):
        if kind == "er":
            arcs = _erdos_renyi(n, probability, rng)
        elif kind == "ws":
            arcs = _watts_strogatz(n, neighbours, rewiring, rng)
        else:
            arcs = _barabasi_albert(n, attachments, rng)
        if _is_connected(arcs, n):
            return arcs[np.lexsort((arcs[:, 1], arcs[:, 0]))]
    remedy = {"er": f"probability={probability}", "ws": f"neighbours={neighbours}"}[kind]
    raise InvalidProblem(f"{ATTEMPTS} random graphs of {n} tasks with {remedy} were all disconnected; give a larger one")


def _is_connected(arcs: IntArray, n: int) -> bool:
    label = np.arange(n)
    while True:
        before = label
        label = label.copy()
        smaller = np.minimum(label[arcs[:, 0]], label[arcs[:, 1]])
        np.minimum.at(label, arcs[:, 0], smaller)
        np.minimum.at(label, arcs[:, 1], smaller)
        label = label[label]
        if np.array_equal(label, before):
            return not label.any()


def _erdos_renyi(n: int, probability: float, rng: np.random.Generator) -> IntArray:
    """Draw the number of edges, then the pairs, in time proportional to the edges, not to n^2."""
    pairs = n * (n - 1) // 2
    number = rng.choice(pairs, rng.binomial(pairs, probability), replace=False, shuffle=False)
    # Pair (i, j), i < j, has the number j (j - 1) / 2 + i.
    j = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > number  # the rounded square root may cross a whole number
    j += j * (j + 1) // 2 <= number
    return np.column_stack([number - j * (j - 1) // 2, j])


def _watts_strogatz(n: int, neighbours: int, rewiring: float, rng: np.random.Generator) -> IntArray:
    linked = [{(i + d) % n for d in range(-(neighbours // 2), neighbours // 2 + 1) if d} for i in range(n)]
    for d in range(1, neighbours // 2 + 1):
        chosen = np.flatnonzero(rng.random(n) < rewiring).tolist()
        # Each takes one number or more, so that many are drawn at once; a task that has all others as neighbours takes none.
        together = max(map(len, linked)) + len(chosen) < n - 1
        drawn: list[int] = []
        for left, i in zip(range(len(chosen), 0, -1), chosen, strict=True):
            old, own = (i + d) % n, linked[i]
            if len(own) == n - 1:
                continue
            while True:
                if not drawn:
                    drawn = rng.integers(n, size=left if together else 1).tolist()[::-1]
                if (new := drawn.pop()) != i and new not in own:
                    break
            own.remove(old)
            linked[old].remove(i)
            own.add(new)
            linked[new].add(i)
    return np.array([(i, j) for i, row in enumerate(linked) for j in row if i < j], np.int64).reshape(-1, 2)


def _barabasi_albert(n: int, attachments: int, rng: np.random.Generator) -> IntArray:
    arcs = [(i, attachments) for i in range(attachments)]
    ends = [end for arc in arcs for end in arc]  # each node as many times as its degree
    for new in range(attachments + 1, n):
        old: set[int] = set()
        while len(old) < attachments:
            old.update(ends[at] for at in rng.integers(len(ends), size=attachments - len(old)).tolist())
        for i in sorted(old):
            arcs.append((i, new))
            ends += (i, new)
    return np.array(arcs, np.int64)


def _check_choice(what: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidProblem(f"{what} is {value!r}; choose one of {', '.join(map(repr, choices))}")


def _check_wiring(kind: str, n: int, probability: float, neighbours: int, rewiring: float, attachments: int) -> None:
    """Raise an error for parameters outside the range of the random graph."""
    if kind == "er" and not 0 < probability <= 1:
        raise InvalidProblem(f"probability is {probability!r}; it must be in (0, 1]")
    if kind == "ws":
        check_count(neighbours, "neighbours", 2, error=InvalidProblem)
        if neighbours % 2 or n <= neighbours:
            raise InvalidProblem(f"neighbours is {neighbours} and n is {n}; ws needs an even number of neighbours, less than n")
        if not 0 <= rewiring <= 1:
            raise InvalidProblem(f"rewiring is {rewiring!r}; it must be in [0, 1]")
    if kind == "ba":
        check_count(attachments, "attachments", error=InvalidProblem)
        if n <= attachments:
            raise InvalidProblem(f"attachments is {attachments} and n is {n}; ba needs n > attachments")
