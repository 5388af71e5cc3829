"""Budget, monitor, solution, and the registry of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import attach

if TYPE_CHECKING:
    from hetsched.search.budget import Budget, cores
    from hetsched.search.monitor import Event, MethodFunction, Monitor
    from hetsched.search.registry import (
        ALL,
        BUILT_IN,
        LARGE,
        LOADS,
        MAKESPAN,
        Auto,
        Kind,
        Method,
        Role,
        Supports,
        When,
        always,
        batches_given,
        discover,
        exact,
        find_method,
        large,
        method,
        registered,
        select,
        several_inputs,
        tasks_up_to,
        temporarily,
    )

_HOMES = {
    "budget": ["Budget", "cores"],
    "monitor": ["Event", "MethodFunction", "Monitor"],
    "registry": [
        "ALL",
        "BUILT_IN",
        "LARGE",
        "LOADS",
        "MAKESPAN",
        "Auto",
        "Kind",
        "Method",
        "Role",
        "Supports",
        "When",
        "always",
        "batches_given",
        "discover",
        "exact",
        "find_method",
        "large",
        "method",
        "registered",
        "select",
        "several_inputs",
        "tasks_up_to",
        "temporarily",
    ],
}

__all__ = [
    "ALL",
    "BUILT_IN",
    "LARGE",
    "LOADS",
    "MAKESPAN",
    "Auto",
    "Budget",
    "Event",
    "Kind",
    "Method",
    "MethodFunction",
    "Monitor",
    "Role",
    "Supports",
    "When",
    "always",
    "batches_given",
    "cores",
    "discover",
    "exact",
    "find_method",
    "large",
    "method",
    "registered",
    "select",
    "several_inputs",
    "tasks_up_to",
    "temporarily",
]

__getattr__, __dir__ = attach(__name__, _HOMES)
