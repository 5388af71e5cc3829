"""A training step as tasks that can be run separately."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from hetsched.arguments import checked, whole
from hetsched.errors import InvalidProblem, InvalidSchedule, UnsupportedFeature
from hetsched.frontends.calling import arguments
from hetsched.frontends.flops import Formulas
from hetsched.frontends.training import step_tasks
from hetsched.problem.problem import Problem
from hetsched.runtime.functional import Functional, Operator, draws, restrided, seed_of, seeded
from hetsched.runtime.program import Program, Values
from hetsched.schedule.decision import Decision

KINDS: dict[type[Optimizer], str] = {SGD: "sgd", Adam: "adam", AdamW: "adamw"}
"""The optimisers, and their names in `capture_training` without momentum."""


class TrainingProgram(Program):
    """A training step of a module whose tasks, those of `hetsched.frontends.torch.capture_training`, can be run separately.

    A call makes one step, with the arguments of the module and after them the targets, and returns the loss. Parameters, buffers and
    the state of the optimiser change in place, as by ``loss.backward(); optimiser.step()``: both `state_dict` are those of the
    training so far, and learning rates may be changed between steps. Gradients are not kept, `grad` is not read, and None afterwards.

    An `Executor` of the program makes the same steps by a decision. In both, updates begin when all other tasks of the step have
    ended, so that a step that fails, is cancelled, or takes too long leaves everything as it was before; from then on it is
    completed. Random operators draw from a generator that `seed`, the number of the step and the place of the operator in the
    recorded step determine, wherever they run.

    Parameters
    ----------
    module : torch.nn.Module
        With its weights, on the CPU; in train mode for batch norm and dropout as in training.
    example_args : tuple (or one tensor)
        Positional arguments. Steps have arguments of the same shapes.
    example_kwargs : mapping, optional
        Keyword arguments.
    targets, loss
        As for `capture_training`: further arguments of the loss, and the loss.
    optimiser : torch.optim.SGD, Adam or AdamW
        With all parameters of the module that require a gradient. Its settings, also for groups of parameters, are read at each step.
    seed : int
        Of random numbers, at least 0.

    Attributes
    ----------
    graph : TaskGraph
        That of `capture_training`, with labels of co-location: a parameter is on the device of its update.
    step : int
        Number of steps so far. It can be set, such as after loading an earlier state.

    Raises
    ------
    InvalidProblem
        As for `capture_training`; or a parameter that requires a gradient is not the optimiser's.
    UnsupportedFeature
        As for `capture_training`; or the optimiser is another one, has hooks, or amsgrad; the module is not on the CPU, changes a
        parameter or an attribute in its call, changes the same running statistics twice, or draws random numbers without a generator
        or in the backward pass.

    Notes
    -----
    Masks and other values computed from buffers and frozen parameters alone are computed once, so later changes of these have no
    effect on them.
    """

    @checked
    def __init__(
        self,
        module: torch.nn.Module,
        example_args: tuple[Any, ...] | torch.Tensor,
        *,
        example_kwargs: Mapping[str, Any] | None = None,
        targets: tuple[Any, ...] | torch.Tensor = (),
        loss: Callable[..., torch.Tensor] | None = None,
        optimiser: Optimizer,
        seed: int = 0,
    ) -> None:
        self.module, self.optimiser, self.seed, self.step = module, optimiser, seed, 0
        self._busy = threading.Lock()
        tensors = dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])
        _check(module, tensors, optimiser)
        args, kwargs, aims = tree_map(_dense, (*arguments(example_args, example_kwargs), arguments(targets)[0]))
        made = step_tasks(module, args, kwargs, aims, loss, _kind(optimiser), Formulas())
        self.graph, step = made.graph, made.step
        owned = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
        for name, gradient in step.gradients.items():
            if gradient.meta["val"].layout is not torch.strided:
                raise UnsupportedFeature(f"the gradient of {name!r} is sparse; give the module sparse=False")
            if id(tensors[name]) not in owned:
                raise InvalidProblem(f"parameter {name!r} requires a gradient, but the optimiser does not have it; add it, or freeze it")
        for name in step.replaced:
            raise UnsupportedFeature(f"the module changes its attribute {name!r} when it runs, which steps would not; make it a buffer")
        for name, last in step.changed.items():
            if name in step.parameters:
                raise UnsupportedFeature(f"the module changes its parameter {name!r} when it runs; leave that to the optimiser")
            if last.meta["val"].shape != tensors[name].shape:
                raise UnsupportedFeature(f"the module changes the shape of its buffer {name!r} when it runs; keep its shape")
        self._set_arguments(args, kwargs, aims, list(step.inputs.values()))
        functional = Functional(step.graph, lambda number: seed_of(self.seed, self.step, number))
        nodes = list(made.nodes)
        self._trained = {name: tensors[name] for name in made.updates}
        output = step.graph.output_node()
        with step.graph.inserting_before(output):
            for name, task in made.updates.items():
                update = step.graph.call_function(Operator(_kind(optimiser), _update(optimiser, tensors[name])), (step.gradients[name],))
                update.meta = {"val": None, "module": "", "backward": True, "flops": 0}
                nodes[task] = (update,)
        self.updates = frozenset(made.updates.values())
        placed = {node: tensors[name] for name, node in (step.parameters | step.constants).items()}
        changed = {(step.parameters | step.constants)[name]: node for name, node in step.changed.items()} | functional.changed
        output.args = ((*output.args[0], *changed.values()),)  # type: ignore[misc]
        self._changed = [placed[node] for node in changed]
        self._set_constants(step.graph, functional, placed, {*changed, *(step.parameters[name] for name in made.updates)}, nodes)
        self._divide(step.graph, tuple(nodes))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make a step on the calling thread, one task after another, and return its loss; Ctrl-C may come between two updates."""
        values = self.inputs(args, kwargs)
        with self.in_use(), torch.no_grad(), torch.autocast("cpu", enabled=False):
            registers, first = self.compiled.start(values), self.graph.n_tasks - len(self.updates)
            self.compiled.take(registers, 0, first)
            outputs = self.compiled.outputs(registers)
            self.commit(outputs)
            self.compiled.take(registers, first, None)
        return self.result(outputs)

    @checked(InvalidProblem, step=whole(0))
    def random_numbers(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the module itself, called in PyTorch as usual, draws the random numbers of a step.

        Parameters
        ----------
        step : int
            Its number, from 0.
        """
        return _RandomNumbers(self.seed, step)

    def inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values:
        """Return the values of the arguments of a step, which have the strides of the example.

        Raises
        ------
        InvalidProblem
            Shapes or types differ from those of the example, or an argument that is not a tensor has another value.
        """
        given, spec = tree_flatten((args, {key: kwargs[key] for key in self._keywords if key in kwargs}))
        if spec != self._spec or set(kwargs) - set(self._keywords):
            raise InvalidProblem("the arguments are not those of the module and then the targets, nested or named as in the example")
        made: Values = {}
        for value, expected in zip(given, self._given, strict=True):
            if isinstance(expected, Node):
                fake = expected.meta["val"]
                self._check(expected.name, value, fake)
                made[expected] = restrided(value, fake.shape, fake.stride())
            elif value != expected:
                raise InvalidProblem(f"an argument is {value!r}; the program was made for {expected!r}; make a program for each value")
        return made

    def _set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any], aims: tuple[Any, ...], nodes: list[Node]) -> None:
        """Set what a step is called with; the nodes are in the order of arguments, keywords, targets."""
        self._keywords, self._placeholders = tuple(kwargs), nodes
        left = iter(nodes)
        parts = [
            [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in tree_flatten(part)[0]] for part in (args, kwargs, aims)
        ]
        self._given = [*parts[0], *parts[2], *parts[1]]
        self._spec = tree_flatten(((*args, *aims), kwargs))[1]

    def _set_constants(
        self, graph: Graph, functional: Functional, placed: Mapping[Node, torch.Tensor], live: set[Node], nodes: Sequence[tuple[Node, ...]]
    ) -> None:
        """Set the values that no step changes, and parameters and buffers as they are: `live` ones change."""
        self.constants = dict(functional.constants)
        owned = {node for own in nodes for node in own}
        inputs = set(self._placeholders)

        def value(node: Node) -> Any:
            return node.target() if node in functional.allocated else self.constants[node]  # type: ignore[operator]

        with torch.no_grad():
            for node in graph.nodes:
                sources = node.all_input_nodes
                if node.op == "placeholder" and node not in inputs:
                    self.constants[node] = placed[node] if node in placed else _held(node)
                elif node.op != "call_function" or node in owned or node in functional.allocated or node in self.constants:
                    continue
                elif any(source in live for source in sources):
                    live.add(node)
                elif all(source in self.constants or source in functional.allocated for source in sources):
                    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
                    self.constants[node] = node.target(*args, **kwargs)

    # ------------------------------------------------------------------ steps

    def result(self, values: Sequence[Any]) -> Any:
        """Return the loss."""
        return values[0]

    def commit(self, values: Sequence[Any]) -> None:
        """Begin the end of a step: set the buffers that it changes; only updates follow."""
        old = {buffer.untyped_storage().data_ptr() for buffer in self._changed}  # one buffer may get the former value of another
        made = [value.clone() if value.untyped_storage().data_ptr() in old else value for value in values[1:]]
        for buffer, value in zip(self._changed, made, strict=True):
            buffer.copy_(value)
        self.step += 1
        vars(self.optimiser)["_opt_called"] = True  # for schedulers of learning rates, which else warn

    def arranged(self, problem: Problem, decision: Decision) -> Decision:
        """Return the decision with the updates of each device behind its other tasks.

        Raises
        ------
        InvalidProblem
            The problem has several inputs.
        InvalidSchedule
            Tasks that share a parameter are on different devices.
        """
        if problem.inputs != 1:
            raise InvalidProblem(f"the problem has {problem.inputs} inputs; the example of a training step as a whole is one")
        device = np.zeros(self.graph.n_tasks, np.int64)
        device[decision.task] = decision.device
        home: dict[str, int] = {}
        for task, label in enumerate(self.graph.colocation):
            if label is not None and device[home.setdefault(label, task)] != device[task]:
                names = problem.cluster.names
                raise InvalidSchedule(
                    f"{self.graph.names[task]!r} is on {names[device[task]]!r}, but shares the parameter {label!r} with "
                    f"{self.graph.names[home[label]]!r} on {names[device[home[label]]]!r}; solve the problem of the program's graph"
                )
        last = np.isin(decision.task, list(self.updates))
        order = np.lexsort((last, decision.device))
        transfers = decision.transfer_order
        if transfers is not None:
            place = np.argsort(order)
            transfers = np.column_stack([transfers[:, 0], place[transfers[:, 1:]]])
        return Decision(decision.task[order], decision.device[order], transfer_order=transfers)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Refuse a second step at the same time."""
        if not self._busy.acquire(blocking=False):
            raise UnsupportedFeature("a step of this program is in progress; wait for it before the next one")
        try:
            yield
        finally:
            self._busy.release()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Restore parameters, buffers, the optimiser's state and the number of steps at the end."""
        held = [*self._trained.values(), *self._changed]
        before, step = [tensor.detach().clone() for tensor in held], self.step
        states = {
            parameter: {
                key: part.clone() if isinstance(part, torch.Tensor) else part for key, part in self.optimiser.state[parameter].items()
            }
            for parameter in self._trained.values()
            if parameter in self.optimiser.state
        }
        try:
            yield
        finally:
            self.step = step
            with torch.no_grad():
                for tensor, value in zip(held, before, strict=True):
                    tensor.copy_(value)
                for parameter in self._trained.values():
                    _restore(self.optimiser.state, parameter, states.get(parameter))


class _RandomNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives each random operator the generator that it has in a step."""

    def __init__(self, seed: int, step: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed, self.step, self.number = seed, step, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not draws(func, args, kwargs):
            return func(*args, **kwargs)
        self.number += 1
        return seeded(func, seed_of(self.seed, self.step, self.number - 1), args, kwargs)


def _check(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], optimiser: Optimizer) -> None:
    """Raise `UnsupportedFeature` for a module or an optimiser that cannot be run."""
    for name, tensor in tensors.items():
        if tensor.device.type != "cpu":
            raise UnsupportedFeature(f"{name!r} is on a {tensor.device.type} device; training steps run on the CPU: move the module there")
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise UnsupportedFeature(f"parameter {name!r} has hooks, which are not called; remove them")
    kind = type(optimiser)
    if kind not in KINDS:
        raise UnsupportedFeature(f"the optimiser is {kind.__name__}; training steps run with SGD, Adam and AdamW of torch.optim")
    if optimiser._optimizer_step_pre_hooks or optimiser._optimizer_step_post_hooks:
        raise UnsupportedFeature("the optimiser has hooks of its step, which are not called; remove them")
    for setting in ("amsgrad", "differentiable"):
        if any(group.get(setting) for group in optimiser.param_groups):
            raise UnsupportedFeature(f"the optimiser has {setting}=True, which training steps do not run; leave it out")


def _kind(optimiser: Optimizer) -> str:
    """Return the name of an optimiser in `capture_training`."""
    if any(group.get("momentum") for group in optimiser.param_groups):
        return "momentum"
    return KINDS[type(optimiser)]


def _update(optimiser: Optimizer, parameter: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """Return the function of a gradient that does to one parameter what the optimiser's step does."""
    kind: Callable[..., Optimizer] = type(optimiser)
    single = kind([parameter])
    group = next(g for g, group in enumerate(optimiser.param_groups) if any(own is parameter for own in group["params"]))

    def update(gradient: torch.Tensor) -> None:
        single.state = optimiser.state  # both may have been replaced, by load_state_dict
        single.param_groups = [{**optimiser.param_groups[group], "params": [parameter]}]
        parameter.grad = restrided(gradient, parameter.shape, parameter.stride())
        try:
            single.step()
        finally:
            parameter.grad = None

    return update


def _dense(leaf: Any) -> Any:
    """Return a tensor of the same shape whose strides have no gap and no overlap, those of the given one if possible."""
    return torch.empty_like(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _held(node: Node) -> torch.Tensor:
    """Return a tensor from before the step that is neither a parameter nor a buffer."""
    value: torch.Tensor = node.meta["val"]
    if isinstance(value, torch._subclasses.FakeTensor):
        raise UnsupportedFeature("the module uses a tensor that an earlier recording has left in it; make the module again")
    return value


def _restore(state: Any, parameter: torch.Tensor, before: Mapping[str, Any] | None) -> None:
    """Restore an optimiser's state of a parameter; tensors that still exist are written in place."""
    if before is None:
        state.pop(parameter, None)
        return
    now = state[parameter]
    for key, value in before.items():
        if isinstance(value, torch.Tensor) and isinstance(now.get(key), torch.Tensor):
            now[key].copy_(value)
        else:
            now[key] = value
    for key in now.keys() - before.keys():
        del now[key]
