"""Capture of PyTorch modules: structure, bytes, work, names, and errors."""

from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.testing.profiles import examples

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

capture = hs.frontends.torch.capture


class Lambda(nn.Module):
    """A function as a module, with a linear layer before it if `width` is given."""

    def __init__(self, function, width=0, **modules):
        super().__init__()
        self.function = function
        self.fc = nn.Linear(width, width) if width else nn.Identity()
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args, **kwargs):
        return self.function(self, self.fc(args[0]), *args[1:], **kwargs)


def row(graph, name):
    i = graph.index[name]
    columns = ("op", "weight_bytes", "input_bytes", "output_bytes", "flops", "bytes_accessed")
    return tuple(getattr(graph, column)[i] for column in columns)


def edges(graph):
    return {(graph.names[i], graph.names[j]): size for (i, j), size in zip(graph.edges.tolist(), graph.edge_bytes.tolist(), strict=True)}


def counted(model, *args):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.to("meta")(*(arg.to("meta") for arg in args))
    return counter.get_total_flops()


@st.composite
def networks(draw):
    """Draw a chain of layers with skip connections, and the number of input channels."""
    channels = draw(st.integers(1, 4))
    layers, width = [], channels
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["conv", "depthwise", "norm", "relu", "pool", "skip"]))
        if kind == "conv":
            out = draw(st.integers(1, 6))
            layers.append(nn.Conv2d(width, out, draw(st.sampled_from([1, 3])), padding=1, bias=draw(st.booleans())))
            width = out
        elif kind == "depthwise":
            layers.append(nn.Conv2d(width, width, 3, padding=1, groups=width))
        elif kind == "norm":
            layers.append(nn.BatchNorm2d(width))
        elif kind == "pool":
            layers.append(nn.AvgPool2d(2, 1))
        elif kind == "relu":
            layers.append(nn.ReLU(inplace=draw(st.booleans())))
        else:
            layers.append(Lambda(lambda m, x: x + m.inner(x), inner=nn.Conv2d(width, width, 1)))
    return nn.Sequential(*layers).eval(), channels


@pytest.mark.slow
@examples(15)
@given(networks(), st.integers(6, 9))
def test_random_networks_keep_their_work_and_every_task_reads_what_its_sources_wrote(network, size):
    model, channels = network
    graph = capture(model, torch.zeros(3, channels, size, size))
    assert graph.flops.sum() == counted(model, torch.zeros(1, channels, size, size))
    assert graph.op[0] == "input"
    assert graph.output_bytes[0] == 4 * channels * size**2
    received = np.zeros(graph.n_tasks)
    np.add.at(received, graph.target, graph.edge_bytes)
    assert np.array_equal(received, graph.input_bytes)
    assert (graph.edge_bytes <= graph.output_bytes[graph.source]).all()
    assert np.array_equal(graph.bytes_accessed, graph.weight_bytes + graph.input_bytes + graph.output_bytes)


@pytest.mark.slow
@examples(8)
@given(networks(), st.integers(6, 9), st.booleans())
def test_random_networks_run_task_by_task_as_they_are_and_fused_ones_keep_their_work(network, size, fuse):
    model, channels = network
    model, x = nn.Sequential(nn.Conv2d(channels, channels, 1), model).eval(), torch.randn(2, channels, size, size)
    program = hs.runtime.Program(model, x, fuse=fuse)
    with torch.no_grad():
        assert torch.equal(program(x), model(x))
    graph, plain = program.graph, capture(model, x)
    assert graph.n_tasks <= plain.n_tasks
    assert graph.flops.sum() == plain.flops.sum()
    assert graph.weight_bytes.sum() == plain.weight_bytes.sum()
    assert graph.output_bytes[0] == plain.output_bytes[0]
    received = np.zeros(graph.n_tasks)
    np.add.at(received, graph.target, graph.edge_bytes)
    assert np.array_equal(received, graph.input_bytes)
    assert (graph.edge_bytes <= graph.output_bytes[graph.source]).all()


