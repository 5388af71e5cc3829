"""Training steps run by decisions: the losses and the state of plain PyTorch, and what faults leave behind."""

from __future__ import annotations

import copy
import os
import re
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from hetsched.runtime import Executor, TrainingProgram  # noqa: E402
from hetsched.runtime import training as trainings  # noqa: E402
from hetsched.testing import decisions  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402
from hetsched.workloads.language import Decoder  # noqa: E402
from tests.runtime.fake_device import World  # noqa: E402

WIDTH = 4
BOUND = 60.0
"""Seconds in which every fault has to end."""
HOOKS: list[object] = []
"""What the operator `act` does in the forward pass."""


@torch.library.custom_op("hetsched_tests::train_act", mutates_args=())
def act(x: torch.Tensor) -> torch.Tensor:
    for hook in HOOKS:
        hook()
    return x + 1


@act.register_fake
def _(x):
    return torch.empty_like(x)


act.register_autograd(lambda context, gradient: gradient)


class Act(nn.Module):
    def forward(self, x):
        return act(x)


@pytest.fixture(autouse=True)
def _one_thread():
    HOOKS.clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the tasks take")
        yield
    torch.set_num_threads(threads)


class Lambda(nn.Module):
    """A function of the module and its input."""

    def __init__(self, function, **members):
        super().__init__()
        self.function = function
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, x):
        return self.function(self, x)


def written(m, x):
    """Read a tensor before and after it is written, in whole and in parts."""
    table = torch.zeros(3, *x.shape) * m.inner.weight.sum()
    for i, row in enumerate([table[0], table[1], table[2]]):
        row.copy_(m.inner(x) * i)
    before = table * 2
    table[0].mul_(2)
    base = table[1] + 0
    view = base[:, :2]
    base.add_(before[2])
    with torch.no_grad():  # views that autograd does not make again after each write
        scale = torch.zeros(3, WIDTH)
        for i, row in enumerate([scale[0], scale[1]]):
            row.copy_(x[0, 0] + i)
    return (base + F.relu_(view).sum() * 0.1) * scale.sum(0)


class Average(nn.Linear):
    """A running average, which is replaced, and a count and a sum, which are written."""

    def __init__(self, width):
        super().__init__(width, width)
        for name, shape in (("average", width), ("sum", width), ("count", ())):
            self.register_buffer(name, torch.zeros(shape))

    def forward(self, x):
        y = super().forward(x)
        self.count.add_(1)
        self.sum[1:] += y.detach().mean((0, 1))[1:]
        self.average = 0.9 * self.average + 0.1 * y.detach().mean((0, 1))
        return y - self.average - self.sum / self.count


class Earlier(nn.Linear):
    """Its buffers get the former values of one another."""

    def __init__(self, swap):
        super().__init__(WIDTH, WIDTH)
        self.swap = swap
        for name in ("now", "before"):
            self.register_buffer(name, torch.rand(WIDTH))

    def forward(self, x):
        y = super().forward(x)
        self.before, self.now = self.now, self.before if self.swap else y.detach().mean((0, 1))
        return y - self.before


def linear(bias=True):
    return nn.Linear(WIDTH, WIDTH, bias=bias)


def attention(dropout):
    attend = nn.MultiheadAttention(WIDTH, 2, dropout=dropout, batch_first=True)
    return Lambda(lambda m, x: m.attend(x, x, x, need_weights=False)[0], attend=attend)


LAYERS = {
    "linear": linear,
    "no bias": lambda: linear(bias=False),
    "shifted buffers": lambda: Earlier(swap=False),
    "swapped buffers": lambda: Earlier(swap=True),
    "skip": lambda: Lambda(lambda m, x: x + m.inner(x), inner=linear()),
    "attention": lambda: attention(0.0),
    "attention with dropout": lambda: attention(0.3),
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "relu in place": lambda: Lambda(lambda m, x: F.relu_(m.inner(x)), inner=linear()),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm": lambda: Lambda(lambda m, x: m.norm(x.transpose(1, 2)).transpose(1, 2), norm=nn.BatchNorm1d(WIDTH)),
    "dropout": lambda: nn.Dropout(0.4),
    "noise": lambda: Lambda(lambda m, x: x + torch.randn_like(x) * torch.rand(WIDTH)),
    "written": lambda: Lambda(written, inner=linear()),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(linear()),
    "frozen": lambda: linear().requires_grad_(False),
    "average": lambda: Average(WIDTH),
}
"""Modules of tensors [batch, rows, WIDTH]."""


