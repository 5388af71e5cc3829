"""Modules run by decisions on devices with streams: fake ones, which find wrong synchronisation, and CUDA where there is one."""

from __future__ import annotations

import functools
import gc
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs

torch = pytest.importorskip("torch")
nn = torch.nn

from hetsched.runtime import Executor, Program, accelerator, streams  # noqa: E402
from hetsched.runtime.checking import checked_places  # noqa: E402
from hetsched.runtime.team import Turn  # noqa: E402
from hetsched.testing import decisions  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402
from tests.runtime.fake_device import FakeDevice, FakeEvent, FakeStream, FakeTensor, World  # noqa: E402
from tests.torch_modules import arguments, captured, tensors  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def equal(made, wanted):
    return all(
        own.shape == other.shape and (own - other).abs().max() <= 1e-5 * other.abs().max() for own, other in zip(made, wanted, strict=True)
    )


@st.composite
def runs(draw):
    """Draw a module, and a problem and decision for 1 to 2 fake devices and 0 to 2 threads, with batches or without."""
    module, program = draw(captured())
    fakes, cpus = draw(st.integers(1, 2)), draw(st.integers(0, 2))
    names = [*(f"gpu{k}" for k in range(fakes)), *(f"cpu{k}" for k in range(cpus))]
    inputs, split = draw(st.integers(1, 3)), draw(st.booleans())
    sizes = np.arange(1, inputs + 1) if split else np.array([inputs])
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    seconds = rng.integers(0, 3, (program.graph.n_tasks, 1)) * (1.0 + sizes)
    cluster = hs.Cluster(names, bandwidth=1e9, latency=1e-6)
    durations = np.repeat(seconds[:, None], len(names), 1)
    batching = draw(st.sampled_from(["once", "free"]))
    problem = hs.Problem(program.graph, cluster, durations=durations, batch_sizes=sizes, inputs=inputs, batching=batching)
    devices = {name: f"cuda:{name[3:]}" if name.startswith("gpu") else 1 for name in names}
    return module, program, problem, draw(decisions(problem)), devices, World(fakes, seed=draw(st.integers(0, 99)))


@pytest.mark.slow
@given(drawn=runs(), fold=st.booleans(), graphs=st.booleans())
@examples(25)
def test_devices_with_streams_have_the_results_of_the_module_in_every_order_that_synchronisation_allows(drawn, fold, graphs):
    module, program, problem, decision, devices, world = drawn
    calls = [arguments(problem.inputs) for _ in range(3)]
    with world.engine(), Executor(program, None, decision, devices=devices, problem=problem, fold=fold, graphs=graphs) as run:
        made = world.within(lambda own=run: [*(own(*args) for args in calls), *own.stream(calls, None if graphs else 2)])
        if not graphs:
            timeline = world.within(lambda own=run: own.measure(*calls[0], runs=2))
            timed = run.profiled(problem)
            if problem.batching == "once":
                assert hs.runtime.verify_run(problem, timeline) == []
            assert hs.runtime.compare(timed, decision, timeline).runs == 2
    assert world.violations == []
    for args, *results in zip(calls, made[:3], made[3:], strict=True):
        with torch.no_grad():
            wanted = tensors(module(*args))
        for own in map(tensors, results):
            assert not any(isinstance(value, FakeTensor) for value in own)
            assert equal(own, wanted)
    del run
    gc.collect()
    assert world.live == 0, "all memory of the devices is released"
    assert world.violations == []


# ---------------------------------------------------------------------- the checks find what is wrong


