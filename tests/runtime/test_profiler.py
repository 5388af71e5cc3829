"""Tasks of PyTorch modules profiled on the CPU, alone and placed."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

import hetsched as hs
from hetsched.costs import DescribedProfiler, Links, Profiler, Recorder, measure

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from hetsched.runtime import ModuleProfiler, Program  # noqa: E402
from hetsched.runtime.placed import PlacedRun  # noqa: E402
from hetsched.runtime.probes import allocated, timed  # noqa: E402

QUICK = {"devices": {"one": 1, "other": 1}, "warmup": 1, "repeats": 3}


class Net(nn.Module):
    """Two branches, one of which is split and concatenated, and an argument without a batch dimension."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(32, 5)

    def forward(self, x, *, scale=None):
        y = F.relu(self.wide(x))
        left, right = y.split(8, 1)
        z = torch.cat([self.narrow(y), right + 1, left], 1).mean((2, 3))
        return self.last(z) if scale is None else self.last(z) * scale


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def profiler(net):
    return ModuleProfiler(net, torch.randn(1, 3, 32, 32), **QUICK)


def alternating(profiler):
    return {name: profiler.devices[i % 2].name for i, name in enumerate(profiler.graph.names)}


@pytest.mark.slow
def test_every_task_takes_time_and_memory_that_grow_with_the_batch(net):
    profiler = ModuleProfiler(net, torch.randn(1, 3, 32, 32), clock="cpu", **QUICK)
    assert profiler.graph == hs.frontends.torch.capture(Net().eval(), torch.randn(1, 3, 32, 32))
    threads = torch.get_num_threads()
    small, large = profiler.measure(1, "one"), profiler.measure(32, alternating(profiler))
    works = np.array(profiler.graph.op) != "input"
    for measurement in (small, large):
        assert (measurement.seconds > 0).tolist() == works.tolist()
    np.testing.assert_array_equal(large.memory_bytes, 32 * small.memory_bytes)
    assert large.seconds.sum() > 2 * small.seconds.sum()
    assert torch.get_num_threads() == threads


@pytest.mark.slow
def test_bytes_are_those_of_the_tensors_that_a_task_makes(profiler):
    index, memory = profiler.graph.index, profiler.measure(4, "one").memory_bytes
    assert memory[index["wide/conv2d"]] == 4 * 16 * 32 * 32 * 4
    assert memory[index["relu"]] == 4 * 16 * 32 * 32 * 4
    assert memory[index["x"]] == 0
    assert memory[index["last/linear"]] == 4 * 5 * 4


@pytest.mark.slow
def test_the_sum_over_tasks_is_near_what_the_module_takes(net):
    x = torch.randn(32, 3, 64, 64)
    profiler = ModuleProfiler(net, x, devices={"cpu": 1}, warmup=2, repeats=7, clock="cpu")
    total, threads, times = profiler.measure(32, "cpu").seconds.sum(), torch.get_num_threads(), []
    torch.set_num_threads(1)
    with torch.no_grad():
        for _ in range(9):
            began = time.thread_time()
            net(x)
            times.append(time.thread_time() - began)
    torch.set_num_threads(threads)
    assert 0.3 * min(times) < total < 3 * max(times), "whatever else the machine does"


@pytest.mark.parametrize("placed", [False, True])
def test_a_placed_run_computes_what_the_module_does(profiler, net, placed):
    workers = list(profiler._workers.values())
    where = [workers[i % 2 if placed else 0] for i in range(profiler.graph.n_tasks)]
    x = torch.randn(6, 3, 32, 32)
    run = PlacedRun(where, {worker.name: worker.program.inputs((x,), {}) for worker in workers})
    program, values = workers[0].program, run.start()
    assert run(values, lambda worker, step: (step(), worker.name)[1]) == [worker.name for worker in where]
    kept = {register for register, value in enumerate(program.compiled.values) if value.kept}
    result = [values[worker.name][register] for register, worker in enumerate(run.home)]
    with torch.no_grad():
        assert torch.equal(program.compiled.result(result), net(x))
    left = [register for own in values.values() for register in range(len(result)) if own[register] is not None]
    assert sorted(left) == sorted(kept), "nothing else is left"


