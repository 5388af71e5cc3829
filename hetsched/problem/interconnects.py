"""Links between devices by name: the bytes per second of payload in each direction, and the seconds before the first byte.

Rates are those of the standards; the shares of them that are payload, and the latencies, are assumptions that `PCIE_PAYLOAD`,
`ETHERNET_PAYLOAD`, `NVLINK_PAYLOAD` and each `Interconnect.source` state. A link that was measured is passed as numbers instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hetsched.arguments import checked, shown
from hetsched.arguments.amounts import Amount, hint
from hetsched.errors import InvalidProblem
from hetsched.problem.ranges import RANGE, in_range, number

PCIE_PAYLOAD = 0.85
"""Share of the data rate, behind the line code, that copies reach: packets of 256 bytes have about 28 of framing, and acknowledgements
and flow control take some per cent; copies of pinned memory measure 0.8 to 0.87."""
ETHERNET_PAYLOAD = 1448 / 1538
"""Share of the rate that TCP over IPv4 with timestamps carries in frames of 1,500 bytes, with preamble and gap 1,538."""
NVLINK_PAYLOAD = 0.9
"""Share of the data sheet's rate that copies between GPUs reach; an assumption."""


@checked(InvalidProblem)
@dataclass(frozen=True)
class Interconnect:
    """A link in one direction. Amounts are numbers, or text with a unit: ``"12 GB/s"``, ``"10 us"``.

    Parameters
    ----------
    bandwidth : float
        Bytes of payload per second, inf if bytes cost nothing.
    latency : float
        Seconds of a transfer besides its bytes.
    source : str
        What the figures are from.

    Raises
    ------
    InvalidProblem
        An amount breaks its rule.
    """

    bandwidth: Amount
    latency: Amount
    source: str

    def __post_init__(self) -> None:
        for what, unit, or_inf in (("bandwidth", "B/s", ", or inf if bytes cost nothing"), ("latency", "s", "")):
            given = getattr(self, what)
            value = number(given, unit)
            if not in_range(np.array(value)) and not (or_inf and value == math.inf):
                raise InvalidProblem(f"{what} of a link is {shown(given)}; it must be {RANGE}{or_inf}{hint(unit)}")
            object.__setattr__(self, what, value)


def _pcie(generation: int, lanes: int) -> Interconnect:
    gigatransfers = {3: 8, 4: 16, 5: 32}[generation]
    rate = f"PCI Express {generation}.0: {gigatransfers} GT/s x {lanes} lanes x 128/130"
    return Interconnect(
        gigatransfers * 1e9 * lanes * 128 / 130 / 8 * PCIE_PAYLOAD, 10e-6, f"{rate}, of it {PCIE_PAYLOAD:.0%} payload; 10 us a copy assumed"
    )


def _ethernet(gigabits: int, latency: float) -> Interconnect:
    text = f"{gigabits} Gbit/s Ethernet, of it {ETHERNET_PAYLOAD:.1%} payload of TCP; {latency * 1e6:g} us a message assumed"
    return Interconnect(gigabits * 1e9 / 8 * ETHERNET_PAYLOAD, latency, text)


def _nvlink(generation: str, gigabytes: float) -> Interconnect:
    text = f"NVIDIA NVLink {generation}: {gigabytes:g} GB/s each way, of it {NVLINK_PAYLOAD:.0%} payload; 5 us a copy assumed"
    return Interconnect(gigabytes * 1e9 * NVLINK_PAYLOAD, 5e-6, text)


LINKS: Mapping[str, Interconnect] = {
    **{f"pcie{generation}-x{lanes}": _pcie(generation, lanes) for generation in (3, 4, 5) for lanes in (8, 16)},
    "nvlink-bridge": _nvlink("bridge of an RTX 3090 or RTX A6000", 56.25),
    "nvlink3": _nvlink("3, A100", 300.0),
    "nvlink4": _nvlink("4, H100 and H200", 450.0),
    "1gbe": _ethernet(1, 50e-6),
    "10gbe": _ethernet(10, 30e-6),
    "100gbe": _ethernet(100, 10e-6),
    "wifi": Interconnect(
        1201e6 / 8 * 0.6, 3e-3, "IEEE 802.11ax, 2 streams of 80 MHz: 1,201 Mbit/s, of it 60% payload, 3 ms a message assumed"
    ),
}
"""The links by name."""


def names() -> tuple[str, ...]:
    """Return the names of the links."""
    return tuple(LINKS)


@checked
def link(name: str) -> Interconnect:
    """Return the link of a name; raise `InvalidProblem` for an unknown name.

    Examples
    --------
    >>> round(link("pcie4-x16").bandwidth / 1e9, 1)
    26.8
    """
    if name not in LINKS:
        raise InvalidProblem(f"link is {shown(name)}; choose from {', '.join(LINKS)}, or give bandwidth and latency as an Interconnect")
    return LINKS[name]
