"""The stages of IOS: optima against all partitions, counts against brute force, lazy costs, blocks."""

from __future__ import annotations

import itertools
import math
import random
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.analysis.chains import chains
from hetsched.analysis.closure import ancestors
from hetsched.models.ios import block_states, counting
from hetsched.models.ios import dynamic_program as ios
from hetsched.testing.profiles import examples
from hetsched.testing.strategies import task_graphs

INF = math.inf
LIMITS = st.one_of(st.none(), st.integers(1, 3))
GRAPHS = task_graphs(n_tasks=st.integers(1, 6), colocation=False, pins=False)


class Table:
    """Random costs of each stage and strategy, in eighths; some stages cannot be merged. Records the calls."""

    def __init__(self, seed: int, share: float = 0.0) -> None:
        self.seed, self.share, self.asked = seed, share, []

    def worth(self, tasks, strategy):
        draw = random.Random(f"{self.seed} {sorted(tasks)} {strategy}")
        return INF if strategy == "merge" and draw.random() < 0.5 else draw.randrange(1, 8 * (1 + len(tasks))) / 8

    def __call__(self, tasks, strategy):
        self.asked.append((tasks, strategy))
        return self.worth(tasks, strategy)

    def bound(self, tasks, strategy):
        return self.worth(tasks, strategy) * self.share if self.share else 0.0


def components(graph, part):
    """Return the sizes of the connected components of some tasks, by graph search."""
    left, sizes = set(part), []
    while left:
        todo, size = [left.pop()], 0
        while todo:
            i = todo.pop()
            size += 1
            near = {b for a, b in graph.edges.tolist() if a == i} | {a for a, b in graph.edges.tolist() if b == i}
            todo += near & left
            left -= near
        sizes.append(size)
    return sizes


def endings(graph, state):
    """Return the non-empty subsets of a state without an edge to the rest of the state."""
    for size in range(1, len(state) + 1):
        for part in itertools.combinations(sorted(state), size):
            if not any(a in part and b in state and b not in part for a, b in graph.edges.tolist()):
                yield frozenset(part)


def allowed(graph, part, groups, size):
    sizes = components(graph, part)
    return (groups is None or len(sizes) <= groups) and (size is None or max(sizes) <= size)


def optimum(graph, cost, groups, size, strategies):
    """Return the least cost of all stage partitions by enumeration, without bit sets or kernels."""
    names = graph.names

    def price(part):
        tasks = tuple(names[i] for i in sorted(part))
        kinds = (
            ["concurrent"]
            if len(part) == 1 or strategies == "concurrent"
            else ["merge"]
            if strategies == "merge"
            else ["concurrent", "merge"]
        )
        return min(cost.worth(tasks, kind) for kind in kinds)

    def partitions(state):
        if not state:
            yield 0.0
        for part in endings(graph, state):
            if allowed(graph, part, groups, size):
                own = price(part)
                for rest in partitions(state - part):
                    yield rest + own

    return min(partitions(frozenset(range(graph.n_tasks))), default=INF)


def solved(graph, cost, **settings):
    """Return the latency, inf if there is none, and the stages, which are verified."""
    try:
        stages = hs.stages(graph, cost, **settings)
    except hs.Infeasible:
        return INF, None
    limits = {key: settings.get(key, default) for key, default in (("groups", 8), ("group_size", 3))}
    assert hs.verify_stages(graph, stages, **limits, cost=cost.worth) == []
    return stages.latency, stages


@given(
    task_graphs(n_tasks=st.integers(1, 5), colocation=False, pins=False),
    LIMITS,
    LIMITS,
    st.sampled_from(["concurrent", "merge", "both"]),
    st.integers(0, 999),
)
@examples(60)
def test_the_optimum_of_all_partitions(graph, groups, size, strategies, seed):
    cost = Table(seed)
    value, _ = solved(graph, cost, groups=groups, group_size=size, strategies=strategies, blocks=False)
    assert value == optimum(graph, cost, groups, size, strategies)


