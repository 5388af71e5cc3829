"""A naive emitter: it branches at random, hints at random, and knows nothing but the states of the checker it is given."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from fractions import Fraction
from types import ModuleType
from typing import Any

from hetsched import documents
from hetsched.problem.problem import Problem


def branches(state: Any) -> list[list[Any]]:
    """Return every branch that divides the schedules of a state."""
    devices = [["d", i, k] for i in state.tasks for k in state.devices[state.unit[i]] if len(state.devices[state.unit[i]]) > 1]
    pairs = [pair for members in state._alone().values() for pair in itertools.permutations(members, 2)]
    return devices + [["o", i, j] for i, j in pairs if not (state.after[i] | state.before[i]) >> j & 1]


def hint(state: Any, rng: random.Random) -> list[Any]:
    """Return a hint whose numbers are near those of the state, or absurd."""
    n, size = len(state.before), state.size
    times = [0, 1, rng.randrange(20), *(level for level in rng.sample([*state.head, *state.tail], 2) if level < 2**200)]
    prices = [rng.choice([0, 1, 1, 2, 7]) for _ in range(size)]
    prices[rng.randrange(size)] += 1
    kind = rng.choice("bhtmjwf")
    if kind == "j":
        return [kind]
    if kind == "m":
        rooms = [0 if room is None else rng.choice([0, 1, 1, 3]) for room in state.instance.capacity]
        return [kind, rng.choice(times), rng.choice(times), [price * rng.choice([0, 1]) for price in prices], rooms]
    return [kind, rng.choice(times), rng.choice(times) if kind in "bwf" else rng.randrange(n), prices]


def tree(checker: ModuleType, state: Any, rng: random.Random, most: int, hints: float = 0.0) -> list[Any] | None:
    """Return a tree that refutes a root state, or None if there is none of at most `most` tokens."""
    tokens: list[Any] = []
    waiting: list[Any] = []
    state.propagate()
    while len(tokens) < most:
        if state.contradiction:
            tokens.append(["."])
            if not waiting:
                return tokens
            state = waiting.pop()
        elif rng.random() < hints:
            token = hint(state, rng)
            with contextlib.suppress(checker.Rejected):  # for a task outside the window
                state.hint(token)
                tokens.append(token)
        elif found := branches(state):
            tokens.append(rng.choice(found))
            waiting.append(state.branch(tokens[-1]))
        else:
            return None
        state.propagate()
    return None


def goal(checker: ModuleType, instance: Any, rng: random.Random) -> list[Any]:
    """Return the goal of a random lemma, not far from what is true."""
    i, state = rng.randrange(instance.problem.tasks), checker.State(instance, checker.INFINITE)
    state.propagate()
    k, side = rng.choice([*state.devices[state.unit[i]], 0]), rng.choice(["release", "delivery"])
    return [side, i, k, max(1, (state.head if side == "release" else state.tail)[i * state.size + k] + rng.randrange(3)) % checker.LARGEST]


def certificate(
    checker: ModuleType,
    problem: Problem,
    claim: Fraction | None,
    rng: random.Random,
    *,
    unit: Fraction = Fraction(1, 8),
    lemmas: int = 0,
    hints: float = 0.0,
    most: int = 500,
) -> dict[str, Any] | None:
    """Return the document of a certificate with up to `lemmas` random lemmas before the claim's, or None if none is found."""
    exact = checker.Problem(documents.encode(problem))
    instance, proven, made = checker.Instance(exact, unit), ({}, {}), []
    end = checker.INFINITE if claim is None else math.ceil(claim / unit)
    goals = [goal(checker, instance, rng) for _ in range(lemmas)]
    drawn = [rng.sample(range(exact.tasks), rng.randint(1, exact.tasks)) if rng.random() < 0.5 else None for _ in (*goals, "claim")]
    for aim, window in zip([*goals, ["makespan"], ["makespan"]], [*drawn, None], strict=True):
        try:
            tokens = tree(checker, checker.root(instance, end, aim, window, proven), rng, most, hints)
        except checker.Rejected:
            continue
        if tokens is not None:
            made.append({"window": window, "goal": aim, "tree": tokens})
            if aim == ["makespan"]:
                break
            side = proven[aim[0] == "delivery"]
            side[aim[1], aim[2]] = max(aim[3], side.get((aim[1], aim[2]), 0))
    if not made or made[-1]["goal"] != ["makespan"]:
        return None
    return {
        "format": "hetsched-certificate",
        "version": 1,
        "rules": 3,
        "digest": exact.digest(),
        "objective": "makespan",
        "unit": str(unit),
        "claim": "infinity" if claim is None else str(claim),
        "lemmas": made,
    }
