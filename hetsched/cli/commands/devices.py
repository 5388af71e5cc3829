"""`devices`: the catalogue of devices and links, and what of it this machine has."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli import completion
from hetsched.cli.options import JSON
from hetsched.cli.terminal import say, say_json, say_rows
from hetsched.problem.units import size

if TYPE_CHECKING:
    from hetsched.cli.hardware import Found

TORCH = Annotated[bool, typer.Option("--torch", help="Ask torch for the GPUs instead of nvidia-smi, for instance those of ROCm.")]


KIND = Annotated[
    str | None,
    typer.Argument(help="Show the figures of one kind, each with its source.", metavar="KIND", autocompletion=completion.devices),
]


def devices(kind: KIND = None, torch: TORCH = False, json: JSON = False) -> None:
    """List the devices and links that are known by name, with their sources, and say what this machine has.

    A kind of this list is what hs.Cluster, hs.costs.device and --device of hetsched machine take. Memory, its bandwidth and the peak are
    those of data sheets.

    Example: [bold]hetsched devices[/bold]

    Example: [bold]hetsched devices l4[/bold]
    """
    from hetsched.cli import hardware

    if kind is not None:
        _show(kind, json)
        return
    found, notes = hardware.look(torch)
    if json:
        here = [{**one._asdict(), "kind": _kind(one)} for one in found]
        say_json({"here": here, "notes": notes, **catalogue_facts()})
        return
    rows = [(one.name, f"{one.reported}, {size(one.memory_bytes)}: {_kind(one) or 'not in the list'} ({one.source})") for one in found]
    say_rows([*(rows or [("here", "no device is found")]), *(("note", note) for note in notes)])
    say("")
    print_catalogue()


def _show(kind: str, json: bool) -> None:
    """Print the figures of a kind, each with its source."""
    from hetsched.costs.devices import device, sources

    made, told = device(kind), sources(kind)
    figures = {**made.peak_flops, **{name: getattr(made, name) for name in told if name not in made.peak_flops}}
    if json:
        say_json({"kind": made.kind, "figures": {name: {"value": figures[name], "source": told[name]} for name in told}})
        return
    units = {"memory_bytes": "B", "memory_bandwidth": "B/s", "cache_bytes": "B", "launch_overhead": "s", "units": ""}
    width = max(map(len, told))
    say_rows([(f"{name:<{width}}", f"{figures[name]:.6g} {units.get(name, 'FLOP/s')}".rstrip() + f" ({told[name]})") for name in told])


def _kind(one: Found) -> str | None:
    from hetsched.costs.devices import kind_of

    return kind_of(one.reported, one.memory_bytes)


def catalogue_facts() -> dict[str, Any]:
    """Return the catalogue as fields for JSON."""
    from hetsched.problem.catalogue import CATALOGUE, REPORTED, sources
    from hetsched.problem.interconnects import LINKS

    kinds = {
        kind: {
            "memory_bytes": entry.memory_bytes,
            "memory_bandwidth": entry.memory_bandwidth,
            "peak_flops": dict(entry.peak_flops),
            "reported": [name for name, reported in REPORTED.items() if reported == kind],
            "source": entry.source,
            "sources": sources(kind),
        }
        for kind, entry in CATALOGUE.items()
    }
    return {"devices": kinds, "links": {name: asdict(one) for name, one in LINKS.items()}}


def print_catalogue() -> None:
    """Print a line for each kind of device and each link."""
    from hetsched.problem.catalogue import CATALOGUE
    from hetsched.problem.interconnects import LINKS

    wide = max(map(len, [*CATALOGUE, *LINKS]))
    for kind, entry in CATALOGUE.items():
        peak = f"{entry.peak_flops['float16'] / 1e12:.4g}" if "float16" in entry.peak_flops else "-"
        say(
            f"{kind:<{wide}}  {size(entry.memory_bytes):>8}  {size(entry.memory_bandwidth):>8}/s  {peak:>5} TFLOP/s float16  {entry.source}"
        )
    for name, one in LINKS.items():
        say(f"{name:<{wide}}  {size(one.bandwidth):>8}/s  {one.latency * 1e6:g} us  {one.source}")