@given(GRAPHS, LIMITS, LIMITS, st.booleans(), st.integers(0, 999), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
@examples(60)
def test_bounds_save_costs_and_change_nothing(graph, groups, size, blocks, seed, share):
    plain, lazy = Table(seed), Table(seed, share)
    limits = {"groups": groups, "group_size": size, "blocks": blocks}
    expected, every_stage = solved(graph, plain, **limits)
    value, stages = solved(graph, lazy, **limits, bound=lazy.bound)
    assert value == pytest.approx(expected, rel=1e-6)
    assert len(set(lazy.asked)) == len(lazy.asked), "a stage is asked for once"
    assert set(lazy.asked) <= set(plain.asked)
    assert len(set(plain.asked)) == len(plain.asked)
    if stages is not None:
        assert every_stage.asked == every_stage.possible == len(plain.asked)
        assert stages.asked == len(lazy.asked) <= stages.possible <= len(plain.asked)


@given(GRAPHS, LIMITS, LIMITS, st.integers(0, 999), st.integers(1, 4))
@examples(60)
def test_a_model_proposes_and_costs_decide(graph, groups, size, seed, finalists):
    cost, model = Table(seed), Table(seed + 1)
    limits = {"groups": groups, "group_size": size}
    try:
        one = hs.stages(graph, cost, propose=model, finalists=1, **limits)
    except hs.Infeasible:
        return  # what the model finds possible is not
    best = hs.stages(graph, cost, propose=model, finalists=finalists, **limits)
    assert hs.verify_stages(graph, best, **limits, cost=Table(seed)) == []
    assert best.latency <= one.latency
    assert len(one) <= one.asked <= best.asked <= best.possible
    exact = hs.stages(graph, Table(seed), propose=Table(seed), finalists=finalists, **limits)
    assert exact.latency == pytest.approx(hs.stages(graph, Table(seed), **limits).latency)
    assert exact.asked == len(exact)
    assert exact.bound == 0


def test_what_was_measured_corrects_the_model():
    """The model is right about all pairs but that of a and b, which it likes best."""
    graph = hs.TaskGraph(list("abcdef"), op="conv")
    limits = {"groups": 2, "group_size": 1, "strategies": "concurrent"}

    def model(tasks, strategy):
        return 1.0 if len(tasks) == 1 else 1.4 if tasks == ("a", "b") else 1.5

    def cost(tasks, strategy):
        return 10.0 if tasks == ("a", "b") else model(tasks, strategy)

    one, two = (hs.stages(graph, cost, propose=model, finalists=k, **limits) for k in (1, 2))
    assert (one.latency, one.asked) == (13.0, 3)
    assert (two.latency, two.asked) == (4.5, 5), "one pair was measured before"
    assert hs.stages(graph, cost, propose=model, finalists=9, **limits) == two
    with pytest.raises(hs.UnsupportedFeature, match="give `bound` or `propose`"):
        hs.stages(graph, cost, propose=model, bound=cost)


def test_an_evaluated_schedule_is_kept_when_the_search_is_stopped():
    graph = hs.TaskGraph(list("abcdef"), op="conv")
    asked = []
    for seed in range(9):
        whole = hs.stages(graph, Table(seed), propose=Table(-1 - seed), finalists=99)
        stopped = hs.stages(graph, Table(seed), propose=Table(-1 - seed), finalists=99, on_progress=lambda progress: True)
        assert hs.verify_stages(graph, stopped, cost=Table(seed)) == []
        asked.append((stopped.asked, whole.asked))
    assert all(few <= all_of_them for few, all_of_them in asked)
    assert any(few < all_of_them for few, all_of_them in asked)


def test_tight_bounds_avoid_most_costs():
    graph = hs.workloads.rwnn("ws", 16, modules=1, seed=1)
    cost = hs.costs.Contention(graph, hs.costs.device("v100"))
    plain = hs.stages(graph, cost)
    lazy = hs.stages(graph, cost, bound=cost.bound)
    assert lazy.latency == pytest.approx(plain.latency, rel=1e-6)
    assert lazy.asked < lazy.possible / 4


@given(GRAPHS, LIMITS, LIMITS)
@examples(60)
def test_every_ending_and_no_other(graph, groups, size):
    block = ios.Block(graph, graph.topological_order, groups, size)
    states = {0: frozenset()}
    met = set()
    for tail, head, stage in zip(block.tail.tolist(), block.head.tolist(), block.stage.tolist(), strict=True):
        part = frozenset(graph.index[name] for name in block.members(stage))
        states.setdefault(head, states[tail] | part)
        assert states[head] == states[tail] | part
        assert (states[head], part) not in met, "a transition twice"
        met.add((states[head], part))
    assert len(set(states.values())) == len(states) == block.n_states
    everything = {(state, part) for state in states.values() for part in endings(graph, state) if allowed(graph, part, groups, size)}
    assert met == everything


@given(GRAPHS, st.integers(0, 999), st.randoms())
@examples(30)
def test_names_and_their_order_do_not_matter(graph, seed, rng):
    cost = Table(seed)
    order = list(range(graph.n_tasks))
    rng.shuffle(order)
    names = [graph.names[i] for i in order]
    other = hs.TaskGraph(names, [(graph.names[i], graph.names[j]) for i, j in graph.edges.tolist()])
    assert solved(other, cost)[0] == pytest.approx(solved(graph, cost)[0])
    same, again = counting.counts(graph), counting.counts(other)
    assert (same.width, same.transitions, same.schedules) == (again.width, again.transitions, again.schedules)


@pytest.mark.parametrize("limits", [(None, None), (2, 2), (8, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_a_linear_program_agrees(limits, seed):
    graph, cost = hs.workloads.rwnn("er", 7, modules=1, seed=seed), Table(seed)
    search = ios._Search(ios.Block(graph, graph.topological_order, *limits), cost, "both", None)
    model, _ = search.program().to_model()
    value = hs.stages(graph, cost, groups=limits[0], group_size=limits[1], blocks=False).latency
    assert model.solve("scip").objective == pytest.approx(value)


def test_a_stage_is_one_of_many_tasks():
    """Blocks of more than 64 tasks: bit sets of several words."""
    graph = hs.TaskGraph([f"t{i}" for i in range(70)], [(f"t{i}", f"t{i + 2}") for i in range(68)])  # two chains of 35
    cost = lambda tasks, strategy: 1.0 if len(tasks) <= 6 else 9.0  # noqa: E731
    stages = hs.stages(graph, cost, strategies="concurrent")
    assert stages.latency == math.ceil(70 / 6)
    assert hs.verify_stages(graph, stages, groups=8, group_size=3, cost=cost) == []


def test_impossible_stages_are_avoided():
    """The path of least bound has a stage of infinite cost; in the second case every path has one."""
    graph = diamonds(1)
    cost = lambda tasks, strategy: INF if len(tasks) > 1 else 1.0  # noqa: E731
    stages = hs.stages(graph, cost, bound=lambda tasks, strategy: 0.5)
    assert stages.latency == 4.0
    assert hs.verify_stages(graph, stages, cost=cost) == []
    with pytest.raises(hs.Infeasible, match="infinite cost"):
        hs.stages(graph, lambda tasks, strategy: INF, bound=lambda tasks, strategy: 0.5)


# ---------------------------------------------------------------------- blocks and baselines


def diamonds(count):
    """Return diamonds in series, each from the end of the previous one."""
    arcs = [(f"{x}{a}", f"{x}{b}") for x in range(count) for a, b in ("ab", "ac", "bd", "cd")]
    joins = [(f"{x}d", f"{x + 1}a") for x in range(count - 1)]
    return hs.TaskGraph([f"{x}{letter}" for x in range(count) for letter in "abcd"], arcs + joins)


def test_blocks_end_where_all_paths_meet():
    assert ios.blocks(diamonds(2)) == [("0a",), ("0b", "0c", "0d"), ("1a",), ("1b", "1c", "1d")]
    chain = hs.TaskGraph(list("abc"), [("a", "b"), ("b", "c")])
    assert ios.blocks(chain) == [("a", "b", "c")]
    assert ios.blocks(hs.TaskGraph(list("ab"), [])) == [("a", "b")]
    assert ios.blocks(hs.TaskGraph([], [])) == []


@given(GRAPHS, st.integers(0, 999))
@examples(40)
def test_blocks_are_the_best_that_no_stage_reaches_over(graph, seed):
    cost = Table(seed)
    block = {name: x for x, own in enumerate(ios.blocks(graph)) for name in own}
    assert sorted(block) == sorted(graph.names)

    def within(tasks, strategy):
        return cost.worth(tasks, strategy) if len({block[name] for name in tasks}) == 1 else INF

    def value(**settings):
        try:
            return hs.stages(graph, **settings).latency
        except hs.Infeasible:
            return INF

    assert value(cost=cost) == value(cost=within, blocks=False) >= value(cost=cost, blocks=False)


@given(GRAPHS, st.integers(0, 999))
@examples(30)
def test_the_baselines_are_schedules_and_no_better(graph, seed):
    cost = Table(seed)
    best = hs.stages(graph, cost, groups=None, group_size=None, blocks=False).latency
    for baseline in (ios.sequential, ios.greedy):
        stages = baseline(graph, cost)
        assert hs.verify_stages(graph, stages, cost=cost.worth) == []
        assert stages.latency >= best
    assert len(ios.sequential(graph, cost)) == graph.n_tasks
    assert ios.greedy(graph, cost).stages.latency.size == max((len(list(path)) for path in _longest(graph)), default=0), (
        "as many stages as a longest path has tasks"
    )


def _longest(graph):
    def below(i):
        following = graph.succ[graph.succ_ptr[i] : graph.succ_ptr[i + 1]].tolist()
        return max(([i, *below(j)] for j in following), key=len, default=[i])

    return [below(i) for i in range(graph.n_tasks)]


def test_an_empty_graph():
    stages = hs.stages(hs.TaskGraph([], []), Table(0))
    assert (len(stages), stages.latency, stages.asked, stages.possible) == (0, 0.0, 0, 0)
    sizes = counting.counts(hs.TaskGraph([], []))
    assert (sizes.width, sizes.transitions, sizes.schedules, sizes.bound) == (0, 0, 1, 1.0)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"groups": 0}, hs.UnsupportedFeature, "groups is 0"),
        ({"group_size": 1.5}, hs.UnsupportedFeature, "group_size is 1.5"),
        ({"strategies": "all"}, hs.UnsupportedFeature, "choose one of 'concurrent', 'merge', 'both'"),
        ({"cost": lambda tasks, strategy: -1.0}, hs.InvalidProblem, "stage '0a' .* costs -1.0 s"),
        ({"cost": lambda tasks, strategy: math.nan}, hs.InvalidProblem, "must be a number"),
        ({"cost": lambda tasks, strategy: INF}, hs.Infeasible, "infinite cost"),
        ({"bound": lambda tasks, strategy: 1e3}, hs.InvalidProblem, "a bound must never exceed the cost"),
        ({"part_size": 0}, hs.UnsupportedFeature, "part_size is 0"),
    ],
)
def test_what_cannot_be_is_refused(settings, error, message):
    with pytest.raises(error, match=message):
        hs.stages(diamonds(1), **{"cost": Table(0), **settings})


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "most"), [("MOST_TRANSITIONS", 1 << 14), ("MOST_STATES", 1000)])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_block_that_is_too_wide_is_cut_while_the_others_stay_at_their_optimum(monkeypatch, limit, most, layers):
    narrow = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    columns = [[f"w{i}", f"x{i}"][:layers] for i in range(12)]
    wide = [pair for column in columns for pair in itertools.pairwise(["d", *column, "end"])]
    graph = hs.TaskGraph([*"abcd", *itertools.chain(*columns), "end"], narrow + wide)
    exact = hs.stages(hs.TaskGraph(list("abcd"), narrow), Table(0))
    monkeypatch.setattr(block_states, "MOST_TRANSITIONS", 1 << 23)
    monkeypatch.setattr(block_states, limit, most)
    stages = hs.stages(graph, Table(0), bound=lambda tasks, strategy: 0.0)
    assert hs.verify_stages(graph, stages, groups=8, group_size=3, cost=Table(0)) == []
    (message,) = stages.messages
    assert re.match(rf"the block of {12 * layers + 1} tasks 'w0', .* is too wide to be solved as one and was cut into \d+ parts", message)
    first = [s for s in range(len(stages)) if stages.groups(s)[0][0] in "abcd"]
    assert sum(stages.stages.latency[s] for s in first) == pytest.approx(exact.latency)
    assert stages.bound == pytest.approx(exact.latency)  # there is no proof for the block that was cut
    cut = {frozenset(itertools.chain(*stages.groups(s))) for s in range(len(stages))}
    if layers == 2:  # the first cut is between two levels
        assert not any({name[0] for name in stage} >= {"w", "x"} for stage in cut)


