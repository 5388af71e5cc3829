"""The examples of papers, whose optima are proven by certificates of a few tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import hetsched as hs
from hetsched import checker, documents
from tests.golden import arabnejad, topcuoglu

TOPCUOGLU = '[["d",0,2],["d",7,1],["d",8,1],["."],["."],["."],["d",3,0],["d",1,0],["."],["."],["o",8,7],["."],["."]]'
ARABNEJAD = (
    '[["d",0,0],["d",1,0],["."],["d",1,1],["."],["."],["d",8,2],["d",9,0],["d",6,0],["d",2,0],["."],["."],["d",1,1],["."],["."],["d",1,1],'
    '["."],["."],["d",4,0],["d",9,0],["."],["d",1,0],["."],["."],["d",2,0],["."],["."]]'
)


@pytest.mark.parametrize(("instance", "tree", "optimum"), [(topcuoglu, TOPCUOGLU, 73), (arabnejad, ARABNEJAD, 113)])
def test_the_optimum_of_a_papers_example_is_proven_and_no_more(instance: Callable[[], hs.Problem], tree: str, optimum: int) -> None:
    exact = checker.Problem(documents.encode(instance()))
    document: dict[str, Any] = {
        "format": "hetsched-certificate",
        "version": 1,
        "rules": 1,
        "digest": exact.digest(),
        "objective": "makespan",
    }
    document |= {"unit": "1", "claim": str(optimum), "lemmas": [{"window": None, "goal": ["makespan"], "tree": json.loads(tree)}]}
    assert checker.check(exact, checker.read_certificate(json.dumps(document).encode(), exact)).bound == optimum
    document["claim"] = str(optimum + 1)
    with pytest.raises(checker.Rejected, match="the leaf is open"):
        checker.check(exact, checker.read_certificate(json.dumps(document).encode(), exact))
