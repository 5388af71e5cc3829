"""The published suite for every constructive method."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.heuristics.placement import partitions
from hetsched.search import Kind, select
from hetsched.testing import conformance

TestConstructive = conformance.suites(select(kind=Kind.CONSTRUCTIVE))


@pytest.fixture(autouse=True)
def _metis_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call METIS directly: a process for each partition takes longer than all else; `test_placement` tests the process."""

    def partition(_: object, count: int, neighbours: tuple[list[int], list[int]], **options: Any) -> list[int]:
        from pymetis import CSRAdjacency, part_graph

        return list(part_graph(count, CSRAdjacency(*neighbours), **options)[1])

    monkeypatch.setattr(partitions, "_partition", partition)
