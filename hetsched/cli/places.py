"""Devices of this machine named in a command line: threads of the CPU, pinned to cores or not."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from hetsched.errors import InvalidProblem

Places = dict[str, Any]
"""The threads, or the cores, of each device."""
Devices = Annotated[
    str | None,
    typer.Option(
        help="Devices of the CPU and their threads, 1 if not given, as in cpu0,cpu1=2; default: one for each core.",
        metavar="NAME[=THREADS],...",
    ),
]
Pin = Annotated[bool | None, typer.Option("--pin/--no-pin", help="Pin each device to cores of its own; default: if there are enough.")]


def places(text: str | None, pin: bool | None) -> Places:
    """Return the threads, or the cores, of each device in ``cpu0,cpu1=2``."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if text is None:
        text = ",".join(f"cpu{k}" for k in range(len(cores) or os.cpu_count() or 1))
    threads: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        if not name or name in threads or (equals and not (number.isdecimal() and int(number) >= 1)):
            raise InvalidProblem(f"--devices {text!r} is not a list of different names with numbers of threads, such as cpu0,cpu1=2")
        threads[name] = int(number) if equals else 1
    if pin is None:
        pin = sum(threads.values()) <= len(cores)
    if not pin:
        return dict(threads)
    if sum(threads.values()) > len(cores):
        raise InvalidProblem(f"--pin needs a core for each of {sum(threads.values())} threads, and there are {len(cores)}; leave it out")
    left = iter(cores)
    return {name: [next(left) for _ in range(count)] for name, count in threads.items()}


def listed(chosen: Places) -> str:
    """Return the devices as words."""
    return ", ".join(f"{name} ({_where(where)})" for name, where in chosen.items())


def _where(where: Any) -> str:
    if isinstance(where, int):
        return f"{where} thread{'' if where == 1 else 's'}"
    return f"core{'' if len(where) == 1 else 's'} {', '.join(map(str, where))}"


def threads(where: Any) -> int:
    """Return the number of threads of a device."""
    return where if isinstance(where, int) else len(where)
