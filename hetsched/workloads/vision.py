"""GoogLeNet and Inception-v3 as PyTorch modules, written from their papers."""

from __future__ import annotations

from collections import OrderedDict

from hetsched.errors import MissingDependency

try:
    import torch
except ImportError as error:
    raise MissingDependency("torch", "torch") from error

from torch import nn

Pair = int | tuple[int, int]


def googlenet(classes: int = 1000) -> nn.Module:
    """Return GoogLeNet in eval mode, random weights, without the auxiliary classifiers.

    The batch-normalised version of common use, whose "5x5" branches are 3x3 convolutions: 6,624,904
    parameters.

    References
    ----------
    C. Szegedy et al., "Going deeper with convolutions", CVPR 2015, Table 1; S. Ioffe, C. Szegedy,
    "Batch normalization", ICML 2015.
    """

    def pool(stride: int = 2) -> nn.Module:
        return nn.MaxPool2d(3, stride, padding=1 if stride == 1 else 0, ceil_mode=True)

    def inception(inputs: int, one: int, reduce3: int, three: int, reduce5: int, five: int, project: int) -> nn.Module:
        return Branches(
            branch1=_conv(inputs, one),
            branch2=nn.Sequential(_conv(inputs, reduce3), _conv(reduce3, three, 3, padding=1)),
            branch3=nn.Sequential(_conv(inputs, reduce5), _conv(reduce5, five, 3, padding=1)),
            branch4=nn.Sequential(pool(stride=1), _conv(inputs, project)),
        )

    layers: dict[str, nn.Module] = {
        "conv1": _conv(3, 64, 7, stride=2, padding=3),
        "pool1": pool(),
        "conv2": _conv(64, 64),
        "conv3": _conv(64, 192, 3, padding=1),
        "pool2": pool(),
        "inception3a": inception(192, 64, 96, 128, 16, 32, 32),
        "inception3b": inception(256, 128, 128, 192, 32, 96, 64),
        "pool3": pool(),
        "inception4a": inception(480, 192, 96, 208, 16, 48, 64),
        "inception4b": inception(512, 160, 112, 224, 24, 64, 64),
        "inception4c": inception(512, 128, 128, 256, 24, 64, 64),
        "inception4d": inception(512, 112, 144, 288, 32, 64, 64),
        "inception4e": inception(528, 256, 160, 320, 32, 128, 128),
        "pool4": nn.MaxPool2d(2, 2, ceil_mode=True),
        "inception5a": inception(832, 256, 160, 320, 32, 128, 128),
        "inception5b": inception(832, 384, 192, 384, 48, 128, 128),
    }
    return _classifier(layers, 1024, classes)