class Tied(nn.Module):
    """Layers between two uses of one weight."""

    def __init__(self, inner):
        super().__init__()
        self.table, self.inner = nn.Embedding(7, WIDTH), inner

    def forward(self, tokens):
        return F.linear(self.inner(self.table(tokens)), self.table.weight)


OPTIMISERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, maximize=True),
}


def scores(output, targets):
    return F.cross_entropy(output.flatten(0, 1), targets.flatten())


def batch(seed=0, rows=3, length=2):
    made = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, 7, (rows, length), generator=made) for _ in range(2))


@st.composite
def models(draw):
    """Draw a model and the name of an optimiser."""
    torch.manual_seed(draw(st.integers(0, 2**16)))
    chosen = draw(st.lists(st.sampled_from(list(LAYERS)), min_size=1, max_size=5))
    return Tied(nn.Sequential(*(LAYERS[name]() for name in chosen))).train(), draw(st.sampled_from(list(OPTIMISERS)))


class Training:
    """A module in training beside a copy of it that plain PyTorch trains."""

    def __init__(self, model, optimiser="adam", seed=3, loss=scores, data=batch):
        trained = lambda module: [parameter for parameter in module.parameters() if parameter.requires_grad]  # noqa: E731
        self.model, self.other, self.loss, self.data = model, copy.deepcopy(model), loss, data
        self.optimiser, self.same = (OPTIMISERS[optimiser](trained(module)) for module in (self.model, self.other))
        x, target = data()
        self.program = TrainingProgram(self.model, x, targets=target, loss=loss, optimiser=self.optimiser, seed=seed)
        self.done = 0

    def plain(self):
        """Make a step of plain PyTorch and return its loss."""
        x, target = self.data(self.done)
        with self.program.random_numbers(self.done):
            loss = self.loss(self.other(x), target)
        self.same.zero_grad()
        loss.backward()
        self.same.step()
        self.done += 1
        return loss.detach()

    def check(self, step):
        """Make a step of both and compare their losses, to the bit, and afterwards their states."""
        loss = step(*self.data(self.done))
        wanted = self.plain()
        assert torch.equal(loss, wanted)
        assert not loss.requires_grad
        self.check_states()

    def check_states(self):
        assert self.program.step == self.done
        equal(self.model.state_dict(), self.other.state_dict())
        own, wanted = self.optimiser.state_dict(), self.same.state_dict()
        assert own["param_groups"] == wanted["param_groups"]
        assert own["state"].keys() == wanted["state"].keys()
        for key, state in wanted["state"].items():
            equal(own["state"][key], state)
        assert all(parameter.grad is None for parameter in self.model.parameters())

    def problem(self, seed=0, count=2, **options):
        rng, graph = np.random.default_rng(seed), self.program.graph
        cluster = hs.Cluster([f"d{k}" for k in range(count)], bandwidth=1e9)
        return hs.Problem(graph, cluster, durations=rng.uniform(1e-3, 1e-2, (graph.n_tasks, count)), **options)

    def executor(self, decision=None, problem=None, **options):
        problem = problem or self.problem()
        if decision is None:
            decision = hs.solve(problem, "heft").schedule
        return Executor(self.program, None, decision, devices=dict.fromkeys(problem.cluster.names, 1), problem=problem, **options)


def equal(own, wanted):
    assert own.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.equal(own[name], value) if isinstance(value, torch.Tensor) else own[name] == value, name


