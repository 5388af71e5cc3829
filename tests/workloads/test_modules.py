"""The papers' modules: their sizes, their results, and (slow) the numbers of tasks of the largest."""

from __future__ import annotations

import pytest

import hetsched as hs

torch = pytest.importorskip("torch")

from hetsched.workloads import folding, language, swin, translation, vision  # noqa: E402

capture_training, record = hs.frontends.torch.capture_training, hs.frontends.torch.record
cross_entropy = torch.nn.functional.cross_entropy


def parameters(make):
    """Return the number of parameters in billions."""
    with torch.device("meta"):
        return sum(tensor.numel() for tensor in make().parameters()) / 1e9


@pytest.mark.parametrize(("size", "billions"), [("87M", 0.087), ("930M", 0.93), ("2.4B", 2.4), ("3.2B", 3.2)])
def test_trunks_have_the_published_size(size, billions):
    with torch.device("meta"):
        _, *widths = folding.SIZES[size]
        block = sum(tensor.numel() for tensor in folding.Block(*widths).parameters())
    assert folding.SIZES[size][0] * block / 1e9 == pytest.approx(billions, rel=0.035)


@pytest.mark.parametrize(("size", "billions"), [("1.8B", 1.8), ("6.6B", 6.6), ("13B", 13)])
def test_swin_transformers_have_the_published_size(size, billions):
    assert parameters(lambda: swin.swin(size)) == pytest.approx(billions, rel=0.035)


@pytest.mark.parametrize(("size", "billions"), [("330M", 0.33), ("1.3B", 1.3), ("2.7B", 2.7), ("13B", 13)])
def test_decoders_have_the_size_that_their_layers_make(size, billions):
    layers, width, _ = language.DECODERS[size]
    made = parameters(lambda: language.decoder(size))
    assert made == pytest.approx((layers * (12 * width**2 + 13 * width) + (50257 + 2048 + 2) * width) / 1e9)
    assert made == pytest.approx(billions, rel=0.33)  # 24 layers make 1.3B, as in the paper on GPT-3; Moirai says 32


