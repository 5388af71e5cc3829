"""Task graphs: one column per property of tasks, edges in compressed rows of successors and of predecessors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from hetsched.arguments import NUMBER, check_array, checked, shown
from hetsched.arrays import BoolArray, FloatArray, Frozen, IntArray, distinct, readonly, row_starts
from hetsched.errors import InvalidProblem
from hetsched.problem.labels import Axis, Numbers, each, edge_axis, in_order

if TYPE_CHECKING:
    import networkx

SMALLEST, LARGEST = 1e-100, 1e100
"""Range of the nonzero times, sizes and bandwidths of a problem: sums and quotients neither overflow nor underflow."""
RANGE = f"0 or a number from {SMALLEST:g} to {LARGEST:g}"
Edge = tuple[str, str] | tuple[str, str, float | None]


class Shape(NamedTuple):
    """The sizes of an operator for ONE input, for cost models.

    They are those of the product of a matrix [rows, reduction] and one [reduction, columns]: the rows of a convolution are the
    pixels of its output, its columns the channels there, and its reduction the channels of the input of a group times the kernel.
    The reduction of a pooling is its window.
    """

    rows: float
    columns: float
    reduction: float
    kernel: tuple[int, ...] = ()
    """Lengths of the kernel or the window; empty for others."""
    stride: tuple[int, ...] = ()
    groups: int = 1


def named(indices: npt.ArrayLike, names: Sequence[str], limit: int = 3) -> str:
    """Return the names at `indices`, at most `limit` of them, as text for a message."""
    chosen = np.atleast_1d(np.asarray(indices))
    text = ", ".join(repr(names[int(i)]) for i in chosen[:limit])
    return text if len(chosen) <= limit else f"{text} and {len(chosen) - limit} more"


def in_range(values: FloatArray) -> BoolArray:
    """Return which numbers are 0 or between `SMALLEST` and `LARGEST`; NaN is not."""
    return np.asarray((values == 0) | ((values >= SMALLEST) & (values <= LARGEST)))


def plural(count: int, noun: str) -> str:
    """Return ``count noun``, the noun in the plural unless the count is 1."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def is_text(value: object) -> bool:
    """Return whether `value` is a string without lone surrogates, which a document can store."""
    if not isinstance(value, str):
        return False
    if value.isascii():  # by far the most common
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _texts(values: Iterable[Any]) -> set[Any] | None:
    """Return the distinct values if all are text, see `is_text`, and can be hashed, else None."""
    try:
        different = set(values)
        "".join(different).encode()  # one by one a million names would take a second
    except (TypeError, UnicodeEncodeError):
        return None
    return different


def number(value: object) -> float:
    """Return `value` as a float, or NaN if it is not a number or too large for a float."""
    try:
        return float(NUMBER.take(value))
    except (OverflowError, TypeError, ValueError):
        return np.nan


def unique_names(names: Iterable[str], what: str) -> tuple[str, ...]:
    """Return `names` as a tuple after checking that they are distinct non-empty strings."""
    result = tuple(names)
    different = _texts(result)
    if different is None or "" in different:
        for name in result:
            if not is_text(name) or not name:
                raise InvalidProblem(f"{what} name {name!r} is not a non-empty string; give each {what} a name of Unicode text")
    result = tuple(map(str, result))  # numpy's strings become str
    if len(different or set(result)) < len(result):
        seen: set[str] = set()
        duplicates = sorted({name for name in result if name in seen or seen.add(name)})  # type: ignore[func-returns-value]
        raise InvalidProblem(f"duplicate {what} names: {named(range(len(duplicates)), duplicates)}; names must be unique")
    return result


def _amounts(values: Any, n: int, what: str, names: Sequence[str], *, absent: bool = False) -> FloatArray:
    """Return a per-task column of finite amounts >= 0 from a scalar or a sequence.

    With `absent`, None and NaN mean "unknown".
    """
    if values is None:
        values = np.nan if absent else 0.0
    text = f"a number or {plural(n, 'number')}, one per task"
    values = in_order(values, what, Axis("task", names))
    column = np.array(check_array(values, what, text=text, absent=absent, error=InvalidProblem))
    if column.ndim == 0:
        column = np.full(n, column)
    if column.shape != (n,):
        raise InvalidProblem(f"{what} has shape {column.shape} but the graph has {n} tasks; give one number per task")
    bad = ~in_range(column)
    if absent:
        bad &= ~np.isnan(column)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise InvalidProblem(f"{what} of task {names[i]!r} is {column[i]}; it must be {RANGE}")
    return column


