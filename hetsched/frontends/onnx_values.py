"""What the names in a model in ONNX stand for: types, shapes, strides and bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from hetsched.frontends.onnx_operators import Lengths
from hetsched.frontends.tensors import Tensor

BITS = {TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4, TensorProto.INT2: 2, TensorProto.UINT2: 2}
"""Bits of a number of the types with less than a byte."""


@dataclass(frozen=True)
class Value:
    """What a name in the model stands for."""

    dtype: int
    """The type of its numbers, of `onnx.TensorProto`."""
    shape: Lengths
    strides: Lengths
    """Numbers between neighbours of each dimension; 0 where they are one."""
    tensors: tuple[Tensor, ...]
    """The tensors in memory that hold it: one of its own, or for a view those of its source; none for a length."""
    data: np.ndarray[Any, Any] | None = None
    """The numbers of a small constant."""

    @property
    def constant(self) -> bool:
        """Whether it depends on no input of the model."""
        return all(tensor.task is None for tensor in self.tensors)

    @property
    def bytes(self) -> float:
        """Bytes of what it shows; an expanded dimension adds none."""
        lengths = (length for length, stride in zip(self.shape, self.strides, strict=True) if stride or not length)
        return stored_bytes(self.dtype, math.prod(lengths))


def stored_bytes(dtype: int, count: int) -> float:
    """Return the bytes of that many numbers of a type of `onnx.TensorProto`."""
    if dtype in BITS:
        return float(math.ceil(BITS[dtype] * count / 8))
    return float(helper.tensor_dtype_to_np_dtype(dtype).itemsize * count)


def contiguous(lengths: Lengths) -> Lengths:
    """Return the strides of a tensor of its own memory."""
    return tuple(math.prod(lengths[d + 1 :]) for d in range(len(lengths)))


def reshaped(value: Value, lengths: Lengths) -> Lengths | None:
    """Return the strides of a value in another shape of as many numbers, or None if it has to be copied."""
    if 0 in lengths:
        return contiguous(lengths)
    parts: list[list[int]] = []  # neighbouring dimensions that are one run of memory: their numbers, and the stride of the last
    for length, stride in zip(value.shape, value.strides, strict=True):
        if length > 1 and parts and parts[-1][1] == length * stride:
            parts[-1] = [parts[-1][0] * length, stride]
        elif length > 1:
            parts.append([length, stride])
    strides = []
    for length in reversed(lengths):
        if length == 1:
            strides.append(1)
            continue
        if not parts or parts[-1][0] % length:
            return None
        strides.append(parts[-1][1])
        parts[-1] = [parts[-1][0] // length, parts[-1][1] * length]
        if parts[-1][0] == 1:
            parts.pop()
    return tuple(reversed(strides))


def part(value: Value, axis: int, place: int) -> Value:
    """Return the part of a value at a place of a dimension, without that dimension."""
    axis %= len(value.shape)
    rest = [d for d in range(len(value.shape)) if d != axis]
    lengths, strides = (tuple(column[d] for d in rest) for column in (value.shape, value.strides))
    return replace(value, shape=lengths, strides=strides, data=None if value.data is None else value.data.take(place, axis))
