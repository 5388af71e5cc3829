"""Training steps of several batch sizes profiled on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import hetsched as hs

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from hetsched.runtime import TrainingProfiler, TrainingProgram, two_step  # noqa: E402

MADE: dict[int, TrainingProgram] = {}


def step(batch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).train()
    x, labels = torch.randn(batch, 8), torch.randint(0, 3, (batch,))
    optimiser = torch.optim.Adam(model.parameters())
    MADE[batch] = TrainingProgram(model, x, targets=labels, loss=F.cross_entropy, optimiser=optimiser)
    return MADE[batch], (x, labels)


@pytest.fixture(scope="module")
def profiler():
    return TrainingProfiler(step, 32, devices={"one": 1, "other": 1}, warmup=1, repeats=2)


def test_each_batch_size_has_a_program_and_bytes_of_its_own(profiler):
    assert profiler.graph == MADE[32].graph
    assert [device.name for device in profiler.devices] == ["one", "other"]
    bytes_of = {batch: profiler.measure(batch, "one").memory_bytes[profiler.graph.index["1/tanh"]] for batch in (8, 16, 32)}
    assert bytes_of == {batch: batch * 16 * 4 for batch in (8, 16, 32)}
    assert profiler.transfer(1000, "one", "other") > 0
    assert all(program.step == 0 for program in MADE.values()), "measuring is no training"


@pytest.mark.parametrize("method", ["celeritas", "dfs-topo", "m-topo"])
def test_the_large_batch_is_one_input_of_the_problems(profiler, method):
    graph = profiler.graph
    room = 0.8 * (graph.weight_bytes + graph.input_bytes + graph.output_bytes).sum()
    cluster = hs.Cluster([hs.Device(name, memory_bytes=room) for name in ("one", "other")], bandwidth=1e9)
    result = two_step(profiler, [4, 8], 32, cluster=cluster, method=method, whole=True)
    assert (result.first.inputs, result.first.batch_sizes.tolist()) == (1, [1])
    assert set(result.placement.values()) == {"one", "other"}
    assert result.memory.mean == pytest.approx(0, abs=1e-9), "bytes grow along lines"
    assert set(result.before.batch_size.tolist()) == {32}
    held = result.second.graph.input_bytes + result.second.graph.output_bytes
    np.testing.assert_allclose(held, np.maximum(result.measured.memory_bytes, graph.input_bytes + graph.output_bytes))


def test_a_batch_whose_step_has_other_tasks_is_refused():
    def uneven(batch):
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(batch)])
        x = torch.randn(batch, 4)
        return TrainingProgram(model, x, optimiser=torch.optim.SGD(model.parameters(), lr=0.1)), (x,)

    profiler = TrainingProfiler(uneven, 2, devices={"one": 1}, warmup=0, repeats=1)
    with pytest.raises(hs.InvalidProblem, match=r"a batch of 1 has \d+ tasks, others than the \d+ of `graph`; .*give larger ones"):
        profiler.measure(1, "one")
