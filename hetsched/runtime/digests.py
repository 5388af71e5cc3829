"""What tasks compute, as text without names, and its digests: tasks with equal digests take the same time on a device."""

from __future__ import annotations

import hashlib
import operator
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from hetsched.costs.profile import operators_of
from hetsched.runtime.program import Program

DIGITS = 32
"""Those of a digest: 128 bits of SHA-256."""
SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32"}


class Computations:
    """The computations of a program's tasks.

    The canonical text of a task has its operators with their overloads and constant arguments, what reads what, which inputs are
    weights, and the types, shapes and strides of all tensors, in which ``b`` is the batch. It has no names and no device.

    Attributes
    ----------
    texts : tuple of str
        The canonical text of each task.
    operators : tuple of Operator
        Their digests, a short text for readers, and the amounts of the graph.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        symbols = list(program.compiled._symbols)
        self._symbols = {symbol: "b" if place == 0 else f"s{place}" for place, symbol in enumerate(symbols)}
        graph = program.graph
        self.texts = tuple(self._text(i) for i in range(graph.n_tasks))
        rows = operators_of(graph, [digest(text) for text in self.texts])
        self.operators = tuple(row._replace(text=self._short(i, row.op)) for i, row in enumerate(rows))

    def _text(self, task: int) -> str:
        """Return the canonical text of a task."""
        number: dict[Node, int] = {}
        lines: list[str] = []

        def place(node: Node) -> str:
            if node not in number:
                number[node] = len(number)
                fixed = "weight" if node in self.program.constants else "given"
                lines.append(f"%{number[node]} = {fixed} {self._described(self._value(node))}")
            return f"%{number[node]}"

        for node in self.program.work[task].steps:
            if node.target is operator.getitem and node.args[0] not in number:
                place(node)  # an element of what another task made is a tensor like any other
                continue
            args, kwargs = map_arg((_that_count(node), node.kwargs), place)
            number[node] = len(number)
            lines.append(f"%{number[node]} = {node.target}({self._plain(args)}, {self._plain(kwargs)}) -> {self._made(node)}")
        if not lines:
            lines = [f"input {self._described(self._value(node))}" for node in self.program.nodes[task]]
        return "\n".join(lines)

    def _short(self, task: int, op: str) -> str:
        """Return a short text: the operator, and the shapes of what it reads and of its weights."""
        steps = [step for step in self.program.work[task].steps if step.target is not operator.getitem]
        own, given, weights, numbers = set(steps), dict[Node, None](), dict[Node, None](), list[str]()
        for step in steps:
            for source in step.all_input_nodes:
                if source not in own and isinstance(self._value(source), torch.Tensor):
                    (weights if source in self.program.constants else given)[source] = None
        if steps:
            numbers = [repr(value) for value in steps[0].args if not isinstance(value, Node | list | tuple | None) or _is_numbers(value)]
        parts = [" , ".join(dict.fromkeys(map(self._shape, own_of))) for own_of in (given, weights)] + [" ".join(numbers)]
        if not steps:
            parts = [", ".join(map(self._shape, self.program.nodes[task]))]
        return " ; ".join([f"{op} {parts[0]}".strip(), *(part for part in parts[1:] if part)])

    def _shape(self, node: Node) -> str:
        value = self._value(node)
        if not isinstance(value, torch.Tensor):
            return type(value).__name__
        kind = str(value.dtype).removeprefix("torch.")
        return f"[{','.join(map(self._size, value.shape))}] {SHORT.get(kind, kind)}"

    def _value(self, node: Node) -> Any:
        return self.program.constants[node] if node in self.program.constants else node.meta["val"]

    def _made(self, node: Node) -> str:
        """Return the value of an operator; of several elements those that are read, as the others differ between devices."""
        value = self._value(node)
        if not isinstance(value, tuple | list) or any(user.target is not operator.getitem for user in node.users):
            return self._described(value)
        read = {user.args[1] for user in node.users}
        return f"({', '.join(self._described(part) if k in read else '-' for k, part in enumerate(value))})"

    def _described(self, value: Any) -> str:
        if isinstance(value, tuple | list):
            return f"({', '.join(map(self._described, value))})"
        if isinstance(value, torch.Tensor):
            shape, stride = (",".join(map(self._size, sizes)) for sizes in (value.shape, value.stride()))
            return f"{value.dtype} [{shape}] [{stride}]"
        return self._plain(value)

    def _plain(self, value: Any) -> str:
        """Return an argument, in which numbers that depend on the batch are expressions of it."""
        if isinstance(value, tuple | list):
            return f"[{', '.join(map(self._plain, value))}]"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key}: {self._plain(part)}' for key, part in sorted(value.items()))}}}"
        return self._size(value) if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else str(value)

    def _size(self, size: Any) -> str:
        if isinstance(size, int):
            return str(size)
        expression = str(size.node.expr)
        for symbol, name in self._symbols.items():
            expression = expression.replace(str(symbol), name)
        return expression


def digest(text: str) -> str:
    """Return the digest of a canonical text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def _that_count(node: Node) -> tuple[Any, ...]:
    """Return the arguments of an operator, without those on which neither its time nor its result depends."""
    inference = node.target is torch.ops.aten._native_batch_norm_legit_no_training.default
    return (*node.args[:5], *node.args[6:]) if inference else node.args  # without the momentum


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(part, int | float) for part in value)
