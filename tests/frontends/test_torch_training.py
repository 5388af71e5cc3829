"""Training steps: the recorded step computes the gradients; the graph has its transfers, memory and co-location."""

from __future__ import annotations

import copy
import gc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

import torch.utils.checkpoint  # noqa: E402
from torch.fx.node import map_arg  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from hetsched.frontends.flops import Formulas  # noqa: E402
from hetsched.frontends.recorded import record_training  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402

capture, capture_training, record = (getattr(hs.frontends.torch, name) for name in ("capture", "capture_training", "record"))
STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


class Lambda(nn.Module):
    """A function as a module."""

    def __init__(self, function, **members):
        super().__init__()
        self.function = function
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, *args):
        return self.function(self, *args)


@st.composite
def networks(draw, linear=True):
    """Draw a chain of layers in train mode, and the number of input channels."""
    channels = draw(st.integers(1, 4))
    layers, width = [nn.Conv2d(channels, channels, 1)], channels
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["conv", "depthwise", "norm", "relu", "pool", "skip", *(["linear"] if linear else [])]))
        if kind == "conv":
            out = draw(st.integers(1, 6))
            layers.append(nn.Conv2d(width, out, draw(st.sampled_from([1, 3])), padding=1, bias=draw(st.booleans())))
            width = out
        elif kind == "depthwise":
            layers.append(nn.Conv2d(width, width, 3, padding=1, groups=width))
        elif kind == "norm":
            layers.append(nn.BatchNorm2d(width))
        elif kind == "pool":
            layers.append(nn.MaxPool2d(2, 1) if draw(st.booleans()) else nn.AvgPool2d(2, 1))
        elif kind == "relu":
            needed = isinstance(layers[-1], nn.ReLU)  # its gradient is computed from its output
            layers.append(nn.ReLU(inplace=not needed and draw(st.booleans())))
        elif kind == "linear":
            # Contiguous again: for a transposed input, torch's batch norm reports another layout on meta than with data.
            fc = nn.Linear(width, width, bias=draw(st.booleans()))
            layers.append(Lambda(lambda m, x: m.fc(x.transpose(1, 3)).transpose(1, 3).contiguous(), fc=fc))
        else:
            layers.append(Lambda(lambda m, x: x + m.inner(x), inner=nn.Conv2d(width, width, 1)))
    return nn.Sequential(*layers).train(), channels


def replayed(step, model, values):
    """Run the recorded step on real values and return the gradients."""
    held, given, made = dict([*model.named_parameters(), *model.named_buffers()]), iter(values), {}
    with torch.no_grad():
        for node in step.graph.nodes:
            if node.op == "placeholder":
                made[node] = (next(given) if node.name in step.inputs else held[node.target]).detach().clone()
            elif node.op == "call_function":
                args, kwargs = map_arg((node.args, node.kwargs), made.__getitem__)
                view = node.target is torch.ops.aten.view.default  # kernels may use other layouts with data than on meta
                made[node] = (torch.ops.aten.reshape.default if view else node.target)(*args, **kwargs)
    return {name: made[node] for name, node in step.gradients.items()}


def check_gradients(model, args, targets=(), loss=None, accumulate=1):
    step = record_training(model, args, {}, targets, loss, Formulas(), accumulate=accumulate)
    fresh = copy.deepcopy(model)
    parts = zip(*(tensor.chunk(accumulate) for tensor in (*args, *targets)), strict=True)
    made = [(fresh(*part[: len(args)]), part[len(args) :]) for part in parts]
    number = sum((out if loss is None else loss(out, *aims)).mean() for out, aims in made) / accumulate
    parameters = dict(fresh.named_parameters())
    wanted = torch.autograd.grad(number, parameters.values(), allow_unused=True)
    gradients = replayed(step, model, [*args, *targets])
    assert set(gradients) == {name for name, gradient in zip(parameters, wanted, strict=True) if gradient is not None}
    for name, gradient in zip(parameters, wanted, strict=True):
        if gradient is not None:
            torch.testing.assert_close(gradients[name], gradient)


def sources(graph, name):
    i = graph.index[name]
    return [graph.names[j] for j in graph.pred[graph.pred_ptr[i] : graph.pred_ptr[i + 1]]]


def chosen(graph, test):
    return [i for i, name in enumerate(graph.names) if test(name)]


def is_forward(name):
    return not name.startswith(("backward:", "update:", "loss"))


# ---------------------------------------------------------------------- the recorded step


@examples(10)
@given(networks(), st.integers(7, 9))
def test_what_is_recorded_computes_the_gradients(network, size):
    model, channels = network
    check_gradients(model, (torch.randn(3, channels, size, size),))


