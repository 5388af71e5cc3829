"""Every backend through the published suite."""

from __future__ import annotations

import pytest

import hetsched as hs
from hetsched.modeling.model import Model
from hetsched.testing import solvers


class TestScip(solvers.BackendSuite):
    solver = "scip"
    option = ("separating/maxrounds", 3)


class TestHighs(solvers.BackendSuite):
    solver = "highs"
    option = ("presolve", "off")


class TestCpSat(solvers.BackendSuite):
    solver = "cpsat"
    tolerance = 2e-6  # rounding to units, see hetsched.modeling.integers
    knows_continuous = False
    option = ("cp_model_probing_level", 0)


def test_an_unknown_solver_is_told() -> None:
    with pytest.raises(hs.UnsupportedFeature, match="unknown solver 'gurobi'; choose from scip, highs, cpsat"):
        Model().solve("gurobi")
