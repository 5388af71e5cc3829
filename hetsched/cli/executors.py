"""Executors of the options: ``--workers`` processes on this machine, or the workers of a ``--scheduler``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer

from hetsched.errors import MissingDependency

SECONDS = 10
"""Timeout of the connection to a scheduler."""


def distributing() -> list[str]:
    """Return the methods that distribute their work over an executor."""
    from hetsched.search import registered

    return [method.name for method in registered().values() if method.distributes]


@contextlib.contextmanager
def executor(names: list[str], workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Yield the executor that the options select, or None, and close it afterwards."""
    capable = distributing()
    if not set(capable) & set(names):
        if scheduler is not None:
            raise typer.BadParameter(
                f"{', '.join(names)} uses no scheduler; choose --method {' or '.join(capable)}", param_hint="--scheduler"
            )
        yield None
    elif scheduler is not None:
        with client(scheduler) as dask:
            yield dask
    elif workers is not None:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:  # no fork beside threads
            yield pool
    else:
        yield None


@contextlib.contextmanager
def client(address: str | None) -> Iterator[Any]:
    """Yield a client of the scheduler of dask.distributed at an address, or None without one, and close it afterwards."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise MissingDependency("distributed", "distributed") from None
    try:
        made = Client(address, timeout=SECONDS)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"no scheduler answers at {address!r}: {error}", param_hint="--scheduler") from None
    with made:
        yield made
