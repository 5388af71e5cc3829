"""DiviML's lower bound for graphs of modules: whichever of the tensors handed over comes last, something waits for it.

Let modules M_1, ..., M_Q be a partition of the tasks in which every edge stays in its module or leads
to a later one, and follow one input through a schedule. A batch of it takes at least the shortest
duration, and two of its tasks on one device do not overlap, so all that is said here holds for any
number of inputs, both batchings and every communication model.

*Ends.* Let X be tasks of the first t modules, A those and all they depend on. A is done no sooner than
the bound of any problem made of tasks of A and edges between them. The last task of A to finish can be
taken from X, and among them from those that no other task of A depends on: whoever depends on it
finishes no sooner. What depends on the last of X starts after that; hence
``OPT(V) >= OPT(A) + min over ends u in X of OPT(tasks that depend on u)``: DiviML's inequality, for any
bounds in the place of OPT. It needs A instead of all of M_1, which may have dangling tasks that nobody
waits for.

*Heads.* Rather than adding up bounds, they are turned into earliest starts. For each end u of module t
and each device k there is ``release(u, k)``, the earliest start of u on k, and for sets X of ends
``last(X, u, k)``, the same if u is the last of X to finish. Both come from a window: the ancestors, in the
modules t - w + 1 to t, of u (of all of X, for the second), with u on k, and the earlier tasks Y that
they read. Some task of Y is the last of Y to finish, on some device: for each such case the window's
makespan is bounded with that start of ``last(Y, ...)`` and the releases of the others, and the least of
the cases holds. So bounds add up over all modules, with a minimum at each boundary, and transfers
between modules count where they cannot be avoided.

*Tails* are the heads of the problem read from the end. A window in the middle, between the heads of
what comes before and the tails of what comes after, then bounds the makespan; so does destructive
improvement with heads and tails.

Several inputs are dealt with by `hetsched.bounds.batches` besides.

Source: DiviML, section IV-B.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor

import numpy as np
import numpy.typing as npt

from hetsched.analysis.levels import Levels
from hetsched.analysis.modules import modules as partition
from hetsched.analysis.task_subsets import RefutationBudget, SingleInputProblem
from hetsched.arguments import checked
from hetsched.arrays import IntArray
from hetsched.bounds.batches import LARGEST, handover
from hetsched.bounds.combinatorial import critical_path
from hetsched.bounds.destructive import destructive
from hetsched.bounds.recursive import recursive
from hetsched.bounds.release_times import ReleaseTimes
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device
from hetsched.problem.graph import TaskGraph, named, plural
from hetsched.problem.problem import Problem, stated
from hetsched.search.solution import NO_BOUND, Bound
from hetsched.stopping import NEVER, Deadline

_SMALL = 2000
"""The most tasks of a graph that by default is divided at more than one channel."""
TYPICAL = 16
"""The most tasks of a module if the channels permit."""
LITERAL_NODES = 1000
"""Nodes of one refutation in the literal form."""
WORK = 5e6
"""Limit of the work without a time limit: about a second."""
_PASSES = (
    (1, 1),
    (1, 10),
    (1, 100),
    (2, 30),
    (1, 1000),
    (2, 300),
    (3, 100),
    (1, 10_000),
    (2, 3000),
    (3, 1000),
    (1, 100_000),
    (3, 10_000),
    (4, 10_000),
)
"""Modules of a window and nodes of a refutation in each pass."""


@checked
def modular(
    problem: Problem,
    *,
    levels: Levels | None = None,
    best: Bound = NO_BOUND,
    deadline: Deadline = NEVER,
    modules: Iterable[npt.ArrayLike] | None = None,
    literal: bool = False,
    executor: Executor | None = None,
) -> Bound:
    """Return the best bound found module by module: on heads, on tails, and on inputs that follow one another.

    Pass after pass windows grow and are looked into more deeply; what has been proven is kept, so more
    time never gives less. Where one window holds everything, that is branch and bound over devices and
    orders, which proves optima. Modules of more than 120 tasks count with their longest paths.

    Parameters
    ----------
    problem : Problem
    levels : Levels, optional
        Levels of the problem.
    best : Bound, optional
        Not used, for a bound on the problem does not shorten the passes.
    modules : iterable of int arrays, optional
        The tasks of each module; every edge stays in its module or leads to a later one. Default: those
        of `hetsched.analysis.modules`, of at most 16 tasks if four channels allow.
    deadline : Deadline
        The end; without one the work takes about a second.
    literal : bool
        The recursion as DiviML prints it, see `hetsched.bounds.recursive`, instead; it takes as long as `LITERAL_NODES` nodes of
        each part of a module need. For more than 4000 tasks it is the critical path.
    executor : concurrent.futures.Executor, optional
        With `literal` parts of modules are bounded side by side.

    Raises
    ------
    InvalidProblem
        The modules are not such a partition.
    """
    parts = [] if modules is None else _checked(problem.graph, modules)
    levels = Levels(problem) if levels is None else levels
    proof = critical_path(problem, levels=levels)
    result = Bound(proof.value, "modular", proof.evidence)
    if math.isinf(proof.value) or not problem.n_tasks or deadline.over:
        return result
    parts = parts or _default(problem.graph)
    if literal:
        if problem.n_tasks > LARGEST:
            return result
        value = recursive(SingleInputProblem(problem, levels.least), parts, LITERAL_NODES, deadline, executor=executor)
        return Bound(value, "modular", f"DiviML's recursion over {plural(len(parts), 'module')}")
    budget = RefutationBudget(deadline=deadline, most=WORK if math.isinf(deadline.end) else math.inf)
    for passed in _every(levels, parts, budget):
        result = max(result, passed, key=lambda candidate: candidate.value)
    return result


def _default(graph: TaskGraph) -> list[IntArray]:
    """Return modules of a few tasks; of large graphs those with one channel, which are computed fast."""
    return partition(graph, channels=None if graph.n_tasks <= _SMALL else 1, largest=TYPICAL).tasks()


def _every(levels: Levels, modules: list[IntArray], budget: RefutationBudget) -> Iterator[Bound]:
    """Yield the bound of each pass."""
    problem = levels.problem
    turned = reverse(problem)
    heads, tails = ReleaseTimes(problem, levels.least, modules), ReleaseTimes(turned, levels.least, modules[::-1])
    what = f"{plural(len(modules), 'module')}, at most {plural(heads.channels, 'channel')}"
    if problem.inputs > 1:
        for side, parts, read in ((problem, modules, "past"), (turned, modules[::-1], "ahead of")):
            passing = handover(side, parts, budget.deadline)
            few, passed = plural(passing.inputs, "input"), plural(passing.boundary, "module")
            yield Bound(passing.value, "modular", f"{what}: {few} {read} {passed}, the others still to come")
    finished: set[int] = set()
    combined = False
    widest = len(modules) if heads.channels > 1 else 1  # with one channel nothing is lost at a boundary
    passes = [(width, nodes) for width, nodes in _PASSES if width <= widest and any(heads.subset(t, width) for t in range(len(modules)))]
    for number, (width, nodes) in enumerate(passes):
        if width in finished:
            continue
        budget.nodes, budget.open = nodes, 0
        heads.raise_(width, budget)
        tails.raise_(width, budget)
        best = _joined(heads, tails, width, budget, what)
        yield best
        if math.isinf(best.value):
            return
        if not budget.open:
            finished.add(width)
        if not combined and (number == 1 or not budget.open):  # heads are nearly what they will be
            combined = True
            within = destructive(problem, levels=levels, best=best, deadline=budget.deadline, release=heads.release, delivery=tails.release)
            yield Bound(within.value, "modular", f"{what}: heads and tails of all tasks, and loads between them")
        if budget.over:
            return


def _joined(heads: ReleaseTimes, tails: ReleaseTimes, width: int, budget: RefutationBudget, what: str) -> Bound:
    """Return the better of the bounds by heads and tails for a task and for a window."""
    through = (heads.release + heads.single_input.least + tails.release).min(axis=1)
    i = int(through.argmax())
    best = Bound(float(through[i]), "modular", f"{what}: head and tail of {heads.single_input.problem.graph.names[i]!r}")
    for t in range(len(heads.modules)):
        value = heads.join(t, width, tails.release, budget)
        if value > best.value:
            where = f"heads up to module {t + 1} and tails beyond it" if len(heads.modules) > 1 else "devices and orders of its tasks"
            best = Bound(value, "modular", f"{what}: {where}")
    return best


def _checked(graph: TaskGraph, modules: Iterable[npt.ArrayLike]) -> list[IntArray]:
    """Return the modules without empty ones."""
    parts = [np.asarray(tasks) for tasks in modules]
    module = np.full(graph.n_tasks, -1)
    for t, tasks in enumerate(parts):
        if tasks.ndim != 1 or not (np.issubdtype(tasks.dtype, np.integer) or not len(tasks)):
            raise InvalidProblem(f"modules[{t}] is {tasks!r}; it must be a list of task indices")
        if len(tasks) and not (0 <= tasks.min() and tasks.max() < graph.n_tasks):
            raise InvalidProblem(f"modules[{t}] has task indices {tasks.min()} to {tasks.max()}; they must be in 0 to {graph.n_tasks - 1}")
        module[tasks.astype(np.int64)] = t
    members = np.concatenate([np.zeros(0, np.int64), *parts])
    times = np.bincount(members.astype(np.int64), minlength=graph.n_tasks)
    if (times != 1).any():
        odd = np.flatnonzero(times != 1)
        raise InvalidProblem(f"{named(odd, graph.names)}: in no module, or in more than one; each task must be in one")
    back = np.flatnonzero(module[graph.source] > module[graph.target])
    if len(back):
        i, j = graph.edges[back[0]].tolist()
        raise InvalidProblem(
            f"edge {graph.names[i]!r} -> {graph.names[j]!r} leads from module {module[i]} back to module {module[j]}; put modules in order"
        )
    return [tasks.astype(np.int64) for tasks in parts if len(tasks)]


@checked
def reverse(problem: Problem) -> Problem:
    """Return the problem with all edges and links turned round: its schedules are those of the problem read from the end.

    Peak memory, which depends on what comes first, is reduced to that for weights.
    """
    graph, cluster = problem.graph, problem.cluster
    kept = float(problem.memory == "static")
    turned = TaskGraph(
        graph.names,
        graph.edges[:, ::-1],
        edge_bytes=graph.edge_bytes,
        colocation=graph.colocation,
        weight_bytes=graph.weight_bytes,
        input_bytes=graph.input_bytes * kept,
        output_bytes=graph.output_bytes * kept,
    )
    network = Cluster(
        [Device(device.name, memory_bytes=device.memory_bytes) for device in cluster.devices],
        bandwidth=cluster.route_bandwidth.T,
        latency=np.where(cluster.route_bandwidth > 0, cluster.route_latency, 0.0).T,
    )
    return Problem(
        turned,
        network,
        durations=stated(problem.usable_durations),
        batch_sizes=problem.batch_sizes,
        inputs=problem.inputs,
        batching=problem.batching,
        communication=problem.communication,
        transfers=None if problem.transfers is None else problem.transfers.transpose(0, 2, 1),
    )
