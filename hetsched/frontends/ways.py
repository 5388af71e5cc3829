"""Ways to capture a call, tried one after another; the one that is taken is told, and so is one that would have succeeded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from hetsched.errors import UnsupportedFeature, warn
from hetsched.frontends.calling import needs_data
from hetsched.frontends.flops import Formulas

Made = TypeVar("Made", covariant=True)


class Way(Generic[Made]):
    """A way to capture a call.

    Parameters
    ----------
    make : function without arguments
        It raises `UnsupportedFeature`, with the error of torch or the model as its cause.
    told : str
        What a warning says if the way was taken because those before it fail.
    remedy : str
        What an error says if the way would succeed but is not permitted.
    runs : bool
        Whether it runs the model on data. It is tried only if the way before it fails without data.
    """

    def __init__(self, make: Callable[[], Made], told: str = "", remedy: str = "", *, runs: bool = False) -> None:
        self.make, self.told, self.remedy, self.runs = make, told, remedy, runs


def first(ways: Sequence[Way[Made]], permitted: Collection[Way[Made]], formulas: Formulas) -> Made:
    """Return what the first way makes that succeeds.

    Raises
    ------
    UnsupportedFeature
        Every way fails: with what this package refuses, else with the error of the last way, which is closest to a call of the module
        itself. Or the first that succeeds is not permitted: with the error of the first way, and the remedy.
    """
    failures: list[UnsupportedFeature] = []
    for way in ways:
        if way.runs and failures and not needs_data(failures[-1].__cause__):
            break
        formulas.unknown.clear()
        try:
            made = way.make() if way in permitted or not way.runs else None
        except UnsupportedFeature as error:
            failures.append(error)
            continue
        if way not in permitted or made is None:
            raise UnsupportedFeature(f"{failures[0]}; {way.remedy}") from failures[0].__cause__
        if failures:
            warn(f"{failures[-1]}, {way.told}")
        return made
    raise next((failure for failure in reversed(failures) if failure.__cause__ is None), failures[-1])
