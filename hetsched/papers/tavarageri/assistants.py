"""Section 3: scheduling assistants migrate tasks at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.papers.items import Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent
from hetsched.papers.tavarageri.judging import LEAST, judged, so_far, span
from hetsched.papers.tavarageri.names import EQUAL, GRAPHS, OPERATIONS, QUICK, ROOFLINE

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.runtime import Observation, Policy, Run, Scenario
    from hetsched.schedule.decision import Decision

CHOSEN = GRAPHS[:3]
FACTOR, LINK, SEVERAL = 2.0, 4.0, 3.0
SCENARIOS = {
    "costs": "the policy knows durations by operations only",
    "busiest": f"the busiest device takes {FACTOR:g} times as long",
    "other": f"the least busy device takes {FACTOR:g} times as long",
    "link": f"the link of most bytes takes {LINK:g} times as long",
    "several": f"all but the busiest device take {SEVERAL:g} times as long",
}
POLICIES = {
    "static": "compiler only",
    "printed": "as printed",
    "relative": "as printed (relative)",
    "paper": "moves that gain",
    "untagged": "without tags",
    "assistants": "ours: gamma 0.9",
    "searching": "ours: searching",
    "solved": "ours: solved again",
}
READINGS = ("printed", "relative", "paper")
"""Policies that are the paper's, each with another answer to what it leaves open."""
DETAILED = ("static", *READINGS, "untagged", "searching")
NOISE = 0.05
ITERATIONS, CHANGE = 80, 40
SEEDS = 3
LIMIT, QUICK_LIMIT = 5.0, 3.0
"""Seconds of the solve that knows what the scenario changes."""
SETTLED = 0.05
"""Relative distance from its last level within which the time of an iteration has settled."""
_NONE = f"a difference of at most {percent(LEAST)} is none"
NEAR = 0.9
"""The share of what solving again recovers that is as good as all."""


def cases(setting: Setting) -> list[Case]:
    """Return a case for each graph, scenario, policy and seed of the noise."""
    return [
        {"what": "assistants", "graph": graph, "scenario": scenario, "policy": policy, "seed": seed}
        | ({"limit": QUICK_LIMIT if setting.quick else LIMIT} if policy == "solved" else {})
        for graph in (QUICK if setting.quick else CHOSEN)
        for scenario in SCENARIOS
        for policy in POLICIES
        for seed in range(1 if setting.quick else SEEDS)
    ]


def measure(case: Case, data: Path | None) -> Row:
    """Simulate the iterations of a training step under a policy."""
    from hetsched.papers.tavarageri import graphs
    from hetsched.runtime import iterate
    from hetsched.runtime.iterations import devices_of

    modelled, actual = (graphs.problem(case["graph"], EQUAL, costs) for costs in (OPERATIONS, ROOFLINE))
    known = modelled if case["scenario"] == "costs" else actual
    first = graphs.in_order(actual, graphs.repartitioned(modelled, "block")[-1])
    scenario = _scenario(case, actual, first)
    policy = _policy(case, actual.n_tasks)
    decision = first
    if case["policy"] == "solved":
        decision = _solved(scenario.problem(actual, ITERATIONS - 1), first, case)
    run = iterate(actual, decision, ITERATIONS, policy=None if policy is None else _Informed(policy, known), scenario=scenario)
    last = run.decisions[max(run.decisions)]
    return _figures(run, 0 if case["scenario"] == "costs" else CHANGE) | {
        "bytes": graphs.crossing(actual.graph, devices_of(last)),
        "bytes_before": graphs.crossing(actual.graph, devices_of(first)),
    }


