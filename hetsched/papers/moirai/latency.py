"""Figure 9: latencies by method, and how many times shorter Moirai's are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from hetsched.papers.items import BY_MODEL, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.moirai import models
from hetsched.papers.moirai.placing import (
    COMPARED,
    LEARNED,
    LIMITS,
    OTHERS,
    SEEDS,
    TASKS,
    Place,
    by_milp,
    cases,
    cell,
    finder,
    highest,
    length,
    seen,
)
from hetsched.papers.rendering import DIFFERENT, number, percent

PRINTED = {
    ("original", "inter"): {LEARNED: 2.98, "m-sct": 1.77, "getf": 1.33},
    ("original", "intra"): {LEARNED: 4.12, "m-sct": 1.70, "getf": 1.35},
    ("fused", "inter"): {LEARNED: 3.15, "m-sct": 1.90, "getf": 1.25},
    ("fused", "intra"): {LEARNED: 4.28, "m-sct": 1.74, "getf": 1.34},
}
"""The largest speed-ups of Moirai that section IV-B states."""
NAMES = {LEARNED: "Placeto", "m-sct": "m-SCT", "getf": "GETF"}
ROUNDING = 0.005
"""The paper's speed-ups have two decimals."""
HEURISTIC = 1.87
SAME = 1e-6
"""Latencies that differ by at most this share are equal."""


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return a table of latencies for each graph and cluster, and the claims on speed-ups."""
    tables = [_table(rows, which, where) for which, where in PRINTED]
    claims = [_speed_up(rows, which, where, rival, times) for (which, where), by in PRINTED.items() for rival, times in by.items()]
    claims += [_heuristic(rows), _consistent(rows), _bandwidth(rows), _larger(rows), _optimal(rows)]
    return Report(tables, [claim.undecided(BY_MODEL) for claim in claims], _notes(rows))


def _table(rows: Sequence[Row], which: str, where: str) -> Table:
    lines = []
    for model in _models(rows):
        cells = [_shown(cell(rows, model, where, which, method)) for method in (LEARNED, *COMPARED, "moirai")]
        moirai = cell(rows, model, where, which, "moirai")
        cells[-1] += "".join(f" ({finder(row)})" for row in moirai if length(row) is not None and finder(row) != "moirai")
        searched = number(1e3 * moirai[0]["makespan"]) if moirai and moirai[0]["makespan"] is not None else ""
        ours = [_shown(cell(rows, model, where, which, method)) for method in OTHERS]
        ratios = [_ratio_text(rows, model, where, which, rival) for rival in NAMES]
        bound = _bound(rows, model, where, which)
        lines.append([model, *cells, *ratios, searched, *ours, number(1e3 * bound) if bound > 0 else ""])
    highest = ["paper, highest", *[""] * 4, *(f"{times:g}" for times in PRINTED[which, where].values()), *[""] * (2 + len(OTHERS))]
    head = ["ms", "learned", "m-SCT", "GETF", "Moirai", "learned : Moirai", "m-SCT : Moirai", "GETF : Moirai"]
    ours_head = ["ours: searched on", *OTHERS.values(), "bound"]
    return Table([*head, *ours_head], [*lines, highest], f"{which} graphs, {where}-server")


def _models(rows: Sequence[Row]) -> list[str]:
    return [model for model in models.PRINTED if any(row["model"] == model for row in rows)]


def _shown(found: Sequence[Row]) -> str:
    """Return the milliseconds, of several seeds from least to most; in brackets how far the best effort exceeds the memory."""
    made = sorted(value for row in found if (value := length(row)) is not None)
    if not made:
        over = [row["over"] for row in found if row.get("over")]
        return f"({over[0] / 1e9:.2g} GB over)" if over else ("none" if found else "")
    ends = [number(1e3 * value) for value in (made[0], made[-1])]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _ratios(rows: Sequence[Row], model: str, where: str, which: str, rival: str) -> list[float]:
    """Return the rival's latency over Moirai's for each seed; empty if one has none."""
    own = [value for row in cell(rows, model, where, which, "moirai") if (value := length(row)) is not None]
    return [value / own[0] for row in cell(rows, model, where, which, rival) if own and (value := length(row)) is not None]


def _bound(rows: Sequence[Row], model: str, where: str, which: str) -> float:
    """Return the best lower bound on the latency, 0 without one."""
    place = model, where, which
    return max((row["bound"] for row in rows if (row["model"], row["cluster"], row["graph"]) == place), default=0.0)


def _possible_at(rows: Sequence[Row], model: str, where: str, which: str, rival: str) -> float:
    """Return the speed-up over a rival's longest latency that no schedule exceeds, by the lower bound; inf without one."""
    made = [value for row in cell(rows, model, where, which, rival) if (value := length(row)) is not None]
    bound = _bound(rows, model, where, which)
    return 0.0 if not made else (max(made) / bound if bound > 0 else math.inf)