# ---------------------------------------------------------------------- counts


@given(GRAPHS)
@examples(60)
def test_counts_are_those_of_brute_force(graph):
    n, counts = graph.n_tasks, counting.counts(graph)
    below = ancestors(graph)
    free = [
        part
        for size in range(n + 1)
        for part in itertools.combinations(range(n), size)
        if not any(below[a, b] or below[b, a] for a, b in itertools.combinations(part, 2))
    ]
    assert counts.width == max(map(len, free))

    @cache
    def ways(state):
        return sum(ways(state - part) for part in endings(graph, state)) if state else 1

    everything = frozenset(range(n))
    assert counts.schedules == ways(everything)
    states = {everything - part for part in endings(graph, everything)} | {everything}
    assert counts.transitions == sum(1 for state in states for _ in endings(graph, state))
    assert counts.transitions <= counts.chain_bound <= counts.bound * (1 + 1e-12)


def published(graph, part):
    """Return whether each group of a stage is one of its tasks and all descendants of that task in the stage."""
    arcs = [(a, b) for a, b in graph.edges.tolist() if a in part and b in part]
    first = part - {b for _, b in arcs}
    reached = []
    for task in first:
        own = {task}
        while more := {b for a, b in arcs if a in own} - own:
            own |= more
        reached.append(own)
    return sum(map(len, reached)) == len(part)  # no task is reached from two


