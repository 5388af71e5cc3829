"""The shipped networks: their numbers, and that a new capture gives the same."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import hetsched as hs
from hetsched.workloads import networks

PARAMETERS = {"googlenet": 6_624_904, "inception_v3": 23_834_568}  # published, without auxiliary classifiers
CONVOLUTIONS = {"googlenet": 57, "inception_v3": 94}
GIGA_MACS = {"googlenet": 1.5, "inception_v3": 5.71}  # as commonly published


@pytest.mark.parametrize("name", networks.names())
def test_the_shipped_graph_is_the_published_network(name):
    graph = networks.load(name)
    ops = Counter(graph.op)
    assert ops["conv2d"] == ops["relu"] == CONVOLUTIONS[name]
    assert ops["input"] == ops["linear"] == 1
    assert "batch_norm" not in ops
    assert graph.flops.sum() / 2e9 == pytest.approx(GIGA_MACS[name], rel=0.01)
    assert len(graph.succ[graph.succ_ptr[0] : graph.succ_ptr[1]]) == 1
    sinks = np.flatnonzero(np.diff(graph.succ_ptr) == 0)
    assert [graph.names[i] for i in sinks] == ["fc/linear"]
    assert graph.output_bytes[sinks[0]] == 4000


@pytest.mark.parametrize("name", networks.names())
def test_the_module_has_the_published_number_of_parameters(name):
    pytest.importorskip("torch")
    module = networks.module(name)
    assert sum(parameter.numel() for parameter in module.parameters()) == PARAMETERS[name]
    assert not module.training
    # Folding removes one of the two parameters of batch norm per channel.
    channels = sum(layer.num_features for layer in module.modules() if hasattr(layer, "num_features"))
    assert networks.load(name).weight_bytes.sum() / 4 == PARAMETERS[name] - channels


@pytest.mark.slow
@pytest.mark.parametrize("name", networks.names())
def test_a_fresh_capture_is_the_shipped_document(name):
    pytest.importorskip("torch")
    from hetsched.workloads import vision

    fresh = hs.frontends.torch.capture(lambda: networks.module(name), vision.images(networks.IMAGE[name]))
    assert fresh == networks.load(name)


@pytest.mark.slow
def test_loading_needs_neither_torch_nor_networkx():
    code = (
        "import sys, hetsched as hs; hs.workloads.networks.load('googlenet'); hs.workloads.clusters.diviml(); hs.workloads.rwnn(n=10);"
        "hs.costs.Roofline(); print([m for m in ('torch', 'networkx') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_unknown_name():
    with pytest.raises(hs.InvalidProblem, match=r"no network 'vgg' is shipped; choose one of googlenet, inception_v3"):
        networks.load("vgg")
