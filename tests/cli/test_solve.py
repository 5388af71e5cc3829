"""`solve`, `verify` and `bound`: output, files and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hetsched as hs
from hetsched.search import Method, Monitor, temporarily


def test_solve_writes_a_schedule_that_verifies(run: Any, problem: hs.Problem) -> None:
    solved = run("solve", "problem.json", "-o", "schedule.json")
    assert solved.exit_code == 0, solved.stderr
    schedule = hs.read("schedule.json")
    assert isinstance(schedule, hs.Schedule)
    assert hs.verify(problem, schedule) == []
    for word in ("status", "makespan", "bound", "gap", "method", "wrote     schedule.json"):
        assert word in solved.stdout
    checked = run("verify", "problem.json", "schedule.json")
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert checked.stdout.startswith("valid: 5 batches")


@pytest.mark.parametrize("methods", [["--method", "heft", "--method", "peft"], ["--method", "heft,peft"], ["--method", " heft , peft"]])
def test_several_methods_share_a_solve(run: Any, problem: hs.Problem, methods: list[str]) -> None:
    solved = run("solve", "problem.json", "--json", *methods)
    expected = hs.solve(problem, ["heft", "peft"])
    assert json.loads(solved.stdout)["makespan"] == expected.makespan


def test_solve_json_is_one_object_that_agrees_with_the_library(run: Any, problem: hs.Problem) -> None:
    solved = run("solve", "problem.json", "--method", "heft", "--seed", 7, "--json", "-o", "s.json")
    facts = json.loads(solved.stdout)
    expected = hs.solve(problem, "heft", seed=7)
    assert facts["makespan"] == expected.makespan
    assert (facts["bound"], facts["bound_name"]) == (expected.bound, expected.proof.name)
    assert (facts["status"], facts["method"], facts["seed"], facts["written"]) == (str(expected.status), "heft", 7, ["s.json"])
    assert solved.stderr == ""


def test_a_solution_document_keeps_the_bound_and_serves_as_a_start(run: Any, problem: hs.Problem) -> None:
    assert run("solve", "problem.json", "--method", "heft", "--solution", "solution.json").exit_code == 0
    solution = hs.read("solution.json")
    assert isinstance(solution, hs.Solution)
    assert solution.bound > 0
    assert run("verify", "problem.json", "solution.json").exit_code == 0
    again = json.loads(run("solve", "problem.json", "--method", "olb", "--start", "solution.json", "--json").stdout)
    assert again["makespan"] <= solution.makespan


def test_evaluations_and_options_reach_the_method(run: Any, problem: hs.Problem) -> None:
    seen: dict[str, Any] = {}

    def spy(problem: hs.Problem, monitor: Monitor, depth: int = 1, label: str = "", wide: bool = False) -> None:
        seen.update(depth=depth, label=label, wide=wide, budget=monitor.budget, seed=monitor.seed)

    given = ["--option", "depth=3", "--option", "label=a=b", "--option", "wide=true"]
    with temporarily(Method("spy", "records", spy)):
        solved = run("solve", "problem.json", "--method", "spy", *given, "--evaluations", 9, "--time-limit", 2.5, "--seed", 4)
    assert solved.exit_code == 1  # the method offers no schedule
    assert (seen["depth"], seen["label"], seen["wide"], seen["seed"]) == (3, "a=b", True, 4)
    assert (seen["budget"].evaluations, seen["budget"].time_limit) == (9, 2.5)


def test_nothing_found_is_a_no_and_writes_no_schedule(run: Any, problem: hs.Problem) -> None:
    def idle(problem: hs.Problem, monitor: Monitor) -> None:
        monitor.note("nothing fits")

    with temporarily(Method("idle", "offers nothing", idle)):
        solved = run("solve", "problem.json", "--method", "idle", "-o", "schedule.json")
    assert solved.exit_code == 1
    assert "unknown" in solved.stdout
    assert solved.stderr == "note: idle: nothing fits\nnote: schedule.json is not written: there is no valid schedule\n"
    assert not Path("schedule.json").exists()


def test_proven_infeasible_is_a_no_with_the_reason(run: Any, document: dict[str, Any]) -> None:
    for device in document["cluster"]["devices"]:
        device["memory_bytes"] = 1e6  # the weights alone are 9 MB each
    Path("problem.json").write_text(json.dumps(document))
    solved = run("solve", "problem.json")
    assert solved.exit_code == 1
    assert "infeasible" in solved.stdout
    facts = json.loads(run("solve", "problem.json", "--json").stdout)
    assert (facts["status"], facts["makespan"], facts["bound"]) == ("infeasible", None, None)
    assert facts["bound_evidence"]
    bounded = run("bound", "problem.json")
    assert bounded.exit_code == 1
    assert bounded.stdout.splitlines()[0].split(maxsplit=1) == ["inf", f"by {facts['bound_name']}: {facts['bound_evidence']}"]


def test_ctrl_c_writes_the_best_schedule_so_far(run: Any, problem: hs.Problem) -> None:
    def interrupted(problem: hs.Problem, monitor: Monitor) -> None:
        monitor.offer(hs.Decision.from_assignment(problem, dict.fromkeys(problem.graph.names, "cpu")))
        raise KeyboardInterrupt

    with temporarily(Method("interrupted", "is stopped", interrupted)):
        solved = run("solve", "problem.json", "--method", "interrupted", "-o", "schedule.json")
    assert solved.exit_code == 130
    assert "interrupted" in solved.stderr
    schedule = hs.read("schedule.json")
    assert isinstance(schedule, hs.Schedule)
    assert hs.verify(problem, schedule) == []


def test_verify_names_each_broken_rule_on_a_line(run: Any, problem: hs.Problem, schedule: hs.Schedule) -> None:
    spoilt = json.loads(Path("schedule.json").read_text())
    spoilt["schedule"]["batches"][0]["start"] += 1e-3
    spoilt["schedule"]["batches"][2]["finish"] += 5.0
    Path("schedule.json").write_text(json.dumps(spoilt))
    broken = hs.read("schedule.json")
    assert isinstance(broken, hs.Schedule)
    violations = hs.verify(problem, broken)
    assert violations
    checked = run("verify", "problem.json", "schedule.json")
    assert checked.exit_code == 1
    assert [line.split(":")[0] for line in checked.stdout.splitlines()] == [violation.rule for violation in violations]
    facts = run("verify", "problem.json", "schedule.json", "--json")
    assert facts.exit_code == 1
    assert [row["rule"] for row in json.loads(facts.stdout)["violations"]] == [violation.rule for violation in violations]


def test_bound_prints_the_strongest_first_with_its_evidence(run: Any, problem: hs.Problem) -> None:
    best = hs.bound(problem)
    shown = run("bound", "problem.json")
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.splitlines()[0].endswith(f"by {best.name}: {best.evidence}")
    facts = json.loads(run("bound", "problem.json", "--json").stdout)
    assert (facts["value"], facts["name"]) == (best.value, best.name)
    assert [row["value"] for row in facts["all"]] == sorted((row["value"] for row in facts["all"]), reverse=True)
    assert facts["all"][0] == {key: facts[key] for key in ("value", "name", "evidence", "objective", "trust")}
    hasty = json.loads(run("bound", "problem.json", "--time-limit", 0, "--json").stdout)
    assert len(hasty["all"]) == 1


OVERWRITTEN = "problem.json would be overwritten by the answer; give the output another name"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "problem.json"], OVERWRITTEN),
        (["--solution", "./problem.json"], OVERWRITTEN),
        (["--report", "problem.json"], OVERWRITTEN),
        (["-o", "answer.json", "--solution", "answer.json"], "answer.json is named for two outputs; give each a name of its own"),
        (["--solution", "answer.json", "--trace", "./answer.json"], "answer.json is named for two outputs; give each a name of its own"),
        (["-o", "-"], "'-' cannot be written to: standard output carries the command's report; name a file"),
        (["--report", "-"], "'-' cannot be written to: standard output carries the command's report; name a file"),
        (["--show", "--json"], "a drawing is not JSON; leave out one of --show and --json"),
    ],
)
def test_outputs_that_clash_are_refused_before_the_work(run: Any, problem: hs.Problem, arguments: list[str], message: str) -> None:
    before = Path("problem.json").read_bytes()
    solved = run("solve", "problem.json", *arguments)
    assert (solved.exit_code, solved.stdout) == (2, "")
    assert message in solved.stderr
    assert solved.stderr.count("\n") == 1
    assert Path("problem.json").read_bytes() == before
    assert [path.name for path in Path.cwd().iterdir()] == ["problem.json"]


def test_a_schedule_that_cannot_be_written_is_still_printed(run: Any, problem: hs.Problem) -> None:
    solved = run("solve", "problem.json", "-o", "/dev/full")
    assert solved.exit_code == 2
    assert "makespan" in solved.stdout
    assert solved.stderr == "error: /dev/full: No space left on device\n"
