"""Workloads to try things on: generated graphs, shipped networks, the papers' clusters."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hetsched.workloads.rwnn import rwnn  # the function: it takes the place of the module of its name

if TYPE_CHECKING:
    from hetsched.workloads import clusters, networks, transformers
    from hetsched.workloads.transformers import gpt3

__all__ = ["clusters", "gpt3", "networks", "rwnn", "transformers"]


def __getattr__(name: str) -> Any:
    if name == "gpt3":
        return importlib.import_module("hetsched.workloads.transformers").gpt3
    if name in ("clusters", "networks", "transformers"):
        return importlib.import_module(f"hetsched.workloads.{name}")
    raise AttributeError(f"module 'hetsched.workloads' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
