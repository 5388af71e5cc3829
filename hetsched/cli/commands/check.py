"""`check`: the replay of a certificate."""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli.answers import broken_rules
from hetsched.cli.files import read_problem
from hetsched.cli.options import JSON, ProblemFile, time_option
from hetsched.cli.terminal import Working, say, say_json
from hetsched.errors import InconsistentBound, InvalidProblem, OutOfTime, one_line

if TYPE_CHECKING:
    from hetsched import checker


def check(
    problem: ProblemFile,
    certificate: Annotated[Path, typer.Argument(help="A certificate document, plain or packed by gzip.", metavar="CERTIFICATE")],
    time_limit: Annotated[float | None, time_option("Give up after this many seconds.")] = None,
    json: JSON = False,
) -> None:
    """Check a proof that no schedule is shorter than claimed.

    Every step is replayed in whole numbers by one file of Python that uses nothing else of this package: python checker.py does the same.
    Exit code 0 if the claim is proven, 1 with the place and the reason if not, 2 if the document is malformed or the time is over. A
    decision in the certificate is timed exactly and verified; it is optimal if it takes just as long as is proven.

    Example: [bold]hetsched check problem.json certificate.json[/bold]
    """
    from hetsched import checker

    deadline = time.monotonic() + (float("inf") if time_limit is None else time_limit)
    try:
        exact = checker.Problem(checker.load(str(problem)))
        proof = checker.read_certificate(checker.load(str(certificate)), exact)
        with Working("checking"):
            verdict, reason = checker.check(exact, proof, deadline), ""
    except checker.Malformed as error:
        raise InvalidProblem(one_line(str(error))) from None
    except checker.Late as error:
        raise OutOfTime(f"{error}; give a longer --time-limit, or none") from None
    except checker.Rejected as error:
        verdict, reason = None, one_line(str(error))
    if verdict is not None and verdict.makespan is not None:
        reason = _broken(problem, proof)
    if json:
        bound, makespan = (None, None) if verdict is None else (verdict.bound, verdict.makespan)
        infeasible = verdict is not None and bound is None
        exactly = {"bound": "infinity" if infeasible else _text(bound), "makespan": _text(makespan)}
        say_json({"proven": not reason, **exactly, "leaves": 0 if verdict is None else verdict.leaves, "reason": reason})
    elif verdict is None or reason:
        say(f"rejected: {reason}")
    else:
        say(str(verdict._replace(makespan=None)), *_about_decision(verdict))
    raise typer.Exit(1 if reason else 0)


def _text(value: Fraction | None) -> str | None:
    return None if value is None else str(value)


def _broken(problem: Path, proof: checker.Certificate) -> str:
    """Return the first rule that the decision breaks, or "": memory is not seen by the exact times."""
    from hetsched import simulate
    from hetsched.certificates.certificate import decision_of

    instance = read_problem(problem)
    decision = decision_of(proof.batches or [], proof.transfers if instance.links.contended else None)
    for violation in broken_rules(instance, simulate(instance, decision)):
        return f"the decision breaks a rule: {violation.rule}: {one_line(violation.message)}"
    return ""


def _about_decision(verdict: checker.Verdict) -> list[str]:
    """Return a line about a valid decision."""
    from hetsched.checker import seconds

    bound, makespan = verdict.bound, verdict.makespan
    if makespan is None:
        return []
    if bound is None or makespan < bound:
        raise InconsistentBound(
            f"the decision takes {seconds(makespan)} and keeps every rule, below what is proven: one of the two is a bug"
        )
    if makespan == bound:
        return [f"optimal, exactly: the decision takes {seconds(makespan)} and keeps every rule"]
    return [f"the decision takes {seconds(makespan)} and keeps every rule; none is shorter by more than {seconds(makespan - bound)}"]
