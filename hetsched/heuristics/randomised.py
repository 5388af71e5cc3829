"""Randomised list scheduling with restarts."""

from __future__ import annotations

import math

import numpy as np

from hetsched.arrays import FloatArray
from hetsched.errors import UnsupportedFeature
from hetsched.heuristics.list_scheduling.offers import decision_of, list_problem, plans
from hetsched.heuristics.list_scheduling.static import place_heft, ranks
from hetsched.heuristics.memory_accounts import memory_needs
from hetsched.heuristics.pacing import bursts
from hetsched.problem.problem import Problem
from hetsched.search import Auto, Monitor, Supports, batches_given, method


@method(
    "random-heft",
    summary="restarts of HEFT with noise on ranks and finishes; keeps the best schedule",
    source="the construction phase of GRASP (Feo and Resende 1995) on HEFT, in our reading",
    supports=Supports(inputs="whole"),
    turn=330,
    auto=Auto(weight=0.5, when=batches_given),
)
def random_heft(
    problem: Problem,
    monitor: Monitor,
    *,
    rank_noise: float = 0.1,
    finish_noise: float = 0.3,
    transfer_noise: float = 15.0,
    contention: bool | None = None,
) -> None:
    """Restart HEFT with random noise; every restart is one evaluation.

    In a restart the upward rank of each task is multiplied by 1 + a x. For the choice of the device, b y
    times its duration is added to its finish on each device, so that the finish on the chosen device is
    nearly the earliest. x is uniform in [-1, 1], y in [0, 1]; the amplitudes a and b are drawn for each
    restart, up to `rank_noise` and `finish_noise`. If transfers contend, restarts plan them, or, with
    `contention` False, do not, and multiply their times by a log-uniform factor from 1 to 1 + `transfer_noise`.
    The first runs are those of HEFT itself. Without a limit it runs for 10 seconds.
    """
    from hetsched.heuristics import randomised_kernels
    from hetsched.heuristics.list_scheduling import static_kernels, transfer_kernels
    from hetsched.heuristics.local_search.states import States

    for what, noise in (("rank_noise", rank_noise), ("finish_noise", finish_noise), ("transfer_noise", transfer_noise)):
        if noise < 0:
            raise UnsupportedFeature(f"{what} is {noise}; it must be 0 or more")
    rank, _ = ranks(problem)
    need = _first(problem, monitor, contention)
    shortest = math.inf if monitor.best is None else monitor.best.makespan
    states = States(problem)
    state = states.empty()
    arrays, own = randomised_kernels.stretched(problem)
    given = list_problem(problem, need)
    placement = static_kernels.new_state(problem.n_tasks, problem.n_devices, len(need))
    transfers = transfer_kernels.new_transfers(problem.arrays, False) if plans(problem, contention)[-1] else None
    restarts = randomised_kernels.Restarts(rank, float(rank_noise), float(finish_noise), float(transfer_noise))

    def restart(runs: int, limit: float) -> tuple[int, float]:
        if transfers is not None:
            return randomised_kernels.restart_planned(given, placement, transfers, restarts, monitor.rng, runs, limit)
        unplanned = given._replace(arrays=arrays)
        return randomised_kernels.restart(states.tables, state, unplanned, own, restarts, monitor.rng, runs, limit)

    for runs in bursts(monitor, weight=float(problem.n_devices)):
        made, makespan = restart(runs, shortest)
        if math.isinf(makespan):
            monitor.evaluated(made)
        else:
            monitor.evaluated(made - 1)
            planned = transfers is not None
            decision = decision_of(problem, (placement.device, placement.sequence, -1), transfers) if planned else states.decision(state)
            if math.isfinite(monitor.offer(decision)):
                shortest = makespan


def _first(problem: Problem, monitor: Monitor, contention: bool | None) -> FloatArray:
    """Offer the schedules of HEFT; return the bytes, [n_units], that later runs should claim."""
    from hetsched.heuristics.list_scheduling import transfer_kernels

    need = np.zeros(0)
    for need in memory_needs(problem):
        fits = False
        for planned in plans(problem, contention):
            transfers = transfer_kernels.new_transfers(problem.arrays, False) if planned else None
            placed = place_heft(problem, need, transfers=transfers)
            if placed[2] < 0:
                fits = math.isfinite(monitor.offer(decision_of(problem, placed, transfers))) or fits
            if monitor.should_stop:
                return need
        if fits:
            break
    return need
