"""Tasks, tensors and work of a model in ONNX: its nodes one after another, with their shapes and the values of small constants."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NoReturn

import numpy as np
import onnx
import onnx.reference
import onnx.shape_inference
from onnx import NodeProto, TensorProto, helper, numpy_helper

from hetsched.arguments import shown
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.frontends.onnx_operators import LIKE, STANDARD, Call, Formulas, Lengths, Like, operator_type, shape
from hetsched.frontends.onnx_values import Value, contiguous, part, reshaped, stored_bytes
from hetsched.frontends.tensors import Task, Tensor, unused_name

LARGEST_VALUE = 4096
"""The most numbers of a constant whose value is computed: shapes depend on no larger ones."""
SAME_SHAPE = {
    *(("", name) for name in ("Dropout", "LayerNormalization", "SimplifiedLayerNormalization")),
    *(("ai.onnx.ml", name) for name in ("Binarizer", "Imputer", "Normalizer", "Scaler")),
}
"""Operators that return the shape of their input though onnx does not infer it, some of them only in old versions."""
RESHAPES = re.compile("Reshape|Flatten|(Un)?[Ss]queeze")
MOST_RUNS = 1024
"""The most runs of a loop, each of which has tasks of its own."""
SETTLED = re.compile("Reduce.*|Reshape|Pad|Resize|Upsample|TopK|Tile|OneHot|Clip|CumSum|CenterCropPad|Trilu")
"""Operators that read their first input alone: the others, such as axes and lengths, are settings."""


class Reader:
    """Converts a model to a task graph.

    Parameters
    ----------
    model : ModelProto
        Without functions.
    lengths : mapping of str to int
        The lengths of named dimensions.
    shapes : mapping of str to sequence of int
        The shapes of tensors.
    numbers : mapping of str to array
        The values of inputs that are constants.
    formulas : Formulas
        The FLOPs of calls.
    """

    def __init__(
        self,
        model: Any,
        lengths: Mapping[str, int],
        shapes: Mapping[str, Sequence[int]],
        numbers: Mapping[str, np.ndarray[Any, Any]],
        formulas: Formulas,
    ) -> None:
        self.model, self.lengths, self.shapes, self.numbers, self.formulas = model, lengths, shapes, numbers, formulas
        self.versions = {opset.domain: opset.version for opset in model.opset_import}
        self.tasks: list[Task] = []
        self.values: dict[str, Value] = {}
        self.names: set[str] = set()
        graphs = list(_graphs(model.graph))
        self.readers = Counter(name for graph in graphs for node in graph.node for name in node.input)
        self.readers.update(output.name for graph in graphs for output in graph.output)

    def walk(self) -> list[Task]:
        """Return the tasks, without inputs that no task reads."""
        graph = self.model.graph
        self._add_constants(graph)
        for given in graph.input:
            if given.name in self.numbers:
                self.values[given.name] = self._known(given.type.tensor_type.elem_type, self.numbers[given.name])
            elif given.name not in self.values:
                dtype, lengths = self._type(given.type, given.name)
                task = Task(unused_name(given.name, self.names), "input", [])
                self.tasks.append(task)
                self.values[given.name] = self._made(task, dtype, lengths)
        self._walk(graph)
        for output in graph.output:
            for tensor in self._value(output.name, "the model").tensors:
                tensor.used = True
        return [task for task in self.tasks if task.op != "input" or task.output_bytes]

    def _walk(self, graph: Any) -> None:
        self.types = {info.name: info.type for info in (*graph.value_info, *graph.output)}
        for node in graph.node:
            self._node(node)

    def _add_constants(self, graph: Any) -> None:
        for stored in graph.initializer:
            small = math.prod(stored.dims) <= LARGEST_VALUE and stored.data_location != TensorProto.EXTERNAL
            made = self._made(None, stored.data_type, tuple(stored.dims))
            self.values[stored.name] = replace(made, data=numpy_helper.to_array(stored)) if small else made
        for sparse in graph.sparse_initializer:
            stored, places = sparse.values, sparse.indices
            size = stored_bytes(stored.data_type, stored.dims[0]) + stored_bytes(places.data_type, math.prod(places.dims))
            made = self._made(None, stored.data_type, tuple(sparse.dims))
            self.values[stored.name] = replace(made, tensors=(Tensor(size, False, None),))

    def _made(self, task: Task | None, dtype: int, lengths: Lengths) -> Value:
        """Return a value with a tensor of its own, an output of `task` or a constant."""
        tensor = Tensor(stored_bytes(dtype, math.prod(lengths)), False, task)
        if task is not None:
            task.outputs.append(tensor)
        return Value(dtype, lengths, contiguous(lengths), (tensor,))

    def _known(self, dtype: int, data: np.ndarray[Any, Any]) -> Value:
        """Return a constant, with its numbers if they are few."""
        return replace(self._made(None, dtype, data.shape), data=data if data.size <= LARGEST_VALUE else None)

    def _value(self, name: str, reader: str) -> Value:
        if name not in self.values:
            raise InvalidProblem(f"{reader} reads {name!r}, which nothing makes before it; check the model with onnx.checker.check_model")
        return self.values[name]

    # ------------------------------------------------------------------ nodes

    def _node(self, node: NodeProto) -> None:
        inputs = [self._value(name, label(node)) if name else None for name in node.input]
        given = [value for value in inputs if value is not None]
        if any(attribute.HasField("g") for attribute in node.attribute):
            made = {"If": self._branch, "Loop": self._loop, "Scan": self._scan}.get(node.op_type, self._refused)(node, inputs)
            self.values |= zip(node.output, made, strict=True)
            return
        if node.op_type == "ZipMap":  # the same numbers as a dictionary
            self.values[node.output[0]] = given[0]
            return
        if node.op_type in ("Shape", "Size") and not node.domain:
            source = given[0]
            settings = {attribute.name: attribute.i for attribute in node.attribute}
            lengths = source.shape[settings.get("start", 0) : settings.get("end")]
            number = np.array(lengths if node.op_type == "Shape" else math.prod(source.shape), np.int64)
            self.values[node.output[0]] = Value(TensorProto.INT64, number.shape, contiguous(number.shape), (), number)
            return
        types = self._infer(node, inputs)
        constant = all(value.constant for value in given)
        data = self._computed(node, inputs, types) if constant else {}
        views = self._views(node, inputs, types)
        if views is None and constant:
            views = {name: self._made(None, *types[name]) for name in types}
        elif views is None:
            views = self._folded(node, inputs)
        if views is None:
            views = self._add_task(node, inputs, types)
        self.values |= {name: replace(view, data=data.get(name)) for name, view in views.items()}

    # ------------------------------------------------------------------ control flow

    def _branch(self, node: NodeProto, inputs: Sequence[Value | None]) -> list[Value]:
        """Return the outputs of the branch of an If that is taken."""
        (condition,) = inputs
        if condition is None or condition.data is None:
            self._refused(node, inputs)
        return self._inside(_graph(node, "then_branch" if condition.data.all() else "else_branch"), (), label(node))

    def _loop(self, node: NodeProto, inputs: Sequence[Value | None]) -> list[Value]:
        """Return the outputs of a Loop with a known number of runs, after those of its body in each."""
        count, condition, *given = inputs
        state = [value for value in given if value is not None]
        body, runs = _graph(node, "body"), list[list[Value]]()
        limit = math.inf if count is None else self._number(node, count)
        goes_on = self._known(TensorProto.BOOL, np.array(True)) if condition is None else condition
        while len(runs) < limit and self._number(node, goes_on):
            number = self._known(TensorProto.INT64, np.array(len(runs)))
            goes_on, *results = self._run(node, body, runs, [number, goes_on, *state])
            state = results[: len(state)]
        return [*state, *self._stacked(node, len(state), runs, 1)]

    def _scan(self, node: NodeProto, inputs: Sequence[Value | None]) -> list[Value]:
        """Return the outputs of a Scan, after those of its body for each place of what it scans."""
        if self.versions.get("", 0) < 9:
            self._refused(node, inputs)
        settings = {attribute.name: _attribute(attribute) for attribute in node.attribute}
        given = [value for value in inputs if value is not None]
        first = len(given) - settings["num_scan_inputs"]
        state, scanned = given[:first], given[first:]
        axes = settings.get("scan_input_axes", [0] * len(scanned))
        backwards = settings.get("scan_input_directions", [0] * len(scanned))
        runs = list[list[Value]]()
        length = scanned[0].shape[axes[0]]
        while len(runs) < length:
            at = [length - 1 - len(runs) if back else len(runs) for back in backwards]
            places = [part(value, axis, i) for value, axis, i in zip(scanned, axes, at, strict=True)]
            results = self._run(node, settings["body"], runs, [*state, *places])
            state = results[: len(state)]
        return [*state, *self._stacked(node, len(state), runs, 0, settings.get("scan_output_axes"))]

    def _run(self, node: NodeProto, body: Any, runs: list[list[Value]], inputs: Sequence[Value]) -> list[Value]:
        """Append the outputs of one run of a body."""
        if len(runs) == MOST_RUNS:
            raise UnsupportedFeature(f"{label(node)} has more than {MOST_RUNS} runs, each of which has tasks; export the model without it")
        if not runs:  # what is made outside has a reader in each run
            self.readers.update(name for graph in _graphs(body) for inner in graph.node for name in inner.input if name in self.values)
        runs.append(self._inside(body, inputs, label(node)))
        return runs[-1]

    def _inside(self, graph: Any, inputs: Sequence[Value], reader: str) -> list[Value]:
        """Return the outputs of a graph inside a node, whose names are its own."""
        outer = self.types, self.values
        self.values = self.values | dict(zip((given.name for given in graph.input), inputs, strict=True))
        self._add_constants(graph)
        self._walk(graph)
        made = [self._value(output.name, reader) for output in graph.output]
        self.types, self.values = outer
        return made

    def _stacked(self, node: NodeProto, first: int, runs: Sequence[Sequence[Value]], skipped: int, axes: Any = None) -> Iterable[Value]:
        """Yield the outputs of a node from the `first` on, which join those of its runs, after `skipped` others."""
        for k, name in enumerate(node.output[first:]):
            parts = [run[skipped + first + k] for run in runs]
            if not parts:
                yield self._made(None, *self._type(None, name, self.types.get(name)))
                continue
            lengths, axis = list(parts[0].shape), axes[k] if axes else 0
            lengths.insert(axis % (len(lengths) + 1), len(parts))
            tensors = tuple(dict.fromkeys(tensor for one in parts for tensor in one.tensors))
            yield Value(parts[0].dtype, tuple(lengths), contiguous(tuple(lengths)), tensors)

    def _number(self, node: NodeProto, value: Value) -> Any:
        """Return the number of a constant that says how often a node runs."""
        return self._refused(node, [value]) if value.data is None else value.data.item()

    def _refused(self, node: NodeProto, inputs: Sequence[Value | None]) -> NoReturn:
        """Refuse control flow that depends on data, with the inputs of the model that its condition depends on."""
        rest = [tensor.task for value in inputs[:2] if value is not None and value.data is None for tensor in value.tensors]
        found: dict[Task, None] = {}
        while rest:
            task = rest.pop()
            if task is not None and task not in found:
                found[task] = None
                rest += [tensor.task for tensor in task.reads]
        names = ", ".join(f"{task.name!r}: ..." for task in found if task.op == "input")
        what = "condition" if node.op_type == "If" else "number of runs"
        remedy = f"give the values that it depends on, values={{{names}}}, or export" if names else "export"
        raise UnsupportedFeature(f"{label(node)} has control flow of its own, whose {what} depends on data; {remedy} the model without it")

    # ------------------------------------------------------------------ tasks

    def _add_task(self, node: NodeProto, inputs: Sequence[Value | None], types: Mapping[str, tuple[int, Lengths]]) -> dict[str, Value]:
        attributes = {attribute.name: _attribute(attribute) for attribute in node.attribute}
        lengths = tuple(None if value is None else value.shape for value in inputs)
        call = Call(".".join(filter(None, (node.domain, node.op_type))), lengths, next(iter(types.values()))[1], attributes)
        op, flops = operator_type(call), self.formulas.count(call)
        if op in ("matmul", "index_select") and any(value is not None and value.constant for value in inputs[:2]):
            op = "linear" if op == "matmul" else "embedding"
        task = Task(unused_name(task_name(node), self.names), op, [node], flops, shape(op, call, flops))
        amounts: dict[Tensor, float] = {}
        for value in inputs[:1] if SETTLED.fullmatch(node.op_type) else inputs:
            if value is None or (value.constant and not value.shape):
                continue  # a number is part of the program
            for tensor in value.tensors:
                amounts[tensor] = min(amounts.get(tensor, 0.0) + value.bytes, tensor.size)
        for tensor, size in amounts.items():
            tensor.used = True
            if tensor.task is None:
                task.weight += size
            else:
                task.reads[tensor] = size
        self.tasks.append(task)
        return {name: self._made(task, *kind) for name, kind in types.items()}

    def _folded(self, node: NodeProto, inputs: Sequence[Value | None]) -> dict[str, Value] | None:
        """Make a batch norm part of its convolution, a sum with a bias part of its product, if it alone reads the result."""
        moving = [(name, value) for name, value in zip(node.input, inputs, strict=True) if value is not None and not value.constant]
        if len(moving) != 1 or self.readers[moving[0][0]] > 1 or node.domain:
            return None
        ((name, value),) = moving
        tasks = {tensor.task for tensor in value.tensors}
        task = tasks.pop() if len(tasks) == 1 else None
        if task is None or not task.nodes or name not in task.nodes[-1].output:
            return None
        last = task.nodes[-1]
        if node.op_type == "BatchNormalization" and last.op_type in ("Conv", "ConvTranspose"):
            if any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute) or not self._weights(last):
                return None
            if len(last.input) < 3:
                task.weight += stored_bytes(value.dtype, value.shape[1])
        elif node.op_type == "Add" and last.op_type == "MatMul" and task.op == "linear":
            (bias,) = (other for other in inputs if other is not None and other is not value)
            if math.prod(bias.shape) != value.shape[-1] or bias.shape[-1:] != value.shape[-1:] or len(bias.shape) > len(value.shape):
                return None
            task.weight += bias.bytes
        else:
            return None
        task.nodes.append(node)
        return {node.output[0]: value}

    def _weights(self, node: NodeProto) -> bool:
        """Return whether all inputs of a node but the first are constants."""
        return all(self.values[name].constant for name in node.input[1:] if name)

    # ------------------------------------------------------------------ views

    def _views(self, node: NodeProto, inputs: Sequence[Value | None], types: Mapping[str, tuple[int, Lengths]]) -> dict[str, Value] | None:
        """Return the outputs of a node that returns no new data, with strides, or None."""
        source = inputs[0] if inputs else None
        if source is None or node.domain:
            return None
        name, (dtype, lengths) = next(iter(types.items()))
        kind, strides = node.op_type, None
        attributes = {attribute.name: _attribute(attribute) for attribute in node.attribute}
        if RESHAPES.fullmatch(kind):
            strides = reshaped(source, lengths)
        elif kind == "Identity" or (kind == "Cast" and dtype == source.dtype):
            strides = source.strides
        elif kind == "Dropout" and not any(value is not None and value.data is not None and value.data.any() for value in inputs[2:]):
            strides = source.strides if len(types) == 1 else None
        elif kind == "DequantizeLinear" and source.constant:  # a weight is stored, and read, as it is
            tensors = tuple(tensor for value in inputs if value is not None and value.shape for tensor in value.tensors)
            return {name: Value(dtype, lengths, contiguous(lengths), tensors or source.tensors)}
        elif kind == "Transpose":
            order = attributes.get("perm", range(len(lengths))[::-1])
            strides = tuple(source.strides[d] for d in order)
        elif kind == "Expand":
            own = ((1,) * (len(lengths) - len(source.shape)) + source.shape, (0,) * (len(lengths) - len(source.shape)) + source.strides)
            strides = tuple(stride if before == after else 0 for before, stride, after in zip(*own, lengths, strict=True))
        elif kind in ("Slice", "Split"):
            strides = self._steps(source, inputs)
        elif kind == "Gather" and inputs[1] is not None and inputs[1].constant and not inputs[1].shape:  # one place of a dimension
            place = attributes.get("axis", 0) % len(source.shape)
            strides = source.strides[:place] + source.strides[place + 1 :]
        if strides is None:
            return None
        return {output: replace(source, shape=after, strides=strides, data=None) for output, (_, after) in types.items()}

    @staticmethod
    def _steps(source: Value, inputs: Sequence[Value | None]) -> Lengths:
        """Return the strides of a slice."""
        strides = list(source.strides)
        axes, steps = [*inputs, *(None,) * 5][3:5]
        if steps is not None and steps.data is not None:
            places = range(len(steps.data)) if axes is None or axes.data is None else axes.data.tolist()
            for place, step in zip(places, steps.data.tolist(), strict=True):
                strides[place] *= abs(step)
        return tuple(strides)

    # ------------------------------------------------------------------ types and values

    def _infer(self, node: NodeProto, inputs: Sequence[Value | None]) -> dict[str, tuple[int, Lengths]]:
        """Return the type and the shape of each output."""
        named = {name: value for name, value in zip(node.input, inputs, strict=True) if value is not None}
        kinds: Mapping[str, Any] = {}
        try:
            if node.domain == "com.microsoft" and node.op_type in LIKE:
                kinds = self._like(node, inputs, LIKE[node.op_type])
            elif node.domain in self.versions and onnx.defs.has(node.op_type, self.versions[node.domain], node.domain):
                kinds = onnx.shape_inference.infer_node_outputs(
                    onnx.defs.get_schema(node.op_type, self.versions[node.domain], node.domain),
                    node,
                    {name: helper.make_tensor_type_proto(value.dtype, value.shape) for name, value in named.items()},
                    {name: numpy_helper.from_array(value.data, name) for name, value in named.items() if value.data is not None},
                    opset_imports=list(self.model.opset_import),
                    ir_version=self.model.ir_version,
                )
        except Exception as error:  # any error of onnx
            text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message").rstrip(".")
            raise InvalidProblem(f"{label(node)} does not fit its inputs: {text}; check the model with onnx.checker") from error
        first = next(iter(named.values()), None)
        if first is not None and (node.domain, node.op_type) in SAME_SHAPE:
            same = helper.make_tensor_type_proto(first.dtype, first.shape)
            kinds = dict.fromkeys(node.output, same) | {name: kind for name, kind in kinds.items() if kind.tensor_type.HasField("shape")}
        return {
            name: self._type(kinds.get(name), name, self.types.get(name), first if name not in kinds else None)
            for name in node.output
            if name
        }

    @staticmethod
    def _like(node: NodeProto, inputs: Sequence[Value | None], like: Like) -> dict[str, Any]:
        """Return the types of the results of an operator of ONNX Runtime, by an operator of ONNX."""
        settings = {attribute.name: _attribute(attribute) for attribute in node.attribute}
        given = [value for value in inputs[like.places] if value is not None]
        if settings.get("channels_last"):
            return {}
        shapes = [value.shape for value in given]
        for k, name in enumerate(("transA", "transB") if like.operator == "MatMul" else ()):
            shapes[k] = (*shapes[k][:-2], *shapes[k][-2:][::-1]) if settings.get(name) else shapes[k]
        schema = onnx.defs.get_schema(like.operator, STANDARD, "")
        kinds = {f"input{k}": helper.make_tensor_type_proto(TensorProto.FLOAT, lengths) for k, lengths in enumerate(shapes)}
        known = {name: value for name, value in settings.items() if name in schema.attributes}
        alike = helper.make_node(like.operator, list(kinds), ["result"], **known)
        kind = onnx.shape_inference.infer_node_outputs(schema, alike, kinds)["result"]
        kind.tensor_type.elem_type = TensorProto.FLOAT if like.floats else given[0].dtype
        return {name: kind for place, name in enumerate(node.output) if name and place in like.same}

    def _type(self, kind: Any, name: str, stated: Any = None, like: Value | None = None) -> tuple[int, Lengths]:
        """Return the type of the numbers and the shape of a tensor: by the user, by `kind`, or as the file states."""
        known = [one for one in (kind, stated) if one is not None]
        if known and not known[0].HasField("tensor_type"):
            raise UnsupportedFeature(f"{name!r} is no tensor but a {known[0].WhichOneof('value')}; export the model without it")
        dtype = next((one.tensor_type.elem_type for one in known if one.tensor_type.elem_type), like.dtype if like is not None else 0)
        if dtype in (TensorProto.UNDEFINED, TensorProto.STRING):
            what = "of strings" if dtype else "of no known type"
            raise UnsupportedFeature(f"the tensor {name!r} is {what}, so its bytes are unknown; take it out of the model")
        if name in self.shapes:
            return dtype, tuple(int(length) for length in self.shapes[name])
        missing = "shape" if not known else ""
        for one in known:
            if not one.tensor_type.HasField("shape"):
                missing = "shape"
                continue
            lengths = [self._length(dimension) for dimension in one.tensor_type.shape.dim]
            if None not in lengths:
                return dtype, tuple(length for length in lengths if length is not None)
            missing = next((d.dim_param for d in one.tensor_type.shape.dim if self._length(d) is None), "")
            missing = f"length of its dimension {missing!r}" if missing else "length of a dimension"
        raise UnsupportedFeature(
            f"the {missing} of the tensor {name!r} depends on data, so its bytes are unknown; give its shape: shapes={{{name!r}: (...)}}"
        )

    def _length(self, dimension: Any) -> int | None:
        if dimension.HasField("dim_value"):
            return int(dimension.dim_value)
        return self.lengths.get(dimension.dim_param)

    def _computed(
        self, node: NodeProto, inputs: Sequence[Value | None], types: Mapping[str, tuple[int, Lengths]]
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Return the values of small constants; none if they are unknown."""
        if any(value is not None and value.data is None for value in inputs):
            return {}
        if any(math.prod(lengths) > LARGEST_VALUE for _, lengths in types.values()):
            return {}
        given = {name: value.data for name, value in zip(node.input, inputs, strict=True) if value is not None}
        try:
            graph = helper.make_graph(
                [node],
                "constant",
                [helper.make_tensor_value_info(name, self.values[name].dtype, self.values[name].shape) for name in given],
                [helper.make_tensor_value_info(name, *kind) for name, kind in types.items()],
            )
            model = helper.make_model(graph, opset_imports=list(self.model.opset_import), ir_version=self.model.ir_version)
            made = onnx.reference.ReferenceEvaluator(model).run(None, given)
        except Exception:  # not every operator has a reference implementation; then the value is unknown
            return {}
        return {name: np.asarray(value) for name, value in zip(types, made, strict=True)}


