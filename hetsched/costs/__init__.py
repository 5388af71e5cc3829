"""Cost models: from a graph and a cluster to durations."""

from __future__ import annotations

from hetsched.costs import devices, profiles
from hetsched.costs.analytic import Analytic, Family
from hetsched.costs.communication import Links
from hetsched.costs.deviations import Deviations
from hetsched.costs.devices import device
from hetsched.costs.language import LanguageRoofline
from hetsched.costs.machine import Machine, Overhead
from hetsched.costs.measurements import CopyTime, Network, Operator, ProfiledDevice, StageTime, TaskTime
from hetsched.costs.profile import Profile
from hetsched.costs.profile_comparison import ProfileComparison, compare_profiles
from hetsched.costs.profiled import Profiled
from hetsched.costs.protocol import CostModel, DescribedProfiler, KernelModel, Kernels, Measured, Profiler, StageCost
from hetsched.costs.rates import Rate, Rates
from hetsched.costs.recording import Recorder, measure
from hetsched.costs.regression import Regression
from hetsched.costs.roofline import Roofline
from hetsched.costs.stages import Contention
from hetsched.costs.timeline import RunTimes, Timeline
from hetsched.problem import interconnects

__all__ = [
    "Analytic",
    "Contention",
    "CopyTime",
    "CostModel",
    "DescribedProfiler",
    "Deviations",
    "Family",
    "KernelModel",
    "Kernels",
    "LanguageRoofline",
    "Links",
    "Machine",
    "Measured",
    "Network",
    "Operator",
    "Overhead",
    "Profile",
    "ProfileComparison",
    "Profiled",
    "ProfiledDevice",
    "Profiler",
    "Rate",
    "Rates",
    "Recorder",
    "Regression",
    "Roofline",
    "RunTimes",
    "StageCost",
    "StageTime",
    "TaskTime",
    "Timeline",
    "compare_profiles",
    "device",
    "devices",
    "interconnects",
    "measure",
    "profiles",
]