def inception_v3(classes: int = 1000) -> nn.Module:
    """Return Inception-v3 in eval mode, random weights, without the auxiliary classifier: 23,834,568 parameters.

    References
    ----------
    C. Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016, Table 1.
    """

    def chain(*layers: nn.Module) -> nn.Module:
        return nn.Sequential(*layers)

    def average() -> nn.Module:
        return nn.AvgPool2d(3, 1, padding=1)

    def double3(inputs: int, reduce: int, outputs: int, stride: int = 1) -> nn.Module:
        padding = 1 if stride == 1 else 0
        return chain(_conv(inputs, reduce), _conv(reduce, outputs, 3, padding=1), _conv(outputs, outputs, 3, stride, padding))

    def wide(inputs: int, outputs: int) -> nn.Module:
        return _conv(inputs, outputs, (1, 7), padding=(0, 3))

    def tall(inputs: int, outputs: int) -> nn.Module:
        return _conv(inputs, outputs, (7, 1), padding=(3, 0))

    def block_a(inputs: int, project: int) -> nn.Module:  # figure 5: 5x5 and two 3x3 beside each other
        return Branches(
            branch1=_conv(inputs, 64),
            branch5=chain(_conv(inputs, 48), _conv(48, 64, 5, padding=2)),
            branch3=double3(inputs, 64, 96),
            branch_pool=chain(average(), _conv(inputs, project)),
        )

    def grid_b(inputs: int) -> nn.Module:  # figure 10: halving the grid
        return Branches(branch3=_conv(inputs, 384, 3, stride=2), branch33=double3(inputs, 64, 96, stride=2), branch_pool=nn.MaxPool2d(3, 2))

    def block_c(inputs: int, inner: int) -> nn.Module:  # figure 6: 7x7 factored into 1x7 and 7x1
        return Branches(
            branch1=_conv(inputs, 192),
            branch7=chain(_conv(inputs, inner), wide(inner, inner), tall(inner, 192)),
            branch77=chain(_conv(inputs, inner), tall(inner, inner), wide(inner, inner), tall(inner, inner), wide(inner, 192)),
            branch_pool=chain(average(), _conv(inputs, 192)),
        )

    def grid_d(inputs: int) -> nn.Module:
        return Branches(
            branch3=chain(_conv(inputs, 192), _conv(192, 320, 3, stride=2)),
            branch7=chain(_conv(inputs, 192), wide(192, 192), tall(192, 192), _conv(192, 192, 3, stride=2)),
            branch_pool=nn.MaxPool2d(3, 2),
        )

    def split3() -> nn.Module:
        return Branches(wide=_conv(384, 384, (1, 3), padding=(0, 1)), tall=_conv(384, 384, (3, 1), padding=(1, 0)))

    def block_e(inputs: int) -> nn.Module:  # figure 7: the filter bank spread wide
        return Branches(
            branch1=_conv(inputs, 320),
            branch3=chain(_conv(inputs, 384), split3()),
            branch33=chain(_conv(inputs, 448), _conv(448, 384, 3, padding=1), split3()),
            branch_pool=chain(average(), _conv(inputs, 192)),
        )

    layers: dict[str, nn.Module] = {
        "conv1": _conv(3, 32, 3, stride=2),
        "conv2": _conv(32, 32, 3),
        "conv3": _conv(32, 64, 3, padding=1),
        "pool1": nn.MaxPool2d(3, 2),
        "conv4": _conv(64, 80),
        "conv5": _conv(80, 192, 3),
        "pool2": nn.MaxPool2d(3, 2),
        "mixed5b": block_a(192, 32),
        "mixed5c": block_a(256, 64),
        "mixed5d": block_a(288, 64),
        "mixed6a": grid_b(288),
        "mixed6b": block_c(768, 128),
        "mixed6c": block_c(768, 160),
        "mixed6d": block_c(768, 160),
        "mixed6e": block_c(768, 192),
        "mixed7a": grid_d(768),
        "mixed7b": block_e(1280),
        "mixed7c": block_e(2048),
    }
    return _classifier(layers, 2048, classes)


def images(size: int, count: int = 1) -> torch.Tensor:
    """Return `count` images of `size` x `size` pixels on the meta device: their shape, without data."""
    return torch.empty(count, 3, size, size, device="meta")


class Branches(nn.Module):
    """Modules side by side on one input, their outputs concatenated along the channels."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the concatenation of what the branches make of `x`."""
        return torch.cat([branch(x) for branch in self.children()], 1)


def _conv(inputs: int, outputs: int, kernel: Pair = 1, stride: int = 1, padding: Pair = 0) -> nn.Module:
    """Return a convolution without bias, batch norm and ReLU."""
    layers = {
        "conv": nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
        "norm": nn.BatchNorm2d(outputs, eps=0.001),
        "relu": nn.ReLU(inplace=True),
    }
    return nn.Sequential(OrderedDict(layers))


def _classifier(layers: dict[str, nn.Module], features: int, classes: int) -> nn.Module:
    """Return the layers with average pooling, dropout and a linear classifier behind them, in eval mode."""
    end = {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "dropout": nn.Dropout(), "fc": nn.Linear(features, classes)}
    return nn.Sequential(OrderedDict({**layers, **end})).eval()