def _possible(rows: Sequence[Row], where: str, which: str, rival: str) -> float:
    return max((_possible_at(rows, model, where, which, rival) for model in _models(rows)), default=0.0)


def _ratio_text(rows: Sequence[Row], model: str, where: str, which: str, rival: str) -> str:
    ratios = sorted(_ratios(rows, model, where, which, rival))
    return "" if not ratios else "/".join(dict.fromkeys(f"{value:.2f}" for value in (ratios[0], ratios[-1])))


def _highest(rows: Sequence[Row], where: str, which: str, rival: str, wanted: float) -> list[tuple[float, Place]]:
    """Return the highest speed-up over the models for each seed, with its place."""
    by_place = {(model, where, which): _ratios(rows, model, where, which, rival) for model in _models(rows)}
    by_place = {place: ratios for place, ratios in by_place.items() if ratios}
    found = []
    for seed in range(min(map(len, by_place.values()), default=0)):
        ratios = {place: each[seed] for place, each in by_place.items()}
        place = highest(ratios, lambda place: by_milp(rows, place), wanted)
        found.append((ratios[place], place))
    return found


def _speed_up(rows: Sequence[Row], which: str, where: str, rival: str, times: float) -> Claim:
    also = " (the abstract's 4.28)" if times == 4.28 else ""
    text = f"On the {which} graphs, {where}-server, Moirai is up to {times:g} times faster than {NAMES[rival]}{also}"
    found = _highest(rows, where, which, rival, times - ROUNDING)
    claim = _reached(rows, text, found, rival, _possible(rows, where, which, rival), times)
    return _without_placeto(claim) if rival == LEARNED else claim


def _without_placeto(claim: Claim) -> Claim:
    """Return a claim about Placeto: undecided, whichever way our learned placer would decide it."""
    if claim.verdict is Verdict.UNSEEN:
        return claim
    would = f"would be {claim.verdict}, but the learned placer is not Placeto, and had seconds instead of hours"
    return Claim(claim.text, Verdict.UNSEEN, f"{claim.reason}; {would}")


def _reached(rows: Sequence[Row], text: str, found: Sequence[tuple[float, Place]], rival: str, possible: float, times: float) -> Claim:
    """Return whether the MILP reached a speed-up; one that it did not reach is never refuted, for it was not solved as in the paper."""
    if not found:
        return Claim(text, Verdict.UNSEEN, "not measured")
    least, most = min(found), max(found)
    spread = " to ".join(dict.fromkeys(f"{value:.2f}" for value, _ in (least, most)))
    seeds = f" for {len(found)} seeds" if len(found) > 1 else ""
    reason = f"up to {spread} times{seeds}, {_by(rows, most[1], rival)}"
    reason += f"; by the lower bounds no schedule is more than {possible:.2f} times faster"
    wanted = times - ROUNDING
    if least[0] >= wanted:
        return seen(Claim.decided(text, True, reason), rows, dict.fromkeys(place for _, place in found))
    if len(_models(rows)) < len(models.PRINTED):
        return Claim(text, Verdict.UNSEEN, f"{reason}; {len(_models(rows))} of {len(models.PRINTED)} models are measured")
    if possible < wanted:
        return Claim(text, Verdict.UNSEEN, f"{reason}: {DIFFERENT}")
    return Claim(text, Verdict.UNSEEN, f"{reason}; the MILP of the whole graphs was not solved to the optimum")


def _by(rows: Sequence[Row], place: Place, rival: str) -> str:
    """Return the model of a speed-up, the method that found Moirai's schedule, and the rival beside the best device if that is faster."""
    told = f"{place[0]}, found by `{finder(cell(rows, *place, 'moirai')[0])}`"
    alone, other = (
        min((value for row in cell(rows, *place, method) if (value := length(row)) is not None), default=math.inf)
        for method in ("best-device", rival)
    )
    return told + (
        f", where {NAMES[rival]} takes {other / alone:.2f} times as long as the best device" if other > alone * (1 + SAME) else ""
    )


