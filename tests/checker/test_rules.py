"""Each rule of the checker, in all schedules of small instances: what it concludes holds in every schedule of the state."""

from __future__ import annotations

import importlib.util
import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import assume, find, given
from hypothesis import strategies as st

from hetsched import checker, documents
from hetsched.problem.problem import Problem
from hetsched.testing import brute_force, problems
from hetsched.testing.profiles import examples, searching
from tests.checker.emitting import branches, certificate, hint
from tests.checker.integer_schedules import IntegerSchedule, broken, schedules

SEEDS = st.integers(0, 2**32)
SEVERAL: dict[str, Any] = {"inputs": st.sampled_from([2, 3]), "n_tasks": st.integers(1, 3)}


def drawn(features: dict[str, Any]) -> st.SearchStrategy[Problem]:
    """Return a strategy for problems with short durations, of one input unless stated."""
    return problems(**{"inputs": 1, "durations": st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0]), **features})


MOST = 20_000
UNIT = Fraction(1)


def instance_of(checker: ModuleType, problem: Problem, unit: Fraction = UNIT) -> Any:
    return checker.Instance(checker.Problem(documents.encode(problem)), unit)


def enumerated(instance: Any, beyond: int) -> tuple[int, list[IntegerSchedule]]:
    """Return the least end of a schedule plus `beyond`, and the schedules that end before."""
    for end in itertools.count(1):
        assume(end < 16)
        found = list(itertools.islice(schedules(instance, end), MOST))
        if found:
            found = list(itertools.islice(schedules(instance, end + beyond), MOST))
            assume(len(found) < MOST)
            return end + beyond, found
    raise AssertionError


def rules_hold(checker: ModuleType, problem: Problem, seed: int) -> None:
    """Branch and hint at random; the schedules that took the branches satisfy each state, and twins lose none."""
    rng, instance = random.Random(seed), instance_of(checker, problem)
    assume(all(instance.devices))
    end, found = enumerated(instance, rng.randrange(3))
    state = checker.State(instance, end)
    while True:
        state.propagate()
        for schedule in found:
            assert not broken(state, schedule)
        if state.contradiction:
            return
        if rng.random() < 0.5:
            state.hint(hint(state, rng))
            for schedule in found:
                assert not broken(state, schedule)
        elif options := branches(state):
            found = divided(state, rng.choice(options), found, rng)
        else:
            return


def divided(state: Any, token: list[Any], found: list[IntegerSchedule], rng: random.Random) -> list[IntegerSchedule]:
    """Let the state be one of its branches and return the schedules there; those that twins leave out have a mirror in the first."""
    kind, i, x = token
    if kind == "d":
        twins = state.twins(i, x)
        for schedule in found:
            if schedule.device[i] in twins:
                swap = {x: schedule.device[i], schedule.device[i]: x}
                mirrored = schedule._replace(device=tuple(swap.get(k, k) for k in schedule.device))
                assert mirrored in found
                assert not broken(state, mirrored)
        first, second = [[s for s in found if (s.device[i] == x) is here and s.device[i] not in twins] for here in (True, False)]
    else:
        first, second = [s for s in found if s.end[i] <= s.start[x]], [s for s in found if s.end[x] <= s.start[i]]
        assert len(first) + len(second) == len(found)
    other = state.branch(token)
    if rng.random() < 0.5:
        return first
    for name in vars(other):
        setattr(state, name, getattr(other, name))
    return second


def lemmas_hold(checker: ModuleType, problem: Problem, seed: int) -> None:
    """What a certificate's lemmas say holds in all schedules."""
    rng, instance = random.Random(seed), instance_of(checker, problem)
    assume(all(instance.devices))
    made = certificate(checker, problem, Fraction(0), rng, unit=UNIT, lemmas=6, hints=0.2)
    _, found = enumerated(instance, 3)
    for lemma in made["lemmas"][:-1]:
        kind, i, k, level = lemma["goal"]
        for schedule in found:
            if schedule.device[i] == k:
                time = schedule.start[i] if kind == "release" else max(schedule.end) - schedule.end[i]
                assert time >= level, lemma


def every_input_fits(checker: ModuleType, problem: Problem, seed: int) -> None:
    """No hint at the root contradicts a horizon within which all inputs have a schedule."""
    rng, best = random.Random(seed), brute_force(problem)
    assume(best is not None)
    unit = rng.choice([Fraction(1), Fraction(1, 2), Fraction(1, 8)])
    state = checker.State(instance_of(checker, problem, unit), math.floor(Fraction(best.makespan) / unit) + 1, every=True)
    for _ in range(20):
        state.propagate()
        state.hint(hint(state, rng))
        assert not state.contradiction


@examples(60)
@given(drawn({}), SEEDS)
def test_what_rules_conclude_holds_in_every_schedule(problem: Problem, seed: int) -> None:
    rules_hold(checker, problem, seed)


