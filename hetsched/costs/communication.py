"""Bandwidth and latency from measured transfers: the line t = d / bandwidth + latency."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, check_count, checked
from hetsched.arrays import BoolArray, FloatArray, Frozen
from hetsched.costs.lines import fit
from hetsched.costs.protocol import Profiler
from hetsched.errors import InvalidProblem
from hetsched.problem.cluster import Cluster, Device

SIZES = tuple(4**x for x in range(5, 13))
"""Default sizes of the copies of `Links.measured` in bytes, 1 KiB to 16 MiB."""


class Links(Frozen):
    """Least-squares lines ``t = k d + b`` through the times of transfers, for all pairs of devices.

    The bandwidth is 1 / k, the latency b. A line with b < 0 is replaced by a line through the origin; `refitted` marks
    these. A pair of devices that was measured at 0 bytes only shares memory: its bandwidth is infinite, its latency the mean.

    Parameters
    ----------
    devices : iterable of Device (or of names)
    sizes : array [S]
        Bytes.
    seconds : array [K, K, S]
        Times from the first device to the second; NaN where not measured. A pair without measurements has no link. The
        diagonal is ignored.
    relative : bool
        Minimise the squares of relative errors instead of absolute ones: the latency is then as accurate as the bandwidth,
        while absolute errors are dominated by the largest transfers.

    Attributes
    ----------
    bandwidth, latency : float64 arrays [K, K]
        As for `hetsched.Cluster`; bandwidth 0 means no link.
    residuals : float64 array [K, K, S]
        Measured seconds minus those of the line.
    refitted : bool array [K, K]

    Raises
    ------
    InvalidProblem
        Shapes or numbers do not fit, a pair was measured at one size only, or its larger transfers take no longer.

    References
    ----------
    Celeritas, section 4.2, after Hafeez et al., 2021.
    """

    devices: tuple[Device, ...]
    bandwidth: FloatArray
    latency: FloatArray
    residuals: FloatArray
    refitted: BoolArray

    @checked
    def __init__(self, devices: Iterable[Device | str], sizes: npt.ArrayLike, seconds: npt.ArrayLike, *, relative: bool = False) -> None:
        members = tuple(Device(device) if isinstance(device, str) else device for device in devices)
        size, times = _checked(members, sizes, seconds)
        weight = times**-2.0 if relative else np.ones(times.shape)
        lines = fit(size, times, weight)
        measured = lines.samples > 0
        shared = measured & ~(np.isfinite(times) & (size > 0)).any(axis=-1)
        for h, k in np.argwhere(measured & ~shared & ~(lines.slope > 0)):
            used = size[np.isfinite(times[h, k])]
            what = f"were measured at one size only ({used[0]:g} bytes)" if np.ptp(used) == 0 else "take no longer if larger"
            raise InvalidProblem(f"transfers from {members[h].name!r} to {members[k].name!r} {what}; measure larger ones too")
        refitted = lines.intercept < 0
        slope = np.where(shared, 0.0, np.where(refitted, _through_origin(size, times, weight), lines.slope))
        latency = np.where(shared, lines.mean, np.where(measured & ~refitted, lines.intercept, 0.0))
        with np.errstate(divide="ignore"):
            bandwidth = np.where(measured, 1.0 / np.where(measured, slope, 1.0), 0.0)
        residuals = times - (slope[..., None] * size + latency[..., None])
        self._set(devices=members, bandwidth=bandwidth, latency=latency, residuals=residuals, refitted=refitted)

    @classmethod
    @checked
    def measured(cls, profiler: Profiler, sizes: Iterable[int] = SIZES, *, relative: bool = True) -> Links:
        """Return the links between all pairs of a profiler's devices, from copies of `sizes` bytes."""
        names = [device.name for device in profiler.devices]
        sizes = [check_count(size, f"sizes[{s}]", 0) for s, size in enumerate(sizes)]
        seconds = np.full((len(names), len(names), len(sizes)), np.nan)
        for h, source in enumerate(names):
            for k, target in enumerate(names):
                if h != k:
                    seconds[h, k] = [profiler.transfer(size, source, target) for size in sizes]
        return cls(profiler.devices, sizes, seconds, relative=relative)

    def __repr__(self) -> str:
        pairs, again = int((self.bandwidth > 0).sum()), int(self.refitted.sum())
        note = f"; {again} of them through the origin" if again else ""
        return f"<Links of {pairs} ordered pairs of {', '.join(device.name for device in self.devices)}{note}>"

    def cluster(self) -> Cluster:
        """Return the devices and these links as a cluster."""
        return Cluster(self.devices, bandwidth=self.bandwidth, latency=self.latency)


def _checked(devices: tuple[Device, ...], sizes: npt.ArrayLike, seconds: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return sizes [S] and seconds [K, K, S], NaN on the diagonal."""
    size, times = (np.array(check_array(given, what, error=InvalidProblem)) for what, given in (("sizes", sizes), ("seconds", seconds)))
    shape = (len(devices), len(devices), size.size)
    if size.ndim != 1 or times.shape != shape:
        raise InvalidProblem(f"seconds has shape {list(times.shape)} but [device, device, size] = {list(shape)} is needed")
    if not (np.isfinite(size) & (size >= 0)).all():
        raise InvalidProblem(f"sizes are {size.tolist()}; they must be bytes >= 0")
    diagonal = np.arange(len(devices))
    times[diagonal, diagonal] = np.nan
    for h, k, s in np.argwhere((times <= 0) | np.isinf(times)):
        pair = f"from {devices[h].name!r} to {devices[k].name!r}"
        raise InvalidProblem(f"{size[s]:g} bytes {pair} took {times[h, k, s]} s; it must be a number > 0, or NaN where not measured")
    return size, times


def _through_origin(size: FloatArray, times: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the slopes of least-squares lines through the origin, NaN without samples."""
    weight = np.where(np.isfinite(times), weight, 0.0)
    with np.errstate(invalid="ignore"):
        slope: FloatArray = (weight * np.nan_to_num(times) * size).sum(axis=-1) / (weight * size**2).sum(axis=-1)
    return slope
