"""A module whose tasks do what their argument says, also in other processes."""

from __future__ import annotations

import os
import signal
import threading
import time

import torch

NOTHING, RAISE, EXIT, SLEEP, STOP, EXIT_SOON, UNPICKLABLE = range(7)


class Fault(Exception):
    """What a task raises."""


class Unpicklable(Exception):
    """It refers to a lock."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


def do(kind: int) -> None:
    """Do what a kind says."""
    if kind == RAISE:
        raise Fault("on purpose")
    if kind == UNPICKLABLE:
        raise Unpicklable("with a lock")
    if kind == EXIT:
        os._exit(7)
    if kind == EXIT_SOON:
        threading.Timer(0.1, os._exit, [7]).start()
    if kind == SLEEP:
        time.sleep(60)
    if kind == STOP:
        os.kill(os.getpid(), signal.SIGSTOP)


LIBRARY = torch.library.Library("hetsched_acting", "DEF")  # its operators start faster than those of `custom_op`
LIBRARY.define("obey(Tensor x, int number) -> Tensor")


@torch.library.impl(LIBRARY, "obey", "CPU")
def _obey(x, number):
    """Add 1 to the first column; the second one has the number of the act that does something, the third one what."""
    if int(x[0, 1]) == number:
        do(int(x[0, 2]))
    return x + torch.tensor([1.0, 0.0, 0.0])


@torch.library.register_fake("hetsched_acting::obey", lib=LIBRARY)
def _(x, number):
    return torch.empty_like(x)


obey = torch.ops.hetsched_acting.obey


class Obeys(torch.nn.Module):
    """Two chains of acts, 0 to 2 and 3 to 5, that begin with the argument and end in a sum."""

    def forward(self, x):
        a = b = x
        for number in range(3):
            a, b = obey(a, number), obey(b, number + 3)
        return a + b


def order(number: int = -1, kind: int = NOTHING) -> torch.Tensor:
    """Return an argument that lets one act do something."""
    return torch.tensor([[0.0, float(number), float(kind)]])
