"""The profiles that ship with the package."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs
from hetsched.costs import profiles


@pytest.mark.parametrize("name", profiles.names())
def test_a_shipped_profile_has_the_shipped_networks_on_its_device(name):
    profile = profiles.load(name)
    assert profile.names == (name,)
    assert profile.device(name).session.startswith("20"), "it says when it was measured"
    assert profile.device(name).software
    for network in hs.workloads.networks.names():
        graph = hs.workloads.networks.load(network)
        problem = profile.problem(1, graph=graph)
        assert ((problem.durations[:, 0, 0] > 0) == (np.array(graph.op) != "input")).all()
        sources = hs.costs.Profiled(profile).sources(graph, problem.cluster, [1])
        assert (sources == "measured").all()


def test_several_are_one_cluster():
    graph = hs.workloads.networks.load("googlenet")
    devices = [profiles.load(name).device(name).device for name in profiles.names()]
    together = profiles.load(profiles.names()[0])
    for name in profiles.names()[1:]:
        together = together.merge(profiles.load(name))
    problem = hs.Problem(graph, hs.Cluster(devices, bandwidth=25e9), costs=hs.costs.Profiled(together))
    assert hs.solve(problem, "heft").schedule is not None


def test_a_name_that_is_not_shipped_is_refused():
    with pytest.raises(
        hs.InvalidProblem, match=r"no profile 'gtx' is shipped; choose one of .*h100, or measure your own: hetsched profile"
    ):
        profiles.load("gtx")
