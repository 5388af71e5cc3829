"""Task graphs of PyTorch modules, captured by ``torch.export`` without running them."""

from __future__ import annotations

import contextlib
import copy
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem, MissingDependency, UnsupportedFeature
from hetsched.problem.graph import TaskGraph

try:
    import torch
except ImportError as error:
    raise MissingDependency("torch", "torch") from error

from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.utils._pytree import tree_leaves, tree_map

from hetsched.frontends.exported import SAMPLE_BATCH, Calls, read
from hetsched.frontends.flops import Formula, Formulas
from hetsched.frontends.module_placement import device_map, split_spec, whole_modules
from hetsched.frontends.training import arguments, capture_training, record

__all__ = ["capture", "capture_training", "device_map", "record", "split_spec", "whole_modules"]

_ONE_AT_A_TIME = threading.RLock()
"""``torch.export`` keeps its state in globals, which two exports in two threads would spoil for each other."""


@checked(InvalidProblem)
def capture(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    example_args: tuple[Any, ...] | torch.Tensor,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_batch: bool = True,
    fuse: bool = False,
    flop_formulas: Mapping[Any, Formula] | None = None,
) -> TaskGraph:
    """Return the task graph of one call of a module, with the work and bytes of ONE input item.

    The module is exported without being run, in its current mode: call ``model.eval()`` first for
    inference. `capture_training` captures a training step; `record` is faster for thousands of tasks.

    Parameters
    ----------
    model : torch.nn.Module or function without arguments that makes one
        A module on the meta device needs no memory. A function is called under
        ``torch.device("meta")``; if that or the export fails, under ``FakeTensorMode``; and if
        that fails, with real memory.
    example_args : tuple (or one tensor)
        Positional arguments of the module; only shapes and dtypes of tensors matter.
    example_kwargs : mapping, optional
        Its keyword arguments.
    dynamic_batch : bool
        True: the first dimension of the first tensor is the batch, as is the first dimension of every
        other tensor argument if it has the same length; the numbers are those of a batch of one. A
        tensor without the batch dimension counts in full. False: the example as a whole is one item.
    fuse : bool
        Whether an elementwise operator, such as relu, is part of the only task that it reads, if it is the only reader
        of that task. Otherwise it is part of the convolution, or elementwise operator, that is its only reader; likewise
        a concatenation is part of another, and a depthwise convolution of a pointwise one. These are the units of IOS:
        Conv-Relu, Relu-SepConv.
    flop_formulas : mapping, optional
        FLOPs of custom operators, or replacements for others. A key is ``torch.ops.library.operator`` or the result of
        ``torch.library.custom_op``; a value is a function of the operator's arguments, with shapes in place of tensors,
        and of ``out_shape=``, the shape of the output; as ``custom_mapping`` of torch's ``FlopCounterMode``. Formulas
        registered by ``torch.utils.flop_counter.register_flop_formula`` are used too.

    Returns
    -------
    TaskGraph
        One task for each operator, named after its module and type (``"layer1.conv/conv2d"``), and
        one of type ``"input"``, without work, for each tensor argument that is read.

        - Views, ``getitem`` and copies without effect are folded into their source; an edge has the
          bytes of the parts that its target reads.
        - Batch norm in eval mode is folded into a convolution if it is the only reader of it; the
          task then has one bias.
        - A value that depends on no argument (masks, positions, normalised weights) is a constant:
          like parameters and buffers, it counts as weight of the tasks that read it. A weight of
          several tasks counts in each of them.
        - `output_bytes` counts the outputs that are read. `input_bytes` is the sum over incoming
          edges. `flops` are those of ``torch.utils.flop_counter``, with further formulas for operators such as grouped
          matrix products: matrix products, convolutions and attention count; elementwise work, reductions, pooling and
          operators that only move data count 0. Those of any other operator are NaN, and one warning names these
          operators. `bytes_accessed` is weights + inputs + outputs, but a lookup in a table counts only the rows read.

    Raises
    ------
    InvalidProblem
        The example arguments are not a tuple, or none is a tensor with a batch dimension; a key of `flop_formulas` is not
        an operator, or a formula fails or does not return a number >= 0.
    UnsupportedFeature
        The export fails, sizes or control flow depend on data, or (with `dynamic_batch`) items of a
        batch do not pass through the model independently.
    MissingDependency
        torch is not installed (raised on import of this module).
    """
    formulas = Formulas(flop_formulas)
    captured = calls(model, example_args, example_kwargs=example_kwargs, dynamic_batch=dynamic_batch, fuse=fuse, formulas=formulas)
    formulas.warn_unknown()
    return captured.graph


def calls(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    example_args: tuple[Any, ...] | torch.Tensor,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_batch: bool = True,
    fuse: bool = False,
    formulas: Formulas | None = None,
) -> Calls:
    """Return the result of `capture` with the exported program and the nodes of each task."""
    args = arguments(example_args)
    kwargs = dict(example_kwargs or {})
    batch = _batch_size(args, kwargs) if dynamic_batch else None
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.export warns of its own use of pytree
        program = _export(model, args, kwargs, batch)
    return read(program, formulas or Formulas(), fuse=fuse)


