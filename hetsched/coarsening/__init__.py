"""Smaller problems whose tasks are clusters of tasks, and the lift of their decisions."""

from __future__ import annotations

from hetsched.coarsening.coarse import Coarsening, acyclic, ccr, contract, settled
from hetsched.coarsening.fusion_rules import RULES, fuse
from hetsched.coarsening.matching import degree_one, heavy_edges, hierarchy
from hetsched.coarsening.modules import by_module
from hetsched.coarsening.sequential import operation_fusion, topological_order

__all__ = [
    "RULES",
    "Coarsening",
    "acyclic",
    "by_module",
    "ccr",
    "contract",
    "degree_one",
    "fuse",
    "heavy_edges",
    "hierarchy",
    "operation_fusion",
    "settled",
    "topological_order",
]
