"""Cost models: from a graph and a cluster to durations."""

from __future__ import annotations

from hetsched.costs import devices
from hetsched.costs.communication import Links
from hetsched.costs.deviations import Deviations
from hetsched.costs.devices import device
from hetsched.costs.machine import Machine, Overhead
from hetsched.costs.protocol import CostModel, Measured, Profiler, StageCost
from hetsched.costs.recorded import Recorded
from hetsched.costs.regression import Regression
from hetsched.costs.roofline import Roofline
from hetsched.costs.samples import Samples
from hetsched.costs.stages import Contention, Convolution
from hetsched.costs.timeline import RunTimes, Timeline

__all__ = [
    "Contention",
    "Convolution",
    "CostModel",
    "Deviations",
    "Links",
    "Machine",
    "Measured",
    "Overhead",
    "Profiler",
    "Recorded",
    "Regression",
    "Roofline",
    "RunTimes",
    "Samples",
    "StageCost",
    "Timeline",
    "device",
    "devices",
]