class TaskGraph(Frozen):
    """A directed acyclic graph of tasks.

    Parameters
    ----------
    tasks : iterable of str
        Unique task names, in index order.
    edges : iterable of (source, target) or (source, target, bytes)
        Data dependencies by task name. `bytes` is the size of the tensor for ONE input; the default,
        also for None, is the source's `output_bytes`. Parallel edges are summed. An integer array
        [E, 2] of task indices is also accepted, with `edge_bytes`.
    edge_bytes : array [E], optional
        Bytes per edge, only with an integer array of edges.
    op : str or sequence of str
        Operator type per task.
    weight_bytes, input_bytes, output_bytes : float or array [n]
        Size of a task's weights, and of its input and output for ONE input, in bytes.
    flops, bytes_accessed : float or array [n], optional
        Work for ONE input, for cost models; NaN if unknown.
    shape : sequence of (Shape or None), optional
        Sizes of operators, for cost models; None if unknown.
    colocation : sequence of (str or None), optional
        Co-location labels. For each input, all tasks with the same label run on one device.
    devices : sequence of (sequence of str or None), optional
        Names of the devices a task is pinned to; None means any device.

        A per-task argument may also be a mapping or a pandas series indexed by task name, in any order; for
        `shape`, `colocation` and `devices` it may omit tasks. `edge_bytes` may be one indexed by (source, target).

    Attributes
    ----------
    names : tuple of str
    edges : int64 array [E, 2]
        Source and target of each edge, in the order of first appearance.
    edge_bytes : float64 array [E]
    succ_ptr, succ, succ_edge / pred_ptr, pred, pred_edge : int64 arrays
        Compressed rows: the successors of task i are ``succ[succ_ptr[i]:succ_ptr[i + 1]]`` over the
        edges ``succ_edge[...]``; predecessors in the same form.

    Raises
    ------
    InvalidProblem
        Duplicate or unknown names, negative or non-finite numbers, cycles (printed as a path).
    """

    _format = "hetsched-graph"
    names: tuple[str, ...]
    edges: IntArray
    edge_bytes: FloatArray
    op: tuple[str, ...]
    weight_bytes: FloatArray
    input_bytes: FloatArray
    output_bytes: FloatArray
    flops: FloatArray
    bytes_accessed: FloatArray
    shape: tuple[Shape | None, ...]
    colocation: tuple[str | None, ...]
    devices: tuple[tuple[str, ...] | None, ...]

    @checked(InvalidProblem)
    def __init__(
        self,
        tasks: Iterable[str],
        edges: Iterable[Edge] | npt.NDArray[np.integer[Any]] = (),
        *,
        edge_bytes: Numbers | None = None,
        op: str | Iterable[str] | Mapping[str, str] = "",
        weight_bytes: Numbers = 0.0,
        input_bytes: Numbers = 0.0,
        output_bytes: Numbers = 0.0,
        flops: Numbers | None = None,
        bytes_accessed: Numbers | None = None,
        shape: Iterable[Shape | None] | Mapping[str, Shape | None] | None = None,
        colocation: Iterable[str | None] | Mapping[str, str | None] | None = None,
        devices: Iterable[Iterable[str] | None] | Mapping[str, Iterable[str] | None] | None = None,
    ) -> None:
        names = unique_names(tasks, "task")
        n = len(names)
        output = _amounts(output_bytes, n, "output_bytes", names)
        arcs, sizes = _read_edges(edges, edge_bytes, names, output)
        axis = Axis("task", names)
        ops = (op,) * n if isinstance(op, str) else tuple(each(op, "op", axis))
        shapes = (None,) * n if shape is None else tuple(each(shape, "shape", axis, absent=None))
        labels = (None,) * n if colocation is None else tuple(each(colocation, "colocation", axis, absent=None))
        given = (None,) * n if devices is None else each(devices, "devices", axis, absent=None)
        pins = tuple(None if pin is None else _pin(names, i, pin) for i, pin in enumerate(given))
        for what, column in (("op", ops), ("shape", shapes), ("colocation", labels), ("devices", pins)):
            if len(column) != n:
                raise InvalidProblem(f"{what} has length {len(column)} but the graph has {n} tasks; give one per task")
        for what, column, absent in (("op", ops, False), ("colocation", labels, True)):
            if _texts(value for value in column if not absent or value is not None) is None:
                for name, value in zip(names, column, strict=True):
                    if not (is_text(value) or (absent and value is None)):
                        raise InvalidProblem(f"{what} of task {name!r} is {value!r}; it must be a string of Unicode text")
        if shape is not None:
            shapes = tuple(None if one is None else _checked_shape(names[i], one) for i, one in enumerate(shapes))
        self._set(
            names=names,
            edges=arcs,
            edge_bytes=sizes,
            op=tuple(map(str, ops)),
            weight_bytes=_amounts(weight_bytes, n, "weight_bytes", names),
            input_bytes=_amounts(input_bytes, n, "input_bytes", names),
            output_bytes=output,
            flops=_amounts(flops, n, "flops", names, absent=True),
            bytes_accessed=_amounts(bytes_accessed, n, "bytes_accessed", names, absent=True),
            shape=shapes,
            colocation=tuple(None if label is None else str(label) for label in labels),
            devices=pins,
        )
        if len(self.topological_order) < n:
            raise InvalidProblem(f"the graph has a cycle: {' -> '.join(self._a_cycle())}; remove one of its edges")

    def __repr__(self) -> str:
        return f"<TaskGraph of {plural(self.n_tasks, 'task')} and {plural(self.n_edges, 'edge')}>"

    def replace(self, **changes: Any) -> TaskGraph:
        """Return a copy with some constructor arguments replaced; the order of the names must stay the same."""
        arguments = {name: self.__dict__[name] for name in self._fields if name not in ("names", "edges", "edge_bytes")}
        if "edges" not in changes:
            arguments |= {"edges": self.edges, "edge_bytes": self.edge_bytes}
        return TaskGraph(**{"tasks": self.names, **arguments, **changes})

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.names)

    @property
    def n_edges(self) -> int:
        """Number of edges, parallel ones merged."""
        return len(self.edges)

    @cached_property
    def index(self) -> dict[str, int]:
        """The index of each task by name."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def source(self) -> IntArray:
        """Source task of each edge, shape [E]."""
        return readonly(self.edges[:, 0])

    @cached_property
    def target(self) -> IntArray:
        """Target task of each edge, shape [E]."""
        return readonly(self.edges[:, 1])

    @cached_property
    def _successors(self) -> tuple[IntArray, IntArray, IntArray]:
        return _compressed(self.source, self.target, self.n_tasks)

    @cached_property
    def _predecessors(self) -> tuple[IntArray, IntArray, IntArray]:
        return _compressed(self.target, self.source, self.n_tasks)

    @property
    def succ_ptr(self) -> IntArray:
        """Row starts of `succ` and `succ_edge`, shape [n + 1]."""
        return self._successors[0]

    @property
    def succ(self) -> IntArray:
        """Successors, task after task, shape [E]."""
        return self._successors[1]

    @property
    def succ_edge(self) -> IntArray:
        """Edge indices belonging to `succ`, shape [E]."""
        return self._successors[2]

    @property
    def pred_ptr(self) -> IntArray:
        """Row starts of `pred` and `pred_edge`, shape [n + 1]."""
        return self._predecessors[0]

    @property
    def pred(self) -> IntArray:
        """Predecessors, task after task, shape [E]."""
        return self._predecessors[1]

    @property
    def pred_edge(self) -> IntArray:
        """Edge indices belonging to `pred`, shape [E]."""
        return self._predecessors[2]

    @cached_property
    def topological_order(self) -> IntArray:
        """Breadth-first topological order: Kahn's algorithm with a queue, sources in index order."""
        from hetsched.problem import topology_kernels

        order: IntArray = topology_kernels.breadth_first_order(self.succ_ptr, self.succ, np.diff(self.pred_ptr))
        order.setflags(write=False)
        return order

    @cached_property
    def rank(self) -> IntArray:
        """Position of each task in the topological order, shape [n]: the inverse permutation."""
        rank = np.empty(self.n_tasks, np.int64)
        rank[self.topological_order] = np.arange(self.n_tasks)
        return readonly(rank)

    def _a_cycle(self) -> list[str]:
        """Return the names along one cycle, the first repeated at the end. The graph must have a cycle."""
        stuck = np.ones(self.n_tasks, bool)
        stuck[self.topological_order] = False
        # Every stuck task has a stuck predecessor, so a walk backward repeats a task.
        position: dict[int, int] = {}
        path: list[int] = []
        i = int(np.flatnonzero(stuck)[0])
        while i not in position:
            position[i] = len(path)
            path.append(i)
            i = next(int(p) for p in self.pred[self.pred_ptr[i] : self.pred_ptr[i + 1]] if stuck[p])
        cycle = [*path[position[i] :], i][::-1]
        return [self.names[i] for i in cycle]

    @classmethod
    def from_networkx(cls, graph: networkx.DiGraph[Any]) -> TaskGraph:
        """Build a task graph from a ``networkx.DiGraph``.

        Nodes become tasks (their ``str``), in the graph's order. Node attributes `op`,
        `weight_bytes`, `input_bytes`, `output_bytes`, `flops`, `bytes_accessed`, `shape`, `colocation` and
        `devices` and the edge attribute `bytes` are read; others are ignored. Multigraph edges are
        summed.
        """
        if not callable(getattr(graph, "is_directed", None)) or isinstance(graph, type):
            raise InvalidProblem(f"graph is {shown(graph)}; it must be a networkx.DiGraph")
        if not graph.is_directed():
            raise InvalidProblem("an undirected networkx graph has no precedence; pass a DiGraph")
        nodes = list(graph.nodes(data=True))

        def column(name: str, default: Any) -> list[Any]:
            return [data.get(name, default) for _, data in nodes]

        return cls(
            [str(node) for node, _ in nodes],
            [(str(u), str(v), data.get("bytes")) for u, v, data in graph.edges(data=True)],
            op=column("op", ""),
            weight_bytes=column("weight_bytes", 0.0),
            input_bytes=column("input_bytes", 0.0),
            output_bytes=column("output_bytes", 0.0),
            flops=column("flops", np.nan),
            bytes_accessed=column("bytes_accessed", np.nan),
            shape=column("shape", None),
            colocation=column("colocation", None),
            devices=column("devices", None),
        )

    def to_networkx(self) -> networkx.DiGraph[Any]:
        """Return a ``networkx.DiGraph`` whose nodes are the task names; inverse of `from_networkx`."""
        import networkx

        graph: networkx.DiGraph[Any] = networkx.DiGraph()
        for i, name in enumerate(self.names):
            graph.add_node(
                name,
                op=self.op[i],
                weight_bytes=float(self.weight_bytes[i]),
                input_bytes=float(self.input_bytes[i]),
                output_bytes=float(self.output_bytes[i]),
                flops=float(self.flops[i]),
                bytes_accessed=float(self.bytes_accessed[i]),
                shape=self.shape[i],
                colocation=self.colocation[i],
                devices=self.devices[i],
            )
        for (i, j), size in zip(self.edges.tolist(), self.edge_bytes.tolist(), strict=True):
            graph.add_edge(self.names[i], self.names[j], bytes=size)
        return graph


