"""A catalogue of devices with the figures of their vendors' data sheets.

Peaks are dense (no structured sparsity) and at the vendor's nominal clock; ``float16`` and
``bfloat16`` are tensor-core rates with float32 accumulation if the device has tensor cores,
``tfloat32`` is the tensor-core rate for float32 data, ``float32`` and ``float64`` are rates of the
ordinary units. Memory is in decimal gigabytes. Launch overheads are not on data sheets: see
`GPU_LAUNCH` and `CPU_LAUNCH`; a measured overhead is passed as ``launch_overhead=``.

CPUs and Apple's GPUs have no units for ``float16`` products: that peak, where it is stated, is the one of ``float32``; matrix units of
CPUs (AMX) are not counted. The memory of a CPU is the most that a board has, of a server with modules of 64 GB, one a channel; of an Apple
GPU it is the share of the unified memory that Metal recommends as working set, 3/4; a Jetson shares its memory with its CPU.

The figures were entered by hand, and not all of them with the document beside. Tests compare the peaks of GPUs with units and clocks,
their bandwidths with widths and rates of the memory, and last caches with those of the chip. Compare a figure that matters with its source,
which `sources` tells, and give another as ``device("l4", memory_bandwidth=...)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hetsched.arguments import checked

GPU_LAUNCH = 5e-6
"""Seconds per operator on a GPU: a round figure for the few microseconds of a CUDA kernel launch
(compare A. Gray, "Getting Started with CUDA Graphs", NVIDIA technical blog, 2019)."""

CPU_LAUNCH = 8e-6
"""Seconds per operator on a CPU: the overhead of the PyTorch interpreter (7 to 9 microseconds measured
with torch 2.13 on a Xeon)."""


@checked
@dataclass(frozen=True)
class Specification:
    """One entry of the catalogue: FLOP/s per dtype, bytes, bytes per second, the source, multiprocessors or cores, bytes of the last
    cache (None if unknown), seconds, the family of `Analytic`, and the name of its link to the host (empty if it is not PCI Express)."""

    peak_flops: Mapping[str, float]
    memory_bytes: float
    memory_bandwidth: float
    source: str
    units: int
    cache_bytes: float | None
    launch_overhead: float = GPU_LAUNCH
    family: str = "cuda"
    link: str = "pcie4-x16"

    @property
    def figures(self) -> dict[str, Any]:
        """The arguments of `hetsched.Device`."""
        names = ("peak_flops", "memory_bytes", "memory_bandwidth", "launch_overhead", "family", "units", "cache_bytes")
        return {name: getattr(self, name) for name in names}


_GA102 = "NVIDIA Ampere GA102 white paper (2021)"
_ADA = "NVIDIA Ada GPU architecture white paper (2023)"
_BLACKWELL = "NVIDIA RTX Blackwell GPU architecture white paper (2025)"
_HALF = "(half of the figures printed with sparsity)"
_X8, _GEN3, _GEN5, _GEN5_X8 = "pcie4-x8", "pcie3-x16", "pcie5-x16", "pcie5-x8"


def _gpu(
    gigabytes: float,
    bandwidth: float,
    units: int,
    mebibytes: float | None,
    source: str,
    link: str = "pcie4-x16",
    family: str = "cuda",
    **teraflops: float,
) -> Specification:
    """Return a GPU by its memory, gigabytes per second, multiprocessors, last cache and peaks."""
    peaks = {name: value * 1e12 for name, value in teraflops.items()}
    cache = None if mebibytes is None else mebibytes * 2**20
    return Specification(peaks, gigabytes * 1e9, bandwidth * 1e9, source, units, cache, family=family, link=link)


def _tensor(float32: float, tfloat32: float, float16: float, int8: float, **others: float) -> dict[str, Any]:
    """Return the peaks of a GPU with tensor cores, whose rates for float16 and bfloat16 are equal."""
    return {**others, "float32": float32, "tfloat32": tfloat32, "float16": float16, "bfloat16": float16, "int8": int8}


def _geforce(
    name: str, units: int, gigahertz: float, gigabytes: float, bandwidth: float, mebibytes: float, paper: str, link: str = "pcie4-x16"
) -> Specification:
    """Return a GeForce RTX by its multiprocessors of 128 cores and boost clock; tensor rates per core and clock are alike since Ampere."""
    peak = units * 128 * gigahertz * 2e-3
    source = f"NVIDIA RTX {name}: {units * 128} cores x {gigahertz} GHz x 2; tensor rates per core and clock as in the {paper}"
    return _gpu(gigabytes, bandwidth, units, mebibytes, source, link, **_tensor(peak, peak, 2 * peak, 8 * peak))


def _apple(chip: str, year: int, cores: int, gigahertz: float, gigabytes: int, bandwidth: float) -> Specification:
    """Return an Apple GPU. Apple states cores and bandwidths; 128 lanes a core and the clocks are those that users read."""
    source = f"Apple {chip}, {cores} GPU cores, {gigabytes} GB: Apple's press release ({year}); peak from lanes and clock"
    peak = round(cores * 128 * gigahertz * 2e-3, 1) * 1e12
    memory = 0.75 * gigabytes * 2**30
    return Specification({"float32": peak, "float16": peak}, memory, bandwidth * 1e9, source, cores, None, family="metal", link="")


def _cpu(
    name: str, cores: int, gigahertz: float, lanes: int, channels: int, rate: int, gigabytes: float, mebibytes: float, link: str
) -> Specification:
    """Return a CPU by two units of `lanes` float32 lanes a core that multiply and add, and channels of 8 bytes at `rate` MT/s."""
    peak = cores * (gigahertz * 1e9) * 2 * lanes * 2
    memory = f"{channels} x {'DDR5' if rate >= 4800 else 'DDR4'}-{rate}, {gigabytes} GB"
    source = f"{name} specifications: {cores} cores, {gigahertz} GHz, {memory}; {mebibytes} MB of L3"
    peaks = {"float64": peak / 2, "float32": peak, "float16": peak}
    bandwidth = channels * 8 * (rate * 1e6)
    return Specification(peaks, gigabytes * 1e9, bandwidth, source, cores, mebibytes * 2**20, CPU_LAUNCH, "cpu", link)


CATALOGUE: Mapping[str, Specification] = {
    # A CPU of each generation: Skylake, Cascade Lake, Ice Lake, Sapphire, Emerald and Granite Rapids; Naples, Rome, Milan, Genoa, Turin
    "skylake": Specification(
        {"float32": 26 * 2.0e9 * 2 * 16 * 2, "float64": 26 * 2.0e9 * 2 * 8 * 2},
        768e9,
        6 * 8 * 2666e6,
        "Intel ARK, Xeon Platinum 8164 (Skylake-SP, 2.00 GHz): 26 cores, 2 AVX-512 FMA units, 6 x DDR4-2666, 768 GB; 35.75 MB of L3",
        26,
        35.75 * 2**20,
        CPU_LAUNCH,
        "cpu",
        _GEN3,
    ),
    "xeon8280": _cpu("Intel Xeon Platinum 8280", 28, 2.7, 16, 6, 2933, 384, 38.5, _GEN3),
    "xeon8380": _cpu("Intel Xeon Platinum 8380", 40, 2.3, 16, 8, 3200, 512, 60, "pcie4-x16"),
    "xeon8480": _cpu("Intel Xeon Platinum 8480+", 56, 2.0, 16, 8, 4800, 512, 105, _GEN5),
    "xeon8592": _cpu("Intel Xeon Platinum 8592+", 64, 1.9, 16, 8, 5600, 512, 320, _GEN5),
    "xeon6980p": _cpu("Intel Xeon 6980P", 128, 2.0, 16, 12, 6400, 768, 504, _GEN5),
    "epyc7551": _cpu("AMD EPYC 7551", 32, 2.0, 4, 8, 2666, 512, 64, _GEN3),
    "epyc7742": _cpu("AMD EPYC 7742", 64, 2.25, 8, 8, 3200, 512, 256, "pcie4-x16"),
    "epyc7763": _cpu("AMD EPYC 7763", 64, 2.45, 8, 8, 3200, 512, 256, "pcie4-x16"),
    "epyc9654": _cpu("AMD EPYC 9654", 96, 2.4, 8, 12, 4800, 768, 384, _GEN5),
    "epyc9755": _cpu("AMD EPYC 9755", 128, 2.7, 16, 12, 6000, 768, 512, _GEN5),
    "ryzen9950x": _cpu("AMD Ryzen 9 9950X", 16, 4.3, 16, 2, 5600, 192, 64, _GEN5),
    # NVIDIA's GPUs of data centres and workstations
    "p4": _gpu(8, 192, 20, 2, "NVIDIA Tesla P4 data sheet", _GEN3, float32=5.5, int8=22),
    "p100": _gpu(16, 732, 56, 4, "NVIDIA Tesla P100 data sheet, SXM2 16 GB", _GEN3, float64=5.3, float32=10.6, float16=21.2),
    "v100": _gpu(32, 900, 80, 6, "NVIDIA Tesla V100 data sheet, SXM2 32 GB", _GEN3, float64=7.8, float32=15.7, float16=125),
    "t4": _gpu(16, 320, 40, 4, "NVIDIA T4 data sheet; bandwidth from its product brief", _GEN3, float32=8.1, float16=65, int8=130),
    "a10": _gpu(24, 600, 72, 6, "NVIDIA A10 Tensor Core GPU data sheet", **_tensor(31.2, 62.5, 125, 250)),
    "a30": _gpu(24, 933, 56, 24, "NVIDIA A30 Tensor Core GPU data sheet", **_tensor(10.3, 82, 165, 330, float64=5.2)),
    "a100": _gpu(40, 1555, 108, 40, "NVIDIA A100 Tensor Core GPU data sheet, 40 GB", **_tensor(19.5, 156, 312, 624, float64=9.7)),
    "a100-80gb": _gpu(80, 2039, 108, 40, "NVIDIA A100 Tensor Core GPU data sheet, 80 GB SXM", **_tensor(19.5, 156, 312, 624, float64=9.7)),
    "rtxa6000": _gpu(48, 768, 84, 6, f"{_GA102}, RTX A6000", **_tensor(38.7, 77.4, 154.8, 309.7)),
    "l4": _gpu(24, 300, 58, 48, f"NVIDIA L4 Tensor Core GPU data sheet {_HALF}", **_tensor(30.3, 60, 121, 242.5)),
    "l40s": _gpu(48, 864, 142, 96, "NVIDIA L40S GPU data sheet", **_tensor(91.6, 183, 362.05, 733)),
    "h100": _gpu(
        80, 3350, 132, 50, f"NVIDIA H100 Tensor Core GPU data sheet, SXM {_HALF}", _GEN5, **_tensor(67, 494.5, 989.5, 1979, float64=34)
    ),
    "h200": _gpu(
        141, 4800, 132, 50, f"NVIDIA H200 Tensor Core GPU data sheet, SXM {_HALF}", _GEN5, **_tensor(67, 494.5, 989.5, 1979, float64=34)
    ),
    "b200": _gpu(
        180, 7700, 148, None, f"NVIDIA HGX B200 data sheet, one of eight {_HALF}", _GEN5, **_tensor(75, 1100, 2250, 4500, float64=37)
    ),
    # NVIDIA's GeForce RTX
    "rtx2080ti": _gpu(
        11,
        616,
        68,
        5.5,
        "NVIDIA Turing GPU architecture white paper (2018), RTX 2080 Ti reference clocks",
        _GEN3,
        float32=13.4,
        float16=53.8,
    ),
    "rtx3060": _geforce("3060 12 GB", 28, 1.777, 12, 360, 3, _GA102),
    "rtx3060ti": _gpu(
        8, 448, 38, 4, f"NVIDIA RTX 3060 Ti: 4864 cores x 1.665 GHz x 2; tensor rates as in {_GA102}", **_tensor(16.2, 16.2, 32.4, 129.6)
    ),
    "rtx3070": _geforce("3070", 46, 1.725, 8, 448, 4, _GA102),
    "rtx3070ti": _geforce("3070 Ti", 48, 1.77, 8, 608, 4, _GA102),
    "rtx3080": _geforce("3080 10 GB", 68, 1.71, 10, 760, 5, _GA102),
    "rtx3080ti": _geforce("3080 Ti", 80, 1.665, 12, 912, 6, _GA102),
    "rtx3090": _gpu(24, 936, 82, 6, f"{_GA102}, GeForce RTX 3090", **_tensor(35.6, 35.6, 71, 284)),
    "rtx3090ti": _geforce("3090 Ti", 84, 1.86, 24, 1008, 6, _GA102),
    "rtx4060": _geforce("4060", 24, 2.46, 8, 272, 24, _ADA, _X8),
    "rtx4060ti": _geforce("4060 Ti 8 GB", 34, 2.535, 8, 288, 32, _ADA, _X8),
    "rtx4070": _geforce("4070", 46, 2.475, 12, 504, 36, _ADA),
    "rtx4070super": _geforce("4070 SUPER", 56, 2.475, 12, 504, 48, _ADA),
    "rtx4070ti": _geforce("4070 Ti", 60, 2.61, 12, 504, 48, _ADA),
    "rtx4070tisuper": _geforce("4070 Ti SUPER", 66, 2.61, 16, 672, 48, _ADA),
    "rtx4080": _geforce("4080", 76, 2.505, 16, 716.8, 64, _ADA),
    "rtx4080super": _geforce("4080 SUPER", 80, 2.55, 16, 736, 64, _ADA),
    "rtx4090": _gpu(24, 1008, 128, 72, f"{_ADA}, GeForce RTX 4090", **_tensor(82.6, 82.6, 165.2, 660.6)),
    "rtx5060": _geforce("5060", 30, 2.497, 8, 448, 32, _BLACKWELL, _GEN5_X8),
    "rtx5060ti": _geforce("5060 Ti 16 GB", 36, 2.572, 16, 448, 32, _BLACKWELL, _GEN5_X8),
    "rtx5070": _geforce("5070", 48, 2.512, 12, 672, 48, _BLACKWELL, _GEN5),
    "rtx5070ti": _geforce("5070 Ti", 70, 2.452, 16, 896, 48, _BLACKWELL, _GEN5),
    "rtx5080": _geforce("5080", 84, 2.617, 16, 960, 64, _BLACKWELL, _GEN5),
    "rtx5090": _gpu(32, 1792, 170, 96, f"{_BLACKWELL}, GeForce RTX 5090", _GEN5, **_tensor(104.8, 104.8, 209.5, 838)),
    # NVIDIA's Jetson Orin: 128 cores and 4 tensor cores a multiprocessor, 512 int8 products a clock in each, half as many of float16
    "jetson-agx-orin": _gpu(
        64, 204.8, 16, 4, "NVIDIA Jetson AGX Orin 64 GB data sheet: 1.3 GHz", "", float32=5.3248, float16=42.5984, int8=85.1968
    ),
    "jetson-orin-nx": _gpu(
        16, 102.4, 8, None, "NVIDIA Jetson Orin NX 16 GB data sheet: 918 MHz", "", float32=1.880064, float16=15.040512, int8=30.081024
    ),
    "jetson-orin-nano": _gpu(
        8, 102.4, 8, None, "NVIDIA Jetson Orin Nano Super data sheet: 8 GB, 1.02 GHz", "", float32=2.08896, float16=16.71168, int8=33.42336
    ),
    # AMD's accelerators
    "mi250x": _gpu(
        128,
        3276.8,
        220,
        16,
        "AMD Instinct MI250X data sheet; both dies, which systems list as two devices of half the figures",
        family="rocm",
        float64=47.9,
        float32=47.9,
        float16=383,
        bfloat16=383,
        int8=383,
    ),
    "mi300x": _gpu(
        192, 5300, 304, 256, "AMD Instinct MI300X data sheet", _GEN5, "rocm", **_tensor(163.4, 653.7, 1307.4, 2614.9, float64=81.7)
    ),
    # Apple's GPUs, the largest of each chip
    "apple-m2": _apple("M2", 2022, 10, 1.398, 24, 100),
    "apple-m2-pro": _apple("M2 Pro", 2023, 19, 1.398, 32, 200),
    "apple-m2-max": _apple("M2 Max", 2023, 38, 1.398, 96, 400),
    "apple-m2-ultra": _apple("M2 Ultra", 2023, 76, 1.398, 192, 800),
    "apple-m3": _apple("M3", 2023, 10, 1.398, 24, 100),
    "apple-m3-pro": _apple("M3 Pro", 2023, 18, 1.398, 36, 150),
    "apple-m3-max": _apple("M3 Max", 2023, 40, 1.398, 128, 400),
    "apple-m3-ultra": _apple("M3 Ultra", 2025, 80, 1.398, 512, 819),
    "apple-m4": _apple("M4", 2024, 10, 1.47, 32, 120),
    "apple-m4-pro": _apple("M4 Pro", 2024, 20, 1.578, 64, 273),
    "apple-m4-max": _apple("M4 Max", 2024, 40, 1.578, 128, 546),
    # Google's accelerators: products of float32 take six passes of bfloat16 at full precision, and float16 is computed as bfloat16
    "tpu-v5e": _gpu(
        16, 819, 1, None, "Google Cloud TPU v5e documentation: one chip", "", "tpu", float32=197 / 6, float16=197, bfloat16=197, int8=393
    ),
}

REPORTED: Mapping[str, str] = {
    "Tesla P4": "p4",
    "Tesla P100-SXM2-16GB": "p100",
    "Tesla V100-SXM2-32GB": "v100",
    "Tesla T4": "t4",
    **{name: name.lower() for name in ("A10", "A30", "L4", "L40S", "H200", "B200")},
    "A100-SXM4-40GB": "a100",
    "A100-PCIE-40GB": "a100",
    "A100-SXM4-80GB": "a100-80gb",
    "H100 80GB HBM3": "h100",
    "RTX A6000": "rtxa6000",
    **{
        f"GeForce {kind[:3].upper()} {kind[3:7]} {suffix}".strip(): kind
        for kind in CATALOGUE
        if kind.startswith("rtx") and kind[3].isdigit()
        for suffix in [kind[7:].replace("ti", "Ti ").replace("super", "SUPER").strip()]
    },
    "AMD Instinct MI300X": "mi300x",
    **{entry.source.partition(",")[0]: kind for kind, entry in CATALOGUE.items() if entry.family == "metal"},
    "Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz": "xeon8280",
    "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz": "xeon8380",
    "Intel(R) Xeon(R) Platinum 8480+": "xeon8480",
    "INTEL(R) XEON(R) PLATINUM 8592+": "xeon8592",
    "Intel(R) Xeon(R) 6980P": "xeon6980p",
    "AMD EPYC 7551 32-Core Processor": "epyc7551",
    "AMD EPYC 7742 64-Core Processor": "epyc7742",
    "AMD EPYC 7763 64-Core Processor": "epyc7763",
    "AMD EPYC 9654 96-Core Processor": "epyc9654",
    "AMD EPYC 9755 128-Core Processor": "epyc9755",
    "AMD Ryzen 9 9950X 16-Core Processor": "ryzen9950x",
}
"""The kinds by the names that drivers and systems report, without NVIDIA before them."""


_CHIPS: Mapping[str, str] = {
    "NVIDIA GeForce GTX 1080 white paper (2016), GP104": "p4",
    "NVIDIA Tesla P100 white paper (2016)": "p100",
    "NVIDIA Tesla V100 GPU architecture white paper (2017)": "v100",
    "NVIDIA Turing GPU architecture white paper (2018)": "t4 rtx2080ti",
    "NVIDIA A100 Tensor Core GPU architecture white paper (2020)": "a100 a100-80gb",
    f"{_GA102}: 128 lanes a multiprocessor, 512 KB of cache a memory controller of 32 bits": (
        "a10 rtxa6000 rtx3060 rtx3060ti rtx3070 rtx3070ti rtx3080 rtx3080ti rtx3090 rtx3090ti"
    ),
    f"{_ADA}: 128 lanes a multiprocessor": "l4 l40s rtx4070ti rtx4080 rtx4090",
    "NVIDIA H100 Tensor Core GPU architecture white paper (2022)": "h100 h200",
    f"{_BLACKWELL}: 128 lanes a multiprocessor": "rtx5070 rtx5070ti rtx5080 rtx5090",
    "AMD CDNA 2 white paper (2021)": "mi250x",
    "AMD CDNA 3 white paper (2023), Infinity Cache": "mi300x",
    "": "a30 b200 rtx4060 rtx4060ti rtx4070 rtx4070super rtx4070tisuper rtx4080super rtx5060 rtx5060ti",
}
"""Documents with multiprocessors and last caches, if not the source of the other figures; "" where none of the vendor's has both."""


def sources(kind: str) -> dict[str, str]:
    """Return the source of each figure of a kind of the catalogue."""
    entry = CATALOGUE[kind]
    chip = next((document for document, kinds in _CHIPS.items() if kind in kinds.split()), entry.source)
    units = chip or "cores by 128, or 64 of an A30; cache as drivers report it"
    overhead = "measured with torch 2.13 on a Xeon" if entry.family == "cpu" else "a round figure for a kernel launch"
    printed = dict.fromkeys([*entry.peak_flops, "memory_bytes", "memory_bandwidth"], entry.source)
    known = {"cache_bytes": units} if entry.cache_bytes is not None else {}
    return {**printed, "units": units, **known, "launch_overhead": overhead}


def plain(name: str) -> str:
    """Return a name in lower case without spaces, hyphens and underscores."""
    return "".join(c for c in str(name).lower() if c not in " -_")


_KINDS = {plain(kind): kind for kind in CATALOGUE}


def find(name: str) -> str | None:
    """Return the kind of a name as people write it (``"RTX 2080 Ti"``), None if it is not in the catalogue."""
    return _KINDS.get(plain(name))
