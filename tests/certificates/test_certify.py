"""Certificates: claims that the checker accepts, the best on small problems, and never above an optimum."""

from __future__ import annotations

import gzip
import json
import math
from itertools import pairwise
from pathlib import Path

import instances
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import checker
from hetsched.certificates import certifying, series
from hetsched.certificates.relaxation import Relaxation, Window
from hetsched.certificates.tree import closing
from hetsched.errors import InvalidArgument, OutOfTime, UnsupportedFeature
from hetsched.problem.links import UNCONTENDED
from hetsched.stopping import NEVER
from hetsched.testing import brute_force, problems
from hetsched.testing.profiles import examples
from tests import golden

SHOPS = Path(__file__).parents[2].parent / "shared" / "data" / "fjsp"
CLOSE = 1 - 1e-7


def optimum(problem: hs.Problem) -> float | None:
    """Return the optimal makespan, inf without a schedule, or None if it takes too long."""
    try:
        best = brute_force(problem, limit=20_000)
    except UnsupportedFeature:
        return None
    return math.inf if best is None else best.makespan


def certified(problem: hs.Problem, claim: float | None = None) -> hs.Certificate | None:
    """Return a certificate; where there is one, it is checked again as a document."""
    made = hs.certify(problem, claim, time_limit=20)
    if made is not None:
        exact = checker.Problem(hs.documents.encode(problem))
        verdict = checker.check(exact, checker.read_certificate(hs.documents.encode(made), exact))
        assert (math.inf if verdict.bound is None else float(verdict.bound)) == pytest.approx(made.value, rel=1e-15)
        assert made.check(problem).trust == "checked"
    return made


# ---------------------------------------------------------------- properties


@examples(15)
@given(problem=problems())
def test_no_claim_is_above_the_optimum(problem: hs.Problem) -> None:
    """With contention, several inputs and memory; there always is a certificate."""
    best = optimum(problem)
    if best is None:
        return
    made = certified(problem)
    assert made is not None
    assert made.value <= best * (1 + 1e-12)
    assert made.value >= max(hs.bounds.combinatorial.critical_path(problem).value * CLOSE, 0) or math.isinf(made.value)


@examples(15)
@given(problem=problems(n_tasks=st.integers(1, 5), inputs=1, communication=st.sampled_from(UNCONTENDED), memory="static", tight=False))
def test_the_claim_is_the_optimum_of_one_input(problem: hs.Problem) -> None:
    """Found, or given; and an eighth more, the step of all numbers here, is not proven."""
    best = optimum(problem)
    if best is None:
        return
    found, given_ = certified(problem), certified(problem, best)
    assert found is not None
    if math.isinf(best):
        assert (found.value, found.claim) == (math.inf, None)
        return
    assert given_ is not None
    assert min(found.value, given_.value) >= best * CLOSE
    assert hs.certify(problem, best + 0.125, time_limit=20) is None


@examples(10)
@given(problem=problems(inputs=st.sampled_from([2, 3]), communication="delay", tight=False))
def test_loads_count_every_input(problem: hs.Problem) -> None:
    """The claim is at least the bounds without branching, which are of all inputs."""
    made = certified(problem)
    assert made is not None
    combinatorial = hs.bounds.combinatorial
    assert made.value >= max(bound(problem).value for bound in (combinatorial.critical_path, combinatorial.head_tail_load)) * (1 - 2e-6)


@examples(15)
@given(problem=problems(inputs=1, communication="delay", tight=False), more=st.integers(0, 8))
def test_no_hint_of_a_leaf_is_in_vain(problem: hs.Problem, more: int) -> None:
    window = Window(Relaxation(problem))
    root = window.root(1 + more)
    found = closing(window, root, NEVER, root=True)
    if not found:
        return
    for x in range(len(found)):
        trial = root.copy()
        for hint in found[:x] + found[x + 1 :]:
            trial.hint(hint)
            trial.propagate()
        assert not trial.contradiction, f"{found[x]} is not needed"


SERIES = [
    hs.TaskGraph(list("abcd"), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], output_bytes=[1, 2, 0, 1]),
    hs.TaskGraph(list("edcba"), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")], output_bytes=[1, 0, 2, 1, 3]),
    hs.TaskGraph(list("abcde"), [("a", "c"), ("b", "c"), ("c", "d"), ("c", "e")], output_bytes=[1, 2, 3, 0, 1]),
]


