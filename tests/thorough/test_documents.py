"""Mutated documents: each is read, quickly and in little memory, or refused in one line; values read are written and solved."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched as hs
from hetsched import documents
from tests.thorough import reading
from tests.thorough.conftest import Cases

ODD = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    7,
    1000,
    10**6,
    10**6 + 1,
    10**9,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**30,
    10**400,
    0.5,
    -0.0,
    1e-310,
    5e-324,
    1e-100,
    1e100,
    1e101,
    1e300,
    1.7976931348623157e308,
    float("inf"),
    float("nan"),
    "",
    "a",
    "0",
    "null",
    "nan",
    "inf",
    "-inf",
    "\ud800",
    "\x00",
    "\x1b[31m",
    "\u202e",
    "é",
    "💥",
    "x" * 300,
    "x" * 10**5,
    [],
    {},
    [[]],
    [None],
    [0],
    [1, 2, 3],
    {"a": 1},
    [[[[[[0]]]]]],
    "once",
    "free",
    "delay",
    "per-input",
    "channel",
    "port",
    "node",
    "static",
    "peak",
    "concurrent",
    "merge",
    "makespan",
    "period",
    "max-load",
    "optimal",
    "infeasible",
]
"""Values that replace others."""
TOKENS = [
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b'"',
    b"\\",
    b"0",
    b"-",
    b"e9",
    b"1e999",
    b"null",
    b"true",
    b"\\ud800",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\n",
    b"\x00",
]


def bases() -> list[Any]:
    """Return valid documents of every kind, as plain data."""
    graph = hs.TaskGraph(
        ["a", "b", "c", "d"],
        [("a", "b", 1.0), ("a", "c", 2.0), ("b", "d"), ("c", "d", 0.0)],
        op=["x", "", "y", "x"],
        weight_bytes=[0, 1, 2, 3],
        output_bytes=[1, 0.5, 2, 0],
        flops=[1, None, 2, 3],
        colocation=[None, "g", "g", None],
        devices=[None, None, None, ["p", "q"]],
    )
    plain = graph.replace(colocation=None, devices=None)
    cluster = hs.Cluster(
        [hs.Device("p", "gpu", "n0", 100.0, {"float32": 1e12}, 1e9, 1e-6), hs.Device("q"), hs.Device("r", memory_bytes=50.0)],
        bandwidth=[[0, 2, 0], [1, 0, 3], [0, 3, 0]],
        latency=0.25,
    )
    durations = np.arange(12.0).reshape(4, 3) / 4 + 1
    sized = np.arange(24.0).reshape(4, 3, 2) / 4 + 1
    sized[0, 0, 0] = np.nan
    transfers = np.ones((4, 3, 3)) - np.eye(3)
    problems = [
        hs.Problem(graph, cluster, durations=durations),
        hs.Problem(plain, cluster, durations=durations, communication="port"),
        hs.Problem(graph, cluster, durations=sized, batch_sizes=[1, 3], inputs=3, batching="free", memory="peak"),
        hs.Problem(plain, cluster, durations=sized, batch_sizes=[1, 2], inputs=3, communication="channel", transfers=transfers),
    ]
    values: list[Any] = [graph, cluster, *problems]
    for problem in problems:
        solution = hs.solve(problem, "bheft" if problem.inputs > 1 else "heft")
        values += [solution, *([] if solution.schedule is None else [solution.schedule])]
    small = problems[0].replace(
        cluster=hs.Cluster([hs.Device("p", memory_bytes=3), hs.Device("q", memory_bytes=3)], bandwidth=1.0),
        graph=graph.replace(devices=None),
        durations=durations[:, :2],
    )
    values.append(hs.solve(small, "celeritas"))
    values.append(hs.StageSchedule.from_groups(["a", "b", "c"], [[["a"]], [["b"], ["c"]]], ["concurrent", "merge"], [1.0, 2.0], bound=2.5))
    schedule = hs.solve(problems[1], "heft").schedule
    assert schedule is not None
    machine = hs.costs.Machine({"p": hs.costs.Overhead(0.25, "python", 0.5, (0.25, 0.125), (0.5, 0.25), 1.5)}, once=True)
    values.append(hs.runtime.forecast(problems[1], schedule, machine))
    return [json.loads(documents.encode(value)) for value in values]


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container and key below a node."""
    for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield node, key
        yield from places(node[key])


