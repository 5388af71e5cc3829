"""Frontends: task graphs, and cards of models, from other descriptions of a computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.frontends import cards, configs, gguf, huggingface, torch

__all__ = ["cards", "configs", "gguf", "huggingface", "torch"]

_HOMES = {"": ["cards", "configs", "gguf", "huggingface", "torch"]}
__getattr__, __dir__ = attach(__name__, _HOMES)
