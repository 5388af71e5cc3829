"""Operators of ONNX and of ONNX Runtime: their types among those of captured models, their FLOPs and their sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hetsched.frontends.formulas import checked_flops, warn_unknown_flops
from hetsched.problem.graph import Shape

Lengths = tuple[int, ...]
Formula = Callable[..., float]
"""FLOPs of a call: a function of the shapes of its inputs, of its attributes by name, and of ``out_shape``."""


class Call(NamedTuple):
    """A node whose tensors have known shapes."""

    operator: str
    """Its type, after the name of its domain if that is not the default: ``"com.microsoft.FusedMatMul"``."""
    inputs: tuple[Lengths | None, ...]
    """The shape of each input; None for one that is left out."""
    out_shape: Lengths
    """The shape of its first output."""
    attributes: Mapping[str, Any]


# ---------------------------------------------------------------------- FLOPs


def convolution(_: Lengths, weight: Lengths, *__: Any, out_shape: Lengths, **___: Any) -> float:
    """Return the work of a convolution: each output is a sum over a kernel and the input channels of its group."""
    return 2.0 * math.prod(out_shape) * math.prod(weight[1:])


def transposed_convolution(source: Lengths, weight: Lengths, *_: Any, **__: Any) -> float:
    """Return the work of a transposed convolution: each input is multiplied by a kernel for each output channel of its group."""
    return 2.0 * math.prod(source) * math.prod(weight[1:])


def product(left: Lengths, *_: Any, out_shape: Lengths, transA: int = 0, **__: Any) -> float:
    """Return the work of a product whose outputs are sums over the last dimension of the first factor, or with `transA` the one before."""
    return 2.0 * math.prod(out_shape) * left[-2 if transA else -1]


def quantised(formula: Formula) -> Formula:
    """Return the work of a convolution or product whose second factor is after the scale and zero point of the first."""
    return lambda source, _scale, _zero, weight, *_, out_shape, **settings: formula(source, weight, out_shape=out_shape, **settings)


def einsum(*factors: Lengths, equation: str, out_shape: Lengths, **_: Any) -> float:
    """Return the work of products of two factors after the other, as matrix products; without a sum they count 0."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    named = [_labelled(term, shape) for term, shape in zip(terms.split(","), factors, strict=True)]
    letters = [label for labels in named for label in labels]
    output = set(_labelled(result, out_shape)) if arrow else {label for label in letters if letters.count(label) == 1 or label.isdigit()}
    work, left = 0.0, named[0]
    for i, right in enumerate(named[1:], 2):
        later = output.union(*named[i:])
        summed = (left.keys() & right.keys()) - later
        kept = {label: length for label, length in (left | right).items() if label in later}
        if summed:
            work += 2.0 * math.prod(kept.values()) * math.prod(left[label] for label in summed)
        left = kept
    return work


def _labelled(term: str, shape: Lengths) -> dict[str, int]:
    """Return the length of each label; the dimensions of ``...`` have numbers, from the last."""
    before, dots, after = term.partition("...")
    free = len(shape) - len(before) - len(after) if dots else 0
    return dict(zip([*before, *map(str, range(free, 0, -1)), *after], shape, strict=True))


def recurrent(source: Lengths, weight: Lengths, recurrence: Lengths, *_: Any, **__: Any) -> float:
    """Return the work of recurrent layers: both weights are read for each step of each sequence."""
    return 2.0 * source[0] * source[1] * (math.prod(weight) + math.prod(recurrence))


def attention(
    query: Lengths,
    key: Lengths,
    value: Lengths,
    _mask: Any = None,
    past: Lengths | None = None,
    *_: Any,
    q_num_heads: int = 1,
    kv_num_heads: int = 1,
    **__: Any,
) -> float:
    """Return the work of attention: products of queries with keys, and of weights with values."""
    heads, width, value_width = query[1], query[-1], value[-1]
    if len(query) == 3:
        heads, width, value_width = q_num_heads, query[-1] // q_num_heads, value[-1] // kv_num_heads
    tokens = key[-2] + (past[-2] if past else 0)
    return 2.0 * query[0] * heads * query[-2] * tokens * (width + value_width)


