"""FLOPs of operators: formulas of torch, of the package and of the user, and warnings about other operators."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs

torch = pytest.importorskip("torch")
nn, F, aten = torch.nn, torch.nn.functional, torch.ops.aten

from torch.utils import flop_counter  # noqa: E402

from hetsched.frontends.flops import Counter, Formulas, convolution, grouped_product  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402

capture, capture_training, record = (getattr(hs.frontends.torch, name) for name in ("capture", "capture_training", "record"))
WAYS = {"capture": capture, "record": record, "capture_training": capture_training}
sizes = st.integers(1, 5)


def counted(call):
    """Return the count of torch's counter."""
    with torch.no_grad(), flop_counter.FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def ours(call, formulas=None):
    """Return the count of the package, and the operators of unknown work."""
    formulas = Formulas() if formulas is None else formulas
    with torch.no_grad(), Counter(formulas) as counter:
        call()
    return counter.total, formulas.unknown


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


# ---------------------------------------------------------------------- formulas missing in torch's counter


@examples(10)
@given(sizes, sizes, sizes, sizes)
def test_products_in_groups_count_as_one_product_for_each_group(groups, rows, inner, columns):
    """Each of the three divisions into groups equals a batch of products of equal parts."""
    part = counted(lambda: torch.bmm(meta(groups, rows, inner), meta(groups, inner, columns)))
    for left, right in (
        ((groups * rows, inner), (groups, inner, columns)),  # rows are divided among the groups: experts of a mixture
        ((groups, rows, inner), (inner, groups * columns)),  # columns are
        ((rows, groups * inner), (groups * inner, columns)),  # terms are
        ((groups, rows, inner), (groups, inner, columns)),
    ):
        assert grouped_product(left, right) == part


@pytest.mark.parametrize(
    ("ours_is", "as_good_as"),
    [
        (lambda: aten.mv(meta(3, 4), meta(4)), lambda: aten.mm(meta(3, 4), meta(4, 1))),
        (lambda: aten.dot(meta(4), meta(4)), lambda: aten.mm(meta(1, 4), meta(4, 1))),
        (lambda: aten.addmv(meta(3), meta(3, 4), meta(4)), lambda: aten.mm(meta(3, 4), meta(4, 1))),
        (lambda: aten.addbmm(meta(3, 5), meta(2, 3, 4), meta(2, 4, 5)), lambda: aten.bmm(meta(2, 3, 4), meta(2, 4, 5))),
        (lambda: meta(3, 5).addmm_(meta(3, 4), meta(4, 5)), lambda: aten.mm(meta(3, 4), meta(4, 5))),
        (lambda: meta(2, 3, 5).baddbmm_(meta(2, 3, 4), meta(2, 4, 5)), lambda: aten.bmm(meta(2, 3, 4), meta(2, 4, 5))),
        (lambda: torch._int_mm(meta(32, 16, dtype=torch.int8), meta(16, 8, dtype=torch.int8)), lambda: aten.mm(meta(32, 16), meta(16, 8))),
        (
            lambda: aten.slow_conv_transpose2d(meta(1, 4, 6, 6), meta(4, 7, 3, 3), [3, 3]),
            lambda: F.conv_transpose2d(meta(1, 4, 6, 6), meta(4, 7, 3, 3)),
        ),
    ],
)
def test_formulas_of_ours_agree_with_torch_s_for_the_same_work(ours_is, as_good_as):
    assert ours(ours_is) == (counted(as_good_as), set())


def test_each_channel_of_a_depthwise_convolution_counts_its_own_kernel():
    wanted = counted(lambda: F.conv2d(meta(1, 6, 9, 9), meta(6, 1, 3, 3), padding=1, groups=6))
    assert convolution((1, 6, 9, 9), (6, 1, 3, 3), out_shape=(1, 6, 9, 9)) == wanted


