"""Running and measuring PyTorch modules task by task, and moving tasks between devices while a graph runs.

Only the parts that run modules need torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach
from hetsched.runtime.assistants import Assistants
from hetsched.runtime.compare import Comparison, compare, verify_run
from hetsched.runtime.estimation import TwoStep, two_step
from hetsched.runtime.forecast import forecast
from hetsched.runtime.iterations import Observation, Policy, Run, Runner, Static, iterate
from hetsched.runtime.plan import Plan
from hetsched.runtime.resolving import Resolve
from hetsched.runtime.scenario import Interference, LessMemory, Scenario, SlowDown, SlowLink
from hetsched.runtime.searching import SearchingAssistants
from hetsched.runtime.tags import Tag, tags

if TYPE_CHECKING:
    from hetsched.runtime.executor import Executor, StreamTimes
    from hetsched.runtime.measured import MeasuredStages
    from hetsched.runtime.messages import MessageCosts
    from hetsched.runtime.profiler import ModuleProfiler
    from hetsched.runtime.profiling import network, profile
    from hetsched.runtime.program import Program
    from hetsched.runtime.ranks import Ranks
    from hetsched.runtime.staged import StagedProgram
    from hetsched.runtime.training import TrainingProgram
    from hetsched.runtime.training_profiler import TrainingProfiler

__all__ = [
    "Assistants",
    "Comparison",
    "Executor",
    "Interference",
    "LessMemory",
    "MeasuredStages",
    "MessageCosts",
    "ModuleProfiler",
    "Observation",
    "Plan",
    "Policy",
    "Program",
    "Ranks",
    "Resolve",
    "Run",
    "Runner",
    "Scenario",
    "SearchingAssistants",
    "SlowDown",
    "SlowLink",
    "StagedProgram",
    "Static",
    "StreamTimes",
    "Tag",
    "TrainingProfiler",
    "TrainingProgram",
    "TwoStep",
    "compare",
    "forecast",
    "iterate",
    "network",
    "profile",
    "tags",
    "two_step",
    "verify_run",
]

_HOMES = {
    "executor": ["Executor", "StreamTimes"],
    "measured": ["MeasuredStages"],
    "messages": ["MessageCosts"],
    "profiler": ["ModuleProfiler"],
    "profiling": ["network", "profile"],
    "program": ["Program"],
    "ranks": ["Ranks"],
    "staged": ["StagedProgram"],
    "training": ["TrainingProgram"],
    "training_profiler": ["TrainingProfiler"],
}
"""The names that need torch, which takes seconds to import and may be missing."""

__getattr__, __dir__ = attach(__name__, _HOMES, extras={"torch": "torch"})
