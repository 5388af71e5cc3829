"""A catalogue of devices with the figures of their vendors' data sheets.

Peaks are dense (no structured sparsity) and at the vendor's nominal clock; ``float16`` and
``bfloat16`` are tensor-core rates with float32 accumulation if the device has tensor cores,
``tfloat32`` is the tensor-core rate for float32 data, ``float32`` and ``float64`` are rates of the
ordinary units. Memory is in decimal gigabytes. Launch overheads are not on data sheets: see
`GPU_LAUNCH` and `CPU_LAUNCH`; a measured overhead is passed as ``launch_overhead=``.

CPUs and Apple's GPUs have no units for ``float16`` products: that peak, where it is stated, is the one of ``float32``. The memory of a
CPU is the most that a board has; of an Apple GPU it is the share of the unified memory that Metal recommends as working set, 3/4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetsched.arguments import checked
from hetsched.chain.machine import Machine
from hetsched.costs import interconnects
from hetsched.costs.interconnects import Interconnect
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device

GPU_LAUNCH = 5e-6
"""Seconds per operator on a GPU: a round figure for the few microseconds of a CUDA kernel launch
(compare A. Gray, "Getting Started with CUDA Graphs", NVIDIA technical blog, 2019)."""

CPU_LAUNCH = 8e-6
"""Seconds per operator on a CPU: the overhead of the PyTorch interpreter (7 to 9 microseconds measured
with torch 2.13 on a Xeon)."""

_T, _G, _M = 1e12, 1e9, 2**20
_GA102 = "NVIDIA Ampere GA102 white paper (2021)"
_ADA = "NVIDIA Ada GPU architecture white paper (2023)"
MEMORY_TOLERANCE = 0.1
"""Relative difference of the memory that a driver reports and that of a kind: data sheets have gigabytes, often of 2^30 bytes."""


@checked
@dataclass(frozen=True)
class Specification:
    """One entry of the catalogue: FLOP/s per dtype, bytes, bytes per second, the source, multiprocessors or cores, bytes of the last
    cache (None if unknown), seconds, and the family of `Analytic`."""

    peak_flops: Mapping[str, float]
    memory_bytes: float
    memory_bandwidth: float
    source: str
    units: int
    cache_bytes: float | None
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
    "rtx3060": Specification(
        {"float32": 3584 * 1.777e9 * 2, "tfloat32": 3584 * 1.777e9 * 2, "float16": 3584 * 1.777e9 * 4, "bfloat16": 3584 * 1.777e9 * 4},
        12 * _G,
        360 * _G,
        "NVIDIA RTX 3060 12 GB: 3584 cores x 1.777 GHz x 2; tensor rates per core and clock as in the NVIDIA Ampere GA102 white paper",
        28,
        3 * _M,
    ),
    "rtx3090": Specification(
        {"float32": 35.6 * _T, "tfloat32": 35.6 * _T, "float16": 71 * _T, "bfloat16": 71 * _T},
        24 * _G,
        936 * _G,
        f"{_GA102}, GeForce RTX 3090",
        82,
        6 * _M,
    ),
    "rtxa6000": Specification(
        {"float32": 38.7 * _T, "tfloat32": 77.4 * _T, "float16": 154.8 * _T, "bfloat16": 154.8 * _T, "int8": 309.7 * _T},
        48 * _G,
        768 * _G,
        f"{_GA102}, RTX A6000",
        84,
        6 * _M,
    ),
    "a10": Specification(
        {"float32": 31.2 * _T, "tfloat32": 62.5 * _T, "float16": 125 * _T, "bfloat16": 125 * _T, "int8": 250 * _T},
        24 * _G,
        600 * _G,
        "NVIDIA A10 Tensor Core GPU data sheet",
        72,
        6 * _M,
    ),
    "a100-80gb": Specification(
        {"float64": 9.7 * _T, "float32": 19.5 * _T, "tfloat32": 156 * _T, "float16": 312 * _T, "bfloat16": 312 * _T, "int8": 624 * _T},
        80 * _G,
        2039 * _G,
        "NVIDIA A100 Tensor Core GPU data sheet, 80 GB SXM",
        108,
        40 * _M,
    ),
    "rtx4090": Specification(
        {"float32": 82.6 * _T, "tfloat32": 82.6 * _T, "float16": 165.2 * _T, "bfloat16": 165.2 * _T, "int8": 660.6 * _T},
        24 * _G,
        1008 * _G,
        f"{_ADA}, GeForce RTX 4090",
        128,
        72 * _M,
    ),
    "l4": Specification(
        {"float32": 30.3 * _T, "tfloat32": 60 * _T, "float16": 121 * _T, "bfloat16": 121 * _T, "int8": 242.5 * _T},
        24 * _G,
        300 * _G,
        "NVIDIA L4 Tensor Core GPU data sheet (half of the figures printed with sparsity)",
        58,
        48 * _M,
    ),
    "l40s": Specification(
        {"float32": 91.6 * _T, "tfloat32": 183 * _T, "float16": 362.05 * _T, "bfloat16": 362.05 * _T, "int8": 733 * _T},
        48 * _G,
        864 * _G,
        "NVIDIA L40S GPU data sheet",
        142,
        96 * _M,
    ),
    "rtx5090": Specification(
        {"float32": 104.8 * _T, "tfloat32": 104.8 * _T, "float16": 209.5 * _T, "bfloat16": 209.5 * _T, "int8": 838 * _T},
        32 * _G,
        1792 * _G,
        "NVIDIA RTX Blackwell GPU architecture white paper (2025), GeForce RTX 5090",
        170,
        96 * _M,
    ),
    "mi300x": Specification(
        {
            "float64": 81.7 * _T,
            "float32": 163.4 * _T,
            "tfloat32": 653.7 * _T,
            "float16": 1307.4 * _T,
            "bfloat16": 1307.4 * _T,
            "int8": 2614.9 * _T,
        },
        192 * _G,
        5300 * _G,
        "AMD Instinct MI300X data sheet",
        304,
        256 * _M,
        family="rocm",
    ),
    # Apple states bandwidths; lanes and clocks are those that users read: 76 cores x 128 lanes x 1.398 GHz x 2, 40 x 128 x 1.578 GHz x 2
    "apple-m2-ultra": Specification(
        {"float32": 27.2 * _T, "float16": 27.2 * _T},
        0.75 * 192 * 2**30,
        800 * _G,
        "Apple M2 Ultra, 76 GPU cores, 192 GB: Apple's press release (2023); peak from lanes and clock",
        76,
        None,
        family="metal",
    ),
    "apple-m4-max": Specification(
        {"float32": 16.2 * _T, "float16": 16.2 * _T},
        0.75 * 128 * 2**30,
        546 * _G,
        "Apple M4 Max, 40 GPU cores, 128 GB: Apple's press release (2024); peak from lanes and clock",
        40,
        None,
        family="metal",
    ),
    # 16 cores x 4.3 GHz x 2 AVX-512 units x 16 lanes x 2 (multiply-add); 2 channels x 8 bytes x 5600 MT/s
    "ryzen9950x": Specification(
        {"float64": 16 * 4.3e9 * 2 * 8 * 2, "float32": 16 * 4.3e9 * 2 * 16 * 2, "float16": 16 * 4.3e9 * 2 * 16 * 2},
        192 * _G,
        2 * 8 * 5600e6,
        "AMD Ryzen 9 9950X specifications: 16 cores, 4.3 GHz, 2 x DDR5-5600, 192 GB; 64 MB of L3",
        16,
        64 * _M,
        CPU_LAUNCH,
        "cpu",
    ),
    # 96 cores x 2.4 GHz x 2 units of 256 bits x 8 lanes x 2 (multiply-add); 12 channels x 8 bytes x 4800 MT/s
    "epyc9654": Specification(
        {"float64": 96 * 2.4e9 * 2 * 4 * 2, "float32": 96 * 2.4e9 * 2 * 8 * 2, "float16": 96 * 2.4e9 * 2 * 8 * 2},
        768 * _G,
        12 * 8 * 4800e6,
        "AMD EPYC 9654 specifications: 96 cores, 2.4 GHz, 12 x DDR5-4800; 384 MB of L3; 12 modules of 64 GB",
        96,
        384 * _M,
        CPU_LAUNCH,
        "cpu",
    ),
}

REPORTED: Mapping[str, str] = {
    "Tesla P4": "p4",
    "Tesla P100-SXM2-16GB": "p100",
    "Tesla V100-SXM2-32GB": "v100",
    "Tesla T4": "t4",
    "GeForce RTX 2080 Ti": "rtx2080ti",
    "GeForce RTX 3060 Ti": "rtx3060ti",
    "A100-SXM4-40GB": "a100",
    "A100-PCIE-40GB": "a100",
    "H100 80GB HBM3": "h100",
    "H200": "h200",
    "GeForce RTX 3060": "rtx3060",
    "GeForce RTX 3090": "rtx3090",
    "RTX A6000": "rtxa6000",
    "A10": "a10",
    "A100-SXM4-80GB": "a100-80gb",
    "GeForce RTX 4090": "rtx4090",
    "L4": "l4",
    "L40S": "l40s",
    "GeForce RTX 5090": "rtx5090",
    "AMD Instinct MI300X": "mi300x",
    "Apple M2 Ultra": "apple-m2-ultra",
    "Apple M4 Max": "apple-m4-max",
    "AMD Ryzen 9 9950X 16-Core Processor": "ryzen9950x",
    "AMD EPYC 9654 96-Core Processor": "epyc9654",
}
"""The kinds by the names that drivers and systems report, without NVIDIA before them."""


def _plain(name: str) -> str:
    """Return a name in lower case without spaces, hyphens and underscores."""
    return "".join(c for c in str(name).lower() if c not in " -_")


_KEYS = {_plain(kind): kind for kind in CATALOGUE}
_REPORTED = {_plain(name): kind for name, kind in REPORTED.items()}


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
    key = _KEYS.get(_plain(kind))
    if key is None:
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


@checked
def kind_of(name: str, memory_bytes: float | None = None) -> str | None:
    """Return the kind of a device that a driver or the system names; None if it is not in the catalogue.

    Only the names in `REPORTED` count: a laptop's GPU of a similar name has other figures.

    Parameters
    ----------
    name : str
        For instance ``"NVIDIA GeForce RTX 4090"``.
    memory_bytes : float, optional
        Memory that is reported. A GPU whose memory differs by more than a tenth is another one.

    Examples
    --------
    >>> kind_of("NVIDIA GeForce RTX 3060", 12288 * 2**20), kind_of("NVIDIA GeForce RTX 3060", 8192 * 2**20)
    ('rtx3060', None)
    """
    kind = _REPORTED.get(_plain(name)) or _REPORTED.get(_plain(name).removeprefix("nvidia"))
    if kind is None or memory_bytes is None or CATALOGUE[kind].family == "cpu":
        return kind
    expected = CATALOGUE[kind].memory_bytes
    return kind if abs(memory_bytes - expected) <= MEMORY_TOLERANCE * expected else None


@checked
def machine(
    devices: Iterable[str | Device],
    link: str | Interconnect = "pcie4-x16",
    *,
    network: str | Interconnect | None = None,
    reserved_bytes: Mapping[str, float] | None = None,
    tool_names: Mapping[str, Mapping[str, str | int]] | None = None,
    efficiency: Mapping[str, tuple[float, float]] | None = None,
) -> Machine:
    """Return a machine of devices of the catalogue, each two of which are linked.

    Parameters
    ----------
    devices : iterable of str or Device
        Kinds, whose devices are named ``gpu0``, ``gpu1``, .. and ``cpu`` (``cpu0``, ``cpu1``, .. if there are several), or devices.
    link : str or Interconnect
        Between devices of one node: a name of `hetsched.costs.interconnects.names`, or bandwidth and latency.
    network : str or Interconnect, optional
        The same between nodes; required if the devices are in several.
    reserved_bytes, tool_names, efficiency
        As of `hetsched.Machine`.

    Raises
    ------
    InvalidProblem
        A kind or a link is unknown, there is no network between nodes, or the machine's rules are broken.

    Examples
    --------
    >>> machine(["rtx4090", "rtx3060", "ryzen9950x"])
    <Machine with gpu0, gpu1, cpu>
    """
    given = list(devices)
    made = [one if isinstance(one, Device) else device(one) for one in given]
    for word in ("gpu", "cpu"):
        mine = [k for k, one in enumerate(given) if one is not made[k] and (made[k].family == "cpu") == (word == "cpu")]
        for i, k in enumerate(mine):
            made[k] = replace(made[k], name="cpu" if word == "cpu" and len(mine) == 1 else f"{word}{i}")
    nodes = np.array([one.node for one in made])
    near = nodes[:, None] == nodes
    if network is None and not near.all():
        raise InvalidProblem(
            f"network is None, but the devices are in {len(set(nodes))} nodes; choose from {', '.join(interconnects.LINKS)}, or give "
            "bandwidth and latency as an Interconnect"
        )
    within, between = (interconnects.link(one) if isinstance(one, str) else one for one in (link, link if network is None else network))
    bandwidth, latency = (np.where(near, getattr(within, name), getattr(between, name)) for name in ("bandwidth", "latency"))
    return Machine(Cluster(made, bandwidth, latency), reserved_bytes=reserved_bytes, tool_names=tool_names, efficiency=efficiency)
