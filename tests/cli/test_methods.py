"""Commands that print lists, and the exit codes of bad usage."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import hetsched as hs
from hetsched.runtime import forecast


def test_version(run: Any) -> None:
    assert run("--version").stdout == f"hetsched {hs.__version__}\n"


def test_methods_lists_every_method_with_its_options(run: Any) -> None:
    methods = hs.methods()
    rows = json.loads(run("methods", "--json").stdout)
    assert {row["name"] for row in rows} == set(methods)
    assert all(set(row["options"]) == set(methods[row["name"]].options) for row in rows)
    shown = run("methods")
    assert all(name in shown.stdout for name in methods)


@pytest.mark.parametrize("kind", ["graph", "cluster", "problem", "schedule", "solution", "stages", "timeline", "profile"])
def test_schema_is_a_json_schema_that_documents_meet(run: Any, problem: hs.Problem, kind: str) -> None:
    schema = json.loads(run("schema", kind).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    solution = hs.solve(problem, "heft")
    values = {
        "graph": problem.graph,
        "cluster": problem.cluster,
        "problem": problem,
        "schedule": solution.schedule,
        "solution": solution,
        "stages": hs.stages(problem.graph, lambda tasks, strategy: 1.0),
        "timeline": forecast(problem, solution.schedule),
        "profile": hs.costs.Profile.from_arrays(["a"], ["x"], [1], [[[1.0]]]),
    }
    jsonschema.validate(json.loads(hs.documents.encode(values[kind])), schema)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["solve"], "Missing argument 'PROBLEM'"),
        (["solve", "problem.json", "--frobnicate"], "No such option: --frobnicate"),
        (["solve", "problem.json", "--seed", "many"], "Invalid value for '--seed'"),
        (["solve", "problem.json", "--method", "frobnicate"], "unknown method 'frobnicate'; choose from"),
        (["solve", "problem.json", "--method", "heft", "--option", "frobnicate=1"], "'heft' takes no option 'frobnicate'"),
        (["solve", "problem.json", "--option", "frobnicate"], "'frobnicate' is not of the form KEY=VALUE"),
        (["solve", "problem.json", "--method", ","], "no method named"),
        (["bound", "problem.json", "--time-limit", "-1"], "time_limit is -1.0; it must be a number of seconds, at least 0"),
        (["bound", "problem.json", "--time-limit", "nan"], "time_limit is nan; it must be a number of seconds, at least 0"),
        (["solve", "problem.json", "--seed", "-1"], "seed is -1; it must be a whole number, at least 0"),
        (["solve", "problem.json", "--threads", "0"], "threads is 0; it must be a whole number, at least 1"),
        (["solve", "problem.json", "--time-limit", "-1"], "time_limit is -1.0; it must be a number of seconds, at least 0"),
        (["solve", "problem.json", "--time-limit", "nan"], "time_limit is nan"),
        (["solve", "problem.json", "--time-limit", "2 GB"], "'2 GB' is not a number of seconds, or text such as '2 ms'"),
        (["solve", "problem.json", "-o", "nowhere/schedule.json"], "nowhere: no such folder to write into"),
        (["solve", "problem.json", "-o", "."], ".: Is a directory"),
        (["solve", "problem.json", "--start", "problem.json"], "problem.json holds a problem, but a schedule or a solution is needed here"),
        (
            ["verify", "problem.json", "problem.json"],
            "problem.json holds a problem, but a schedule or a solution or a timeline is needed here",
        ),
        (["verify", "schedule.json", "problem.json"], "schedule.json holds a schedule, but a problem is needed here"),
        (["bound", "nowhere.json"], "nowhere.json: No such file or directory"),
        (["schema", "frobnicate"], "no document kind 'frobnicate'; choose from graph"),
        (["generate", "rwnn", "--kind", "frobnicate", "-o", "p.json"], "frobnicate"),
        (["generate", "rwnn", "--n", "-3", "-o", "p.json"], "-3"),
        (["generate", "rwnn", "--cluster", "frobnicate", "-o", "p.json"], "cluster 'frobnicate' is neither a file nor one of diviml"),
        (["generate", "rwnn", "--cluster", "problem.json", "-o", "p.json"], "problem.json holds a problem, but a cluster is needed here"),
        (["generate", "rwnn", "--dtype", "frobnicate", "-o", "p.json"], "frobnicate"),
        (["generate", "network", "frobnicate", "-o", "p.json"], "frobnicate"),
        (["demo", "--network", "frobnicate"], "frobnicate"),
        (["generate", "rwnn", "-o", "-"], "'-' cannot be written to"),
        (["generate", "cluster", "diviml", "-o", "-"], "'-' cannot be written to"),
        (
            ["show", "problem.json", "problem.json"],
            "problem.json holds a problem, but a schedule or a solution or a timeline is needed here",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_is_one_line_and_exit_code_2(run: Any, schedule: hs.Schedule, words: list[str], message: str) -> None:
    failed = run(*words)
    assert failed.exit_code == 2
    assert failed.stdout == ""
    assert failed.stderr.startswith("error: ")
    assert failed.stderr.count("\n") == 1
    assert message in failed.stderr


@pytest.mark.parametrize("words", [["--debug", "bound", "nowhere.json"], ["bound", "nowhere.json", "--debug"]])
def test_debug_lets_the_error_through(run: Any, words: list[str]) -> None:
    assert isinstance(run(*words).exception, FileNotFoundError)