@examples(3)
@given(networks(), st.sampled_from([2, 3]))
def test_parts_of_the_batch_add_their_gradients(network, accumulate):
    model, channels = network
    check_gradients(model, (torch.randn(2 * accumulate, channels, 7, 7),), accumulate=accumulate)


def held(graph):
    return [graph.weight_bytes[i] for i in chosen(graph, lambda name: name.startswith("update:"))]


def test_each_part_of_the_batch_is_read_once_and_all_share_an_update():
    x, target = torch.zeros(6, 3), torch.zeros(6, dtype=torch.long)
    settings = {"targets": target, "loss": F.cross_entropy, "optimiser": "adam"}
    whole, parts = (capture_training(small(), x, accumulate=k, **settings) for k in (1, 3))
    assert parts.flops.sum() == whole.flops.sum()
    assert parts.op.count("adam") == whole.op.count("adam")
    assert held(parts) == held(whole)
    linear = [i for i, op in enumerate(parts.op) if op == "linear"]
    assert len(linear) == 3 * whole.op.count("linear")
    first = [size for (i, _), size in zip(parts.edges.tolist(), parts.edge_bytes, strict=True) if parts.names[i] == "input"]
    assert set(first) == {2 * 3 * 4}
    added = [name for name in parts.names if name.startswith("backward:") and "/add" in name]
    assert len(added) == 2 * len(list(small().parameters()))


def test_autocast_halves_what_products_write_and_keeps_their_work():
    full, half = (capture_training(small(), torch.zeros(8, 3), autocast=dtype) for dtype in (None, torch.bfloat16))
    assert half.flops.sum() == full.flops.sum()
    assert held(half) == held(full), "updates are in full precision"
    made = [sum(graph.output_bytes[i] for i in chosen(graph, is_forward) if graph.flops[i]) for graph in (full, half)]
    assert made == [4 * 8 * 7, 2 * 8 * 7]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("sgd", torch.optim.SGD),
        ("momentum", lambda parameters: torch.optim.SGD(parameters, momentum=0.9)),
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
    ],
)
def test_an_optimiser_of_torch_keeps_what_its_name_does(name, function):
    named, own = (capture_training(small(), torch.zeros(2, 3), optimiser=one) for one in (name, function))
    assert own == named.replace(op=["sgd" if op == "momentum" else op for op in named.op])


def test_an_optimiser_of_the_user_keeps_what_its_first_step_makes():
    class Rows(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self):
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter] = {"rows": [parameter.sum(-1)], "steps": torch.tensor(1.0)}

    graph = capture_training(nn.Linear(3, 5), torch.zeros(2, 3), optimiser=Rows)
    assert graph.weight_bytes[graph.index["update:weight"]] == 4 * (15 + 5)
    assert graph.op.count("rows") == 2


def test_the_loss_of_an_output_is_taken():
    class Output(dict):
        pass

    def forward(m, x):
        made = m.fc(x)
        return Output(loss=made.square().sum(), made=made)

    model = Lambda(forward, fc=nn.Linear(3, 2))
    graph = capture_training(model, torch.zeros(2, 3))
    assert {"pow", "sum"} <= set(graph.op)
    assert "loss/mean" not in graph.names


def in_place(m, x):
    """Write into parts of tensors, and read them through others."""
    table = torch.zeros(3, 4, 4)
    for i in range(3):
        table[i] = m.one(x) * i
    table[0].mul_(2)
    row = (table + 0)[1]
    base = row + 0
    view = base[:2]
    base.add_(1)
    left, right = m.two(view).relu_().chunk(2, -1)
    return m.one(base).sum() + (left * right).mean()


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (Lambda(in_place, one=nn.Linear(4, 4), two=nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))), (torch.ones(4, 4),)),
        (Lambda(lambda m, x: m.cells(x)[0], cells=nn.LSTM(4, 5, 2)), (torch.ones(3, 2, 4),)),
        (Lambda(lambda m, x: m.attend(x, x, x)[0], attend=nn.MultiheadAttention(4, 2)), (torch.ones(3, 2, 4),)),
    ],
)
def test_memory_that_is_written_into_cells_and_attention(model, args):
    check_gradients(model, args)


def again(m, x):
    """Recompute the first part in the backward pass instead of keeping its activations."""
    return m.last(torch.utils.checkpoint.checkpoint(m.first, x, use_reentrant=False))