class Mixture(nn.Module):
    """A mixture of experts whose rows are sorted by expert, as in Mixtral."""

    def __init__(self, width=16, inner=32, experts=4, chosen=2):
        super().__init__()
        self.chosen = chosen
        self.gate = nn.Linear(width, experts, bias=False, dtype=torch.bfloat16)
        self.up = nn.Parameter(torch.empty(experts, width, inner, dtype=torch.bfloat16))
        self.down = nn.Parameter(torch.empty(experts, inner, width, dtype=torch.bfloat16))

    def forward(self, x):
        weight, expert = self.gate(x).softmax(-1).topk(self.chosen, dim=-1)
        order = expert.flatten().argsort()
        ends = torch.histc(expert.flatten().float(), len(self.up), 0, len(self.up) - 1).cumsum(0).to(torch.int32)
        inner = F.silu(torch._grouped_mm(x[order // self.chosen], self.up, offs=ends))
        made = torch._grouped_mm(inner, self.down, offs=ends) * weight.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, order // self.chosen, made)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(aten, "_grouped_mm"), reason="this torch has no products of matrices in groups")
def test_experts_of_a_mixture_count():
    rows, width, inner, experts, chosen = 24, 16, 32, 4, 2
    x = torch.zeros(rows, width, dtype=torch.bfloat16)
    by_hand = 2 * rows * width * experts + 2 * rows * chosen * 2 * width * inner
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for graph in (capture(Mixture(), x, dynamic_batch=False), record(Mixture(), x)):
            assert graph.flops.sum() == by_hand


LAYERS = [
    (nn.Conv1d(4, 6, 3, groups=2), (2, 4, 9)),
    (nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 9, 9)),
    (nn.Conv3d(2, 3, 3), (2, 2, 5, 5, 5)),
    (nn.LSTM(8, 8, 2, batch_first=True), (2, 5, 8)),
    (nn.GRU(8, 8, batch_first=True), (2, 5, 8)),
    (nn.RNN(8, 8, batch_first=True), (2, 5, 8)),
    (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    (nn.InstanceNorm2d(4), (2, 4, 9, 9)),
    (nn.GroupNorm(2, 4), (2, 4, 9, 9)),
    (nn.RMSNorm(8), (2, 5, 8)),
    (nn.LocalResponseNorm(2), (2, 4, 9, 9)),
    (nn.PReLU(), (2, 4)),
    (nn.GLU(), (2, 4)),
    (nn.Upsample(scale_factor=2, mode="bilinear"), (2, 4, 9, 9)),
    (nn.Upsample(scale_factor=2), (2, 4, 9, 9)),
    (nn.Unfold(3), (2, 4, 9, 9)),
    (nn.PixelShuffle(2), (2, 4, 9, 9)),
    (nn.ReflectionPad2d(1), (2, 4, 9, 9)),
    (nn.ZeroPad2d(1), (2, 4, 9, 9)),
    (nn.AdaptiveMaxPool2d(3), (2, 4, 9, 9)),
    (nn.LPPool2d(2, 3), (2, 4, 9, 9)),
    (nn.AvgPool3d(2), (2, 4, 4, 4, 4)),
    (nn.Hardswish(), (2, 4)),
    (nn.LogSoftmax(-1), (2, 4)),
    (nn.ChannelShuffle(2), (2, 4, 9, 9)),
    (nn.Softplus(), (2, 4)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=[type(layer).__name__ for layer, _ in LAYERS])
def test_the_flops_of_the_layers_of_torch_are_those_of_its_counter(layer, shape):
    layer.eval()
    total, unknown = ours(lambda: layer.to("meta")(meta(*shape)))
    assert (total, unknown) == (counted(lambda: layer.to("meta")(meta(*shape))), set())
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        graph = capture_training(Scaled(layer.to_empty(device="cpu")).train(), torch.zeros(shape))
    assert np.isfinite(graph.flops).all()


class Scaled(nn.Module):
    """A layer whose inputs depend on a parameter."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.scale = layer, nn.Parameter(torch.ones(1))

    def forward(self, x):
        made = self.layer(x * self.scale)
        return made[0] if isinstance(made, tuple) else made


@pytest.mark.slow
def test_layers_that_have_a_kernel_of_their_own_are_recorded_as_their_parts():
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.zeros(2, 5, 8)
    assert record(layer, x).flops.sum() == capture(layer, x, dynamic_batch=False).flops.sum() > 0
    assert torch.backends.mha.get_fastpath_enabled()


# ---------------------------------------------------------------------- operators without a formula


@torch.library.custom_op("hetsched_test::twice", mutates_args=())
def twice(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return 2 * x @ weight


@twice.register_fake
def _(x, weight):
    return x.new_empty(x.shape[0], weight.shape[1])


class Twice(nn.Module):
    def __init__(self, calls=2):
        super().__init__()
        self.first, self.weight, self.calls = nn.Linear(6, 6), nn.Parameter(torch.zeros(6, 6)), calls

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.calls):
            x = twice(x, self.weight)
        return x


def formula(x, weight, *, out_shape):
    assert tuple(out_shape) == (x[0], weight[1])
    return 2 * x[0] * x[1] * weight[1]


@pytest.mark.parametrize("way", ["capture", "record"])
def test_an_unknown_operator_counts_nan_and_one_warning_names_it(way):
    with pytest.warns(RuntimeWarning, match=r"the FLOPs of hetsched_test\.twice are unknown.*flop_formulas=\{torch\.ops\.") as caught:
        graph = WAYS[way](Twice(), torch.zeros(3, 6))
    assert len([warning for warning in caught if "FLOPs" in str(warning.message)]) == 1
    assert caught[0].filename == __file__
    unknown = np.isnan(graph.flops)
    assert [op for op, nan in zip(graph.op, unknown, strict=True) if nan] == ["hetsched_test.twice"] * 2
    assert np.nansum(graph.flops) == 2 * 36 * (1 if way == "capture" else 3)


@pytest.mark.parametrize("key", [twice, torch.ops.hetsched_test.twice, torch.ops.hetsched_test.twice.default])
@pytest.mark.parametrize("way", ["capture", "record"])
def test_a_formula_of_the_user_s_own_counts(way, key):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        graph = WAYS[way](Twice(), torch.zeros(3, 6), flop_formulas={key: formula})
    assert graph.flops.sum() == 3 * 2 * 36 * (1 if way == "capture" else 3)


def test_a_formula_of_the_user_s_own_goes_before_ours_and_torch_s():
    assert ours(lambda: aten.mm(meta(3, 4), meta(4, 5)), Formulas({aten.mm: lambda *_, out_shape: 7})) == (7, set())
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    assert capture(model, torch.zeros(1, 3), flop_formulas={aten.relu: lambda x, out_shape: math.prod(x)}).flops[-1] == 4


def test_formulas_registered_with_torch_count_too(monkeypatch):
    monkeypatch.setattr(flop_counter, "flop_registry", flop_counter.flop_registry)
    flop_counter.register_flop_formula(torch.ops.hetsched_test.twice)(formula)
    try:
        assert capture(Twice(), torch.zeros(3, 6)).flops.sum() == 3 * 2 * 36
    finally:
        del flop_counter.flop_registry[torch.ops.hetsched_test.twice]


@pytest.mark.parametrize(
    ("formulas", "message"),
    [
        ({"mm": formula}, "flop_formulas has a formula for 'mm', which is not an operator; name one as torch.ops.library.operator"),
        ({torch.mm: formula}, "which is not an operator"),
        ({aten.mm: 3}, "is 3; it must be a function or another callable"),
        ({twice: lambda *_, out_shape: -1}, "the FLOP formula of hetsched_test.twice returns -1.0; it must return a number >= 0"),
        ({twice: lambda *_, out_shape: math.nan}, "returns nan; it must"),
        ({twice: lambda x: 1}, "the FLOP formula of hetsched_test.twice fails: TypeError: "),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_bad_formulas_are_refused(way, formulas, message):
    with pytest.raises(hs.InvalidProblem, match=re.escape(message)):
        WAYS[way](Twice(), torch.zeros(3, 6), flop_formulas=formulas)


@examples(40)
@given(batch=st.integers(1, 5), powers=st.lists(st.integers(0, 6), min_size=1, max_size=2))
def test_fourier_transforms_count_5_n_log_n_and_half_of_it_for_real_numbers(batch, powers):
    sizes, dims = [2**power for power in powers], tuple(range(1, len(powers) + 1))
    real = meta(batch, *sizes)
    half, unknown = ours(lambda: torch.fft.rfftn(real, dim=dims))
    assert half == 2.5 * batch * math.prod(sizes) * sum(powers)
    assert ours(lambda: torch.fft.irfftn(torch.fft.rfftn(real, dim=dims), s=sizes, dim=dims))[0] == 2 * half
    assert ours(lambda: torch.fft.fftn(real.to(torch.cfloat), dim=dims))[0] == 2 * half
    assert not unknown


@pytest.mark.filterwarnings("ignore")  # torch: these modules are deprecated
@pytest.mark.parametrize("dynamic", [True, False])
def test_modules_of_8_bits_count_as_those_of_32_with_the_bytes_of_their_packed_weights(dynamic):
    quantisation = torch.ao.quantization
    if dynamic:
        plain, x = torch.nn.Sequential(torch.nn.Linear(8, 6)), torch.rand(3, 8)
        made = quantisation.quantize_dynamic(plain)
    else:
        plain, x = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3, groups=2, bias=False)), torch.rand(1, 4, 5, 5)
        wrapped = quantisation.QuantWrapper(plain).eval()
        wrapped.qconfig = quantisation.get_default_qconfig(torch.backends.quantized.engine)
        prepared = quantisation.prepare(wrapped)
        prepared(x)
        made = quantisation.convert(prepared)
    counted, exact = record(made, x), record(plain, x)
    assert counted.flops.sum() == exact.flops.sum() > 0
    assert counted.weight_bytes.sum() == sum(p.numel() * (1 if p.dim() > 1 else 4) for p in plain.parameters())


def test_operators_of_linear_algebra_do_not_count_as_free():
    for call in (lambda: torch.linalg.qr(meta(4, 4)), lambda: torch.linalg.eigh(meta(4, 4)), lambda: torch.linalg.inv(meta(4, 4))):
        total, unknown = ours(call)
        assert math.isnan(total)
        assert unknown


def test_documents_keep_unknown_work_and_the_roofline_warns_of_it(tmp_path):
    with pytest.warns(RuntimeWarning, match="FLOPs"):
        graph = capture(Twice(), torch.zeros(3, 6))
    hs.documents.write(graph, tmp_path / "graph.json")
    kept = hs.read(tmp_path / "graph.json")
    assert np.array_equal(kept.flops, graph.flops, equal_nan=True)
    cluster = hs.Cluster([hs.costs.device("a100")], bandwidth=1.0)
    with pytest.warns(RuntimeWarning, match=r"times 2 tasks of unknown FLOPs by bytes alone \(operators 'hetsched_test.twice'\); give"):
        problem = hs.Problem(kept, cluster, costs=hs.costs.Roofline())
    assert np.isfinite(problem.durations).all()
