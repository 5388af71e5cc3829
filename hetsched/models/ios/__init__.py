"""Stages on one device: IOS, its dynamic program over the endings of a graph, and the size of that program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.models.ios.block_states import Block
    from hetsched.models.ios.counting import Counts, counts
    from hetsched.models.ios.dynamic_program import Progress, blocks, connected, greedy, sequential, stages

_HOMES = {
    "block_states": ["Block"],
    "counting": ["Counts", "counts"],
    "dynamic_program": ["Progress", "blocks", "connected", "greedy", "sequential", "stages"],
}

__all__ = ["Block", "Counts", "Progress", "blocks", "connected", "counts", "greedy", "sequential", "stages"]

__getattr__, __dir__ = attach(__name__, _HOMES)
