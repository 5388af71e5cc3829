"""The documents that the checker reads: what it refuses, with which words, and that the file needs nothing else."""

from __future__ import annotations

import ast
import copy
import gzip
import io
import json
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched as hs
from hetsched import checker, documents

FILE = Path(checker.__file__)
MOST_LINES = 632
"""Of code: without docstrings, comments and blank lines."""


def four_tasks() -> hs.Problem:
    """Return three tasks of 2 s on one device, then one of 1 s: no schedule takes less than 7 s."""
    graph = hs.TaskGraph(["a", "b", "c", "d"], [("a", "d"), ("b", "d"), ("c", "d")], weight_bytes=1.0)
    return hs.Problem(graph, hs.Cluster([hs.Device("x", memory_bytes=8.0)]), durations=[[2.0]] * 3 + [[1.0]])


def proof(**changes: Any) -> dict[str, Any]:
    """Return a certificate of 7 s, by a lemma that the last task starts no earlier than at 6 s."""
    release = {"window": None, "goal": ["release", 3, 0, 6], "tree": [["o", 1, 2], ["."], ["."]]}
    claim = {"window": None, "goal": ["makespan"], "tree": [["."]]}
    return {
        "format": "hetsched-certificate",
        "version": 1,
        "rules": 1,
        "digest": checker.Problem(documents.encode(four_tasks())).digest(),
        "objective": "makespan",
        "unit": "1",
        "claim": "7",
        "lemmas": [release, claim],
        **changes,
    }


