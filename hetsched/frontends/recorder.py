"""A recorder of the operators that torch runs, as a graph."""

from __future__ import annotations

import contextlib
import inspect
import operator
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._autograd import _get_sequence_nr
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from hetsched.errors import UnsupportedFeature
from hetsched.frontends.calling import signature_of, tensors_in
from hetsched.frontends.flops import Formulas, packed

Module = torch.nn.Module
_READ = torch.ops.aten._local_scalar_dense.default
"""Python reads a number: for its own arithmetic, or for a condition."""
_IS_NONZERO = torch.ops.aten.is_nonzero.default


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


def _replaced(value: Any, node: Callable[[torch.Tensor], torch.fx.Node]) -> Any:
    """Return arguments with a node for each tensor."""
    if isinstance(value, torch.Tensor):
        return node(value)
    if isinstance(value, torch.ScriptObject):
        value = packed(value)
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return type(value)(_replaced(item, node) for item in value)
    return {name: _replaced(item, node) for name, item in value.items()} if isinstance(value, dict) else value


def without_data(leaf: Any, device: str = "cpu") -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    dtype = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}.get(leaf.dtype, leaf.dtype)
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=dtype, device=device)


def _shape_of(value: Any) -> Any:
    """Return a value with tensors on the meta device in place of those with data, whose memory can then be freed."""
    return tree_map(lambda leaf: without_data(leaf, "meta"), value)


def argument_names(module: Module, count: int) -> list[str]:
    """Return the names of the positional arguments of `forward`."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [name for name, parameter in signature_of(module).parameters.items() if parameter.kind in kinds]
    return [*named, *["args"] * count][:count]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records each operator that runs below autograd, and so those of the backward pass too.

    Tensors are identified by their ids, which stay unique, for the graph keeps the tensors; `real` ones, with data, are forgotten
    when they are freed. A tensor whose memory was written after it was made depends on the operators that wrote.
    """

    supports_higher_order_operators = True

    def __init__(self, module: Module, formulas: Formulas, *, real: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.step, self._formulas, self._real = Step(torch.fx.Graph()), formulas, real
        self._awaited: tuple[torch.fx.Node, ...] = ()  # numbers that Python has read
        self.targets: tuple[Any, ...] = ()
        self.called = module
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
            made = without_data(leaf) if not self._real or not isinstance(leaf, torch.Tensor) else leaf.detach().clone()
            if isinstance(made, torch.Tensor):
                node = self._placeholder(name, made)
                self.step.inputs[node.name] = node
            return made

        def whole(name: str, arg: Any) -> Any:
            leaves, spec = tree_flatten(arg)
            made = [placed(name, leaf) for leaf in leaves]
            value = tree_unflatten(made, spec)
            for old, new in zip(made, tree_leaves(value), strict=True):
                if isinstance(new, torch.Tensor) and new is not old:  # a cache copies its tensors
                    self._place(self._known[id(old)][0], new)
            return value

        args, kwargs = given
        names = argument_names(self.called, len(args))
        made = tuple(whole(name, arg) for name, arg in zip(names, args, strict=True))
        named = {name: whole(name, arg) for name, arg in kwargs.items()}
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
            (path, part) for path, part in self.called.named_modules() if not type(part).__module__.startswith("torch.nn.")
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
        now = dict([*self.called.named_parameters(), *self.called.named_buffers()])
        for name, node in (self.step.parameters | self.step.constants).items():
            last = self._node(now.get(name, node.meta["val"]))
            if last is not node:
                self.step.changed[name] = last

    def give(self, result: Any) -> None:
        """End the graph with the result of the step."""
        self.step.graph.output(tuple(self.node(tensor) for tensor in tensors_in(result)))

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
        if func not in self._formulas or func is _IS_NONZERO:  # within an operator with functions, composite ones come in whole
            with self:
                made = _in_parts(func, *args, **kwargs)
            if made is not NotImplemented:
                return made
        module = self._module()
        value = func(*args, **kwargs)
        node = self.step.graph.create_node("call_function", func, _replaced(args, self._node), _replaced(kwargs, self._node))
        flops = self._formulas.count(func, args, kwargs, value)
        node.meta = {"val": self._kept(value), "module": module, "backward": self._backward, "flops": flops, "awaits": self._awaited}
        self._place(node, value)
        if self._real and func is _READ:
            self._await(node)
        if func._schema.is_mutable:
            self._write(node, func._schema, args, kwargs)
        return value

    def await_data(self, tensor: torch.Tensor) -> None:
        """Let all later operators wait for a tensor whose data Python reads."""
        source = self._node(tensor)
        self._await(self._call(_READ, (source,), 0, source))

    def _await(self, read: torch.fx.Node) -> None:
        earlier = read.args[0].meta.get("awaits", ())  # type: ignore[union-attr]
        self._awaited = (*(number for number in self._awaited if number not in earlier), read)

    def _module(self) -> str:
        """Return the module of an operator; in the backward pass that of the forward operator with this gradient."""
        if self._backward:
            current = torch._C._current_autograd_node()
            return self._stack[-1] or "loss" if current is None else self._module_of.get(current._sequence_nr(), "")
        number = _get_sequence_nr() - 1  # autograd has numbered this operator already if it tracks it
        self._module_of.setdefault(number, self._stack[-1])
        return self._stack[-1]

    def _placeholder(self, name: str, tensor: torch.Tensor) -> torch.fx.Node:
        node = self.step.graph.placeholder(name)
        node.meta = {"val": self._kept(tensor), "module": "", "backward": False, "flops": 0}
        self._place(node, tensor)
        return node

    def _place(self, node: torch.fx.Node, value: Any) -> None:
        self._now += 1
        parts = [(None, value)] if isinstance(value, torch.Tensor) else enumerate(value if isinstance(value, list | tuple) else ())
        for i, part in parts:
            if isinstance(part, torch.Tensor):
                self._known[id(part)] = node, i, self._now
                if self._real:
                    weakref.finalize(part, self._known.pop, id(part), None)

    def _kept(self, value: Any) -> Any:
        """Return what the graph keeps of a value."""
        return _shape_of(value) if self._real else value

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
        node.meta = {**like.meta, "val": self._kept(value), "flops": 0}
        return node


def _in_parts(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a composite operator, or one that calls functions of the user (control flow, attention with a score), by those within."""
    if isinstance(func, torch._ops.OpOverload):
        return func.decompose(*args, **kwargs)
    if func is torch.ops.higher_order.cond:
        number, *branches, operands = args
        return branches[0 if number else 1](*operands)
    return func.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd](*args, **kwargs)


class Reads(TorchFunctionMode):
    """Tells the recorder of data that Python reads without an operator."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            message = "the model reads data by numpy(), which cannot be followed; use operators of torch"
            raise UnsupportedFeature(message)
        if func is torch.Tensor.tolist:
            self.recorder.await_data(args[0])
        return func(*args, **(kwargs or {}))
