"""The tables of gpu.py, from its lines alone."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import figures
import numpy as np
from figures import percent
from gpu import Row

import hetsched as hs
from hetsched.costs.timeline import DISTURBED

NOTHING = "Nothing of this has been run on CUDA yet."
FEW = 6
"""Steps that are left are named if there are no more."""
FOUND = {
    "IOS, model": "by the defaults of `Contention`",
    "IOS, CUDA_GRAPHS": "by its parameters of that name",
    "IOS, finalists": "by measurements of the stages that the model proposes",
    "IOS, measured": "by those of all stages as far as there was time",
}
"""How the stages of a way were found."""
COMPARED = ("sequential", "eager, CUDA graph")
"""The ways that others are compared with."""
APART = 0.02
"""Ways whose latencies differ by less are not a pair to be ordered."""


def text(files: Sequence[Sequence[Row]]) -> str:
    """Return the content of the page's region; each file is of one machine."""
    ran = any(row["device"] == "gpu0" and row["seconds"] is not None for rows in files for row in rows)
    return "\n\n".join([*([] if ran else [NOTHING]), *(part for rows in files for part in of_machine(rows))])


def of_machine(rows: Sequence[Row]) -> list[str]:
    """Return the texts on one machine."""
    made = []
    facts = [row for row in rows if row["what"] == "facts"]
    if facts:
        own = facts[-1]
        clocks = f", {', '.join(f'{name} {value}' for name, value in own['smi'].items())}" if own["smi"] else ""
        made.append(f"Taken on: {own['kind']} beside {own['cores']} cores of {own['cpu']}{clocks}, {own['software']}, {own['date']}.")
    made.append(
        f"{sum(row['seconds'] is not None for row in rows)} measurements. Medians; those of steps in which others took more than "
        f'{percent(DISTURBED)} of the machine are marked "disturbed", and support no claim.'
    )
    for what, make in (
        ("### What the devices reach", ceilings),
        ("### Copies and messages", links),
        ("### Operators", operators),
        ("### Dispatching", engine),
        ("### Stages on one device (E1)", stages),
        ("### The contention model on these stages", contention),
        ("### Placed on the CPU and the device (E2)", placements),
        ("### Memory", memory),
        ("### A language model, placed by a plan (E3)", plans),
    ):
        found = make(rows)
        if found:
            made += [what, *found]
    for row in rows:
        if row["what"] == "skipped":
            where = ", ".join(str(row[key]) for key in ("network", "batch", "way") if row.get(key) is not None)
            made.append(f"Skipped in {row['section']}{f' ({where})' if where else ''}: {row['reason']}.")
    left = {row["section"]: row["left"] for row in rows if row["what"] == "end"}
    made += [f"Left of {section}: {named_few(steps)}." for section, steps in left.items() if steps]
    return made


def named_few(steps: Sequence[str]) -> str:
    """Return the names of steps, of many the first and their number."""
    return "; ".join(steps) if len(steps) <= FEW else f"{len(steps)} steps, the first of which is {steps[0]}"


def named(rows: Iterable[Row], *what: str) -> list[Row]:
    """Return the lines of some kinds."""
    return [row for row in rows if row["what"] in what]


def disturbed(row: Row) -> bool:
    """Return whether a line supports no claim."""
    return bool(max(row.get("stolen", 0.0), row.get("lost", 0.0)) > DISTURBED)


def mark(row: Row, shown: str) -> str:
    """Return a cell, marked if it supports no claim."""
    return f"{shown} (disturbed)" if disturbed(row) else shown


def ms(seconds: float) -> str:
    """Return milliseconds."""
    return figures.number(1e3 * seconds, 4)


def us(seconds: float) -> str:
    """Return microseconds."""
    return figures.number(1e6 * seconds, 3)


def ceilings(rows: Sequence[Row]) -> list[str]:
    """Return the peaks that were reached."""
    lines = [
        [row["device"], mark(row, f"{row['flops'] / 1e12:.3g}"), f"{row['bandwidth'] / 1e9:.4g}", us(row["launch"])]
        for row in named(rows, "ceilings")
    ]
    return [figures.table(["device", "float32, TFLOP/s", "memory, GB/s", "smallest operator, us"], lines)] if lines else []