def _figures(run: Run, change: int) -> Row:
    end = slice(-ITERATIONS // 4, None)
    after = float(run.makespan[end].mean())
    away = np.flatnonzero(np.abs(run.makespan[change:] / after - 1) > SETTLED)
    busy = run.busy[end]
    return {
        "before": float(run.makespan[:change].mean()) if change else None,
        "after": after,
        "settled": int(away.max(initial=-1)) + 1,
        "balance": float((busy.max(axis=1) / busy.mean(axis=1)).mean()),
        "utilisation": float((busy.mean(axis=1) / run.makespan[end]).mean()),
        "migrations": run.migrations,
        "pause": float(run.pause.sum()),
        "says": f"{after:.4g} s an iteration at last, {run.migrations} migrations",
    }


class _Informed:
    """A policy that knows other durations at first, for instance those that the compiler has modelled."""

    def __init__(self, policy: Policy, known: Problem) -> None:
        self._policy, self._known = policy, known

    def begin(self, problem: Problem, decision: Decision) -> None:
        """Begin with the durations that are known."""
        self._policy.begin(self._known, decision)

    def observe(self, observation: Observation) -> Decision | None:
        """Return what the policy does."""
        return self._policy.observe(observation)


def _policy(case: Case, n_tasks: int) -> Policy | None:
    from hetsched.papers.tavarageri.printed import GAMMA, Printed
    from hetsched.runtime import Assistants, SearchingAssistants
    from hetsched.runtime.tags import Tag

    makers: dict[str, Callable[[], Any]] = {
        "printed": lambda: Printed(case["seed"]),
        "relative": lambda: Printed(case["seed"], relative=True),
        "paper": lambda: Assistants(gamma=GAMMA),
        "untagged": lambda: Assistants(gamma=GAMMA, tags=np.full(n_tasks, Tag.COMPUTE)),
        "assistants": Assistants,
        "searching": SearchingAssistants,
    }
    return makers[case["policy"]]() if case["policy"] in makers else None


def _solved(changed: Problem, start: Decision, case: Case) -> Decision:
    from hetsched.solving import solve

    schedule = solve(changed, time_limit=case["limit"], seed=case["seed"], start=start).schedule
    assert schedule is not None  # memory is not limited
    return schedule.decision


def _scenario(case: Case, actual: Problem, first: Decision) -> Scenario:
    """Return the changes of a case, and its noise."""
    from hetsched.runtime import Scenario, SlowDown, SlowLink
    from hetsched.runtime.iterations import devices_of
    from hetsched.schedule.simulate import simulate

    names, what, noise = actual.cluster.names, case["scenario"], {"noise": NOISE, "seed": case["seed"]}
    if what == "costs":
        return Scenario(**noise)
    if what == "link":
        steps, device = actual.graph, devices_of(first)
        sent = np.zeros((len(names), len(names)))
        np.add.at(sent, (device[steps.source], device[steps.target]), steps.edge_bytes)
        np.fill_diagonal(sent, -1.0)
        h, k = np.unravel_index(int(sent.argmax()), sent.shape)
        return Scenario(slow_links=[SlowLink(names[h], names[k], LINK, CHANGE)], **noise)
    busy = simulate(actual, first).busy_time
    if what == "several":
        return Scenario([SlowDown(name, SEVERAL, CHANGE) for k, name in enumerate(names) if k != busy.argmax()], **noise)
    slow = int(busy.argmax() if what == "busiest" else busy.argmin())
    return Scenario([SlowDown(names[slow], FACTOR, CHANGE)], **noise)


def report(rows: Sequence[Row], setting: Setting) -> Report:
    """Return tables of the last level and of what else is observed, and the claims on assistants."""
    claims = [
        _alone(rows),
        _imprecise(rows),
        _adapts(rows),
        _optimal(rows),
        _utilised(rows),
        _tags(rows),
        _balance(rows),
        _communication(rows),
    ]
    told = "; ".join(f"{name}, {what}" for name, what in SCENARIOS.items())
    so = so_far(claims, cases(setting), rows, "graph", "scenario")
    return Report([_levels(rows), _details(rows)], so, [f"Scenarios: {told}."])


def _places(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [
        (graph, what) for graph in CHOSEN for what in SCENARIOS if any((row["graph"], row["scenario"]) == (graph, what) for row in rows)
    ]


def _of(rows: Sequence[Row], place: tuple[str, str], policy: str) -> list[Row]:
    found = [row for row in rows if (row["graph"], row["scenario"], row["policy"]) == (*place, policy)]
    return sorted(found, key=lambda row: int(row["seed"]))


def _together(rows: Sequence[Row], place: tuple[str, str], *policies: str) -> list[tuple[Row, ...]]:
    """Return the rows of several policies, for each seed that all of them have."""
    by_seed = [{row["seed"]: row for row in _of(rows, place, policy)} for policy in policies]
    return [tuple(own[seed] for own in by_seed) for seed in sorted(set.intersection(*(set(own) for own in by_seed)))]


def _shares(rows: Sequence[Row], place: tuple[str, str], policy: str) -> list[float]:
    """Return the share of what solving again recovers, for each seed in which it recovers anything."""
    return [
        (static["after"] - own["after"]) / (static["after"] - solved["after"])
        for static, own, solved in _together(rows, place, "static", policy, "solved")
        if static["after"] > solved["after"] * (1 + LEAST)
    ]


def _levels(rows: Sequence[Row]) -> Table:
    lines, shared = [], (*READINGS, "assistants", "searching")
    for place in _places(rows):
        found = {policy: _of(rows, place, policy) for policy in POLICIES}
        before = [row["before"] for row in found["static"] if row["before"] is not None]
        after = [number(median(row["after"] for row in own)) if own else "" for own in found.values()]
        recovered = [span(_shares(rows, place, policy)) for policy in shared]
        lines.append([_name(place), number(median(before)) if before else "", *after, *recovered])
    head = ["median of the seeds", "before", *POLICIES.values(), *(f"share: {POLICIES[policy]}" for policy in shared)]
    title = "Seconds of an iteration before the change and at last; and the share of the gain by solving again, least to most of the seeds"
    return Table(head, lines, title)


def _details(rows: Sequence[Row]) -> Table:
    lines = []
    for place in _places(rows):
        for policy in DETAILED:
            found, name = _of(rows, place, policy), POLICIES[policy]
            if found:
                means = {
                    what: mean(row[what] for row in found) for what in ("settled", "balance", "utilisation", "bytes", "migrations", "pause")
                }
                lines.append(
                    [
                        f"{_name(place)}: {name}",
                        f"{means['settled']:.0f}",
                        f"{means['balance']:.2f}",
                        percent(means["utilisation"]),
                        number(means["bytes"] / 1e9),
                        f"{means['migrations']:.0f}",
                        number(1e3 * means["pause"]) if means["pause"] else "0",
                    ]
                )
    head = [
        "mean of the seeds",
        "iterations to settle",
        "busiest device / mean",
        "utilisation",
        "GB between devices",
        "migrations",
        "pauses in all, ms",
    ]
    return Table(head, lines)


def _name(place: tuple[str, str]) -> str:
    return f"{place[0]}: {place[1]}"


def _compared(
    rows: Sequence[Row], holds: Callable[..., bool], *policies: str, of: Callable[[str], bool] = lambda what: True
) -> dict[str, list[bool]]:
    """Return whether something holds of the rows of some policies, by graph and scenario, for each seed."""
    return {_name(place): [holds(*found) for found in _together(rows, place, *policies)] for place in _places(rows) if of(place[1])}


def _better(figure: str, static: Row, own: Row) -> bool:
    """Return whether a figure is less than without assistants, of `utilisation` whether it is more."""
    if figure == "utilisation":
        return bool(own[figure] > static[figure] * (1 + LEAST))
    return bool(own[figure] < static[figure] * (1 - LEAST))


def _ratios(
    rows: Sequence[Row], what: str, policy: str, other: str = "static", of: Callable[[str], bool] = lambda what: True
) -> list[float]:
    """Return a figure under a policy over that under another one, for each graph, scenario and seed."""
    places = [place for place in _places(rows) if of(place[1])]
    return [own[what] / rival[what] for place in places for own, rival in _together(rows, place, policy, other)]


def _regained(rows: Sequence[Row], policy: str) -> list[float]:
    """Return the shares of the loss by a change that a policy recovers, where there is one."""
    pairs = [pair for place in _places(rows) for pair in _together(rows, place, "static", policy)]
    return [
        (static["after"] - own["after"]) / (static["after"] - static["before"])
        for static, own in pairs
        if static["before"] is not None and static["after"] > static["before"] * (1 + LEAST)
    ]


_RANKS = (Verdict.NOT_HELD, Verdict.UNSEEN, Verdict.HELD)


def _read(
    text: str, rows: Sequence[Row], cells: Callable[[str], dict[str, list[bool]]], values: Callable[[str], Sequence[float]], what: str
) -> Claim:
    """Return a claim under the reading of the paper that speaks for it most, with the figures of each policy that has some."""
    told = ", ".join(f"{POLICIES[policy]} {ends}" for policy in (*READINGS, "searching", "solved") if (ends := span(values(policy))))
    read = {policy: cells(policy) for policy in READINGS if any(row["policy"] == policy for row in rows)}
    claims = {policy: judged(text, each, f"{what}: {told}; {POLICIES[policy]} decides") for policy, each in read.items()}
    best = max(read, key=lambda policy: (_RANKS.index(claims[policy].verdict), sum(map(all, read[policy].values()))), default=None)
    return Claim(text, Verdict.UNSEEN, "not measured") if best is None else claims[best]


def _over_static(text: str, rows: Sequence[Row], figure: str, what: str, of: Callable[[str], bool] = lambda what: True) -> Claim:
    """Return the claim that a figure is better than without assistants."""
    return _read(
        text,
        rows,
        lambda policy: _compared(rows, partial(_better, figure), "static", policy, of=of),
        lambda policy: _ratios(rows, figure, policy, of=of),
        f"{what} over that without assistants, of which at most {percent(LEAST)} is no difference",
    )


def _alone(rows: Sequence[Row]) -> Claim:
    text = "With imprecise costs, or other load, what the compiler has placed may not be optimal (section 3)"
    cells = _compared(rows, partial(_better, "after"), "static", "solved")
    return judged(text, cells, f"solved again, an iteration at last takes {span(_ratios(rows, 'after', 'solved'))} of the time")


def _imprecise(rows: Sequence[Row]) -> Claim:
    text = "The assistants account for the impreciseness of analytical costs (sections 1 and 3)"
    return _over_static(text, rows, "after", "an iteration at last", of=_stays)


def _adapts(rows: Sequence[Row]) -> Claim:
    text = "The system adapts to changes of the environment, and is faster than with a compiler only (sections 1 and 3)"
    claim = _over_static(text, rows, "after", "an iteration at last", of=_changes)
    losses = ", ".join(f"{POLICIES[policy]} {ends}" for policy in READINGS if (ends := span(_regained(rows, policy))))
    return replace(claim, reason=f"{claim.reason}; of the loss by the change are recovered: {losses}") if losses else claim


def _changes(what: str) -> bool:
    return what != "costs"


def _stays(what: str) -> bool:
    return what == "costs"


def _optimal(rows: Sequence[Row]) -> Claim:
    text = "The assistants migrate computations optimally (section 1)"

    def shares(policy: str) -> dict[str, list[float]]:
        return {} if policy == "solved" else {_name(place): _shares(rows, place, policy) for place in _places(rows)}

    claim = _read(
        text,
        rows,
        lambda policy: {name: [share >= NEAR for share in each] for name, each in shares(policy).items()},
        lambda policy: [share for each in shares(policy).values() for share in each],
        f"shares of what solving again recovers, where {NEAR} count as all",
    )
    times = span(_ratios(rows, "after", "searching", "solved"))
    more = f"; with ours that search iterations at last are {times} times as long as with solving again"
    return replace(claim, reason=claim.reason + more) if times else claim


def _utilised(rows: Sequence[Row]) -> Claim:
    text = "The resources of the system are effectively utilised (section 1): devices are busy for more of the time than without assistants"
    return _over_static(text, rows, "utilisation", "the share of the time that devices are busy")


def _tags(rows: Sequence[Row]) -> Claim:
    text = (
        "Tags let the assistants maximise the collective utilisation of resources (section 3): devices are busy for more of the time than "
        f"without tags, and for {NEAR} of that with the graph solved again"
    )

    def holds(own: Row, without: Row, solved: Row) -> bool:
        share: float = own["utilisation"]
        return bool(share > without["utilisation"] * (1 + LEAST) and share >= NEAR * solved["utilisation"])

    times = [span(_ratios(rows, "utilisation", "paper", other)) for other in ("untagged", "solved")]
    cells = _compared(rows, holds, "paper", "untagged", "solved")
    return judged(
        text, cells, f"they are busy for {times[0]} times the time without tags, for {times[1]} times that of solving again; {_NONE}"
    )


def _balance(rows: Sequence[Row]) -> Claim:
    text = "The assistants maintain a high load balance (conclusion): where devices become slow, the busiest is closer to the mean"
    return _over_static(text, rows, "balance", "the busy time of the busiest device over the mean,", of=_slow)


def _slow(what: str) -> bool:
    return what in ("busiest", "other", "several")


def _communication(rows: Sequence[Row]) -> Claim:
    text = "The assistants maintain low communication (conclusion): not more than the partition of the compiler"
    return _read(
        text,
        rows,
        lambda policy: _compared(rows, lambda own: own["bytes"] <= own["bytes_before"] * (1 + LEAST), policy),
        lambda policy: [row["bytes"] / row["bytes_before"] for place in _places(rows) for row in _of(rows, place, policy)],
        f"bytes between devices over those of the compiler, of which at most {percent(LEAST)} is no difference",
    )


SECTION_3 = Item(
    "section-3",
    "Section 3: scheduling assistants at run time",
    "the paper has no evaluation, and its assistants are hardware. Here iterations are simulated, on four equal GPUs, with "
    f"the graphs and durations of section-2 and noise of {percent(NOISE)} for each task; changes come after {CHANGE} of "
    f"{ITERATIONS} iterations. The first placement is repartition's from blocks, by operations; where costs are imprecise, "
    "these are all that a policy knows at first, otherwise it knows the durations before the change. "
    "Three readings of the paper's thresholds of 95 % and 50 % are here, and a claim is decided by the one that speaks for it "
    "most, not all by the same. "
    "`as printed`, utilisation is a share of the iteration, each device above offers one node, and each below takes one, which ones by "
    "chance. `as printed (relative)` differs in that utilisation is a share of that of the busiest device on the resource. With `moves "
    "that gain` it is relative too, and a node moves only if that shortens the estimated iteration, with cool-downs, probes, and "
    "estimates by a factor for each device and link: rules of ours, by which nothing moves where several devices are equally slow and no "
    "single move shortens the iteration. `without tags` is this one with all tasks bound by compute. With gamma 0.9, the search and the "
    "solve, which knows the change, are ours, not the paper's. What a policy decides takes no time. Each scenario has "
    f"{SEEDS} seeds, solving again {LIMIT:g} s.",
    cases,
    report,
    needs=(("torch", "torch"),),
    time="5 minutes",
)
