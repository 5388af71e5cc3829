"""Workloads to try things on: generated graphs, shipped networks, the papers' clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach
from hetsched.workloads.rwnn import rwnn  # the function: it takes the place of the module of its name

if TYPE_CHECKING:
    from hetsched.workloads import clusters, networks, transformers
    from hetsched.workloads.transformers import gpt3

__all__ = ["clusters", "gpt3", "networks", "rwnn", "transformers"]

_HOMES = {"": ["clusters", "networks", "transformers"], "transformers": ["gpt3"]}
__getattr__, __dir__ = attach(__name__, _HOMES)
