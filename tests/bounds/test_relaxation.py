"""Bounds of formulations: at most the optimum, independent of the tolerance of a solver, and in time."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hetsched as hs
from hetsched.bounds import best, relaxation
from hetsched.bounds.best import BoundFunction
from hetsched.errors import UnsupportedFeature
from hetsched.models.methods import formulate
from hetsched.stopping import Deadline
from hetsched.testing import corpus
from tests import golden


def test_the_dual_bound_reaches_the_optimum() -> None:
    linear, dual = (bound(golden.topcuoglu()) for bound in (relaxation.linear_relaxation, relaxation.dual_bound))
    assert 0 < linear.value <= dual.value == pytest.approx(73, rel=1e-5)
    assert (linear.name, dual.name) == ("linear relaxation", "milp by scip")
    assert dual.value <= 73


def test_fractions_fill_both_devices() -> None:
    """Three tasks of 2 s on two devices: half of one task on each. Without contention a row has what branch and bound refutes."""
    graph, cluster = hs.TaskGraph(["a", "b", "c"]), hs.Cluster(["x", "y"], bandwidth=1)
    for communication, least in (("port", 3), ("delay", 4)):
        problem = hs.Problem(graph, cluster, durations=np.full((3, 2), 2.0), communication=communication)
        assert relaxation.relax(formulate(problem)).value == pytest.approx(least, rel=1e-6)
        assert relaxation.linear_relaxation(problem).value == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("bound", [relaxation.linear_relaxation, relaxation.dual_bound], ids=lambda function: function.__name__)
@pytest.mark.parametrize("feature", ["plain", "static memory", "several inputs", "port"])
def test_they_are_never_above_a_stored_optimum(bound: BoundFunction, feature: corpus.Feature) -> None:
    """On a few problems of the corpus; the suites, with more problems, are slow tests."""
    for case in corpus.sample(feature)[:4]:
        if relaxation.small(case.problem):
            optimum = math.inf if case.optimum is None else case.optimum
            assert bound(case.problem, deadline=Deadline.after(60)).value <= optimum * (1 + 1e-9), case.name


def test_nothing_beyond_the_upper_bound_is_claimed() -> None:
    """If the linear program has no solution below the upper bound, the schedule of that makespan may be optimal."""
    problem = golden.topcuoglu()
    assert relaxation.relax(formulate(problem, upper=60.0)).value <= 60
    assert relaxation.linear_relaxation(problem).value <= 73


@pytest.mark.parametrize("memory", ["static", "peak"])
def test_only_the_optimum_of_the_problem_itself_ends_the_bounds(memory: str) -> None:
    """The optimum without peak memory counted as that of the problem, so that no bound came after it."""
    graph = hs.workloads.rwnn("er", 6, modules=3, seed=0)
    durations = np.random.default_rng(0).integers(1, 9, (graph.n_tasks, 2)).astype(float)
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1e6), durations=durations, memory=memory)
    one = relaxation.split_modules(problem, deadline=Deadline.after(60.0))
    assert isinstance(one, relaxation.Optimum) == (memory == "static")
    names = [proof.name for proof in best.every(problem, deadline=Deadline.after(60.0))]
    assert names.index("split") < len(names) - 1 if memory == "peak" else names[-1] == "split"


def test_what_no_formulation_supports_is_relaxed_or_refused() -> None:
    graph = hs.TaskGraph(["a"], weight_bytes=9)
    small = hs.Cluster([hs.Device("x", memory_bytes=5)])
    peak = hs.Problem(graph, small, durations=[[1]], memory="peak")
    assert relaxation.relax_to_modelable(peak).cluster.memory_bytes.tolist() == [math.inf]
    for n, communication in ((2, "port"), (60, "delay")):
        chain = hs.TaskGraph([f"t{i}" for i in range(n)], [(f"t{i}", f"t{i + 1}") for i in range(n - 1)])
        cluster = hs.Cluster(["x", "y"], bandwidth=1.0)
        contended = hs.Problem(chain, cluster, durations=np.ones((n, 2)), inputs=2, communication="port", batch_sizes=[2])
        assert relaxation.relax_to_modelable(contended).communication == communication
    free = hs.Problem(graph, small, durations=[[1]], inputs=2, batch_sizes=[1], batching="free")
    assert not relaxation.small(free)
    with pytest.raises(UnsupportedFeature, match="batching='free'"):
        relaxation.relax_to_modelable(free)


def test_without_time_there_is_no_bound() -> None:
    problem = golden.topcuoglu()
    assert relaxation.relax(formulate(problem), Deadline.after(0)).value == 0


@pytest.mark.slow
def test_they_are_among_all_bounds_where_there_is_time() -> None:
    """Solvers run only under a time limit, and not with ``models=False``."""
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "b", 2), ("c", "d", 3)])
    problem = hs.Problem(graph, hs.Cluster(["x", "y"], bandwidth=1), durations=[[2, 3], [4, 1], [2, 2], [3, 5]], communication="port")
    names = {bound.name for bound in best.every(problem, deadline=Deadline.after(60))}
    assert {"linear relaxation", "moirai by scip", "modular"} <= names
    assert "linear relaxation" not in {bound.name for bound in best.every(problem)}
    assert "linear relaxation" not in {bound.name for bound in best.every(problem, deadline=Deadline.after(60), models=False)}
    assert hs.bound(problem, time_limit=60).value >= hs.bound(problem).value


def test_graphs_with_modules_are_split_instead() -> None:
    names = {bound.name for bound in best.every(golden.topcuoglu(), deadline=Deadline.after(60))}
    assert "split" in names
    assert "linear relaxation" not in names
    assert "split" not in {bound.name for bound in best.every(golden.topcuoglu())}
