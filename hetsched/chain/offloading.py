"""Weights of items that another device holds than the one that runs the item."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hetsched.arguments import check_array, checked, number
from hetsched.arrays import BoolArray, FloatArray, Frozen
from hetsched.chain.amounts import IMPOSSIBLE, amounts
from hetsched.errors import InvalidProblem


class Offloading(Frozen):
    """Which weights of n items another of m devices may hold, and what the items take then.

    The holder computes with these weights, as a CPU does with the experts of a block, or they are copied to the device of the stage
    each time the item runs. An item that is offloaded takes the sum of the three times in place of its ``seconds``.

    Parameters
    ----------
    weight_bytes : array_like [n]
        Bytes that may be held elsewhere, of those of the item; all of them or none are. 0: the item is not offloaded.
    kept_seconds : array_like [n, m]
        Time of an offloaded item on the device of its stage. inf: impossible.
    held_seconds : array_like [n, m]
        Time that it takes on the device that holds its weights. inf: that device holds none.
    link_seconds : array_like [n, m, m], optional
        Time of the transfers between the device of the stage (second axis) and the holder (third). inf: impossible. Default: 0.
    only_first : bool
        Whether items of the first stage alone may be offloaded.

    Raises
    ------
    InvalidProblem
        A shape does not fit, or an amount is negative, NaN or out of range.
    """

    weight_bytes: FloatArray
    kept_seconds: FloatArray
    held_seconds: FloatArray
    link_seconds: FloatArray
    only_first: bool

    @checked(InvalidProblem)
    def __init__(
        self,
        weight_bytes: npt.ArrayLike,
        kept_seconds: npt.ArrayLike,
        held_seconds: npt.ArrayLike,
        link_seconds: npt.ArrayLike | None = None,
        *,
        only_first: bool = False,
    ) -> None:
        kept = check_array(kept_seconds, "kept_seconds", ("n", "m"), error=InvalidProblem)
        n, m = kept.shape
        links = amounts("link_seconds", link_seconds, (n, m, m), IMPOSSIBLE)
        links[:, np.arange(m), np.arange(m)] = np.inf  # a device is no other
        self._set(
            weight_bytes=np.ceil(amounts("weight_bytes", weight_bytes, (n,))),
            kept_seconds=amounts("kept_seconds", kept, (n, m), IMPOSSIBLE),
            held_seconds=amounts("held_seconds", held_seconds, (n, m), IMPOSSIBLE),
            link_seconds=links,
            only_first=only_first,
        )

    def __repr__(self) -> str:
        return f"<Offloading of {int((self.weight_bytes > 0).sum())} of {len(self.weight_bytes)} items>"

    @cached_property
    def seconds(self) -> FloatArray:
        """Time of an offloaded item by the device of its stage and the holder, shape [n, m, m]; inf: impossible."""
        seconds: FloatArray = self.kept_seconds[:, :, None] + self.held_seconds[:, None, :] + self.link_seconds
        seconds[self.weight_bytes == 0] = np.inf
        seconds.setflags(write=False)
        return seconds

    @cached_property
    def holds(self) -> BoolArray:
        """Whether a device may hold weights of another, shape [m]."""
        return np.asarray(np.isfinite(self.seconds).any(axis=(0, 1)))

    @property
    def _columns(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        return self.weight_bytes, self.kept_seconds, self.held_seconds, self.link_seconds

    def _with(self, *columns: FloatArray) -> Offloading:
        return Offloading(*columns, only_first=self.only_first)

    @checked(InvalidProblem, devices=number(0), links=number(0))
    def scaled(self, devices: float = 1.0, links: float = 1.0, *, device: int | None = None) -> Offloading:
        """Return the same with the times of devices, all or one of them, and those of links multiplied by finite factors from 0."""
        kept, held = self.kept_seconds.copy(), self.held_seconds.copy()
        for column in (kept, held):
            column[:, slice(None) if device is None else device] *= devices
        return self._with(self.weight_bytes, kept, held, self.link_seconds * links)

    @checked(InvalidProblem)
    def without_times(self, *, links_only: bool = False) -> Offloading:
        """Return the same with no times, or with none of links; what is impossible stays so."""
        kept, held, links = (np.where(np.isfinite(s), 0.0, np.inf) for s in (self.kept_seconds, self.held_seconds, self.link_seconds))
        return self._with(self.weight_bytes, *((self.kept_seconds, self.held_seconds) if links_only else (kept, held)), links)

    @checked(InvalidProblem)
    def selected(self, devices: Sequence[int]) -> Offloading:
        """Return the same for some of the devices, in an order."""
        own = list(devices)
        return self._with(self.weight_bytes, self.kept_seconds[:, own], self.held_seconds[:, own], self.link_seconds[:, own][:, :, own])

    @checked(InvalidProblem, shared_bytes=number(0))
    def closed(self, shared_bytes: float) -> Offloading:
        """Return the same of a chain whose first item is the last one too, which has some of its bytes."""
        columns = [each[:-1].copy() for each in self._columns]
        for column, whole in zip(columns, self._columns, strict=True):
            column[0] += whole[-1]
        columns[0][0] -= shared_bytes
        return self._with(*columns)

    @checked(InvalidProblem)
    def merged(self, starts: Sequence[int]) -> Offloading:
        """Return the same of items from each start to before the next as one; those that may be offloaded stay alone."""
        alone = np.diff([*starts, len(self.weight_bytes)]) == 1
        if (np.add.reduceat(self.weight_bytes, starts)[~alone] > 0).any():
            raise InvalidProblem("an item that may be offloaded would be one with another; give it and the next a start of their own")
        return self._with(*(each[list(starts)] for each in self._columns))