def links(rows: Sequence[Row]) -> list[str]:
    """Return the copies by way and size, and hand-offs."""
    made: list[str] = []
    kinds: dict[str, list[Row]] = {}
    for row in named(rows, "copy", "message"):
        kinds.setdefault(f"{row['memory']}, {row['way']}" if row["what"] == "copy" else "gloo, two processes", []).append(row)
    lines = []
    for kind, own in kinds.items():
        first, last = min(own, key=lambda row: row["bytes"]), max(own, key=lambda row: row["bytes"])
        count = 2 if "both" in kind else 1
        cpu = f"{100 * last['cpu'] / last['seconds']:.0f} %" if last["seconds"] else ""
        lines.append([kind, mark(first, us(first["seconds"])), mark(last, f"{count * last['bytes'] / last['seconds'] / 1e9:.2f}"), cpu])
    if lines:
        sizes = sorted({row["bytes"] for row in named(rows, "copy", "message")})
        head = ["copy", f"{sizes[0]} bytes, us", f"{sizes[-1]} bytes, GB/s", "CPU time of the sender's thread"]
        made.append(figures.table(head, lines))
    made += [f"A hand-off between two CPU threads: {mark(row, us(row['seconds']))} us." for row in named(rows, "hand-off")]
    return made


def samples(rows: Sequence[Row], device: str) -> list[Any]:
    """Return the operators of each network and batch size on a device, for fits."""
    from costs import Samples
    from gpu_sections import device_of

    known = [row for row in named(rows, "ceilings") if row["device"] == device]
    if not known:
        return []
    cluster = hs.Cluster([device_of(known[-1])])
    cells: dict[tuple[str, int], list[Row]] = {}
    for row in named(rows, "operator"):
        if row["device"] == device:
            cells.setdefault((row["network"], row["batch"]), []).append(row)
    made = []
    for (network, batch), own in cells.items():
        flops, accessed = ([math.nan if row[key] is None else row[key] for row in own] for key in ("flops", "bytes_accessed"))
        graph = hs.TaskGraph(
            [row["digest"] for row in own],
            op=[row["op"] for row in own],
            shape=[shape_of(row["shape"]) for row in own],
            flops=flops,
            bytes_accessed=accessed,
            weight_bytes=[row["weight_bytes"] for row in own],
        )
        made.append(Samples(network, graph, cluster, batch, np.array([row["seconds"] for row in own])))
    return made


def shape_of(values: Sequence[Any] | None) -> hs.Shape | None:
    """Return a shape as it was written."""
    if values is None:
        return None
    rows, columns, reduction, kernel, stride, groups = values
    return hs.Shape(rows, columns, reduction, tuple(kernel), tuple(stride), groups)


def operators(rows: Sequence[Row]) -> list[str]:
    """Return the number of operators, and the errors of cost models on the networks that were held out of their fits."""
    from costs import HEAD, errors, halves

    from hetsched.costs.analytic import CLASSES

    own = named(rows, "operator")
    if not own:
        return []
    counts = [
        [device, str(len({row["digest"] for row in group})), str(len(group)), str(sum(map(disturbed, group)))]
        for device, group in ((name, [row for row in own if row["device"] == name]) for name in dict.fromkeys(row["device"] for row in own))
    ]
    made = [figures.table(["device", "different operators", "with batch sizes", "disturbed"], counts)]
    for device in dict.fromkeys(row["device"] for row in own):
        groups = samples([row for row in rows if row["what"] != "operator" or not disturbed(row)], device)
        if len({one.network for one in groups}) < 2:
            made.append(f"{device}: fewer than two networks, of which one could be held out of a fit.")
            continue
        name = f"{groups[0].cluster.devices[0].family} float32"
        present = {kind for one in groups for kind in errors(hs.costs.Roofline(), [one]).kinds}
        about = {"source": f"benchmarks/gpu.py on {groups[0].cluster.devices[0].kind}", "date": "", "n": len(own)}
        lines, _ = halves(
            groups, name, about, [kind for kind in CLASSES if kind in present], {} if name.startswith("cuda") else {"k1": 1e30}
        )
        made += [f"Errors on {device}, median / 90 %, of networks that were held out of the fits:", figures.table(HEAD, lines)]
        made.append(as_shipped(groups, name))
    return made


def as_shipped(groups: Sequence[Any], name: str) -> str:
    """Return the errors of the model with the constants of this package, and how many operators are as short as a launch."""
    from costs import errors

    from hetsched.costs.analytic import shipped

    own = errors(hs.costs.Analytic(), groups)
    launch = groups[0].cluster.devices[0].launch_overhead
    seconds = np.concatenate([one.seconds[one.seconds > 0] for one in groups])
    short = int((seconds < 2 * launch).sum())
    return (
        f"With the constants that are shipped ({shipped()[name].source}) Analytic's errors on all {len(own.ratio)} operators are "
        f"{percent(own.median)} / {percent(own.most)}, and the sum of a network is {min(own.whole.values()):.2f} to "
        f"{max(own.whole.values()):.2f} times the measured one. They are not replaced by a fit to these times: {short} of the operators "
        "take less than two launches of the smallest one."
    )


