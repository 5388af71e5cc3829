"""All methods on random problems, and on all problems on which one has failed."""

from __future__ import annotations

from pathlib import Path

import pytest

import hetsched as hs
from hetsched.documents import encode
from tests.thorough.conftest import Cases
from tests.thorough.random_problems import check, first_find, names

HUNDRED = 100
FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", FOUND, ids=[path.stem for path in FOUND])
def test_what_broke_once_does_not_break_again(path: Path) -> None:
    problem = hs.read(path)
    assert isinstance(problem, hs.Problem)
    check(problem, names())


@pytest.mark.thorough(cases=100)
def test_no_method_breaks_a_rule_on_hundreds_of_problems(cases: Cases) -> None:
    """A case is a hundred problems; a problem on which a method fails is printed as a document, for the folder ``found``."""
    finds = []
    for rng in cases:
        find = first_find(int(rng.integers(2**32)), HUNDRED)
        if find is not None:
            problem, broken = find
            finds.append(f"{broken}\n{encode(problem).decode()}")
    assert not finds, "\n".join(finds)
