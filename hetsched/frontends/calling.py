"""How modules of torch are called for a capture: their arguments, caches and outputs, and what their failures mean."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._pytree import SUPPORTED_NODES, register_dataclass, register_pytree_node, tree_leaves

from hetsched.errors import InvalidProblem

_NEEDS_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException, GuardOnDataDependentSymNode)
_CAUSES = (
    (re.compile(r"numpy\(\)|tensor subclass|data pointer|data_ptr"), "it reads data without torch's operators, which cannot be followed"),
    (re.compile(r"meta tensor|device meta|meta device"), "it needs weights with data; give it on the CPU"),
    (re.compile(r"out of memory|can't allocate memory"), "there is too little memory; give a smaller example"),
    (re.compile(r"LazyModule"), "call it once on an example, which makes its lazy parameters"),
    (re.compile(r"NestedInt"), "its tensors are nested, without sizes; give padded ones"),
)
"""Causes of failures that are not those of the example, by torch's message, and what to do."""
_LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor")
"""They log the failures of torch.export and of tensors without data, which errors and warnings here tell in a line."""
_CONSTRAINT = re.compile(r"^\s*- |specialized|^\s*(Caused by|Suggested fixes): ")
"""The lines after the first that name a constraint on a size, in torch's messages."""
_CACHES = {"use_cache", "cache", "past_key_values", "cache_params"}
"""Arguments of models of Hugging Face that ask for a cache, or give one."""


def arguments(
    example_args: tuple[Any, ...] | torch.Tensor, example_kwargs: Mapping[str, Any] | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional arguments as a tuple, and keyword arguments as a dict, with all containers of tensors known to torch.

    Data classes are registered with torch, and caches of keys and values by the function of Transformers.

    Raises
    ------
    InvalidProblem
        Another object holds tensors, which torch does not find.
    """
    args, kwargs = (example_args,) if isinstance(example_args, torch.Tensor) else example_args, dict(example_kwargs or {})
    if _CACHES & set(kwargs) and "transformers" in sys.modules:
        _register_caches()
    while holders := {type(leaf) for leaf in tree_leaves((args, kwargs)) if not isinstance(leaf, torch.Tensor) and [*tensors_in(leaf)]}:
        for kind in holders:
            if not dataclasses.is_dataclass(kind):
                raise InvalidProblem(
                    f"an argument is a {kind.__name__}, in which torch finds no tensors; give a tuple, a list, a dict or a data class of "
                    "tensors, or register it by torch.utils._pytree.register_pytree_node"
                )
            register_dataclass(kind, serialized_type_name=f"{kind.__module__}.{kind.__qualname__}")
    return args, kwargs


def signature_of(module: torch.nn.Module) -> inspect.Signature:
    """Return the signature of ``forward``; a traced module takes whatever it is given."""
    try:
        return inspect.signature(module.forward)
    except ValueError:
        return inspect.signature(lambda *args, **kwargs: None)


def name_of(model: Any) -> str:
    """Return the name of a module's class, or of a function that makes a module."""
    return str(getattr(model, "__name__", type(model).__name__))


def check_call(module: Any, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise `InvalidProblem` unless `module`, made from `model`, is a module that can be called with these arguments."""
    if not isinstance(module, torch.nn.Module):
        raise InvalidProblem(f"{name_of(model)} returns a {type(module).__name__}; it must return a torch.nn.Module")
    signature = signature_of(module)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        own = signature.replace(return_annotation=signature.empty)
        message = f"{type(module).__name__} cannot be called with the example: {error}; give {own} as example_args and example_kwargs"
        raise InvalidProblem(message) from error


@functools.cache
def _register_caches() -> None:
    """Let torch know the tensors of caches: those of a decoder by the function of Transformers, and pairs of them."""
    from transformers.cache_utils import EncoderDecoderCache
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_dynamic_cache_export_support()  # type: ignore[no-untyped-call]
    if EncoderDecoderCache not in SUPPORTED_NODES:
        register_pytree_node(
            EncoderDecoderCache,
            lambda pair: ([pair.self_attention_cache, pair.cross_attention_cache], None),
            lambda caches, _: EncoderDecoderCache(*caches),
            serialized_type_name="transformers.cache_utils.EncoderDecoderCache",
            to_dumpable_context=lambda _: None,
            from_dumpable_context=lambda _: None,
        )


@contextlib.contextmanager
def without_caches(module: torch.nn.Module, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Let models of Hugging Face return no cache of keys and values, unless the call asks for it."""
    asked = _CACHES & set(kwargs)
    found: Iterable[Any] = () if asked else (getattr(part, "config", None) for part in module.modules())
    configs = {id(config): config for config in found if getattr(config, "use_cache", None) is True}
    for config in configs.values():
        config.use_cache = False
    try:
        yield
    finally:
        for config in configs.values():
            config.use_cache = True


@contextlib.contextmanager
def keywords_spelled_out(module: torch.nn.Module, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Name the keywords that `forward` receives as ``**kwargs``: torch.export finds no dynamic shapes in those."""
    forward, signature = module.forward, signature_of(module)
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


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of an output: of containers, and of objects that torch does not know, such as caches."""
    rest, seen = tree_leaves(value), set()
    while rest:
        leaf = rest.pop(0)
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, type | torch.nn.Module) and id(leaf) not in seen:
            seen.add(id(leaf))
            rest[:0] = tree_leaves(list(vars(leaf).values()))


def reason(error: BaseException) -> str:
    """Return a failure of torch or of a model in a line: its type, its first line, and the lines that name a constraint."""
    first, *rest = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    kept = dict.fromkeys(line.removeprefix("- ").rstrip(".") for line in rest if _CONSTRAINT.search(line))
    return f"{type(error).__name__}: {'; '.join([first.rstrip('.'), *kept])}"


def remedy(error: BaseException) -> str:
    """Return what to do about a failure of a model that runs operator by operator."""
    known = (told for pattern, told in _CAUSES if pattern.search(str(error)))
    return next(known, "check the values, shapes and types of its arguments")


def needs_data(error: BaseException | None) -> bool:
    """Return whether a model failed since sizes or control flow depend on data, or an operator can only be run with data."""
    while error is not None:
        if isinstance(error, _NEEDS_DATA):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let torch print and log nothing of a failure that is told in a line."""
    loggers = [logger for name in _LOGGERS if not (logger := logging.getLogger(name)).disabled]
    for logger in loggers:
        logger.disabled = True
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # torch prints half a graph
            yield
    finally:
        for logger in loggers:
            logger.disabled = False
