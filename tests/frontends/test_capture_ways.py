"""Captures that just work: other ways where one fails, causes told, models of Hugging Face, exported programs."""

from __future__ import annotations

import dataclasses
import warnings
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.testing.profiles import examples

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from hetsched.frontends import exporting  # noqa: E402
from hetsched.frontends.calling import reason, tensors_in  # noqa: E402
from hetsched.frontends.flops import Formulas  # noqa: E402
from hetsched.frontends.training import recordings  # noqa: E402

capture, capture_training, record = (getattr(hs.frontends.torch, name) for name in ("capture", "capture_training", "record"))


class Lambda(nn.Module):
    """A function as a module, after a linear layer of width 4."""

    def __init__(self, function):
        super().__init__()
        self.function, self.fc = function, nn.Linear(4, 4)

    def forward(self, x, *args, **kwargs):
        return self.function(self, self.fc(x), *args, **kwargs)


class Exits(nn.Module):
    """Layers, after each of which the call ends if the mean of its result is above a threshold."""

    def __init__(self, thresholds):
        super().__init__()
        self.thresholds = thresholds
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in thresholds)

    def forward(self, x):
        for layer, threshold in zip(self.layers, self.thresholds, strict=True):
            x = torch.tanh(layer(x))
            if x.mean() > threshold:
                break
        return x * 2


@st.composite
def layers(draw):
    """Draw a chain of layers, some of which write in place."""
    kinds = [
        lambda: nn.Linear(4, 4),
        nn.ReLU,
        lambda: nn.ReLU(inplace=True),
        lambda: nn.BatchNorm1d(4),
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4)),
        lambda: Lambda(lambda m, x: x.add_(1).chunk(2, -1)[0].repeat(1, 2) + x),
    ]
    return nn.Sequential(nn.Linear(4, 4), *[draw(st.sampled_from(kinds))() for _ in range(draw(st.integers(0, 5)))])


def ancestors(graph, task):
    """Return the tasks that a task waits for."""
    found, rest = set(), [task]
    while rest:
        i = rest.pop()
        new = set(graph.pred[graph.pred_ptr[i] : graph.pred_ptr[i + 1]].tolist()) - found
        found |= new
        rest += new
    return found


# ---------------------------------------------------------------------- running once


@examples(5)
@given(st.lists(st.sampled_from([-2.0, 2.0]), min_size=1, max_size=5))
def test_early_exits_are_those_of_the_example_and_what_follows_waits_for_the_decision(thresholds):
    model, x = Exits(thresholds), torch.rand(3, 4)
    with pytest.warns(RuntimeWarning, match="DataDependentOutputException.*, so the model was run once on the example"):
        graph = record(model, x)
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert graph.flops.sum() == counter.get_total_flops()
    taken = thresholds.index(-2.0) + 1 if -2.0 in thresholds else len(thresholds)
    assert graph.op.count("linear") == taken
    decisions = [i for i, op in enumerate(graph.op) if op == "gt"]
    assert len(decisions) == taken
    for task in (i for i in range(graph.n_tasks) if i > decisions[0]):
        assert {i for i in decisions if i < task} <= ancestors(graph, task)


@examples(6)
@given(layers(), st.booleans(), st.booleans())
def test_a_call_that_is_run_is_recorded_as_one_without_data(model, training, fuse):
    model.train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x, state = torch.rand(3, 4), torch.get_rng_state()
    without, run = (way.make() for way in recordings(model, (x,), {}, Formulas(), fuse=fuse))
    assert run == without
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


@examples(6)
@given(layers())
def test_recordings_keep_their_work_when_fused(model):
    plain, fused = (recordings(model.eval(), (torch.rand(3, 4),), {}, Formulas(), fuse=fuse)[0].make() for fuse in (False, True))
    assert fused.n_tasks <= plain.n_tasks
    assert (fused.flops.sum(), fused.weight_bytes.sum()) == (plain.flops.sum(), plain.weight_bytes.sum())