def _heuristic(rows: Sequence[Row]) -> Claim:
    text = f"Moirai's makespans are up to {HEURISTIC:g} times shorter than those of the heuristic, m-SCT (introduction; Figure 9 has 1.9)"
    wanted = HEURISTIC - ROUNDING
    ratios = {place: ratio for which, where in PRINTED for ratio, place in _highest(rows, where, which, "m-sct", wanted)}
    possible = max(_possible(rows, where, which, "m-sct") for which, where in PRINTED)
    found = [(ratios[place], place) for place in [highest(ratios, lambda place: by_milp(rows, place), wanted)]] if ratios else []
    return _reached(rows, text, found, "m-sct", possible, HEURISTIC)


def _consistent(rows: Sequence[Row]) -> Claim:
    text = "Moirai consistently outperforms Placeto, m-SCT and GETF in latency (conclusion)"
    told, faster, shortest = [], [], 0
    places = [(model, where, which) for which, where in PRINTED for model in _models(rows)]
    for rival, name in NAMES.items():
        ratios = {place: min(found) for place in places if (found := _ratios(rows, *place, rival))}
        if ratios:
            slower, equal = sum(ratio < 1 - SAME for ratio in ratios.values()), sum(abs(ratio - 1) <= SAME for ratio in ratios.values())
            worst = min(ratios, key=ratios.__getitem__)
            most = f", at most {1 / ratios[worst]:.2f} times, {', '.join(worst)}" if slower else ""
            told.append(
                f"slower than {name if rival != LEARNED else 'the learned placer'} in {slower} of {len(ratios)}{most}, equal in {equal}"
            )
            if rival != LEARNED:
                faster += [ratio > 1 + SAME for ratio in ratios.values()]
                shortest += sum(_possible_at(rows, *place, rival) <= 1 + SAME for place in ratios)
    if not faster:
        return Claim(text, Verdict.UNSEEN, "; ".join([*told, "m-SCT and GETF are not measured"]))
    reason = (
        f"{'; '.join(told)}; in {shortest} of {len(faster)} comparisons with m-SCT and GETF the rival's schedule is proven to be the "
        "shortest; the learned placer, which is not Placeto, does not count"
    )
    if all(faster):
        return _without_placeto(seen(Claim.decided(text, True, reason), rows, places))
    if shortest:  # whoever found Moirai's schedule, no other is shorter than the rival's
        return Claim.decided(text, False, reason)
    return Claim(text, Verdict.UNSEEN, f"{reason}; the MILP of the whole graphs was not solved to the optimum")


def _over_learned(rows: Sequence[Row], where: str) -> dict[str, list[float]]:
    """Return Moirai's speed-ups over the learned placer for each seed, the baseline of the figure, by model, on fused graphs."""
    made = {model: _ratios(rows, model, where, "fused", LEARNED) for model in _models(rows)}
    return {model: ratios for model, ratios in made.items() if ratios}


def _bandwidth(rows: Sequence[Row]) -> Claim:
    text = "More bandwidth between devices gives a higher speed-up (section IV-D)"
    inter, intra = (_over_learned(rows, where) for where in models.CLUSTERS)
    both = [model for model in inter if model in intra]
    if not both:
        return Claim(text, Verdict.UNSEEN, "not measured, or without a learned placer, the baseline of the figure")
    surely = sum(min(intra[model]) > max(inter[model]) for model in both)
    never = sum(max(intra[model]) < min(inter[model]) for model in both)
    reason = (
        f"over the learned placer, on fused graphs: higher in the server than between servers for {surely} of {len(both)} models, lower "
        f"for {never}, within the spread of the seeds for {len(both) - surely - never}; the clusters differ in their devices too"
    )
    if surely > len(both) / 2 or never > surely:
        places = [(model, where, "fused") for model in both for where in models.CLUSTERS]
        return _without_placeto(seen(Claim.decided(text, surely > never, reason), rows, places))
    return Claim(text, Verdict.UNSEEN, reason)