@examples(15)
@given(problem=problems(graph=st.sampled_from(SERIES), inputs=1, communication=st.sampled_from(UNCONTENDED), memory="static", tight=False))
def test_lemmas_of_modules_in_series_lead_to_the_optimum(problem: hs.Problem) -> None:
    """Also of modules so small that they would be certified as one."""
    best = optimum(problem)
    if best is None or math.isinf(best):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certifying, "SMALL", 0)
        patch.setattr(series, "LEAST", 2)
        made = certified(problem)
        assert made is not None
        assert best * CLOSE <= made.value <= best
        assert hs.certify(problem, best + 0.125, time_limit=20) is None


# ---------------------------------------------------------------- golden values


@pytest.mark.parametrize(
    ("problem", "value", "most"), [(golden.topcuoglu(), 73, 3), (golden.arabnejad(), 113, 29)], ids=["topcuoglu", "arabnejad"]
)
def test_published_optima_are_certified(problem: hs.Problem, value: int, most: int) -> None:
    made = certified(problem)
    assert made is not None
    assert (made.claim, made.unit) == (value, 1)
    assert made.nodes <= most
    assert len(hs.documents.encode(made)) < 1000
    assert hs.certify(problem, value + 0.5) is None
    solution = hs.solve(problem, "branch")
    again = hs.certify(problem, solution.makespan)
    assert again is not None
    assert again.value == solution.makespan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "most"), [("yfjs03", 347, 400), ("yfjs04", 390, 2000), ("dafjs01", 257, 7500), ("fattahi16", 634, 7500)]
)
def test_optima_of_job_shops_are_certified(name: str, value: int, most: int) -> None:
    if not SHOPS.exists():
        pytest.skip(f"{SHOPS} is not there")
    problem = instances.read(SHOPS / f"{name}.json")
    made = certified(problem, value)
    assert made is not None
    assert made.claim == value
    assert made.nodes <= most
    assert len(gzip.compress(hs.documents.encode(made))) < 10_000
    assert hs.certify(problem, value + 1) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["er", "ws", "ba"])
def test_optima_of_random_modules_are_certified(kind: str) -> None:
    """Their times are no multiples of a unit of reasonable size, which costs next to nothing."""
    graph = hs.workloads.rwnn(kind=kind, n=10, modules=1, seed=1)
    problem = hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())
    solution = hs.solve(problem, "cpsat", time_limit=60)
    found, given_ = certified(problem), certified(problem, solution.makespan)
    assert found is not None
    assert given_ is not None
    assert found.value == pytest.approx(solution.makespan, rel=1e-6)
    assert solution.makespan * (1 - 3e-9) <= given_.value <= solution.makespan


@pytest.mark.slow
def test_the_optimum_of_modules_in_series_is_certified() -> None:
    """As `split` finds it, by a lemma for each module and device at its end."""
    graph = hs.workloads.rwnn(kind="er", n=10, modules=3, seed=0)
    problem = hs.Problem(graph, hs.workloads.clusters.diviml(), costs=hs.costs.Roofline())
    made = certified(problem)
    assert made is not None
    assert len(made.lemmas) >= 5
    assert len(hs.documents.encode(made)) < 5000
    assert made.value == pytest.approx(hs.solve(problem, "split", time_limit=60).makespan, rel=1e-6)


def test_a_critical_path_is_a_leaf_without_hints() -> None:
    problem = hs.Problem(hs.TaskGraph(["a", "b"], [("a", "b", 1.0)]), hs.Cluster(["x", "y"], bandwidth=1), durations=[[2, 3], [4, 5]])
    made = certified(problem)
    assert made is not None
    assert (made.claim, made.lemmas[0].tree) == (6, ((".",),))


def test_a_load_is_one_hint() -> None:
    """Ten tasks of 1 s on two devices, of which the second takes 4 s: 8 s."""
    problem = hs.Problem(hs.TaskGraph([f"t{i}" for i in range(10)]), hs.Cluster(["x", "y"], bandwidth=1), durations=[[1, 4]] * 10)
    made = certified(problem)
    assert made is not None
    assert made.claim == 8
    assert [token[0] for token in made.lemmas[0].tree] == ["b", "."]


