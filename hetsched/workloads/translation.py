"""Translation networks as PyTorch modules: LSTMs unrolled in time, and a transformer with encoder and decoder."""

from __future__ import annotations

from hetsched.arguments import COUNT, checked
from hetsched.errors import InvalidProblem, MissingDependency

try:
    import torch
except ImportError as error:
    raise MissingDependency("torch", "torch") from error

from torch import nn
from torch.nn import functional

WORDS = 32000
"""Number of words of each language."""


@checked(InvalidProblem, layers=COUNT, units=COUNT, words=COUNT)
def nmt(layers: int = 4, units: int = 2048, words: int = WORDS) -> nn.Module:
    """Return an encoder and a decoder of LSTM layers with attention, unrolled in time, with random weights.

    Cells consist of separate operators: two linear layers, sigmoids and tanhs of each gate. The inputs are the words of a
    source [batch, steps] and the preceding words of the target, the outputs are scores [batch, words, steps].

    References
    ----------
    M.-T. Luong, H. Pham, C. D. Manning, "Effective approaches to attention-based neural machine translation", EMNLP 2015;
    S. Hochreiter, J. Schmidhuber, "Long short-term memory", Neural Computation 9(8), 1997.
    """
    return Translator(layers, units, words)


@checked(InvalidProblem, layers=COUNT, width=COUNT, heads=COUNT, words=COUNT)
def transformer(layers: int = 12, width: int = 2048, heads: int = 16, words: int = WORDS, *, apart: bool = False) -> nn.Module:
    """Return a transformer of `layers` encoder and as many decoder layers, with random weights.

    Inputs and outputs are those of `nmt`. With `apart`, each head of attention has separate projections, which may run on
    different devices.

    References
    ----------
    A. Vaswani et al., "Attention is all you need", NeurIPS 2017, section 3.
    """
    return Transformer(layers, width, heads, words, apart)


@checked(InvalidProblem, steps=COUNT, batch=COUNT)
def sentences(steps: int, batch: int) -> torch.Tensor:
    """Return `batch` sentences of `steps` words on the meta device: their shape, without data."""
    return torch.empty(batch, steps, dtype=torch.int64, device="meta")


class Cell(nn.Module):
    """A layer of LSTM at one time step."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.read, self.remember = nn.Linear(inputs, 4 * units), nn.Linear(units, 4 * units, bias=False)

    def forward(self, x: torch.Tensor, output: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return output and memory [batch, units] after the input `x` [batch, inputs]."""
        write, forget, show, new = (self.read(x) + self.remember(output)).chunk(4, 1)
        memory = torch.sigmoid(forget) * memory + torch.sigmoid(write) * torch.tanh(new)
        return torch.sigmoid(show) * torch.tanh(memory), memory


class Recurrent(nn.Module):
    """Layers of LSTM cells over all steps of a sequence."""

    def __init__(self, layers: int, units: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(Cell(units, units) for _ in range(layers))

    def forward(self, xs: torch.Tensor, states: list[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
        """Return the last layer's output at each step of `xs` [batch, steps, units]; `states`, one a layer, are replaced."""
        outputs = []
        for x in xs.unbind(1):
            for k, cell in enumerate(self.cells):
                states[k] = cell(x, *states[k])
                x = states[k][0]
            outputs.append(x)
        return outputs


class Translator(nn.Module):
    """Encoder and decoder of LSTM layers; the decoder attends to the encoder's outputs."""

    def __init__(self, layers: int, units: int, words: int) -> None:
        super().__init__()
        self.layers, self.units = layers, units
        self.source, self.target = nn.Embedding(words, units), nn.Embedding(words, units)
        self.encoder, self.decoder = Recurrent(layers, units), Recurrent(layers, units)
        self.match, self.combine = nn.Linear(units, units, bias=False), nn.Linear(2 * units, units, bias=False)
        self.score = nn.Linear(units, words)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return scores [batch, words, steps]."""
        zeros = self.score.weight.new_zeros(source.shape[0], self.units)
        states = [(zeros, zeros)] * self.layers
        read = torch.stack(self.encoder(self.source(source), states), 1)
        keys = self.match(read).transpose(1, 2)
        scores = []
        for output in self.decoder(self.target(target), states):
            share = torch.softmax(output[:, None] @ keys, -1)
            context = (share @ read)[:, 0]
            scores.append(self.score(torch.tanh(self.combine(torch.cat([context, output], 1)))))
        return torch.stack(scores, 2)


class Attention(nn.Module):
    """Attention of several heads to another sequence, or to the same."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the attention of each position of `x` to `other`, both [batch, positions, width]."""
        parts = ((self.query, x), (self.key, other), (self.value, other))
        query, key, value = (part(of).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part, of in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return torch.as_tensor(self.out(mixed.transpose(1, 2).flatten(2)))


class Head(nn.Module):
    """One head of attention as separate operators."""

    def __init__(self, width: int, own: int, causal: bool) -> None:
        super().__init__()
        self.causal, self.scale = causal, own**-0.5
        self.query, self.key, self.value = (nn.Linear(width, own) for _ in range(3))
        self.out = nn.Linear(own, width, bias=False)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the head's part of the sum in `Heads`."""
        scores = (self.query(x) * self.scale) @ self.key(other).transpose(1, 2)
        if self.causal:
            later = torch.ones(scores.shape[1:], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        return torch.as_tensor(self.out(torch.softmax(scores, -1) @ self.value(other)))


class Heads(nn.Module):
    """`Attention` with separate heads."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.each = nn.ModuleList(Head(width, width // heads, causal) for _ in range(heads))

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the sum over the heads."""
        first, *rest = (head(x, other) for head in self.each)
        for part in rest:
            first = first + part
        return torch.as_tensor(first)


class Layer(nn.Module):
    """A layer of the encoder or, with `decodes`, of the decoder."""

    def __init__(self, width: int, heads: int, *, decodes: bool, apart: bool) -> None:
        super().__init__()
        kind = Heads if apart else Attention
        self.own, self.norm1 = kind(width, heads, causal=decodes), nn.LayerNorm(width)
        self.other = kind(width, heads) if decodes else None
        self.norm2 = nn.LayerNorm(width) if decodes else None
        self.wide, self.narrow, self.norm3 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, read: torch.Tensor | None = None) -> torch.Tensor:
        """Return the sequence `x` after the layer; a decoder layer attends to `read`, the output of the encoder."""
        x = self.norm1(x + self.own(x, x))
        if self.other is not None and self.norm2 is not None:
            x = self.norm2(x + self.other(x, read))
        return torch.as_tensor(self.norm3(x + self.narrow(torch.relu(self.wide(x)))))


class Transformer(nn.Module):
    """Embeddings with learned positions, encoder, decoder, scores."""

    def __init__(self, layers: int, width: int, heads: int, words: int, apart: bool, longest: int = 1024) -> None:
        super().__init__()
        self.source, self.target, self.place = (nn.Embedding(count, width) for count in (words, words, longest))
        self.encoder = nn.ModuleList(Layer(width, heads, decodes=False, apart=apart) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, heads, decodes=True, apart=apart) for _ in range(layers))
        self.score = nn.Linear(width, words)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return scores [batch, words, steps]."""
        read, made = (
            words(x) + self.place(torch.arange(x.shape[1], device=x.device)) for words, x in ((self.source, source), (self.target, target))
        )
        for layer in self.encoder:
            read = layer(read)
        for layer in self.decoder:
            made = layer(made, read)
        return torch.as_tensor(self.score(made).transpose(1, 2))
