"""Who vouches for a bound."""

from __future__ import annotations

from pathlib import Path

import pytest

import hetsched as hs
from hetsched.errors import InvalidArgument
from tests import golden


@pytest.mark.parametrize(
    ("method", "trust"), [("heft", "computed"), ("branch", "computed"), pytest.param("cpsat", "solver", marks=pytest.mark.slow)]
)
def test_a_solution_says_who_vouches_for_its_bound(method: str, trust: str, tmp_path: Path) -> None:
    solution = hs.solve(golden.topcuoglu(), method)
    assert solution.proof.trust == trust
    solution.write(tmp_path / "solution.json")
    assert hs.read(tmp_path / "solution.json").proof == solution.proof  # type: ignore[attr-defined]


def test_a_solution_may_have_a_checked_bound() -> None:
    problem = golden.topcuoglu()
    found = hs.solve(problem, "branch")
    certificate = hs.certify(problem, found.makespan)
    assert certificate is not None
    proven = hs.Solution(
        found.schedule, certificate.check(problem), method=found.method, seed=0, history=found.history, methods=found.methods
    )
    assert (proven.status, proven.proof.trust, proven.gap) == ("optimal", "checked", 0.0)


def test_other_words_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="trust is 'sure'"):
        hs.Bound(1.0, "mine", trust="sure")  # type: ignore[arg-type]