def picked(rng: np.random.Generator, tree: Any, *kinds: type) -> tuple[Any, Any] | None:
    """Return a container and a key of it, drawn among those that hold one of `kinds`."""
    candidates = [place for place in places(tree) if not kinds or isinstance(place[0][place[1]], kinds)]
    return candidates[rng.integers(len(candidates))] if candidates else None


def kind(value: Any) -> type:
    """Return the type that schemas distinguish: integers are numbers."""
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def odd(rng: np.random.Generator, like: Any = ...) -> Any:
    """Return an unusual value, of the type of `like` if that is given."""
    chosen = [value for value in ODD if like is ... or value is None or kind(value) is kind(like)]
    return copy.deepcopy(chosen[rng.integers(len(chosen))])


def put_odd(rng: np.random.Generator, tree: Any) -> None:
    if place := picked(rng, tree):
        place[0][place[1]] = odd(rng, place[0][place[1]] if rng.random() < 0.8 else ...)


def put_number(rng: np.random.Generator, tree: Any) -> None:
    if place := picked(rng, tree, int, float):
        value = max(-(10**300), min(10**300, place[0][place[1]]))
        factors = [0, -1, 0.5, 2, 3, 1e6, 1e-6, 1e100, 1e-100, 1e12]
        with np.errstate(over="ignore"):
            changed = float(np.float64(value) * factors[rng.integers(len(factors))]) if rng.random() < 0.7 else odd(rng, 0)
        place[0][place[1]] = int(changed) if isinstance(value, int) and isinstance(changed, float) and abs(changed) < 1e30 else changed


def take_away(rng: np.random.Generator, tree: Any) -> None:
    if place := picked(rng, tree):
        del place[0][place[1]]


def put_another(rng: np.random.Generator, tree: Any) -> None:
    """Replace a part of the document by another part."""
    one = picked(rng, tree)
    other = one and picked(rng, tree, *([type(one[0][one[1]])] if rng.random() < 0.8 else []))
    if one and other:
        one[0][one[1]] = copy.deepcopy(other[0][other[1]])


def put_alike(rng: np.random.Generator, tree: Any) -> None:
    """Replace a text of the document by another text."""
    one, other = picked(rng, tree, str), picked(rng, tree, str)
    if one and other:
        one[0][one[1]] = other[0][other[1]]


def repeat(rng: np.random.Generator, tree: Any) -> None:
    """Repeat an element of a list a few or very many times, with distinct texts in place of its first text."""
    lists = [node[key] for node, key in places(tree) if isinstance(node[key], list) and node[key]]
    if lists:
        chosen = lists[rng.integers(len(lists))]
        x = int(rng.integers(len(chosen)))
        times = int(10 ** rng.uniform(0, 4 if rng.random() < 0.1 else 1.5))
        for number in range(times):
            element = copy.deepcopy(chosen[x])
            if rng.random() < 0.9:
                if isinstance(element, str):
                    element = f"{element}{number}"
                elif isinstance(element, dict) and "name" in element:
                    element["name"] = f"{element['name']}{number}"
            chosen.append(element)


KEYS = [
    "inputs",
    "batching",
    "memory",
    "communication",
    "transfers",
    "batch_sizes",
    "devices",
    "colocation",
    "size",
    "latency",
    "kind",
    "x" * 1000,
    "\ud800",
]


def add_key(rng: np.random.Generator, tree: Any) -> None:
    objects = [node[key] for node, key in places(tree) if isinstance(node[key], dict)] + [tree] * isinstance(tree, dict)
    if objects:
        objects[rng.integers(len(objects))][KEYS[rng.integers(len(KEYS))]] = odd(rng)


