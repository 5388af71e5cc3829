"""Every built-in method through the published suite."""

from __future__ import annotations

from hetsched.members import BATCHED_SCHEDULERS, LIST_SCHEDULERS
from hetsched.testing import conformance

for _name in (*LIST_SCHEDULERS, *BATCHED_SCHEDULERS, "random-heft", "sa", "ea", "auto"):
    _title = "Test" + _name.title().replace("-", "")
    globals()[_title] = type(_title, (conformance.MethodSuite,), {"method": _name, "__module__": __name__})