def _checked_shape(name: str, shape: Any) -> Shape:
    """Return the shape of a task with plain numbers."""
    if not isinstance(shape, Shape):
        raise InvalidProblem(f"shape of task {name!r} is {shown(shape)}; give a hetsched.Shape, or None if it is unknown")
    rows, columns, reduction = sizes = [number(size) for size in shape[:3]]
    lengths = [number(length) for part in (shape.kernel, shape.stride, (shape.groups,)) for length in part]
    if not (all(0 <= size < LARGEST for size in sizes) and all(length >= 1 and length == int(length) for length in lengths)):
        raise InvalidProblem(f"shape of task {name!r} is {shape}; sizes must be numbers >= 0, kernel, stride and groups whole numbers >= 1")
    return Shape(rows, columns, reduction, tuple(map(int, shape.kernel)), tuple(map(int, shape.stride)), int(shape.groups))


def _pin(names: Sequence[str], i: int, pin: Iterable[str]) -> tuple[str, ...]:
    devices = (pin,) if isinstance(pin, str) else tuple(pin) if isinstance(pin, Iterable) else ()
    if not devices or not all(map(is_text, devices)):
        where = repr(names[i]) if i < len(names) else f"number {i}"
        given = list(devices) if isinstance(pin, Iterable) else pin
        raise InvalidProblem(f"task {where} is pinned to {shown(given)}; give one or more device names, or None for any")
    return tuple(dict.fromkeys(map(str, devices)))


