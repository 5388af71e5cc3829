"""Task graphs of models in ONNX, without their weights and without running them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_count, checked, shown
from hetsched.costs.analytic import Analytic
from hetsched.errors import InvalidProblem, MissingDependency
from hetsched.frontends.exchange import Imported
from hetsched.frontends.tensors import task_graph
from hetsched.problem.cluster import Cluster
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import CostModel, Problem

if TYPE_CHECKING:
    import onnx

__all__ = ["read", "read_problem"]


@checked(InvalidProblem)
def read(
    model: str | os.PathLike[str] | onnx.ModelProto,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, npt.ArrayLike] | None = None,
    flop_formulas: Mapping[str, Callable[..., float]] | None = None,
) -> TaskGraph:
    """Return the task graph of one run of a model, by the rules of `hetsched.frontends.torch.capture`.

    The model with the given lengths is ONE input item: ``dims={"batch": 1}`` gives the work and bytes of one item of a batch.

    Parameters
    ----------
    model : path or onnx.ModelProto
        External data is not read: the shapes of weights suffice.
    dims : mapping of str to int, optional
        Lengths of the dimensions that have a name instead of one.
    shapes : mapping of str to sequence of int, optional
        Shapes of tensors: of inputs whose dimensions have neither a length nor a name, and of results whose shape depends on
        data or whose operator onnx does not know.
    values : mapping of str to array, optional
        Values of inputs, which are constants then: those on which control flow or shapes depend, such as a rate of samples.
    flop_formulas : mapping of str to function, optional
        FLOPs of custom operators, or replacements for others. A key is an operator type, after its domain unless that is
        ``ai.onnx``: ``"Conv"``, ``"com.microsoft.FusedMatMul"``. A value is a function of the shapes of the inputs (None for one that
        is left out), of the attributes by name, and of ``out_shape=``, the shape of the first output.

    Returns
    -------
    TaskGraph
        One task for each node, named after its module and type (``"layer1.conv/Conv"``) if torch's exporter made it, or else by its
        name; and one of type ``"input"``, without work, for each input that is read. Types of operators are those of captured
        models: ``Conv`` is ``"conv2d"``, ``Gemm`` is ``"linear"``.

        - Functions of the model, an If with a known condition, and each run of a Loop or Scan with a known number of at most 1,024 count
          as the nodes inside. Reshapes, transposes, slices, splits
          and expansions are folded into their source; so is a batch norm into a convolution, and a sum with a constant vector
          into a product of matrices, if it is the only reader. What depends on no input is a constant, and a weight of the tasks
          that read it; a weight of several tasks counts in each of them. A quantised weight has the bytes that are stored.
        - `output_bytes` counts the outputs that are read. `input_bytes` is the sum over incoming edges. `flops` are
          those of products of matrices, convolutions, attention and recurrent layers; other operators of ONNX count 0. Those of any
          other are NaN, and one warning names them. `bytes_accessed` is weights + inputs + outputs, but a lookup
          in a table counts only the rows read.

    Raises
    ------
    InvalidProblem
        The file is no model in ONNX; a dimension of an input has no length; `dims`, `shapes` or `values` have names that the model has
        not, or a value that is not of the type and shape of its input; a node does not fit its inputs; or a formula fails or does not
        return a number >= 0.
    UnsupportedFeature
        Control flow or the shape of a tensor depends on data, or a value is no tensor.
    MissingDependency
        The package ``onnx`` is not installed.
    """
    try:
        import onnx.inliner
    except ImportError as error:
        raise MissingDependency("onnx", "onnx") from error
    from hetsched.frontends.onnx_graph import Reader
    from hetsched.frontends.onnx_operators import Formulas

    made = model if isinstance(model, onnx.ModelProto) else _load(os.fspath(model))
    if made.functions:
        made = onnx.inliner.inline_local_functions(made)
    lengths = {name: check_count(length, f"dims[{name!r}]", error=InvalidProblem) for name, length in (dims or {}).items()}
    given = {
        name: tuple(check_count(length, f"shapes[{name!r}]", 0, error=InvalidProblem) for length in own)
        for name, own in (shapes or {}).items()
    }
    numbers = _numbers(made.graph, values or {})
    _check_names(made.graph, lengths, given, numbers)
    formulas = Formulas(flop_formulas)
    tasks = Reader(made, lengths, given, numbers, formulas).walk()
    formulas.warn_unknown()
    return task_graph(tasks)


@checked(InvalidProblem)
def read_problem(
    path: str | os.PathLike[str],
    cluster: Cluster,
    *,
    costs: CostModel | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, npt.ArrayLike] | None = None,
    flop_formulas: Mapping[str, Callable[..., float]] | None = None,
) -> Imported:
    """Read the problem to run a model in ONNX on a cluster; `hetsched.frontends.read` calls it for files.

    Parameters
    ----------
    path : path
    cluster : Cluster
    costs : cost model, optional
        Default: `hetsched.costs.Analytic`.
    dims, shapes, values, flop_formulas
        As for `read`, whose errors it raises.
    """
    graph = read(path, dims=dims, shapes=shapes, values=values, flop_formulas=flop_formulas)
    return Imported(Problem(graph, cluster, costs=Analytic() if costs is None else costs))


def _load(path: str) -> onnx.ModelProto:
    """Return the model in a file, without its external data."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise InvalidProblem(f"{path} is no model in ONNX, or cut off: {error}; complete the download") from None
    if not model.HasField("graph") or not model.opset_import:
        raise InvalidProblem(f"{path} is no model in ONNX, for it has no graph with a version of operators; export it again")
    return model


