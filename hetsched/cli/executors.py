"""Where work is done: ``--workers`` processes of this machine, or the workers behind a ``--scheduler``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer

from hetsched.errors import MissingDependency

SECONDS = 10
"""For how long a scheduler may be silent before it is given up."""


def distributing() -> list[str]:
    """Return the methods that have parts of their work done by an executor."""
    from hetsched.search import registered

    return [each.name for each in registered().values() if each.distributes]


@contextlib.contextmanager
def executor(names: list[str], workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Yield the executor that the options ask for, or None; it is closed afterwards."""
    known = distributing()
    if not set(known) & set(names):
        if scheduler is not None:
            raise typer.BadParameter(f"{', '.join(names)} works here alone; name --method {' or '.join(known)}", param_hint="--scheduler")
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