def test_what_nothing_reads_any_more_is_dropped(profiler):
    worker = profiler._workers["one"]
    run = PlacedRun([worker] * profiler.graph.n_tasks, {"one": worker.program.inputs((torch.randn(2, 3, 32, 32),), {})})
    made = worker.program.compiled.values
    dropped = sorted(made[register].name for registers in run.dead for register in registers)
    assert len(set(dropped)) == len(dropped)
    result = {value.name for value in made if value.kept}
    assert result.isdisjoint(dropped)
    assert "relu" in dropped


def test_keywords_and_views_of_several_tensors_are_profiled(net):
    profiler: Profiler = ModuleProfiler(net, torch.randn(2, 3, 16, 16), example_kwargs={"scale": torch.ones(5)}, fuse=True, **QUICK)
    measurement = profiler.measure(3, alternating(profiler))
    assert np.isfinite(measurement.seconds).all()
    assert [device.name for device in profiler.devices] == ["one", "other"]


@pytest.mark.slow
def test_batches_are_made_of_the_example(net):
    program, x = Program(net, torch.randn(2, 3, 16, 16)), torch.randn(2, 3, 16, 16)
    (value,) = program.resized(program.inputs((x,), {}), 5).values()
    assert torch.equal(value, x[[0, 1, 0, 1, 0]])
    unbatched = Program(net, x, dynamic_batch=False)
    given = unbatched.inputs((x,), {})
    assert unbatched.resized(given, 1) == given
    with pytest.raises(hs.InvalidProblem, match="takes its example as one item, not a batch of 5; make it with dynamic_batch=True"):
        unbatched.resized(given, 5)


@pytest.mark.slow
def test_progress_is_reported_and_can_end_a_measurement(net):
    seen = []
    x = torch.randn(1, 3, 16, 16)
    ModuleProfiler(net, x, on_progress=lambda done, wanted: seen.append((done, wanted)), **QUICK).measure(1, "one")
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    seen.clear()
    ended = ModuleProfiler(net, x, on_progress=lambda done, wanted: seen.append(done) or done == 2, **QUICK)
    assert np.isfinite(ended.measure(1, "one").seconds).all()
    assert seen == [1, 2]
    seen.clear()
    limited = ModuleProfiler(net, x, time_limit=1e-9, on_progress=lambda done, wanted: seen.append(done), **QUICK)
    assert limited.measure(1, "one").seconds.sum() > 0
    assert seen == [1]


def test_the_runs_for_warming_up_do_not_count(profiler):
    runs = iter([100.0, 1.0, 2.0, 6.0])
    assert profiler._repeated(lambda: np.array([next(runs)])).tolist() == [[1.0], [2.0], [6.0]]


@pytest.mark.slow
def test_quartiles_enclose_the_median_and_cpu_time_is_known_of_one_thread(net):
    devices = {"one": 1, "two": 2, "core": [min(os.sched_getaffinity(0))]}
    profiler = ModuleProfiler(net, torch.randn(1, 3, 32, 32), devices=devices, repeats=5)
    for name in ("one", "core"):
        found = profiler.measure(2, name)
        assert (found.q25 <= found.seconds).all()
        assert (found.seconds <= found.q75).all()
        assert (found.cpu >= 0).all()
        assert found.runs == 5
    teams = profiler.measure(2, "two").cpu
    assert np.isnan(teams[np.array(profiler.graph.op) != "input"]).all()
    assert isinstance(profiler, DescribedProfiler)
    assert len(profiler.operators) == profiler.graph.n_tasks
    rows = [profiler.described(name, "now") for name in ("one", "two", "core")]
    assert [row.threads for row in rows] == [1, 2, 1]
    assert rows[0].pool == rows[2].pool != rows[1].pool
    assert dict(rows[0].software)["torch"] == torch.__version__