def test_what_is_computed_again_reads_the_parameters_again():
    model = Lambda(again, first=nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh()), last=nn.Linear(4, 2))
    x = torch.ones(3, 4)
    check_gradients(model, (x,))
    graph, plain = capture_training(model, x), capture_training(nn.Sequential(*model.first, model.last), x)
    assert graph.flops.sum() == plain.flops.sum() + 2 * 3 * 4 * 5 + 2 * 3 * 5 * 4
    assert graph.weight_bytes.sum() == plain.weight_bytes.sum()
    assert Counter(graph.colocation)["first.0.weight"] == Counter(plain.colocation)["0.weight"] + 1


def test_the_loss_is_part_of_the_step():
    model = nn.Linear(4, 3)
    check_gradients(model, (torch.ones(2, 4),), (torch.tensor([0, 2]),), F.cross_entropy)


# ---------------------------------------------------------------------- the graph of the step


@examples(10)
@given(networks(), st.integers(7, 9), st.sampled_from(list(STATES)), st.booleans())
def test_every_parameter_is_updated_once_from_its_gradient_and_nothing_is_lost(network, size, optimiser, colocate):
    model, channels = network
    x = torch.zeros(2, channels, size, size)
    graph = capture_training(model, x, optimiser=optimiser, colocate=colocate)
    updates = chosen(graph, lambda name: name.startswith("update:"))
    assert [graph.names[i] for i in updates] == [f"update:{name}" for name, _ in model.named_parameters()]
    assert {graph.op[i] for i in updates} == {optimiser}
    for i, (_, parameter) in zip(updates, model.named_parameters(), strict=True):
        size = 4 * parameter.numel()
        assert graph.input_bytes[i] == size
        assert sources(graph, graph.names[i])[0].startswith("backward:")
        held = size * (1 + STATES[optimiser])
        assert (graph.weight_bytes[i], graph.bytes_accessed[i]) == (held, size + 2 * held)
    received = np.zeros(graph.n_tasks)
    np.add.at(received, graph.target, graph.edge_bytes)
    assert np.array_equal(received, graph.input_bytes)
    assert (graph.edge_bytes <= graph.output_bytes[graph.source]).all()
    with FlopCounterMode(display=False) as counter:
        copy.deepcopy(model)(x).mean().backward()
    assert graph.flops.sum() == counter.get_total_flops()


@pytest.mark.slow
@examples(4)
@given(networks(linear=False), st.integers(7, 9))
def test_the_forward_part_is_what_capture_gives(network, size):
    model, channels = network
    x = torch.zeros(2, channels, size, size)
    step, captured = capture_training(model, x), capture(model, x, dynamic_batch=False)
    forward = chosen(step, is_forward)
    assert [step.names[i] for i in forward] == list(captured.names)
    assert [step.op[i] for i in forward] == list(captured.op)
    assert np.array_equal(step.flops[forward], captured.flops)
    read = record(model, x)
    assert (read.names, read.op) == (captured.names, captured.op)
    for column in ("flops", "input_bytes", "edge_bytes"):
        assert np.array_equal(getattr(read, column), getattr(captured, column))


def test_the_gradients_of_linear_layers_are_twice_the_work_but_for_the_first():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    graph = capture_training(model, torch.zeros(4, 8))
    layer = 2 * 4 * 8 * 8
    assert graph.flops[chosen(graph, is_forward)].sum() == 3 * layer
    assert graph.flops[chosen(graph, lambda name: name.startswith("backward:"))].sum() == 5 * layer


def small():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def test_a_small_step_by_hand():
    graph = capture_training(small(), torch.zeros(7, 3), targets=torch.zeros(7, 2), loss=F.mse_loss, optimiser="adam")
    assert graph.names == (
        "input",
        "target",
        "0/linear",
        "1/tanh",
        "2/linear",
        "loss/mse_loss",
        "backward:loss/mse_loss_backward",
        "backward:2/mm",
        "backward:2/mm_1",
        "backward:2/sum",
        "backward:1/tanh_backward",
        "backward:0/mm",
        "backward:0/sum",
        "update:0.weight",
        "update:0.bias",
        "update:2.weight",
        "update:2.bias",
    )
    assert sources(graph, "backward:2/mm") == ["backward:loss/mse_loss_backward"]  # the gradient of the input, which reads the weight
    assert set(sources(graph, "backward:2/mm_1")) == {"1/tanh", "backward:loss/mse_loss_backward"}
    assert sources(graph, "update:2.weight") == ["backward:2/mm_1"]
    at = graph.index
    labels = {name: graph.colocation[at[name]] for name in graph.names}
    assert {name: label for name, label in labels.items() if label} == {
        **dict.fromkeys(["0/linear", "update:0.weight", "update:0.bias"], "0.weight"),
        **dict.fromkeys(["2/linear", "backward:2/mm", "update:2.weight", "update:2.bias"], "2.weight"),
    }
    assert graph.weight_bytes.sum() == 3 * 4 * (3 * 5 + 5 + 5 * 2 + 2) + 4  # the last 4 bytes are the gradient of the loss, which is 1
    assert graph.weight_bytes[at["2/linear"]] == 0
    assert graph.bytes_accessed[at["2/linear"]] == 4 * (7 * 5 + 7 * 2 + 5 * 2 + 2)
    copies = capture_training(small(), torch.zeros(7, 3), targets=torch.zeros(7, 2), loss=F.mse_loss, optimiser="adam", colocate=False)
    assert set(copies.colocation) == {None}
    assert copies.weight_bytes[at["2/linear"]] == 4 * (5 * 2 + 2)
    assert copies.weight_bytes[at["backward:2/mm"]] == 4 * 5 * 2
    assert np.array_equal(copies.bytes_accessed, graph.bytes_accessed)