def _attention_of_runtime(key: int | None, past: int, projects: bool = False) -> Formula:
    """Return the formula of an attention of ONNX Runtime, by the places of the keys and of the past keys among the inputs."""

    def formula(*inputs: Lengths | None, out_shape: Lengths, **_: Any) -> float:
        source, weight = inputs[:2]
        assert source is not None
        keys = inputs[key] if key is not None and len(inputs) > key else None
        batch, queries, width = out_shape
        tokens = queries if keys is None else keys[2 if len(keys) == 4 else 1]
        before = inputs[past] if len(inputs) > past else None
        tokens += before[-2] if before else 0
        work = 4.0 * batch * queries * tokens * width
        return work + (2.0 * batch * queries * source[-1] * weight[-1] if projects and weight else 0.0)

    return formula


def packed_product(left: Lengths, *_: Any, N: int, **__: Any) -> float:
    """Return the work of a product with a matrix of `N` columns that is stored in blocks of few bits."""
    return 2.0 * math.prod(left) * N


def linear_model(source: Lengths, *_: Any, coefficients: Any = (), support_vectors: Any = (), **__: Any) -> float:
    """Return the work of a linear model, or of a support vector machine, whose weights are attributes."""
    return 2.0 * math.prod(source[:-1]) * len(support_vectors or coefficients)


_RUNTIME = "com.microsoft."
FORMULAS: Mapping[str, Formula] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv", f"{_RUNTIME}FusedConv", f"{_RUNTIME}NhwcFusedConv"), convolution),
    **dict.fromkeys(("QLinearConv", f"{_RUNTIME}QLinearConv"), quantised(convolution)),
    "ConvTranspose": transposed_convolution,
    **dict.fromkeys(("Gemm", "MatMul", "MatMulInteger"), product),
    **dict.fromkeys(
        (_RUNTIME + name for name in ("FusedGemm", "FusedMatMul", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm")), product
    ),
    "QLinearMatMul": product,
    f"{_RUNTIME}MatMulNBits": packed_product,
    "Einsum": einsum,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), recurrent),
    "Attention": attention,
    **dict.fromkeys(
        (f"ai.onnx.ml.{name}" for name in ("LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor")), linear_model
    ),
    f"{_RUNTIME}MultiHeadAttention": _attention_of_runtime(1, 6),
    f"{_RUNTIME}GroupQueryAttention": _attention_of_runtime(1, 3),
    f"{_RUNTIME}Attention": _attention_of_runtime(None, 4, projects=True),
    f"{_RUNTIME}QAttention": _attention_of_runtime(None, 8, projects=True),
}
"""FLOPs of operators with matrix products or convolutions, as `hetsched.frontends.torch.capture` counts them."""

_NO_PRODUCTS = re.compile(
    r"""
    # creation, copies, moves, gathering, sorting and random numbers
    Constant(OfShape)? | EyeLike | Range | Random(Normal|Uniform)(Like)? | Bernoulli | Multinomial | \w*Window | Cast(Like)? | BitCast
    | Identity | Reshape | Flatten | (Un)?[Ss]queeze | Transpose | Expand | Tile | Pad | CenterCropPad | Slice | Split | Concat
    | (Depth|Space)To(Space|Depth) | Gather(Elements|ND)? | Scatter(Elements|ND)? | TensorScatter | Compress | NonZero | OneHot | Trilu
    | TopK | Unique | ReverseSequence | Shape | Size | Col2Im | Dropout | NonMaxSuppression | Where | Arg(Max|Min)
    # a few operations for each number: elementwise, reductions, running sums, norms, pooling, interpolation, losses
    | Abs | Neg | Sign | (Sin|Cos|Tan|Asin|Acos|Atan)h? | Exp | Log | Sqrt | Reciprocal | Erf | Ceil | Floor | Round | Not
    | Is(Inf|NaN) | Clip | Add | Sub | Mul | Div | Mod | Pow | Max | Min | Sum | Mean | And | Or | Xor | BitShift
    | Bitwise(And|Or|Xor|Not) | (Greater|Less)(OrEqual)? | Equal | (Leaky|P|Thresholded)?Relu | (Ce|Ge|Se)lu | Elu | (Hard)?Sigmoid
    | (Hard)?Swish | SwiGLU | Mish | Soft(max|plus|sign) | LogSoftmax | Hardmax | Shrink | Reduce\w+ | Cum(Sum|Prod) | LRN
    | (Batch|Layer|Group|Instance|RMS|SimplifiedLayer|MeanVariance|Lp)Normalization | RotaryEmbedding | (Global)?(Average|Max|Lp)Pool
    | MaxUnpool | MaxRoiPool | RoiAlign | Resize | Upsample | GridSample | AffineGrid | (NegativeLogLikelihood|SoftmaxCrossEntropy)Loss
    | (Dynamic)?QuantizeLinear | DequantizeLinear
    # of other models of machine learning
    | ai\.onnx\.ml\.(
        ArrayFeatureExtractor | Binarizer | FeatureVectorizer | Imputer | LabelEncoder | Normalizer | OneHotEncoder | Scaler
        | TreeEnsemble(Classifier|Regressor)?
      )
    # of ONNX Runtime
    | com\.microsoft\.(
        (Skip|Embed|SkipSimplified)LayerNormalization | (Skip)?GroupNorm | (Bias|Fast|Quick)?Gelu
        | Bias(Add|SplitGelu|Dropout|Softmax) | QuantizeLinear | DequantizeLinear | RotaryEmbedding | GatherBlockQuantized | NhwcMaxPool
        | QLinear(Add|Mul|Sigmoid|LeakyRelu|Softmax|Concat|GlobalAveragePool|AveragePool|ReduceMean|Where)
      )
    """,
    re.VERBOSE,
)
"""Operators that count 0."""


