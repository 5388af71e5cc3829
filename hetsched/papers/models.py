"""Task graphs of the models of Celeritas, as training steps, and of Moirai, as calls; captured on tensors without data."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from hetsched.problem.graph import TaskGraph

PICTURE = 192
"""Height and width of the images of Tensor Holography."""
SENTENCE = 50
"""Words of a sentence."""


class Model(NamedTuple):
    """A model whose task graph can be captured, which takes up to a minute."""

    capture: Callable[[], TaskGraph]


def training() -> dict[str, Model]:
    """Return the training steps of Celeritas, section 6.2, at its batch sizes, with Adam.

    "transformer, heads apart" has separate projections for each head of attention.
    """
    vision, translation = (importlib.import_module(f"hetsched.workloads.{name}") for name in ("vision", "translation"))
    torch = importlib.import_module("torch")
    labels = torch.empty(512, dtype=torch.int64, device="meta")
    pictures, holograms = (torch.empty(32, channels, PICTURE, PICTURE, device="meta") for channels in (4, 6))
    return {
        "inception_v3": step(lambda: vision.inception_v3().train(), vision.images(299, 512), labels),
        "nmt": translated(translation.nmt, 512),
        "transformer": translated(translation.transformer, 256),
        "transformer, heads apart": translated(lambda: translation.transformer(apart=True), 256),
        "holography": step(vision.holography, pictures, holograms, torch.nn.functional.mse_loss),
    }


def step(make: Callable[[], Any], args: Any, targets: Any = (), loss: Callable[..., Any] | None = None) -> Model:
    """Return a training step with Adam; the default loss of targets is the cross entropy."""
    from hetsched.frontends import torch

    loss = importlib.import_module("torch").nn.functional.cross_entropy if loss is None else loss
    return Model(lambda: torch.capture_training(make, args, targets=targets, loss=loss, optimiser="adam"))


def translated(make: Callable[[], Any], batch: int, words: int = SENTENCE) -> Model:
    """Return a training step of a translation network on sentences of some words."""
    sentences = importlib.import_module("hetsched.workloads.translation").sentences(words, batch)
    return step(make, (sentences, sentences), sentences)


def calls() -> dict[str, Model]:
    """Return the models of Moirai's Table IV as calls."""
    from hetsched.frontends import torch as frontend

    language, swin, folding, vision = (
        importlib.import_module(f"hetsched.workloads.{name}") for name in ("language", "swin", "folding", "vision")
    )
    torch = importlib.import_module("torch")
    tokens = torch.empty(1, 2048, dtype=torch.int64, device="meta")

    def call(make: Callable[[str], Any], size: str, args: Any) -> Model:
        return Model(lambda: frontend.record(lambda: make(size), args))

    return {
        **{f"swin {size}": call(swin.swin, size, vision.images(1100)) for size in swin.SIZES},
        **{f"gpt3 {size}": call(language.decoder, size, tokens) for size in language.DECODERS},
        **{f"alphafold2 {size}": call(folding.evoformer, size, folding.aligned(size)) for size in folding.SIZES},
    }
