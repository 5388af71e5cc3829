"""Models as chains of items, the devices that run them in stages, and what such placements take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.chain.card import PARTS, ModelCard
    from hetsched.chain.evaluation import ChainValues, evaluate
    from hetsched.chain.flow import ServingFlow, max_flow
    from hetsched.chain.machine import Efficiency, Machine
    from hetsched.chain.offloading import Offloading
    from hetsched.chain.placement import ChainStage, Offload, Placement
    from hetsched.chain.problem import ChainProblem
    from hetsched.chain.serving import ServingPlacement, ServingProblem
    from hetsched.chain.workload import Workload

__all__ = [
    "PARTS",
    "ChainProblem",
    "ChainStage",
    "ChainValues",
    "Efficiency",
    "Machine",
    "ModelCard",
    "Offload",
    "Offloading",
    "Placement",
    "ServingFlow",
    "ServingPlacement",
    "ServingProblem",
    "Workload",
    "evaluate",
    "max_flow",
]

_HOMES = {
    "card": ["PARTS", "ModelCard"],
    "evaluation": ["ChainValues", "evaluate"],
    "flow": ["ServingFlow", "max_flow"],
    "machine": ["Efficiency", "Machine"],
    "offloading": ["Offloading"],
    "placement": ["ChainStage", "Offload", "Placement"],
    "problem": ["ChainProblem"],
    "serving": ["ServingPlacement", "ServingProblem"],
    "workload": ["Workload"],
}
__getattr__, __dir__ = attach(__name__, _HOMES)
