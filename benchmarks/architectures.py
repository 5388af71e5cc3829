"""Sixty named architectures of torchvision, timm, transformers and diffusers, with random weights, and an example for each."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

IMAGE = (1, 3, 224, 224)
WORDS = (1, 128)


@dataclass(frozen=True)
class Architecture:
    """A public model: what makes it, without weights, and the shapes of its example by argument."""

    library: str
    make: Callable[[], Any]
    args: tuple[tuple[int, ...], ...] = ()
    kwargs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of keyword arguments; those named ``..._ids`` and ``..._mask`` are of whole numbers."""
    reduced: str = ""
    """What is smaller than in the published model."""

    def example(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and the keyword arguments of the example."""
        import torch

        def tensor(name: str, shape: tuple[int, ...]) -> Any:
            whole = name.endswith(("_ids", "_mask", "timestep"))
            return torch.ones(shape, dtype=torch.long) if whole else torch.rand(shape)

        return tuple(tensor("", shape) for shape in self.args), {name: tensor(name, shape) for name, shape in self.kwargs.items()}


def _torchvision(path: str, *shapes: tuple[int, ...], reduced: str = "", **options: Any) -> Architecture:
    def make() -> Any:
        define_operators()
        place, _, name = path.rpartition(".")
        home = importlib.import_module("torchvision.models" + (f".{place}" if place else ""))
        return getattr(home, name)(weights=None, **options).eval()

    return Architecture("torchvision", make, shapes or (IMAGE,), reduced=reduced)


def _timm(name: str, size: int = 224) -> Architecture:
    def make() -> Any:
        define_operators()
        return importlib.import_module("timm").create_model(name, pretrained=False).eval()

    return Architecture("timm", make, ((1, 3, size, size),))


def _transformers(
    kind: str, head: str = "AutoModel", options: Mapping[str, Any] | None = None, reduced: str = "", **shapes: tuple[int, ...]
) -> Architecture:
    def make() -> Any:
        define_operators()
        library = importlib.import_module("transformers")
        config = library.AutoConfig.for_model(kind, **(options or {}))
        return getattr(library, head).from_config(config).eval()

    return Architecture("transformers", make, kwargs=shapes or {"input_ids": WORDS}, reduced=reduced)


def _diffusers(name: str, options: Mapping[str, Any] | None = None, **shapes: tuple[int, ...]) -> Architecture:
    def make() -> Any:
        define_operators()
        return getattr(importlib.import_module("diffusers"), name)(**(options or {})).eval()

    return Architecture("diffusers", make, kwargs=shapes)


def define_operators() -> None:
    """Define two operators of torchvision in Python where its library cannot be loaded, as beside a CPU build of torch."""
    import torch

    if hasattr(torch.ops.torchvision, "nms"):
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch.library.impl("torchvision::nms", "CPU", _suppressed)
        importlib.import_module("torchvision").extension._has_ops = lambda: True


def _suppressed(boxes: Any, scores: Any, threshold: float) -> Any:
    """Return the places of the boxes that no better one overlaps by more than a threshold, best first."""
    import torch

    order = np.argsort(-scores.numpy(), kind="stable")
    corners = boxes.numpy()[order]
    areas = (corners[:, 2:] - corners[:, :2]).prod(1)
    free, kept = np.ones(len(order), bool), []
    for i in range(len(order)):
        if free[i]:
            kept.append(order[i])
            low, high = np.maximum(corners[i, :2], corners[i:, :2]), np.minimum(corners[i, 2:], corners[i:, 2:])
            common = (high - low).clip(0).prod(1)
            free[i:] &= common <= threshold * (areas[i] + areas[i:] - common)
    return torch.tensor(kept, dtype=torch.long)


PAIR = ((1, 3, 128, 128), (1, 3, 128, 128))
VIDEO = (1, 3, 16, 112, 112)
LANGUAGE = "AutoModelForCausalLM"


def _language(kind: str, layers: int, of: int, **shapes: tuple[int, ...]) -> Architecture:
    """Return the first layers of a large language model: the others repeat them."""
    return _transformers(kind, LANGUAGE, {"num_hidden_layers": layers}, f"{layers} of {of} layers", **shapes)


ARCHITECTURES: dict[str, Architecture] = {
    **{
        name: _torchvision(name)
        for name in (
            "alexnet",
            "vgg16",
            "resnet50",
            "densenet121",
            "googlenet",
            "mobilenet_v3_large",
            "efficientnet_b0",
            "regnet_y_8gf",
            "shufflenet_v2_x1_0",
            "squeezenet1_1",
            "convnext_tiny",
            "vit_b_16",
            "swin_v2_t",
            "maxvit_t",
        )
    },
    "inception_v3": _torchvision("inception_v3", (1, 3, 299, 299)),
    "deeplabv3_resnet50": _torchvision("segmentation.deeplabv3_resnet50", weights_backbone=None),
    "r2plus1d_18": _torchvision("video.r2plus1d_18", VIDEO),
    "raft_small": _torchvision("optical_flow.raft_small", *PAIR),
    "fasterrcnn_resnet50_fpn": _torchvision(
        "detection.fasterrcnn_resnet50_fpn", weights_backbone=None, min_size=320, max_size=320, reduced="320 pixels instead of 800"
    ),
    "ssd300_vgg16": _torchvision("detection.ssd300_vgg16", (1, 3, 300, 300), weights_backbone=None),
    **{
        name: _timm(name)
        for name in (
            "deit3_small_patch16_224",
            "beit_base_patch16_224",
            "cait_s24_224",
            "convit_small",
            "levit_256",
            "mixer_b16_224",
            "poolformer_s12",
            "pvt_v2_b2",
            "twins_svt_small",
            "xcit_small_12_p16_224",
            "dm_nfnet_f0",
            "hrnet_w32",
            "dla34",
            "davit_tiny",
        )
    },
    "crossvit_small_240": _timm("crossvit_small_240", 240),
    "mobilevit_s": _timm("mobilevit_s", 256),
    **{name: _transformers(name) for name in ("bert", "roberta", "distilbert", "albert", "electra", "deberta-v2", "xlnet")},
    "gpt2": _transformers("gpt2", LANGUAGE),
    "llama": _language("llama", 8, 32),
    "mixtral": _language("mixtral", 4, 32),
    "gemma2": _language("gemma2", 8, 26),
    "qwen3": _language("qwen3", 8, 32),
    "mamba": _language("mamba", 4, 32, input_ids=(1, 16)),
    "gpt_neox": _language("gpt_neox", 8, 44),
    "t5": _transformers("t5", "AutoModelForSeq2SeqLM", input_ids=WORDS, decoder_input_ids=(1, 32)),
    "bart": _transformers("bart", "AutoModelForSeq2SeqLM", input_ids=WORDS, decoder_input_ids=(1, 32)),
    "whisper": _transformers("whisper", "AutoModelForSpeechSeq2Seq", input_features=(1, 80, 3000), decoder_input_ids=(1, 32)),
    "wav2vec2": _transformers("wav2vec2", input_values=(1, 16000)),
    "clip": _transformers("clip", input_ids=(1, 77), pixel_values=IMAGE),
    "dinov2": _transformers("dinov2", pixel_values=IMAGE),
    "segformer": _transformers("segformer", "AutoModelForSemanticSegmentation", pixel_values=(1, 3, 512, 512)),
    "detr": _transformers("detr", "AutoModelForObjectDetection", pixel_values=(1, 3, 512, 512)),
    "unet2d_condition": _diffusers(
        "UNet2DConditionModel", {"cross_attention_dim": 768}, sample=(1, 4, 64, 64), encoder_hidden_states=(1, 77, 768), timestep=(1,)
    ),
    "autoencoder_kl": _diffusers(
        "AutoencoderKL",
        {
            "block_out_channels": (128, 256, 512, 512),
            "layers_per_block": 2,
            "down_block_types": ("DownEncoderBlock2D",) * 4,
            "up_block_types": ("UpDecoderBlock2D",) * 4,
        },
        sample=(1, 3, 256, 256),
    ),
}
