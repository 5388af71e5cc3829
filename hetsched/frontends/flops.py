"""FLOPs of torch's operators, by formulas of torch's counter, of this module and of the user."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count, shape_wrapper

from hetsched.errors import InvalidProblem
from hetsched.frontends.formulas import checked_flops, warn_unknown_flops

Formula = Callable[..., float]
"""A formula of torch's counter: it is called with the operator's arguments, shapes for tensors, and ``out_shape``."""

aten = torch.ops.aten


def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> float:
    """Return the work of scaled dot-product attention."""
    return float(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def attention_backward(made: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> float:
    """Return the work of the gradients of scaled dot-product attention."""
    return float(sdpa_backward_flop_count(made, query, key, value))  # type: ignore[no-untyped-call]


def product(left: Any, *_: Any, out_shape: Any, **__: Any) -> float:
    """Return the work of a product whose outputs are sums over the last dimension of the first factor."""
    return float(2 * math.prod(out_shape) * left[-1])


def sum_and_product(_: Any, left: Any, *__: Any, out_shape: Any, **___: Any) -> float:
    """Return the work of a product that is added to the first argument; the sum counts 0, as all elementwise work."""
    return product(left, out_shape=out_shape)


def summed_batches(_: Any, left: Any, *__: Any, out_shape: Any, **___: Any) -> float:
    """Return the work of matrix products that are summed over the batch."""
    return float(left[0] * product(left, out_shape=out_shape))


def grouped_product(left: Any, right: Any, *_: Any, **__: Any) -> float:
    """Return the work of grouped matrix products; the groups partition rows, columns or terms."""
    rows = math.prod(left[:-1]) if len(right) == 3 else left[-2]
    return float(2 * rows * left[-1] * right[-1])


def convolution(_: Any, weight: Any, *__: Any, out_shape: Any, **___: Any) -> float:
    """Return the work of a convolution: each output is a sum over a kernel and the input channels of its group."""
    return float(2 * math.prod(out_shape) * math.prod(weight[1:]))


def transposed_convolution(source: Any, weight: Any, *_: Any, **__: Any) -> float:
    """Return the work of a transposed convolution: each input is multiplied by a kernel for each output channel of its group."""
    return float(2 * math.prod(source) * math.prod(weight[1:]))


def fourier(source: Any, dim: Any, *_: Any, out_shape: Any, **__: Any) -> float:
    """Return the work of complex Fourier transforms of a power of two, 5 N log N, which is usual for any length."""
    length = math.prod(max(source[d], out_shape[d]) for d in dim)
    return float(5 * math.prod(max(pair) for pair in zip(source, out_shape, strict=True)) * math.log2(max(length, 1)))


def real_fourier(source: Any, dim: Any, *_: Any, out_shape: Any, **__: Any) -> float:
    """Return the work of Fourier transforms from or to real numbers: half of the complex ones."""
    return fourier(source, dim, out_shape=out_shape) / 2


def packed(weight: torch.ScriptObject) -> list[torch.Tensor]:
    """Return the weight and the bias in the packed weight of a quantised module."""
    with unset_fake_temporarily():
        tensors = [leaf for leaf in tree_leaves(weight.__getstate__()) if isinstance(leaf, torch.Tensor)]
    return [tensor for tensor in tensors if tensor.is_quantized or tensor.is_floating_point()]


def quantised_convolution(source: Any, weight: Any, *_: Any, out_shape: Any, **__: Any) -> float:
    """Return the work of a convolution with a packed weight."""
    (kernel,) = (tensor.shape for tensor in packed(weight) if tensor.dim() == len(source))
    return convolution(source, kernel, out_shape=out_shape)


_OURS: dict[str, Formula] = {
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_fused_attention_overrideable",
            "_scaled_dot_product_attention_math_for_mps",
        ),
        attention,
    ),
    **dict.fromkeys(
        ("_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_fused_attention_overrideable_backward"),
        attention_backward,
    ),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"), grouped_product),
    **dict.fromkeys(
        (
            "_int_mm",
            "_scaled_mm_v2",
            "_weight_int8pack_mm",
            "_weight_int4pack_mm",
            "_weight_int4pack_mm_for_cpu",
            "mkldnn_linear",
            "_mixed_dtypes_linear",
            "_sparse_semi_structured_linear",
            "mv",
            "dot",
            "vdot",
        ),
        product,
    ),
    **dict.fromkeys(("_addmm_activation", "addmv"), sum_and_product),
    "addbmm": summed_batches,
    **dict.fromkeys(("_cdist_forward", "_euclidean_dist"), product),
    "_fft_c2c": fourier,
    **dict.fromkeys(("_fft_r2c", "_fft_c2r"), real_fourier),
    **dict.fromkeys(
        (
            "_conv_depthwise2d",
            "conv_depthwise3d",
            "slow_conv_dilated2d",
            "slow_conv_dilated3d",
            "slow_conv3d_forward",
            "mkldnn_convolution",
            "miopen_convolution",
            "miopen_depthwise_convolution",
            "cudnn_convolution_relu",
            "miopen_convolution_relu",
            "cudnn_convolution_add_relu",
            "miopen_convolution_add_relu",
        ),
        convolution,
    ),
    **dict.fromkeys(
        ("slow_conv_transpose2d", "slow_conv_transpose3d", "cudnn_convolution_transpose", "miopen_convolution_transpose"),
        transposed_convolution,
    ),
}
"""Formulas missing in torch's counter, by the operator's name in aten."""

_ELSEWHERE: dict[str, Formula] = {
    "torchvision::deform_conv2d": convolution,
    "transformers::grouped_mm_fallback": grouped_product,
    **dict.fromkeys((f"quantized::linear{kind}" for kind in ("", "_relu", "_dynamic", "_relu_dynamic", "_dynamic_fp16")), product),
    **{f"quantized::conv{n}d{kind}": quantised_convolution for n in (1, 2, 3) for kind in ("", "_relu", "_dynamic")},
    **dict.fromkeys((f"quantized::{name}" for name in ("add", "add_relu", "mul", "mul_relu", "cat")), lambda *_, **__: 0.0),
    **dict.fromkeys(
        (f"torchvision::{name}" for name in ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")), lambda *_, **__: 0.0
    ),
}
"""Formulas of operators of other packages, by name: they are registered when the package is imported."""

_NO_PRODUCTS = re.compile(
    r"""
    # creation, copies, moves, gathering, sorting and random numbers
    (new_)?(empty|zeros|ones|full|rand|randn|randint)(_like|_strided|_permuted)? | arange | range | linspace | logspace | eye | fill | zero
    | scalar_tensor | tri[lu](_indices)? | (\w+_)?window | randperm | copy | \w+_copy | clone | lazy_clone | lift(_fresh)? | to_copy
    | set | resize | resize_as | detach | contiguous | (unsafe_)?(view|split|split_with_sizes) | reshape_alias | to_(dense|mkldnn)
    | cat | chunk_cat | stack | block_diag | diag_embed | repeat | repeat_interleave | roll | flip | rot90 | narrow | unfold
    | (pixel|channel)_(un)?shuffle | im2col | col2im | (as_strided|select|slice|diagonal)(_scatter)? | transpose | squeeze | unsqueeze | t
    | \w+_pad(_nd|[123]d) | (constant_)?pad_nd | embedding(_dense|_renorm|_bag\w*)? | (unsafe_)?(masked_)?index(_\w+)? | gather
    | scatter(_\w+)? | masked_(fill|scatter|select) | take | put | nonzero(_static)? | sort | topk | kthvalue | \w*median | mode | unique\w*
    | searchsorted | bucketize | isin | bincount | hist\w* | local_scalar_dense | bernoulli | binomial | cauchy | exponential | geometric
    | (log_)?normal(_functional)? | random | uniform | poisson | multinomial | (native_|fused_)?dropout | rrelu_with_noise\w* | masked_scale
    | assert_\w+ | functional_assert_\w+ | \w*sym_constrain_range\w* | sym_\w+ | record_stream | jagged_to_padded_dense\w*
    | padded_dense_to_jagged\w* | pack_padded_sequence | complex | polar | pin_memory | new_zeros_with_same_feature_meta | fused_sdp_choice
    | q_\w+ | qscheme | int_repr | (sample_)?dirichlet(_grad)? | standard_gamma(_grad)? | philox_\w+ | fft_r?fftfreq | is_\w+ | allclose
    | linalg_check_errors
    # a few operations for each number: elementwise, reductions, running sums, norms, pooling, interpolation, losses
    | floor_divide | foreach_(?!mm)\w+ | fused_(adam|adamw|sgd|adagrad) | amp_\w+ | (log)?cum(sum|prod|max|min|sumexp)(_helper)? | trace
    | dist | segment_reduce | aminmax | addr | linalg_cross | (log_|safe_|masked_)?softmax | log_sigmoid(_forward)? | hash_tensor
    | (native_|cudnn_|miopen_|fused_)?(batch|layer|group|rms)_norm(_\w+)? | native_norm | renorm | weight_norm_interface
    | (adaptive_|fractional_|mkldnn_)*(avg|max)_(un)?pool[123]d(_with_indices)? | upsample_\w+ | (cudnn_)?grid_sampler(_[23]d)?
    | (cudnn_)?affine_grid_generator | \w*_loss(2d)?(_forward)? | binary_cross_entropy(_with_logits)? | (leaky_|add_)?relu | [gc]?elu | glu
    | glu_jvp | hard(shrink|sigmoid|swish|tanh) | soft(plus|shrink) | mish | prelu_kernel | threshold | thnn_fused_(gru|lstm)_cell
    | (de)?quantize(_\w+)? | fake_quantize\w* | fused_moving_avg_obs_fq_helper\w* | transform_bias_rescale_qkv
    """,
    re.VERBOSE,
)
"""Names, without ``_backward`` and surrounding underscores, of operators that count 0, as in torch's counter."""


