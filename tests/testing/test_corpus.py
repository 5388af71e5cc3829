"""The corpus: its problems, that it can be derived again, and its size in each profile."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import settings

import hetsched as hs
from hetsched.testing import brute_force, corpus


def test_there_are_thirty_problems_of_each_feature():
    assert Counter(case.feature for case in corpus.problems()) == dict.fromkeys(corpus.FEATURES, 30)
    assert len({case.name for case in corpus.problems()}) == 240
    assert corpus.problems() == tuple(case for feature in corpus.FEATURES for case in corpus.problems(feature))


def test_it_is_read_once():
    assert all(a.problem is b.problem for a, b in zip(corpus.problems("port"), corpus.problems("port"), strict=True))


def test_every_problem_has_what_its_feature_promises():
    for case in corpus.problems():
        problem, graph = case.problem, case.problem.graph
        assert problem.n_tasks >= 3
        limited = np.isfinite(problem.cluster.memory_bytes).any()
        constrained = any(graph.colocation) or any(graph.devices) or np.isnan(problem.durations).any()
        has = {
            "plain": problem.inputs == 1 and not limited and not constrained and problem.communication in ("delay", "per-input"),
            "static memory": limited and problem.memory == "static",
            "peak memory": limited and problem.memory == "peak",
            "channel": problem.communication == "channel",
            "port": problem.communication == "port",
            "several inputs": problem.inputs > 1,
            "constraints": constrained,
            "links": problem.transfers is not None or (problem.cluster.bandwidth == 0).any(),
        }
        assert has[case.feature], case.name


@pytest.mark.slow
def test_some_problems_have_no_schedule_and_heft_solves_less_than_half_of_the_others():
    one_input = [case for case in corpus.problems() if case.problem.inputs == 1]
    feasible = [case for case in one_input if case.optimum is not None]
    assert 5 <= len(one_input) - len(feasible) <= len(one_input) / 10
    solved = [case for case in feasible if hs.solve(case.problem, "heft").makespan <= case.optimum * (1 + 1e-9)]
    assert len(solved) < len(feasible) / 2


@pytest.mark.parametrize(("profile", "count"), [("default", 240), ("dev", 60), ("ci", 240), ("thorough", 240)])
def test_a_profile_takes_all_or_every_fourth_problem(profile, count):
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        chosen = corpus.sample()
        assert chosen == corpus.problems()[:: 240 // count]
        assert {case.feature for case in chosen} == set(corpus.FEATURES)
        assert corpus.sample("links") == tuple(case for case in chosen if case.feature == "links")
    finally:
        settings.load_profile(before)


def test_an_unknown_feature_is_refused_with_those_there_are():
    with pytest.raises(hs.InvalidArgument, match=r"feature is 'contention'; choose one of 'plain'.*'links'"):
        corpus.problems("contention")


@pytest.mark.parametrize("feature", corpus.FEATURES)
def test_the_first_optimum_of_a_feature_is_that_of_the_enumeration(feature):
    case = next(case for case in corpus.problems(feature) if case.optimum is not None)
    optimum = brute_force(case.problem)
    assert optimum is not None
    assert optimum.makespan == case.optimum


@pytest.mark.slow
@pytest.mark.parametrize("feature", corpus.FEATURES)
def test_problems_and_optima_can_be_derived_again(feature):
    assert corpus.text(corpus.derive(feature)) == corpus.text(corpus.problems(feature))
