"""Named clusters."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs
from hetsched.workloads import clusters


@pytest.mark.parametrize("name", clusters.names())
def test_every_cluster_is_complete_and_costed(name):
    cluster = clusters.load(name)
    off = ~np.eye(cluster.n_devices, dtype=bool)
    assert (cluster.bandwidth[off] > 0).all()
    graph = hs.workloads.rwnn("er", 10, modules=1)
    assert np.isfinite(hs.Problem(graph, cluster, costs=hs.costs.Roofline()).durations).all()


def test_diviml_is_ordered_like_its_table_2():
    cluster = hs.workloads.clusters.diviml()
    assert cluster.names == ("cpu", "t4", "a100")
    assert [d.memory_bytes for d in cluster.devices[1:]] == [16e9, 40e9]
    assert cluster.bandwidth[0, 1] == pytest.approx(31.5e9, rel=1e-3)
    cpu, t4, a100 = hs.costs.Roofline().durations(hs.workloads.networks.load("inception_v3"), cluster, [128]).sum(axis=0)[:, 0]
    assert cpu > t4 > a100


def test_moirai_is_asymmetric_and_in_bytes():
    inter, intra = clusters.moirai_inter(), clusters.moirai_intra()
    assert inter.bandwidth[0, 1] == 44.26e9 / 8
    assert inter.bandwidth[1, 0] == 42.39e9 / 8
    assert [d.memory_bytes for d in inter.devices] == [11e9, 16e9, 8e9, 8e9]
    assert len({d.node for d in inter.devices}) == 4
    assert intra.bandwidth[1, 0] == 1148.16e9 / 8
    assert [d.memory_bytes for d in intra.devices] == [32e9, 32e9, 16e9, 16e9]
    assert len({d.node for d in intra.devices}) == 1


def test_unknown_name():
    with pytest.raises(hs.InvalidProblem, match=r"no cluster is named 'x'; choose one of diviml, diviml_nodes, moirai_inter, moirai_intra"):
        clusters.load("x")
