"""Workloads: generated graphs, shipped networks, clusters of the papers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach
from hetsched.workloads.rwnn import rwnn  # the function, which replaces the module of the same name

if TYPE_CHECKING:
    from hetsched.workloads import clusters, networks, transformers, units
    from hetsched.workloads.transformers import gpt3

__all__ = ["clusters", "gpt3", "networks", "rwnn", "transformers", "units"]

_HOMES = {"": ["clusters", "networks", "transformers", "units"], "transformers": ["gpt3"]}
__getattr__, __dir__ = attach(__name__, _HOMES)
