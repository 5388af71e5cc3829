"""A process that reads documents on standard input, with limits of memory and CPU time, and prints the fault of each.

Requests are a length in eight bytes, then as many bytes of document; answers are lines, empty without a fault.
"""

from __future__ import annotations

import resource
import signal
import sys
from contextlib import suppress

import hetsched as hs
from hetsched import documents
from hetsched.errors import LONGEST

MEMORY = 2**30
"""Bytes in addition to those of the process after all imports."""
READING, SOLVING = 1.0, 10.0
"""CPU seconds for reading and writing, and for solving or checking."""


def verdict(data: bytes, problems: list[hs.Problem]) -> str:
    """Return the fault in the reading of a document, or an empty text; schedules are checked against the problems."""
    try:
        value = documents.decode(data, documents.KINDS)
    except hs.HetschedError as error:
        text = str(error)
        return "" if text.isprintable() and len(text) <= LONGEST else f"an error of {len(text)} characters: {text[:200]!r}"
    written = documents.encode(value)
    again = documents.decode(written, documents.KINDS)
    if again != value or documents.encode(again) != written:
        return "what was read is written as something else"
    signal.setitimer(signal.ITIMER_PROF, SOLVING)
    schedule = value.schedule if isinstance(value, hs.Solution) else value
    if isinstance(schedule, hs.Schedule):
        schedule.batch_of, schedule.busy_time  # noqa: B018
        for problem in problems:
            for use in (hs.verify, lambda problem, schedule: hs.simulate(problem, schedule.decision)):
                with suppress(hs.HetschedError):
                    use(problem, schedule)
    if isinstance(value, hs.Problem):
        try:
            solution = hs.solve(value, "heft")
        except hs.HetschedError:
            return ""
        if solution.schedule is not None and hs.verify(value, solution.schedule):
            return "heft's schedule breaks a rule"
    return ""


def main() -> None:
    """Answer requests until the end of input; there are no limits before the request "limit"."""
    first, problems = True, []
    while header := sys.stdin.buffer.read(8):
        data = sys.stdin.buffer.read(int.from_bytes(header))
        if not first:
            signal.setitimer(signal.ITIMER_PROF, READING)  # its signal ends the process
        try:
            fault = verdict(data, problems)
        except (Exception, RecursionError) as error:
            fault = f"a raw {type(error).__name__}: {str(error)[:300]!r}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        if first and data.startswith(b'{"format": "hetsched-problem"'):
            problems.append(documents.decode(data))
        sys.stdout.write(fault.replace("\n", " ") + "\n")
        sys.stdout.flush()
        if data.startswith(b"limit"):  # the parent has sent documents to compile all kernels
            first = False
            pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115
            most = pages * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
