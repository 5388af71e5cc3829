"""Schedules of captured modules handed to Accelerate and to torch's pipelining: what they take, and what they run."""

from __future__ import annotations

import copy
import functools
import itertools

import pytest

import hetsched as hs
from hetsched import coarsening

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.distributed.pipelining import SplitPoint, pipeline  # noqa: E402

CLUSTER = hs.Cluster(["u", "v"], bandwidth=1e9)


class Block(nn.Module):
    """A residual block, which reads two tensors in its own forward."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    """Residual blocks between a table and a head, with an activation of its own before the head."""

    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(9, 4), nn.ModuleList(Block() for _ in range(3))
        self.head, self.unused = nn.Linear(4, 9), nn.Dropout()

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(torch.tanh(x))


TOKENS = torch.arange(6).reshape(2, 3)


@functools.cache
def net():
    torch.manual_seed(0)
    return Net().eval()


@functools.cache
def problem():
    graph = hs.frontends.torch.capture(net(), TOKENS)
    return hs.Problem(graph, CLUSTER, durations=[[1.0, 1.0]] * graph.n_tasks)


def placed(given, on_v):
    """Return a schedule that has the tasks which start with one of `on_v` on v and the others on u."""
    assignment = {name: "v" if name.startswith(on_v) else "u" for name in given.graph.names}
    return hs.simulate(given, hs.Decision.from_assignment(given, assignment))


def series(*tasks, more=()):
    """Return a problem of tasks one after another, and further edges."""
    return hs.Problem(hs.TaskGraph(tasks, [*itertools.pairwise(tasks), *more]), CLUSTER, durations=[[1.0, 1.0]] * len(tasks))


@functools.cache
def whole():
    return coarsening.by_module(problem(), None, whole=hs.frontends.torch.whole_modules(net(), problem().graph))


@pytest.mark.slow
def test_modules_that_have_to_be_on_one_device():
    assert hs.frontends.torch.whole_modules(net(), problem().graph) == ["layers.0", "layers.1", "layers.2"]
    assert hs.frontends.torch.whole_modules(net(), problem().graph, ["ModuleList"]) == ["layers"]
    assert whole().coarse.graph.names == ("x", "embed", "layers.0", "layers.1", "layers.2", "tanh", "head")


@pytest.mark.slow
def test_the_best_period_becomes_a_pipeline_that_computes_the_same():
    solution = hs.solve(whole().coarse, "contiguous", objective="period")
    assert solution.schedule is not None
    spec, devices = hs.frontends.torch.split_spec(net(), whole().coarse, solution.schedule)
    assert len(spec) == 1
    assert set(spec.values()) == {SplitPoint.BEGINNING}
    assert sorted(devices) == ["u", "v"]
    lifted = hs.simulate(problem(), whole().lift(solution.schedule.decision))
    assert hs.frontends.torch.split_spec(net(), problem(), lifted) == (spec, devices)
    pipe = pipeline(copy.deepcopy(net()), mb_args=(TOKENS,), split_spec=spec)
    assert pipe.num_stages == 2
    assert torch.equal(pipe(TOKENS)[0], net()(TOKENS))


def test_a_stage_that_begins_outside_modules_is_cut_behind_the_last_one():
    schedule = placed(whole().coarse, ("tanh", "head"))
    spec, devices = hs.frontends.torch.split_spec(net(), whole().coarse, schedule)
    assert (spec, devices) == ({"layers.2": SplitPoint.END}, ("u", "v"))


def test_stages_that_no_pipeline_has():
    with pytest.raises(hs.UnsupportedFeature, match="the device 'u' would have two stages, the second from module 'layers.1'; give each"):
        hs.frontends.torch.split_spec(net(), whole().coarse, placed(whole().coarse, ("layers.0",)))
    fine = placed(problem(), ("layers.1.down", "layers.1/add", "layers.2", "tanh", "head"))
    assert hs.frontends.torch.split_spec(net(), problem(), fine)[0] == {"layers.1.down": SplitPoint.BEGINNING}
    fine = placed(problem(), ("layers.1/add", "layers.2", "tanh", "head"))
    assert hs.frontends.torch.split_spec(net(), problem(), fine)[0] == {"layers.1.down": SplitPoint.END}
    inside = series("head/linear", "relu", "tanh", "embed/linear")
    with pytest.raises(hs.UnsupportedFeature, match="a stage would begin inside the model itself; pipelining divides at modules: coarsen"):
        hs.frontends.torch.split_spec(net(), inside, placed(inside, ("tanh", "embed")))


@pytest.mark.filterwarnings("ignore")
def test_accelerate_takes_the_map_and_computes_the_same(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    schedule = placed(whole().coarse, ("layers.1", "layers.2", "tanh"))
    found = hs.frontends.torch.device_map(net(), whole().coarse, schedule, {"u": "cpu", "v": "disk"})
    assert found == {"embed": "cpu", "layers.0": "cpu", "layers.1": "disk", "layers.2": "disk", "head": "cpu", "unused": "cpu"}
    model = copy.deepcopy(net())
    expected = model(TOKENS)
    dispatched = accelerate.dispatch_model(model, found, main_device="cpu", offload_dir=tmp_path)
    assert {name for name, parameter in dispatched.named_parameters() if parameter.is_meta} == {
        name for name, _ in net().named_parameters() if name.startswith(("layers.1", "layers.2"))
    }
    assert torch.equal(dispatched(TOKENS), expected)


def test_one_device_is_one_entry():
    assert hs.frontends.torch.device_map(net(), problem(), placed(problem(), ("none",))) == {"": "u"}


def test_parameters_beside_modules_are_covered():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.shift = nn.Linear(4, 4), nn.Linear(4, 4), nn.Parameter(torch.zeros(4))

        def forward(self, x):
            return self.second(self.first(x) + self.shift)

    given = series("first/linear", "add", "second/linear")
    assert hs.frontends.torch.device_map(Shifted(), given, placed(given, ("second",))) == {"shift": "u", "first": "u", "second": "v"}


def test_placements_that_accelerate_cannot_run():
    device_map = hs.frontends.torch.device_map
    with pytest.raises(hs.UnsupportedFeature, match="module 'layers.1', which must not be split, is on 'u' and 'v'; solve the problem of"):
        device_map(net(), problem(), placed(problem(), ("layers.1.up",)))
    innermost = coarsening.by_module(problem(), None).coarse
    with pytest.raises(hs.UnsupportedFeature, match="module 'layers.2', which must not be split"):
        device_map(net(), innermost, placed(innermost, ("layers.2.up",)), no_split=["Block"])
    with pytest.raises(hs.InvalidSchedule, match="devices has no entry for 'v', which the schedule uses; give the tool's name of it"):
        device_map(net(), problem(), placed(problem(), ("head",)), {"u": 0})
    with pytest.raises(hs.InvalidSchedule, match="the schedule has other tasks than the problem; give the problem that was solved"):
        device_map(net(), whole().coarse, placed(problem(), ("head",)))
    with pytest.raises(hs.InvalidProblem, match="is of the module 'embed', which the model has not; capture the problem from this model"):
        device_map(Block(), problem(), placed(problem(), ("head",)))
    with pytest.warns(
        RuntimeWarning, match="operators between modules run where their inputs are, not where the schedule has them: 'tanh'"
    ):
        device_map(net(), problem(), placed(problem(), ("tanh",)))

    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            first = self.first(x)
            return first + self.second(first)

    given = series("first/linear", "second/linear", "add", more=[("first/linear", "add")])
    with pytest.raises(hs.UnsupportedFeature, match="task 'add' is an operator between modules and would read tensors on 'u' and 'v'"):
        device_map(Skipping(), given, placed(given, ("second",)))


@pytest.mark.slow
def test_a_pipeline_is_divided_behind_a_module_too():
    pipe = pipeline(copy.deepcopy(net()), mb_args=(TOKENS,), split_spec={"layers.2": SplitPoint.END})
    assert pipe.num_stages == 2
    assert torch.equal(pipe(TOKENS)[0], net()(TOKENS))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_transformers_by_its_classes_that_must_not_be_split(tmp_path):
    transformers, accelerate = pytest.importorskip("transformers"), pytest.importorskip("accelerate")
    config = transformers.GPT2Config(n_embd=16, n_head=2, n_layer=3, n_positions=8, vocab_size=11, use_cache=False)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).eval()
    graph = hs.frontends.torch.capture(model, (TOKENS,), dynamic_batch=False)
    given = hs.Problem(graph, CLUSTER, durations=[[1.0, 1.0]] * graph.n_tasks)
    blocks = hs.frontends.torch.whole_modules(model, graph)
    assert blocks == [f"transformer.h.{i}" for i in range(3)]
    made = coarsening.by_module(given, None, whole=blocks)
    schedule = placed(made.coarse, ("transformer.h.1", "transformer.h.2"))
    found = hs.frontends.torch.device_map(model, made.coarse, schedule, {"u": "cpu", "v": "disk"})
    assert found["transformer.h.1"] == "disk"
    expected = model(TOKENS).logits
    dispatched = accelerate.dispatch_model(model, found, main_device="cpu", offload_dir=tmp_path)
    assert torch.equal(dispatched(TOKENS).logits, expected)
