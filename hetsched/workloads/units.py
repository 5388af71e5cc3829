"""Networks in the operators of the paper on IOS, as its program builds and divides them, without torch.

A task is a convolution with the ReLU before or after it, a separable convolution with its ReLU, a pooling, a concatenation, or a sum
that several tasks read; any other sum is part of the task that reads it. In graphs captured from the modules of `vision` every sum is
a task, and the cells of NASNet-A are those of its paper, with which the program's do not agree in all details.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from hetsched.arguments import COUNT, checked
from hetsched.errors import InvalidProblem
from hetsched.problem.graph import Shape, TaskGraph

SCALAR_BYTES = 4
"""Bytes of a float32."""


@checked(InvalidProblem, filters=COUNT, cells=COUNT)
def nasnet_large(*, filters: int = 168, cells: int = 6) -> TaskGraph:
    """Return NASNet-A for images of 331 x 331 pixels: by default the large one, 374 operators and the input ``"x"``.

    The tasks of a cell are named ``"cells.{k}.{operator}"``; cells 0 and 1 are the stem, and each cell is a block of the
    program. Those of the most transitions are the first cells of the three series, 2, 9 and 16 by default.

    Parameters
    ----------
    filters : int
        Channels of a branch in the first series of cells, a multiple of 4; later series have twice as many as the one before.
    cells : int
        Number of cells of each series, without the reduction cell before the second and third.

    Raises
    ------
    InvalidProblem
        An argument is out of range.

    References
    ----------
    B. Zoph, V. Vasudevan, J. Shlens, Q. V. Le, "Learning transferable architectures for scalable image recognition", CVPR 2018,
    Figure 4; Y. Ding, L. Zhu, Z. Jia, G. Pekhimenko, S. Han, "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021,
    Tables 1 and 2.
    """
    if filters % 4:
        raise InvalidProblem(f"filters is {filters}; the stem has a quarter and a half of them, so give a multiple of 4")
    net = _Network(331)
    made = [net.conv("conv1", ["x"], 96, 3, stride=2, padding=0)]  # the output of the convolution, then of each cell

    def reduction(kind: Literal["first", "second", "later"], here: str, there: str, width: int) -> None:
        made.append(_reduction(net, f"cells.{len(made) - 1}", kind, here, there, width))

    def adjusted(side: str, source: str, width: int, stride: int = 1) -> str:
        return net.conv(f"cells.{len(made) - 1}.{side}", [source], width, stride=stride)

    reduction("first", adjusted("here", made[0], filters // 4), made[0], filters // 4)
    halves = [adjusted(f"there.{half}", made[0], filters // 4, stride=2) for half in (1, 2)]
    there = net.simple("cells.1.there", "add", [halves])
    reduction("second", adjusted("here", made[1], filters // 2), there, filters // 2)
    for series in range(3):
        width = filters * 2**series
        before = made[-2]
        if series:
            reduction("later", adjusted("here", made[-1], width), adjusted("there", before, width), width)
            before = made[-3]
        here = adjusted("here", made[-1], width)
        halves = [adjusted(f"there.{half}", before, width // 2, stride=2) for half in (1, 2)]
        there = net.simple(f"cells.{len(made) - 1}.there", "cat", [halves[:1], halves[1:]])
        made.append(_normal(net, f"cells.{len(made) - 1}", here, there, width, first=True))
        for _ in range(cells - 1):
            here, there = adjusted("here", made[-1], width), adjusted("there", made[-2], width)
            made.append(_normal(net, f"cells.{len(made) - 1}", here, there, width, first=False))
    net.pool("pool", net.simple("relu", "relu", [made[-1:]]), "avg", whole=True)
    return net.graph()


@checked(InvalidProblem, channels=COUNT)
def randwire(wirings: Sequence[Sequence[tuple[int, int]]], *, channels: int = 154) -> TaskGraph:
    """Return a randomly wired network for images of 224 x 224 pixels, in the regime of the larger ones.

    With the program's wirings, one of 16 nodes and three of 32, it has 120 operators and the input ``"x"``. Node i of a stage is
    named ``"stage{k}.{i}"`` and the sum of its ends ``"stage{k}.sum"``.

    Parameters
    ----------
    wirings : sequence of sequences of (int, int)
        Edges between the nodes 0, 1, ... of each stage, each from a lower to a higher number. Each stage halves height and
        width; nodes without predecessors read its input.
    channels : int
        Channels of the first stage; each later one has twice as many as the one before.

    Raises
    ------
    InvalidProblem
        An edge is none, or a wiring has no edges.

    References
    ----------
    S. Xie, A. Kirillov, R. Girshick, K. He, "Exploring randomly wired neural networks for image recognition", ICCV 2019, Table 2;
    Y. Ding, L. Zhu, Z. Jia, G. Pekhimenko, S. Han, "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021,
    Tables 1 and 2.
    """
    net = _Network(224)
    source = net.conv("conv1", ["x"], max(1, channels // 2), 3, stride=2)
    for k, edges in enumerate(wirings):
        read: list[list[str]] = [[] for _ in range(1 + max((j for _, j in edges), default=-1))]
        if not read:
            raise InvalidProblem(f"wirings[{k}] has no edges; leave the stage out")
        for i, j in edges:
            if not 0 <= i < j:
                raise InvalidProblem(f"wirings[{k}] has the edge {(i, j)}; an edge leads from a node, 0 or more, to one of a higher number")
            read[j].append(f"stage{k + 1}.{i}")
        for i, inputs in enumerate(read):
            net.separable(f"stage{k + 1}.{i}", inputs or [source], channels * 2**k, 3, stride=1 if inputs else 2)
        inner = {i for i, _ in edges}
        source = net.simple(f"stage{k + 1}.sum", "add", [[f"stage{k + 1}.{i}" for i in range(len(read)) if i not in inner]])
    net.pool("pool", net.conv("conv6", [net.simple("relu", "relu", [[source]])], 1280), "avg", whole=True)
    return net.graph()


def _normal(net: _Network, name: str, here: str, there: str, width: int, *, first: bool) -> str:
    """Add a normal cell without the tasks at its entry; the first of a series reads `here` for one branch more, and returns `there` too."""

    def twice(branch: str, source: str, kernel: int) -> str:
        return net.twice(f"{name}.{branch}", source, width, kernel)

    sums = [
        [twice("a.left", here, 5), twice("a.right", here if first else there, 3)],
        [twice("b.left", there, 5), twice("b.right", there, 3)],
        [net.pool(f"{name}.c", here, "avg"), there],
        [net.pool(f"{name}.d.left", there, "avg"), net.pool(f"{name}.d.right", there, "avg")],
        [twice("e", here, 3), here],
    ]
    return net.simple(f"{name}.cat", "cat", [[there], *sums] if first else sums)


def _reduction(net: _Network, name: str, kind: Literal["first", "second", "later"], here: str, there: str, width: int) -> str:
    """Add a reduction cell without the tasks at its entry; those of the stem, the first and second, differ in what they return."""

    def twice(branch: str, source: str, kernel: int, stride: int = 2) -> str:
        return net.twice(f"{name}.{branch}", source, width, kernel, stride)

    a = net.simple(f"{name}.a", "add", [[twice("a.left", here, 5), twice("a.right", there, 7)]])
    addends = [net.pool(f"{name}.b.left", here, "max", stride=2), twice("b.right", there, 7)]
    b = net.simple(f"{name}.b", "add", [addends])
    sums = [
        addends if kind == "later" else [b],
        [net.pool(f"{name}.c.left", here, "avg", stride=2), twice("c.right", there, 5)],
        [net.pool(f"{name}.d", a, "avg"), a if kind == "first" else b],
        [twice("e.left", a, 3, stride=1), net.pool(f"{name}.e.right", here, "max", stride=2)],
    ]
    return net.simple(f"{name}.cat", "cat", sums)


class _Task(NamedTuple):
    """A task of a network and the tensor that it makes."""

    op: str
    reads: tuple[str, ...]
    channels: int
    side: int
    shape: Shape | None = None
    weights: int = 0
    operations: float = 0.0

    @property
    def size(self) -> float:
        """Bytes of the tensor."""
        return float(SCALAR_BYTES * self.channels * self.side**2)


class _Network:
    """Tasks in the order of execution; each returns its name. Inputs of convolutions are summed."""

    def __init__(self, side: int) -> None:
        self.tasks = {"x": _Task("input", (), 3, side)}

    def conv(self, name: str, inputs: Sequence[str], channels: int, kernel: int = 1, *, stride: int = 1, padding: int | None = None) -> str:
        source = self.tasks[inputs[0]]
        side = (source.side + 2 * (kernel // 2 if padding is None else padding) - kernel) // stride + 1
        shape = Shape(side**2, channels, source.channels * kernel**2, (kernel, kernel), (stride, stride))
        weights = channels * (source.channels * kernel**2 + 1)
        return self._add(name, _Task("conv2d", tuple(inputs), channels, side, shape, weights, 2 * side**2 * channels * shape.reduction))

    def separable(self, name: str, inputs: Sequence[str], channels: int, kernel: int, *, stride: int = 1) -> str:
        source = self.tasks[inputs[0]]
        side = (source.side - 1) // stride + 1
        shape = Shape(side**2, channels, source.channels, (1, 1), (1, 1))  # of the pointwise convolution, as captured
        reduction = source.channels * (kernel**2 + channels)
        return self._add(name, _Task("conv2d", tuple(inputs), channels, side, shape, reduction + channels, 2 * side**2 * reduction))

    def twice(self, name: str, source: str, channels: int, kernel: int, stride: int = 1) -> str:
        return self.separable(f"{name}.2", [self.separable(f"{name}.1", [source], channels, kernel, stride=stride)], channels, kernel)

    def pool(self, name: str, source: str, kind: Literal["avg", "max"], *, stride: int = 1, whole: bool = False) -> str:
        read = self.tasks[source]
        side = 1 if whole else (read.side - 1) // stride + 1
        shape = Shape(1, read.channels, read.side**2) if whole else Shape(side**2, read.channels, 9, (3, 3), (stride, stride))
        return self._add(name, _Task(f"{kind}_pool2d", (source,), read.channels, side, shape))

    def simple(self, name: str, op: str, sums: Sequence[Sequence[str]]) -> str:
        """Add a task that concatenates sums, one or several."""
        channels = sum(self.tasks[addends[0]].channels for addends in sums)
        reads = tuple(dict.fromkeys(source for addends in sums for source in addends))
        return self._add(name, _Task(op, reads, channels, self.tasks[reads[0]].side))

    def _add(self, name: str, task: _Task) -> str:
        self.tasks[name] = task
        return name

    def graph(self) -> TaskGraph:
        """Return the network as a task graph; the bytes of an edge are those of its tensor."""
        rows = self.tasks.values()

        def column(values: Iterable[float]) -> list[float]:
            return [float(value) for value in values]

        weights = column(SCALAR_BYTES * task.weights for task in rows)
        given = column(sum(self.tasks[source].size for source in task.reads) for task in rows)
        made = column(task.size for task in rows)
        moved = [sum(parts) for parts in zip(weights, given, made, strict=True)]
        return TaskGraph(
            list(self.tasks),
            [(source, name) for name, task in self.tasks.items() for source in task.reads],
            op=[task.op for task in rows],
            weight_bytes=weights,
            input_bytes=given,
            output_bytes=made,
            flops=column(task.operations for task in rows),
            bytes_accessed=moved,
            shape=[task.shape for task in rows],
        )
