"""Branch and bound as a method: better schedules and refutations, until incumbent and bound are equal; and its first node as a bound."""

from __future__ import annotations

import math

import numpy as np

from hetsched.analysis.levels import Levels
from hetsched.analysis.task_subsets import RefutationBudget, SingleInputProblem, TaskSubset
from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.errors import UnsupportedFeature
from hetsched.problem.graph import plural
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision
from hetsched.search import Kind, Monitor, Role, select
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline

LARGEST = 300
"""The most tasks; memory and time of a node grow with their square."""
EVALUATIONS = 300
"""Evaluations for each task in the first search for a better schedule; those before later passes have 4, 9 and 16 times as many."""
WORK = 1e8
"""Limit of the work without a time limit: about ten seconds."""
NODES = (30, 300, 3000, 30_000, 300_000)
"""Nodes of one refutation in each pass."""
AT_ONCE, SHARE = NODES[3], 0.8
"""Nodes of the pass before which only times just below the best schedule are refuted, in a share of the time and the work left."""
FIRST_NODES = 3e7
"""Limit of the work of `orders`: about three seconds."""


@checked
def few(problem: Problem) -> bool:
    """Return whether the tasks are few enough for branch and bound over all of them."""
    return 0 < problem.n_tasks <= LARGEST


@checked
def orders(problem: Problem, *, levels: Levels | None = None, best: Bound = NO_BOUND, deadline: Deadline = NEVER) -> Bound:
    """Return the largest makespan that is refuted without a branch, by heads, tails, loads and the orders of two tasks on a device.

    Take one input of a schedule of makespan T, and its tasks alone, each for the least time that a batch of it takes on its device: none
    of them begins earlier than its head, and after each there is its tail. Contention and other inputs only lengthen. What follows is
    repeated until heads and tails stay; read from the end, what is said of heads holds for tails.

    *Parents.* From another device the data of a parent reach device k at some time at the earliest. Those parents of a task on k for which
    that is later than its start run on k, one after another, none before its head. So the start is at least the least time by which
    the parents that this time leaves on k can end there.

    *Orders.* Of two tasks that take time and have one device left, the same, one is the first; where head, both durations and tail of one
    order exceed T it is the other one, which raises the head of the later task and the tail of the earlier one.

    *Loads.* Give each device a price, all together 1. A set of tasks costs at least the sum of what each costs where it is cheapest. A
    device is free for the set for no more than T, less the least head and the least tail of those of the set that may run on it; one on
    which none runs is free for nothing. So the cost is at most the sum of prices times what is free. Devices that are alike for the set
    have equal prices; the first tasks on those that work are distinct, so their heads are in total no less than as many of the least, and
    so are the tails of the last ones. A task that comes after all of a set starts no earlier than the set can end.

    *Devices.* A task cannot run where head, duration and tail exceed T, nor can those that are co-located with it; and the weights of tasks
    with one device left have to fit its memory. If a task is left without a device, weights do not fit, or a set costs more than
    what is free, there is no such schedule. Where all times are multiples of a number, so is the makespan of some shortest schedule, and
    the bound is rounded up to one.
    """
    levels = Levels(problem) if levels is None else levels
    subset = _everything(SingleInputProblem(problem, levels.least))
    value = subset.least([subset.node()], RefutationBudget(deadline=deadline, most=FIRST_NODES), best.value)
    return Bound(
        value, "orders", f"heads, tails, loads, and orders of two of {plural(problem.n_tasks, 'task')} on a device contradict each other"
    )


def branch(problem: Problem, monitor: Monitor, upper: float = math.inf, nodes: int = NODES[-1], search: bool = True) -> None:
    """Shorten schedules and raise the bound by branch and bound over all tasks; see the method ``"branch"``."""
    if problem.n_tasks > LARGEST:
        raise UnsupportedFeature(f"branch takes up to {LARGEST} tasks, but there are {problem.n_tasks}; use method 'split' or a search")
    if search and nodes > 1:
        for start in select(role=Role.START, problem=problem):
            monitor.run(start.name)
    subset = _everything(SingleInputProblem(problem))
    node = subset.node()
    limited = math.isfinite(monitor.time_left)
    budget = RefutationBudget(
        deadline=monitor.deadline,
        most=math.inf if limited else WORK,
        stop=lambda: monitor.should_stop,
        found=lambda subset: monitor.offer(_decision(subset)),
    )
    low = 0.0
    for number, most in enumerate(NODES):
        if search and number and monitor.best is not None and nodes > NODES[0]:
            _search(problem, monitor, number - 1)
        if monitor.should_stop or budget.over:
            return
        if most == AT_ONCE <= nodes and monitor.best is not None:
            whole = budget.most
            budget.nodes, budget.deadline, budget.most = nodes, monitor.deadline.part(SHARE), budget.work + SHARE * (whole - budget.work)
            low = max(low, _at_once(subset, node, budget, min(upper, monitor.incumbent), monitor))
            budget.deadline, budget.most = monitor.deadline, whole
        budget.nodes, budget.open = min(most, nodes), 0
        low = subset.least([node], budget, low, min(upper, monitor.incumbent))
        monitor.raise_bound(Bound(low, "branch", f"devices and orders of {problem.n_tasks} tasks, every one refuted"))
        if not budget.open or most >= nodes:
            return


def _everything(single_input: SingleInputProblem) -> TaskSubset:
    """Return the subset of all tasks and edges."""
    problem = single_input.problem
    return TaskSubset(single_input, np.arange(problem.n_tasks), np.arange(problem.graph.n_edges))


def _at_once(subset: TaskSubset, node: FloatArray, budget: RefutationBudget, best: float, monitor: Monitor) -> float:
    """Refute all times below the best schedule in one step, again after every shorter one; return what is refuted, or 0."""
    while True:
        answer = subset.refute(node, math.nextafter(best, 0.0), budget)
        if answer is True:
            return best
        if answer is False or monitor.incumbent >= best:  # with contention the schedule found may be longer
            return 0.0
        best = monitor.incumbent


def _search(problem: Problem, monitor: Monitor, number: int) -> None:
    """Search for a better schedule for a limited time, by the search of a number, longer for later ones."""
    evaluations = EVALUATIONS * (number + 1) ** 2 * problem.n_tasks
    searches = select(kind=Kind.SEARCH, objective="makespan", auto=True)
    search = searches[number % len(searches)]
    solution = monitor.subsolve(problem, search.name, time_limit=monitor.time_limit(0.1), evaluations=evaluations, start=monitor.best)
    if solution.schedule is not None:
        monitor.offer(solution.schedule.decision)


def _decision(subset: TaskSubset) -> Decision:
    """Return the decision of the schedule that has just been found."""
    device, start = subset.schedule()
    order = np.lexsort((np.arange(len(start)), start))  # the subset's tasks are in topological order
    return Decision(subset.tasks[order], device[order])
