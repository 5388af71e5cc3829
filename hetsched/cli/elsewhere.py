"""Where work is done: ``--workers`` processes of this machine, or the workers behind a ``--scheduler``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer

from hetsched.errors import MissingDependency

METHOD = "split"
"""The method whose work can be done elsewhere."""
SECONDS = 10
"""For how long a scheduler may be silent before it is given up."""


@contextlib.contextmanager
def executor(names: list[str], workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Yield the executor that the options ask for, or None; it is closed afterwards."""
    if METHOD not in names:
        if scheduler is not None:
            raise typer.BadParameter(f"{', '.join(names)} works here alone; name --method {METHOD}", param_hint="--scheduler")
        yield None
    elif scheduler is not None:
        with _client(scheduler) as client:
            yield client
    elif workers is not None:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:  # forking is not safe beside threads
            yield pool
    else:
        yield None


@contextlib.contextmanager
def _client(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError:
        raise MissingDependency("distributed", "distributed") from None
    try:
        client = Client(address, timeout=SECONDS)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"no scheduler answers at {address!r}: {error}", param_hint="--scheduler") from None
    with client:
        yield client