def test_a_small_network_by_hand():
    model = nn.Sequential(nn.Linear(3, 5), nn.Flatten(), nn.Dropout(), nn.GELU())
    graph = capture(model.eval(), torch.zeros(7, 2, 3))
    assert graph.names == ("input", "0/linear", "3/gelu")
    assert row(graph, "input") == ("input", 0, 0, 24, 0, 24)
    assert row(graph, "0/linear") == ("linear", 80, 24, 40, 2 * 2 * 3 * 5, 144)
    assert row(graph, "3/gelu") == ("gelu", 0, 40, 40, 0, 80)
    assert edges(graph) == {("input", "0/linear"): 24, ("0/linear", "3/gelu"): 40}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "size", "shape"),
    [
        (nn.Conv2d(8, 16, 3, padding=1), (8, 10, 12), hs.Shape(120, 16, 72, (3, 3), (1, 1))),
        (nn.Conv2d(8, 16, (1, 3), stride=(2, 1)), (8, 10, 12), hs.Shape(50, 16, 24, (1, 3), (2, 1))),
        (nn.Conv2d(8, 8, 3, stride=2, groups=8), (8, 9, 9), hs.Shape(16, 8, 9, (3, 3), (2, 2), 8)),
        (nn.Conv1d(4, 6, 5), (4, 20), hs.Shape(16, 6, 20, (5,), (1,))),
        (nn.ConvTranspose2d(8, 4, 2, stride=2), (8, 5, 5), hs.Shape(100, 4, 8, (2, 2), (2, 2))),
        (nn.Linear(32, 10), (7, 32), hs.Shape(7, 10, 32)),
        (nn.MaxPool2d(3, 2), (8, 9, 9), hs.Shape(16, 8, 9, (3, 3), (2, 2))),
        (nn.AvgPool2d(2), (8, 8, 8), hs.Shape(16, 8, 4, (2, 2), (2, 2))),
        (nn.AdaptiveAvgPool2d(1), (8, 6, 6), hs.Shape(1, 8, 36)),
        (nn.ReLU(), (8, 6, 6), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_shapes_are_those_of_one_input(layer, size, shape):
    for batch in (1, 3):
        graph = capture(nn.Sequential(layer).eval(), torch.zeros(batch, *size))
        assert graph.shape[1] == shape
        if shape is not None and graph.flops[1]:
            assert graph.flops[1] == 2 * shape.rows * shape.columns * shape.reduction
    fused = capture(nn.Sequential(layer, nn.ReLU()).eval(), torch.zeros(2, *size), fuse=True)
    if shape is not None:
        assert shape in fused.shape, "fusion keeps it"


@pytest.mark.slow
def test_half_precision_halves_the_bytes():
    model = nn.Linear(3, 5)
    full, half = (capture(model.to(dtype), torch.zeros(2, 3, dtype=dtype)) for dtype in (torch.float32, torch.float16))
    for column in ("weight_bytes", "input_bytes", "output_bytes", "edge_bytes", "bytes_accessed"):
        assert np.array_equal(getattr(full, column), 2 * getattr(half, column))
    assert np.array_equal(full.flops, half.flops)


@pytest.mark.parametrize("bias", [False, True])
def test_batch_norm_folds_into_the_convolution_before_it_and_leaves_one_bias(bias):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=bias), nn.BatchNorm2d(8), nn.ReLU()).eval()
    graph = capture(model, torch.zeros(1, 3, 6, 6))
    assert graph.names == ("input", "0/conv2d", "2/relu")
    assert graph.weight_bytes.tolist() == [0, 4 * (8 * 3 * 9 + 8), 0]
    assert graph.flops[1] == 2 * 16 * 8 * 27


@pytest.mark.slow
def test_batch_norm_stands_alone_where_it_cannot_be_folded():
    shared = Lambda(lambda m, x: (y := m.conv(x)) + m.norm(y), conv=nn.Conv2d(3, 8, 3), norm=nn.BatchNorm2d(8)).eval()
    graph = capture(shared, torch.zeros(1, 3, 6, 6))
    assert graph.op == ("input", "conv2d", "batch_norm", "add")
    assert graph.weight_bytes[2] == 4 * 4 * 8
    first = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3)).eval()
    assert capture(first, torch.zeros(1, 3, 6, 6)).op == ("input", "batch_norm", "conv2d")
    training = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).train()
    assert capture(training, torch.zeros(1, 3, 6, 6)).op == ("input", "conv2d", "batch_norm")


