"""Cards of plain modules of torch: blocks that follow one another, with the work and the activations of a recorded call."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from hetsched.arguments import checked
from hetsched.arrays import FloatArray
from hetsched.chain.card import PARTS, ModelCard, chain_items
from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature
from hetsched.frontends.calling import name_of, tensors_in
from hetsched.frontends.module_items import Layout, Stack, layout
from hetsched.frontends.stored_weights import part_of
from hetsched.frontends.training import record
from hetsched.problem.graph import TaskGraph
from hetsched.problem.modules import module_of

PLAIN = {"experts": "dense_ffn", "shared": "dense_ffn", "router": "dense_ffn"}
"""Parts of the weights that count as others, for which experts a token uses is not known."""


@checked(InvalidProblem)
def card(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    example_args: tuple[Any, ...] | torch.Tensor = (),
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    blocks: str | None = None,
    name: str | None = None,
) -> ModelCard:
    """Return the card of a module whose blocks follow one another; the module is not run, and no memory is taken for its weights.

    What the module does before its first block is the embedding, what it does after the last one is the head. Weights are those of its
    parameters. FLOPs and activations are those of a call that is recorded operator by operator on tensors without data: products with
    weights grow with the tokens, other products, which are attention, with their square. Activations are the most numbers that are in
    use at a time, at as many tokens as the example has: give it as many as a chunk of a prompt.

    Parameters
    ----------
    model : torch.nn.Module, or function without arguments that makes one
        A function is called under ``torch.device("meta")``, or with memory if that fails. A model of ``transformers`` may be given
        without an example: its card is that of `hetsched.frontends.huggingface.card`, with its KV cache.
    example_args : tuple (or one tensor)
        Positional arguments; only shapes and dtypes of tensors matter.
    example_kwargs : mapping, optional
        Keyword arguments.
    blocks : str, optional
        Name of the list of blocks, as ``"decoder.layers"``. Default: the longest ``ModuleList`` or ``Sequential`` of one class that is
        inside no other.
    name : str, optional
        Default: the name of the class.

    Returns
    -------
    ModelCard
        It has a KV cache, and `decodes`, if each block calls ``scaled_dot_product_attention`` once with ``is_causal=True``: then the keys
        and values that this receives are what is kept. Otherwise tokens attend in both directions, and no output can be asked for.
        Outputs of the embedding that later blocks read too, such as masks, take no time on links.

    Raises
    ------
    InvalidProblem
        The function fails, or returns no module, or the module cannot be called with the example.
    UnsupportedFeature
        The module has no list of like blocks, or several that are the longest; or its blocks do not follow one another, each called once
        with what the one before returned, of shape [batch, tokens, width]; or items share weights; or FLOPs of an operator are unknown.
    """
    module = _made(model)
    if _is_transformers(module) and not (isinstance(example_args, torch.Tensor) or example_args or example_kwargs):
        from hetsched.frontends import huggingface

        return huggingface.card(module, name=name)
    stack = _stack(module, blocks)
    calls = _Calls(module, stack)
    with calls.followed():
        graph = record(module, example_args, example_kwargs=example_kwargs)
    batch, tokens, width = calls.passed()
    scale, n = batch * tokens, len(stack.modules)
    items = _items(graph, stack)
    _check_chain(graph, items, stack)
    parts = layout(module, [stack], calls.item_of)
    parameters, weight_bytes, tied = _weights(module, parts, n)
    weighted, quadratic = _flops(graph, items, n)
    products = quadratic[1:-1] / (2 * scale * tokens)
    attention = [_attention(own, product) for own, product in zip(calls.attentions, products.tolist(), strict=True)]
    peaks = _peaks(graph, items, n) / (scale * calls.bytes_per_number)
    columns = [{**own, "workspace_numbers": math.ceil(max(peak, width))} for own, peak in zip(attention, peaks[1:-1], strict=True)]
    ends = np.arange(n + 2) % (n + 1) == 0  # whose products all grow with the tokens
    count = np.array([*[scale] * (n + 1), calls.result.numel() / calls.result.shape[-1]])
    return ModelCard(
        name or type(module).__name__,
        type(module).__name__,
        width,
        calls.result.shape[-1],
        chain_items(columns, width),
        parameters,
        weight_bytes,
        modules=parts.modules,
        tied=tied,
        exact=True,
        decodes=all("cache_numbers" in own for own in attention),
        source="a module and a recorded call of it",
        token_flops=(weighted + np.where(ends, quadratic, 0.0)) / count,
    )


def _made(model: Any) -> torch.nn.Module:
    if isinstance(model, torch.nn.Module):
        return model
    try:
        try:
            with torch.device("meta"):
                module = model()
        except Exception:  # its constructor may read values
            module = model()
    except Exception as error:  # of the user's function
        raise InvalidProblem(f"{name_of(model)} fails: {type(error).__name__}: {error}; it must return a torch.nn.Module") from error
    if not isinstance(module, torch.nn.Module):
        raise InvalidProblem(f"{name_of(model)} returns a {type(module).__name__}; it must return a torch.nn.Module")
    return module.eval()


def _is_transformers(module: torch.nn.Module) -> bool:
    return any(cls.__module__.startswith("transformers.") and cls.__name__ == "PreTrainedModel" for cls in type(module).__mro__)


def _stack(module: torch.nn.Module, blocks: str | None) -> Stack:
    """Return the list of blocks."""
    lists = {
        path: list(part)
        for path, part in module.named_modules()
        if path and isinstance(part, torch.nn.ModuleList | torch.nn.Sequential) and len(part) and len(set(map(type, part))) == 1
    }
    outermost = [path for path in lists if not any(path.startswith(f"{other}.") for other in lists)]
    what = type(module).__name__
    if blocks is not None:
        if blocks not in lists:
            raise InvalidArgument(f"blocks is {blocks!r}; {what} has the lists of like blocks {', '.join(lists) or 'none'}")
        return Stack(blocks, lists[blocks], False)
    longest = [path for path in outermost if len(lists[path]) == max(len(lists[other]) for other in outermost)]
    if len(longest) != 1:
        found = f"several longest lists of like blocks: {', '.join(longest)}" if longest else "no ModuleList or Sequential of like blocks"
        remedy = "name one with blocks=" if longest else "put its blocks into a ModuleList, or capture it as a task graph"
        raise UnsupportedFeature(f"{what} has {found}; a card is of one list, whose blocks follow one another: {remedy}")
    return Stack(longest[0], lists[longest[0]], False)


class _AttentionCall(NamedTuple):
    """A call of scaled_dot_product_attention: heads, sizes of keys and values, numbers kept per token, and whether it is causal."""

    heads: int
    key: int
    value: int
    cache: int
    causal: bool


class _Calls(TorchFunctionMode):
    """What is called when: blocks with their first tensors, other modules before or after them, and attention in blocks."""

    def __init__(self, module: torch.nn.Module, stack: Stack) -> None:
        super().__init__()
        self.module, self.stack = module, stack
        self.order: list[int] = []
        self.shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.attentions: list[list[_AttentionCall]] = [[] for _ in stack.modules]
        self.item_of: dict[str, int] = {}
        self.inside: int | None = None
        self.bytes_per_number = 0
        self.result = torch.empty(0)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the calls of the module; a second recording begins anew."""
        handles = [self.module.register_forward_pre_hook(self._begin), self.module.register_forward_hook(self._end)]
        for b, block in enumerate(self.stack.modules):
            handles.append(block.register_forward_pre_hook(lambda _m, args, kwargs, b=b: self._enter(b, args, kwargs), with_kwargs=True))
            handles.append(block.register_forward_hook(lambda _m, _args, made: self._leave(made)))
        for path, part in self.module.named_modules(remove_duplicate=False):
            if path and not f"{self.stack.name}.".startswith(f"{path}.") and not path.startswith(f"{self.stack.name}."):
                handles.append(part.register_forward_pre_hook(lambda _m, _args, path=path: self._other(path)))
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note a call of attention in a block."""
        if func is torch.nn.functional.scaled_dot_product_attention and self.inside is not None:
            self._attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _attend(
        self, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **_: Any
    ) -> None:
        assert self.inside is not None
        tokens = self.shapes[-1][0][1:2]
        sizes = key.shape[-1], value.shape[-1]
        if query.dim() == 4 and (query.shape[2],) == (key.shape[2],) == tokens:
            made = _AttentionCall(query.shape[1], *sizes, key.shape[1] * sum(sizes), bool(is_causal))
            self.attentions[self.inside].append(made)

    def _begin(self, *_: Any) -> None:
        self.order, self.shapes, self.inside = [], [], None
        self.attentions = [[] for _ in self.stack.modules]

    def _end(self, _module: Any, _args: Any, made: Any) -> None:
        self.result = next((tensor.to("meta") for tensor in tensors_in(made) if tensor.dim()), torch.empty(0))

    def _enter(self, block: int, args: Any, kwargs: Any) -> None:
        given = next(tensors_in((args, kwargs)), torch.empty(0))
        self.order.append(block)
        self.inside, self.bytes_per_number = block, given.element_size()
        self.shapes.append((tuple(given.shape), ()))

    def _leave(self, made: Any) -> None:
        self.inside = None
        self.shapes[-1] = self.shapes[-1][0], tuple(next(tensors_in(made), torch.empty(0)).shape)

    def _other(self, path: str) -> None:
        if self.inside is None:
            begun, n = len(self.order), len(self.stack.modules)
            self.item_of.setdefault(path, n + 1 if begun >= n else begun)

    def passed(self) -> tuple[int, int, int]:
        """Return batch, tokens and width of what blocks pass on; each must be called once, in order, with tensors of one shape."""
        name, n = self.stack.name, len(self.stack.modules)
        if self.order != list(range(n)):
            raise UnsupportedFeature(
                f"the blocks of {name!r} are called in the order {self.order}; each of the {n} must be called once, one after the other"
            )
        shapes = {shape for pair in self.shapes for shape in pair}
        if len(shapes) > 1 or any(len(shape) != 3 for shape in shapes):
            raise UnsupportedFeature(
                f"the blocks of {name!r} pass on tensors of the shapes {', '.join(map(str, sorted(shapes)))}; they must have one, "
                "[batch, tokens, width]: capture other modules as task graphs"
            )
        ((batch, tokens, width),) = shapes
        return batch, tokens, width


def _attention(calls: Sequence[_AttentionCall], product: float) -> dict[str, Any]:
    """Return the columns of a block's attention by its calls, if it has one that takes as much as `product`, heads times sizes."""
    if len(calls) != 1 or not math.isclose(calls[0].heads * (calls[0].key + calls[0].value), product):
        return {"heads": 1, "key_size": math.ceil(product)} if product else {}
    (call,) = calls
    columns = {"heads": call.heads, "key_size": call.key, "value_size": call.value}
    kept = {"decode_key_size": call.key, "decode_value_size": call.value, "cache_numbers": call.cache}
    return {**columns, **kept} if call.causal else columns