def _larger(rows: Sequence[Row]) -> Claim:
    text = "The larger the model, the higher the speed-up (section IV-D)"
    told, held, opposed = [], [], []
    places: list[Place] = []
    for where in models.CLUSTERS:
        made = _over_learned(rows, where)
        for kind in dict.fromkeys(map(models.kind, models.PRINTED)):
            sizes = [made[model] for model in made if models.kind(model) == kind]
            if len(sizes) > 1:
                places += [(model, where, "fused") for model in made if models.kind(model) == kind]
                told.append(f"{kind}, {where}-server, {'/'.join(f'{sum(ratios) / len(ratios):.2f}' for ratios in sizes)}")
                held.append(min(sizes[-1]) > max(sizes[0]))
                opposed.append(max(sizes[-1]) < min(sizes[0]))
    if not told:
        return Claim(text, Verdict.UNSEEN, "not measured, or without a learned placer, the baseline of the figure")
    reason = f"mean over the seeds, smallest to largest model that has both: {'; '.join(told)}"
    if not all(held) and not any(opposed):
        return Claim(text, Verdict.UNSEEN, f"{reason}: within the spread of the seeds")
    return _without_placeto(seen(Claim.decided(text, all(held), reason), rows, places))


def _optimal(rows: Sequence[Row]) -> Claim:
    text = "Moirai's placements are optimal (introduction)"
    solved = [row for row in rows if row["method"] == "moirai" and row["status"]]
    if not solved:
        return Claim(text, Verdict.UNSEEN, "not measured")
    proven = sum(row["status"] == "optimal" for row in solved)
    shorter = [1 - row["makespan"] / row["milp"] for row in solved if row["makespan"]]
    return Claim(
        text,
        Verdict.UNSEEN,
        f"a proof needs the whole graph; here {proven} of {len(solved)} graphs of about {TASKS} tasks were solved to the optimum, and "
        f"the best schedule of the whole graph is up to {percent(max(shorter, default=0.0))} shorter than the MILP's carried back",
    )


def _notes(rows: Sequence[Row]) -> list[str]:
    solved = [row for row in rows if row["method"] == "moirai" and row["coarse"]]
    placed = [row for row in rows if row["fits"] is not None]
    if not solved or not placed:
        return []
    found = Counter(map(finder, solved))
    others = ", ".join(f"{count} by `{name}`" for name, count in found.most_common() if name != "moirai")
    sizes = [row["coarse"] for row in solved]
    return [
        f"Of {len(solved)} solves of the MILP, on graphs of {min(sizes)} to {max(sizes)} tasks, the solver improved on the schedules of "
        f"other methods from which it starts in {found['moirai']}{f'; the others were found {others}' if others else ''}. "
        f"{sum(row['fits'] for row in placed)} of {len(placed)} placements would fit the "
        "devices with activations too, if these are freed after their last use."
    ]


DIFFERS = (
    "latencies are those of the roofline model in half precision (the P4 has its rate in float32), with ports that exclude one another, "
    "equation (8), and the parameters of operators as memory, equation (4d), see Table IV; nothing ran on the devices. The MILP is that "
    f"of a graph of about {TASKS} tasks at most: chains are merged, then heavy edges, and the schedule is carried back. SCIP solves it for "
    f"{LIMITS['moirai'] / 2:g} s from the schedule of a list scheduler; the paper solves the whole graph by Gurobi in minutes. Where the "
    "solver finds no shorter one the column Moirai has that list schedule, with the name of its method in brackets. The "
    f"learned placer is `policy-gradient`, {LIMITS[LEARNED]:g} s a seed, {SEEDS} seeds, in place of Placeto; GETF is its MILP, solved by "
    f"HiGHS in {LIMITS['getf']:g} s at most, `none` if it ends without a schedule. m-SCT has {LIMITS['m-sct']:g} s, auto "
    f"{LIMITS['auto']:g} s. "
    '"Searched on" is the best of list schedulers, Moirai\'s schedule, and annealing of the whole graph. A ratio such as 1.00/1.23 is '
    "that of the best and the worst seed; a placement in brackets exceeds the memory of a device by so much."
)

FIGURE_9 = Item(
    "figure-9",
    "Figure 9: latency by method, original and fused graphs, two clusters",
    DIFFERS,
    cases,
    report,
    needs=(("torch", "torch"), ("highspy", "solvers")),
    time="80 minutes, 40 with --jobs 2",
)
