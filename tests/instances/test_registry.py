"""The registry: claims, their order and their contradictions; files, wherever they are; evidence that is checked again."""

from __future__ import annotations

import datetime
import functools
import hashlib
import http.server
import shutil
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.instances import TRUST, Claim, Family, Instance, claim_of, entry, failures, families, load, names, page, tables
from hetsched.instances.claims import decided, evidence_of
from hetsched.instances.files import FOLDERS, digest, problem_of
from hetsched.testing import decisions, problems
from tests.golden import arabnejad, topcuoglu

TODAY = datetime.date(2026, 11, 26)
claims = st.builds(
    Claim,
    st.sampled_from(["lower", "upper"]),
    st.builds(str, st.fractions(0, 20, max_denominator=4)),
    st.sampled_from(list(TRUST)),
    st.just("someone"),
    st.just(TODAY),
)


def instance(*given: Claim, name: str = "one") -> Instance:
    return Instance(name, "fjsp", f"{name}.json", "0" * 64, "0" * 64, 1, 1, claims=list(given))


def family(*instances: Instance) -> Family:
    return Family("few", "someone 2026", "none", "nobody", instances)


@given(st.lists(claims, max_size=6))
def test_the_best_claim_is_the_tightest_and_then_the_most_trusted(given_claims):
    one = instance(*given_claims)
    for kind, best in (("lower", max), ("upper", min)):
        own = [claim for claim in given_claims if claim.kind == kind]
        found = one.best(kind)
        assert (found is None) == (not own)
        if found is not None:
            assert found.seconds == best(claim.seconds for claim in own)
            equal = [list(TRUST).index(claim.trust) for claim in own if claim.seconds == found.seconds]
            assert list(TRUST).index(found.trust) == max(equal)
        for trust in TRUST:
            assert (one.best(kind, trust) is None) == (trust not in [claim.trust for claim in own])
    lower, upper = one.best("lower"), one.best("upper")
    assert (one.status == "open") == (lower is None or upper is None or lower.seconds < upper.seconds)
    assert (one.status == "contradictory") == (lower is not None and upper is not None and lower.seconds > upper.seconds)


@given(st.lists(claims, max_size=5))
def test_a_family_with_a_refuted_claim_is_refused(given_claims):
    pairs = [(one, other) for one in given_claims for other in given_claims if one.kind == "lower" and other.kind == "upper"]
    refuted = any(one.seconds > other.seconds and "checked" in (one.trust, other.trust) for one, other in pairs)
    if refuted:
        with pytest.raises(hs.InvalidProblem, match="one was checked; the .* one is wrong: find out why"):
            family(instance(*given_claims))
    else:
        assert family(instance(*given_claims)).instances[0].claims == given_claims


def test_of_two_checked_claims_that_contradict_neither_is_blamed():
    lower, upper = (Claim(kind, value, "checked", "someone", TODAY) for kind, value in (("lower", "8"), ("upper", "7")))
    with pytest.raises(
        hs.InvalidProblem, match="and the lower one was checked; the upper one was checked, too, and one is wrong: find out why"
    ):
        family(instance(lower, upper))


def test_a_family_is_a_document(tmp_path: Path):
    one = family(instance(Claim("lower", "7/2", "published", "a paper", TODAY)), instance(name="two"))
    one.write(tmp_path / "few.json")
    assert hs.read(tmp_path / "few.json") == one
    assert families(tmp_path) == {"few": one}


def test_a_key_that_stands_twice_is_refused(tmp_path: Path):
    """The last one would count in silence, so that a reader sees another claim than the program."""
    family = hs.instances.families()["examples"]
    path = tmp_path / "examples.json"
    family.write(path)
    text = path.read_text()
    for key in ('"family":"examples"', '"kind":"lower"', '"claim":"73"'):
        assert key in text
        path.write_text(text.replace(key, f"{key},{key}", 1))
        name = key.split('"')[1]
        with pytest.raises(hs.InvalidProblem, match=f"examples.json has the key '{name}' twice in an object; leave one of them out"):
            hs.read(path)


