"""Cost models: from a graph and a cluster to durations."""

from __future__ import annotations

from hetsched.costs import devices
from hetsched.costs.devices import device
from hetsched.costs.protocol import CostModel, StageCost
from hetsched.costs.roofline import Roofline
from hetsched.costs.stages import Contention, Convolution

__all__ = ["Contention", "Convolution", "CostModel", "Roofline", "StageCost", "device", "devices"]
