"""The analytic cost model: its law, its constants, and where they are from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.costs import Analytic, CostModel, Family, Roofline
from hetsched.costs.analytic import CLASSES, class_of, shipped

ABOUT = {"source": "a test", "date": "today", "n": 1}
PLAIN = Family(**ABOUT, efficiency={"other": 0.5}, bandwidth={"other": 0.5}, error={"all": 2.0, "conv": 1.5})
DEVICE = hs.Device("d", family="test", units=10, peak_flops={"float32": 1e12}, memory_bandwidth=1e11, cache_bytes=1e6)
ops = st.sampled_from(
    ["conv2d", "linear", "max_pool2d", "relu", "cat", "layer_norm", "adaptive_avg_pool2d", "scaled_dot_product_attention"]
)
amount = st.integers(1, 10**6).map(float)
few = st.integers(1, 512).map(float)


@st.composite
def graphs(draw):
    """Draw graphs of single operators with shapes."""
    count = draw(st.integers(1, 4))
    shapes = [
        hs.Shape(draw(few), draw(few), draw(few), draw(st.sampled_from([(), (1, 1), (3, 3)])), draw(st.sampled_from([(), (1, 1), (2, 2)])))
        for _ in range(count)
    ]
    return hs.TaskGraph(
        [f"t{i}" for i in range(count)],
        op=[draw(ops) for _ in range(count)],
        shape=shapes,
        flops=[2 * shape.rows * shape.columns * shape.reduction for shape in shapes],
        weight_bytes=[4 * shape.columns * shape.reduction for shape in shapes],
        input_bytes=[draw(amount) for _ in range(count)],
        output_bytes=[4 * shape.rows * shape.columns for shape in shapes],
    )


@st.composite
def families(draw):
    """Draw constants."""
    part = st.floats(0.01, 2.0)
    return Family(
        **ABOUT,
        efficiency={kind: draw(part) for kind in (*CLASSES, "other")},
        bandwidth={"other": draw(part)},
        error={"all": 2.0},
        a=draw(st.floats(0, 10)),
        am=draw(st.floats(0, 10)),
        k0=draw(st.floats(0, 200)),
        k1=draw(st.floats(10, 1e6)),
        cache=draw(st.floats(1, 8)),
    )


def seconds(family, graph, batch_sizes, device=DEVICE):
    """Return the seconds of all tasks, [n, B]."""
    return Analytic(families={"test float32": family}).durations(graph, hs.Cluster([device]), batch_sizes)[:, 0]


@given(families(), graphs(), st.integers(1, 300), st.integers(1, 300))
def test_larger_batches_take_longer_and_there_are_no_jumps(family, graph, small, more):
    made = seconds(family, graph, [small, small + more])
    assert np.isfinite(made).all()
    assert (made[:, 1] >= made[:, 0] * (1 - 1e-9)).all()
    grown = (small + more) / small
    assert (made[:, 1] <= made[:, 0] * grown**3 * (1 + 1e-9)).all(), "in proportion, and by the square where the cache overflows"


@given(families(), graphs(), st.floats(1, 1e3))
def test_more_bytes_take_longer_and_there_are_no_jumps(family, graph, factor):
    names = ("weight_bytes", "input_bytes", "output_bytes")
    more = graph.replace(**{name: getattr(graph, name) * factor for name in names})
    less, made = seconds(family, graph, [3])[:, 0], seconds(family, more, [3])[:, 0]
    assert (made >= less * (1 - 1e-9)).all()
    assert (made <= less * factor**3 * (1 + 1e-9)).all(), "in proportion, and by the square where the cache overflows"


@given(families(), graphs(), st.floats(1e-3, 1e3))
def test_units_of_time_do_not_matter(family, graph, factor):
    faster = dataclasses.replace(DEVICE, peak_flops={"float32": 1e12 * factor}, memory_bandwidth=1e11 * factor)
    np.testing.assert_allclose(seconds(family, graph, [1, 7], faster) * factor, seconds(family, graph, [1, 7]), rtol=1e-9)


@given(families(), graphs())
def test_nothing_is_faster_than_both_of_its_limits(family, graph):
    made = seconds(family, graph, [1])[:, 0]
    kinds = [class_of(op, shape) for op, shape in zip(graph.op, graph.shape, strict=True)]
    counted = np.where([kind.endswith("pool") for kind in kinds], graph.flops / 2, graph.flops)
    computing = np.array([flops / (1e12 * family.efficiency[kind]) for flops, kind in zip(counted, kinds, strict=True)])
    total = graph.weight_bytes + graph.input_bytes + graph.output_bytes
    moving = total / (1e11 * family.bandwidth["other"] * family.cache)
    assert (made >= np.maximum(computing, moving) * (1 - 1e-9)).all()


def test_golden_numbers():
    """By hand: 64 x 64 x 100 is one tile; 10 units need a * 10 more of them."""
    graph = hs.TaskGraph(["a"], op="linear", flops=2 * 64 * 64 * 100, bytes_accessed=0.0, shape=[hs.Shape(64, 64, 100)])
    family = Family(**ABOUT, efficiency={"other": 0.5}, bandwidth={"other": 1.0}, error={"all": 2.0}, a=0.3, k0=50.0)
    work = 2 * 64 * 64 * 100 / (1e12 * 0.5 * (1 / (1 + 3)) * (100 / 150))
    assert seconds(family, graph, [1])[0, 0] == pytest.approx(work)
    assert seconds(family, graph, [2])[0, 0] == pytest.approx(2 * work * (1 / (1 + 3)) / (2 / (2 + 3)))
    launched = dataclasses.replace(DEVICE, launch_overhead=1.0)
    assert seconds(family, graph, [1], launched)[0, 0] == pytest.approx(1 + work)


@pytest.mark.parametrize(
    ("op", "shape", "kind"),
    [
        ("conv2d", hs.Shape(1, 8, 9, (3, 3), (1, 1)), "conv3x3"),
        ("conv2d", hs.Shape(1, 8, 9, (3, 3), (2, 2)), "conv"),
        ("conv2d", hs.Shape(1, 8, 9, (1, 1), (2, 2)), "conv1x1"),
        ("conv2d", hs.Shape(1, 8, 9, (3, 3), (1, 1), 8), "depthwise"),
        ("conv2d", hs.Shape(1, 8, 9, (3, 3), (1, 1), 2), "conv"),
        ("conv2d", None, "conv"),
        ("conv2d batch_norm relu", hs.Shape(1, 8, 9, (3, 3), (1, 1)), "conv3x3"),
        ("add linear", hs.Shape(1, 8, 9), "matmul"),
        ("scaled_dot_product_attention", None, "attention"),
        ("max_pool2d", None, "max_pool"),
        ("adaptive_avg_pool2d", None, "global_pool"),
        ("mean", None, "global_pool"),
        ("avg_pool2d", None, "avg_pool"),
        ("layer_norm", None, "norm"),
        ("cat", None, "copy"),
        ("embedding", None, "lookup"),
        ("relu", None, "elementwise"),
        ("", None, "elementwise"),
    ],
)
def test_operators_have_classes(op, shape, kind):
    assert class_of(op, shape) == kind
    assert kind in CLASSES


def test_a_fully_connected_layer_takes_about_what_its_weights_do():
    """2048 -> 1000 at batch 1 on a V100: the roofline has 14 us."""
    graph = hs.TaskGraph(
        ["fc"], op="linear", flops=4.096e6, weight_bytes=8.192e6, input_bytes=8e3, output_bytes=4e3, shape=[hs.Shape(1, 1000, 2048)]
    )
    cluster = hs.Cluster([hs.costs.device("v100")])
    analytic, roofline = (model.durations(graph, cluster, [1])[0, 0, 0] for model in (Analytic(), Roofline()))
    assert 0.5 < analytic / roofline < 2
    assert 7e-6 < analytic < 28e-6


def test_the_constants_of_the_package_say_where_they_are_from():
    assert set(shipped()) == {"cpu float32", "cuda float32"}
    for family in shipped().values():
        assert family.source
        assert family.date
        assert family.n > 100
        assert family.error["all"] > 1
        assert "other" in family.bandwidth
        assert set(family.efficiency) <= {*CLASSES, "other"}
        assert "other" in family.efficiency


def test_errors_are_those_of_the_class_of_a_task():
    graph = hs.TaskGraph(["a", "b"], op=["conv2d", "relu"])
    assert Analytic(families={"test float32": PLAIN}).error(graph, hs.Cluster([DEVICE])).tolist() == [[1.5], [2.0]]


def test_it_is_a_cost_model_with_notes_on_what_is_unknown():
    graph = hs.TaskGraph(["a", "b", "c"], op=["input", "conv2d", "relu"], flops=[0, 1e9, 0], output_bytes=1e6)
    model: CostModel = Analytic(families={"test float32": PLAIN})
    with pytest.warns(RuntimeWarning, match=r"1 task without a shape count as filling a device \(operators 'conv2d'\); give the graph"):
        problem = hs.Problem(graph, hs.Cluster([DEVICE]), costs=model)
    assert problem.durations[0, 0, 0] == 0, "an input takes no time"
    assert problem.durations[1, 0, 0] == pytest.approx(2e-3, rel=0.01)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (hs.Device("x"), "device 'x' is of family '', and there are constants of 'test float32'; give the device its family"),
        (dataclasses.replace(DEVICE, peak_flops={}), "device 'd' has no peak_flops for 'float32'; give it one"),
        (dataclasses.replace(DEVICE, memory_bandwidth=None), "device 'd' has no memory_bandwidth; give it one"),
    ],
)
def test_devices_that_are_not_known_well_enough_are_refused(device, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        Analytic(families={"test float32": PLAIN}).durations(hs.TaskGraph(["a"]), hs.Cluster([device]), [1])


def test_wrong_families_are_refused():
    with pytest.raises(hs.InvalidArgument, match=r"families\['x'\] is 5; it must be a Family"):
        Analytic(families={"x": 5})