@pytest.mark.slow
def test_a_functional_model_is_named_by_its_operators():
    graph = capture(Lambda(lambda m, x, y: F.relu(x @ y) + F.relu(y)), (torch.zeros(1, 4, 4), torch.zeros(1, 4, 4)))
    assert len(set(graph.names)) == graph.n_tasks
    assert [name for name, op in zip(graph.names, graph.op, strict=True) if op != "input"] == ["matmul", "relu", "relu_1", "add"]
    assert graph.op.count("input") == 2


def attention(m, x):
    b, t, d = x.shape
    q, k, v = (y.view(b, t, 2, d // 2).transpose(1, 2) for y in m.qkv(x).chunk(3, -1))
    return m.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))


def attention_model():
    return Lambda(attention, qkv=nn.Linear(8, 24), out=nn.Linear(8, 8))


@pytest.mark.slow
def test_attention_moves_each_part_once_and_its_work_counts():
    graph = capture(attention_model(), torch.zeros(1, 5, 8))
    name = "scaled_dot_product_attention"
    arrow = edges(graph)
    assert arrow["qkv/linear", name] == 3 * 5 * 8 * 4
    assert graph.flops[graph.index[name]] == 2 * 2 * 2 * 5 * 5 * 4
    assert graph.output_bytes[graph.index[name]] == 5 * 8 * 4
    assert graph.flops.sum() == counted(attention_model(), torch.zeros(1, 5, 8))


def test_the_attention_kernel_of_the_cpu_counts_too():
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    graph = capture(Lambda(lambda m, x: kernel(x, x, x)[0]), torch.zeros(1, 2, 5, 4))
    assert graph.flops.tolist() == [0, 2 * 2 * 2 * 5 * 5 * 4]
    assert graph.output_bytes[1] == 2 * 5 * 4 * 4  # not the second output, which has no readers


@pytest.mark.slow
def test_the_parts_of_a_split_move_on_their_own():
    def forward(m, x):
        a, b, c = x.split([1, 2, 5], 1)
        return m.one(a), m.two(b).sum(1) + c.sum(1)

    graph = capture(Lambda(forward, width=8, one=nn.Linear(1, 1), two=nn.Linear(2, 2)), torch.zeros(1, 8))
    assert edges(graph) == {
        (graph.names[0], "fc/linear"): 32,
        ("fc/linear", "one/linear"): 4,
        ("fc/linear", "two/linear"): 8,
        ("two/linear", "sum"): 8,
        ("fc/linear", "sum_1"): 20,
        ("sum", "add"): 4,
        ("sum_1", "add"): 4,
    }


@pytest.mark.slow
def test_an_operator_of_several_outputs_sends_the_one_that_is_read():
    def forward(m, x):
        values, places = x.max(-1)
        return values * 2, places + 1

    graph = capture(Lambda(forward, width=8), torch.zeros(1, 6, 8))
    assert graph.output_bytes[graph.index["max"]] == 6 * 4 + 6 * 8
    assert edges(graph)["max", "mul"] == 6 * 4
    assert edges(graph)["max", "add"] == 6 * 8
    only = capture(Lambda(lambda m, x: x.max(-1)[1] + 1, width=8), torch.zeros(1, 6, 8))
    assert only.output_bytes[only.index["max"]] == 6 * 8


@pytest.mark.slow
def test_reading_a_tensor_twice_moves_it_once_and_an_expanded_one_as_stored():
    graph = capture(Lambda(lambda m, x: x @ x.transpose(1, 2), width=4), torch.zeros(1, 4, 4))
    assert edges(graph)["fc/linear", "matmul"] == 64
    assert row(graph, "matmul")[2:] == (64, 64, 2 * 4 * 4 * 4, 128)
    graph = capture(Lambda(lambda m, x, y: y * x[:, :, None].expand(-1, -1, 9), width=4), (torch.zeros(1, 4), torch.zeros(1, 4, 9)))
    assert edges(graph)["fc/linear", "mul"] == 16


@pytest.mark.slow
def test_shared_weights_count_in_every_task_that_reads_them():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(100, 8)
            self.mix = nn.Linear(8, 8)
            self.head = nn.Linear(8, 100, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.mix(self.mix(self.embed(ids))))

    graph = capture(Tied(), torch.zeros(1, 3, dtype=torch.long))
    assert graph.names == ("ids", "embed/embedding", "mix/linear", "mix/linear_1", "head/linear")
    assert graph.weight_bytes.tolist() == [0, 3200, 288, 288, 3200]
    # A lookup of three rows does not read the full table.
    assert graph.bytes_accessed[1] == 24 + 96 + 96


