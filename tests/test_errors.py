"""Messages: one printable line of bounded length, for any names from outside."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched as hs
from hetsched import errors


@given(st.text())
def test_one_line_is_one_printable_line(text: str) -> None:
    line = errors.one_line(text)
    assert line.isprintable()
    if text.isprintable() and "  " not in text:
        assert line == text.strip()


@given(st.text(max_size=50), st.integers(0, 10**6))
def test_a_message_is_short_printable_and_survives_a_pickle(text: str, times: int) -> None:
    error = hs.InvalidProblem(text * times)
    assert len(str(error)) <= errors.LONGEST
    assert str(error).isprintable()
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@given(st.text(alphabet="abc ", max_size=3000), st.integers(5, 600))
def test_shortening_keeps_both_ends(text: str, most: int) -> None:
    short = errors.shortened(text, most)
    assert len(short) <= most
    if len(text) <= most:
        assert short == text
    else:
        head, _, tail = short.partition(" ... ")
        assert text.startswith(head)
        assert text.endswith(tail)


@pytest.mark.parametrize("name", ["\x1b[31mred", "line\nbreak", "n" * 10**6, "\ud800"])
def test_errors_about_strange_names_stay_one_short_line(name: str) -> None:
    with pytest.raises(hs.HetschedError) as caught:
        hs.TaskGraph([name, name])
    assert len(str(caught.value)) <= errors.LONGEST
    assert str(caught.value).isprintable()


def test_a_long_cycle_is_one_short_line() -> None:
    names = [f"task {i}" for i in range(5000)]
    with pytest.raises(hs.InvalidProblem, match=r"cycle: task 0 -> task 1 -> .* \.\.\. .*; remove one of its edges") as caught:
        hs.TaskGraph(names, list(zip(names, [*names[1:], names[0]], strict=True)))
    assert len(str(caught.value)) <= errors.LONGEST
