"""`capture`: a problem from a PyTorch model."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hetsched.cli import completion
from hetsched.cli.files import check_writable, write_graph
from hetsched.cli.options import Batching, Communication, Dtype, Inputs, Memory, Output
from hetsched.cli.terminal import Working
from hetsched.errors import HetschedError, InvalidProblem, MissingDependency

_SHAPE = "Shape of an example input, batch first: 1,3,224,224 or 1,128:int64; repeat it for each argument of the model."
Optimiser = Literal["sgd", "momentum", "adam"]


def capture(
    factory: Annotated[str, typer.Argument(help="A function without arguments that returns a torch.nn.Module.", metavar="MODULE:FUNCTION")],
    output: Output,
    shapes: Annotated[list[str], typer.Option("--input", help=_SHAPE, metavar="SHAPE")],
    cluster: Annotated[
        str | None,
        typer.Option(
            help="As in 'generate', to write a problem; default: write the graph alone.",
            metavar="NAME|FILE",
            autocompletion=completion.clusters,
        ),
    ] = None,
    fixed_batch: Annotated[
        bool, typer.Option("--fixed-batch", help="The first dimension of the inputs is not a batch (dynamic_batch=False).")
    ] = False,
    fuse: Annotated[bool, typer.Option("--fuse", help="Fuse activations and the like with the operator before them.")] = False,
    training: Annotated[
        Optimiser | None,
        typer.Option(help="Capture a training step with this optimiser; the example is one input, the loss the mean of the output."),
    ] = None,
    dtype: Dtype = "float32",
    inputs: Inputs = 1,
    batching: Batching = "once",
    communication: Communication = "delay",
    memory: Memory = "static",
) -> None:
    r"""Make a problem from a PyTorch model.

    The model is captured in eval mode (with --training in train mode) without being run or
    allocated. Modules in the current folder can be imported. This model ships with the package:

    Example: [bold]hetsched capture hetsched.workloads.vision:googlenet \
      --input 1,3,224,224 --cluster diviml -o problem.json[/bold]
    """
    from hetsched.frontends.torch import capture, capture_training

    if training is not None and fuse:
        raise InvalidProblem("--fuse does not go with --training: the backward pass reads tensors inside fused operators; leave one out")
    check_writable(output)
    examples = tuple(map(_example, shapes))
    with Working(f"capturing {factory}"):
        with _importable_here():
            make = _find(factory)
            if training is not None:
                graph = capture_training(lambda: make().train(), examples, optimiser=training)
            else:
                graph = capture(lambda: make().eval(), examples, dynamic_batch=not fixed_batch, fuse=fuse)
        write_graph(graph, cluster, output, dtype, inputs=inputs, batching=batching, communication=communication, memory=memory)


def _example(text: str) -> Any:
    """Return the tensor of zeros of a shape such as ``1,3,224,224`` or ``1,128:int64``."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependency("torch", "torch") from error
    shape, _, name = text.partition(":")
    dtype = getattr(torch, name or "float32", None)
    try:
        sizes = [int(size) for size in shape.split(",") if size.strip()]
    except ValueError:
        sizes = [-1]
    if min(sizes, default=0) < 0 or not isinstance(dtype, torch.dtype):
        raise InvalidProblem(f"--input {text!r} is not a shape like 1,3,224,224, with an optional dtype like 1,128:int64")
    return torch.zeros(sizes, dtype=dtype)


def _find(factory: str) -> Any:
    """Import the function at ``module:function``."""
    name, colon, attribute = factory.partition(":")
    if not (colon and name and attribute):
        raise InvalidProblem(f"{factory!r} is not of the form MODULE:FUNCTION, for instance mypackage.nets:make")
    try:
        value = importlib.import_module(name)
        for part in attribute.split("."):
            value = getattr(value, part)
    except Exception as error:  # whatever the user's module raises on import
        raise HetschedError(f"{factory} cannot be imported: {type(error).__name__}: {error}") from error
    return value


@contextlib.contextmanager
def _importable_here() -> Iterator[None]:
    """Put the current folder first on the import path."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
