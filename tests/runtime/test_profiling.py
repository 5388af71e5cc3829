"""Digests of what tasks compute, profiles of modules on this machine, and problems made of them."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hetsched as hs
from hetsched.costs import Profile, Profiled, compare_profiles

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from hetsched.runtime import Executor, Program, network, profile  # noqa: E402
from hetsched.runtime.digests import Computations  # noqa: E402
from hetsched.runtime.places import place  # noqa: E402
from hetsched.runtime.profiling import hand_offs, whole  # noqa: E402
from hetsched.workloads import vision  # noqa: E402


class Function(nn.Module):
    """A function as a module, with two convolutions of one shape."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, *args):
        return self.function(self, *args)


def digests(function, *shape, **options):
    """Return the digest of each task by name."""
    program = Program(Function(function).eval(), torch.randn(*(shape or (2, 4, 8, 8))), **options)
    return dict(zip(program.graph.names, (operator.digest for operator in Computations(program).operators), strict=True))


def test_tasks_that_compute_the_same_have_one_digest():
    found = digests(lambda m, x: m.b(F.relu(m.a(x))))
    assert found["a/conv2d"] == found["b/conv2d"] != found["relu"]
    assert all(len(digest) == 32 for digest in found.values())


@pytest.mark.slow
def test_the_batch_is_no_part_of_a_digest_unless_it_is_fixed():
    one, other = (digests(lambda m, x: m.a(x), count, 4, 8, 8) for count in (1, 5))
    assert one == other
    fixed = [digests(lambda m, x: m.a(x), count, 4, 8, 8, dynamic_batch=False) for count in (1, 5)]
    assert fixed[0]["a/conv2d"] != fixed[1]["a/conv2d"] != one["a/conv2d"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        lambda m, x: F.conv2d(x, m.a.weight, m.a.bias, stride=2, padding=1),
        lambda m, x: F.conv2d(x, m.a.weight, None, padding=1),
        lambda m, x: F.conv2d(x, m.a.weight[:3], m.a.bias[:3], padding=1),
        lambda m, x: F.conv2d(x, m.a.weight.double().float().transpose(2, 3), m.a.bias, padding=1),
        lambda m, x: F.conv2d(x, x[:1].expand(4, 4, 8, 8)[:, :, :3, :3], m.a.bias, padding=1),
        lambda m, x: m.norm(m.a(x)),
    ],
    ids=["stride", "bias", "shape", "strides of weights", "given weights", "batch norm"],
)
def test_what_changes_the_computation_changes_the_digest(other):
    one = digests(lambda m, x: m.a(x), 4, 4, 8, 8)
    convolution = [name for name in one if "conv2d" in name]
    (mine,) = (one[name] for name in convolution)
    found = digests(other, 4, 4, 8, 8, dynamic_batch=False) if "expand" in str(other.__code__.co_names) else digests(other, 4, 4, 8, 8)
    assert mine not in [digest for name, digest in found.items() if "conv2d" in name]


def test_a_batch_norm_has_one_digest_on_all_devices_and_for_all_momenta():
    def made(momentum=0.1, eps=1e-5, cuda=False):
        module = Function(lambda m, x: m.norm(x))
        module.norm.momentum, module.norm.eps = momentum, eps
        program = Program(module.eval(), torch.randn(2, 4, 8, 8))
        for node in program.operators.nodes:
            if cuda and "batch_norm" in str(node.target):  # there it also returns the means and deviations, which none reads
                node.meta["val"] = (node.meta["val"][0], torch.empty(4), torch.empty(4))
        return [operator.digest for operator in Computations(program).operators]

    assert made() == made(momentum=0.5) == made(cuda=True)
    assert made()[1] != made(eps=1e-3)[1]


@pytest.mark.slow
def test_what_reads_what_counts():
    one, other = (digests(function, 4, 4, dynamic_batch=False) for function in (lambda m, x: x @ x.t(), lambda m, x: x.t() @ x))
    assert set(one.values()) != set(other.values())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "count"), [("googlenet", 224, 103), ("squeezenet", 224, 56), ("inception_v3", 299, 80)])
def test_the_networks_have_as_many_digests_as_were_counted(name, size, count):
    operators = Computations(Program(getattr(vision, name)(), torch.zeros(1, 3, size, size))).operators
    assert len({operator.digest for operator in operators}) == count + 1, "and the input"


def test_texts_are_for_readers():
    program = Program(Function(lambda m, x: F.relu(m.norm(m.a(x)))).eval(), torch.randn(2, 4, 8, 8))
    texts = [operator.text for operator in Computations(program).operators]
    assert texts == ["input [b,4,8,8] f32", "conv2d [b,4,8,8] f32 ; [4,4,3,3] f32 , [4] f32 ; [1, 1] [1, 1]", "relu [b,4,8,8] f32"]


# ---------------------------------------------------------------------- profiles


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    return Function(lambda m, x: torch.cat([m.b(F.relu(m.norm(m.a(x)))), m.b(x)], 1)).eval()


@pytest.fixture(scope="module")
def measured(module):
    return profile(module, torch.randn(2, 4, 16, 16), devices={"cpu0": 1, "cpu1": 1}, batch_sizes=[1, 2], warmup=1, runs=3)


