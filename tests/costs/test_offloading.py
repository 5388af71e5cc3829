"""Times of items whose weights another device holds are sums over the runs of the item."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.chain.card import PARTS, ModelCard
from hetsched.chain.workload import Workload
from hetsched.costs.offloading import COPIED_FROM, experts_held, weights_copied
from hetsched.testing.profiles import examples
from tests.costs.test_language import COSTS, MACHINE, SHARES, card

works = st.builds(
    Workload,
    prompt=st.integers(1, 100),
    output=st.integers(0, 4),
    sequences=st.sampled_from([1, 2, COPIED_FROM]),
    chunk=st.sampled_from([16, COPIED_FROM, 64]),
)


def runs(work):
    """Return the tokens of each run."""
    total = work.prompt * work.sequences
    chunks = [min(work.chunk, total - start) for start in range(0, total, work.chunk)]
    return [*chunks, *[work.sequences] * work.output]


@examples(60)
@given(works)
def test_experts_are_computed_where_they_are_or_copied(work):
    """8 experts of 96 bytes, of which a token uses 2; the fast device has the block, the slow one the experts."""
    model = card(experts=8, used=2)
    found = experts_held(model, MACHINE, work, [1], COSTS)
    assert found.weight_bytes.tolist() == [0, *model.weight_bytes[1:-1, PARTS.index("experts")], 0]
    tokens = runs(work)
    size = float(model.weight_bytes[1, PARTS.index("experts")])
    parameters = float(model.parameters[1, PARTS.index("experts")])
    held = link = 0.0
    for count in tokens:
        met = (1 - 0.75**count) * size
        if count < COPIED_FROM:
            there_and_back = count * model.width * work.activation_bytes
            held += max(2 * count * parameters / 4 / (SHARES["slow"][0] * 1e6), met / (SHARES["slow"][1] * 3e6))
            link += 2e-3 + there_and_back / 1e5 + there_and_back / 2e5
        else:
            link += 1e-3 + met / 2e5
    assert found.held_seconds[1, 1] == pytest.approx(held)
    assert found.link_seconds[1, 0, 1] == pytest.approx(link)
    assert np.isinf(found.held_seconds[:, 0]).all()
    whole, bare = (COSTS.chain(model if counted else without_experts(model), MACHINE, work).seconds[1, 0] for counted in (True, False))
    computed = [count >= COPIED_FROM for count in tokens]
    if all(computed) or not any(computed):
        assert found.kept_seconds[1, 0] == pytest.approx(whole if all(computed) else bare)
    assert bare * (1 - 1e-9) <= found.kept_seconds[1, 0] <= whole * (1 + 1e-9)


def without_experts(model):
    parameters, weights = np.array(model.parameters), np.array(model.weight_bytes)
    for table in (parameters, weights):
        table[:, PARTS.index("experts")] = 0
    return ModelCard(model.name, model.family, model.width, model.vocabulary, model.items, parameters, weights)


@examples(30)
@given(works)
def test_weights_are_copied_for_each_run(work):
    model = card()
    found = weights_copied(model, MACHINE, work, [1], COSTS)
    assert found.only_first
    assert found.weight_bytes.tolist() == model.weights.tolist()
    assert found.kept_seconds.tolist() == COSTS.chain(model, MACHINE, work).seconds.tolist()
    for i, size in enumerate(model.weights.tolist()):
        assert found.seconds[i, 0, 1] == pytest.approx(found.kept_seconds[i, 0] + len(runs(work)) * (1e-3 + size / 2e5))
    assert math.isinf(found.seconds[1, 1, 0])


@pytest.mark.parametrize("find", [experts_held, weights_copied])
def test_without_costs_no_time_counts(find):
    found = find(card(experts=8, used=2), MACHINE, Workload(40, 2), [1], None)
    assert found.seconds[1].tolist() == [[math.inf, 0.0], [math.inf, math.inf]]
