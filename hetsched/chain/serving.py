"""Serving: intervals of a chain on devices that pass tokens on, several at a time and at any place of the chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hetsched.arguments import COUNT, check_array, check_indices, check_rows, checked, shown
from hetsched.arrays import FloatArray, Frozen, IntArray, readonly
from hetsched.errors import InvalidArgument, InvalidProblem, InvalidSchedule
from hetsched.problem.graph import unique_names
from hetsched.problem.ranges import RANGE, in_range

if TYPE_CHECKING:
    from hetsched.chain.flow_kernels import Fleet

MOST_DEVICES = 256


class ServingProblem(Frozen):
    """A chain of n equal items, such as the blocks of a language model, and devices of K types that serve it together.

    Each device holds an interval of items. A token goes through devices whose intervals meet: one begins with the first item, each next
    one where the last ends, until the last item is done. Different tokens may take different ways, and what is wanted is the most tokens
    per second, as in Helix (Mei et al., ASPLOS 2025, without partial inference).

    Parameters
    ----------
    n_items : int
    types : iterable of str
        Unique names.
    counts : sequence of int [K]
        Devices of each type; together they are numbered by type, from 0 to m - 1.
    throughput : sequence of array_like [K]
        Of each type the tokens per second of a device that holds 1, 2, ... items; 0 or no entry: it cannot. More items need not mean
        fewer tokens.
    links : array_like [m + 1, m + 1], optional
        Tokens per second that go from one device (row) to another (column) at most; in the last row and column from and to the outside.
        inf: unlimited. Default: all are.

    Raises
    ------
    InvalidProblem
        A shape does not fit, an amount is negative, NaN or out of range, or there is no device.
    """

    n_items: int
    types: tuple[str, ...]
    counts: IntArray
    throughput: FloatArray
    links: FloatArray

    @checked(InvalidProblem, n_items=COUNT)
    def __init__(
        self,
        n_items: int,
        types: Iterable[str],
        counts: Sequence[int],
        throughput: Sequence[npt.ArrayLike],
        *,
        links: npt.ArrayLike | None = None,
    ) -> None:
        names = unique_names(types, "type")
        numbers = check_array(counts, "counts", (len(names),), np.int64, error=InvalidProblem)
        if numbers.min(initial=0) < 0 or not 1 <= numbers.sum() <= MOST_DEVICES:
            raise InvalidProblem(f"counts is {shown(numbers.tolist())}; it must be numbers from 0, together 1 to {MOST_DEVICES} devices")
        if len(throughput) != len(names):
            raise InvalidProblem(f"throughput has {len(throughput)} tables; it must have one for each of {len(names)} types")
        own = [check_array(row, f"throughput[{k}]", ("n",), error=InvalidProblem)[:n_items] for k, row in enumerate(throughput)]
        table = np.zeros((len(names), max(1, *map(len, own))))
        for k, row in enumerate(own):
            table[k, : len(row)] = row
        m = int(numbers.sum())
        pairs = np.full((m + 1, m + 1), np.inf) if links is None else check_array(links, "links", (m + 1, m + 1), error=InvalidProblem)
        for what, amounts, also in (("throughput", table, False), ("links", pairs, True)):
            valid = in_range(amounts) | (np.isposinf(amounts) & also)
            if not valid.all():
                first = tuple(map(int, np.argwhere(~valid)[0]))
                raise InvalidProblem(
                    f"{what}{list(first)} is {amounts[first]}; it must be {RANGE}{', or inf for unlimited' if also else ''}"
                )
        self._set(n_items=n_items, types=names, counts=readonly(numbers), throughput=table, links=readonly(pairs))

    def __repr__(self) -> str:
        devices = ", ".join(f"{count} {name}" for count, name in zip(self.counts.tolist(), self.types, strict=True))
        return f"<ServingProblem of {self.n_items} items on {devices}>"

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return int(self.counts.sum())

    @cached_property
    def device_type(self) -> IntArray:
        """Type of each device [m]."""
        return readonly(np.repeat(np.arange(len(self.types)), self.counts))

    @property
    def limited(self) -> bool:
        """Whether a link is limited."""
        return bool(np.isfinite(self.links).any())

    def unlimited(self) -> ServingProblem:
        """Return the problem without limits of links."""
        return ServingProblem(self.n_items, self.types, self.counts.tolist(), list(self.throughput))

    def fleet(self, *, limited: bool | None = None) -> Fleet:
        """Return what kernels read; `limited` is whether they join single devices, by default whether a link is limited."""
        from hetsched.chain.flow_kernels import Fleet  # with numba, whose import takes long

        rates = np.zeros((len(self.types), self.n_items + 1))
        rates[:, 1 : self.throughput.shape[1] + 1] = self.throughput
        longest = np.array([np.flatnonzero(row).max(initial=0) for row in rates])
        own = self.device_type
        return Fleet(rates[own], longest[own], self.links.copy(), self.limited if limited is None else limited)


class ServingPlacement(Frozen):
    """The interval of items that each device holds.

    Parameters
    ----------
    first, end : array_like of int [m]
        The first item of each device, and the one behind its last; equal for a device that holds none.
    """

    first: IntArray
    end: IntArray

    @checked
    def __init__(self, first: npt.ArrayLike, end: npt.ArrayLike) -> None:
        starts = check_array(first, "first", ("devices",), np.int64)
        self._set(first=readonly(starts), end=readonly(check_array(end, "end", starts.shape, np.int64)))

    @classmethod
    @checked
    def of(cls, problem: ServingProblem, intervals: Iterable[tuple[int, int, int]]) -> ServingPlacement:
        """Make a placement of (number of a type, first, end); each interval goes to the next device of the type.

        Raises
        ------
        InvalidArgument
            A type is unknown, or has fewer devices.
        """
        rows = check_rows(intervals, "intervals", "type", "first", "end")
        first, end = np.zeros((2, problem.n_devices), np.int64)
        following = np.cumsum(problem.counts) - problem.counts
        left = problem.counts.copy()
        for kind in check_indices([row[0] for row in rows], "the types of intervals", len(problem.types)).tolist():
            left[kind] -= 1
        if left.min() < 0:
            k = int(left.argmin())
            raise InvalidArgument(
                f"intervals has {problem.counts[k] - left[k]} for {problem.types[k]!r}; there are {problem.counts[k]} such devices"
            )
        for kind, begin, stop in rows:
            first[following[kind]], end[following[kind]] = begin, stop
            following[kind] += 1
        return cls(first, end)

    def __repr__(self) -> str:
        used = int((self.first < self.end).sum())
        return f"<ServingPlacement of intervals on {used} of {len(self.first)} devices>"


def check_intervals(problem: ServingProblem, placement: ServingPlacement) -> None:
    """Raise `InvalidSchedule` unless each device can hold its interval."""
    first, end = placement.first, placement.end
    if len(first) != problem.n_devices:
        raise InvalidSchedule(f"{placement!r} does not fit {problem!r}; give an interval for each of {problem.n_devices} devices")
    rates = problem.fleet().rates
    for d, (begin, stop) in enumerate(zip(first.tolist(), end.tolist(), strict=True)):
        if not 0 <= begin <= stop <= problem.n_items or (begin < stop and rates[d, stop - begin] == 0):
            raise InvalidSchedule(
                f"device {d}, a {problem.types[problem.device_type[d]]!r}, has the items from {begin} to before {stop}; it must have "
                f"some of {problem.n_items} one after another, as many as its throughput is above 0 for"
            )
