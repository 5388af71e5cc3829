"""Arrays: row starts, and immutable values whose fields are the annotations of their class."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.arrays import FloatArray, Frozen, IntArray, row_starts


class Named(Frozen):
    kinds: ClassVar[int] = 2
    name: str
    seconds: FloatArray

    def __init__(self, name: str, seconds: FloatArray) -> None:
        self._set(name=name, seconds=seconds)

    @cached_property
    def total(self) -> float:
        return float(self.seconds.sum())


class Counted(Named):
    count: IntArray

    def __init__(self, name: str, seconds: FloatArray, count: IntArray) -> None:
        self._set(name=name, seconds=seconds, count=count)


@dataclass(frozen=True, eq=False)
class Record(Frozen):
    seconds: FloatArray
    note: str = field(default="", compare=False)


@given(st.lists(st.integers(0, 5)))
def test_row_starts_cut_what_they_count(counts):
    starts = row_starts(counts)
    assert starts.dtype == np.int64
    assert starts.shape == (len(counts) + 1,)
    assert starts[0] == 0
    assert np.diff(starts).tolist() == counts


def test_fields_are_those_annotated_after_those_inherited():
    assert Named._fields == ("name", "seconds")
    assert Counted._fields == ("name", "seconds", "count")
    assert Record._fields == ("seconds",)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Named("a", np.array([1.0, np.nan])), Named("b", np.array([1.0, np.nan]))),
        (Named("a", np.array([1.0])), Named("a", np.array([2.0]))),
        (Counted("a", np.array([1.0]), np.array([1])), Counted("a", np.array([1.0]), np.array([2]))),
        (Record(np.array([1.0, np.nan]), "a"), Record(np.array([1.0]), "a")),
    ],
)
def test_equality_compares_every_field_and_nan_equals_nan(one, other):
    assert one == pickle.loads(pickle.dumps(one))
    assert one != other


def test_an_array_differs_from_none():
    known, unknown = Record(np.array([1.0, 2.0])), Record(None)
    assert known != unknown
    assert unknown != known
    assert unknown == Record(None)


def test_what_is_left_out_of_comparisons_is_no_part_of_the_value():
    assert Record(np.array([1.0]), "a") == Record(np.array([1.0]), "b")


def test_pickling_carries_fields_and_no_cached_property():
    value = Named("a", np.array([1.0, 2.0]))
    assert value.total == 3.0
    assert pickle.loads(pickle.dumps(value)).__dict__.keys() == {"name", "seconds"}


@pytest.mark.parametrize("value", [Named("a", np.zeros(2)), Record(np.zeros(2)), pickle.loads(pickle.dumps(Record(np.zeros(2))))])
def test_neither_fields_nor_their_arrays_can_be_changed(value):
    with pytest.raises(AttributeError):
        value.seconds = np.ones(2)
    with pytest.raises(AttributeError):
        del value.seconds
    with pytest.raises(ValueError, match="read-only"):
        value.seconds[0] = 1.0
