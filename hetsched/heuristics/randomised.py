"""Randomised list scheduling with restarts."""

from __future__ import annotations

import math

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.list_scheduling.offers import list_problem
from hetsched.heuristics.list_scheduling.static import place_heft, ranks
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.heuristics.pacing import bursts
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Auto, Monitor, Supports, method


@method(
    "random-heft",
    summary="restarts of HEFT with noise on ranks and finishes; keeps the best schedule",
    source="the construction phase of GRASP (Feo and Resende 1995) on HEFT, in our reading",
    supports=Supports(inputs="whole"),
    turn=330,
    auto=Auto(weight=0.5),
)
def random_heft(
    problem: Problem, monitor: Monitor, *, rank_noise: float = 0.1, finish_noise: float = 0.3, transfer_noise: float = 15.0
) -> None:
    """Restart HEFT with random noise; every restart is one evaluation.

    In a restart the upward rank of each task is multiplied by 1 + a x. For the choice of the device, b y
    times its duration is added to its finish on each device, so that the finish on the chosen device is
    nearly the earliest. x is uniform in [-1, 1], y in [0, 1]; the amplitudes a and b are drawn for each
    restart, up to `rank_noise` and `finish_noise`. If transfers contend, which HEFT ignores, a restart
    multiplies their times by a log-uniform factor from 1 to 1 + `transfer_noise`. The first run is HEFT
    itself. Without a limit it runs for 10 seconds.
    """
    from hetsched.heuristics import randomised_kernels
    from hetsched.heuristics.local_search.states import States

    for what, noise in (("rank_noise", rank_noise), ("finish_noise", finish_noise), ("transfer_noise", transfer_noise)):
        if noise < 0:
            raise UnsupportedFeature(f"{what} is {noise}; it must be 0 or more")
    rank, _ = ranks(problem)
    need = _first(problem, monitor)
    shortest = math.inf if monitor.best is None else monitor.best.makespan
    states = States(problem)
    state = states.empty()
    arrays, own = randomised_kernels.stretched(problem)
    given = list_problem(problem, need)._replace(arrays=arrays)
    restarts = randomised_kernels.Restarts(rank, float(rank_noise), float(finish_noise), float(transfer_noise))
    for runs in bursts(monitor, weight=float(problem.n_devices)):
        made, makespan = randomised_kernels.restart(states.tables, state, given, own, restarts, monitor.rng, runs, shortest)
        if math.isinf(makespan):
            monitor.evaluated(made)
        else:
            monitor.evaluated(made - 1)
            if math.isfinite(monitor.offer(states.decision(state))):
                shortest = makespan


def _first(problem: Problem, monitor: Monitor) -> FloatArray:
    """Offer the schedule of HEFT; return the bytes, [n_units], that later runs should claim."""
    need = np.zeros(0)
    for need in memory_needs(problem):
        device, sequence, stuck = place_heft(problem, need)
        if (stuck < 0 and math.isfinite(monitor.offer(Decision.whole(problem, device, sequence)))) or monitor.should_stop:
            break
    return need
