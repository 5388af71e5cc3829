"""PyTorch models named in a command line, and the shapes of their arguments."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hetsched.errors import HetschedError, InvalidProblem, MissingDependency

_SHAPE = "Shape of an example input, batch first: 1,3,224,224 or 1,128:int64; repeat it for each argument of the model."
_FACTORY = "A function that returns a torch.nn.Module, if need be with arguments: 'timm:create_model(\"dla34\", num_classes=10)'."
Factory = Annotated[str, typer.Argument(help=_FACTORY, metavar="MODULE:FUNCTION")]
Shapes = Annotated[list[str], typer.Option("--input", help=_SHAPE, metavar="SHAPE")]
FixedBatch = Annotated[bool, typer.Option("--fixed-batch", help="The first dimension of the inputs is not a batch (dynamic_batch=False).")]
Fuse = Annotated[bool, typer.Option("--fuse", help="Fuse activations and the like with the operator before them.")]


def example(text: str) -> Any:
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


def examples(texts: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the keyword arguments of shapes, those of the form ``NAME=SHAPE``."""
    named = [text.partition("=") for text in texts]
    positional = tuple(example(text) for text, equals, _ in named if not equals)
    return positional, {name: example(shape) for name, equals, shape in named if equals}


def find(factory: str) -> Any:
    """Return the function at ``module:function``, or ``module:function(arguments)`` as one without arguments."""
    name, colon, call = factory.partition(":")
    attribute, parenthesis, _ = call.partition("(")
    if not (colon and name and attribute):
        raise InvalidProblem(f"{factory!r} is not of the form MODULE:FUNCTION, for instance mypackage.nets:make")
    args, kwargs = _arguments(factory, call) if parenthesis else ((), {})
    try:
        value: Any = importlib.import_module(name)
        for part in attribute.split("."):
            value = getattr(value, part)
    except Exception as error:  # whatever the user's module raises on import
        raise HetschedError(f"{factory} cannot be imported: {type(error).__name__}: {error}") from error
    return functools.partial(value, *args, **kwargs) if parenthesis else value


def _arguments(factory: str, call: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call: numbers, strings, None and containers of these."""
    try:
        tree = ast.parse(call, mode="eval").body
        if not isinstance(tree, ast.Call):
            raise ValueError(call)
        return tuple(map(ast.literal_eval, tree.args)), {str(one.arg): ast.literal_eval(one.value) for one in tree.keywords}
    except (SyntaxError, ValueError) as error:
        message = f"the arguments of {factory!r} are not numbers, strings, lists and the like"
        raise InvalidProblem(f"{message}; write them as in mypackage.nets:make(3, name='x'), or a function without arguments") from error


@contextlib.contextmanager
def importable_here() -> Iterator[None]:
    """Put the current folder first on the import path."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
