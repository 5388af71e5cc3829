"""Task graphs of training steps and of large modules, recorded on tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from hetsched.arguments import checked, whole
from hetsched.errors import InvalidProblem
from hetsched.frontends.calling import arguments, name_of, reason
from hetsched.frontends.exported import Reader
from hetsched.frontends.flops import Formula, Formulas
from hetsched.frontends.operators import operator_type
from hetsched.frontends.recorded import record_call, record_training, uncollected
from hetsched.frontends.recorder import Step, joined
from hetsched.frontends.tensors import Task, Tensor, task_graph
from hetsched.frontends.ways import Way, first
from hetsched.problem.graph import TaskGraph

STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}
"""Number of tensors that an optimiser keeps for each parameter, each of the parameter's size."""
Optimiser = str | Callable[..., torch.optim.Optimizer]

CREATIONS = {
    "zeros",
    "ones",
    "full",
    "arange",
    "scalar_tensor",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
}
"""Operators that read no data; their results are constants."""
ALLOCATIONS = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
"""Operators that produce no data."""

SHORT_NAMES = {
    "native_batch_norm": "batch_norm",
    "native_batch_norm_backward": "batch_norm_backward",
    "native_layer_norm_backward": "layer_norm_backward",
    "native_group_norm_backward": "group_norm_backward",
    "max_pool2d_with_indices_backward": "max_pool2d_backward",
    "scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "scaled_dot_product_flash_attention_for_cpu_backward": "scaled_dot_product_attention_backward",
}


@checked(InvalidProblem, accumulate=whole(1))
def capture_training(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    example_args: tuple[Any, ...] | torch.Tensor = (),
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    targets: tuple[Any, ...] | torch.Tensor = (),
    loss: Callable[..., torch.Tensor] | None = None,
    optimiser: str | Callable[..., torch.optim.Optimizer] = "sgd",
    accumulate: int = 1,
    autocast: torch.dtype | None = None,
    colocate: bool = True,
    flop_formulas: Mapping[Any, Formula] | None = None,
) -> TaskGraph:
    """Return the task graph of one training step of a module: forward pass, loss, backward pass, updates.

    The step is recorded on tensors without data, below autograd: the model needs no memory and is not changed. It is
    recorded in its current mode: call ``model.train()`` first, for batch norm and dropout as in training.

    Parameters
    ----------
    model : torch.nn.Module or function without arguments that makes one
        A function is called under ``FakeTensorMode``, so that the model may have any size; if that fails, with real
        memory.
    example_args : tuple (or one tensor)
        Positional arguments of the module; only shapes and dtypes of tensors matter. Their batch is the batch of a step.
    example_kwargs : mapping, optional
        Its keyword arguments.
    targets : tuple (or one tensor)
        Further arguments of `loss`; they are inputs of the step.
    loss : function, optional
        Called as ``loss(output, *targets)``, it returns one number. Default: the `loss` of an output that has one, as those of
        Hugging Face for `labels`, else the output of the module, or the mean of the output if it is one tensor.
    optimiser : {"sgd", "momentum", "adam", "adamw"}, or function
        It keeps 0, 1, 2 or 2 tensors of a parameter's size for each parameter. A function of a list of parameters returns an
        optimiser of torch, as do the classes of ``torch.optim``; it keeps what it has after one step, without single numbers.
    accumulate : int
        Number of equal parts of the batch, the first dimension of the first tensor, that pass one after another before the
        update; their gradients are added, and their losses divided by it.
    autocast : torch.dtype, optional
        The lower precision in which ``torch.autocast`` of the CPU lets the forward pass and the loss compute.
    colocate : bool
        Whether the readers of a parameter, forward and backward, share a `colocation` label with its update, and so do
        the readers of all parameters that one task reads. A parameter then exists once, where it is updated. Otherwise
        every device with a reader holds a copy, and the transfer of the updated value is not part of the graph.
    flop_formulas : mapping, optional
        As for `capture`. The backward pass of a custom operator consists of operators too.

    Returns
    -------
    TaskGraph
        Its numbers are for ONE input item, the example as a whole: a step has no batch dimension.

        - Tasks of the forward pass have names as in `capture` (``"layer1.conv/conv2d"``; those of the loss
          ``"loss/..."``), those of the backward pass ``"backward:"``, the module and the operator
          (``"backward:layer1.conv/..."``). ``"update:layer1.conv.weight"``, whose type is the optimiser's name, reads the
          gradient of a parameter and writes the parameter. A parameter that the loss does not depend on has no update.
        - Composite operators are in parts, as in autograd; views are folded, as in `capture`. A value saved in the forward
          pass for the backward pass is an edge between them.
        - `weight_bytes` of an update are those of the parameter and of the optimiser's tensors. With `colocate`, other
          readers of the parameter have none of these; without, each has the parameter's bytes. Buffers, frozen parameters,
          and values computed from these alone are weight of the tasks that read them, as in `capture`. Values computed from
          trained parameters are computed in each step, as are random numbers.
        - `flops` are counted as in `capture`; the elementwise work of updates counts 0. `bytes_accessed` counts all that is
          read, including parameters and gradients, and all that is written.

    Raises
    ------
    InvalidProblem
        The optimiser is unknown or its function fails, no parameter requires a gradient, the loss is not one number that depends on
        one, the batch has no `accumulate` equal parts, the arguments are not those of the module, or `flop_formulas` are not as described.
    UnsupportedFeature
        The step fails on the example, or cannot be run on tensors without data: sizes or control flow depend on data.

    References
    ----------
    D. P. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015.
    """
    if isinstance(optimiser, str) and optimiser not in STATES:
        raise InvalidProblem(f"optimiser is {optimiser!r}; choose one of {', '.join(STATES)}, or give a class of torch.optim")
    formulas = Formulas(flop_formulas)
    made = step_tasks(
        model,
        *arguments(example_args, example_kwargs),
        arguments(targets)[0],
        loss,
        optimiser,
        formulas,
        colocate,
        accumulate=accumulate,
        autocast=autocast,
    )
    formulas.warn_unknown()
    return made.graph


