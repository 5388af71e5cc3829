"""The exact methods through the published suite of methods."""

from __future__ import annotations

from hetsched.testing import conformance


class Exact(conformance.MethodSuite):
    """What all of them need: seconds, and small problems."""

    evaluations = None
    time_limit = 20.0
    answers_plain = True
    scales = False  # a proof ends where the solver's tolerance does
    __test__ = False


for _name in ("milp", "milp:highs", "cpsat", "moirai", "pesto", "getf", "assignment"):
    _title = "Test" + _name.title().replace(":", "")
    _limited = {"answers_plain": False} if _name in ("pesto", "getf") else {}
    globals()[_title] = type(_title, (Exact,), {"method": _name, "__module__": __name__, "__test__": True, **_limited})
