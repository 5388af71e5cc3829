"""Networks with parallel branches as PyTorch modules, written from their papers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from hetsched.arguments import COUNT, checked
from hetsched.errors import MissingDependency

try:
    import torch
except ImportError as error:
    raise MissingDependency("torch", "torch") from error

from torch import nn

Pair = int | tuple[int, int]


def googlenet(classes: int = 1000) -> nn.Module:
    """Return GoogLeNet in eval mode with random weights, without the auxiliary classifiers.

    It is the common version with batch norm, whose "5x5" branches are 3x3 convolutions: 6,624,904
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

    def block_a(inputs: int, project: int) -> nn.Module:  # figure 5: 5x5 and two 3x3 in parallel
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


def squeezenet(classes: int = 1000) -> nn.Module:
    """Return SqueezeNet 1.0 with complex bypass, one around every fire module, in eval mode with random weights.

    References
    ----------
    F. N. Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and < 0.5 MB model size", 2016,
    Table 1 and Figure 2.
    """

    def conv(inputs: int, outputs: int, kernel: int = 1, padding: int = 0) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, padding=padding), nn.ReLU(inplace=True))

    def fire(inputs: int, squeeze: int, expand: int) -> nn.Module:
        expanded = nn.Sequential(conv(inputs, squeeze), Branches(one=conv(squeeze, expand), three=conv(squeeze, expand, 3, padding=1)))
        bypass = nn.Identity() if inputs == 2 * expand else nn.Conv2d(inputs, 2 * expand, 1)
        return Sum(expanded, bypass)

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    layers = {
        "conv1": nn.Sequential(nn.Conv2d(3, 96, 7, 2), nn.ReLU(inplace=True)),
        "pool1": pool(),
        "fire2": fire(96, 16, 64),
        "fire3": fire(128, 16, 64),
        "fire4": fire(128, 32, 128),
        "pool4": pool(),
        "fire5": fire(256, 32, 128),
        "fire6": fire(256, 48, 192),
        "fire7": fire(384, 48, 192),
        "fire8": fire(384, 64, 256),
        "pool8": pool(),
        "fire9": fire(512, 64, 256),
        "dropout": nn.Dropout(),
        "conv10": conv(512, classes),
        "pool10": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
    }
    return nn.Sequential(OrderedDict(layers)).eval()


def nasnet_a(classes: int = 1000, *, cells: int = 4, filters: int = 44) -> nn.Module:
    """Return NASNet-A (`cells` @ 24 `filters`) in eval mode, random weights, without the auxiliary classifier.

    The defaults are those of the mobile network: three series of 4 normal cells, 1056 channels before the classifier.

    References
    ----------
    B. Zoph, V. Vasudevan, J. Shlens, Q. V. Le, "Learning transferable architectures for scalable image recognition", CVPR
    2018, Figures 2 and 4.
    """
    return NasNet(classes, cells, filters).eval()