@given(GRAPHS, st.sampled_from(["all", "published"]), LIMITS, LIMITS)
@examples(100)
def test_counts_under_a_rule_and_limits_are_those_of_brute_force(graph, rule, groups, size):
    def stages(state):
        return [part for part in endings(graph, state) if allowed(graph, part, groups, size) and (rule == "all" or published(graph, part))]

    @cache
    def ways(state):
        return sum(ways(state - part) for part in stages(state)) if state else 1

    everything = frozenset(range(graph.n_tasks))
    states = {everything - part for part in endings(graph, everything)} | {everything}
    counts = counting.counts(graph, rule=rule, groups=groups, group_size=size)
    assert counts.transitions == sum(len(stages(state)) for state in states)
    assert counts.schedules == ways(everything)
    block = ios.Block(graph, graph.topological_order, groups, size)
    assert counts.transitions <= len(block.tail)
    assert counts.transitions == len(block.tail) or rule == "published"


def test_a_join_of_two_groups_is_what_the_rules_differ_by():
    graph = hs.TaskGraph(list("abc"), [("a", "c"), ("b", "c")])  # {a, b, c} is no stage of the program
    every, some = (counting.counts(graph, rule=rule) for rule in ("all", "published"))
    assert (every.transitions, every.schedules) == (9, 6)
    assert (some.transitions, some.schedules) == (8, 5)
    assert (every.width, every.bound) == (some.width, some.bound)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"groups": 0}, "groups is 0"), ({"group_size": 1.5}, "group_size is 1.5"), ({"rule": "some"}, "choose one of 'all', 'published'")],
)
def test_counts_of_what_cannot_be_are_refused(settings, message):
    with pytest.raises(hs.UnsupportedFeature, match=message):
        counting.counts(diamonds(1), **settings)


