"""Devices of this machine named in a command line: threads of the CPU, pinned to cores or not, and GPUs."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from hetsched.errors import InvalidProblem

Places = dict[str, Any]
"""The threads, the cores, or the name in torch of each device."""
Devices = Annotated[
    str | None,
    typer.Option(
        help="Devices: of the CPU with their threads, 1 if not given, and GPUs, as in cpu0,cpu1=2,cuda:0 or gpu0=cuda:0; "
        "default: one for each core.",
        metavar="NAME[=THREADS],...",
    ),
]
Pin = Annotated[bool | None, typer.Option("--pin/--no-pin", help="Pin each device to cores of its own; default: if there are enough.")]


def places(text: str | None, pin: bool | None) -> Places:
    """Return the threads, the cores, or the name in torch of each device in ``cpu0,cpu1=2,cuda:0``."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if text is None:
        text = ",".join(f"cpu{k}" for k in range(len(cores) or os.cpu_count() or 1))
    threads: dict[str, int] = {}
    order, gpus = list[str](), dict[str, str]()
    for part in text.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        where = number if equals else name
        if where.partition(":")[0] == "cuda" and name and name not in order:
            order.append(name)
            gpus[name] = where
            continue
        if not name or name in order or (equals and not (number.isdecimal() and int(number) >= 1)):
            raise InvalidProblem(f"--devices {text!r} is not a list of different names with numbers of threads, such as cpu0,cpu1=2")
        order.append(name)
        threads[name] = int(number) if equals else 1
    if pin is None:
        pin = sum(threads.values()) <= len(cores)
    if not pin:
        return {name: gpus.get(name) or threads[name] for name in order}
    if sum(threads.values()) > len(cores):
        raise InvalidProblem(f"--pin needs a core for each of {sum(threads.values())} threads, and there are {len(cores)}; leave it out")
    left = iter(cores)
    return {name: gpus.get(name) or [next(left) for _ in range(threads[name])] for name in order}


def listed(chosen: Places) -> str:
    """Return the devices as words."""
    return ", ".join(f"{name} ({_where(where)})" for name, where in chosen.items())


def _where(where: Any) -> str:
    if isinstance(where, str):
        return where
    if isinstance(where, int):
        return f"{where} thread{'' if where == 1 else 's'}"
    return f"core{'' if len(where) == 1 else 's'} {', '.join(map(str, where))}"


def threads(where: Any) -> int | None:
    """Return the number of threads of a device; None of a GPU."""
    if isinstance(where, str):
        return None
    return where if isinstance(where, int) else len(where)
