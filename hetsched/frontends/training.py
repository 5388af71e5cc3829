"""Task graphs of training steps and of large modules, recorded on tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem
from hetsched.frontends.exported import Reader, operator_type
from hetsched.frontends.flops import Formula, Formulas
from hetsched.frontends.recorded import Step, joined, record_call, record_training, uncollected
from hetsched.frontends.tensors import Task, Tensor, task_graph
from hetsched.problem.graph import TaskGraph

STATES = {"sgd": 0, "momentum": 1, "adam": 2}
"""Number of tensors that an optimiser keeps for each parameter, each of the parameter's size."""

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


@checked(InvalidProblem)
def capture_training(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    example_args: tuple[Any, ...] | torch.Tensor,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    targets: tuple[Any, ...] | torch.Tensor = (),
    loss: Callable[..., torch.Tensor] | None = None,
    optimiser: str = "sgd",
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
        Called as ``loss(output, *targets)``, it returns one number. Default: the output of the module, or the mean of the
        output if it is one tensor.
    optimiser : {"sgd", "momentum", "adam"}
        It keeps 0, 1 or 2 tensors of a parameter's size for each parameter.
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
        The optimiser is unknown, no parameter requires a gradient, the loss is not one number that depends on one, or
        `flop_formulas` are not as described.
    UnsupportedFeature
        The step cannot be run on tensors without data: sizes or control flow depend on data.

    References
    ----------
    D. P. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015.
    """
    if optimiser not in STATES:
        raise InvalidProblem(f"optimiser is {optimiser!r}; choose one of {', '.join(STATES)}")
    formulas = Formulas(flop_formulas)
    made = step_tasks(model, arguments(example_args), example_kwargs or {}, arguments(targets), loss, optimiser, formulas, colocate)
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
    optimiser: str,
    formulas: Formulas,
    colocate: bool = True,
) -> StepTasks:
    """Return the result of `capture_training` with the recorded step and the operators of each task."""
    with uncollected():
        step = record_training(model, args, kwargs, targets, loss, formulas)
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
    example_args: tuple[Any, ...] | torch.Tensor,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    flop_formulas: Mapping[Any, Formula] | None = None,
) -> TaskGraph:
    """Return the task graph of one call of a module, recorded operator by operator on tensors without data.

    It takes a tenth of the time of `capture`, which exports the module, for graphs of thousands of tasks; but the example as
    a whole is one input item, operators are those below autograd (attention may be in parts, batch norm is not folded), and
    control flow is that of the example. Parameters are weight of every task that reads them.

    Parameters
    ----------
    model : torch.nn.Module or function without arguments that makes one
        A function is called under ``FakeTensorMode``, so that the model may have any size; if that fails, with real
        memory.
    example_args, example_kwargs
        Its arguments; only shapes and dtypes of tensors matter.
    flop_formulas : mapping, optional
        As for `capture`.

    Raises
    ------
    InvalidProblem
        The example arguments are not a tuple, or `flop_formulas` are not as described.
    UnsupportedFeature
        The model cannot be run on tensors without data: sizes or control flow depend on data.
    """
    formulas = Formulas(flop_formulas)
    with uncollected():
        step = record_call(model, arguments(example_args), example_kwargs or {}, formulas)
        graph = _StepReader(step, formulas, colocate=False).graph()
    formulas.warn_unknown()
    return graph


def arguments(example_args: tuple[Any, ...] | torch.Tensor) -> tuple[Any, ...]:
    """Return positional arguments as a tuple."""
    return (example_args,) if isinstance(example_args, torch.Tensor) else example_args


class _StepReader(Reader):
    """Converts a recorded step to a task graph; parameters with a gradient are trained."""

    def __init__(self, step: Step, formulas: Formulas, optimiser: str = "", *, colocate: bool) -> None:
        placeholders = {node.name for node in step.graph.nodes if node.op == "placeholder"}
        super().__init__(placeholders - set(step.inputs), formulas)
        self.step, self.optimiser, self.colocate = step, optimiser, colocate
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
        held = own.size * (1 + STATES[self.optimiser])
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
