"""Links: seconds and resources of transfers under each model of communication."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.cli import options
from hetsched.problem.links import CONTENDED, MODELS, UNCONTENDED, Communication
from hetsched.testing import problems
from tests.resources import held_resources


def test_every_model_of_communication_has_an_entry():
    assert tuple(MODELS) == get_args(Communication), "the Literal Communication and MODELS have to list the same names"
    assert CONTENDED == ("channel", "port", "node")
    assert UNCONTENDED == ("delay", "per-input")
    assert [name for name, model in MODELS.items() if model.per_input] == ["per-input"]


@pytest.mark.parametrize("communication", MODELS)
def test_every_model_of_communication_is_described(communication):
    rules = Path(__file__).parents[2] / "docs" / "background" / "semantics.md"
    option = inspect.getsource(options)
    assert f'| `"{communication}"`' in rules.read_text(encoding="utf-8"), f"add a row for {communication!r} to {rules.name}"
    assert f'"{communication}"' in (hs.Problem.__doc__ or ""), f"name {communication!r} in the docstring of Problem"
    assert re.search(rf"\b{communication}: ", option), f"explain {communication!r} in the option --communication of hetsched/cli/options.py"


NODES = ["a", "", "a", "b", ""]


@pytest.mark.parametrize("communication", MODELS)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_transfers_exclude_one_another_where_they_hold_the_same_resource(communication, size):
    cluster = hs.Cluster([hs.Device(f"d{k}", node=NODES[k]) for k in range(size)], bandwidth=1.0)
    problem = hs.Problem(hs.TaskGraph(["t"]), cluster, durations=[[1.0] * size], communication=communication)
    table = problem.links.resource
    pairs = [(h, k) for h in range(size) for k in range(size) if h != k]
    for one in pairs:
        for other in pairs:
            rule = held_resources(communication, cluster, *one) & held_resources(communication, cluster, *other)
            assert bool(set(table[one]) & set(table[other]) - {-1}) == bool(rule)
    assert (np.diagonal(table) == -1).all()
    used = sorted({int(number) for pair in pairs for number in table[pair]} - {-1})
    assert used == [] or (used[0] >= 0 and used[-1] < problem.links.n_resources)
    assert problem.links.contended == (communication in CONTENDED)


def test_resources_are_named_after_their_devices():
    cluster = hs.Cluster([hs.Device("x", node="a"), hs.Device("y")], bandwidth=1.0)
    for communication, expected in (("channel", {"x -> y"}), ("port", {"x sends", "y receives"}), ("node", {"a sends", "y receives"})):
        resources = MODELS[communication].resources(cluster)
        assert {resources.name(int(number)) for number in resources.table[0, 1]} == expected


@given(problems(), st.data())
def test_the_table_has_the_seconds_of_transfers(problem, data):
    links = problem.links
    size = problem.n_devices
    count = data.draw(st.integers(1, problem.inputs))
    edge, h, k = (column.ravel() for column in np.indices((problem.graph.n_edges, size, size)))
    factor = 1 if links.per_input else count
    if links.given:
        expected = links.transfers[edge, h, k] * factor
    else:
        expected = np.where(h == k, 0.0, links.latency[h, k] + links.edge_bytes[edge] * factor / links.bandwidth[h, k])
    assert np.array_equal(problem.transfer_times(edge, h, k, count), expected)
    with pytest.raises(ValueError, match="read-only"):
        links.resource[0, 0, 0] = 1