class Chain(nn.Module):
    """A value that each task changes, and sums of values that were made some tasks before."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))

    def forward(self, x):
        made = [x]
        for k, layer in enumerate(self.layers):
            made.append(layer(made[-1]) + made[max(k - 3, 0)])
        return {"last": made[-1], "others": (made[4], made[7])}


CHAIN = Chain().eval()
X = torch.linspace(0, 1, 16).reshape(2, 8)


@functools.cache
def chain_program():
    return Program(CHAIN, X)


def chain(world, names, **options):
    """Return an executor of the chain, whose tasks are on the devices in turn."""
    program = chain_program()
    count = program.graph.n_tasks
    cluster = hs.Cluster(names, bandwidth=1e9, latency=1e-6)
    problem = hs.Problem(program.graph, cluster, durations=np.ones((count, len(names), 1)), batch_sizes=[2], inputs=2)
    device = np.zeros(count, np.int64)
    device[program.graph.topological_order] = np.arange(count) % len(names)
    decision = hs.Decision.whole(problem, device, program.graph.topological_order)
    devices = {name: f"cuda:{name[3:]}" if name.startswith("gpu") else 1 for name in names}
    return Executor(program, None, decision, devices=devices, problem=problem, **options)


def violations(names=("gpu0", "cpu0", "gpu1")):
    """Return what is wrong with two calls and a stream of the chain."""
    world = World(2)
    with world.engine(), chain(world, names) as run:
        world.within(lambda own=run: (own(X), own(X), list(own.stream([X] * 6, 3))))
    del run
    gc.collect()
    return world.violations


def without(kind, name, result=None):
    """Return a mutant in which a method does nothing."""
    return lambda patch: patch.setattr(kind, name, lambda *_: result)


def records_after_release(patch):
    """Record the events of a hand-off after its lock is released."""
    own = threading.local()
    post, record, release = streams.Post.__call__, FakeEvent.record, Turn.release

    def posts(self, turn, until):
        own.late = []
        return post(self, turn, until)

    def records(event, stream=None):
        record(event, stream) if getattr(own, "late", None) is None else own.late.append((event, stream))

    def releases(turn, lock):
        release(turn, lock)
        late, own.late = getattr(own, "late", None) or [], None
        for event, stream in late:
            record(event, stream)

    patch.setattr(streams.Post, "__call__", posts)
    patch.setattr(FakeEvent, "record", records)
    patch.setattr(Turn, "release", releases)


def buffers_without_events(patch):
    """Use a pinned buffer again at once."""
    give = streams.Buffers.give
    patch.setattr(streams.Buffers, "give", lambda self, buffer, _: give(self, buffer, None))


MUTANTS = {
    "no record of streams": (without(FakeDevice, "record_stream"), "is released, and stream"),
    "no wait for events": (without(FakeStream, "wait_event"), "before it is written"),
    "the host does not wait": (without(FakeEvent, "synchronize"), "before it is written"),
    "events are recorded after the release": (records_after_release, "an event"),
    "buffers are used again before their event": (buffers_without_events, "pinned memory while it is read"),
    "a run ends before its devices": (without(streams.Finish, "__call__", 0), "before it is written"),
}


@pytest.mark.slow
def test_the_engine_has_no_violations():
    assert violations() == []
    assert violations(("gpu0", "gpu1")) == []
    assert violations(("gpu0", "cpu0")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_synchronisation_is_found(name, monkeypatch):
    mutant, text = MUTANTS[name]
    mutant(monkeypatch)
    assert any(text in violation for violation in violations())


# ---------------------------------------------------------------------- graphs


@pytest.mark.slow
def test_tasks_between_hand_offs_are_one_graph(monkeypatch):
    captured, replayed = [], []
    capture = FakeDevice.capture

    def counted(self, run, pool=None):
        captured.append(self)
        replay, made = capture(self, run, pool)
        return lambda: replayed.append(1) or replay(), made

    monkeypatch.setattr(FakeDevice, "capture", counted)
    world = World(1)
    with world.engine(), chain(world, ("gpu0",), graphs=True) as run:
        for _ in range(3):
            assert equal(tensors(world.within(lambda own=run: own(X))), tensors(CHAIN(X)))
        assert (len(captured), len(replayed)) == (1, 3)
        for call in (run.measure, run.timed):
            with pytest.raises(hs.UnsupportedFeature, match="tasks in graphs have no times of their own; measure an executor with graphs="):
                call(X)
        with pytest.raises(hs.UnsupportedFeature, match="depth is 2; graphs have one input in progress: give 1, or"):
            run.stream([X], 2)
        assert world.within(lambda own=run: own.measure_stream(X)).depth == 1
    assert world.violations == []


def test_what_cannot_be_a_graph_is_refused_by_name(monkeypatch):
    def fail(self, run, pool=None):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(FakeDevice, "capture", fail)
    world = World(1)
    with world.engine(), chain(world, ("gpu0",), graphs=True) as run:
        refused = "the tasks 'x' to '.*' on device 'gpu0' cannot be one graph: operation not permitted .*; give graphs=False"
        with pytest.raises(hs.UnsupportedFeature, match=refused):
            world.within(lambda: run(X))
    with pytest.raises(hs.UnsupportedFeature, match="graphs=True needs a CUDA device, and all devices are of the CPU; leave it out"):
        chain(world, ("cpu0",), graphs=True)


# ---------------------------------------------------------------------- memory


def test_results_are_not_in_the_buffers_of_a_run():
    class Same(nn.Module):
        def forward(self, x):
            return (x + 1).type_as(x)  # which returns its argument

    program, world = Program(Same(), X), World()
    problem = hs.Problem(
        program.graph, hs.Cluster(["cpu0", "gpu0"], bandwidth=1e9), durations=np.ones((3, 2, 1)), batch_sizes=[2], inputs=2
    )
    decision = hs.Decision.whole(problem, np.array([0, 1, 0]), program.graph.topological_order)
    with world.engine(), Executor(program, None, decision, devices={"cpu0": 1, "gpu0": "cuda:0"}, problem=problem) as run:
        first = world.within(lambda: run(X))
        second = world.within(lambda: run(2 * X))
    assert world.violations == []
    assert torch.equal(first, X + 1)
    assert torch.equal(second, 2 * X + 1)


def test_pinned_buffers_are_made_once_and_weights_copied_once():
    world = World(2)
    world.random = SimpleNamespace(random=lambda: 1.0)  # every copy is done when the host looks
    put, copied = FakeDevice.put, []
    with pytest.MonkeyPatch.context() as patch, world.engine():
        patch.setattr(FakeDevice, "put", lambda self, value: copied.append(value) or put(self, value))
        with chain(world, ("gpu0", "cpu0", "gpu1")) as run:
            weights = [value for value in copied if value.shape != X.shape]
            assert len(weights) == len({id(value) for value in weights}) > 0
            count, made = len(copied), world.pinned_made
            assert made > 0
            for _ in range(3):
                world.within(lambda: run(X))
            assert world.pinned_made == made
            assert len(copied) == count + 3, "the argument of each call"


@pytest.mark.slow
def test_a_device_without_memory_is_told_with_task_need_and_remedy_and_runs_again():
    world = World(2)
    with world.engine(), chain(world, ("gpu0", "cpu0", "gpu1")) as run:
        before = world.live
        world.devices[1].capacity = world.devices[1].live + 100
        with pytest.raises(hs.OutOfMemory, match=r"no memory left .*'gpu1'.*: the plan needs .* bytes.*; run fewer inputs") as raised:
            world.within(lambda: run(X))
        assert raised.value.device == "gpu1"
        assert isinstance(raised.value.__cause__, torch.OutOfMemoryError)
        assert isinstance(raised.value, MemoryError)
        gc.collect()
        assert world.live == before, "what the run had is released while the error is kept"
        world.devices[1].capacity = float("inf")
        assert equal(tensors(world.within(lambda: run(X))), tensors(CHAIN(X)))
    world = World(1, capacity=100)
    with world.engine(), pytest.MonkeyPatch.context() as patch:
        with pytest.raises(hs.UnsupportedFeature, match="weights and values of a run need .* bytes on device 'gpu0', more than 90 %"):
            chain(world, ("gpu0",))
        patch.setattr(FakeDevice, "free_bytes", lambda self: float("inf"))
        with pytest.raises(hs.OutOfMemory, match="no memory left on device 'gpu0' for the weights of its tasks; the plan needs"):
            chain(world, ("gpu0",))
    world = World(1)
    with world.engine(), chain(world, ("gpu0",)) as run:
        world.devices[0].capacity = world.live
        with pytest.raises(
            hs.OutOfMemory, match=r"no memory left on device 'gpu0' for the arguments; the plan needs .* fewer inputs"
        ) as raised:
            run(X)
        assert raised.value.device == "gpu0"
        world.devices[0].capacity = world.live + 4 * float((run.plan.peak_bytes - run.plan.weight_bytes)[0])
        with pytest.raises(hs.UnsupportedFeature, match="values of 9 runs at a time need .* on device 'gpu0'.* or give a smaller depth"):
            list(run.stream([X], 9))


# ---------------------------------------------------------------------- faults


HOOKS = []


@torch.library.custom_op("hetsched_tests::strike", mutates_args=())
def strike(x: torch.Tensor) -> torch.Tensor:
    for hook in HOOKS:
        hook()
    return x + 1


@strike.register_fake
def _(x):
    return torch.empty_like(x)


class Struck(nn.Module):
    def forward(self, x):
        return strike(x * 2) + x


@pytest.fixture
def struck():
    program, world = Program(Struck(), X), World()
    names = ["cpu0", "gpu0"]
    problem = hs.Problem(
        program.graph, hs.Cluster(names, bandwidth=1e9), durations=np.ones((program.graph.n_tasks, 2, 1)), batch_sizes=[2], inputs=2
    )
    device = np.array([int("strike" in name) for name in program.graph.names])
    decision = hs.Decision.whole(problem, device, program.graph.topological_order)
    devices = {"cpu0": 1, "gpu0": "cuda:0"}
    with world.engine(), Executor(program, None, decision, devices=devices, problem=problem, timeout=0.5) as run:
        yield world, run
    HOOKS.clear()


def test_the_error_of_a_task_on_a_device_is_raised_with_its_place_and_runs_go_on(struck):
    world, run = struck

    def fail():
        raise ValueError("on purpose")

    for call in (lambda: run(X), lambda: list(run.stream([X] * 3, 2))):
        HOOKS[:] = [fail]
        with pytest.raises(ValueError, match="on purpose") as raised:
            world.within(call)
        assert (raised.value.device, raised.value.task) == ("gpu0", "hetsched_tests.strike")
        HOOKS.clear()
        assert torch.allclose(world.within(lambda: run(X)), 3 * X + 1)
    assert world.violations == []


def test_a_run_that_takes_too_long_says_what_each_device_does(struck):
    world, run = struck
    wake = threading.Event()
    HOOKS[:] = [lambda: wake.wait(60)]
    with pytest.raises(hs.Timeout, match=r"'cpu0' waits for 'strike' of .* from 'gpu0', 'gpu0' is in task '.*strike'; give"):
        world.within(lambda: run(X))
    HOOKS.clear()
    wake.set()
    assert torch.allclose(world.within(lambda: run(X)), 3 * X + 1)
    assert world.violations == []


def test_an_operator_that_a_device_lacks_is_named(monkeypatch):
    monkeypatch.setattr(FakeDevice, "lacks", lambda self, operator: "tanh" in str(operator))
    module, world = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), World()
    program = Program(module, X)
    problem = hs.Problem(program.graph, hs.Cluster(["gpu0"]), durations=np.ones((3, 1, 1)), batch_sizes=[2], inputs=2)
    decision = hs.Decision.whole(problem, np.zeros(3, int), program.graph.topological_order)
    with world.engine(), pytest.raises(hs.UnsupportedFeature, match=r"task '1/tanh' calls aten.tanh.default, which cuda:0 cannot"):
        Executor(program, None, decision, devices={"gpu0": "cuda:0"}, problem=problem)


def test_weights_that_were_copied_must_not_change():
    module, world = nn.Linear(8, 8).eval(), World()
    program = Program(module, X)
    problem = hs.Problem(program.graph, hs.Cluster(["gpu0"]), durations=np.ones((2, 1, 1)), batch_sizes=[2], inputs=2)
    decision = hs.Decision.whole(problem, np.zeros(2, int), program.graph.topological_order)
    with world.engine(), Executor(program, None, decision, devices={"gpu0": "cuda:0"}, problem=problem, fold=False) as run:
        world.within(lambda: run(X))
        with torch.no_grad():
            module.weight.mul_(2)
        with pytest.raises(hs.UnsupportedFeature, match="weights of the module have changed since the executor was made"):
            world.within(lambda: run(X))


# ---------------------------------------------------------------------- profiles


@pytest.mark.slow
def test_a_profile_of_devices_leads_to_a_run_that_is_compared():
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    module, x = nn.Sequential(*layers).eval(), torch.randn(2, 3, 8, 8)
    devices = {"cpu0": 1, "gpu0": "cuda:0", "gpu1": "cuda:1"}
    world = World(2)
    with world.engine():
        known = hs.runtime.profile(module, x, devices=devices, batch_sizes=[1, 2], runs=3)
        assert [known.device(name).device.family for name in devices] == ["cpu", "cuda", "cuda"]
        assert known.device("gpu0").device.units == 7
        assert ("tf32", "False") in known.device("gpu0").software
        assert {(row.source, row.target) for row in known.copies if row.size > 0} >= {("cpu0", "gpu0"), ("gpu0", "cpu0"), ("gpu0", "gpu1")}
        problem = known.problem(2)
        works = np.array([op != "input" for op in problem.graph.op])
        assert (problem.durations[works] > 0).all()
        rng = np.random.default_rng(0)
        decision = hs.Decision.whole(problem, rng.integers(0, 3, problem.n_tasks), problem.graph.topological_order)
        with Executor(module, x, decision, devices=devices, problem=problem) as run:
            assert equal([world.within(lambda: run(x))], [module(x)])
            timeline = world.within(lambda: run.measure(x, runs=2))
            assert timeline.clock_error > 0
            assert hs.runtime.compare(run.profiled(problem), decision, timeline).violations == ()
    assert world.violations == []


# ---------------------------------------------------------------------- the machine


def test_the_thread_of_a_device_takes_no_core_of_a_cpu_device():
    with World().engine():
        own = {place.name: place.cores for place in checked_places(["cpu0", "gpu0"], {"cpu0": 1, "gpu0": "cuda:0"})}
        assert own == {"cpu0": None, "gpu0": None}
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            own = {place.name: place.cores for place in checked_places(["cpu0", "gpu0"], {"cpu0": cores[:1], "gpu0": "cuda:0"})}
            assert own == {"cpu0": frozenset(cores[:1]), "gpu0": frozenset(cores[1:])}
        own = {place.name: place.cores for place in checked_places(["cpu0", "gpu0"], {"cpu0": cores, "gpu0": "cuda:0"})}
        assert own["gpu0"] is None, "there is no other core"
        with pytest.raises(hs.InvalidProblem, match="device 'gpu1' is cuda:1, but torch has 1 CUDA devices; leave it out"):
            checked_places(["gpu1"], {"gpu1": "cuda:1"})


def test_runs_use_full_precision_and_restore_what_was_set():
    before, seen = accelerator.precisions(), []
    try:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
        own = accelerator.precisions()
        with accelerator.full_precision():
            first = threading.Thread(target=lambda: seen.append(accelerator.precisions()))
            with accelerator.full_precision():
                first.start()
            first.join()
            seen.append(accelerator.precisions())
        assert [flags for flags, _ in seen] == [(False, False)] * 2, "torch can tell these, which torch.export needs"
        assert accelerator.precisions() == own != seen[0]
    finally:
        accelerator._set_precisions(*before)


# ---------------------------------------------------------------------- CUDA

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@cuda
@given(drawn=runs(), fold=st.booleans(), graphs=st.booleans())
@examples(15)
def test_cuda_devices_have_the_results_of_the_module(drawn, fold, graphs):
    module, program, problem, decision, devices, _ = drawn
    devices = {name: where if isinstance(where, int) else "cuda:0" for name, where in devices.items()}
    args = arguments(problem.inputs)
    with torch.no_grad():
        wanted = tensors(module(*args))
    with Executor(program, None, decision, devices=devices, problem=problem, fold=fold, graphs=graphs) as run:
        timeline = None if graphs else run.measure(*args, runs=2)
        for made in (run(*args), *run.stream([args] * 3)):
            for own, other in zip(tensors(made), wanted, strict=True):
                assert own.device.type == "cpu"
                assert (own - other).abs().max() <= 1e-4 * other.abs().max()
    if problem.batching == "once" and timeline is not None:
        assert hs.runtime.verify_run(problem, timeline) == []


@cuda
def test_a_cuda_device_without_memory_runs_again():
    items = 2**18  # whose values have memory of their own: small ones share a block, which stays allocated
    module, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), torch.randn(items, 8)
    program = Program(module, x)
    n = program.graph.n_tasks
    problem = hs.Problem(program.graph, hs.Cluster(["gpu0"]), durations=np.ones((n, 1, 1)), batch_sizes=[items], inputs=items)
    decision = hs.Decision.whole(problem, np.zeros(n, int), program.graph.topological_order)
    with Executor(program, None, decision, devices={"gpu0": "cuda:0"}, problem=problem) as run:
        run(x)
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1e-6)
        try:
            with pytest.raises(hs.OutOfMemory):
                run(x)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        assert (run(x) - module(x)).abs().max() <= 1e-4
