"""How kernels are compiled: kept on disk, without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: F) -> F:
    """Compile what Python calls."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def inner(function: F) -> F:
    """Compile what only kernels call; calling it from Python crashes.

    The wrappers that it goes without take long to compile for tuples of many arrays.
    """
    return cast(F, numba.njit(cache=True, nogil=True, **_INNER)(function))