def test_what_the_backward_pass_needs_is_held_until_then():
    """At its peak, a schedule of the step holds the activations of all layers; one of the forward pass alone holds two."""
    layers, width = 6, 1024
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 8)) for _ in range(layers)])
    graphs = capture_training(model, torch.zeros(64, 8)), record(model, torch.zeros(64, 8))
    peaks = []
    for graph in graphs:
        problem = hs.Problem(graph, hs.Cluster(["gpu"]), durations=np.ones((graph.n_tasks, 1)), memory="peak")
        decision = hs.Decision.from_assignment(problem, dict.fromkeys(graph.names, "gpu"))
        peaks.append(hs.simulate(problem, decision).peak_memory[0] - graph.weight_bytes.sum())
    activation = 4 * 64 * width
    assert peaks[0] >= layers * activation
    assert peaks[1] < 3 * activation


def test_tied_frozen_and_unused_parameters():
    tied = Lambda(lambda m, ids: m.head(m.embed(ids)), embed=nn.Embedding(10, 4), head=nn.Linear(4, 10, bias=False))
    tied.head.weight = tied.embed.weight
    graph = capture_training(tied, torch.zeros(2, 3, dtype=torch.long))
    assert [name for name in graph.names if name.startswith("update:")] == ["update:embed.weight"]
    assert len(sources(graph, "update:embed.weight")) == 1, "the sum of both gradients"
    assert graph.weight_bytes[graph.index["update:embed.weight"]] == 160
    assert {graph.colocation[graph.index[name]] for name in ("embed/embedding", "head/linear")} == {"embed.weight"}
    model = Lambda(lambda m, x: m.one(m.two(x)), one=nn.Linear(4, 4), two=nn.Linear(4, 4), three=nn.Linear(4, 4))
    model.two.requires_grad_(False)
    graph = capture_training(model, torch.zeros(2, 4))
    assert [name for name in graph.names if name.startswith("update:")] == ["update:one.weight", "update:one.bias"]
    assert graph.weight_bytes[graph.index["two/linear"]] == 4 * 20


def test_tasks_that_read_several_parameters_join_their_labels():
    def forward(m, x):
        return F.linear(F.linear(x, m.a, m.b), m.c, m.b)

    a, b, c = (nn.Parameter(torch.zeros(*shape)) for shape in ((4, 4), (4,), (4, 4)))
    graph = capture_training(Lambda(forward, a=a, b=b, c=c), torch.zeros(2, 4))
    assert {label for label in graph.colocation if label} == {"a"}


def test_what_is_made_of_parameters_and_random_numbers_are_made_in_every_step():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Dropout())
    graph = capture_training(model, torch.zeros(2, 4))
    assert "0.parametrizations.weight.0/weight_norm_interface" in graph.names
    assert {"1/bernoulli", "1/div", "1/mul"} < set(graph.names)
    assert graph.weight_bytes[graph.index["1/bernoulli"]] == 0
    assert set(sources(graph, "1/mul")) == {"0/matmul", "1/div"}


def test_recurrent_cells_are_written_out():
    model = Lambda(lambda m, x: m.cells(x)[0], cells=nn.LSTM(4, 5, 2))
    graph = capture_training(model, torch.zeros(3, 2, 4))
    assert Counter(graph.op)["tanh"] == 2 * 3 * 2
    assert graph.flops.sum() > 0


