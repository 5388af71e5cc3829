"""Frontends: task graphs from other descriptions of a computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.frontends import torch

__all__ = ["torch"]

_HOMES = {"": ["torch"]}
__getattr__, __dir__ = attach(__name__, _HOMES)
