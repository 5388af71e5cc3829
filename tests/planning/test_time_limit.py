"""A plan whose search ends early is the best found so far, with an honest bound; nothing found is lost."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.planning import PlanProgress, explain
from hetsched.planning.planner import solved
from hetsched.stopping import NEVER, Deadline, Terminated
from hetsched.testing.clocks import SteppingClock
from hetsched.testing.profiles import examples
from tests.planning.test_planner import card, cards, machine, machines, workloads

WORK = hs.Workload(20, 5)


def ended(plan, looks, on_progress=None):
    """Return the plan of the same question after so many looks at the clock, and the looks that came too late."""
    clock = SteppingClock(1.0)
    deadline = Deadline.after(looks, clock)
    return solved(plan.question, deadline=deadline, on_progress=on_progress), clock.late(deadline)


@examples(40)
@given(cards, machines, workloads, st.integers(1, 30), st.sampled_from([None, "fit", "latency"]))
def test_the_bound_is_below_the_best_and_what_is_found_above(model, where, work, looks, regime):
    best = hs.plan(model, where, work, regime=regime)
    told: list[PlanProgress] = []
    plan, late = ended(best, looks, told.append)
    assert late <= 3 + len(told)  # progress reads the clock too
    assert plan.bound <= best.value * (1 + 1e-9)
    assert plan.value >= best.value * (1 - 1e-9)
    assert all(plan.value <= row.value * (1 + 1e-9) for row in plan.baselines)
    assert plan.status in ("optimal", "feasible", "infeasible", "unknown")
    assert (plan.placement is None) == math.isinf(plan.value) == (plan.status in ("infeasible", "unknown"))
    if plan.status == best.status == "optimal":
        assert plan.value == pytest.approx(best.value, rel=1e-6)
    else:
        assert plan.stopped == ("finished" if plan.status == "infeasible" and not math.isnan(plan.missing_bytes) else "time limit")
    assert [event.bound for event in told] == sorted(event.bound for event in told)
    assert [event.value for event in told] == sorted((event.value for event in told), reverse=True)


@examples(40)
@given(cards, machines, workloads)
def test_without_a_limit_the_last_progress_is_the_plan(model, where, work):
    told: list[PlanProgress] = []
    plan = hs.plan(model, where, work, on_progress=told.append)
    assert plan.stopped == "finished"
    assert plan.bound == plan.value
    assert told[-1].bound == pytest.approx(plan.value)
    assert plan.gap == (1.0 if plan.placement is None else 0.0)


@pytest.mark.parametrize(("signal", "stopped"), [(KeyboardInterrupt, "interrupted"), (Terminated, "terminated"), (None, "callback")])
def test_a_signal_or_a_callback_loses_nothing(signal, stopped):
    def end(progress):
        if signal is not None:
            raise signal
        return True

    for where, status in ((machine(), "optimal"), (machine((5e5, 4e5, 4e5)), "feasible")):  # of the first the quick bound is the proof
        plan = hs.plan(card(6), where, WORK, on_progress=end)
        assert (plan.status, plan.stopped) == (status, stopped)
        assert plan.value == min(row.value for row in plan.baselines)
        assert 0 < plan.bound <= hs.plan(card(6), where, WORK).value


def test_nothing_found_is_not_called_infeasible(tmp_path):
    where = machine((5e4, 3e5, 4e5))  # no simple rule fits
    plan = hs.plan(card(6), where, WORK, on_progress=lambda progress: progress.source == "quick bounds")
    best = hs.plan(card(6), where, WORK)
    assert (plan.status, plan.stopped, plan.gap) == ("feasible", "callback", pytest.approx(1 - plan.bound / plan.value))
    assert plan.value >= best.value  # the farthest prefixes

    def interrupt(progress):
        raise KeyboardInterrupt

    plan = hs.plan(card(6), where, WORK, on_progress=interrupt)
    assert (plan.status, plan.placement, plan.stopped, plan.gap) == ("unknown", None, "interrupted", 1.0)
    assert 0 < plan.bound <= best.value
    assert math.isnan(plan.missing_bytes)
    with pytest.raises(hs.UnsupportedFeature, match=r"found no placement before its end \(interrupted\); allow more time"):
        _ = plan.values
    plan.write(tmp_path / "plan.json")
    assert hs.read(tmp_path / "plan.json").status == "unknown"


def test_an_explanation_names_what_the_time_did_not_suffice_for():
    plan = hs.plan(card(6), machine(), WORK)
    told = explain(plan, deadline=Deadline.after(0.0, SteppingClock()))
    assert told.out_of_time
    assert told.left_out[:2] == ("the most context", "the most sequences")
    assert (told.most_context, told.most_bits) == (None, None)
    assert math.isnan(told.without_hops)
    clock = SteppingClock(1.0)
    part = explain(plan, deadline=Deadline.after(40, clock))
    assert part.most_context == explain(plan).most_context
    assert part.out_of_time
    assert "the next step of memory" in part.left_out
    assert plan.question.deadline is NEVER


@pytest.mark.parametrize("sequences", [1, 4])
def test_an_early_end_comes_back_from_its_document(tmp_path, sequences):
    plan, _ = ended(hs.plan(card(6), machine((5e5, 4e5, 4e5)), hs.Workload(20, 5, sequences=sequences)), 1)
    assert (plan.status, type(plan.bound)) == ("feasible", float)
    plan.write(tmp_path / "plan.json")
    back = hs.read(tmp_path / "plan.json")
    for what in ("status", "value", "bound", "stopped", "placement", "missing_bytes"):
        assert getattr(back, what) == getattr(plan, what), what
    value = json.loads((tmp_path / "plan.json").read_text())
    for change in ({"bound": 1e9}, {"status": "optimal"}):
        (tmp_path / "plan.json").write_text(json.dumps(value | change))
        with pytest.raises(hs.InvalidProblem, match=r"the status is '\w+' with .* seconds and a bound of .*; solve again"):
            hs.read(tmp_path / "plan.json")
