"""A call of a module, or a training step, recorded operator by operator on tensors without data."""

from __future__ import annotations

import contextlib
import gc
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._autograd import _get_sequence_nr
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from hetsched.errors import HetschedError, InvalidProblem, UnsupportedFeature
from hetsched.frontends.flops import Formulas

Module = torch.nn.Module


@dataclass
class Step:
    """A recording: a graph of aten operators, each with the shape of its value in ``meta["val"]``.

    A node's ``meta`` also has its "module", its "flops", and whether it is of the "backward" pass. The placeholders are the
    `inputs`, by argument, and the other tensors at the start of a step: the trained `parameters`, buffers, and constants.
    """

    graph: torch.fx.Graph
    inputs: dict[str, torch.fx.Node] = field(default_factory=dict)
    parameters: dict[str, torch.fx.Node] = field(default_factory=dict)
    constants: dict[str, torch.fx.Node] = field(default_factory=dict)
    """Buffers and frozen parameters."""
    gradients: dict[str, torch.fx.Node] = field(default_factory=dict)
    """Gradients of the parameters that the loss depends on."""
    changed: dict[str, torch.fx.Node] = field(default_factory=dict)
    """The last values of parameters and buffers that the module replaces, or into which an operator wrote that declares it (batch norm does
    not)."""
    replaced: list[str] = field(default_factory=list)
    """Other attributes of the module and its parts that it replaces."""


def joined(tensor: Any, *_: Any) -> Any:
    """Represent a tensor of which parts were written through other tensors of the same memory."""
    return tensor


def record_call(model: Module | Callable[[], Module], args: tuple[Any, ...], kwargs: Mapping[str, Any], formulas: Formulas) -> Step:
    """Return one call of a module, without gradients.

    Raises
    ------
    UnsupportedFeature
        The module cannot be constructed or run with fake tensors.
    """

    def run(recorder: Recorder, call: Callable[[], Any], _: dict[str, torch.Tensor]) -> None:
        with torch.no_grad(), recorder:
            result = call()
        recorder.give(result)

    return _recorded(model, args, kwargs, (), formulas, run)


def record_training(
    model: Module | Callable[[], Module],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    targets: tuple[Any, ...],
    loss: Callable[..., Any] | None,
    formulas: Formulas,
) -> Step:
    """Return the forward pass of a module, its loss, and the backward pass.

    Raises
    ------
    InvalidProblem
        No parameter is trainable, or the loss is not one number that depends on one.
    UnsupportedFeature
        The step cannot be run with fake tensors.
    """

    def run(recorder: Recorder, call: Callable[..., Any], trained: dict[str, torch.Tensor]) -> None:
        if not trained:
            raise InvalidProblem("no parameter of the model requires a gradient; use record() or capture() for the forward pass")
        with torch.enable_grad(), recorder, recorder.attributes():
            made = call()
            with recorder.within("loss"):
                number = made if loss is None else loss(made, *recorder.targets)
                if loss is None and isinstance(made, torch.Tensor) and made.dim() and made.is_floating_point():
                    number = made.mean()
        _check_loss(number, loss)
        with recorder, recorder.backwards():
            gradients = torch.autograd.grad(number, list(trained.values()), allow_unused=True)
        gradient_nodes = {name: recorder.node(gradient) for name, gradient in zip(trained, gradients, strict=True) if gradient is not None}
        recorder.step.gradients.update(gradient_nodes)
        recorder.find_changed()
        recorder.give(number)

    return _recorded(model, args, kwargs, targets, formulas, run)


def _check_loss(number: Any, loss: Any) -> None:
    what = f"loss {getattr(loss, '__name__', type(loss).__name__)}" if loss is not None else "the model"
    remedy = "" if loss is not None else "; pass a loss, a function of the model's output"
    if not isinstance(number, torch.Tensor):
        raise InvalidProblem(f"{what} returns a {type(number).__name__}, but training needs one number as a tensor{remedy}")
    if number.numel() != 1 or not number.is_floating_point():
        raise InvalidProblem(f"{what} returns {number.dtype} of shape {tuple(number.shape)}, but training needs one real number{remedy}")
    if not number.requires_grad:
        raise InvalidProblem(f"the result of {what} depends on no parameter that requires a gradient; unfreeze one, or remove no_grad")


def _recorded(
    model: Any, args: tuple[Any, ...], kwargs: Any, targets: tuple[Any, ...], formulas: Formulas, run: Callable[..., None]
) -> Step:
    """Construct the model with fake parameters, and record a run of it."""
    name = getattr(model, "__name__", type(model).__name__)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        module = _made(model, fake)
        with torch.inference_mode(False), _layers_written_out(), fake:
            tensors = _fakes([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])
            recorder = Recorder(module, formulas)
            positional, named = recorder.arguments((args, dict(kwargs)), targets)
            trained = recorder.hold(tensors)
            step_module = _Whole(module, lambda: run(recorder, lambda: module(*positional, **named), trained))
            with recorder.named_modules():
                torch.func.functional_call(step_module, {f"module.{path}": tensor for path, tensor in tensors.items()}, ())
        return recorder.step
    except HetschedError:
        raise
    except Exception as error:  # any error of torch or the model's code
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message").rstrip(".")
        raise UnsupportedFeature(f"{name} cannot be run on tensors without data: {type(error).__name__}: {text}") from error


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection: each collection visits the hundreds of thousands of objects that a recording keeps."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class _Whole(Module):
    """A step as a call of one module, so that recomputation in the backward pass also reads the fake parameters."""

    def __init__(self, module: Module, run: Callable[[], None]) -> None:
        super().__init__()
        self.module, self.run = module, run

    def forward(self) -> None:
        """Run the step."""
        self.run()


