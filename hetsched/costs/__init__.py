"""Cost models: from a graph and a cluster to durations."""

from __future__ import annotations

from hetsched.costs import devices
from hetsched.costs.devices import device
from hetsched.costs.protocol import CostModel
from hetsched.costs.roofline import Roofline

__all__ = ["CostModel", "Roofline", "device", "devices"]
