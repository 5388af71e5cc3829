"""Tasks, tensors and work of a program exported by torch."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_leaves, tree_map

from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.frontends.flops import Counter, Formulas
from hetsched.frontends.operators import (
    CONVOLUTIONS,
    CREATIONS,
    MERGEABLE,
    PRODUCTS,
    SHAPE_QUERIES,
    is_elementwise,
    mixing,
    module_path,
    operator_type,
)
from hetsched.frontends.tensors import Task, Tensor, task_graph, unused_name
from hetsched.problem.graph import Shape, TaskGraph

SAMPLE_BATCH = 2
"""The batch size of the export; torch.export treats sizes 0 and 1 specially."""


class Calls(NamedTuple):
    """A functional exported program as tasks."""

    program: ExportedProgram
    graph: TaskGraph
    """The graph of a batch of one, by the rules of `hetsched.frontends.torch.capture`."""
    nodes: tuple[tuple[torch.fx.Node, ...], ...]
    """The nodes of each task, in the order of execution. Other nodes are views, or depend on no argument."""

    def convolution(self, task: int) -> ConvolutionCall | None:
        """Return the first operator of a task if it is a convolution of known size without groups and dilation."""
        node = self.nodes[task][0]
        others = [operator_type(other.target) for other in self.nodes[task][1:]]
        if node.op != "call_function" or operator_type(node.target) not in MERGEABLE or any(op in CONVOLUTIONS for op in others):
            return None
        normal = node.normalized_arguments(self.program.graph_module, normalize_to_only_use_kwargs=True)
        if normal is None:
            return None
        given: dict[str, Any] = normal.kwargs
        weight, sizes = given["weight"].meta["val"], node.meta["val"].shape[2:]
        kernel, padding = tuple(weight.shape[2:]), given["padding"]
        if padding == "valid":
            padding = [0] * len(kernel)
        if padding == "same":
            padding = [length // 2 if length % 2 else -1 for length in kernel]  # an even kernel has unequal padding
        plain = given["groups"] == 1 and all(step == 1 for step in given["dilation"]) and min(padding) >= 0
        if not plain or len(sizes) != len(kernel) or not all(isinstance(length, int) for length in (*kernel, *sizes)):
            return None  # without a batch dimension
        channels = int(weight.shape[1]), int(weight.shape[0])
        stride, padding = ((tuple(setting) * len(kernel))[: len(kernel)] for setting in (given["stride"], padding))
        return ConvolutionCall(given["input"], given["weight"], given["bias"], channels, kernel, stride, padding, tuple(sizes))


def read(program: ExportedProgram, formulas: Formulas, *, fuse: bool, dynamic_batch: bool | None = None) -> Calls:
    """Return the tasks of a functional exported program; with `fuse`, elementwise operators join the only task they read.

    The batch is the first dynamic first dimension of an input, unless `dynamic_batch` is False; if it is True, there must be one.
    """
    constants = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is not InputKind.USER_INPUT}
    reader = Reader(constants, formulas, fuse=fuse, dynamic_batch=dynamic_batch is not False)
    reader.walk(program.graph)
    if dynamic_batch and not reader.batch:
        raise UnsupportedFeature(
            "no input of the program has a dynamic first dimension; export it with dynamic_shapes, or omit dynamic_batch"
        )
    tasks = reader.read_tasks()
    return Calls(program, task_graph(tasks), tuple(tuple(task.nodes) for task in tasks))


class ConvolutionCall(NamedTuple):
    """A convolution without groups and dilation: its input and its sizes, one for each spatial dimension."""

    source: torch.fx.Node
    weight: torch.fx.Node
    bias: torch.fx.Node | None
    channels: tuple[int, int]
    """Input and output channels."""
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    out_size: tuple[int, ...]


Parts = tuple[tuple[Tensor, ...], ...]


class Reader:
    """Converts an exported program to a task graph.

    `tensors` has the tensors in memory of each node's value: its own, or for a view those of its source.
    `parts` has them for each element of a value that is a sequence.
    """

    def __init__(self, constants: Collection[str], formulas: Formulas, *, fuse: bool = False, dynamic_batch: bool = True) -> None:
        self.constants, self.formulas, self.fuse, self.dynamic_batch = constants, formulas, fuse, dynamic_batch
        self.tasks: list[Task] = []
        self.tensors: dict[torch.fx.Node, tuple[Tensor, ...]] = {}
        self.parts: dict[torch.fx.Node, Parts] = {}
        self.stored: set[Tensor] = set()
        """Parameters and buffers, and what is computed from these alone and counts as stored."""
        self.names: set[str] = set()
        self.known_flops: dict[str, float] = {}
        self.at: dict[tuple[Any, int], int] = {}
        self.batch: set[Any] = set()
        """The symbols of the batch, if it is dynamic."""
        self.example_batch: int | None = None
        self.lengths: dict[Any, int] = {}
        """The lengths of other dynamic dimensions, those of the example, by symbol."""

    def walk(self, graph: torch.fx.Graph) -> None:
        """Read the nodes one after another."""
        for node in graph.nodes:
            if node.op == "placeholder":
                self._argument(node, node.name in self.constants)
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                for source in node.all_input_nodes:
                    for tensor in self.tensors[source]:
                        tensor.used = True

    def read_tasks(self) -> list[Task]:
        """Return the tasks without inputs that no task reads."""
        return [task for task in self.tasks if task.op != "input" or task.output_bytes]

    def _argument(self, node: torch.fx.Node, constant: bool) -> None:
        value = node.meta["val"]
        task = None
        if not isinstance(value, torch.Tensor):
            self.tensors[node] = ()  # a number, a string, None: part of the program
            return
        if not constant:
            for place, length in enumerate(value.shape):
                self._find_symbol(length, place)
            task = Task(self._unique(str(node.target)), "input", [node])
            self.tasks.append(task)
        self._produce(node, task)
        if constant:
            self.stored.update(self.tensors[node])

    def _find_symbol(self, length: Any, place: int) -> None:
        """Note what the symbol of an input's dimension stands for."""
        if not isinstance(length, torch.SymInt) or not length.node.expr.is_symbol:
            return
        symbol, number = length.node.expr, length.node.hint
        if self.dynamic_batch and place == 0 and self.example_batch in (None, number):
            self.batch.add(symbol)
            self.example_batch = number
        elif symbol not in self.batch and number is not None:
            self.lengths[symbol] = int(number)

    def _call(self, node: torch.fx.Node) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            self.tensors[node] = self.parts[source][index]  # type: ignore[index]
            return
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise UnsupportedFeature(
                f"{node.name!r} calls functions of the model ({node.target}), whose work only a recording of the module itself shows"
            )
        sources = [tensor for source in node.all_input_nodes for tensor in self.tensors[source]]
        shown = tuple(dict.fromkeys(sources))
        value = node.meta.get("val")
        op = self._operator(node)
        if op in SHAPE_QUERIES:
            self.tensors[node] = ()
        elif not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value)):
            self.tensors[node] = shown  # a number depends on the tensors that it is computed from
        elif self._is_view(node):
            self.tensors[node] = shown
            if isinstance(value, list | tuple):
                self.parts[node] = (shown,) * len(value)
        elif self._is_constant(node, shown):
            self._produce(node, None)
            self._count_as_stored(node, shown)
        elif not (self._folded_batch_norm(node, op) or (self.fuse and self._fused(node))):
            self._add_task(node, op)

    def _add_task(self, node: torch.fx.Node, op: str) -> None:
        flops = self._flops(node)
        task = Task(self._unique(self._name(node, op)), op, [node], flops=flops, shape=self._shape(node, op, flops))
        amounts: dict[Tensor, float] = {}
        for source in self._sources(node):
            inner = self._absorbed(node, source) if self.fuse else None
            if inner is not None:
                self.tasks.remove(inner)
                task.nodes[-1:] = [*inner.nodes, node]
                task.weight += inner.weight
                task.flops += inner.flops
                read = inner.reads
            else:
                size = self._bytes(source.meta.get("val"), 1, source)
                read = dict.fromkeys(self.tensors[source], size)
            for tensor, size in read.items():
                amounts[tensor] = min(amounts.get(tensor, 0.0) + size, tensor.size)
        self.tasks.append(task)
        for tensor, size in amounts.items():
            tensor.used = True
            if tensor.task is None:
                self._hold(task, tensor, size)
            else:
                task.reads[tensor] = size
        self._produce(node, task)
        if op not in CREATIONS and any(tensor.grows for tensor in task.reads) and not any(tensor.grows for tensor in task.outputs):
            self._refuse_mixing(task, "reads a batch but returns no tensor that grows with it")

    def _sources(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        """Return the nodes that a task of `node` waits for."""
        return node.all_input_nodes

    def _operator(self, node: torch.fx.Node) -> str:
        return operator_type(node.target)

    def _name(self, node: torch.fx.Node, op: str) -> str:
        return "/".join(filter(None, (module_path(node), op)))

    def _is_constant(self, node: torch.fx.Node, shown: tuple[Tensor, ...]) -> bool:
        """Return whether the result of a call on these tensors depends on no input."""
        return all(tensor.task is None for tensor in shown)

    def _count_as_stored(self, node: torch.fx.Node, shown: tuple[Tensor, ...]) -> None:
        """Count a tensor with as many numbers as a stored one in fewer bytes, such as weights of 8 bits, as it is stored."""
        value = node.meta["val"]
        sources = [other for source in node.all_input_nodes if isinstance(other := source.meta["val"], torch.Tensor)]
        alike = isinstance(value, torch.Tensor) and any(source.numel() == value.numel() for source in sources)
        if alike and shown and self.stored.issuperset(shown):
            (tensor,) = self.tensors[node]
            tensor.size = min(tensor.size, sum(part.size for part in shown))
            self.stored.add(tensor)

    def _hold(self, task: Task, tensor: Tensor, size: float) -> None:
        """Count `size` bytes of a constant as weight of the task that reads it."""
        task.weight += size

    def _produce(self, node: torch.fx.Node, task: Task | None) -> None:
        """Make the tensors of a node's value, as outputs of `task` or as constants."""
        value = node.meta["val"]
        values = value if isinstance(value, list | tuple) else [value]
        parts: list[tuple[Tensor, ...]] = []
        for part in values:
            single, double, triple = (self._bytes(part, batch, node) for batch in (1, 2, 3))
            if task is not None and triple - double != double - single:
                self._refuse_mixing(task, f"has {single:g}, {double:g}, {triple:g} output bytes for batches of 1, 2, 3")
            parts.append((Tensor(single, double > single, task),) if isinstance(part, torch.Tensor) else ())
        made = [tensor for part in parts for tensor in part]
        self.tensors[node] = tuple(made)
        if task is not None:
            task.outputs = made
        if value is not values[0]:
            self.parts[node] = tuple(parts)

    def _folded_batch_norm(self, node: torch.fx.Node, op: str) -> bool:
        """Fold an eval-mode batch norm into the convolution before it if possible; return whether it was."""
        producer = node.args[0] if node.args else None
        if op != "batch_norm" or "no_training" not in str(node.target) or not isinstance(producer, torch.fx.Node):
            return False
        if producer.op != "call_function" or operator_type(producer.target) not in CONVOLUTIONS or len(producer.users) > 1:
            return False
        weights = [*node.all_input_nodes, *producer.all_input_nodes[1:]]
        if any(tensor.task for weight in weights if weight is not producer for tensor in self.tensors[weight]):
            return False
        (output,) = self.tensors[producer]
        if output.task is None:
            return False
        bias = producer.kwargs.get("bias", producer.args[2] if len(producer.args) > 2 else None)
        if bias is None:
            normalised = producer.meta["val"]
            output.task.weight += int(normalised.shape[1]) * normalised.element_size()
        output.task.nodes.append(node)
        self.tensors[node] = (output,)
        self.parts[node] = ((output,), (), ())
        return True

    def _fused(self, node: torch.fx.Node) -> bool:
        """Fuse an elementwise call with the only task it reads if it is the only reader; return whether it was."""
        if not is_elementwise(node):
            return False
        moving = [source for source in node.all_input_nodes if any(tensor.task for tensor in self.tensors[source])]
        if len(moving) != 1 or len(self.tensors[moving[0]]) != 1:
            return False
        (output,) = self.tensors[moving[0]]
        task, source = output.task, moving[0]
        if task is None or task.op == "input" or len(task.outputs) != 1 or self._bytes(node.meta["val"], 1, node) != output.size:
            return False
        while source not in task.nodes and len(source.users) == 1 and len(source.all_input_nodes) == 1:
            (source,) = source.all_input_nodes
        if source is not task.nodes[-1] or len(source.users) != 1 or len(moving[0].users) != 1:
            return False
        task.flops += self._flops(node)
        task.weight += sum(self._bytes(other.meta["val"], 1, other) for other in node.all_input_nodes if other is not moving[0])
        task.nodes.append(node)
        self.tensors[node] = (output,)
        return True

    def _absorbed(self, node: torch.fx.Node, source: torch.fx.Node) -> Task | None:
        """Return the task of the call `source` if it becomes part of its only reader, `node`, else None.

        These are concatenations read by another along the same dimension, elementwise calls read by a convolution or another
        elementwise call, and depthwise convolutions read by a pointwise one.
        """
        tensors = self.tensors[source]
        task = tensors[0].task if len(tensors) == 1 else None
        if task is None or task.op == "input" or task.nodes[-1] is not source or len(source.users) != 1:
            return None
        reader, op = operator_type(node.target), operator_type(source.target)
        if reader == op == "cat":
            dims = [call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0) for call in (node, source)]
            return task if dims[0] == dims[1] else None
        convolves = reader in CONVOLUTIONS and source is node.args[0]
        if all(is_elementwise(call) for call in task.nodes):
            return task if convolves or is_elementwise(node) else None
        return task if convolves and (mixing(source), mixing(node)) == ("pixels", "channels") else None

    def _is_view(self, node: torch.fx.Node) -> bool:
        """Return whether a call returns the data of its argument and no new data."""
        if not isinstance(node.target, torch._ops.OpOverload):
            return False
        op = operator_type(node.target)
        if op == "clone":  # from dropout in eval mode and the like; a change of the layout is work
            source = node.args[0]
            assert isinstance(source, torch.fx.Node)
            return self._strides(node) == self._strides(source)
        return node.target.is_view or op in ("unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "lift_fresh_copy")

    def _strides(self, node: torch.fx.Node) -> list[int]:
        return [self._number(stride, SAMPLE_BATCH, node) for stride in node.meta["val"].stride()]

    # ------------------------------------------------------------------ numbers for a batch

    def _number(self, size: Any, batch: int, node: torch.fx.Node) -> int:
        """Return a size, an int or a SymInt, for a batch."""
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = size.node.expr
        if (expression, batch) not in self.at:
            if not expression.free_symbols <= self.batch | set(self.lengths):
                raise UnsupportedFeature(
                    f"a size of {node.name!r} depends on data ({expression}), so its bytes are unknown; "
                    "give the operator a fixed output shape, or remove it from the model"
                )
            self.at[expression, batch] = int(expression.subs({**self.lengths, **dict.fromkeys(self.batch, batch)}))
        return self.at[expression, batch]

    def _bytes(self, value: Any, batch: int, node: torch.fx.Node) -> float:
        """Return the bytes of a value; an expanded dimension adds none, and a number has 8."""
        if isinstance(value, list | tuple):
            return sum(self._bytes(part, batch, node) for part in value)
        if not isinstance(value, torch.Tensor):
            return 0.0 if value is None else 8.0
        size = value.element_size()
        for length, stride in zip(value.shape, value.stride(), strict=True):
            length = self._number(length, batch, node)
            size *= length if length == 0 or self._number(stride, batch, node) else 1
        return float(size)

    def _flops(self, node: torch.fx.Node) -> float:
        """Return the FLOPs of a call for a batch of one, or NaN without a formula."""

        def replay(leaf: Any) -> Any:
            value = leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else leaf
            if isinstance(value, list | tuple):
                return [replay(part) for part in value]
            if isinstance(value, torch.Tensor):
                shape, strides = ([self._number(x, 1, node) for x in numbers] for numbers in (value.shape, value.stride()))
                return torch.empty_strided(shape, strides, dtype=value.dtype, device="meta")
            if isinstance(value, torch.SymInt):
                return self._number(value, 1, node)
            return torch.device("meta") if isinstance(value, torch.device) else value

        def describe(leaf: Any) -> Any:
            return (tuple(leaf.shape), leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf

        args, kwargs = tree_map(replay, (tuple(node.args), dict(node.kwargs)), is_leaf=lambda leaf: isinstance(leaf, torch.fx.Node))
        key = f"{node.target}{tree_map(describe, (args, kwargs))}"  # deep networks repeat the same calls
        if key not in self.known_flops:
            self.known_flops[key] = self._counted(node.target, args, kwargs, replay(node))
        return self.known_flops[key]

    def _shape(self, node: torch.fx.Node, op: str, flops: float) -> Shape | None:
        """Return the sizes of a convolution, a product of matrices, an attention or a pooling, for a batch of one."""
        value = node.meta["val"]
        value = value[0] if isinstance(value, list | tuple) else value
        if not isinstance(value, torch.Tensor):
            return None
        lengths = [self._number(length, 1, node) for length in value.shape]
        elements = math.prod(lengths)
        if not elements:
            return None
        if op in CONVOLUTIONS:
            weight = node.args[1].meta["val"]  # type: ignore[union-attr]
            kernel = tuple(int(length) for length in weight.shape[2:])
            columns = lengths[-1 - len(kernel)]
            return Shape(
                elements / columns, columns, flops / (2 * elements), kernel, self._setting(node, "stride", kernel), self._groups(node)
            )
        if op in PRODUCTS or "attention" in op:
            return Shape(elements / lengths[-1], lengths[-1], flops / (2 * elements)) if math.isfinite(flops) else None
        if "pool" in op and len(lengths) > 2:
            (source, *_) = node.all_input_nodes
            window = self._bytes(source.meta["val"], 1, source) / source.meta["val"].element_size() / elements
            kernel = () if "adaptive" in op else self._setting(node, "kernel_size", tuple(lengths[2:]))
            return Shape(
                elements / lengths[1],
                lengths[1],
                math.prod(kernel) if kernel else max(window, 1.0),
                kernel,
                self._setting(node, "stride", kernel) if kernel else (),
            )
        return None

    def _setting(self, node: torch.fx.Node, what: str, like: tuple[int, ...]) -> tuple[int, ...]:
        """Return an argument with one number, or one for each dimension; without one `like`, which is 1 for a convolution's stride."""
        names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
        place = names.index(what) if what in names else len(node.args)
        given = node.kwargs.get(what, node.args[place] if place < len(node.args) else None)
        if given is None or given == []:
            return (1,) * len(like) if operator_type(node.target) in CONVOLUTIONS else like
        numbers = [given] if isinstance(given, int) else list(given)  # type: ignore[arg-type]
        return tuple(int(length) for length in (numbers * len(like))[: len(like)])

    def _groups(self, node: torch.fx.Node) -> int:
        return self._setting(node, "groups", (1,))[0]

    def _counted(self, target: Any, args: Any, kwargs: Any, made: Any) -> float:
        if target in self.formulas:
            return self.formulas.count(target, args, kwargs, made)
        counter = Counter(self.formulas)
        try:
            with torch.no_grad(), counter:
                target(*args, **kwargs)
        except InvalidProblem:
            raise
        except Exception:  # without a meta kernel its work is unknown
            self.formulas.unknown.add(str(getattr(target, "_overloadpacket", target)))
            return math.nan
        return counter.total

    # ------------------------------------------------------------------ names and errors

    def _unique(self, name: str) -> str:
        return unused_name(name, self.names)

    def _refuse_mixing(self, task: Task, what: str) -> None:
        raise UnsupportedFeature(f"task {task.name!r} {what}: it mixes the items of a batch, but inputs must be independent")
