"""Programs, stages on threads and measured stages of PyTorch modules."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched.models import ios

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from hetsched.runtime import MeasuredStages, Program, StagedProgram  # noqa: E402
from hetsched.runtime import staged as staging  # noqa: E402
from hetsched.runtime.accelerator import full_precision  # noqa: E402
from hetsched.runtime.merging import Merged  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402

LIMITS = {"groups": 2, "group_size": 2}
"""Limits for few stages, which are measured quickly."""


class Block(nn.Module):
    """Branches as in Inception, with outputs of about size 1."""

    def __init__(self, channels=8, stride=1):
        super().__init__()
        make = {"a": (1, 1), "b": (3, 3), "c": (5, 5), "d": (1, 3), "e": (3, 1)}
        self.branches = nn.ModuleDict(
            {
                name: nn.Sequential(
                    nn.Conv2d(channels, 4 + i, kernel, stride, tuple(k // 2 for k in kernel), bias=bool(i % 2)),
                    nn.BatchNorm2d(4 + i),
                    nn.ReLU(),
                )
                for i, (name, kernel) in enumerate(make.items())
            }
        )
        self.after = nn.Conv2d(30, 6, 1)

    def forward(self, x):
        return self.after(torch.cat([branch(x) for branch in self.branches.values()], 1)) + 1.0


class Attention(nn.Module):
    """Views, constants, keywords, two outputs in a dictionary."""

    def __init__(self, width=8, length=5):
        super().__init__()
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).log())

    def forward(self, x, *, scale=None):
        q, k, v = self.mix(x).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(8.0) + self.mask, -1)
        y = self.out((weights @ v).view(x.shape))
        return {"y": y if scale is None else y * scale, "weights": weights}


def calibrated(module, *args):
    """Return the module in eval mode, with normalisations fitted to the arguments, so that no signal vanishes."""
    for member in module.modules():
        if isinstance(member, nn.BatchNorm2d):
            member.momentum = None
    module.train()
    with torch.no_grad():
        module(*args)
    return module.eval()


@pytest.fixture(scope="module", autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def block():
    return calibrated(Block(), torch.randn(8, 8, 12, 12))


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "fused"])
def fuse(request):
    return request.param


@pytest.fixture(scope="module")
def program(block, fuse):
    return Program(block, torch.randn(2, 8, 12, 12), fuse=fuse)


def expected(module, *args, **kwargs):
    with torch.no_grad():
        return module(*args, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_program_returns_what_the_module_returns(program, block, count):
    x = torch.randn(count, 8, 12, 12)
    assert torch.equal(program(x), expected(block, x))


@pytest.mark.slow
def test_views_constants_keywords_and_nested_results():
    module, x = Attention().eval(), torch.randn(2, 5, 8)
    program = Program(module, x, example_kwargs={"scale": torch.ones(8)})
    x, scale = torch.randn(3, 5, 8), torch.rand(8)
    actual, wanted = program(x, scale=scale), expected(module, x, scale=scale)
    assert actual.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(actual[name], value)
    schedule = ios.greedy(program.graph, lambda tasks, strategy: 1.0)
    torch.testing.assert_close(StagedProgram(program, schedule)(x, scale=scale), wanted)


@pytest.mark.slow
def test_the_graph_is_the_captured_one(program, block, fuse):
    assert program.graph == hs.frontends.torch.capture(block, torch.randn(2, 8, 12, 12), fuse=fuse)


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), strategies=st.sampled_from(["concurrent", "merge", "both"]))
@examples(20)
def test_any_stages_return_what_the_module_returns(program, block, seed, strategies):
    rng = np.random.default_rng(seed)

    def cost(tasks, strategy):
        if strategy == "merge":
            try:
                Merged(program, [program.graph.index[name] for name in tasks])
            except hs.UnsupportedFeature:
                return math.inf
        return float(rng.random()) * len(tasks)

    schedule = hs.stages(program.graph, cost, strategies=strategies, blocks=False)
    x, threads = torch.randn(3, 8, 12, 12), torch.get_num_threads()
    wanted = expected(block, x)
    torch.testing.assert_close(StagedProgram(program, schedule)(x), wanted, rtol=1e-4, atol=1e-5)
    assert torch.get_num_threads() == threads


def merged_and_alone(module, *shape):
    """Return the program of a module, and a schedule that merges all convolutions that read the input."""
    program = Program(module, torch.randn(2, *shape), fuse=True)
    names = [name for name in program.graph.names if name.startswith("branches")]
    rest = [name for name in program.graph.names if name not in names and program.graph.op[program.graph.index[name]] != "input"]
    (first,) = (name for name in program.graph.names if program.graph.op[program.graph.index[name]] == "input")
    groups = [[[first]], [[name] for name in names], *([[name]] for name in rest)]
    strategies = ["concurrent", "merge", *("concurrent" for _ in rest)]
    return program, hs.StageSchedule.from_groups(program.graph.names, groups, strategies, [0.0] * len(groups))


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 2])
def test_merged_convolutions_of_all_sizes_are_the_convolutions(stride):
    module = calibrated(Block(stride=stride), torch.randn(8, 8, 12, 12))
    program, schedule = merged_and_alone(module, 8, 12, 12)
    x = torch.randn(3, 8, 12, 12)
    wanted = expected(module, x)
    assert wanted.std() > 0.05
    staged = StagedProgram(program, schedule)
    torch.testing.assert_close(staged(x), wanted, rtol=1e-4, atol=1e-5)
    (merged,) = (merged for _, merged in staged._stages if merged is not None)
    assert tuple(merged.weight.shape) == (4 + 5 + 6 + 7 + 8, 8, 5, 5)


@pytest.mark.parametrize("dims", [1, 3])
def test_convolutions_over_one_and_three_dimensions_merge_too(dims):
    make = getattr(nn, f"Conv{dims}d")

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.branches = nn.ModuleList([make(3, 2, k, padding="same" if k > 1 else 0) for k in (1, 3)])

        def forward(self, x):
            return torch.cat([branch(x) for branch in self.branches], 1)

    module, shape = Module().eval(), (3, *(6,) * dims)
    program, schedule = merged_and_alone(module, *shape)
    x = torch.randn(2, *shape)
    torch.testing.assert_close(StagedProgram(program, schedule)(x), expected(module, x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_perturbed_weight_changes_the_result():
    module = calibrated(Block(), torch.randn(8, 8, 12, 12))
    x = torch.randn(3, 8, 12, 12)
    before = StagedProgram(*merged_and_alone(module, 8, 12, 12))(x)
    with torch.no_grad():
        module.branches["d"][0].weight[0, 0, 0, 0] += 0.5
    after = StagedProgram(*merged_and_alone(module, 8, 12, 12))(x)
    torch.testing.assert_close(after, expected(module, x), rtol=1e-4, atol=1e-5)
    assert (after - before).abs().max() > 1e-3


class Apart(nn.Module):
    """Pairs of convolutions that cannot be merged."""

    def __init__(self):
        super().__init__()
        self.a, self.wide = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, 2, padding=1)
        self.grouped, self.small = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.Conv2d(4, 4, 3)
        self.second = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        a = self.a(x)
        return a, self.wide(x), self.grouped(x), self.small(x), self.second(a)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("wide", "they differ in stride"),
        ("grouped", "not a convolution of fixed size without groups"),
        ("small", "they differ in output size"),
        ("second", "they differ in tensor"),
    ],
)
def test_tasks_that_cannot_be_merged_are_refused_with_the_reason(other, why):
    program = Program(Apart().eval(), torch.randn(2, 4, 9, 9))
    pair = [program.graph.index[f"{name}/conv2d"] for name in ("a", other)]
    with pytest.raises(hs.UnsupportedFeature, match=why):
        Merged(program, pair)
    cost = MeasuredStages(program, torch.randn(1, 4, 9, 9), repeats=1)
    names = tuple(program.graph.names[i] for i in pair)
    assert cost(names, "merge") == cost.bound(names, "merge") == math.inf


# ---------------------------------------------------------------------- fused elementwise operators


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        y = F.silu(self.a(x)) * 2.0
        return F.relu(self.norm(self.b(y)) + y)


@pytest.mark.slow
def test_an_elementwise_operator_is_fused_into_its_only_producer():
    graph = hs.frontends.torch.capture(Residual().eval(), torch.randn(1, 4, 8, 8), fuse=True)
    assert graph.op == ("input", "conv2d", "conv2d", "add")  # silu and * 2 are fused into a, relu into the sum; the sum reads two tensors
    plain = hs.frontends.torch.capture(Residual().eval(), torch.randn(1, 4, 8, 8))
    assert plain.n_tasks == graph.n_tasks + 3
    assert graph.flops.sum() == plain.flops.sum()


# ---------------------------------------------------------------------- measured stages


@pytest.mark.slow
def test_measurements_are_kept_and_taken_up_again(program, tmp_path):
    x, path = torch.randn(2, 8, 12, 12), tmp_path / "stages.json"
    cost = MeasuredStages(program, x, repeats=2, warmup=1, profile=path)
    best = hs.stages(program.graph, cost, bound=cost.bound, **LIMITS)
    assert hs.verify_stages(program.graph, best, **LIMITS, cost=cost) == []
    assert 0 < cost.measured <= best.possible
    cost.write()
    kept = hs.read(path)
    assert kept == cost.profile
    assert len(kept.stages) == cost.measured
    for profile in (path, kept):
        again = MeasuredStages(program, x, repeats=2, warmup=1, profile=profile)
        assert hs.stages(program.graph, again, bound=again.bound, **LIMITS) == best
        assert again.measured == 0
    other = MeasuredStages(program, torch.randn(3, 8, 12, 12), profile=path)
    other(program.graph.names[1:2], "concurrent")  # the first task is the input, which has no computation
    assert other.measured == 1, "another batch is another stage"
    assert len(other.profile.stages) == cost.measured + 1
    with pytest.raises(hs.InvalidProblem, match="there is no file to write the profile to; name one"):
        MeasuredStages(program, x, profile=kept).write()


def test_a_file_is_where_it_was_named(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cost = MeasuredStages(program, torch.randn(2, 8, 12, 12), repeats=1, profile="here.json")
    cost._store.due = math.inf  # nothing is written meanwhile
    cost(program.graph.names[1:2], "concurrent")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    cost._store.finish()  # as at the end of the process
    assert len(hs.read(tmp_path / "here.json").stages) == 1
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_interrupted_search_continues(program, tmp_path):
    x, path = torch.randn(2, 8, 12, 12), tmp_path / "stages.json"
    cost = MeasuredStages(program, x, repeats=1, profile=path)

    def broken(ask):
        def limited(tasks, strategy):
            if cost.measured >= 5:
                raise KeyboardInterrupt
            return ask(tasks, strategy)

        return limited

    with pytest.raises(KeyboardInterrupt):
        hs.stages(program.graph, broken(cost), bound=broken(cost.bound), **LIMITS)
    cost._store.finish()  # as at the end of the process
    again = MeasuredStages(program, x, repeats=1, profile=path)
    assert len(again.profile.stages) == 5
    again.bound(program.graph.names[:1], "concurrent")
    assert again.measured == 0


def test_stages_that_are_the_same_computation_are_measured_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))

        def forward(self, x):
            return self.b(self.a(x))

    cost = MeasuredStages(Program(Twice().eval(), torch.randn(2, 4, 8, 8)), torch.randn(2, 4, 8, 8), repeats=1)
    assert cost(("a/conv2d",), "concurrent") == cost(("b/conv2d",), "concurrent")
    assert cost.measured == 1


def test_the_bound_is_never_above_the_cost(program):
    cost = MeasuredStages(program, torch.randn(2, 8, 12, 12), repeats=1, floor=1.0)
    block = ios.Block(program.graph, program.graph.topological_order, 3, 2)
    for tasks in map(block.members, range(1, 40)):
        for strategy in ("concurrent", "merge"):
            assert cost.bound(tasks, strategy) <= cost(tasks, strategy)


def test_a_file_that_cannot_be_written_costs_only_itself(program, tmp_path):
    cost = MeasuredStages(program, torch.randn(2, 8, 12, 12), repeats=1, profile=tmp_path / "none" / "stages.json")
    with pytest.warns(RuntimeWarning, match="no longer written"):
        assert cost(program.graph.names[1:2], "concurrent") > 0
    assert cost(program.graph.names[:1], "concurrent") == 0, "an input computes nothing"


def test_another_number_of_threads_is_another_device(program):
    cost, threads = MeasuredStages(program, torch.randn(2, 8, 12, 12), repeats=1), torch.get_num_threads()
    try:
        for number in (1, 2, 1):
            torch.set_num_threads(number)
            cost(program.graph.names[1:2], "concurrent")
    finally:
        torch.set_num_threads(threads)
    assert cost.measured == 2
    assert [device.threads for device in cost.profile.devices] == [1, 2]


# ---------------------------------------------------------------------- faults found in a review


class Function(nn.Module):
    """A function as a module, with two convolutions and a matrix to use."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.a, self.b = nn.Conv2d(4, 3, 3, padding=1), nn.Conv2d(4, 5, 1)
        self.w = nn.Parameter(torch.randn(4, 6))

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def test_arguments_that_are_no_tensors_are_part_of_the_program():
    program = Program(
        Function(lambda m, x, k, negative=False: x * (-k if negative else k)).eval(),
        (torch.ones(2, 3), 2.0),
        example_kwargs={"negative": True},
    )
    assert torch.equal(program(torch.ones(2, 3), 2.0, negative=True), torch.full((2, 3), -2.0))
    with pytest.raises(hs.InvalidProblem, match=r"is 3.0; the program was made for 2.0; make a program"):
        program(torch.ones(2, 3), 3.0, negative=True)
    with pytest.raises(hs.InvalidProblem, match="is False; the program was made for True; make a program"):
        program(torch.ones(2, 3), 2.0, negative=False)


