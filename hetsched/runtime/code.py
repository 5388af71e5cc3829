"""The tasks of a program as Python functions over a list of registers."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Node

from hetsched.errors import UnsupportedFeature
from hetsched.frontends.operators import MERGEABLE, operator_type
from hetsched.runtime.plan import Value
from hetsched.runtime.targets import called, chosen, found_target, portable_target

if TYPE_CHECKING:
    from hetsched.runtime.program import Program, Values

Registers = list[Any]
Boxes = list[list[Registers]]
"""The registers of each device, and there of each group of inputs of a plan."""
Function = Callable[[Registers], None]
Leaf = tuple[Node, int]
"""A tensor: a node, and the place in its value if that is a tuple or list, else 0."""

_GLOBAL = re.compile(r"\b[ct]\d+\b")
"""The names of constants and targets in the source of tasks."""


class Layout(NamedTuple):
    """How a tensor lies in memory: its dimensions in that order, and their lengths there."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    dtype: torch.dtype

    @property
    def natural(self) -> bool:
        """Whether the dimensions lie in the order of their numbers."""
        return self.order == tuple(range(len(self.order)))

    def packed(self, value: torch.Tensor) -> torch.Tensor:
        """Return a contiguous tensor with the numbers of `value`, which is a copy where its layout is another one."""
        return (value if self.natural else value.permute(self.order)).contiguous()

    def buffer(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a new contiguous tensor, and it as the value."""
        made = torch.empty(self.shape, dtype=self.dtype)
        return made, made if self.natural else made.permute([self.order.index(dim) for dim in range(len(self.order))])


class Tasks(NamedTuple):
    """The tasks of a program as an engine needs them."""

    names: tuple[str, ...]
    functions: tuple[Function, ...]
    works: tuple[bool, ...]
    """Whether the function of each task does anything."""
    dimensions: Mapping[int, int | None]
    """Of values that are put together, see `Compiled.dimension`."""
    layouts: Mapping[tuple[int, int], Layout] = {}
    """Of values that cross to another process, by register and number of inputs."""
    updates: frozenset[int] = frozenset()
    """See `Program.updates`."""


class PortableTasks(NamedTuple):
    """Tasks whose functions another process can make, see `Compiled.portable`."""

    tasks: Tasks
    sources: Mapping[int, str]
    """The source of the function of each chosen task."""
    targets: Mapping[str, tuple[str, ...]]
    """The names of what they call."""
    constants: Mapping[str, Any]

    def made(self) -> Tasks:
        """Return the tasks with their functions; those that were not chosen have one that raises `LookupError`."""
        space: dict[str, Any] = {**self.constants}
        space |= {name: called(found_target(target)) for name, target in self.targets.items()}
        exec(compile("\n".join(self.sources.values()), "<hetsched tasks>", "exec"), space)
        functions = (space[f"task{i}"] if i in self.sources else _elsewhere for i in range(len(self.tasks.names)))
        return self.tasks._replace(functions=tuple(functions))


class Compiled:
    """The tasks of a program, each as one function of a list of registers.

    The functions are Python source that is generated and compiled once. Register r has the r-th of `values`. A function reads the
    registers of the values that its task reads and sets those of the values that it makes; others are local, and deleted after
    their last use. A value is one tensor: of a tuple, the elements that other tasks read.

    Parameters
    ----------
    program : Program
    fold : bool
        Whether the scale of a batch norm is multiplied into the weights of the convolution that only it reads. Results are then
        those of the module up to rounding, otherwise equal to the bit.

    Attributes
    ----------
    values : tuple of Value
    functions : tuple of functions
        One for each task, which is called with the registers.
    reads : tuple of tuples of int
        The registers that each task reads.
    source : str
        The source of all functions.
    """

    values: tuple[Value, ...]
    functions: tuple[Function, ...]
    reads: tuple[tuple[int, ...], ...]

    def __init__(self, program: Program, fold: bool = True) -> None:
        self.program, self.fold = program, fold
        self._owner = {node: i for i, nodes in enumerate(program.nodes) for node in nodes}
        self._globals: dict[str, Any] = {}
        self._bound: dict[int, str] = {}
        self._targets: dict[str, Any] = {}
        self._merged: dict[Node, tuple[Any, ...]] = {}
        self._norm: dict[Node, Node] = {}
        self._same: dict[Node, Node] = {}
        self._folded: list[tuple[torch.Tensor, int]] = []
        self._copied: list[tuple[torch.Tensor, int]] = []
        self._output = program.operators.output_node()
        self._sizes: dict[Node, int] = {}
        self._symbols = self._find_symbols()
        live = [self._live(work.steps, self._roots(i)) for i, work in enumerate(program.work)]
        last = self._live(program.last.steps, self._output.all_input_nodes)
        self._number(live, last)
        if fold:
            with torch.no_grad():
                self._fold(live)
        texts = [self._text(f"task{i}", steps) for i, steps in enumerate(live)]
        texts.append(self._text("result", last, returns=self._output.args[0]))
        self._texts = texts
        self.source = "\n".join(texts)
        self._define(self.source)
        self.steps = tuple(live)
        """The calls of each function, in order."""
        self.functions = tuple(self._globals[f"task{i}"] for i in range(len(live)))
        self._result: Callable[[Registers], Iterable[Any]] = self._globals["result"]
        order = program.order
        place = {task: k for k, task in enumerate(order)}
        dead: list[list[int]] = [[] for _ in order]
        for r, value in enumerate(self.values):
            if not value.kept:
                dead[max(place[task] for task in value.readers)].append(r)
        self._sequence = tuple((self.functions[i], tuple(dead[k])) for k, i in enumerate(order))

    # ------------------------------------------------------------------ runs

    def start(self, given: Values) -> Registers:
        """Return the registers before a run, of the arguments that `Program.inputs` returns."""
        registers: Registers = [None] * self.width
        for node, register in self._arguments:
            registers[register] = given[node]
        if self._sizes:
            registers[self._first_size :] = self._sizes_at(self.lengths(given))
        return registers

    @property
    def entered(self) -> list[int]:
        """The values that are arguments, in ascending order of their registers."""
        return sorted(register for _, register in self._arguments if register < len(self.values))

    def tasks(self, gathered: Iterable[int], crossing: Iterable[tuple[int, int]] = ()) -> Tasks:
        """Return the tasks for an engine that puts some values together, and moves others, for numbers of inputs, between processes."""
        dimensions = {register: self.dimension(register) for register in sorted(gathered)}
        layouts = {pair: self.layout(*pair) for pair in sorted(crossing)}
        return Tasks(self.program.graph.names, self.functions, tuple(map(bool, self.steps)), dimensions, layouts, self.program.updates)

    def layout(self, register: int, length: int) -> Layout:
        """Return the layout of a value for a batch of some length, as it is at the capture."""
        node, k = self._leaves[register]
        value = node.meta["val"]
        value = value[k] if isinstance(value, list | tuple) else value
        shape = [_at(size, length) for size in value.shape]
        stride = [_at(size, length) for size in value.stride()]
        order = tuple(sorted(range(len(shape)), key=lambda dim: (-stride[dim], dim)))
        return Layout(tuple(shape[dim] for dim in order), order, value.dtype)

    def portable(self, tasks: Tasks, chosen: Iterable[int]) -> PortableTasks:
        """Return tasks so that another process can make the functions of the chosen ones.

        Raises
        ------
        UnsupportedFeature
            One of them calls what has no name, or an operator that is defined in the script that runs.
        """
        sources = {task: self._texts[task] for task in sorted(chosen)}
        names = {name for text in sources.values() for name in _GLOBAL.findall(text)} & self._globals.keys()
        constants = {name: self._globals[name] for name in sorted(names - self._targets.keys())}
        constants = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in constants.items()}
        targets = {name: portable_target(self._targets[name]) for name in sorted(names & self._targets.keys())}
        return PortableTasks(tasks._replace(functions=()), sources, targets, constants)

    def lengths(self, given: Values) -> tuple[int, ...]:
        """Return the sizes of the arguments that may have any length, that of the batch."""
        return tuple(given[node] if dim is None else given[node].shape[dim] for node, dim in self._symbols.values())

    def part(self, given: Values, places: Sequence[int]) -> Values:
        """Return the arguments of some of the inputs of a batch; those without a batch are as they are."""
        made = dict(given)
        for node, value in given.items():
            expected = node.meta["val"]
            if isinstance(expected, torch.SymInt):
                made[node] = len(places)
            elif isinstance(expected, torch.Tensor):
                dim = self._dimension(node, expected)
                if dim is not None:
                    made[node] = value.index_select(dim, torch.tensor(places, device=value.device))
        return made

    def dimension(self, register: int) -> int | None:
        """Return the dimension of a value along which the inputs of a batch are; None if it is the same for all of them.

        Raises
        ------
        UnsupportedFeature
            No dimension is that of the batch alone.
        """
        node, k = self._leaves[register]
        value = node.meta["val"]
        return self._dimension(node, value[k] if isinstance(value, list | tuple) else value)

    def _dimension(self, node: Node, value: torch.Tensor) -> int | None:
        if not self._symbols:
            raise UnsupportedFeature("the program takes its example as one batch, which cannot be split; make it with dynamic_batch=True")
        shape: Iterable[Any] = value.shape
        lengths = {dim: length.node.expr for dim, length in enumerate(shape) if isinstance(length, torch.SymInt)}
        lengths = {dim: expression for dim, expression in lengths.items() if expression.free_symbols}
        if not lengths:
            return None
        (dim, expression), *others = lengths.items()
        if others or not expression.is_symbol:
            raise UnsupportedFeature(
                f"the value {node.name!r} of task {self.program.graph.names[self._owner[node]]!r} has the shape "
                f"({', '.join(map(str, value.shape))}), in which the "
                "inputs of a batch cannot be told apart; give one batch size, all inputs, to the problem"
            )
        return dim

    def blank(self, register: int, length: int) -> torch.Tensor:
        """Return zeros like a value for a batch of so many inputs.

        Raises
        ------
        UnsupportedFeature
            The shape depends on more than the number of inputs.
        """
        node, k = self._leaves[register]
        value = node.meta["val"]
        value = value[k] if isinstance(value, list | tuple) else value
        sizes = []
        for size in (*value.shape, *value.stride()):
            if isinstance(size, torch.SymInt):
                symbols = size.node.expr.free_symbols
                if not symbols <= self._symbols.keys():
                    raise UnsupportedFeature(
                        f"the value {node.name!r} of task {self.program.graph.names[self._owner[node]]!r} has the shape "
                        f"({', '.join(map(str, value.shape))}), which depends on data, and graphs need fixed ones; give graphs=False"
                    )
                size = size.node.expr.subs(dict.fromkeys(symbols, length))
            sizes.append(int(size))
        return torch.empty_strided(sizes[: value.dim()], sizes[value.dim() :], dtype=value.dtype).zero_()

    @property
    def outdated(self) -> bool:
        """Whether a tensor that was folded, or copied to another device, has been changed in place since."""
        return any(tensor._version != version for tensor, version in (*self._folded, *self._copied))

    def run(self, registers: Registers) -> Any:
        """Run all tasks in topological order and return the result of the module; registers are released after their last use."""
        self.take(registers, 0, None)
        return self.result(registers)

    def take(self, registers: Registers, begin: int, end: int | None) -> None:
        """Run a part of the tasks, places in the order of `Program.order`."""
        for function, dead in self._sequence[begin:end]:
            function(registers)
            for register in dead:
                registers[register] = None

    def copied(self, tasks: Iterable[int], put: Callable[[torch.Tensor], torch.Tensor], device: torch.device) -> dict[int, Function]:
        """Return the functions of some tasks for another device, with copies by `put` of the constants that they read."""
        functions = {i: self.functions[i] for i in tasks}
        own: dict[str, Any] = {}
        for name in sorted({name for function in functions.values() for name in function.__code__.co_names} & self._globals.keys()):
            value = self._globals[name]
            if isinstance(value, torch.Tensor):
                self._copied += [] if value.is_inference() else [(value, value._version)]
                value = put(value)
            own[name] = device if isinstance(value, torch.device) else value
        exec(compile("\n".join(self._texts[i] for i in functions), "<hetsched tasks>", "exec"), own)
        return {i: own[f"task{i}"] for i in functions}

    def result(self, registers: Registers) -> Any:
        """Return the result of the module from the values that are kept."""
        return self.program.result(self.outputs(registers))

    def outputs(self, registers: Registers) -> Sequence[Any]:
        """Return what the last operator reads, from the values that are kept."""
        return tuple(self._result(registers))

    def read(self, node: Node, registers: Registers) -> Any:
        """Return the value of an argument, of a node that another task reads, or of a constant; None for elements that none reads."""
        if node in self.program.constants:
            return self.program.constants[node]
        if node in self._sizes:
            return registers[self._sizes[node]]
        made = node.meta["val"]
        if node.op == "placeholder" and not isinstance(made, torch.Tensor):
            return made  # the program was made for it
        if not isinstance(made, list | tuple):
            return registers[self.register[node, 0]]
        return tuple(registers[self.register[node, k]] if (node, k) in self.register else None for k in range(len(made)))

    def reader(self, node: Node) -> Callable[[Registers], Any]:
        """Return the function that computes a node from values that other tasks made, such as a view of one."""
        steps = () if node in self._owner else self.program._work((node,)).steps
        name = f"read{len(self._globals)}"
        self._define(self._text(name, self._live(steps, [node]), returns=node))
        made: Callable[[Registers], Any] = self._globals[name]
        return made

    def rest(self, task: int, begun: Node) -> Callable[[Registers, Any], None]:
        """Return the function that runs what follows the node `begun` of a task, given the registers and its value."""
        name = f"rest{len(self._globals)}"
        steps = self._live(self.program.work[task].steps, self._roots(task), begun)
        self._define(self._text(name, steps, begun=begun))
        made: Callable[[Registers, Any], None] = self._globals[name]
        return made

    # ------------------------------------------------------------------ values

    def _roots(self, task: int) -> list[Node]:
        return [node for node in self.program.nodes[task] if node.op == "call_function"]

    def _live(self, steps: Sequence[Node], roots: Iterable[Node], begun: Node | None = None) -> tuple[Node, ...]:
        """Return the steps of a task that its own nodes need, without numbers: these are known once the arguments are."""
        needed = set(roots)
        live = []
        for node in reversed(steps):
            if node in needed and node is not begun and not _is_number(node):
                live.append(node)
                needed.update(node.all_input_nodes)
        return tuple(reversed(live))

    def _number(self, live: Sequence[Sequence[Node]], last: Sequence[Node]) -> None:
        """Give a register to each tensor that another task reads, to other arguments, and to sizes."""
        readers: dict[Leaf, dict[int, None]] = {}
        kept: set[Leaf] = set()
        numbers: dict[Node, None] = {}
        beside: dict[Node, None] = {}
        for i, steps in enumerate([*live, [*last, self._output]]):
            own = set(steps)
            for step in steps:
                for source in step.all_input_nodes:
                    if _is_number(source):
                        if source not in self.program.constants:
                            numbers[source] = None
                    elif source in self._owner and source not in own:
                        for k in self._elements(step, source):
                            readers.setdefault((source, k), {})[i] = None
                            if i == len(live):
                                kept.add((source, k))
                    elif source.op == "placeholder" and source not in self.program.constants:
                        beside[source] = None
        place = {node: k for k, node in enumerate(self.program.operators.nodes)}
        leaves = sorted(readers, key=lambda leaf: (self._owner[leaf[0]], place[leaf[0]], leaf[1]))
        self._leaves = leaves
        self.register: dict[Leaf, int] = {leaf: r for r, leaf in enumerate(leaves)}
        self.values = tuple(
            Value(
                self._owner[node],
                f"{node.name}[{k}]" if isinstance(node.meta["val"], list | tuple) else node.name,
                self._bytes(node.meta["val"][k] if isinstance(node.meta["val"], list | tuple) else node.meta["val"]),
                tuple(sorted(readers[node, k].keys() - {len(live)})),
                (node, k) in kept,
            )
            for node, k in leaves
        )
        reads: list[list[int]] = [[] for _ in live]
        for r, value in enumerate(self.values):
            for i in value.readers:
                reads[i].append(r)
        self.reads = tuple(map(tuple, reads))
        for node in beside:
            if isinstance(node.meta["val"], torch.Tensor):
                self.register[node, 0] = len(self.register)
        self._arguments = [(node, r) for (node, _), r in self.register.items() if node.op == "placeholder"]
        self._first_size = len(self.register)
        self._sizes = {node: self._first_size + k for k, node in enumerate(numbers)}
        self.width = self._first_size + len(numbers)
        expressions = [node.meta["val"].node.expr for node in numbers]
        symbols, types = tuple(self._symbols), [_type(node.meta["val"]) for node in numbers]

        @cache
        def sizes_at(lengths: tuple[int, ...]) -> list[Any]:
            at = dict(zip(symbols, lengths, strict=True))
            return [kind(expression.subs(at)) for kind, expression in zip(types, expressions, strict=True)]

        self._sizes_at = sizes_at

    def _elements(self, step: Node, source: Node) -> Iterable[int]:
        """Return the elements of the value of `source` that a step reads."""
        value = source.meta["val"]
        if not isinstance(value, list | tuple):
            return (0,)
        if step.target is operator.getitem:
            return (step.args[1],)  # type: ignore[return-value]
        return [k for k, part in enumerate(value) if isinstance(part, torch.Tensor)]

    def _find_symbols(self) -> dict[Any, tuple[Node, int | None]]:
        """Return the symbols of sizes, each with an argument and its dimension of that length."""
        symbols: dict[Any, tuple[Node, int | None]] = {}
        for node in self.program._placeholders:
            value = node.meta["val"]
            lengths: list[tuple[Any, int | None]] = [(value, None)]
            if isinstance(value, torch.Tensor):
                lengths = [(length, dim) for dim, length in enumerate(value.shape)]
            for length, dim in lengths:
                if isinstance(length, torch.SymInt) and length.node.expr.is_symbol:
                    symbols.setdefault(length.node.expr, (node, dim))
        return symbols

    def _bytes(self, value: torch.Tensor) -> float:
        """Return the bytes of a tensor for a batch of one; an expanded dimension adds none."""
        size = float(value.element_size())
        for length, stride in zip(value.shape, value.stride(), strict=True):
            count = _at(length, 1)
            size *= count if count == 0 or _at(stride, 1) else 1
        return size

    # ------------------------------------------------------------------ folded batch norm

    def _fold(self, live: Sequence[Sequence[Node]]) -> None:
        for steps in live:
            for norm in steps:
                if norm.op == "call_function" and "_native_batch_norm_legit_no_training" in str(norm.target) and norm.args[0] in steps:
                    self._fold_one(norm, norm.args[0])  # type: ignore[arg-type]

    def _fold_one(self, norm: Node, call: Node) -> None:
        """Multiply a batch norm into a convolution, if their numbers are constants and nothing else reads their values."""
        constants = self.program.constants
        scale, shift, mean, variance = norm.args[1:5]
        if operator_type(call.target) not in MERGEABLE or len(call.users) > 1 or len(call.args) < 2 or norm.kwargs:
            return
        bias = call.args[2] if len(call.args) > 2 else call.kwargs.get("bias")
        nodes = [call.args[1], mean, variance, *(node for node in (scale, shift, bias) if node is not None)]
        if not all(node in constants for node in nodes):
            return
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in norm.users):
            return
        weight, mean, variance = (constants[node] for node in nodes[:3])  # type: ignore[index]
        if any(constants[node].dtype != weight.dtype for node in nodes):  # type: ignore[index]
            return
        factor = torch.rsqrt(variance.double() + norm.args[6])
        if scale is not None:
            factor = factor * constants[scale].double()  # type: ignore[index]
        added = -mean.double() if bias is None else constants[bias].double() - mean.double()  # type: ignore[index]
        added = added * factor if shift is None else added * factor + constants[shift].double()  # type: ignore[index]
        dtype = weight.dtype
        scaled = (weight.double() * factor.view(-1, *(1,) * (weight.dim() - 1))).to(dtype)
        folded = [constants[node] for node in nodes]  # type: ignore[index]
        self._folded += [(tensor, tensor._version) for tensor in folded if not tensor.is_inference()]
        self._merged[call] = (call.args[0], scaled, added.to(dtype), *call.args[3:])
        self._norm[call] = norm
        self._same.update(dict.fromkeys((norm, *norm.users), call))

    # ------------------------------------------------------------------ source

    def _define(self, source: str) -> None:
        exec(compile(source, "<hetsched tasks>", "exec"), self._globals)

    def _text(self, name: str, steps: Sequence[Node], *, begun: Node | None = None, returns: Any = None) -> str:
        """Return the source of a function that runs the steps.

        With `begun` it has the value of that node as second argument; with `returns` it returns that.
        """
        same = {node: call for node, call in self._same.items() if call in steps}
        steps = [step for step in steps if step not in same]
        local: dict[Node, str] = {} if begun is None else {begun: "given"}
        after = {same.get(node, node) for node in _nodes(returns)}
        last: dict[Node, int] = {}
        for k, step in enumerate(steps):
            for source in step.all_input_nodes:
                last[same.get(source, source)] = k
        lines = [f"def {name}(v, given):" if begun is not None else f"def {name}(v):"]
        if begun is not None:
            lines += self._stores(begun, "given")
        for k, step in enumerate(steps):
            lines.append(f"    x{k} = {self._call(step, local)}")
            local[step] = f"x{k}"
            local.update((node, f"x{k}") for node, call in same.items() if call is step)
            lines += self._stores(step, f"x{k}")
            used = {step, *(same.get(source, source) for source in step.all_input_nodes)}
            dead = sorted(
                local[node] for node in used if node in local and last.get(node, k) == k and node not in after and node is not begun
            )
            if dead and (k + 1 < len(steps) or returns is not None):
                lines.append(f"    del {', '.join(dead)}")
        if returns is not None:
            lines.append(f"    return {self._argument(returns, local)}")
        return "\n".join(lines if len(lines) > 1 else [*lines, "    pass"])

    def _stores(self, node: Node, text: str) -> list[str]:
        """Return the lines that set the registers of a node's tensors."""
        norm = self._norm.get(node)
        if norm is not None:  # the convolution makes what the batch norm would
            return [f"    v[{self.register[norm, 0]}] = {text}"] if (norm, 0) in self.register else []
        value = node.meta["val"]
        if not isinstance(value, list | tuple):
            return [f"    v[{self.register[node, 0]}] = {text}"] if (node, 0) in self.register else []
        return [f"    v[{self.register[node, k]}] = {text}[{k}]" for k in range(len(value)) if (node, k) in self.register]

    def _call(self, node: Node, local: dict[Node, str]) -> str:
        if node.target is operator.getitem:
            source, k = node.args
            if source not in local and (source, k) in self.register:
                return f"v[{self.register[source, k]}]"  # type: ignore[index]
            return f"{self._argument(source, local)}[{self._argument(k, local)}]"
        target = chosen(node)
        name = self._name(called(target), "t")
        self._targets[name] = target
        args = self._merged.get(node, node.args)
        words = {key: value for key, value in node.kwargs.items() if node not in self._merged or key not in ("weight", "bias")}
        given = [self._argument(value, local) for value in args]
        given += [f"{key}={self._argument(value, local)}" for key, value in words.items()]
        return f"{name}({', '.join(given)})"

    def _argument(self, value: Any, local: dict[Node, str]) -> str:
        """Return the source of an argument."""
        if isinstance(value, Node):
            return self._place(value, local)
        if isinstance(value, list | tuple):
            inner = ", ".join(self._argument(part, local) for part in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if inner else "()"
        if isinstance(value, slice):
            return f"slice({', '.join(self._argument(part, local) for part in (value.start, value.stop, value.step))})"
        if value is None or type(value) in (bool, int, str) or (type(value) is float and abs(value) < float("inf")):
            return repr(value)
        return self._name(value, "c")

    def _place(self, node: Node, local: dict[Node, str]) -> str:
        if node in local:
            return local[node]
        if node in self.program.constants:
            return self._name(self.program.constants[node], "c")
        if node in self._sizes:
            return f"v[{self._sizes[node]}]"
        value = node.meta["val"]
        if isinstance(value, list | tuple):
            parts = [f"v[{self.register[node, k]}]" if (node, k) in self.register else "None" for k in range(len(value))]
            return f"[{', '.join(parts)}]"
        if node.op == "placeholder" and not isinstance(value, torch.Tensor):
            return self._argument(value, local)  # the program was made for it
        return f"v[{self.register[node, 0]}]"

    def _name(self, value: Any, kind: str) -> str:
        """Return the name of a global that has the value."""
        if id(value) not in self._bound:
            self._bound[id(value)] = f"{kind}{len(self._bound)}"
            self._globals[self._bound[id(value)]] = value
        return self._bound[id(value)]


def _elsewhere(registers: Registers) -> None:
    raise LookupError("the task is on another rank")


def _is_number(node: Node) -> bool:
    """Return whether the value is a number that depends on the sizes of the arguments."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)


def _type(number: Any) -> type:
    return int if isinstance(number, torch.SymInt) else float if isinstance(number, torch.SymFloat) else bool


def _at(size: Any, length: int) -> int:
    """Return a size for a batch of some length."""
    return _evaluated(size.node.expr, length) if isinstance(size, torch.SymInt) else int(size)


@cache
def _evaluated(expression: Any, length: int) -> int:
    return int(expression.subs(dict.fromkeys(expression.free_symbols, length)))


def _nodes(nested: Any) -> Iterable[Node]:
    if isinstance(nested, Node):
        yield nested
    elif isinstance(nested, list | tuple):
        for part in nested:
            yield from _nodes(part)