@given(GRAPHS)
def test_chains_are_chains(graph):
    below, chain = ancestors(graph), chains(graph)
    for a, b in itertools.combinations(range(graph.n_tasks), 2):
        assert chain[a] != chain[b] or below[a, b] or below[b, a]


@pytest.mark.parametrize(("d", "c"), [(1, 1), (2, 3), (3, 2), (2, 9), (6, 4), (30, 30)])
def test_the_worst_case_family(d, c):
    """d chains of c tasks, the paper's figure 13: all pairs but those with an empty ending."""
    names = [[f"{x}.{y}" for y in range(c)] for x in range(d)]
    graph = hs.TaskGraph([name for row in names for name in row], [pair for row in names for pair in itertools.pairwise(row)])
    counts = counting.counts(graph)
    assert counts.width == d
    assert counts.transitions == math.comb(c + 2, 2) ** d - (c + 1) ** d
    assert counts.chain_bound == math.comb(c + 2, 2) ** d
    assert counts.bound == pytest.approx(float(Fraction(counts.chain_bound)))


def test_schedules_beyond_one_word():
    """Without edges, schedules are the ordered set partitions, counted by their recursion."""
    expected = [1]
    for n in range(1, 13):
        expected.append(sum(math.comb(n, k) * expected[n - k] for k in range(1, n + 1)))
    assert counting.counts(hs.TaskGraph([f"t{i}" for i in range(12)], [])).schedules == expected[12]
    chain = hs.TaskGraph([f"t{i}" for i in range(80)], [(f"t{i}", f"t{i + 1}") for i in range(79)])
    assert counting.counts(chain).schedules == 2**79


