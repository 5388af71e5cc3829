"""Every built-in list scheduler, and what repeats one, through the published suite."""

from __future__ import annotations

import pytest

from hetsched.search import Kind, select
from hetsched.testing import conformance

QUICKLY = ("best-device", "heft", "lookahead", "cpop", "etf", "bmet", "bgreedy", "bheft", "packing", "random-heft", "sa", "ea", "auto")
"""Between them they run every placement kernel; the others are tested with the slow tests."""

for _name in sorted({*(each.name for each in select(kind=Kind.CONSTRUCTIVE, auto=True)), *QUICKLY}):
    _title = "Test" + _name.title().replace("-", "")
    _class = type(_title, (conformance.MethodSuite,), {"method": _name, "__module__": __name__})
    globals()[_title] = _class if _name in QUICKLY else pytest.mark.slow(_class)