@pytest.mark.slow
def test_the_layout_of_arguments_does_not_matter():
    module = Function(lambda m, x: m.a(x).relu().flatten(1)).eval()
    x = torch.randn(2, 4, 5, 5).to(memory_format=torch.channels_last)
    for example in (x, x.contiguous()):
        program = Program(module, example)
        staged = StagedProgram(program, ios.sequential(program.graph, lambda tasks, strategy: 1.0))
        for run in (program, staged):
            torch.testing.assert_close(run(x), expected(module, x))


def test_convolutions_without_a_batch_are_not_merged():
    module = Function(lambda m, x: (m.a(x), m.b(x))).eval()
    program = Program(module, torch.randn(4, 8, 8), dynamic_batch=False)
    with pytest.raises(hs.UnsupportedFeature, match="cannot be merged"):
        Merged(program, [1, 2])


def test_a_bias_that_is_computed_is_not_merged():
    module = Function(lambda m, x, z: (F.conv2d(x, m.b.weight, z.sum(0)), m.b(x))).eval()
    program = Program(module, (torch.randn(2, 4, 8, 8), torch.randn(2, 5)), dynamic_batch=False)
    convolutions = [i for i, op in enumerate(program.graph.op) if op == "conv2d"]
    with pytest.raises(hs.UnsupportedFeature, match="cannot be merged"):
        Merged(program, convolutions)