def engine(rows: Sequence[Row]) -> list[str]:
    """Return the seconds of dispatching and launching."""
    made = []
    own = named(rows, "dispatch")
    if own:
        ways = list(dict.fromkeys(row["way"] for row in own))
        lines = []
        for net in dict.fromkeys(row["network"] for row in own):
            cells = {row["way"]: row for row in own if row["network"] == net}
            shown = [mark(cells[way], f"{us(cells[way]['seconds'])} ({us(cells[way]['cpu'])})") if way in cells else "" for way in ways]
            lines.append([net, str(next(iter(cells.values()))["tasks"]), *shown])
        made += [figures.table(["us a task until all is done (CPU time of the thread)", "tasks", *ways], lines)]
    launched = named(rows, "launch")
    if launched:
        shown = [mark(row, us(row["seconds"])) for row in launched]
        made.append(
            figures.table(["threads that launch", *(str(row["threads"]) for row in launched)], [["us a launch, of all together", *shown]])
        )
    return made


def times(one: Row | None, other: Row) -> str:
    """Return how many times as long as another way one takes, if both support a claim."""
    clear = one is not None and one["same"] and other["same"] and not disturbed(one) and not disturbed(other)
    return f"{one['seconds'] / other['seconds']:.2f}" if clear and one is not None else ""


def stages(rows: Sequence[Row]) -> list[str]:
    """Return the latencies of stages and rivals."""
    own = named(rows, "latency")
    if not own:
        return []
    lines = []
    for net, batch in dict.fromkeys((row["network"], row["batch"]) for row in own):
        cells = {row["way"]: row for row in own if (row["network"], row["batch"]) == (net, batch)}
        for way, row in sorted(cells.items(), key=lambda cell: not cell[0].startswith(("eager", "torch.compile"))):
            lines.append(
                [
                    f"{net}, batch {batch}",
                    way,
                    str(len(row["stages"])) if "stages" in row else "",
                    mark(row, f"{ms(row['seconds'])} ({ms(row['spread'][0])} to {ms(row['spread'][1])})"),
                    ms(row["sum"]) if "sum" in row else "",
                    *(times(cells.get(other), row) for other in COMPARED),
                    f"{row['deviation']:.0e}" if row["same"] else f"{row['deviation']:.0e}, outputs differ",
                ]
            )
    head = [
        "network",
        "way",
        "stages",
        "latency, ms (quartiles)",
        "sum of stages by its costs, ms",
        *(f"times {other}" for other in COMPARED),
        "deviation of outputs",
    ]
    present = {row["way"] for row in own}
    text = f"Stages are found {', '.join(f'in `{way}` {by}' for way, by in FOUND.items() if way in present)}."
    if any(way.endswith(", CUDA graph") for way in present):
        text += " The CUDA graph of the module reads and returns the same tensors each time; those of stages copy arguments and results."
    return [text, figures.table(head, lines)]


def contention(rows: Sequence[Row]) -> list[str]:
    """Return how the model orders what was measured: with its parameters, and fitted to half of the stages."""
    from gpu_sections import device_of

    lines = []
    for row in named(rows, "stages"):
        known = [one for one in named(rows, "ceilings") if one["device"] == row["device"]]
        if not known or disturbed(row):
            continue
        graph = hs.documents.decode(json.dumps(row["graph"]))
        stages = [(tuple(graph.names[i] for i in tasks), way, seconds) for tasks, way, seconds in row["measured"] if seconds > 0]
        cost, graphs = (
            hs.costs.Contention(graph, device_of(known[-1]), inputs=row["batch"], **more) for more in ({}, hs.costs.Contention.CUDA_GRAPHS)
        )
        stages = [stage for stage in stages if math.isfinite(cost(*stage[:2]))]
        train, held = stages[::2], stages[1::2]
        if len(train) < 10:
            continue
        cell = [f"{row['network']}, batch {row['batch']}", str(len(held))]
        for model in (cost, graphs, cost.fitted(train)):
            misses = [abs(model(tasks, way) / seconds - 1) for tasks, way, seconds in held]
            right, pairs = ordered(graph, model, [one for one in named(rows, "latency") if same_cell(one, row)])
            cell.append(f"{percent(statistics.median(misses))} / {percent(float(np.quantile(misses, 0.9)))}; {right} of {pairs}")
        lines.append(cell)
    head = [
        "",
        "stages",
        "defaults (V100): error, median / 90 %; pairs ordered right",
        "`CUDA_GRAPHS`",
        "fitted to the network's other stages",
    ]
    text = (
        f"Pairs are schedules whose latencies differ by {percent(APART)} or more. `Contention.CUDA_GRAPHS` is fitted to "
        "Inception-v3, batch 1, on an H100."
    )
    return [text, figures.table(head, lines)] if lines else []