def deep(optimiser="adam"):
    torch.manual_seed(0)
    parts = [nn.Linear(WIDTH, WIDTH), Act(), nn.Dropout(0.3), nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return Training(Tied(nn.Sequential(*parts)).train(), optimiser)


# ---------------------------------------------------------------------- results


@pytest.mark.slow
@examples(60)
@given(models(), st.data())
def test_steps_by_any_decision_are_those_of_pytorch_to_the_bit(model, data):
    training = Training(*model)
    communication = data.draw(st.sampled_from(["delay", "channel", "port"]))
    problem = training.problem(data.draw(st.integers(0, 99)), data.draw(st.integers(1, 3)), communication=communication)
    chosen = [data.draw(decisions(problem)) for _ in range(2)]
    with training.executor(chosen[0], problem) as first, training.executor(chosen[1], problem, copies=True) as second:
        for step in (first, training.program, second, first):
            training.check(step)
        second.replace(chosen[0])
        training.check(lambda *args: second.timed(*args)[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_each_layer_on_two_devices(name):
    torch.manual_seed(0)
    training = Training(Tied(nn.Sequential(linear(), LAYERS[name](), linear())).train())
    with training.executor() as placed:
        for _ in range(3):
            training.check(placed)


@pytest.mark.slow
@examples(20)
@given(models(), st.data())
def test_measuring_and_profiling_leave_the_state_as_it_was(model, data):
    training = Training(*model)
    steps, problem = data.draw(st.integers(0, 1)), training.problem(count=data.draw(st.integers(1, 3)))
    with training.executor(data.draw(decisions(problem)), problem) as placed:
        for _ in range(steps):
            training.check(placed)
        placed.measure(*batch(), runs=1)
        assert placed.profiled(placed.problem).durations.shape == placed.problem.durations.shape
        made = hs.runtime.profile(training.program, batch(), devices={"d0": 1, "d1": 1}, warmup=0, runs=1)
        assert (made.problem().graph.names, made.problem().graph.colocation) == (
            training.program.graph.names,
            training.program.graph.colocation,
        )
        training.check(placed)
        training.check(placed)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_graph_is_that_of_capture_training(optimiser):
    training = deep(optimiser)
    x, target = batch()
    with pytest.warns(RuntimeWarning, match="FLOPs of hetsched_tests.train_act are unknown"):
        graph = hs.frontends.torch.capture_training(training.model, x, targets=target, loss=scores, optimiser=optimiser)
    assert training.program.graph == graph


@pytest.mark.slow
def test_twenty_steps_of_a_decoder():
    torch.manual_seed(0)
    training = Training(Decoder(2, 8, 2, 16, 7), "adamw")
    with training.executor() as placed:
        assert len(set(placed.decision.device.tolist())) == 2
        for _ in range(20):
            training.check(placed)


@pytest.mark.thorough
def test_twenty_steps_of_a_decoder_of_the_size_of_gpt_2():
    def data(seed=0):
        made = torch.Generator().manual_seed(seed % 4)
        tokens = torch.randint(0, 50257, (1, 65), generator=made)
        return tokens[:, :-1], tokens[:, 1:]

    torch.manual_seed(0)
    training = Training(Decoder(12, 768, 12, 1024, 50257), "adamw", data=data)
    assert sum(parameter.numel() for parameter in training.model.parameters()) > 124e6
    problem = training.problem()
    rng, home = np.random.default_rng(0), {}
    device = [home.setdefault(i if label is None else label, int(rng.integers(2))) for i, label in enumerate(problem.graph.colocation)]
    spread = hs.Decision.whole(problem, device, problem.graph.topological_order)
    with training.executor(problem=problem) as first, training.executor(spread, problem) as second:
        for number in range(20):
            x, target = data(number)
            loss, wanted = (first, second)[number % 2](x, target), training.plain()
            assert abs(float(loss - wanted)) <= 1e-5 * float(wanted)


def test_updates_are_last_on_each_device_whatever_the_decision():
    training = deep()
    problem = training.problem()
    names, edges = problem.graph.names, problem.graph.edges.tolist()
    is_update = [name.startswith("update:") for name in names]
    sequence = []
    for i in problem.graph.topological_order.tolist():  # each update directly after its gradient
        sequence += [i, *(j for a, j in edges if a == i and is_update[j])]
    decision = hs.Decision.whole(problem, np.zeros(len(names), int), list(dict.fromkeys(sequence)))
    last = [is_update[i] for i in decision.task]
    assert last != sorted(last)
    with training.executor(decision, problem) as placed:
        assert [is_update[i] for i in placed.decision.task] == sorted(last)
        training.check(placed)


def test_random_numbers_differ_between_operators_steps_and_seeds():
    class Twice(nn.Linear):
        def forward(self, x):
            return F.dropout(super().forward(x)), F.dropout(super().forward(x))

    def loss(pair):
        return (pair[0] - pair[1]).abs().mean()

    model, x = Twice(WIDTH, WIDTH), torch.ones(64, WIDTH)
    first, second = (TrainingProgram(model, x, loss=loss, optimiser=torch.optim.SGD(model.parameters(), lr=0.0), seed=k) for k in (0, 1))
    losses = [float(program(x)) for program in (first, first, second, second)]
    assert len(set(losses)) == 4
    assert 0.0 not in losses
    first.step = 0
    assert [float(first(x)) for _ in range(2)] == losses[:2]


# ---------------------------------------------------------------------- what the caller changes


def test_rates_may_change_between_steps_and_schedulers_do_not_warn():
    training = deep("momentum")
    schedulers = [torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5) for optimiser in (training.optimiser, training.same)]
    with training.executor() as placed, warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for _ in range(3):
            training.check(placed)
            for scheduler in schedulers:
                scheduler.step()
    assert training.optimiser.param_groups[0]["lr"] == 0.1 / 8


def test_states_that_are_loaded_are_those_of_the_next_step():
    training = deep("adam")
    with training.executor() as placed:
        training.check(placed)
        saved = copy.deepcopy((training.model.state_dict(), training.optimiser.state_dict()))
        losses = [placed(*batch(k)) for k in (1, 2)]
        training.model.load_state_dict(saved[0])
        training.optimiser.load_state_dict(saved[1])
        training.program.step = 1
        assert all(torch.equal(placed(*batch(k)), loss) for k, loss in zip((1, 2), losses, strict=True))


def test_groups_keywords_nested_targets_and_numbers():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

        def forward(self, x, power, *, gate, shift=None):
            return self.two(self.one(x[0]) ** power * gate) + x[1]

    def loss(output, pair, weight):
        return (weight * (output - pair["a"]) ** 2).mean()

    torch.manual_seed(0)
    model = Gated()
    other = copy.deepcopy(model)
    own, same = (
        torch.optim.AdamW([{"params": m.one.parameters(), "lr": 0.1, "weight_decay": 0.5}, {"params": m.two.parameters()}], lr=0.01)
        for m in (model, other)
    )
    x, gate, pair, weight = (torch.randn(3, WIDTH), torch.randn(3, 1)), torch.randn(3, WIDTH), {"a": torch.randn(3, 1)}, torch.rand(3, 1)
    program = TrainingProgram(model, (x, 2), example_kwargs={"shift": None, "gate": gate}, targets=(pair, weight), loss=loss, optimiser=own)
    for _ in range(2):
        wanted = loss(other(x, 2, gate=gate), pair, weight)
        same.zero_grad()
        wanted.backward()
        same.step()
        assert torch.equal(program(x, 2, pair, weight, gate=gate.t().contiguous().t(), shift=None), wanted.detach())
    equal(model.state_dict(), other.state_dict())
    with pytest.raises(hs.InvalidProblem, match=r"an argument is 3; the program was made for 2; make a program for each value"):
        program(x, 3, pair, weight, gate=gate, shift=None)
    with pytest.raises(hs.InvalidProblem, match=r"argument 'gate' is \[2, 4\] of torch.float32 on cpu; the program was made for \[3, 4\]"):
        program(x, 2, pair, weight, gate=gate[:2], shift=None)
    with pytest.raises(hs.InvalidProblem, match="the arguments are not those of the module and then the targets"):
        program(x, 2, pair, gate=gate, shift=None)


def test_inputs_may_have_any_strides():
    class Whole(nn.Linear):
        def forward(self, x):
            return torch.as_strided(super().forward(x), (2, 3), (4, 1)) * x.flatten()[:3]

    def tensors():
        whole = torch.arange(8.0).view(2, WIDTH)
        return whole[:1].expand(2, WIDTH), whole.t().contiguous().t(), torch.stack([whole, whole], 2)[..., 0], whole

    for example in tensors()[1:]:
        torch.manual_seed(0)
        model = Whole(WIDTH, WIDTH)
        other = copy.deepcopy(model)
        program = TrainingProgram(model, example.detach(), optimiser=torch.optim.SGD(model.parameters(), lr=0.0))
        for x in tensors():
            wanted = other(x.contiguous()).mean().detach()  # a mean of terms of size 1; processors round products by their strides
            torch.testing.assert_close(program(x), wanted, rtol=0.0, atol=1e-6)
    shared = TrainingProgram(model, tensors()[0], optimiser=torch.optim.SGD(model.parameters(), lr=0.0))
    assert torch.equal(shared(tensors()[3]), program(tensors()[3]))


def test_autocast_is_that_of_the_recording():
    x, target = batch()
    models = [Tied(nn.Linear(WIDTH, WIDTH)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    own, same = (OPTIMISERS["sgd"](model.parameters()) for model in models)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program = TrainingProgram(models[0], x, targets=target, loss=scores, optimiser=own)
        wanted = scores(models[1](x), target)
        loss = program(x, target)
    wanted.backward()
    same.step()
    torch.testing.assert_close(loss, wanted.detach())
    equal(models[0].state_dict(), models[1].state_dict())


# ---------------------------------------------------------------------- faults


def snapshot(training):
    return copy.deepcopy((training.model.state_dict(), training.optimiser.state_dict(), training.program.step))


def unchanged(training, before):
    model, optimiser, step = before
    equal(training.model.state_dict(), model)
    assert training.program.step == step
    assert training.optimiser.state_dict()["state"].keys() == optimiser["state"].keys()
    for key, state in optimiser["state"].items():
        equal(training.optimiser.state_dict()["state"][key], state)


def failing():
    raise ValueError("no more")


@pytest.mark.parametrize("steps", [0, 1])
def test_a_step_that_fails_leaves_the_state_before_it(steps):
    training = deep()
    with training.executor() as placed:
        for _ in range(steps):
            training.check(placed)
        before = snapshot(training)
        HOOKS.append(failing)
        for step in (placed, training.program):
            with pytest.raises(ValueError, match="no more"):
                step(*batch())
            unchanged(training, before)
        HOOKS.clear()
        training.check(placed)


def test_a_step_that_is_cancelled_or_takes_too_long_leaves_the_state_before_it():
    training = deep()
    with training.executor(timeout=0.3) as placed:
        before = snapshot(training)
        free = threading.Event()
        HOOKS.append(lambda: free.wait(BOUND))
        with pytest.raises(hs.Timeout, match="waits for the other devices before its updates|waits for"):
            placed(*batch())
        unchanged(training, before)
        free.set()
        placed.timeout = 30.0
        HOOKS[:] = [placed.cancel]
        with pytest.raises(hs.Cancelled):
            placed(*batch())
        unchanged(training, before)
        HOOKS.clear()
        training.check(placed)


def slow_updates(monkeypatch, hook):
    """Call a hook in each update."""
    actual = trainings.restrided

    def late(*args):
        if threading.current_thread().name.startswith("hetsched-"):
            hook()
        return actual(*args)

    monkeypatch.setattr(trainings, "restrided", late)


@pytest.fixture
def interruptible():
    """Have Ctrl-C interrupt, also where a shell that runs the tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("what", ["cancel", "timeout", "interrupt"])
def test_a_step_whose_updates_have_begun_is_completed(what, monkeypatch, interruptible):
    training = deep()
    with training.executor(timeout=30.0) as placed:
        training.check(placed)
        if what == "timeout":
            placed.timeout = 1.0
        begun: list[int] = []

        def hook():
            begun.append(1)
            if len(begun) == 1 and what == "cancel":
                placed.cancel()
            if len(begun) == 1 and what == "interrupt":
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1.5 if what == "timeout" and len(begun) == 1 else 0.02)

        slow_updates(monkeypatch, hook)
        if what == "interrupt":
            with pytest.raises(KeyboardInterrupt):
                placed(*batch(1))
            training.plain()
            training.check_states()
        else:
            training.check(placed)
        monkeypatch.undo()
        placed.timeout = 30.0
        training.check(placed)


def test_an_update_that_fails_says_that_others_have_been_made(monkeypatch):
    training = deep()
    with training.executor() as placed:
        slow_updates(monkeypatch, failing)
        with pytest.raises(ValueError, match="no more") as info:
            placed(*batch())
        assert info.value.task.startswith("update:")
        assert info.value.__notes__[-1] == "some parameters have been updated already; load the states of module and optimiser again"


# ---------------------------------------------------------------------- what is refused


def test_a_second_step_at_the_same_time_and_streams_are_refused():
    training = deep()
    with training.executor() as first, training.executor() as second:
        errors: list[BaseException] = []

        def again():
            try:
                second(*batch())
            except hs.UnsupportedFeature as error:
                errors.append(error)

        HOOKS.append(again)
        first(*batch())
        HOOKS.clear()
        assert [str(error) for error in errors] == ["a step of this program is in progress; wait for it before the next one"]
        for call in (lambda: first.stream([batch()]), lambda: first.measure_stream(*batch())):
            with pytest.raises(hs.UnsupportedFeature, match="steps cannot be a stream; call one by one"):
                call()
        assert training.program.step == 1
    with pytest.raises(hs.UnsupportedFeature, match="training steps do not run by stages; give the program to an Executor"):
        hs.runtime.MeasuredStages(training.program, batch())


def test_decisions_that_break_the_rules_of_a_step_are_refused():
    training = deep()
    free = training.program.graph.replace(colocation=None)
    problem = hs.Problem(free, hs.Cluster(["d0", "d1"], bandwidth=1.0), durations=np.ones((free.n_tasks, 2)))
    device = np.arange(free.n_tasks) % 2
    decision = hs.Decision.whole(problem, device, free.topological_order)
    with pytest.raises(hs.InvalidSchedule, match=r"is on 'd.', but shares the parameter '.*' with '.*' on 'd.'; solve the problem of"):
        training.executor(decision, problem)
    alone = hs.Decision.whole(problem, np.zeros(free.n_tasks, int), free.topological_order)
    with training.executor(alone, problem) as placed:
        with pytest.raises(hs.InvalidSchedule, match="but shares the parameter"):
            placed.replace(decision)
        training.check(placed)
    many = training.problem(inputs=2, batching="once", batch_sizes=[2])
    with pytest.raises(hs.InvalidProblem, match="the problem has 2 inputs; the example of a training step as a whole is one"):
        training.executor(hs.solve(many, "heft").schedule, many)


def test_iterations_make_steps():
    training = deep()
    with training.executor() as placed:
        made = hs.runtime.iterate(placed, placed.decision, 2, items=[training.data(0), training.data(1)])
    assert len(made.seconds) == 2
    training.plain()
    training.plain()
    training.check_states()


def test_other_engines_than_threads_on_the_cpu_are_refused():
    training, world = deep(), World(1)
    problem = training.problem()
    rule = "and training steps run on CPU threads of one process so far; "
    with pytest.raises(hs.UnsupportedFeature, match=f"^engine is 'gloo', {rule}leave it out$"):
        training.executor(engine="gloo")
    decision = hs.solve(problem, "heft").schedule
    with world.engine(), pytest.raises(hs.UnsupportedFeature, match=f"^device 'd1' is cuda:0, {rule}give it a number of threads$"):
        Executor(training.program, None, decision, devices={"d0": 1, "d1": "cuda:0"}, problem=problem)
    with world.engine(), pytest.raises(hs.UnsupportedFeature, match=f"^device 'd1' is cuda:0, {rule}give it a number of threads$"):
        hs.runtime.profile(training.program, batch(), devices={"d0": 1, "d1": "cuda:0"})


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.norm(self.inner(self.norm(x)))


class Branch(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


def checkpointed(m, x):
    return torch.utils.checkpoint.checkpoint(lambda y: F.dropout(m.inner(y)), x, use_reentrant=False)


def decayed(m, x):
    with torch.no_grad():
        m.inner.weight.mul_(0.5)
    return m.inner(x)


def hooked():
    made = nn.Linear(WIDTH, WIDTH)
    made.weight.register_hook(lambda gradient: gradient * 2)
    return made


def with_hook(parameters):
    made = torch.optim.SGD(parameters)
    made.register_step_post_hook(lambda *_: None)
    return made


def counted(m, x):
    m.count += 1
    return m.inner(x) * m.count


COUNTED = Lambda(counted, inner=nn.Linear(WIDTH, WIDTH), count=0)


LINEAR = nn.Linear(WIDTH, WIDTH)


@pytest.mark.parametrize(
    ("model", "optimiser", "error", "message"),
    [
        (LINEAR, torch.optim.RMSprop, hs.UnsupportedFeature, "the optimiser is RMSprop; training steps run with SGD, Adam and AdamW"),
        (LINEAR, lambda p: torch.optim.Adam(p, amsgrad=True), hs.UnsupportedFeature, "the optimiser has amsgrad=True"),
        (LINEAR, with_hook, hs.UnsupportedFeature, "the optimiser has hooks of its step, which are not called; remove them"),
        (hooked(), torch.optim.SGD, hs.UnsupportedFeature, "parameter 'weight' has hooks, which are not called; remove them"),
        (
            LINEAR,
            lambda p: torch.optim.SGD(list(p)[:1]),
            hs.InvalidProblem,
            "parameter 'bias' requires a gradient, but the optimiser does not have it; add it, or freeze it",
        ),
        (Twice(), torch.optim.SGD, hs.UnsupportedFeature, "the running statistics 'norm.running_mean' change twice in one step"),
        (Branch(WIDTH, WIDTH), torch.optim.SGD, hs.UnsupportedFeature, "Branch cannot be run on tensors without data: "),
        (Lambda(checkpointed, inner=LINEAR), torch.optim.SGD, hs.UnsupportedFeature, "draws random numbers in the backward pass"),
        (
            nn.Sequential(COUNTED),
            torch.optim.SGD,
            hs.UnsupportedFeature,
            "the module changes its attribute '0.count' when it runs, which steps would not; make it a buffer",
        ),
        (nn.Embedding(9, 4, sparse=True), torch.optim.SGD, hs.UnsupportedFeature, "the gradient of 'weight' is sparse"),
        (
            Lambda(lambda m, x: m.norm(x.T).T, norm=nn.InstanceNorm1d(WIDTH, affine=True, track_running_stats=True)),
            torch.optim.SGD,
            hs.UnsupportedFeature,
            "changes running statistics that are no buffers of the module",
        ),
        (Lambda(decayed, inner=LINEAR), torch.optim.SGD, hs.UnsupportedFeature, "changes its parameter 'inner.weight' when it runs"),
        (
            Lambda(lambda m, x: F.rrelu(m.inner(x), training=True), inner=LINEAR),
            torch.optim.SGD,
            hs.UnsupportedFeature,
            "aten.rrelu_with_noise.default writes into tensors that it does not return; write it otherwise",
        ),
        (
            Lambda(lambda m, x: torch.native_dropout(m.inner(x), 0.5, True)[0], inner=LINEAR),
            torch.optim.SGD,
            hs.UnsupportedFeature,
            "aten.native_dropout.default draws random numbers without a generator",
        ),
        (
            Lambda(lambda m, x: m.inner(x).t_(), inner=LINEAR),
            torch.optim.SGD,
            hs.UnsupportedFeature,
            "aten.t_.default changes the shape of a tensor in place; use the operator that returns a view",
        ),
        (nn.Linear(WIDTH, WIDTH, device="meta"), torch.optim.SGD, hs.UnsupportedFeature, "'weight' is on a meta device"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(model, optimiser, error, message):
    x = torch.ones(3, WIDTH, dtype=torch.long if isinstance(model, nn.Embedding) else torch.float32)
    model.train()
    with pytest.raises(error, match=re.escape(message)) as info:
        TrainingProgram(model, x, optimiser=optimiser(model.parameters()))
    assert "\n" not in str(info.value)
    assert COUNTED.count == 0