def _batch_size(args: Any, kwargs: Any) -> int:
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return leaf.shape[0]
    raise InvalidProblem("no example argument is a tensor with a batch dimension; give one, or pass dynamic_batch=False")


def _export(model: Any, args: Any, kwargs: Any, batch: int | None) -> ExportedProgram:
    """Return the functional export by the first way to construct the model that succeeds."""
    failure: Exception | None = None
    for prepare in _ways(model):
        mode: Any = None
        try:
            module, device, mode = prepare()
            with mode:
                samples, sample_kwargs = tree_map(lambda leaf, device=device: _sample(leaf, batch, device), (args, kwargs))
            return _exported(module, samples, sample_kwargs, batch, args, kwargs)
        except Exception as error:  # any error of torch or the model's code
            failure = error
        if isinstance(mode, FakeTensorMode):
            break  # the construction succeeded, and real memory would not help the export
    assert failure is not None
    name = getattr(model, "__name__", type(model).__name__)
    text = next((line.strip() for line in str(failure).splitlines() if line.strip()), "no message").rstrip(".")
    remedy = "" if batch is None else "; if the model fixes its batch size, pass dynamic_batch=False: the whole example is then one item"
    raise UnsupportedFeature(f"torch.export cannot capture {name}: {type(failure).__name__}: {text}{remedy}") from failure


def _ways(model: Any) -> Iterator[Callable[[], tuple[torch.nn.Module, torch.device | None, Any]]]:
    """Yield functions that return (module, device of the arguments, mode in which to make them)."""

    def as_it_is() -> tuple[torch.nn.Module, torch.device | None, Any]:
        return model, torch.device("meta") if on_meta else None, torch.no_grad()

    def fake_copy() -> tuple[torch.nn.Module, torch.device | None, Any]:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        module = copy.deepcopy(model)
        with mode:
            return module.to_empty(device="cpu"), torch.device("cpu"), mode

    def made_on_meta() -> tuple[torch.nn.Module, torch.device | None, Any]:
        with torch.device("meta"):
            return model(), torch.device("meta"), torch.no_grad()

    def made_fake() -> tuple[torch.nn.Module, torch.device | None, Any]:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            return model(), torch.device("cpu"), mode

    def made_real() -> tuple[torch.nn.Module, torch.device | None, Any]:
        return model(), None, torch.no_grad()

    if not isinstance(model, torch.nn.Module):
        yield from (made_on_meta, made_fake, made_real)
        return
    on_meta = any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    yield as_it_is
    if on_meta:  # a constant made on the CPU in forward cannot be combined with meta tensors
        yield fake_copy


def _sample(leaf: Any, batch: int | None, device: torch.device | None) -> Any:
    """Return a tensor of the shape for the export, or any other argument unchanged."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    shape = list(leaf.shape)
    if batch is not None and shape and shape[0] == batch:
        shape[0] = SAMPLE_BATCH
    return torch.empty(shape, dtype=leaf.dtype, device=leaf.device if device is None else device)


def _exported(module: torch.nn.Module, samples: Any, sample_kwargs: Any, batch: int | None, args: Any, kwargs: Any) -> ExportedProgram:
    shapes: Any = None
    with _keywords_spelled_out(module, sample_kwargs), torch.no_grad():  # under no_grad, no_grad regions of the model leave no operators
        if batch is not None:
            collection, dimension = ShapesCollection(), Dim("batch", min=1)  # type: ignore[no-untyped-call]
            for given, sample in zip(tree_leaves((args, kwargs)), tree_leaves((samples, sample_kwargs)), strict=True):
                if isinstance(given, torch.Tensor) and given.dim() and given.shape[0] == batch:
                    collection[sample] = {0: dimension}
            shapes = collection.dynamic_shapes(module, samples, sample_kwargs)  # type: ignore[no-untyped-call]
        program: ExportedProgram = torch.export.export(module, samples, sample_kwargs, dynamic_shapes=shapes, strict=False)
        functional: ExportedProgram = program.run_decompositions({})  # linear, attention, ... are not decomposed
    return functional


@contextlib.contextmanager
def _keywords_spelled_out(module: torch.nn.Module, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Name the keywords that `forward` receives as ``**kwargs``: torch.export finds no dynamic shapes in those."""
    forward = module.forward
    signature = inspect.signature(forward)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    if len(named) == len(signature.parameters):
        yield
        return
    extra = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kwargs if name not in signature.parameters]

    def call(*args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs)

    call.__signature__ = signature.replace(parameters=[*named, *extra])  # type: ignore[attr-defined]
    own = "forward" in vars(module)
    module.forward = call
    try:
        yield
    finally:
        if own:
            module.forward = forward
        else:
            del module.forward