# ---------------------------------------------------------------------- names


def label(node: NodeProto) -> str:
    """Return the name of a node for messages."""
    return f"{node.op_type} {shown(node.name or next(iter(node.output), ''))}"


def task_name(node: NodeProto) -> str:
    """Return the name of a node's task, its module and type, or else its name.

    The module is that of torch's exporter, or else what the name has before its last ``/``, with ``.`` for ``/``:
    ``/layers/layers.0/conv/Conv_1`` is a convolution of ``layers.0.conv``.
    """
    properties = {row.key: row.value for row in node.metadata_props}
    scopes = properties.get("pkg.torch.onnx.name_scopes")
    if scopes is not None:
        module = [*ast.literal_eval(scopes), "", ""][:-3][-1:]
        return "/".join(filter(None, (*module, node.op_type)))
    parts = node.name.strip("/").split("/")[:-1]
    path = [part for part, inner in zip_longest(parts, parts[1:], fillvalue="") if not inner.startswith(f"{part}.")]
    if path:
        return f"{'.'.join(path)}/{node.op_type}"
    return str(node.name.strip("/") or node.op_type)


def _graphs(graph: Any) -> Iterable[Any]:
    """Yield a graph and those inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _graph(node: NodeProto, name: str) -> Any:
    (found,) = (attribute.g for attribute in node.attribute if attribute.name == name)
    return found


def _attribute(attribute: Any) -> Any:
    value = helper.get_attribute_value(attribute)
    return value.decode(errors="replace") if isinstance(value, bytes) else value
