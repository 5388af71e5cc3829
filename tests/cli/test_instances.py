"""`hetsched instances`: listing, showing, fetching, checking and submitting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hetsched as hs
from hetsched.instances import families
from tests.golden import topcuoglu


def said(run: Any, *words: object, code: int = 0) -> str:
    """Run a command and return what it printed."""
    result = run("instances", *words)
    assert result.exit_code == code, result.stderr
    return str(result.stdout if code == 0 else result.stderr)


def test_instances_are_listed_and_shown(run: Any) -> None:
    assert "topcuoglu2002  10     3        73" in said(run, "list", "examples")
    rows = json.loads(said(run, "list", "topcuoglu2002", "--json"))
    assert [row["name"] for row in rows] == ["topcuoglu2002"]
    assert "topcuoglu2002" not in said(run, "list", "--open")
    shown = said(run, "show", "topcuoglu2002")
    assert "upper     73 s, checked, by hetsched" in shown
    assert said(run, "show", "nothing", code=2).startswith("error: there is no instance 'nothing'; close are ")


def test_an_instance_is_written_as_a_problem(run: Any, tmp_path: Path) -> None:
    said(run, "fetch", "topcuoglu2002", "-o", str(tmp_path / "problem.json"))
    assert hs.read(tmp_path / "problem.json") == topcuoglu()
    assert "2 instances do not fit into one file; name one" in said(run, "fetch", "examples", "-o", "x.json", code=2)


def test_a_schedule_is_submitted_and_checked_again(run: Any, tmp_path: Path) -> None:
    registry, schedule = tmp_path / "examples.json", tmp_path / "schedule.json"
    families()["examples"].write(registry)
    hs.solve(topcuoglu(), "heft").schedule.write(schedule)
    added = said(run, "submit", "topcuoglu2002", "--by", "HEFT", "--registry", str(registry), "--schedule", str(schedule))
    assert added == f"added: upper 80 s, checked, to {registry}\n"
    assert [(claim.value, claim.by) for claim in hs.read(registry).instances[0].claims if claim.by == "HEFT"] == [("80", "HEFT")]
    assert "there is nothing to claim" in said(run, "submit", "topcuoglu2002", "--by", "x", "--registry", str(registry), code=2)


def test_what_is_shipped_is_checked(run: Any) -> None:
    assert "0 do not hold" in said(run, "check", "examples")


def test_the_page_is_written_and_a_stale_one_is_told(run: Any, tmp_path: Path) -> None:
    written = tmp_path / "instances.md"
    said(run, "table", "-o", str(written))
    said(run, "table", "--check", str(written))
    written.write_text(written.read_text().replace("| 73 ", "| 74 "))
    assert "does not have the present tables" in said(run, "table", "--check", str(written), code=1)


def test_files_that_are_not_there_do_not_end_a_check(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "kacem1.json").write_text("another")
    monkeypatch.setenv("HETSCHED_INSTANCES", str(tmp_path))
    done = run("instances", "check", "kacem1", "topcuoglu2002")
    assert done.exit_code == 1
    assert "not read: kacem1: " in done.stderr
    assert done.stdout == "checked: 2 claims, 0 do not hold; 1 instances are not read\n"
    assert run("instances", "fetch", "kacem1", "topcuoglu2002").exit_code == 1


def other_claim(claim: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a claim with other fields; those that are None are left out."""
    return {name: value for name, value in {**claim, **fields}.items() if value is not None}


@pytest.mark.parametrize(
    ("place", "change", "why"),
    [
        ({"sha256": "0" * 64}, {}, "is not the file of instance 'topcuoglu2002': its SHA-256 differs"),
        ({"digest": "0" * 64}, {}, "the digests differ"),
        ({"tasks": 11}, {}, "has 10 tasks and 3 devices, but the registry states 11 and 3"),
        ({"devices": 4}, {}, "has 10 tasks and 3 devices, but the registry states 10 and 4"),
        ({}, {"kind": "upper", "value": "72", "trust": "published"}, "the lower bound 73 of "),
        ({}, {"kind": "lower", "value": "74", "trust": "solver"}, "and the upper one was checked; the lower one is wrong: find out why"),
        ({}, {"kind": "upper", "value": "73", "trust": "checked"}, "upper 73: it has no evidence, which is the batches of a schedule"),
        ({}, {"kind": "lower", "value": "73", "trust": "checked"}, "lower 73: it has no evidence, which is a certificate"),
    ],
)
def test_what_is_false_in_a_registry_is_told(run: Any, tmp_path: Path, place: dict[str, Any], change: dict[str, Any], why: str) -> None:
    registry = tmp_path / "examples.json"
    families()["examples"].write(registry)
    assert said(run, "check", "--registry", str(registry)) == "checked: 4 claims, 0 do not hold\n"
    document = json.loads(registry.read_bytes())
    first = document["instances"][0]
    first |= place
    first["claims"] += [other_claim(first["claims"][0], evidence=None, **change)] if change else []
    registry.write_text(json.dumps(document))
    assert why in said(run, "check", "topcuoglu2002", "--registry", str(registry), code=1)


def test_what_is_no_registry_is_refused(run: Any, tmp_path: Path) -> None:
    registry, problem = tmp_path / "examples.json", tmp_path / "problem.json"
    families()["examples"].write(registry)
    topcuoglu().write(problem)
    assert f"{problem} is no registry" in said(run, "check", "--registry", str(problem), code=2)
    assert f"{registry} has no instance 'mk1'" in said(run, "check", "mk1", "--registry", str(registry), code=2)


def test_what_is_no_certificate_is_refused(run: Any, tmp_path: Path) -> None:
    registry, broken = tmp_path / "examples.json", tmp_path / "broken.json"
    families()["examples"].write(registry)
    for text, why in (("", "is no certificate"), ("{}", "is refused")):
        broken.write_text(text)
        words = ("submit", "topcuoglu2002", "--by", "x", "--registry", str(registry), "--certificate", str(broken))
        assert why in said(run, *words, code=2)