@pytest.mark.slow
def test_what_depends_on_no_argument_is_weight_of_its_readers():
    def forward(m, x):
        mask = torch.ones(x.shape[1], x.shape[1], device=x.device).tril()
        return m.normed(x) + mask.sum(1)[None, :, None] * torch.arange(8, device=x.device)

    normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    graph = capture(Lambda(forward, normed=normed), torch.zeros(1, 5, 8))
    assert graph.op == ("input", "linear", "add")
    assert graph.weight_bytes.tolist() == [0, 4 * (64 + 8), 4 * 5 * 8]


def test_keyword_arguments_in_containers_and_scalars():
    def forward(m, x, *, extra, scale=1.0, flag=None):
        return x * scale + extra["bias"]

    model = Lambda(forward, width=4)
    graph = capture(model, (torch.zeros(3, 4),), example_kwargs={"extra": {"bias": torch.zeros(3, 4)}, "scale": 2.0, "flag": None})
    assert graph.op.count("input") == 2
    assert sorted(graph.op) == ["add", "input", "input", "linear", "mul"]
    assert graph.output_bytes.tolist() == [16] * 5


@pytest.mark.slow
def test_keyword_arguments_may_be_spelled_out_or_not():
    class Named(nn.Module):
        def forward(self, x, *, bias=None, **other):
            return x + bias + other.get("more", 0)

    for model in (Named(), Lambda(lambda m, x, **k: x + k["bias"] + k["more"])):
        graph = capture(model, torch.zeros(3, 4), example_kwargs={"more": torch.zeros(3, 4), "bias": torch.zeros(3, 4)})
        assert sorted(graph.op) == ["add", "add", "input", "input", "input"]
        assert {"bias", "more"} < set(graph.names)
        assert "forward" not in vars(model)


@pytest.mark.slow
def test_unread_arguments_are_left_out_and_those_without_the_batch_count_in_full():
    graph = capture(Lambda(lambda m, x, unused, table: x + table, width=4), (torch.zeros(3, 4), torch.zeros(3), torch.zeros(1, 4)))
    assert graph.op == ("input", "input", "linear", "add")
    assert graph.output_bytes.tolist() == [16, 16, 16, 16]


@pytest.mark.slow
def test_numbers_do_not_depend_on_the_batch_of_the_example():
    graphs = [capture(attention_model(), torch.zeros(batch, 5, 8)) for batch in (1, 2, 7)]
    assert graphs[0] == graphs[1] == graphs[2]


@pytest.mark.slow
def test_without_a_dynamic_batch_the_example_is_the_item():
    one = capture(attention_model(), torch.zeros(1, 5, 8))
    four = capture(attention_model(), torch.zeros(4, 5, 8), dynamic_batch=False)
    assert one.names == four.names
    for column in ("input_bytes", "output_bytes", "flops", "edge_bytes"):
        assert np.array_equal(4 * getattr(one, column), getattr(four, column))
    assert np.array_equal(one.weight_bytes, four.weight_bytes)


def test_a_number_taken_from_a_tensor_keeps_the_dependency():
    graph = capture(Lambda(lambda m, x: x * x.max().item(), width=4), torch.zeros(3, 4), dynamic_batch=False)
    assert edges(graph)["max", "mul"] == 4


@pytest.mark.slow
def test_a_model_on_meta_and_a_function_that_makes_one_give_the_same_graph():
    def make():
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10)).eval()

    real = capture(make(), torch.zeros(1, 3, 6, 6))
    model = make().to("meta")
    assert capture(model, torch.zeros(1, 3, 6, 6)) == real
    assert all(parameter.is_meta for parameter in model.parameters())
    assert capture(make, torch.zeros(1, 3, 6, 6)) == real


