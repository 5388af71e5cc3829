"""Running PyTorch modules task by task, and measuring what stages of tasks cost. Needs torch."""

from __future__ import annotations

from hetsched.frontends import torch as _  # noqa: F401 (first: it says what to do where torch is missing)
from hetsched.runtime.measured import MeasuredStages
from hetsched.runtime.program import Program
from hetsched.runtime.staged import StagedProgram

__all__ = ["MeasuredStages", "Program", "StagedProgram"]
