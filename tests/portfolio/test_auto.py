"""`auto`: the order of its members, deadlines, options for members, and makespans at most those of the simplest methods."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import instances
import numpy as np
import pytest
from hypothesis import given

import hetsched as hs
from hetsched import search
from hetsched.analysis import model_size
from hetsched.papers.diviml.stacks import profiled
from hetsched.portfolio import members, workers
from hetsched.portfolio.auto import Race
from hetsched.portfolio.protocol import Done
from hetsched.search import Budget, Kind, Method, Monitor
from hetsched.testing import conformance, strategies
from hetsched.testing.backends import PLENTY
from hetsched.testing.clocks import SteppingClock, watched
from hetsched.testing.profiles import examples
from tests.golden import topcuoglu
from tests.portfolio.strange_methods import tangle


class TestAuto(conformance.MethodSuite):
    method = "auto"


@pytest.fixture
def mine():
    """Use a temporary registry, so that methods of tests are removed."""
    with search.temporarily():
        yield


@pytest.fixture
def alone(monkeypatch):
    """Fail if a worker is started."""

    def refuse(*_, **__):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(workers, "Worker", refuse)


def of_kind(kind):
    return {method.name for method in search.registered().values() if method.kind is kind}


def ran(solution):
    return set(solution.methods.method.tolist()) - {"auto"}


def test_branch_and_bound_takes_part_where_devices_are_identical_and_tasks_few() -> None:
    problem = hs.Problem(hs.TaskGraph(["a", "b"]), hs.Cluster(["x", "y"], bandwidth=1), durations=[[1, 1], [2, 2]])
    assert {"branch", "cpsat"} <= set(members.usual(problem, "makespan")), "beside the first solver"
    assert "branch" not in members.usual(problem.replace(durations=[[1, 2], [2, 2]]), "makespan")
    many = hs.Problem(hs.TaskGraph([f"t{i}" for i in range(61)]), problem.cluster, durations=np.ones((61, 2)))
    assert "branch" not in members.usual(many, "makespan")


@examples(60)
@given(problem=strategies.problems())
def test_it_is_never_worse_than_one_device_or_heft(problem):
    solution = hs.solve(problem, evaluations=40)
    for name in ("best-device", "heft"):
        try:
            assert solution.makespan <= hs.solve(problem, name).makespan
        except hs.UnsupportedFeature:
            continue


@examples(20)
@given(problem=strategies.problems())
def test_under_an_evaluation_limit_it_is_reproducible(problem):
    one, other = (hs.solve(problem, evaluations=300, seed=5) for _ in range(2))
    assert one.schedule == other.schedule
    assert one.methods.evaluations.tolist() == other.methods.evaluations.tolist()
    assert one.methods.evaluations.sum() <= 300
    assert "bounds" in ran(one) or one.stopped in ("optimal", "infeasible", "evaluations")


@pytest.mark.parametrize("looks", [0, 3, 30, 300])
def test_quick_methods_run_at_any_limit_and_little_runs_after_the_end(looks):
    problem = tangle(300)
    run = watched(problem, "auto", looks, {"workers": 0})
    assert run.monitor.incumbent <= min(hs.solve(problem, name).makespan for name in ("best-device", "heft"))
    assert run.late <= 20


@pytest.mark.parametrize("limit", [0.1, pytest.param(3.0, marks=pytest.mark.slow)])
def test_with_the_time_the_workers_end(limit, pools):
    solution = hs.solve(tangle(300), time_limit=limit)
    assert solution.stopped == "time limit"
    assert all(pool.workers == [] for pool in pools)
    assert limit > 1 or not pools, "no process is worth starting"


def test_tiny_problems_are_proven_here(alone):
    solution = hs.solve(topcuoglu())
    assert (solution.status, solution.makespan, solution.stopped) == ("optimal", 73, "optimal")


@pytest.mark.parametrize("problem", [tangle(21), tangle(12).replace(communication="port")], ids=["delay", "port"])
def test_what_a_solver_proves_in_a_second_is_proven_here(problem, alone):
    assert model_size.with_orders(problem) <= model_size.AT_ONCE
    assert hs.solve(problem, time_limit=PLENTY).status == "optimal"


@pytest.mark.slow
def test_small_problems_are_proven_in_a_worker(monkeypatch):
    monkeypatch.setattr(model_size, "AT_ONCE", 0)
    solution = hs.solve(tangle(21), time_limit=PLENTY)
    assert solution.status == "optimal"
    assert ran(solution) & {method.name for method in search.registered().values() if method.proves}


def test_without_a_limit_it_ends_by_itself():
    assert hs.solve(tangle(100), options={"seconds": 0.3}).stopped == "finished"


@pytest.mark.slow
def test_the_history_names_the_method_of_each_schedule(alone):
    monitor = search.Monitor(tangle(20), search.Budget(evaluations=1500))
    monitor.run("auto")
    solution = monitor.solution("auto")
    assert set(solution.history.source.tolist()) & set(instances.list_schedulers())
    assert solution.method in ran(solution)
    assert set(instances.list_schedulers()) <= ran(solution)
    assert ran(solution) & of_kind(Kind.SEARCH)
    assert (solution.methods.seconds >= 0).all()
    assert solution.methods.seconds.sum() <= monitor.elapsed, "each second is one method's"


@pytest.mark.slow
def test_large_graphs_are_placed_as_well(alone):
    graph = hs.TaskGraph([f"t{i}" for i in range(search.LARGE + 1)], weight_bytes=1.0)
    cluster = hs.Cluster([hs.Device(name, memory_bytes=600.0) for name in "uv"], bandwidth=1.0)
    durations = np.random.default_rng(0).uniform(1.0, 2.0, (graph.n_tasks, 2))  # such that no bound proves the first schedule
    problem = hs.Problem(graph, cluster, durations=durations)
    assert {"dsc", "celeritas", "order-place", "repartition"} <= ran(hs.solve(problem, evaluations=60))


@pytest.mark.slow
def test_members_can_be_chosen_excluded_and_weighted(alone):
    problem = tangle(20)
    assert ran(hs.solve(problem, evaluations=100, options={"members": "heft, olb"})) == {"heft", "olb"}
    assert ran(hs.solve(problem, evaluations=100, options={"members": ["olb"]})) == {"olb"}
    without = ran(hs.solve(problem, evaluations=1500, options={"exclude": ["heft", "annealing"]}))
    assert "heft" not in without
    assert "annealing" not in without
    assert "olb" in without
    weighed = hs.solve(problem, evaluations=2001, options={"members": {"wanders": 3, "annealing": 1.0}})
    effort = dict(zip(weighed.methods.method.tolist(), weighed.methods.evaluations.tolist(), strict=True))
    assert 2.5 < effort["wanders"] / effort["annealing"] < 3.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": ["heftt"]}, "unknown method 'heftt'; choose from "),
        ({"exclude": ["heftt"]}, "unknown method 'heftt'; choose from "),
        ({"members": ["auto", "heft"]}, "'auto' is named as a member of itself; name the methods it should run, or leave members out"),
        ({"members": {"heft": 0}}, r"the weight of member 'heft' is 0; it must be a number above 0 \(exclude='heft' leaves it out\)"),
        ({"members": {"heft": float("nan")}}, "the weight of member 'heft' is nan; it must be a number above 0"),
        ({"members": {"heft": "much"}}, "the weight of member 'heft' is 'much'; it must be a number above 0"),
        ({"members": ["heft"], "exclude": "heft"}, r"exclude=\['heft'\] leaves no member of heft; exclude fewer, or name others"),
        ({"members": []}, r"exclude=\[\] leaves no member of none"),
        ({"workers": -1}, "workers is -1; it must be a whole number of processes, 0 for none, or None for one a core"),
        ({"workers": 1.5}, "workers is 1.5; it must be a whole number"),
        ({"seconds": -1}, "seconds is -1; it must be a number of seconds, at least 0"),
        ({"bound_seconds": float("nan")}, "bound_seconds is nan; it must be a number of seconds, at least 0"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(hs.UnsupportedFeature, match=message):
        hs.solve(topcuoglu(), options=options)


@pytest.mark.slow
def test_members_of_this_process_alone_run_here(mine, pools):
    @hs.method("homely", summary="known to this process only")
    def homely(problem, monitor):
        monitor.note(f"ran in {os.getpid()}")
        for _ in monitor:
            device = monitor.rng.integers(0, problem.n_devices, problem.n_tasks)
            monitor.offer(hs.Decision.whole(problem, device, problem.graph.topological_order))

    def both(event):
        return event.source == "annealing" and pools[0].workers[0].receiver is not None

    options = {"members": ["olb", "homely", "annealing"], "workers": 1}
    solution = hs.solve(tangle(), time_limit=PLENTY, options=options, on_progress=both)
    assert solution.stopped == "callback"
    assert solution.messages == (f"homely: ran in {os.getpid()}",)
    assert ran(solution) == {"olb", "homely", "annealing"}
    only = hs.solve(tangle(), time_limit=0.2, options={"members": ["homely"]})
    assert ran(only) == {"homely"}
    assert only.schedule is not None


@pytest.mark.slow
def test_the_only_search_runs_in_this_process_to_the_end(monkeypatch, pools):
    here = []

    def seen(monitor, job, look=None):
        here.append(job)
        return workers.run_here(monitor, job, look)

    monkeypatch.setattr("hetsched.portfolio.auto.run_here", seen)
    started = []

    def while_a_worker_works(event):
        started[:] = pools[0].workers if pools else []
        return event.source == "annealing" and any(worker.receiver is not None for worker in started)

    options = {"members": ["heft", "annealing", "bounds"], "workers": 2}
    solution = hs.solve(tangle(), time_limit=PLENTY, options=options, on_progress=while_a_worker_works)
    assert solution.stopped == "callback"
    assert len(started) == 1, "this process is the other"
    (job,) = here
    assert job.method == "annealing"
    assert job.time_limit > PLENTY / 2


@pytest.mark.slow
def test_another_worker_is_started_if_the_search_of_this_process_ends(monkeypatch):
    started = []

    class Seen(workers.Pool):
        def start(self):
            started.append(self)
            super().start()

    monkeypatch.setattr("hetsched.portfolio.auto.Pool", Seen)
    solution = hs.solve(instances.stack("er", 6, 2, seed=1), time_limit=PLENTY, options={"members": ["heft", "lns"], "workers": 2})
    assert solution.stopped == "finished"
    assert len(started) == 2


def test_lns_runs_without_a_break_where_a_graph_falls_apart():
    stack = instances.stack("er", 20, 4, seed=1)

    def alone(problem, names=None, exclude=(), **given):
        chosen = members.choose(problem, "makespan", names, exclude)
        race = Race(problem, Monitor(problem, Budget(PLENTY), clock=SteppingClock(), **given), chosen, 10.0, 5.0)
        race.slots = 2
        lone = race._lone()
        return lone and lone.name

    assert alone(stack) == "lns"
    assert alone(stack, executor=ThreadPoolExecutor(1)) is None, "workers have all cores"
    assert alone(stack, exclude={"lns"}) is None
    assert alone(stack, {"lns": 1.0, "annealing": 1.0}) is None, "the weights divide the time"
    assert alone(stack, {"lns", "heft"}) == "lns", "the only one"
    assert alone(instances.stack("er", 20, 4, channels=2, seed=1)) is None


@pytest.mark.parametrize(("seconds", "modules"), [(10.0, 1), (60.0, 2)], ids=["unlikely", "likely"])
def test_a_split_has_the_cores_that_lns_leaves_or_all_if_it_is_likely_to_end_in_time(seconds, modules):
    stack = instances.stack("er", 32, 10, seed=1)
    race = Race(stack, Monitor(stack, Budget(seconds), clock=SteppingClock()), members.choose(stack, "makespan", None, ()), 10.0, 5.0)
    race.slots = 2
    race.lone = race._lone()
    assert race.lone.name == "lns"
    assert race._job(next(member for member in race.members if member.splits), seconds).options["workers"] == modules


def test_searches_that_keep_the_batches_take_part_where_they_are_given():
    given = {"tabu", "evolution", "random-heft"}
    problem = profiled(10, 2, inputs=4)
    chosen = members.usual(problem, "makespan")
    assert "annealing" in chosen
    assert not given & set(chosen)
    assert given <= set(members.usual(profiled(10, 2), "makespan"))
    whole = problem.replace(durations=problem.durations[:, :, -1:], batch_sizes=[4])
    assert given <= set(members.usual(whole, "makespan"))


@pytest.mark.slow
def test_a_failing_member_does_not_affect_the_others():
    problem = tangle()
    solution = hs.solve(problem, evaluations=2000, options={"members": ["raises", "heft", "wanders"]})
    assert "raises failed: RuntimeError: out of luck" in solution.messages
    assert ran(solution) == {"raises", "olb", "heft", "wanders"}
    assert solution.makespan <= hs.solve(problem, "heft").makespan


def test_graphs_with_modules_are_split():
    stack = instances.stack("er", 10, 4, seed=1)
    assert "split" in members.usual(stack, "makespan")
    assert "split" not in members.usual(instances.stack("er", 20, 4, channels=2, seed=1), "makespan")
    solution = hs.solve(stack, time_limit=PLENTY, options={"members": ["heft", "split"], "workers": 1})
    assert solution.status == "optimal"
    assert solution.proof.name == "split"


def test_graphs_with_modules_are_split_with_several_inputs_too():
    stack = profiled(10, 4, inputs=4)
    assert "split" in members.usual(stack, "makespan")
    assert "split" not in members.usual(stack.replace(communication="port"), "makespan"), "its model has no contention of several inputs"
    chosen = members.choose(stack, "makespan", None, ())
    race = Race(stack, hs.Monitor(stack, Budget(PLENTY), clock=SteppingClock()), chosen, 1.0, 5.0)
    turns = []
    for _ in range(3):
        turns.append(race._next([member for member in race.running if not member.at_once], apart=True))
        turns[-1].charged += 1.0
    assert [turn.name for turn in turns] == ["bounds", "split", "annealing"], "of one worker"
    *provers, only = turns
    assert race._slice(only, apart=True) == race.left / 4
    for prover in provers:
        prover.turns = 1
    assert race._slice(only, apart=True) == race.left, "the only search runs to the end if the others had a turn"


def test_small_modules_are_proven_before_workers_are_started(monkeypatch):
    monkeypatch.setattr(Race, "run_apart", lambda *_: pytest.fail("workers are started"))
    solution = hs.solve(instances.stack("er", 10, 4, seed=1), time_limit=PLENTY, options={"workers": 2})
    assert solution.status == "optimal"
    assert solution.proof.name == "split"


@pytest.mark.parametrize(
    ("names", "threads", "seconds", "spared"),
    [(None, 1, 10.0, True), (None, 4, 10.0, False), (None, 1, 60.0, False), ({"annealing", "cpsat"}, 1, 10.0, False)],
    ids=["short", "more threads", "long", "one search"],
)
def test_a_solver_takes_part_if_its_model_is_small_enough_for_the_time_left(names, threads, seconds, spared):
    problem = tangle(200)
    chosen = members.choose(problem, "makespan", names, ())
    race = Race(problem, Monitor(problem, Budget(seconds), clock=SteppingClock()), chosen, 10.0, 5.0)
    race.spare_solver(threads)
    assert [member.name for member in race.members if member.retired] == ["cpsat"] * spared


def test_a_named_solver_takes_part_whatever_the_size_of_its_model(monkeypatch):
    running = []
    monkeypatch.setattr(Race, "run_in_turn", lambda race: running.append([member.name for member in race.running if member.models]))
    problem = tangle(200)
    for names in (["heft", "annealing", "tabu", "cpsat"], None):
        hs.solve(problem, time_limit=5.0, options={"members": names, "workers": 0})
    assert running == [["cpsat"], []]


def test_large_problems_are_not_given_to_solvers():
    n = 10_000
    graph = hs.TaskGraph([f"t{i}" for i in range(n)], np.column_stack([np.arange(n - 2), np.arange(2, n)]))  # two chains
    problem = hs.Problem(graph, hs.Cluster(["a", "b", "c"], bandwidth=1.0), durations=np.ones((n, 3)))
    assert not of_kind(Kind.EXACT) & set(members.usual(problem, "makespan"))
    solution = hs.solve(problem, time_limit=PLENTY, options={"members": ["olb", "cpsat"]})
    assert solution.messages == (
        f"auto: cpsat is left out: its model would have about {3 * n} columns, more than {model_size.LARGEST}; "
        "solve(problem, 'cpsat') tries it nevertheless",
    )
    counted = hs.solve(topcuoglu(), evaluations=10, options={"members": ["olb", "milp"]})
    assert counted.messages == (
        "auto: milp is left out: a solver ignores an evaluation limit; solve(problem, 'milp') tries it nevertheless",
    )
    assert hs.solve(topcuoglu(), evaluations=10).messages == ()


def test_threads_are_the_cores_of_a_solve():
    given = []

    def record(problem, monitor, *, workers=None):
        given.append(workers)

    def exact(problem, monitor, *, threads=None):
        given.append(threads)

    likes = (Method("portfolio-like", "records", record), Method("exact-like", "records", exact))
    with search.temporarily(*likes):
        hs.solve(topcuoglu(), ["portfolio-like", "exact-like", "heft"], threads=3)
    assert given == [3, 3]
    with pytest.raises(hs.InvalidArgument, match="threads is 0; it must be a whole number, at least 1, or None"):
        hs.solve(topcuoglu(), threads=0)
    with pytest.raises(hs.UnsupportedFeature, match="threads=2 and the option workers=1 are the same setting; leave one of them out"):
        hs.solve(topcuoglu(), threads=2, options={"workers": 1})
    with pytest.raises(hs.UnsupportedFeature, match="scip searches in one thread, not 2"):
        hs.solve(topcuoglu(), "milp", threads=2)


@pytest.mark.parametrize("apart", [False, True])
def test_time_that_passes_between_two_checks_is_never_assigned(apart):
    problem, clock = tangle(12), SteppingClock()
    race = Race(problem, Monitor(problem, Budget(5.0), clock=clock), members.choose(problem, "makespan", None, ()), 10.0, 5.0)
    assert not race.over
    clock.now += 6.0  # as if another process had used the core
    for member in race.running:
        assert race._job(member, race._slice(member, apart=apart)).time_limit == 0.0, member.name


@pytest.mark.parametrize(
    ("budget", "spent", "second"),
    [(Budget(60.0), 4.0, 27.5), (Budget(60.0), 1.0, None), (Budget(20.0), 4.0, None), (Budget(evaluations=100), 4.0, None)],
    ids=["long", "short", "too little time", "evaluations"],
)
def test_bounds_that_take_long_get_half_of_the_time_left(budget, spent, second):
    problem, clock = tangle(12), SteppingClock()
    race = Race(problem, Monitor(problem, budget, clock=clock), members.choose(problem, "makespan", None, ()), 10.0, 5.0)
    bounds = next(member for member in race.members if member.method.kind is Kind.BOUND)
    assert race._slice(bounds, apart=True) == 5.0
    bounds.turns, bounds.charged = 1, 5.0
    clock.now += 5.0
    done = Done((("bounds", np.inf, 0, spent),))
    race._ended(bounds, done, improved=False)
    assert bounds.retired == (second is None)
    if second is not None:
        assert race._slice(bounds, apart=True) == second
        bounds.turns += 1
        race._ended(bounds, done, improved=False)
        assert bounds.retired