class Formulas:
    """The FLOPs of calls: by a formula of the user, of this module, 0, or unknown.

    Parameters
    ----------
    own : mapping of str to function, optional
        The user's formulas, as for `hetsched.frontends.onnx.read`.
    """

    def __init__(self, own: Mapping[str, Formula] | None = None) -> None:
        self._own = dict(own or {})
        self._unknown: set[str] = set()

    def count(self, call: Call) -> float:
        """Return the FLOPs of a call, or NaN if they are unknown.

        Raises
        ------
        InvalidProblem
            A formula of the user fails, or does not return a number >= 0; or a call has not the inputs of its operator.
        """
        formula = self._own.get(call.operator, FORMULAS.get(call.operator))
        if formula is None:
            if _NO_PRODUCTS.fullmatch(call.operator):
                return 0.0
            self._unknown.add(call.operator)
            return math.nan
        return checked_flops(call.operator, formula, *call.inputs, out_shape=call.out_shape, **call.attributes)

    def warn_unknown(self) -> None:
        """Emit one warning that names all operators of unknown work."""
        warn_unknown_flops(self._unknown, "flop_formulas={{{!r}: ...}}")


# ---------------------------------------------------------------------- types and sizes


class Like(NamedTuple):
    """The operator of ONNX whose first result has the shape that an operator of ONNX Runtime has."""

    operator: str
    places: slice = slice(1)
    """Of its inputs among those of the operator of ONNX Runtime."""
    floats: bool = False
    """Whether the result is of float32; otherwise it is of the type of the first of these inputs."""
    same: tuple[int, ...] = (0,)
    """Places of the results of this shape."""


