"""Figure 6: the time of measuring the large batch under three placements."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from hetsched.papers.celeritas import evaluation, testbed
from hetsched.papers.celeritas.evaluation import COMPARED
from hetsched.papers.celeritas.placement import Found, beside, placements
from hetsched.papers.items import BY_MODEL, ON_CPU, OTHER_GRAPHS, OUR_MEMORY, Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent

STEPS = 55
"""Five that do not count, and fifty that do."""
OWN = 0.03
"""The share of the time of measuring that the seconds of Celeritas' own processes may take."""
PRINTED = {"m-topo": ("6.0", "OOM", "38.45", ""), "dfs-topo": ("4.22", "10.07", "34.3", ""), "celeritas": ("4.32", "9.50", "9.58", "")}
"""Minutes that the paper's text states, in the order of `testbed.PAPERS`; its figure has no others to read."""


def cases(setting: Setting) -> list[Case]:
    """Return the placements of the paper's graphs, and the measurements of small ones."""
    return placements(setting, COMPARED) + evaluation.cases(setting)


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return Figure 6 of the paper's graphs by the model, and of small ones by the clock."""
    placed, measured = ([row for row in rows if row["what"] == what] for what in ("placement", "evaluation"))
    found = Found(placed)
    lines = []
    for method in COMPARED:
        printed = dict(zip(testbed.PAPERS, PRINTED[method], strict=True))
        lines.append([method, *(beside(_cell(found, graph, method), printed.get(graph, "")) for graph in found.graphs)])
    tables = [Table([f"minutes of {STEPS} steps, here / paper", *found.graphs], lines)]
    clock = [
        [
            f"{name}, {method}",
            _range(_of(measured, name, method, "runs")),
            number(statistics.median(_of(measured, name, method, "placing"))),
            number(statistics.median(_of(measured, name, method, "moved")) / 1e6),
            number(statistics.median(_of(measured, name, method, "over")) / 1e6) if any(_of(measured, name, method, "over")) else "none",
        ]
        for name in _models(measured)
        for method in COMPARED
    ]
    head = ["small models, measured on this machine", "seconds of measuring", "seconds of placing", "MB moved a step", "MB over the memory"]
    tables.append(Table(head, clock))
    notes = [f"The small batches before took {_small(measured)}, which is the same for all three."] if measured else []
    return Report(tables, [*_claims(found, measured), _clock(measured), _moved(measured)], notes)


def _moved(rows: Sequence[Row]) -> Claim:
    """Return the claim about the bytes that a step moves between devices."""
    text = "DFS-TOPO needs less communication between devices than m-TOPO (4.2.2, Figure 3)"
    moved = {name: [statistics.median(_of(rows, name, method, "moved")) for method in ("dfs-topo", "m-topo")] for name in _models(rows)}
    if len(moved) < len(evaluation.PRINTED):
        return Claim(text, Verdict.UNSEEN, "not all models are measured")
    reason = "; ".join(f"{name} {number(own / 1e6)} MB against {number(other / 1e6)} MB a step" for name, (own, other) in moved.items())
    return Claim.decided(text, all(own < other for own, other in moved.values()), f"small models: {reason}").undecided(OTHER_GRAPHS)


def _models(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["model"] for row in rows))


def _minutes(found: Found, graph: str, method: str) -> float | None:
    """Return minutes of placing and of all steps, also over the memory; None if not measured."""
    rows = found.rows.get((graph, method), [])
    if not rows or rows[0]["step"] is None:
        return None
    return float(statistics.median(rows[0]["seconds"]) + STEPS * rows[0]["step"]) / 60


def _cell(found: Found, graph: str, method: str) -> str:
    minutes = _minutes(found, graph, method)
    if minutes is None:
        return ""
    over = found.rows[graph, method][0]["over"]
    return f"({number(minutes)}, {over / 1e9:.3g} GB over)" if over else number(minutes)


def _of(rows: Sequence[Row], model: str, method: str, what: str) -> list[float]:
    values = [row["placements"][method][what] for row in rows if row["model"] == model]
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def _range(seconds: Sequence[float]) -> str:
    return f"{number(statistics.median(seconds))} ({number(min(seconds))} to {number(max(seconds))})"


def _small(rows: Sequence[Row]) -> str:
    seconds: dict[str, list[float]] = {}
    for row in rows:
        seconds.setdefault(row["model"], []).append(row["small"])
    return ", ".join(f"{number(statistics.median(own))} s ({name})" for name, own in seconds.items())


