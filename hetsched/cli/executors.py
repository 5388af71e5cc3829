"""Executors of the options: ``--workers`` processes on this machine, or the workers of a ``--scheduler``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import typer

from hetsched.errors import MissingDependency

SECONDS = 10
"""Timeout of the connection to a scheduler."""


@contextlib.contextmanager
def executor(names: list[str], workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """Yield the executor that the options select, or None, and close it afterwards."""
    from hetsched.search import Kind, registered

    capable = {method.name: method for method in registered().values() if method.distributes}
    if scheduler is not None:
        if not capable.keys() & set(names):
            raise typer.BadParameter(
                f"{', '.join(names)} uses no scheduler; choose --method {' or '.join(sorted(capable))}", param_hint="--scheduler"
            )
        with client(scheduler) as dask:
            yield dask
    elif workers is not None and any(capable[name].kind is not Kind.PORTFOLIO for name in capable.keys() & set(names)):  # it starts its own
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
