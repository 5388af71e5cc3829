"""Compilation of a method's kernels in a separate process, so that a time limit holds before they are compiled."""

from __future__ import annotations

import hashlib
import pickle
import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from hetsched.processes import Process, in_process
from hetsched.search.registry import Method

MAIN = "hetsched.portfolio.prepare:serve"
"""What the separate process runs."""
BOUNDS, COARSENING = "bounds", "coarsening"
"""The parts of `hetsched prepare` with methods of several rooms; the others are families of heuristics."""
WAKE = 0.02  # seconds between looks at the clock


def part(method: Method) -> str:
    """Return the part of `hetsched prepare` that compiles the kernels of a method of the package; "" if it has none."""
    package, room, family, *_ = (*method.function.__module__.split("."), "", "")
    if package != "hetsched" or not method.available:
        return ""
    if family == "multilevel" or room == "decomposition":
        return COARSENING
    return {"heuristics": family, "bounds": BOUNDS}.get(room, "")


def is_prepared(method: Method) -> bool:
    """Return whether the kernels of a method are compiled, or compiling them ahead would not help."""
    marker = _marker(method.name)
    return not part(method) or marker is None or marker.exists()


def mark_prepared(name: str) -> None:
    """Record, in the folder of the compiled code, that all kernels of a method are compiled."""
    marker = _marker(name)
    if marker is not None:
        with suppress(OSError):
            marker.touch()


class Compilers:
    """The processes that compile kernels for one solve."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Process, threading.Event]] = {}

    def compile(self, methods: Iterable[Method], should_stop: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> bool:
        """Compile the kernels of methods unless they are compiled; return False if the solve had to stop before the end.

        `meanwhile` is called while they are compiled. In a process that may be lost the methods compile them themselves.
        """
        if in_process.get():
            return True
        missing = [method for method in methods if not is_prepared(method)]
        for method in missing:
            if method.name not in self._running:
                self._start(method)
        if missing:
            meanwhile()
        return all(self._wait(self._running[method.name][1], should_stop) for method in missing)

    def _start(self, method: Method) -> None:
        message = f"compiling the kernels of {method.name!r}, once for all solves; `hetsched prepare` compiles those of all methods"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        done = threading.Event()
        process = Process(MAIN, lambda _message: done.set())
        process.send(pickle.dumps(method.name))
        self._running[method.name] = (process, done)

    def _wait(self, done: threading.Event, should_stop: Callable[[], bool]) -> bool:
        while not done.wait(WAKE):
            if should_stop():
                return False
        return True

    def close(self) -> None:
        """End the processes; what they have compiled so far is kept."""
        for process, _ in self._running.values():
            process.kill()
        self._running = {}


@cache
def _marker(name: str) -> Path | None:
    """Return the file that exists if the kernels of a method are compiled, for these sources and this machine; None without a cache."""
    import numba

    from hetsched.problem.topology_kernels import breadth_first_order

    dispatcher = breadth_first_order.dispatcher  # type: ignore[attr-defined]
    folder = dispatcher._cache.cache_path
    if folder is None:
        return None
    digest = hashlib.sha256(repr((numba.__version__, dispatcher.targetctx.codegen().magic_tuple())).encode())
    package = Path(__file__).parents[1]
    for source in (package / "compiled.py", *sorted(package.rglob("*kernels.py"))):
        digest.update(source.read_bytes())
    return Path(folder) / f"prepared-{name}-{digest.hexdigest()[:16]}"
