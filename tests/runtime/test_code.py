"""Tasks as Python functions over registers, compared with the modules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional

from hetsched.runtime import Program  # noqa: E402
from hetsched.runtime.code import Compiled  # noqa: E402
from hetsched.runtime.plan import Plan  # noqa: E402
from hetsched.runtime.probes import _Storages  # noqa: E402
from hetsched.testing.profiles import examples  # noqa: E402
from tests.torch_modules import arguments, modules, tensors  # noqa: E402


def run(compiled, *args):
    with torch.no_grad():
        return compiled.run(compiled.start(compiled.program.inputs(args, {})))


def expected(module, *args):
    with torch.no_grad():
        return module(*args)


def error(made, wanted):
    """Return the largest difference, relative to the largest number."""
    return float((made - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30))


@pytest.mark.slow
@given(module=modules(), fuse=st.booleans(), count=st.sampled_from([1, 2, 5]))
@examples(30)
def test_compiled_tasks_compute_what_the_module_does(module, fuse, count):
    program = Program(module, arguments(), fuse=fuse)
    args = arguments(count)
    wanted = expected(module, *args)
    made = run(Compiled(program, fold=False), *args)
    for own, other in zip(tensors(made), tensors(wanted), strict=True):
        assert torch.equal(own, other)
    folded = run(Compiled(program), *args)
    for own, other in zip(tensors(folded), tensors(wanted), strict=True):
        assert error(own, other) < 1e-5


@pytest.mark.slow
@given(module=modules(), fuse=st.booleans())
@examples(20)
def test_values_are_tensors_along_the_edges(module, fuse):
    program = Program(module, arguments(), fuse=fuse)
    compiled = Compiled(program)
    edges = set(map(tuple, program.graph.edges.tolist()))
    assert {(value.task, reader) for value in compiled.values for reader in value.readers} == edges
    assert len({value.name for value in compiled.values}) == len(compiled.values)
    registers = compiled.start(program.inputs(arguments(3), {}))
    with torch.no_grad():
        for i in program.graph.topological_order.tolist():
            for register in compiled.reads[i]:
                assert i in compiled.values[register].readers
            compiled.functions[i](registers)
    for value, register in zip(compiled.values, registers, strict=False):
        assert isinstance(register, torch.Tensor)
        assert value.bytes == register.element_size() * register.numel() / 3
    problem = hs.Problem(program.graph, hs.Cluster(["a", "b"], bandwidth=1e9), durations=[[1.0, 1.0]] * program.graph.n_tasks)
    Plan(problem, hs.solve(problem, "heft").schedule.decision, compiled.values).check()


class Pool(nn.Module):
    def forward(self, x):
        values, indices = F.max_pool2d(x, 2, return_indices=True)
        return F.relu(values), indices


@pytest.mark.slow
def test_of_a_tuple_the_elements_that_are_read_are_values():
    program = Program(Pool(), torch.randn(2, 3, 8, 8))
    values = Compiled(program).values
    pool = program.graph.index[next(name for name in program.graph.names if "max_pool" in name)]
    assert [(value.name.rpartition("[")[2], value.kept, len(value.readers)) for value in values if value.task == pool] == [
        ("0]", False, 1),
        ("1]", True, 0),
    ]


class Norms(nn.Module):
    """Batch norms that can be folded, and others that cannot."""

    def __init__(self):
        super().__init__()
        self.plain, self.grouped, self.read = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1, groups=2, bias=False), nn.Conv2d(4, 4, 1)
        self.line, self.back = nn.Conv1d(4, 4, 3), nn.ConvTranspose2d(4, 4, 3)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.BatchNorm2d(4)])
        self.flat = nn.BatchNorm1d(4)
        for norm in (*self.norms, self.flat):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        read = self.read(x)
        return (
            self.norms[0](self.plain(x)),
            self.norms[1](self.grouped(x)),
            self.norms[2](read) + read,
            self.norms[3](self.back(x)),
            self.flat(self.line(x.flatten(2))),
        )


@pytest.mark.slow
def test_batch_norm_is_folded_into_convolutions_that_feed_nothing_else():
    module, x = Norms().eval(), torch.randn(2, 4, 6, 6)
    program = Program(module, x)
    compiled = Compiled(program)
    kept = [node.target for steps in compiled.steps for node in steps if node not in compiled._same and "norm" in str(node.target)]
    assert len(compiled._merged) == 3
    assert len(kept) == 2, "after a transposed convolution, and where the convolution is read too"
    for own, other in zip(run(compiled, x), expected(module, x), strict=True):
        assert error(own, other) < 1e-5
    assert not Compiled(program, fold=False)._merged


@pytest.mark.slow
@pytest.mark.parametrize("fold", [False, True])
def test_a_changed_weight_changes_the_result(fold):
    module, x = Norms().eval(), torch.randn(2, 4, 6, 6)
    before = run(Compiled(Program(module, x), fold=fold), x)
    with torch.no_grad():
        module.norms[0].weight[0] += 0.5
    after = run(Compiled(Program(module, x), fold=fold), x)
    assert error(after[0], before[0]) > 1e-3
    assert error(after[0], expected(module, x)[0]) < 1e-5


class Chain(nn.Module):
    def forward(self, x):
        for _ in range(4):
            x = torch.sigmoid(torch.relu(x))
        return x


@pytest.mark.parametrize("fuse", [False, True])
def test_tensors_are_released_after_their_last_use(fuse):
    program = Program(Chain(), torch.randn(1, 1000), fuse=fuse)
    assert program.graph.n_tasks == (2 if fuse else 9)
    x = torch.randn(1, 1000)
    with _Storages() as storages:
        program(x)
    assert storages.most <= 2 * 4000


def test_functions_are_called_with_tensors_of_any_batch():
    class Sizes(nn.Module):
        def forward(self, x):
            return torch.relu(x).reshape(x.shape[0] * 3, -1).sum(1), torch.full((x.shape[0], 2), 3.0)

    module = Sizes()
    program = Program(module, torch.randn(2, 6))
    for count in (1, 4, 2, 4):
        x = torch.randn(count, 6)
        for own, other in zip(program(x), expected(module, x), strict=True):
            assert torch.equal(own, other)
