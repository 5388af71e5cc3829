"""Running and measuring PyTorch modules task by task, and moving tasks between devices while a graph runs.

What runs modules needs torch; the rest does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hetsched.runtime.assistants import Assistants
from hetsched.runtime.estimation import TwoStep, two_step
from hetsched.runtime.iterations import Policy, Report, Run, Static, iterate
from hetsched.runtime.resolving import Resolve
from hetsched.runtime.scenario import Interference, Scenario, SlowDown
from hetsched.runtime.tags import Tag, tags

if TYPE_CHECKING:
    from hetsched.runtime.measured import MeasuredStages
    from hetsched.runtime.profiler import ModuleProfiler
    from hetsched.runtime.program import Program
    from hetsched.runtime.staged import StagedProgram

__all__ = [
    "Assistants",
    "Interference",
    "MeasuredStages",
    "ModuleProfiler",
    "Policy",
    "Program",
    "Report",
    "Resolve",
    "Run",
    "Scenario",
    "SlowDown",
    "StagedProgram",
    "Static",
    "Tag",
    "TwoStep",
    "iterate",
    "tags",
    "two_step",
]

_NEEDS_TORCH = {"MeasuredStages": "measured", "ModuleProfiler": "profiler", "Program": "program", "StagedProgram": "staged"}
"""Where each name lives that is imported when first used: torch takes seconds, and may be missing."""


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module 'hetsched.runtime' has no attribute {name!r}")
    importlib.import_module("hetsched.frontends.torch")  # first: it says what to do where torch is missing
    value = getattr(importlib.import_module(f"hetsched.runtime.{_NEEDS_TORCH[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
