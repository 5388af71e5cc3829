"""Placements of chains on devices, proven best, and what they depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.planning import tools
    from hetsched.planning.dynamic_program import LeastLatencies, LeastPeriod, least_latency, least_missing, least_period
    from hetsched.planning.explanation import DeviceLimit, Explanation, explain
    from hetsched.planning.incumbent import PlanProgress
    from hetsched.planning.planner import ModelPlan, plan
    from hetsched.planning.sensitivity import Best, MemoryStep
    from hetsched.planning.serving import ServingPlan, ServingProgress, ServingQuestion, most_throughput
    from hetsched.planning.simple_rules import Baseline

__all__ = [
    "Baseline",
    "Best",
    "DeviceLimit",
    "Explanation",
    "LeastLatencies",
    "LeastPeriod",
    "MemoryStep",
    "ModelPlan",
    "PlanProgress",
    "ServingPlan",
    "ServingProgress",
    "ServingQuestion",
    "explain",
    "least_latency",
    "least_missing",
    "least_period",
    "most_throughput",
    "plan",
    "tools",
]

_HOMES = {
    "": ["tools"],
    "dynamic_program": ["LeastLatencies", "LeastPeriod", "least_latency", "least_missing", "least_period"],
    "explanation": ["DeviceLimit", "Explanation", "explain"],
    "incumbent": ["PlanProgress"],
    "planner": ["ModelPlan", "plan"],
    "sensitivity": ["Best", "MemoryStep"],
    "serving": ["ServingPlan", "ServingProgress", "ServingQuestion", "most_throughput"],
    "simple_rules": ["Baseline"],
}
__getattr__, __dir__ = attach(__name__, _HOMES)