def test_the_default_loss_is_the_number_returned_or_its_mean():
    model = nn.Linear(4, 3)
    mean = capture_training(model, torch.zeros(2, 4))
    assert "loss/mean" in mean.names
    number = capture_training(Lambda(lambda m, x: m.fc(x).sum(), fc=model), torch.zeros(2, 4))
    assert not any(name.startswith("loss") for name in number.names)


def test_the_model_and_torch_are_left_as_they_were():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    before = copy.deepcopy(model.state_dict())
    hooks = len(torch.nn.modules.module._global_forward_hooks)
    with torch.no_grad():
        capture_training(model, torch.zeros(2, 3, 6, 6))
    with pytest.raises(hs.UnsupportedFeature):
        capture_training(model, torch.zeros(2, 5, 6, 6))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert len(torch.nn.modules.module._global_forward_hooks) == hooks
    assert torch.backends.mkldnn.enabled
    assert gc.isenabled()


def test_a_model_is_made_without_memory_unless_its_function_reads_values():
    def huge():
        return nn.Sequential(nn.Linear(200_000, 200_000), nn.Linear(200_000, 1))

    graph = capture_training(huge, torch.empty(4, 200_000, device="meta"))
    assert graph.weight_bytes.sum() > 4 * 200_000**2

    def curious():
        torch.ones(1).item()
        return small()

    assert capture_training(curious, torch.zeros(7, 3)) == capture_training(small, torch.zeros(7, 3))
    assert capture_training(small().to("meta"), torch.zeros(7, 3)) == capture_training(small, torch.zeros(7, 3))


def test_arguments_are_named_as_forward_names_them():
    def loss(made, wanted):
        return (made - wanted["y"]).square().mean()

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, left, pair, *, scale):
            return self.fc(left + pair[0]) * pair[1] * scale

    args = (torch.zeros(2, 4), (torch.zeros(2, 4), torch.zeros(2, 4)))
    graph = capture_training(Named(), args, example_kwargs={"scale": torch.zeros(4)}, targets=({"y": torch.zeros(2, 4)},), loss=loss)
    assert [name for name, op in zip(graph.names, graph.op, strict=True) if op == "input"] == ["left", "pair", "pair_1", "scale", "target"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: capture_training(small(), torch.zeros(2, 3), optimiser="lion"),
            hs.InvalidProblem,
            "'lion'; choose one of sgd, momentum, adam, adamw, or give a class of torch.optim",
        ),
        (lambda: capture_training(small(), 3), hs.InvalidProblem, "example_args is 3; it must be a tuple, or a Tensor"),
        (
            lambda: capture_training(small().requires_grad_(False), torch.zeros(2, 3)),
            hs.InvalidProblem,
            r"no parameter of the model requires a gradient; use record\(\) or capture\(\)",
        ),
        (
            lambda: capture_training(Lambda(lambda m, x: (m.fc(x), x), fc=nn.Linear(3, 3)), torch.zeros(2, 3)),
            hs.InvalidProblem,
            "the model returns a tuple, but training needs one number as a tensor; pass a loss",
        ),
        (
            lambda: capture_training(small(), torch.zeros(2, 3), loss=lambda made: made),
            hs.InvalidProblem,
            r"loss <lambda> returns torch.float32 of shape \(2, 2\), but training needs one real number",
        ),
        (
            lambda: capture_training(small(), torch.zeros(2, 3), loss=lambda made: made.detach().sum()),
            hs.InvalidProblem,
            "the result of loss <lambda> depends on no parameter that requires a gradient; unfreeze one",
        ),
        (
            lambda: capture_training(Lambda(lambda m, x: m.fc(x) * x.max().item(), fc=nn.Linear(3, 3)), torch.zeros(2, 3)),
            hs.UnsupportedFeature,
            "Lambda cannot be run on tensors without data: DataDependentOutputException: aten._local_scalar_dense",
        ),
        (
            lambda: record(nn.Linear(3, 3), torch.zeros(2, 4)),
            hs.UnsupportedFeature,
            "Linear fails on the example: RuntimeError: .* check the values, shapes and types of its arguments",
        ),
        (
            lambda: capture_training(small(), torch.zeros(3, 3), accumulate=2),
            hs.InvalidProblem,
            "accumulate is 2, but the batch of the example is 3; give a number that divides it",
        ),
        (lambda: capture_training(small(), torch.zeros(2, 3), accumulate=0), hs.InvalidProblem, "accumulate is 0; it must be"),
        (
            lambda: capture_training(small(), torch.zeros(2, 3), optimiser=lambda parameters: parameters[99]),
            hs.InvalidProblem,
            "the optimiser <lambda> fails: IndexError: list index out of range; give a function of a list of parameters",
        ),
    ],
)
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()