def _items(graph: TaskGraph, stack: Stack) -> list[int]:
    """Return the item of each task: the block that it is inside, or by the place before, between or behind the blocks."""
    n, found, reached = len(stack.modules), list[int](), 0
    prefix = f"{stack.name}."
    inside = [int(path[len(prefix) :].split(".")[0]) if (path := module_of(task) + ".").startswith(prefix) else -1 for task in graph.names]
    last = max((i for i, block in enumerate(inside) if block >= 0), default=-1)
    for i, block in enumerate(inside):
        reached = max(reached, block + 1)
        found.append(0 if graph.op[i] == "input" else n + 1 if i > last else block + 1 if block >= 0 else reached)
    return found


def _check_chain(graph: TaskGraph, items: Sequence[int], stack: Stack) -> None:
    """Raise an error where an item reads what another one than that before it returned; the embedding's may be read by all."""
    for u, v in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
        if items[u] and items[v] not in (items[u], items[u] + 1):
            raise UnsupportedFeature(
                f"task {graph.names[v]!r} reads {graph.names[u]!r}, which is not of the block before; the blocks of {stack.name!r} must "
                "follow one another without connections that skip one: capture other modules as task graphs"
            )


def _weights(module: torch.nn.Module, parts: Layout, n: int) -> tuple[FloatArray, FloatArray, bool]:
    """Return parameters and bytes by item and part, and whether the head uses a table of the embedding."""
    kinds = ["embed", *["block"] * n, "head"]
    parameters, weight_bytes = np.zeros((2, n + 2, len(PARTS)))
    owners: dict[int, dict[int, str]] = {}
    tied = False
    for key, tensor in module.named_parameters(remove_duplicate=False):
        item, known = parts.owner[key], owners.setdefault(id(tensor), {})
        if item in known:
            continue
        known[item] = key
        if len(known) > 1:
            if set(known) != {0, n + 1}:
                raise UnsupportedFeature(
                    f"{' and '.join(known.values())} are one tensor; items have weights of their own, but for a table that the head shares "
                    "with the embedding: give each block its own"
                )
            tied = True
        part = part_of(key, kinds[item])
        place = item, PARTS.index(PLAIN.get(part, part))
        parameters[place] += tensor.numel()
        weight_bytes[place] += tensor.numel() * tensor.element_size()
    return parameters, weight_bytes, tied


