"""`certify`: a certificate that the checker accepts by itself, and what is said without one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hetsched import checker
from tests import golden


@pytest.fixture
def topcuoglu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    golden.topcuoglu().write("problem.json")


@pytest.mark.usefixtures("topcuoglu")
def test_a_certificate_is_written_and_checked_by_its_files(run: Any) -> None:
    done = run("certify", "problem.json", "-o", "certificate.json.gz")
    assert done.exit_code == 0, done.stderr
    assert "no schedule is shorter than 73 s" in done.stdout
    assert "yes, by the checker" in done.stdout
    problem = checker.Problem(Path("problem.json").read_bytes())
    assert checker.check(problem, checker.read_certificate(checker.load("certificate.json.gz"), problem)).bound == 73
    assert json.loads(gzip.decompress(Path("certificate.json.gz").read_bytes()))["format"] == "hetsched-certificate"


@pytest.mark.usefixtures("topcuoglu")
def test_a_wrong_claim_is_not_certified(run: Any) -> None:
    done = run("certify", "problem.json", "--claim", "73.5", "-o", "certificate.json")
    assert done.exit_code == 1, done.stderr
    assert "no: 73.5 s is wrong, or not proven within 60.00 s" in done.stdout
    assert not Path("certificate.json").exists()
    facts = json.loads(run("certify", "problem.json", "--claim", "73", "--json").stdout)
    assert (facts["certified"], facts["value"], facts["exact"]) == (True, 73, "73")


@pytest.mark.usefixtures("topcuoglu")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--claim", "-1"], "claim is -1.0; it must be a number at least 0, or None"),
        (["--time-limit", "0"], "time_limit is 0.0; it must be a number above 0"),
    ],
)
def test_wrong_options_are_refused(run: Any, words: list[str], message: str) -> None:
    done = run("certify", "problem.json", *words)
    assert done.exit_code == 2
    assert message in done.stderr