def wiring(path: Path):
    numbers = np.array(path.read_text(encoding="utf-8").split(), np.int64)
    return hs.TaskGraph([f"n{i}" for i in range(int(numbers[0]))], numbers[2:].reshape(-1, 2))


@pytest.mark.parametrize("file", sorted(["ws-16-4-0.75-2", "ws-32-4-0.75-3", "ws-32-4-0.75-4", "ws-32-4-0.75-5"]))
def test_wirings_of_randwire(shared_data: Path, file):
    graph = wiring(shared_data / "ios" / f"{file}.txt")
    counts, pruned = counting.counts(graph), ios.Block(graph, graph.topological_order, 8, 3)
    assert len(pruned.tail) < counts.transitions < counts.chain_bound <= counts.bound
    if graph.n_tasks == 16:
        unlimited = ios.Block(graph, graph.topological_order, None, None)
        assert len(unlimited.tail) == counts.transitions


# Table 1 of the paper, to all of its digits: tasks, width, bound, transitions and schedules of the largest blocks, and these two
# by the rule of the authors' program in full.

INCEPTION = [
    *("x one", "x three", "three wide", "three tall", "x reduce", "reduce double", "double wide2", "double tall2", "x pool"),
    *("pool project", "one cat", "wide cat", "tall cat", "wide2 cat", "tall2 cat", "project cat"),
]
FIRE = ["x squeeze", "x bypass", "squeeze one", "squeeze three", "one cat", "three cat", "cat add", "bypass add"]


def block_of(arcs: list[str]) -> hs.TaskGraph:
    """Return the graph of a block whose input is x, which is no operator of it."""
    pairs = [tuple(arc.split()) for arc in arcs]
    return hs.TaskGraph(list(dict.fromkeys(b for _, b in pairs)), [pair for pair in pairs if pair[0] != "x"])


def randwire_block(shared_data: Path) -> hs.TaskGraph:
    graph = wiring(shared_data / "ios" / "ws-32-4-0.75-4.txt")
    arcs = [(graph.names[i], graph.names[j]) for i, j in graph.edges.tolist()]
    return hs.TaskGraph([*graph.names, "sum"], arcs + [(name, "sum") for name in set(graph.names) - {i for i, _ in arcs}])


def nasnet_block(_: Path) -> hs.TaskGraph:
    graph = hs.workloads.units.nasnet_large()
    return part(graph, [name for name in graph.names if name.startswith("cells.2.")])


@pytest.mark.parametrize(
    ("make", "sizes", "table", "counted", "every"),
    [
        (lambda _: block_of(INCEPTION), (11, 6), ("2.6e+04", "4.9e+03", "3.8e+06"), (4_871, 3_757_392), (5_040, 4_410_136)),
        (
            randwire_block,
            (33, 8),
            ("3.7e+09", "1.2e+06", "9.2e+22"),
            (1_170_663, 91_973_106_270_886_052_032_664),
            (3_560_808, 118_464_662_394_143_512_150_016),
        ),
        (nasnet_block, (18, 8), ("5.2e+06", "3.1e+05", "7.2e+12"), (307_841, 7_150_961_274_600), (335_331, 8_839_301_008_800)),
        (lambda _: block_of(FIRE), (6, 3), ("2.2e+02", "5.1e+01", "1.3e+02"), (51, 131), (60, 152)),
    ],
    ids=["inception_v3", "randwire", "nasnet", "squeezenet"],
)
def test_table_1(request, make, sizes, table, counted, every):
    graph = make(request.getfixturevalue("shared_data") if make is randwire_block else Path())
    here, ours = counting.counts(graph, rule="published"), counting.counts(graph)
    assert (graph.n_tasks, here.width) == sizes
    assert tuple(f"{number:.1e}" for number in (here.bound, here.transitions, here.schedules)) == table
    assert (here.transitions, here.schedules) == counted
    assert (ours.transitions, ours.schedules) == every