@examples(60)
@given(drawn({}), SEEDS)
def test_lemmas_of_random_windows_hold_in_every_schedule(problem: Problem, seed: int) -> None:
    lemmas_hold(checker, problem, seed)


@examples(60)
@given(drawn(SEVERAL), SEEDS)
def test_all_inputs_have_room_at_the_root(problem: Problem, seed: int) -> None:
    every_input_fits(checker, problem, seed)


@examples(60)
@given(problems())
def test_the_relaxed_instance_is_a_relaxation_of_every_problem(problem: Problem) -> None:
    best = brute_force(problem)
    assume(best is not None)
    found = enumerated(instance_of(checker, problem), 0)[1]
    assert min(max(schedule.end) for schedule in found) <= best.makespan


@examples(100)
@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), max_size=5), st.integers(0, 5))
def test_parents_join_at_the_earliest_time_there_is(parents: list[tuple[int, int, int]], level: int) -> None:
    """Over all choices of those that run on the device, in all orders."""
    times = []
    for count in range(len(parents) + 1):
        for here in itertools.permutations(range(len(parents)), count):
            end = 0
            for x in here:
                end = max(end, parents[x][0]) + parents[x][1]
            times.append(max([level, end, *(far for x, (_, _, far) in enumerate(parents) if x not in here)]))
    assert checker.joined(level, sorted(parents)) == min(times)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("property_of", "features"), [(rules_hold, {}), (lemmas_hold, {}), (every_input_fits, SEVERAL)], ids=["rules", "lemmas", "all inputs"]
)
@examples(1000)
@given(data=st.data(), seed=SEEDS)
def test_the_same_holds_in_many_draws(
    property_of: Callable[[ModuleType, Problem, int], None], features: dict[str, Any], data: st.DataObject, seed: int
) -> None:
    property_of(checker, data.draw(drawn(features)), seed)


PLAIN: dict[str, Any] = {
    **dict.fromkeys(["tight", "pins", "absent", "colocation", "missing_links", "nodes", "transfers"], False),
    "communication": "delay",
    "memory": "static",
}
"""Features of problems in which a fault that has nothing to do with them is found soon."""
FAULTS: dict[str, tuple[str, str, Callable[[ModuleType, Problem, int], None], dict[str, Any]]] = {
    "a parent on the worst of its devices": ("level = min([end + ways", "level = max([end + ways", rules_hold, PLAIN),
    "a device that is left one unit too early": (
        "self.instance.p[x] + self.tail[x] >=",
        "self.instance.p[x] + self.tail[x] + 1 >=",
        rules_hold,
        PLAIN,
    ),
    "an order that one unit would allow": ("p[x] + tail[x] >= self.end:", "p[x] + tail[x] + 1 >= self.end:", rules_hold, PLAIN),
    "an empty set before a task": ("if chosen:  # else", "if True:  #", rules_hold, {}),
    "windows beyond ancestors": (" and all(allowed >> j & 1 for j in own)", "", lemmas_hold, {}),
    "tails in a release": ("known: Proven = (proven[0], {}) if kind", "known: Proven = proven if kind", lemmas_hold, {}),
    "a hint for a task outside the window": ("_need(self.window >> i & 1, ", "_need(True, ", lemmas_hold, {**PLAIN, "n_devices": 1}),
    "twins of different capacity": (
        "self.capacity[h] == self.capacity[k]",
        "True",
        rules_hold,
        {"durations": st.just(1.0), "n_devices": 2, "tight": True, "memory": "static", "pins": False, "absent": False},
    ),
    "inputs times the time of a batch": (
        "instance.problem.inputs, instance.share",
        "instance.problem.inputs, instance.p",
        every_input_fits,
        {},
    ),
    "distinct first tasks of all inputs": (
        " and not self.every_input, *token",
        ", *token",
        every_input_fits,
        {**PLAIN, "n_devices": 2, "n_tasks": 1, "inputs": 2, "durations": st.just(1.0)},
    ),
    "distinct first tasks at different prices": (
        "setdefault(price if distinct else k",
        "setdefault(0 if distinct else k",
        rules_hold,
        {**PLAIN, "n_devices": 2},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, tmp_path: Path) -> None:
    old, new, property_of, features = FAULTS[fault]
    text = Path(checker.__file__).read_text(encoding="utf-8")
    assert text.count(old) == 1
    path = tmp_path / "faulty.py"
    path.write_text(text.replace(old, new), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("faulty", path)
    assert spec is not None
    assert spec.loader is not None
    faulty = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(faulty)

    def found(draw: tuple[Problem, int]) -> bool:
        try:
            property_of(faulty, *draw)
        except AssertionError:
            return True
        return False

    features = (SEVERAL if property_of is every_input_fits else {}) | features
    find(st.tuples(drawn(features), SEEDS), found, settings=searching(3000))