def rescale(rng: np.random.Generator, tree: Any) -> None:
    """Change the inputs, sizes or devices of a problem consistently."""
    if not isinstance(tree, dict) or "durations" not in tree:
        return put_odd(rng, tree)
    what = rng.integers(3)
    if what == 0:
        tree["inputs"] = int(10 ** rng.uniform(0, 6.5))
        tree["batching"] = "free"
    elif what == 1 and isinstance(tree["durations"], list):
        tree["inputs"] = int(10 ** rng.uniform(0, 6.5))
        sizes = sorted({int(10 ** rng.uniform(0, 6)) for _ in range(int(rng.integers(1, 30)))})
        tree["batch_sizes"] = sizes
        tree["durations"] = [[[1.0] * len(sizes) for _ in range(3)] for _ in range(4)]
    else:
        count = int(10 ** rng.uniform(0, 2.2))
        links = rng.choice([0.0, 1.0, 2.0], (count, count)).tolist()
        tree["cluster"] = {"devices": [{"name": f"d{k}"} for k in range(count)], "bandwidth": links}
        tree["durations"] = [[1.0] * count for _ in range(4)]
        tree.pop("batch_sizes", None)
        tree.pop("transfers", None)
        for task in tree["graph"]["tasks"] if rng.random() < 0.8 else ():
            task.pop("devices", None)
    return None


STRUCTURAL: list[Callable[[np.random.Generator, Any], None]] = [
    put_odd,
    put_odd,
    put_number,
    put_number,
    take_away,
    put_another,
    put_alike,
    repeat,
    repeat,
    add_key,
    rescale,
]


def spoil(rng: np.random.Generator, data: bytes) -> bytes:
    """Return the bytes with a few of them changed, removed or repeated."""
    text = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at, what = int(rng.integers(len(text) + 1)), rng.integers(5)
        end = min(len(text), at + int(rng.integers(1, 30)))
        if what == 0:
            text[at:at] = TOKENS[rng.integers(len(TOKENS))] * int(10 ** rng.uniform(0, 2))
        elif what == 1:
            del text[at:end]
        elif what == 2:
            text[at:at] = text[at:end]
        elif what == 3 and at < len(text):
            text[at] = int(rng.integers(256))
        elif rng.random() < 0.2:
            del text[at:]
    return bytes(text)


def mutated(rng: np.random.Generator, documents: list[Any]) -> bytes:
    """Return a random document with random changes."""
    tree = copy.deepcopy(documents[rng.integers(len(documents))])
    for _ in range(int(rng.integers(1, 4))):
        try:
            STRUCTURAL[rng.integers(len(STRUCTURAL))](rng, tree)
        except (TypeError, KeyError, AttributeError):  # an earlier change removed the part that this one changes
            continue
    data = json.dumps(tree, ensure_ascii=bool(rng.random() < 0.5)).encode("utf-8", "surrogatepass")
    return spoil(rng, data) if rng.random() < 0.2 else data


