"""Section 3: scheduling assistants migrate tasks at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.papers.items import Case, Claim, Item, Report, Row, Setting, Table, Verdict
from hetsched.papers.rendering import number, percent
from hetsched.papers.tavarageri.judging import judged, so_far, span
from hetsched.papers.tavarageri.names import EQUAL, GRAPHS, OPERATIONS, QUICK, ROOFLINE

if TYPE_CHECKING:
    from hetsched.problem.problem import Problem
    from hetsched.runtime import Observation, Policy, Run, Scenario
    from hetsched.schedule.decision import Decision

CHOSEN = GRAPHS[:3]
FACTOR, LINK = 2.0, 4.0
SCENARIOS = {
    "costs": "the policy knows durations by operations only",
    "busiest": f"the busiest device takes {FACTOR:g} times as long",
    "other": f"the least busy device takes {FACTOR:g} times as long",
    "link": f"the link of most bytes takes {LINK:g} times as long",
}
POLICIES = {
    "static": "compiler only",
    "paper": "assistants",
    "untagged": "without tags",
    "assistants": "ours: gamma 0.9",
    "searching": "ours: searching",
    "solved": "ours: solved again",
}
DETAILED = ("static", "paper", "untagged", "searching")
NOISE = 0.05
ITERATIONS, CHANGE = 80, 40
SEEDS = 3
LIMIT, QUICK_LIMIT = 5.0, 3.0
"""Seconds of the solve that knows what the scenario changes."""
SETTLED = 0.05
"""Relative distance from its last level within which the time of an iteration has settled."""
LEAST = 0.01
"""Times that differ by at most this share are equal; and a smaller loss has no share that is recovered."""
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
    policy = _policy(case["policy"], actual.n_tasks)
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


def _policy(name: str, n_tasks: int) -> Policy | None:
    from hetsched.runtime import Assistants, SearchingAssistants
    from hetsched.runtime.tags import Tag

    makers: dict[str, Callable[[], Any]] = {
        "paper": lambda: Assistants(gamma=0.5),
        "untagged": lambda: Assistants(gamma=0.5, tags=np.full(n_tasks, Tag.COMPUTE)),
        "assistants": Assistants,
        "searching": SearchingAssistants,
    }
    return makers[name]() if name in makers else None


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
    lines = []
    for place in _places(rows):
        found = {policy: _of(rows, place, policy) for policy in POLICIES}
        before = [row["before"] for row in found["static"] if row["before"] is not None]
        after = [number(median(row["after"] for row in own)) if own else "" for own in found.values()]
        shares = [_shares(rows, place, policy) for policy in ("paper", "assistants", "searching")]
        recovered = [span(each) for each in shares]
        lines.append([_name(place), number(median(before)) if before else "", *after, *recovered])
    names = [POLICIES[policy] for policy in ("paper", "assistants", "searching")]
    head = ["median of the seeds", "before", *POLICIES.values(), *(f"share: {name}" for name in names)]
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
    head = ["mean of the seeds", "settled after", "busiest / mean", "utilisation", "GB between devices", "migrations", "pauses, ms"]
    return Table(head, lines)


def _name(place: tuple[str, str]) -> str:
    return f"{place[0]}: {place[1]}"


def _compared(
    rows: Sequence[Row], holds: Callable[..., bool], *policies: str, of: Callable[[str], bool] = lambda what: True
) -> dict[str, list[bool]]:
    """Return whether something holds of the rows of some policies, by graph and scenario, for each seed."""
    return {_name(place): [holds(*found) for found in _together(rows, place, *policies)] for place in _places(rows) if of(place[1])}


def _faster(static: Row, own: Row) -> bool:
    return bool(own["after"] < static["after"] * (1 - LEAST))


def _ratios(
    rows: Sequence[Row], what: str, policy: str, other: str = "static", of: Callable[[str], bool] = lambda what: True
) -> list[float]:
    """Return a figure under a policy over that under another one, for each graph, scenario and seed."""
    places = [place for place in _places(rows) if of(place[1])]
    return [own[what] / rival[what] for place in places for own, rival in _together(rows, place, policy, other)]


def _regained(rows: Sequence[Row]) -> list[float]:
    """Return the shares of the loss by a change that the assistants recover, where there is one."""
    pairs = [pair for place in _places(rows) for pair in _together(rows, place, "static", "paper")]
    return [
        (static["after"] - own["after"]) / (static["after"] - static["before"])
        for static, own in pairs
        if static["before"] is not None and static["after"] > static["before"] * (1 + LEAST)
    ]


def _against_static(text: str, rows: Sequence[Row], of: Callable[[str], bool], more: str = "") -> Claim:
    policies = ("paper", "searching", "solved")
    times = ", ".join(f"{POLICIES[policy]} {told}" for policy in policies if (told := span(_ratios(rows, "after", policy, of=of))))
    figures = f"an iteration at last over one without assistants: {times}{more}; a gain of at most {percent(LEAST)} is none"
    return judged(text, _compared(rows, _faster, "static", "paper", of=of), figures)


def _alone(rows: Sequence[Row]) -> Claim:
    text = "With imprecise costs, or other load, what the compiler has placed may not be optimal (section 3)"
    cells = _compared(rows, _faster, "static", "solved")
    return judged(text, cells, f"solved again, an iteration at last takes {span(_ratios(rows, 'after', 'solved'))} of the time")


def _imprecise(rows: Sequence[Row]) -> Claim:
    text = "The assistants account for the impreciseness of analytical costs (sections 1 and 3)"
    return _against_static(text, rows, _stays)


def _adapts(rows: Sequence[Row]) -> Claim:
    text = "The system adapts to changes of the environment, and is faster than with a compiler only (sections 1 and 3)"
    loss = span(_regained(rows))
    return _against_static(text, rows, _changes, f"; of the loss by the change the assistants recover {loss}" if loss else "")


def _changes(what: str) -> bool:
    return what != "costs"


def _stays(what: str) -> bool:
    return what == "costs"


def _optimal(rows: Sequence[Row]) -> Claim:
    text = "The assistants migrate computations optimally (section 1)"
    shares = {_name(place): _shares(rows, place, "paper") for place in _places(rows)}
    every = [share for each in shares.values() for share in each]
    if not every:
        return Claim(text, Verdict.UNSEEN, "not measured, or solving again gains nothing")
    ours = [share for place in _places(rows) for share in _shares(rows, place, "searching")]
    figures = f"they recover {span(every)} of what solving again does, where {NEAR} count as all"
    times = span(_ratios(rows, "after", "searching", "solved"))
    beside = f"; ours that search {span(ours)}, and end with iterations {times} times as long as with solving again" if ours else ""
    return judged(text, {name: [share >= NEAR for share in each] for name, each in shares.items()}, figures + beside)


def _beside(rows: Sequence[Row], what: str, of: Callable[[str], bool] = lambda what: True) -> str:
    """Return a figure under the assistants, and under ours, over that without."""
    own, ours = (span(_ratios(rows, what, policy, of=of)) for policy in ("paper", "searching"))
    return f"{own} times that without assistants" + (f", with ours that search {ours} times" if ours else "")


def _utilised(rows: Sequence[Row]) -> Claim:
    text = "The resources of the system are effectively utilised (section 1): devices are busy for more of the time than without assistants"
    cells = _compared(rows, lambda static, own: own["utilisation"] > static["utilisation"] * (1 + LEAST), "static", "paper")
    return judged(text, cells, f"the share of the time that devices are busy is {_beside(rows, 'utilisation')}; {_NONE}")


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
    text = "The assistants maintain a high load balance (conclusion): where a device becomes slow, the busiest is closer to the mean"
    cells = _compared(rows, lambda static, own: own["balance"] < static["balance"] * (1 - LEAST), "static", "paper", of=_slow)
    return judged(text, cells, f"the busy time of the busiest device over the mean is {_beside(rows, 'balance', _slow)}; {_NONE}")


def _slow(what: str) -> bool:
    return what in ("busiest", "other")


def _communication(rows: Sequence[Row]) -> Claim:
    text = "The assistants maintain low communication (conclusion): not more than the partition of the compiler"
    cells = _compared(rows, lambda own: own["bytes"] <= own["bytes_before"] * (1 + LEAST), "paper")
    more = [row["bytes"] / row["bytes_before"] for place in _places(rows) for row in _of(rows, place, "paper")]
    return judged(text, cells, f"bytes between devices are {span(more)} times those of the compiler; {_NONE}")


SECTION_3 = Item(
    "section-3",
    "Section 3: scheduling assistants at run time",
    "the paper has no evaluation, and its assistants are hardware. Here iterations are simulated, on four equal GPUs, with "
    f"the graphs and durations of section-2 and noise of {percent(NOISE)} for each task; changes come after {CHANGE} of "
    f"{ITERATIONS} iterations. The first placement is repartition's from blocks, by operations; where costs are imprecise, "
    "these are all that a policy knows at first, otherwise it knows the durations before the change. Utilisation is "
    "relative to the device that is busiest on a resource. Which task a device offers and takes is open in the paper: here "
    "a move must shorten the estimated iteration, a rule of ours, as are cool-downs, probes, and estimates by a factor for "
    "each device and link. By that rule nothing moves where several devices are equally slow and no single move shortens the "
    "iteration, even if several together would; verdicts of *not held* may rest on it. `assistants` have the paper's "
    "thresholds of 95 % and 50 %; without tags all tasks count as bound by compute. With gamma 0.9, the search and the "
    "solve, which knows the change, are ours, not the paper's. What a "
    "policy decides takes no time.",
    cases,
    report,
    needs=(("torch", "torch"),),
    time="5 minutes",
)
