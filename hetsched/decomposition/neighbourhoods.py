"""Large neighbourhood search: parts of a schedule solved again by branch and bound."""

from __future__ import annotations

from hetsched.analysis.model_size import pairs
from hetsched.analysis.modules import falls_apart
from hetsched.decomposition.sweeps import LARGEST, MOST_DEVICES, Sweeps, evaluations_left
from hetsched.errors import UnsupportedFeature
from hetsched.problem.problem import Problem
from hetsched.schedule import memory
from hetsched.search import Auto, Monitor, Role, Supports, method, select

COUNTED = 10_000
"""The most tasks of a graph whose pairs are counted for `auto`, which takes 30 ms."""


def _in_series(problem: Problem) -> bool:
    """Return whether `auto` runs the search: if precedence orders at least half of the pairs of tasks.

    That is so for modules in series, whatever joins them, if none has more than half of the tasks. Windows are solved without contention
    and peak memory, so `auto` does not run it where these decide.
    """
    if problem.links.contended or problem.n_devices > MOST_DEVICES or memory.timed(problem):
        return False
    if problem.n_tasks > COUNTED:
        return falls_apart(problem, problem.n_tasks // 2)
    together, free = pairs(problem)
    return 2 * free <= together > 0


@method(
    "lns",
    summary="large neighbourhood search: windows of the schedule solved again by branch and bound",
    source="P. Shaw 1998, over the branch and bound of this package",
    supports=Supports(inputs="one", besides=f"more than {MOST_DEVICES} devices"),
    turn=325,
    auto=Auto(weight=3.0, when=_in_series, uninterrupted=falls_apart),
)
def lns(problem: Problem, monitor: Monitor, *, largest: int = LARGEST) -> None:
    """Solve windows of the best schedule again, all other decisions kept, until many in a row are not shorter.

    A window has tasks that start one after another or are connected. It is solved by branch and bound, as if
    transfers did not contend; the joint decision is simulated. The search begins with the best schedule, or that of list
    schedulers.

    Parameters
    ----------
    largest : int
        The most tasks of a window; the first windows have at most 8.
    """
    if problem.n_devices > MOST_DEVICES:
        raise UnsupportedFeature(f"windows are solved for at most {MOST_DEVICES} devices, not {problem.n_devices}; use method 'annealing'")
    if monitor.best is None:
        for start in select(role=Role.START, problem=problem):
            monitor.run(start.name)
    if monitor.best is None or monitor.should_stop:
        return
    Sweeps(problem, monitor, monitor.best, None, 1, monitor.deadline, evaluations_left(monitor), largest).run()