def checked(document: dict[str, Any] | str, problem: bytes | None = None) -> checker.Verdict:
    exact = checker.Problem(documents.encode(four_tasks()) if problem is None else problem)
    data = (document if isinstance(document, str) else json.dumps(document)).encode()
    return checker.check(exact, checker.read_certificate(data, exact))


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the certificate with a value put at ``key.index.key``."""
    document = copy.deepcopy(proof())
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = document
    for key in way:
        place = place[key]
    place[last] = value
    return document


def test_a_claim_is_proven_by_a_lemma() -> None:
    assert str(checked(proof())) == "no schedule is shorter than 7 s (4 tasks, 3 leaves)"
    assert checked(proof(unit="1/3", claim="41/6", lemmas=[{**proof()["lemmas"][1], "tree": [["b", 0, 0, [1]], ["."]]}])).bound == 7


def test_a_decision_is_timed_exactly() -> None:
    verdict = checked(proof(schedule={"batches": [[1, 0, [0]], [0, 0, [0]], [2, 0, [0]], [3, 0, [0]]]}))
    assert str(verdict) == "no schedule is shorter than 7 s (4 tasks, 3 leaves); the decision takes 7 s, its memory not checked"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("version", True, "version of the certificate is True; it must be 1"),
        ("rules", 4, "rules of the certificate is 4; it must be 1 or 2 or 3"),
        ("lemmas", [{"window": None, "goal": ["makespan"], "tree": [["j"], ["."]]}], "token 0 of lemma 0 is 'j'; it must be '.'"),
        ("objective", "period", "objective of the certificate is 'period'; it must be 'makespan'"),
        ("more", 1, "the certificate has unknown keys: ['more']"),
        ("unit", "0", "unit is 0; it must be positive"),
        ("unit", "-1", "unit is '-1'; it must be text of at most 80 characters: digits, or digits/digits"),
        ("unit", "1/0", "unit is '1/0'; it must be text"),
        ("unit", "1e999999999", "unit is '1e999999999'; it must be text"),
        ("unit", "\u0661", "it must be text of at most 80 characters"),
        ("unit", 1, "unit is 1; it must be text"),
        ("claim", "9" * 81, "claim is '99"),
        ("claim", "9" * 80, "the claim is 2^256 units or more; the certificate needs a larger unit"),
        ("unit", "1/" + "9" * 78, "the claim is 2^256 units or more"),
        ("digest", "x", "digest must be 64 hexadecimal digits"),
        ("lemmas", [], "the last lemma, and no other, must have the goal makespan"),
        ("lemmas.0.goal", ["makespan"], "the last lemma, and no other, must have the goal makespan"),
        ("lemmas.0.goal", ["last", 1], "the kind of the goal of lemma 0 is 'last'; it must be 'release' or 'delivery' or 'makespan'"),
        ("lemmas.0.goal.1", 4, "the goal of lemma 0 is 4; it must be from 0 to 3"),
        ("lemmas.0.window", [0, 0], "the window of lemma 0 has a task twice"),
        ("lemmas.0.tree", [], "the tree of lemma 0 ends before its last leaf"),
        ("lemmas.0.tree.0", ["."], "token 1 of lemma 0 comes after the last leaf of its tree"),
        ("lemmas.0.tree.0.1", -1, "token 0 of lemma 0 is -1; it must be from 0 to 3"),
        ("lemmas.0.tree.0.1", True, "token 0 of lemma 0 is True; it must be a whole number"),
        ("lemmas.0.tree.0.1", 1.0, "token 0 of lemma 0 is 1.0; it must be a whole number"),
        ("lemmas.0.tree.0", ["o", 0], "token 0 of lemma 0 has length 2; it must be 3"),
        ("lemmas.0.tree.0", ["b", 2**256, 0, [1]], "token 0 of lemma 0 is 1157"),
        ("lemmas.0.tree.0", ["b", 0, 0, [0]], "the prices of token 0 of lemma 0 are all 0"),
        ("lemmas.0.tree.0", ["b", 0, 0, [1, 1]], "token 0 of lemma 0 has length 2; it must be 1"),
        ("schedule", {"batches": [[0, 1, [0]]]}, "a number of a batch is 1; it must be from 0 to 0"),
        ("schedule", {"batches": None, "transfers": [[0, 0, 0]]}, "a number of a transfer is 0; it must be from 0 to -1"),
    ],
)
def test_what_is_malformed_is_refused_before_anything_is_replayed(path: str, value: Any, said: str) -> None:
    with pytest.raises(checker.Malformed) as refused:
        checked(changed(path, value))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("digest", "0" * 64, "the certificate is of another problem: the digests differ"),
        ("claim", "8", "lemma 1 (makespan), token 0: the leaf is open: neither R0 to R2 nor the hints before it contradict its state"),
        ("lemmas.0.goal.3", 7, "lemma 0 (release 3 0 7), token 1: the leaf is open"),
        ("lemmas.0.goal", ["delivery", 3, 0, 1], "lemma 0 (delivery 3 0 1), token 0: task 1 is not in the window"),
        ("lemmas.0.window", [0, 1], "lemma 0 (release 3 0 6): the window must be the task and ancestors of it"),
        ("lemmas.0.tree", [["o", 1, 2], ["o", 0, 1], ["."], ["."], ["."]], "token 1: only a leaf may follow a contradiction: task"),
        ("lemmas.0.tree.0", ["o", 0, 0], "tasks 0 and 0 are not two tasks of positive length with the same only device"),
        ("schedule", {"batches": [[0, 0, [0]]]}, "an input of a task is in no batch"),
        (
            "schedule",
            {"batches": [[3, 0, [0]], [0, 0, [0]], [1, 0, [0]], [2, 0, [0]]]},
            "the orders of the decision and the edges make a cycle",
        ),
        ("schedule", {"batches": [[0, 0, [0]], [0, 0, [0]]]}, "batch 1: input 0 of task 0 is in two batches"),
        ("schedule", {"batches": [[0, 0, [0, 0]]]}, "batch 0: task 0 cannot run 2 inputs at once on device 0"),
    ],
)
def test_what_is_not_proven_is_rejected_with_its_place(path: str, value: Any, said: str) -> None:
    with pytest.raises(checker.Rejected) as refused:
        checked(changed(path, value))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "the certificate is not read"),
        ('{"format": 1, "format": 1}', "the certificate has a key twice in an object"),
        ('{"format": NaN}', "the certificate has NaN, no JSON"),
        ("1" * 5000, "the certificate is not read"),
        ("[]", "the certificate is []; it must be an object"),
        ("", "the certificate is not read"),
    ],
)
def test_text_that_is_no_document_is_malformed(text: str, said: str) -> None:
    with pytest.raises(checker.Malformed) as refused:
        checked(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: p["durations"][0].__setitem__(0, -1), "a duration is -1; it must be 0 or a number from 1e-100 to 1e100, or null"),
        (lambda p: p["durations"][0].__setitem__(0, True), "a duration is True"),
        (lambda p: p["durations"].pop(), "durations has length 3; it must be 4"),
        (lambda p: p["graph"]["edges"].append(["d", "a", 0]), "the graph has a cycle"),
        (lambda p: p["graph"]["edges"].append(["c", "z", 0]), "an edge joins ['c', 'z'], and one is no task"),
        (lambda p: p["graph"]["tasks"][0].update(name="b"), "the names of tasks are not distinct"),
        (lambda p: p["graph"]["tasks"][0].update(devices=["z"]), "a task is pinned to ['z'], and one is no device"),
        (lambda p: p.update(batch_sizes=[1, 1]), "batch_sizes is [1, 1]; it must have distinct sizes"),
        (lambda p: p.update(inputs=0), "inputs is 0; it must be from 1 to 1000000"),
        (lambda p: p.update(inputs=10**6, graph={"tasks": [{"name": str(i)} for i in range(11)]}), "is beyond 10000000"),
        (
            lambda p: p["cluster"].update(devices=[{"name": str(k)} for k in range(257)]),
            "the number of devices is 257; it must be from 1 to 256",
        ),
        (lambda p: p.update(kinds=["x"]), "kinds is ['x']; it must have each kind of the devices once"),
        (lambda p: p.update(surprise=1), "the problem has unknown keys: ['surprise']"),
    ],
)
def test_a_problem_that_is_malformed_is_refused(change: Callable[[dict[str, Any]], Any], said: str) -> None:
    document = json.loads(documents.encode(four_tasks()))
    change(document)
    with pytest.raises(checker.Malformed) as refused:
        checked(proof(), json.dumps(document).encode())
    assert said in str(refused.value)


def test_memory_alone_proves_that_there_is_no_schedule() -> None:
    graph = hs.TaskGraph(["a", "b", "c"], [], weight_bytes=5.0)
    problem = documents.encode(hs.Problem(graph, hs.Cluster([hs.Device("d", memory_bytes=14.0)]), durations=[[1.0]] * 3))
    tree = [["m", 0, 0, [0], [1]], ["."]]
    document = proof(
        claim="infinity", digest=checker.Problem(problem).digest(), lemmas=[{"window": None, "goal": ["makespan"], "tree": tree}]
    )
    assert str(checked(document, problem)) == "no schedule exists (3 tasks, 1 leaf)"


def test_a_join_of_a_parent_without_a_way_ends() -> None:
    """The joins before `j` leave `i` on `x` alone, from which nothing leads to `k`."""
    names = {"a": "y", "b": "y", "i": "xy", "c": "xyk", "j": "xyk"}
    edges = [("a", "i"), ("b", "i"), ("i", "j"), ("c", "j")]
    transfers = np.zeros((4, 3, 3))
    transfers[2, 0, 2] = np.nan
    graph = hs.TaskGraph(list(names), edges, devices={name: list(devices) for name, devices in names.items()})
    durations = [[2.0] * 3, [2.0] * 3, [1.0, 3.0, 9.0], [1.0] * 3, [1.0] * 3]
    problem = documents.encode(hs.Problem(graph, hs.Cluster(["x", "y", "k"], bandwidth=1.0), durations=durations, transfers=transfers))
    lemma = {"window": None, "goal": ["makespan"], "tree": [["j"], ["."]]}
    with pytest.raises(checker.Rejected, match="token 1: the leaf is open"):
        checked(proof(rules=2, claim="8", digest=checker.Problem(problem).digest(), lemmas=[lemma]), problem)


def test_a_proof_that_takes_too_long_is_given_up() -> None:
    exact = checker.Problem(documents.encode(four_tasks()))
    with pytest.raises(checker.Late, match="the time is over at token 0 of 3 of lemma 0"):
        checker.check(exact, checker.read_certificate(json.dumps(proof()).encode(), exact), deadline=0.0)


def test_a_certificate_is_read_and_written_back_equal(tmp_path: Path) -> None:
    document = proof(made_by="hand", schedule={"batches": [[1, 0, [0]], [0, 0, [0]], [2, 0, [0]], [3, 0, [0]]], "transfers": [[0, 0, 1]]})
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(document))
    value = hs.read(path)
    assert repr(value) == "<Certificate: no schedule is shorter than 7 s, in 2 lemmas of 4 nodes and 0 hints>"
    assert json.loads(documents.encode(value)) == document
    path.write_text(json.dumps(proof(claim="1/0")))
    with pytest.raises(hs.InvalidProblem, match="'1/0' is no rational number; its denominator must not be 0"):
        hs.read(path)


def run(folder: Path, *words: str) -> tuple[int, str]:
    """Run a copy of the file in a folder of its own, where no package can be found."""
    shutil.copy(FILE, folder / "checker.py")
    done = subprocess.run([sys.executable, "-I", "checker.py", *words], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_the_file_runs_alone(tmp_path: Path) -> None:
    four_tasks().write(tmp_path / "problem.json")
    (tmp_path / "proof.json.gz").write_bytes(gzip.compress(json.dumps(proof()).encode()))
    (tmp_path / "wrong.json").write_text(json.dumps(proof(claim="8")))
    (tmp_path / "torn.json.gz").write_bytes(gzip.compress(json.dumps(proof()).encode())[:50])
    assert run(tmp_path, "problem.json", "proof.json.gz") == (0, "no schedule is shorter than 7 s (4 tasks, 3 leaves)\n")
    code, said = run(tmp_path, "problem.json", "wrong.json")
    assert (code, said[:40]) == (1, "rejected: lemma 1 (makespan), token 0: t")
    code, said = run(tmp_path, "problem.json", "torn.json.gz")
    assert (code, said[:36]) == (2, "error: torn.json.gz: not a gzip file")
    assert run(tmp_path) == (2, "error: usage: python checker.py problem.json certificate.json[.gz]\n")


def test_the_file_is_short_and_imports_the_standard_library_only() -> None:
    text = FILE.read_text(encoding="utf-8")
    tree = ast.parse(text)
    imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {(node.module or "hetsched").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    words = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in empty]
    lines = {line for token in words for line in range(token.start[0], token.end[0] + 1)}
    said = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    lines -= {line for node in said for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    assert len(lines) <= MOST_LINES
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value > 1e100]


def test_the_digest_is_of_numbers_as_float64() -> None:
    document = json.loads(documents.encode(four_tasks()))
    before = checker.Problem(json.dumps(document).encode()).digest()
    document["durations"][0][0] = 2
    document["graph"]["edges"] = [["a", "d", 0], ["b", "d", -0.0], ["b", "d", 0], ["c", "d", 0]]
    assert checker.Problem(json.dumps(document).encode()).digest() == before
    assert checker.seconds(Fraction(1, 3)) == "1/3 s"
    assert checker.seconds(Fraction(1, 3001)) == "0.000333222259 s (exactly 1/3001)"
