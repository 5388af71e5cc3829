"""The placement of a schedule by module."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.problem.modules import ancestors, module_of
from hetsched.testing.profiles import examples

NAMES = ["x", "a.0.f/relu", "a.0.f/add", "a.0.g/relu", "a.0/add", "a.1/add", "b/linear", "add"]


def placed(devices, names=NAMES):
    graph = hs.TaskGraph(names)
    cluster = hs.Cluster(["u", "v"], bandwidth=1.0)
    problem = hs.Problem(graph, cluster, durations=[[1.0, 1.0]] * len(names))
    return hs.simulate(problem, hs.Decision.from_assignment(problem, dict(zip(names, devices, strict=True))))


@examples(60)
@given(st.lists(st.sampled_from("uv"), min_size=len(NAMES), max_size=len(NAMES)))
def test_every_task_is_on_the_device_of_its_innermost_entry(devices):
    schedule = placed(devices)
    by_module = schedule.by_module()
    for name, device in zip(NAMES, devices, strict=True):
        entries = [entry for entry in ("", *ancestors(module_of(name)), name) if entry in by_module]
        assert len(entries) == 1
        assert by_module[entries[0]] == device == schedule.device_of(name)
    for entry in by_module:  # none could be joined with the others around it
        if entry:
            outer = module_of(entry) if "/" in entry or "." not in entry else entry.rpartition(".")[0]
            inside = {device for name, device in zip(NAMES, devices, strict=True) if outer in ("", *ancestors(module_of(name)))}
            assert len(inside) == 2


def test_examples():
    assert placed("uuuuuuuu").by_module() == {"": "u"}
    assert placed("uuuuuuvv").by_module() == {"x": "u", "a": "u", "b": "v", "add": "v"}
    assert placed("uuvuuvvu").by_module() == {
        "x": "u",
        "a.0.f/relu": "u",
        "a.0.f/add": "v",
        "a.0.g": "u",
        "a.0/add": "u",
        "a.1": "v",
        "b": "v",
        "add": "u",
    }


def test_inputs_of_a_task_on_several_devices_are_refused():
    problem = hs.Problem(hs.TaskGraph(["m/a"]), hs.Cluster(["u", "v"], bandwidth=1.0), durations=[[1.0, 1.0]], inputs=2)
    schedule = hs.simulate(problem, hs.Decision.from_batches(problem, [("m/a", "u", [0]), ("m/a", "v", [1])]))
    with pytest.raises(hs.UnsupportedFeature, match="task 'm/a' runs on 'u' and 'v', for different inputs; a placement by module"):
        schedule.by_module()