@pytest.mark.parametrize(
    "draw", [lambda m, x: x + torch.rand(x.shape[0], 4), lambda m, x: F.dropout(x, 0.5, training=True), lambda m, x: x + torch.randn(4)]
)
def test_modules_that_draw_numbers_are_refused(draw):
    with pytest.raises(hs.UnsupportedFeature, match=r"draws random numbers at every call; call eval\(\), or pass them as an argument"):
        Program(Function(draw).eval(), torch.randn(2, 4))


@pytest.mark.slow
def test_dropout_and_attention_without_chance_are_not():
    module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(Program(module, x)(x), expected(module, x))
    attention = Function(lambda m, q: F.scaled_dot_product_attention(q, q, q)).eval()
    q = torch.randn(2, 2, 5, 8)
    torch.testing.assert_close(Program(attention, q)(q), expected(attention, q))


def test_stages_that_share_a_view_are_distinct():
    def products(m, x):
        v = x.t()
        return torch.mm(v, v.t()), torch.mm(v, m.w), torch.mm(m.w, v)

    program = Program(Function(products).eval(), torch.randn(4, 6), dynamic_batch=False)
    cost = MeasuredStages(program, torch.randn(4, 6), repeats=1)
    first, second, third = (name for name in program.graph.names if "mm" in name or "matmul" in name)
    for pair in ((first, second), (first, third)):
        cost(pair, "concurrent")
    assert len({row.groups for row in cost.profile.stages if len(row.groups) == 2}) == 2


