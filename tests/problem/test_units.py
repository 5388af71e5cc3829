"""Formats of numbers for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.problem import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (1.0, "1.000 s"),
        (12345.6, "1.235e+04 s"),
        (0.00204, "2.040 ms"),
        (1e-6, "1.000 us"),
        (1.5e-9, "1.500 ns"),
        (3e-12, "0.003000 ns"),
        (math.inf, "inf"),
        (math.nan, "-"),
    ],
)
def test_seconds_have_a_unit_and_four_digits(value: float, text: str) -> None:
    assert units.seconds(value) == text


@given(st.floats(1e-12, 1e12))
def test_seconds_lose_nothing_but_digits(value: float) -> None:
    number, unit = units.seconds(value).split()
    assert float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit] == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(("share", "text"), [(0.0, "0.00 %"), (1e-9, "< 0.01 %"), (0.5, "50.00 %"), (1.0, "100.00 %")])
def test_a_small_gap_is_not_called_none(share: float, text: str) -> None:
    assert units.percent(share) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0 B"), (999.0, "999 B"), (16e9, "16 GB"), (math.inf, "unlimited"), (math.nan, "-")])
def test_bytes_have_a_unit(value: float, text: str) -> None:
    assert units.size(value) == text
