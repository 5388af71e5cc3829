"""Ways into the package from other descriptions of a computation."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.frontends import torch

__all__ = ["torch"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # imported when first used: torch takes seconds
        return importlib.import_module(f"hetsched.frontends.{name}")
    raise AttributeError(f"module 'hetsched.frontends' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