def _claims(found: Found, measured: Sequence[Row]) -> Iterator[Claim]:
    minutes = {graph: {method: _minutes(found, graph, method) for method in COMPARED} for graph in found.papers}
    full = {graph: own for graph, own in minutes.items() if None not in own.values()}
    fits = {key: not rows[0]["over"] for key, rows in found.rows.items()}

    def told(graph: str) -> str:
        return f"{graph}: {', '.join(f'{method} {_cell(found, graph, method)}' for method in COMPARED)} min"

    def claim(text: str, graphs: Sequence[str], holds: Sequence[bool], why: str | None = BY_MODEL) -> Claim:
        known = [graph for graph in graphs if graph in full]
        if not known or (len(known) < len(graphs) and all(holds)):
            return Claim(text, Verdict.UNSEEN, "; ".join([*map(told, known), "not measured" if not known else "the rest is not measured"]))
        made = Claim.decided(text, all(holds), "; ".join(map(told, known)))
        return made if why is None else made.undecided(why)

    yield claim(
        "Measuring under DFS-TOPO takes less time than under m-TOPO: 4.22 of 6.0 minutes on Inception_V3, 34.3 of 38.45 on the Transformer",
        ("inception_v3", "transformer, heads apart"),
        [own["dfs-topo"] < own["m-topo"] for graph, own in full.items() if graph in ("inception_v3", "transformer, heads apart")],  # type: ignore[operator]
    )
    modelled = claim(
        "Under Celeritas' placement measuring takes no longer than under DFS-TOPO, but for the seconds of its own processes (here: by "
        f"{percent(OWN)} at most), by the model and by the clock on small models",
        testbed.PAPERS,
        [own["celeritas"] <= (1 + OWN) * own["dfs-topo"] for own in full.values()],  # type: ignore[operator]
        None,
    )
    yield _both(modelled, by_clock(modelled.text, measured, "dfs-topo", OWN))
    yield claim(
        "On the Transformer Celeritas needs less than a third of DFS-TOPO's time, 9.58 of 34.3 minutes",
        ("transformer, heads apart",),
        [own["celeritas"] < own["dfs-topo"] / 3 for graph, own in full.items() if graph == "transformer, heads apart"],  # type: ignore[operator]
    )
    yield claim(
        "On Tensor Holography Celeritas measures 65.1 % faster than m-TOPO",
        ("holography",),
        [own["celeritas"] <= (1 - 0.651) * own["m-topo"] for graph, own in full.items() if graph == "holography"],  # type: ignore[operator]
    )
    own = [fits["nmt", method] for method in COMPARED if ("nmt", method) in fits]
    yield claim(
        "On NMT m-TOPO ends out of memory despite a best effort, DFS-TOPO and Celeritas do not",
        ("nmt",),
        [own == [False, True, True]] if own else [],
        OUR_MEMORY,
    )


def _clock(rows: Sequence[Row]) -> Claim:
    """Return the claim about the placements as measured on this machine, where tensors hardly take time to move."""
    text = "Under Celeritas' placement measuring takes less time than under m-TOPO, by the clock on small models"
    return by_clock(text, rows, "m-topo").undecided(ON_CPU)


def by_clock(text: str, rows: Sequence[Row], rival: str, more: float = 0.0) -> Claim:
    """Return the claim that measuring under Celeritas' placement takes less time than under a rival's, or longer by a share at most.

    Runs are compared within a repetition, which has all placements one after another. The claim is held if in each repetition
    of each model every run is within what is claimed of every run of the rival, and not held if for a model in each repetition none is.
    """
    within, beyond, told = dict[str, list[bool]](), dict[str, list[bool]](), []
    for row in rows:
        own, other = row["placements"]["celeritas"]["runs"], row["placements"][rival]["runs"]
        within.setdefault(row["model"], []).append(max(own) <= (1 + more) * min(other) if more else max(own) < min(other))
        beyond.setdefault(row["model"], []).append(min(own) > (1 + more) * max(other))
    for name, longer in beyond.items():
        own, other = (_of(rows, name, method, "runs") for method in ("celeritas", rival))
        change = statistics.median(own) / statistics.median(other) - 1
        times = f"{name} {_range(own)} s against {_range(other)} s ({100 * change:+.1f} %)"
        told.append(f"{times}, all runs longer in {sum(longer)} of {len(longer)} repetitions")
    if not rows:
        return Claim(text, Verdict.UNSEEN, "not measured by the clock")
    reason = f"by the clock, Celeritas against {rival}, {'; '.join(told)}"
    if any(map(all, beyond.values())):
        return Claim.decided(text, False, reason)
    if all(map(all, within.values())) and len(within) == len(evaluation.PRINTED):
        return Claim.decided(text, True, reason)
    rest = "runs overlap" if len(within) == len(evaluation.PRINTED) else "the other models are not measured"
    return Claim(text, Verdict.UNSEEN, f"{reason}: {rest}")


def _both(modelled: Claim, measured: Claim) -> Claim:
    """Return a claim that would be held if it is by the model and by the clock, and not held if it is not by one of them."""
    verdicts = {modelled.verdict, measured.verdict}
    worst = next(verdict for verdict in (Verdict.NOT_HELD, Verdict.UNSEEN, Verdict.HELD) if verdict in verdicts)
    told = f"by the model {modelled.verdict}: {modelled.reason}; {measured.reason}: {measured.verdict}"
    return Claim(modelled.text, worst, told).undecided(f"{ON_CPU}, or by a cost model")


FIGURE_6 = Item(
    "figure-6",
    "Figure 6: time of measuring the large batch under three placements",
    f"the first table has the graphs, durations and memory of Table 3: {STEPS} steps by the model, as the paper drops 5 and takes 50, and "
    "the seconds of placing; the small batches before and the profiler's own time are left out. m-TOPO claims the memory of the first "
    "task of a label alone, as the paper says. The paper's minutes are those of its text. The second table is measured: "
    f"{evaluation.SMALL_MODELS}; the profiler runs one task after another and copies tensors between threads, so that only what is "
    "moved differs.",
    cases,
    report,
    needs=(("torch", "torch"),),
    time="45 minutes, shared with Tables 3 to 5",
)