def test_holography_has_the_published_layers():
    model = vision.holography()
    convolutions = [layer for layer in model.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert len(convolutions) == 30
    assert {layer.out_channels for layer in convolutions[:-1]} == {24}
    assert model(torch.zeros(2, 4, 8, 8)).shape == (2, 6, 8, 8)


def translators():
    return [translation.nmt(2, 8, 20), translation.transformer(2, 8, 2, 20), translation.transformer(2, 8, 2, 20, apart=True)]


@pytest.mark.parametrize("which", range(3))
def test_translators_score_each_word_by_the_source_and_the_words_before(which):
    torch.manual_seed(0)
    model = translators()[which].eval()
    source, target = torch.randint(20, (2, 5)), torch.randint(20, (2, 6))
    later, other = target.clone(), source.clone()
    later[:, 3] = (later[:, 3] + 1) % 20
    other[:, 4] = (other[:, 4] + 1) % 20
    with torch.no_grad():
        made, changed, translated = model(source, target), model(source, later), model(other, target)
    assert made.shape == (2, 20, 6)
    torch.testing.assert_close(made[:, :, :3], changed[:, :, :3])
    assert not torch.allclose(made[:, :, 3:], changed[:, :, 3:])
    assert not torch.allclose(made, translated)


def test_a_cell_is_that_of_torch():
    torch.manual_seed(0)
    cell, reference = translation.Cell(3, 4), torch.nn.LSTMCell(3, 4)
    with torch.no_grad():
        for own, other in (
            (cell.read.weight, reference.weight_ih),
            (cell.read.bias, reference.bias_ih),
            (cell.remember.weight, reference.weight_hh),
        ):
            # torch keeps its gates in the order write, forget, new, show
            write, forget, new, show = other.chunk(4)
            own.copy_(torch.cat([write, forget, show, new]))
        reference.bias_hh.zero_()
    x, output, memory = torch.randn(2, 3), torch.randn(2, 4), torch.randn(2, 4)
    torch.testing.assert_close(cell(x, output, memory), reference(x, (output, memory)))


def test_heads_apart_are_heads_together():
    torch.manual_seed(0)
    joint, apart = translation.Attention(8, 2, causal=True), translation.Heads(8, 2, causal=True)
    with torch.no_grad():
        joint.out.bias.zero_()
        for i, head in enumerate(apart.each):
            own = slice(4 * i, 4 * i + 4)
            for name in ("query", "key", "value"):
                getattr(head, name).weight.copy_(getattr(joint, name).weight[own])
                getattr(head, name).bias.copy_(getattr(joint, name).bias[own])
            head.out.weight.copy_(joint.out.weight[:, own])
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(apart(x, x), joint(x, x))


def test_shifted_windows_depend_on_neighbours_and_not_on_the_other_side():
    torch.manual_seed(0)
    layer = swin.Windows(8, 2, window=4, shift=2).eval()
    x = torch.randn(1, 8, 8, 8)
    changed = x.clone()
    changed[0, 0, 0] += 1
    with torch.no_grad():
        seen = (layer(x) - layer(changed)).abs().sum(-1)[0] > 1e-6
    assert seen[:2, :2].all()
    assert seen.sum() == 4, "the corner is in one window with the other corners, but sees only itself"


def test_a_small_swin_keeps_the_grid_whatever_its_size():
    model = swin.Swin((2, 2), 8, 2, window=3, classes=5)
    assert model(torch.zeros(2, 3, 28, 36)).shape == (2, 5)


@pytest.mark.slow
def test_an_evoformer_block_updates_both_and_is_trained():
    torch.manual_seed(0)
    model = folding.Trunk(2, 8, 2, 6, 2)
    x, pair = torch.randn(1, 3, 5, 8), torch.randn(1, 5, 5, 6)
    made, paired = model(x, pair)
    assert (made.shape, paired.shape) == (x.shape, pair.shape)
    assert not torch.allclose(made, x)
    assert not torch.allclose(paired, pair)
    graph = capture_training(model, (x, pair), loss=lambda both: both[0].sum() + both[1].sum())
    assert sum(name.startswith("update:") for name in graph.names) == len(list(model.parameters()))


def test_the_outer_product_is_the_mean_over_sequences():
    layer = folding.OuterProduct(4, 3, inner=2)
    x = torch.randn(1, 2, 3, 4)
    torch.testing.assert_close(layer(torch.cat([x, x], 1)), layer(x))


@pytest.mark.slow
def test_inception_is_trained_with_all_its_layers():
    graph = capture_training(lambda: vision.inception_v3().train(), vision.images(299, 4), optimiser="momentum")
    assert graph.op.count("momentum") == 284
    assert graph.op.count("convolution_backward") == graph.op.count("conv2d") == 94
    assert graph.weight_bytes[[op == "momentum" for op in graph.op]].sum() == 2 * 4 * 23_834_568


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: folding.evoformer("1M"), "no trunk of '1M' parameters is known; choose one of 87M, 930M, 2.4B, 3.2B"),
        (lambda: swin.swin("1M"), "no Swin transformer of '1M' parameters is known; choose one of 1.8B, 6.6B, 13B"),
        (lambda: language.decoder("1M"), "no decoder of '1M' parameters is known; choose one of 330M, 1.3B, 2.7B, 13B"),
    ],
)
def test_messages(call, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        call()


@pytest.mark.slow
def test_celeritas_models_have_thousands_of_tasks():
    sentences = translation.sentences(50, 512)
    for make, smallest in ((translation.nmt, 14_000), (lambda: translation.transformer(apart=True), 22_000)):
        graph = capture_training(make, (sentences, sentences), targets=sentences, loss=cross_entropy, optimiser="adam")
        assert graph.n_tasks > smallest


@pytest.mark.thorough
def test_the_largest_trunk_has_more_than_fifty_thousand_tasks_in_training():
    call = record(lambda: folding.evoformer("3.2B"), folding.aligned("3.2B"))
    assert call.n_tasks > 16_000
    step = capture_training(
        lambda: folding.evoformer("3.2B"), folding.aligned("3.2B"), optimiser="adam", loss=lambda both: both[0].mean() + both[1].mean()
    )
    assert step.n_tasks > 50_000
    assert step.flops.sum() > 2.9 * call.flops.sum()