@pytest.mark.slow
def test_a_profile_has_times_memory_hand_offs_and_dispatch(measured):
    graph = measured.network().graph
    assert measured.batch_sizes == (1, 2)
    assert measured.names == ("cpu0", "cpu1")
    assert len(measured.operators) == 5, "two convolutions of a and b differ by the batch norm, those of b do not"
    seconds = measured.cube("seconds", graph.names, ["cpu0"], [1, 2])
    works = np.array(graph.op) != "input"
    assert (seconds[works] > 0).all()
    assert (seconds[~works] == 0).all()
    held = measured.cube("memory_bytes", graph.names, ["cpu0"], [1, 2])
    np.testing.assert_array_equal(held[graph.index["relu"], 0], [4096, 8192])
    links = measured.links()
    assert np.isinf(links.bandwidth[[0, 1], [1, 0]]).all(), "CPU devices share their memory"
    assert (links.latency[[0, 1], [1, 0]] > 0).all()
    assert all(device.overhead.dispatch > 0 for device in measured.devices)
    assert all(device.overhead.gather > (0.0, 0.0) for device in measured.devices)
    assert len(measured.sessions) == 1
    assert {device.threads for device in measured.devices} == {1}


@pytest.mark.slow
def test_a_problem_of_a_profile_is_solved_and_run(measured, module):
    problem = measured.problem(inputs=2)
    assert problem.graph.names == measured.network().graph.names
    solution = hs.solve(problem, "heft")
    x = torch.randn(2, 4, 16, 16)
    with Executor(module, x, solution.schedule, devices={"cpu0": 1, "cpu1": 1}, problem=problem) as run, torch.no_grad():
        torch.testing.assert_close(run(x), module(x))


@pytest.mark.slow
def test_what_is_known_is_not_measured_again(measured, module):
    x, seen, options = torch.randn(2, 4, 16, 16), [], {"warmup": 1, "runs": 3}
    again = profile(
        module,
        x,
        devices={"cpu0": 1, "cpu1": 1},
        batch_sizes=[1, 2],
        known=measured,
        on_progress=lambda *what: seen.append(what),
        **options,
    )
    assert again == measured
    assert not seen
    more = profile(
        module,
        x,
        devices={"cpu0": 1, "cpu1": 1},
        batch_sizes=[2, 3],
        known=measured,
        on_progress=lambda *what: seen.append(what),
        **options,
    )
    assert seen == [("cpu0", 3), ("cpu1", 3)]
    assert more.batch_sizes == (1, 2, 3)
    assert set(more.times) > set(measured.times)
    other = profile(module, x, devices={"cpu0": 1}, known=measured, fold=False, **options)
    assert len(other.sessions) == 2, "without folding it is other software"
    sibling = profile(Function(lambda m, x: m.b(x)).eval(), x, devices={"cpu0": 1}, batch_sizes=[1], known=measured, **options)
    assert len(sibling.networks) == 2
    assert sibling.sessions == measured.sessions, "its tasks were measured in another network"
    assert sibling.problem(graph=sibling.networks[0].graph).n_tasks in (2, 6)


@pytest.mark.slow
def test_a_network_with_common_operators_is_priced_by_them(measured):
    wider = Function(lambda m, x: F.relu(m.b(x)).flatten(1)).eval()
    x = torch.randn(2, 4, 16, 16)
    found = network(wider, x)
    assert found == network(Program(wider, x))
    core = measured.only(devices=["cpu0"]).cluster()
    model = Profiled(measured, network=found)
    assert model.sources(found.graph, core, [2]).ravel().tolist() == ["measured"] * 3, "a relu is one after a batch norm too"
    with pytest.raises(hs.InvalidProblem, match="example_args is None, which only a Program can do without"):
        network(wider)


def test_peaks_of_a_core_are_measured(measured):
    for row in measured.devices:
        device = row.device
        assert (device.family, device.units) == ("cpu", 1)
        assert 1e8 < device.peak_flops["float32"] < 1e13
        assert 1e8 < device.memory_bandwidth < 1e13
        assert 0 < device.launch_overhead < 1e-3
    problem = hs.Problem(measured.network().graph, measured.cluster(), costs=hs.costs.Analytic())
    assert np.isfinite(problem.durations).all()


def test_the_same_machine_is_compared_with_itself(measured):
    assert compare_profiles(measured, measured).ratio == 1.0
    assert len(compare_profiles(measured, measured).rows) == 2 * 4, "equal cores are one"


@pytest.mark.slow
def test_the_default_batch_is_that_of_the_example(module):
    found = profile(module, torch.randn(3, 4, 8, 8), devices={"cpu": [min(os.sched_getaffinity(0))]}, warmup=0, runs=1)
    assert found.batch_sizes == (3,)
    assert found.devices[0].cores == (min(os.sched_getaffinity(0)),)
    assert isinstance(found, Profile)
    assert found.problem().inputs == 3


@pytest.mark.slow
def test_all_tasks_on_one_device_compute_what_the_module_does(module):
    x = torch.randn(2, 4, 8, 8)
    program = Program(module, x)
    with whole(program, place("cpu", 1), inputs=2, fold=False) as run:
        assert torch.equal(run(x), program(x))


def test_hand_offs_take_time():
    own = sorted(os.sched_getaffinity(0))
    found = hand_offs(place("one", [own[0]]), place("other", [own[-1]]), 5)
    assert found.shape == (5,)
    assert (found > 0).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"devices": {"a": 0}}, hs.InvalidProblem, "device 'a' is 0 threads of the CPU; it must be at least one"),
        ({"batch_sizes": [0]}, hs.InvalidProblem, "batch size is 0; it must be a whole number, at least 1"),
        ({"runs": 0}, hs.InvalidProblem, "repeats is 0; it must be >= 1"),
        ({"devices": {"a": "mps"}}, hs.UnsupportedFeature, "device 'a' is a mps device; tasks run on cpu or cuda"),
    ],
)
def test_options_that_do_not_fit_are_refused(module, options, error, message):
    with pytest.raises(error, match=message):
        profile(module, torch.randn(2, 4, 8, 8), **{"devices": {"a": 1}, **options})