def _flops(graph: TaskGraph, items: Sequence[int], n: int) -> tuple[FloatArray, FloatArray]:
    """Return the FLOPs of each item: of products with weights, and of others."""
    unknown = sorted({graph.op[i] for i in np.flatnonzero(np.isnan(graph.flops)).tolist()})
    if unknown:
        raise UnsupportedFeature(
            f"the FLOPs of {', '.join(unknown)} are unknown; register them by torch.utils.flop_counter.register_flop_formula"
        )
    free = np.array(
        [op.endswith("attention") or (op == "matmul" and not held) for op, held in zip(graph.op, graph.weight_bytes, strict=True)]
    )
    own = np.array(items)
    weighted, quadratic = (np.bincount(own[which], graph.flops[which], n + 2).astype(float) for which in (~free, free))
    return weighted, quadratic


def _peaks(graph: TaskGraph, items: Sequence[int], n: int) -> FloatArray:
    """Return the most bytes of activations that each item has at a time, its input included: each is kept until it is read last."""
    own = np.array(items)
    last = np.arange(graph.n_tasks)
    np.maximum.at(last, graph.source, graph.target)
    peaks = np.zeros(n + 2)
    for item in range(1, n + 1):
        tasks = np.flatnonzero(own == item)
        if not len(tasks):
            continue
        changes = np.zeros(graph.n_tasks + 2)
        read = graph.source[np.isin(graph.target, tasks) & (own[graph.source] == item - 1)]
        kept = np.concatenate([tasks, np.unique(read)])
        begin = np.maximum(kept, tasks[0])
        np.add.at(changes, begin, graph.output_bytes[kept])
        np.add.at(changes, last[kept] + 1, -graph.output_bytes[kept])
        peaks[item] = np.cumsum(changes)[tasks].max()
    return peaks
