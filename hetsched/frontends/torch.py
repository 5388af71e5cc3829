"""Task graphs and cards of PyTorch modules, captured by ``torch.export`` or recorded, without running them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem, MissingDependency
from hetsched.problem.graph import TaskGraph

try:
    import torch
except ImportError as error:
    raise MissingDependency("torch", "torch") from error

from torch.export import ExportedProgram

from hetsched.frontends.calling import arguments
from hetsched.frontends.exported import Calls, read
from hetsched.frontends.exporting import batch_size, exported, program_in
from hetsched.frontends.flops import Formula, Formulas
from hetsched.frontends.module_card import card
from hetsched.frontends.module_placement import device_map, split_spec, whole_modules
from hetsched.frontends.training import capture_training, record, recordings
from hetsched.frontends.ways import Way, first

__all__ = ["capture", "capture_training", "card", "device_map", "record", "split_spec", "whole_modules"]


@checked(InvalidProblem)
def capture(
    model: torch.nn.Module | Callable[[], torch.nn.Module] | ExportedProgram | str | os.PathLike[str],
    example_args: tuple[Any, ...] | torch.Tensor = (),
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_batch: bool | None = None,
    fuse: bool = False,
    flop_formulas: Mapping[Any, Formula] | None = None,
) -> TaskGraph:
    """Return the task graph of one call of a module, with the work and bytes of ONE input item.

    The module is exported without being run, in its current mode: call ``model.eval()`` first for
    inference. `capture_training` captures a training step; `record` is faster for thousands of tasks.

    Parameters
    ----------
    model : torch.nn.Module, function without arguments that makes one, exported program, or path of one
        A module on the meta device needs no memory. A function is called under
        ``torch.device("meta")``; if that or the export fails, under ``FakeTensorMode``; and if
        that fails, with real memory. A program of ``torch.export``, or its file (``.pt2``), has its arguments; the batch is the
        first dynamic first dimension of a tensor among them, if there is one, and other dynamic dimensions are those of its example.
    example_args : tuple (or one tensor)
        Positional arguments of the module; only shapes and dtypes of tensors matter.
    example_kwargs : mapping, optional
        Its keyword arguments.
    dynamic_batch : bool, optional
        True: the first dimension of the first tensor is the batch, as is the first dimension of every
        other tensor argument if it has the same length; the numbers are those of a batch of one. A
        tensor without the batch dimension counts in full. False: the example as a whole is one item.
        Default: True if that is possible, else False, with a warning that says why.
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
          several tasks counts in each of them. Weights that are stored in fewer bytes, such as those of 8 bits, count as stored.
        - `output_bytes` counts the outputs that are read. `input_bytes` is the sum over incoming
          edges. `flops` are those of ``torch.utils.flop_counter``, with further formulas for operators such as grouped
          matrix products: matrix products, convolutions, attention and Fourier transforms count; elementwise work, reductions, pooling and
          operators that only move data count 0. Those of any other operator are NaN, and one warning names these
          operators. `bytes_accessed` is weights + inputs + outputs, but a lookup in a table counts only the rows read.

    Raises
    ------
    InvalidProblem
        The example arguments are not a tuple, none is a tensor with a batch dimension, one is an object in which torch finds no
        tensors, or the module has other arguments; the function
        fails, or returns no module; the file has no exported program; a key of `flop_formulas` is not an operator, or a formula
        fails or does not return a number >= 0.
    UnsupportedFeature
        The module itself fails on the example; it can be captured only if run, but is on the meta device; or, with
        `dynamic_batch` = True, items of a batch do not pass through the model independently or sizes depend on data.
    MissingDependency
        torch is not installed (raised on import of this module).

    Warns
    -----
    RuntimeWarning
        The whole example is one item though `dynamic_batch` was not given; or, where ``torch.export`` fails for the example itself,
        the call was recorded as by `record`, without fusion: on tensors without data, or, if sizes or control flow depend on
        data, by running it once on the example, in which case another example may have other tasks.

    Notes
    -----
    Models of Hugging Face return no cache of keys and values unless the keyword arguments have `use_cache` or a cache.
    """
    formulas = Formulas(flop_formulas)
    args, kwargs = arguments(example_args, example_kwargs)
    if isinstance(model, ExportedProgram | str | os.PathLike):
        if args or kwargs:
            raise InvalidProblem("an exported program has its arguments; leave example_args and example_kwargs out")
        made: Calls | TaskGraph = read(program_in(model), formulas, fuse=fuse, dynamic_batch=dynamic_batch)
    else:
        dynamic, fixed = _exports(model, args, kwargs, fuse, formulas)
        others: list[Way[Calls | TaskGraph]] = [fixed, *recordings(model, args, kwargs, formulas, fuse=fuse)]
        ways = others if dynamic_batch is False else [dynamic, *others]
        made = first(ways, [dynamic] if dynamic_batch else ways, formulas)
    formulas.warn_unknown()
    return made.graph if isinstance(made, Calls) else made


def calls(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    example_args: tuple[Any, ...] | torch.Tensor,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    dynamic_batch: bool = True,
    fuse: bool = False,
) -> Calls:
    """Return the exported program of a call, by `capture` with `dynamic_batch`, its tasks, and the nodes of each."""
    (args, kwargs), formulas = arguments(example_args, example_kwargs), Formulas()
    dynamic, fixed = _exports(model, args, kwargs, fuse, formulas)
    ways = [dynamic, fixed] if dynamic_batch else [fixed]
    made = first([*ways, *recordings(model, args, kwargs, formulas)], ways[:1], formulas)
    assert isinstance(made, Calls)
    return made


def _exports(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], fuse: bool, formulas: Formulas) -> tuple[Way[Calls], Way[Calls]]:
    """Return the ways by torch.export: for any batch, and for the example as one item."""

    def make(batch: int | None) -> Calls:
        return read(exported(model, args, kwargs, batch), formulas, fuse=fuse)

    return (
        Way(lambda: make(batch_size(args, kwargs))),
        Way(
            lambda: make(None),
            "so the whole example is one item; dynamic_batch=False asks for that",
            "pass dynamic_batch=False: the whole example is then one item",
        ),
    )
