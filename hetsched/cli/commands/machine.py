"""`machine`: a document of the devices of this machine, or of another."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli import completion
from hetsched.cli.commands.devices import TORCH, catalogue_facts, print_catalogue
from hetsched.cli.files import Outputs, check_writable, read_card, read_rates
from hetsched.cli.options import JSON, Measured, Reserve
from hetsched.cli.terminal import say_json, say_rows
from hetsched.errors import InvalidProblem
from hetsched.problem.units import size

if TYPE_CHECKING:
    from hetsched.chain.machine import Machine
    from hetsched.cli.hardware import Found
    from hetsched.problem.cluster import Device
    from hetsched.problem.interconnects import Interconnect

DEFAULT_LINK = "pcie4-x16"
IN_USE = 0.02
"""Share of a GPU's memory in use that is worth a note."""


def machine(
    device: Annotated[
        list[str] | None,
        typer.Option(
            help="State a device, found or not: a kind of the catalogue, a kind and its memory, or a word with memory, memory bandwidth "
            "and float16 peak: gpu0=rtx4090, cpu=ryzen9950x:64GB, gpu0=titanrtx:24GB:672GB/s:65TF.",
            metavar="NAME=KIND",
            show_default=False,
        ),
    ] = None,
    detect: Annotated[bool, typer.Option("--detect/--no-detect", help="Look at this machine; otherwise only --device counts.")] = True,
    torch: TORCH = False,
    link: Annotated[
        str,
        typer.Option(
            help="Between each two devices: a name of --list, or bandwidth and latency as in 25GB/s:10us.",
            metavar="NAME",
            autocompletion=completion.links,
        ),
    ] = DEFAULT_LINK,
    reserve: Reserve = None,
    measured: Measured = None,
    model: Annotated[
        Path | None, typer.Option(help="The model of --measured: a GGUF file, a config.json or its directory, or a card.", metavar="MODEL")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the machine here.", metavar="FILE")] = None,
    catalogue: Annotated[bool, typer.Option("--list", help="Print the kinds of devices and the links, as hetsched devices does.")] = False,
    json: JSON = False,
) -> None:
    """Describe the devices on which models are placed.

    Looks for GPUs with nvidia-smi, which counts them by PCI bus, and for the CPU and its memory in /proc. The names that it finds are
    looked up in a catalogue of data sheets; a GPU that is not there has to be stated with --device.

    Times are modelled from the data sheets, until rates are measured: one prompt and one generation of any model on a device alone, as
    llama-bench -p 512 -n 128 -ngl 99 -sm none -mg 0 -o json measures them, give the shares of the peak and of the memory bandwidth that
    the device reaches.

    Example: [bold]hetsched machine --no-detect --device gpu0=rtx4090 -o here.json[/bold]
    """
    from hetsched.cli import hardware
    from hetsched.costs import devices
    from hetsched.problem.catalogue import CATALOGUE

    if catalogue:
        say_json(catalogue_facts()) if json else print_catalogue()
        return
    check_writable(output, sources=[model])
    stated = dict(hardware.pair(text, "--device", "gpu0=rtx4090") for text in device or ())
    found, notes = hardware.look(torch) if detect else ([], [])
    made: list[tuple[Device, str]] = []
    unknown: list[Found] = []
    for one in found:
        kind = devices.kind_of(one.reported, one.memory_bytes)
        if one.name in stated:
            made.append(hardware.stated_device(one.name, stated.pop(one.name), one.memory_bytes))
        elif kind is not None:
            made.append((devices.device(kind, one.name, memory_bytes=one.memory_bytes), f"{one.source}; {CATALOGUE[kind].source}"))
        else:
            unknown.append(one)
    made += [hardware.stated_device(name, text) for name, text in stated.items()]
    if any(one.name != "cpu" for one in unknown) or (unknown and not made):
        raise InvalidProblem(hardware.undetected(unknown))
    notes += [f"left out: {hardware.undetected([one])}" for one in unknown]
    if not made:
        raise InvalidProblem("no device is found or stated; name each: --device gpu0=rtx4090 (kinds: hetsched devices)")
    joined = hardware.stated_link(link)
    reserved = hardware.reserved(reserve or ())
    for one in found:
        used = one.memory_bytes - one.free_bytes
        if one.name != "cpu" and used > IN_USE * one.memory_bytes and one.name not in reserved:
            notes.append(f"{size(used)} of {one.name} are in use now; --reserve {one.name}={used / 1e9:.1f}GB leaves them free")
    result = devices.machine([one for one, _ in made], joined, reserved_bytes=reserved)
    if measured:
        rates = read_rates(measured)
        if model is None and not all(row.parameters for row in rates.rows):
            raise typer.BadParameter("the rates do not say which model ran; name it with --model", param_hint="--measured")
        result = result.with_efficiency(rates.efficiency(result, None if model is None else read_card(model)))
        notes += hardware.too_fast(result)
    elif model is not None:
        raise typer.BadParameter("the model is that of --measured, which is missing", param_hint="--model")
    outputs = Outputs()
    if output is not None:
        outputs.write(output, result.write)
    sources = [source for _, source in made]
    if json:
        say_json({**_facts(result, sources, joined), "notes": notes, "written": outputs.written})
    else:
        assumed = " (assumed; state it with --link)" if link == DEFAULT_LINK and len(made) > 1 else ""
        say_rows(
            [*_rows(result, sources, joined, assumed), *(("note", note) for note in notes), *(("wrote", name) for name in outputs.written)]
        )
    outputs.finish()


def _rows(machine: Machine, sources: list[str], link: Interconnect, assumed: str) -> list[tuple[str, str]]:
    rows = []
    for device, usable, source in zip(machine.cluster.devices, machine.usable_bytes, sources, strict=True):
        peak = device.peak_flops.get("float16", 0.0)
        share = machine.efficiency.get(device.name)
        reached = "modelled" if share is None else f"measured: {share.compute:.2f} of the peak, {share.memory:.2f} of the bandwidth"
        memory = f"{size(usable)} of {size(device.memory_bytes)} usable" if usable < device.memory_bytes else size(device.memory_bytes)
        figures = f"{memory}, {peak / 1e12:.4g} TFLOP/s float16, {size(device.memory_bandwidth or 0.0)}/s"
        rows.append((device.name, f"{device.kind}, {figures}; {reached} ({source})"))
    if len(sources) > 1:
        rows.append(("link", f"{size(link.bandwidth)}/s, {link.latency * 1e6:g} us ({link.source}){assumed}"))
    advice = "" if machine.cost_basis == "measured" else "; run llama-bench on a device alone and give --measured"
    return [*rows, ("times", f"{machine.cost_basis}{advice}")]


def _facts(machine: Machine, sources: list[str], link: Interconnect) -> dict[str, Any]:
    rows = [
        {
            "name": device.name,
            "kind": device.kind,
            "memory_bytes": device.memory_bytes,
            "usable_bytes": usable,
            "memory_bandwidth": device.memory_bandwidth,
            "peak_flops": dict(device.peak_flops),
            "efficiency": machine.efficiency[device.name]._asdict() if device.name in machine.efficiency else None,
            "source": source,
        }
        for device, usable, source in zip(machine.cluster.devices, machine.usable_bytes.tolist(), sources, strict=True)
    ]
    return {"devices": rows, "link": asdict(link), "times": machine.cost_basis}
