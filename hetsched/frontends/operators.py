"""The types of operators in exported and recorded graphs, and their modules."""

from __future__ import annotations

import functools
from typing import Any

import torch

CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
PRODUCTS = {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm"}
MERGEABLE = {"conv1d", "conv2d", "conv3d"}
SHAPE_QUERIES = {"sym_size", "sym_stride", "sym_numel", "sym_storage_offset"}
CREATIONS = {"new_zeros", "new_ones", "new_full", "new_empty"}  # read no data of their tensor
SHORT_NAMES = {
    "native_batch_norm_legit_no_training": "batch_norm",
    "native_batch_norm_legit_functional": "batch_norm",
    "native_batch_norm_legit": "batch_norm",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "native_dropout": "dropout",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d",
    "to_copy": "to",
}


@functools.cache
def operator_type(target: Any) -> str:
    """Return the operator type of a call: ``aten._softmax.default`` is ``"softmax"``."""
    if not isinstance(target, torch._ops.OpOverload):
        return str(getattr(target, "__name__", target))
    space, _, name = target._schema.name.partition("::")
    name = name.lstrip("_")
    return SHORT_NAMES.get(name, name) if space == "aten" else f"{space}.{name}"


def is_elementwise(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags


def mixing(node: torch.fx.Node) -> str:
    """Return "channels" for a pointwise convolution, "pixels" for a depthwise one, else ""."""
    if operator_type(node.target) not in MERGEABLE or not isinstance(node.args[1], torch.fx.Node):
        return ""
    outputs, inputs, *kernel = node.args[1].meta["val"].shape
    groups: Any = node.args[6] if len(node.args) > 6 else 1
    if groups == 1 and all(length == 1 for length in kernel):
        return "channels"
    return "pixels" if groups == outputs and inputs == 1 else ""


def module_path(node: torch.fx.Node) -> str:
    """Return the path of the innermost module of a call."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for key, (path, _) in stack.items() if not key.startswith("_empty")]
    return paths[-1] if paths else ""
