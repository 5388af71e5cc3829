"""Recorded operators as functions that change none of their arguments, so that tasks can run in any order that their edges permit."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, Node

from hetsched.errors import UnsupportedFeature
from hetsched.frontends.operators import operator_type
from hetsched.frontends.recorder import joined
from hetsched.frontends.training import ALLOCATIONS, CREATIONS

aten = torch.ops.aten
Key = Callable[[int], int]
"""Of the number of a random operator in the step, the seed of what it draws now."""

RESHAPED = {aten.view.default, aten._unsafe_view.default}
LAYOUT_READ = {aten.as_strided.default, aten._reshape_alias.default}
"""Views that depend on the strides of their source, which may have others with data than without."""


class Operator:
    """A function in place of a recorded operator, described in digests of tasks by that."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function
        self.__name__ = "operator"  # of nodes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return self.name


def restrided(value: torch.Tensor, shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """Return a tensor with these strides, itself if it has them."""
    if tuple(value.stride()) == tuple(strides):
        return value
    return torch.empty_strided(tuple(shape), tuple(strides), dtype=value.dtype).copy_(value)


def seed_of(seed: int, step: int, number: int) -> int:
    """Return the seed of the `number`-th random operator of a step."""
    return int(np.random.SeedSequence([seed, step, number]).generate_state(1, np.uint64)[0])


def draws(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call draws random numbers; dropout of probability 0, also in attention, does not."""
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    arguments = target._schema.arguments
    given = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    given |= dict(zip([argument.name for argument in arguments], args, strict=False)) | dict(kwargs)
    share = given.get("dropout_p", given.get("p", given.get("dropout", 1.0)))
    return not (isinstance(share, int | float) and share == 0) and given.get("train", True) is not False


def seeded(target: Any, seed: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the result of a random operator with a generator of its own."""
    return with_generator(target)(*args, **{**kwargs, "generator": torch.Generator().manual_seed(seed)})


def with_generator(target: Any) -> Any:
    """Return the overload of a random operator with the same arguments and a generator.

    Raises
    ------
    UnsupportedFeature
        There is none.
    """
    names = [argument.name for argument in target._schema.arguments]
    if "generator" in names:
        return target
    for overload in (getattr(target._overloadpacket, name) for name in target._overloadpacket.overloads()):
        others = [argument.name for argument in overload._schema.arguments]
        if "generator" in others and [name for name in others if name != "generator"] == names:
            return overload
    raise UnsupportedFeature(
        f"{target} draws random numbers without a generator, so that they would depend on the placement; write it otherwise"
    )


class Functional:
    """Replaces the operators of a recorded step, in place.

    Parameters
    ----------
    graph : Graph
        Its tasks have been read.
    key : Key

    Attributes
    ----------
    constants : dict of Node to tensor
        Tensors that read no data, such as zeros.
    allocated : set of Node
        Tensors whose data is not read before it is written.
    changed : dict of Node to Node
        Of running statistics the value after the step; their placeholders are the keys.
    """

    def __init__(self, graph: Graph, key: Key) -> None:
        self.graph, self.key = graph, key
        self.constants: dict[Node, torch.Tensor] = {}
        self.changed: dict[Node, Node] = {}
        self.allocated = set[Node]()
        self._random = 0
        for node in list(graph.nodes):
            if node.op == "call_function":
                self._replace(node)

    def _replace(self, node: Node) -> None:
        target: Any = node.target
        op = operator_type(target)
        if target is joined:
            self._join(node)
        elif op in ALLOCATIONS:
            value = node.meta["val"]
            shape, strides, dtype = tuple(value.shape), tuple(value.stride()), value.dtype
            node.target = Operator(f"empty{shape}", lambda: torch.empty_strided(shape, strides, dtype=dtype))
            node.args, node.kwargs = (), {}
            self.allocated.add(node)
        elif op in CREATIONS:
            self.constants[node] = target(*map(_empty, node.args), **node.kwargs)
        elif target is aten.native_batch_norm.default:
            self._normalise(node)
        elif isinstance(target, torch._ops.OpOverload):
            written = [
                argument for argument in target._schema.arguments if argument.alias_info is not None and argument.alias_info.is_write
            ]
            function: Any = target
            if draws(target, node.args, node.kwargs):
                function = self._draw(node)
            if written:
                function = self._write(node, function, [argument.name for argument in written])
            elif target in RESHAPED:
                function = Operator(str(target), aten.reshape.default)
            elif target in LAYOUT_READ:
                (source,) = node.all_input_nodes
                shape, strides = tuple(source.meta["val"].shape), source.meta["val"].stride()
                function = Operator(str(target), lambda value, *args, **kwargs: target(restrided(value, shape, strides), *args, **kwargs))
            node.target = function

    def _draw(self, node: Node) -> Operator:
        target, number = node.target, self._random
        if node.meta["backward"]:
            raise UnsupportedFeature(
                f"{target} draws random numbers in the backward pass, where those of the forward pass cannot be drawn again; "
                "compute that part without checkpoints"
            )
        with_generator(target)  # or an error
        self._random += 1
        return Operator(f"{target}, seeded", lambda *args, **kwargs: seeded(target, self.key(number), args, kwargs))

    def _write(self, node: Node, function: Callable[..., Any], names: list[str]) -> Operator:
        """Return an operator that writes into a copy of its argument, which it returns."""
        schema = node.target._schema  # type: ignore[union-attr]
        place = [argument.name for argument in schema.arguments].index(names[0])
        returns = [result.alias_info for result in schema.returns]
        if len(names) > 1 or len(returns) != 1 or returns[0] is None:
            raise UnsupportedFeature(f"{node.target} writes into tensors that it does not return; write it otherwise")
        if torch.Tag.inplace_view in node.target.tags:  # type: ignore[union-attr]
            raise UnsupportedFeature(f"{node.target} changes the shape of a tensor in place; use the operator that returns a view")
        by_name = place >= len(node.args)
        source = node.kwargs[names[0]] if by_name else node.args[place]
        if source in self.allocated:
            return Operator(str(node.target), function)

        def write(*args: Any, **kwargs: Any) -> Any:
            if by_name:
                return function(*args, **{**kwargs, names[0]: kwargs[names[0]].clone()})
            return function(*args[:place], args[place].clone(), *args[place + 1 :], **kwargs)

        return Operator(str(node.target), write)

    def _join(self, node: Node) -> None:
        """Write what was written into memory of a tensor into a copy of it."""
        values = [node.meta["val"], *(writer.meta["val"] for writer in node.args[1:])]  # type: ignore[union-attr]
        whole = values[0]
        if any(value.dtype != whole.dtype for value in values):
            raise UnsupportedFeature(f"{whole.dtype} memory is written as {values[-1].dtype}; write it as what it is read")
        layouts = [(tuple(value.shape), tuple(value.stride()), value.storage_offset()) for value in values]
        length = whole.untyped_storage().nbytes() // whole.element_size()

        def join(*parts: torch.Tensor) -> torch.Tensor:
            if layouts[-1] == layouts[0]:
                return parts[-1]
            memory = parts[0].new_empty(length)
            for part, layout in zip(parts, layouts, strict=True):
                memory.as_strided(*layout).copy_(part)
            return memory.as_strided(*layouts[0])

        node.target = Operator(f"joined{layouts}", join)

    def _normalise(self, node: Node) -> None:
        """Let a batch norm return its running statistics instead of changing them."""
        args = node.args
        mean, variance, training = args[3], args[4], args[5]
        if not training or mean is None:
            return
        for statistic in (mean, variance):
            if not isinstance(statistic, Node) or statistic.op != "placeholder":
                raise UnsupportedFeature(f"{node.name!r} changes running statistics that are no buffers of the module; call its eval()")
            if statistic in self.changed:
                raise UnsupportedFeature(
                    f"the running statistics {str(statistic.target)!r} change twice in one step; use a batch norm of its own for each call"
                )
        node.target = aten._native_batch_norm_legit_functional.default
        node.meta["val"] = (*node.meta["val"], mean.meta["val"], variance.meta["val"])  # type: ignore[union-attr]
        with self.graph.inserting_after(node):
            for k, statistic in ((3, mean), (4, variance)):
                last = self.graph.call_function(operator.getitem, (node, k))
                last.meta = {**node.meta, "val": node.meta["val"][k]}
                self.changed[statistic] = last  # type: ignore[index]


def _empty(argument: Any) -> Any:
    """Return a tensor without data in place of one that is not read."""
    if not isinstance(argument, Node):
        return argument
    value = argument.meta["val"]
    return torch.empty_strided(tuple(value.shape), tuple(value.stride()), dtype=value.dtype)
