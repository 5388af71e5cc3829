"""The devices of this machine as its system names them, and devices, links and amounts in the words of a command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hetsched.errors import InvalidProblem

if TYPE_CHECKING:
    from hetsched.chain.machine import Machine
    from hetsched.problem.cluster import Device
    from hetsched.problem.interconnects import Interconnect

PROC = Path("/proc")
PATIENCE = 20.0
"""Seconds after which nvidia-smi is given up."""
QUERY = ("nvidia-smi", "--query-gpu=index,name,memory.total,memory.free", "--format=csv,noheader,nounits")


class Found(NamedTuple):
    """A device of this machine."""

    name: str
    """gpu0, gpu1, .. or cpu."""
    reported: str
    """What the driver or the system calls it."""
    memory_bytes: float
    free_bytes: float
    source: str


def gpus() -> tuple[list[Found], str]:
    """Return the GPUs that nvidia-smi lists, in the order of the PCI bus, and what is wrong with it; empty if it is not installed."""
    if shutil.which(QUERY[0]) is None:
        return [], ""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi: {error}"
    if done.returncode:
        return [], f"nvidia-smi: {(done.stdout + done.stderr).strip() or f'exit code {done.returncode}'}"
    found = []
    for line in filter(str.strip, done.stdout.splitlines()):
        try:
            index, name, total, free = (word.strip() for word in line.split(","))
            found.append(Found(f"gpu{int(index)}", name, float(total) * 2**20, float(free) * 2**20, "nvidia-smi"))
        except ValueError:
            return [], f"nvidia-smi: {line!r} is not a number, a name and two numbers"
    return found, ""


def gpus_of_torch() -> list[Found]:
    """Return the GPUs that torch lists, CUDA's or ROCm's; raise `MissingDependency` without torch."""
    try:
        import torch
    except ImportError as error:
        from hetsched.errors import MissingDependency

        raise MissingDependency("torch", "torch") from error
    found = []
    for k in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(k)
        found.append(Found(f"gpu{k}", torch.cuda.get_device_name(k), float(total), float(free), "torch"))
    return found


def cpu() -> Found | None:
    """Return the CPU with the memory of the host, from /proc; None on systems without it."""
    try:
        memory = dict(line.split(":", 1) for line in (PROC / "meminfo").read_text().splitlines() if ":" in line)
        models = re.findall(r"^model name\s*:\s*(.*)$", (PROC / "cpuinfo").read_text(), re.MULTILINE)
        total, free = (float(memory[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError, IndexError):
        return None
    return Found("cpu", models[0].strip() if models else os.uname().machine, total, free, "/proc/meminfo")


def look(torch: bool = False) -> tuple[list[Found], list[str]]:
    """Return the devices of this machine, its GPUs as nvidia-smi or torch lists them, and notes on what could not be asked."""
    found, problem = (gpus_of_torch(), "") if torch else gpus()
    processor = cpu()
    return [*found, *([] if processor is None else [processor])], [problem] if problem else []


def amount(text: str, unit: str, what: str) -> float:
    """Return the number of an amount such as ``24GB``, ``1008GB/s``, ``165TF`` or ``10us``; `unit` is B, B/s, FLOP/s or s."""
    from hetsched.arguments import amounts

    try:
        return amounts.parse(text, unit, bare=True)
    except ValueError:
        example = {"B": "24GB or 22.5GiB", "B/s": "1008GB/s", "FLOP/s": "165TF", "s": "10us"}[unit]
        raise InvalidProblem(f"{what} is {text!r}; give an amount such as {example}") from None


def pair(text: str, option: str, example: str) -> tuple[str, str]:
    """Return the two sides of ``name=value``."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise InvalidProblem(f"{option} is {text!r}; give the name of a device and =, as in {option} {example}")
    return name.strip(), value.strip()


def too_fast(machine: Machine) -> list[str]:
    """Return a note for each device of which more than its data sheet has was measured."""
    above = [name for name, shares in machine.efficiency.items() if max(shares) > 1]
    return [f"{name} is faster than its data sheet; is it the device that was measured, and the model?" for name in above]


def reserved(texts: Iterable[str]) -> dict[str, float]:
    """Return the bytes by device of words such as ``gpu0=2GB``."""
    pairs = (pair(text, "--reserve", "gpu0=2GB") for text in texts)
    return {name: amount(text, "B", f"--reserve {name}") for name, text in pairs}


def stated_device(name: str, text: str, memory_bytes: float | None = None) -> tuple[Device, str]:
    """Return the device that ``KIND``, ``KIND:MEMORY`` or ``WORD:MEMORY:BANDWIDTH:PEAK`` states, and the source of its figures.

    `memory_bytes` is what was found of it; without, and unless stated, a kind has the memory of the catalogue.
    """
    from hetsched.costs import devices
    from hetsched.problem.catalogue import CATALOGUE
    from hetsched.problem.cluster import Device

    kind, *figures = (part.strip() for part in text.split(":"))
    if len(figures) not in (0, 1, 3):
        raise InvalidProblem(
            f"--device {name}={text!r} has {len(figures)} figures; give a kind of the catalogue, a kind and its memory, or a word with "
            "memory, memory bandwidth and float16 peak, as in gpu0=rtx4090, cpu=ryzen9950x:64GB or gpu0=titanrtx:24GB:672GB/s:65TF"
        )
    memory = amount(figures[0], "B", f"memory of --device {name}") if figures else memory_bytes
    if len(figures) < 3:
        found = devices.device(kind, name)
        return (found if memory is None else replace(found, memory_bytes=memory)), CATALOGUE[found.kind].source
    bandwidth, peak = amount(figures[1], "B/s", f"bandwidth of --device {name}"), amount(figures[2], "FLOP/s", f"peak of --device {name}")
    return Device(name, kind=kind, memory_bytes=memory or 0.0, memory_bandwidth=bandwidth, peak_flops={"float16": peak}), "stated"


def stated_link(text: str) -> Interconnect:
    """Return the link of a name, or of ``BANDWIDTH`` or ``BANDWIDTH:LATENCY``."""
    from hetsched.problem.interconnects import LINKS, Interconnect, link

    if text in LINKS:
        return link(text)
    if not text[:1].isdigit():
        raise InvalidProblem(f"--link is {text!r}; choose from {', '.join(LINKS)}, or give bandwidth and latency as in 25GB/s:10us")
    bandwidth, _, latency = text.partition(":")
    return Interconnect(amount(bandwidth, "B/s", "--link"), amount(latency, "s", "latency of --link") if latency else 10e-6, "stated")


def undetected(found: Sequence[Found]) -> str:
    """Return what to do about devices of which the catalogue has no figures."""
    named = ", ".join(f"{one.name} is {one.reported!r} with {one.memory_bytes / 2**30:.1f} GiB" for one in found)
    example = f"{found[0].name}=NAME:{found[0].memory_bytes / 2**30:.1f}GiB:BANDWIDTH:PEAK"
    return f"{named}, which is not in the catalogue; state a kind of hetsched devices, or its figures: --device {example}"
