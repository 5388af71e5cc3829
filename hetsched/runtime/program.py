"""A torch module as tasks that can be run separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.frontends.torch import calls
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.runtime.code import Compiled
from hetsched.runtime.functional import draws
from hetsched.schedule.decision import Decision

Values = dict[Node, Any]


class Work(NamedTuple):
    """The computation of one task."""

    steps: tuple[Node, ...]
    """Its own nodes, and free operators that they need, such as views, in the order of execution."""
    reads: frozenset[Node]
    """Nodes of other tasks."""


class Program:
    """A module whose tasks, those of `hetsched.frontends.torch.capture`, can be run separately.

    A call runs all tasks, one after another, in topological order and without gradients.

    Parameters
    ----------
    module : torch.nn.Module
        With its weights, on the device it is to run on; in eval mode if it has layers that differ in training.
    example_args : tuple (or one tensor)
        Positional arguments.
    example_kwargs : mapping, optional
        Keyword arguments.
    dynamic_batch, fuse : bool
        As for `capture`: whether the first dimension of the first tensor may have any length, and whether elementwise
        operators are fused with the only task that they read.

    Attributes
    ----------
    graph : TaskGraph
        Work and bytes are those of one input item.
    calls : Calls
        The exported program, and the nodes of each task.
    operators : torch.fx.Graph
    nodes : tuple of tuples of Node
        The operators of each task.
    constants : dict of Node to value
        Parameters, buffers, and values computed from these alone; computed once, so later changes of parameters have no effect.
    work : tuple of Work
        The computation of each task.
    last : Work
        The computation of the result after all tasks.

    Raises
    ------
    InvalidProblem, UnsupportedFeature
        As for `capture`; or the module changes its own buffers or arguments, as batch norm does in training, or draws random
        numbers, as dropout does.
    """

    graph: TaskGraph

    @checked
    def __init__(
        self,
        module: torch.nn.Module,
        example_args: tuple[Any, ...] | torch.Tensor,
        *,
        example_kwargs: Mapping[str, Any] | None = None,
        dynamic_batch: bool = True,
        fuse: bool = False,
    ) -> None:
        tensors = [*module.parameters(), *module.buffers()]
        if any(tensor.is_meta for tensor in tensors):
            raise InvalidProblem("the module is on the meta device, without weights; give one that can be run")
        self.calls = calls(module, example_args, example_kwargs=example_kwargs, dynamic_batch=dynamic_batch, fuse=fuse)
        self._exported = self.calls.program
        self._keywords = tuple(example_kwargs or {})
        self.graph = self.calls.graph
        signature = self._exported.graph_signature
        changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
        if changed:
            raise UnsupportedFeature(f"the module changes {changed[0]!r} when it runs; call its eval() first, or remove the change")
        for node in self._exported.graph.nodes:
            if draws(node.target, node.args, node.kwargs):
                raise UnsupportedFeature(f"{node.name!r} draws random numbers at every call; call eval(), or pass them as an argument")
        self.constants: Values = {}
        self._make_constants()
        self._divide(self._exported.graph, self.calls.nodes)

    def _divide(self, operators: Graph, nodes: tuple[tuple[Node, ...], ...]) -> None:
        """Set the computation of each task, whose own nodes are given."""
        self.operators, self.nodes = operators, nodes
        self._owner = {node: i for i, own in enumerate(nodes) for node in own}
        self.work = tuple(map(self._work, nodes))
        self.last = self._work((self._output,))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self.inputs(args, kwargs)
        with torch.no_grad():
            return self.compiled.run(self.compiled.start(values))

    def result(self, values: Sequence[Any]) -> Any:
        """Return the result of a call from what the last operator reads."""
        return tree_unflatten(list(values), self._nesting[1])

    # ------------------------------------------------------------------ what a training step does otherwise

    updates: frozenset[int] = frozenset()
    """The tasks that change the state of a training: they run last, when all others have ended."""

    @property
    def order(self) -> list[int]:
        """A topological order of the tasks, in which updates are last."""
        return sorted(self.graph.topological_order.tolist(), key=self.updates.__contains__)

    def arranged(self, problem: Problem, decision: Decision) -> Decision:
        """Return a decision as it is run; raise an error of this package if it cannot be."""
        return decision

    def in_use(self) -> AbstractContextManager[None]:
        """Raise `UnsupportedFeature` if another call is in progress that does not permit a second one."""
        return nullcontext()

    def kept(self) -> AbstractContextManager[None]:
        """Return a context at whose end the state is as at its begin."""
        return nullcontext()

    def commit(self, values: Sequence[Any]) -> None:
        """Change the state that no update changes, given what the last operator reads."""

    @cached_property
    def compiled(self) -> Compiled:
        """The tasks as functions, which compute what the module does to the bit."""
        return Compiled(self, fold=False)

    @cached_property
    def device(self) -> torch.device:
        """The device of the module's weights, or without any of its inputs."""
        tensors = [value for value in self.constants.values() if isinstance(value, torch.Tensor)]
        tensors += [value for node in self._placeholders if isinstance(value := node.meta["val"], torch.Tensor)]
        return next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), torch.device("cpu"))

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values:
        """Return the values of the arguments of a call; tensors are made contiguous, as at the capture.

        Raises
        ------
        InvalidProblem
            Shapes or types differ from those at the capture, or an argument that is not a tensor has another value.
        """
        given = list(args)
        if kwargs or len(args) != self._tensors or any(type(value) is not torch.Tensor for value in args):
            given, spec = tree_flatten((args, {key: kwargs[key] for key in self._keywords if key in kwargs}))
            if spec != self._nesting[0] or set(kwargs) - set(self._keywords):
                raise InvalidProblem("the arguments are not nested, or named, as those that the program was made with")
        for node, value in zip(self._placeholders, given, strict=True):
            expected = node.meta["val"]
            if isinstance(expected, torch.Tensor):
                self._check(node.name, value, expected)
            elif not isinstance(expected, torch.SymInt) and value != expected:
                raise InvalidProblem(
                    f"argument {node.name!r} is {value!r}; the program was made for {expected!r}; make a program for each value"
                )
        made = [value.contiguous() if isinstance(value, torch.Tensor) else value for value in given]
        return dict(zip(self._placeholders, made, strict=True))

    def resized(self, values: Values, length: int) -> Values:
        """Return the values of `inputs` as a batch of `length` items, which repeats the given ones.

        Raises
        ------
        InvalidProblem
            The program has no batches (``dynamic_batch=False``), and `length` is not 1.
        """
        made, fits = dict(values), False
        for node in self._placeholders:
            expected, value = node.meta["val"], values[node]
            lengths: list[Any] = list(expected.shape) if isinstance(expected, torch.Tensor) else []
            if lengths and not isinstance(lengths[0], int):
                made[node] = value[torch.arange(length, device=value.device) % len(value)]
                fits = True
        if not fits and length != 1:
            raise InvalidProblem(f"the program takes its example as one item, not a batch of {length}; make it with dynamic_batch=True")
        return made

    @staticmethod
    def _check(name: str, value: Any, expected: torch.Tensor) -> None:
        shape = [length if isinstance(length, int) else None for length in expected.shape]
        fits = isinstance(value, torch.Tensor) and value.dtype == expected.dtype and value.dim() == len(shape)
        fits = fits and value.device.type == expected.device.type
        if not fits or any(own is not None and own != length for own, length in zip(shape, value.shape, strict=True)):
            is_now = (
                f"{list(value.shape)} of {value.dtype} on {value.device.type}"
                if isinstance(value, torch.Tensor)
                else f"a {type(value).__name__}"
            )
            expected_shape = ", ".join("any" if length is None else str(length) for length in shape)
            raise InvalidProblem(
                f"argument {name!r} is {is_now}; the program was made for [{expected_shape}] of {expected.dtype} on {expected.device.type}"
            )

    @cached_property
    def _tensors(self) -> int:
        """The number of arguments if all are tensors by position, which need not be flattened; else -1."""
        spec = self._nesting[0]
        own = [node.meta["val"] for node in self._placeholders]
        flat = spec == tree_flatten((tuple(own), {}))[1] and all(isinstance(value, torch.Tensor) for value in own)
        return len(own) if flat else -1

    @cached_property
    def _nesting(self) -> tuple[TreeSpec, TreeSpec]:
        """How the arguments and the result are nested, which torch takes longer to tell than a GPU takes for several operators."""
        spec = self._exported.call_spec
        return spec.in_spec, spec.out_spec

    # ------------------------------------------------------------------ the order of computation

    @cached_property
    def _placeholders(self) -> list[Node]:
        names = {spec.arg.name for spec in self._exported.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT}
        return [node for node in self._exported.graph.nodes if node.op == "placeholder" and node.name in names]

    @property
    def _output(self) -> Node:
        return self.operators.output_node()

    def _make_constants(self) -> None:
        """Set the values of parameters, buffers and nodes computed from these alone."""
        program, own, constants = self._exported, set(self._placeholders), self.constants
        stored = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target is not None}
        with torch.no_grad():
            for node in program.graph.nodes:
                if node.op == "placeholder" and node not in own:
                    target = stored[node.name]
                    constants[node] = program.state_dict[target] if target in program.state_dict else program.constants[target]
                elif node.op == "call_function" and all(source in constants for source in node.all_input_nodes):
                    args, kwargs = self._arguments(node)
                    constants[node] = node.target(*args, **kwargs)

    def _work(self, nodes: tuple[Node, ...]) -> Work:
        steps: dict[Node, None] = {}
        reads = set()
        own = set(nodes)

        def need(node: Node) -> None:
            for source in node.all_input_nodes:
                if source in self._owner and source not in own:
                    reads.add(source)
                elif source not in steps and source not in self.constants and source.op != "placeholder":
                    need(source)
                    steps[source] = None

        for node in nodes:
            need(node)
            if node.op == "call_function":
                steps[node] = None
        return Work(tuple(steps), frozenset(reads))

    def _arguments(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return map_arg((node.args, node.kwargs), self.constants.__getitem__)
