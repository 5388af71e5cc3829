"""A catalogue of devices with the figures of their vendors' data sheets.

Peaks are dense (no structured sparsity) and at the vendor's nominal clock; ``float16`` and
``bfloat16`` are tensor-core rates with float32 accumulation if the device has tensor cores,
``tfloat32`` is the tensor-core rate for float32 data, ``float32`` and ``float64`` are rates of the
ordinary units. Memory is in decimal gigabytes. Launch overheads are not on data sheets: see
`GPU_LAUNCH` and `CPU_LAUNCH`; a measured overhead is passed as ``launch_overhead=``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetsched.arguments import checked
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Device

GPU_LAUNCH = 5e-6
"""Seconds per operator on a GPU: a round figure for the few microseconds of a CUDA kernel launch
(compare A. Gray, "Getting Started with CUDA Graphs", NVIDIA technical blog, 2019)."""

CPU_LAUNCH = 8e-6
"""Seconds per operator on a CPU: the overhead of the PyTorch interpreter (7 to 9 microseconds measured
with torch 2.13 on a Xeon)."""

_T, _G, _M = 1e12, 1e9, 2**20


@checked
@dataclass(frozen=True)
class Specification:
    """One entry of the catalogue: FLOP/s per dtype, bytes, bytes per second, the source, multiprocessors or cores, bytes of the last
    cache, seconds, and the family of `Analytic`."""

    peak_flops: Mapping[str, float]
    memory_bytes: float
    memory_bandwidth: float
    source: str
    units: int
    cache_bytes: float
    launch_overhead: float = GPU_LAUNCH
    family: str = "cuda"


CATALOGUE: Mapping[str, Specification] = {
    # 26 cores x 2.0 GHz x 2 AVX-512 units x 16 lanes x 2 (multiply-add); 6 channels x 8 bytes x 2666 MT/s
    "skylake": Specification(
        {"float32": 26 * 2.0e9 * 2 * 16 * 2, "float64": 26 * 2.0e9 * 2 * 8 * 2},
        768 * _G,
        6 * 8 * 2666e6,
        "Intel ARK, Xeon Platinum 8164 (Skylake-SP, 2.00 GHz): 26 cores, 2 AVX-512 FMA units, 6 x DDR4-2666, 768 GB; 35.75 MB of L3",
        26,
        35.75 * _M,
        CPU_LAUNCH,
        "cpu",
    ),
    "p4": Specification({"float32": 5.5 * _T, "int8": 22 * _T}, 8 * _G, 192 * _G, "NVIDIA Tesla P4 data sheet", 20, 2 * _M),
    "p100": Specification(
        {"float64": 5.3 * _T, "float32": 10.6 * _T, "float16": 21.2 * _T},
        16 * _G,
        732 * _G,
        "NVIDIA Tesla P100 data sheet, SXM2 16 GB",
        56,
        4 * _M,
    ),
    "v100": Specification(
        {"float64": 7.8 * _T, "float32": 15.7 * _T, "float16": 125 * _T},
        32 * _G,
        900 * _G,
        "NVIDIA Tesla V100 data sheet, SXM2 32 GB",
        80,
        6 * _M,
    ),
    "t4": Specification(
        {"float32": 8.1 * _T, "float16": 65 * _T, "int8": 130 * _T},
        16 * _G,
        320 * _G,
        "NVIDIA T4 data sheet; bandwidth from its product brief",
        40,
        4 * _M,
    ),
    "rtx2080ti": Specification(
        {"float32": 13.4 * _T, "float16": 53.8 * _T},
        11 * _G,
        616 * _G,
        "NVIDIA Turing GPU architecture white paper (2018), RTX 2080 Ti reference clocks",
        68,
        5.5 * _M,
    ),
    "rtx3060ti": Specification(
        {"float32": 16.2 * _T, "tfloat32": 16.2 * _T, "float16": 32.4 * _T, "bfloat16": 32.4 * _T},
        8 * _G,
        448 * _G,
        "NVIDIA RTX 3060 Ti: 4864 cores x 1.665 GHz x 2; tensor rates per core and clock as in the NVIDIA Ampere GA102 white paper",
        38,
        4 * _M,
    ),
    "a100": Specification(
        {"float64": 9.7 * _T, "float32": 19.5 * _T, "tfloat32": 156 * _T, "float16": 312 * _T, "bfloat16": 312 * _T, "int8": 624 * _T},
        40 * _G,
        1555 * _G,
        "NVIDIA A100 Tensor Core GPU data sheet, 40 GB",
        108,
        40 * _M,
    ),
    "h100": Specification(
        {"float64": 34 * _T, "float32": 67 * _T, "tfloat32": 494.5 * _T, "float16": 989.5 * _T, "bfloat16": 989.5 * _T, "int8": 1979 * _T},
        80 * _G,
        3350 * _G,
        "NVIDIA H100 Tensor Core GPU data sheet, SXM (half of the figures printed with sparsity)",
        132,
        50 * _M,
    ),
    "h200": Specification(
        {"float64": 34 * _T, "float32": 67 * _T, "tfloat32": 494.5 * _T, "float16": 989.5 * _T, "bfloat16": 989.5 * _T, "int8": 1979 * _T},
        141 * _G,
        4800 * _G,
        "NVIDIA H200 Tensor Core GPU data sheet, SXM (half of the figures printed with sparsity)",
        132,
        50 * _M,
    ),
}


def names() -> tuple[str, ...]:
    """Return the kinds of device in the catalogue."""
    return tuple(CATALOGUE)


@checked
def device(kind: str, name: str | None = None, node: str = "", **overrides: Any) -> Device:
    """Return a device of the catalogue.

    Parameters
    ----------
    kind : str
        One of `names`; case, spaces, hyphens and underscores are ignored (``"RTX 2080 Ti"``).
    name : str, optional
        Its name in the cluster; default: the kind.
    node : str
        The host of the device.
    **overrides
        Other arguments of `Device`, which replace the catalogue's figures.

    Raises
    ------
    InvalidProblem
        The kind is not in the catalogue.

    Examples
    --------
    >>> device("a100", "gpu0", memory_bytes=80e9).memory_bytes
    80000000000.0
    """
    key = "".join(c for c in str(kind).lower() if c not in " -_")
    if key not in CATALOGUE:
        raise InvalidProblem(
            f"device kind {kind!r} is not in the catalogue ({', '.join(CATALOGUE)}); choose one of these or make a hetsched.Device"
        )
    entry = CATALOGUE[key]
    figures = {
        "peak_flops": entry.peak_flops,
        "memory_bytes": entry.memory_bytes,
        "memory_bandwidth": entry.memory_bandwidth,
        "launch_overhead": entry.launch_overhead,
        "family": entry.family,
        "units": entry.units,
        "cache_bytes": entry.cache_bytes,
    }
    return Device(name or key, **{"kind": key, "node": node, **figures, **overrides})
