"""Durations from the sizes of operators, with constants that were fitted to measurements on each family of devices."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from hetsched.arguments import COUNT, checked
from hetsched.arrays import FloatArray
from hetsched.costs.protocol import Kernels
from hetsched.costs.roofline import FREE_OPS, operator_types
from hetsched.errors import InvalidProblem, warn
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import Shape, TaskGraph, named, plural

TILE = 64.0
"""Rows and columns of the part of a product that one unit of a device computes at a time."""
BLOCK = 8192.0
"""Bytes of a transfer that occupies one unit of the memory system."""
SHARPNESS = 4.0
"""Exponent by which computing and moving overlap: their norm is between the larger and the sum."""
DENSE = ("conv3x3", "conv1x1", "conv", "depthwise", "matmul", "attention")
CLASSES = (*DENSE, "max_pool", "avg_pool", "global_pool", "norm", "elementwise", "copy", "lookup")
"""Classes of operators, each with constants of its own; ``conv3x3`` has stride 1."""
PRODUCTS = frozenset({"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "gemm", "dense"})
NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "softmax", "log_softmax"})
COPIES = frozenset({"cat", "concat", "clone", "contiguous", "copy", "to", "stack", "pad", "constant_pad_nd", "index_put", "roll"})
LOOKUPS = frozenset({"embedding", "embedding_bag", "index_select", "index", "gather"})
Positive = Annotated[float, msgspec.Meta(gt=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The constants of a family of devices, and where they are from."""

    source: str
    """What was measured, on what."""
    date: str
    n: int
    """Number of measurements."""
    efficiency: dict[str, Positive]
    """Part of the peak that each class of operators reaches; that of classes which are not named is under ``"other"``."""
    bandwidth: dict[str, Positive]
    """Part of the memory bandwidth; that of classes which are not named is under ``"other"``."""
    error: dict[str, Positive]
    """Of each class, and ``"all"``: the factor within which are 90 % of measurements that were held out of the fit."""
    a: Amount = 0.0
    """Tiles for each unit at which half of a device is in use."""
    am: Amount = 0.0
    """Blocks for each unit at which half of the memory bandwidth is reached."""
    k0: Amount = 0.0
    """Reduction length at which half of the speed is reached."""
    k1: Positive = 1e30
    """Reduction length that is split into two tiles."""
    cache: Positive = 1.0
    """Bandwidth of the last cache, in those of memory."""


