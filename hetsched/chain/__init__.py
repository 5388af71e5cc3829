"""Models as chains of items, the devices that run them in stages, and what such placements take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.chain.card import PARTS, ModelCard
    from hetsched.chain.evaluation import ChainValues, evaluate
    from hetsched.chain.machine import Efficiency, Machine
    from hetsched.chain.placement import ChainStage, Placement
    from hetsched.chain.problem import ChainProblem
    from hetsched.chain.workload import Workload

__all__ = ["PARTS", "ChainProblem", "ChainStage", "ChainValues", "Efficiency", "Machine", "ModelCard", "Placement", "Workload", "evaluate"]

_HOMES = {
    "card": ["PARTS", "ModelCard"],
    "evaluation": ["ChainValues", "evaluate"],
    "machine": ["Efficiency", "Machine"],
    "placement": ["ChainStage", "Placement"],
    "problem": ["ChainProblem"],
    "workload": ["Workload"],
}
__getattr__, __dir__ = attach(__name__, _HOMES)
