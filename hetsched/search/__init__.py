"""The frame of every search: budget, monitor, incumbent, bound, solution, registry of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.search.monitor import Budget, Event, Method, MethodFunction, Monitor, cores, find_method, method, registered

_HOMES = {"monitor": ["Budget", "Event", "Method", "MethodFunction", "Monitor", "cores", "find_method", "method", "registered"]}

__all__ = ["Budget", "Event", "Method", "MethodFunction", "Monitor", "cores", "find_method", "method", "registered"]

__getattr__, __dir__ = attach(__name__, _HOMES)