# ---------------------------------------------------------------------- blocks given by the caller


@given(GRAPHS, st.integers(0, 1000), st.data())
def test_given_blocks_are_scheduled_one_by_one(graph, seed, data):
    cost = Table(seed)
    order = [graph.names[i] for i in graph.topological_order]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(order) - 1)))) if len(order) > 1 else []
    parts = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]
    stages = hs.stages(graph, cost, blocks=parts)
    assert hs.verify_stages(graph, stages, groups=8, group_size=3, cost=cost) == []
    assert stages.latency >= hs.stages(graph, cost, blocks=False).latency
    alone = sum(hs.stages(part(graph, names), cost, blocks=False).latency for names in parts)
    assert stages.latency == pytest.approx(alone)


@given(GRAPHS, st.integers(0, 1000), st.integers(1, 6), st.booleans())
def test_parts_of_a_size_are_blocks_of_as_many_consecutive_tasks(graph, seed, size, blocks):
    cost = Table(seed)
    whole = [[graph.index[name] for name in block] for block in ios.blocks(graph)] if blocks else [graph.topological_order.tolist()]
    parts = [[graph.names[i] for i in block[a : a + size]] for block in whole for a in range(0, len(block), size)]
    stages, given = hs.stages(graph, cost, blocks=blocks, part_size=size), hs.stages(graph, cost, blocks=parts)
    assert [stages.groups(s) for s in range(len(stages))] == [given.groups(s) for s in range(len(given))]
    assert stages.latency == given.latency
    assert hs.verify_stages(graph, stages, groups=8, group_size=3, cost=cost) == []
    cut = [block for block in whole if len(block) > size]
    assert len(stages.messages) == len(cut)
    assert all(f"has more than {size} tasks and was cut into" in message for message in stages.messages)
    if not cut:
        assert stages.bound == pytest.approx(stages.latency)


