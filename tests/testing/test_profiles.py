"""Examples are the same in every run, except in the thorough profile."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import settings

from hetsched.testing import profiles

PROPERTY = """
from hypothesis import given, strategies as st
from hetsched.testing import problems, profiles
from hetsched.documents import encode
{before}

@profiles.examples(40)
@given(st.integers(), problems())
def test_draws(number, problem):
    with open({path!r}, "ab") as file:
        file.write(b"%d %s" % (number, encode(problem)))
    {after}
"""


def drawn(folder, *options, before="", after="", hash_seed="0", **environment):
    """Return the examples of a property in a separate process, with the conftest of this project."""
    module, path = folder / "test_drawn.py", folder / "drawn"
    module.write_text(PROPERTY.format(before=before, after=after, path=str(path)))
    path.unlink(missing_ok=True)
    left_out = ("CI", "HETSCHED_THOROUGH_SEED", "HETSCHED_THOROUGH_MINUTES")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out and not name.startswith("PYTEST_")}
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            "pyproject.toml",
            "-p",
            "tests.conftest",
            "-p",
            "no:cacheprovider",
            str(module),
            *options,
        ],
        env={**inherited, "PYTHONHASHSEED": hash_seed, **environment},
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    return path.read_text().splitlines()


@pytest.mark.slow
def test_a_newcomers_examples_are_the_same_every_time(tmp_path):
    first = drawn(tmp_path)
    assert len(first) == 10
    assert drawn(tmp_path, before="import hetsched.heuristics.local_search.annealing, hetsched.costs", hash_seed="7") == first


@pytest.mark.slow
def test_thorough_examples_are_drawn_anew_and_can_be_repeated(tmp_path):
    thorough = "--hypothesis-profile=thorough"
    first = drawn(tmp_path, thorough, HETSCHED_THOROUGH_SEED="1")
    assert len(first) >= 400
    assert drawn(tmp_path, thorough, HETSCHED_THOROUGH_SEED="1", hash_seed="7") == first
    assert drawn(tmp_path, thorough, HETSCHED_THOROUGH_SEED="2") != first


@pytest.mark.slow
def test_a_part_of_the_thorough_tests_ends_within_a_test(tmp_path):
    """One of half an hour, begun in the last of four minutes, has cost a run of CI."""
    endless = {"before": "import time", "after": "while True: time.sleep(1)"}
    begun = drawn(tmp_path, "--hypothesis-profile=thorough", **endless, HETSCHED_THOROUGH_MINUTES="0.2")
    assert len(begun) == 1


@pytest.mark.parametrize(("profile", "tried"), [("default", 30), ("dev", 7), ("ci", 30), ("thorough", 300)])
def test_a_profile_sets_how_many_examples_are_tried(profile, tried):
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert profiles.examples(30).max_examples == tried
        assert profiles.examples(6).max_examples == max(5, tried // 5)
        assert profiles.examples(30).derandomize == (profile in ("dev", "ci"))
        assert profiles.searching(500).max_examples == 500
    finally:
        settings.load_profile(before)