def test_threads_and_autocast_are_the_callers(program, block):
    schedule = ios.greedy(program.graph, lambda tasks, strategy: 1.0)
    x, threads = torch.randn(2, 8, 12, 12), torch.get_num_threads()
    staged = StagedProgram(program, schedule)
    try:
        torch.set_num_threads(1)
        staged(x)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert staged(x).dtype == program(x).dtype == torch.bfloat16


def test_batch_norms_are_those_of_the_module(program, block):
    """On CUDA cuDNN has them in one kernel, and the operator that torch.export puts in their place takes two."""
    x = torch.randn(2, 8, 12, 12)
    counts = []
    for run in (program, block):
        with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as record:
            run(x)
        counts.append({row.key: row.count for row in record.key_averages() if "batch_norm" in row.key})
    assert counts[0] == counts[1] != {}


def test_a_replay_has_the_results_of_its_arguments(program, block, monkeypatch):
    """A graph reads and writes the same memory each time; here one that is run again by the CPU."""
    captures = []

    def captured(own, run, warmup):
        made = run()
        captures.append(made.shape[0])
        return lambda: made.copy_(run()), made

    monkeypatch.setattr(staging, "Cuda", lambda device: None)
    monkeypatch.setattr(staging, "captured", captured)
    monkeypatch.setattr(staging, "_key", lambda value: value.shape)  # as for tensors of a GPU
    staged = StagedProgram(program, ios.greedy(program.graph, lambda tasks, strategy: 1.0))
    made = []
    for count in (1, 3, 1, 3, 1):
        x = torch.randn(count, 8, 12, 12)
        made.append((staged._replayed(program.inputs((x,), {})), expected(block, x)))
        x.zero_()
    assert captures == [1, 3]
    for own, wanted in made:
        torch.testing.assert_close(own, wanted, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- on a GPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("graphs", [False, True])
def test_streams_and_graphs_return_what_the_module_returns(graphs, tmp_path):
    module, x = calibrated(Block(), torch.randn(8, 8, 12, 12)).cuda(), torch.randn(2, 8, 12, 12, device="cuda")
    program = Program(module, x, fuse=True)
    cost = MeasuredStages(program, x, profile=tmp_path / "stages.json")
    for schedule in (
        hs.stages(program.graph, cost, bound=cost.bound),
        ios.greedy(program.graph, cost),
        ios.sequential(program.graph, cost),
    ):
        staged = StagedProgram(program, schedule, graphs=graphs)
        for count in (1, 3, 1):
            y = torch.randn(count, 8, 12, 12, device="cuda")
            with full_precision():
                wanted = expected(module, y)
            torch.testing.assert_close(staged(y), wanted, rtol=1e-3, atol=1e-4)
    assert cost.measured > 0
    cost.write()
    again = MeasuredStages(program, x, profile=tmp_path / "stages.json")
    assert again(program.graph.names[1:2], "concurrent") == cost(program.graph.names[1:2], "concurrent")
    assert again.measured == 0


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize("text", ["milk\neggs", '{"my": "data"}', '{"format": "hetsched-graph", "version": 1, "graph": {"tasks": []}}'])
def test_a_strange_file_is_left_alone(program, tmp_path, text):
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(hs.InvalidProblem, match=r"notes\.txt"):
        MeasuredStages(program, torch.randn(2, 8, 12, 12), profile=path)
    assert path.read_text() == text


def test_a_list_of_arguments_is_refused(program):
    with pytest.raises(hs.InvalidProblem, match="example_args is .*; it must be a tuple, or a Tensor"):
        MeasuredStages(program, [torch.randn(2, 8, 12, 12)])


@pytest.mark.parametrize(("word", "value", "rule"), [("repeats", 0, ">= 1"), ("warmup", -1, ">= 0"), ("floor", 1.5, r"in \[0, 1\]")])
def test_parameters_out_of_range(program, word, value, rule):
    with pytest.raises(hs.InvalidProblem, match=f"{word} is {value}; it must be {rule}"):
        MeasuredStages(program, torch.randn(2, 8, 12, 12), **{word: value})


class Pair(torch.nn.Module):
    def forward(self, x, pair):
        return x + pair[0] * pair[1]


def test_arguments_by_position_are_those_of_the_module_however_they_are_given():
    x = torch.randn(2, 3)
    module = torch.nn.Bilinear(3, 3, 4)
    plain = Program(module, (x, x))
    for args in ((x, 2 * x), (torch.nn.Parameter(x), x), (x.T.contiguous().T, x)):
        torch.testing.assert_close(plain(*args), module(*args).detach())
    with pytest.raises(hs.InvalidProblem, match="not nested, or named"):
        plain(x)
    with pytest.raises(hs.InvalidProblem, match="not nested, or named"):
        plain((x, x))
    nested = Program(Pair(), (x, (x, x)))
    assert torch.equal(nested(x, (x, 2 * x)), x + x * 2 * x)
    with pytest.raises(hs.InvalidProblem, match="not nested, or named"):
        nested(x, x, x)


def test_arguments_of_another_shape_or_form(program):
    with pytest.raises(
        hs.InvalidProblem, match=r"argument 'x' is \[2, 7, 12, 12\] of torch.float32 on cpu; the program was made for \[any, 8, 12, 12\]"
    ):
        program(torch.randn(2, 7, 12, 12))
    with pytest.raises(hs.InvalidProblem, match="argument 'x' is .*float64"):
        program(torch.randn(2, 8, 12, 12, dtype=torch.float64))
    with pytest.raises(hs.InvalidProblem, match="not nested, or named"):
        program(torch.randn(2, 8, 12, 12), y=1)


@pytest.mark.slow
def test_a_module_that_changes_itself_is_refused():
    with pytest.raises(hs.UnsupportedFeature, match=r"call its eval\(\) first"):
        Program(Block().train(), torch.randn(2, 8, 12, 12))


def test_a_module_without_weights_is_refused():
    with torch.device("meta"):
        module = Block().eval()
    with pytest.raises(hs.InvalidProblem, match="meta device, without weights"):
        Program(module, torch.randn(2, 8, 12, 12))


def test_a_schedule_that_is_not_valid_is_refused(program):
    names = list(program.graph.names)
    schedule = hs.StageSchedule.from_groups(names, [[[name]] for name in reversed(names)], ["concurrent"] * len(names), [0.0] * len(names))
    with pytest.raises(hs.InvalidSchedule, match="the schedule cannot be run: "):
        StagedProgram(program, schedule)