class StepTasks(NamedTuple):
    """A recorded training step as tasks."""

    step: Step
    graph: TaskGraph
    """The graph of `capture_training`."""
    nodes: list[tuple[torch.fx.Node, ...]]
    """The operators of each task; an update has none."""
    updates: dict[str, int]
    """The update of each parameter that has a gradient."""


def step_tasks(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    targets: tuple[Any, ...],
    loss: Callable[..., torch.Tensor] | None,
    optimiser: Optimiser,
    formulas: Formulas,
    colocate: bool = True,
    **settings: Any,
) -> StepTasks:
    """Return the result of `capture_training` with the recorded step and the operators of each task; `settings` are its others."""
    with uncollected():
        step = record_training(model, args, kwargs, targets, loss, formulas, **settings)
        reader = _StepReader(step, formulas, optimiser, colocate=colocate)
        graph = reader.graph()
    tasks = reader.read_tasks()
    place = {task: i for i, task in enumerate(tasks)}
    return StepTasks(
        step,
        graph,
        [tuple(task.nodes) for task in tasks],
        {name: place[task] for name, task in zip(step.gradients, reader.updates, strict=True)},
    )


@checked(InvalidProblem)
def record(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    example_args: tuple[Any, ...] | torch.Tensor = (),
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    flop_formulas: Mapping[Any, Formula] | None = None,
) -> TaskGraph:
    """Return the task graph of one call of a module, recorded operator by operator on tensors without data.

    It takes a tenth of the time of `capture`, which exports the module, for graphs of thousands of tasks; but the example as
    a whole is one input item, operators are those below autograd (attention may be in parts, batch norm is not folded), and
    control flow is that of the example. Parameters are weight of every task that reads them. If sizes or control flow depend on
    data, the module is run once on the example instead, and a warning says so.

    Parameters
    ----------
    model : torch.nn.Module or function without arguments that makes one
        A function is called under ``FakeTensorMode``, so that the model may have any size; if that fails, with real
        memory.
    example_args, example_kwargs
        Its arguments; only shapes and dtypes of tensors matter, unless the module is run.
    flop_formulas : mapping, optional
        As for `capture`.

    Raises
    ------
    InvalidProblem
        The example arguments are not a tuple, or not those of the module, the function fails, or `flop_formulas` are not as described.
    UnsupportedFeature
        The model fails on the example, or must be run but is on the meta device.

    Warns
    -----
    RuntimeWarning
        The module was run. A task then also waits for the numbers that Python has read before it (``item()``, conditions), and another
        example may have other tasks.
    """
    formulas = Formulas(flop_formulas)
    ways = recordings(model, *arguments(example_args, example_kwargs), formulas)
    graph = first(ways, ways, formulas)
    formulas.warn_unknown()
    return graph