def _numbers(graph: Any, values: Mapping[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
    """Return the values of inputs as arrays of their types and shapes."""
    from onnx import helper

    inputs = {info.name: info.type.tensor_type for info in graph.input}
    made = {}
    for name, value in values.items():
        if name not in inputs:
            raise InvalidProblem(f"values has {name!r}, which is no input of the model; it has {', '.join(inputs)}")
        kind = inputs[name]
        stated = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
        array = np.asarray(value)
        target = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        fits = len(stated) == array.ndim and all(own in (None, length) for own, length in zip(stated, array.shape, strict=True))
        if not fits or not np.can_cast(array.dtype, target, "same_kind"):
            raise InvalidProblem(f"values[{name!r}] is {shown(value)}; it must be {target} of shape {stated}, where None is any length")
        made[name] = array.astype(target)
    return made


def _check_names(
    graph: Any, lengths: Mapping[str, int], shapes: Mapping[str, Sequence[int]], numbers: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Raise `InvalidProblem` for inputs whose shape is not known, and for lengths and shapes of what the model has not."""
    constants = {*(stored.name for stored in graph.initializer), *numbers}
    infos = [info for info in (*graph.input, *graph.value_info, *graph.output) if info.name not in constants]
    named = list(dict.fromkeys(d.dim_param for info in infos for d in info.type.tensor_type.shape.dim if d.dim_param))
    tensors = {*(info.name for info in infos), *(name for node in graph.node for name in node.output)}
    for name in lengths:
        if name not in named:
            raise InvalidProblem(f"dims has {name!r}, which is no dimension of the model; it has {', '.join(named) or 'none with a name'}")
    for name in shapes:
        if name not in tensors:
            raise InvalidProblem(f"shapes has {name!r}, which is no tensor of the model; take a name of an input or a result from it")
    for info in graph.input:
        kind = info.type.tensor_type
        if info.name in constants or info.name in shapes or not info.type.HasField("tensor_type"):
            continue
        open_ones = [d.dim_param for d in kind.shape.dim if not d.HasField("dim_value") and d.dim_param not in lengths]
        if not kind.HasField("shape") or "" in open_ones:
            raise InvalidProblem(f"the shape of the input {info.name!r} is not known; give it: shapes={{{info.name!r}: (1, ...)}}")
        if open_ones:
            example = ", ".join(f"{name!r}: 1" for name in open_ones)
            raise InvalidProblem(f"the input {info.name!r} has dimensions without a length; give one for each: dims={{{example}}}")
