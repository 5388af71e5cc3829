"""Running PyTorch modules task by task, and measuring what tasks and stages of them cost; all but `two_step` needs torch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetsched.runtime.estimation import TwoStep, two_step
    from hetsched.runtime.measured import MeasuredStages
    from hetsched.runtime.profiler import ModuleProfiler
    from hetsched.runtime.program import Program
    from hetsched.runtime.staged import StagedProgram

# Where each name lives; imported when first used, so that estimating from recorded measurements does without torch.
_HOME = {
    "MeasuredStages": "measured",
    "ModuleProfiler": "profiler",
    "Program": "program",
    "StagedProgram": "staged",
    "TwoStep": "estimation",
    "two_step": "estimation",
}

__all__ = ["MeasuredStages", "ModuleProfiler", "Program", "StagedProgram", "TwoStep", "two_step"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hetsched.runtime' has no attribute {name!r}")
    if _HOME[name] != "estimation":
        importlib.import_module("hetsched.frontends.torch")  # first: it says what to do where torch is missing
    value = getattr(importlib.import_module(f"hetsched.runtime.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
