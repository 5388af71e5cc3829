"""Where the devices of a problem are on this machine, and what the machine says of them."""

from __future__ import annotations

import contextlib
import math
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hetsched.errors import InvalidProblem, UnsupportedFeature, warn
from hetsched.runtime import accelerator as accelerators

Where = int | Sequence[int] | str
"""A number of CPU threads; the CPU cores to which a device is pinned, one thread each; or the name of a device of torch."""


class Place(NamedTuple):
    """Where a device of the problem is on this machine."""

    name: str
    threads: int
    cores: frozenset[int] | None = None
    """None: any of the process's."""
    device: torch.device = torch.device("cpu")


def place(name: str, where: Any, *, here: bool = True) -> Place:
    """Return the place of a device, `here` or on another host, of which the cores are not known.

    Raises
    ------
    InvalidProblem
        It is not a number of threads, cores of this process, or a device that torch has.
    UnsupportedFeature
        It is a device of another kind; or it is pinned to cores, which this system cannot do.
    """
    if isinstance(where, str):
        return Place(name, torch.get_num_threads(), None, _torch_device(name, where))
    remedy = "give a number of CPU threads, a list of cores, or a device of torch, such as 'cuda:0'"
    if isinstance(where, int) and not isinstance(where, bool):
        if where < 1:
            raise InvalidProblem(f"device {name!r} is {where} threads of the CPU; it must be at least one")
        return Place(name, where)
    cores = list(where) if isinstance(where, Sequence) else []
    if not cores or not all(isinstance(core, int) and not isinstance(core, bool) for core in cores) or len(set(cores)) < len(cores):
        raise InvalidProblem(f"device {name!r} is {where!r}; {remedy}, each once")
    if not here:
        return Place(name, len(cores), frozenset(cores))
    if not hasattr(os, "sched_setaffinity"):
        raise UnsupportedFeature(f"device {name!r} is pinned to cores, which this system cannot do; give a number of threads")
    own = os.sched_getaffinity(0)
    if not own.issuperset(cores):
        raise InvalidProblem(f"device {name!r} has the cores {cores}; this process has {sorted(own)}")
    return Place(name, len(cores), frozenset(cores))


def _torch_device(name: str, where: str) -> torch.device:
    try:
        device = torch.device(where)
    except RuntimeError as error:
        raise InvalidProblem(
            f"device {name!r} is {where!r}; give a number of CPU threads or a device of torch, such as 'cuda:0'"
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise UnsupportedFeature(f"device {name!r} is a {device.type} device; tasks run on cpu or cuda")
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        if device.index >= torch.cuda.device_count():
            raise InvalidProblem(f"device {name!r} is {device}, but torch has {torch.cuda.device_count()} CUDA devices; leave it out")
    return device


def kind(device: torch.device) -> str:
    """Return the vendor's name of a device."""
    own = accelerators.accelerator(device)
    return f"{platform.machine()} {_cpu_info('model name') or ''}".strip() if own is None else own.properties()[0]


def units(where: Place) -> int:
    """Return the multiprocessors of a GPU, or the threads of a CPU device."""
    own = accelerators.accelerator(where.device)
    return where.threads if own is None else own.properties()[1]


def memory(device: torch.device) -> float:
    """Return the bytes of memory of a GPU; inf for the CPU."""
    own = accelerators.accelerator(device)
    return math.inf if own is None else own.properties()[2]


def clock_hz(device: torch.device) -> float | None:
    """Return the clock of a CPU now, or None if the system does not tell."""
    with contextlib.suppress(ValueError):
        return 1e6 * float(_cpu_info("cpu MHz") or "") if device.type == "cpu" else None
    return None


def software(device: torch.device, *, fold: bool) -> tuple[tuple[str, str], ...]:
    """Return the versions and settings that change the times of tasks on a device, sorted by name."""
    facts = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "fold": str(fold),
    }
    if device.type == "cuda":
        facts |= {
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "tf32": "False",  # see `full_precision`
            "cudnn.benchmark": str(torch.backends.cudnn.benchmark),
        }
    else:
        facts["mkldnn"] = str(torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled)  # type: ignore[no-untyped-call]
    return tuple(sorted(facts.items()))


def _cpu_info(what: str) -> str | None:
    """Return a line of the first processor if the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() if what == "model name" else None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(what)), None)


def free_memory() -> float | None:
    """Return the bytes of memory that are available, or None if the system does not say so."""
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    except (OSError, ValueError):
        return None
    return 1024.0 * float(rows["MemAvailable"].split()[0]) if "MemAvailable" in rows else None


def affinities() -> dict[int, set[int]]:
    """Return the cores of each thread of this process, where the system tells."""
    cores = {}
    with contextlib.suppress(OSError, AttributeError):
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                cores[int(thread.name)] = os.sched_getaffinity(int(thread.name))
    return cores


def warn_of_moved(before: Mapping[int, set[int]], places: Sequence[Place]) -> None:
    """Warn if threads that were started in the first run are not on the cores of the devices."""
    if all(place.cores is None for place in places) or not before:
        return
    rights = [set(place.cores) for place in places if place.cores is not None] + [os.sched_getaffinity(0)]
    for thread, cores in affinities().items():
        if thread not in before and cores not in rights:
            warn(f"a thread of torch is on the cores {sorted(cores)}, which are no device's; unset OMP_PROC_BIND and KMP_AFFINITY")
            return