def same_cell(one: Row, other: Row) -> bool:
    """Return whether two lines are of one network and batch."""
    return (one["network"], one["batch"], one["device"]) == (other["network"], other["batch"], other["device"])


def ordered(graph: hs.TaskGraph, model: Any, rows: Sequence[Row]) -> tuple[int, int]:
    """Return how many pairs of schedules the model orders as they were measured, and of how many."""
    graphs = any(row["way"].endswith(", CUDA graph") for row in rows)
    own = [row for row in rows if "stages" in row and row["way"].endswith(", CUDA graph") == graphs]
    made = [sum(model(tuple(graph.names[i] for i in tasks), way) for tasks, way in row["stages"]) for row in own]
    right = pairs = 0
    for (first, one), (second, other) in itertools.combinations(zip(own, made, strict=True), 2):
        if abs(math.log(first["seconds"] / second["seconds"])) >= math.log(1 + APART):
            pairs += 1
            right += (first["seconds"] > second["seconds"]) == (one > other) and one != other
    return right, pairs


def placements(rows: Sequence[Row]) -> list[str]:
    """Return forecasts beside runs."""
    own = named(rows, "run")
    if not own:
        return []
    lines = []
    for net in dict.fromkeys(row["network"] for row in own):
        cells = {row["way"]: row for row in own if row["network"] == net}
        placed = cells.pop("placed", None)
        alone = ", ".join(mark(row, f"{name} {ms(row['seconds'])}") for name, row in cells.items())
        if placed is None:
            continue
        best = cells[placed["best"]]
        clear = not any(map(disturbed, (placed, best))) and placed["same"]
        replays = placed["replays"]
        parts = [later - before for before, later in itertools.pairwise(replays)]
        lines.append(
            [
                net,
                ", ".join(f"{name} {count}" for name, count in placed["tasks"].items()),
                alone,
                ms(placed["forecast"]),
                mark(placed, f"{ms(placed['seconds'])} ({ms(placed['spread'][0])} to {ms(placed['spread'][1])})"),
                f"{100 * placed['error']:+.1f} %",
                ", ".join(f"{1e3 * part:+.3f}" for part in parts),
                "not written down" if "violations" not in placed else "no" if placed["violations"] else "yes",
                f"{best['seconds'] / placed['seconds']:.2f}" if clear else "disturbed" if placed["same"] else "outputs differ",
            ]
        )
    head = [
        "network",
        "tasks",
        "each device alone, ms",
        "forecast, ms",
        "run (quartiles)",
        "error of the forecast",
        "run less forecast by replays: durations, chance, transfers, engine, ms",
        "kept every rule",
        "over the best device",
    ]
    return [f"Placed by {placed_by(own)}.", figures.table(head, lines), *calls(rows)]


def calls(rows: Sequence[Row]) -> list[str]:
    """Return the seconds of calls by way."""
    own = named(rows, "call")
    ways = list(dict.fromkeys(row["way"] for row in own))
    lines = []
    for net in dict.fromkeys(row["network"] for row in own):
        cells = {}
        for row in (row for row in own if row["network"] == net):
            shown = f"{ms(row['seconds'])} ({ms(row['spread'][0])} to {ms(row['spread'][1])}){'' if row['same'] else ', outputs differ'}"
            cells[row["way"]] = mark(row, shown)
        lines.append([net, *(cells.get(way, "") for way in ways)])
    text = "Calls in turn, from arguments to results on the CPU, whose tasks have no clocks:"
    return [text, figures.table(["ms (quartiles)", *ways], lines)] if lines else []


def placed_by(rows: Sequence[Row]) -> str:
    """Return the methods of the placements."""
    return ", ".join(dict.fromkeys(row["method"] for row in rows if "method" in row)) or "no method"