def test_a_call_that_is_run_leaves_everything_as_it_was():
    def forward(m, x):
        m.count = m.count + 1
        m.last = F.dropout(x, 0.5)
        return m.last * x.max().item()

    model = Lambda(forward).train()
    model.register_buffer("count", torch.zeros(1))
    x, state = torch.rand(3, 4), torch.get_rng_state()
    with pytest.warns(RuntimeWarning, match="run once"):
        graph = record(model, x)
    assert graph.op[-2:] == ("max", "mul")
    assert graph.index["max"] in ancestors(graph, graph.n_tasks - 1)
    assert torch.equal(state, torch.get_rng_state())
    assert not hasattr(model, "last")
    assert model.count == 0


def test_numbers_of_a_list_are_waited_for_too():
    with pytest.warns(RuntimeWarning, match="run once"):
        graph = record(Lambda(lambda m, x: m.fc(x) * sum(x.argmax(-1).tolist())), torch.rand(3, 4))
    assert graph.index["argmax"] in ancestors(graph, graph.index["mul"])


# ---------------------------------------------------------------------- ways and causes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "told", "remedy"),
    [
        (lambda m, x: x @ x.T, "it mixes the items of a batch.*, so the whole example is one item", "; pass dynamic_batch=False"),
        (
            lambda m, x: x[: 3 if x.shape[0] == 2 else 2] + 1,
            "Constraints violated.*specialized.*, so the whole example is one item",
            "specialized.*; pass dynamic_batch=False",
        ),
        (
            lambda m, x: x[x > 0] + 1,
            "DynamicOutputShapeException.*, so the model was run once on the example: another example may have other tasks",
            r"depends on data.*; sizes or control flow depend on data, so record\(\) runs it once",
        ),
    ],
)
def test_a_capture_goes_on_by_another_way_and_tells_it(function, told, remedy):
    model, x = Lambda(function), torch.rand(3, 4)
    with pytest.warns(RuntimeWarning, match=told) as caught:
        graph = capture(model, x)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert graph.flops.sum() >= 2 * 3 * 16
    with pytest.raises(hs.UnsupportedFeature, match=remedy):
        capture(model, x, dynamic_batch=True)


