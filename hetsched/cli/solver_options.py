"""The options of exact methods: ``--solver`` chooses one, ``--gap`` is its option; ``--threads`` applies to all methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from hetsched.search import Method


def fraction(text: str) -> float:
    """Return the relative gap of a fraction (0.01) or a percentage (1%)."""
    number = text.strip()
    try:
        value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a fraction like 0.01 nor per cent like 1%") from None
    if not 0 <= value < 1:
        raise typer.BadParameter(f"{text!r} is not at least 0 and below 1; write one per cent as 0.01 or 1%")
    return value


def choose(
    names: list[str] | None,
    options: dict[str, Any],
    *,
    objective: str = "makespan",
    solver: str | None,
    gap: float | None,
    threads: int | None,
    workers: int | None = None,
) -> list[str]:
    """Return the methods to run, and set their `options` from the other arguments.

    `names` are the methods named on the command line, or None; a solver without a name selects an exact method
    for the objective. Options that a method or its solver lacks are refused; `threads` itself is passed to `solve`.
    """
    if solver is None:
        names = ["auto"] if names is None else names
    else:
        alone = _method_of(solver, objective)
        named, names = names, [alone.name] if names is None else names
        if named is not None or alone.solver is None:
            _give(names, options, "solver", solver, f"either --method {alone.name} or --solver {solver} alone will do")
    if gap is not None:
        _give(names, options, "gap", gap, f"choose an exact method by --solver {_listed()} instead")
    if workers is not None:
        _give(names, options, "workers", workers, "choose --method auto or split, or use --threads for a solver")
    for key in ("threads", "workers"):
        if threads is not None and key in options:
            _twice(key, options[key], "--threads")
    _check_solvers(names, options if threads is None else {**options, "threads": threads})
    return names


def _method_of(solver: str, objective: str) -> Method:
    from hetsched.modeling.backends import info
    from hetsched.search import exact

    return exact(info(solver).name, objective)


def _listed() -> str:
    from hetsched.modeling.backends import known

    *others, last = [backend.name for backend in known()]
    return f"{', '.join(others)} or {last}"


def _give(names: list[str], options: dict[str, Any], key: str, value: Any, remedy: str) -> None:
    """Set an option, which all named methods must have and ``--option`` must not have set."""
    from hetsched import UnsupportedFeature
    from hetsched.search import find_method

    if key in options:
        _twice(key, options[key], f"--{key}")
    for method in map(find_method, names):
        try:
            method.check_options({key: value})
        except UnsupportedFeature as refusal:
            raise typer.BadParameter(f"{refusal}; {remedy}", param_hint=f"--{key}") from None
    options[key] = value


def _twice(key: str, value: Any, flag: str) -> NoReturn:
    raise typer.BadParameter(f"--option {key}={value} is given too; leave one of them out", param_hint=flag)


def _check_solvers(names: list[str], options: dict[str, Any]) -> None:
    """Raise an error for a solver that is missing or cannot use the threads requested."""
    from hetsched.modeling.backends import info, known
    from hetsched.search import find_method

    for name in names:
        method = find_method(name)
        solver = {**method.options, **options}.get("solver") if method.solver is None else method.solver
        if solver in [backend.name for backend in known()]:
            info(solver, threads=options.get("threads"))