def randwire(wirings: Sequence[Sequence[tuple[int, int]]], classes: int = 1000, *, channels: int = 78) -> nn.Module:
    """Return a randomly wired network in eval mode with random weights: a stage of Relu-SepConv nodes for each wiring.

    Parameters
    ----------
    wirings : sequence of sequences of (int, int)
        Edges between the nodes 0, 1, ... of each stage, each from a lower to a higher number. Stages after the first
        halve height and width and double the channels; nodes without predecessors read the stage's input, and the output is
        the mean over nodes without successors. Node inputs are summed with weights sigmoid(w).
    channels : int
        Channels of the first stage.

    References
    ----------
    S. Xie, A. Kirillov, R. Girshick, K. He, "Exploring randomly wired neural networks for image recognition", ICCV 2019,
    section 3 and Table 2.
    """
    layers: dict[str, nn.Module] = {
        "conv1": nn.Sequential(nn.Conv2d(3, channels // 2, 3, 2, 1, bias=False), nn.BatchNorm2d(channels // 2)),
        "conv2": nn.Sequential(nn.ReLU(), nn.Conv2d(channels // 2, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels)),
    }
    inputs = channels
    for x, edges in enumerate(wirings):
        layers[f"stage{x + 1}"] = Wiring(edges, inputs, channels * 2**x)
        inputs = channels * 2**x
    layers["conv6"] = nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU())
    return _classifier(layers, 1280, classes)


@checked(layers=COUNT, filters=COUNT)
def holography(layers: int = 30, filters: int = 24) -> nn.Module:
    """Return a series of `layers` 3x3 convolutions with random weights, in train mode.

    It computes a hologram, phases and amplitudes of three colours, from an image with depth. Each convolution except the last
    is followed by batch norm and ReLU, and pairs of them have a residual connection.

    References
    ----------
    L. Shi, B. Li, C. Kim, P. Kellnhofer, W. Matusik, "Towards real-time photorealistic 3D holography with deep neural
    networks", Nature 591, 2021.
    """
    pairs = [Sum(nn.Sequential(*(_conv(filters, filters, 3, padding=1) for _ in range(2))), nn.Identity()) for _ in range(layers // 2 - 1)]
    return nn.Sequential(_conv(4, filters, 3, padding=1), *pairs, nn.Conv2d(filters, 6, 3, padding=1))


def images(size: int, count: int = 1) -> torch.Tensor:
    """Return `count` images of `size` x `size` pixels on the meta device: their shape, without data."""
    return torch.empty(count, 3, size, size, device="meta")


class Branches(nn.Module):
    """Modules that read the same input; their outputs are concatenated along the channels."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        for name, branch in branches.items():
            self.add_module(name, branch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the concatenation of the branches' outputs."""
        return torch.cat([branch(x) for branch in self.children()], 1)


class Sum(nn.Module):
    """Modules that read the same input; their outputs are added."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the branches' outputs."""
        first, *rest = (branch(x) for branch in self.branches)
        for output in rest:
            first = first + output
        return torch.as_tensor(first)


class SepConv(nn.Sequential):
    """ReLU, a depthwise and a pointwise convolution, batch norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(inputs, inputs, kernel, stride, kernel // 2, groups=inputs, bias=False),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs, eps=0.001),
        )


class Wiring(nn.Module):
    """A stage of a randomly wired network."""

    def __init__(self, edges: Sequence[tuple[int, int]], inputs: int, outputs: int) -> None:
        super().__init__()
        count = max(max(edge) for edge in edges) + 1
        self.sources: list[list[int]] = [[] for _ in range(count)]
        for i, j in edges:
            self.sources[j].append(i)
        self.last = sorted(set(range(count)) - {i for i, _ in edges})
        first = [not sources for sources in self.sources]
        self.nodes = nn.ModuleList(
            SepConv(inputs if reads_input else outputs, outputs, stride=2 if reads_input else 1) for reads_input in first
        )
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(len(sources))) for sources in self.sources)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean over the nodes without successors."""
        made: list[torch.Tensor] = []
        for sources, node, weight in zip(self.sources, self.nodes, self.weights, strict=True):
            share, total = torch.sigmoid(weight), x
            for k, i in enumerate(sources):
                total = made[i] * share[k] if not k else total + made[i] * share[k]
            made.append(node(total))
        mean = made[self.last[0]]
        for i in self.last[1:]:
            mean = mean + made[i]
        return mean / len(self.last)


class NasNet(nn.Module):
    """A stem, three series of normal cells with a reduction cell before the second and third, and a classifier."""

    def __init__(self, classes: int, cells: int, filters: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32, eps=0.001))
        channels, before = 32, 32
        self.cells = nn.ModuleList()
        plan: list[tuple[type[_Cell], int]] = [(Reduction, filters // 4), (Reduction, filters // 2)]
        for row in range(3):
            plan += [(Reduction, filters * 2**row)] if row else []
            plan += [(Normal, filters * 2**row)] * cells
        shrunk = False
        for kind, width in plan:
            self.cells.append(kind(channels, before, width, shrunk))
            before, channels, shrunk = channels, width * kind.made, kind is Reduction
        self.relu, self.pool, self.fc = nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        before = x = self.stem(x)
        for cell in self.cells:
            before, x = x, cell(x, before)
        return torch.as_tensor(self.fc(self.pool(self.relu(x)).flatten(1)))


class _Cell(nn.Module):
    """The start of both kinds of cells: the last two outputs, each through a convolution to `width` channels."""

    made: int
    """Number of outputs that are concatenated."""

    def __init__(self, inputs: int, before: int, width: int, shrunk: bool) -> None:
        super().__init__()

        def adjust(channels: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(nn.ReLU(), nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width, eps=0.001))

        self.here, self.there = adjust(inputs), adjust(before, 2 if shrunk else 1)


def _twice(width: int, kernel: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(SepConv(width, width, kernel, stride), SepConv(width, width, kernel))


class Normal(_Cell):
    """The normal cell."""

    made = 6

    def __init__(self, inputs: int, before: int, width: int, shrunk: bool) -> None:
        super().__init__(inputs, before, width, shrunk)
        self.a, self.b, self.c = _twice(width, 3), _twice(width, 3), _twice(width, 5)
        self.d, self.e = _twice(width, 5), _twice(width, 3)
        self.average = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return the concatenation of five sums and the output before the last."""
        h, p = self.here(x), self.there(before)
        sums = [self.a(h) + h, self.b(p) + self.c(h), self.average(h) + p, self.average(p) + self.average(p), self.d(p) + self.e(p)]
        return torch.cat([p, *sums], 1)


class Reduction(_Cell):
    """The reduction cell, which halves height and width."""

    made = 4

    def __init__(self, inputs: int, before: int, width: int, shrunk: bool) -> None:
        super().__init__(inputs, before, width, shrunk)
        self.a, self.b, self.c = _twice(width, 5, 2), _twice(width, 7, 2), _twice(width, 7, 2)
        self.d, self.e = _twice(width, 5, 2), _twice(width, 3)
        self.highest, self.average = nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 2, 1, count_include_pad=False)
        self.smooth = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return the concatenation of the four sums that no other sum reads."""
        h, p = self.here(x), self.there(before)
        first, highest = self.a(h) + self.b(p), self.highest(h)
        second, third = highest + self.c(p), self.average(h) + self.d(p)
        return torch.cat([second, third, self.smooth(first) + second, self.e(first) + highest], 1)


def _conv(inputs: int, outputs: int, kernel: Pair = 1, stride: int = 1, padding: Pair = 0) -> nn.Module:
    """Return a convolution without bias, batch norm and ReLU."""
    layers = {
        "conv": nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
        "norm": nn.BatchNorm2d(outputs, eps=0.001),
        "relu": nn.ReLU(inplace=True),
    }
    return nn.Sequential(OrderedDict(layers))


def _classifier(layers: dict[str, nn.Module], features: int, classes: int) -> nn.Module:
    """Return the layers, followed by average pooling, dropout and a linear classifier, in eval mode."""
    end = {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "dropout": nn.Dropout(), "fc": nn.Linear(features, classes)}
    return nn.Sequential(OrderedDict({**layers, **end})).eval()
