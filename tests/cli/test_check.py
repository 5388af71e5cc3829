"""`hetsched check`: a proof is replayed, and a decision timed exactly and verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hetsched as hs
from hetsched import checker, documents
from hetsched.cli.app import app

ORDER = [[0, 0, [0]], [1, 0, [0]], [2, 1, [0]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two tasks that one device runs, and one that the other runs, in 3 s at best."""
    graph = hs.TaskGraph(["a", "b", "c"], [], weight_bytes=4.0)
    cluster = hs.Cluster([hs.Device("x", memory_bytes=8.0), "y"], bandwidth=1.0)
    hs.Problem(graph, cluster, durations=[[1, None], [2, None], [3, 3]]).write(tmp_path / "problem.json")
    return tmp_path


def check(folder: Path, *words: str, **changes: Any) -> tuple[int, str]:
    data = (folder / "problem.json").read_bytes()
    document = {
        "format": "hetsched-certificate",
        "version": 1,
        "rules": 1,
        "digest": checker.Problem(data).digest(),
        "objective": "makespan",
        "unit": "1",
        "claim": "3",
        "lemmas": [{"window": None, "goal": ["makespan"], "tree": [["."]]}],
        **changes,
    }
    (folder / "proof.json").write_text(json.dumps(document))
    done = CliRunner().invoke(app, ["check", str(folder / "problem.json"), str(folder / "proof.json"), *words])
    return done.exit_code, done.output


def test_a_proven_claim_is_said(folder: Path) -> None:
    assert check(folder) == (0, "no schedule is shorter than 3 s (3 tasks, 1 leaf)\n")


def test_a_decision_as_short_as_the_claim_is_optimal_exactly(folder: Path) -> None:
    code, said = check(folder, schedule={"batches": ORDER})
    assert (code, said.splitlines()[1]) == (0, "optimal, exactly: the decision takes 3 s and keeps every rule")
    code, said = check(folder, schedule={"batches": ORDER}, claim="2")
    assert said.splitlines()[1] == "the decision takes 3 s and keeps every rule; none is shorter by more than 1 s"


def test_a_decision_beyond_the_memory_is_rejected(folder: Path) -> None:
    code, said = check(folder, schedule={"batches": [*ORDER[:2], [2, 0, [0]]]})
    assert code == 1
    assert said.startswith("rejected: the decision breaks a rule: memory: 'x' needs 12 bytes, 4 more than its 8")


def test_a_claim_that_is_not_proven_is_rejected_with_the_place(folder: Path) -> None:
    code, said = check(folder, claim="4")
    assert (code, said[:50]) == (1, "rejected: lemma 0 (makespan), token 0: the leaf is")


def test_a_malformed_document_is_one_line_of_error(folder: Path) -> None:
    assert check(folder, unit="-1")[0] == 2
    code, said = check(folder, "--time-limit", "0")
    assert code == 2
    assert said.startswith("error: the time is over at token 0 of 1 of lemma 0 (makespan); give a longer --time-limit, or none")


def test_json_has_exact_values(folder: Path) -> None:
    code, said = check(folder, "--json", schedule={"batches": ORDER})
    assert code == 0
    assert json.loads(said) == {"proven": True, "bound": "3", "makespan": "3", "leaves": 1, "reason": ""}
    assert json.loads(check(folder, "--json", claim="4")[1])["proven"] is False


def test_the_schema_of_certificates_is_known() -> None:
    assert documents.schema("certificate")["$ref"] == "#/$defs/CertificateDocument"
