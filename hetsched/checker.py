"""Check a certificate: a proof that no schedule of a problem is shorter than a claim, or that it has no schedule at all.

``python checker.py problem.json certificate.json`` needs this file and the standard library only, and computes in whole numbers.

A certificate names a unit of time. The *relaxed instance* has one of the problem's inputs: task i takes p[i, k] whole units on device k,
the least duration over batch sizes, rounded down; edge e takes c[e, h, k] from h to k, rounded down, nothing within a device; transfers
disturb nothing; co-located tasks share a device; under static memory a device holds the weights and one input of its tasks. From a
schedule of the problem keep one input and the order of its tasks on each device, shorten, and start everything as early as that allows:
longest paths over whole numbers, nothing later than before. So a makespan below the claim gives one below X = ceil(claim / unit).

A *state* is a set of constraints on such a schedule of length C <= X - 1: devices of each co-location unit, least starts (heads), least
times from the end of a task to C (tails), and which task ends before another starts. Rules add what every schedule of the state satisfies,
branches divide the schedules, and a tree whose leaves are all contradictory refutes X. A *lemma* is a head or a tail proven by a tree of
its own, over ancestors or descendants of one task, which later lemmas use. The last lemma is the claim's.
"""

from __future__ import annotations

import graphlib
import gzip
import hashlib
import itertools
import json
import math
import re
import sys
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, NoReturn

MOST_BYTES = 64 * 2**20  # of a document, unpacked
MOST_TASKS, MOST_DEVICES, MOST_INPUTS, MOST_CELLS = 5000, 256, 10**6, 10**7
MOST_NODES = 10**6  # and as many hints
MOST_OPEN = 3 * 10**7  # numbers in the states that wait for their turn
LARGEST = 2**256  # whole numbers of a certificate, and times in its unit, are smaller
INFINITE = 2**1000  # more than any sum of times: no way, no limit
FORGIVEN = 1 + Fraction(1, 2**29)  # of a capacity: more than the 1e-9 that `hetsched.verify` forgives, whose sums are rounded


class Malformed(Exception):
    """A document is not well formed, or beyond a limit: nothing is said about the claim."""


class Rejected(Exception):
    """A certificate does not prove its claim; the message has the lemma, the token of its tree and the reason."""


class Late(Exception):
    """The time was over before the certificate was checked."""


# ---------------------------------------------------------------------- JSON

_TYPES = {dict: "an object", list: "a list", str: "text", int: "a whole number"}


