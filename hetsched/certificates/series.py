"""Lemmas for modules in series: the least start of each task that all others precede or follow, on each device.

If a task ends before all that follow it start, schedules of what is before it and of what is after it meet in its device and its start
alone. So a long chain of modules is refuted module by module, as it is solved by `hetsched.decomposition`; memory and co-location may
couple modules, then the lemmas still hold and prove less.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hetsched import checker
from hetsched.certificates.certificate import Lemma
from hetsched.certificates.relaxation import Relaxation, Window
from hetsched.certificates.tree import prove
from hetsched.stopping import Deadline

LEAST = 6
"""The fewest tasks of a window: shorter ones are left to the next, whose trees stay small."""
NEVER = 2**200
"""The start, in units, of a task on a device where it cannot run."""


def cuts(relaxation: Relaxation) -> list[int]:
    """Return the places in the topological order of the tasks that every other task is an ancestor or a descendant of."""
    instance, order = relaxation.instance, relaxation.problem.order
    related = (instance.ancestors[i].bit_count() + instance.descendants[i].bit_count() for i in order)
    return [x for x, count in enumerate(related) if count == len(order) - 1]


def releases(relaxation: Relaxation, deadline: Deadline) -> tuple[list[Lemma], list[int]]:
    """Prove least starts at the cuts, one after another, and add them to the heads of the relaxation.

    Returns
    -------
    lemmas : list
    rest : list of int
        The last cut with a lemma and the tasks after it, all tasks if there is none.
    """
    order = relaxation.problem.order
    lemmas: list[Lemma] = []
    first, chosen = 0, list[int]()
    for x in cuts(relaxation)[:-1]:
        if x - (chosen[-1] if chosen else 0) >= LEAST - 1:
            chosen.append(x)
    for number, x in enumerate(chosen):
        j = order[x]
        devices = relaxation.instance.devices[relaxation.problem.unit[j]]
        for place, k in enumerate(devices):
            until = deadline.part(1 / ((len(chosen) - number) * len(devices) - place))
            lemmas += _release(Window(relaxation, order[first : x + 1], (j, k)), until)
        if all(relaxation.heads.get((j, k)) == NEVER for k in devices):
            return [], order  # there is no schedule, which is not a claim about the rest
        first = x
    return lemmas, order[first:]


def _release(window: Window, deadline: Deadline) -> Iterator[Lemma]:
    """Yield the lemma of the largest least start found, and add it to the heads; later windows know nothing else of this one."""
    assert window.at is not None
    (j, k), relaxation = window.at, window.relaxation
    duration = relaxation.instance.p[j * relaxation.size + k]
    root = window.root(checker.INFINITE)
    path = root.head[j * relaxation.size + k] + duration
    for end in [NEVER + duration] if root.contradiction else itertools.chain(window.targets(deadline.part(1 / 2)), [path]):
        tree = prove(window, end, deadline)
        if tree is not None:
            if end > duration:
                relaxation.heads[j, k] = end - duration
                yield Lemma(("release", j, k, end - duration), tuple(tree), tuple(window.tasks.tolist()))
            return