def test_missing_memory_is_one_hint() -> None:
    """Three tasks of 9 MB on two devices of 10 MB; none fits where two have to be; time and memory together."""
    graph = hs.TaskGraph(["a", "b", "c"], weight_bytes=9e6)
    small = hs.Cluster([hs.Device("x", memory_bytes=10e6), hs.Device("y", memory_bytes=10e6)], bandwidth=1)
    made = certified(hs.Problem(graph, small, durations=np.ones((3, 2))))
    assert made is not None
    assert (made.value, [token[0] for token in made.lemmas[0].tree]) == (math.inf, ["m", "."])
    one = hs.Cluster([hs.Device("x", memory_bytes=18e6), "y"], bandwidth=1)
    both = certified(hs.Problem(graph, one, durations=[[1, 10]] * 3))
    assert both is not None
    assert both.claim == 10


def test_no_way_is_a_proof_that_there_is_no_schedule() -> None:
    """What b has of a can be sent on only to the device to which a cannot send; with a lemma for a module, and without."""
    for n in (3, 20):
        names = ["a", "b", "c", *(f"t{i}" for i in range(3, n))]
        graph = hs.TaskGraph(
            names, [("a", "b"), *pairwise(names[1:]), ("a", "c")], devices=[["x", "y"]] * 2 + [["z", "w"]] + [None] * (n - 3)
        )
        transfers = np.full((graph.n_edges, 4, 4), math.nan)
        transfers[:, range(4), range(4)] = 0.0
        ways = {("a", "c"): [(0, 2), (1, 3)], ("b", "c"): [(0, 3), (1, 2)]}
        for e, (i, j) in enumerate(graph.edges.tolist()):
            for h, k in ways.get((names[i], names[j]), []):
                transfers[e, h, k] = 1.0
        made = certified(hs.Problem(graph, hs.Cluster(list("xyzw"), bandwidth=1), durations=np.ones((n, 4)), transfers=transfers))
        assert made is not None
        assert made.claim is None


def test_nothing_is_certified_of_no_tasks() -> None:
    assert hs.certify(hs.Problem(hs.TaskGraph([]), hs.Cluster(["x"]), durations=np.ones((0, 1)))) is None


# ---------------------------------------------------------------- values and messages


def test_a_certificate_is_a_document(tmp_path: Path) -> None:
    made = hs.certify(golden.topcuoglu(), 73)
    assert made is not None
    made.write(tmp_path / "c.json")
    made.write(tmp_path / "c.json.gz")
    text = (tmp_path / "c.json").read_bytes()
    assert hs.read(tmp_path / "c.json") == made
    assert gzip.decompress((tmp_path / "c.json.gz").read_bytes()) == text
    assert json.loads(text)["claim"] == "73"
    assert repr(made).startswith("<Certificate: no schedule is shorter than 73 s, in 3 nodes")


def test_a_certificate_of_another_problem_is_rejected() -> None:
    made = hs.certify(golden.topcuoglu(), 73)
    assert made is not None
    with pytest.raises(InvalidArgument, match="the certificate is rejected: .* of another problem.*make one of this problem"):
        made.check(golden.arabnejad())
    with pytest.raises(OutOfTime, match="allow more time"):
        made.check(golden.topcuoglu(), time_limit=0)


def test_the_check_is_within_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that takes too long to check is no answer; without a claim, the longest path has one that is checked at once."""
    check = checker.check

    def late(problem: checker.Problem, certificate: checker.Certificate, deadline: float = math.inf) -> checker.Verdict:
        return check(problem, certificate, deadline if math.isinf(deadline) else 0.0)

    monkeypatch.setattr(checker, "check", late)
    assert hs.certify(golden.topcuoglu(), 73) is None
    made = hs.certify(golden.topcuoglu())
    assert made is not None
    assert (made.claim, made.nodes) == (54, 1)  # that of the published example


def test_a_problem_beyond_the_limits_of_the_checker_is_refused() -> None:
    problem = hs.Problem(hs.TaskGraph(["a"]), hs.Cluster([f"x{k}" for k in range(257)], bandwidth=1), durations=np.ones((1, 257)))
    with pytest.raises(UnsupportedFeature, match="the checker does not take .*number of devices is 257; .* use hetsched.bound"):
        hs.certify(problem)