class Formulas:
    """The FLOPs of operators: by a formula of the user, of torch or of this module, 0, or unknown.

    Parameters
    ----------
    own : mapping
        The user's formulas, as for `hetsched.frontends.torch.capture`.

    Attributes
    ----------
    unknown : set of str
        The operators of unknown work so far.

    Raises
    ------
    InvalidProblem
        A key is not an operator, or a value cannot be called.
    """

    def __init__(self, own: Mapping[Any, Formula] | None = None) -> None:
        formulas = {getattr(aten, name): formula for name, formula in _OURS.items() if hasattr(aten, name)}
        given = {_operator(key): formula for key, formula in (own or {}).items()}
        self.unknown: set[str] = set()
        self._given = set(given)
        self._known = {
            **{packet: shape_wrapper(formula) for packet, formula in formulas.items()},  # type: ignore[no-untyped-call]
            **flop_registry,
            **{packet: f if getattr(f, "_get_raw", False) else shape_wrapper(f) for packet, f in given.items()},  # type: ignore[no-untyped-call]
        }

    def __contains__(self, operator: object) -> bool:
        """Return whether the work of an operator is known."""
        return isinstance(operator, OpOverload) and (self._formula(operator) is not None or _no_products(operator))

    def _formula(self, operator: OpOverload[..., Any]) -> Formula | None:
        elsewhere = _ELSEWHERE.get(operator._schema.name)
        known = self._known.get(operator._overloadpacket) or self._known.get(_twin(operator))
        return known or (elsewhere and shape_wrapper(elsewhere))  # type: ignore[no-untyped-call]

    def count(self, operator: OpOverload[..., Any], args: Any, kwargs: Any, made: Any) -> float:
        """Return the FLOPs of a call with the result `made`, or NaN if they are unknown.

        Raises
        ------
        InvalidProblem
            A formula of the user fails, or does not return a number >= 0.
        """
        packet, formula = operator._overloadpacket, self._formula(operator)
        if formula is None:
            if _no_products(operator):
                return 0.0
            self.unknown.add(str(packet))
            return math.nan
        if packet not in self._given:
            return float(formula(*args, **kwargs, out_val=made))
        return checked_flops(str(packet), formula, *args, **kwargs, out_val=made)

    def warn_unknown(self) -> None:
        """Emit one warning that names all operators of unknown work."""
        warn_unknown_flops(
            self.unknown, "flop_formulas={{torch.ops.{}: ...}}, or register them with torch.utils.flop_counter.register_flop_formula"
        )


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the FLOPs of the operators that run; one of unknown work counts as its decomposition, if there is one."""

    def __init__(self, formulas: Formulas) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.formulas = formulas
        self.total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self.formulas and func.namespace != "prim":
            with self:
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        made = func(*args, **kwargs)
        if func.namespace != "prim":
            self.total += self.formulas.count(func, args, kwargs, made)
        return made


@functools.cache
def _no_products(operator: OpOverload[..., Any]) -> bool:
    """Return whether an operator is known to have no work that torch's counter counts: matrix products and convolutions."""
    if operator.is_view:
        return True
    for packet in (operator._overloadpacket, _twin(operator)):
        overloads: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
        if any({torch.Tag.pointwise, _REDUCTION} & set(getattr(packet, overload).tags) for overload in overloads):
            return True
    space, _, name = operator._schema.name.partition("::")
    return space == "aten" and _NO_PRODUCTS.fullmatch(re.sub(r"_backward(_\w+)?$", "", name.strip("_"))) is not None


@functools.cache
def _twin(operator: OpOverload[..., Any]) -> OpOverloadPacket[..., Any]:
    """Return the out-of-place version of an in-place operator, or else the operator itself."""
    space, _, name = operator._schema.name.partition("::")
    twin: OpOverloadPacket[..., Any] = getattr(getattr(torch.ops, space), name.rstrip("_"), operator._overloadpacket)
    return twin


_REDUCTION = getattr(torch.Tag, "reduction", torch.Tag.pointwise)  # older torch has no such tag


def _operator(key: Any) -> OpOverloadPacket[..., Any]:
    """Return the operator of a key of the user's formulas."""
    key = getattr(key, "_opoverload", key)  # of torch.library.custom_op
    packet = getattr(key, "_overloadpacket", key)
    if not isinstance(packet, OpOverloadPacket):
        raise InvalidProblem(f"flop_formulas has a formula for {key!r}, which is not an operator; name one as torch.ops.library.operator")
    return packet