def memory(rows: Sequence[Row]) -> list[str]:
    """Return peaks of memory, and what came of too little."""
    made = []
    own = named(rows, "peak")
    if own:
        lines = [
            [
                f"{row['network']}, batch {row['batch']}",
                figures.number(row["planned"] / 1e6),
                figures.number(row["measured"] / 1e6),
                f"{row['measured'] / row['planned']:.2f}",
            ]
            for row in own
        ]
        made.append(figures.table(["values of a run, MB", "by the plan", "measured", "ratio"], lines))
    made += [
        f"With too little memory for {row['network']}: {row['error']}. {'Afterwards' if row['refused'] else 'Then'} it runs"
        f"{'' if row['same'] else ', with other outputs'} (deviation {row['deviation']:.0e})."
        for row in named(rows, "drill")
    ]
    return made


def plans(rows: Sequence[Row]) -> list[str]:
    """Return forecasts of a language model's placements beside runs."""
    own = named(rows, "plan")
    if not own:
        return []
    bases = list(dict.fromkeys(basis for row in own for basis in row["forecasts"]))
    lines = []
    for row in own:
        forecasts = [row["forecasts"].get(basis) for basis in bases]
        lines.append(
            [
                row["way"],
                "" if row["limit"] is None else gigabytes(row["limit"]),
                *("" if made is None else f"{figures.number(made)} ({100 * (made / row['seconds'] - 1):+.1f} %)" for made in forecasts),
                mark(row, f"{figures.number(row['seconds'])} ({figures.number(row['prompt_seconds'])} of it the prompt)"),
                gigabytes(row["needed"]),
                "" if row["used"] is None else gigabytes(row["used"]),
            ]
        )
    head = ["way", "limit, GB", *(f"forecast from {basis}, s (error)" for basis in bases), "run, s", "memory by the plan, GB", "in use, GB"]
    first = own[0]
    text = (
        f"{first['model']}: {gigabytes(first['weight_bytes'])} GB of weights, a prompt of {first['prompt']} tokens and {first['output']} "
        "tokens of output, by Transformers and Accelerate."
    )
    return [text, figures.table(head, lines)]


def gigabytes(amount: float) -> str:
    """Return gigabytes."""
    return figures.number(amount / 1e9)


def profile(rows: Sequence[Row], name: str = "gpu0") -> hs.costs.Profile:
    """Return the measurements of operators as a profile with the graphs of the shipped networks; `name` is that of the GPU."""
    from gpu_sections import device_of

    from hetsched.costs import Operator, ProfiledDevice, TaskTime
    from hetsched.runtime.digests import Computations

    def named_device(row: Row) -> str:
        return name if row["device"] == "gpu0" else str(row["device"])

    own, session = named(rows, "operator"), next((f"{row['date']}T00:00:00Z" for row in named(rows, "facts")), "")
    used = {row["device"] for row in own}
    devices = {
        row["device"]: ProfiledDevice(device_of(row | {"device": named_device(row)}), session, software=(("all", row["software"]),))
        for row in named(rows, "ceilings")
        if row["device"] in used
    }
    known = {
        row["digest"]: Operator(
            row["digest"], row["op"], row["text"], row["flops"], row["bytes_accessed"], row["weight_bytes"], shape_of(row["shape"])
        )
        for row in own
    }
    seen: dict[tuple[Any, ...], TaskTime] = {}
    for row in own:
        q25, q75 = row["spread"]
        more = (session, "", 0, row["runs"], row["seconds"], q25, q75, row["cpu"], row["memory_bytes"])
        time = TaskTime(row["digest"], named_device(row), row["batch"], *more)
        seen.setdefault((row["digest"], row["device"], row["batch"]), time)  # a later network has it again
    networks, cells = [], {(named_device(row), row["batch"]) for row in own}
    for program in map(shipped, hs.workloads.networks.names()):
        operators = Computations(program).operators
        if all(operator.digest in known or operator.op == "input" for operator in operators):
            networks.append(hs.costs.Network(program.graph, tuple(operator.digest for operator in operators)))
            for operator in operators:
                if operator.op == "input":  # takes no time, and has no line
                    known[operator.digest] = operator
                    for device, batch in cells:
                        seen[operator.digest, device, batch] = TaskTime(operator.digest, device, batch, session, median=0.0)
    return hs.costs.Profile(devices.values(), known.values(), seen.values(), (), (), networks)


def shipped(name: str) -> Any:
    """Return a shipped network as a program, which torch makes."""
    import torch

    size = hs.workloads.networks.IMAGE[name]
    return hs.runtime.Program(hs.workloads.networks.module(name), torch.zeros(1, 3, size, size))