def part(graph, names):
    edges = [(graph.names[i], graph.names[j]) for i, j in graph.edges.tolist()]
    return hs.TaskGraph(names, [edge for edge in edges if set(edge) <= set(names)])


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([["a"], ["b"]], "'c' is in none of the blocks"),
        ([["a", "b"], ["b", "c"]], r"'b' is in blocks\[0\] and in blocks\[1\]; it can be in one"),
        ([["a", "b", "c", "d"]], r"blocks\[0\] names 'd', which is not a task of the graph"),
        ([["b", "c"], ["a"]], r"'b' of blocks\[0\] reads 'a' of blocks\[1\]; give blocks in the order of execution"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(blocks, message):
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b"), ("b", "c")])
    with pytest.raises(hs.InvalidProblem, match=message):
        hs.stages(graph, Table(0), blocks=blocks)


class Tabled(Table):
    """Costs, or bounds, that are also available as a table."""

    def __init__(self, seed, share=0.0, spoil=None):
        super().__init__(seed, share)
        self.spoil, self.tables = spoil, 0

    def table(self, names, parent, last):
        self.tables += 1
        members = [()]
        for s in range(1, len(parent)):
            members.append((*members[parent[s]], names[last[s]]))
        costs = np.array([[0.0, 0.0], *([self.worth(tasks, strategy) for strategy in ("concurrent", "merge")] for tasks in members[1:])])
        return costs if self.spoil is None else self.spoil(costs)


@given(GRAPHS, LIMITS, LIMITS, st.integers(0, 1000), st.sampled_from(["concurrent", "merge", "both"]))
def test_a_table_has_the_costs_of_single_calls(graph, groups, size, seed, strategies):
    limits = {"groups": groups, "group_size": size, "strategies": strategies}
    one, all_at_once = Table(seed), Tabled(seed)
    stages = hs.stages(graph, all_at_once, **limits)
    assert stages == hs.stages(graph, one, **limits)
    assert all_at_once.tables == len(ios.blocks(graph))
    assert all_at_once.asked == []
    assert hs.stages(graph, one, bound=Tabled(seed), **limits).latency == pytest.approx(stages.latency, rel=1e-6)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda table: table[1:], r"table returned shape \(1, 2\) for 2 stages; it must be \[stages, 2\]"),
        (lambda table: table - 100, r"stage 'a' \(concurrent\) costs -9.* s; a cost must be a number >= 0, or inf"),
        (lambda table: table * np.nan, r"stage 'a' \(concurrent\) costs nan s"),
    ],
)
def test_tables_that_are_none_are_refused(spoil, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        hs.stages(hs.TaskGraph(["a"]), Tabled(1, spoil=spoil))


# ---------------------------------------------------------------------- progress and stops


@given(GRAPHS, LIMITS, LIMITS, st.integers(0, 1000), st.integers(0, 12), st.sampled_from(["concurrent", "merge", "both"]))
def test_a_search_that_is_stopped_keeps_valid_stages_and_a_bound(graph, groups, size, seed, after, strategies):
    limits = {"groups": groups, "group_size": size}
    cost, reports = Table(seed, 0.5), []

    def watch(progress):
        reports.append(progress)
        return progress.asked > after

    stages = hs.stages(graph, cost, bound=cost.bound, strategies=strategies, on_progress=watch, **limits)
    best = hs.stages(graph, cost, strategies=strategies, **limits)
    assert hs.verify_stages(graph, stages, cost=cost, **limits) == []
    assert stages.bound <= best.latency * (1 + 1e-9) <= stages.latency * (1 + 2e-9)
    assert best.bound == pytest.approx(best.latency)
    assert [progress.asked for progress in reports] == list(range(1, stages.asked + 1))
    assert all(0 <= progress.block < progress.blocks == len(ios.blocks(graph)) for progress in reports)


def test_no_time_leaves_the_stages_that_are_best_by_the_bounds():
    graph = hs.TaskGraph(["a", "b", "c"], [("a", "b"), ("a", "c")])
    cost = Table(3, 0.5)
    stages = hs.stages(graph, cost, bound=cost.bound, time_limit=0)
    assert hs.verify_stages(graph, stages, cost=cost) == []
    assert stages.bound <= stages.latency


@pytest.mark.parametrize(
    ("limit", "bound", "rule"),
    [(-1.0, True, "it must be"), (math.nan, True, "it must be"), (1.0, False, "costs that may be left out need a bound")],
)
def test_time_limits_that_cannot_be_kept_are_refused(limit, bound, rule):
    cost = Table(0)
    with pytest.raises(hs.UnsupportedFeature, match=rf"time_limit is .*; {rule}"):
        hs.stages(hs.TaskGraph(["a"]), cost, bound=cost.bound if bound else None, time_limit=limit)


@given(GRAPHS, LIMITS, LIMITS, st.integers(0, 1000), st.integers(0, 3), st.integers(1, 3))
def test_a_search_in_a_table_that_is_stopped_cuts_the_blocks_left(graph, groups, size, seed, after, most):
    """Every block after the first `after` of more than `most` tasks is cut; the others keep their optimum, which is their bound."""
    limits, reports = {"groups": groups, "group_size": size}, []

    def watch(progress):
        reports.append(progress)
        return progress.block >= after - 1

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ios, "MOST_OF_A_PART", most)
        stages = hs.stages(graph, Tabled(seed), on_progress=watch, time_limit=0.0 if after == 0 else None, **limits)
    assert hs.verify_stages(graph, stages, cost=Table(seed).worth, **limits) == []
    cut = [x for x, block in enumerate(ios.blocks(graph)) if x >= after and len(block) > most]
    assert len(stages.messages) == len(cut)
    assert all("was begun after the search was stopped and was cut into" in message for message in stages.messages)
    own = [hs.stages(part(graph, block), Table(seed), blocks=False, **limits).latency for block in ios.blocks(graph)]
    assert stages.bound == pytest.approx(sum(value for x, value in enumerate(own) if x not in cut))
    assert stages.bound <= sum(own) * (1 + 1e-9) <= stages.latency * (1 + 2e-9)
    assert reports[-1].asked == stages.asked == stages.possible


def test_without_a_bound_every_cost_is_reported():
    graph, reports = hs.TaskGraph(["a", "b", "c"], [("a", "b"), ("a", "c")]), []
    stages = hs.stages(graph, Table(1), on_progress=reports.append)
    assert [progress.asked for progress in reports] == list(range(1, stages.asked + 1))