def _compressed(row: IntArray, column: IntArray, n: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return (row starts, columns, edge indices) of the arcs grouped by `row`, edge order kept."""
    edge = np.argsort(row, kind="stable")
    arrays = (row_starts(np.bincount(row, minlength=n)), column[edge], edge)
    for array in arrays:
        array.setflags(write=False)
    return arrays


def _read_edges(
    edges: Iterable[Edge] | npt.NDArray[np.integer[Any]], edge_bytes: Numbers | None, names: tuple[str, ...], output_bytes: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return ([E, 2] task indices, [E] bytes) with parallel edges summed."""
    if isinstance(edges, np.ndarray) and edges.dtype.kind in "iu":
        arcs, sizes = _indexed_edges(edges, edge_bytes, names, output_bytes)
    elif edge_bytes is not None:
        raise InvalidProblem("edge_bytes needs an integer array of edges; write named edges as (source, target, bytes)")
    else:
        arcs, sizes = _named_edges(edges, names, output_bytes)
    bad = ~in_range(sizes)
    if bad.any():
        e = int(np.flatnonzero(bad)[0])
        i, j = arcs[e]
        raise InvalidProblem(f"edge {names[i]!r} -> {names[j]!r} carries {sizes[e]} bytes; it must be {RANGE}")
    keys = arcs[:, 0] * len(names) + arcs[:, 1]
    if len(distinct(keys)) == len(keys):
        return arcs, sizes
    unique, first, group = np.unique(keys, return_index=True, return_inverse=True)
    kept = np.sort(first)
    total = np.zeros(len(unique))
    np.add.at(total, group, sizes)
    return arcs[kept], total[group[kept]]


def _indexed_edges(
    edges: npt.NDArray[np.integer[Any]], edge_bytes: Numbers | None, names: tuple[str, ...], output_bytes: FloatArray
) -> tuple[IntArray, FloatArray]:
    arcs = np.array(edges, dtype=np.int64).reshape(-1, 2) if edges.size == 0 else np.array(edges, dtype=np.int64)
    if arcs.ndim != 2 or arcs.shape[1] != 2:
        raise InvalidProblem(f"an array of edges must have shape [E, 2]; got {arcs.shape}")
    outside = (arcs < 0) | (arcs >= len(names))
    if outside.any():
        e = int(np.flatnonzero(outside.any(axis=1))[0])
        raise InvalidProblem(f"edge {e} joins tasks {tuple(arcs[e].tolist())} but task indices run from 0 to {len(names) - 1}")
    if edge_bytes is None:
        return arcs, output_bytes[arcs[:, 0]]
    sizes = np.array(check_array(in_order(edge_bytes, "edge_bytes", edge_axis(arcs, names)), "edge_bytes", error=InvalidProblem))
    if sizes.ndim == 0:
        sizes = np.full(len(arcs), sizes)
    if sizes.shape != (len(arcs),):
        raise InvalidProblem(f"edge_bytes has shape {sizes.shape} but there are {len(arcs)} edges; give one number per edge")
    return arcs, sizes


def _named_edges(edges: Iterable[Edge], names: tuple[str, ...], output_bytes: FloatArray) -> tuple[IntArray, FloatArray]:
    rows = list(edges)
    index = dict(zip(names, range(len(names)), strict=True))
    try:
        ends = [np.fromiter(map(index.__getitem__, map(itemgetter(end), rows)), np.int64, len(rows)) for end in (0, 1)]
        given = [row[2] if len(row) > 2 else None for row in rows]
    except (KeyError, IndexError, TypeError):
        _refuse_edge(rows, index)
    arcs = np.stack(ends, axis=1)
    try:
        sizes = np.array(given, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError, OverflowError) as error:
        bad = next((row for row in rows if len(row) > 2 and row[2] is not None and np.isnan(number(row[2]))), rows[0])
        raise InvalidProblem(f"edge {bad!r}: bytes must be a number") from error
    absent = np.array([e for e in np.flatnonzero(np.isnan(sizes)).tolist() if given[e] is None], np.int64)
    sizes[absent] = output_bytes[arcs[absent, 0]]
    return arcs, sizes


def _refuse_edge(rows: Sequence[Any], index: dict[str, int]) -> NoReturn:
    """Raise the error that names the first malformed edge."""
    for row in rows:
        if isinstance(row, str) or not isinstance(row, Sequence) or not 2 <= len(row) <= 3:
            raise InvalidProblem(f"edge {row!r} is not (source, target) or (source, target, bytes)")
        for end in row[:2]:
            if not isinstance(end, str) or end not in index:
                raise InvalidProblem(f"edge {row[0]!r} -> {row[1]!r} names {end!r}, which is no task of the graph")
    raise AssertionError("unreachable: every edge is well formed")