@pytest.mark.slow
def test_cpu_time_is_that_of_a_working_thread(net):
    profiler = ModuleProfiler(net, torch.randn(1, 3, 32, 32), clock="cpu", **QUICK)
    assert profiler.measure(8, alternating(profiler)).seconds.sum() > 0
    slept = [timed(worker, lambda: time.sleep(0.02))()[0] for worker in profiler._workers.values()]
    assert max(slept) < 0.01, "sleeping costs no CPU time"


def test_copies_are_timed_and_make_links(profiler):
    small, large = profiler.transfer(10, "one", "other"), profiler.transfer(2**24, "one", "other")
    assert 0 < small < large
    links = Links.measured(profiler, [2**12, 2**18, 2**24])
    assert (links.bandwidth[[0, 1], [1, 0]] > 0).all()


def test_two_steps_on_the_machine_and_again_from_the_file(profiler, tmp_path):
    kept = Recorder(profiler)
    result = hs.runtime.two_step(kept, [1, 2, 4], 8, method="heft")
    assert len(result.before) == len(result.after) == profiler.graph.n_tasks - 1, "all but the input"
    assert result.memory.mean == pytest.approx(0, abs=1e-9)
    result.profile.write(tmp_path / "measured.json")
    read = hs.read(tmp_path / "measured.json")
    assert read == result.profile == kept.profile
    again = hs.runtime.two_step(read, [1, 2, 4], 8, method="heft")
    assert again.second == result.second
    assert again.before == result.before
    assert measure(Recorder(profile=read), [1, 2, 4]) == result.regression.profile


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warmup": -1}, "warmup is -1; it must be >= 0"),
        ({"repeats": 0}, "repeats is 0; it must be >= 1"),
        ({"time_limit": 0}, "time_limit is 0; it must be a number of seconds > 0"),
        ({"clock": "sun"}, "clock is 'sun'; choose one of 'wall', 'cpu'"),
        ({"clock": "cpu", "devices": {"a": 2}}, "clock 'cpu' measures one thread of the CPU, but device 'a' is 2; give 1, or use 'wall'"),
        ({"devices": {}}, "devices is empty; name at least one"),
        ({"devices": {"a": 0}}, "device 'a' is 0 threads of the CPU; it must be at least one"),
        ({"devices": {"a": "gpu"}}, "device 'a' is 'gpu'; give a number of CPU threads or a device of torch"),
        ({"devices": {"a": "cuda:99"}}, "device 'a' is cuda:99, but torch has"),
    ],
)
def test_options_that_do_not_fit_are_refused(net, options, message):
    with pytest.raises(hs.InvalidProblem, match=message):
        ModuleProfiler(net, torch.randn(1, 3, 16, 16), **options)


def test_questions_that_do_not_fit_are_refused(profiler, net):
    with pytest.raises(hs.InvalidProblem, match="inputs is 0; it must be a whole number, at least 1"):
        profiler.measure(0, "one")
    with pytest.raises(hs.InvalidProblem, match=r"device 'z' is not one of the profiler's \(one, other\)"):
        profiler.measure(1, "z")
    with pytest.raises(hs.InvalidProblem, match=r"device 'z' is not one of the profiler's \(one, other\)"):
        profiler.transfer(1, "one", "z")
    with pytest.raises(hs.UnsupportedFeature, match="device 'a' is a meta device; tasks run on cpu or cuda"):
        ModuleProfiler(net, torch.randn(1, 3, 16, 16), devices={"a": "meta"})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_devices_are_profiled_beside_the_cpu(net):
    profiler = ModuleProfiler(net, torch.randn(1, 3, 32, 32), devices={"cpu": 1, "gpu": "cuda"}, warmup=2, repeats=5)
    measurement = profiler.measure(8, alternating(profiler))
    assert (measurement.seconds[np.array(profiler.graph.op) != "input"] > 0).all()
    assert (measurement.memory_bytes[np.array(profiler.graph.op) != "input"] > 0).all()
    assert profiler.transfer(2**24, "cpu", "gpu") > 0


def test_bytes_count_as_long_as_something_holds_them(profiler):
    def run():
        held = torch.ones(1000)[10:]
        for _ in range(3):
            held.add_(torch.ones(500).sum())

    assert allocated(profiler._workers["one"], run) == 4 * (1000 + 500 + 1)
