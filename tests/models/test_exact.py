"""The exact formulations against the true optimum of tiny problems, and against published optima."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import instances
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.models import BatchedMakespan, CongestionAware, Formulation, components, moirai
from hetsched.models.formulation import quick
from hetsched.problem.links import CONTENDED, UNCONTENDED
from hetsched.search import Budget, Monitor, Role, select
from hetsched.testing import brute_force, decisions, problems
from hetsched.testing.profiles import examples
from tests.golden import arabnejad, topcuoglu

SOLVERS = ("scip", "highs", "cpsat")
few = examples(12)
quiet = {"batching": "once", "memory": "static", "n_tasks": st.integers(1, 4)}


def agrees(problem: hs.Problem, formulation: Formulation, solver: str) -> None:
    """Assert that the formulation's solution is the optimum."""
    solution = formulation.solve(solver, time_limit=60)
    optimum = brute_force(problem)
    if optimum is None:
        assert solution.status == "infeasible"
        return
    assert solution.makespan <= optimum.makespan * (1 + 1e-6)
    assert optimum.makespan * (1 - 3e-6) <= solution.bound <= optimum.makespan * (1 + 1e-9)
    assert hs.verify(problem, solution.schedule) == []
    values = formulation.encode(solution)
    assert formulation.model.violations(values) == []


@pytest.mark.parametrize("solver", SOLVERS)
@few
@given(problem=problems(**quiet, inputs=st.integers(1, 3), communication=st.sampled_from(UNCONTENDED)))
def test_batched_makespan_finds_the_optimum(solver: str, problem: hs.Problem) -> None:
    agrees(problem, BatchedMakespan(problem), solver)


@pytest.mark.parametrize("solver", SOLVERS)
@few
@given(problem=problems(**quiet, inputs=1, communication=st.sampled_from(["delay", *CONTENDED])))
def test_congestion_aware_finds_the_optimum(solver: str, problem: hs.Problem) -> None:
    agrees(problem, CongestionAware(problem), solver)


@pytest.mark.parametrize("solver", SOLVERS)
@few
@given(problem=problems(**quiet, n_devices=st.integers(2, 3), inputs=st.integers(2, 3), communication=st.sampled_from(CONTENDED)))
def test_congestion_aware_finds_the_optimum_of_batches(solver: str, problem: hs.Problem) -> None:
    agrees(problem, CongestionAware(problem), solver)


@few
@given(problem=problems(**quiet, inputs=st.integers(2, 3), communication=st.sampled_from(UNCONTENDED)))
def test_flows_between_batches_are_as_good_as_precedence_where_nothing_contends(problem: hs.Problem) -> None:
    agrees(problem, CongestionAware(problem), "cpsat")


@few
@given(problem=problems(**quiet | {"batching": "free"}, inputs=2, communication=st.sampled_from(CONTENDED)))
def test_several_batches_on_a_device_are_neither_excluded_nor_modelled(problem: hs.Problem) -> None:
    solution, optimum = CongestionAware(problem).solve("cpsat", time_limit=60), brute_force(problem)
    if optimum is None:
        assert solution.schedule is None
        return
    assert solution.bound <= optimum.makespan * (1 + 1e-9)
    assert solution.makespan >= optimum.makespan * (1 - 1e-9)
    assert solution.schedule is None or hs.verify(problem, solution.schedule) == []


def sent(communication: str, nodes: str) -> hs.Problem:
    """Return a problem of two inputs that u sends to v, w or both, in 2 s and 10 s more for each input."""
    graph = hs.TaskGraph(["a", "b"], [("a", "b", 10.0)], devices=[["u"], ["v", "w"]])
    devices = [hs.Device(name, node=node) for name, node in zip("uvw", nodes, strict=True)]
    cluster = hs.Cluster(devices, bandwidth=1.0, latency=2.0)
    return hs.Problem(graph, cluster, durations=np.ones((2, 3, 2)), inputs=2, batch_sizes=[1, 2], communication=communication)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["milp", "milp:highs", "cpsat", "moirai"])
