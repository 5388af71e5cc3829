"""Pesto: Moirai's formulation on a pair of devices."""

from __future__ import annotations

from hetsched.arguments import checked
from hetsched.errors import UnsupportedFeature
from hetsched.models.moirai import CongestionAware
from hetsched.problem.problem import Problem
from hetsched.search import Supports


class Pesto(CongestionAware):
    """Moirai's formulation on two devices with a shared channel, the setting of Pesto's integer program.

    Pesto (Hafeez et al. 2021) merges operations first; its program for the coarse graph is this one, with
    one binary for each task, transfers as tasks on the channels and memory rows.
    """

    name = "pesto"
    supports = Supports(communication=("channel",), memory=("static",))

    @classmethod
    @checked
    def check(cls, problem: Problem, *, faithful: bool = False) -> None:
        super().check(problem, faithful=faithful)
        if problem.n_devices != 2:
            raise UnsupportedFeature(f"{cls.name} places on two devices, not {problem.n_devices}; use CongestionAware (method 'moirai')")