@pytest.mark.slow
def test_a_function_is_tried_on_meta_then_fake_then_real():
    seen = []

    class Stubborn(nn.Module):
        def __init__(self, fake):
            super().__init__()
            probe = torch.ones(4)
            seen.append("meta" if probe.is_meta else type(probe).__name__)
            if probe.is_meta or (not fake and type(probe).__name__ == "FakeTensor"):
                probe.tolist()
                raise RuntimeError("tolist worked, but this is no real memory")
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(x)

    expected = capture(Lambda(lambda m, x: x, width=4), torch.zeros(1, 4))
    assert np.array_equal(capture(lambda: Stubborn(fake=True), torch.zeros(1, 4)).flops, expected.flops)
    assert seen == ["meta", "FakeTensor"]
    seen.clear()
    assert np.array_equal(capture(lambda: Stubborn(fake=False), torch.zeros(1, 4)).flops, expected.flops)
    assert seen == ["meta", "FakeTensor", "Tensor"]


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    capture(model, torch.zeros(1, 4))
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_work_is_unknown_where_an_operator_cannot_be_replayed():
    graph = capture(Lambda(lambda m, x: torch.ops.hetsched_test.opaque(x), width=4), torch.zeros(1, 4))
    i = graph.index["hetsched_test.opaque"]
    assert math.isnan(graph.flops[i])
    assert graph.output_bytes[i] == 16


@torch.library.custom_op("hetsched_test::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@opaque.register_fake
def _(x):
    if not isinstance(x, torch._subclasses.FakeTensor):
        raise RuntimeError("only for export")
    return torch.empty_like(x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda m, x: x @ x.T,
            r"task 'matmul' has 4, 16, 36 output bytes for batches of 1, 2, 3: it mixes the items.*pass dynamic_batch=False",
        ),
        (lambda m, x: x.mean(), r"task 'mean' reads a batch but returns no tensor that grows with it: it mixes the items"),
        (
            lambda m, x: x.view(3, 4) + 1,
            r"torch.export cannot capture Lambda: .*; pass dynamic_batch=False: the whole example is then one item",
        ),
    ],
)
def test_models_whose_items_depend_on_each_other_are_refused_but_can_be_captured_as_one_item(function, message):
    model = Lambda(function, width=4)
    with pytest.raises(hs.UnsupportedFeature, match=message):
        capture(model, torch.zeros(3, 4), dynamic_batch=True)
    whole = capture(model, torch.zeros(3, 4), dynamic_batch=False)
    assert whole.n_tasks == 3
    with pytest.warns(RuntimeWarning, match=r".*, so the whole example is one item; dynamic_batch=False asks for that"):
        assert capture(model, torch.zeros(3, 4)) == whole


@pytest.mark.slow
def test_threads_may_capture_at_once():
    """With `torch.export` alone most of these fail."""
    with ThreadPoolExecutor(4) as pool:
        graphs = list(pool.map(lambda width: capture(Lambda(lambda m, x: torch.relu(x), width=width), torch.zeros(3, width)), range(2, 8)))
    assert [graph.n_tasks for graph in graphs] == [graphs[0].n_tasks] * 6
    assert [int(graph.weight_bytes.sum()) for graph in graphs] == [4 * (width * width + width) for width in range(2, 8)]


@pytest.mark.slow
def test_other_messages():
    with pytest.raises(hs.UnsupportedFeature, match=r"a size of 'index' depends on data \(u0\), so its bytes are unknown"):
        capture(Lambda(lambda m, x: x[x > 0] + 1), torch.zeros(3, 4), dynamic_batch=True)
    with pytest.raises(hs.UnsupportedFeature, match=r"'cond' calls functions of the model \(cond\), whose work only a recording .* shows"):
        capture(torch.export.export(Lambda(lambda m, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))), (torch.zeros(3, 4),)))
    with pytest.raises(hs.UnsupportedFeature, match=r"Linear fails on the example: RuntimeError: .*; check the values, shapes and types"):
        capture(nn.Linear(4, 4), torch.zeros(3, 5), dynamic_batch=False)
    with pytest.raises(hs.InvalidProblem, match=r"example_args is 3; it must be a tuple, or a Tensor"):
        capture(nn.Linear(4, 4), 3)
    with pytest.raises(hs.InvalidProblem, match=r"no example argument is a tensor with a batch dimension; give one, or pass dynamic_batch"):
        capture(nn.Linear(4, 4), (torch.tensor(1.0),))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["frontends.torch", "runtime.Program", "runtime.ModuleProfiler"])
def test_missing_torch_names_the_extra(part):
    code = f"import sys; sys.modules['torch'] = None; import hetsched as hs; hs.{part}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.strip().splitlines()[-1].endswith("'torch' is not installed; install it with: pip install 'hetsched[torch]'")
