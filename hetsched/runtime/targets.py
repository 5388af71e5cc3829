"""What the functions of tasks call: operators of torch, what does the same with less work, and names for other processes."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from hetsched.errors import UnsupportedFeature

aten = torch.ops.aten


def called(target: Any) -> Any:
    """Return what the functions of tasks call for a target, of those that `chosen` returns."""
    target = _bindings().get(target, target)
    return target._op if isinstance(target, torch._ops.OpOverload) else target  # without the checks of a call from outside


def chosen(node: Node) -> Any:
    """Return the target of a node, or one that makes the values that others read of it in the way of the module."""
    if node.target is not aten._native_batch_norm_legit_no_training.default or node.kwargs:
        return node.target
    return normalized if all(user.target is operator.getitem and user.args[1] == 0 for user in node.users) else node.target


def normalized(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, epsilon: float) -> tuple[torch.Tensor]:
    """Return the batch norm of inference as the module computes it: on CUDA by cuDNN in one kernel, and not two as by the operator."""
    return (torch.batch_norm(x, weight, bias, mean, variance, False, momentum, epsilon, torch.backends.cudnn.enabled),)


@cache
def _bindings() -> dict[Any, Callable[..., Any]]:
    """Return the functions of torch that call the same kernel as an operator, with less work in Python."""
    nn = torch._C._nn
    return {
        aten.conv1d.default: torch.conv1d,
        aten.conv2d.default: torch.conv2d,
        aten.conv3d.default: torch.conv3d,
        aten.relu.default: torch.relu,
        aten.sigmoid.default: torch.sigmoid,
        aten.cat.default: torch.cat,
        aten.add.Tensor: torch.add,
        aten.mul.Tensor: torch.mul,
        aten.div.Tensor: torch.div,
        aten.matmul.default: torch.matmul,
        aten.clone.default: torch.clone,
        aten.max_pool2d.default: torch.max_pool2d,
        aten.max_pool2d_with_indices.default: nn.max_pool2d_with_indices,
        aten.avg_pool2d.default: nn.avg_pool2d,
        aten.adaptive_avg_pool2d.default: nn.adaptive_avg_pool2d,
        aten.linear.default: nn.linear,
        aten.gelu.default: nn.gelu,
    }


def portable_target(target: Any) -> tuple[str, ...]:
    """Return the name of an operator, with its overload and the module that defines it, or of a function of a module."""
    if isinstance(target, torch._ops.OpOverload):
        space, name = target._schema.name.split("::")
        module = _defining_module(space, target._schema.name)
        if module != "__main__":
            return space, name, target._overloadname, module
    else:
        module, name = getattr(target, "__module__", None) or "", getattr(target, "__name__", "")
        if module != "__main__" and getattr(sys.modules.get(module), name, None) is target:
            return module, name
    raise UnsupportedFeature(f"{target} is defined in this script, and other processes have to call it; define it in a module of its own")


def _defining_module(space: str, operator_name: str) -> str:
    """Return the module that defines an operator, as far as Python can tell; empty for those of torch."""
    defined = torch._library.custom_ops.OPDEFS.get(operator_name)
    if defined is not None:
        return str(defined._init_fn.__module__)
    for name, module in list(sys.modules.items()):
        if any(issubclass(type(value), torch.library.Library) and value.ns == space for value in list(vars(module).values())):
            return name
    return space if space in sys.modules else ""


def found_target(parts: tuple[str, ...]) -> Any:
    """Return what has the name that `portable_target` returns."""
    if len(parts) == 2:
        return getattr(importlib.import_module(parts[0]), parts[1])
    space, name, overload, module = parts
    if module:
        importlib.import_module(module)
    return getattr(getattr(getattr(torch.ops, space), name), overload)
