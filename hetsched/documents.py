"""Reading and writing every kind of document, and their published JSON Schemas."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from hetsched.columns import Columns
from hetsched.errors import InvalidProblem
from hetsched.problem import document
from hetsched.problem.cluster import Cluster
from hetsched.problem.document import VERSION, Document, Number, Row, encode, to_document, write, write_bytes
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.schedule.document import ScheduleDocument, SchedulePart
from hetsched.schedule.schedule import Schedule
from hetsched.search import Bound, Solution

__all__ = ["KINDS", "encode", "read", "schema", "write", "write_bytes"]


class BoundRow(Row):
    """A lower bound in seconds; null if it is proven that there is no schedule."""

    value: Number
    name: str
    evidence: str = ""


class HistoryRow(Row):
    """One improvement; null before the first schedule, or for an infinite bound."""

    time: float
    incumbent: Number
    bound: Number
    source: str


class SolutionDocument(Document, kw_only=True, tag="hetsched-solution"):
    """The outcome of a solve; `status` is derived from the schedule and the bound."""

    schedule: SchedulePart | None
    status: str
    bound: BoundRow
    method: str
    seed: int
    history: list[HistoryRow] = []
    messages: list[str] = []
    stopped: str = "finished"

    def value(self) -> Solution:
        """Return the solution."""
        rows = self.history
        return Solution(
            None if self.schedule is None else self.schedule.value(),
            Bound(_infinite(self.bound.value), self.bound.name, self.bound.evidence),
            method=self.method, seed=self.seed, messages=self.messages, stopped=self.stopped,
            history=Columns(
                time=np.array([row.time for row in rows], np.float64),
                incumbent=np.array([_infinite(row.incumbent) for row in rows], np.float64),
                bound=np.array([_infinite(row.bound) for row in rows], np.float64),
                source=np.array([row.source for row in rows], "U") if rows else np.empty(0, "U1"),
            ),
        )  # fmt: skip


def _infinite(value: float | None) -> float:
    return np.inf if value is None else value


def _finite(value: float) -> float | None:
    return None if np.isinf(value) else value


@to_document.register
def _(value: Solution) -> Document:
    return SolutionDocument(
        version=VERSION, schedule=None if value.schedule is None else SchedulePart.of(value.schedule), status=str(value.status),
        bound=BoundRow(_finite(value.bound), value.proof.name, value.proof.evidence), method=value.method, seed=value.seed,
        history=[HistoryRow(row["time"], _finite(row["incumbent"]), _finite(row["bound"]), row["source"]) for row in value.history],
        messages=list(value.messages), stopped=value.stopped,
    )  # fmt: skip


KINDS: Mapping[str, type[Document]] = {
    **document.KINDS,
    "hetsched-schedule": ScheduleDocument,
    "hetsched-solution": SolutionDocument,
}


def read(path: str | os.PathLike[str]) -> TaskGraph | Cluster | Problem | Schedule | Solution:
    """Return what the JSON document at `path` describes: its `format` says which kind it is.

    Raises
    ------
    InvalidProblem, InvalidSchedule
        In one line: where in the document, what rule, what was found.
    OSError
        The file cannot be read.
    """
    return document.read(path, KINDS)  # type: ignore[no-any-return]


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document: graph, cluster, problem, schedule, solution."""
    name = f"hetsched-{kind}"
    if name not in KINDS:
        raise InvalidProblem(f"no document kind {kind!r}; choose from {', '.join(key.removeprefix('hetsched-') for key in KINDS)}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(KINDS[name])}