def test_what_torch_cannot_export_is_recorded_without_data():
    class Odd:
        def __init__(self, made):
            self.made = made

    model, x = Lambda(lambda m, x: Odd([torch.relu(x)])), torch.rand(3, 4)
    with pytest.warns(RuntimeWarning, match=r"torch.export cannot capture Lambda: .*, so the call was recorded operator by operator"):
        graph = capture(model, x)
    assert graph == record(model, x)
    assert graph.output_bytes.tolist() == [48, 48, 48]
    (made,) = tensors_in(model(x))
    assert made.shape == (3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("positive", [True, False])
def test_control_flow_of_torch_is_recorded_as_what_it_runs(positive):
    branches = {True: lambda x: F.relu(x), False: lambda x: x @ x.T}
    model, x = Lambda(lambda m, x: torch.cond((x * 0).sum() + 1 > (0 if positive else 2), *branches.values(), (x,))), torch.rand(3, 4)
    with pytest.warns(RuntimeWarning, match="the model was run once on the example"):
        graph = record(model, x)
    chosen = graph.index["relu" if positive else "matmul"]
    assert graph.index["gt"] in ancestors(graph, chosen)
    assert graph.flops[chosen] == (0 if positive else 2 * 3 * 3 * 4)
    assert {"relu", "matmul"} & set(graph.names) == {graph.names[chosen]}


@pytest.mark.slow
def test_attention_with_a_function_of_the_scores_and_compiled_parts_are_recorded():
    flex = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
    model = Lambda(torch.compile(lambda m, x: flex(x, x, x, score_mod=lambda score, b, h, q, k: score + q - k)))
    with pytest.warns(RuntimeWarning, match=r"'flex_attention' calls functions of the model .*, so the call was recorded"):
        graph = capture(model, torch.rand(1, 2, 5, 4))
    assert graph.flops.sum() == 2 * (2 * 5 * 4 * 4) + 2 * (2 * 2 * 5 * 5 * 4)


@dataclasses.dataclass
class Pair:
    """Two tensors, and a number."""

    x: torch.Tensor
    y: torch.Tensor
    scale: float = 2.0


@pytest.mark.slow
def test_tensors_are_found_in_data_classes_and_in_whatever_torch_knows():
    model, x, y = Lambda(lambda m, x: x), torch.rand(3, 4), torch.rand(3, 4)
    model.forward = lambda given: Pair(model.fc(given["pairs"][0].x) * given["pairs"][0].y, x)
    graph = capture(model, ({"pairs": [Pair(x, y)]},))
    assert graph.op == ("input", "input", "linear", "mul")
    assert record(model, ({"pairs": [Pair(x, y)]},)).n_tasks == 4
    with pytest.raises(
        hs.InvalidProblem, match=r"an argument is a SimpleNamespace, in which torch finds no tensors; give a tuple, .* dict"
    ):
        capture(model, (x, SimpleNamespace(y=[y])))


def test_a_traced_module_is_recorded():
    plain = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    traced = torch.jit.trace(plain, torch.rand(2, 4))
    with pytest.warns(RuntimeWarning, match=r"ScriptModule is not supported.*, so the call was recorded"):
        graph = capture(traced, torch.rand(2, 4))
    assert graph.flops.tolist() == record(plain, torch.rand(2, 4)).flops.tolist()


@examples(12)
@given(width=st.integers(1, 6), dtype=st.sampled_from(["int8", "uint8", "float8_e4m3fn", "float16", "int16"]), scaled=st.booleans())
def test_weights_that_are_stored_in_fewer_bytes_count_as_they_are_stored(width, dtype, scaled):
    def weight(m):
        return m.narrow.to(torch.float32) * m.scales if scaled else m.narrow.to(torch.float32)

    model = Lambda(lambda m, x: x @ weight(m))
    model.register_buffer("narrow", torch.zeros(4, width).to(getattr(torch, dtype)))
    model.register_buffer("scales", torch.zeros(width))
    graph = record(model, torch.rand(3, 4))
    stored = model.narrow.nbytes + (model.scales.nbytes if scaled else 0)
    assert graph.weight_bytes[-1] == min(stored, 4 * 4 * width)
    assert graph.bytes_accessed[-1] == graph.weight_bytes[-1] + 4 * 3 * (4 + width)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: capture(nn.Conv2d(3, 8, 3), torch.zeros(1, 4, 8, 8)),
            hs.UnsupportedFeature,
            "Conv2d fails on the example: RuntimeError: Given groups=1, .* to have 3 channels, but got 4 .*; check the values, shapes",
        ),
        (
            lambda: capture(nn.Linear(4, 4), (torch.zeros(1, 4), 3)),
            hs.InvalidProblem,
            r"Linear cannot be called with the example: too many positional arguments; give \(input: torch.Tensor\) as example_args",
        ),
        (
            lambda: record(nn.LazyLinear(4), torch.zeros(1, 4)),
            hs.UnsupportedFeature,
            "LazyLinear fails on the example: .*; call it once on an example, which makes its lazy parameters",
        ),
        (
            lambda: record(nn.Linear(4, 4), torch.nested.nested_tensor([torch.zeros(n, 4) for n in (2, 3)], layout=torch.jagged)),
            hs.UnsupportedFeature,
            "its tensors are nested, without sizes; give padded ones",
        ),
        (lambda: capture(nn.Linear(4, 4)), hs.InvalidProblem, "no example argument is a tensor with a batch dimension"),
        (lambda: capture(lambda: 3, torch.zeros(1)), hs.InvalidProblem, "<lambda> returns a int; it must return a torch.nn.Module"),
        (lambda: record(lambda: 3, torch.zeros(1)), hs.InvalidProblem, "<lambda> returns a int; it must return a torch.nn.Module"),
        (
            lambda: capture(lambda: 1 / 0, torch.zeros(1)),
            hs.InvalidProblem,
            "<lambda> fails: ZeroDivisionError: division by zero; it must return a torch.nn.Module",
        ),
        (lambda: record(lambda: 1 / 0, torch.zeros(1)), hs.InvalidProblem, "<lambda> fails: ZeroDivisionError: division by zero"),
        (
            lambda: record(Lambda(lambda m, x: torch.from_numpy(x.detach().numpy()) * 2), torch.zeros(1, 4)),
            hs.UnsupportedFeature,
            "it reads data without torch's operators, which cannot be followed",
        ),
        (
            lambda: record(Lambda(lambda m, x: torch.from_numpy(x.detach().numpy()) * x.max().item()), torch.zeros(1, 4)),
            hs.UnsupportedFeature,
            "it reads data without torch's operators, which cannot be followed",
        ),
        (
            lambda: record(Lambda(lambda m, x: x * x.max().item() + x.detach().numpy().max()), torch.zeros(1, 4)),
            hs.UnsupportedFeature,
            r"the model reads data by numpy\(\), which cannot be followed; use operators of torch",
        ),
        (
            lambda: record(Exits([0.0]).to("meta"), torch.zeros(1, 4)),
            hs.UnsupportedFeature,
            "Exits is on the meta device, but sizes or control flow depend on data; give it with weights",
        ),
    ],
)
def test_messages_name_the_cause(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_reason_keeps_the_lines_that_name_a_constraint():
    text = "Constraints violated (b)! For more.\n  - Not all values of b = 3.\n\nStack:\n  file.py\nSuggested fixes:\n  b = 2\n"
    assert reason(ValueError(text)) == "ValueError: Constraints violated (b)! For more; Not all values of b = 3"
    assert reason(ValueError()) == "ValueError: no message"


@pytest.mark.slow
def test_keywords_alone_are_an_example():
    assert capture(nn.Linear(4, 2), example_kwargs={"input": torch.zeros(3, 4)}) == capture(nn.Linear(4, 2), torch.zeros(3, 4))
    assert record(nn.Linear(4, 2), example_kwargs={"input": torch.zeros(3, 4)}) == record(nn.Linear(4, 2), torch.zeros(3, 4))


# ---------------------------------------------------------------------- exported programs


@pytest.mark.slow
def test_an_exported_program_and_its_file_are_read(tmp_path):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.zeros(3, 5, 4)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    fixed = torch.export.export(model, (x,))
    dynamic = torch.export.export(model, (x,), dynamic_shapes=({0: batch, 1: length},))
    torch.export.save(dynamic, tmp_path / "model.pt2")
    one, whole = capture(model, x), capture(model, x, dynamic_batch=False)
    for program in (dynamic, tmp_path / "model.pt2", str(tmp_path / "model.pt2")):
        assert capture(program) == one
        assert capture(program, dynamic_batch=True) == one
        assert capture(program, dynamic_batch=False) == whole
    assert capture(fixed) == whole
    with pytest.raises(hs.UnsupportedFeature, match="no input of the program has a dynamic first dimension; export it with dynamic_shapes"):
        capture(fixed, dynamic_batch=True)
    with pytest.raises(hs.InvalidProblem, match="an exported program has its arguments; leave example_args and example_kwargs out"):
        capture(fixed, x)


def test_files_that_are_no_programs(tmp_path):
    (tmp_path / "text.pt2").write_text("text")
    for name in ("text.pt2", "missing.pt2"):
        with pytest.raises(hs.InvalidProblem, match=f"{name}' cannot be read as an exported program: .*; write it by torch.export.save"):
            capture(tmp_path / name)


# ---------------------------------------------------------------------- models of Hugging Face


class Cached(nn.Module):
    """Returns a cache as models of Hugging Face do: as an object, if the configuration or the call asks for it."""

    def __init__(self):
        super().__init__()
        self.fc, self.config = nn.Linear(4, 4), SimpleNamespace(use_cache=True)

    def forward(self, x, use_cache=None):
        keys = self.fc(x)
        cache = SimpleNamespace(keys=keys) if (self.config.use_cache if use_cache is None else use_cache) else None
        return torch.relu(keys), cache


@pytest.mark.slow
def test_caches_are_turned_off_unless_the_call_asks_for_them():
    model, x = Cached(), torch.zeros(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert capture(model, x).op == ("input", "linear", "relu")
    assert model.config.use_cache
    with pytest.warns(RuntimeWarning, match="so the call was recorded operator by operator"):
        assert capture(model, x, example_kwargs={"use_cache": True}, dynamic_batch=False).op == ("input", "linear", "relu")


def language(kind, head, **options):
    transformers = pytest.importorskip("transformers")
    small = {"vocab_size": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return getattr(transformers, head).from_config(transformers.AutoConfig.for_model(kind, **small, **options)).eval()


def tiny():
    return language("gpt2", "AutoModelForCausalLM", n_layer=1, n_head=2, n_embd=8, n_positions=16)


@pytest.mark.slow
def test_a_language_model_is_captured_by_the_plain_call_without_its_cache():
    model, ids = tiny(), torch.ones(3, 5, dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = capture(model, example_kwargs={"input_ids": ids})
    assert model.config.use_cache
    assert graph.output_bytes[0] == 5 * 8
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(input_ids=ids[:1])
    assert graph.flops.sum() == counter.get_total_flops()
    kept = graph.output_bytes[[i for i, op in enumerate(graph.op) if "attention" in op]]
    assert kept.tolist() == [5 * 8 * 4]


@pytest.mark.slow
def test_the_loss_of_labels_is_trained():
    ids = torch.ones(2, 5, dtype=torch.long)
    graph = capture_training(tiny().train(), example_kwargs={"input_ids": ids, "labels": ids}, optimiser="adamw")
    assert "nll_loss_forward" in graph.op
    assert graph.op.count("adamw") == sum(1 for _ in tiny().parameters())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "head", "options", "arguments"),
    [
        (
            "llama",
            "AutoModelForCausalLM",
            {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8},
            ["input_ids"],
        ),
        (
            "t5",
            "AutoModelForSeq2SeqLM",
            {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_heads": 2, "num_layers": 1},
            ["input_ids", "decoder_input_ids"],
        ),
        (
            "bert",
            "AutoModel",
            {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8},
            ["input_ids", "attention_mask"],
        ),
    ],
)
def test_other_models_of_hugging_face(kind, head, options, arguments):
    kwargs = {name: torch.ones(3, 5, dtype=torch.long) for name in arguments}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        graph = capture(lambda: language(kind, head, **options), example_kwargs=kwargs)
    assert graph.flops.sum() > 0


@pytest.mark.slow
def test_a_step_of_decoding_reads_the_caches_of_a_decoder_and_an_encoder():
    transformers = pytest.importorskip("transformers")
    model = language("t5", "AutoModelForSeq2SeqLM", d_model=8, d_kv=4, d_ff=8, num_heads=2, num_layers=1)
    ids = {"input_ids": torch.ones(3, 5, dtype=torch.long), "decoder_input_ids": torch.ones(3, 1, dtype=torch.long)}
    own, crossed = transformers.DynamicCache(), transformers.DynamicCache()
    own.update(torch.rand(3, 2, 4, 4), torch.rand(3, 2, 4, 4), 0)
    crossed.update(torch.rand(3, 2, 5, 4), torch.rand(3, 2, 5, 4), 0)
    graph = record(model, example_kwargs=ids | {"past_key_values": transformers.EncoderDecoderCache(own, crossed)})
    inputs = [size for size, op in zip(graph.output_bytes.tolist(), graph.op, strict=True) if op == "input"]
    assert sorted(inputs)[-4:] == [3 * 2 * 4 * 4 * 4] * 2 + [3 * 2 * 5 * 4 * 4] * 2


@pytest.mark.slow
def test_a_step_of_decoding_reads_the_cache_that_it_is_given():
    transformers = pytest.importorskip("transformers")
    model, cache = tiny(), transformers.DynamicCache(config=tiny().config)
    with torch.no_grad():
        model(input_ids=torch.ones(3, 5, dtype=torch.long), past_key_values=cache)
    with pytest.warns(RuntimeWarning, match="so the call was recorded operator by operator"):
        graph = capture(model, example_kwargs={"input_ids": torch.ones(3, 1, dtype=torch.long), "past_key_values": cache})
    inputs = [size for size, op in zip(graph.output_bytes.tolist(), graph.op, strict=True) if op == "input"]
    assert sorted(inputs) == [3 * 8, 3 * 5 * 8 * 4, 3 * 5 * 8 * 4]
    assert cache.get_seq_length() == 5


def test_on_cuda_a_batch_is_one_that_cudnn_normalizes():
    class Chosen(nn.Module):
        def forward(self, x):  # as torch chooses the kernel of a batch normalization
            return x.relu() if x.shape[0] <= 65535 else x.tanh()

    def lengths(x):
        program = exporting._exported(Chosen(), (x,), {}, 2, (x,), {})
        return [(int(length.lower), int(length.upper)) for length in program.range_constraints.values()]

    with FakeTensorMode():  # needs no device
        x = torch.empty(2, 3, device="cuda")
    assert lengths(x) == [(1, 65535)]
    with pytest.raises(Exception, match="Constraints violated"):
        lengths(torch.empty(2, 3))