class Reader:
    """The process of `reading`, started again after every death."""

    def __init__(self, documents: list[Any]) -> None:
        self._known, self._process = documents, None

    def read(self, data: bytes) -> str:
        """Return the fault in the reading of a document, or an empty text."""
        if self._process is None:
            self._process = subprocess.Popen([sys.executable, reading.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for document in self._known:
                fault = self._ask(json.dumps(document).encode())
                assert fault == "", fault
            self._ask(b"limit")
        fault = self._ask(data)
        if fault is None:
            code = self._process.wait()
            self._process = None
            return f"the process ended with {code} (-27: out of CPU time)"
        return fault

    def _ask(self, data: bytes) -> str | None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(len(data).to_bytes(8) + data)
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        return line.decode().rstrip("\n") if line else None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def problem(
    n: int, durations: list[Any], *, edges: Any = (), k: int = 1, bandwidth: Any = 1.0, label: str | None = None, **more: Any
) -> Any:
    """Return the document of a problem of n tasks and k devices."""
    tasks = [{"name": f"t{i}", **({"colocation": label} if label else {})} for i in range(n)]
    cluster = {"devices": [{"name": f"d{h}"} for h in range(k)], "bandwidth": bandwidth}
    graph = {"tasks": tasks, "edges": [[f"t{i}", f"t{j}", 1] for i, j in edges]}
    return {"format": "hetsched-problem", "version": 1, "graph": graph, "cluster": cluster, "durations": durations, **more}


def hostile() -> dict[str, Any]:
    """Return small documents of large demands, by name."""
    rng = np.random.default_rng(0)

    def links(k: int) -> Any:
        return (rng.random((k, k)) * (rng.random((k, k)) < 0.5)).tolist()

    def some(n: int, k: int, sizes: int) -> Any:
        return [[[1 if rng.random() < 0.5 else None for _ in range(sizes)] for _ in range(k)] for _ in range(n)]

    graph = {"tasks": [{"name": f"t{i}"} for i in range(100_000)]}
    graph["edges"] = [[f"t{i}", f"t{(i + 1) % 100_000}", 1] for i in range(100_000)]  # type: ignore[list-item]
    history = [{"time": i, "incumbent": 1, "bound": 0, "source": "a"} for i in range(1000)]
    history.append({"time": 1000, "incumbent": 1, "bound": 0, "source": "x" * 10**7})
    batch = {"task": "a", "device": "d", "start": 0, "finish": 1}
    schedule = {"tasks": ["a"], "devices": ["d"], "inputs": 1, "batches": []}
    free = {"inputs": 999_999, "batching": "free"}
    one_way = [[float(k == h + 1) for k in range(30)] for h in range(30)]
    chain = [(i, i + 1) for i in range(2999)]
    return {
        "cycle": {"format": "hetsched-graph", "version": 1, "graph": graph},
        "equal names": {"format": "hetsched-graph", "version": 1, "graph": {"tasks": [{"name": "a"}] * 200_000}},
        "devices": {"format": "hetsched-cluster", "version": 1, "cluster": problem(0, [], k=3000)["cluster"]},
        **{f"routes of {k}": problem(3, [[1] * k] * 3, edges=[(0, 1)], k=k, bandwidth=links(k)) for k in (100, 300, 600)},
        "one-way links": problem(3000, [[1] * 30] * 3000, edges=chain, k=30, bandwidth=one_way),
        "even sizes": problem(8, [[[1] * 8] * 2] * 8, k=2, batch_sizes=[2, 4, 6, 8, 10, 12, 14, 16], **free),
        "small sizes of a label": problem(8, some(8, 50, 12), k=50, label="g", batch_sizes=list(range(2, 26, 2)), **free),
        "large sizes of a label": problem(2, some(2, 50, 50), k=50, label="g", batch_sizes=list(range(2000, 200_000, 3960)), **free),
        "sizes once": problem(8, [[[1] * 50] * 100] * 8, k=100, batch_sizes=list(range(2, 102, 2)), inputs=999_999),
        "a million inputs": problem(3, [[[1, 1]] * 2] * 3, edges=[(0, 1)], k=2, batch_sizes=[2, 3], inputs=10**6, batching="free"),
        "a long source": {
            "format": "hetsched-solution",
            "version": 1,
            "schedule": None,
            "status": "unknown",
            "bound": {"value": 0, "name": "none"},
            "method": "m",
            "seed": 0,
            "history": history,
        },
        "empty lists": problem(1, [[]] * 2_000_000),
        "numbers": problem(1, [[0] * 3_000_000]),
        "batches": {"format": "hetsched-schedule", "version": 1, "schedule": {**schedule, "batches": [batch] * 100_000}},
        "inputs of a schedule": {"format": "hetsched-schedule", "version": 1, "schedule": {**schedule, "inputs": 10**9}},
        "as many inputs as may be": {"format": "hetsched-schedule", "version": 1, "schedule": {**schedule, "inputs": 10**7}},
    }


@pytest.mark.thorough(cases=1)
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and CPU time are Linux's here")
def test_documents_of_large_demands_are_read_or_refused_quickly() -> None:
    reader = Reader(bases())
    try:
        faults = {name: reader.read(json.dumps(document).encode()) for name, document in hostile().items()}
        assert {name: fault for name, fault in faults.items() if fault} == {}
    finally:
        reader.close()


@pytest.mark.thorough(cases=20_000)
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and CPU time are Linux's here")
def test_mutated_documents_are_read_or_refused_in_a_line(cases: Cases, tmp_path: Path) -> None:
    documents = bases()
    reader = Reader(documents)
    try:
        for rng in cases:
            data = mutated(rng, documents)
            fault = reader.read(data)
            if fault:
                (tmp_path / "document.json").write_bytes(data)
            assert not fault, f"{fault}: {tmp_path / 'document.json'}: {data[:300]!r}"
    finally:
        reader.close()
