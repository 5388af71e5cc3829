"""Solved cases: named in texts, measured, verified, and known by the digest of their problem."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import checker
from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature
from hetsched.experiments import Configuration, Instance, Progress, SolveCase, cases, problems, run, solving
from hetsched.processes import in_process
from hetsched.testing import problems as drawn
from hetsched.testing.profiles import examples
from tests.golden import topcuoglu

MINE = Instance("mine", topcuoglu(), "papers")


@examples(40)
@given(drawn(), st.data())
def test_a_digest_ignores_names_and_sees_numbers(problem: hs.Problem, data: st.DataObject):
    graph, cluster = problem.graph, problem.cluster
    same = solving.digest(problem)
    assert solving.digest(problem.replace()) == same
    if problem.kinds is None and problem.transfers is None:
        devices = [hs.Device(f"d{k}", memory_bytes=device.memory_bytes, node=device.node) for k, device in enumerate(cluster.devices)]
        renamed = {device.name: f"d{k}" for k, device in enumerate(cluster.devices)}
        other = hs.Problem(
            hs.TaskGraph(
                [f"n{i}" for i in range(graph.n_tasks)],
                graph.edges,
                edge_bytes=graph.edge_bytes,
                weight_bytes=graph.weight_bytes,
                input_bytes=graph.input_bytes,
                output_bytes=graph.output_bytes,
                devices=[None if pin is None else [renamed[name] for name in pin] for pin in graph.devices],
                colocation=[None if label is None else f"of {label}" for label in graph.colocation],
            ),
            hs.Cluster(devices, bandwidth=cluster.bandwidth, latency=cluster.latency),
            durations=problem.table,
            batch_sizes=problem.batch_sizes,
            inputs=problem.inputs,
            batching=problem.batching,
            communication=problem.communication,
            memory=problem.memory,
        )
        assert solving.digest(other) == same
    i, k, size = np.argwhere(np.isfinite(problem.table))[0]
    table = problem.table.copy()
    table[i, k, size] = np.nextafter(max(table[i, k, size], 1e-9), np.inf)
    changed = (
        problem.replace(durations=table)
        if problem.kinds is None
        else problem.replace(durations=table, kinds=problem.kinds, batch_sizes=problem.batch_sizes)
    )
    assert solving.digest(changed) != same
    rule = data.draw(st.sampled_from(["memory", "communication"]))
    value = {"memory": {"static": "peak", "peak": "static"}, "communication": {"delay": "port"}}[rule].get(getattr(problem, rule), "delay")
    assert solving.digest(problem.replace(**{rule: value})) != same


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("heft", [("heft", {})]),
        ("heft, peft,", [("heft", {}), ("peft", {})]),
        ("cpsat{cuts=false,gap=0.01},heft", [("cpsat", {"cuts": False, "gap": 0.01}), ("heft", {})]),
        ("auto{members=['heft','peft']}", [("auto", {"members": ["heft", "peft"]})]),
        ("split{solver=scip}", [("split", {"solver": "scip"})]),
    ],
)
def test_methods_are_named_with_options_in_braces(text: str, expected: list[tuple[str, dict[str, Any]]]):
    parsed = Configuration.parse(text)
    assert [(one.method, one.options) for one in parsed] == expected
    assert Configuration.parse(",".join(map(str, parsed))) == parsed


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("heft{", InvalidArgument, "the brackets of 'heft{' do not match; write for instance"),
        ("heft}", InvalidArgument, "the brackets of 'heft}' do not match"),
        ("cpsat{cuts}", InvalidArgument, "'cuts' in 'cpsat{cuts}' is not of the form OPTION=VALUE"),
        ("hefty", UnsupportedFeature, "unknown method 'hefty'"),
        ("heft{cuts=1}", UnsupportedFeature, "method 'heft' takes no option 'cuts'"),
    ],
)
def test_a_method_that_is_none_is_told(text: str, error: type[Exception], said: str):
    with pytest.raises(error, match=said):
        Configuration.parse(text)


def test_cases_are_every_problem_method_and_seed():
    made = cases([MINE], "heft,annealing", seeds=[3, 4], evaluations=10)
    assert [(str(case.configuration), case.seed) for case in made] == [("heft", 3), ("annealing", 3), ("heft", 4), ("annealing", 4)]
    assert [str(case.configuration) for case in cases([MINE], ["heft,annealing", Configuration("cpop")])] == ["heft", "annealing", "cpop"]
    assert json.loads(json.dumps(made[1].key)) == {
        "instance": "mine",
        "family": "papers",
        "digest": solving.digest(MINE.problem),
        "method": "annealing",
        "options": {},
        "seed": 3,
        "limits": {"evaluations": 10},
    }
    for arguments, said in ((([], "heft"), "problems is empty; give at least one"), (([MINE], ""), "methods is empty")):
        with pytest.raises(InvalidArgument, match=said):
            cases(*arguments)
    with pytest.raises(InvalidArgument, match="time_limit=1 and cpu_limit=2 are both given; choose one clock"):
        SolveCase(MINE, Configuration("heft"), time_limit=1.0, cpu_limit=2.0)
    with pytest.raises(InvalidArgument, match="cpu_limit is -1.0; it must be a number of seconds"):
        SolveCase(MINE, Configuration("heft"), cpu_limit=-1.0)


def test_a_case_is_solved_verified_and_refused():
    several = MINE.problem.replace(inputs=2, durations=MINE.problem.durations * [1, 2], batch_sizes=[1, 2])
    heft, milp = Configuration.parse("heft,milp{threads=1}")
    first = solving.solve_case(MINE.problem, SolveCase(MINE, heft).key)
    assert (first["makespan"], first["status"], first["trust"]) == (80.0, "feasible", "computed")
    before = in_process.set(True)
    try:
        case = SolveCase(MINE, milp, cpu_limit=60.0)
        solving.prepare(MINE.problem, case.key)
        second = solving.solve_case(MINE.problem, case.key)
    finally:
        in_process.reset(before)
    assert (second["makespan"], second["status"], second["trust"]) == (73.0, "optimal", "solver")
    assert second["history"][-1][1] == 73.0
    assert solving.solve_case(several, SolveCase(Instance("several", several), Configuration("branch")).key)["status"] == "refused"


MEASURED_AFTER_PREPARATION = """
import sys
from hetsched import experiments
from hetsched.compiled import KERNELS
from hetsched.processes import in_process

