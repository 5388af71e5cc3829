"""How kernels are compiled: kept on disk, without the interpreter's lock, without reference counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])
# A tuple of fifty arrays costs fifty atomic counts up and down in every call that takes it. Without them a kernel is
# several times as fast, and compiled in a third of the time; it must not make arrays, which numba sees to.
_LEAN: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def kernel(function: F) -> F:
    """Compile what Python calls."""
    return cast(F, numba.njit(**_LEAN)(function))


def inner(function: F) -> F:
    """Compile what only kernels call; calling it from Python crashes.

    The wrappers that it goes without take long to compile for tuples of many arrays.
    """
    return cast(F, numba.njit(**_LEAN, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))  # type: ignore[call-overload]