def load(path: str) -> bytes:
    """Return the bytes of a file, unpacked if it is a gzip file."""
    try:
        with open(path, "rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            data: bytes = (gzip.GzipFile(fileobj=file) if packed else file).read(MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Malformed(f"{path}: not a gzip file: {error}") from None
    _need(len(data) <= MOST_BYTES, f"{path} has more than the {MOST_BYTES} bytes that a document may have")
    return data


def _need(fine: object, rule: str, otherwise: type[Exception] = Malformed) -> None:
    if not fine:
        raise otherwise(rule)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _document(data: bytes, what: str, name: str, needed: str, allowed: str) -> dict[str, Any]:
    """Return the table of a document of a format, of version 1."""

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _need(len(dict(pairs)) == len(pairs), f"{what} has a key twice in an object: {_shown(sorted(key for key, _ in pairs))}")
        return dict(pairs)

    try:
        top = json.loads(data.decode(), object_pairs_hook=table, parse_constant=lambda name: _need(False, f"{what} has {name}, no JSON"))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{what} is not read: {error}") from None
    _table(top, what, f"format version {needed}", allowed)
    _one_of(top["format"], f"format of {what}", name)
    _one_of(top["version"], f"version of {what}", 1)
    return top  # type: ignore[no-any-return]


def _refuse(value: Any, what: str, rule: str) -> NoReturn:
    raise Malformed(f"{what} is {_shown(value)}; it must be {rule}")


def _typed(value: Any, kind: type, what: str) -> Any:
    return value if type(value) is kind else _refuse(value, what, _TYPES[kind])  # true and false are no whole numbers


def _table(value: Any, what: str, needed: str, allowed: str = "") -> dict[str, Any]:
    given, keys, known = set(_typed(value, dict, what)), set(needed.split()), set(f"{needed} {allowed}".split())
    _need(keys <= given, f"{what} lacks {', '.join(sorted(keys - given))}")
    _need(given <= known, f"{what} has unknown keys: {_shown(sorted(given - known))}")
    return value  # type: ignore[no-any-return]


def _list(value: Any, what: str, length: int | None = None) -> list[Any]:
    _need(len(_typed(value, list, what)) == length or length is None, f"{what} has length {len(value)}; it must be {length}")
    return value  # type: ignore[no-any-return]


def _one_of(value: Any, what: str, *choices: Any) -> Any:
    fine = type(value) is type(choices[0]) and value in choices
    return value if fine else _refuse(value, what, " or ".join(map(repr, choices)))


def _whole(value: Any, what: str, end: int, least: int = 0) -> int:
    number: int = _typed(value, int, what)
    return number if least <= number < end else _refuse(value, what, f"from {least} to {'2^256 - 1' if end == LARGEST else end - 1}")


def _exact(value: Any, what: str, null: bool = False) -> Any:
    """Return the float64 of a number, which is what it counts as, or None for null where that is allowed."""
    if value is None and null:
        return None
    fine = type(value) in (int, float) and (value == 0 or 1e-100 <= value <= 1e100)
    return Fraction(float(value)) if fine else _refuse(value, what, f"0 or a number from 1e-100 to 1e100{', or null' if null else ''}")


def _rational(value: Any, what: str) -> Fraction:
    fine = isinstance(value, str) and len(value) <= 80 and re.fullmatch("[0-9]+(/[0-9]*[1-9][0-9]*)?", value)
    return Fraction(value) if fine else _refuse(value, what, "text of at most 80 characters: digits, or digits/digits")


def _rows(value: Any, thing: str, allowed: str, least: int, most: int) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the rows of a list of named things, and the number of each name."""
    rows = [_table(row, f"a {thing}", "name", allowed) for row in _list(value, f"{thing}s")]
    _whole(len(rows), f"the number of {thing}s", most + 1, least)
    index = {_typed(row["name"], str, f"the name of a {thing}"): x for x, row in enumerate(rows)}
    _need(len(index) == len(rows) and "" not in index, f"the names of {thing}s are not distinct, or one is empty")
    return rows, index


def _found(names: list[Any], index: Mapping[str, int], what: str, thing: str) -> list[int]:
    fine = all(_typed(name, str, f"the name of a {thing}") in index for name in names)
    _need(fine, f"{what} {_shown(names)}, and one is no {thing}")
    return [index[name] for name in names]


# ---------------------------------------------------------------------- the exact problem

_PROBLEM = "kinds batch_sizes inputs batching communication memory transfers"
_TASK = "op weight_bytes input_bytes output_bytes flops bytes_accessed shape colocation devices"
_DEVICE = "kind node memory_bytes peak_flops memory_bandwidth launch_overhead family units cache_bytes"
_MODELS = "delay", "per-input", "channel", "port", "node"
Link = tuple[Fraction | None, Fraction]  # a bandwidth, None if it is unlimited, and a latency


class Problem:
    """The problem of a ``hetsched-problem`` document, exactly; None where something is impossible or unlimited."""

    def __init__(self, data: bytes) -> None:
        top = _document(data, "the problem", "hetsched-problem", "graph cluster durations", _PROBLEM)
        self.inputs = _whole(top.get("inputs", 1), "inputs", MOST_INPUTS + 1, 1)
        self.batching = _one_of(top.get("batching", "once"), "batching", "once", "free")
        self.communication = _one_of(top.get("communication", "delay"), "communication", *_MODELS)
        self.memory = _one_of(top.get("memory", "static"), "memory", "static", "peak")
        self._read_cluster(_table(top["cluster"], "cluster", "devices", "bandwidth latency"))
        self._read_graph(_table(top["graph"], "graph", "tasks", "edges"))
        self._read_durations(top)
        self.transfers: list[list[list[Fraction | None]]] | None = None
        if top.get("transfers") is not None:
            given = _list(top["transfers"], "transfers", len(self.edges))
            self.transfers = [self._matrix(matrix, f"transfers of edge {e}", True) for e, matrix in enumerate(given)]
            _need(all(m[k][k] == 0 for m in self.transfers for k in range(self.devices)), "a transfer within a device takes time")
        self.routes = self._routes() if self.transfers is None else []

    def _read_cluster(self, cluster: dict[str, Any]) -> None:
        rows, self.device_index = _rows(cluster["devices"], "device", _DEVICE, 1, MOST_DEVICES)
        self.devices = len(rows)
        self.capacity: list[Fraction | None] = [_exact(row.get("memory_bytes"), "memory_bytes", True) for row in rows]
        self.kinds = [_typed(row.get("kind", ""), str, "kind") for row in rows]
        numbers: dict[object, int] = {}
        self.host = [numbers.setdefault(_typed(row.get("node", ""), str, "node") or k, len(numbers)) for k, row in enumerate(rows)]
        bandwidth = self._matrix(cluster.get("bandwidth"), "bandwidth", True, links=True)
        latency = self._matrix(cluster.get("latency", 0.0), "latency", False, links=True)
        pairs = (zip(*rows, strict=True) for rows in zip(bandwidth, latency, strict=True))
        self.links: list[list[Link]] = [[(wide, Fraction(0) if wide == 0 else late) for wide, late in row] for row in pairs]

    def _matrix(self, value: Any, what: str, null: bool, links: bool = False) -> list[list[Any]]:
        """Return [K, K] numbers; of links one number may stand for all, and the diagonal is not read but 0."""
        size = self.devices
        rows = [[value] * size] * size if links and not isinstance(value, list) else _list(value, what, size)
        rows = [_list(row, what, size) for row in rows]
        return [[Fraction(0) if links and h == k else _exact(rows[h][k], what, null) for k in range(size)] for h in range(size)]

    def _read_graph(self, graph: dict[str, Any]) -> None:
        rows, index = _rows(graph["tasks"], "task", _TASK, 0, MOST_TASKS)
        self.tasks, every, numbers = len(rows), list(self.device_index), dict[object, int]()
        self.bytes = [[_exact(row.get(f"{what}_bytes", 0.0), f"{what}_bytes") for what in ("weight", "input", "output")] for row in rows]
        labels = [i if row.get("colocation") is None else _typed(row["colocation"], str, "colocation") for i, row in enumerate(rows)]
        self.unit = [numbers.setdefault(label, len(numbers)) for label in labels]
        pins = [every if row.get("devices") is None else _list(row["devices"], "devices of a task") for row in rows]
        self.allowed = [sorted(set(_found(names, self.device_index, "a task is pinned to", "device"))) for names in pins]
        carried: dict[tuple[int, int], Fraction] = {}  # parallel edges are merged
        for row in _list(graph.get("edges", []), "edges"):
            i, j = _found(_list(row, "an edge", 3)[:2], index, "an edge joins", "task")
            carried[i, j] = carried.get((i, j), Fraction(0)) + (self.bytes[i][2] if row[2] is None else _exact(row[2], "bytes of an edge"))
        self.edges, self.carried = list(carried), list(carried.values())
        most = max(self.tasks * self.devices + len(carried) * self.devices**2, self.inputs * (self.tasks + len(carried)))
        _need(most <= MOST_CELLS, f"tasks x devices + edges x devices^2, or inputs x (tasks + edges), is beyond {MOST_CELLS}")
        self.order = _topological(self.tasks, self.edges, Malformed("the graph has a cycle"))

    def _read_durations(self, top: dict[str, Any]) -> None:
        column = list(range(self.devices))
        if top.get("kinds") is not None:
            kinds = [_typed(kind, str, "a kind") for kind in _list(top["kinds"], "kinds")]
            _need(sorted(kinds) == sorted(set(self.kinds)), f"kinds is {_shown(kinds)}; it must have each kind of the devices once")
            column = [kinds.index(kind) for kind in self.kinds]
        sizes = [1] if top.get("batch_sizes") is None else _list(top["batch_sizes"], "batch_sizes")
        places = sorted(range(len(sizes)), key=[_whole(size, "a batch size", MOST_INPUTS + 1, 1) for size in sizes].__getitem__)
        self.sizes: list[int] = [sizes[b] for b in places]
        _need(0 < len(sizes) == len(set(sizes)), f"batch_sizes is {_shown(sizes)}; it must have distinct sizes")
        _need(self.tasks * self.devices * len(sizes) <= MOST_CELLS, f"tasks x devices x batch sizes is beyond {MOST_CELLS}")
        self.durations: list[list[list[Fraction | None]]] = []
        for row in _list(top["durations"], "durations", self.tasks):
            cells = [cell if isinstance(cell, list) else [cell] for cell in _list(row, "durations of a task", max(column) + 1)]
            read = [[_exact(_list(cell, "durations", len(sizes))[b], "a duration", True) for b in places] for cell in cells]
            self.durations.append([read[x] for x in column])

    def _routes(self) -> list[list[Link | None]]:
        """Return the link of each ordered pair, else the widest path, of these the one of least latency; None if there is no way."""
        devices, links = range(self.devices), self.links
        routes: list[list[Link | None]] = [[link if link[0] != 0 else None for link in row] for row in links]
        width: list[list[Any]] = [[math.inf if h == k or links[h][k][0] is None else links[h][k][0] for k in devices] for h in devices]
        widest = width[:]
        for x, h in itertools.product(devices, repeat=2) if not all(map(all, width)) else ():
            widest[h] = [max(wide, min(widest[h][x], beyond)) for wide, beyond in zip(widest[h], widest[x], strict=True)]
        for h in devices:
            missing = [k for k in devices if width[h][k] == 0]
            for wide in {widest[h][k] for k in missing} - {0}:
                late, queue = {h: Fraction(0)}, [h]
                for x in queue:
                    for k in devices:
                        if width[x][k] >= wide and late[x] + links[x][k][1] < late.get(k, math.inf):
                            late[k] = late[x] + links[x][k][1]
                            queue.append(k)
                for k in missing:
                    if widest[h][k] == wide:
                        routes[h][k] = None if wide == math.inf else wide, late[k]
        return routes

    def transfer(self, e: int, h: int, k: int, count: int = 1) -> Fraction | None:
        """Return the seconds of `count` inputs along an edge from device h to k, None if there is no way."""
        factor = 1 if self.communication == "per-input" else count
        if self.transfers is not None:
            seconds = self.transfers[e][h][k]
            return None if seconds is None else seconds * factor
        route = (None, Fraction(0)) if h == k else self.routes[h][k]
        return None if route is None else route[1] + (0 if route[0] is None else self.carried[e] * factor / route[0])

    def digest(self) -> str:
        """Return the sha256 of the exact problem in a canonical text: without names, with defaults, in the document's order."""
        text = hashlib.sha256()
        host = self.host if self.communication == "node" else None
        rules = 1, self.transfers is None, self.inputs, self.batching, self.communication, self.memory, self.sizes, host, self.capacity
        rows = list(zip(self.unit, self.allowed, self.bytes, strict=True)), list(zip(self.edges, self.carried, strict=True))
        for part in itertools.chain([rules, *rows], self.durations, self.links if self.transfers is None else self.transfers):
            text.update(json.dumps(part, default=_canonical).encode())
        return text.hexdigest()


def _canonical(number: Fraction) -> str:
    return float(number).hex() if Fraction(float(number)) == number else str(number)  # a sum may lie between two floats


def _topological(count: int, arcs: Iterable[tuple[int, int]], otherwise: Exception) -> list[int]:
    """Return the nodes so that all arcs lead forward."""
    followers: dict[int, list[int]] = {x: [] for x in range(count)}
    for a, b in arcs:
        followers[a].append(b)
    try:
        return list(graphlib.TopologicalSorter(followers).static_order())[::-1]  # which puts followers first
    except graphlib.CycleError:
        raise otherwise from None


# ---------------------------------------------------------------------- the relaxed instance


class Instance:
    """The relaxed instance: one input, whole units of time, whole bits; lists of [n K] are flat, task after task.

    `p` [n K] and `c` [E][K][K] are INFINITE where there is no way, and `c` between devices for co-located tasks; `devices` are those of
    each co-location unit, in ascending order, and `members` its tasks; `children` and `parents` are (task, edge) of each task, `ancestors`
    and `descendants` sets of tasks as bits.
    """

    def __init__(self, problem: Problem, unit: Fraction) -> None:
        self.problem, self.unit, n, size = problem, unit, problem.tasks, problem.devices
        self.p, self.share = [INFINITE] * (n * size), [Fraction(INFINITE)] * (n * size)  # the least time, and that of one input of a batch
        for x, cell in enumerate(itertools.chain(*problem.durations)):
            usable = [(self._units(t), b) for t, b in zip(cell, problem.sizes, strict=True) if t is not None and b <= problem.inputs]
            if usable:
                self.p[x], self.share[x] = min(t for t, _ in usable), min(Fraction(t, b) for t, b in usable)
        self.tables: dict[object, tuple[list[list[int]], list[list[int]]]] = {}
        apart, ways = [[0 if h == k else INFINITE for k in range(size)] for h in range(size)], []
        for e, ((i, j), carried) in enumerate(zip(problem.edges, problem.carried, strict=True)):
            key = e if problem.transfers else carried  # edges of one key take equal times
            if key not in self.tables:
                table = [[self._units(problem.transfer(e, h, k)) for k in range(size)] for h in range(size)]
                self.tables[key] = table, [list(column) for column in zip(*table, strict=True)]
            ways.append((apart, apart) if problem.unit[i] == problem.unit[j] else self.tables[key])
        self.ways = [there for there, _ in ways], [back for _, back in ways]
        self.c = self.ways[0]
        self.bits = [(math.floor(8 * weight), math.floor(8 * (read + made))) for weight, read, made in problem.bytes]  # once, for an input
        limits = problem.capacity if problem.memory == "static" else [None] * size
        self.capacity = [None if limit is None else math.floor(8 * limit * FORGIVEN) for limit in limits]
        self.members = [[i for i in range(n) if problem.unit[i] == u] for u in range(len(set(problem.unit)))]
        self.devices: list[tuple[int, ...]] = []
        for members in self.members:
            possible = (k for k in range(size) if all(k in problem.allowed[i] and self.p[i * size + k] < INFINITE for i in members))
            rooms, bits = ((k, self.capacity[k]) for k in possible), sum(sum(self.bits[i]) for i in members)
            self.devices.append(tuple(k for k, room in rooms if room is None or bits <= room))
        self.children: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        self.parents: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        for e, (i, j) in enumerate(problem.edges):
            self.children[i].append((j, e))
            self.parents[j].append((i, e))
        self.ancestors, self.descendants = [0] * n, [0] * n
        for reached, arcs, order in ((self.ancestors, self.parents, problem.order), (self.descendants, self.children, problem.order[::-1])):
            for j in order:
                for i, _ in arcs[j]:
                    reached[j] |= reached[i] | 1 << i
        self._alike: dict[int, list[int]] = {}

    def _units(self, seconds: Fraction | None) -> int:
        count = INFINITE if seconds is None else math.floor(seconds / self.unit)
        _need(seconds is None or count < LARGEST, f"{float(seconds or 0):g} s are 2^256 units or more; the certificate needs a larger unit")
        return count

    def alike(self, k: int) -> list[int]:
        """Return the other devices whose exchange with k changes no time, transfer, capacity or device of a unit."""
        if k not in self._alike:
            self._alike[k] = [h for h in range(self.problem.devices) if h != k and self._equal(h, k)]
        return self._alike[k]

    def _equal(self, h: int, k: int) -> bool:
        size = self.problem.devices
        swap, places = [k if x == h else h if x == k else x for x in range(size)], [(x, y) for x in (h, k) for y in range(size)]
        return (
            self.capacity[h] == self.capacity[k]
            and self.p[h::size] == self.p[k::size]
            and all((h in own) == (k in own) for own in self.devices)
            and all(c[x][y] == c[swap[x]][swap[y]] and c[y][x] == c[swap[y]][swap[x]] for c, _ in self.tables.values() for x, y in places)
        )


# ---------------------------------------------------------------------- states and their rules

Place = tuple[int, int]  # a task and a device
Proven = tuple[Mapping[Place, int], Mapping[Place, int]]  # heads and tails that lemmas have proven
Window = Iterable[int] | None  # tasks, or all


class State:
    """Constraints on a schedule of the tasks of a window that ends before `end`, the X above.

    A root state is `State(instance, end)`, over a window of tasks or all, with what lemmas have proven, `known`; `at` is the task and
    device of a lemma; with `every` it is the root of the claim's, where R3, R6, R8 and R9 count all inputs. Then `propagate()`;
    `hint(token)`, which applies one of the rules R3 to R9; and `branch(token)`, which makes this state the first branch and returns the
    second. Neither propagates. `contradiction` says why no schedule satisfies the state; `devices` are those left to each co-location
    unit, `head` and `tail` [n K] the levels, `before` and `after` [n] the tasks that end before a task, or start after it, as bits.
    """

    def __init__(
        self, instance: Instance, end: int, window: Window = None, known: Proven = ({}, {}), at: Place | None = None, every: bool = False
    ) -> None:
        n, self.size, self.unit = instance.problem.tasks, instance.problem.devices, instance.problem.unit
        self.instance, self.end, self.every_input = instance, end, every and instance.problem.inputs > 1
        self.window = sum(1 << i for i in (range(n) if window is None else window))
        self.tasks = [i for i in instance.problem.order if self.window >> i & 1]
        self.head, self.tail, self.devices = [0] * (n * self.size), [0] * (n * self.size), instance.devices[:]
        self.before, self.after = ([found & self.window for found in sets] for sets in (instance.ancestors, instance.descendants))
        self.fresh = bytearray(b"\1" * n), bytearray(b"\1" * n)  # whose heads, whose tails R0 has not seen
        self.changed, self.contradiction = True, ""
        for levels, given in zip((self.head, self.tail), known, strict=True):
            for (i, k), level in given.items():
                levels[i * self.size + k] = level
        if at is not None:
            self._remove(self.unit[at[0]], [k for k in self.devices[self.unit[at[0]]] if k != at[1]])
        for i in self.tasks:
            if not self.devices[self.unit[i]]:
                self.contradiction = self.contradiction or f"task {i} has no device"
            for k in self.devices[self.unit[i]]:
                self._narrow(i, k)

    def copy(self) -> State:
        """Return an equal state that changes by itself."""
        other = State.__new__(State)
        other.__dict__.update(self.__dict__)
        other.head, other.tail, other.devices = self.head[:], self.tail[:], self.devices[:]
        other.before, other.after, other.fresh = self.before[:], self.after[:], (self.fresh[0][:], self.fresh[1][:])
        return other

    def propagate(self) -> None:
        """Apply R0 to R2 until nothing changes, at most 4 n + 16 times."""
        for _ in range(4 * len(self.before) + 16):
            if self.contradiction or not self.changed:
                return
            self.changed, devices = False, self.devices[:]
            self._levels()
            if not self.contradiction and devices == self.devices:
                self._pairs()

    def _remove(self, u: int, leaving: Sequence[int]) -> None:
        left = tuple(k for k in self.devices[u] if k not in leaving)
        if left != self.devices[u]:
            self.devices[u], self.changed = left, True
            for i in self.instance.members[u]:
                self.fresh[0][i] = self.fresh[1][i] = True
            if not left:
                self.contradiction = self.contradiction or f"task {self.instance.members[u][0]} has no device left"

    def _narrow(self, i: int, k: int) -> None:
        """R1: a task cannot run where its head, its time and its tail together reach the end."""
        x = i * self.size + k
        if self.head[x] + self.instance.p[x] + self.tail[x] >= self.end:
            self._remove(self.unit[i], (k,))

    def _raise(self, side: int, i: int, k: int, level: int) -> None:
        """Raise the head (side 0) or the tail (side 1) of a task on a device."""
        levels = self.tail if side else self.head
        if level > levels[i * self.size + k]:
            levels[i * self.size + k] = min(level, self.end)
            self.fresh[side][i] = self.changed = True
            self._narrow(i, k)

    def _levels(self) -> None:
        """R0: a task starts after each parent, which is on some device, and the transfer from there; tails are mirrored."""
        size, p, unit, window = self.size, self.instance.p, self.unit, self.window
        for side, tasks in enumerate((self.tasks, self.tasks[::-1])):
            levels, fresh = (self.tail if side else self.head), self.fresh[side]
            arcs, tables = (self.instance.parents if side else self.instance.children), self.instance.ways[side]
            for i in tasks:
                if fresh[i]:
                    fresh[i] = False
                    ends = [(h, levels[i * size + h] + p[i * size + h]) for h in self.devices[unit[i]]]
                    for j, e in arcs[i]:
                        if window >> j & 1:
                            ways = tables[e]
                            for k in self.devices[unit[j]]:
                                level = min([end + ways[h][k] for h, end in ends], default=INFINITE)
                                if level > levels[j * size + k]:
                                    self._raise(side, j, k, level)

    def _alone(self) -> dict[int, list[int]]:
        """Return the tasks of positive length that have one device left, by device."""
        size, p, unit, found = self.size, self.instance.p, self.unit, dict[int, list[int]]()
        for i in self.tasks:
            own = self.devices[unit[i]]
            if len(own) == 1 and p[i * size + own[0]] > 0:
                found.setdefault(own[0], []).append(i)
        return found

    def _pairs(self) -> None:
        """R2: of two tasks on one device one ends before the other starts, and only if that is short enough."""
        size, p, head, tail = self.size, self.instance.p, self.head, self.tail
        for k, members in self._alone().items():
            for i, j in itertools.permutations(members, 2):
                x, y, ordered = i * size + k, j * size + k, self.after[i] >> j & 1
                if not ordered and head[y] + p[y] + p[x] + tail[x] >= self.end:
                    self._precede(i, j)
                    ordered = True
                if ordered and head[y] < head[x] + p[x]:
                    self._raise(0, j, k, head[x] + p[x])
                if ordered and tail[x] < tail[y] + p[y]:
                    self._raise(1, i, k, tail[y] + p[y])

    def _precede(self, i: int, j: int) -> None:
        """Add that i ends before j starts, and what follows by transitivity."""
        if self.before[i] >> j & 1:
            self.contradiction = self.contradiction or f"tasks {i} and {j} would each precede the other"
        elif not self.after[i] >> j & 1:
            earlier, later, self.changed = self.before[i] | 1 << i, self.after[j] | 1 << j, True
            for a in self.tasks:
                if earlier >> a & 1:
                    self.after[a] |= later
                if later >> a & 1:
                    self.before[a] |= earlier

    def hint(self, token: Sequence[Any]) -> None:
        """Apply R3 ``["b", a, b, l]``, R4 ``["h", a, j, l]``, R5 ``["t", b, j, l]``, R6 ``["m", a, b, l, m]``, R7 ``["j"]``, R8 or R9."""
        if self.contradiction:
            return
        if token[0] in "ht":
            self._beyond(int(token[0] == "t"), *token[1:])
        elif token[0] == "j":
            self._joins()
        else:
            self._load(token[0] in "wf", token[0] == "f" and not self.every_input, *token[1:])

    def _load(self, own: bool, distinct: bool, a: int, b: int, prices: Sequence[int], bit_prices: Sequence[int] = ()) -> None:
        """R3, R6, R8, R9: the tasks with heads of at least `a` and tails of at least `b` need more of the devices than these have.

        R3: a device works for them from `a` until `b` before the end. R6: the sum of this and of the bits of all tasks, at their prices.
        R8 (`own`): a device works for them from the least head of one of them on it until the least tail. R9 (`distinct`): also, the first
        tasks on devices of one price are distinct if one input is followed, and so are the last.
        """
        size, p, chosen = self.size, self.instance.p, self._bounded(self.tasks, a, b)
        room, groups = 0, dict[int, list[int]]()
        for price, capacity in zip(bit_prices, self.instance.capacity, strict=False):
            _need(not price or capacity is not None, "a device without a limit of memory has a price for it", Rejected)
            room += price * (capacity or 0)
        for k, price in enumerate(prices):
            groups.setdefault(price if distinct else k, []).append(k)
        for devices in groups.values():
            heads, tails = [a], [b]
            if own:
                cells = [[i * size + k for k in devices if k in self.devices[self.unit[i]] and p[i * size + k] > 0] for i in chosen]
                heads, tails = (sorted(min(levels[x] for x in row) for row in cells if row) for levels in (self.head, self.tail))
            spans = (self.end - 1 - first - last for _, first, last in zip(devices, heads, tails, strict=False))
            room += prices[devices[0]] * sum(max(0, span) for span in spans)  # R1 leaves no task for which one of R3 is negative
        if (chosen or not any(prices)) and self._weight(chosen, prices, bit_prices, self.every_input) > room:
            self.contradiction = f"the devices do not suffice for {len(chosen)} tasks with heads of {a} and tails of {b}"

    def _joins(self) -> None:
        """R7, for all tasks: of the parents of a task on a device those that cannot come from others in time run there, one by one."""
        size, p, unit = self.size, self.instance.p, self.unit
        for side, tasks in enumerate((self.tasks, self.tasks[::-1])):
            levels, ways = (self.tail if side else self.head), self.instance.ways[side]
            for j in tasks:
                arcs = [arc for arc in (self.instance.children if side else self.instance.parents)[j] if self.window >> arc[0] & 1]
                for k in self.devices[unit[j]] if len(arcs) > 1 else ():
                    rows = []
                    for i, e in arcs:
                        x, own = i * size + k, self.devices[unit[i]]
                        ends = [levels[i * size + h] + p[i * size + h] + ways[e][h][k] for h in own if h != k]
                        rows.append((levels[x] if k in own else INFINITE, p[x], min([INFINITE, *ends])))
                    self._raise(side, j, k, joined(levels[j * size + k], sorted(rows)))

    def _beyond(self, side: int, a: int, j: int, prices: Sequence[int]) -> None:
        """R4: j starts after all tasks before it with heads of at least `a` have run; R5 (side 1) is the mirror."""
        known = (self.after if side else self.before)[self._inside(j)]
        chosen = self._bounded([i for i in self.tasks if known >> i & 1], *((0, a) if side else (a, 0)))
        if chosen:  # else any a would be proven
            level = a + -(-self._weight(chosen, prices) // sum(prices))
            for k in self.devices[self.unit[j]]:
                self._raise(side, j, k, level)

    def _inside(self, i: int) -> int:
        _need(self.window >> i & 1, f"task {i} is not in the window", Rejected)
        return i

    def _bounded(self, tasks: Iterable[int], a: int, b: int) -> list[int]:
        """Return the tasks whose heads are at least `a` and whose tails at least `b` on each of their devices."""
        places = ((i, [i * self.size + k for k in self.devices[self.unit[i]]]) for i in tasks)
        return [i for i, own in places if all(self.head[x] >= a and self.tail[x] >= b for x in own)]

    def _weight(self, chosen: Sequence[int], prices: Sequence[int], bit_prices: Sequence[int] = (), every: bool = False) -> int:
        """Return the sum over units of the least cost on a device: price x time of the chosen tasks, bit price x bits of all."""
        instance, size = self.instance, self.size
        inputs, times = (instance.problem.inputs, instance.share) if every else (1, instance.p)
        costs: dict[int, dict[int, Fraction | int]] = {}
        held = any(bit_prices)
        for i in self.tasks if held else chosen:
            cost = costs.setdefault(self.unit[i], dict.fromkeys(self.devices[self.unit[i]], 0))
            busy, bits = inputs * (not held or i in chosen), instance.bits[i][0] + inputs * instance.bits[i][1]
            for k in cost:
                cost[k] += busy * prices[k] * times[i * size + k] + (bit_prices[k] * bits if held else 0)
        return sum(math.ceil(min(cost.values())) for cost in costs.values())

    def branch(self, token: Sequence[Any]) -> State:
        """Make this the first branch of ``["d", i, k]`` (B1) or ``["o", i, j]`` (B2), and return the second."""
        kind, i, x = token[0], self._inside(token[1]), token[2]
        self.every_input = False
        second = self.copy()
        if kind == "d":
            own = self.devices[self.unit[i]]
            _need(x in own, f"task {i} cannot run on device {x}, only on {', '.join(map(str, own))}", Rejected)
            second._remove(self.unit[i], [x, *self.twins(i, x)])
            self._remove(self.unit[i], [k for k in own if k != x])
        else:
            fine = i != x and any(i in members and x in members for members in self._alone().values())
            _need(fine, f"tasks {i} and {x} are not two tasks of positive length with the same only device", Rejected)
            second._precede(x, i)
            self._precede(i, x)
        return second

    def twins(self, i: int, k: int) -> list[int]:
        """Return the other devices of task i whose exchange with k changes nothing in this state (B3)."""
        return [h for h in self.instance.alike(k) if h in self.devices[self.unit[i]] and all(self._same(j, h, k) for j in self.tasks)]

    def _same(self, j: int, h: int, k: int) -> bool:
        own, x, y = self.devices[self.unit[j]], j * self.size + h, j * self.size + k
        return (h in own) == (k in own) and (h not in own or (self.head[x] == self.head[y] and self.tail[x] == self.tail[y]))


def joined(level: int, parents: Sequence[tuple[int, int, int]]) -> int:
    """Return the least start of a task, at least a level: parents, by their heads on its device, with their times there, and when their
    data can be there from other devices; who is later than the start runs on the device itself.
    """
    while True:
        end, nearest = 0, INFINITE
        for head, length, far in parents:
            if far > level:
                end, nearest = max(end, head) + length, min(nearest, far)
        if end <= nearest:
            return max(level, end)
        level = max(level, nearest)


def replay(state: State, tree: Sequence[Sequence[Any]], where: str = "the tree", deadline: float = math.inf) -> None:
    """Refute a root state by a well-formed tree, or raise `Rejected`, or `Late` after the deadline of `time.monotonic`."""
    waiting: list[State] = []
    state.propagate()
    for x, token in enumerate(tree):
        if time.monotonic() > deadline:
            raise Late(f"the time is over at token {x} of {len(tree)} of {where}")
        try:
            if token[0] == ".":
                _need(state.contradiction, "the leaf is open: neither R0 to R2 nor the hints before it contradict its state", Rejected)
                state = waiting.pop() if waiting else state
            else:
                _need(not state.contradiction, f"only a leaf may follow a contradiction: {state.contradiction}", Rejected)
                if token[0] in "do":
                    waiting.append(state.branch(token))
                else:
                    state.hint(token)
        except Rejected as error:
            raise Rejected(f"{where}, token {x}: {error}") from None
        state.propagate()


# ---------------------------------------------------------------------- certificates

_GOALS = {"release": ".ikv", "delivery": ".ikv", "makespan": "."}
TOKENS: dict[str, tuple[Literal[1, 2, 3], str]] = {".": (1, "."), "d": (1, ".ik"), "o": (1, ".ii"), "b": (1, ".vvl")}
TOKENS |= {"h": (1, ".vil"), "t": (1, ".vil"), "m": (1, ".vvll"), "j": (2, "."), "w": (2, ".vvl"), "f": (3, ".vvl")}
"""The version of the rules since which a certificate may have a token, and the fields of its row; see `_check_row`."""
Lemma = tuple[list[Any], list[int] | None, list[list[Any]]]  # a goal, its window (None: all tasks that are allowed), its tree


class Certificate(NamedTuple):
    """A certificate; all of it is checked but what has to be replayed."""

    digest: str
    unit: Fraction
    claim: Fraction | None
    lemmas: list[Lemma]
    batches: list[Any] | None
    transfers: list[Any] | None


class Verdict(NamedTuple):
    """What is proven: no schedule is shorter than `bound` seconds, or with None there is none; `makespan` is that of the decision."""

    bound: Fraction | None
    tasks: int
    leaves: int
    makespan: Fraction | None

    def __str__(self) -> str:
        size = f"({self.tasks} task{'s' * (self.tasks != 1)}, {self.leaves} {'leaf' if self.leaves == 1 else 'leaves'})"
        text = f"no schedule exists {size}" if self.bound is None else f"no schedule is shorter than {seconds(self.bound)} {size}"
        return text if self.makespan is None else f"{text}; the decision takes {seconds(self.makespan)}, its memory not checked"


def seconds(value: Fraction) -> str:
    """Return the text of an exact time."""
    return f"{value} s" if value.denominator <= 1000 else f"{float(value):.9g} s (exactly {value})"


def read_certificate(data: bytes, problem: Problem) -> Certificate:
    """Return the certificate of a document for a problem, or raise `Malformed`."""
    keys = "rules digest objective unit claim lemmas"
    top = _document(data, "the certificate", "hetsched-certificate", keys, "schedule made_by")
    _one_of(top["rules"], "rules of the certificate", 1, 2, 3)
    _one_of(top["objective"], "objective of the certificate", "makespan")
    tokens = {token: fields for token, (since, fields) in TOKENS.items() if since <= top["rules"]}
    _need(re.fullmatch("[0-9a-f]{64}", _typed(top["digest"], str, "digest")), "digest must be 64 hexadecimal digits")
    _typed(top.get("made_by", ""), str, "made_by")
    unit, claim = _rational(top["unit"], "unit"), None if top["claim"] == "infinity" else _rational(top["claim"], "claim")
    _need(unit > 0, "unit is 0; it must be positive")
    _need(claim is None or claim / unit < LARGEST, "the claim is 2^256 units or more; the certificate needs a larger unit")
    ends = {"i": problem.tasks, "k": problem.devices, "e": len(problem.edges), "x": problem.inputs, "v": LARGEST, "l": LARGEST}
    lemmas = [_lemma(lemma, f"lemma {x}", tokens, ends) for x, lemma in enumerate(_list(top["lemmas"], "lemmas"))]
    claims = [x for x, (goal, _, _) in enumerate(lemmas) if goal == ["makespan"]]
    _need(claims == [len(lemmas) - 1], "the last lemma, and no other, must have the goal makespan")
    counts = [sum(token[0] in kinds for _, _, tree in lemmas for token in tree) for kinds in (".do", "bhtmjwf")]
    _need(max(counts) <= MOST_NODES, f"the certificate has {counts[0]} nodes and {counts[1]} hints; of each may be {MOST_NODES}")
    decision = {"batches": None} if top.get("schedule") is None else _table(top["schedule"], "schedule", "batches", "transfers")
    batches, transfers = decision["batches"], decision.get("transfers")
    for row in [] if batches is None else _list(batches, "batches"):
        _check_row(row, "a batch", "ikx", ends)
    for row in [] if transfers is None else _list(transfers, "transfers"):
        _check_row(row, "a transfer", "ebb", ends | {"b": len(batches or ())})
    return Certificate(top["digest"], unit, claim, lemmas, batches, transfers)


def _lemma(value: Any, what: str, tokens: Mapping[str, str], ends: Mapping[str, int]) -> Lemma:
    table, n, size = _table(value, what, "window goal tree"), ends["i"], ends["k"]
    window, goal, tree, left, deepest = table["window"], table["goal"], _list(table["tree"], f"the tree of {what}"), 1, 1
    for i in [] if window is None else _list(window, f"the window of {what}"):
        _whole(i, f"a task of the window of {what}", n)
    _need(window is None or len(set(window)) == len(window), f"the window of {what} has a task twice")
    _check_row(goal, f"the goal of {what}", _GOALS, ends)
    for x, token in enumerate(tree):
        _need(left > 0, f"token {x} of {what} comes after the last leaf of its tree")
        _check_row(token, f"token {x} of {what}", tokens, ends)
        _need(token[0] not in "bhtw" or any(token[-1]), f"the prices of token {x} of {what} are all 0")
        left += {".": -1, "d": 1, "o": 1}.get(token[0], 0)
        deepest = max(deepest, left)
    _need(left == 0, f"the tree of {what} ends before its last leaf")
    _need(deepest * n * (size + 1 + n // 64) <= MOST_OPEN, f"{deepest} branches are open at a time in {what}, too many for {n} tasks")
    return goal, window, tree


def _check_row(row: Any, what: str, fields: str | Mapping[str, str], ends: Mapping[str, int]) -> None:
    """Check the fields of a row, given for each kind where it begins with a kind (.): a task (i), a device (k), an edge (e), a batch (b), a
    whole number (v), a list of one for each device (l), or a list of inputs (x); `ends` are above these numbers.
    """
    if not isinstance(fields, str):
        fields = fields[_one_of((_list(row, what) or [None])[0], f"the kind of {what}", *fields)]
    for field, value in zip(fields, _list(row, what, len(fields)), strict=True):
        values = _list(value, f"a list of {what}", ends["k"] if field == "l" else None) if field in "lx" else [value]
        for x in values if field != "." else ():
            _whole(x, f"a number of {what}", ends[field])


def root(instance: Instance, end: int, goal: Sequence[Any], window: Window, proven: Proven) -> State:
    """Return the state whose contradiction proves a goal, given the lemmas before; `end` is that of the makespan."""
    if goal[0] == "makespan":
        return State(instance, end, window, proven, every=True)
    kind, i, k, level = goal
    allowed = (instance.ancestors if kind == "release" else instance.descendants)[i] | 1 << i
    own = [j for j in instance.problem.order if allowed >> j & 1] if window is None else list(window)
    within = i in own and all(allowed >> j & 1 for j in own)
    _need(within, f"the window must be the task and {'ancestors' if kind == 'release' else 'descendants'} of it", Rejected)
    _need(k in instance.devices[instance.problem.unit[i]], "the task cannot run on the device", Rejected)
    known: Proven = (proven[0], {}) if kind == "release" else ({}, proven[1])  # the schedule ends with the task, or begins with it
    return State(instance, level + instance.p[i * instance.problem.devices + k], own, known, at=(i, k))


def check(problem: Problem, certificate: Certificate, deadline: float = math.inf) -> Verdict:
    """Return what a certificate proves, or raise `Rejected`, or `Late` after the deadline of `time.monotonic`."""
    _need(certificate.digest == problem.digest(), "the certificate is of another problem: the digests differ", Rejected)
    instance = Instance(problem, certificate.unit)
    end = INFINITE if certificate.claim is None else math.ceil(certificate.claim / certificate.unit)
    proven: tuple[dict[Place, int], dict[Place, int]] = ({}, {})
    for x, (goal, window, tree) in enumerate(certificate.lemmas):
        where = f"lemma {x} ({' '.join(map(str, goal))})"
        try:
            state = root(instance, end, goal, window, proven)
        except Rejected as error:
            raise Rejected(f"{where}: {error}") from None
        replay(state, tree, where, deadline)
        if goal[0] != "makespan":
            levels, place = proven[goal[0] == "delivery"], (goal[1], goal[2])
            levels[place] = max(goal[3], levels.get(place, 0))
    leaves = sum(token[0] == "." for _, _, tree in certificate.lemmas for token in tree)
    makespan = None if certificate.batches is None else retimed(problem, certificate.batches, certificate.transfers)
    return Verdict(None if certificate.claim is None else end * certificate.unit, problem.tasks, leaves, makespan)


# ---------------------------------------------------------------------- decisions


def retimed(problem: Problem, batches: Sequence[Sequence[Any]], transfers: Sequence[Sequence[int]] | None = None) -> Fraction:
    """Return the exact makespan of a decision: all starts as early as what is before it and the orders allow; memory is not checked.

    `batches` are (task, device, inputs), in the order of each device; `transfers` (edge, source batch, target batch), in their order,
    needed where they may contend. What takes no time stands in no order. A decision that breaks a rule is `Rejected`.
    """
    batch_of: dict[tuple[int, int], int] = {}
    place: dict[tuple[int, int], int] = {}
    length: list[Fraction] = []
    chains: dict[object, list[int]] = {}  # what a device or a link does, in its order
    for b, (i, k, items) in enumerate(batches):
        taken: Any = dict(zip(problem.sizes, problem.durations[i][k], strict=True)).get(len(items))
        possible = taken is not None and k in problem.allowed[i]
        _need(possible, f"batch {b}: task {i} cannot run {len(items)} inputs at once on device {k}", Rejected)
        for item in items:
            fine = (i, item) not in batch_of and place.setdefault((problem.unit[i], item), k) == k
            _need(fine, f"batch {b}: input {item} of task {i} is in two batches, or co-located tasks are on two devices", Rejected)
            batch_of[i, item] = b
        length.append(taken)
        if taken > 0:
            chains.setdefault(k, []).append(b)
    twice = problem.batching == "once" and len({(i, k) for i, k, _ in batches}) < len(batches)
    fine = not twice and len(batch_of) == problem.tasks * problem.inputs
    _need(fine, "an input of a task is in no batch, or a device has two batches of a task and batching is once", Rejected)
    arcs: list[tuple[int, int]] = []  # between batches and transfers
    moves: dict[tuple[int, ...], tuple[int, list[object]]] = {}  # between devices: the number of a transfer, what it excludes others from
    for e, (i, j) in enumerate(problem.edges):
        for (a, b), same in itertools.groupby(sorted((batch_of[i, x], batch_of[j, x]) for x in range(problem.inputs))):
            h, k, move = batches[a][1], batches[b][1], len(length)
            moving: Any = problem.transfer(e, h, k, len(list(same)))
            _need(moving is not None, f"edge {e} has no way from device {h} to device {k}", Rejected)
            if h != k:
                moves[e, a, b] = move, _resources(problem, h, k) if moving > 0 else []
            arcs += [(a, move), (move, b)]
            length.append(moving)
    used = [resource for _, resources in moves.values() for resource in resources]
    _need(transfers is not None or len(set(used)) == len(used), "transfers may contend, so the decision needs their order", Rejected)
    for row in transfers or ():
        _need(tuple(row) in moves, f"transfer {row} is none of the decision, or is given twice", Rejected)
        move, resources = moves.pop(tuple(row))
        for resource in resources:
            chains.setdefault(resource, []).append(move)
    left = any(resources for _, resources in moves.values())
    _need(transfers is None or not left, "a transfer that may contend is missing in the order of transfers", Rejected)
    for chain in chains.values():
        arcs += itertools.pairwise(chain)
    order = _topological(len(length), arcs, Rejected("the orders of the decision and the edges make a cycle"))
    finish, rank = length[:], {x: r for r, x in enumerate(order)}
    for a, b in sorted(arcs, key=lambda arc: rank[arc[0]]):
        finish[b] = max(finish[b], finish[a] + length[b])
    return max(finish, default=Fraction(0))


def _resources(problem: Problem, h: int, k: int) -> list[object]:
    """Return what a transfer from device h to device k excludes others from."""
    ends = (problem.host[h], problem.host[k]) if problem.communication == "node" else (h, k)
    if problem.communication in ("delay", "per-input") or ends[0] == ends[1]:
        return []
    return [ends] if problem.communication == "channel" else [("out", ends[0]), ("in", ends[1])]


def main(arguments: Sequence[str]) -> int:
    """Check the problem and the certificate in two files and return the exit code: 0 proven, 1 rejected, 2 malformed."""
    try:
        _need(len(arguments) == 2, "usage: python checker.py problem.json certificate.json[.gz]")
        problem = Problem(load(arguments[0]))
        said, code = str(check(problem, read_certificate(load(arguments[1]), problem))), 0
    except Rejected as error:
        said, code = f"rejected: {error}", 1
    except (Malformed, OSError) as error:
        said, code = f"error: {error}", 2
    (sys.stderr if code == 2 else sys.stdout).write(f"{said}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