@pytest.mark.parametrize("value", ["1e9", "-1", "0.5", "1/0", "", "1" * 81])
def test_a_claim_is_an_exact_fraction(value: str):
    with pytest.raises(hs.InvalidProblem, match="it must be an exact fraction: digits, or digits/digits"):
        family(instance(Claim("lower", value, "published", "someone", TODAY)))


@pytest.mark.slow
@given(st.data())
def test_evidence_is_the_decision(data):
    problem = data.draw(problems())
    decision = data.draw(decisions(problem))
    assert decided(evidence_of(decision)) == decision
    timed = hs.simulate(problem, decision).decision
    assert decided(evidence_of(timed)) == timed


# ---------------------------------------------------------------------- what is shipped


def test_what_is_shipped_holds():
    assert load("topcuoglu2002") == topcuoglu()
    assert load("arabnejad2014") == arabnejad()
    assert {"topcuoglu2002", "arabnejad2014"} == set(names("examples")) <= set(names())
    assert [failures(entry(name)) for name in names("examples")] == [[], []]
    assert entry("topcuoglu2002").best("upper", "checked").seconds == 73
    shown = (Path(__file__).parents[2] / "docs" / "instances.md").read_text()
    assert page().strip() in shown  # else: hetsched instances table, or benchmarks/registry.py


@pytest.mark.slow
def test_the_worst_problems_of_list_schedulers_hold():
    """Each has the schedule of a method, a shortest one, and the certificate that it is; the ratio follows from the three."""
    for name in names("adversarial"):
        one = entry(name)
        own, shortest, certificate = one.claims
        assert failures(one) == []
        assert own.seconds > shortest.seconds == certificate.seconds
        assert own.by.rpartition(", ")[2] in hs.methods()


def test_the_ratio_of_the_schedule_of_a_method_is_a_column():
    by = (("upper", "9", "hetsched, heft"), ("upper", "6", "someone"), ("lower", "4", "someone"))
    one = instance(*(Claim(kind, value, "checked", who, TODAY) for kind, value, who in by))
    assert tables.markdown([one, instance(name="two")]).splitlines() == [
        "| instance | tasks | devices | lower bound | upper bound | gap | schedule | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| one | 1 | 1 | 4 checked | 6 checked | 33.3 % | 9 by `heft` | 2.25 |",
        "| two | 1 | 1 |  |  |  |  |  |",
    ]
    assert tables.markdown([instance(name="two")]).splitlines()[0].endswith("| gap |")


def test_names_that_do_not_exist_are_told():
    with pytest.raises(hs.InvalidArgument, match="there is no instance 'topcuoglu'; close are topcuoglu2002"):
        entry("topcuoglu")
    with pytest.raises(hs.InvalidArgument, match="there is no family 'none' of instances; choose from "):
        names("none")
    with pytest.raises(hs.InvalidArgument, match="kind is 'middle'; it must be one of 'lower', 'upper'"):
        entry("topcuoglu2002").best("middle")