def recordings(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], formulas: Formulas, *, fuse: bool = False
) -> tuple[Way[TaskGraph], Way[TaskGraph]]:
    """Return the ways to record a call: on tensors without data, and by running it."""

    def make(run: bool) -> TaskGraph:
        with uncollected():
            return _StepReader(record_call(model, args, kwargs, formulas, run=run), formulas, colocate=False, fuse=fuse).graph()

    return (
        Way(
            lambda: make(False),
            "so the call was recorded operator by operator, and the whole example is one item; record() asks for that",
            "record() captures it: the whole example is then one item",
        ),
        Way(
            lambda: make(True),
            "so the model was run once on the example: another example may have other tasks",
            "sizes or control flow depend on data, so record() runs it once on the example",
            runs=True,
        ),
    )


def _states(optimiser: Optimiser, trained: dict[str, torch.Tensor]) -> tuple[str, dict[str, float]]:
    """Return the name of an optimiser, and the bytes that it keeps for each parameter."""
    if isinstance(optimiser, str):
        return optimiser, {name: float(STATES[optimiser] * tensor.nbytes) for name, tensor in trained.items()}
    try:
        with FakeTensorMode():
            parameters = {name: torch.nn.Parameter(torch.empty(tensor.shape, dtype=tensor.dtype)) for name, tensor in trained.items()}
            made = optimiser(list(parameters.values()))
            for parameter in parameters.values():
                parameter.grad = torch.empty_like(parameter)
            made.step()
    except Exception as error:  # of the user's function
        message = f"the optimiser {name_of(optimiser)} fails: {reason(error)}"
        raise InvalidProblem(f"{message}; give a function of a list of parameters, such as torch.optim.AdamW") from error
    kept = {name: tree_leaves(dict(made.state[parameter])) for name, parameter in parameters.items()}
    return type(made).__name__.lower(), {
        name: float(sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim())) for name, leaves in kept.items()
    }