def _made(model: Any, fake: FakeTensorMode) -> Module:
    """Return the module, constructed without memory if possible."""
    if isinstance(model, Module):
        return model
    try:
        with fake:
            made: Module = model()
    except Exception:  # its constructor may read values
        made = model()
    return made


@contextlib.contextmanager
def _layers_written_out() -> Iterator[None]:
    """Disable kernels that run a layer of recurrent cells, or of an encoder, as one operator of unknown work."""
    cells, encoders = torch._C._get_mkldnn_enabled(), torch.backends.mha.get_fastpath_enabled()
    torch._C._set_mkldnn_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(cells)
        torch.backends.mha.set_fastpath_enabled(encoders)


def _replaced(value: Any, node: Callable[[torch.Tensor], torch.fx.Node]) -> Any:
    """Return arguments with a node for each tensor."""
    if isinstance(value, torch.Tensor):
        return node(value)
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(_replaced(item, node) for item in value)
    return {name: _replaced(item, node) for name, item in value.items()} if isinstance(value, dict) else value


def _fakes(named: list[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return tensors of the same shapes on the CPU, without data; equal tensors share one."""
    made: dict[int, torch.Tensor] = {}
    for _, tensor in named:
        if id(tensor) not in made:
            made[id(tensor)] = _fake(tensor).requires_grad_(tensor.requires_grad)
    return {name: made[id(tensor)] for name, tensor in named}


def _fake(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="cpu")


def argument_names(module: Module, count: int) -> list[str]:
    """Return the names of the positional arguments of `forward`."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [name for name, parameter in inspect.signature(module.forward).parameters.items() if parameter.kind in kinds]
    return [*named, *["args"] * count][:count]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records each operator that runs below autograd, and so those of the backward pass too.

    Tensors are identified by their ids, which stay unique, for the graph keeps the tensors. A tensor whose memory was
    written after it was made depends on the operators that wrote.
    """

    def __init__(self, module: Module, formulas: Formulas) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.step, self._formulas = Step(torch.fx.Graph()), formulas
        self.targets: tuple[Any, ...] = ()
        self._called = module
        self._paths = {id(submodule): path for path, submodule in module.named_modules()}
        self._stack: list[str] = [""]
        self._backward = False
        self._module_of: dict[int, str] = {}  # by autograd's sequence number
        self._known: dict[int, tuple[torch.fx.Node, int | None, int]] = {}  # node, part of its value, time
        self._written: dict[int, list[tuple[int, torch.fx.Node]]] = {}  # by storage: times and nodes
        self._now = 0

    # ------------------------------------------------------------------ before and after

    def arguments(self, given: Any, targets: tuple[Any, ...]) -> Any:
        """Return fake arguments (positional, keywords), each an input; `targets` are further arguments, of the loss."""

        def placed(name: str, leaf: Any) -> Any:
            made = _fake(leaf)
            if isinstance(made, torch.Tensor):
                node = self._placeholder(name, made)
                self.step.inputs[node.name] = node
            return made

        args, kwargs = given
        names = argument_names(self._called, len(args))
        made = tuple(tree_map(lambda leaf, name=name: placed(name, leaf), arg) for name, arg in zip(names, args, strict=True))
        named = {name: tree_map(lambda leaf, name=name: placed(name, leaf), arg) for name, arg in kwargs.items()}
        self.targets = tree_map(lambda leaf: placed("target", leaf), targets)
        return made, named

    def hold(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Register parameters and buffers, tied ones by their first name, and return the trained parameters."""
        trained: dict[str, torch.Tensor] = {}
        for name, tensor in tensors.items():
            if id(tensor) in self._known:
                continue
            node = self._placeholder(name, tensor)
            if tensor.requires_grad:
                trained[name], self.step.parameters[name] = tensor, node
            else:
                self.step.constants[name] = node
        return trained

    @contextlib.contextmanager
    def attributes(self) -> Iterator[None]:
        """Register attributes that the module replaces meanwhile, and restore them."""
        own = [
            (path, part) for path, part in self._called.named_modules() if not type(part).__module__.startswith("torch.nn.")
        ]  # not caches
        before = [(path, part, dict(vars(part))) for path, part in own]
        try:
            yield
        finally:
            for path, part, old in before:
                now = vars(part)
                for name in [name for name in {**old, **now} if name not in old or now.get(name) is not old[name]]:
                    self.step.replaced.append(f"{path}.{name}" if path else name)
                    if name in old:
                        now[name] = old[name]
                    else:
                        del now[name]

    def find_changed(self) -> None:
        """Register the last values of parameters and buffers that were replaced or written."""
        now = dict([*self._called.named_parameters(), *self._called.named_buffers()])
        for name, node in (self.step.parameters | self.step.constants).items():
            last = self._node(now.get(name, node.meta["val"]))
            if last is not node:
                self.step.changed[name] = last

    def give(self, result: Any) -> None:
        """End the graph with the result of the step."""
        self.step.graph.output(tuple(self.node(leaf) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)))

    def node(self, tensor: torch.Tensor) -> torch.fx.Node:
        """Return the node of a tensor."""
        return self._node(tensor)

    @contextlib.contextmanager
    def within(self, path: str) -> Iterator[None]:
        """Attribute operators to the module at `path`."""
        self._stack.append(path)
        try:
            yield
        finally:
            self._stack.pop()

    @contextlib.contextmanager
    def backwards(self) -> Iterator[None]:
        """Attribute operators to the backward pass."""
        self._backward = True
        try:
            yield
        finally:
            self._backward = False

    @contextlib.contextmanager
    def named_modules(self) -> Iterator[None]:
        """Attribute operators to the innermost module that is called."""

        def enter(module: Module, _: Any) -> None:
            self._stack.append(self._paths.get(id(module), self._stack[-1]))

        def leave(*_: Any) -> None:
            self._stack.pop()

        handles = [hooks.register_module_forward_pre_hook(enter), hooks.register_module_forward_hook(leave)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    # ------------------------------------------------------------------ during

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):  # half of all calls
            return args[0].fake_device
        if func.namespace == "prim":
            return func(*args, **kwargs)
        module = self._module()
        value = func(*args, **kwargs)
        node = self.step.graph.create_node("call_function", func, _replaced(args, self._node), _replaced(kwargs, self._node))
        flops = self._formulas.count(func, args, kwargs, value)
        node.meta = {"val": value, "module": module, "backward": self._backward, "flops": flops}
        self._place(node, value)
        if func._schema.is_mutable:
            self._write(node, func._schema, args, kwargs)
        return value

    def _module(self) -> str:
        """Return the module of an operator; in the backward pass that of the forward operator with this gradient."""
        if self._backward:
            current = torch._C._current_autograd_node()
            return "loss" if current is None else self._module_of.get(current._sequence_nr(), "")
        number = _get_sequence_nr() - 1  # autograd has numbered this operator already if it tracks it
        self._module_of.setdefault(number, self._stack[-1])
        return self._stack[-1]

    def _placeholder(self, name: str, tensor: torch.Tensor) -> torch.fx.Node:
        node = self.step.graph.placeholder(name)
        node.meta = {"val": tensor, "module": "", "backward": False, "flops": 0}
        self._place(node, tensor)
        return node

    def _place(self, node: torch.fx.Node, value: Any) -> None:
        self._now += 1
        if isinstance(value, torch.Tensor):
            self._known[id(value)] = node, None, self._now
            return
        for i, part in enumerate(value if isinstance(value, list | tuple) else ()):
            if isinstance(part, torch.Tensor):
                self._known[id(part)] = node, i, self._now

    def _write(self, node: torch.fx.Node, schema: Any, args: Any, kwargs: Any) -> None:
        """Record the memory that an operator wrote."""
        for i, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            tensor = args[i] if i < len(args) else kwargs.get(argument.name)
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                earlier = self._written.setdefault(storage._cdata, [])
                if tensor.numel() * tensor.element_size() == storage.nbytes():
                    earlier.clear()
                earlier.append((self._now, node))

    def _node(self, tensor: torch.Tensor) -> torch.fx.Node:
        if id(tensor) not in self._known:
            return self._placeholder("constant", tensor)  # from before the step, such as an attribute that is not a buffer
        node, part, since = self._known[id(tensor)]
        if part is not None:
            node = self._part(node, part, tensor)
        if self._written:
            node = self._rewritten(node, since, tensor)
        return node

    def _part(self, source: torch.fx.Node, part: int, tensor: torch.Tensor) -> torch.fx.Node:
        node = self._call(operator.getitem, (source, part), tensor, source)
        self._known[id(tensor)] = node, None, self._known[id(tensor)][2]
        return node

    def _rewritten(self, node: torch.fx.Node, since: int, tensor: torch.Tensor) -> torch.fx.Node:
        later = [writer for at, writer in self._written.get(tensor.untyped_storage()._cdata, ()) if at > since and writer is not node]
        if not later:
            return node
        node = self._call(joined, (node, *later), tensor, node)
        self._place(node, tensor)
        return node

    def _call(self, target: Any, args: tuple[Any, ...], value: Any, like: torch.fx.Node) -> torch.fx.Node:
        node = self.step.graph.create_node("call_function", target, args)
        node.meta = {**like.meta, "val": value, "flops": 0}
        return node
