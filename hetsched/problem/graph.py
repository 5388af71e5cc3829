"""Task graphs: one column per property of tasks, edges in compressed rows of successors and of predecessors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hetsched import documents
from hetsched.arguments import check_array, checked, shown
from hetsched.arrays import FloatArray, Frozen, IntArray, readonly, row_starts
from hetsched.errors import InvalidProblem
from hetsched.lazy import later
from hetsched.problem.edges import Edge, read_edges
from hetsched.problem.labels import Axis, Numbers, each, in_order
from hetsched.problem.ranges import LARGEST, RANGE, in_range, number

if TYPE_CHECKING:
    import networkx
    import pandas


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


def _amounts(values: Any, n: int, what: str, names: Sequence[str], *, absent: bool = False, unit: str = "B") -> FloatArray:
    """Return a per-task column of finite amounts >= 0 from a scalar or a sequence.

    With `absent`, None and NaN mean "unknown".
    """
    if values is None:
        values = np.nan if absent else 0.0
    text = f"a number or {plural(n, 'number')}, one per task"
    values = in_order(values, what, Axis("task", names))
    column = np.array(check_array(values, what, text=text, absent=absent, unit=unit, error=InvalidProblem))
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
        arcs, sizes = read_edges(edges, edge_bytes, names, output)
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
            flops=_amounts(flops, n, "flops", names, absent=True, unit="FLOP"),
            bytes_accessed=_amounts(bytes_accessed, n, "bytes_accessed", names, absent=True),
            shape=shapes,
            colocation=tuple(None if label is None else str(label) for label in labels),
            devices=pins,
        )
        if len(self.topological_order) < n:
            raise InvalidProblem(f"the graph has a cycle: {' -> '.join(self._a_cycle())}; remove one of its edges")

    def __repr__(self) -> str:
        return f"<TaskGraph of {plural(self.n_tasks, 'task')} and {plural(self.n_edges, 'edge')}>"

    _repr_html_ = later("hetsched.report.notebook:graph_html")

    def __len__(self) -> int:
        return len(self.names)

    def __bool__(self) -> bool:
        return True  # as any value, also without tasks

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, task: object) -> bool:
        return isinstance(task, str) and task in self.index

    def replace(self, **changes: Any) -> TaskGraph:
        """Return a copy with some constructor arguments replaced; the order of the names must stay the same."""
        arguments = {name: self.__dict__[name] for name in self._fields if name not in ("names", "edges", "edge_bytes")}
        if "edges" not in changes:
            arguments |= {"edges": self.edges, "edge_bytes": self.edge_bytes}
        return TaskGraph(**{"tasks": self.names, **arguments, **changes})

    def _colocated(self, label: IntArray) -> TaskGraph:
        """Return a copy with the co-location labels ``str(label[i])``; what was checked is not checked again."""
        graph = TaskGraph.__new__(TaskGraph)
        graph._set(**self.__dict__ | {"colocation": tuple(map(str, label.tolist()))})  # other cached properties do not depend on labels
        return graph

    @checked
    def write(self, path: str | PathLike[str]) -> None:
        """Write the graph as a JSON document; ``hetsched.read`` reads it back to the bit."""
        documents.write(self, path)

    @checked(InvalidProblem)
    def successors(self, task: str) -> tuple[str, ...]:
        """Return the names of the tasks that read the output of a task, in the order of the edges."""
        i = self._place(task)
        return tuple(self.names[j] for j in self.succ[self.succ_ptr[i] : self.succ_ptr[i + 1]].tolist())

    @checked(InvalidProblem)
    def predecessors(self, task: str) -> tuple[str, ...]:
        """Return the names of the tasks whose output a task reads, in the order of the edges."""
        i = self._place(task)
        return tuple(self.names[j] for j in self.pred[self.pred_ptr[i] : self.pred_ptr[i + 1]].tolist())

    def _place(self, task: str) -> int:
        if task not in self.index:
            raise InvalidProblem(f"{task!r} is no task of the graph; graph.names has all {self.n_tasks}")
        return self.index[task]

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.names)

    @property
    def n_edges(self) -> int:
        """Number of edges, parallel ones merged."""
        return len(self.edges)

    @cached_property
    def has_shapes(self) -> bool:
        """Whether some task has a `Shape`: the graph is one of operators on tensors."""
        return any(shape is not None for shape in self.shape)

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
    @checked(InvalidProblem)
    def from_networkx(
        cls, graph: networkx.DiGraph[Any], *, nodes: Mapping[str, str | None] | None = None, edges: Mapping[str, str | None] | None = None
    ) -> TaskGraph:
        """Build a task graph from a ``networkx.DiGraph``.

        Nodes become tasks (their ``str``), in the graph's order; multigraph edges are summed. The node attributes `op`,
        `weight_bytes`, `input_bytes`, `output_bytes`, `flops`, `bytes_accessed`, `shape`, `colocation` and
        `devices` and the edge attribute `bytes` are read; those of the graph as a whole are not.

        Parameters
        ----------
        graph : networkx.DiGraph
        nodes, edges : mapping, optional
            Other attributes, with the name above that each stands for, or None for one that is left out:
            ``nodes={"label": None}, edges={"weight": "bytes"}``.

        Raises
        ------
        InvalidProblem
            The graph is undirected or has a cycle, or an attribute is none of these.
        """
        from hetsched.problem import tables

        return cls(**tables.from_networkx(graph, nodes or {}, edges or {}))

    def to_networkx(self) -> networkx.DiGraph[Any]:
        """Return a ``networkx.DiGraph`` whose nodes are the task names; inverse of `from_networkx`."""
        from hetsched.problem import tables

        return tables.to_networkx(self)

    @classmethod
    @checked(InvalidProblem)
    def from_dataframe(cls, tasks: pandas.DataFrame, edges: pandas.DataFrame | None = None) -> TaskGraph:
        """Build a task graph from tables of pandas.

        Parameters
        ----------
        tasks : pandas.DataFrame
            A row for each task. A column `task` has the names, or without it the index. Other columns have the names of the
            per-task arguments of the constructor; where one may be None, so may be a cell, or NaN.
        edges : pandas.DataFrame, optional
            A row for each edge, with columns `source` and `target` and, if not all are the outputs of their sources, `bytes`.

        Raises
        ------
        InvalidProblem
            A column has another name, or a value breaks a rule of the constructor.
        """
        from hetsched.problem import tables

        return cls(**tables.from_dataframe(tasks, edges))

    @checked
    def to_dataframe(self, of: Literal["tasks", "edges"] = "tasks") -> pandas.DataFrame:
        """Return the tasks, or the edges, as the ``pandas.DataFrame`` that `from_dataframe` reads.

        Raises `MissingDependency` without pandas.
        """
        from hetsched.problem import tables

        return tables.to_dataframe(self, of)


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