in_process.set(True)
job = experiments.cases(experiments.problems("rwnn:er,12"), sys.argv[1], evaluations=2000)[0].job
assert job.prepare is not None
job.prepare(job.case)
before = {kernel: len(kernel.signatures) for kernel in KERNELS}
job.work(job.case)
print([kernel.py_func.__name__ for kernel in KERNELS if len(kernel.signatures) > before.get(kernel, 0)])
"""


@pytest.mark.parametrize("method", ["heft", "annealing", "branch{nodes=2000}"])
def test_nothing_is_compiled_while_a_case_is_measured(method: str):
    done = subprocess.run([sys.executable, "-c", MEASURED_AFTER_PREPARATION, method], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_solved_cases_are_run(tmp_path: Path):
    told: list[Progress] = []
    store = run(cases([MINE], "heft,best-device"), results=tmp_path / "run.jsonl", on_progress=told.append)
    assert [row["makespan"] for row in store.rows()] == [80.0, 127.0]
    assert str(told[0]).startswith("1 of 2: mine heft 0: feasible, makespan 80, gap ")


def test_a_schedule_that_breaks_a_rule_is_a_failure(monkeypatch: pytest.MonkeyPatch):
    broken = hs.Violation("overlap", "two tasks at once", 1.0)
    monkeypatch.setattr(solving, "verify", lambda problem, schedule: [broken])
    with pytest.raises(hs.InvalidSchedule, match="heft made a schedule that breaks 1 rules, first: "):
        solving.solve_case(MINE.problem, SolveCase(MINE, Configuration("heft")).key)


@pytest.mark.slow
def test_problems_are_files_patterns_and_generators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mk01", "mk02", "other"):
        MINE.problem.write(f"{name}.json")
    assert [(found.name, found.family) for found in problems("mk*.json", "other.json")] == [
        ("mk01", "mk"),
        ("mk02", "mk"),
        ("other", "other"),
    ]
    made = problems("rwnn:er,10,modules=2,seed=0..2,communication=port", "network:googlenet,cluster=moirai_inter")
    assert [found.name for found in made][1] == "rwnn:er,10,modules=2,seed=1,communication=port"
    assert {found.family for found in made[:3]} == {"rwnn:er,10,modules=2,communication=port"}
    assert (made[0].problem.n_tasks, made[0].problem.communication) == (20, "port")
    assert len({solving.digest(found.problem) for found in made}) == 4
    assert made[3].problem.cluster == hs.workloads.clusters.load("moirai_inter")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing*.json", "is neither a file or a pattern of files, nor an instance or a family of `hetsched instances list`"),
        ("rwnn:er,10,seed=3..1", "'3..1' in 'seed=3..1' is empty; write the smaller number first"),
        ("rwnn:er,10,colour=1", "colour"),
        ("rwnn:xy,10", "kind is 'xy'"),
        ("graph.json", "graph.json holds a TaskGraph, but a Problem is needed here"),
    ],
)
def test_a_problem_that_is_none_is_told(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    hs.documents.write(MINE.problem.graph, "graph.json")
    with pytest.raises(InvalidProblem, match=said):
        problems(text)


def test_instances_of_the_registry_are_problems() -> None:
    assert [(one.name, one.family) for one in problems("examples")] == [("topcuoglu2002", "examples"), ("arabnejad2014", "examples")]
    assert [one.name for one in problems("arabnejad2014")] == ["arabnejad2014"]


def test_a_bound_is_certified_after_the_clock_has_stopped():
    of = {"certify": 20.0, "time_limit": 20.0}
    optimal = solving.solve_case(topcuoglu(), SolveCase(MINE, Configuration("branch"), **of).key)
    assert (optimal["status"], optimal["trust"], optimal["bound"]) == ("optimal", "checked", 73.0)
    assert optimal["certificate"] == {"digest": checker.Problem(hs.documents.encode(topcuoglu())).digest(), "claim": 73.0}
    feasible = solving.solve_case(topcuoglu(), SolveCase(MINE, Configuration("heft"), **of).key)
    assert (feasible["status"], feasible["trust"]) == ("feasible", "checked")
    without = solving.solve_case(topcuoglu(), SolveCase(MINE, Configuration("heft"), time_limit=20.0).key)
    assert (without["trust"], without["bound"], "certificate" in without) == ("computed", feasible["bound"], False)


def test_bounds_on_problems_that_the_checker_does_not_take_stay_computed():
    n = checker.MOST_TASKS + 1
    large = hs.Problem(hs.TaskGraph([f"t{i}" for i in range(n)]), hs.Cluster(["a"]), durations=np.ones((n, 1)))
    row = solving.solve_case(large, SolveCase(Instance("large", large), Configuration("best-device"), certify=1.0).key)
    assert (row["status"], row["trust"], "certificate" in row) == ("optimal", "computed", False)
    with pytest.raises(UnsupportedFeature, match="does not take the problem: the number of tasks is 5001; it must be at most 5000"):
        hs.certify(large)


def test_a_certificate_needs_time():
    with pytest.raises(InvalidArgument, match="certify is 0; it must be a number of seconds, above 0, or None for no certificate"):
        SolveCase(MINE, Configuration("heft"), certify=0)