@functools.cache
def shipped() -> Mapping[str, Family]:
    """Return the families of the package, by ``"family dtype"``; `benchmarks/costs.py` fits them."""
    data = importlib.resources.files("hetsched.costs").joinpath("families.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, Family])


class Analytic:
    """Durations from the sizes of operators.

    One batch of b inputs of a task of class c takes, on a device with a number of `units`, a peak and a memory bandwidth ::

        launch_overhead + (work^4 + move^4)^(1/4)
        work = b * flops / (peak * efficiency[c] * u),   u = tiles / (tiles + a * units) * K / (K + k0)
        move = bytes / (memory_bandwidth * bandwidth[c] * um * l),   um = blocks / (blocks + am * units)

    where the task is a product of matrices of M x K and K x N by its `Shape`, with M = b * rows: it has ``max(1, M/64) max(1, N/64)
    (1 + K/k1)`` tiles, and ``bytes / 8192`` blocks. ``l = 1 + (cache - 1) / (1 + (bytes / cache_bytes)^2)`` is the gain of the last
    cache. Small operators fill neither the units nor the memory system, so that small batches take more for each input than large
    ones. Bytes are those of `Roofline`; the FLOPs of a pooling are the elements of its windows.

    Parameters
    ----------
    dtype : str
        Key of a device's `peak_flops` and of the family.
    families : mapping of str to Family, optional
        Constants by ``"family dtype"``, for instance ``"cuda float32"``. Default: those of the package, which `shipped` returns.
    free_ops : iterable of str
        Operator types that take no time: inputs and views.

    Notes
    -----
    Operators without a shape, and devices without a number of units, count as filling the device; one warning names the operators.

    Examples
    --------
    >>> import hetsched as hs
    >>> graph = hs.TaskGraph(["fc"], op="linear", flops=4e6, weight_bytes=8e6, shape=[hs.Shape(1, 1000, 2048)])
    >>> model = Analytic()
    >>> bool(model.durations(graph, hs.Cluster([hs.costs.device("v100")]), [1])[0, 0, 0] < 40e-6)
    True
    """

    @checked
    def __init__(self, dtype: str = "float32", *, families: Mapping[str, Family] | None = None, free_ops: Iterable[str] = FREE_OPS) -> None:
        self.dtype, self.families = dtype, shipped() if families is None else dict(families)
        self.free_ops = operator_types(free_ops)

    def __repr__(self) -> str:
        return f"<Analytic for {self.dtype}: {', '.join(self.families)}>"

    @checked
    def durations(self, graph: TaskGraph, cluster: Cluster, batch_sizes: Sequence[int]) -> FloatArray:
        """Return seconds per batch, shape [task, device, size].

        Raises
        ------
        InvalidProblem
            A device has no family, no peak for the dtype, or no memory bandwidth.
        """
        sizes, work = np.asarray(batch_sizes, np.float64), self._work(graph)
        if not cluster.devices:
            return np.zeros((0, 0, 0))
        seconds = np.stack([device.launch_overhead + self._seconds(device, work, sizes)[0] for device in cluster.devices], axis=1)
        seconds[work.free] = 0.0
        return seconds

    @checked(inputs=COUNT)
    def kernels(self, graph: TaskGraph, device: Device, inputs: int) -> Kernels:
        """Return what one batch of that many inputs takes on a device; errors as of `durations`."""
        work = self._work(graph)
        body, computing, moving = (part[:, 0] for part in self._seconds(device, work, np.array([float(inputs)])))
        launched = ~work.free
        return Kernels(body * launched, computing * launched, moving * launched, launched)

    @checked
    def error(self, graph: TaskGraph, cluster: Cluster) -> FloatArray:
        """Return the factor, at least 1, within which 90 % of the tasks like each one were measured, shape [task, device]."""
        classes = [class_of(op, shape) for op, shape in zip(graph.op, graph.shape, strict=True)]
        families = [self.family(device) for device in cluster.devices]
        return np.array([[family.error.get(kind, family.error["all"]) for family in families] for kind in classes]).reshape(
            graph.n_tasks, len(families)
        )

    @checked
    def family(self, device: Device) -> Family:
        """Return the constants of a device; raise `InvalidProblem` without any."""
        found = self.families.get(f"{device.family} {self.dtype}")
        if found is None:
            raise InvalidProblem(
                f"device {device.name!r} is of family {device.family!r}, and there are constants of {', '.join(map(repr, self.families))}; "
                "give the device its family, take it from hetsched.costs.device(kind), or use costs.Roofline()"
            )
        return found

    def _work(self, graph: TaskGraph) -> _Work:
        work = _Work.of(graph, self.free_ops)
        if work.shapeless:
            ops = list(dict.fromkeys(graph.op[i] for i in work.shapeless))
            warn(
                f"{plural(len(work.shapeless), 'task')} without a shape count as filling a device "
                f"(operators {named(range(len(ops)), ops, 8)}); give the graph their shapes, as capture does"
            )
        return work

    def _seconds(self, device: Device, work: _Work, sizes: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the seconds of all tasks on a device without launches; of computing that fills it; of moving at full bandwidth, [n, B]."""
        family, units = self.family(device), float(device.units or 0)
        peak, bandwidth = device.peak_flops.get(self.dtype), device.memory_bandwidth
        if peak is None or bandwidth is None:
            what = f"peak_flops for {self.dtype!r}" if peak is None else "memory_bandwidth"
            raise InvalidProblem(f"device {device.name!r} has no {what}; give it one, or take it from hetsched.costs.device(kind)")
        reached = np.array([family.efficiency.get(kind, family.efficiency["other"]) for kind in CLASSES])[work.kind][:, None]
        wide = np.array([family.bandwidth.get(kind, family.bandwidth["other"]) for kind in CLASSES])[work.kind][:, None]
        rows = work.rows[:, None] * sizes
        with np.errstate(divide="ignore", invalid="ignore"):
            tiles = np.maximum(1.0, rows / TILE) * (np.maximum(1.0, work.columns / TILE) * (1.0 + work.reduction / family.k1))[:, None]
            filled = np.where(work.dense[:, None], tiles / (tiles + family.a * units), 1.0)
            deep = np.where(work.dense, work.reduction / (work.reduction + family.k0), 1.0)[:, None]
            full = work.flops[:, None] * sizes / (peak * reached)
            computing = full / (filled * deep)
            moved = work.weights[:, None] + (work.accessed - work.weights)[:, None] * sizes
            blocks = moved / BLOCK
            busy = blocks / (blocks + family.am * units)
            cached = 0.0 if device.cache_bytes is None else 1.0 / (1.0 + (moved / device.cache_bytes) ** 2)
            wide_open = moved / (bandwidth * wide * (1.0 + (family.cache - 1.0) * cached))
            moving = wide_open / np.where(blocks > 0, busy, 1.0)
        largest = np.maximum(computing, moving)
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = np.nan_to_num(computing / largest) ** SHARPNESS + np.nan_to_num(moving / largest) ** SHARPNESS
        return largest * parts ** (1.0 / SHARPNESS), full, wide_open


class _Work(NamedTuple):
    """What a graph's tasks compute, [n] each."""

    kind: np.ndarray[tuple[int], np.dtype[np.int64]]
    """Index of `CLASSES`."""
    flops: FloatArray
    weights: FloatArray
    accessed: FloatArray
    rows: FloatArray
    columns: FloatArray
    reduction: FloatArray
    dense: np.ndarray[tuple[int], np.dtype[np.bool_]]
    free: np.ndarray[tuple[int], np.dtype[np.bool_]]
    shapeless: list[int]
    """Tasks of dense classes without a shape."""

    @classmethod
    def of(cls, graph: TaskGraph, free_ops: frozenset[str]) -> _Work:
        kinds = [class_of(op, shape) for op, shape in zip(graph.op, graph.shape, strict=True)]
        known = np.array([shape is not None for shape in graph.shape], bool)
        sizes = np.array([(0.0, 0.0, 0.0) if shape is None else shape[:3] for shape in graph.shape], np.float64).reshape(-1, 3)
        dense = np.array([kind in DENSE for kind in kinds], bool)
        free = np.array([op in free_ops for op in graph.op], bool)
        pools = np.array([kind.endswith("pool") for kind in kinds], bool) & known
        flops = np.where(pools, sizes.prod(axis=1), np.nan_to_num(graph.flops, nan=0.0))
        total = graph.weight_bytes + graph.input_bytes + graph.output_bytes
        accessed = np.where(np.isnan(graph.bytes_accessed), total, graph.bytes_accessed)
        return cls(
            np.array([CLASSES.index(kind) for kind in kinds], np.int64),
            flops,
            np.where(accessed >= graph.weight_bytes, graph.weight_bytes, 0.0),
            accessed,
            sizes[:, 0],
            sizes[:, 1],
            sizes[:, 2],
            dense & known,
            free,
            np.flatnonzero(dense & ~known & ~free).tolist(),
        )


def class_of(op: str, shape: Shape | None) -> str:
    """Return the class of an operator, one of `CLASSES`; of a fused one, by the first of its parts that is dense."""
    kinds = [_single(word, shape) for word in op.lower().split()] or ["elementwise"]
    return next((kind for kind in kinds if kind in DENSE), kinds[0])


def _single(op: str, shape: Shape | None) -> str:
    if op.startswith("conv"):
        if shape is None:
            return "conv"
        if shape.groups > 1 and shape.groups == shape.columns:
            return "depthwise"
        if shape.groups == 1 and all(length == 1 for length in shape.kernel):
            return "conv1x1"
        ordinary = shape.groups == 1 and all(length == 3 for length in shape.kernel) and all(step == 1 for step in shape.stride)
        return "conv3x3" if ordinary else "conv"
    if op in PRODUCTS:
        return "matmul"
    if "attention" in op:
        return "attention"
    if "pool" in op:
        return "max_pool" if "max" in op else "global_pool" if "adaptive" in op or "global" in op else "avg_pool"
    for kind, ops in (("norm", NORMS), ("copy", COPIES), ("lookup", LOOKUPS)):
        if op in ops:
            return kind
    return "global_pool" if op == "mean" else "elementwise"