class _StepReader(Reader):
    """Converts a recorded step to a task graph; parameters with a gradient are trained."""

    def __init__(self, step: Step, formulas: Formulas, optimiser: Optimiser = "sgd", *, colocate: bool, fuse: bool = False) -> None:
        placeholders = {node.name for node in step.graph.nodes if node.op == "placeholder"}
        super().__init__(placeholders - set(step.inputs), formulas, fuse=fuse)
        self.step, self.colocate = step, colocate
        self.optimiser, self.states = _states(optimiser, {name: step.parameters[name].meta["val"] for name in step.gradients})
        self.names_of = {step.parameters[name]: name for name in step.gradients}
        self.trained: dict[Tensor, str] = {}
        self.updates: list[Task] = []

    def graph(self) -> TaskGraph:
        """Return the graph, with an update for each trained parameter."""
        self.walk(self.step.graph)
        for name, gradient in self.step.gradients.items():
            self._add_update(name, gradient)
        tasks = self.read_tasks()
        if self.colocate:
            return task_graph(tasks, colocation=self._labels(tasks))
        return task_graph(tasks, weight_bytes=[task.weight + sum(task.trained.values()) for task in tasks])

    def _argument(self, node: torch.fx.Node, constant: bool) -> None:
        super()._argument(node, constant)
        if node in self.names_of:
            (tensor,) = self.tensors[node]
            self.trained[tensor] = self.names_of[node]

    def _call(self, node: torch.fx.Node) -> None:
        op = operator_type(node.target)
        if op in ALLOCATIONS:
            self.tensors[node] = ()
        elif op in CREATIONS:
            self._produce(node, None)
        else:
            super()._call(node)

    def _sources(self, node: torch.fx.Node) -> list[torch.fx.Node]:
        read = [number for number in node.meta.get("awaits", ()) if any(tensor.task for tensor in self.tensors[number])]
        return list(dict.fromkeys([*node.all_input_nodes, *read]))

    def _operator(self, node: torch.fx.Node) -> str:
        """Return the operator type as in `capture` for a call of the forward pass, and that of aten for the backward pass."""
        op = operator_type(node.target).removesuffix("_")
        if not node.meta["backward"]:
            if op in ("mm", "addmm"):
                weight = node.args[-1]
                return "linear" if all(tensor.task is None for tensor in self.tensors[weight]) else "matmul"  # type: ignore[index]
            if op in ("bmm", "baddbmm"):
                return "matmul"
            if op == "convolution":
                return f"conv{'_transpose' if node.args[6] else ''}{len(node.args[3])}d"  # type: ignore[arg-type]
        return SHORT_NAMES.get(op, op)

    def _name(self, node: torch.fx.Node, op: str) -> str:
        name = "/".join(filter(None, (node.meta["module"], op)))
        return f"backward:{name}" if node.meta["backward"] else name

    def _is_view(self, node: torch.fx.Node) -> bool:
        return node.target is joined or super()._is_view(node)

    def _is_constant(self, node: torch.fx.Node, shown: tuple[Tensor, ...]) -> bool:
        """Return whether a value exists before the step: it is not random, not a gradient, and depends on no trained parameter."""
        if node.meta["backward"]:
            return False
        random = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
        return not random and all(tensor.task is None and tensor not in self.trained for tensor in shown)

    def _hold(self, task: Task, tensor: Tensor, size: float) -> None:
        if tensor in self.trained:
            task.trained[tensor] = size
        else:
            super()._hold(task, tensor, size)

    def _flops(self, node: torch.fx.Node) -> float:
        return float(node.meta["flops"])

    def _add_update(self, name: str, gradient: torch.fx.Node) -> None:
        (own,) = self.tensors[self.step.parameters[name]]
        held = own.size + self.states[name]
        task = Task(self._unique(f"update:{name}"), self.optimiser, [], weight=held, trained={own: 0.0}, written=held)
        size = self._bytes(gradient.meta["val"], 1, gradient)
        for tensor in self.tensors[gradient]:
            tensor.used = True
            if tensor.task is not None:
                task.reads[tensor] = min(size, tensor.size)
        self.tasks.append(task)
        self.updates.append(task)

    def _labels(self, tasks: Sequence[Task]) -> list[str | None]:
        """Return the label of each task: the parameter that it reads, or the first of all parameters joined by common readers."""
        first = {tensor: tensor for tensor in self.trained}
        place = {tensor: i for i, tensor in enumerate(self.trained)}

        def root(tensor: Tensor) -> Tensor:
            while first[tensor] is not tensor:
                first[tensor] = tensor = first[first[tensor]]
            return tensor

        for task in tasks:
            roots = sorted({root(tensor) for tensor in task.trained}, key=place.__getitem__)
            for other in roots[1:]:
                first[other] = roots[0]
        return [self.trained[root(next(iter(task.trained)))] if task.trained else None for task in tasks]
