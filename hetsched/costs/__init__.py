"""Cost models: from a graph and a cluster to durations."""

from __future__ import annotations

from hetsched.costs import devices
from hetsched.costs.communication import Links
from hetsched.costs.deviations import Deviations
from hetsched.costs.devices import device
from hetsched.costs.protocol import CostModel, Measured, Profiler, StageCost
from hetsched.costs.recorded import Recorded
from hetsched.costs.regression import Regression
from hetsched.costs.roofline import Roofline
from hetsched.costs.samples import Samples
from hetsched.costs.stages import Contention, Convolution

__all__ = [
    "Contention",
    "Convolution",
    "CostModel",
    "Deviations",
    "Links",
    "Measured",
    "Profiler",
    "Recorded",
    "Regression",
    "Roofline",
    "Samples",
    "StageCost",
    "device",
    "devices",
]
