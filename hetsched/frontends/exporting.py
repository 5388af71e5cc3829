"""Programs of torch.export: of a module made by the first way that succeeds, or read from a file."""

from __future__ import annotations

import copy
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.utils._pytree import tree_leaves, tree_map

from hetsched.errors import HetschedError, InvalidProblem, UnsupportedFeature
from hetsched.frontends.calling import check_call, keywords_spelled_out, name_of, quiet, reason, without_caches
from hetsched.frontends.exported import SAMPLE_BATCH

_ONE_AT_A_TIME = threading.RLock()
"""``torch.export`` keeps its state in globals, which two exports in two threads would spoil for each other."""
MOST_ON_CUDA = 65535
"""The largest batch for which cuDNN normalizes; above it torch takes another kernel, and `torch.export` has to know which."""


def program_in(source: ExportedProgram | str | os.PathLike[str]) -> ExportedProgram:
    """Return the functional form of an exported program, or of that in a file.

    Raises
    ------
    InvalidProblem
        The file cannot be read, or has no exported program.
    """
    if not isinstance(source, ExportedProgram):
        path = os.fspath(source)
        try:
            source = torch.export.load(path)
        except Exception as error:  # of the file system, of zip files and of torch
            message = f"{path!r} cannot be read as an exported program: {reason(error)}"
            raise InvalidProblem(f"{message}; write it by torch.export.save, with this version of torch") from error
    with _ONE_AT_A_TIME, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", FutureWarning)
        functional: ExportedProgram = source.run_decompositions({})
    return functional


def batch_size(args: Any, kwargs: Any) -> int:
    """Return the first dimension of the first tensor."""
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return leaf.shape[0]
    raise InvalidProblem("no example argument is a tensor with a batch dimension; give one, or pass dynamic_batch=False")


def exported(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], batch: int | None) -> ExportedProgram:
    """Return the functional export by the first way to construct the model that succeeds, for any batch where `batch` is a size.

    Raises
    ------
    InvalidProblem
        The model cannot be made, or its arguments are others than those given.
    UnsupportedFeature
        The export fails; its cause is the error of torch.
    """
    failure, made = Exception("no way to make the model"), False
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.export warns of its own use of pytree
        warnings.filterwarnings("ignore", "The tensor attributes? .*_flat_weights")  # and of the caches of recurrent layers
        for prepare in _ways(model):
            mode: Any = None
            try:
                module, device, mode = prepare()
                check_call(module, model, args, kwargs)
                made = True
                with mode:
                    samples, sample_kwargs = tree_map(lambda leaf, device=device: _sample(leaf, batch, device), (args, kwargs))
                return _exported(module, samples, sample_kwargs, batch, args, kwargs)
            except HetschedError:
                raise
            except Exception as error:  # any error of torch or the model's code
                failure = error
            if isinstance(mode, FakeTensorMode):
                break  # the construction succeeded, and real memory would not help the export
    if not made:
        raise InvalidProblem(f"{name_of(model)} fails: {reason(failure)}; it must return a torch.nn.Module") from failure
    raise UnsupportedFeature(f"torch.export cannot capture {name_of(model)}: {reason(failure)}") from failure


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
    with keywords_spelled_out(module, sample_kwargs), without_caches(module, kwargs), quiet(), torch.no_grad():
        # Under no_grad, no_grad regions of the model leave no operators.
        if batch is not None:
            leaves = tree_leaves((samples, sample_kwargs))
            most = MOST_ON_CUDA if any(isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda" for leaf in leaves) else None
            collection, dimension = ShapesCollection(), Dim("batch", min=1, max=most)  # type: ignore[no-untyped-call]
            for given, sample in zip(tree_leaves((args, kwargs)), leaves, strict=True):
                if isinstance(given, torch.Tensor) and given.dim() and given.shape[0] == batch:
                    collection[sample] = {0: dimension}
            shapes = collection.dynamic_shapes(module, samples, sample_kwargs)  # type: ignore[no-untyped-call]
        program: ExportedProgram = torch.export.export(module, samples, sample_kwargs, dynamic_shapes=shapes, strict=False)
        functional: ExportedProgram = program.run_decompositions({})  # linear, attention, ... are not decomposed
    return functional