@pytest.mark.parametrize(
    ("communication", "nodes", "makespan"), [("channel", "xyz", 14.0), ("port", "xyz", 24.0), ("node", "xyy", 24.0), ("node", "xxy", 14.0)]
)
def test_inputs_travel_together_where_their_transfers_would_wait(method: str, communication: str, nodes: str, makespan: float) -> None:
    """One batch of b on each of v and w ends at 1 + 12 + 1 = 14 s if both transfers run at the same time, else at 1 + 12 + 12 + 1 =
    26 s; one batch of both inputs at 1 + 22 + 1 = 24 s. Both leave the port of u; two channels are apart, as are a node and its outside.
    """
    problem = sent(communication, nodes)
    solution = hs.solve(problem, method, time_limit=60)
    assert (solution.makespan, solution.status) == (pytest.approx(makespan), "optimal")
    assert hs.verify(problem, solution.schedule) == []
    assert len(solution.schedule.transfers) == (1 if makespan == 24 else 2)
    optimum = brute_force(problem)
    assert optimum is not None
    assert optimum.makespan == pytest.approx(makespan)


@pytest.mark.parametrize("method", ["milp", "milp:highs", "cpsat"])
def test_the_optimum_without_contention_is_a_bound_and_a_row(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without contention two transfers of one input take 14 s; as long as the model with contention is not solved that is the bound."""
    made: list[Formulation] = []
    run = Formulation.run

    def noted(self: Formulation, *args: Any, **options: Any) -> Any:
        made.append(self)
        return run(self, *args, **options) if isinstance(self, BatchedMakespan) else None

    monkeypatch.setattr(Formulation, "run", noted)
    monitor = Monitor(sent("port", "xyz"), Budget(60.0))
    monitor.run(method)
    assert [type(formulation) for formulation in made] == [BatchedMakespan, CongestionAware]
    assert monitor.bound.name.endswith("without contention")
    assert monitor.bound.value == pytest.approx(14.0)
    assert monitor.incumbent == 24.0
    assert "bound Linear (cut)" in made[1].model.describe()


@pytest.mark.parametrize("method", ["milp", "milp:highs", "cpsat"])
@examples(6)
@given(problem=problems(**quiet, n_devices=st.integers(2, 3), inputs=2, communication=st.sampled_from(CONTENDED)))
def test_methods_find_the_optimum_of_batches_that_contend(method: str, problem: hs.Problem) -> None:
    solution, optimum = hs.solve(problem, method, time_limit=60), brute_force(problem)
    if optimum is None:
        assert solution.status == "infeasible"
        return
    assert solution.status == "optimal"
    assert solution.makespan == pytest.approx(optimum.makespan, rel=2e-6)
    assert solution.bound <= optimum.makespan * (1 + 1e-9)


def test_the_literal_form_has_no_flows_between_batches() -> None:
    problem = sent("port", "xyz")
    for solve in (lambda: CongestionAware(problem, faithful=True), lambda: hs.solve(problem, "moirai", options={"faithful": True})):
        with pytest.raises(hs.UnsupportedFeature, match="moirai has a literal form for one input, not for 2; use faithful=False"):
            solve()
    with pytest.raises(hs.UnsupportedFeature, match="one transfer for each edge is enough for one input only; use BatchFlows"):
        CongestionAware(problem, components=[components.Placement(), components.Timing(), moirai.Flows()])
    with pytest.raises(hs.UnsupportedFeature, match="depend on the start of each batch; use Timing"):
        CongestionAware(
            problem.replace(inputs=1), upper=99.0, components=[components.Placement(), components.SharedTiming(), moirai.BatchFlows()]
        )


@few
@given(problem=problems(**quiet, inputs=1, communication="delay"))
def test_the_literal_form_is_as_good_for_one_input(problem: hs.Problem) -> None:
    agrees(problem, BatchedMakespan(problem, faithful=True), "scip")


@pytest.mark.parametrize("method", ["milp", "milp:highs", "cpsat"])
@pytest.mark.parametrize("communication", ["delay", "channel"])
def test_methods_solve_the_literal_form_too(method: str, communication: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = topcuoglu().replace(communication=communication)
    solved: list[Formulation] = []
    monkeypatch.setattr(Formulation, "run", lambda self, *_, **__: solved.append(self))
    for faithful in (True, False):
        hs.solve(problem, method, options={"faithful": faithful})
    assert [formulation.faithful for formulation in solved] == [True, False]
    assert solved[0].model.program.n_rows != solved[1].model.program.n_rows


@few
@given(problem=problems(**quiet, inputs=st.integers(2, 3), communication="per-input"))
def test_the_literal_form_is_never_better_for_several(problem: hs.Problem) -> None:
    literal = BatchedMakespan(problem, faithful=True).solve("scip", time_limit=60)
    tightened = BatchedMakespan(problem).solve("scip", time_limit=60)
    assert literal.makespan >= tightened.makespan * (1 - 1e-6)


@few
@given(problem=problems(**quiet, inputs=st.integers(1, 2), communication="delay"))
def test_leaving_cuts_out_changes_no_optimum(problem: hs.Problem) -> None:
    with_cuts, without = (BatchedMakespan(problem).solve("cpsat", time_limit=60, cuts=cuts) for cuts in (True, False))
    assert with_cuts.status == without.status
    if math.isfinite(with_cuts.makespan):
        assert without.makespan == pytest.approx(with_cuts.makespan, rel=1e-6)


@pytest.mark.slow
@given(problem=problems(**quiet, inputs=st.integers(1, 3)), data=st.data())
def test_every_valid_decision_is_a_solution_of_the_model(problem: hs.Problem, data: st.DataObject) -> None:
    kinds: list[type[Formulation]] = [CongestionAware]
    if not problem.links.contended:
        kinds.append(BatchedMakespan)
    schedule = hs.simulate(problem, data.draw(decisions(problem)))
    if hs.verify(problem, schedule):
        return
    for kind in kinds:
        for faithful in (False, True):
            if faithful and problem.inputs > 1:
                continue  # the literal form forbids some
            formulation = kind(problem, upper=schedule.makespan * 1.5, faithful=faithful)
            values = formulation.encode(schedule)
            assert not np.isnan(values).any()
            assert formulation.model.violations(values) == []
            assert hs.simulate(problem, formulation.decode(values)).makespan <= schedule.makespan * (1 + 1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("problem", "optimum"), [(topcuoglu(), 73.0), (arabnejad(), 113.0)])
def test_published_optima(problem: hs.Problem, optimum: float, solver: str) -> None:
    solution = BatchedMakespan(problem).solve(solver, time_limit=60)
    assert solution.makespan == optimum
    assert solution.status == "optimal"


@pytest.mark.slow
def test_presolve_of_cp_sat_cuts_no_optimum_off() -> None:
    """CP-SAT 9.15 by default proves 465.7 here (google/or-tools issue 5293), 3 % above the optimum."""
    solution = BatchedMakespan(instances.module("er", 32, 1, unrelated=True)).solve("cpsat", time_limit=60)
    assert solution.bound <= 450.385922 <= solution.makespan * (1 + 1e-8)
    assert solution.status == "optimal"


@pytest.mark.parametrize("seed", [5, 15])
def test_non_overlap_of_cp_sat_proves_no_wrong_optimum(shared_data: Path, seed: int) -> None:
    """With native non-overlap CP-SAT 9.15 proves 515 here with these seeds."""
    formulation = BatchedMakespan(instances.read(shared_data / "fjsp" / "fattahi15.json"), upper=554.0)
    searches = {"optimize_with_core": True, "permute_variable_randomly": True}
    solution = formulation.solve("cpsat", threads=1, seed=seed, cuts=False, options=searches)
    assert (solution.makespan, solution.status) == (514.0, "optimal")


@pytest.mark.parametrize("communication", ["delay", *CONTENDED])
def test_moirai_example(shared_data: Path, communication: str) -> None:
    problem = instances.read(shared_data / "moirai" / "example-1.json").replace(communication=communication)
    assert CongestionAware(problem).solve("cpsat", time_limit=60).makespan == 30
    unlimited = hs.Cluster([hs.Device(name) for name in problem.cluster.names], bandwidth=np.inf)
    free = CongestionAware(problem.replace(cluster=unlimited)).solve("cpsat", time_limit=60)
    assert free.makespan == 28


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize(("communication", "makespan"), [("delay", 13.0), ("channel", 13.0), ("port", 22.0)])
def test_equation_8_excludes_two_flows_that_leave_one_device(solver: str, faithful: bool, communication: str, makespan: float) -> None:
    """A sends to B and to C, on devices of their own, for 10 s each: one channel each, but one port."""
    graph = hs.TaskGraph("ABC", [("A", "B", 10.0), ("A", "C", 10.0)], devices=[["u"], ["v"], ["w"]])
    cluster, durations = hs.Cluster(["u", "v", "w"], bandwidth=1.0), np.array([1.0, 2.0, 1.0])[:, None] * np.ones((3, 3))
    problem = hs.Problem(graph, cluster, durations=durations, communication=communication)
    formulation = CongestionAware(problem, faithful=faithful)
    assert formulation.model.solve(solver).objective / formulation.second == pytest.approx(makespan)
    assert ("(8) sends" in formulation.model.describe()) == (communication == "port")
    notes = hs.solve(problem, "moirai").messages
    assert any("equation (8) has no rows; Moirai's own problem has 'port'" in note for note in notes) == (communication != "port")


@pytest.mark.parametrize("solver", SOLVERS)
def test_transfers_that_take_no_time_need_no_port(solver: str) -> None:
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "c", 10), ("b", "d", 3)], devices=[["d0"], ["d0"], ["d1"], ["d1", "d2"]])
    bandwidth = np.ones((3, 3))
    bandwidth[0, 2] = np.inf
    durations = np.array([1.0, 2.0, 1.0, 8.0])[:, None] * np.ones((4, 3))
    problem = hs.Problem(graph, hs.Cluster(["d0", "d1", "d2"], bandwidth=bandwidth), durations=durations, communication="port")
    optimum = brute_force(problem)
    assert optimum is not None
    formulation = CongestionAware(problem, upper=20.0)
    outcome = formulation.model.solve(solver)
    assert outcome.objective / formulation.second == pytest.approx(optimum.makespan) == 12.0
    assert formulation.model.violations(formulation.encode(optimum.decision)) == []


def test_schedules_that_the_literal_form_forbids_are_refused() -> None:
    graph = hs.TaskGraph(["a", "b"], [("a", "b")])
    durations = np.array([[[1.0, 9.0], [5.0, 9.0]], [[1.0, 9.0], [1.0, 9.0]]])
    problem = hs.Problem(
        graph, hs.Cluster(["x", "y"], bandwidth=np.inf), durations=durations, batch_sizes=[1, 2], inputs=2, batching="once"
    )
    # Each input stays on one device: b of input 0 does not wait for a of input 1.
    schedule = hs.simulate(problem, hs.Decision([0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 2, 3, 4], [0, 0, 1, 1]))
    assert BatchedMakespan(problem, upper=20.0).model.violations(BatchedMakespan(problem, upper=20.0).encode(schedule)) == []
    literal = BatchedMakespan(problem, upper=20.0, faithful=True)
    with pytest.raises(hs.InvalidSchedule, match="excludes this schedule; use the tightened one"):
        literal.encode(schedule)


def test_a_start_above_the_upper_bound_is_refused() -> None:
    problem = topcuoglu()
    formulation = BatchedMakespan(problem, upper=80.0)
    slow = hs.simulate(problem, hs.Decision.from_assignment(problem, dict.fromkeys(problem.graph.names, problem.cluster.names[0])))
    with pytest.raises(hs.InvalidSchedule, match=r"127 s long .* up to 80 s with .* make the formulation with a larger `upper`"):
        formulation.encode(slow)


def test_an_upper_bound_below_the_optimum_is_a_bound_and_no_infeasibility() -> None:
    solution = BatchedMakespan(topcuoglu(), upper=70.0).solve("cpsat", time_limit=30)
    assert solution.status == "unknown"
    assert solution.bound == pytest.approx(70.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory": "peak"}, "milp: memory='peak' is not supported"),
        ({"communication": "port"}, "milp: communication='port' is not supported; use problem.replace"),
    ],
)
def test_unsupported_problems_are_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(hs.UnsupportedFeature, match=message):
        BatchedMakespan(topcuoglu().replace(**change))


@pytest.mark.parametrize("name", ["milp:highs", "cpsat", *(pytest.param(name, marks=pytest.mark.slow) for name in ("milp", "moirai"))])
def test_methods_are_registered_and_stream_into_the_monitor(name: str) -> None:
    solution = hs.solve(arabnejad(), name, time_limit=60)
    assert (solution.makespan, solution.status) == (113.0, "optimal")
    assert (np.diff(solution.history.bound) >= 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"threads": 2}, "scip searches in one thread, not 2; leave threads out"), ({"gap": -1}, "gap is -1; it must be a number from 0 on")],
)
def test_options_that_a_solver_lacks_are_refused_before_the_work(options: dict[str, float], message: str) -> None:
    with pytest.raises(hs.UnsupportedFeature, match=message):
        hs.solve(arabnejad(), "milp", options=options)


def test_a_gap_ends_the_solve_and_is_reported() -> None:
    solution = hs.solve(instances.module("er", 14, 2), "cpsat", time_limit=30, options={"gap": 0.3})
    assert solution.stopped == "gap"
    assert solution.gap <= 0.3


def test_a_model_too_large_for_linear_rows_is_refused_and_the_incumbent_kept() -> None:
    n = 1100
    graph, cluster = hs.TaskGraph([f"t{i}" for i in range(n)]), hs.Cluster(["x", "y"], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.random.default_rng(0).uniform(1, 2, (n, 2)))
    solution = hs.solve(problem, "milp", time_limit=30)
    assert solution.schedule is not None
    assert any("more than 500,000; use cpsat" in message for message in solution.messages)


@pytest.mark.parametrize("solver", SOLVERS)
def test_transfers_within_the_only_node_do_not_wait_for_one_another(solver: str) -> None:
    """A and B run one after another on u and send for 10 s each: D ends at 2 + 10 + 1 s, and only with a channel at 22 s."""
    graph = hs.TaskGraph("ABCD", [("A", "C", 10.0), ("B", "D", 10.0)], devices=[["u"], ["u"], ["v"], ["v"]])
    cluster = hs.Cluster([hs.Device("u", node="n"), hs.Device("v", node="n")], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=np.ones((4, 2)), communication="node")
    for communication, makespan, period in (("node", 13.0, 2.0), ("channel", 22.0, 20.0)):
        formulation = CongestionAware(problem.replace(communication=communication), upper=30.0)
        assert formulation.model.solve(solver).objective / formulation.second == pytest.approx(makespan)
        load = hs.solve(problem.replace(communication=communication), "load-milp", objective="period")
        assert (load.value, load.status) == (period, "optimal")


def test_without_improve_a_solve_begins_with_list_schedules_alone():
    problem = hs.Problem(hs.workloads.rwnn("er", 30, modules=3, seed=1), hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())
    names = [found.name for found in select(role=Role.UPPER, problem=problem)]
    lists = hs.solve(problem, names)
    assert quick(problem, search=False).makespan == lists.makespan
    assert quick(problem).makespan < lists.makespan, "a search follows"
    begun = {
        improve: hs.solve(problem, "milp", time_limit=1.0, options={"improve": improve}).history.incumbent for improve in (True, False)
    }
    assert begun[False][np.isfinite(begun[False])][0] == lists.makespan
    assert begun[True][np.isfinite(begun[True])][0] < lists.makespan