# ---------------------------------------------------------------------- files


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Path, Instance]:
    """A file in a folder of its own, and its instance without an address."""
    path = tmp_path / "copies" / "shop.stg"
    path.parent.mkdir()
    problem = hs.Problem(
        hs.TaskGraph(["t0", "t1"], [("t0", "t1")]), hs.Cluster(["p0", "p1"], bandwidth=float("inf")), durations=[[2, 2], [3, 3]]
    )
    hs.frontends.stg.write(problem, path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return path, Instance("shop", "stg", "set/shop.stg", sha256, digest(problem), 2, 2, options={"processors": 2})


@pytest.fixture
def server(shop: tuple[Path, Instance]) -> Iterator[str]:
    """The address of the file's folder."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(shop[0].parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_files_are_found_in_the_folders_of_the_user(shop, tmp_path, monkeypatch):
    path, one = shop
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(
        hs.UnsupportedFeature, match=f"may not be passed on; put a copy of yours into a folder, and name the folder in {FOLDERS}"
    ):
        problem_of(one)
    monkeypatch.setenv(FOLDERS, str(tmp_path / "other"))
    for name in ("set/shop.stg", "set-shop.stg"):
        target = tmp_path / "other" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        assert problem_of(one).n_tasks == 2
        target.write_text("another")
        with pytest.raises(hs.InvalidProblem, match="is not the file of instance 'shop': its SHA-256 differs; remove it"):
            problem_of(one)
        target.unlink()


def test_files_are_fetched_once(shop, server, tmp_path, monkeypatch):
    pytest.importorskip("pooch")
    path, one = shop
    monkeypatch.delenv(FOLDERS, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    there = msgspec.structs.replace(one, source=f"{server}/shop.stg")
    assert problem_of(there).n_tasks == 2
    path.write_text("changed since")
    assert problem_of(there).n_tasks == 2  # from the cache
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    with pytest.raises(hs.InvalidProblem, match="is no longer the file of instance 'shop': its SHA-256 differs"):
        problem_of(there)


def test_a_file_that_is_read_as_another_problem_is_refused(shop, monkeypatch):
    path, one = shop
    path.rename(path.parent / "set-shop.stg")
    monkeypatch.setenv(FOLDERS, str(path.parent))
    with pytest.raises(hs.InvalidProblem, match="is read as another problem than the one of instance 'shop': the digests differ"):
        problem_of(msgspec.structs.replace(one, options={"processors": 3}))


# ---------------------------------------------------------------------- claims


def test_claims_are_made_of_what_was_checked_and_checked_again():
    one = msgspec.structs.replace(entry("topcuoglu2002"), claims=[])
    heft = hs.solve(topcuoglu(), "heft").schedule
    claim = claim_of(one, "upper", evidence_of(heft.decision), "HEFT", TODAY)
    assert (claim.kind, claim.seconds, claim.trust, claim.date) == ("upper", Fraction(80), "checked", TODAY)
    assert failures(msgspec.structs.replace(one, claims=[claim])) == []
    false = msgspec.structs.replace(claim, value="79")
    assert failures(msgspec.structs.replace(one, claims=[false])) == ["topcuoglu2002: the evidence of upper 79 is for 80"]


def test_evidence_that_does_not_hold_is_refused():
    one = entry("topcuoglu2002")
    twice = {"batches": [[task, 0, [0]] for task in range(10)] + [[0, 1, [0]]]}
    with pytest.raises(hs.InvalidSchedule):
        claim_of(one, "upper", twice, "someone")
    with pytest.raises(hs.InvalidSchedule, match="the evidence for 'topcuoglu2002' is refused: "):
        claim_of(one, "lower", {"format": "none"}, "someone")
    nothing = msgspec.structs.replace(one, claims=[Claim("upper", "73", "checked", "someone", TODAY)])
    assert len(failures(nothing)) == 1


def test_a_claim_has_somebody_who_makes_it_a_past_date_and_of_a_solver_its_version():
    later = TODAY + datetime.timedelta(days=400)
    given = [Claim("lower", "70", "solver", "a solver", TODAY), Claim("lower", "71", "published", " ", TODAY)]
    one = msgspec.structs.replace(entry("topcuoglu2002"), claims=[*given, Claim("upper", "80", "published", "someone", later)])
    assert failures(one) == [
        "topcuoglu2002: lower 70: it has no evidence, which is the version and the options of the solver",
        "topcuoglu2002: lower 71: nobody makes it; state a program and its version, or a publication",
        f"topcuoglu2002: upper 80: its date is {later}, after today",
    ]


def test_a_file_outside_the_folders_is_refused():
    for name in ("/etc/passwd", "../shop.stg"):
        with pytest.raises(hs.InvalidProblem, match=f"'{name}' of instance 'topcuoglu2002' is no name of a file within a folder"):
            problem_of(msgspec.structs.replace(entry("topcuoglu2002"), file=name))


def test_claims_of_which_none_is_checked_may_not_contradict_each_other():
    given = [Claim("lower", "74", "solver", "a solver", TODAY, {"version": "1"}), Claim("upper", "73", "published", "someone", TODAY)]
    one = msgspec.structs.replace(entry("topcuoglu2002"), claims=given)
    assert failures(one) == ["topcuoglu2002: lower 74 (solver, by a solver) is above upper 73 (published, by someone)"]