STANDARD = 13
"""The version of the operators in `LIKE`."""
LIKE: Mapping[str, Like] = {
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "BiasSoftmax", "RotaryEmbedding"), Like("Identity")),
    **dict.fromkeys(("GroupNorm", "MultiHeadAttention", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"), Like("Identity")),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), Like("Identity", same=(0, 3))),
    "DequantizeLinear": Like("Identity", floats=True),
    "FusedConv": Like("Conv", slice(3)),
    "FusedGemm": Like("Gemm", slice(3)),
    "FusedMatMul": Like("MatMul", slice(2)),
    "QGemm": Like("Gemm", slice(0, 9, 3)),
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulIntegerToFloat"), Like("MatMul", slice(2), floats=True)),
    "QLinearAdd": Like("Add", slice(0, 6, 3)),
    "QLinearMul": Like("Mul", slice(0, 6, 3)),
    "QLinearConcat": Like("Concat", slice(2, None, 3)),
    "QLinearAveragePool": Like("AveragePool"),
    "QLinearGlobalAveragePool": Like("GlobalAveragePool"),
    "QLinearReduceMean": Like("ReduceMean"),
}
"""By operator of ONNX Runtime, where sizes are those of the layout of ONNX."""


TYPES: Mapping[str, str] = {
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv", "FusedConv", "NhwcFusedConv"), "conv{}d"),
    "ConvTranspose": "conv_transpose{}d",
    "DeformConv": "deform_conv{}d",
    **dict.fromkeys(("Gemm", "FusedGemm", "QGemm", "MatMulNBits"), "linear"),
    **dict.fromkeys(("MatMul", "FusedMatMul", "MatMulInteger", "QLinearMatMul", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"), "matmul"),
    "Einsum": "bmm",
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention"), "scaled_dot_product_attention"),
    **dict.fromkeys(("MaxPool", "NhwcMaxPool"), "max_pool{}d"),
    "AveragePool": "avg_pool{}d",
    "GlobalAveragePool": "adaptive_avg_pool{}d",
    "GlobalMaxPool": "adaptive_max_pool{}d",
    "BatchNormalization": "batch_norm",
    "GroupNormalization": "group_norm",
    "InstanceNormalization": "instance_norm",
    **dict.fromkeys(("LayerNormalization", "SkipLayerNormalization", "EmbedLayerNormalization"), "layer_norm"),
    **dict.fromkeys(("RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"), "rms_norm"),
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "QuickGelu"), "gelu"),
    "QuantizeLinear": "quantize_linear",
    "DequantizeLinear": "dequantize_linear",
    "PRelu": "prelu",
    "HardSigmoid": "hardsigmoid",
    "HardSwish": "hardswish",
    "Clip": "clamp",
    "Concat": "cat",
    **dict.fromkeys(("Cast", "CastLike"), "to"),
    "Tile": "repeat",
    "Gather": "index_select",
    "GatherElements": "gather",
    **dict.fromkeys(("GatherND", "GatherBlockQuantized"), "index"),
    **dict.fromkeys(("ScatterND", "ScatterElements"), "index_put"),
    "DepthToSpace": "pixel_shuffle",
    "SpaceToDepth": "pixel_unshuffle",
    "ReduceMean": "mean",
    "ReduceSum": "sum",
    **dict.fromkeys(("Reshape", "Flatten"), "clone"),
}
"""Operator types of captured models, by those of ONNX; ``{}`` is the number of spatial dimensions. Others are written in lower case."""


def operator_type(call: Call) -> str:
    """Return the operator type that a captured model has for a call, so that rules, classes and costs of operators apply."""
    domain, _, name = call.operator.rpartition(".")
    if domain and name not in TYPES:
        if not name.startswith("QLinear"):
            return call.operator
        name = name.removeprefix("QLinear")
    return TYPES.get(name, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).format(len(call.out_shape) - 2)


def shape(op: str, call: Call, flops: float) -> Shape | None:
    """Return the sizes of a convolution, a product of matrices, an attention or a pooling."""
    out, elements = call.out_shape, math.prod(call.out_shape)
    if not elements:
        return None
    if op.startswith(("conv", "deform")) and math.isfinite(flops):
        weight = call.inputs[3 if "QLinear" in call.operator else 1]
        assert weight is not None
        kernel = weight[2:]
        return Shape(
            elements / out[1], out[1], flops / (2 * elements), kernel, _setting(call, "strides", kernel), call.attributes.get("group", 1)
        )
    if op in ("linear", "matmul", "bmm") or "attention" in op:
        return Shape(elements / out[-1], out[-1], flops / (2 * elements)) if math.isfinite(flops) else None
    source = call.inputs[0] if call.inputs else None
    if "pool" in op and len(out) > 2 and source is not None:
        kernel = () if "adaptive" in op else tuple(call.attributes.get("kernel_shape", ()))
        window = math.prod(kernel) if kernel else max(math.prod(source) / elements, 1.0)
        return Shape(elements / out[1], out[1], window, kernel, _setting(call, "strides", kernel))
    return None


def _setting(call: Call, name: str, kernel: Lengths) -> Lengths:
    """Return an attribute with a number for each spatial dimension; 1 without it."""
    return tuple(call.attributes.get(name, (1,) * len(kernel)))
