"""`plan`: the best placement of a model on unequal devices, in the words of a tool."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hetsched.cli import completion, hardware
from hetsched.cli.files import Outputs, check_writable, is_factory, read_card, read_machine, read_rates
from hetsched.cli.options import JSON, Dtype, Measured, Report, Reserve, time_option
from hetsched.cli.pictures import Pictures
from hetsched.cli.terminal import INTERRUPTED, Working, say, say_json, say_rows, warn
from hetsched.errors import InvalidArgument

if TYPE_CHECKING:
    from hetsched.planning import PlanProgress, ServingQuestion

Regime = Literal["fit", "latency", "throughput", "serving"]
_WORK = "What is asked"
_RULES = "Costs and rules"
SERVING = 30.0
"""Seconds for the regime serving, whose proof may take long."""


def plan(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="A GGUF file, a Hugging Face directory or its config.json, a model document, or a function that returns a "
            "torch.nn.Module.",
            metavar="MODEL|MODULE:FUNCTION",
        ),
    ] = None,
    machine: Annotated[
        Path | None, typer.Option("--machine", "-m", help="A machine document; see: hetsched machine.", metavar="FILE")
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="The tool that will run it: only what it can state is searched, and its command is printed. Several, with commas: "
            "each gets a plan of its own.",
            metavar="TOOL",
            autocompletion=completion.tools,
        ),
    ] = None,
    prompt: Annotated[int, typer.Option(help="Tokens of a request's prompt.", metavar="TOKENS", rich_help_panel=_WORK)] = 512,
    output: Annotated[int, typer.Option(help="Tokens that a request asks for.", metavar="TOKENS", rich_help_panel=_WORK)] = 128,
    context: Annotated[
        int | None,
        typer.Option(
            help="Tokens for which a sequence has room in the KV cache; default prompt and output.", metavar="TOKENS", rich_help_panel=_WORK
        ),
    ] = None,
    sequences: Annotated[int, typer.Option(help="Requests at a time.", metavar="NUMBER", rich_help_panel=_WORK)] = 1,
    chunk: Annotated[
        int,
        typer.Option(
            help="Most tokens of prompts that are computed at a time; each chunk reads the weights.",
            metavar="TOKENS",
            rich_help_panel=_WORK,
        ),
    ] = 512,
    kv_dtype: Annotated[
        str, typer.Option(help="Numbers in the KV cache: f32, f16, bf16, fp8, q8_0, q5_1, q5_0, q4_1 or q4_0.", rich_help_panel=_WORK)
    ] = "f16",
    regime: Annotated[
        Regime | None,
        typer.Option(
            help="fit: does it fit, no times; latency: one batch at a time; throughput: stages work on different requests; serving: "
            "blocks are held several times, the most tokens per second of all devices. Default: latency for one sequence, throughput for "
            "several if the tool can.",
            rich_help_panel=_WORK,
        ),
    ] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="Shape of an example input of a module, with as many tokens as a chunk: 1,512:int64, or NAME=SHAPE; repeat it for each "
            "argument. A module of transformers needs none.",
            metavar="SHAPE",
            rich_help_panel=_WORK,
        ),
    ] = None,
    bits: Annotated[
        float | None, typer.Option(help="Bits of each weight, in place of what is stored.", metavar="NUMBER", rich_help_panel=_RULES)
    ] = None,
    dtype: Dtype = "float16",
    order: Annotated[
        str | None,
        typer.Option(help="Devices that may be used, in this order: gpu1,gpu0. Default: any.", metavar="NAMES", rich_help_panel=_RULES),
    ] = None,
    tensor_parallel: Annotated[
        str,
        typer.Option(
            help="How many alike GPUs of a node run each stage together, for a tool that has it: a number, or auto for the best.",
            metavar="NUMBER",
            rich_help_panel=_RULES,
        ),
    ] = "auto",
    reserve: Reserve = None,
    measured: Measured = None,
    limits: Annotated[
        bool | None,
        typer.Option(
            "--limits/--no-limits",
            help="Say what more memory, faster links and other speeds would change, each solved again. Default: what takes a second.",
            rich_help_panel=_RULES,
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        time_option(
            "Seconds for the search and for what limits the plan; the best found by then is printed with its bound. Default: until it is "
            "proven; 30 for the regime serving."
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            help="Print the rule of a tool and the version that was read, and end.", metavar="TOOL", autocompletion=completion.tools
        ),
    ] = None,
    save: Annotated[Path | None, typer.Option("-o", "--save", help="Write the plan here.", metavar="FILE")] = None,
    report: Report = None,
    json: JSON = False,
) -> None:
    """Place a language model on unequal devices, and prove the placement best.

    Prints which blocks go where, how fast that is, how the tool's default and simple rules would do at the same costs, what limits it,
    and the tool's own command, which is read back before it is printed. The times are modelled from data sheets unless the machine says
    what was measured. After the time limit, Ctrl-C or SIGTERM the best placement found so far is printed, with what is proven of it.
    Exit code 1 if no placement fits, or none was found.

    Example: [bold]hetsched plan model.gguf --machine box.json --for llama.cpp[/bold]
    """
    from hetsched.planning import tools

    if explain is not None:
        told = tools.tool(explain)
        say_rows([("tool", told.name), ("read in", told.version), ("rule", told.rule)])
        return
    if model is None or machine is None:
        missing = "MODEL" if model is None else "--machine"
        raise typer.BadParameter(f"{missing} is missing; give a model and a machine (see: hetsched machine)")
    from hetsched import Workload
    from hetsched import plan as best_plan
    from hetsched.chain.workload import NUMBER_BYTES
    from hetsched.costs import LanguageRoofline
    from hetsched.planning import explain as explained
    from hetsched.planning import words
    from hetsched.planning.explanation import MOST_WORK
    from hetsched.problem.units import seconds
    from hetsched.stopping import Deadline, reason

    Pictures(report, None, None).check()
    check_writable(save, report, sources=[model, machine])
    names = [None] if tool is None else [tools.tool(name.strip()).name for name in tool.split(",")]
    for option, path in (("--save", save), ("--report", report)):
        if len(names) > 1 and path:
            raise InvalidArgument(f"--for names {', '.join(map(str, names))}, and {option} takes one plan; name one tool")
    card = read_card(model, shapes or (), bits=bits)
    own = read_machine(machine).reserving(hardware.reserved(reserve or ()))
    if measured:
        rates = read_rates(measured)
        known = all(row.parameters for row in rates.rows)  # of the model that ran, which may be another
        own = own.with_efficiency(rates.efficiency(own, None if known else card, costs=LanguageRoofline(dtype)))
        for note in hardware.too_fast(own):
            warn(note, "note")
    if kv_dtype not in NUMBER_BYTES:
        raise InvalidArgument(f"--kv-dtype is {kv_dtype!r}; choose from {', '.join(NUMBER_BYTES)}")
    if tensor_parallel != "auto" and not (tensor_parallel.isdecimal() and int(tensor_parallel)):
        raise InvalidArgument(f"--tensor-parallel is {tensor_parallel!r}; give a number of GPUs from 1, or auto")
    together = None if tensor_parallel == "auto" else int(tensor_parallel)
    work = Workload(prompt, output, context, sequences, chunk, cache_bytes=NUMBER_BYTES[kv_dtype])
    if regime == "serving":
        refused = {"--for": tool, "--order": order, "--tensor-parallel": together}
        wrong = [name for name, value in refused.items() if value is not None]
        if wrong:
            raise InvalidArgument(f"{wrong[0]} is not for the regime serving, whose devices hold blocks several times; leave it out")
        from hetsched.planning import ServingQuestion

        asked = ServingQuestion(card, own, work, LanguageRoofline(dtype))
        raise typer.Exit(_serve(asked, SERVING if time_limit is None else time_limit, save, report, json))
    costs, devices = LanguageRoofline(dtype), None if order is None else [name.strip() for name in order.split(",")]
    if devices is not None and "" in devices:
        raise InvalidArgument(f"--order is {order!r}; give names of devices with commas between them: gpu1,gpu0")
    deadline = Deadline.after(time_limit)
    with Working("planning") as working:

        def show(progress: PlanProgress) -> None:
            if progress.value < math.inf:
                working.update(f"planning: {seconds(progress.value)}, at least {seconds(progress.bound)} ({progress.source})", "planning")

        plans = []
        for name in names:
            limit = deadline.limit
            given: dict[str, Any] = {"regime": regime, "tool": name, "costs": costs, "order": devices, "tensor_parallel": together}
            plans.append(best_plan(card, own, work, **given, time_limit=limit, on_progress=show))
            if plans[-1].stopped in INTERRUPTED:
                break
    outputs, facts = Outputs(), []
    stopped = plans[-1].stopped
    for one in plans:
        found, rows = None, words.plan_rows(one)
        if not json:
            say_rows(rows)  # before the limits, which take longer than the plan
        if limits is not False and stopped not in INTERRUPTED:
            try:
                with Working("finding what limits the plan"):
                    found = explained(one, most_work=math.inf if limits else MOST_WORK, deadline=deadline)
            except KeyboardInterrupt as interruption:
                stopped = reason(interruption)
        full = one.with_explanation(found, model=_called(model, one.tool))
        command, refusal = words.command(full)
        outputs.write(save, full.write)
        if report is not None:
            from hetsched.report import write_plan  # with the parts of pages

            outputs.write(report, functools.partial(write_plan, full))
        if json:
            facts.append({**words.plan_facts(full), "command": None if command is None else vars(command), "refusal": refusal})
        else:
            rest = [*words.plan_rows(full)[len(rows) :], *([("command", f"none: {refusal}")] if refusal else [])]
            if rest:
                say_rows(rest)
            say(*(["", *command.text.splitlines()] if command else []), *([""] if len(plans) > 1 else []))
    if json:
        say_json({**facts[0], "written": outputs.written} if len(facts) == 1 else {"plans": facts, "written": outputs.written})
    elif outputs.written:
        say_rows(("wrote", name) for name in outputs.written)
    outputs.finish()
    raise typer.Exit(INTERRUPTED.get(stopped, int(any(one.placement is None for one in plans))))


def _called(model: Path, tool: str | None) -> str | None:
    """Return what a tool calls the model in a file; one that Python makes, or Megatron, whose command names the script, has no name."""
    if tool == "megatron" or is_factory(model):
        return None
    if tool in ("llama.cpp", "ollama"):
        named = str(model) if model.suffix.lower() == ".gguf" else "MODEL.gguf"
        return f"./{named}" if tool == "ollama" and not model.is_absolute() else named
    return str(model.parent if model.name == "config.json" else model)


def _serve(asked: ServingQuestion, time_limit: float, save: Path | None, report: Path | None, json: bool) -> int:
    """Print and write the best placement for serving, and return the exit code."""
    from hetsched.planning import ServingProgress, most_throughput
    from hetsched.planning.serving_words import serving_facts, serving_rows

    with Working("planning") as working:

        def show(progress: ServingProgress) -> None:
            working.update(f"planning: {progress.value:.4g} tokens/s, at most {progress.bound:.4g} ({progress.source})", "planning")

        plan = most_throughput(asked, time_limit=time_limit, on_progress=show)
    outputs = Outputs()
    outputs.write(save, plan.write)
    if report is not None:
        from hetsched.report import write_plan  # with the parts of pages

        outputs.write(report, functools.partial(write_plan, plan))
    if json:
        say_json({**serving_facts(plan), "written": outputs.written})
    else:
        say_rows([*serving_rows(plan), *(("wrote", name) for name in outputs.written)])
    outputs.finish()
    return INTERRUPTED.get(plan.stopped, int(plan.placement is None))
